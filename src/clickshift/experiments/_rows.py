"""Tidy result rows of fitted models: click prediction on several logs, and ranking of judged documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from clickshift.core.rng import generator
from clickshift.data.encoded_log import Log
from clickshift.metrics.click_prediction import Perplexity, click_bits, conditional_evaluation
from clickshift.metrics.ranking import JudgedPairs, head_queries, ranking_quality
from clickshift.models.base import ClickModel
from clickshift.simulation.search_engine import IND

RESAMPLES = 200
"""Number of resampled test logs: their standard deviation is known to about 5 %."""
_ROWS_PER_DRAW = 5000


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


def resample_rows(models: Sequence[ClickModel], logs: Mapping[str, Log], *, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the perplexity on resampled test logs, as a mean over seeds: one row per log and resample.

    Their spread is the sampling error of the test log. Sessions are resampled with Poisson weights, which depend on the
    log and the resample only: all models see the same resampled logs, so their differences are paired. The number of
    the resample is in the column `seed`.
    """
    predicting = [model for model in models if model.predicts_clicks]
    for name, log in logs.items() if predicting else ():
        perplexity = np.mean(_resampled_perplexity(predicting, log, generator(seed, "resample", name)), axis=0)
        shift = "ind" if name == IND else "ood"
        for number, value in enumerate(perplexity.tolist()):
            yield {"kind": "resample", "testing": name, "shift": shift, "seed": number, "perplexity": value}


def _resampled_perplexity(
    models: Sequence[ClickModel], log: Log, rng: np.random.Generator
) -> Float[np.ndarray, "model resample"]:
    """Compute the average perplexity of each model on resampled sessions."""
    bits = np.zeros((len(models), RESAMPLES, log.n_ranks))
    impressions = np.zeros((RESAMPLES, log.n_ranks))
    for part in log.chunks():
        of_part = [click_bits(model, part) for model in models]
        for start in range(0, len(part), _ROWS_PER_DRAW):
            rows = slice(start, start + _ROWS_PER_DRAW)
            weight = rng.poisson(part.count[rows], (RESAMPLES, len(part.count[rows]))).astype(np.float64)
            impressions += weight @ part.rankings.shown[rows]
            for total, of_model in zip(bits, of_part, strict=True):
                total += weight @ of_model[rows]
    with np.errstate(invalid="ignore"):
        at_rank = np.exp2(bits / np.where(impressions > 0, impressions, np.nan))
    return np.array([[Perplexity(ranks).average for ranks in of_model] for of_model in at_rank])


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
