"""An estimator made ready for one log and one target: units, weights, and what a model expects of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final, no_type_check

import numpy as np
from jaxtyping import Bool, Float, Int
from numba import njit

from clickshift.data.sessions import Rankings
from clickshift.errors import CapabilityError, DataError
from clickshift.models.base import ClickModel
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
from clickshift.ope.weights import ItemWeights, LoggingPolicy, WeightUnits


@final
@dataclass(frozen=True, eq=False)
class WeightDiagnostics:
    """How unequal weights are, in a tally of one part."""

    effective: Float[np.ndarray, " clip"]
    """Effective sample size, in sessions."""
    largest_weight: float
    """Before clipping."""
    queries_without_overlap: int
    """How many of the queries used have nothing of the target in the log."""


@final
@dataclass(frozen=True, eq=False)
class BoundEstimator:
    """An estimator for one target and one log, ready for any tally of that log."""

    estimator: Estimator
    logged: GroupedLog
    strata: WeightUnits
    used: Bool[np.ndarray, " query"]
    """Queries that the target ranks, and the logging policy where it is known."""
    baseline: Float[np.ndarray, "entry slot"] | None
    """What the model expects of each list's impressions."""
    offset: Float[np.ndarray, " query"]
    """What the model expects of the target; 0 without a model."""

    @classmethod
    def of(
        cls,
        estimator: Estimator,
        logged: GroupedLog,
        aim: TargetProbabilities,
        logging: LoggingPolicy = "frequencies",
        *,
        target: Target | Rankings | None = None,
    ) -> BoundEstimator:
        """A model is asked about the lists of the `target`; otherwise the aim at it is enough."""
        weights = ItemWeights() if estimator.weights is None else estimator.weights  # DM: for its coverage
        if estimator.weights is not None and weights.needs_linear and not logged.reward.is_linear:
            raise CapabilityError(
                f"{estimator.name} weighs clicks one by one, and the reward {logged.reward} is not a sum of them. "
                "Take List, RCTR or the direct method."
            )
        target = None if target is None else as_target(target)
        strata = weights.strata(logged, aim, "frequencies" if estimator.weights is None else logging, target)
        used = aim.ranked & logging.ranked if isinstance(logging, TargetProbabilities) else aim.ranked
        if estimator.model is None:
            return cls(estimator, logged, strata, used, None, np.zeros(logged.n_queries))
        if target is None:
            raise CapabilityError(f"{estimator.name} asks its model about the target's lists: give the target.")
        offset = expected_reward(logged, target, estimator.model)
        return cls(estimator, logged, strata, used, _baseline(logged, strata, estimator.model), offset)

    def sessions(self, tally: Tally) -> Float[np.ndarray, "query part"]:
        """Of the queries that are used."""
        sessions: np.ndarray = self.logged.per_query(tally.shown) * self.used[:, None]
        return sessions

    def path(self, tally: Tally, clip: Float[np.ndarray, " clip"]) -> ClippingPath:
        """For clipping constants that `checked_clip` gives."""
        s, sessions = self.strata, self.sessions(tally)
        table, _, untold = self._table(tally, sessions, clip, s.group, len(s.worth))
        reward, covered = clipped_sums(table, clip)
        total, mass = table[:, :, WEIGHT].sum(axis=1), s.mass.T @ sessions
        never = np.maximum(mass - total, 0) if untold is None else (untold * sessions).sum(axis=0, keepdims=True)
        sums = WeightedSums(sessions.sum(axis=0), reward, covered, total, mass, never, self.offset @ sessions)
        return clipping_path(sums, self.estimator, s.worth, signed=untold is not None)

    def spread(self, tally: Tally, clip: Float[np.ndarray, " clip"]) -> WeightDiagnostics:
        """How unequal the weights are."""
        s, sessions = self.strata, self.sessions(tally)
        table, top, _ = self._table(tally, sessions, clip, s.group, len(s.worth))
        exposed = s.exposed(tally)
        covered = np.zeros(self.logged.n_queries, bool)
        covered[s.query[(exposed[:, 0] > 0) & (s.aimed(exposed, sessions)[0][:, 0] != 0)]] = True
        without = (sessions[:, 0] > 0) & ~covered
        return WeightDiagnostics(
            effective_share(table, clip, s.worth)[:, 0] * sessions.sum(), float(top[0]), int(without.sum())
        )

    def per_query(self, tally: Tally, clip: Float[np.ndarray, " clip"]) -> Float[np.ndarray, "query clip"]:
        """The plain or self-normalised estimate of each query (of a tally of one part), NaN where it is not known."""
        s, sessions = self.strata, self.sessions(tally)
        groups = len(s.worth)
        place = s.query.astype(np.int64) * groups + s.group
        table, *_ = self._table(tally, sessions, clip, place, groups * len(sessions))
        with np.errstate(invalid="ignore", divide="ignore"):
            reward, covered = (part[..., 0].reshape(len(sessions), groups, -1) for part in clipped_sums(table, clip))
            if self.estimator.self_normalised:
                reward = np.where(covered > 0, reward / covered * s.mass[:, :, None], 0) * sessions[:, :, None]
            value = reward.sum(axis=1) / sessions
            value = np.where((covered > 0).any(axis=1), value, np.nan)
            if self.estimator.model is not None:
                beyond = np.zeros_like(value) if self.estimator.weights is None else np.nan_to_num(value)
                value = self.offset[:, None] + beyond
        return np.where(sessions > 0, value, np.nan)

    def weight(self) -> Float[np.ndarray, " unit"]:
        """Weights before clipping under a known logging policy."""
        s = self.strata
        if s.known is None:
            raise CapabilityError("weights are fixed only under a known logging policy: give it.")
        with np.errstate(divide="ignore", invalid="ignore"):
            weight: np.ndarray = np.where(s.target > 0, s.target / s.known, 0.0)
        return weight

    def _table(
        self,
        tally: Tally,
        sessions: Float[np.ndarray, "query part"],
        clip: Float[np.ndarray, " clip"],
        place: Int[np.ndarray, " unit"],
        places: int,
    ) -> tuple[Float[np.ndarray, "place bin sum part"], Float[np.ndarray, " part"], np.ndarray | None]:
        """Sums in bins of weights, the largest weight, and mass that signed weights cannot tell of."""
        s, exposed = self.strata, self.strata.exposed(tally)
        target, untold = s.aimed(exposed, sessions)
        earned = s.earned(tally, self.logged.theta, self.baseline)
        table = np.zeros((places, len(clip) + 1, 5, sessions.shape[1]))
        top = np.zeros(sessions.shape[1])
        known = np.zeros(0) if s.known is None else s.known
        impossible = _sum(target, known, exposed, earned, s.query, sessions, place, clip, table, top)
        if impossible and clip[-1] == np.inf:
            raise DataError(
                f"the logging policy must give all that it logged a probability above 0: {impossible:,} lists or "
                "documents of the log that the target shows have none. Give the right policy, or clip their weights."
            )
        return table, top, untold


def _baseline(logged: GroupedLog, strata: WeightUnits, model: ClickModel) -> Float[np.ndarray, "entry slot"]:
    if strata.by_rank:
        expected: np.ndarray = model.click_prob(logged.lists) * logged.theta
    else:
        expected = logged.reward.expected(model, logged.lists)[:, None]
    return logged.by_entry(expected)


@njit(cache=True, nogil=True)
@no_type_check
def _sum(target, known, exposed, earned, query, sessions, place, limits, table, top):
    """Add reward x weight, reward, exposure x weight, exposure and exposure x weight^2 of each unit to the bin of its
    weight. Returns how many units the target shows and were logged, though the logging policy never shows them."""
    estimated = len(known) == 0
    impossible = 0
    for u in range(len(target)):
        q = query[u]
        for p in range(exposed.shape[1]):
            e, n = exposed[u, p], sessions[q, p]
            if e <= 0.0 or n <= 0.0:
                continue
            aimed = target[u, min(p, target.shape[1] - 1)]
            if estimated:
                weight = aimed * n / e
            elif known[u] > 0.0:
                weight = aimed / known[u]
            else:
                weight = np.inf if aimed > 0.0 else 0.0
            bin_ = np.searchsorted(limits, weight)
            cell = table[place[u], bin_]
            cell[REWARD, p] += earned[u, p]
            cell[EXPOSURE, p] += e
            top[p] = max(top[p], weight)
            if weight < np.inf:
                cell[REWARD_WEIGHT, p] += earned[u, p] * weight
                cell[WEIGHT, p] += e * weight
                cell[SQUARE, p] += e * weight * weight
            else:
                impossible += 1
    return impossible


_MEMORY = 1 << 28  # bytes


@final
@dataclass(frozen=True, eq=False)
class ClusterTerms:
    """What each cluster adds to the sums of an estimator."""

    prepared: BoundEstimator
    clips: int
    of_cluster: Float[np.ndarray, "cluster term"]

    @classmethod
    def of(cls, prepared: BoundEstimator, clip: Float[np.ndarray, " clip"]) -> ClusterTerms | None:
        """None where weights depend on the log, or where the terms would take too much memory."""
        s, clusters = prepared.strata, prepared.logged.clusters
        n_groups = len(s.worth)
        size = 2 + 2 * n_groups + 2 * n_groups * len(clip)
        if s.known is None or prepared.estimator.weights is None or 8 * len(clusters.entry) * size > _MEMORY:
            return None
        terms = np.zeros((len(clusters.entry), size))
        query = prepared.logged.query[clusters.entry]
        used = prepared.used[query]
        terms[:, 0] = used
        terms[:, 1] = used * prepared.offset[query]
        terms[:, 2 : 2 + n_groups] = used[:, None] * s.mass[query]
        _add_terms(
            clusters.entry,
            used,
            _reward(prepared, clusters),
            s.unit,
            s.exposure,
            s.group,
            prepared.weight(),
            clip,
            n_groups,
            terms,
        )
        return cls(
            prepared, len(clip), sum_by_index(clusters.of_row, terms * clusters.count[:, None], len(clusters.size))
        )

    def path(self, drawn: Float[np.ndarray, "cluster part"]) -> ClippingPath:
        """Of logs in which each cluster is there so many times."""
        sums = self.of_cluster.T @ drawn
        worth, parts = self.prepared.strata.worth, drawn.shape[1]
        mass, total = (sums[2 + k * len(worth) : 2 + (k + 1) * len(worth)] for k in range(2))
        reward, covered = sums[2 + 2 * len(worth) :].reshape(2, len(worth), self.clips, parts)
        never = np.maximum(mass - total, 0)
        return clipping_path(
            WeightedSums(sums[0], reward, covered, total, mass, never, sums[1]), self.prepared.estimator, worth
        )


def _reward(prepared: BoundEstimator, clusters: Clusters) -> Float[np.ndarray, "row slot"]:
    """What each slot earns, less what a model expects of it."""
    logged = prepared.logged
    if prepared.strata.by_rank:
        reward: np.ndarray = clusters.click * logged.theta
    else:
        reward = logged.reward.earned(clusters.click)[:, None]
    return reward if prepared.baseline is None else reward - prepared.baseline[clusters.entry]


@njit(cache=True, nogil=True)
@no_type_check
def _add_terms(entry, used, reward, unit, exposure, group, weight, clip, groups, terms):
    """Columns after the first 2 and the mass: total by group, then reward and covered by group and clip."""
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
                at = 2 + 2 * groups + g * clips + m
                terms[i, at] += reward[i, s] * min(w, clip[m])
                terms[i, at + groups * clips] += own[s] * min(w, clip[m])
