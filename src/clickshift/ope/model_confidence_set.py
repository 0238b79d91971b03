"""Model confidence set: the click-model families that a log does not reject.

Every family is fitted on the log, and on each half of it. A family is rejected for one of two reasons:

- it predicts the clicks of the other half worse than the best family, by more than chance: the mean difference of the
  log-likelihoods of the same sessions, divided by its standard error (Vuong 1989; Hansen, Lunde and Nason 2011). So
  that a right family with many parameters is not rejected for its noise on a small log, it must also be worse with that
  noise corrected for;
- its residuals are not those of its own users: given the clicks of a document, the model tells how they are divided
  among ranks, and among sessions with and without a click above. Attractiveness cancels from these shares, so that the
  test is about browsing alone. Documents that the target shows more often than the log are tested apart. Nor may clicks
  depend on how attractive the results above and below are, beyond what the model says.

References
----------
Hansen, P. R., Lunde, A. and Nason, J. M. (2011). The model confidence set. Econometrica.

Vuong, Q. H. (1989). Likelihood ratio tests for model selection and non-nested hypotheses. Econometrica.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import final

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.core.intervals import normal_quantile
from clickshift.core.rng import generator
from clickshift.data.sessions import Sessions
from clickshift.learners.likelihood import MaximumLikelihood
from clickshift.models.base import ClickModel
from clickshift.ope.model_value import CalibratedModel
from clickshift.ope.session_groups import divide_sessions, sample_sessions, with_counts

FAMILIES = ("PBM", "UBM", "DBN", "CCM")
"""Families of click models that an answer considers."""
REJECTION_LEVEL = 0.01
"""Error probability of each of the two tests."""
POSITION_MODELS = ("PBM", "UBM")
"""Families whose examination is identified only if documents were shown at several ranks."""
_CASCADE_PRIOR = (0.1, 1.0)
"""Prior of documents in cascades: one that is learned repeats what the ranker thought, and biases continuation."""
_MAX_STEPS = 60
"""Evaluations of the likelihood, at most: a family that does not converge in them does not describe the log."""
_MAX_ROWS = 30_000
"""Distinct sessions by which families are compared, at most: larger logs are sampled for it."""
_MIN_VARIANCE = 5.0
"""Expected variance of a cell's clicks below which its residual is not tested."""
_LARGEST_LOSS = 30.0
"""Largest loss of one session, in nats: one impossible click must not decide."""
_N_QUANTILES = 3
"""Groups of documents by their weight, for the test of residuals."""


@final
@dataclass(frozen=True, eq=False)
class FamilyFit:
    """A click-model family on one log.

    Parameters
    ----------
    name
        Name of the family.
    model
        Model that was fitted on the whole log.
    learner
        Learner of the family; None for a model that was given, and is not fitted again.
    calibrated
        The model, with attractiveness that reproduces the logged clicks of each document.
    deficit
        Held-out log-likelihood per session of the best family minus that of this one, in nats.
    z
        The deficit divided by its standard error, or that of the deficit of an infinite log, whichever is smaller.
    p_value
        P-value of the residuals, for the cell that deviates most, corrected for their number.
    kept
        Whether the family is in the confidence set.
    reason
        Why it is not, as a sentence; empty if it is.
    """

    name: str
    model: ClickModel
    learner: MaximumLikelihood | None
    calibrated: CalibratedModel
    deficit: float
    z: float
    p_value: float
    kept: bool
    reason: str


def fit_families(
    sessions: Sessions,
    *,
    cluster: Int[np.ndarray, " row"] | None = None,
    weight: Float[np.ndarray, " pair"] | None = None,
    given: Mapping[str, ClickModel] = MappingProxyType({}),
    families: Sequence[str] = FAMILIES,
    seed: int = 0,
) -> list[FamilyFit]:
    """Fit click-model families to a log, and reject those that it contradicts.

    Parameters
    ----------
    sessions
        The log.
    cluster
        Number of the cluster of each row, from 0, within which sessions are dependent; None for independent sessions.
    weight
        How much more often a target shows each pair than the log does, for the test of residuals.
    given
        Further models by name, in the vocabulary of the log, which are not fitted again. They are compared with the
        families, but do not reject them: they may have been fitted on the same sessions.
    families
        Names of the families.
    seed
        Random seed of the halves.

    Returns
    -------
    list of FamilyFit
        One for each family, and for each given model.
    """
    rng = generator(seed, "halves")
    sample, sample_cluster = sample_sessions(sessions, _MAX_ROWS, rng, cluster)
    halves = divide_sessions(sample.count, 2, rng, sample_cluster)
    members: list[tuple[str, ClickModel, MaximumLikelihood | None]] = []
    likelihood = []
    for name in families:
        learner = MaximumLikelihood(name, iterations=_MAX_STEPS)
        own = learner.fit_from(learner.counts(sample), errors=False)
        likelihood.append(_likelihoods(learner, own, sample, halves))
        if name not in POSITION_MODELS:
            learner = replace(learner, prior=_CASCADE_PRIOR)
        elif sample is sessions:
            members.append((name, own, learner))
            continue
        members.append((name, learner.fit_from(learner.counts(sessions), start=own, errors=False), learner))
    best = [max((own[c] for own in likelihood), key=lambda x: float(sample.count @ x)) for c in range(2)]
    for name, model in given.items():
        members.append((name, model, None))
        likelihood.append((np.maximum(model.log_likelihood(sample), -_LARGEST_LOSS),) * 2)
    fits = []
    for (name, model, fitted_by), logs in zip(members, likelihood, strict=True):
        prob = model.click_prob_given_history(sessions)
        calibrated = CalibratedModel.of(model, sessions, prob)
        (deficit, z), (_, other_z) = (
            _paired(b - x, sample.count, sample_cluster) for b, x in zip(best, logs, strict=True)
        )
        tested = prob if sample is sessions else model.click_prob_given_history(sample)
        p_value = residual_p_value(sample, tested, weight, sample_cluster)
        fits.append(FamilyFit(name, model, fitted_by, calibrated, deficit, min(z, other_z), p_value, True, ""))
    order = {name: k for k, name in enumerate(FAMILIES)}
    return _rejected(sorted(fits, key=lambda fit: order.get(fit.name, len(order))))


def _rejected(fits: Sequence[FamilyFit]) -> list[FamilyFit]:
    """Decide which families are kept: the test of residuals is corrected for the number of families (Holm)."""
    limit = normal_quantile(1 - REJECTION_LEVEL)
    contradicted: set[int] = set()
    for k in sorted(range(len(fits)), key=lambda k: fits[k].p_value):
        if fits[k].p_value * (len(fits) - len(contradicted)) > REJECTION_LEVEL:
            break
        contradicted.add(k)
    decided = []
    for k, fit in enumerate(fits):
        reason = ""
        if fit.z > limit:
            reason = f"predicts held-out clicks worse than the best family ({fit.deficit:.4f} nats per session)"
        elif k in contradicted:
            reason = f"does not reproduce in which sessions documents are clicked (p = {fit.p_value:.1g})"
        decided.append(replace(fit, kept=not reason, reason=reason))
    return decided


def _likelihoods(
    learner: MaximumLikelihood, own: ClickModel, sessions: Sessions, halves: Int[np.ndarray, "row half"]
) -> tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]]:
    """Mean log-likelihood of the sessions of each row: held out, and as of an infinite log.

    A model of p parameters that is fitted on n / 2 sessions loses p / n nats per session on the other half, and one
    that is fitted on all of them gains p / 2n on its own sessions, against the best member of the family. A third of
    the former and two thirds of the latter have neither loss nor gain, to first order.
    """
    held_out = np.zeros(len(sessions))
    for half in range(2):
        train = with_counts(sessions, halves[:, half])
        rows = np.flatnonzero(halves[:, 1 - half])
        model = learner.fit_from(learner.counts(train), start=own, errors=False)
        held_out[rows] += halves[rows, 1 - half] * np.maximum(model.log_likelihood(sessions[rows]), -_LARGEST_LOSS)
    held_out /= sessions.count
    return held_out, (held_out + 2 * np.maximum(own.log_likelihood(sessions), -_LARGEST_LOSS)) / 3


def _paired(
    difference: Float[np.ndarray, " row"], count: Int[np.ndarray, " row"], cluster: Int[np.ndarray, " row"] | None
) -> tuple[float, float]:
    """Mean of a difference over sessions, and that divided by its standard error."""
    total = float(count.sum())
    mean = float(difference @ count) / total
    deviation = difference - mean
    if cluster is None:
        square = float(deviation**2 @ count)
    else:
        square = float((np.bincount(cluster, deviation * count) ** 2).sum())
    error = math.sqrt(square) / total
    return mean, mean / error if error > 0 else 0.0


def residual_p_value(
    sessions: Sessions,
    prob: Float[np.ndarray, "row rank"],
    weight: Float[np.ndarray, " pair"] | None = None,
    cluster: Int[np.ndarray, " row"] | None = None,
) -> float:
    """P-value of how a model divides the clicks of each document among ranks and histories.

    Parameters
    ----------
    sessions
        The log.
    prob
        Click probability of each result given the clicks above it, by the model.
    weight
        How much more often a target shows each pair than the log does: documents are tested in groups of it.
    cluster
        Number of the cluster of each row: users who repeat themselves count as less (design effect).

    Returns
    -------
    float
        P-value of the cell (rank, place of the last click above, group of documents) that deviates most, or of the
        covariate (attractiveness of the results above and below) that explains most, times their number (Bonferroni).
    """
    shown = sessions.rankings.shown
    pair = sessions.rankings.pair[shown].astype(np.int64)
    weighted = (sessions.count[:, None] * shown).astype(np.float64)
    expected, clicks = (prob * weighted)[shown], (sessions.click * weighted)[shown]
    total = np.bincount(pair, clicks, sessions.vocabulary.n_pairs)
    sums = np.bincount(pair, expected, sessions.vocabulary.n_pairs)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = np.nan_to_num(total / sums)  # relative to what the model expects of the document
    history = _last_click(sessions.click)
    groups = [np.zeros(len(total), np.int64)]
    if weight is not None:
        groups.append(_by_weight(weight, total))
    cell = (np.arange(sessions.n_ranks) * 3 + history)[shown]
    cells = np.concatenate([_standardised(pair, cell, expected, clicks, total, sums, group) for group in groups])
    scale = math.sqrt(2 * _design_effect(sessions, pair, clicks - expected * rate[pair], cluster))
    tests = [math.erfc(float(cells.max()) / scale) * len(cells)] if len(cells) else []
    neighbours = _neighbours(sessions, _attractiveness(sessions.rankings.pair, prob, rate))
    scores = [_score(pair, x[shown], expected, clicks, rate, sums) for x in neighbours]
    tests += [math.erfc(max(scores) / scale) * len(scores)]
    return min(1.0, min(tests) * len(tests))


def _standardised(
    pair: Int[np.ndarray, " result"],
    cell: Int[np.ndarray, " result"],
    expected: Float[np.ndarray, " result"],
    clicks: Float[np.ndarray, " result"],
    total: Float[np.ndarray, " pair"],
    sums: Float[np.ndarray, " pair"],
    group: Int[np.ndarray, " pair"],
) -> Float[np.ndarray, " tested"]:
    """Absolute standardised residuals of cells, given the clicks of each document, in each group of documents."""
    n_cells = int(cell.max()) + 1
    key = pair * n_cells + cell
    by_pair = np.bincount(key, expected, len(total) * n_cells).reshape(-1, n_cells)
    share = by_pair / np.maximum(sums, 1e-300)[:, None]
    observed = np.bincount(group[pair] * n_cells + cell, clicks, (group.max() + 1) * n_cells)
    mean, variance = (
        np.stack([np.bincount(group, values[:, c], group.max() + 1) for c in range(n_cells)], axis=1).ravel()
        for values in (total[:, None] * share, total[:, None] * share * (1 - share))
    )
    tested = variance >= _MIN_VARIANCE
    standardised: np.ndarray = np.abs(observed - mean)[tested] / np.sqrt(variance[tested])
    return standardised


def _design_effect(
    sessions: Sessions,
    pair: Int[np.ndarray, " result"],
    residual: Float[np.ndarray, " result"],
    cluster: Int[np.ndarray, " row"] | None,
) -> float:
    """Variance of the residuals of a user's sessions with the same document, relative to independent sessions."""
    if cluster is None:
        return 1.0
    own = np.broadcast_to(cluster[:, None], sessions.click.shape)[sessions.rankings.shown]
    key = np.unique(own.astype(np.int64) * sessions.vocabulary.n_pairs + pair, return_inverse=True)[1]
    square = float(residual @ residual)
    return max(1.0, float((np.bincount(key, residual) ** 2).sum()) / square) if square > 0 else 1.0


def _score(
    pair: Int[np.ndarray, " result"],
    x: Float[np.ndarray, " result"],
    expected: Float[np.ndarray, " result"],
    clicks: Float[np.ndarray, " result"],
    rate: Float[np.ndarray, " pair"],
    sums: Float[np.ndarray, " pair"],
) -> float:
    """Absolute standardised score of a covariate: whether a document is clicked more where the covariate is larger."""
    mean = np.bincount(pair, expected * x, len(sums)) / np.maximum(sums, 1e-300)
    deviation = x - mean[pair]
    scaled = expected * rate[pair]
    variance = float(scaled @ deviation**2)
    return abs(float((clicks - scaled) @ deviation)) / math.sqrt(variance) if variance > 0 else 0.0


def _neighbours(
    sessions: Sessions, attractiveness: Float[np.ndarray, "row rank"]
) -> list[Float[np.ndarray, "row rank"]]:
    """Covariates of each result: attractiveness of the result above it, of the one below it, and of all above it."""
    zero = np.zeros((len(attractiveness), 1))
    above = np.concatenate([zero, attractiveness[:, :-1]], axis=1)
    below = np.concatenate([attractiveness[:, 1:], zero], axis=1)
    return [above, below, np.cumsum(above, axis=1), above * (_last_click(sessions.click) == 0)]


def _attractiveness(
    pair: Int[np.ndarray, "row rank"], prob: Float[np.ndarray, "row rank"], rate: Float[np.ndarray, " pair"]
) -> Float[np.ndarray, "row rank"]:
    """Attractiveness of each result: the largest click probability of its document, scaled to its clicks."""
    largest = np.zeros(len(rate) + 1)
    np.maximum.at(largest, pair, prob)
    scaled: np.ndarray = np.append(largest[:-1] * rate, 0.0)[pair]
    return scaled


def _last_click(click: Bool[np.ndarray, "row rank"]) -> Int[np.ndarray, "row rank"]:
    """Place of the last click above each result: 0 for none, 1 for the result above it, 2 for further up."""
    ranks = np.arange(click.shape[1])
    last = np.maximum.accumulate(np.where(click, ranks, -1), axis=1)
    last = np.concatenate([np.full((len(click), 1), -1), last[:, :-1]], axis=1)
    return np.where(last < 0, 0, np.where(last == ranks - 1, 1, 2))


def _by_weight(weight: Float[np.ndarray, " pair"], clicks: Float[np.ndarray, " pair"]) -> Int[np.ndarray, " pair"]:
    """Number groups of documents with equally many clicks, from the smallest weights to the largest."""
    order = np.argsort(weight, kind="stable")
    before = np.cumsum(clicks[order]) - clicks[order]
    group = np.empty(len(weight), np.int64)
    group[order] = np.minimum(before * _N_QUANTILES / max(clicks.sum(), 1e-300), _N_QUANTILES - 1).astype(np.int64)
    return group
