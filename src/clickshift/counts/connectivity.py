"""Can this log tell attractiveness from examination? Only if documents were seen at several ranks.

A model of the form examination x attractiveness compares ranks through the documents that both have shown. Ranks are
the nodes of a graph; two ranks are joined by the documents seen at both. Between unconnected groups of ranks every
factor of examination fits as well as any other (Hager et al. 2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from clickshift.core.parallel import for_each, n_threads
from clickshift.counts.cells import Cells, rank_of

WEAK = 100.0
"""Effective swaps below which two groups of ranks count as hardly connected."""


@dataclass(frozen=True, eq=False)
class SwapGraph:
    """How ranks are joined by documents that were seen at both."""

    swaps: Float[np.ndarray, "rank rank"]
    """Effective number of swaps: sum over pairs of n_k n_l / (n_k + n_l), n_k = impressions at rank k."""
    component: Int[np.ndarray, " rank"]
    """Ranks with the same number are connected, by paths of any strength."""

    @property
    def n_components(self) -> int:
        return int(self.component.max()) + 1

    @property
    def weakest_link(self) -> float:
        """The weakest edge that the strongest paths between all ranks need (the bottleneck of a maximum spanning
        tree)."""
        from scipy.sparse.csgraph import minimum_spanning_tree

        if self.n_components > 1:
            return 0.0
        if len(self.component) < 2:
            return float("inf")
        largest = self.swaps.max() + 1
        tree = minimum_spanning_tree(np.where(self.swaps > 0, largest - self.swaps, 0)).toarray()
        return float(largest - tree[tree > 0].max())

    def groups(self) -> list[list[int]]:
        """Connected ranks, from 1."""
        return [(np.flatnonzero(self.component == c) + 1).tolist() for c in range(self.n_components)]

    def warning(self) -> str | None:
        """In plain words what cannot be told apart, and what would help; None where all is well."""
        help_ = "What would help: randomise the order of a few results now and then, or log several rankers."
        if self.n_components > 1:
            groups = "; ".join(_ranks(group) for group in self.groups())
            return (
                f"no document was seen at ranks of different groups ({groups}), so that examination of one group "
                f"cannot be compared with that of another: a good place and a good document look the same. {help_}"
            )
        if self.weakest_link < WEAK:
            return (
                f"ranks are hardly connected: the weakest link rests on {self.weakest_link:.1f} effective swaps "
                f"of documents between ranks (fewer than {WEAK:.0f}), so that examination is uncertain. {help_}"
            )
        return None


def swap_graph(cells: Cells) -> SwapGraph:
    """From counts by pair and rank."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    pieces = cells.ranges(n_threads())
    swaps, seen = np.zeros((len(pieces), cells.n_ranks, cells.n_ranks)), np.zeros((len(pieces), cells.n_ranks))
    rank = rank_of(cells.by, cells.n_ranks)
    for_each(
        lambda k: _add_swaps(*pieces[k], cells.offsets, cells.situation, cells.impressions, rank, swaps[k], seen[k]),
        len(pieces),
    )
    swaps, shown = swaps.sum(axis=0), seen.sum(axis=0) > 0
    _, component = connected_components(csr_array(swaps > 0), directed=False)
    # ranks that were never shown belong to nobody's group: put them with the last shown one
    if not shown.all():
        last = np.flatnonzero(shown)[-1]
        component = np.where(shown, component, component[last])
        component = np.unique(component, return_inverse=True)[1]
    return SwapGraph(swaps, component)


@njit(cache=True, nogil=True)
@no_type_check
def _add_swaps(start, stop, offsets, situation, impressions, rank, swaps, seen):
    """Pair by pair: how often it was seen at each rank, and what that joins."""
    here = np.zeros(len(seen))
    for p in range(start, stop):
        lowest, highest = len(seen), -1
        for k in range(offsets[p], offsets[p + 1]):
            r = rank[situation[k]]
            here[r] += impressions[k]
            lowest, highest = min(lowest, r), max(highest, r)
        for r in range(lowest, highest + 1):
            seen[r] += here[r]
            if here[r] > 0:
                for other in range(lowest, r):
                    if here[other] > 0:
                        joined = here[r] * here[other] / (here[r] + here[other])
                        swaps[r, other] += joined
                        swaps[other, r] += joined
        here[lowest : highest + 1] = 0


def _ranks(group: list[int]) -> str:
    if len(group) > 2 and group == list(range(group[0], group[-1] + 1)):
        return f"ranks {group[0]} to {group[-1]}"
    return ("rank " if len(group) == 1 else "ranks ") + ", ".join(map(str, group))
