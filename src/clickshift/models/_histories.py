"""Click histories: which results above a result were clicked. Distinct histories are kept once, as a tree.

Models that depend on the clicks above a result share their work between equal histories: examination is computed once
per distinct history, and a marginal is a sum over all histories.
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
"""Longest lists whose histories can be numbered by a 64-bit integer."""
MAX_ENUMERATED = 12
"""Longest lists whose marginals are summed over all histories, 4,095 of them; longer lists are sampled."""
MIN_TOLERANCE_LONG_LISTS = 1e-4
"""Smallest tolerance of a sum over likely histories of longer lists: at most ten thousand histories are kept."""
DRAWS = 256
"""Number of histories that are drawn for each longer list."""


@dataclass(frozen=True, eq=False)
class Histories:
    """Distinct click histories, the shortest first, each with its parent: the history without its last result.

    Parameters
    ----------
    click
        Clicks above; False at the history's own rank and below.
    rank
        Number of results that the history covers: the rank (from 0) of the result that it belongs to.
    parent
        Index of the history of the rank above; 0 for the empty history itself.
    """

    click: Bool[np.ndarray, "history rank"]
    rank: Int[np.ndarray, " history"]
    parent: Int[np.ndarray, " history"]

    def __len__(self) -> int:
        """Return the number of distinct histories."""
        return len(self.rank)

    @property
    def n_ranks(self) -> int:
        """Length of the lists."""
        return int(self.click.shape[1])

    @property
    def last(self) -> Int[np.ndarray, " history"]:
        """Click on the result just above: 0 skipped, 1 clicked, 2 no result above."""
        above = self.click[np.arange(len(self)), self.rank - 1].astype(np.int64)
        return np.where(self.rank == 0, 2, above)

    @classmethod
    def of(cls, click: Bool[np.ndarray, "session rank"]) -> tuple[Histories, Int[np.ndarray, "session rank"]]:
        """Return the distinct histories of sessions, and the index of each result's history."""
        n, ranks = click.shape
        if ranks > MAX_RANKS:
            raise DataError(
                f"click histories need lists of at most {MAX_RANKS} results: got {ranks}. Truncate the lists.",
                code="lists-too-long",
                value=ranks,
                limit=MAX_RANKS,
            )
        history = np.zeros((n, ranks), np.int64)
        codes, parents = [np.zeros(1, np.int64)], [np.zeros(1, np.int64)]
        code, first = np.zeros(n, np.int64), 0
        for rank in range(1, ranks):
            code = code | (click[:, rank - 1].astype(np.int64) << (rank - 1))
            distinct, group = distinct_sorted(code)
            parents.append(first + np.searchsorted(codes[-1], distinct & ((1 << (rank - 1)) - 1)))
            first += len(codes[-1])
            codes.append(distinct)
            history[:, rank] = first + group
        return cls._from_codes(codes, parents, ranks), history

    @classmethod
    def all(cls, ranks: int) -> Histories:
        """Return every history of lists of this length; history h of rank r has index 2^r - 1 + h."""
        codes = [np.arange(1 << rank) for rank in range(ranks)]
        parents = [
            np.maximum((1 << rank) // 2 - 1, 0) + code % max((1 << rank) // 2, 1) for rank, code in enumerate(codes)
        ]
        return cls._from_codes(codes, parents, ranks)

    @classmethod
    def _from_codes(cls, codes: list[np.ndarray], parents: list[np.ndarray], ranks: int) -> Histories:
        """Make histories from their numbers at each rank: bit j of a number is set if rank j was clicked."""
        code = np.concatenate(codes)
        rank = np.repeat(np.arange(ranks), [len(part) for part in codes])
        return cls((code[:, None] >> np.arange(ranks)) % 2 == 1, rank, np.concatenate(parents))


def sum_over_histories(
    prob_given_histories: Callable[[int], Float[np.ndarray, "session history"]], sessions: int, ranks: int
) -> Float[np.ndarray, "session rank"]:
    """Compute marginal click probabilities as a sum over all click histories.

    The probabilities of histories are kept from rank to rank, so each is computed once: 2^ranks - 1 numbers per list.

    Parameters
    ----------
    prob_given_histories
        Function of the rank that returns P(click | history) of all 2^rank histories. History h has a click at rank j if
        bit j of h is set.
    sessions
        Number of sessions.
    ranks
        Length of the lists.
    """
    prob, out = np.ones((sessions, 1)), np.empty((sessions, ranks))
    for rank in range(ranks):
        clicked = prob * prob_given_histories(rank)
        out[:, rank] = clicked.sum(axis=1)
        prob = np.concatenate([prob - clicked, clicked], axis=1)
    return out


def sum_over_likely_histories(
    prob_given_clicks: Callable[[Bool[np.ndarray, "row rank"], np.ndarray], Float[np.ndarray, "row rank"]],
    sessions: int,
    ranks: int,
    tolerance: float,
) -> Float[np.ndarray, "session rank"]:
    """Compute marginal click probabilities as a sum over the click histories that are likely enough.

    A row is a history of clicks that is followed by skips, so one evaluation of a list gives the click probabilities
    of all ranks below its last click. Where the next click is at least as likely as `tolerance`, it begins a row of its
    own. Else both outcomes continue as if the result had been skipped. The sum is exact at a tolerance of 0, with
    2^(ranks - 1) evaluations of a list; at 1 there is one.

    Parameters
    ----------
    prob_given_clicks
        Function of clicks and session numbers that returns P(click | history) at every rank of these sessions.
    sessions
        Number of sessions.
    ranks
        Length of the lists.
    tolerance
        Probability below which a history is not followed.
    """
    out = np.zeros((sessions, ranks))
    session, first, mass = np.arange(sessions), np.zeros(sessions, np.int64), np.ones(sessions)
    click = np.zeros((sessions, ranks), bool)
    while len(session):
        prob, clicked = prob_given_clicks(click, session), np.zeros(click.shape)
        follows = np.zeros(click.shape, bool)
        for rank in range(ranks):
            clicked[:, rank] = np.where(first <= rank, mass * prob[:, rank], 0.0)
            follows[:, rank] = (clicked[:, rank] >= tolerance) & (clicked[:, rank] > 0) & (rank < ranks - 1)
            mass = np.where(follows[:, rank], mass - clicked[:, rank], mass)
        np.add.at(out, session, clicked)
        row, rank_clicked = np.nonzero(follows)
        session, first, mass = session[row], rank_clicked + 1, clicked[row, rank_clicked]
        click = click[row]
        click[np.arange(len(row)), rank_clicked] = True
    return out


def average_over_draws(
    prob_given_clicks: Callable[[Bool[np.ndarray, "draw rank"], np.ndarray], Float[np.ndarray, "draw rank"]],
    sessions: int,
    ranks: int,
) -> Float[np.ndarray, "session rank"]:
    """Estimate marginal click probabilities by simulation, for lists too long for a sum over all histories.

    The estimate is the mean of P(click | history) over histories drawn from the model, which has a smaller variance
    than the mean of the clicks. Warns ("simulated-marginals") with its largest standard error.

    Parameters
    ----------
    prob_given_clicks
        Function of clicks and session numbers that returns P(click | history) at every rank of these sessions.
    sessions
        Number of sessions.
    ranks
        Length of the lists.
    """
    rng = np.random.default_rng(0)
    out, error = np.empty((sessions, ranks)), 0.0
    step = max(1, (1 << 16) // DRAWS)
    for start in range(0, sessions, step):
        session = np.repeat(np.arange(start, min(start + step, sessions)), DRAWS)
        click = np.zeros((len(session), ranks), bool)
        for rank in range(ranks):
            prob = prob_given_clicks(click, session)
            click[:, rank] = rng.random(len(session)) < prob[:, rank]
        prob = prob.reshape(-1, DRAWS, ranks)
        out[start : start + len(prob)] = prob.mean(axis=1)
        error = max(error, float(prob.std(axis=1).max()) / np.sqrt(DRAWS))
    warnings.warn(
        ClickshiftWarning(
            f"click probabilities of lists of {ranks} results are means over {DRAWS} simulated users, since all click "
            f"histories are enumerated for lists of up to {MAX_ENUMERATED} results only; the largest standard error is "
            f"{error:.2g}.",
            code="simulated-marginals",
            ranks=ranks,
            draws=DRAWS,
            error=error,
        ),
        stacklevel=2,
    )
    return out
