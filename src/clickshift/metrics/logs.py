"""What a log holds, before any model: sizes, click-through rates, how much its lists vary, and what that can teach."""

from __future__ import annotations

from typing import Any

import numpy as np

from clickshift.grouping import distinct_rows
from clickshift.identifiability import swap_graph
from clickshift.sessions import Sessions
from clickshift.statistics import Cells


def log_summary(sessions: Sessions) -> dict[str, Any]:
    """Facts about a log as plain values; `clickshift log info` shows them."""
    rankings = sessions.rankings
    _, first = distinct_rows(np.concatenate([rankings.query[:, None], rankings.pair], axis=1))
    cells = Cells.of(sessions)
    ranks_seen = np.bincount(cells.pair, minlength=sessions.vocabulary.n_pairs)
    shown = ranks_seen > 0
    graph = swap_graph(cells)
    length = np.average(rankings.length, weights=sessions.count)
    facts: dict[str, Any] = {
        "sessions": sessions.total,
        "rows": len(sessions),
        "queries": int(np.count_nonzero(np.bincount(rankings.query[rankings.query >= 0]))),
        "documents": len(np.unique(sessions.vocabulary.pair_doc[shown])),
        "pairs": int(shown.sum()),
        "ranks": sessions.n_ranks,
        "mean_list_length": float(length),
        "clicks_per_session": float((sessions.count @ sessions.click).sum() / sessions.total),
        "sessions_without_click": float(sessions.count[~sessions.click.any(axis=1)].sum() / sessions.total),
        "ctr_by_rank": sessions.ctr_by_rank().tolist(),
        "distinct_lists": len(first),
        "pairs_seen_at_several_ranks": float((ranks_seen[shown] > 1).mean()),
        "rank_groups": graph.groups(),
        "weakest_link": graph.weakest_link,
        "effective_swaps": graph.swaps.tolist(),
        "identifiability": graph.warning() or "all ranks are connected",
        "propensities": rankings.log_prob is not None,
    }
    if sessions.time is not None:
        facts["time"] = [str(sessions.time.min()), str(sessions.time.max())]
    if sessions.user is not None:
        facts["users"] = len(np.unique(sessions.user))
    return facts
