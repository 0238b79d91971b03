"""Perplexity of each model above that of the user's own model, under every change of policy: which model to use."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clickshift.display.figures import COLOURS
from clickshift.display.tables import Row, Rows
from clickshift.display.values import Measured, measured
from clickshift.experiments.policy_shift._report_robustness import (
    IMPOSSIBLE,
    IND,
    PEER_ROLES,
    LogName,
    Setting,
    is_same_policy,
    mean_of_role,
    metric_by_seed,
    role_of,
    rows_by_setting,
    text_of,
)

_CELL, _GAP, _BOTTOM, _LEFT, _LETTER = 22, 26, 8, 96, 7.5
"""Sizes in pixels: height of a cell, space between two training logs, margins, and width of a letter."""
_MOST_TEXTS = 9
"""Number of columns up to which the numbers of a heat map fit on a phone."""
_LONGEST, _TITLE = 18, 13
"""Number of letters of a name beside the heat map, and in the title of a log; longer names are cut."""


@dataclass(frozen=True)
class ModelExcess:
    """Perplexity of one model above that of the user's own model.

    Parameters
    ----------
    model, role
        Name and role of the model.
    ind
        Mean over the training logs, on held-out sessions of the same policy; NaN where it is not known.
    shifts
        Excess under each change of policy.
    mean
        Mean over all changes of policy, with its interval over seeds.
    """

    model: str
    role: str
    ind: float
    shifts: Mapping[Setting, float]
    mean: Measured

    @property
    def worst(self) -> Setting:
        """The change of policy with the largest excess."""
        return max(self.shifts, key=self.shifts.__getitem__)


def excess_perplexity(rows: Sequence[Row]) -> list[ModelExcess]:
    """Compute the excess perplexity of click models, candidates and baselines, the smallest mean first.

    Parameters
    ----------
    rows
        Rows of the protocol.

    Returns
    -------
    list of ModelExcess
        The models that were tested under all changes of policy; none without an oracle.
    """
    groups = rows_by_setting(rows)
    oracle = {setting: mean_of_role(group, "oracle") for setting, group in groups.items()}
    by_model: dict[str, dict[Setting, dict[int, float]]] = {}
    for setting, group in groups.items():
        reference = oracle[setting]
        if reference is not None:
            for model, seeds in metric_by_seed(group, "perplexity").items():
                excess = {seed: value - reference for seed, value in seeds.items()}
                by_model.setdefault(model, {})[setting] = excess
    roles = {text_of(row, "model"): role_of(row) for row in rows}
    shifts = [setting for setting in groups if oracle[setting] is not None and not is_same_policy(setting)]
    found = [
        _excess(model, roles[model], by_setting, shifts)
        for model, by_setting in by_model.items()
        if roles[model] in (*PEER_ROLES, "baseline") and shifts and all(shift in by_setting for shift in shifts)
    ]
    return sorted(found, key=lambda one: one.mean.mean)


def _excess(
    model: str, role: str, by_setting: Mapping[Setting, Mapping[int, float]], shifts: Sequence[Setting]
) -> ModelExcess:
    """Average over seeds, and over changes of policy; the interval is over the seeds that all of them have."""
    means = {setting: sum(seeds.values()) / len(seeds) for setting, seeds in by_setting.items()}
    ind = [mean for setting, mean in means.items() if setting.testing == IND]
    common = set.intersection(*(set(by_setting[shift]) for shift in shifts))
    by_seed = [sum(by_setting[shift][seed] for shift in shifts) / len(shifts) for seed in sorted(common)]
    mean = Measured(sum(means[shift] for shift in shifts) / len(shifts), measured(by_seed).half)
    return ModelExcess(
        model, role, sum(ind) / len(ind) if ind else math.nan, {shift: means[shift] for shift in shifts}, mean
    )


def recommendation(excess: Sequence[ModelExcess]) -> str:
    """Name the model with the smallest mean excess, and what it is expected to lose under a new ranker.

    Parameters
    ----------
    excess
        What `excess_perplexity` returns.

    Returns
    -------
    str
        Up to three sentences: the model, or the baseline that is better than all of them, and the best click model that
        is left; empty without click models that were tested under a change of policy.
    """
    models = [one for one in excess if one.role in PEER_ROLES]
    if not models:
        return ""
    best, n = excess[0], len(excess[0].shifts)
    over = f"mean over {n} changes of ranker" if n > 1 else f"with {best.worst}"
    named = f"the baseline {best.model}" if best is not models[0] else best.model
    first = (
        f"Use {named}: on another ranker's lists it predicts clicks best, with a perplexity of "
        f"{_number(best.mean)} above the best possible ({over})."
    )
    others = []
    if not math.isnan(best.ind):
        others.append(f"Under the ranker of its training log, that is {best.ind:.4f}.")
    second = next((one for one in models if one is not best), None)
    if second is not None:
        apart = second.mean.mean - best.mean.mean
        noise = math.hypot(*(0.0 if math.isnan(one.mean.half) else one.mean.half for one in (best, second)))
        chance = ", which is no difference beyond chance" if noise and apart <= noise else ""
        place = "the best click model" if best is not models[0] else "next"
        others.append(f"{second.model} is {place} ({_number(second.mean)}){chance}.")
    return "\n\n".join(filter(None, (first, " ".join(others))))


def excess_table(excess: Sequence[ModelExcess], verdicts: Sequence[Mapping[str, str]]) -> Rows:
    """Tabulate the models, the best first: excess before and after the change of policy, and the verdict.

    Parameters
    ----------
    excess
        What `excess_perplexity` returns.
    verdicts
        What `shift_verdicts` returns.

    Returns
    -------
    list of dict
        One line per model; models that predict better than is possible are last, without numbers.
    """
    by_model = {verdict["model"]: verdict["verdict"] for verdict in verdicts}
    compared = [one.model for one in excess if one.role in PEER_ROLES][:1]
    table: Rows = [
        {
            "model": one.model,
            "same ranker": one.ind,
            "new ranker": Measured(one.mean.mean, one.mean.half, "best" if one.model in compared else ""),
            "worst": one.shifts[one.worst],
            "worst shift": str(one.worst),
            "verdict": by_model.get(one.model, one.role),
        }
        for one in excess
    ]
    impossible = [name for name, verdict in by_model.items() if table and verdict == IMPOSSIBLE]
    return table + [dict.fromkeys(table[0]) | {"model": name, "verdict": IMPOSSIBLE} for name in impossible]


def excess_figure(excess: Sequence[ModelExcess]) -> Any:
    """Plot the excess as a heat map: a column per model, a row per change of policy, and their mean in the first row.

    Click models and the best baseline are shown: more columns would not be readable on a phone.

    Parameters
    ----------
    excess
        What `excess_perplexity` returns; at least one model.

    Returns
    -------
    plotly.graph_objects.Figure
        A heat map per training log, one below the other, with the same colours.
    """
    from plotly.subplots import make_subplots

    shown = _shown(excess)
    logs: dict[LogName, list[Setting]] = {}
    for shift in shown[0].shifts:
        logs.setdefault(LogName(shift.user, shift.training), []).append(shift)
    sizes = [1, *map(len, logs.values())]
    plot = _CELL * sum(sizes) + _GAP * len(logs)
    figure = make_subplots(
        len(sizes),
        1,
        row_heights=sizes,
        vertical_spacing=_GAP / plot,
        subplot_titles=[
            "",
            *(html.escape(str(LogName(_short(log.user, _TITLE), _short(log.training, _TITLE)))) for log in logs),
        ],
    )
    names = [html.escape(_short(one.model)) for one in shown]
    largest = max(max(one.shifts.values()) for one in shown)
    panels = [(["<b>mean</b>"], [[one.mean.mean for one in shown]])]
    for shifts in logs.values():
        labels = [html.escape(f"→ {_short(shift.testing)}") for shift in shifts]
        panels.append((labels, [[one.shifts[shift] for one in shown] for shift in shifts]))
    for row, (labels, values) in enumerate(panels, 1):
        figure.add_heatmap(
            row=row,
            col=1,
            x=list(range(len(names))),
            y=list(range(len(labels))),
            z=values,
            text=[[_cell(value) for value in line] for line in values],
            texttemplate="%{text}" if len(names) <= _MOST_TEXTS else "",
            textfont={"size": 11},
            customdata=[[[name, label] for name in names] for label in labels],
            hovertemplate="%{customdata[0]} %{customdata[1]}: %{z:.4f}<extra></extra>",
            zmin=0,
            zmax=max(largest, 1e-9),
            colorscale=[[0, "#ffffff"], [1, COLOURS[1]]],
            showscale=False,
            xgap=1,
            ygap=1,
        )
        ticks = {"tickvals": list(range(len(names))), "ticktext": names, "autotickangles": [0, -90], "side": "top"}
        figure.update_xaxes(row=row, showticklabels=row == 1, showgrid=False, zeroline=False, **ticks)
        figure.update_yaxes(
            row=row,
            tickvals=list(range(len(labels))),
            ticktext=labels,
            autorange="reversed",
            showgrid=False,
            zeroline=False,
        )
    longest = max(len(_short(shift.testing)) + 2 for shift in shown[0].shifts)
    figure.update_annotations(x=0, xanchor="left", xshift=-6 * longest, font={"size": 12})
    top = 16 + _LETTER * max(len(_short(one.model)) for one in shown)
    figure.update_layout(
        template="plotly_white",
        height=plot + top + _BOTTOM,
        margin={"l": _LEFT, "r": 8, "t": top, "b": _BOTTOM},
    )
    return figure


def _shown(excess: Sequence[ModelExcess]) -> list[ModelExcess]:
    """Return the click models and the best baseline, the smallest mean first."""
    baseline = [one for one in excess if one.role not in PEER_ROLES][:1]
    return [one for one in excess if one.role in PEER_ROLES or one in baseline]


def _number(value: Measured) -> str:
    """Format a mean with its interval, without marks."""
    return f"{value.number} {value.spread}".rstrip()


def _cell(value: float) -> str:
    """Format a number for a narrow cell.

    >>> _cell(0.0314), _cell(-0.002), _cell(1.5)
    ('.031', '-.002', '1.500')
    """
    text = f"{value:.3f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


def _short(name: str, longest: int = _LONGEST) -> str:
    """Cut a long name."""
    return name if len(name) <= longest else name[: longest - 1] + "…"
