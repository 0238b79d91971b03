"""How far examination inferred from clicks alone is from the observed one: what a fitted model keeps of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from clickshift.models.base import ClickModel

__all__ = ["VIEWS_LEVEL", "VIEWS_TOLERANCE", "largest_difference", "views_facts", "views_sentence"]

VIEWS_LEVEL = 0.01
"""P-value below which the two curves differ beyond chance."""
VIEWS_TOLERANCE = 0.05
"""Difference of examination up to which there is no warning."""


def largest_difference(views: Mapping[str, np.ndarray]) -> tuple[int, float, float] | None:
    """Return a situation where the two curves differ, the difference, and its p-value; None where none was compared.

    It is the largest difference among those beyond chance, or else the one that is nearest to that. The difference is
    the inferred examination minus the observed one; p-values are corrected for the number of situations (Bonferroni).

    Parameters
    ----------
    views
        `Evidence.views` of a fitted model.
    """
    from scipy.special import ndtr

    z, difference = np.abs(views["z"]), np.abs(views["from_clicks"] - views["observed"])
    compared = ~np.isnan(z) & ~np.isnan(difference)
    if not compared.any():
        return None
    p_value = np.minimum(2 * ndtr(-z) * compared.sum(), 1.0)
    beyond_chance = compared & (p_value < VIEWS_LEVEL)
    at = int(np.argmax(np.where(beyond_chance, difference, -1.0) if beyond_chance.any() else np.where(compared, z, -1)))
    return at, float(views["from_clicks"][at] - views["observed"][at]), float(p_value[at])


def views_facts(model: ClickModel) -> dict[str, Any]:
    """Return what is known of the views that a model was fitted on; empty without any.

    Parameters
    ----------
    model
        A fitted click model.
    """
    views = {} if model.evidence is None else model.evidence.views
    if not views:
        return {}
    facts: dict[str, Any] = {
        "known_views": float(views["known"].sum()),
        "clicks_without_a_view": float(views["contradicted"][0]),
        "largest_difference": None,
    }
    largest = largest_difference(views)
    if largest is not None:
        at, difference, p_value = largest
        row = model.examination_table()[at]
        label = {name: row[name] for name in ("segment", "rank", "last_click") if name in row}
        facts["largest_difference"] = {
            **label,
            "from_clicks": float(views["from_clicks"][at]),
            "observed": float(views["observed"][at]),
            "difference": difference,
            "p_value": p_value,
            "beyond_chance": p_value < VIEWS_LEVEL,
        }
    return facts


def views_sentence(model: ClickModel) -> str:
    """Return how far examination inferred from clicks is from the observed one, as a sentence; empty without views.

    Parameters
    ----------
    model
        A fitted click model.
    """
    facts = views_facts(model)
    if not facts:
        return ""
    text = f"Examination was observed for {facts['known_views']:,.0f} results."
    largest = facts["largest_difference"]
    if largest is None:
        return text
    where = f"rank {largest['rank']}"
    if largest.get("last_click"):
        where += f" below a click at rank {largest['last_click']}"
    if largest.get("segment"):
        where += f" on {largest['segment']}"
    verdict = "beyond chance" if largest["beyond_chance"] else "not beyond chance"
    return (
        f"{text} Inferred from clicks alone, it would differ most at {where}: {largest['from_clicks']:.2f} instead of "
        f"{largest['observed']:.2f}, {verdict}."
    )
