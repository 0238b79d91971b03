"""Clicks of the policies that are derived from models, and the clicks that the models predicted, from tidy rows.

`policy_figures` draws figure 2 of the policy-shift paper.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clickshift.display.figures import COLOURS
from clickshift.display.tables import Row
from clickshift.display.values import Measured, measured
from clickshift.experiments.policy_shift._report_robustness import (
    PEER_ROLES,
    LogName,
    SeedValues,
    metric_by_seed,
    role_of,
    rows_by_log,
    rows_of_kind,
    text_of,
)

TOP_DOWN, MAX_REWARD = "Top-Down", "Max-Reward"


@dataclass(frozen=True)
class PolicyClicks:
    """Clicks of the policies derived from one model, on the user of one log.

    Parameters
    ----------
    model
        Name of the model.
    role
        Role of the model.
    expected
        Expected clicks per list under the user, by policy and seed.
    predicted
        Clicks per list that the model predicted, by policy and seed.
    """

    model: str
    role: str
    expected: Mapping[str, SeedValues]
    predicted: Mapping[str, SeedValues]

    @property
    def gain(self) -> Measured:
        """Expected clicks of Max-Reward minus Top-Down; below 0, the model is poorly robust (section 5.1.2)."""
        return self._difference(self.expected.get(MAX_REWARD, {}), self.expected.get(TOP_DOWN, {}))

    def curse(self, policy: str) -> Measured:
        """Predicted minus expected clicks of a policy: the optimiser's curse."""
        return self._difference(self.predicted.get(policy, {}), self.expected.get(policy, {}))

    @staticmethod
    def _difference(first: SeedValues, second: SeedValues) -> Measured:
        """Difference with its interval, paired by seed, as both sides come from the same model."""
        return measured([first[seed] - second[seed] for seed in first if seed in second], signed=True)


def policy_clicks(rows: Sequence[Row]) -> dict[LogName, list[PolicyClicks]]:
    """Clicks of derived policies by training log, models in order of appearance."""
    return {log: _clicks_by_model(group) for log, group in rows_by_log(rows_of_kind(rows, "policy")).items()}


def policy_names(rows: Sequence[Row]) -> list[str]:
    """Names of the derived policies, Top-Down and Max-Reward first."""
    names = dict.fromkeys(text_of(row, "policy") for row in rows_of_kind(rows, "policy"))
    return [name for name in (TOP_DOWN, MAX_REWARD) if name in names] + [
        name for name in names if name not in {TOP_DOWN, MAX_REWARD}
    ]


def _clicks_by_model(rows: Sequence[Row]) -> list[PolicyClicks]:
    """Clicks of derived policies from the rows of one training log; simulated ones where expected ones are missing."""
    roles = {text_of(row, "model"): role_of(row) for row in rows}
    by_policy = {name: [row for row in rows if text_of(row, "policy") == name] for name in policy_names(rows)}
    expected = {
        name: metric_by_seed(group, "expected_clicks") or metric_by_seed(group, "clicks")
        for name, group in by_policy.items()
    }
    predicted = {name: metric_by_seed(group, "predicted_clicks") for name, group in by_policy.items()}
    return [
        PolicyClicks(
            model,
            role,
            {name: values[model] for name, values in expected.items() if model in values},
            {name: values[model] for name, values in predicted.items() if model in values},
        )
        for model, role in roles.items()
    ]


_COLOURS = {TOP_DOWN: COLOURS[6], MAX_REWARD: COLOURS[0]}
_OTHER_COLOURS = COLOURS[2:6]


def policy_figures(rows: Sequence[Row]) -> dict[LogName, Any]:
    """One bar chart per training log, all with the same axis; models that are not compared are left out."""
    names, by_log = policy_names(rows), policy_clicks(rows)
    compared = {log: [model for model in models if model.role in PEER_ROLES] for log, models in by_log.items()}
    oracle = {log: _oracle_clicks(models) for log, models in by_log.items()}
    highest = max((_highest(models) for models in compared.values()), default=1.0)
    highest = max([highest, *(value for value in oracle.values() if value is not None)])
    return {log: _bar_chart(log, names, models, oracle[log], highest) for log, models in compared.items() if models}


def _bar_chart(
    log: LogName, names: Sequence[str], models: Sequence[PolicyClicks], oracle: float | None, highest: float
) -> Any:
    """Bars of expected clicks and diamonds of predicted clicks, by model and policy."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for i, name in enumerate(names):
        expected = [_mean(model.expected.get(name, {})) for model in models]
        predicted = [_mean(model.predicted.get(name, {})) for model in models]
        text = [_hover(model, name, *clicks) for model, *clicks in zip(models, expected, predicted, strict=True)]
        axis = {"x": [html.escape(model.model) for model in models], "offsetgroup": name}
        figure.add_bar(
            name=html.escape(name),
            y=[_none_if_nan(value.mean) for value in expected],
            error_y={"type": "data", "array": [_half_width(value) for value in expected], "thickness": 1.5, "width": 3},
            marker={"color": _COLOURS.get(name, _OTHER_COLOURS[i % len(_OTHER_COLOURS)]), "opacity": 0.85},
            text=text,
            textposition="none",
            hovertemplate="%{text}<extra></extra>",
            **axis,
        )
        if any(not math.isnan(value.mean) for value in predicted):
            figure.add_scatter(
                name="predicted by the model",
                legendgroup="predicted",
                showlegend=i == 0,
                legendrank=2000,
                y=[_none_if_nan(value.mean) for value in predicted],
                mode="markers",
                marker={"symbol": "diamond-open", "size": 9, "color": COLOURS[1], "line": {"width": 2}},
                text=text,
                hovertemplate="%{text}<extra></extra>",
                **axis,
            )
    if oracle is not None:
        figure.add_hline(
            y=oracle,
            line={"dash": "dot", "color": "#52606d", "width": 1.5},
            annotation={"text": "the oracle's Max-Reward", "font": {"size": 10, "color": "#52606d"}},
            annotation_position="top left",
        )
    figure.update_layout(
        title={"text": log.as_chart_title(), "x": 0.5, "y": 0.97, "yanchor": "top", "font": {"size": 14}},
        template="plotly_white",
        barmode="group",
        scattermode="group",
        bargap=0.25,
        width=480,
        height=430,
        xaxis={"tickangle": -30, "tickfont": {"size": 10}},
        yaxis={"title": "expected clicks per list", "range": [0, 1.08 * highest]},
        legend={"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.22, "yanchor": "top"},
        margin={"l": 55, "r": 32, "t": 58, "b": 105},
        hoverlabel={"align": "left"},
    )
    return figure


def _oracle_clicks(models: Sequence[PolicyClicks]) -> float | None:
    """Expected clicks of the oracle's Max-Reward policy; None where it was not evaluated."""
    values = [_mean(model.expected.get(MAX_REWARD, {})).mean for model in models if model.role == "oracle"]
    return next((value for value in values if not math.isnan(value)), None)


def _highest(models: Sequence[PolicyClicks]) -> float:
    """Upper end of the highest interval, for the range of the axis."""
    values = [_mean(seeds) for model in models for seeds in (*model.expected.values(), *model.predicted.values())]
    return max((value.mean + _half_width(value) for value in values if not math.isnan(value.mean)), default=1.0)


def _hover(model: PolicyClicks, policy: str, expected: Measured, predicted: Measured) -> str:
    """Hover text of a bar."""
    lines = [
        f"<b>{html.escape(model.model)}, {html.escape(policy)}</b>",
        f"expected clicks {expected}",
        f"predicted clicks {predicted}",
        f"curse {model.curse(policy)}",
    ]
    return "<br>".join(lines)


def _mean(seeds: SeedValues) -> Measured:
    """Mean over seeds with its interval."""
    return measured(list(seeds.values()))


def _none_if_nan(value: float) -> float | None:
    """A value as Plotly takes it: None leaves a gap."""
    return None if math.isnan(value) else value


def _half_width(value: Measured) -> float:
    """Half the width of an interval; 0 for a single seed."""
    return 0.0 if math.isnan(value.half) else value.half
