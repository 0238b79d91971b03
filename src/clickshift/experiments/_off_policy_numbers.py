"""The published numbers of the off-policy paper beside those of a backtest, and its bound, printed and corrected.

References
----------
Li, S. et al. (2018). Offline evaluation of ranking policies with click models. KDD.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from clickshift.display.tables import Row

_FIGURE_5_QUERY = "20100007"
"""Query whose clicks by day figure 5 of the paper shows."""
_LEVEL_ERROR = 0.05
"""Probability delta with which the bound of theorems 4.5 and 4.6 may fail."""


@cache
def published_numbers() -> dict[str, Any]:
    """Read the published numbers: `illustrative_query`, `top_100`, and a list `number`."""
    text = (files("clickshift.experiments") / "published" / "off_policy.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def kaggle_command(figure: int) -> str:
    """Return the command that makes a figure of the paper from the file of the Kaggle challenge.

    Figures 1 to 4 have the same one: its report has the illustrative query and both groups of queries.

    Parameters
    ----------
    figure
        Number of the figure.

    Examples
    --------
    >>> kaggle_command(5)
    'clickshift ope backtest train.gz --format yandex-kaggle --query 20100007 -o out/figure5'
    """
    query = _FIGURE_5_QUERY if figure == 5 else published_numbers()["illustrative_query"]["id"]
    folder = "out/figure5" if figure == 5 else "out/kaggle"
    return f"clickshift ope backtest train.gz --format yandex-kaggle --query {query} -o {folder}"


def compare_with_published(rows: Sequence[Row], figure: int, group: str) -> list[dict[str, Any]]:
    """Compute the quantities that the paper reports of a figure from the errors of a backtest.

    Parameters
    ----------
    rows
        Errors by task, group, estimator and clipping constant, as `BacktestResult.rows` returns them.
    figure
        Number of the figure.
    group
        Group of queries that takes the place of the paper's.

    Returns
    -------
    list of dict
        One line per published number: figure, reward, quantity, published, ours and direction. Numbers whose task,
        estimators or clipping constants the rows lack are left out.
    """
    lines = []
    for number in published_numbers()["number"]:
        if number["figure"] == figure and not math.isnan(ours := _ours(number, rows, group)):
            published = number.get("value")
            as_text = "{:.3f}".format if number["quantity"] == "error" else "{:.1%}".format
            line = {"figure": figure, "reward": number["task"], "quantity": _described(number)}
            line["published"] = number["statement"] if published is None else as_text(published)
            line["ours"] = as_text(ours)
            lines.append(line | {"direction": _direction(number, ours)})
    return lines


def _described(number: Mapping[str, Any]) -> str:
    """Name a published quantity."""
    names = ", ".join(number["estimators"])
    at = f"at M = {number['at_clip']}" if "at_clip" in number else f"at any M >= {number.get('from_clip', 0)}"
    if number["quantity"] == "error":
        return f"{'least ' if number.get('least') else ''}error of {names}"
    if number["quantity"] == "clipping":
        return f"error of {names} {at} below that without clipping"
    return f"{names} below {number['baseline']}, at least, {at}"


def _direction(number: Mapping[str, Any], ours: float) -> str:
    """Say whether our number has the direction that the paper reports; empty for an error, which has none."""
    if number["quantity"] == "error":
        return ""
    improves = "does not" not in number.get("statement", "")
    return "same" if (ours > 0) == improves else "other"


def _ours(number: Mapping[str, Any], rows: Sequence[Row], group: str) -> float:
    """Compute a published quantity from rows; NaN if they lack a part of it."""
    error = {
        (row["estimator"], float(row["M"])): float(row["rmse"])
        for row in rows
        if row["group"] == group and row["task"] == number["task"]
    }
    clips = sorted({clip for _, clip in error})
    if "at_clip" in number:
        clips = [clip for clip in clips if clip == number["at_clip"]]
    clips = [clip for clip in clips if clip >= number.get("from_clip", 0)]
    of: Callable[[str, float], float] = lambda name, clip: error.get((name, clip), math.nan)  # noqa: E731
    names = number["estimators"]
    if not clips:
        return math.nan
    if number["quantity"] == "error":
        return min(of(names[0], clip) for clip in clips)
    if number["quantity"] == "clipping":
        return 1 - of(names[0], clips[0]) / of(names[0], math.inf)
    return float(np.min([1 - of(name, clip) / of(number["baseline"], clip) for name in names for clip in clips]))


def bound_rows(sessions: int, ranks: Mapping[str, int], clips: Sequence[float]) -> list[dict[str, Any]]:
    """Compute the deviation term of theorems 4.5 and 4.6 as printed and corrected.

    The printed term is 2 K sqrt(ln(4 / delta) / (2 n)). Its proof applies Hoeffding's inequality to sums of
    f min(h / pi, M), whose range is K M, not K. The corrected term has the factor M. Both are for a policy that was not
    chosen on the same log; `clickshift ope optimise` therefore uses one half of the log to choose, the other to bound.

    Parameters
    ----------
    sessions
        Number n of sessions.
    ranks
        Number K of ranks that a reward counts, by the name of the reward.
    clips
        Clipping constants M.

    Returns
    -------
    list of dict
        One line per reward and clipping constant: reward, sessions, M, printed, corrected.
    """
    root = math.sqrt(math.log(4 / _LEVEL_ERROR) / (2 * sessions))
    return [
        {"reward": reward, "sessions": sessions, "M": clip, "printed": 2 * k * root, "corrected": 2 * k * clip * root}
        for reward, k in ranks.items()
        for clip in clips
    ]


def bound_counterexample() -> dict[str, float]:
    """A log on which the printed deviation is exceeded far more often than the theorem allows.

    One rank, one list A with pi(A) = .01 and h(A) = 1 that is always clicked, M = 100 and n = 100 sessions: the
    estimate is the number of sessions with A, a binomial variable of mean 1, and the value is 1.

    Returns
    -------
    dict
        The one-sided `deviation` as printed, the probability `exceeded` with which the estimate is further above the
        value, and the probability `allowed` by the theorem.
    """
    n, prob = 100, 0.01
    deviation = math.sqrt(math.log(4 / _LEVEL_ERROR) / (2 * n))
    exceeded = sum(math.comb(n, k) * prob**k * (1 - prob) ** (n - k) for k in range(n + 1) if k - 1 > deviation)
    return {"deviation": deviation, "exceeded": exceeded, "allowed": _LEVEL_ERROR / 2}
