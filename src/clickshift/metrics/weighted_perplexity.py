"""Importance-weighted perplexity: perplexity under a target policy from the logging policy's held-out clicks.

Where both policies are known, each result is weighted by the ratio of the probabilities that the target and the logging
policy show that document at that rank. The weighted mean of bits then has the expectation of the mean over the target
policy's own log, if the bits of a click depend only on the document and its rank. For most models and users they also
depend on the clicks above: that part is not corrected, since weights of whole lists would leave too small an effective
sample size.
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
"""Probability of each pair of the log's vocabulary at each rank."""


@final
@dataclass(frozen=True, eq=False)
class WeightedPerplexity:
    """Importance-weighted perplexity with its effective sample size and support.

    Parameters
    ----------
    perplexity
        Self-normalised perplexity: weighted bits divided by weights; NaN at a rank where all weights are 0.
    effective_sessions
        Effective sample size of each rank: (sum of weights)^2 / sum of squared weights.
    unseen_mass
        Share of the target policy's (document, rank) probability that this log never shows.
    """

    perplexity: Perplexity
    effective_sessions: Float[np.ndarray, " rank"]
    unseen_mass: float


def weighted_perplexity(
    bits: Float[np.ndarray, "session rank"], sessions: Sessions, *, logging: Placement, target: Placement
) -> WeightedPerplexity:
    """Estimate a model's perplexity under a target policy from its bits on the logging policy's log.

    PPL@r = 2^(sum of w bits / sum of w), w = target(document, r) / logging(document, r).

    Parameters
    ----------
    bits
        Bits per result of the log, as from `click_prediction.bits_of`.
    sessions
        Log of the logging policy.
    logging
        Probability of each pair at each rank under the logging policy.
    target
        Probability of each pair at each rank under the target policy.

    Returns
    -------
    WeightedPerplexity
        Perplexity per rank, effective sample size and unseen probability.

    Raises
    ------
    DataError
        "wrong-shape" if a placement does not have a row per pair and a column per rank of the log.
    """
    shape = (sessions.vocabulary.n_pairs, sessions.n_ranks)
    if logging.shape != shape or target.shape != shape:
        raise DataError(
            f"placements must have a row per pair and a column per rank of the log, {shape}: got {logging.shape} and "
            f"{target.shape}.",
            code="wrong-shape",
            expected=shape,
        )
    ratio = np.divide(target, logging, out=np.zeros(shape), where=logging > 0)
    shown, pair, rank = sessions.rankings.shown, sessions.rankings.pair, np.arange(sessions.n_ranks)
    weight = np.where(shown, ratio[pair, rank], 0.0)
    total, squares = sessions.count @ weight, sessions.count @ weight**2
    weighted = total > 0
    mean_bits = np.divide(sessions.count @ (weight * bits), total, out=np.full(len(rank), np.nan), where=weighted)
    effective = np.divide(total**2, squares, out=np.zeros(len(rank)), where=weighted)
    seen = np.zeros(shape, bool)
    seen[pair[shown], np.broadcast_to(rank, shown.shape)[shown]] = True
    return WeightedPerplexity(Perplexity(np.exp2(mean_bits)), effective, float(target[~seen].sum() / target.sum()))
