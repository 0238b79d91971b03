"""evaluate_ranker and score: the quality of a trained ranker by labels, and its scores of documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.core.progress import Progress, silent
from clickshift.counts.open_log import LogLike, open_log_or_counts
from clickshift.data.corpus import Corpus
from clickshift.display.document import Document, Section
from clickshift.display.export import Written
from clickshift.display.figures import dot_plot
from clickshift.display.result import Result
from clickshift.display.tables import Row, Rows
from clickshift.display.values import with_interval
from clickshift.errors import DataError
from clickshift.io.datasets.letor import CorpusLike, open_corpus
from clickshift.io.read_report import OnBadLine
from clickshift.io.table_writer import table_ending, write_table
from clickshift.metrics.ranking import JudgedPairs, ranking_quality
from clickshift.metrics.significance import bootstrap_interval
from clickshift.ranking._inputs import RankerLike, as_ranker, source_name
from clickshift.ranking._training_queries import trained_on
from clickshift.ranking.labels import count_by_rank
from clickshift.ranking.lambdamart import arrow_ids

__all__ = ["RankerEvaluation", "ScoredDocuments", "evaluate_ranker", "score"]

_RESAMPLED_VALUES = 5_000_000
"""Largest number of values drawn at once in the bootstrap over queries, which bounds its memory."""
_MIN_RESAMPLES, _MAX_RESAMPLES = 200, 10_000
"""Bounds of the number of bootstrap resamples."""


@dataclass(frozen=True, repr=False)
class RankerEvaluation(Result):
    """Quality of a ranker on labelled documents: returned by `evaluate_ranker`.

    Parameters
    ----------
    learner
        Spec text of the ranker's learner.
    corpus
        Where the documents came from.
    level
        Confidence level of the intervals.
    metrics
        A row per metric: metric, mean, low, high, queries.
    queries_left_out
        Number of queries whose documents all have the same label.
    training_queries
        Number of queries of the corpus that a ranker was trained on; None if a ranker does not know its training
        queries.
    includes_training
        Whether these queries are part of the evaluation.
    comparisons
        A row per metric and other ranker: metric, other, its mean, and the mean difference by query with low and high.

    Notes
    -----
    Facts (`to_dict`): `conclusion`; `learner`; `level`; `metrics`, a list of `metric` (nDCG@5, nDCG@10, ARP), `mean`,
    `low`, `high` and `queries`; `comparisons`, a list of `metric`, `other`, `mean`, `difference` (this ranker minus the
    other one), `low`, `high` and `queries`; `queries_left_out`, of equal labels; `training_queries`, a number or null;
    `includes_training`.
    """

    learner: str
    corpus: str
    level: float
    metrics: tuple[dict[str, Any], ...]
    queries_left_out: int
    training_queries: int | None = None
    includes_training: bool = False
    comparisons: tuple[dict[str, Any], ...] = ()

    @property
    @override
    def conclusion(self) -> str:
        row = self._main_row(self.metrics)
        new = "" if self.training_queries is None or self.includes_training else "new "
        text = (
            f"nDCG@10 is {with_interval(row['mean'], row['low'], row['high'])} ({self.level:.0%} interval) on "
            f"{row['queries']:,} {new}queries."
        )
        for one in self.comparisons:
            if one["metric"] == "nDCG@10":
                difference = with_interval(one["difference"], one["low"], one["high"], signed=True)
                text += f" That of {one['other']} is {one['mean']:.3f} (difference {difference}, paired by query)."
        return f"{text} {self._training_sentence}".strip()

    @property
    def _training_sentence(self) -> str:
        """What is known of the queries that rankers were trained on."""
        trained = self.training_queries
        if trained is None:
            return "A ranker does not know its training queries: make sure that none of them is evaluated here."
        if not trained:
            return ""
        if self.includes_training:
            return f"{trained:,} of the corpus's queries were used for training: on these the ranker looks too good."
        return f"{trained:,} queries that were used for training are left out."

    @override
    def rows(self) -> Rows:
        return [*self.metrics]

    @override
    def facts(self) -> Mapping[str, Any]:
        facts = {"conclusion": self.conclusion, "learner": self.learner, "level": self.level}
        facts |= {"metrics": self.rows(), "comparisons": [*self.comparisons]}
        return facts | {
            "queries_left_out": self.queries_left_out,
            "training_queries": self.training_queries,
            "includes_training": self.includes_training,
        }

    @override
    def _document(self) -> Document:
        caption = (
            f"{self.level:.0%} bootstrap intervals over queries; {self.queries_left_out:,} queries with equal labels "
            "are left out. ARP: average rank of relevant documents, lower is better."
        )
        level = f"{100 * self.level:g} % intervals"
        metrics = Section(
            "nDCG of the rankers", table=self.rows(), caption=caption, name="metrics", figure=self._metric_figure
        )
        headline, sections = (
            metrics,
            [Section("Average rank of relevant documents", figure=self._arp_figure, page_only=True)],
        )
        if self.comparisons:
            headline = Section(
                f"Differences, paired by query, with {level}",
                table=[*self.comparisons],
                figure=self._difference_figure,
                caption="Difference: this ranker minus the other one, on the same documents. ARP: lower is better.",
                name="comparisons",
            )
            sections.insert(0, metrics)
        row = self._main_row(self.metrics)
        return Document(
            "How well the ranker ranks",
            self.conclusion,
            sections,
            {"learner": self.learner, "corpus": self.corpus, "level": self.level},
            self._verdict(),
            f"{row['queries']:,} queries of {self.corpus}",
            headline,
        )

    @staticmethod
    def _main_row(rows: Sequence[Row]) -> Row:
        """Return the row of nDCG@10."""
        return next(row for row in rows if row["metric"] == "nDCG@10")

    def _verdict(self) -> str:
        """Return how the ranker compares with the others, the worst of two different verdicts; empty without others."""
        if not self.comparisons:
            return ""
        if self.includes_training and self.training_queries:
            return "caution"
        rows = [row for row in self.comparisons if row["metric"] == "nDCG@10"]
        worse = [row for row in rows if row["high"] < 0]
        better = [row for row in rows if row["low"] > 0]
        if worse:
            return f"worse than {_named(worse[-1])}"
        if len(better) == len(rows):
            return f"better than {_named(better[-1])}"
        if better:
            unclear = next(row for row in rows if row not in better)
            return f"better than {_named(better[0])}, not clearly than {_named(unclear)}"
        return "no clear difference"

    def _metric_figure(self) -> Any:
        """Plot nDCG with its interval, beside the other rankers on the same documents."""
        own = [
            {"label": f"{row['metric']}, this ranker", "value": row["mean"], "low": row["low"], "high": row["high"]}
            for row in self.metrics
            if row["metric"] != "ARP"
        ]
        others = [
            {"label": f"{row['metric']}, {row['other']}", "value": row["mean"], "low": None, "high": None}
            for row in self.comparisons
            if row["metric"] != "ARP"
        ]
        metrics = [row["metric"] for row in self.metrics]
        rows = sorted([*own, *others], key=lambda row: metrics.index(str(row["label"]).partition(",")[0]))
        return dot_plot(rows, axis=f"nDCG, with the {100 * self.level:g} % interval of this ranker")

    def _arp_figure(self) -> Any:
        """Plot the average rank of relevant documents, which has an axis of its own."""
        rows = [
            {"label": "this ranker", "value": row["mean"], "low": row["low"], "high": row["high"]}
            for row in self.metrics
            if row["metric"] == "ARP"
        ]
        rows += [
            {"label": row["other"], "value": row["mean"], "low": None, "high": None}
            for row in self.comparisons
            if row["metric"] == "ARP"
        ]
        return dot_plot(rows, axis="rank (lower is better)")

    def _difference_figure(self) -> Any:
        """Plot the difference to each other ranker with its paired interval."""
        rows = [
            {
                "label": f"{row['metric']}, {row['other']}",
                "value": row["difference"],
                "low": row["low"],
                "high": row["high"],
            }
            for row in self.comparisons
            if row["metric"] != "ARP"
        ]
        return dot_plot(rows, axis="this ranker minus the other one (0: no difference)", reference=0.0)


LOGGING_RANKER = "the logging ranker"
"""Name of the ranker of a log in comparisons."""


def _named(row: Row) -> str:
    """Name the other ranker of a comparison as a verdict does."""
    return "today's" if row["other"] == LOGGING_RANKER else "the other"


def evaluate_ranker(
    ranker: RankerLike,
    corpus: CorpusLike,
    *,
    compare: RankerLike | None = None,
    clicks: LogLike | None = None,
    include_training: bool = False,
    level: float = 0.95,
    seed: int = 0,
    queries: int | None = None,
    max_label: int | None = None,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> RankerEvaluation:
    """Compute nDCG@5, nDCG@10 and the average rank of relevant documents, with bootstrap intervals over queries.

    Queries that a ranker was trained on are left out: it knows their clicks, and would look better there than on new
    ones. So are queries whose documents all have the same label, which cannot distinguish rankers.

    Parameters
    ----------
    ranker
        A ranker, or the folder of one.
    corpus
        Documents with features and labels: a `Corpus`, LETOR files, a data frame, or "builtin".
    compare
        Another ranker, or the folder of one: the difference is paired by query.
    clicks
        Log of the logging ranker: anything that `open_log` opens. The ranker is compared with the documents' mean ranks
        in the log, and only on documents that the log shows.
    include_training
        Whether queries that a ranker was trained on are evaluated, too.
    level
        Confidence level of the intervals.
    seed
        Random seed for tie-breaking and the bootstrap over queries.
    queries
        Number of queries of the built-in corpus.
    max_label
        Highest grade of the label scale; by default, 1, 2 or 4.
    columns, on_bad_line
        As for `open_log`.
    progress
        Called with a text before each step.

    Returns
    -------
    RankerEvaluation
        Means and intervals, and differences to the other rankers.

    Raises
    ------
    DataError
        If every query was used for training ("no-new-queries"), none has documents with different labels
        ("no-judged-queries"), or the features are not those that the ranker was trained on.

    Examples
    --------
    >>> import clickshift as cs
    >>> corpus = cs.builtin_corpus(queries=10)
    >>> log = cs.simulate(corpus, cs.BM25(), cs.users.PBM(), 500, rng=0)
    >>> ranker = cs.train_ranker(corpus, log, loss="lambdamart", examination="1/rank").ranker
    >>> evaluation = evaluate_ranker(ranker, "builtin", queries=30)
    >>> evaluation.training_queries, [row["metric"] for row in evaluation.rows()]
    (10, ['nDCG@5', 'nDCG@10', 'ARP'])
    """
    rankers, documents = {"": as_ranker(ranker)}, open_corpus(corpus, queries=queries, max_label=max_label)
    if compare is not None:
        rankers[source_name(compare)] = as_ranker(compare)
    progress("scoring documents")
    scores = {name: one.scores(documents) for name, one in rankers.items()}
    shown = np.ones(documents.n_pairs, bool)
    if clicks is not None:
        cells = count_by_rank(
            documents, open_log_or_counts(clicks, columns=columns, on_bad_line=on_bad_line, progress=progress)
        )
        impressions = cells.by_pair()[0]
        shown = impressions > 0
        total_rank = np.bincount(cells.pair, cells.rank() * cells.impressions, documents.n_pairs)
        scores[LOGGING_RANKER] = np.where(shown, -total_rank / np.maximum(impressions, 1), np.nan)
    known = [one.training_queries for one in rankers.values() if one.training_queries is not None]
    trained = np.zeros(documents.n_queries, bool)
    for fingerprints in known:
        trained |= trained_on(documents, fingerprints)
    in_use = shown if include_training else shown & ~trained[documents.vocabulary.pair_query]
    judged = _judged(documents, shown, in_use)
    n_queries = len(np.unique(documents.vocabulary.pair_query[in_use]))
    quality = {
        name: ranking_quality(score, judged, cutoffs=(5, 10), rng=seed).per_query for name, score in scores.items()
    }
    rows, comparisons = [], []
    for metric in ("nDCG@5", "nDCG@10", "ARP"):
        own = quality[""][metric]
        interval = _interval(own, level, seed)
        rows.append({"metric": metric} | dict(zip(("mean", "low", "high", "queries"), interval, strict=True)))
        for name in [name for name in quality if name]:
            other = quality[name][metric]
            difference = zip(("difference", "low", "high", "queries"), _interval(own - other, level, seed), strict=True)
            comparisons.append({"metric": metric, "other": name, "mean": float(np.nanmean(other)), **dict(difference)})
    return RankerEvaluation(
        rankers[""].learner,
        source_name(corpus),
        level,
        tuple(rows),
        n_queries - judged.queries,
        int(trained.sum()) if len(known) == len(rankers) else None,
        include_training,
        tuple(comparisons),
    )


def _judged(documents: Corpus, shown: np.ndarray, in_use: np.ndarray) -> JudgedPairs:
    """Select the documents to evaluate on; raise if no query is left, or none has documents with different labels."""
    if shown.any() and not in_use.any():
        n_queries = len(np.unique(documents.vocabulary.pair_query[shown]))
        of_log = "" if shown.all() else " that the log shows"
        raise DataError(
            f"an evaluation needs queries that were not used for training: all {n_queries:,}{of_log} were. Pass "
            f"{'a log' if of_log else 'documents'} of other queries, or `include_training` to evaluate on these.",
            code="no-new-queries",
            queries=n_queries,
        )
    judged = JudgedPairs.of(documents.vocabulary, documents.label.astype(float), shown=in_use)
    if not judged.queries:
        raise DataError(
            "evaluation needs documents with different labels of the same query: none of "
            f"{documents.n_queries:,} queries has any. Pass a corpus with labels.",
            code="no-judged-queries",
            queries=documents.n_queries,
        )
    return judged


def _interval(values: Float[np.ndarray, " query"], level: float, seed: int) -> tuple[float, float, float, int]:
    """Return the mean with its bootstrap interval, and the number of queries."""
    values = values[values == values]  # a query without a relevant document has no ARP
    resamples = min(max(_RESAMPLED_VALUES // max(len(values), 1), _MIN_RESAMPLES), _MAX_RESAMPLES)
    return *bootstrap_interval(values, level, resamples=resamples, seed=seed), len(values)


@dataclass(frozen=True, repr=False, eq=False)
class ScoredDocuments(Result):
    """Documents with their scores, each query's best first: returned by `score`.

    Parameters
    ----------
    learner
        Spec text of the ranker's learner.
    table
        Arrow table of query, doc, score and rank.
    queries
        Number of queries.
    notes
        Where the ranker and the features came from.

    Notes
    -----
    Facts (`to_dict`): `conclusion`; `learner`; `queries`; `documents`. The scores are the rows. `write` writes them to
    a .parquet, .csv or .jsonl file, which `evaluate_policy` takes as a target policy.
    """

    learner: str
    table: Any
    queries: int
    notes: Mapping[str, str]

    @property
    @override
    def conclusion(self) -> str:
        return f"Scored {self.table.num_rows:,} documents of {self.queries:,} queries with {self.learner}."

    @override
    def rows(self) -> Rows:
        rows: Rows = self.table.to_pylist()
        return rows

    @override
    def to_arrow(self) -> Any:
        return self.table

    @override
    def facts(self) -> Mapping[str, Any]:
        facts = {"conclusion": self.conclusion, "learner": self.learner, "queries": self.queries}
        return facts | {"documents": self.table.num_rows}

    @override
    def _document(self) -> Document:
        caption = f"The first of {self.table.num_rows:,} rows." if self.table.num_rows > _SHOWN else ""
        first = self.table.slice(0, _SHOWN).to_pylist()
        section = Section("Scores", table=first, caption=caption)
        return Document("Scores", self.conclusion, [section], dict(self.notes))

    @classmethod
    @override
    def check_output(cls, path: str | Path) -> None:
        table_ending(path)

    @override
    def write(self, path: str | Path) -> Written:
        write_table(self.table, path, notes=self.notes)
        return Written(files=(Path(path),))


_SHOWN = 10
"""Number of rows that the document of scores shows."""


def score(
    ranker: RankerLike,
    features: CorpusLike,
    *,
    sparse: bool = False,
    max_label: int | None = None,
    progress: Progress = silent,
) -> ScoredDocuments:
    """Score documents with a ranker: a table of query, doc, score and rank, each query's best first.

    Parameters
    ----------
    ranker
        A ranker, or the folder of one.
    features
        Documents to score: a `Corpus`, LETOR files, or a data frame.
    sparse
        Whether features beyond the highest number in a LETOR file are 0, not missing.
    max_label
        Highest grade of the label scale; by default, 1, 2 or 4.
    progress
        Called with a text before each step.

    Returns
    -------
    ScoredDocuments
        The scores.

    Raises
    ------
    DataError
        If the features are not those that the ranker was trained on ("no-features", "wrong-feature-count").

    Examples
    --------
    >>> import clickshift as cs
    >>> corpus = cs.builtin_corpus(queries=10)
    >>> log = cs.simulate(corpus, cs.BM25(), cs.users.PBM(), 500, rng=0)
    >>> ranker = cs.train_ranker(corpus, log, loss="lambdamart", examination="1/rank").ranker
    >>> score(ranker, corpus).to_arrow().column_names
    ['query', 'doc', 'score', 'rank']
    """
    import pyarrow as pa

    trained = as_ranker(ranker)
    documents = open_corpus(features, features=trained.n_features if sparse else None, max_label=max_label)
    progress("scoring documents")
    scores, vocabulary = trained.scores(documents), documents.vocabulary
    query, doc = vocabulary.query_ids[vocabulary.pair_query], vocabulary.doc_ids[vocabulary.pair_doc]
    order = np.lexsort((-scores, vocabulary.pair_query))
    columns = {"query": arrow_ids(query[order]), "doc": arrow_ids(doc[order]), "score": scores[order]}
    columns["rank"] = np.arange(len(order)) - documents.offsets[:-1][vocabulary.pair_query] + 1
    notes = {"ranker": source_name(ranker), "features": source_name(features)}
    return ScoredDocuments(trained.learner, pa.table(columns), documents.n_queries, notes)
