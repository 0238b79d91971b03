"""Grading: what a click model says of documents, as graded judgments whose cut points are stated.

A grade is the number of cut points that the relevance reaches: with cuts 0.1 and 0.4, grade 0 is below 0.1, grade 1
from 0.1 to below 0.4, grade 2 from 0.4 on.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.errors import CapabilityError, ClickshiftWarning, DataError, SpecError
from clickshift.models.base import ClickModel

DEFAULT_GRADES = "0.05,0.1,0.2,0.4"
"""Five grades for a relevance that is a probability."""
_MAX_GRADES = 31
"""As many as LightGBM has gains for."""


@final
@dataclass(frozen=True, eq=False)
class Grading:
    """Graded pairs of queries and documents, the best of each query first."""

    table: Any
    """A pyarrow table: query, doc, relevance, low, high, impressions, clicks, grade, weight."""
    cuts: tuple[float, ...]
    """Ascending; see the module on what a grade is."""
    left_out: int
    """Pairs with too few impressions."""

    @property
    def counts(self) -> Int[np.ndarray, " grade"]:
        """How many pairs have each grade."""
        return np.bincount(self.table["grade"].to_numpy(), minlength=len(self.cuts) + 1)

    @property
    def certain_share(self) -> float:
        """The share of pairs whose whole interval has one grade; NaN where the model has no intervals."""
        low, high = self.table["low"].to_numpy(), self.table["high"].to_numpy()
        known = ~(np.isnan(low) | np.isnan(high))
        if not known.any():
            return math.nan
        return float((_assign_grades(low[known], self.cuts) == _assign_grades(high[known], self.cuts)).mean())

    @property
    def group_sizes(self) -> Int[np.ndarray, " query"]:
        """How many rows each query has, in the order of the table."""
        sizes: np.ndarray = self.table["query"].value_counts().field("counts").to_numpy()
        return sizes


def grade_documents(
    model: ClickModel, *, grades: str = DEFAULT_GRADES, min_impressions: int = 0, level: float = 0.95
) -> Grading:
    """Judge every pair that a model knows and that was shown often enough.

    `grades` are ascending cut points ("0.05,0.1,0.2,0.4"), or "quantile:5" for cuts into five grades of equal size.
    """
    import pyarrow as pa

    asked = parse_grades(grades)
    table = model.relevance_table(level=level)
    keep = _shown_often(model, table["impressions"].to_numpy(), min_impressions)
    error = None if model.evidence is None else model.evidence.logit_error.get("relevance")
    weight = np.ones(table.num_rows)
    if error is not None:
        pair = model.vocabulary.pair_numbers(table["query"], table["doc"])
        weight = _reliability_weight(table["relevance"].to_numpy(), error[pair])
    table = table.append_column("weight", pa.array(weight)).filter(pa.array(keep))
    relevance = table["relevance"].to_numpy()
    cuts = _quantile_cuts(relevance, asked) if isinstance(asked, int) else asked
    grade = _assign_grades(relevance, cuts)
    if relevance.max() > 1 and max(cuts, default=2.0) <= 1:
        warnings.warn(
            f"relevance goes up to {relevance.max():.4g} here, so it is no probability, and cut points up to "
            f"{max(cuts):g} say little. Choose others, or quantile:5.",
            ClickshiftWarning,
            stacklevel=2,
        )
    if len(np.unique(grade)) < 2 and len(grade) > 1:
        warnings.warn(
            f"all {len(grade):,} pairs have grade {grade[0]}: relevance is from {relevance.min():.4g} to "
            f"{relevance.max():.4g}, the cut points are {_list(cuts)}. Choose cut points between, or quantile:5.",
            ClickshiftWarning,
            stacklevel=2,
        )
    place = table.column_names.index("weight")
    return Grading(table.add_column(place, "grade", pa.array(grade)), cuts, int((~keep).sum()))


def parse_grades(text: str) -> tuple[float, ...] | int:
    """Cut points, or the number of grades of equal size."""
    problem = SpecError(
        f"grades must be ascending cut points such as {DEFAULT_GRADES}, or quantile:N for N grades of equal size, N from 2 to "
        f"{_MAX_GRADES}: got {text!r}."
    )
    kind, colon, number = text.partition(":")
    if colon:
        if kind.strip() != "quantile" or not number.strip().isdecimal() or not 2 <= int(number) <= _MAX_GRADES:
            raise problem
        return int(number)
    try:
        cuts = tuple(float(cut) for cut in text.split(","))
    except ValueError:
        raise problem from None
    if not all(map(math.isfinite, cuts)) or list(cuts) != sorted(set(cuts)) or len(cuts) >= _MAX_GRADES:
        raise problem
    return cuts


def _assign_grades(relevance: Float[np.ndarray, " pair"], cuts: tuple[float, ...]) -> Int[np.ndarray, " pair"]:
    """How many cut points each relevance reaches.

    >>> grades_of(np.array([0.05, 0.1, 0.5]), (0.1, 0.4)).tolist()
    [0, 1, 2]
    """
    grade: np.ndarray = np.searchsorted(np.array(cuts), relevance, side="right")
    return grade


def _quantile_cuts(relevance: Float[np.ndarray, " pair"], grades: int) -> tuple[float, ...]:
    """Cut points that make grades of equal size; fewer where so many pairs are equal that a grade would be empty."""
    ascending = np.sort(relevance)
    cuts = np.unique(ascending[np.arange(1, grades) * len(ascending) // grades])
    cuts = cuts[cuts > ascending[0]]
    if len(cuts) < grades - 1:
        warnings.warn(
            f"there are {len(cuts) + 1} grades instead of {grades}: many pairs have the same relevance.",
            ClickshiftWarning,
            stacklevel=3,
        )
    return tuple(cuts.tolist())


def _reliability_weight(
    relevance: Float[np.ndarray, " pair"], error: Float[np.ndarray, " pair"]
) -> Float[np.ndarray, " pair"]:
    """Inverse variance, relative to that of a pair which is known exactly: V / (V + error^2) in logits.

    V is the variance of the logits over all pairs, so that a pair whose error is as large as the differences between
    pairs weighs 1/2. The plain inverse variance would give a few frequent pairs all the weight.
    """
    logit = np.log(np.clip(relevance, 1e-12, 1) / np.clip(1 - relevance, 1e-12, 1))
    spread = logit.var()
    if not spread > 0:
        return np.ones(len(relevance))
    weight: np.ndarray = spread / (spread + np.where(np.isnan(error), np.inf, error) ** 2)
    return weight


def _shown_often(model: ClickModel, impressions: np.ndarray, least: int) -> Bool[np.ndarray, " pair"]:
    if least <= 0:
        return np.ones(len(impressions), bool)
    if model.evidence is None:
        raise CapabilityError(f"this {type(model).__name__} was not fitted on a log, and knows no impressions.")
    keep: np.ndarray = impressions >= least
    if not keep.any():
        raise DataError(
            f"at least one pair must be shown {least:,} times: the most frequent one was shown "
            f"{impressions.max():,.0f} times. Ask for fewer impressions."
        )
    return keep


def _list(cuts: tuple[float, ...]) -> str:
    return ", ".join(f"{cut:.4g}" for cut in cuts) or "none"


def grading_facts(grading: Grading) -> dict[str, Any]:
    """What was judged, where the cuts are, and how sure the grades are."""
    return {
        "queries": len(grading.group_sizes),
        "pairs": grading.table.num_rows,
        "pairs_left_out": grading.left_out,
        "cut_points": list(grading.cuts),
        "pairs_by_grade": {str(grade): int(count) for grade, count in enumerate(grading.counts)},
        "pairs_whose_interval_has_one_grade": grading.certain_share,
    }
