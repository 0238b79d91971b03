"""Cascade: sufficient counts of models whose users walk down the list and stop.

Up to the last click everything was examined, so that counts per pair say it all. What happened after the last click is
hidden; those tails hardly ever repeat, and are kept as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from clickshift.sessions import Sessions
from clickshift.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class Cascade:
    """Tables by pair have an extra last row for `UNSEEN` pairs. "Open" is a last click with a result below it."""

    vocabulary: Vocabulary
    pair: Int[np.ndarray, "session rank"]
    length: Int[np.ndarray, " session"]
    last: Int[np.ndarray, " session"]
    """Rank of the last click, -1 for none."""
    count: Float[np.ndarray, " session"]

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
        rankings, click = sessions.rankings, sessions.click
        length = rankings.length
        last = np.where(click.any(axis=1), click.shape[1] - 1 - click[:, ::-1].argmax(axis=1), -1)
        table = np.zeros((sessions.vocabulary.n_pairs + 1, 6))
        ranks = np.zeros((sessions.n_ranks, 2))
        count = (sessions.count if weight is None else weight).astype(np.float64)
        passed = _count(rankings.pair, length, click, last, count, table, ranks)
        return cls(
            vocabulary=sessions.vocabulary,
            pair=rankings.pair,
            length=length,
            last=last,
            count=count,
            examined=table[:, 0],
            clicks=table[:, 1],
            followed=table[:, 2],
            open_last=table[:, 3],
            followed_at_rank=ranks[:, 0],
            open_last_at_rank=ranks[:, 1],
            first_examined=table[:, 4],
            first_clicks=table[:, 5],
            passed=passed,
        )

    @property
    def n_ranks(self) -> int:
        return int(self.pair.shape[1])

    def by_pair(self) -> tuple[Float[np.ndarray, " pair_or_unseen"], Float[np.ndarray, " pair_or_unseen"]]:
        """Impressions and clicks of every pair."""
        shown = np.arange(self.n_ranks) < self.length[:, None]
        weight = np.broadcast_to(self.count[:, None], shown.shape)[shown]
        impressions = np.bincount(self.pair[shown] % len(self.clicks), weight, len(self.clicks))
        return impressions, self.clicks


@njit(cache=True, nogil=True)
@no_type_check
def _count(pair, length, click, last, count, table, ranks):
    passed = 0.0
    for i in range(len(pair)):
        weight, clicked = count[i], False
        for r in range(length[i]):
            p = pair[i, r]
            if not clicked:
                table[p, 4] += weight
                table[p, 5] += weight * click[i, r]
                clicked = click[i, r]
            if r > last[i]:
                if clicked:
                    break
                continue
            table[p, 0] += weight
            if not click[i, r]:
                passed += weight
                continue
            table[p, 1] += weight
            if r < last[i]:
                table[p, 2] += weight
                ranks[r, 0] += weight
            elif r + 1 < length[i]:
                table[p, 3] += weight
                ranks[r, 1] += weight
    return passed
