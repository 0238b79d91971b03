"""Numbers that the IPS paper printed, for the data sets that it used, and ours beside them.

A data set is recognised by its content: number of features, number of queries and range of labels.

References
----------
Hager, P., de Rijke, M. & Zoeter, O. (2022). Are neural click models pointwise IPS rankers? CONSEQUENCES+REVEAL workshop
at RecSys.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from clickshift.data.corpus import CorpusSplit
from clickshift.display.tables import Row, Rows
from clickshift.display.values import Measured, measured

LARGEST_LOG = 10**8
"""Sessions of the largest log of the paper, and of its table 2."""
ONE_HOT_SET = "one-hot"
"""The paper's synthetic set."""
_FIGURE = {"sessions": "figure1", "collisions": "figure4", "eta": "figure5"}
"""Figure of the paper that shows nDCG@10 by each axis."""
_METRICS = ("nDCG@5", "nDCG@10", "ARP")
_HALF_WIDTH = 2.2622 / math.sqrt(10)
"""Half the width of the 95 % interval of a mean over ten runs, in standard deviations: Student's t with 9 degrees."""
_DIGITISED = 0.0005
"""Error of numbers that were read from a figure."""
_NETWORK_BELOW = 10**6
"""Number of sessions below which a network on one-hot features learns otherwise than a table of logits."""
_QUERIES_OFF = 0.02
"""Largest relative difference of the number of queries of a recognised data set: parts of a file may be missing."""


@cache
def _published() -> dict[str, Any]:
    """Return the published numbers."""
    text = (files("clickshift.experiments") / "published" / "pointwise.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def recognised_set(features: int, queries: int, max_label: int) -> str:
    """Return the key of a data set of the paper, by its content; "" if the paper does not have it.

    Parameters
    ----------
    features
        Number of features.
    queries
        Number of queries of all parts.
    max_label
        Highest label.

    Returns
    -------
    str
        "Yahoo" (set 1), "MSLR" (WEB30K), "Istella" (Istella-S) or "".

    Examples
    --------
    >>> recognised_set(136, 31_531, 4), recognised_set(136, 10_000, 4), recognised_set(46, 784, 2)
    ('MSLR', '', '')
    """
    for name, known in _published()["sets"].items():
        off = abs(queries / known["queries"] - 1)
        if max_label == 4 and abs(features - known["features"]) <= 1 and off <= _QUERIES_OFF:
            return str(name)
    return ""


def set_of_split(split: CorpusSplit) -> str:
    """Return the key of the data set of the paper that a split holds; "" if it is another one."""
    corpus = split.train
    features = 0 if corpus.features is None else corpus.features.shape[1]
    return recognised_set(features, sum(part.n_queries for part in split), corpus.max_label)


def set_of_rows(rows: Sequence[Row]) -> str:
    """Return the key of the data set of the paper that rows are of; "" if it is another one."""
    row = rows[0]
    if row.get("set") is not None:
        return str(row["set"])
    return ONE_HOT_SET if str(row["data"]).startswith(ONE_HOT_SET) else ""


def published_curve(key: str, axis: str, model: str) -> dict[float, float]:
    """Return the published nDCG@10 by sessions, collisions or eta; empty if the paper has no such figure."""
    figure = _published()[_FIGURE[axis]]
    values = figure.get(key, {}).get(model, [])
    return dict(zip(figure[axis], values, strict=False))


def published_half_width(key: str, axis: str, model: str, point: float) -> float:
    """Return half the width of the published 95 % interval, which only figure 5 has (by eta); NaN elsewhere."""
    intervals = _published()["intervals"].get(key, {}).get(model) if axis == "eta" else None
    if intervals is None:
        return math.nan
    low, high = intervals[_published()["figure5"]["eta"].index(point)]
    return float(high - low) / 2


def published_row(key: str, model: str) -> dict[str, tuple[Measured, str]]:
    """Return the published mean after 100 million sessions and its mark, by metric; empty if the paper has none.

    `half` is half the width of the 95 % interval of the mean, from the printed standard deviation over ten runs.
    """
    row = _published()["table2"].get(key, {}).get(model)
    if row is None:
        return {}
    return {
        metric: (Measured(mean, sd * _HALF_WIDTH, digits=3), mark)
        for metric, (mean, sd, mark) in zip(_METRICS, row, strict=True)
    }


def published_deviation(key: str, model: str, metric: str) -> float:
    """Return the printed standard deviation over ten runs after 100 million sessions."""
    return float(_published()["table2"][key][model][_METRICS.index(metric)][1])


def published_rate(key: str, *, loss: str, bias: str) -> float | None:
    """Return the learning rate of Adam that the paper chose for a ranker on a data set; None for other data sets."""
    rates: Mapping[str, float] = _published()["rates"].get(key, {})
    return rates.get("estimated" if bias == "estimated" else loss)


def published_table(rows: Sequence[Row], varied: Sequence[str], marks: Mapping[str, Mapping[str, str]]) -> Rows:
    """Put ours beside the published numbers: table 2 and figures 1, 4 and 5, where the paper has the data set.

    Parameters
    ----------
    rows
        Rows of kind "trained".
    varied
        Axes with several values: sessions, collisions, eta.
    marks
        Our marks by metric and model, for rows of 100 million sessions.

    Returns
    -------
    list of dict
        One line per number, with the difference and "agrees" or "differs", with the reason where it is known.
    """
    key = set_of_rows(rows)
    lines: list[dict[str, Any]] = []
    models = list(dict.fromkeys(str(row["model"]) for row in rows))
    axis = next(iter(varied), "sessions")
    for model in models:
        for point, value in published_curve(key, axis, model).items():
            ours = [row["nDCG@10"] for row in rows if row["model"] == model and row[axis] == point]
            in_table_2 = axis == "sessions" and point == LARGEST_LOG  # with a standard deviation
            if ours and not in_table_2:
                line: dict[str, Any] = {"model": model, axis: point, "metric": "nDCG@10"}
                mean_in_figure = Measured(value, published_half_width(key, axis, model, point), digits=3)
                lines.append(line | _compared(rows[0], model, axis, point, mean_in_figure, "", ours, ""))
                lines[-1]["published"] = mean_in_figure
        if set(varied) <= {"sessions"}:
            for metric, (mean, mark) in published_row(key, model).items():
                ours = [row[metric] for row in rows if row["model"] == model and row["sessions"] == LARGEST_LOG]
                if ours:
                    line = {"model": model, "sessions": LARGEST_LOG, "metric": metric}
                    own = marks.get(metric, {}).get(model, "")
                    lines.append(line | _compared(rows[0], model, "sessions", LARGEST_LOG, mean, mark, ours, own))
                    lines[-1]["sd"] = Measured(published_deviation(key, model, metric), digits=3)
    return lines


def _compared(
    row: Row, model: str, axis: str, point: float, published: Measured, mark: str, ours: Sequence[float], own: str
) -> dict[str, Any]:
    """Return the columns of a published number and ours."""
    mean = measured(list(ours), digits=3)
    half = 0.0 if math.isnan(mean.half) else mean.half
    error = math.hypot(half, half if math.isnan(published.half) else published.half)
    difference = mean.mean - published.mean
    agrees = abs(difference) <= error + _DIGITISED
    return {
        "published": Measured(published.mean, digits=3),
        "sd": None,
        "mark": mark,
        "ours": mean,
        "our mark": own,
        "difference": Measured(difference, digits=3, signed=True),
        "verdict": "agrees" if agrees else _reason(row, model, axis, point),
    }


def _reason(row: Row, model: str, axis: str, point: float) -> str:
    """Say why a number differs, as far as it is known (docs/decisions/0010); `row` is one of ours."""
    if set_of_rows([row]) != ONE_HOT_SET:
        return "differs because only some queries are used" if row.get("queries") else "differs"
    if model.startswith("PBM, estimated"):
        return "differs because the published examination hardly left its random start"
    reasons = ["the data (two copies of each document)"] if row["data"] == ONE_HOT_SET else []
    if model.startswith("Naive"):
        reasons += [] if row.get("as_published") else ["the round (last instead of best)"]
    elif axis == "collisions":
        reasons += ["early stopping: see the closed form"]
    elif axis == "sessions" and point < _NETWORK_BELOW:
        reasons += ["the published network"]
    else:
        return "differs"
    return f"differs because of {' and '.join(reasons)}" if reasons else "differs"
