"""What a log holds, before any model: sizes, click-through rates, how much its lists vary, and what that can teach."""

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
    """Facts about a log as plain values; `clickshift log info` shows them."""
    cells = Cells.of(log)
    ranks_seen = np.bincount(cells.pair, minlength=log.vocabulary.n_pairs)
    shown = ranks_seen > 0
    graph = swap_graph(cells)
    impressions, clicks = cells.by_rank()
    seen = [_seen(part) for part in log.chunks()]
    facts: dict[str, Any] = {
        "sessions": log.total,
        "rows": len(log),
        "queries": len(np.unique(log.vocabulary.pair_query[shown])),
        "documents": len(np.unique(log.vocabulary.pair_doc[shown])),
        "pairs": int(shown.sum()),
        "ranks": log.n_ranks,
        "mean_list_length": float(sum(part.results for part in seen) / log.total),
        "clicks_per_session": float(sum(part.clicks for part in seen) / log.total),
        "sessions_without_click": float(sum(part.without_click for part in seen) / log.total),
        "ctr_by_rank": (clicks / np.maximum(impressions, 1)).tolist(),
        "distinct_lists": len(np.unique(np.concatenate([part.lists for part in seen]))),
        "pairs_seen_at_several_ranks": float((ranks_seen[shown] > 1).mean()),
        "rank_groups": graph.groups(),
        "weakest_link": graph.weakest_link,
        "effective_swaps": graph.swaps.tolist(),
        "identifiability": graph.warning() or "all ranks are connected",
        "propensities": seen[0].propensities,
    }
    if all(part.first is not None for part in seen):
        facts["time"] = [str(min(part.first for part in seen)), str(max(part.last for part in seen))]
    if all(part.users is not None for part in seen):
        facts["users"] = len(np.unique(np.concatenate([part.users for part in seen])))
    return facts


class _Seen(NamedTuple):
    """What is told of some sessions."""

    results: float
    clicks: float
    without_click: float
    lists: np.ndarray
    """A hash of each distinct list."""
    propensities: bool
    first: Any
    last: Any
    users: Any


def _seen(part: Sessions) -> _Seen:
    rankings = part.rankings
    return _Seen(
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
    """The facts about a log, for reading: of the effective swaps, those between neighbouring ranks."""
    swaps, groups = facts["effective_swaps"], facts["rank_groups"]
    neighbours = [swaps[rank][rank + 1] for rank in range(len(swaps) - 1)]
    short = {f"{rank + 1}–{rank + 2}": round(swap) for rank, swap in enumerate(neighbours)}
    return {
        **facts,
        "rank_groups": "; ".join(_range(group) for group in groups),
        "effective_swaps": short or "none: lists of one result",
    }


def _range(ranks: Sequence[int]) -> str:
    if len(ranks) > 2 and list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}–{ranks[-1]}"
    return ", ".join(map(str, ranks))
