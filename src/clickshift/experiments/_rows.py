"""Tidy result rows of fitted models: click prediction on several logs, and ranking of judged documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from clickshift.core.rng import generator
from clickshift.data.encoded_log import Log
from clickshift.metrics.click_prediction import conditional_evaluation
from clickshift.metrics.ranking import JudgedPairs, head_queries, ranking_quality
from clickshift.models.base import ClickModel
from clickshift.simulation.search_engine import IND


def click_rows(models: Sequence[ClickModel], logs: Mapping[str, Log]) -> Iterator[dict[str, Any]]:
    """Yield one row per seed and log with all metrics conditional on the clicks above a result.

    Models that predict no clicks yield nothing.
    """
    for seed, model in enumerate(models):
        if not model.predicts_clicks:
            continue
        for name, log in logs.items():
            shift = "ind" if name == IND else "ood"
            yield {
                "kind": "clicks",
                "testing": name,
                "shift": shift,
                "seed": seed,
                **conditional_evaluation(model, log),
            }


def ranking_rows(
    models: Sequence[ClickModel], judged: JudgedPairs, impressions: Float[np.ndarray, " query"]
) -> Iterator[dict[str, Any]]:
    """Yield one row of ranking metrics per seed; none for a model that gives all documents the same relevance."""
    head = head_queries(impressions)
    for seed, model in enumerate(models):
        if model.ranks_documents:
            relevance = model.relevance(model.vocabulary.pairs_of(judged.vocabulary))
            yield {"seed": seed, **ranking_row(relevance, judged, head, seed)}


def ranking_row(
    score: Float[np.ndarray, " pair"], judged: JudgedPairs, head: Bool[np.ndarray, " query"], seed: int
) -> dict[str, Any]:
    """Compute the ranking metrics of one score: over all queries, and nDCG of head and tail queries."""
    quality = ranking_quality(score, judged, rng=generator(seed, "ties"))
    parts = {"head": quality.means(head), "tail": quality.means(~head)}
    return {
        "kind": "ranking",
        **quality.means(),
        **{f"{part} {name}": means[name] for part, means in parts.items() for name in means if name.startswith("nDCG")},
        "judged_queries": judged.queries,
        "never_shown": judged.never_shown,
        "equal_queries": judged.equal_queries,
    }
