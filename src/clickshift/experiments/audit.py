"""The audit of fitted models: how much each still knows of the ranker that made its log, beside perplexity and nDCG.

Models are compared on the same rows: judged pairs that the log showed, that have a logging score, and that every model
knows. Of several seeds, every number is the mean and the p-value the median.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from clickshift.core.rng import generator
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import UNSEEN
from clickshift.debiasedness.label_grades import coarse_label_warning, grades
from clickshift.debiasedness.metrics import CMIP, FEWEST_QUERIES, Dependence, MeanDependence
from clickshift.debiasedness.relevance_from_preferences import relevance_from_orderings
from clickshift.debiasedness.relevance_from_random_traffic import relevance_from_random_log
from clickshift.debiasedness.scored_pairs import ScoredPairs
from clickshift.errors import DataError, SpecError
from clickshift.experiments.model_selection.strategies import choose_model
from clickshift.experiments.model_selection.strategies import strategy as strategy_of
from clickshift.io.pair_values import read_pair_values
from clickshift.io.qrels import read_qrels
from clickshift.io.rankings import read_rankings
from clickshift.io.read_log import read_log
from clickshift.io.tables.formats import ending
from clickshift.metrics.click_prediction import conditional_evaluation
from clickshift.metrics.log_comparison import logged_exposure, logged_rank
from clickshift.metrics.ranking import JudgedPairs, ranking_quality
from clickshift.models.base import ClickModel, pair_table

Models = Mapping[str, Sequence[ClickModel]]
"""By name, the models of one kind from different seeds."""
_CMIP, _MEAN = CMIP(), MeanDependence()


class AuditResult(NamedTuple):
    """One model's results, and the rows that they come from (of its first seed)."""

    facts: dict[str, Any]
    rows: ScoredPairs


@dataclass(frozen=True, eq=False)
class Audit:
    """What models are held against: a log of one ranker, what that ranker thought, and the true relevance."""

    log: Sessions
    """Best one that the models have not learned from: it is also what they predict."""
    logging: Float[np.ndarray, " pair"]
    """The logging policy's score of each pair of the log's vocabulary, NaN where it is not known."""
    label: Float[np.ndarray, " pair"]
    """The relevance of each pair, NaN where it is not judged."""
    within_queries: bool = False
    """Compare ranks within queries, for scores that mean nothing between them."""
    cmip: CMIP = _CMIP
    mean_dependence: MeanDependence = _MEAN
    seed: int = 0

    def of(self, models: Models, *, progress: Callable[[str], None] = lambda done: None) -> Iterator[AuditResult]:
        for models_of_seeds in models.values():
            if not models_of_seeds[0].ranks_documents:
                raise DataError(
                    f"{type(models_of_seeds[0]).__name__} gives all documents the same relevance: there is nothing to "
                    "audit. Leave it out."
                )
        known = self._known(models)
        for name, seeds in models.items():
            yield self._audited(name, seeds, known)
            progress(name)

    def cautions(self, models: Models) -> list[str]:
        """What to keep in mind when reading the numbers."""
        known = self._known(models)
        left_out = int((~np.isnan(self.label) & np.isnan(known)).sum())
        said = [coarse_label_warning(known[~np.isnan(known)])]
        if left_out:
            said.append(
                f"{left_out:,} judged pairs are left out: not in the log, without a logging score, or new to a model."
            )
        if self._queries(known) < 2 * FEWEST_QUERIES:
            said.append(f"Only {self._queries(known)} queries are judged: too few for intervals.")
        return [text for text in said if text]

    def _known(self, models: Models) -> np.ndarray:
        """Labels of the rows that all models share, NaN elsewhere."""
        words = self.log.vocabulary
        impressions = np.bincount(self.log.rankings.pair[self.log.rankings.shown], minlength=words.n_pairs)
        usable = (impressions > 0) & ~np.isnan(self.logging) & ~np.isnan(self.label)
        for model in (seeds[0] for seeds in models.values()):
            usable &= model.vocabulary.pairs_of(words) != UNSEEN
        if not usable.any():
            raise DataError(
                "no judged pair is in the log, has a logging score and is known to every model. "
                "Check that labels, scores and log name queries and documents alike."
            )
        return np.where(usable, self.label, np.nan)

    def _queries(self, label: np.ndarray) -> int:
        return len(np.unique(self.log.vocabulary.pair_query[~np.isnan(label)]))

    def _audited(self, name: str, seeds: Sequence[ClickModel], label: np.ndarray) -> AuditResult:
        few = self._queries(label) < 2 * FEWEST_QUERIES
        cmip, mean = (replace(m, subsamples=0) if few else m for m in (self.cmip, self.mean_dependence))
        rows = [self._rows(model, label) for model in seeds]
        judged = JudgedPairs.of(self.log.vocabulary, np.maximum(label, 0))
        facts: dict[str, Any] = {
            "model": name,
            "seeds": len(seeds),
            "pairs": len(rows[0]),
            "queries": rows[0].n_queries,
        }
        facts |= _mean_of("mean_dependence", [mean(r, rng=generator(self.seed, "mean dependence")) for r in rows])
        facts |= _mean_of("cmip", [cmip(r, rng=generator(self.seed, "cmip")) for r in rows])
        facts["perplexity"] = float(np.mean([_perplexity(model, self.log) for model in seeds]))
        facts["nDCG@10"] = float(np.mean([self._ndcg(model, judged) for model in seeds]))
        return AuditResult(facts, rows[0])

    def _rows(self, model: ClickModel, label: np.ndarray) -> ScoredPairs:
        words = self.log.vocabulary
        rows = ScoredPairs.of_pairs(words, model.relevance(model.vocabulary.pairs_of(words)), self.logging, label)
        return rows.within_queries() if self.within_queries else rows

    def _ndcg(self, model: ClickModel, judged: JudgedPairs) -> float:
        if not judged.queries:
            return float("nan")
        score = model.relevance(model.vocabulary.pairs_of(self.log.vocabulary))
        return ranking_quality(score, judged, rng=generator(self.seed, "ties")).means()["nDCG@10"]


def choose_by_strategy(strategy: str, facts: Sequence[Mapping[str, Any]]) -> str:
    """The model that a strategy takes."""
    metrics = {
        str(one["model"]): {
            "PPL": one["perplexity"],
            "nDCG": one["nDCG@10"],
            "CMIP": one["cmip"],
            "mean dependence": one["mean_dependence"],
        }
        for one in facts
    }
    return choose_model(strategy_of(strategy), metrics)


def _perplexity(model: ClickModel, log: Sessions) -> float:
    return (
        float(conditional_evaluation(model, log)["perplexity"])
        if model.predicts_clicks and not model.peeks
        else float("nan")
    )


def _mean_of(name: str, found: Sequence[Dependence]) -> dict[str, float]:
    facts = {name: float(np.mean([one.value for one in found]))}
    for part in ("low", "high", "null_mean", "null_high", "slope"):
        facts[f"{name}_{part}"] = float(np.mean([getattr(one, part) for one in found]))
    facts[f"{name}_p_value"] = float(np.median([one.p_value for one in found]))
    facts[f"{name}_skipped_rows"] = found[0].skipped_rows
    return facts


_LOG_DERIVED_SCORES = {"rank": logged_rank, "exposure": logged_exposure}
"""What a log alone says about its policy."""


def read_logging_scores(log: Sessions, scores: Path | None, *, otherwise: str = "rank") -> Float[np.ndarray, " pair"]:
    """The logging policy's score of every pair of the log, NaN where the file has none."""
    if otherwise not in _LOG_DERIVED_SCORES:
        raise SpecError(f"without scores, logging must be one of {', '.join(_LOG_DERIVED_SCORES)}: got {otherwise!r}.")
    return (
        _LOG_DERIVED_SCORES[otherwise](log) if scores is None else read_pair_values(scores).labels_for(log.vocabulary)
    )


def read_relevance(
    log: Sessions,
    *,
    labels: Path | None = None,
    random_log: str | None = None,
    orderings: Path | None = None,
    groups: int = 5,
) -> Float[np.ndarray, " pair"]:
    """The true relevance of every pair of the log, NaN where it is not known, from one of three sources.

    Labels are taken as they are. Clicks on random lists and orderings give numbers, which are parted into groups.
    """
    if sum(source is not None for source in (labels, random_log, orderings)) != 1:
        raise SpecError("the true relevance must come from one source: give labels, a random log or orderings.")
    if labels is not None:
        found = read_pair_values(labels, "label") if ending(labels) else read_qrels(labels)
        return found.labels_for(log.vocabulary)
    if orderings is not None:
        lists = read_rankings(orderings)
        words, relevance = lists.vocabulary, relevance_from_orderings(lists)
    else:
        traffic = read_log(str(random_log))
        words, relevance = traffic.vocabulary, relevance_from_random_log(traffic)
    return grades(pair_table(relevance, unseen=np.nan)[words.pairs_of(log.vocabulary)], groups)
