"""What people read of an answer: its sentences, the parts of its interval, the families, and the chart of intervals."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import Any

from clickshift.display.figures import COLOURS
from clickshift.ope.answer import Answer

_VERDICT_COLOURS = {"usable": COLOURS[2], "weak": COLOURS[3], "not identified": COLOURS[1]}
_PARTS = {
    "sampling": "sessions are a sample",
    "model": "examination, continuation and attractiveness are estimated",
    "lost mass": "documents that were never logged, or hardly ever examined",
    "choice of model": "which click model is right",
}


def answer_sentences(answer: Answer, name: str, reward: str, other: str = "") -> str:
    """Say what a target earns more than today, or than another target, with the verdict.

    Parameters
    ----------
    answer
        The answer.
    name
        Name of the target.
    reward
        Name of the reward.
    other
        Name of the other target; empty for the log.
    """
    today = other or "today's ranker"
    if answer.verdict == "not identified":
        against = f"more or less than {other}" if other else f"; today's ranker earns {answer.today:.4f}"
        return f"This log cannot tell what {name} would earn{' ' if other else ''}{against}. {_capital(answer.reasons)}"
    relative, low, high = answer.relative
    percent = "" if math.isnan(relative) else f" ({relative:+.1%})"
    percents = "" if math.isnan(relative) else f", {low:+.1%} to {high:+.1%}"
    first = (
        f"{name} would earn {answer.difference:+.4f} {reward} per session{percent} against {today} with "
        f"{answer.today:.4f}: {answer.level:.0%} interval [{answer.difference_low:+.4f}, {answer.difference_high:+.4f}]"
        f"{percents}."
    )
    if answer.difference_low > 0:
        sign = "It earns more."
    elif answer.difference_high < 0:
        sign = "It earns less."
    else:
        sign = "The log does not tell whether that is more or less."
    return f"{first} {sign} Verdict: {answer.verdict}. {_capital(answer.reasons)}"


def _capital(reasons: tuple[str, ...]) -> str:
    """Join sentences, each with a capital letter and one full stop."""
    return " ".join(f"{text[:1].upper()}{text[1:].rstrip('.')}." for text in reasons)


def parts_table(answer: Answer) -> list[dict[str, Any]]:
    """Table of the parts of the interval; they add up to half of its width."""
    rows = [{"part": _PARTS[name], "half-width": value} for name, value in answer.parts.items()]
    return [*rows, {"part": "together", "half-width": sum(answer.parts.values())}] if rows else []


def families_table(answer: Answer) -> list[dict[str, Any]]:
    """Table of the click-model families of an answer."""
    return [
        {
            "click model": family.name,
            "not rejected": "yes" if family.kept else "no",
            "difference": f"{family.difference:+.4f}"
            + ("" if math.isnan(family.low) else f" [{family.low:+.4f}, {family.high:+.4f}]"),
            "held-out deficit": f"{family.deficit:.4f} (z = {family.z:.1f})",
            "p of residuals": f"{family.p_value:.2g}",
            "lost": f"{family.lost:.1%}",
        }
        for family in answer.families
    ]


def _short(name: str) -> str:
    """Name of a file without its folder, and at most 16 characters of it.

    >>> _short("new/rankings.parquet"), _short("a-very-long-name-of-a-ranker")
    ('rankings.parquet', 'a-very-long-nam…')
    """
    name = name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    return name if len(name) <= 16 else f"{name[:15]}…"


def answer_figure(answers: Mapping[str, Answer], reward: str) -> Any:
    """Plot the difference of every target to today's reward, with its interval, beside today's reward as a line."""
    import plotly.graph_objects as go

    found = [(name, answer) for name, answer in answers.items() if answer.estimator][::-1]
    figure = go.Figure()
    figure.add_scatter(
        x=[a.today + a.difference for _, a in found],
        y=[html.escape(_short(name)) for name, _ in found],
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [a.difference_high - a.difference for _, a in found],
            "arrayminus": [a.difference - a.difference_low for _, a in found],
            "thickness": 1.8,
            "width": 6,
            "color": "#5c677d",
        },
        mode="markers",
        marker={"size": 11, "color": [_VERDICT_COLOURS[a.verdict] for _, a in found]},
        text=[
            f"{a.difference:+.4f} [{a.difference_low:+.4f}, {a.difference_high:+.4f}], {a.verdict}" for _, a in found
        ],
        hovertemplate="%{y}: %{text}<extra></extra>",
        showlegend=False,
    )
    today = next(iter(answers.values())).today
    figure.add_vline(
        x=today,
        line={"color": "#5c677d", "width": 1.5, "dash": "dot"},
        annotation={"text": f"today {today:.4f}", "yref": "paper", "y": 1.0, "yanchor": "bottom"},
    )
    figure.update_layout(
        template="plotly_white",
        height=150 + 48 * len(found),
        xaxis={"title": f"{html.escape(reward)} per session"},
        yaxis={"type": "category"},
        margin={"l": 120, "r": 32, "t": 40, "b": 55},
    )
    return figure
