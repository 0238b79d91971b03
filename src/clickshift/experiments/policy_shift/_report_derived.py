"""Clicks of the policies that are derived from models, and the clicks that the models predicted, from tidy rows.

`policy_figures` draws figure 2 of the policy-shift paper.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clickshift.display.figures import COLOURS, LABEL, SYMBOLS
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
_STEP = 0.28
"""Distance between the policies of one model on the horizontal axis."""


def policy_figures(rows: Sequence[Row]) -> dict[LogName, Any]:
    """One chart per training log, all with the same axes; models that are not compared are left out.

    Above: clicks that each policy received, on an axis that shows differences between policies. Below: clicks that the
    model predicted beyond these, which would stretch that axis.
    """
    names, by_log = policy_names(rows), policy_clicks(rows)
    compared = {log: [model for model in models if model.role in PEER_ROLES] for log, models in by_log.items()}
    compared = {log: models for log, models in compared.items() if models}
    oracle = {log: _oracle_clicks(by_log[log]) for log in compared}
    received = [
        _mean(model.expected.get(name, {})) for models in compared.values() for model in models for name in names
    ]
    curses = [model.curse(name) for models in compared.values() for model in models for name in names]
    ranges = (
        _range([*received, *(Measured(value) for value in oracle.values() if value is not None)]),
        _range(curses, 0.0),
    )
    return {log: _policy_chart(log, names, models, oracle[log], ranges) for log, models in compared.items()}


def _range(values: Sequence[Measured], *others: float) -> tuple[float, float]:
    """Return the range of an axis that shows all intervals, and some other values, with a margin."""
    known = [value for value in values if not math.isnan(value.mean)]
    low = min((value.mean - _half_width(value) for value in known), default=0.0)
    high = max((value.mean + _half_width(value) for value in known), default=1.0)
    low, high = min(low, *others, high), max(high, *others, low)
    margin = 0.08 * (high - low) or 0.01
    return low - margin, high + margin


def _policy_chart(
    log: LogName,
    names: Sequence[str],
    models: Sequence[PolicyClicks],
    oracle: float | None,
    ranges: tuple[tuple[float, float], tuple[float, float]],
) -> Any:
    """Dots of expected clicks by model and policy, and below them what the model predicted beyond these."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for i, name in enumerate(names):
        expected = [_mean(model.expected.get(name, {})) for model in models]
        curse = [model.curse(name) for model in models]
        text = [
            _hover(model, name, clicks, _mean(model.predicted.get(name, {})))
            for model, clicks in zip(models, expected, strict=True)
        ]
        colour = _COLOURS.get(name, _OTHER_COLOURS[i % len(_OTHER_COLOURS)])
        position = [k + _STEP * (i - (len(names) - 1) / 2) for k in range(len(models))]
        figure.add_scatter(
            name=html.escape(name),
            legendgroup=name,
            x=position,
            y=[_none_if_nan(value.mean) for value in expected],
            error_y={"type": "data", "array": [_half_width(value) for value in expected], "thickness": 1.5, "width": 4},
            mode="markers",
            marker={"color": colour, "size": 9, "symbol": SYMBOLS[i % len(SYMBOLS)]},
            text=text,
            hovertemplate="%{text}<extra></extra>",
        )
        if any(not math.isnan(value.mean) for value in curse):
            figure.add_bar(
                name=f"{html.escape(name)}, predicted",
                legendgroup=name,
                showlegend=False,
                x=position,
                width=_STEP * 0.9,
                y=[_none_if_nan(value.mean) for value in curse],
                marker={"color": colour},
                text=text,
                textposition="none",
                hovertemplate="%{text}<extra></extra>",
                yaxis="y2",
            )
    if oracle is not None:
        figure.add_hline(
            y=oracle,
            line={"dash": "dot", "color": LABEL, "width": 1.5},
            annotation={"text": "the oracle's Max-Reward", "font": {"size": 10, "color": LABEL}},
            annotation_position="bottom left",
        )
    ticks = {"tickvals": list(range(len(models))), "ticktext": [html.escape(model.model) for model in models]}
    figure.update_layout(
        title={"text": log.as_chart_title(), "x": 0.5, "y": 0.97, "yanchor": "top", "font": {"size": 14}},
        template="plotly_white",
        width=480,
        height=500,
        xaxis={"tickangle": -30, "tickfont": {"size": 10}, "anchor": "y2", "range": [-0.6, len(models) - 0.4], **ticks},
        yaxis={"title": "clicks per list", "range": list(ranges[0]), "domain": [0.34, 1]},
        yaxis2={"title": "predicted<br>minus received", "range": list(ranges[1]), "domain": [0, 0.26], "anchor": "x"},
        legend={"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.18, "yanchor": "top"},
        margin={"l": 62, "r": 32, "t": 58, "b": 95},
        hoverlabel={"align": "left"},
    )
    return figure


def _oracle_clicks(models: Sequence[PolicyClicks]) -> float | None:
    """Expected clicks of the oracle's Max-Reward policy; None where it was not evaluated."""
    values = [_mean(model.expected.get(MAX_REWARD, {})).mean for model in models if model.role == "oracle"]
    return next((value for value in values if not math.isnan(value)), None)


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
