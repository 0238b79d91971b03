"""Audit of fitted click models: dependence of their relevance on the logging policy, beside perplexity and nDCG.

Models are compared on the same rows: judged pairs that the log showed, that have a logging score, and that every model
has in its vocabulary. With several seeds, every number is the mean over seeds and the p-value is the median.

`read_relevance` and `read_logging_scores` read the true relevance and the scores of the logging policy from files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from clickshift.core.progress import Progress, silent
from clickshift.core.rng import generator
from clickshift.core.spec import resolve
from clickshift.core.text import join_words, printable
from clickshift.counts.cells import Cells
from clickshift.counts.open_log import LogLike, open_log
from clickshift.data.encoded_log import Log
from clickshift.data.vocabulary import UNSEEN
from clickshift.debiasedness.label_grades import coarse_label_warning, grades
from clickshift.debiasedness.metrics import CMIP, FEWEST_QUERIES, Dependence, MeanDependence
from clickshift.debiasedness.relevance_from_preferences import relevance_from_orderings
from clickshift.debiasedness.relevance_from_random_traffic import relevance_from_random_log
from clickshift.debiasedness.scored_pairs import ScoredPairs
from clickshift.errors import DataError, SpecError
from clickshift.experiments._audit_report import SIGNIFICANCE_LEVEL, AuditResult, ModelAudit
from clickshift.experiments._audit_scores import ScoresLike, read_scores
from clickshift.experiments.model_selection.strategies import (
    Strategy,
    choose_model,
    strategies_by,
    strategy_by_name,
)
from clickshift.io.datasets.registry import JUDGMENTS, read_raw_judgments
from clickshift.io.pair_values import read_pair_values
from clickshift.io.qrels import Judgments, read_qrels
from clickshift.io.rankings import read_rankings
from clickshift.io.read_report import OnBadLine
from clickshift.io.table_writer import read_notes
from clickshift.io.tables.formats import ending
from clickshift.metrics.click_prediction import Perplexity, click_bits
from clickshift.metrics.log_comparison import logged_exposure, logged_rank
from clickshift.metrics.ranking import JudgedPairs, ranking_quality
from clickshift.models import model_name
from clickshift.models.base import ClickModel, pair_table
from clickshift.models.storage import load_seeds

Models = Mapping[str, Sequence[ClickModel]]
"""Models of one kind, fitted with different seeds, by name."""
ModelLike = str | Path | ClickModel
"""A fitted model, or its folder."""
ModelsLike = ModelLike | Sequence[ModelLike] | Mapping[str, ModelLike | Sequence[ClickModel]]
"""Models to audit: fitted models or their folders, one or several, also by name."""
STRATEGY = "PPL among top nDCG & mean dependence"
"""Default strategy to choose among several models."""
AUDIT_STRATEGIES = strategies_by(("PPL", "nDCG", "CMIP", "mean dependence"))
"""Strategies that choose by what an audit knows of every model."""
_FEWEST_JUDGED = 30
"""Number of judged pairs below which a model may order them as the labels do by chance."""
_CMIP, _MEAN = CMIP(), MeanDependence()


def audit(
    models: ModelsLike = (),
    log: LogLike | None = None,
    *,
    scores: ScoresLike | Sequence[ScoresLike] | Mapping[str, ScoresLike] | None = None,
    labels: str | Path | Judgments | None = None,
    labels_format: str = "table",
    random_log: LogLike | None = None,
    orderings: str | Path | None = None,
    grades: int = 5,
    logging_scores: str | Path | None = None,
    logging: str = "rank",
    within_queries: bool = False,
    estimator: str = "ksg",
    permutations: int = 100,
    subsamples: int = 100,
    strategy: str = STRATEGY,
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> AuditResult:
    """Test whether a model's relevance depends on the logging policy once the true relevance is known.

    The true relevance comes from one of `labels`, `random_log` and `orderings`.

    Parameters
    ----------
    models
        Fitted models, or their folders, or both by name; several are compared.
    log
        Click log of the same ranker, preferably not the training log: anything that :func:`open_log` opens.
    scores
        Scores of models from elsewhere, which are audited like fitted models: a table of query, doc and score, several,
        or several by name. A text "NAME=FILE" names a file. They predict no clicks, so they have no perplexity.
    labels
        Relevance labels: TREC qrels, or a table of query, doc and label.
    labels_format
        Format of a file of labels: "table" for these two, or that of a public log: "trec" or "yandex-wscd".
    random_log
        Log of randomly ordered lists, whose click rates serve as relevance instead of labels.
    orderings
        Table of query and docs, best first, instead of labels: preferences (two docs) or whole lists.
    grades
        Number of grades that relevance is divided into if it is not graded.
    logging_scores
        Scores of the logging policy: a table of query, doc and score; None to compute them from the log.
    logging
        Logging policy's preference without scores: "rank" (mean rank) or "exposure" (exposure share).
    within_queries
        Whether to compare ranks within queries, for scores that differ in scale between queries.
    estimator
        Estimator of CMIP: "ksg", or the published "classifier" (slow, biased).
    permutations
        Number of permutations for the chance level.
    subsamples
        Number of half-samples of the queries for intervals.
    strategy
        Strategy to choose among several models: a key of `AUDIT_STRATEGIES`.
    seed
        Random seed for permutations, subsamples and tie-breaking.
    columns
        The log's names of our columns, e.g. ``{"docs": "results"}``.
    on_bad_line
        "error" stops at the first bad session; "skip" leaves bad sessions out and warns.
    progress
        Called after each model.

    Returns
    -------
    AuditResult
        Mean dependence and CMIP of each model with intervals and chance levels, next to perplexity and nDCG, a verdict
        in words, and the recommended model. Relevance from random traffic or orderings is noisy, which makes every
        model look dependent: verdicts then compare the models with each other. Where the rows cannot test
        independence (one-document lists, a constant preference), the verdict says so, and no model is recommended.

    Raises
    ------
    SpecError
        "no-models" if there is nothing to audit, "bad-option" if there is no log,
        "not-one-source" if there is not exactly one source of relevance, "bad-option" or "unknown-name" for an unknown
        estimator, logging preference, strategy or format of labels.
    DataError
        "cannot-rank-documents" for a model or scores that are the same for all documents, "no-common-pairs" if no
        judged pair can be compared, "duplicate-name" or "not-finite" for scores.

    References
    ----------
    Deffayet, R. et al. (2023). An offline metric for the debiasedness of click models. SIGIR.

    Examples
    --------
    >>> import clickshift as cs
    >>> corpus = cs.builtin_corpus(30)
    >>> log = cs.simulate(corpus, cs.Feature(), cs.users.PBM(), 2000, rng=0)
    >>> random_log = cs.simulate(corpus, cs.Uniform(), cs.users.PBM(), 2000, rng=1)
    >>> found = cs.audit(cs.fit("dCTR", log), log, random_log=random_log, permutations=20, subsamples=0)
    >>> [one["model"] for one in found.verdicts]
    ['dCTR']
    """
    rule = strategy_by_name(strategy, AUDIT_STRATEGIES)  # an unknown name is an error before any work
    cmip, mean = CMIP(estimator, permutations, subsamples), MeanDependence(permutations, subsamples)
    if log is None:
        raise SpecError("an audit needs a log of the logging policy. Pass `log`.", code="bad-option", option="log")
    loaded = _load_models(models)
    for name, seeds in read_scores(scores).items():
        loaded[name if name not in loaded else f"{name} (scores)"] = seeds
    if not loaded:
        raise SpecError("there is nothing to audit: pass fitted models, or scores.", code="no-models")
    source: dict[str, Any] = {"columns": columns, "on_bad_line": on_bad_line}
    opened = open_log(log, **source, progress=progress)
    judged = _judgments(labels, labels_format)
    source_of_labels = "random traffic" if random_log is not None else "orderings" if orderings is not None else ""
    task = Audit(
        opened,
        read_logging_scores(opened, logging_scores, otherwise=logging),
        read_relevance(opened, labels=judged, random_log=random_log, orderings=orderings, groups=grades),
        within_queries or orderings is not None,
        cmip,
        mean,
        seed,
    )
    cautions = task.cautions(loaded)
    circular = {} if labels is None else task.models_that_order_like_the_labels(loaded)
    if labeller := _labelling_model(labels):
        cautions.insert(0, _made_by(labeller))
        circular |= {
            name: "" for name, seeds in loaded.items() if model_name(seeds[0]) == labeller and name not in circular
        }
    audited = tuple(task.run(loaded, progress=lambda name: progress(1, total=len(loaded))))
    chosen = _choose_by_strategy(rule, audited) if len(audited) > 1 else None
    if len(audited) > 1 and _lacks_perplexity(rule, audited):
        cautions.append(
            "None of these predicts clicks, so none has a perplexity, by which the strategy chooses. Pass another "
            "strategy, e.g. nDCG."
        )
    settings = {
        "models": list(loaded),
        "labels": next(text for text in map(_path_text, (labels, random_log, orderings)) if text),
        "logging": _path_text(logging_scores) or logging,
        "estimator": estimator,
        "permutations": permutations,
        "subsamples": subsamples,
        "strategy": strategy,
        "seed": seed,
    }
    return AuditResult(
        audited,
        strategy,
        chosen,
        (*filter(None, circular.values()), *cautions),
        settings,
        source_of_labels,
        tuple(circular),
    )


def _judgments(labels: str | Path | Judgments | None, format: str) -> str | Path | Judgments | None:
    """Read a file of labels in the format of a public log; other labels are returned as they are."""
    if format == "table":
        return labels
    if not isinstance(labels, str | Path):
        raise SpecError(
            f"the format of labels is for a file of labels: got {format!r} without one. Remove it.",
            code="bad-option",
            option="labels_format",
            value=format,
        )
    resolve(format, JUDGMENTS)  # an unknown one is an error, not read as qrels
    return read_raw_judgments(labels, format=format)


def _path_text(source: Any) -> str:
    """Return a source as text: its path, or its type; "" for None."""
    if source is None or isinstance(source, str | Path):
        return str(source or "")
    return type(source).__name__


def _load_models(models: ModelsLike) -> dict[str, list[ClickModel]]:
    """Return the seeds of each model, by the model's name; with the folder added where two have the same name."""
    if isinstance(models, Mapping):
        return {name: _seeds_of(one) for name, one in models.items()}
    several = list(models) if isinstance(models, list | tuple) else [models]
    loaded = {str(one) if isinstance(one, str | Path) else f"model {k}": one for k, one in enumerate(several, 1)}
    seeds = {place: _seeds_of(one) for place, one in loaded.items()}
    names = [model_name(each[0]) for each in seeds.values()]
    return {
        name if names.count(name) == 1 else f"{name} ({place})": each
        for name, (place, each) in zip(names, seeds.items(), strict=True)
    }


def _seeds_of(model: Any) -> list[ClickModel]:
    """Return the seeds of a model: those of a folder, several models, or one."""
    if isinstance(model, str | Path):
        return load_seeds(model)
    return [model] if isinstance(model, ClickModel) else list(model)


@dataclass(frozen=True, eq=False)
class Audit:
    """Audit of click models against a log, the scores of its logging policy, and the true relevance.

    Parameters
    ----------
    log
        A log of one ranker, in memory or encoded, preferably one that the models were not fitted on: perplexity is
        computed on it, too.
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

    log: Log
    logging: Float[np.ndarray, " pair"]
    label: Float[np.ndarray, " pair"]
    within_queries: bool = False
    cmip: CMIP = _CMIP
    mean_dependence: MeanDependence = _MEAN
    seed: int = 0

    def run(self, models: Models, *, progress: Callable[[str], None] = lambda name: None) -> Iterator[ModelAudit]:
        """Audit models one after the other.

        Parameters
        ----------
        models
            Models by name, each with one or several seeds.
        progress
            Called with the name of every finished model.

        Yields
        ------
        ModelAudit
            The audit of each model.

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
        warnings = [coarse_label_warning(label[~np.isnan(label)]), self._left_out(models)]
        if self._n_queries(label) < 2 * FEWEST_QUERIES:
            warnings.append(f"Only {self._n_queries(label)} queries are judged: too few for confidence intervals.")
        return [text for text in warnings if text]

    def models_that_order_like_the_labels(self, models: Models) -> dict[str, str]:
        """Return a warning for each model whose relevance orders all judged pairs exactly as their labels do.

        Such labels were probably made from the model's relevance by cut points. A human judge and a click model never
        agree so well, unless the model is nearly exact.
        """
        label, vocabulary = self._shared_labels(models), self.log.vocabulary
        judged = np.flatnonzero(~np.isnan(label))
        if len(judged) < _FEWEST_JUDGED or len(np.unique(label[judged])) < 2:
            return {}
        found = {}
        for name, seeds in models.items():
            for model in seeds:
                estimate = model.relevance(model.vocabulary.pairs_of(vocabulary))[judged]
                if (np.diff(label[judged][np.lexsort((-label[judged], estimate))]) >= 0).all():
                    found[name] = (
                        f"The labels are an increasing step function of the relevance of {name} on all "
                        f"{len(judged):,} judged pairs. Unless the model is exact, they were made from it: its audit "
                        "is then circular, and its nDCG of 1 has no meaning. Use labels from another source."
                    )
        return found

    def _left_out(self, models: Models) -> str:
        """Say how many judged pairs are left out, each by the first reason that holds; empty if none are."""
        judged = ~np.isnan(self.label)
        counts = []
        for reason, missing in self._missing(models).items():
            counts.append((int((judged & missing).sum()), reason))
            judged &= ~missing
        reasons = [f"{count:,} {reason}" for count, reason in counts if count]
        total = sum(count for count, _ in counts)
        return f"{total:,} judged pairs are left out for all models: {join_words(reasons)}." if reasons else ""

    def _missing(self, models: Models) -> dict[str, np.ndarray]:
        """Return the pairs of the log that cannot be compared, by reason."""
        vocabulary = self.log.vocabulary
        impressions, _ = Cells.of(self.log).by_pair()
        missing = {"not in the log": impressions == 0, "without a logging score": np.isnan(self.logging)}
        for name, seeds in models.items():
            missing[f"unknown to {name}"] = seeds[0].vocabulary.pairs_of(vocabulary) == UNSEEN
        return missing

    def _shared_labels(self, models: Models) -> np.ndarray:
        """Return the labels of the pairs that all models are compared on, NaN elsewhere."""
        usable = ~np.logical_or.reduce([np.isnan(self.label), *self._missing(models).values()])
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

    def _audit_model(self, name: str, seeds: Sequence[ClickModel], label: np.ndarray) -> ModelAudit:
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
        facts["untestable"] = mean_dependences[0].untestable or _too_few_permutations(mean.permutations)
        facts |= _mean_over_seeds("mean_dependence", mean_dependences)
        facts |= _mean_over_seeds("cmip", [cmip(r, rng=generator(self.seed, "cmip")) for r in rows])
        facts["perplexity"] = float(np.mean([_perplexity(model, self.log) for model in seeds]))
        facts["nDCG@10"] = float(np.mean([self._ndcg(model, judged) for model in seeds]))
        return ModelAudit(facts, rows[0], np.mean([one.halves for one in mean_dependences], axis=0))

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


def _too_few_permutations(permutations: int) -> str:
    """Explain that no p-value can be significant; empty if one can."""
    if 1 / (1 + permutations) <= SIGNIFICANCE_LEVEL:
        return ""
    needed = round(1 / SIGNIFICANCE_LEVEL) - 1
    return f"A test at the 5 % level needs at least {needed} permutations: there are {permutations}."


def _labelling_model(labels: str | Path | Judgments | None) -> str:
    """Return the click model that made a file of labels, if the file says so; otherwise an empty text."""
    if not isinstance(labels, str | Path) or Path(labels).suffix.lower() != ".parquet":
        return ""
    model = read_notes(labels).get("model")
    return printable(model) if isinstance(model, str) else ""


def _made_by(model: str) -> str:
    """Warn of labels that a click model made."""
    return (
        f"The file of labels says that the click model {model} made them from clicks: they share the errors of click "
        "models, and an audit of the same model is circular. Use labels from another source."
    )


def _lacks_perplexity(rule: Strategy, audited: Sequence[ModelAudit]) -> bool:
    """Whether a strategy chooses by perplexity, and no audited model has one."""
    return "PPL" in rule.metrics and all(np.isnan(one.facts["perplexity"]) for one in audited)


def _choose_by_strategy(rule: Strategy, audited: Sequence[ModelAudit]) -> str | None:
    """Choose one of several audited models; None if the strategy needs a metric that none has, or cannot be tested."""
    facts = [one.facts for one in audited]
    if _lacks_perplexity(rule, audited):
        return None
    needs_dependence = {"CMIP", "mean dependence"} & set(rule.metrics)
    if needs_dependence and any(one["untestable"] for one in facts):
        return None
    metrics = {
        str(one["model"]): {
            "PPL": one["perplexity"],
            "nDCG": one["nDCG@10"],
            "CMIP": one["cmip"],
            "mean dependence": one["mean_dependence"],
        }
        for one in facts
    }
    return choose_model(rule, metrics)


def _perplexity(model: ClickModel, log: Log) -> float:
    """Return the conditional perplexity; NaN for models that do not predict clicks, or that see them."""
    if not model.predicts_clicks or model.peeks:
        return float("nan")
    bits, impressions = np.zeros(log.n_ranks), np.zeros(log.n_ranks)
    for part in log.chunks():
        bits += part.count @ click_bits(model, part)
        impressions += part.impressions_by_rank()
    with np.errstate(invalid="ignore"):
        return float(Perplexity(np.exp2(bits / np.where(impressions > 0, impressions, np.nan))).average)


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


def read_logging_scores(log: Log, scores: str | Path | None, *, otherwise: str = "rank") -> Float[np.ndarray, " pair"]:
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
    log: Log,
    *,
    labels: str | Path | Judgments | None = None,
    random_log: LogLike | None = None,
    orderings: str | Path | None = None,
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
        if not isinstance(labels, str | Path):
            return labels.labels_for(log.vocabulary)
        if ending(Path(labels)):
            return read_pair_values(labels, "label").values_for(log.vocabulary)
        return read_qrels(labels).labels_for(log.vocabulary)
    if orderings is not None:
        lists = read_rankings(orderings)
        vocabulary, relevance = lists.vocabulary, relevance_from_orderings(lists)
    else:
        traffic = open_log(random_log)
        vocabulary, relevance = traffic.vocabulary, relevance_from_random_log(traffic)
    return grades(pair_table(relevance, unseen=np.nan)[vocabulary.pairs_of(log.vocabulary)], groups)
