"""Summary of a log: size, click-through rates, variation of its lists, and what can be identified from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from clickshift.core.unique_rows import row_hashes
from clickshift.counts.cells import Cells
from clickshift.counts.connectivity import swap_graph
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Sessions
from clickshift.display.tables import Row


def log_summary(log: Log) -> dict[str, Any]:
    """Summarise a log.

    Parameters
    ----------
    log
        Log, in memory or encoded.

    Returns
    -------
    dict
        Sizes, click-through rates by rank, variation of the lists, connectivity of the ranks, and whether the log has
        propensities, times and users, as plain values. `clickshift log info` prints them.
    """
    cells = Cells.of(log)
    ranks_per_pair = np.bincount(cells.pair, minlength=log.vocabulary.n_pairs)
    shown = ranks_per_pair > 0
    graph = swap_graph(cells)
    impressions, clicks = cells.by_rank()
    parts = [_summarise_part(part) for part in log.chunks()]
    facts: dict[str, Any] = {
        "sessions": log.total,
        "rows": len(log),
        "queries": len(np.unique(log.vocabulary.pair_query[shown])),
        "documents": len(np.unique(log.vocabulary.pair_doc[shown])),
        "pairs": int(shown.sum()),
        "ranks": log.n_ranks,
        "mean_list_length": float(sum(part.results for part in parts) / log.total),
        "clicks_per_session": float(sum(part.clicks for part in parts) / log.total),
        "sessions_without_click": float(sum(part.without_click for part in parts) / log.total),
        "ctr_by_rank": (clicks / np.maximum(impressions, 1)).tolist(),
        "distinct_lists": len(np.unique(np.concatenate([part.lists for part in parts]))),
        "pairs_seen_at_several_ranks": float((ranks_per_pair[shown] > 1).mean()),
        "rank_groups": graph.groups(),
        "weakest_link": graph.weakest_link,
        "effective_swaps": graph.swaps.tolist(),
        "identifiability": graph.warning() or "all ranks are connected",
        "propensities": parts[0].propensities,
    }
    if all(part.first is not None for part in parts):
        facts["time"] = [str(min(part.first for part in parts)), str(max(part.last for part in parts))]
    if all(part.users is not None for part in parts):
        facts["users"] = len(np.unique(np.concatenate([part.users for part in parts])))
    return facts


class _PartSummary(NamedTuple):
    """Summary of one part of a log: totals over sessions, a hash of each distinct list, times and users."""

    results: float
    clicks: float
    without_click: float
    lists: np.ndarray
    propensities: bool
    first: Any
    last: Any
    users: Any


def _summarise_part(part: Sessions) -> _PartSummary:
    """Summarise one part of a log."""
    rankings = part.rankings
    return _PartSummary(
        float(part.count @ rankings.length),
        float((part.count @ part.click).sum()),
        float(part.count[~part.click.any(axis=1)].sum()),
        np.unique(row_hashes(np.concatenate([rankings.query[:, None], rankings.pair], axis=1))),
        rankings.log_prob is not None,
        None if part.time is None else part.time.min(),
        None if part.time is None else part.time.max(),
        None if part.user is None else np.unique(part.user),
    )


def log_table(facts: Row) -> dict[str, Any]:
    """Shorten a log summary for display: of the effective swaps, only those between neighbouring ranks are kept.

    Parameters
    ----------
    facts
        Summary as from `log_summary`.
    """
    swaps, groups = facts["effective_swaps"], facts["rank_groups"]
    neighbours = [swaps[rank][rank + 1] for rank in range(len(swaps) - 1)]
    by_neighbours = {f"{rank + 1}–{rank + 2}": round(swap) for rank, swap in enumerate(neighbours)}
    return {
        **facts,
        "rank_groups": "; ".join(_range_text(group) for group in groups),
        "effective_swaps": by_neighbours or "none: every list has one result",
    }


def _range_text(ranks: Sequence[int]) -> str:
    """Return ranks as text, e.g. "1–5" or "1, 3"."""
    if len(ranks) > 2 and list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}–{ranks[-1]}"
    return ", ".join(map(str, ranks))
