"""Identifiability of examination: a log separates it from attractiveness if documents were shown at several ranks.

A model of the form examination x attractiveness compares ranks through the documents that were shown at both. Ranks are
the nodes of a graph; two ranks are joined by the documents shown at both. Between unconnected groups of ranks, any
scale factor of examination fits equally well (Hager et al. 2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from clickshift.core.parallel import for_each, n_threads
from clickshift.counts.cells import Cells, rank_of

_WEAK_LINK = 100.0
"""Effective number of swaps below which two groups of ranks are considered weakly connected."""

MAX_GRAPH_RANKS = 2000
"""Number of ranks of the graph: those below count as the last one."""
_RANKS_NAMED = 10
"""Number of ranks of a group that a text names one by one."""
_GROUPS_NAMED = 5
"""Number of groups of ranks, and of runs of ranks in a group, that a text names."""


@dataclass(frozen=True, eq=False)
class SwapGraph:
    """Graph of ranks, joined by the documents that were shown at both.

    Parameters
    ----------
    swaps
        Effective number of swaps between two ranks: the sum over pairs of n_k n_l / (n_k + n_l), where n_k is the
        number of impressions at rank k. Ranks below 2,000 count as rank 2,000.
    component
        Connected component of each rank, by paths of any strength.

    References
    ----------
    Hager, P., Zoeter, O. and de Rijke, M. (2025). Unidentified and confounded? Understanding two-tower models for
    unbiased learning to rank. ICTIR.
    """

    swaps: Float[np.ndarray, "rank rank"]
    component: Int[np.ndarray, " rank"]

    @property
    def n_components(self) -> int:
        """Number of connected groups of ranks; 1 if examination is identified."""
        return int(self.component.max()) + 1

    def of_rank(self) -> Float[np.ndarray, " rank"]:
        """Return the effective swaps of each rank with all others."""
        swaps: np.ndarray = self.swaps.sum(axis=1)
        return np.pad(swaps, (0, len(self.component) - len(swaps)), "edge")

    @property
    def weakest_link(self) -> float:
        """Effective swaps on the weakest edge of a maximum spanning tree: the bottleneck between all ranks."""
        from scipy.sparse.csgraph import minimum_spanning_tree

        if self.n_components > 1:
            return 0.0
        if len(self.component) < 2:
            return float("inf")
        largest = self.swaps.max() + 1
        tree = minimum_spanning_tree(np.where(self.swaps > 0, largest - self.swaps, 0)).toarray()
        return float(largest - tree[tree > 0].max())

    @property
    def verdict(self) -> str:
        """Whether examination is "identified", "weakly identified" or "not identified"."""
        if self.n_components > 1:
            return "not identified"
        return "weakly identified" if self.weakest_link < _WEAK_LINK else "identified"

    def groups(self) -> list[list[int]]:
        """Return the connected groups of ranks, from 1."""
        return [(np.flatnonzero(self.component == c) + 1).tolist() for c in range(self.n_components)]

    def describe_groups(self) -> str:
        """Return the connected groups of ranks as text; of many, the first ones."""
        groups = self.groups()
        more = len(groups) - _GROUPS_NAMED if len(groups) > _GROUPS_NAMED + 1 else 0
        named = "; ".join(_describe_ranks(group) for group in groups[: len(groups) - more])
        return f"{named}; and {more:,} more" if more else named

    def warning(self) -> str | None:
        """Return a sentence on what is not identified and what would help; None if examination is identified."""
        advice = "To fix this, randomise the order of some results now and then, or log several rankers."
        if self.n_components > 1:
            groups = self.describe_groups()
            return (
                f"no document was shown at ranks of different groups ({groups}), so examination of one group cannot "
                f"be compared with that of another: position bias and attractiveness are not identified. {advice}"
            )
        if self.weakest_link < _WEAK_LINK:
            return (
                f"ranks are weakly connected: the weakest link has {self.weakest_link:.1f} effective swaps of "
                f"documents between ranks (fewer than {_WEAK_LINK:.0f}), so examination is uncertain. {advice}"
            )
        return None


def swap_graph(cells: Cells) -> SwapGraph:
    """Build the graph of ranks from count tables.

    Parameters
    ----------
    cells
        Impressions by pair and situation; any situation will do.

    Returns
    -------
    SwapGraph
        Effective swaps between ranks, and connected groups of ranks.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    pieces = cells.ranges(n_threads(len(cells.pair)))
    size = min(cells.n_ranks, MAX_GRAPH_RANKS)
    swaps, seen = np.zeros((len(pieces), size, size)), np.zeros((len(pieces), size))
    rank = cells.rank() if (long := cells.n_ranks > size) else rank_of(cells.by, size)
    of_cell = np.arange(len(rank), dtype=cells.situation.dtype) if long else cells.situation
    rank = np.minimum(rank, size - 1)
    for_each(
        lambda k: _add_swaps(*pieces[k], cells.offsets, of_cell, cells.impressions, rank, swaps[k], seen[k]),
        len(pieces),
    )
    swaps, shown = swaps.sum(axis=0), seen.sum(axis=0) > 0
    _, component = connected_components(csr_array(swaps > 0), directed=False)
    # ranks without impressions have no group of their own: add them to that of the last rank shown
    if not shown.all():
        last = np.flatnonzero(shown)[-1]
        component = np.where(shown, component, component[last])
        component = np.unique(component, return_inverse=True)[1]
    return SwapGraph(swaps, np.pad(component, (0, cells.n_ranks - size), "edge"))


@njit(cache=True, nogil=True)
@no_type_check
def _add_swaps(start, stop, offsets, situation, impressions, rank, swaps, seen):
    """Add the effective swaps and the impressions by rank of the pairs from `start` to `stop`."""
    shown = np.zeros(len(seen))
    for p in range(start, stop):
        lowest, highest = len(seen), -1
        for k in range(offsets[p], offsets[p + 1]):
            r = rank[situation[k]]
            shown[r] += impressions[k]
            lowest, highest = min(lowest, r), max(highest, r)
        for r in range(lowest, highest + 1):
            seen[r] += shown[r]
            if shown[r] > 0:
                for other in range(lowest, r):
                    if shown[other] > 0:
                        swapped = shown[r] * shown[other] / (shown[r] + shown[other])
                        swaps[r, other] += swapped
                        swaps[other, r] += swapped
        shown[lowest : highest + 1] = 0


def _describe_ranks(group: list[int]) -> str:
    """Return the name of a group of ranks, e.g. "ranks 1 to 5"."""
    if len(group) > 2 and group == list(range(group[0], group[-1] + 1)):
        return f"ranks {group[0]} to {group[-1]}"
    if len(group) <= _RANKS_NAMED:
        return ("rank " if len(group) == 1 else "ranks ") + ", ".join(map(str, group))
    ranks = np.array(group)
    runs = np.split(ranks, np.flatnonzero(np.diff(ranks) > 1) + 1)
    named = [f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs[:_GROUPS_NAMED]]
    more = len(runs) - len(named)
    return f"ranks {', '.join(named)}" + (f" and {sum(map(len, runs[_GROUPS_NAMED:])):,} more" if more else "")
