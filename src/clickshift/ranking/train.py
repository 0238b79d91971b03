"""train_ranker: learn a ranker from a log of clicks and the features of its documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from typing_extensions import override

from clickshift.core.progress import Progress, silent
from clickshift.core.spec import parse
from clickshift.counts.cells import Cells
from clickshift.counts.open_log import LogLike, open_log_or_counts
from clickshift.data.corpus import Corpus
from clickshift.data.description import describe_log
from clickshift.display.document import Document, Section
from clickshift.display.export import Written
from clickshift.display.figures import dot_plot, training_figure
from clickshift.display.result import Result
from clickshift.display.tables import Rows, facts_table
from clickshift.display.values import decimals
from clickshift.errors import SpecError
from clickshift.io.datasets.letor import CorpusLike, open_corpus
from clickshift.io.read_report import OnBadLine
from clickshift.io.tables.extra_columns import columns_with
from clickshift.metrics.ranking import JudgedPairs, ranking_quality
from clickshift.metrics.significance import bootstrap_interval
from clickshift.models.base import ClickModel
from clickshift.propensity.files import Trust
from clickshift.propensity.result import Propensities
from clickshift.ranking._inputs import BiasSource, n_sessions, source_name
from clickshift.ranking._prepare import hold_out_queries, with_held_out
from clickshift.ranking._training_queries import fingerprints_of
from clickshift.ranking.click_ranker import ClickRanker, Run
from clickshift.ranking.labels import check_propensity_kind, count_by_rank, labels_for
from clickshift.ranking.lambdamart import BoostedRanker, TreeRanker
from clickshift.ranking.ranker import Ranker
from clickshift.ranking.storage import save_ranker

__all__ = ["HeldOutComparison", "RankerTraining", "train_ranker"]

RANKERS: dict[str, str] = {
    "ClickRanker": "clickshift.ranking.click_ranker:ClickRanker",
    "BoostedRanker": "clickshift.ranking.lambdamart:BoostedRanker",
}
"""Learners of rankers by the names that spec texts use, as "module:class"."""
_CUTOFF = 10
"""Cutoff of the nDCG that compares a ranker with the logging ranker."""
_POINTS = 20
"""Largest number of points of the training curve of trees."""


@dataclass(frozen=True)
class HeldOutComparison:
    """nDCG of a new ranker and of the logging ranker on the documents that were shown for held-out queries.

    Parameters
    ----------
    queries
        Number of held-out queries whose shown documents differ in relevance.
    judged_by
        "labels" of the corpus, or held-out "clicks", corrected for position bias, where the labels are all equal.
    ndcg, logging_ndcg
        Mean nDCG@10 of the new ranker, and of the documents' mean rank in the log.
    difference, low, high
        Mean difference by query, with its 95 % bootstrap interval.
    trained_again
        Whether the compared trees were trained without the held-out queries for this comparison only, while the ranker
        was trained on all queries.
    """

    queries: int
    judged_by: str
    ndcg: float
    logging_ndcg: float
    difference: float
    low: float
    high: float
    trained_again: bool = False

    @property
    def conclusion(self) -> str:
        """The comparison in a sentence."""
        source = "labels" if self.judged_by == "labels" else "clicks, corrected for position bias"
        digits = min(decimals((self.high - self.low) / 2) + 1, 4) if self.high > self.low else 4
        interval = f", 95 % interval {self.low:+.{digits}f} to {self.high:+.{digits}f}" if self.low == self.low else ""
        subject = f"the nDCG@{_CUTOFF} of trees trained without them" if self.trained_again else f"its nDCG@{_CUTOFF}"
        return (
            f"On the documents shown for {self.queries:,} held-out queries, judged by {source}, {subject} is "
            f"{self.ndcg:.3f} and that of the logging ranker {self.logging_ndcg:.3f} "
            f"(difference {self.difference:+.{digits}f}{interval})."
        )


@dataclass(frozen=True, repr=False)
class RankerTraining(Result):
    """A trained ranker, and what is known of it: returned by `train_ranker`.

    Parameters
    ----------
    ranker
        The ranker.
    sessions, queries, documents
        Number of sessions of the log, of queries with clicks that were trained on, and of documents of the corpus.
    corpus, clicks
        Where the corpus and the clicks came from.
    comparison
        The ranker against the logging ranker on held-out queries; None where it is not known.
    curve
        Training curve on the held-out queries: loss by round, or nDCG by the number of trees.

    Notes
    -----
    Facts (`to_dict`): `conclusion`; `learner`, its spec text; `sessions`; `queries`; `documents`; for networks
    `rounds`, `held_out_loss` (nats per query) and `converged`; `examination` by rank, relative to the first, where it
    was estimated; `held_out`, null or `queries`, `judged_by`, `ndcg`, `logging_ndcg`, `difference`, `low`, `high`
    and `trained_again`; `curve`, rows of `round` and `held_out_loss`, or of `trees` and `held_out_ndcg`. `write` writes
    the folder that `load_ranker` reads.
    """

    ranker: Ranker | TreeRanker
    sessions: int
    queries: int
    documents: int
    corpus: str
    clicks: str
    comparison: HeldOutComparison | None = None
    curve: tuple[dict[str, Any], ...] = ()

    @property
    @override
    def conclusion(self) -> str:
        ranker, learned = self.ranker, f"{self.sessions:,} sessions of {self.queries:,} queries"
        if isinstance(ranker, TreeRanker):
            if self.comparison is None:
                return f"Trained trees on {learned}. Evaluate them on other queries: these were all used for training."
            return f"Trained trees on {learned}. {self.comparison.conclusion}"
        text = f"Trained on {learned} in {ranker.rounds:,} rounds; the best held-out loss is {ranker.held_out_loss:.4f}"
        text += " nats per query. " if ranker.converged else " nats per query, which more rounds may improve. "
        return text + ("" if self.comparison is None else self.comparison.conclusion)

    @override
    def rows(self) -> Rows:
        facts = {name: value for name, value in self.facts().items() if name not in {"conclusion", "curve"}}
        comparison = facts.pop("held_out") or {}
        return [facts | {f"held_out_{name}": value for name, value in comparison.items()}]

    @override
    def facts(self) -> Mapping[str, Any]:
        ranker = self.ranker
        facts: dict[str, Any] = {"conclusion": self.conclusion.strip(), "learner": ranker.learner}
        facts |= {"sessions": self.sessions, "queries": self.queries, "documents": self.documents}
        if isinstance(ranker, Ranker):
            facts |= {"rounds": ranker.rounds, "held_out_loss": ranker.held_out_loss, "converged": ranker.converged}
            if ranker.examination is not None:
                facts["examination"] = (ranker.examination / ranker.examination[0]).tolist()
        comparison = None if self.comparison is None else vars(self.comparison)
        return facts | {"held_out": comparison, "curve": [*self.curve]}

    @override
    def _document(self) -> Document:
        facts = {name: value for name, value in self.facts().items() if name not in {"conclusion", "held_out", "curve"}}
        sections = [Section("Trained ranker", table=facts_table(facts))]
        if isinstance(self.ranker, TreeRanker):
            importance = self.ranker.feature_importance()
            if importance.any():
                sections.insert(0, _importance_section(importance))
        headline = None
        if self.comparison is not None:
            one = self.comparison
            label = "trees without the held-out queries" if one.trained_again else "this ranker"
            named = {"ranker": [label, "the logging ranker"], f"nDCG@{_CUTOFF}": [one.ndcg, one.logging_ndcg]}
            sections.insert(
                0,
                Section(
                    f"Held-out queries: {one.queries:,}, judged by {one.judged_by}",
                    one.conclusion,
                    table=[dict(zip(named, values, strict=True)) for values in zip(*named.values(), strict=True)],
                    page_only=True,
                ),
            )
        if self.curve:
            by_trees = "trees" in self.curve[0]
            logging = self.comparison.logging_ndcg if by_trees and self.comparison is not None else None
            headline = Section(
                "Training curve on held-out queries",
                table=[{name.replace("_", " "): value for name, value in row.items()} for row in self.curve],
                figure=partial(
                    training_figure,
                    self.curve,
                    reference=logging,
                    reference_name="the logging ranker, on its own lists",
                ),
                name="training curve",
                page_only=True,
            )
        return Document(
            "Trained ranker",
            self.conclusion,
            sections,
            {"corpus": self.corpus, "clicks": self.clicks, "learner": self.ranker.learner},
            self._verdict(),
            f"{describe_log(self.sessions, self.queries, source=self.clicks)}; {self.documents:,} documents",
            headline,
        )

    def _verdict(self) -> str:
        """Return how the ranker compares with the logging ranker; empty if that is not known."""
        one = self.comparison
        if one is None or one.low != one.low:
            return ""
        return "better than today's" if one.low > 0 else "worse than today's" if one.high < 0 else "no clear difference"

    @classmethod
    @override
    def check_output(cls, path: str | Path) -> None:
        """Accept any folder."""

    @override
    def write(self, path: str | Path) -> Written:
        """Write the ranker to a folder, from which `load_ranker` and all commands read it."""
        notes = {"corpus": self.corpus, "clicks": self.clicks, "sessions": self.sessions}
        save_ranker(self.ranker, path, notes=notes)
        return Written(files=(Path(path),))


def _importance_section(importance: Float[np.ndarray, " feature"]) -> Section:
    """Show the features that the trees use most."""
    order = np.argsort(-importance, kind="stable")[:_FEATURES_SHOWN]
    shares = [(int(k) + 1, float(importance[k] / importance.sum())) for k in order if importance[k] > 0]
    dots = [{"label": feature, "value": share, "low": None, "high": None} for feature, share in shares]
    used = int((importance > 0).sum())
    return Section(
        "Features that the trees use most",
        table=[{"feature": feature, "share": share} for feature, share in shares],
        figure=partial(_importance_figure, dots),
        caption=f"Share of the reduction of the loss by all splits; {used:,} of {len(importance):,} features are used.",
        name="feature importance",
        page_only=True,
    )


def _importance_figure(dots: Rows) -> Any:
    """Plot the share of each feature."""
    figure = dot_plot(dots, axis="share of the reduction of the loss")
    figure.update_yaxes(title="feature", type="category")
    return figure.update_xaxes(tickformat=".0%", rangemode="tozero")


_FEATURES_SHOWN = 15
"""Number of features that the report shows."""


def train_ranker(
    corpus: CorpusLike,
    clicks: LogLike,
    *,
    loss: str | ClickRanker | BoostedRanker = "ips",
    bias: str | None = None,
    propensities: str | Path | Propensities | None = None,
    examination: str | Float[np.ndarray, " rank"] | None = None,
    model: str | Path | ClickModel | None = None,
    trust: str | Path | Trust | None = None,
    clip: float | None = None,
    logging: str = "frequencies",
    propensity_kind: str = "marginal",
    held_out: CorpusLike | None = None,
    held_out_clicks: LogLike | None = None,
    seed: int | None = None,
    queries: int | None = None,
    max_label: int | None = None,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    checkpoint: str | Path | None = None,
    progress: Progress = silent,
) -> RankerTraining:
    """Train a ranker on clicks, corrected for position bias.

    Parameters
    ----------
    corpus
        Documents with their features: a `Corpus`, LETOR files, a data frame (see `read_corpus`), or "builtin".
    clicks
        Click log of any size: anything that `open_log` opens.
    loss
        "ips", "pbm", "additive", "policy-aware", "affine", "doubly-robust", "listwise" or "lambdamart"; or a learner or
        its text, e.g. "ClickRanker('ips', hidden=(64,), dropout=(0.1,))".
    bias
        Source of the position bias: "given" (by one of the next four arguments), "naive" or "estimated".
    propensities
        Propensities, or the file of them, see `propensities`. Those by segment correct each click with the curve of its
        session's segment.
    examination
        Examination by rank: numbers, or a text such as "1/rank" or "1,0.6,0.4".
    model
        Click model, or the folder of one, whose examination by rank is used.
    trust
        Trust bias for the loss "affine", or a table with the columns rank, alpha and beta.
    clip
        Smallest propensity to divide by.
    logging
        "frequencies", or "propensities" to weight every impression by the inverse of the propensity by position that
        the log carries for it, so that documents which the logging policy shows rarely weigh as much as others.
    propensity_kind
        What the propensities by position of the log are: "marginal", P(document at this rank), or "independent", of a
        policy that fills every position by itself. Those given the documents above are refused.
    held_out, held_out_clicks
        Corpus and log for early stopping of a network, and for the comparison with the logging ranker; by default the
        training corpus, and the clicks of a tenth of the queries. Trees do not stop early: by default, they are
        trained on all queries, after trees without that tenth were trained for the comparison.
    seed
        Random seed for the initial weights, the order of queries, and dropout.
    queries
        Number of queries of the built-in corpus.
    max_label
        Highest grade of the label scale; by default, 1, 2 or 4.
    columns, on_bad_line
        As for `open_log`.
    checkpoint
        File in which the training of a network is saved from time to time; if it exists, training is resumed from it.
    progress
        Called while the log is read, and with a text after every round.

    Returns
    -------
    RankerTraining
        The ranker and, where it is known, its nDCG on held-out queries against that of the logging ranker.

    Raises
    ------
    SpecError
        If options are not valid ("bad-option", "bad-clip", "incompatible-options"), or position bias is missing or not
        used ("missing-examination", "missing-trust", "unused-examination", "unused-trust").
    DataError
        If the documents, clicks or examination are not valid, see `ClickRanker.fit` and `BoostedRanker.fit`; or if the
        log lacks the propensities that are asked for ("missing-propensities").

    Examples
    --------
    >>> import clickshift as cs
    >>> corpus = cs.builtin_corpus(queries=10)
    >>> log = cs.simulate(corpus, cs.BM25(), cs.users.PBM(), 500, rng=0)
    >>> training = train_ranker(corpus, log, loss="lambdamart", examination="1/rank")
    >>> training.ranker.scores(corpus).shape == (corpus.n_pairs,)
    True
    """
    learner = _learner(loss, {"bias": bias, "clip": clip, "seed": seed})
    source = BiasSource(propensities, examination, model, trust)
    if held_out is not None and held_out_clicks is None:
        raise SpecError(
            "`held_out` needs the clicks on its documents. Pass `held_out_clicks`.",
            code="bad-option",
            option="held_out",
        )
    check_propensity_kind(propensity_kind)
    source.check(learner.bias)
    source = source.loaded()
    columns = columns_with(columns, segments=[source.segment]) if source.segment else columns
    reading: dict[str, Any] = {"columns": columns, "on_bad_line": on_bad_line, "progress": progress}
    documents = open_corpus(corpus, queries=queries, max_label=max_label)
    log = open_log_or_counts(clicks, **reading)
    segments = source.segments(log)
    given = source.read(log, segments)
    counted = partial(count_by_rank, logging=logging, clip=clip, segments=segments)
    counts = counted(documents, log)
    used = [(documents, counts)]
    judge = None
    if held_out_clicks is not None:
        others = documents if held_out is None else open_corpus(held_out, max_label=max_label)
        judge = others, counted(others, open_log_or_counts(held_out_clicks, **reading))
        if isinstance(learner, ClickRanker):  # they decide when its training stops
            used.append(judge)
    comparison, curve = None, tuple[dict[str, Any], ...]()
    if isinstance(learner, BoostedRanker):
        compared = trees = learner.fit(documents, counts, **given)
        ranker: Ranker | TreeRanker = trees
        if judge is None and len(np.unique(documents.vocabulary.pair_query[counts.pair])) > 1:
            rest, held_out_counts = hold_out_queries(documents, counts)
            compared, judge = learner.fit(documents, rest, **given), (documents, held_out_counts)
        if judge is not None:
            examiner = _Examiner.of(*judge, **given)
            comparison = examiner.compare(compared, trained_again=compared is not trees)
            curve = examiner.tree_curve(compared)
    else:
        run = with_held_out(Run(learner, documents, counts, judge))
        assert run.held_out is not None
        counts = run.clicks
        ranker = learner.fit(
            documents, counts, held_out=run.held_out, progress=progress, checkpoint=checkpoint, **given
        )
        known = given | {"examination": ranker.examination if given["examination"] is None else given["examination"]}
        comparison = _Examiner.of(*run.held_out, **known).compare(ranker)
        curve = tuple({"round": k, "held_out_loss": loss} for k, loss in enumerate(ranker.losses, 1))
    ranker = replace(ranker, training_queries=_fingerprints(used))
    n_queries = len(np.unique(documents.vocabulary.pair_query[counts.pair]))
    names = source_name(corpus), source_name(clicks)
    sizes = n_sessions(log), n_queries, documents.n_pairs
    return RankerTraining(ranker, *sizes, *names, comparison, curve)


def _fingerprints(used: Sequence[tuple[Corpus, Cells]]) -> np.ndarray:
    """Return the fingerprints of all queries of some counts."""
    return np.concatenate(
        [fingerprints_of(corpus, np.unique(corpus.vocabulary.pair_query[cells.pair])) for corpus, cells in used]
    )


def _learner(loss: str | ClickRanker | BoostedRanker, options: dict[str, Any]) -> ClickRanker | BoostedRanker:
    """Return a learner, or make that of a loss with its options, or of a text, which contains them."""
    given = {name: value for name, value in options.items() if value is not None}
    name = loss.partition("(")[0].strip() if isinstance(loss, str) else type(loss).__name__
    if name not in RANKERS:
        return BoostedRanker(**given) if loss == "lambdamart" else ClickRanker(str(loss), **given)
    if given:
        raise SpecError(
            f"options of a learner go into its text. Write {name}(..., seed=1).", code="bad-option", options=list(given)
        )
    return parse(loss, RANKERS) if isinstance(loss, str) else loss


@dataclass(frozen=True, eq=False)
class _Examiner:
    """The documents shown for held-out queries, with labels and the logging ranker's nDCG.

    Parameters
    ----------
    shown
        Which pairs of the corpus were shown.
    corpus
        The shown documents.
    judged
        Their labels, or their relevance by corrected clicks; without queries if neither distinguishes documents.
    judged_by
        "labels" or "clicks".
    logging_ndcg
        nDCG of the documents' mean rank in the log, by query.
    """

    shown: Bool[np.ndarray, " pair"]
    corpus: Corpus
    judged: JudgedPairs
    judged_by: str
    logging_ndcg: Float[np.ndarray, " query"]

    @classmethod
    def of(
        cls, corpus: Corpus, cells: Cells, examination: Float[np.ndarray, " rank"] | None, trust: Trust | None
    ) -> _Examiner:
        """Judge by labels, or else by clicks that are corrected for position bias."""
        impressions = cells.by_pair()[0]
        shown, vocabulary = impressions > 0, corpus.vocabulary
        judged, judged_by = JudgedPairs.of(vocabulary, corpus.label.astype(float), shown=shown), "labels"
        if not judged.queries and (examination is not None or trust is not None):
            corrected = labels_for(cells, "affine", examination=examination, trust=trust)
            relevance = corrected.positive / np.maximum(corrected.total, 1e-300)
            judged, judged_by = JudgedPairs.of(vocabulary, np.clip(relevance, 0, 1), shown=shown), "clicks"
        total_rank = np.bincount(cells.pair, cells.rank() * cells.impressions, corpus.n_pairs)[shown]
        examiner = cls(shown, corpus.with_pairs(shown), judged, judged_by, np.zeros(0))
        return replace(examiner, logging_ndcg=examiner._ndcg(-total_rank / impressions[shown]))

    def _ndcg(self, score: Float[np.ndarray, " shown"]) -> Float[np.ndarray, " query"]:
        """Return the nDCG by query of scores of the shown documents."""
        if not self.judged.queries:
            return np.zeros(0)
        scores = np.full(len(self.shown), np.nan)
        scores[self.shown] = score
        return ranking_quality(scores, self.judged, cutoffs=(_CUTOFF,), rng=0).per_query[f"nDCG@{_CUTOFF}"]

    def compare(self, ranker: Ranker | TreeRanker, *, trained_again: bool = False) -> HeldOutComparison | None:
        """Compare a ranker with the logging ranker; None if neither labels nor clicks distinguish documents."""
        if not self.judged.queries:
            return None
        new, old = self._ndcg(ranker.scores(self.corpus)), self.logging_ndcg
        difference = bootstrap_interval(new - old, resamples=1000)
        counts = self.judged.queries, self.judged_by
        return HeldOutComparison(*counts, float(new.mean()), float(old.mean()), *difference, trained_again)

    def tree_curve(self, ranker: TreeRanker) -> tuple[dict[str, Any], ...]:
        """Return the mean nDCG by the number of trees, at up to 20 numbers."""
        if not self.judged.queries:
            return ()
        numbers = np.unique(np.linspace(1, ranker.n_trees, _POINTS).round().astype(int)).tolist()
        scores = ranker.staged_scores(self.corpus, numbers)
        return tuple(
            {"trees": n, "held_out_ndcg": float(self._ndcg(score).mean())}
            for n, score in zip(numbers, scores, strict=True)
        )
