"""Audit of fitted click models: dependence of their relevance on the logging policy, beside perplexity and nDCG.

Models are compared on the same rows: judged pairs that the log showed, that have a logging score, and that every model
has in its vocabulary. With several seeds, every number is the mean over seeds and the p-value is the median.

`read_relevance` and `read_logging_scores` read the true relevance and the scores of the logging policy from files.
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
from clickshift.experiments.model_selection.strategies import strategy_by_name as strategy_of
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
"""Models of one kind, fitted with different seeds, by name."""
_CMIP, _MEAN = CMIP(), MeanDependence()


class AuditResult(NamedTuple):
    """Result of the audit of one model.

    Parameters
    ----------
    facts
        Numbers by name: mean dependence and CMIP with intervals and null distributions, perplexity, nDCG@10.
    rows
        The scored pairs of the model's first seed.
    """

    facts: dict[str, Any]
    rows: ScoredPairs


@dataclass(frozen=True, eq=False)
class Audit:
    """Audit of click models against a log, the scores of its logging policy, and the true relevance.

    Parameters
    ----------
    log
        A log of one ranker, preferably one that the models were not fitted on: perplexity is computed on it, too.
    logging
        The logging policy's score of each pair of the log's vocabulary, NaN where it is not known.
    label
        The relevance of each pair, NaN where it is not judged.
    within_queries
        Whether to compare ranks within queries, for scores that are not comparable between queries.
    cmip
        Settings of CMIP.
    mean_dependence
        Settings of the mean dependence.
    seed
        Random seed for permutations, subsamples and tie-breaking.

    References
    ----------
    Deffayet, R. et al. (2023). An offline metric for the debiasedness of click models. SIGIR.

    Examples
    --------
    >>> from clickshift.data.builtin_corpus import builtin_corpus
    >>> from clickshift.learners import fit
    >>> from clickshift.policies.basic import Feature
    >>> from clickshift.simulation.simulate import simulate
    >>> from clickshift.simulation.users import PBM
    >>> corpus = builtin_corpus(30)
    >>> log = simulate(corpus, Feature(), PBM(), 2000, rng=0)
    >>> quick = {"cmip": CMIP(permutations=0, subsamples=0), "mean_dependence": MeanDependence(0, 0)}
    >>> audit = Audit(log, read_logging_scores(log, None), corpus.label.astype(float), **quick)
    >>> [result.facts["model"] for result in audit.run({"dCTR": [fit("dCTR", log)]})]
    ['dCTR']
    """

    log: Sessions
    logging: Float[np.ndarray, " pair"]
    label: Float[np.ndarray, " pair"]
    within_queries: bool = False
    cmip: CMIP = _CMIP
    mean_dependence: MeanDependence = _MEAN
    seed: int = 0

    def run(self, models: Models, *, progress: Callable[[str], None] = lambda name: None) -> Iterator[AuditResult]:
        """Audit models one after the other.

        Parameters
        ----------
        models
            Models by name, each with one or several seeds.
        progress
            Called with the name of every finished model.

        Yields
        ------
        AuditResult
            The result of each model.

        Raises
        ------
        DataError
            If a model has the same relevance for all documents ("cannot-rank-documents"), or no judged pair can be
            compared ("no-common-pairs").
        """
        for name, seeds in models.items():
            if not seeds[0].ranks_documents:
                raise DataError(
                    f"{type(seeds[0]).__name__} gives all documents the same relevance: there is nothing to audit. "
                    "Remove it.",
                    code="cannot-rank-documents",
                    model=name,
                )
        label = self._shared_labels(models)
        for name, seeds in models.items():
            yield self._audit_model(name, seeds, label)
            progress(name)

    def cautions(self, models: Models) -> list[str]:
        """Return warnings for readers of the results: coarse labels, pairs left out, too few queries."""
        label = self._shared_labels(models)
        left_out = int((~np.isnan(self.label) & np.isnan(label)).sum())
        warnings = [coarse_label_warning(label[~np.isnan(label)])]
        if left_out:
            warnings.append(
                f"{left_out:,} judged pairs are left out: not in the log, without a logging score, or unseen by a "
                "model."
            )
        if self._n_queries(label) < 2 * FEWEST_QUERIES:
            warnings.append(f"Only {self._n_queries(label)} queries are judged: too few for confidence intervals.")
        return [text for text in warnings if text]

    def _shared_labels(self, models: Models) -> np.ndarray:
        """Return the labels of the pairs that all models are compared on, NaN elsewhere."""
        vocabulary = self.log.vocabulary
        impressions = np.bincount(self.log.rankings.pair[self.log.rankings.shown], minlength=vocabulary.n_pairs)
        usable = (impressions > 0) & ~np.isnan(self.logging) & ~np.isnan(self.label)
        for model in (seeds[0] for seeds in models.values()):
            usable &= model.vocabulary.pairs_of(vocabulary) != UNSEEN
        if not usable.any():
            raise DataError(
                "no judged pair is in the log, has a logging score and was seen by every model. "
                "Check that labels, scores and log use the same query and document ids.",
                code="no-common-pairs",
            )
        return np.where(usable, self.label, np.nan)

    def _n_queries(self, label: np.ndarray) -> int:
        """Return the number of queries with a judged pair."""
        return len(np.unique(self.log.vocabulary.pair_query[~np.isnan(label)]))

    def _audit_model(self, name: str, seeds: Sequence[ClickModel], label: np.ndarray) -> AuditResult:
        """Audit one model on the pairs that have a label here."""
        too_few = self._n_queries(label) < 2 * FEWEST_QUERIES
        cmip, mean = (replace(m, subsamples=0) if too_few else m for m in (self.cmip, self.mean_dependence))
        rows = [self._scored_pairs(model, label) for model in seeds]
        judged = JudgedPairs.of(self.log.vocabulary, np.maximum(label, 0))
        facts: dict[str, Any] = {
            "model": name,
            "seeds": len(seeds),
            "pairs": len(rows[0]),
            "queries": rows[0].n_queries,
        }
        mean_dependences = [mean(r, rng=generator(self.seed, "mean dependence")) for r in rows]
        facts |= _mean_over_seeds("mean_dependence", mean_dependences)
        facts |= _mean_over_seeds("cmip", [cmip(r, rng=generator(self.seed, "cmip")) for r in rows])
        facts["perplexity"] = float(np.mean([_perplexity(model, self.log) for model in seeds]))
        facts["nDCG@10"] = float(np.mean([self._ndcg(model, judged) for model in seeds]))
        return AuditResult(facts, rows[0])

    def _scored_pairs(self, model: ClickModel, label: np.ndarray) -> ScoredPairs:
        """Return the model's relevance, the logging score and the label of every pair."""
        vocabulary = self.log.vocabulary
        estimate = model.relevance(model.vocabulary.pairs_of(vocabulary))
        rows = ScoredPairs.of_pairs(vocabulary, estimate, self.logging, label)
        return rows.within_queries() if self.within_queries else rows

    def _ndcg(self, model: ClickModel, judged: JudgedPairs) -> float:
        """Return nDCG@10 of the model's relevance; NaN without judged queries."""
        if not judged.queries:
            return float("nan")
        score = model.relevance(model.vocabulary.pairs_of(self.log.vocabulary))
        return ranking_quality(score, judged, rng=generator(self.seed, "ties")).means()["nDCG@10"]


def choose_by_strategy(strategy: str, facts: Sequence[Mapping[str, Any]]) -> str:
    """Choose one of several audited models.

    Parameters
    ----------
    strategy
        Name of a selection strategy, see `clickshift.experiments.model_selection.strategies`.
    facts
        Facts of the audited models.

    Returns
    -------
    str
        Name of the chosen model.
    """
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
    """Return the conditional perplexity; NaN for models that do not predict clicks, or that see them."""
    return (
        float(conditional_evaluation(model, log)["perplexity"])
        if model.predicts_clicks and not model.peeks
        else float("nan")
    )


def _mean_over_seeds(name: str, estimates: Sequence[Dependence]) -> dict[str, float]:
    """Return the mean of a dependence and its parts over seeds, and the median of its p-value."""
    facts = {name: float(np.mean([one.value for one in estimates]))}
    for part in ("low", "high", "null_mean", "null_high", "slope"):
        facts[f"{name}_{part}"] = float(np.mean([getattr(one, part) for one in estimates]))
    facts[f"{name}_p_value"] = float(np.median([one.p_value for one in estimates]))
    facts[f"{name}_skipped_rows"] = estimates[0].skipped_rows
    return facts


_LOG_DERIVED_SCORES = {"rank": logged_rank, "exposure": logged_exposure}
"""Scores of the logging policy that can be computed from its log alone."""


def read_logging_scores(log: Sessions, scores: Path | None, *, otherwise: str = "rank") -> Float[np.ndarray, " pair"]:
    """Return the logging policy's score of every pair of a log.

    Parameters
    ----------
    log
        The log.
    scores
        A table of query, doc and score; None to compute scores from the log.
    otherwise
        Scores without a file: "rank" for the mean rank, "exposure" for the share of exposure.

    Returns
    -------
    array
        Scores by pair, NaN where the file has none.

    Raises
    ------
    SpecError
        If `otherwise` is not one of the above ("bad-option").
    """
    if otherwise not in _LOG_DERIVED_SCORES:
        raise SpecError(
            f"without scores, logging must be one of {', '.join(_LOG_DERIVED_SCORES)}: got {otherwise!r}.",
            code="bad-option",
            option="logging",
            value=otherwise,
            known=list(_LOG_DERIVED_SCORES),
        )
    return (
        _LOG_DERIVED_SCORES[otherwise](log) if scores is None else read_pair_values(scores).values_for(log.vocabulary)
    )


def read_relevance(
    log: Sessions,
    *,
    labels: Path | None = None,
    random_log: str | None = None,
    orderings: Path | None = None,
    groups: int = 5,
) -> Float[np.ndarray, " pair"]:
    """Return the true relevance of every pair of a log, from one of three sources.

    Parameters
    ----------
    log
        The log.
    labels
        TREC qrels, or a table of query, doc and label. Labels are used as they are.
    random_log
        A log of lists in random order: relevance is estimated from its clicks and divided into grades.
    orderings
        A table of query and docs, best first: relevance is estimated from these preferences and divided into grades.
    groups
        Number of grades.

    Returns
    -------
    array
        Relevance by pair, NaN where it is not known.

    Raises
    ------
    SpecError
        If there is not exactly one source ("not-one-source").
    """
    n_sources = sum(source is not None for source in (labels, random_log, orderings))
    if n_sources != 1:
        raise SpecError(
            f"the true relevance must come from one source: got {n_sources}. Pass labels, a random log or orderings.",
            code="not-one-source",
            count=n_sources,
        )
    if labels is not None:
        if ending(labels):
            return read_pair_values(labels, "label").values_for(log.vocabulary)
        return read_qrels(labels).labels_for(log.vocabulary)
    if orderings is not None:
        lists = read_rankings(orderings)
        vocabulary, relevance = lists.vocabulary, relevance_from_orderings(lists)
    else:
        traffic = read_log(str(random_log))
        vocabulary, relevance = traffic.vocabulary, relevance_from_random_log(traffic)
    return grades(pair_table(relevance, unseen=np.nan)[vocabulary.pairs_of(log.vocabulary)], groups)
