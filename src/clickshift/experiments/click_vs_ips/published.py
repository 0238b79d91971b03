"""What the IPS paper printed, for the sets that it used."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

_FIGURE = {"sessions": "figure1", "collisions": "figure4", "eta": "figure5"}


@cache
def _published() -> dict[str, Any]:
    text = (files("clickshift.experiments") / "published" / "pointwise.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def published_name(data: str) -> str:
    """The name of a set in the paper's tables, by the name of its folder; "" for a set of one's own.

    >>> published_name("Istella-S"), published_name("one-hot-twice"), published_name("builtin")
    ('Istella', 'one-hot', '')
    """
    return next((name for name in _published()["table2"] if name.lower() in data.lower()), "")


def published_curve(data: str, axis: str, model: str) -> dict[float, float]:
    """nDCG@10 by sessions, collisions or eta, where there is a figure of it."""
    figure = _published()[_FIGURE[axis]]
    values = figure.get(published_name(data), {}).get(model, [])
    return dict(zip(figure[axis], values, strict=False))


def published_row(data: str, model: str) -> list[list[float]] | None:
    """Mean and standard deviation of nDCG@5, nDCG@10 and ARP after 100 million sessions."""
    row: list[list[float]] | None = _published()["table2"].get(published_name(data), {}).get(model)
    return row
