"""An estimator bound to one log and one target policy: units, importance weights and the click model's predictions.

Binding does the work that is independent of the sessions that are counted; a bound estimator can then be evaluated on
any tally of the log: all sessions, one day, all days but one, or resampled logs.

Where weights do not depend on the log, as under a known logging policy, every session adds terms of its own
(`ClusterTerms`). The sums of a resampled log are then weighted sums of those terms: one matrix product for all
replicates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final, no_type_check

import numpy as np
from jaxtyping import Bool, Float, Int, Num
from numba import njit

from clickshift.data.sessions import Rankings
from clickshift.errors import CapabilityError, DataError
from clickshift.ope._accumulators import (
    EXPOSURE,
    REWARD,
    REWARD_WEIGHT,
    SQUARE,
    WEIGHT,
    ClippingPath,
    WeightedSums,
    clipped_sums,
    clipping_path,
    effective_share,
)
from clickshift.ope.estimators import Estimator
from clickshift.ope.grouped_log import Clusters, GroupedLog, Tally, sum_by_index
from clickshift.ope.target_policy import Target, TargetProbabilities, as_target, expected_reward
from clickshift.ope.weights import ItemWeights, LoggingPolicy, RCTRWeights, WeightUnits

_MEMORY = 1 << 28
"""Largest size of the terms of all clusters, in bytes."""


@final
@dataclass(frozen=True, eq=False)
class WeightDiagnostics:
    """Diagnostics of the importance weights, for a tally of one part.

    Parameters
    ----------
    effective
        Effective sample size for each clipping constant, in sessions.
    largest_weight
        Largest importance weight before clipping.
    queries_without_overlap
        Number of used queries for which nothing that the target policy shows was logged.
    """

    effective: Float[np.ndarray, " clip"]
    largest_weight: float
    queries_without_overlap: int


@final
@dataclass(frozen=True, eq=False)
class BoundEstimator:
    """An estimator for one target policy and one log, ready for any tally of that log.

    Parameters
    ----------
    estimator
        The estimator.
    log
        The grouped log.
    units
        Units of the log that are weighted.
    used
        Whether each query is ranked by the target policy and, where it is known, by the logging policy.
    baseline
        The click model's prediction for the impressions of each entry; None without a model.
    offset
        The click model's prediction for the target policy, by query; 0 without a model.
    """

    estimator: Estimator
    log: GroupedLog
    units: WeightUnits
    used: Bool[np.ndarray, " query"]
    baseline: Float[np.ndarray, "entry slot"] | None
    offset: Float[np.ndarray, " query"]

    @classmethod
    def of(
        cls,
        estimator: Estimator,
        log: GroupedLog,
        probabilities: TargetProbabilities,
        logging: LoggingPolicy = "frequencies",
        *,
        target: Target | Rankings | None = None,
    ) -> BoundEstimator:
        """Bind an estimator to a log and a target policy.

        Parameters
        ----------
        estimator
            The estimator.
        log
            The grouped log.
        probabilities
            Target-policy probabilities at the lists and placements of the log.
        logging
            The logging policy.
        target
            The target policy itself: needed where a click model predicts the clicks on its lists.

        Raises
        ------
        CapabilityError
            If the reward is not a sum over clicks and the weights need one ("nonlinear-reward"), or if the click model
            needs the target ("missing-target").
        """
        # the direct method has no weights: item weights serve for its coverage
        weights = ItemWeights() if estimator.weights is None else estimator.weights
        if estimator.weights is not None and weights.needs_linear and not log.reward.is_linear:
            raise CapabilityError(
                f"{estimator.name} weights clicks one by one, and the reward {log.reward} is not a sum over clicks. "
                "Choose List, RCTR or the direct method.",
                code="nonlinear-reward",
                estimator=estimator.name,
                reward=str(log.reward),
            )
        target = None if target is None else as_target(target)
        units = weights.units(log, probabilities, "frequencies" if estimator.weights is None else logging, target)
        used = probabilities.ranked
        if isinstance(logging, TargetProbabilities):
            used = used & logging.ranked
        if estimator.model is None:
            return cls(estimator, log, units, used, None, np.zeros(log.n_queries))
        log.reward.require_clicks(estimator.name)
        if target is None:
            raise CapabilityError(
                f"{estimator.name} applies its click model to the target's lists: pass the target.",
                code="missing-target",
                estimator=estimator.name,
            )
        offset = expected_reward(log, target, estimator.model, max_error=estimator.max_error)
        return cls(estimator, log, units, used, _predicted_rewards(log, units, estimator), offset)

    def sessions(self, tally: Tally) -> Float[np.ndarray, "query part"]:
        """Number of sessions by query; 0 for queries that are not used."""
        sessions: np.ndarray = tally.sessions * self.used[:, None]
        return sessions

    def limits(self, clip: Float[np.ndarray, " clip"]) -> Float[np.ndarray, " clip"]:
        """Return the clipping constants that apply: RCTR has no importance weights, and its weight 1 stays."""
        return np.maximum(clip, 1.0) if isinstance(self.estimator.weights, RCTRWeights) else clip

    def path(self, tally: Tally, clip: Float[np.ndarray, " clip"]) -> ClippingPath:
        """Estimate the reward for clipping constants that `checked_clip` returned."""
        clip, units, sessions = self.limits(clip), self.units.shown_by_target, self.sessions(tally)
        table, _, uncovered = self._bin_sums(units, tally, sessions, clip, units.group, len(units.max_reward))
        reward, covered = clipped_sums(table, clip)
        logged, mass = table[:, :, WEIGHT].sum(axis=1), units.mass.T @ sessions
        if uncovered is None:
            never_logged = np.maximum(mass - logged, 0)
        else:
            never_logged = (uncovered * sessions).sum(axis=0, keepdims=True)
        n_sessions, predicted = sessions.sum(axis=0), self.offset @ sessions
        sums = WeightedSums(n_sessions, reward, covered, logged, mass, never_logged, predicted)
        return clipping_path(sums, self.estimator, units.max_reward, signed=units.signed)

    def diagnostics(self, tally: Tally, clip: Float[np.ndarray, " clip"]) -> WeightDiagnostics:
        """Compute the effective sample size, the largest weight and the number of queries without overlap."""
        clip, units, sessions = self.limits(clip), self.units, self.sessions(tally)
        table, largest, _ = self._bin_sums(units, tally, sessions, clip, units.group, len(units.max_reward))
        exposed = units.exposed(tally)
        has_overlap = np.zeros(self.log.n_queries, bool)
        has_overlap[units.query[(exposed[:, 0] > 0) & (units.numerator(exposed, sessions)[0][:, 0] != 0)]] = True
        without_overlap = (sessions[:, 0] > 0) & ~has_overlap
        effective = effective_share(table, clip, units.max_reward)[:, 0] * sessions.sum()
        return WeightDiagnostics(effective, float(largest[0]), int(without_overlap.sum()))

    def per_query(self, tally: Tally, clip: Float[np.ndarray, " clip"]) -> Float[np.ndarray, "query clip"]:
        """Estimate the reward of each query, in a tally of one part; NaN where the log has no overlap."""
        clip, units, sessions = self.limits(clip), self.units, self.sessions(tally)
        groups = len(units.max_reward)
        place = units.query.astype(np.int64) * groups + units.group
        table, *_ = self._bin_sums(units, tally, sessions, clip, place, groups * len(sessions))
        with np.errstate(invalid="ignore", divide="ignore"):
            reward, covered = (part[..., 0].reshape(len(sessions), groups, -1) for part in clipped_sums(table, clip))
            if self.estimator.self_normalised:
                reward = np.where(covered > 0, reward / covered * units.mass[:, :, None], 0) * sessions[:, :, None]
            value = reward.sum(axis=1) / sessions
            value = np.where((covered > 0).any(axis=1), value, np.nan)
            if self.estimator.model is not None:
                correction = np.zeros_like(value) if self.estimator.weights is None else np.nan_to_num(value)
                value = self.offset[:, None] + correction
        return np.where(sessions > 0, value, np.nan)

    def known_weights(self) -> Float[np.ndarray, " unit"]:
        """Importance weight of each unit before clipping, under a known logging policy.

        Raises
        ------
        CapabilityError
            If the logging policy is estimated from the log ("missing-logging-policy").
        """
        units = self.units
        if units.logging is None:
            raise CapabilityError(
                "weights are fixed only under a known logging policy: pass it.", code="missing-logging-policy"
            )
        with np.errstate(divide="ignore", invalid="ignore"):
            weight: np.ndarray = np.where(units.target != 0, units.target / units.logging, 0.0)
        return weight

    def mean_weight(self) -> tuple[float, float]:
        """Mean importance weight before clipping, with its standard error; NaN where the weights are not fixed.

        It is relative to the mass of the target: 1 in expectation where propensities are right and the logging policy
        may show everything that the target shows.
        """
        units, log = self.units, self.log
        if units.logging is None or isinstance(self.estimator.weights, RCTRWeights | None):
            return np.nan, np.nan
        weight = np.append(self.known_weights(), 0.0)  # the last is for UNSEEN
        by_entry = (np.where(units.exposure > 0, units.exposure, 0.0) * weight[units.unit]).sum(axis=1)
        expected, used = units.mass.sum(axis=1)[log.query], self.used[log.query]
        count = log.total.shown[:, 0] * used
        mass = float(count @ expected)
        if not mass > 0 or not np.isfinite(by_entry[used]).all():
            return np.nan, np.nan
        mean = float(count @ np.where(used, by_entry, 0.0)) / mass
        deviation = np.where(used, by_entry - mean * expected, 0.0)
        if log.cluster is None:
            square = float(count @ deviation**2)
        else:
            square = float((np.bincount(log.cluster, log.count * deviation[log.entry_of]) ** 2).sum())
        return mean, float(np.sqrt(square)) / mass

    def _bin_sums(
        self,
        units: WeightUnits,
        tally: Tally,
        sessions: Float[np.ndarray, "query part"],
        clip: Float[np.ndarray, " clip"],
        place: Int[np.ndarray, " unit"],
        n_places: int,
    ) -> tuple[Float[np.ndarray, "place bin sum part"], Float[np.ndarray, " part"], np.ndarray | None]:
        """Sum over units in bins of their weight; also the largest weight, and the mass that signed weights miss."""
        exposed = units.exposed(tally)
        target, uncovered = units.numerator(exposed, sessions)
        earned = units.earned(tally, self.log, self.baseline)
        table = np.zeros((n_places, len(clip) + 1, 5, sessions.shape[1]))
        largest = np.zeros(sessions.shape[1])
        logging = np.zeros(0) if units.logging is None else units.logging
        # one type of query and place, so that the kernel is compiled once
        query, place = np.ascontiguousarray(units.query, np.int64), np.ascontiguousarray(place, np.int64)
        unsupported = _sum_in_bins(target, logging, exposed, earned, query, sessions, place, clip, table, largest)
        if unsupported and clip[-1] == np.inf:
            raise DataError(
                "the logging policy must give everything that was logged a probability above 0: "
                f"{unsupported:,} lists or documents of the log that the target shows have none. Pass the right "
                "policy, or clip the weights.",
                code="zero-propensity",
                count=int(unsupported),
            )
        return table, largest, uncovered


def _predicted_rewards(log: GroupedLog, units: WeightUnits, estimator: Estimator) -> Float[np.ndarray, "entry slot"]:
    """The click model's prediction of the reward of each entry, rank by rank where units are parts of lists."""
    model, max_error = estimator.model, estimator.max_error
    assert model is not None, "called for estimators with a click model"
    if units.by_rank:
        return log.of_lists(lambda lists: model.click_prob(lists, max_error=max_error) * log.theta)
    return log.of_lists(lambda lists: log.reward.expected(model, lists, max_error=max_error)[:, None])


@njit(cache=True, nogil=True)
@no_type_check
def _sum_in_bins(target, logging, exposed, earned, query, sessions, place, limits, table, largest):
    """Add the sums of each unit (see `_accumulators`) to the bin of its importance weight.

    An empty `logging` means that the logging policy is estimated from exposure. Returns the number of units that were
    logged and that the target shows, although the logging policy gives them probability 0.
    """
    estimated = len(logging) == 0
    unsupported = 0
    for u in range(len(target)):
        q = query[u]
        for p in range(exposed.shape[1]):
            e, n = exposed[u, p], sessions[q, p]
            if e <= 0.0 or n <= 0.0:
                continue
            target_prob = target[u, min(p, target.shape[1] - 1)]
            if estimated:
                weight = target_prob * n / e
            elif logging[u] > 0.0:
                weight = target_prob / logging[u]
            else:
                weight = np.inf if target_prob > 0.0 else 0.0
            bin_ = np.searchsorted(limits, weight)
            cell = table[place[u], bin_]
            cell[REWARD, p] += earned[u, p]
            cell[EXPOSURE, p] += e
            largest[p] = max(largest[p], weight)
            if weight < np.inf:
                cell[REWARD_WEIGHT, p] += earned[u, p] * weight
                cell[WEIGHT, p] += e * weight
                cell[SQUARE, p] += e * weight * weight
            else:
                unsupported += 1
    return unsupported


@final
@dataclass(frozen=True, eq=False)
class ClusterTerms:
    """Terms that each cluster adds to the sums of an estimator whose weights do not depend on the log.

    Parameters
    ----------
    bound
        The bound estimator.
    n_clips
        Number of clipping constants.
    of_cluster
        Terms of each cluster. Columns: sessions, predicted reward, mass by group, logged mass by group, then reward and
        covered mass, each by group and clipping constant.
    """

    bound: BoundEstimator
    n_clips: int
    of_cluster: Float[np.ndarray, "cluster term"]

    @classmethod
    def of(cls, bound: BoundEstimator, clip: Float[np.ndarray, " clip"]) -> ClusterTerms | None:
        """Compute the terms; None where weights depend on the log, or where the terms would take too much memory."""
        units, clusters = bound.units, bound.log.clusters
        n_groups = len(units.max_reward)
        size = 2 + 2 * n_groups + 2 * n_groups * len(clip)
        if units.logging is None or bound.estimator.weights is None or 8 * len(clusters.entry) * size > _MEMORY:
            return None
        terms = np.zeros((len(clusters.entry), size))
        query = bound.log.query[clusters.entry]
        used = bound.used[query]
        terms[:, 0] = used
        terms[:, 1] = used * bound.offset[query]
        terms[:, 2 : 2 + n_groups] = used[:, None] * units.mass[query]
        _add_terms(
            clusters.entry,
            used,
            _slot_rewards(bound, clusters),
            units.unit,
            units.exposure,
            units.group,
            bound.known_weights(),
            bound.limits(clip),
            n_groups,
            terms,
        )
        of_cluster = sum_by_index(clusters.of_row, terms * clusters.count[:, None], len(clusters.size))
        return cls(bound, len(clip), of_cluster)

    def path(self, drawn: Num[np.ndarray, "cluster part"]) -> ClippingPath:
        """Estimate the reward in resampled logs, in which each cluster occurs `drawn` times."""
        sums = self.of_cluster.T @ drawn.astype(np.float64, copy=False)
        max_reward, parts = self.bound.units.max_reward, drawn.shape[1]
        n_groups = len(max_reward)
        mass, logged = (sums[2 + k * n_groups : 2 + (k + 1) * n_groups] for k in range(2))
        reward, covered = sums[2 + 2 * n_groups :].reshape(2, n_groups, self.n_clips, parts)
        never_logged = np.maximum(mass - logged, 0)
        weighted_sums = WeightedSums(sums[0], reward, covered, logged, mass, never_logged, sums[1])
        return clipping_path(weighted_sums, self.bound.estimator, max_reward, signed=self.bound.units.signed)


def _slot_rewards(bound: BoundEstimator, clusters: Clusters) -> Float[np.ndarray, "row slot"]:
    """Reward of each slot, minus the click model's prediction for it."""
    log = bound.log
    if bound.units.by_rank:
        reward: np.ndarray = clusters.click * log.theta
    else:
        reward = log.reward.earned(clusters.click)[:, None]
    return reward if bound.baseline is None else reward - bound.baseline[clusters.entry]


@njit(cache=True, nogil=True)
@no_type_check
def _add_terms(entry, used, reward, unit, exposure, group, weight, clip, groups, terms):
    """Fill the columns after the mass: logged mass by group, then reward and covered mass by group and clip."""
    clips = len(clip)
    for i in range(len(entry)):
        if not used[i]:
            continue
        own = exposure[min(entry[i], len(exposure) - 1)]
        for s in range(unit.shape[1]):
            u = unit[entry[i], s]
            if u < 0 or own[s] <= 0.0:
                continue
            g, w = group[u], weight[u]
            if w < np.inf:
                terms[i, 2 + groups + g] += own[s] * w
            for m in range(clips):
                column = 2 + 2 * groups + g * clips + m
                terms[i, column] += reward[i, s] * min(w, clip[m])
                terms[i, column + groups * clips] += own[s] * min(w, clip[m])
