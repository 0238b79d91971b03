"""judgments: graded relevance judgments from a fitted click model, with stated cut points.

A grade is the number of cut points that the relevance reaches: with cuts 0.1 and 0.4, grade 0 is below 0.1, grade 1
from 0.1 to below 0.4, and grade 2 from 0.4 on.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int
from typing_extensions import override

from clickshift.core.progress import Progress, silent
from clickshift.counts.open_log import LogLike
from clickshift.counts.query_groups import QueryGroups
from clickshift.display.document import Document, Section
from clickshift.display.export import Written
from clickshift.display.figures import COLOURS, SYMBOLS, counts_figure, dot_plot
from clickshift.display.result import Result
from clickshift.display.tables import Rows, facts_table
from clickshift.errors import ClickshiftWarning, DataError, SpecError
from clickshift.grading._evidence import graded_by_prior, reliability_weight, shown_often
from clickshift.grading._expected_value import conversions_for, expected_value_table
from clickshift.grading.conversions import Conversions
from clickshift.grading.export import judgments_format, write_judgments
from clickshift.grading.quantiles import quantile_grades
from clickshift.io.query_texts import read_query_texts
from clickshift.io.read_report import OnBadLine
from clickshift.learners.shared_attractiveness import share_attractiveness
from clickshift.models import model_title
from clickshift.models.coec import COEC
from clickshift.models.storage import ModelLike, open_model

__all__ = ["DEFAULT_GRADES", "GradedJudgments", "judgments", "parse_grades"]

DEFAULT_GRADES = "0.05,0.1,0.2,0.4"
"""Cut points of five grades, for a relevance that is a probability."""
VALUE_GRADES = "quantile:5"
"""Default grades of an expected value, whose scale depends on the signal."""
COEC_GRADES = "0.25,0.75,1.5,3"
"""Cut points of five grades of COEC: an average result has 1, and the middle grade."""
_MAX_GRADES = 31
"""Number of grades for which LightGBM has gains by default."""
_PAGE = {".html", ".htm"}
_QUERIES_SHOWN = 5
_DOCUMENTS_SHOWN = 10


@final
@dataclass(frozen=True, repr=False, eq=False)
class GradedJudgments(Result):
    """Graded (query, document) pairs, by query and descending relevance.

    Parameters
    ----------
    model
        Name of the model.
    table
        A pyarrow table with the columns query, doc, relevance, low, high, support, impressions, clicks, ctr,
        mean_rank, grade, grade_from ("log" or "prior") and weight; with a value also click_relevance, value_per_click
        and conversions.
    cuts
        Cut points of the grades, ascending.
    left_out
        Number of pairs with too few impressions.
    format
        Format of the file that `write` writes; None to choose it by the ending of the file.
    data
        What the training log was, in one line.
    left_to_prior
        Number of pairs that are left out because the prior decides their grade.
    value
        What relevance is: the value of a click that is expected of an examined result; "" for P(click | examined), or
        what else relevance is in the model.

    Notes
    -----
    Keys of `to_dict`, which `clickshift judgments --json` prints:

    - model: name of the model;
    - value: the value that is expected of an examined result, e.g. "purchase"; None for clicks;
    - queries, pairs: number of queries and of graded pairs;
    - pairs_left_out: number of pairs with too few impressions;
    - pairs_left_to_prior: number of pairs that are left out because the prior, and not the log, decides their grade;
    - pairs_graded_by_prior: number of such pairs that are kept, because keep_prior was chosen;
    - cut_points: cut points of the grades;
    - pairs_by_grade: number of pairs with each grade;
    - pairs_whose_interval_has_one_grade: share of pairs whose whole confidence interval has one grade, None if the
      model has no intervals;
    - conclusion.
    """

    model: str
    table: Any
    cuts: tuple[float, ...]
    left_out: int
    format: str | None = None
    data: str = ""
    left_to_prior: int = 0
    value: str = ""

    @property
    def kept_from_prior(self) -> int:
        """Number of pairs whose grade the prior decides that are kept."""
        import pyarrow.compute as pc

        return int(pc.sum(pc.equal(self.table["grade_from"], "prior")).as_py() or 0)

    @property
    def counts(self) -> Int[np.ndarray, " grade"]:
        """Number of pairs with each grade."""
        return np.bincount(self.table["grade"].to_numpy(), minlength=len(self.cuts) + 1)

    @property
    def certain_share(self) -> float:
        """Share of pairs whose whole confidence interval has one grade; NaN where the model has no intervals."""
        low, high = self.table["low"].to_numpy(), self.table["high"].to_numpy()
        has_interval = ~(np.isnan(low) | np.isnan(high))
        if not has_interval.any():
            return math.nan
        low, high = low[has_interval], high[has_interval]
        return float((_assign_grades(low, self.cuts) == _assign_grades(high, self.cuts)).mean())

    @property
    def group_sizes(self) -> Int[np.ndarray, " query"]:
        """Number of rows of each query, in the order of the table."""
        sizes: np.ndarray = self.table["query"].value_counts().field("counts").to_numpy()
        return sizes

    @property
    @override
    def conclusion(self) -> str:
        counts = self.counts
        by = f" by expected {self.value}" if self.value else ""
        text = (
            f"{self.model} grades {self.table.num_rows:,} documents of {len(self.group_sizes):,} queries{by} from 0 to "
            f"{len(self.cuts)}, with {counts[-1]:,} of them in the highest grade."
        )
        if self.left_to_prior:
            text += (
                f" {self.left_to_prior:,} others are left out: the log says too little about them, so the prior would "
                "grade them."
            )
        elif kept := self.kept_from_prior:
            text += f" The prior decides the grade of {kept:,} of them: the log says too little."
        certain = self.certain_share
        if math.isnan(certain):
            return f"{text} The model has no standard errors, so it is not known how certain the grades are."
        return f"{text} For {certain:.0%} of the documents, the whole 95 % interval of the relevance has one grade."

    @override
    def to_arrow(self) -> Any:
        return self.table

    @override
    def rows(self) -> Rows:
        """Return a row per pair: its ids, relevance with interval, counts, grade, what decided it, and weight."""
        rows: Rows = self.table.to_pylist()
        return rows

    @override
    def facts(self) -> Mapping[str, Any]:
        return {
            "model": self.model,
            "value": self.value or None,
            "queries": len(self.group_sizes),
            "pairs": self.table.num_rows,
            "pairs_left_out": self.left_out,
            "pairs_left_to_prior": self.left_to_prior,
            "pairs_graded_by_prior": self.kept_from_prior,
            "cut_points": list(self.cuts),
            "pairs_by_grade": {str(grade): int(count) for grade, count in enumerate(self.counts)},
            "pairs_whose_interval_has_one_grade": self.certain_share,
            "conclusion": self.conclusion,
        }

    @override
    def _document(self) -> Document:
        facts = {name: value for name, value in self.facts().items() if name not in {"conclusion", "pairs_by_grade"}}
        facts |= {"cut_points": _list_cuts(self.cuts)}
        certain = facts.pop("pairs_whose_interval_has_one_grade")
        facts["pairs whose interval has one grade"] = "–" if math.isnan(certain) else f"{certain:.1%}"
        lists = [self._query_section(query) for query in self._frequent_queries()]
        others = Section("Other frequent queries", parts=lists[1:], page_only=True)
        by_grade = [
            {"grade": grade, "relevance": text, "documents": int(count), "share": int(count) / self.table.num_rows}
            for grade, (text, count) in enumerate(zip(_grade_ranges(self.cuts), self.counts, strict=True))
        ]
        return Document(
            "Graded judgments",
            self.conclusion,
            [
                Section(
                    "Documents by grade",
                    table=by_grade,
                    figure=partial(counts_figure, self.counts.tolist(), axis="grade"),
                ),
                *([others] if lists[1:] else []),
                Section("Judgments", table=facts_table(facts)),
            ],
            settings={"model": self.model, "cut points": _list_cuts(self.cuts)},
            data=self.data,
            headline=lists[0],
        )

    def _frequent_queries(self) -> list[Any]:
        """Return the queries with the most impressions, the most frequent one first."""
        by_query = self.table.group_by("query", use_threads=False).aggregate([("impressions", "sum")])
        total = np.nan_to_num(by_query["impressions_sum"].to_numpy(zero_copy_only=False).astype(np.float64))
        order = np.argsort(-total, kind="stable")[:_QUERIES_SHOWN]
        queries: list[Any] = by_query["query"].take(order).to_pylist()
        return queries

    def _query_section(self, query: Any) -> Section:
        """Show the most relevant documents of a query, with their evidence."""
        import pyarrow.compute as pc

        judged = self.table.filter(pc.equal(self.table["query"], query))
        top = judged.slice(0, _DOCUMENTS_SHOWN).to_pylist()
        more = judged.num_rows - len(top)
        table = [
            {
                "document": str(row["doc"]),
                "grade": row["grade"],
                "relevance": row["relevance"],
                "low": row["low"],
                "high": row["high"],
                "impressions": _whole(row["impressions"]),
                "clicks": _whole(row["clicks"]),
                "clicks per impression": _rate_text(row["clicks"], row["impressions"]),
                "mean rank": None if math.isnan(row["mean_rank"]) else round(row["mean_rank"], 1),
                "rests on": row["grade_from"],
            }
            for row in top
        ]
        return Section(
            f"Query {query}: its most relevant documents",
            table=table
            if top[0]["grade_from"]
            else [{k: v for k, v in row.items() if k != "rests on"} for row in table],
            figure=partial(_list_figure, top, self.cuts),
            caption=f"and {more:,} more documents of this query" if more else "",
            name=f"query {query}",
            page_only=True,
        )

    @override
    @classmethod
    def check_output(cls, path: str | Path, format: str | None = None) -> None:
        if Path(path).suffix.lower() not in _PAGE or format is not None:
            judgments_format(path, format)

    @override
    def write(self, path: str | Path, format: str | None = None) -> Written:
        """Write the judgments to a file, or a page about them.

        Parameters
        ----------
        path
            The file; a page if its ending is .html.
        format
            One of those that `write_judgments` explains, e.g. "opensearch"; by default, that of the result, or that of
            the file's ending.

        Returns
        -------
        Written
            Paths of what was written.
        """
        format = format or self.format
        if Path(path).suffix.lower() in _PAGE and format is None:
            return super().write(path)
        chosen = judgments_format(path, format)
        notes = {"cut_points": list(self.cuts), "model": self.model}
        return Written(files=tuple(write_judgments(self.table, path, format=chosen, notes=notes)))


def _list_figure(rows: Rows, cuts: tuple[float, ...]) -> Any:
    """Plot the relevance of documents with intervals, with their grades as colours and symbols, and the cut points."""
    dots = [
        {
            "label": f"{place}.\N{NO-BREAK SPACE}{_shortened(str(row['doc']))}",
            "grade": f"grade {row['grade']}",
            "value": row["relevance"],
            "low": None if math.isnan(row["low"]) else row["low"],
            "high": None if math.isnan(row["high"]) else row["high"],
        }
        for place, row in enumerate(rows, 1)
    ]
    figure = dot_plot(dots, axis="relevance, with 95 % intervals", group="grade")
    for trace in figure.data:  # the same grade looks the same for all queries
        grade = int(trace.name.removeprefix("grade ")) % len(COLOURS)
        trace.marker.color, trace.marker.symbol, trace.showlegend = COLOURS[grade], SYMBOLS[grade], True
    for cut in cuts:
        figure.add_vline(cut, line={"color": COLOURS[-1], "width": 1, "dash": "dot"})
    return figure.update_layout(showlegend=True)


def _shortened(text: str) -> str:
    """Return the beginning and the end of a long id; the table has all of it."""
    half = _LABEL // 2
    return text if len(text) <= _LABEL else f"{text[: half - 1]}…{text[-half:]}"


_LABEL = 14
"""Most characters of an id in a chart."""


def _grade_ranges(cuts: tuple[float, ...]) -> list[str]:
    """Return the relevance of each grade as text.

    >>> _grade_ranges((0.1, 0.4))
    ['below 0.1', '0.1 to 0.4', '0.4 or more']
    """
    if not cuts:
        return ["any"]
    between = [f"{low:.4g} to {high:.4g}" for low, high in pairwise(cuts)]
    return [f"below {cuts[0]:.4g}", *between, f"{cuts[-1]:.4g} or more"]


def _whole(count: float) -> int | float | None:
    """Return a count, which is whole unless it is weighted; None if it is not known."""
    if math.isnan(count):
        return None
    return int(count) if float(count).is_integer() else float(count)


def _rate_text(clicks: float, impressions: float) -> str:
    """Return the click-through rate of a document as text; a dash where it was not shown."""
    return f"{clicks / impressions:.1%}" if impressions > 0 else "–"


def judgments(
    model: ModelLike,
    *,
    value: str | None = None,
    log: LogLike | Conversions | None = None,
    grades: str | None = None,
    min_impressions: int = 0,
    keep_prior: bool = False,
    query_text: str | Path | Any | None = None,
    groups: QueryGroups | str | Path | Any | None = None,
    level: float = 0.95,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> GradedJudgments:
    """Grade the (query, document) pairs of a click model whose grade the log decides.

    A model also has an estimate for documents that were hardly shown, which is that of its prior. Pairs are left out,
    and counted, where the prior decides the grade: where the log holds less than one effective observation, and where
    a document was never clicked and either has a grade above the lowest one, which no click supports, or the log has
    less than half of the information in its estimate (fewer than five impressions, for a model that does not know it).

    Warns where the cut points do not suit the relevance of the model.

    With `value`, relevance is what a result is expected to earn if users examine it: its relevance for clicks times the
    mean value of its clicks (`conversions`). That assumes that a conversion depends on the rank through the click only.

    Parameters
    ----------
    model
        Folder of a saved model, or a click model.
    value
        What a click earns: a signal of `log` such as "purchase" or "revenue", or a weighted sum such as "click + 3*cart
        + 10*purchase". By default, clicks alone count.
    log
        Log with the signals of `value`, or the result of `conversions` for it.
    grades
        Ascending cut points, e.g. "0.05,0.1,0.2,0.4", or "quantile:5" for five grades of equal size, which is the
        default with `value`. The default of COEC, which is no probability, is "0.25,0.75,1.5,3".
    min_impressions
        Smallest number of impressions of a graded pair.
    keep_prior
        Whether to keep the pairs whose grade the prior decides; the column grade_from marks them.
    query_text
        Texts of the queries, if the log has ids: a table or a data frame of query and text.
    groups
        Groups of queries between which the attractiveness of documents is shared, as in `fit`, for a model that was
        fitted without.
    level
        Confidence level of the relevance intervals.
    format
        Format of the file that `write` of the result writes, see `write_judgments`: "trec", "opensearch", "quepid" and
        others; by default, that of the file's ending.
    columns, on_bad_line, progress
        As in `conversions`, for the log.

    Returns
    -------
    GradedJudgments
        The graded pairs.

    Raises
    ------
    SpecError
        If `grades` is not valid ("bad-grades"), or `value` is no sum of signals of the log ("bad-value",
        "unknown-signal", "missing-log").
    CapabilityError
        If the model has no impressions because it was not fitted on a log ("no-evidence"), or no attractiveness to
        share between groups of queries ("no-attractiveness").
    DataError
        If no pair was shown often enough ("too-few-impressions"), the prior decides the grades of all pairs
        ("graded-by-prior"), or a query has no text of its own ("missing-query-text", "repeated-query-text").

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(queries=5), cs.Uniform(), cs.users.PBM(), 2000, rng=1)
    >>> graded = cs.judgments(cs.fit("PBM", log), grades="quantile:3", min_impressions=20)
    >>> sorted(graded.to_dict()["pairs_by_grade"])
    ['0', '1', '2']
    """
    import pyarrow as pa

    model = open_model(model) if groups is None else share_attractiveness(open_model(model), groups)
    default = VALUE_GRADES if value is not None else COEC_GRADES if isinstance(model, COEC) else DEFAULT_GRADES
    parsed = parse_grades(grades or default)
    texts = None if query_text is None else read_query_texts(query_text, model.vocabulary)
    table, relevance = model.relevance_table(level=level), model.relevance()
    clicked = relevance
    if value is not None:
        worth = conversions_for(value, log, level=level, columns=columns, on_bad_line=on_bad_line, progress=progress)
        table, relevance = expected_value_table(model, worth, level=level)
    order = np.lexsort((-relevance, model.vocabulary.pair_query))  # of the rows of the table
    impressions = np.zeros(len(relevance)) if model.evidence is None else model.evidence.impressions[:-1]
    often = shown_often(model, impressions, min_impressions)
    candidate = often if keep_prior else often & ~graded_by_prior(model, np.zeros(len(relevance), np.int64))
    cuts = _quantile_cuts(relevance[candidate], parsed) if isinstance(parsed, int) else parsed
    grade = _assign_grades(relevance, cuts)
    by_prior = often & graded_by_prior(model, grade)
    keep = often if keep_prior else often & ~by_prior
    if not keep.any():
        raise DataError(
            f"the log must decide the grade of at least one pair: the prior decides those of all {len(keep):,}, most "
            "of which were hardly shown and never clicked. Collect more clicks, or pass keep_prior=True.",
            code="graded-by-prior",
            count=len(keep),
        )
    error = None if model.evidence is None else model.evidence.logit_error.get("relevance")
    scale = np.broadcast_to(model._probability_scale("relevance"), len(relevance) + 1)[:-1]
    weight = np.ones(len(relevance)) if error is None else reliability_weight(clicked / scale, error[:-1])
    clicks, shown = table["clicks"].to_numpy(), table["impressions"].to_numpy()
    with np.errstate(invalid="ignore"):
        rate = clicks / np.where(shown > 0, shown, np.nan)
    origin = np.where(by_prior, "prior", "" if model.evidence is None else "log").astype(object)
    for name, column in (("ctr", rate), ("mean_rank", table["mean_rank"]), ("grade", grade[order])):
        table = table.drop_columns([name]) if name in table.column_names else table
        table = table.append_column(name, column if name == "mean_rank" else pa.array(column))
    table = table.append_column("grade_from", pa.array(origin[order])).append_column("weight", pa.array(weight[order]))
    if texts is not None:
        named = pa.array(texts[model.vocabulary.pair_query[order]])
        table = table.set_column(table.column_names.index("query"), "query", named)
    _warn_of_doubtful_grades(relevance[keep], grade[keep], cuts, is_value=value is not None)
    return GradedJudgments(
        model_title(model),
        table.filter(pa.array(keep[order])),
        cuts,
        int((~often).sum()),
        format,
        model.summary().data,
        left_to_prior=0 if keep_prior else int(by_prior.sum()),
        value=value or "",
    )


def _warn_of_doubtful_grades(
    relevance: Float[np.ndarray, " pair"], grade: Int[np.ndarray, " pair"], cuts: tuple[float, ...], *, is_value: bool
) -> None:
    """Warn if the cut points do not suit the relevance; values may have any size."""
    if not is_value and relevance.max() > 1 and max(cuts, default=2.0) <= 1:
        warnings.warn(
            ClickshiftWarning(
                f"relevance goes up to {relevance.max():.4g} here, so it is not a probability, and cut points up to "
                f"{max(cuts):g} do not suit it. Choose others, or quantile:5.",
                code="relevance-not-a-probability",
                value=float(relevance.max()),
            ),
            stacklevel=3,
        )
    if len(np.unique(grade)) < 2 and len(grade) > 1:
        warnings.warn(
            ClickshiftWarning(
                f"all {len(grade):,} pairs have grade {grade[0]}: relevance is from {relevance.min():.4g} to "
                f"{relevance.max():.4g}, the cut points are {_list_cuts(cuts)}. Choose cut points in between, or "
                "quantile:5.",
                code="single-grade",
                grade=int(grade[0]),
                count=len(grade),
                low=float(relevance.min()),
                high=float(relevance.max()),
            ),
            stacklevel=3,
        )


def parse_grades(text: str) -> tuple[float, ...] | int:
    """Parse cut points, or the number of grades of equal size.

    Parameters
    ----------
    text
        Ascending cut points, e.g. "0.05,0.1,0.2,0.4", or "quantile:N" for N grades of equal size.

    Returns
    -------
    tuple of float, or int
        The cut points, or the number of grades.

    Raises
    ------
    SpecError
        If the text is neither ("bad-grades").

    Examples
    --------
    >>> parse_grades("0.1,0.4"), parse_grades("quantile:5")
    ((0.1, 0.4), 5)
    """
    problem = SpecError(
        f"grades must be ascending cut points such as {DEFAULT_GRADES}, or quantile:N for N grades of equal size, N "
        f"from 2 to {_MAX_GRADES}: got {text!r}.",
        code="bad-grades",
        value=text,
    )
    kind, colon, number = text.partition(":")
    if colon:
        if kind.strip() != "quantile" or not number.strip().isdecimal() or not 2 <= int(number) <= _MAX_GRADES:
            raise problem
        return int(number)
    try:
        cuts = tuple(float(cut) for cut in text.split(","))
    except ValueError:
        raise problem from None
    if not all(map(math.isfinite, cuts)) or list(cuts) != sorted(set(cuts)) or len(cuts) >= _MAX_GRADES:
        raise problem
    return cuts


def _assign_grades(relevance: Float[np.ndarray, " pair"], cuts: tuple[float, ...]) -> Int[np.ndarray, " pair"]:
    """Grade of each pair: the number of cut points that its relevance reaches.

    >>> _assign_grades(np.array([0.05, 0.1, 0.5]), (0.1, 0.4)).tolist()
    [0, 1, 2]
    """
    grade: np.ndarray = np.searchsorted(np.array(cuts), relevance, side="right")
    return grade


def _quantile_cuts(relevance: Float[np.ndarray, " pair"], grades: int) -> tuple[float, ...]:
    """Cut points for grades of equal size; fewer where ties in relevance would leave a grade empty."""
    grade, order = quantile_grades(relevance, grades, by="highest"), np.argsort(relevance)
    first = np.unique(grade[order], return_index=True)[1]
    cuts = relevance[order][first[1:]]
    if len(cuts) < grades - 1:
        warnings.warn(
            ClickshiftWarning(
                f"there are {len(cuts) + 1} grades instead of {grades}: many pairs have the same relevance.",
                code="fewer-grades",
                count=len(cuts) + 1,
                expected=grades,
            ),
            stacklevel=3,
        )
    return tuple(cuts.tolist())


def _list_cuts(cuts: tuple[float, ...]) -> str:
    """List cut points as text."""
    return ", ".join(f"{cut:.4g}" for cut in cuts) or "none"
