"""Figures 1 to 5 of the off-policy paper, with the published numbers beside ours.

The paper's log is that of a Kaggle challenge, which is not part of this package. Without it, the figures are made from
a simulated log whose ranker drifts from day to day; `kaggle_command` makes them from the file of the challenge.

References
----------
Li, S. et al. (2018). Offline evaluation of ranking policies with click models. KDD.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from clickshift.display.document import Document, Section
from clickshift.display.tables import Rows
from clickshift.experiments._backtest_figures import click_figure, error_figures, figure_sections
from clickshift.experiments._backtest_report import BacktestResult
from clickshift.experiments._off_policy_numbers import (
    bound_counterexample,
    bound_rows,
    compare_with_published,
    kaggle_command,
    published_numbers,
)
from clickshift.experiments._protocol_settings import protocol_fields, shown_settings
from clickshift.experiments.backtest import Backtest
from clickshift.experiments.experiment import Experiment, ExperimentResult
from clickshift.simulation.drifting_log import DriftingLog

FIRST, NEXT, SINGLE = "most frequent", "less frequent", "single query"
"""Groups of queries, by what they are in the paper."""
_FIGURES: dict[int, tuple[str, str, tuple[str, ...]]] = {
    1: ("Prediction errors on one query by clipping constant M", SINGLE, ("clicks@2", "clicks@3", "dcg")),
    2: ("Prediction errors on the most frequent queries by M", FIRST, ("clicks@2", "clicks@3", "dcg")),
    3: ("Prediction errors on less frequent queries by M", NEXT, ("clicks@2", "clicks@3", "dcg")),
    4: ("Prediction errors for clicks at all ranks by M", FIRST, ("clicks",)),
    5: ("Clicks of one query by day", SINGLE, ()),
}
"""Title, group of queries and rewards of each figure."""
_RANKS = {"clicks@2": 2, "clicks@3": 3, "clicks": 10}
_CLIPS = (1.0, 5.0, 100.0)
_TEXT_NUMBERS = (
    'Every number that the paper reports of this figure, and the same quantity of our log. "Direction" says whether '
    "the improvement has the sign that the paper reports. The logs differ, so the sizes do, too."
)
_TEXT_BOUND = (
    "Deviation term of theorems 4.5 and 4.6 with probability .95 for the paper's illustrative query: as printed, "
    "2 K sqrt(ln(4 / delta) / (2 n)), and with the range K M of the clipped sum, which Hoeffding's inequality needs. "
    "Where it exceeds the largest reward, K, the bound says nothing."
)


@dataclass(frozen=True)
class BacktestTask:
    """Task: the backtest of one reward on a simulated drifting log.

    Parameters
    ----------
    log
        The simulated log.
    backtest
        The backtest, of one reward.
    """

    log: DriftingLog
    backtest: Backtest

    @property
    def name(self) -> str:
        """Name of the task in progress messages."""
        return f"backtest of {' and '.join(self.backtest.tasks)}"

    def rows(self) -> list[dict[str, Any]]:
        """Compute errors (kind "error"), and clicks of the single query by day (kind "day")."""
        return backtest_rows(self.backtest.on(_draw(self.log)))


@lru_cache(maxsize=1)
def _draw(log: DriftingLog) -> Any:
    """Draw a log, once for the tasks that follow each other."""
    return log.draw()


def backtest_rows(result: BacktestResult) -> list[dict[str, Any]]:
    """Return what the figures need of a backtest: errors by group, and clicks of the single query by day.

    Parameters
    ----------
    result
        A backtest.
    """
    names = list(result.groups)
    kinds = {names[0]: FIRST, names[-1]: SINGLE} | ({names[1]: NEXT} if len(names) > 2 else {})
    rows = [
        row | {"kind": "error", "group": kinds[row["group"]], "queries_named": row["group"]} for row in result.rows()
    ]
    query = int(result.groups[names[-1]][0])
    clicks = zip(result.days, result.first_clicks[query], result.all_clicks[query], result.sessions[query], strict=True)
    for day, first, every, sessions in clicks:
        values = {"first_clicks": float(first), "all_clicks": float(every), "sessions": int(sessions)}
        rows.append({"kind": "day", "group": SINGLE, "queries_named": names[-1], "day": day, **values})
    return rows


@dataclass(frozen=True)
class OffPolicyFigure(Experiment["OffPolicyFigureResult"]):
    """A figure of the off-policy paper, from a simulated log.

    Parameters
    ----------
    figure
        Number of the figure, from 1 to 5.
    log
        The simulated log.
    queries, down_to
        Number of most frequent queries, and frequency rank of the last of the less frequent ones, as in `Backtest`.

    Examples
    --------
    >>> [task.name for task in OffPolicyFigure(4).tasks()]
    ['backtest of clicks']
    """

    figure: int
    log: DriftingLog = field(default_factory=DriftingLog)
    queries: int = 100
    down_to: int = 1000

    def tasks(self) -> Sequence[BacktestTask]:
        """Return a task for each reward of the figure; figure 5 needs no estimates, so the cheapest one."""
        rewards = _FIGURES[self.figure][2] or ("clicks@2",)
        sizes: dict[str, Any] = {"queries": self.queries, "down_to": self.down_to, "seed": self.log.seed}
        return [BacktestTask(self.log, Backtest((reward,), **sizes)) for reward in rewards]

    def result(self, rows: Rows, settings: Mapping[str, Any], failures: tuple[str, ...] = ()) -> OffPolicyFigureResult:
        """Make the result of the rows of finished tasks."""
        return OffPolicyFigureResult(rows, settings, failures, self.figure)

    def sources(self) -> dict[str, Any]:
        """Return where the log comes from."""
        return {"log": str(self.log), "the paper's log": kaggle_command(self.figure)}


@dataclass(frozen=True, repr=False)
class OffPolicyFigureResult(ExperimentResult):
    """A figure of the off-policy paper, with the published numbers beside ours.

    Parameters
    ----------
    task_rows
        Errors by reward, group, estimator and clipping constant, and clicks by day.
    settings
        Settings of the run, which end the page.
    failures
        Messages of the tasks that failed.
    number
        Number of the figure.

    Notes
    -----
    Facts (`to_dict`, `--json`): `conclusion`; `rows`, of kind "error" (`task`, `group`, `estimator`, `M`, `rmse`) and
    "day" (`day`, `first_clicks`, `all_clicks`, `sessions`); `published`, one row per number of the paper: `figure`,
    `reward`, `quantity`, `published`, `ours` and `direction`; `bound`, the deviation of theorems 4.5 and 4.6, `printed`
    and `corrected`, by reward and M; `command`, which makes the figure from the paper's log; `failures`.
    """

    number: int = 1

    @property
    def published(self) -> list[dict[str, Any]]:
        """The paper's numbers of the figure, and ours."""
        return compare_with_published(self._errors, self.number, _FIGURES[self.number][1])

    @property
    def bound(self) -> list[dict[str, Any]]:
        """The deviation of theorems 4.5 and 4.6 for a log of the size of the paper's illustrative query."""
        tasks = {row["task"] for row in self._errors}
        ranks = {task: k for task, k in _RANKS.items() if task in tasks}
        return bound_rows(published_numbers()["illustrative_query"]["records"], ranks, _CLIPS)

    @property
    def _errors(self) -> Rows:
        """Rows of errors."""
        return [row for row in self.task_rows if row["kind"] == "error"]

    @property
    def _days(self) -> dict[str, dict[str, Any]]:
        """Rows of clicks, by day: every task has the same ones."""
        return {row["day"]: row for row in self.task_rows if row["kind"] == "day"}

    def _answer(self) -> str:
        if self.number == 5:
            days = self._days.values()
            first, every = (_range(row[name] for row in days) for name in ("first_clicks", "all_clicks"))
            text = f"Between days, clicks of one query at rank 1 range from {first}, at all ranks from {every}"
            paper = "the published ones at rank 1 drop between days 3 and 5, and those at all ranks do not"
            return f"{text}; {paper}.\n\n{self._log_sentence}"
        lines = [line for line in self.published if line["direction"]]
        same = sum(line["direction"] == "same" for line in lines)
        text = f"{same} of {len(lines)} published improvements have the same direction on our log, which is simulated."
        return f"{text}\n\n{self._log_sentence}"

    @property
    def _log_sentence(self) -> str:
        return f"The logs differ, and so do the numbers. On the paper's log: {kaggle_command(self.number)}"

    def facts(self) -> Mapping[str, Any]:
        """Return the conclusion, the rows, the published numbers, the bound, the command and the failures."""
        return {
            **super().facts(),
            "rows": [row | {"M": "inf"} if row.get("M") == math.inf else row for row in self.task_rows],
            "published": self.published,
            "bound": self.bound,
            "command": kaggle_command(self.number),
        }

    def _document(self) -> Document:
        title, group, _ = _FIGURES[self.number]
        sections = []
        if published := self.published:
            lines = [{name: value for name, value in line.items() if name != "figure"} for line in published]
            sections.append(Section("Published and ours", table=lines, caption=_TEXT_NUMBERS, name="published"))
        if self.number == 5:
            (headline,) = figure_sections(click_figure("One query", list(self._days.values())))
            table = [
                {"day": day, "clicks at rank 1": row["first_clicks"], "clicks at all ranks": row["all_clicks"]}
                for day, row in self._days.items()
            ]
            headline = replace(headline, table=table)
        else:
            shown = [row for row in self._errors if row["group"] == group]
            headline, *others = figure_sections(error_figures(shown))
            if others:
                sections.append(Section(f"{title}: other rewards", parts=others))
        if self.bound:
            example = bound_counterexample()
            text = (
                f"{_TEXT_BOUND} Counterexample: with K = 1, M = 100, pi = .01, h = 1 and n = 100, the printed "
                f"one-sided deviation {example['deviation']:.3f} is exceeded with probability "
                f"{example['exceeded']:.3f} instead of {example['allowed']:.3f}."
            )
            table = [row | {"M": f"{row['M']:g}"} for row in self.bound]
            sections.append(Section("Theorems 4.5 and 4.6", table=table, caption=text, name="bound"))
        heading = f"Figure {self.number} of Li et al. (2018): {title[0].lower()}{title[1:]}"
        lines = [line for line in self.published if line["direction"]]
        verdict = "agrees" if all(line["direction"] == "same" for line in lines) else "differs"
        return Document(
            heading,
            self.conclusion,
            sections,
            shown_settings(self.settings),
            verdict=verdict if lines else "",
            data=self._data,
            headline=headline,
        )

    @property
    def _data(self) -> str:
        """What the log was, in one line."""
        fields = protocol_fields(str(self.settings.get("protocol", "")))
        if "log: sessions" not in fields:
            return "A simulated log whose ranker drifts from day to day."
        return (
            f"{fields['log: sessions']} simulated sessions of {fields['log: queries']} queries over "
            f"{fields['log: days']} days, whose ranker drifts from day to day."
        )


def _range(values: Any) -> str:
    """Format the least and the largest of some numbers."""
    finite = [value for value in values if not math.isnan(value)]
    return f"{min(finite):.2f} to {max(finite):.2f}"
