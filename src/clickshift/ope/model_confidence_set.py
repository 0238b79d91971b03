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
from typing import NamedTuple, final

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.core.intervals import normal_quantile
from clickshift.core.newton import single_threaded_products
from clickshift.core.parallel import in_threads
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
    fitted: list[_Fitted] = in_threads(lambda k: _fit(families[k], sessions, sample, halves), len(families))
    best = [max((one.likelihood[c] for one in fitted), key=lambda x: float(sample.count @ x)) for c in range(2)]
    for name, model in given.items():
        likelihood = np.maximum(model.log_likelihood(sample), -_LARGEST_LOSS)
        fitted.append(_Fitted(name, model, None, (likelihood, likelihood)))
    residuals = _ResidualTest(sample, weight, sample_cluster)

    def compare(k: int) -> FamilyFit:
        name, model, learner, logs = fitted[k]
        prob = model.click_prob_given_history(sessions)
        calibrated = CalibratedModel.of(model, sessions, prob)
        (deficit, z), (_, other_z) = (
            _paired(b - x, sample.count, sample_cluster) for b, x in zip(best, logs, strict=True)
        )
        tested = prob if sample is sessions else model.click_prob_given_history(sample)
        p_value = residuals.p_value(tested)
        return FamilyFit(name, model, learner, calibrated, deficit, min(z, other_z), p_value, True, "")

    order = {name: k for k, name in enumerate(FAMILIES)}
    fits = in_threads(compare, len(fitted))
    return _rejected(sorted(fits, key=lambda fit: order.get(fit.name, len(order))))


class _Fitted(NamedTuple):
    """A model of a family, its learner, and the mean log-likelihoods of the sessions of each row (`_likelihoods`)."""

    name: str
    model: ClickModel
    learner: MaximumLikelihood | None
    likelihood: tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]]


def _fit(name: str, sessions: Sessions, sample: Sessions, halves: Int[np.ndarray, "row half"]) -> _Fitted:
    """Fit a family to a log, and to each half of a sample of it."""
    learner = MaximumLikelihood(name, iterations=_MAX_STEPS)
    own = learner.fit_from(learner.counts(sample), errors=False)
    likelihood = _likelihoods(learner, own, sample, halves)
    if name not in POSITION_MODELS:
        learner = replace(learner, prior=_CASCADE_PRIOR)
    elif sample is sessions:
        return _Fitted(name, own, learner, likelihood)
    # cascades have parameters of documents that a sample lacks: a start from it is no better than the usual one
    start = own if sample is sessions or name in POSITION_MODELS else None
    model = learner.fit_from(learner.counts(sessions), start=start, errors=False)
    return _Fitted(name, model, learner, likelihood)


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


@final
class _ResidualTest:
    """Test of how a model divides the clicks of each document among ranks and histories.

    What does not depend on the model is computed once.

    Parameters
    ----------
    sessions
        The log.
    weight
        How much more often a target shows each pair than the log does: documents are tested in groups of it.
    cluster
        Number of the cluster of each row: users who repeat themselves count as less (design effect).
    """

    def __init__(
        self,
        sessions: Sessions,
        weight: Float[np.ndarray, " pair"] | None = None,
        cluster: Int[np.ndarray, " row"] | None = None,
    ) -> None:
        self._sessions, self._shown, self._n_pairs = sessions, sessions.rankings.shown, sessions.vocabulary.n_pairs
        self._count = np.broadcast_to(sessions.count[:, None], self._shown.shape)[self._shown].astype(np.float64)
        self._pair = sessions.rankings.pair[self._shown].astype(np.int64)
        self._clicks = sessions.click[self._shown] * self._count
        self._total = np.bincount(self._pair, self._clicks, self._n_pairs)
        history = _last_click(sessions.click)
        cell = (np.arange(sessions.n_ranks) * 3 + history)[self._shown]
        self._n_cells = int(cell.max()) + 1
        self._key = self._pair * self._n_cells + cell
        groups = [np.zeros(self._n_pairs, np.int64)]
        if weight is not None:
            groups.append(_by_weight(weight, self._total))
        self._members = np.concatenate([group == np.unique(group)[:, None] for group in groups]).astype(np.float64)
        self._observed = single_threaded_products(self._members, self._by_cell(self._clicks).T)
        self._first_in_list = history == 0
        self._order = np.argsort(self._pair, kind="stable")
        self._first = np.flatnonzero(np.diff(self._pair[self._order], prepend=-1))
        self._user = None
        if cluster is not None:
            own = np.broadcast_to(cluster[:, None], self._shown.shape)[self._shown]
            self._user = np.unique(own.astype(np.int64) * self._n_pairs + self._pair, return_inverse=True)[1]

    def p_value(self, prob: Float[np.ndarray, "row rank"]) -> float:
        """Return the p-value of a model.

        Parameters
        ----------
        prob
            Click probability of each result given the clicks above it, by the model.

        Returns
        -------
        float
            P-value of the cell (rank, place of the last click above, group of documents) that deviates most, or of the
            covariate (attractiveness of the results above and below) that explains most, times their number
            (Bonferroni).
        """
        shown = prob[self._shown]
        expected = shown * self._count
        sums = np.bincount(self._pair, expected, self._n_pairs)
        with np.errstate(invalid="ignore", divide="ignore"):
            rate = np.nan_to_num(self._total / sums)  # relative to what the model expects of the document
        cells = self._standardised(expected, sums)
        scaled = expected * rate[self._pair]
        residual = self._clicks - scaled
        scale = math.sqrt(2 * self._design_effect(residual))
        tests = [math.erfc(float(cells.max()) / scale) * len(cells)] if len(cells) else []
        scores = [self._score(x[self._shown], expected, scaled, residual, sums) for x in self._neighbours(shown, rate)]
        tests += [math.erfc(max(scores) / scale) * len(scores)]
        return min(1.0, min(tests) * len(tests))

    def _by_cell(self, values: Float[np.ndarray, " result"]) -> Float[np.ndarray, "pair cell"]:
        """Sum values over the results of each pair in each cell."""
        return np.bincount(self._key, values, self._n_pairs * self._n_cells).reshape(-1, self._n_cells)

    def _standardised(
        self, expected: Float[np.ndarray, " result"], sums: Float[np.ndarray, " pair"]
    ) -> Float[np.ndarray, " tested"]:
        """Absolute standardised residuals of cells, given the clicks of each document, in each group of documents."""
        share = self._by_cell(expected) / np.maximum(sums, 1e-300)[:, None]
        clicks = self._total[:, None] * share
        mean = single_threaded_products(self._members, clicks.T)
        variance = single_threaded_products(self._members, (clicks * (1 - share)).T)
        tested = variance >= _MIN_VARIANCE
        standardised: np.ndarray = np.abs(self._observed - mean)[tested] / np.sqrt(variance[tested])
        return standardised

    def _design_effect(self, residual: Float[np.ndarray, " result"]) -> float:
        """Variance of the residuals of a user's sessions with the same document, relative to independent sessions."""
        square = float(residual @ residual)
        if self._user is None or not square > 0:
            return 1.0
        return max(1.0, float((np.bincount(self._user, residual) ** 2).sum()) / square)

    def _score(
        self,
        x: Float[np.ndarray, " result"],
        expected: Float[np.ndarray, " result"],
        scaled: Float[np.ndarray, " result"],
        residual: Float[np.ndarray, " result"],
        sums: Float[np.ndarray, " pair"],
    ) -> float:
        """Absolute standardised score of a covariate: whether a document is clicked more where it is larger."""
        mean = np.bincount(self._pair, expected * x, len(sums)) / np.maximum(sums, 1e-300)
        deviation = x - mean[self._pair]
        variance = float(scaled @ deviation**2)
        return abs(float(residual @ deviation)) / math.sqrt(variance) if variance > 0 else 0.0

    def _neighbours(
        self, prob: Float[np.ndarray, " result"], rate: Float[np.ndarray, " pair"]
    ) -> list[Float[np.ndarray, "row rank"]]:
        """Covariates of each result: attractiveness of the result above it, of the one below it, and of all above it.

        The attractiveness of a document is its largest click probability, scaled to its clicks.
        """
        largest = np.maximum.reduceat(prob[self._order], self._first)
        scaled = np.zeros(self._n_pairs + 1)  # the last is for UNSEEN
        pairs = self._pair[self._order[self._first]]
        scaled[pairs] = largest * rate[pairs]
        attractiveness = scaled[self._sessions.rankings.pair]
        zero = np.zeros((len(attractiveness), 1))
        above = np.concatenate([zero, attractiveness[:, :-1]], axis=1)
        below = np.concatenate([attractiveness[:, 1:], zero], axis=1)
        return [above, below, np.cumsum(above, axis=1), above * self._first_in_list]


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
