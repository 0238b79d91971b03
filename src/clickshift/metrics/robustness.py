"""Robustness to policy shift: how a model's perplexity relative to others changes with the ranker."""

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
    """Normalise perplexities: nPPL = 0.2 + ln(1 + (PPL - min) / (max - min)), eq. 16 of the policy-shift paper.

    A model is more robust than the models it is compared with if its out-of-distribution nPPL is below its
    in-distribution nPPL.

    A value outside the range of `among`, such as that of a baseline or the oracle, follows the same formula: above
    0.2 + ln 2 if it is worse than the worst model, below 0.2 if it is better than the best one. It does not fall below
    0, the centre of the paper's charts: the logarithm ends where a value is as far below the best model as the worst is
    above it. Where all models are equal there is no scale, and every value is 0.2.

    Parameters
    ----------
    value
        Perplexities to normalise.
    among
        Perplexities, as means over seeds, of the click models under comparison on one log, without baselines, the
        oracle and models that are shown the clicks they predict.

    Returns
    -------
    float or Float[*n]
        Normalised perplexities.

    Raises
    ------
    DataError
        "not-finite" if `among` is empty or has a value that is not finite.

    References
    ----------
    Deffayet, R., Renders, J.-M., de Rijke, M. (2022). Evaluating the robustness of click models to policy
    distributional shift. ACM TOIS.

    Examples
    --------
    >>> [round(normalised_perplexity(ppl, [1.2, 1.3, 1.4]), 4) for ppl in (1.2, 1.3, 1.4)]
    [0.2, 0.6055, 0.8931]
    """
    compared = np.asarray(among, np.float64)
    if not compared.size or not np.isfinite(compared).all():
        raise DataError(
            f"the perplexities under comparison must be numbers, at least one: got {compared.tolist()}. "
            "Leave out models without a perplexity.",
            code="not-finite",
        )
    best, worst = compared.min(), compared.max()
    perplexity = np.asarray(value, np.float64)
    if worst == best:
        normalised = np.where(np.isnan(perplexity), np.nan, BEST)
    else:
        normalised = BEST + np.log(np.maximum(1 + (perplexity - best) / (worst - best), math.exp(-BEST)))
    return normalised if isinstance(value, np.ndarray) else float(normalised)
