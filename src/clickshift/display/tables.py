"""Tidy rows -> tables that a person reads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clickshift.judgments.grading import Grading
from clickshift.models.forecast import Forecast

Row = Mapping[str, Any]


def comparison_table(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One row per model, the best conditional perplexity first; those that failed last, with their errors."""
    ranked = sorted(rows, key=lambda row: _last_if_unknown(row["conditional_perplexity"]))
    table = [
        {
            "model": row["model"],
            "conditional perplexity": row["conditional_perplexity"],
            "marginal perplexity": row["marginal_perplexity"],
            "log-likelihood": row["log_likelihood"],
            "unseen pairs": row["unseen_pair_share"],
            "seconds": row["seconds"],
            "error": row["error"],
        }
        for row in ranked
    ]
    if not any(row["error"] for row in rows):
        for line in table:
            del line["error"]
    return table


def _last_if_unknown(value: float | None) -> float:
    return math.inf if value is None or math.isnan(value) else value


def curve_table(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """How users move through the list, for reading: the last click says so where there was none."""
    read = {"last_click": "last click"}
    return [
        {read.get(name, name): value or "none" if name in read else value for name, value in row.items()}
        for row in rows
    ]


def models_table() -> list[dict[str, Any]]:
    """Every click model with what it can do and the learner that `fit` uses; None where none is usual."""
    from clickshift.core.spec import resolve
    from clickshift.learners import DEFAULT
    from clickshift.models import MODELS
    from clickshift.models._differentiable import Differentiable

    models = {name: resolve(name, MODELS) for name in MODELS}
    return [
        {
            "model": name,
            "predicts_clicks": model.predicts_clicks,
            "uses_history": model.uses_history,
            "ranks_documents": model.ranks_documents,
            "peeks": model.peeks,
            "learner": DEFAULT.get(name),
            "by_gradient": issubclass(model, Differentiable),
        }
        for name, model in models.items()
    ]


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


def grading_facts(grading: Grading) -> dict[str, Any]:
    """What was judged, where the cuts are, and how sure the grades are."""
    return {
        "queries": len(grading.group_sizes),
        "pairs": grading.table.num_rows,
        "pairs_left_out": grading.left_out,
        "cut_points": list(grading.cuts),
        "pairs_by_grade": {str(grade): int(count) for grade, count in enumerate(grading.counts)},
        "pairs_whose_interval_has_one_grade": grading.certain_share,
    }


def forecast_facts(found: Forecast) -> dict[str, Any]:
    """A forecast on average."""
    shown = found.rankings.shown
    return {
        "lists": len(found.click_prob),
        "unseen_share": found.unseen_share,
        "mean_expected_clicks": float(found.expected_clicks.mean()),
        "mean_click_prob_by_rank": (found.click_prob.sum(axis=0) / shown.sum(axis=0)).tolist(),
        "intervals": "none" if np.isnan(found.error).any() else "delta method, 95 %",
    }


def forecast_table(found: Forecast, *, longest: int = 20) -> tuple[list[dict[str, Any]], str]:
    """The first lists of a forecast, for reading, and a note on what is not shown."""
    words, rankings = found.rankings.vocabulary, found.rankings
    low, high = found.total_intervals()
    rows = []
    for i in range(min(longest, len(rankings))):
        shown = rankings.shown[i]
        row = {
            "list": i + 1,
            "query": str(words.query_ids[rankings.query[i]]),
            "expected clicks": float(found.expected_clicks[i]),
            "low": float(low[i]),
            "high": float(high[i]),
            "by rank": " ".join(f"{prob:.3f}" for prob in found.click_prob[i][shown]),
            "unseen": int(found.unseen[i].sum()),
        }
        rows.append(row)
    more = len(rankings) - len(rows)
    return rows, f"and {more:,} more lists; --output or --json has them all" if more else ""
