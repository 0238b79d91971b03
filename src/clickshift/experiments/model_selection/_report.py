"""The result of the model-selection protocol: regret of each strategy, and R2 of predicting ood perplexity."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from clickshift.display.document import Document, Section
from clickshift.display.figures import COLOURS
from clickshift.display.tables import Row, Rows
from clickshift.display.values import Measured, measured
from clickshift.experiments._dots import PUBLISHED, grouped_dots
from clickshift.experiments._protocol_settings import few_seeds_note, shown_settings, simulated_data_line
from clickshift.experiments.experiment import ExperimentResult
from clickshift.experiments.model_selection._outcomes import METRIC_COLUMNS, Outcomes
from clickshift.experiments.model_selection.r2 import PREDICTORS, r2_rows
from clickshift.experiments.model_selection.regret import ALL, regret_rows

_TITLE = "Which click model to choose before a new ranker goes live?"
_HOW_REGRET = """Models learned from the log of one policy. A strategy chooses one of them by metrics that are known
before deployment; then another policy is deployed. Regret: perplexity of the chosen model on the new policy's lists
minus that of the best model, times 1000; the mean over users, new policies and all sets of five, six or seven models,
with 95 % confidence intervals over seeds. PPL is the perplexity on held-out sessions; "among top" keeps the best four
models by another metric. Published: Deffayet et al. 2023, table 2, on MSLR-WEB10K. "Best fixed model" is known only in
hindsight; "weighted PPL" requires knowledge of the new policy."""
_HOW_R2 = """All numbers are ours: R2 of predicting a model's perplexity under the new policy from metrics of the
training log. Published protocol: regression trees, two folds, adjusted R2; other seeds of the same model are always in
the training fold. Leave one out: models, or logs, that were not in training; below 0, the mean would have been the
better prediction. Lowest: the lowest R2 of all configurations."""
_HOW_MODELS = """Means over seeds. ood: perplexity on lists of the two other policies. Dependence on the logging policy
given the label: mean dependence (share of variance) and CMIP (nats; by nearest neighbours, and by the published
estimator)."""
_HOW_METRICS = """Each point is one model on one log and new policy, the mean over seeds. Vertical axis: ood perplexity
above that of the best model. A metric is useful for choosing a model if its best values lie at the bottom."""


_REGRESSOR_NAMES = {"tree": "tree", "line": "linear"}
"""Regressors as they are named in headings."""


@dataclass(frozen=True, repr=False)
class ModelSelectionResult(ExperimentResult):
    """What choosing a click model before a new ranker is deployed costs, by strategy.

    Parameters
    ----------
    task_rows
        Tidy rows of the finished tasks.
    settings
        Settings of the run, which end the page.
    failures
        Messages of the tasks that failed; the other tasks are in the rows.
    repeats
        Number of repetitions of the published cross-validation.

    Notes
    -----
    Facts (`to_dict`, `--json`):

    - `conclusion`: the strategies with the lowest regret.
    - `rows`: tidy rows with `user`, `training`, `seed`, `model` and `kind`: metrics known before deployment (kind
      "metrics"), and perplexity under each test policy (kind "clicks").
    - `regret`: one row per strategy, user and training policy ("all" for all of them): `regret` with `low` and `high`,
      and `published_regret`.
    - `r2`: one row per set of metrics, way of splitting and regressor: `r2`, and `least` of all configurations.
    - `failures`: messages of the tasks that failed.
    """

    repeats: int = 1000

    @cached_property
    def regret(self) -> Rows:
        """Regret of each strategy, by user and training policy."""
        return regret_rows(self.task_rows)

    @cached_property
    def r2(self) -> Rows:
        """R2 of predicting ood perplexity from metrics of the training log."""
        return r2_rows(self.task_rows, repeats=self.repeats)

    def _answer(self) -> str:
        note = few_seeds_note(len({row.get("seed", 0) for row in self.task_rows}))
        return "\n\n".join(filter(None, (_summary(self.regret), note)))

    def facts(self) -> Mapping[str, Any]:
        """Return the conclusion, rows, regret, R2 and failures."""
        return {**super().facts(), "regret": self.regret, "r2": self.r2}

    def _document(self) -> Document:
        published = _regret_table(regret_rows(self.task_rows, cmip="published CMIP"), only="CMIP")
        figures = [
            Section(name, figure=figure) for name, figure in _metric_figures(Outcomes.of(self.task_rows)).items()
        ]
        headline = Section(
            "Regret x 1000",
            table=_regret_table(self.regret),
            figure=partial(_total_figure, self.regret),
            name="regret",
            caption=" ".join(_HOW_REGRET.split()),
        )
        sections = [
            Section(
                "Regret by training log",
                figure=partial(_regret_figure, self.regret),
                name="regret by training log",
                page_only=True,
            ),
            Section("Regret by users", table=_regret_by_user(self.regret), page_only=True),
            Section(
                "Regret with the published CMIP estimator",
                table=published,
                name="regret with the published CMIP",
                page_only=True,
                folded=True,
            ),
            Section(
                "Which metrics predict ood perplexity?",
                table=_r2_table(self.r2),
                name="r2",
                caption=" ".join(_HOW_R2.split()),
            ),
            Section("Metrics against ood perplexity", parts=figures, explanation=_HOW_METRICS, page_only=True),
            Section("Models", table=_model_table(self.task_rows), explanation=_HOW_MODELS, page_only=True, folded=True),
        ]
        data = simulated_data_line(self.task_rows, self.settings)
        return Document(_TITLE, self.conclusion, sections, shown_settings(self.settings), data=data, headline=headline)


def _regret_table(regret: Sequence[Row], *, only: str = "") -> list[dict[str, Any]]:
    """Regret by training policy and over all logs, with the published values; the lowest regret first."""
    policies = [*dict.fromkeys(row["training"] for row in regret if row["training"] != ALL), ALL]
    rows = {(row["strategy"], row["training"]): row for row in regret if row["user"] == ALL}
    names = [name for name in _by_regret(regret) if only in name]
    return [
        {"strategy": name}
        | {
            column: value
            for policy in policies
            for column, value in (
                (f"{policy} log" if policy != ALL else "all logs", _measured(rows[name, policy])),
                (f"published, {policy}", _published(rows[name, policy])),
            )
        }
        for name in names
    ]


def _regret_by_user(regret: Sequence[Row]) -> list[dict[str, Any]]:
    """Regret by simulated user, over all training policies."""
    users = [user for user in dict.fromkeys(row["user"] for row in regret) if user != ALL]
    rows = {(row["strategy"], row["user"]): row for row in regret if row["training"] == ALL}
    return [
        {"strategy": name} | {f"{user} users": _measured(rows[name, user]) for user in users}
        for name in _by_regret(regret)
    ]


def _r2_table(r2: Sequence[Row]) -> list[dict[str, Any]]:
    """R2 by set of metrics: the mean over configurations and the lowest, for each way and regressor."""
    everywhere = [row for row in r2 if row["user"] == ALL]
    sets = dict.fromkeys(row["metrics"] for row in everywhere)
    table = []
    for metrics in sets:
        line: dict[str, Any] = {"metrics": metrics}
        for row in (row for row in everywhere if row["metrics"] == metrics):
            name = (
                row["way"]
                if row["way"] == "published protocol"
                else f"{row['way']}, {_REGRESSOR_NAMES[row['regressor']]}"
            )
            line |= {name: float(row["r2"]), f"{name}: lowest": float(row["least"])}
        table.append(line)
    return table


def _model_table(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Metrics and ood perplexities of every model on every log, as means over seeds."""
    logs = dict.fromkeys((row["user"], row["training"], row["model"]) for row in rows)
    table = []
    for user, training, model in logs:
        selected = [row for row in rows if (row["user"], row["training"], row["model"]) == (user, training, model)]
        metrics = [row for row in selected if row["kind"] == "metrics"]
        ood = dict.fromkeys(row["testing"] for row in selected if row["kind"] == "clicks" and row["shift"] == "ood")
        line: dict[str, Any] = {"users": user, "log": training, "model": model}
        for name in ("PPL", "nDCG", "mean dependence", "CMIP", "published CMIP"):
            line[name] = measured([row[METRIC_COLUMNS[name]] for row in metrics])
        for number, policy in enumerate(ood):
            values = [r["perplexity"] for r in selected if r["kind"] == "clicks" and r["testing"] == policy]
            line[f"ood {number + 1}"] = measured(values)
        table.append(line)
    missing = {name: measured([]) for line in table for name in line}  # a damaged task may lack a test log
    return [missing | line for line in table]


def _summary(regret: Sequence[Row]) -> str:
    """The conclusion in a few sentences: the best strategy, and whether metrics of debiasedness helped."""
    total = {row["strategy"]: row for row in regret if row["user"] == ALL and row["training"] == ALL}
    best = next(name for name in _by_regret(regret) if name not in {"best fixed model"})
    without = min(
        (name for name in total if name in {"PPL", "nDCG", "PPL among top nDCG", "nDCG among top PPL"}),
        key=lambda name: total[name]["regret"],
    )
    chance = max(_half_width(total[best]), _half_width(total[without]))
    same = total[without]["regret"] - total[best]["regret"] <= chance
    second = f"“{without}” needs no metric of debiasedness: {_number(total[without])}"
    second += ", which is no difference beyond chance. " if best != without and same else ". "
    return (
        f"Choose the model with “{best}” (lowest regret): under a new ranker its choice is {_number(total[best])} "
        f"thousandths of perplexity worse than the best model, against {_number(total['random model'])} for a model "
        f"chosen at random.\n\n{second if best != without else ''}The best fixed model, known only in hindsight: "
        f"{_number(total['best fixed model'])}."
    )


def _total_figure(regret: Sequence[Row]) -> Any:
    """Plot the lowest regrets over all logs with intervals, a random choice below them, and published values."""
    rows = {row["strategy"]: row for row in regret if (row["user"], row["training"]) == (ALL, ALL)}
    names = _by_regret(regret)
    shown = [*names[:_SHOWN], *(name for name in names[_SHOWN:] if name == "random model")]
    dots = []
    for name in shown:
        row = rows[name]
        dots.append({"label": name, "value": row["regret"], "low": row["low"], "high": row["high"], "from": _OURS})
    for name in shown:
        published = rows[name].get("published_regret")
        if published is not None:
            dots.append({"label": name, "value": published, "low": None, "high": None, "from": PUBLISHED})
    return grouped_dots(dots, axis="regret x 1000 (lower is better)", group="from")


_OURS = "ours, with 95 % interval"
_SHOWN = 7
"""Number of strategies in the first chart, which a phone shows whole; the table has all."""


def _regret_figure(regret: Sequence[Row]) -> Any:
    """Bar chart of regret with confidence intervals over seeds; diamonds mark published values."""
    import plotly.graph_objects as go

    names = _by_regret(regret)[::-1]
    figure = go.Figure()
    policies = [policy for policy in dict.fromkeys(row["training"] for row in regret) if policy != ALL]
    rows = {(row["strategy"], row["training"]): row for row in regret if row["user"] == ALL}
    for i, policy in enumerate(policies):
        selected = [rows[name, policy] for name in names]
        axis = {"y": names, "orientation": "h", "offsetgroup": policy}
        figure.add_bar(
            name=f"{html.escape(policy)} log",
            x=[row["regret"] for row in selected],
            error_x={"type": "data", "array": [_half_width(row) for row in selected], "thickness": 1.5, "width": 3},
            marker={"color": COLOURS[i % len(COLOURS)], "opacity": 0.85},
            text=[str(_measured(row)) for row in selected],
            textposition="none",
            hovertemplate="%{y}: %{text}<extra>%{fullData.name}</extra>",
            **axis,
        )
        figure.add_scatter(
            name="published",
            legendgroup="published",
            showlegend=i == 0,
            x=[row.get("published_regret") for row in selected],
            mode="markers",
            marker={"symbol": "diamond-open", "size": 8, "color": COLOURS[i % len(COLOURS)], "line": {"width": 2}},
            hovertemplate="%{y}: published %{x:.3f}<extra></extra>",
            **axis,
        )
    figure.update_layout(
        template="plotly_white",
        barmode="group",
        scattermode="group",
        width=900,
        height=640,
        xaxis={"title": "regret x 1000", "rangemode": "tozero"},
        yaxis={"automargin": True},
        legend={"orientation": "h", "x": 0.5, "xanchor": "center", "y": 1.06},
        margin={"l": 20, "r": 30, "t": 40, "b": 55},
    )
    return figure


def _metric_figures(outcomes: Outcomes) -> dict[str, Any]:
    """One chart per metric: a model's metric on a log against its ood perplexity above that of the best model."""
    import plotly.graph_objects as go

    configurations = [case[:3] for case in outcomes.cases]
    excess = outcomes.ood - outcomes.ood.min(axis=1, keepdims=True)
    figures = {}
    for metric in PREDICTORS:
        figure = go.Figure()
        for i, model in enumerate(outcomes.models):
            points = []
            for configuration in dict.fromkeys(configurations):
                cases = np.array([name == configuration for name in configurations])
                points.append((outcomes.metrics[metric][cases, i].mean(), excess[cases, i].mean(), configuration))
            figure.add_scatter(
                name=html.escape(model),
                x=[point[0] for point in points],
                y=[point[1] for point in points],
                text=[
                    html.escape(f"{user} users, {training} to {testing}") for *_, (user, training, testing) in points
                ],
                mode="markers",
                marker={"color": COLOURS[i % len(COLOURS)], "size": 8, "opacity": 0.8},
                hovertemplate="%{fullData.name}, %{text}: %{y:.4f}<extra></extra>",
            )
        figure.update_layout(
            title={"text": metric, "x": 0.5, "y": 0.97, "yanchor": "top", "font": {"size": 14}},
            template="plotly_white",
            width=480,
            height=430,
            xaxis={"title": metric},
            yaxis={"title": "ood perplexity above the best", "rangemode": "tozero"},
            legend={
                "orientation": "h",
                "x": 0.5,
                "xanchor": "center",
                "yref": "container",
                "y": 0.0,
                "yanchor": "bottom",
            },
            margin={"l": 55, "r": 32, "t": 58, "b": 105},
        )
        figures[metric] = figure
    return figures


def _by_regret(regret: Sequence[Row]) -> list[str]:
    """Strategies, the lowest regret over all logs first."""
    total = {row["strategy"]: row["regret"] for row in regret if row["user"] == ALL and row["training"] == ALL}
    return sorted(total, key=total.__getitem__)


def _measured(row: Row) -> Measured:
    """Regret with its interval."""
    return Measured(row["regret"], _half_width(row), digits=3)


def _published(row: Row) -> Measured | None:
    """Published regret with its interval; None where there is none."""
    if "published_regret" not in row:
        return None
    return Measured(row["published_regret"], row.get("published_error", float("nan")), digits=3)


def _half_width(row: Row) -> float:
    """Half the width of the interval."""
    return float(row["high"] - row["low"]) / 2


def _number(row: Row) -> str:
    """Regret with two decimals."""
    return f"{row['regret']:.2f}"
