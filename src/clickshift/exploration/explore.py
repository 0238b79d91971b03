"""explore: one page to look at a log, query by query, through a click model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, final

from typing_extensions import override

from clickshift.core.progress import Progress, silent
from clickshift.core.rng import generator
from clickshift.counts.log_summary import LogSummary, log_summary
from clickshift.counts.open_log import LogLike, open_log
from clickshift.data.encoded_log import EncodedLog, Log
from clickshift.data.vocabulary import UNSEEN
from clickshift.display.document import Document, Section
from clickshift.display.export import Written
from clickshift.display.figures import curve_figure
from clickshift.display.result import Result, plain
from clickshift.display.tables import Rows
from clickshift.errors import CapabilityError, DataError
from clickshift.experiments.comparison import Comparison, click_predicting_models, compare
from clickshift.exploration._conclusion import conclusion_of, data_line, verdict_of
from clickshift.exploration._log_curves import LogCurves, SegmentClicks
from clickshift.exploration._log_index import LogIndex
from clickshift.exploration._queries import ExploredLog, conversions_of
from clickshift.io.read_report import OnBadLine
from clickshift.learners.fit import fit
from clickshift.models import model_name
from clickshift.models.base import ClickModel
from clickshift.models.segmented import one_curve
from clickshift.models.storage import ModelLike, open_model

__all__ = ["Exploration", "explore"]

_PAGE = {".html", ".htm"}
_QUERIES_PRINTED = 10
_HEADINGS = {"ctr": "click-through rate"}
"""Headings of columns whose names are no words."""


@final
@dataclass(frozen=True, repr=False, eq=False)
class Exploration(Result):
    """A log seen through a click model: its health, its queries, and what the model makes of their documents.

    Parameters
    ----------
    name
        What the log is called: the last part of its path, or the type of the object.
    summary
        Sizes, click-through rates and connectivity of the log.
    explored
        The log grouped by query, and the model.
    fitted
        Whether the model was fitted for this result; False for one that was passed.
    comparison
        Comparison of the classical models; None if it was left out.
    n_queries
        Number of queries in `rows` and at most in a written page, the most frequent ones.
    curves
        Observed examination and clicks by segment, where the log has them.

    Notes
    -----
    Keys of `to_dict`, which `clickshift explore --json` prints:

    - conclusion; verdict: "usable", "weak" or "not identified", for position bias;
    - summary: the facts of `LogSummary`;
    - model: its name; fitted: whether it was fitted here;
    - by_rank: one row per rank: impressions, clicks, ctr, low and high; examination, examination_low and
      examination_high, null where the model has none; of a log with views also observed_examination, observed_low and
      observed_high, and of PBM fitted on views examination_from_clicks, what clicks alone would suggest;
    - comparison: rows of `Comparison`, empty if it was left out;
    - segments, if the log has some: for each segment of sessions its name (segment), whether its labels click alike
      (conclusion, p_value), and the sessions and clicks by rank of its largest labels (labels);
    - rows: one row for each of the most frequent queries: query, sessions, clicks_per_session, lists, documents.

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(queries=20), cs.Uniform(), cs.users.PBM(), 20_000, rng=0)
    >>> cs.explore(log, sample=0).to_dict()["verdict"]
    'usable'
    """

    name: str
    summary: LogSummary
    explored: ExploredLog
    fitted: bool
    comparison: Comparison | None
    n_queries: int
    curves: LogCurves = field(default_factory=LogCurves)

    @property
    def model(self) -> ClickModel:
        """The click model."""
        return self.explored.model

    @property
    @override
    def conclusion(self) -> str:
        return conclusion_of(self.summary, self.model, self.comparison)

    @override
    def rows(self) -> Rows:
        """Return a row for each of the most frequent queries: its sessions, clicks, lists and documents."""
        names = {"query": "query", "sessions": "sessions", "lists": "n_lists", "documents": "n_documents"}
        return [
            {name: facts[key] for name, key in names.items()}
            | {"clicks_per_session": facts["clicks"] / facts["sessions"]}
            for facts in self._frequent
        ]

    def frequent_queries(self) -> Sequence[Mapping[str, Any]]:
        """Return what the page shows of each of the most frequent queries.

        Returns
        -------
        list of dict
            As `query` returns them, the most frequent first.
        """
        return self._frequent

    @cached_property
    def _frequent(self) -> list[dict[str, Any]]:
        """Facts of the most frequent queries."""
        return [self.explored.query(int(number)) for number in self.explored.index.by_frequency[: self.n_queries]]

    @cached_property
    def _by_rank(self) -> Rows:
        """Click-through rate and examination of each rank."""
        examination = self.explored.examination_by_rank()
        none = dict.fromkeys(("examination", "examination_low", "examination_high"))
        whole = ("impressions", "clicks")
        rows = [row | {name: round(row[name]) for name in whole} | none for row in self.summary.rows()]
        for row, observed in zip(rows, self.curves.observed, strict=False):
            row |= dict(zip(("observed_examination", "observed_low", "observed_high"), observed, strict=True))
        if examination is None:
            return rows
        for row, mean in zip(rows, examination.tolist(), strict=True):
            row["examination"] = mean
        if model_name(self.model) == "PBM":  # whose examination depends on the rank alone
            for row, curve in zip(rows, self.model.examination_table(), strict=False):
                row |= {
                    "examination": curve["estimate"],
                    "examination_low": curve["low"],
                    "examination_high": curve["high"],
                }
                if self.curves.observed and "from_clicks" in curve:
                    row["examination_from_clicks"] = curve["from_clicks"]
        return rows

    def by_rank(self) -> Rows:
        """Return the click-through rate and the examination of each rank, with 95 % intervals where they are known.

        Returns
        -------
        list of dict
            Rows with rank, impressions, clicks, ctr, low, high, examination, examination_low and examination_high. The
            examination of PBM is its parameter; that of UBM and cascade models is the mean probability, over the log,
            that a result was examined given the clicks above it, without an interval. None for other models. Rows of
            a log with views have the observed examination, too: observed_examination, observed_low, observed_high and,
            of PBM fitted on views, examination_from_clicks.
        """
        return [dict(row) for row in self._by_rank]

    def query(self, query: str | int) -> dict[str, Any]:
        """Return what the page shows of a query.

        Parameters
        ----------
        query
            Raw id of the query.

        Returns
        -------
        dict
            Sessions and clicks; `documents` with impressions, clicks, mean rank, expected number of examinations,
            relevance with interval and support; `lists` with sessions, clicks on each document and, of lists with
            holes, the ranks of their documents.

        Raises
        ------
        DataError
            If the log has no such query ("unknown-query").
        """
        ids = self.explored.index.sessions.vocabulary.query_ids
        known = ids.dtype.kind == "T" or str(query).removeprefix("-").isdecimal()
        raw = [str(query)] if ids.dtype.kind == "T" else [int(query) if known else 0]
        number = int(self.explored.index.sessions.vocabulary.query_numbers(raw)[0]) if known else UNSEEN
        if number == UNSEEN or not self.explored.index.frequency[number]:
            raise DataError(
                f"a query must be one of the log's: got {query!r}. Pass its id as the log has it.",
                code="unknown-query",
                query=str(query),
            )
        facts: dict[str, Any] = plain(self.explored.query(number))
        return facts

    @override
    def facts(self) -> Mapping[str, Any]:
        return {
            "conclusion": self.conclusion,
            "verdict": verdict_of(self.summary),
            "summary": self.summary.facts(),
            "model": model_name(self.model),
            "fitted": self.fitted,
            "by_rank": self.by_rank(),
            "comparison": [] if self.comparison is None else self.comparison.rows(),
            "rows": self.rows(),
            **({"segments": [one.facts() for one in self.curves.segments]} if self.curves.segments else {}),
        }

    @property
    def data(self) -> str:
        """What the data were, in one line."""
        return data_line(self.name, self.summary, self.model, self.fitted, self.comparison)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the page, by name."""
        evidence = self.model.evidence
        return {
            "log": self.name,
            "model": model_name(self.model),
            "learner": None if evidence is None else evidence.learner,
            "fitted for this page": self.fitted,
            "queries": self.n_queries,
            **({} if self.comparison is None else {"comparison": dict(self.comparison.settings)}),
        }

    @override
    def _document(self) -> Document:
        curve = [{**row, "parameter": "click-through rate", "estimate": row["ctr"]} for row in self._by_rank]
        by_rank = Section(
            "Clicks by rank", table=_with_headings(self.by_rank()), figure=partial(curve_figure, curve), name="by rank"
        )
        segments = [
            Section(
                f"Clicks by rank and {one.name}",
                table=_with_headings(one.rows()),
                figure=partial(curve_figure, _lines_of(one)),
                name=f"by rank and {one.name}",
                caption=one.sentence,
            )
            for one in self.curves.segments
        ]
        compared = [] if self.comparison is None else self.comparison.document.sections
        queries = Section(
            "Most frequent queries",
            table=_with_headings(self.rows()[:_QUERIES_PRINTED]),
            caption="The page shows each query's documents.",
        )
        return Document(
            "Explore a log",
            self.conclusion,
            [*segments, *compared, queries],
            self.settings,
            verdict=verdict_of(self.summary),
            data=self.data,
            headline=by_rank,
        )

    @override
    def write(self, path: str | Path) -> Written:
        """Write the interactive page, or a folder with the page, the rows of the queries, tables and figures.

        Parameters
        ----------
        path
            A page (.html), or a folder.

        Returns
        -------
        Written
            Paths of what was written.
        """
        from clickshift.exploration._page import write_explore_page

        self.check_output(path)
        if Path(path).suffix.lower() in _PAGE:
            write_explore_page(path, self)
            return Written(page=Path(path))
        written = super().write(path)
        write_explore_page(Path(path) / "report.html", self)
        return written

    def serve(self, port: int = 0, *, ready: Callable[[str], None] = print) -> None:
        """Serve the page on this machine (127.0.0.1) until the process is interrupted.

        The served page has all queries, and predicts with any model. It is read-only.

        Parameters
        ----------
        port
            Port; 0 chooses a free one.
        ready
            Called once with the address of the page.

        Raises
        ------
        SpecError
            If the port cannot be used ("port-in-use").
        """
        from clickshift.exploration._server import PageServer

        with PageServer(self, port) as server:
            ready(server.address)
            server.serve_forever()


def explore(
    log: LogLike,
    model: ModelLike | None = None,
    *,
    queries: int = 200,
    sample: int = 100_000,
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> Exploration:
    """Explore a log: its health, its queries, why a click model prefers a document, and what if lists were different.

    Parameters
    ----------
    log
        Anything that :func:`open_log` opens: a path, a data frame, `Sessions`, an encoded log.
    model
        Folder of a saved model, or a click model, of this log or another one with the same ids. By default, PBM is
        fitted on the log by maximum likelihood.
    queries
        Number of the most frequent queries in `rows` and at most in a written page; a served page has all.
    sample
        Largest number of sessions for the comparison of the classical models, drawn at random; 0 leaves it out.
    seed
        Random seed of the sample and of its split.
    columns
        The log's names of our columns, e.g. ``{"docs": "results"}``.
    on_bad_line
        "error" stops at the first bad session; "skip" leaves bad sessions out and warns.
    progress
        Called while the log is encoded and after every model.

    Returns
    -------
    Exploration
        The result; `write("page.html")` writes the interactive page, and `serve()` serves it.

    Raises
    ------
    DataError
        If a number is not positive ("bad-option"), or as `open_log`.
    CapabilityError
        If the model does not predict clicks ("cannot-predict-clicks").

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(queries=20), cs.Uniform(), cs.users.PBM(), 20_000, rng=0)
    >>> exploration = cs.explore(log, sample=0)
    >>> facts = exploration.query(exploration.rows()[0]["query"])
    >>> sorted(facts["documents"][0])[:4]
    ['by_rank', 'clicks', 'ctr', 'doc']
    """
    for name, value, least in (("queries", queries, 1), ("sample", sample, 0)):
        if value < least:
            raise DataError(
                f"{name} must be {least} or more: got {value}.", code="bad-option", option=name, value=value
            )
    opened = open_log(log, columns=columns, on_bad_line=on_bad_line, progress=progress)
    summary = log_summary(opened)
    if model is None:
        progress("fitting PBM")
        chosen = fit("PBM", opened)
    else:
        chosen = one_curve(open_model(model))
    if not chosen.predicts_clicks or chosen.peeks:
        raise CapabilityError(
            f"{model_name(chosen)} cannot predict the clicks on a list. Choose a model that can; `clickshift models` "
            "lists them.",
            code="cannot-predict-clicks",
            model=model_name(chosen),
        )
    name = Path(log).name if isinstance(log, str | Path) else f"{type(log).__name__} in memory"
    models = click_predicting_models("classical")
    comparison = compare(_sample(opened, sample, seed), models=models, seed=seed, progress=progress) if sample else None
    progress("grouping queries")
    return Exploration(
        name,
        summary,
        ExploredLog(LogIndex.of(opened), chosen, conversions_of(opened)),
        model is None,
        comparison,
        queries,
        LogCurves.of(opened),
    )


def _lines_of(segment: SegmentClicks) -> Rows:
    """Return the click-through rates of a segment as the rows of a figure: a line for each label."""
    return [
        {**row, "parameter": "click-through rate", "estimate": row["ctr"]}
        for row in segment.rows()
        if row["ctr"] is not None
    ]


def _with_headings(rows: Rows) -> Rows:
    """Return rows as a table that people read: headings in words, without the columns that have no value."""
    known = {name: _HEADINGS.get(name, name.replace("_", " ")) for row in rows for name in row if row[name] is not None}
    return [{heading: row[name] for name, heading in known.items()} for row in rows]


def _sample(log: Log, size: int, seed: int) -> Log:
    """Draw sessions at random if the log has more than `size`."""
    if log.total <= size:
        return log
    first: Log = log.split(size / log.total, rng=generator(seed, "explore", "sample"))[0]
    return first.sessions() if isinstance(first, EncodedLog) else first
