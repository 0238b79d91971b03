"""The result of a backtest: errors of the estimators about past days, as a conclusion, tables and charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.core.rng import generator
from clickshift.data.sessions import Sessions
from clickshift.display.document import Document, Section
from clickshift.display.export import Written
from clickshift.display.result import Result
from clickshift.display.tables import Row, Rows, write_rows
from clickshift.errors import DataError, SpecError
from clickshift.experiments._backtest_figures import (
    Lines,
    click_figure,
    error_figures,
    figure_sections,
    line_figure,
    lines_by_day,
    residual_range,
)
from clickshift.experiments._off_policy_numbers import compare_with_published, published_numbers
from clickshift.ope.estimators import clip_text

DAYS, RANDOM, IN_ORDER = "days", "random parts", "parts in order"
_MIN_QUERIES = 10
"""Smallest number of queries for a bootstrap interval over queries."""
_TITLE = "Backtest: error of off-policy evaluation on past days"
_STRUCTURED = ("IP", "PBM", "Item")
"""Estimators that assume a click model."""
_BASELINES = ("List", "RCTR")
_TEXT = """Each day in turn is treated as the day of a new policy: its list frequencies are the target, its mean reward
is the truth, and the estimators see all other days. The error is the root mean square error over queries and days,
where each pair counts once, whatever its traffic (Li et al. 2018, section 6). The estimator and its clipping constant M
were chosen on the same days: expect slightly larger errors on future days."""
_TEXT_GAINS = """The structured estimator (IP, PBM or Item) with the smallest error, compared with List, which makes no
assumption about clicks, and RCTR, which assumes that all policies earn the same; each with its best M. With 95 %
bootstrap intervals over queries, for at least 10 queries."""
_TEXT_ERRORS = """Error by clipping constant M. A line far above the others is outside the chart; the legend then gives
its smallest value."""
_TEXT_DAYS = """Estimated minus earned reward of each day, averaged over queries; each estimator with its best M. An
estimator that is wrong on a few days has not seen the lists of those days; one that is always wrong in the same
direction is biased."""
_TEXT_QUERY = """One query by day. Where clicks at the first rank change and clicks at all ranks do not, users found
good results elsewhere in the list, and RCTR is hard to beat for clicks at all ranks (section 6.5)."""
_TEXT_PUBLISHED = """Numbers that Li et al. (2018, sections 6.2 to 6.5) report of the Yandex log, and the same
quantities of this log: figure 1 is of query 11655238, figures 2 and 4 of the 100 most frequent queries, figure 3 of the
next 900. "Direction" says whether an improvement has the sign that the paper reports."""


@final
@dataclass(frozen=True, eq=False)
class Residuals:
    """Truth and estimates of one estimator on one task.

    Parameters
    ----------
    task
        Name of the reward.
    estimator
        Name of the estimator.
    clip
        Clipping constants.
    actual
        Mean reward of each day; NaN where the day, or all other days, have no session of the query.
    estimated
        The same, estimated from the other days.
    no_overlap
        Where no list of the day was logged on other days, so that the estimate is 0.
    """

    task: str
    estimator: str
    clip: tuple[float, ...]
    actual: Float[np.ndarray, "query day"]
    estimated: Float[np.ndarray, "query day clip"]
    no_overlap: Bool[np.ndarray, "query day"]

    @property
    def used(self) -> Bool[np.ndarray, "query day"]:
        """Pairs of a query and a day that can be compared."""
        used: np.ndarray = ~np.isnan(self.actual)
        return used

    def squared(self, queries: Int[np.ndarray, " chosen"]) -> Float[np.ndarray, "chosen clip"]:
        """Return the sum over days of the squared errors of each query."""
        error = self.estimated[queries] - self.actual[queries][:, :, None]
        squared: np.ndarray = np.nansum(error**2, axis=1)
        return squared

    def rmse(self, queries: Int[np.ndarray, " chosen"]) -> Float[np.ndarray, " clip"]:
        """Return the root mean square error over all usable pairs of a query and a day, unweighted by traffic."""
        pairs = int(self.used[queries].sum())
        total: np.ndarray = self.squared(queries).sum(axis=0)
        return np.sqrt(total / pairs) if pairs else np.full(len(self.clip), np.nan)


@final
@dataclass(frozen=True, eq=False, repr=False)
class BacktestResult(Result):
    """Result of a backtest.

    Parameters
    ----------
    log
        Sessions of the compared queries.
    days
        Names of the days or parts.
    split
        How the log was divided: `DAYS`, `RANDOM` or `IN_ORDER` parts.
    groups
        Numbers of the queries of each group, by name: the most frequent ones, possibly the next ones, and the single
        one.
    sessions
        Number of sessions.
    first_clicks
        Clicks at the first rank per session; NaN on days without sessions.
    all_clicks
        Clicks at all ranks per session; NaN on days without sessions.
    residuals
        Truth and estimates, by task, then by estimator.
    seed
        Random seed of the intervals.
    settings
        The log and the options of the backtest.

    Notes
    -----
    `to_dict` holds:

    - conclusion: the estimators with the least error, and how far below those of the baselines it is.
    - rows: one per task, group, estimator and clipping constant M ("inf" for no clipping): rmse, and the numbers of
      queries, of pairs of a query and a day, and of those dropped and without overlap.
    - days: actual and estimated reward and residual by task, group, estimator and day.
    - chosen: the row with the least error among the most frequent queries, by task.
    """

    log: Sessions
    days: tuple[str, ...]
    split: str
    groups: Mapping[str, Int[np.ndarray, " _"]]
    sessions: Float[np.ndarray, "query day"]
    first_clicks: Float[np.ndarray, "query day"]
    all_clicks: Float[np.ndarray, "query day"]
    residuals: tuple[Residuals, ...]
    seed: int
    settings: Mapping[str, Any]

    @property
    def conclusion(self) -> str:
        """The recommended estimators, and the results for the most frequent queries."""
        return _conclusion(self)

    @property
    def is_yandex(self) -> bool:
        """Whether the log is the paper's, so that its published numbers are of interest."""
        return self.settings.get("format") == "yandex-kaggle"

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the rewards."""
        return tuple(dict.fromkeys(r.task for r in self.residuals))

    @property
    def estimators(self) -> tuple[str, ...]:
        """Names of the estimators."""
        return tuple(dict.fromkeys(r.estimator for r in self.residuals))

    def rows(self) -> Rows:
        """Return pooled errors: one row per task, group, estimator and clipping constant."""
        return self._rows

    def facts(self) -> Mapping[str, Any]:
        """Return the conclusion, the errors, the residuals by day, and the chosen estimators."""
        return {
            "conclusion": self.conclusion,
            "rows": list(map(_finite_clip, self._rows)),
            "days": list(map(_finite_clip, self.day_rows)),
            "chosen": {task: _finite_clip(self.choice(task)) for task in self.tasks},
        }

    def _document(self) -> Document:
        return _backtest_document(self)

    def write(self, path: str | Path) -> Written:
        """Write the result as `Result.write` does; to a folder also queries.parquet and days.parquet.

        Parameters
        ----------
        path
            A page (.html), or a folder.

        Returns
        -------
        Written
            Paths of what was written.
        """
        written = super().write(path)
        if written.rows is not None:
            write_rows(self.query_rows, Path(path) / "queries.parquet")
            write_rows(self.day_rows, Path(path) / "days.parquet")
        return written

    @cached_property
    def _rows(self) -> Rows:
        """Pooled errors."""
        rows = []
        for r in self.residuals:
            for group, queries in self.groups.items():
                used = int(r.used[queries].sum())
                counts = {
                    "queries": len(queries),
                    "pairs": used,
                    "pairs_dropped": len(queries) * len(self.days) - used,
                    "pairs_without_overlap": int(r.no_overlap[queries].sum()),
                    "split": self.split,
                }
                setting = {"task": r.task, "group": group, "estimator": r.estimator}
                for clip, rmse in zip(r.clip, r.rmse(queries).tolist(), strict=True):
                    rows.append({**setting, "M": clip, "rmse": rmse, **counts})
        return rows

    @property
    def query_rows(self) -> Rows:
        """Errors of single queries: one row per task, query, estimator and clipping constant."""
        names = self.log.vocabulary.query_ids.tolist()
        sessions = self.sessions.sum(axis=1).astype(int).tolist()
        rows = []
        for r in self.residuals:
            pairs = r.used.sum(axis=1)
            with np.errstate(invalid="ignore", divide="ignore"):
                rmse = np.sqrt(r.squared(np.arange(len(names))) / pairs[:, None])
            for q, (errors, used) in enumerate(zip(rmse.tolist(), pairs.tolist(), strict=True)):
                setting = {"task": r.task, "query": str(names[q]), "estimator": r.estimator}
                counts = {"sessions": sessions[q], "pairs": used, "pairs_dropped": len(self.days) - used}
                rows += [
                    {**setting, "M": clip, "rmse": error, **counts} for clip, error in zip(r.clip, errors, strict=True)
                ]
        return rows

    @property
    def day_rows(self) -> Rows:
        """Truth and estimates by day: means over a group's queries, each estimator with its best clipping constant."""
        rows = []
        for r in self.residuals:
            for group, queries in self.groups.items():
                best, used = _argmin(r.rmse(queries)), r.used[queries]
                pairs = used.sum(axis=0)
                with np.errstate(invalid="ignore", divide="ignore"):
                    means = [
                        np.nansum(x, axis=0) / pairs for x in (r.actual[queries], r.estimated[queries][:, :, best])
                    ]
                setting = {"task": r.task, "group": group, "estimator": r.estimator, "M": r.clip[best]}
                for d in np.flatnonzero(pairs):
                    actual, estimated = (float(x[d]) for x in means)
                    values = {"actual": actual, "estimated": estimated, "residual": estimated - actual}
                    rows.append({**setting, "day": self.days[d], **values, "pairs": int(pairs[d])})
        return rows

    def choice(self, task: str, group: str | None = None) -> dict[str, Any]:
        """Return the row of the estimator and clipping constant with the smallest pooled error; the first of equals.

        Parameters
        ----------
        task
            Name of the reward.
        group
            Name of the group; by default that of the most frequent queries.

        Raises
        ------
        SpecError
            If the backtest does not have this task or group ("unknown-name").
        DataError
            If no query of the group has sessions on two days ("no-overlap").
        """
        group = next(iter(self.groups)) if group is None else group
        rows = [row for row in self._rows if row["task"] == task and row["group"] == group]
        if not rows:
            raise SpecError(
                f"the backtest must have the task and the group: got {task!r} and {group!r}. Choose a task of "
                f"{', '.join(self.tasks)} and a group of {', '.join(self.groups)}.",
                code="unknown-name",
                task=task,
                group=group,
            )
        if all(math.isnan(row["rmse"]) for row in rows):
            raise DataError(
                f"nothing of {group} can be compared: no query has sessions on two {self.split}.",
                code="no-overlap",
                group=group,
            )
        return min(rows, key=lambda row: row["rmse"])

    def gain(
        self, task: str, group: str, estimator: str, baseline: str, *, replicates: int = 2000
    ) -> tuple[float, float, float]:
        """Return the relative error reduction of an estimator over a baseline, each with its best clipping constant.

        Parameters
        ----------
        task
            Name of the reward.
        group
            Name of the group of queries.
        estimator, baseline
            Names of estimators.
        replicates
            Number of bootstrap replicates.

        Returns
        -------
        tuple of float
            The reduction as a share of the baseline's error, and a 95 % bootstrap interval over queries; the interval
            is NaN for fewer than 10 queries.
        """
        queries = self.groups[group]
        squares = []
        for r in (self.residuals_for(task, estimator), self.residuals_for(task, baseline)):
            squares.append(r.squared(queries)[:, _argmin(r.rmse(queries))])
        with np.errstate(invalid="ignore", divide="ignore"):
            value = float(1 - np.sqrt(squares[0].sum() / squares[1].sum()))
            if len(queries) < _MIN_QUERIES:
                return value, math.nan, math.nan
            resampled = _resampled(self.seed, len(queries), replicates)
            low, high = np.quantile(1 - np.sqrt(resampled @ squares[0] / (resampled @ squares[1])), [0.025, 0.975])
        return value, float(low), float(high)

    def residuals_for(self, task: str, estimator: str) -> Residuals:
        """Return truth and estimates of one estimator on one task; raise a SpecError ("unknown-name") for others."""
        for r in self.residuals:
            if (r.task, r.estimator) == (task, estimator):
                return r
        raise SpecError(
            f"the backtest must have the task and the estimator: got {task!r} and {estimator!r}. Choose a task of "
            f"{', '.join(self.tasks)} and an estimator of {', '.join(self.estimators)}.",
            code="unknown-name",
            task=task,
            estimator=estimator,
        )


@lru_cache(maxsize=2)
def _resampled(seed: int, n_queries: int, replicates: int) -> Int[np.ndarray, "replicate query"]:
    """Return how often each query is in each bootstrap replicate, which is the same for all gains."""
    rng = generator(seed, "backtest", "gain")
    resampled: np.ndarray = rng.multinomial(n_queries, np.full(n_queries, 1 / n_queries), replicates)
    return resampled


def _finite_clip(row: Mapping[str, Any]) -> dict[str, Any]:
    """Write an infinite clipping constant as text: JSON has no infinity."""
    return {**row, "M": "inf" if math.isinf(row["M"]) else row["M"]}


def _argmin(values: Float[np.ndarray, " clip"]) -> int:
    """Return the index of the smallest value, the first of equals; 0 if all are NaN."""
    return 0 if np.isnan(values).all() else int(np.nanargmin(values))


def _backtest_document(result: BacktestResult) -> Document:
    """Return the document of a backtest: gains, errors by clipping constant, residuals by day, and a single query."""
    rows, days = result.rows(), result.day_rows
    gains = _gain_table(result)
    title = f"Backtest by {result.split}: root mean squared errors"
    sections = [Section(title, table=gains, caption=_TEXT_GAINS, name="gains", page_only=not gains)]
    if result.is_yandex:
        published = _published_table(result)
        sections.append(Section("Comparison with the published numbers", _TEXT_PUBLISHED, published, name="published"))
    parts = {
        "Day by day": (_TEXT_DAYS, _day_figures(result, days)),
        "Errors": (_TEXT_ERRORS, error_figures(rows)),
        "A single query": (_TEXT_QUERY, _query_figures(result, days)),
    }
    sections += [
        Section(name, text, parts=figure_sections(figures), page_only=True) for name, (text, figures) in parts.items()
    ]
    sections.append(Section("Errors in numbers", table=_error_table(result), name="errors", page_only=bool(gains)))
    sections.append(Section("How errors are measured", _TEXT, page_only=True, folded=True))
    sections = [section for section in sections if section.table or section.parts or section.text == _TEXT]
    return Document(
        _TITLE, result.conclusion, sections, result.settings, data=_data(result), headline=_headline(result, days)
    )


def _headline(result: BacktestResult, days: Sequence[Row]) -> Section:
    """Return the chart of what days earned beside what the best estimator, and the log's mean, predicted for them."""
    task, group, unit = result.tasks[0], next(iter(result.groups)), _DAY_NAMES[result.split][1]
    best = str(result.choice(task)["estimator"])
    predicted = lines_by_day(days, task, group, "estimated")
    actual = next(iter(lines_by_day(days, task, group, "actual").values()), ([], []))
    kept = [best, *(name for name in ("RCTR",) if name in predicted and name != best)]
    lines: Lines = {"earned": actual, **{name: predicted[name] for name in kept}}
    axes = {"xaxis": {"title": unit}, "yaxis": {"title": f"{task} per session"}}
    caption = f"{task} of {group} by {unit}: earned, and predicted from all other {_DAY_NAMES[result.split][0]}"
    caption += (
        f" by {best}, which came closest{', and by RCTR, which predicts no difference' if len(kept) > 1 else ''}."
    )
    figure = partial(line_figure, "", lines, axes, residual_range(lines))
    return Section("Predicted and earned", figure=figure, caption=caption, name="predicted and earned", page_only=True)


def _data(result: BacktestResult) -> str:
    """Return what was compared, in one line."""
    group = next(iter(result.groups))
    first = next(row for row in result.rows() if row["group"] == group)
    about = f"{_counted(first['queries'], 'query', 'queries')} on {len(result.days)} {_DAY_NAMES[result.split][0]}"
    dropped = (
        f", {first['pairs_dropped']:,} dropped because the query has no session in that "
        f"{_DAY_NAMES[result.split][1]}, or none in the others"
        if first["pairs_dropped"]
        else ""
    )
    return f"Compared: {about}, {first['pairs']:,} pairs{dropped}."


def _conclusion(result: BacktestResult) -> str:
    """Return the recommended estimators, and the results for the most frequent queries.

    Paragraphs are separated by empty lines.
    """
    group = next(iter(result.groups))
    tasks = result.tasks
    chosen = [result.choice(task, group) for task in tasks]
    listed = "; ".join(f"{row['task']}, {_with_clip(row)}: {row['rmse']:.3g}" for row in chosen)
    unit = _DAY_NAMES[result.split][0]
    paragraphs = [f"Least error on {unit} that the estimator did not see: {listed} per session."]
    if result.split != DAYS:
        paragraphs.append(_NOTE_PARTS + (_NOTE_RANDOM if result.split == RANDOM else ""))
    for baseline in _BASELINES:
        gains = [text for task in tasks if (text := _gain_text(result, task, group, baseline))]
        if gains:
            paragraphs.append(f"Structured estimators against {baseline}: {'; '.join(gains)}.")
    return "\n\n".join(paragraphs)


_DAY_NAMES = {DAYS: ("days", "day"), RANDOM: ("random parts", "part"), IN_ORDER: ("parts in order", "part")}
"""Plural and singular of what the log was divided into."""
_NOTE_PARTS = "Parts of each query's sessions take the place of days."
_NOTE_RANDOM = (
    " Nothing drifts between random parts, so that the target equals the logging policy up to sampling error: RCTR is "
    "right by design, and the test measures the variance of an estimator, not its error for a new ranker."
)


def _gain_text(result: BacktestResult, task: str, group: str, baseline: str) -> str:
    """Describe the error reduction of the best structured estimator over a baseline; "" if there is none."""
    best = _best_structured(result, task, group)
    if best is None or baseline not in result.estimators:
        return ""
    value, low, high = result.gain(task, group, best["estimator"], baseline)
    if math.isnan(value):
        return ""
    not_significant = ", not significant" if low <= 0 <= high else ""
    side = "below" if value >= 0 else "above"
    value, low, high = (value, low, high) if value >= 0 else (-value, -high, -low)
    interval = "" if math.isnan(low) else f" ({_percents(low, high)})"
    return f"{task}, {best['estimator']} is {100 * value:.0f} % {side}{interval}{not_significant}"


def _best_structured(result: BacktestResult, task: str, group: str) -> dict[str, Any] | None:
    """Return the row of the structured estimator with the smallest error."""
    rows = [row for row in result.rows() if (row["task"], row["group"]) == (task, group)]
    rows = [row for row in rows if row["estimator"] in _STRUCTURED and not math.isnan(row["rmse"])]
    return min(rows, key=lambda row: float(row["rmse"]), default=None)


def _gain_table(result: BacktestResult) -> list[dict[str, Any]]:
    """Return the error reduction of the best structured estimator over the baselines, by group and task."""
    table = []
    baselines = [name for name in _BASELINES if name in result.estimators]
    for group, queries in result.groups.items():
        for task in result.tasks:
            best = _best_structured(result, task, group)
            if best is None:
                continue
            line: dict[str, Any] = {"queries": group, "reward": task, "best structured": _with_clip(best)}
            line["its RMSE"] = best["rmse"]
            for baseline in baselines:
                value, low, high = result.gain(task, group, best["estimator"], baseline)
                line[f"RMSE of {baseline}"] = float(result.residuals_for(task, baseline).rmse(queries).min())
                line[f"below {baseline}"] = f"{100 * value:.1f} %" + (
                    "" if math.isnan(low) else f" ({_percents(low, high)})"
                )
            line |= {"pairs": best["pairs"], "dropped": best["pairs_dropped"]}
            table.append(line)
    return table


def _published_table(result: BacktestResult) -> list[dict[str, Any]]:
    """Return the published numbers of figures 1 to 4 beside those of this log.

    The single query is compared with the published one only if it is the same.
    """
    names = list(result.groups)
    groups = {2: names[0], 3: names[1] if len(names) > 2 else "", 4: names[0]}
    if names[-1] == f"query {published_numbers()['illustrative_query']['id']}":
        groups[1] = names[-1]
    return [line for figure in sorted(groups) for line in compare_with_published(result.rows(), figure, groups[figure])]


def _error_table(result: BacktestResult) -> list[dict[str, Any]]:
    """Return smallest error, error at the largest M, and pairs without overlap, by group, task and estimator."""
    table = []
    for group, queries in result.groups.items():
        for r in result.residuals:
            error = r.rmse(queries)
            best = 0 if np.isnan(error).all() else int(np.nanargmin(error))
            table.append(
                {
                    "queries": group,
                    "reward": r.task,
                    "estimator": r.estimator,
                    "best M": clip_text(r.clip[best]),
                    "RMSE": float(error[best]),
                    f"at M = {clip_text(r.clip[-1])}": float(error[-1]),
                    "pairs": int(r.used[queries].sum()),
                    "without overlap": int(r.no_overlap[queries].sum()),
                }
            )
    return table


def _day_figures(result: BacktestResult, days: Sequence[Row]) -> dict[str, Any]:
    """Plot residuals by day, averaged over the most frequent queries."""
    group, figures = next(iter(result.groups)), {}
    for task in result.tasks:
        title, lines = f"{task}, {group}: estimate minus truth", lines_by_day(days, task, group, "residual")
        axes = {"xaxis": {"title": _DAY_NAMES[result.split][1]}, "yaxis": {"title": "residual", "zeroline": True}}
        figures[title] = partial(line_figure, title, lines, axes, residual_range(lines))
    return figures


def _query_figures(result: BacktestResult, days: Sequence[Row]) -> dict[str, Any]:
    """Plot clicks of the single query at the first and at all ranks, and its estimates by day (figure 5)."""
    group = list(result.groups)[-1]
    query = int(result.groups[group][0])
    axes = {"xaxis": {"title": _DAY_NAMES[result.split][1]}, "yaxis": {"title": "per session"}}
    columns = zip(result.days, result.first_clicks[query].tolist(), result.all_clicks[query].tolist(), strict=True)
    clicks = [{"day": day, "first_clicks": first, "all_clicks": every} for day, first, every in columns]
    figures = click_figure(group, clicks, _DAY_NAMES[result.split][1])
    for task in result.tasks:
        selected = [row for row in days if (row["task"], row["group"]) == (task, group)]
        first = [row for row in selected if row["estimator"] == result.estimators[0]]
        truth: Lines = {"earned": ([row["day"] for row in first], [row["actual"] for row in first])}
        lines, title = truth | lines_by_day(days, task, group, "estimated"), f"{group}: {task}"
        figures[title] = partial(
            line_figure, title, lines, axes | {"yaxis": {"title": f"{task} per session"}}, residual_range(lines)
        )
    return figures


def _with_clip(row: Row) -> str:
    """Return the name of an estimator with its clipping constant; RCTR has none."""
    return str(row["estimator"]) if row["estimator"] == "RCTR" else f"{row['estimator']}, M = {clip_text(row['M'])}"


def _percents(low: float, high: float) -> str:
    """Format an interval of shares in percent."""
    return f"{round(100 * low)} to {round(100 * high)} %"


def _counted(number: int, one: str, many: str) -> str:
    """Format a number with the singular or plural of a noun."""
    return f"{number:,} {one if number == 1 else many}"
