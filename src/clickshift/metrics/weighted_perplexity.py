"""Importance-weighted perplexity: what held-out clicks of one policy say of a model under another one.

Where both policies are known, a result is weighted by how much more often the target policy would put that document at
that rank. The mean of weighted bits then has the mean that the target policy's own log would have, if what a click
costs depends on the document and its rank alone. It also depends on the clicks above for most models and users: that
part is not corrected, since the weights of whole lists would leave nothing to average over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from clickshift.data.sessions import Sessions
from clickshift.errors import DataError
from clickshift.metrics.click_prediction import Perplexity

Placement = Float[np.ndarray, "pair rank"]
"""The probability that each pair of the log's vocabulary stands at each rank."""


@final
@dataclass(frozen=True, eq=False)
class WeightedPerplexity:
    """A perplexity, and how much of the log it rests on."""

    perplexity: Perplexity
    """Self-normalised: weighted bits over weights; NaN at a rank where no result has any weight."""
    effective_sessions: Float[np.ndarray, " rank"]
    """So many sessions of equal weight would be as informative: (sum of weights)^2 / sum of their squares."""
    unseen_mass: float
    """The share of what the target policy shows, document by document and rank by rank, that this log never shows."""


def weighted_perplexity(
    bits: Float[np.ndarray, "session rank"], sessions: Sessions, *, logging: Placement, target: Placement
) -> WeightedPerplexity:
    """Of the bits that a model pays for a log's clicks (`clicks.bits_of`), as if the target policy had ranked.

    PPL@r = 2^(sum of w bits / sum of w), w = target(document, r) / logging(document, r).
    """
    shape = (sessions.vocabulary.n_pairs, sessions.n_ranks)
    if logging.shape != shape or target.shape != shape:
        raise DataError(
            f"placements must have a row per pair and a column per rank of the log, {shape}: got {logging.shape} and "
            f"{target.shape}."
        )
    ratio = np.divide(target, logging, out=np.zeros(shape), where=logging > 0)
    shown, pair, rank = sessions.rankings.shown, sessions.rankings.pair, np.arange(sessions.n_ranks)
    weight = np.where(shown, ratio[pair, rank], 0.0)
    total, squares = sessions.count @ weight, sessions.count @ weight**2
    some = total > 0
    mean_bits = np.divide(sessions.count @ (weight * bits), total, out=np.full(len(rank), np.nan), where=some)
    effective = np.divide(total**2, squares, out=np.zeros(len(rank)), where=some)
    seen = np.zeros(shape, bool)
    seen[pair[shown], np.broadcast_to(rank, shown.shape)[shown]] = True
    return WeightedPerplexity(Perplexity(np.exp2(mean_bits)), effective, float(target[~seen].sum() / target.sum()))
