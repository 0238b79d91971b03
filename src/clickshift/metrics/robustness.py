"""Robustness: how a model's place among others changes when the ranker does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import overload

import numpy as np
from jaxtyping import Float

from clickshift.errors import DataError

BEST = 0.2
"""Normalised perplexity of the best model; that of the worst is ln 2 more, .893."""


@overload
def normalised_perplexity(value: float, among: Sequence[float] | Float[np.ndarray, " model"]) -> float: ...
@overload
def normalised_perplexity(
    value: Float[np.ndarray, "*n"], among: Sequence[float] | Float[np.ndarray, " model"]
) -> Float[np.ndarray, "*n"]: ...
def normalised_perplexity(
    value: float | Float[np.ndarray, "*n"], among: Sequence[float] | Float[np.ndarray, " model"]
) -> float | Float[np.ndarray, "*n"]:
    """nPPL = 0.2 + ln(1 + (PPL - min) / (max - min)), the policy-shift paper's eq. 16.

    `among` are the perplexities, means over seeds, of the click models under comparison on one log. Baselines, the
    oracle and models that peek are not among them. A model is more robust than its rivals where its ood nPPL is below
    its ind nPPL.

    A value outside the range of `among`, such as a baseline's or the oracle's, follows the same formula: above the
    worst model it is above 0.2 + ln 2, below the best one it is below 0.2. It does not fall below 0, the centre of the
    paper's charts: the logarithm ends where a value is as far below the best model as the worst is above it. Where
    all models are equal there is no scale, and every value is 0.2.

    >>> [round(normalised_perplexity(ppl, [1.2, 1.3, 1.4]), 4) for ppl in (1.2, 1.3, 1.4)]
    [0.2, 0.6055, 0.8931]
    """
    compared = np.asarray(among, np.float64)
    if not compared.size or not np.isfinite(compared).all():
        raise DataError(
            f"the perplexities under comparison must be numbers, at least one: got {compared.tolist()}. "
            "Leave out models without a perplexity."
        )
    best, worst = compared.min(), compared.max()
    perplexity = np.asarray(value, np.float64)
    if worst == best:
        normalised = np.where(np.isnan(perplexity), np.nan, BEST)
    else:
        normalised = BEST + np.log(np.maximum(1 + (perplexity - best) / (worst - best), math.exp(-BEST)))
    return normalised if isinstance(value, np.ndarray) else float(normalised)
