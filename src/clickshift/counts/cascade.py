"""Cascade: sufficient statistics of cascade models, whose users examine a list from the top and stop at some rank.

Everything up to the last click was examined, so counts by pair are sufficient for it. What happened after the last
click is hidden: see `tails`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from clickshift.core.parallel import for_each, n_threads
from clickshift.core.tempfiles import ArraySpool, TemporaryStorage
from clickshift.counts.cells import check_at_most, check_counts
from clickshift.counts.tails import HiddenTails, ListsToLastClick, TailsByShape, TailsInParts, empty_shapes, pair_block
from clickshift.data.encoded_log import EncodedLog, Log, weighted_chunks
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class Cascade:
    """Count tables of a log for cascade models (CM, DCM, CCM, DBN, SDBN).

    Tables by pair have an extra last row for `UNSEEN` pairs. An "open" last click is one with a result below it. A hole
    is no impression of any pair, but users pass over it as over a skip.

    Parameters
    ----------
    vocabulary
        Vocabulary of the pair numbers.
    n_ranks
        Number of ranks of the log.
    sort_tails
        Function that returns the tails (the results below the last click); called when they are first needed.
    impressions
        Number of times that the pair was shown.
    examined
        Number of times that the pair was shown at or above the last click, and thus certainly examined.
    clicks
        Number of clicks on the pair.
    followed
        Number of clicks on the pair with another click below, after which the user certainly continued.
    open_last
        Number of open last clicks on the pair.
    followed_at_rank
        Number of clicks at each rank with another click below.
    open_last_at_rank
        Number of open last clicks at each rank.
    first_examined
        Number of times that the pair was shown at or above the first click, or in a session without clicks: the
        examinations of the cascade model.
    first_clicks
        Number of first clicks on the pair.
    passed
        Number of skips above the last click, holes included, after which the user certainly continued.
    sessions
        Number of sessions, where whoever counted kept it.
    """

    vocabulary: Vocabulary
    n_ranks: int
    sort_tails: Callable[[], HiddenTails]

    impressions: Float[np.ndarray, " pair_or_unseen"]
    examined: Float[np.ndarray, " pair_or_unseen"]
    clicks: Float[np.ndarray, " pair_or_unseen"]
    followed: Float[np.ndarray, " pair_or_unseen"]
    open_last: Float[np.ndarray, " pair_or_unseen"]
    followed_at_rank: Float[np.ndarray, " rank"]
    open_last_at_rank: Float[np.ndarray, " rank"]
    first_examined: Float[np.ndarray, " pair_or_unseen"]
    first_clicks: Float[np.ndarray, " pair_or_unseen"]
    passed: float
    sessions: float | None = None

    @classmethod
    def of(cls, log: Log, *, weight: np.ndarray | None = None) -> Cascade:
        """Count a log.

        Parameters
        ----------
        log
            Sessions or an encoded log.
        weight
            Weight of each row of the log; by default, its count.
        """
        threads = n_threads(len(log))
        n_pairs = log.vocabulary.n_pairs
        tables = np.zeros((threads, n_pairs + 2, 8))  # a row for holes and one for UNSEEN pairs, which have index -1
        ranks, passed = np.zeros((threads, log.n_ranks, 2)), np.zeros(threads)
        for part, count in weighted_chunks(log, weight):
            lists = _add_sessions(part, count, tables, ranks, passed)
        total = np.delete(tables.sum(axis=0), n_pairs, axis=0)
        unclicked, to_first, to_last, below, first, clicks, followed, open_last = total.T.copy()
        followed_at_rank, open_last_at_rank = ranks.sum(axis=0).T
        return cls(
            vocabulary=log.vocabulary,
            n_ranks=log.n_ranks,
            sort_tails=partial(TailsByShape.of, lists)  # a log in memory has one part
            if isinstance(log, Sessions)
            else partial(_sort_tails_on_disk, log, weight),
            impressions=unclicked + to_first + to_last + below,
            examined=to_first + to_last,
            clicks=clicks,
            followed=followed,
            open_last=open_last,
            followed_at_rank=followed_at_rank,
            open_last_at_rank=open_last_at_rank,
            first_examined=unclicked + to_first,
            first_clicks=first,
            passed=float(passed.sum()),
        )

    @cached_property
    def tails(self) -> HiddenTails:
        """Results below last clicks, sorted when first used: CM and closed-form estimators do not need them."""
        return self.sort_tails()

    def validate(self) -> None:
        """Raise ValueError unless the tables are what counting gives, e.g. because a file was changed."""
        by_pair = ("impressions", "examined", "clicks", "followed", "open_last", "first_examined", "first_clicks")
        for name in by_pair:
            check_counts(f"cascade.{name}", getattr(self, name), (self.vocabulary.n_pairs + 1,))
        for name in ("followed_at_rank", "open_last_at_rank"):
            check_counts(f"cascade.{name}", getattr(self, name), (self.n_ranks,))
        check_counts("passed", np.array(self.passed), ())
        for part, whole in (
            ("examined", "impressions"),
            ("first_examined", "impressions"),
            ("clicks", "examined"),
            ("first_clicks", "clicks"),
            ("first_clicks", "first_examined"),
        ):
            check_at_most(part, getattr(self, part), whole, getattr(self, whole))
        check_at_most("last and followed clicks", self.followed + self.open_last, "clicks", self.clicks)

    def pooled(self) -> Cascade:
        """Return the counts as if all documents were one; the corresponding tails are `tails.pooled()`."""
        return replace(
            self,
            impressions=_summed_in_first_row(self.impressions),
            examined=_summed_in_first_row(self.examined),
            clicks=_summed_in_first_row(self.clicks),
            followed=_summed_in_first_row(self.followed),
            open_last=_summed_in_first_row(self.open_last),
            first_examined=_summed_in_first_row(self.first_examined),
            first_clicks=_summed_in_first_row(self.first_clicks),
        )


def _add_sessions(
    part: Sessions,
    count: Float[np.ndarray, " session"],
    tables: Float[np.ndarray, "thread pair_or_unseen column"],
    ranks: Float[np.ndarray, "thread rank 2"],
    passed: Float[np.ndarray, " thread"],
) -> ListsToLastClick:
    """Add the counts of some sessions to the tables, of which each thread has its own."""
    rankings, width, threads = part.rankings, part.n_ranks, len(tables)
    pair, holes, unseen = _numbers_with_holes(rankings), rankings.has_holes, part.vocabulary.n_pairs
    length, last = np.empty(len(count), np.int32), np.empty(len(count), np.int32)
    cuts = np.linspace(0, len(count), threads + 1).astype(int)
    pieces = [slice(cuts[k], cuts[k + 1]) for k in range(threads)]
    shapes = empty_shapes(threads, unseen, len(count), width)

    def add(k: int) -> None:
        rows = pieces[k]
        lists = pair[rows], rankings.shown[rows], holes, part.click[rows], count[rows]
        passed[k] += _add_rows(*lists, length[rows], last[rows], unseen, tables[k], ranks[k], shapes[k])

    for_each(add, threads)
    return ListsToLastClick(pair, length, last, count, pieces, shapes, unseen, holes)


def _numbers_with_holes(rankings: Rankings) -> Int[np.ndarray, "session rank"]:
    """Return the pair numbers of lists, with the number after the last pair at holes."""
    if not rankings.has_holes:
        return rankings.pair
    return np.where(rankings.shown, rankings.pair, np.int32(rankings.vocabulary.n_pairs))


def _sort_tails_on_disk(log: EncodedLog, weight: np.ndarray | None) -> TailsInParts:
    """Sort the tails of a log larger than memory, chunk by chunk, into temporary files."""
    scratch, shapes = TemporaryStorage.in_first_writable(log.folder), list[TailsByShape]()
    with (
        scratch.room_for("the results below last clicks, about 40 bytes per session"),
        ArraySpool(scratch) as pairs,
        ArraySpool(scratch) as counts,
    ):
        for part, count in weighted_chunks(log, weight):
            tails = TailsByShape.of(_lists_to_last_click(part, count))
            pairs.append(tails.pair)
            counts.append(tails.count)
            shapes.append(replace(tails, pair=tails.pair[:0].copy(), count=tails.count[:0].copy()))
        return TailsInParts(
            [replace(tails, pair=np.asarray(pairs[k]), count=np.asarray(counts[k])) for k, tails in enumerate(shapes)]
        )


def _lists_to_last_click(part: Sessions, count: Float[np.ndarray, " session"]) -> ListsToLastClick:
    """Find the length and the last click of each list."""
    length, last = np.empty(len(count), np.int32), np.empty(len(count), np.int32)
    pair, holes, unseen = _numbers_with_holes(part.rankings), part.rankings.has_holes, part.vocabulary.n_pairs
    shapes = empty_shapes(1, unseen, len(count), part.n_ranks)
    _find_ends(pair, part.rankings.shown, holes, part.click, length, last, unseen, shapes[0])
    return ListsToLastClick(pair, length, last, count, [slice(0, len(count))], shapes, unseen, holes)


def _summed_in_first_row(table: Float[np.ndarray, " pair_or_unseen"]) -> Float[np.ndarray, " 2"]:
    """Return the table of a vocabulary of one pair: the sum over all pairs, and 0 for `UNSEEN`."""
    return np.array([table.sum(), 0.0])


@njit(cache=True, nogil=True)
@no_type_check
def _add_rows(pair, shown, has_holes, click, count, length, last, unseen, table, ranks, shapes):
    """Add sessions to a table, and return the number of skips above last clicks.

    Columns: impressions without any click, up to the first click, up to the last click, below it; first clicks, clicks,
    followed clicks, open last clicks. UNSEEN is -1, which indexes the last row; the row before it is that of holes.
    """
    passed, width = 0.0, pair.shape[1]
    for i in range(len(pair)):
        weight, n, first_click, last_click = count[i], 0, width, -1
        end = _end_of_list(shown[i]) if has_holes else width
        while n < end and (shown[i, n] or has_holes):
            if click[i, n]:
                first_click = min(first_click, n)
                last_click = n
            n += 1
        length[i], last[i] = n, last_click
        if last_click + 1 < n and shapes.shape[2]:
            shapes[pair_block(pair[i, 0], unseen, len(shapes)), last_click + 1, n] += 1
        if last_click < 0:
            for r in range(n):
                table[pair[i, r], 0] += weight
            continue
        for r in range(first_click + 1):
            table[pair[i, r], 1] += weight
        for r in range(first_click + 1, last_click + 1):
            table[pair[i, r], 2] += weight
        for r in range(last_click + 1, n):
            table[pair[i, r], 3] += weight
        table[pair[i, first_click], 4] += weight
        passed += weight * first_click
        for r in range(first_click, last_click + 1):
            if not click[i, r]:
                passed += weight
                continue
            table[pair[i, r], 5] += weight
            if r < last_click:
                table[pair[i, r], 6] += weight
                ranks[r, 0] += weight
            elif r + 1 < n:
                table[pair[i, r], 7] += weight
                ranks[r, 1] += weight
    return passed


@njit(cache=True, nogil=True)
@no_type_check
def _end_of_list(shown):
    """Return the number of ranks of a list down to its last result."""
    end = len(shown)
    while not shown[end - 1]:
        end -= 1
    return end


@njit(cache=True, nogil=True)
@no_type_check
def _find_ends(pair, shown, has_holes, click, length, last, unseen, shapes):
    """Fill the length and the last click of each list, and count the tails of each shape."""
    width = shown.shape[1]
    for i in range(len(shown)):
        n, last_click = 0, -1
        end = _end_of_list(shown[i]) if has_holes else width
        while n < end and (shown[i, n] or has_holes):
            if click[i, n]:
                last_click = n
            n += 1
        length[i], last[i] = n, last_click
        if last_click + 1 < n and shapes.shape[2]:
            shapes[pair_block(pair[i, 0], unseen, len(shapes)), last_click + 1, n] += 1
