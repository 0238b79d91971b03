"""Cascade: sufficient counts of models whose users walk down the list and stop.

Up to the last click everything was examined, so that counts per pair say it all. What happened after the last click is
hidden; those tails hardly ever repeat, and are kept as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import no_type_check

import numpy as np
from jaxtyping import Float, Int, UInt32
from numba import njit

from clickshift.sessions import Sessions
from clickshift.threads import for_each, n_threads
from clickshift.vocabulary import UNSEEN, Vocabulary


@dataclass(frozen=True, eq=False)
class Cascade:
    """Tables by pair have an extra last row for `UNSEEN` pairs. "Open" is a last click with a result below it."""

    vocabulary: Vocabulary
    pair: UInt32[np.ndarray, "session rank"]
    """Pair numbers; the number after the last pair stands for `UNSEEN` and for padding."""
    length: Int[np.ndarray, " session"]
    last: Int[np.ndarray, " session"]
    """Rank of the last click, -1 for none."""
    count: Float[np.ndarray, " session"]

    impressions: Float[np.ndarray, " pair_or_unseen"]
    examined: Float[np.ndarray, " pair_or_unseen"]
    """How often the pair was shown at or above the last click: there it was certainly examined."""
    clicks: Float[np.ndarray, " pair_or_unseen"]
    followed: Float[np.ndarray, " pair_or_unseen"]
    """Clicks that another click followed: the user certainly went on."""
    open_last: Float[np.ndarray, " pair_or_unseen"]
    followed_at_rank: Float[np.ndarray, " rank"]
    open_last_at_rank: Float[np.ndarray, " rank"]
    first_examined: Float[np.ndarray, " pair_or_unseen"]
    """How often the pair was shown at or above the first click, or without any click: what the cascade model looks
    at."""
    first_clicks: Float[np.ndarray, " pair_or_unseen"]
    passed: float
    """Skips above the last click: the user certainly went on."""

    @classmethod
    def of(cls, sessions: Sessions, *, weight: np.ndarray | None = None) -> Cascade:
        """Count a log, in one pass; `weight` replaces the sessions' counts."""
        rankings, size = sessions.rankings, sessions.vocabulary.n_pairs + 1
        # unsigned, so that kernels need not ask whether a number counts from the end
        pair = np.where(rankings.pair == UNSEEN, size - 1, rankings.pair).astype(np.uint32)
        count = (sessions.count if weight is None else weight).astype(np.float64)
        length, last = np.empty(len(count), np.int32), np.empty(len(count), np.int32)
        cuts = np.linspace(0, len(count), n_threads() + 1).astype(int)
        tables = np.zeros((n_threads(), size, 7))
        ranks, passed = np.zeros((n_threads(), sessions.n_ranks, 2)), np.zeros(n_threads())

        def work(k: int) -> None:
            rows = slice(cuts[k], cuts[k + 1])
            lists = pair[rows], rankings.shown[rows], sessions.click[rows], count[rows]
            passed[k] = _count(*lists, length[rows], last[rows], tables[k], ranks[k])

        for_each(work, n_threads())
        table, by_rank = tables.sum(axis=0), ranks.sum(axis=0)
        return cls(
            vocabulary=sessions.vocabulary,
            pair=pair,
            length=length,
            last=last,
            count=count,
            impressions=table[:, 6],
            examined=table[:, 0],
            clicks=table[:, 1],
            followed=table[:, 2],
            open_last=table[:, 3],
            followed_at_rank=by_rank[:, 0],
            open_last_at_rank=by_rank[:, 1],
            first_examined=table[:, 4],
            first_clicks=table[:, 5],
            passed=float(passed.sum()),
        )

    @property
    def n_ranks(self) -> int:
        return int(self.pair.shape[1])

    def with_sessions(self, rows: Int[np.ndarray, " kept"]) -> Cascade:
        """The tails of some sessions, beside the counts of all."""
        kept = {name: getattr(self, name)[rows] for name in ("pair", "length", "last", "count")}
        return replace(self, **kept)


@njit(cache=True, nogil=True)
@no_type_check
def _count(pair, shown, click, count, length, last, table, ranks):
    passed, width = 0.0, pair.shape[1]
    for i in range(len(pair)):
        weight, n, first_click, last_click = count[i], 0, width, -1
        while n < width and shown[i, n]:
            table[pair[i, n], 6] += weight
            if click[i, n]:
                first_click = min(first_click, n)
                last_click = n
            n += 1
        length[i], last[i] = n, last_click
        for r in range(min(first_click + 1, n)):
            table[pair[i, r], 4] += weight
        if last_click < 0:
            continue
        table[pair[i, first_click], 5] += weight
        for r in range(last_click + 1):
            p = pair[i, r]
            table[p, 0] += weight
            if not click[i, r]:
                passed += weight
                continue
            table[p, 1] += weight
            if r < last_click:
                table[p, 2] += weight
                ranks[r, 0] += weight
            elif r + 1 < n:
                table[p, 3] += weight
                ranks[r, 1] += weight
    return passed
