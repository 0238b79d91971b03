"""Tidy result rows of fitted models: click prediction on several logs, and ranking of judged documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from clickshift.core.rng import generator
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import UNSEEN
from clickshift.metrics.click_prediction import Perplexity, bits_of, click_bits, conditional_evaluation
from clickshift.metrics.predictions import Predictions
from clickshift.metrics.ranking import JudgedPairs, head_queries, ranking_quality
from clickshift.models.base import ClickModel
from clickshift.models.ctr import DCTR
from clickshift.simulation.search_engine import IND

RESAMPLES = 200
"""Number of resampled test logs: their standard deviation is known to about 5 %."""
_ROWS_PER_DRAW = 5000
_SESSIONS_TO_TRY = 50


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
            relevance = _paper_relevance(model)[model.vocabulary.pairs_of(judged.vocabulary)]
            yield {"seed": seed, **ranking_row(relevance, judged, head, seed)}


def _paper_relevance(model: ClickModel) -> Float[np.ndarray, " pair"]:
    """Relevance of every pair, unseen ones last, as in the policy-shift paper.

    Eq. 2 smooths the predictions of dCTR only, so its relevance here is the raw rate of clicks.
    """
    evidence = model.evidence
    if isinstance(model, DCTR) and evidence is not None and "fitted" not in evidence.learner:
        rate: np.ndarray = evidence.clicks / np.maximum(evidence.impressions, 1)
        return rate
    return model.relevance(np.append(np.arange(model.vocabulary.n_pairs), UNSEEN))


def check_row(models: Sequence[ClickModel], user: ClickModel, logs: Mapping[str, Log]) -> dict[str, Any]:
    """Check that models use no click to predict itself, and compare them with the user's own model.

    Parameters
    ----------
    models
        Seeds of a model.
    user
        The user's own model. In expectation, no model has a higher likelihood.
    logs
        Test logs.

    Returns
    -------
    dict
        Row of kind "check": `peeks`, whether a probability changes with a click at its own rank or below; and
        `above_oracle`, by how many standard errors a seed predicts a log better than the user's own model, at most.
    """
    predicting = [model for model in models if model.predicts_clicks]
    above = [_standard_errors_above(model, user, log) for model in predicting for log in logs.values()]
    log = next(iter(logs.values()))
    peeking = any(peeks(model, next(iter(log.chunks()))) for model in predicting[:1])
    return {"kind": "check", "seed": 0, "peeks": peeking, "above_oracle": max(above, default=float("nan"))}


def peeks(model: ClickModel, sessions: Sessions) -> bool:
    """Whether a conditional click probability changes with a click at its own rank or below it.

    Parameters
    ----------
    model
        Click model.
    sessions
        Sessions to try; the first ones are used.
    """
    few = sessions[: min(len(sessions), _SESSIONS_TO_TRY)]
    given = model.click_prob_given_history(few)
    for rank in range(few.n_ranks):
        other = few.click.copy()
        other[:, rank:] = few.rankings.shown[:, rank:] & ~other[:, rank:]
        changed = model.click_prob_given_history(Sessions(few.rankings, other))
        if not np.allclose(changed[:, : rank + 1], given[:, : rank + 1], atol=1e-6, rtol=0):
            return True
    return False


def above_oracle(predictions: Predictions, user: ClickModel) -> float:
    """Mean log-likelihood of a session above that of the user's own model, in standard errors."""
    sessions = predictions.sessions
    return _in_standard_errors([(sessions, bits_of(predictions))], user)


def _standard_errors_above(model: ClickModel, user: ClickModel, log: Log) -> float:
    """Mean log-likelihood of a session above that of the user's own model, in standard errors."""
    return _in_standard_errors(((part, click_bits(model, part)) for part in log.chunks()), user)


def _in_standard_errors(bits: Iterable[tuple[Sessions, np.ndarray]], user: ClickModel) -> float:
    """Mean of the bits that a session saves, compared with the user's own model, in standard errors."""
    n, total, squares = 0.0, 0.0, 0.0
    for part, of_model in bits:
        gain = (click_bits(user, part) - of_model).sum(axis=1)
        n, total, squares = n + part.count.sum(), total + part.count @ gain, squares + part.count @ gain**2
    error = np.sqrt(max(squares - total**2 / n, 0.0))
    return float(total / error) if error > 0 else 0.0


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
