"""Weights that do not depend on the log, as under a known logging policy: every session adds terms of its own.

A resampled log then is a weighted sum of terms, one matrix product for all replicates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final, no_type_check

import numpy as np
from jaxtyping import Float
from numba import njit

from clickshift.ope.accumulators import Path, Sums, path_of
from clickshift.ope.bound_estimator import Prepared
from clickshift.ope.grouped_log import Clusters, added

_MEMORY = 1 << 28  # bytes


@final
@dataclass(frozen=True, eq=False)
class Terms:
    """What each cluster adds to the sums of an estimator."""

    prepared: Prepared
    clips: int
    of_cluster: Float[np.ndarray, "cluster term"]

    @classmethod
    def of(cls, prepared: Prepared, clip: Float[np.ndarray, " clip"]) -> Terms | None:
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
        return cls(prepared, len(clip), added(clusters.of_row, terms * clusters.count[:, None], len(clusters.size)))

    def path(self, drawn: Float[np.ndarray, "cluster part"]) -> Path:
        """Of logs in which each cluster is there so many times."""
        sums = self.of_cluster.T @ drawn
        worth, parts = self.prepared.strata.worth, drawn.shape[1]
        mass, total = (sums[2 + k * len(worth) : 2 + (k + 1) * len(worth)] for k in range(2))
        reward, covered = sums[2 + 2 * len(worth) :].reshape(2, len(worth), self.clips, parts)
        never = np.maximum(mass - total, 0)
        return path_of(Sums(sums[0], reward, covered, total, mass, never, sums[1]), self.prepared.estimator, worth)


def _reward(prepared: Prepared, clusters: Clusters) -> Float[np.ndarray, "row slot"]:
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
