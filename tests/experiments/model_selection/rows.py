"""Rows as a model-selection run gives them, from numbers that a test writes down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Rows = list[dict[str, Any]]


def rows_of_log(
    models: Mapping[str, Mapping[str, float]], *, user: str = "PBM", training: str = "NoisyOracle", seed: int = 0
) -> Rows:
    """Per model its metrics by column, and "ood.<policy>" for the perplexity on that policy's lists."""
    rows: Rows = []
    for model, numbers in models.items():
        about = {"user": user, "training": training, "model": model, "seed": seed, "role": "click model"}
        known = {name: value for name, value in numbers.items() if not name.startswith("ood.")}
        rows.append({**about, "kind": "metrics", **known})
        for name, value in numbers.items():
            if name.startswith("ood."):
                testing = name.removeprefix("ood.")
                rows.append({**about, "kind": "clicks", "testing": testing, "shift": "ood", "perplexity": value})
        rows.append({**about, "kind": "clicks", "testing": training, "shift": "ind", "perplexity": 1.0})
    return rows
