"""Click histories: which results above were clicked. Distinct ones are kept once, as a tree.

Models that look at the clicks above a result share their work between equal histories: examination is computed once per
distinct history, and a marginal is a sum over all of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.core.unique_rows import distinct_sorted
from clickshift.errors import ClickshiftWarning, DataError

MAX_RANKS = 62
"""A history is numbered by an integer of 64 bits."""
MAX_ENUMERATED = 12
"""Lists up to here have their marginals summed over all histories, 4,095 of them; longer ones are sampled."""
DRAWS = 256
"""Histories that are drawn for each longer list."""


@dataclass(frozen=True, eq=False)
class Histories:
    """Distinct histories by rank, the shortest first; with each of them, the history without its last result."""

    click: Bool[np.ndarray, "history rank"]
    """The clicks above; False at the history's own rank and below."""
    rank: Int[np.ndarray, " history"]
    """How many results the history covers, which is the rank (from 0) of the result that it belongs to."""
    parent: Int[np.ndarray, " history"]
    """Where the history of the rank above stands; 0 for the empty history itself."""

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def n_ranks(self) -> int:
        return int(self.click.shape[1])

    @property
    def last(self) -> Int[np.ndarray, " history"]:
        """Was the result just above clicked: 0 no, 1 yes, 2 there is none."""
        above = self.click[np.arange(len(self)), self.rank - 1].astype(np.int64)
        return np.where(self.rank == 0, 2, above)

    @classmethod
    def of(cls, click: Bool[np.ndarray, "session rank"]) -> tuple[Histories, Int[np.ndarray, "session rank"]]:
        """The distinct histories of these sessions, and the history of each result."""
        n, ranks = click.shape
        if ranks > MAX_RANKS:
            raise DataError(f"clicks above can be told apart in lists of at most {MAX_RANKS}: got {ranks}. Cut them.")
        where = np.zeros((n, ranks), np.int64)
        codes, parents = [np.zeros(1, np.int64)], [np.zeros(1, np.int64)]
        code, first = np.zeros(n, np.int64), 0
        for rank in range(1, ranks):
            code = code | (click[:, rank - 1].astype(np.int64) << (rank - 1))
            found, group = distinct_sorted(code)
            parents.append(first + np.searchsorted(codes[-1], found & ((1 << (rank - 1)) - 1)))
            first += len(codes[-1])
            codes.append(found)
            where[:, rank] = first + group
        return cls._from_codes(codes, parents, ranks), where

    @classmethod
    def all(cls, ranks: int) -> Histories:
        """Every history that lists of this length can have; history h of rank r stands at 2^r - 1 + h."""
        codes = [np.arange(1 << rank) for rank in range(ranks)]
        parents = [
            np.maximum((1 << rank) // 2 - 1, 0) + code % max((1 << rank) // 2, 1) for rank, code in enumerate(codes)
        ]
        return cls._from_codes(codes, parents, ranks)

    @classmethod
    def _from_codes(cls, codes: list[np.ndarray], parents: list[np.ndarray], ranks: int) -> Histories:
        code = np.concatenate(codes)
        rank = np.repeat(np.arange(ranks), [len(part) for part in codes])
        return cls((code[:, None] >> np.arange(ranks)) % 2 == 1, rank, np.concatenate(parents))


def sum_over_histories(
    given: Callable[[int], Float[np.ndarray, "session history"]], sessions: int, ranks: int
) -> Float[np.ndarray, "session rank"]:
    """Marginal click probabilities: at each rank, `given(rank)` is P(click | history) of all 2^rank histories.

    History h has a click at rank j where bit j of h is set. Probabilities of histories are kept from rank to rank, so
    each is computed once: 2^ranks - 1 numbers per list.
    """
    prob, out = np.ones((sessions, 1)), np.empty((sessions, ranks))
    for rank in range(ranks):
        clicked = prob * given(rank)
        out[:, rank] = clicked.sum(axis=1)
        prob = np.concatenate([prob - clicked, clicked], axis=1)
    return out


def average_over_draws(
    given: Callable[[Bool[np.ndarray, "draw rank"], np.ndarray], Float[np.ndarray, "draw rank"]],
    sessions: int,
    ranks: int,
) -> Float[np.ndarray, "session rank"]:
    """Marginal click probabilities of lists too long for a sum over all histories, by simulation.

    `given(click, session)` are P(click | history) at every rank of these sessions. Their mean over histories drawn from
    the model is taken, which varies less than the mean of the clicks. Warns with its largest standard error.
    """
    rng = np.random.default_rng(0)
    out, error = np.empty((sessions, ranks)), 0.0
    step = max(1, (1 << 16) // DRAWS)
    for start in range(0, sessions, step):
        session = np.repeat(np.arange(start, min(start + step, sessions)), DRAWS)
        click = np.zeros((len(session), ranks), bool)
        for rank in range(ranks):
            prob = given(click, session)
            click[:, rank] = rng.random(len(session)) < prob[:, rank]
        prob = prob.reshape(-1, DRAWS, ranks)
        out[start : start + len(prob)] = prob.mean(axis=1)
        error = max(error, float(prob.std(axis=1).max()) / np.sqrt(DRAWS))
    warnings.warn(
        f"click probabilities of lists of {ranks} results are means over {DRAWS} simulated users, since a sum over all "
        f"click histories is done up to {MAX_ENUMERATED} results only; the largest standard error is {error:.2g}.",
        ClickshiftWarning,
        stacklevel=2,
    )
    return out
