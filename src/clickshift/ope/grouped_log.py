"""A log as off-policy evaluation sees it: its distinct lists, how often each was shown, and what was clicked.

One pass groups the sessions; after it, the cost of everything follows the number of distinct lists. A tally of part of
the log (a day, a resampled log) has the same entries, so tallies can be added and subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final, no_type_check

import numpy as np
from jaxtyping import Bool, Float, Int, Num, Shaped
from numba import njit

from clickshift.core.parallel import for_ranges
from clickshift.core.unique_rows import distinct_rows, stable_order
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import DataError
from clickshift.ope.rewards import Reward


@final
@dataclass(frozen=True, eq=False)
class Tally:
    """Counts by entry. The last dimension is for several logs at once, such as resampled ones."""

    shown: Float[np.ndarray, "entry part"]
    clicks: Num[np.ndarray, "entry rank part"]
    """Mostly nothing: in small numbers, where they fit, for resampled logs."""
    earned: Float[np.ndarray, "entry part"]
    """The reward of all sessions of an entry."""

    def __sub__(self, other: Tally) -> Tally:
        return Tally(self.shown - other.shown, self.clicks - other.clicks, self.earned - other.earned)


@final
@dataclass(frozen=True, eq=False)
class Clusters:
    """What is drawn again to resample a log: sessions, or users with all of theirs.

    Equal rows are merged, and stand in the order of their entries.
    """

    size: Float[np.ndarray, " cluster"]
    """How many equal clusters one stands for."""
    of_row: Int[np.ndarray, " row"]
    entry: Int[np.ndarray, " row"]
    click: Bool[np.ndarray, "row rank"]
    count: Float[np.ndarray, " row"]
    """Sessions of this row in one cluster."""


@final
@dataclass(frozen=True, eq=False)
class GroupedLog:
    """Distinct lists, cut to the ranks that the reward counts. Contexts are queries.

    An entry is a distinct list with its logged propensity: entries and lists are the same where the log has none. A
    cell is a document at a rank, of those that were shown. Lists of a query stand together, and so do entries of a
    list: what is counted by documents then is near in memory.
    """

    reward: Reward
    theta: Float[np.ndarray, " rank"]
    lists: Rankings
    list_of: Int[np.ndarray, " entry"]
    log_prob: Float[np.ndarray, " entry"] | None
    """Logged propensities; None where the log has none, or where they are those of longer lists."""
    was_cut: bool
    """Whether lists are shorter here than in the log."""
    cell: Int[np.ndarray, "list rank"]
    """The number of each list's cells, `UNSEEN` below its end."""
    cell_pair: Int[np.ndarray, " cell"]
    cell_rank: Int[np.ndarray, " cell"]
    entry_of: Int[np.ndarray, " row"]
    click: Bool[np.ndarray, "row rank"]
    count: Float[np.ndarray, " row"]
    cluster: Int[np.ndarray, " row"] | None
    """The user, or other cluster, of each row of the log; None where sessions are independent."""

    @classmethod
    def of(
        cls,
        sessions: Sessions,
        reward: Reward | str = "clicks",
        *,
        cluster: Literal["session", "user"] | np.ndarray = "session",
    ) -> GroupedLog:
        """Group a log. `cluster` says which sessions are not independent: those of one user, or of one label."""
        reward = Reward.named(reward) if isinstance(reward, str) else reward
        rankings = sessions.rankings
        if rankings.query.min() == UNSEEN or (
            rankings.pair.min() == UNSEEN and ((rankings.pair == UNSEEN) & rankings.shown).any()
        ):
            raise DataError(
                "every query and document of the log must have an id, or lists cannot be told apart: some have been "
                "lost in a translation. Give the log in its own vocabulary."
            )
        theta = reward.theta(sessions.n_ranks)
        ranks = len(theta)
        was_cut = ranks < sessions.n_ranks and bool(rankings.shown[:, ranks].any())
        of_row, first = distinct_rows(pack_rows(rankings.pair[:, :ranks]))
        of_row, first = _sorted(of_row, first, rankings.query, rankings.vocabulary.n_queries)
        lists = Rankings(rankings.vocabulary, rankings.query[first], _taken(rankings.pair, first, ranks))
        list_of, log_prob, entry_of = np.arange(len(first)), None, of_row
        if rankings.log_prob is not None and not was_cut:
            if not np.array_equal(rankings.log_prob, rankings.log_prob[first][of_row]):
                keys = np.stack([of_row, rankings.log_prob.view(np.int64)], axis=1)
                entry_of, first = _sorted(*distinct_rows(keys), of_row, len(lists))
            list_of, log_prob = of_row[first], rankings.log_prob[first]
        return cls(
            reward,
            theta,
            lists,
            list_of,
            log_prob,
            was_cut,
            *_cells(lists),
            entry_of,
            np.ascontiguousarray(sessions.click[:, :ranks]),
            sessions.count.astype(np.float64),
            _cluster_numbers(sessions, cluster),
        )

    @property
    def vocabulary(self) -> Vocabulary:
        return self.lists.vocabulary

    @property
    def n_ranks(self) -> int:
        return len(self.theta)

    @property
    def n_queries(self) -> int:
        """Of the vocabulary; some may have no session."""
        return self.vocabulary.n_queries

    @property
    def largest(self) -> float:
        """The most that one list can earn."""
        return self.reward.largest(self.n_ranks)

    @cached_property
    def query(self) -> Int[np.ndarray, " entry"]:
        query: np.ndarray = self.lists.query[self.list_of]
        return query

    @cached_property
    def total(self) -> Tally:
        """All of the log."""
        return self.tally()

    def tally(self, rows: Bool[np.ndarray, " row"] | None = None) -> Tally:
        """Of the whole log, or of some of its rows, such as those of one day."""
        everything = rows is None
        entry, click, count = (a if everything else a[rows] for a in (self.entry_of, self.click, self.count))
        tally = _nothing(self, 1, np.dtype(np.float64))
        _count_once(entry, click, self.theta, _most(self), count, tally.shown, tally.clicks, tally.earned)
        return tally

    @cached_property
    def clusters(self) -> Clusters:
        """Built when a log is first resampled."""
        keys = [self.entry_of[:, None], pack_rows(np.packbits(self.click, axis=1))]
        if self.cluster is not None:
            keys.append(self.cluster[:, None])
        group, first = distinct_rows(np.concatenate(keys, axis=1, dtype=np.int64))
        count = np.bincount(group, self.count, len(first))
        order = stable_order(self.entry_of[first], len(self.list_of))
        rows = first[order]
        entry, click = self.entry_of[rows], self.click[rows]
        if self.cluster is None:  # numbered as they come, so that what is drawn does not depend on the order of lists
            return Clusters(count, order, entry, click, np.ones(len(rows)))
        return Clusters(np.ones(int(self.cluster.max()) + 1), self.cluster[rows], entry, click, count[order])

    @cached_property
    def resampled_type(self) -> np.dtype:
        """Of the clicks of a resampled log: the smallest that can count how often the most frequent list is drawn.

        A sum of Poisson numbers is not twice its mean and 100; one of clusters not sixteen times, but once in 10^14.
        """
        most = (2 if self.cluster is None else 16) * float(self.total.shown.max()) + 100
        return np.dtype(np.uint16 if most < 1 << 16 else np.float32 if most < 1 << 24 else np.float64)

    def by_entry(self, of_list: Shaped[np.ndarray, "list slot"]) -> Shaped[np.ndarray, "entry slot"]:
        """Values of lists for every entry; not copied where entries are lists."""
        return of_list if len(self.list_of) == len(self.lists) else of_list[self.list_of]

    def per_query(self, values: Float[np.ndarray, "entry part"]) -> Float[np.ndarray, "query part"]:
        """Values of entries, added up by query."""
        return sum_by_index(self.query, values, self.n_queries)

    def __repr__(self) -> str:
        return f"Logged({self.count.sum():,.0f} sessions, {len(self.lists):,} distinct lists of {self.n_ranks} ranks)"


def tally_resampled(
    logged: GroupedLog,
    entry: Int[np.ndarray, " row"],
    click: Bool[np.ndarray, "row rank"],
    drawn: Float[np.ndarray, "cluster part"],
    cluster: Int[np.ndarray, " row"],
    count: Float[np.ndarray, " row"],
) -> Tally:
    """Count rows, each `count` times as often as its cluster was drawn."""
    tally = _nothing(logged, drawn.shape[1], logged.resampled_type)
    _count(entry, click, logged.theta, _most(logged), drawn, cluster, count, tally.shown, tally.clicks, tally.earned)
    return tally


def _nothing(logged: GroupedLog, parts: int, of_clicks: np.dtype) -> Tally:
    entries = len(logged.list_of)
    clicks = np.zeros((entries, logged.n_ranks, parts), of_clicks)
    return Tally(np.zeros((entries, parts)), clicks, np.zeros((entries, parts)))


def _most(logged: GroupedLog) -> float:
    """What a list may earn: 1 where one click is as good as many."""
    return np.inf if logged.reward.is_linear else logged.largest


def sum_by_index(
    index: Int[np.ndarray, " n"], values: Float[np.ndarray, "n part"], size: int
) -> Float[np.ndarray, "m part"]:
    """Add up rows with the same index; rows with the index `UNSEEN` are left out."""
    out = np.zeros((size, values.shape[1]))
    _add(index, values, out)
    return out


def pack_rows(rows: np.ndarray) -> Int[np.ndarray, "row word"]:
    """Rows of small numbers, eight bytes to a word: quicker to hash, and nothing is copied where they fit."""
    per_word = 8 // rows.dtype.itemsize
    spare = -rows.shape[1] % per_word
    if spare:
        rows = np.pad(rows, ((0, 0), (0, spare)))
    return np.ascontiguousarray(rows).view(np.int64)


def _sorted(
    group: Int[np.ndarray, " row"], first: Int[np.ndarray, " group"], number: Int[np.ndarray, " row"], size: int
) -> tuple[Int[np.ndarray, " row"], Int[np.ndarray, " group"]]:
    """The same groups, ordered by a number that all rows of a group share."""
    order = stable_order(number[first], size)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place[group], first[order]


def _taken(pair: Int[np.ndarray, "row _"], rows: Int[np.ndarray, " list"], ranks: int) -> Int[np.ndarray, "list rank"]:
    """The first ranks of some rows."""
    taken = np.empty((len(rows), ranks), np.int32)
    for_ranges(lambda some: _take(pair, rows[some], taken[some]), len(rows))
    return taken


def _cells(lists: Rankings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of cells, rank by rank, then by pair."""
    occurs = np.zeros((lists.vocabulary.n_pairs, lists.n_ranks), bool)
    for_ranges(lambda rows: _mark(lists.pair[rows], occurs), len(lists))
    rank, pair = np.nonzero(occurs.T)
    number = np.empty(occurs.shape, np.int32)
    number[pair, rank] = np.arange(len(pair))
    cell = np.empty(lists.pair.shape, np.int32)
    for_ranges(lambda rows: _look_up(lists.pair[rows], number, cell[rows]), len(lists))
    return cell, pair, rank


def _cluster_numbers(sessions: Sessions, cluster: str | np.ndarray) -> np.ndarray | None:
    if isinstance(cluster, str) and cluster == "session":
        return None
    if isinstance(cluster, str):
        if cluster != "user":
            raise DataError(f"cluster must be 'session', 'user' or one label per row: got {cluster!r}.")
        if sessions.user is None:
            raise DataError("clusters by user need users: this log has none. Add a user column, or use 'session'.")
        cluster = sessions.user
    if len(cluster) != len(sessions):
        raise DataError(f"there must be one cluster per row of the log, {len(sessions)}: got {len(cluster)}.")
    number: np.ndarray = np.unique(cluster, return_inverse=True)[1]
    if not number.any():
        raise DataError("there must be at least two clusters to tell how far chance goes: got one.")
    return number


@njit(cache=True, nogil=True)
@no_type_check
def _count(entry, click, theta, most, drawn, cluster, count, shown, clicks, earned):
    """A list earns the weights of its clicks, and `most` at most."""
    parts, ranks = drawn.shape[1], click.shape[1]
    for i in range(len(entry)):
        e, c, reward = entry[i], cluster[i], 0.0
        for p in range(parts):
            shown[e, p] += drawn[c, p] * count[i]
        for r in range(ranks):
            if click[i, r]:
                reward += theta[r]
                for p in range(parts):
                    clicks[e, r, p] += drawn[c, p] * count[i]
        reward = min(reward, most)
        if reward > 0.0:
            for p in range(parts):
                earned[e, p] += drawn[c, p] * count[i] * reward


@njit(cache=True, nogil=True)
@no_type_check
def _count_once(entry, click, theta, most, count, shown, clicks, earned):
    for i in range(len(entry)):
        e, reward = entry[i], 0.0
        shown[e, 0] += count[i]
        for r in range(click.shape[1]):
            if click[i, r]:
                reward += theta[r]
                clicks[e, r, 0] += count[i]
        if reward > 0.0:
            earned[e, 0] += count[i] * min(reward, most)


@njit(cache=True, nogil=True)
@no_type_check
def _add(index, values, out):
    for i in range(len(index)):
        if index[i] >= 0:
            for p in range(values.shape[1]):
                out[index[i], p] += values[i, p]


@njit(cache=True, nogil=True)
@no_type_check
def _take(pair, rows, taken):
    """Rows are anywhere: some are asked for at once, so that they are waited for once (see `grouping`)."""
    touched = 0
    for start in range(0, len(rows), 32):
        end = min(start + 32, len(rows))
        for i in range(start, end):
            touched += pair[rows[i], 0]
        for i in range(start, end):
            for r in range(taken.shape[1]):
                taken[i, r] = pair[rows[i], r]
    return touched


@njit(cache=True, nogil=True)
@no_type_check
def _mark(pair, occurs):
    for i in range(pair.shape[0]):
        for r in range(pair.shape[1]):
            if pair[i, r] >= 0:
                occurs[pair[i, r], r] = True


@njit(cache=True, nogil=True)
@no_type_check
def _look_up(pair, number, out):
    for i in range(pair.shape[0]):
        for r in range(pair.shape[1]):
            out[i, r] = number[pair[i, r], r] if pair[i, r] >= 0 else UNSEEN
