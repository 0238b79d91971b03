"""Tidy rows -> what policies derived from models earn, and what the models had promised."""

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
    """One model's policies on one log's user. Maps go from policies to seeds."""

    model: str
    role: str
    expected: Mapping[str, SeedValues]
    """Clicks per list that the user would give."""
    predicted: Mapping[str, SeedValues]
    """Clicks per list that the model promised."""

    @property
    def gain(self) -> Measured:
        """What Max-Reward earns beyond Top-Down; below 0 the model is poorly robust (section 5.1.2)."""
        return self._difference(self.expected.get(MAX_REWARD, {}), self.expected.get(TOP_DOWN, {}))

    def curse(self, policy: str) -> Measured:
        """What was promised and not earned: the optimiser's curse."""
        return self._difference(self.predicted.get(policy, {}), self.expected.get(policy, {}))

    @staticmethod
    def _difference(first: SeedValues, second: SeedValues) -> Measured:
        """Paired: both sides come from the same model."""
        return measured([first[seed] - second[seed] for seed in first if seed in second], signed=True)


def policy_clicks(rows: Sequence[Row]) -> dict[LogName, list[PolicyClicks]]:
    """By user and training policy, models in order of appearance."""
    return {log: _earned(there) for log, there in rows_by_log(rows_of_kind(rows, "policy")).items()}


def policy_names(rows: Sequence[Row]) -> list[str]:
    """Top-Down and Max-Reward first."""
    found = dict.fromkeys(text_of(row, "policy") for row in rows_of_kind(rows, "policy"))
    return [name for name in (TOP_DOWN, MAX_REWARD) if name in found] + [
        name for name in found if name not in {TOP_DOWN, MAX_REWARD}
    ]


def _earned(rows: Sequence[Row]) -> list[PolicyClicks]:
    roles = {text_of(row, "model"): role_of(row) for row in rows}
    by_policy = {name: [row for row in rows if text_of(row, "policy") == name] for name in policy_names(rows)}
    expected = {
        name: metric_by_seed(there, "expected_clicks") or metric_by_seed(there, "clicks")
        for name, there in by_policy.items()
    }
    predicted = {name: metric_by_seed(there, "predicted_clicks") for name, there in by_policy.items()}
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


_OTHERS = COLOURS[2:6]


def policy_figures(rows: Sequence[Row]) -> dict[LogName, Any]:
    """One panel per user and training policy, all with the same axis; models that are not compared are left out."""
    names = policy_names(rows)
    known = {
        log: [earned for earned in models if earned.role in PEER_ROLES] for log, models in policy_clicks(rows).items()
    }
    best = {log: _of_oracle(models) for log, models in policy_clicks(rows).items()}
    highest = max((_highest(models) for models in known.values()), default=1.0)
    highest = max([highest, *(value for value in best.values() if value is not None)])
    return {log: _panel(log, names, models, best[log], highest) for log, models in known.items() if models}


def _panel(
    log: LogName, names: Sequence[str], models: Sequence[PolicyClicks], best: float | None, highest: float
) -> Any:
    import plotly.graph_objects as go

    figure = go.Figure()
    for i, name in enumerate(names):
        earned = [_of(model.expected.get(name, {})) for model in models]
        promised = [_of(model.predicted.get(name, {})) for model in models]
        text = [_hover(model, name, *found) for model, *found in zip(models, earned, promised, strict=True)]
        place = {"x": [html.escape(model.model) for model in models], "offsetgroup": name}
        figure.add_bar(
            name=html.escape(name),
            y=[_shown(value.mean) for value in earned],
            error_y={"type": "data", "array": [_spread(value) for value in earned], "thickness": 1.5, "width": 3},
            marker={"color": _COLOURS.get(name, _OTHERS[i % len(_OTHERS)]), "opacity": 0.85},
            text=text,
            textposition="none",
            hovertemplate="%{text}<extra></extra>",
            **place,
        )
        if any(not math.isnan(value.mean) for value in promised):
            figure.add_scatter(
                name="promised by the model",
                legendgroup="promised",
                showlegend=i == 0,
                legendrank=2000,
                y=[_shown(value.mean) for value in promised],
                mode="markers",
                marker={"symbol": "diamond-open", "size": 9, "color": COLOURS[1], "line": {"width": 2}},
                text=text,
                hovertemplate="%{text}<extra></extra>",
                **place,
            )
    if best is not None:
        figure.add_hline(
            y=best,
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


def _of_oracle(models: Sequence[PolicyClicks]) -> float | None:
    """What the user's own model earns, where it was tried."""
    found = [_of(model.expected.get(MAX_REWARD, {})).mean for model in models if model.role == "oracle"]
    return next((value for value in found if not math.isnan(value)), None)


def _highest(models: Sequence[PolicyClicks]) -> float:
    values = [_of(seeds) for model in models for seeds in (*model.expected.values(), *model.predicted.values())]
    return max((value.mean + _spread(value) for value in values if not math.isnan(value.mean)), default=1.0)


def _hover(model: PolicyClicks, policy: str, earned: Measured, promised: Measured) -> str:
    lines = [
        f"<b>{html.escape(model.model)}, {html.escape(policy)}</b>",
        f"earned {earned}",
        f"promised {promised}",
        f"curse {model.curse(policy)}",
    ]
    return "<br>".join(lines)


def _of(seeds: Any) -> Measured:
    return measured(list(seeds.values()))


def _shown(value: float) -> float | None:
    return None if math.isnan(value) else value


def _spread(value: Measured) -> float:
    return 0.0 if math.isnan(value.half) else value.half
