"""Choice of the estimator and of its clipping constant by SLOPE.

Estimators form a chain from the least to the most biased one, along which bias grows and variance falls. With 2 CNF as
half of an interval's width, SLOPE chooses the last estimator up to which all intervals have a point in common:

    i = max{ i : I_1 ∩ ... ∩ I_i is not empty },   I_i = [V_i - 2 CNF_i, V_i + 2 CNF_i]

Once an interval does not intersect the others, the bias exceeds the sampling error. As in the authors' code, CNF is the
standard error, made to decrease along the chain.

Clipping constants are such a chain, from the largest to the smallest: clipping removes reward, and more of it the
smaller the constant. List, IP and PBM without lost mass are one, too: each assumes what the one before it assumes, and
more. Item and RCTR have no place in it: under position bias as PBM describes it they are biased, and where clicks
depend on the document alone PBM is biased and Item is not. Only a backtest on past days can choose between those.

References
----------
Su, Y., Srinath, P. & Krishnamurthy, A. (2020). Adaptive estimator selection for off-policy evaluation. ICML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from clickshift.core.text import join_words
from clickshift.ope.daily_residuals import ResidualDrift
from clickshift.ope.estimate import Estimate, Evaluation

_CHAIN = ("List", "IP", "PBM")
"""Each estimator assumes more of clicks than the one before it."""
_ROUNDING = 1e-9
"""Lost mass up to this size is a rounding error."""
_BACKTEST = "choose by a backtest on past days"


@final
@dataclass(frozen=True)
class Choice:
    """The chosen estimate, and the reason for it.

    Parameters
    ----------
    estimate
        The estimate; None where only a backtest can choose.
    reason
        The reason, as a sentence.
    """

    estimate: Estimate | None
    reason: str


def _slope_index(value: Float[np.ndarray, " link"], error: Float[np.ndarray, " link"]) -> int:
    """Index at which SLOPE stops in a chain from the least to the most biased estimate; -1 if the first one is NaN.

    >>> _slope_index(np.array([0.50, 0.48, 0.30]), np.array([0.05, 0.03, 0.02]))
    1
    """
    width = 2 * np.fmax.accumulate(error[::-1])[::-1]
    low, high = np.maximum.accumulate(value - width), np.minimum.accumulate(value + width)
    disjoint = ~(low <= high)  # also where a value is NaN
    return int(disjoint.argmax()) - 1 if disjoint.any() else len(value) - 1


def best_clip(evaluation: Evaluation) -> Estimate:
    """Choose the clipping constant of one estimator by SLOPE.

    Parameters
    ----------
    evaluation
        Estimates for several clipping constants.

    Returns
    -------
    Estimate
        The estimate with the chosen clipping constant: the largest of those that give the same value.
    """
    descending = evaluation.estimates[::-1]
    index = max(_slope_index(*_values_and_errors(descending)), 0)
    return next(e for e in descending if e.value == descending[index].value or e is descending[index])


def choose_by_slope(evaluations: Sequence[Evaluation], drifts: Sequence[ResidualDrift] = ()) -> Choice:
    """Choose one of List, IP and PBM by SLOPE, and then its clipping constant.

    SLOPE needs two of the three estimators to cover everything that the target policy shows. Otherwise the usable
    estimator with the smallest daily residuals is chosen, if those are known.

    Parameters
    ----------
    evaluations
        One evaluation per estimator.
    drifts
        Summaries of the estimators' daily residuals.

    Returns
    -------
    Choice
        The chosen estimate, or None, and the reason.

    References
    ----------
    Su, Y., Srinath, P. & Krishnamurthy, A. (2020). Adaptive estimator selection for off-policy evaluation. ICML.
    """
    by_name = {e.estimates[-1].estimator: e for e in evaluations}
    candidates = [by_name[name] for name in _CHAIN if name in by_name]
    covering = [e for e in candidates if _covers(e.estimates[-1])]
    if len(candidates) == 1:
        only = candidates[0].estimates[-1]
        reason = f"{only.estimator} is the only one of {join_words(_CHAIN)} that was computed"
        if only.verdict == "usable":
            return _choose_clip(candidates[0], f"{reason}.")
        return _choose_by_days(by_name, drifts, f"{reason}, and its verdict is {only.verdict!r}")
    if not covering:
        return _choose_by_days(by_name, drifts, f"None of {join_words(_CHAIN)} covers everything that the target shows")
    names = [e.estimates[-1].estimator for e in covering]
    if len(covering) == 1:
        reason = f"Of {join_words(_CHAIN)}, only {names[0]} covers everything that the target shows"
        return _choose_by_days(by_name, drifts, reason)
    index = max(_slope_index(*_values_and_errors([e.estimates[-1] for e in covering])), 0)
    reason = f"{names[index]} is chosen: "
    if index == 0:
        reason += f"{names[1]} assumes more, and differs from it by more than sampling error explains."
    else:
        reason += f"it agrees with {join_words(names[:index])} within sampling error, and assumes more"
        last = index == len(names) - 1
        reason += "." if last else f"; {names[index + 1]}, which assumes still more, does not agree."
    if names[0] != _CHAIN[0]:
        first = covering[0].estimates[-1]
        reason += (
            f" {join_words(_CHAIN[: _CHAIN.index(names[0])])} cannot test whether {first.assumption}: this is assumed."
        )
    return _choose_clip(covering[index], reason)


def _choose_by_days(by_name: Mapping[str, Evaluation], drifts: Sequence[ResidualDrift], reason: str) -> Choice:
    """Choose the usable estimator with the smallest daily residuals."""
    usable = [d for d in drifts if d.estimator in by_name and best_clip(by_name[d.estimator]).verdict == "usable"]
    if not usable:
        return Choice(None, f"{reason}: {_BACKTEST}.")
    best = min(usable, key=lambda d: d.rms)
    result = (
        f"of the usable estimators, {best.estimator} has the smallest daily residuals, with a root mean square of "
        f"{best.rms:.4f}"
    )
    return Choice(best_clip(by_name[best.estimator]), f"{reason}; {result}.")


def _choose_clip(evaluation: Evaluation, reason: str) -> Choice:
    """Choose the clipping constant of an estimator, and add to the reason."""
    chosen, largest = best_clip(evaluation), evaluation.estimates[-1]
    if chosen is not largest:
        reason += (
            f" Clipping at {chosen.clip:g} changes the value by no more than sampling error explains; the mass that it "
            "removes is not accounted for in the interval."
        )
    elif len(evaluation.estimates) > 1 and evaluation.estimates[0].value != largest.value:
        reason += " Stronger clipping changes the value by more than sampling error explains."
    return Choice(chosen, reason)


def _covers(estimate: Estimate) -> bool:
    """Whether the largest possible reward of lost mass is below the standard error, and so within sampling error."""
    return estimate.lost <= _ROUNDING or estimate.ceiling - estimate.floor <= estimate.error


def _values_and_errors(estimates: Sequence[Estimate]) -> tuple[np.ndarray, np.ndarray]:
    """Values and standard errors of estimates."""
    return np.array([e.value for e in estimates]), np.array([e.error for e in estimates])
