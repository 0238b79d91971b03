"""Which estimator, and which clipping constant: SLOPE (Su, Srinath & Krishnamurthy, ICML 2020).

Estimators are put in a chain, the least biased first, whose bias grows and whose spread falls. With 2 CNF as half of
an interval, the last one is taken up to which all intervals have a point in common:

    i = max{ i : I_1 ∩ ... ∩ I_i is not empty },   I_i = [V_i - 2 CNF_i, V_i + 2 CNF_i]

As soon as an interval leaves the others, bias has become larger than chance. As in the authors' code, CNF is the
standard error, made to fall along the chain.

Clipping constants are such a chain, the largest first: clipping takes away reward, the more the smaller the constant.
So are List, IP and PBM without lost mass, each of which assumes what the one before it does, and more. Item and RCTR
have no place in it: where users examine as PBM says they are biased, and where clicks depend on the document alone PBM
is biased and Item is not. Between those, only a backtest on past days can choose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from clickshift.ope.daily_residuals import ResidualDrift
from clickshift.ope.evaluate import Evaluation
from clickshift.ope.result import Estimate

_CHAIN = ("List", "IP", "PBM")
"""Each assumes more of clicks than the one before it."""
_NOTHING = 1e-9
"""Lost mass that only rounding leaves."""
_BACKTEST = "let a backtest on past days choose"


@final
@dataclass(frozen=True)
class Choice:
    """What to go by, and why."""

    estimate: Estimate | None
    """None where only a backtest can choose."""
    reason: str


def _slope_index(value: Float[np.ndarray, " link"], error: Float[np.ndarray, " link"]) -> int:
    """The place in a chain, the least biased first, at which SLOPE stops.

    >>> slope(np.array([0.50, 0.48, 0.30]), np.array([0.05, 0.03, 0.02]))
    1
    """
    width = 2 * np.fmax.accumulate(error[::-1])[::-1]
    low, high = np.maximum.accumulate(value - width), np.minimum.accumulate(value + width)
    apart = ~(low <= high)  # also where a value is not known
    return int(apart.argmax()) - 1 if apart.any() else len(value) - 1


def best_clip(evaluation: Evaluation) -> Estimate:
    """The estimate whose clipping constant SLOPE takes; the largest of those that give the same value."""
    falling = evaluation.estimates[::-1]
    at = max(_slope_index(*_values(falling)), 0)
    return next(e for e in falling if e.value == falling[at].value or e is falling[at])


def choose_by_slope(evaluations: Sequence[Evaluation], drifts: Sequence[ResidualDrift] = ()) -> Choice:
    """One of List, IP and PBM, where two of them tell of all that the target shows; then its clipping constant.

    Otherwise the usable one that came closest on the log's own days, if these are known.
    """
    by_name = {e.estimates[-1].estimator: e for e in evaluations}
    asked = [by_name[name] for name in _CHAIN if name in by_name]
    covered = [e for e in asked if _covers(e.estimates[-1])]
    if len(asked) == 1:
        only = asked[0].estimates[-1]
        why = f"{only.estimator} is the only one of {_names(_CHAIN)} to be asked"
        if only.verdict == "usable":
            return _chosen(asked[0], f"{why}.")
        return _by_days(by_name, drifts, f"{why}, and its verdict is {only.verdict!r}")
    if not covered:
        return _by_days(by_name, drifts, f"None of {_names(_CHAIN)} tells of all that the target shows")
    names = [e.estimates[-1].estimator for e in covered]
    if len(covered) == 1:
        why = f"Of {_names(_CHAIN)}, {names[0]} alone tells of all that the target shows"
        return _by_days(by_name, drifts, why)
    at = max(_slope_index(*_values([e.estimates[-1] for e in covered])), 0)
    why = f"{names[at]} is chosen: "
    if at == 0:
        why += f"{names[1]} assumes more, and differs from it by more than chance explains."
    else:
        why += f"it agrees with {_names(names[:at])} within chance, and assumes more"
        why += "." if at == len(names) - 1 else f"; {names[at + 1]}, which assumes still more, does not agree."
    if names[0] != _CHAIN[0]:
        first = covered[0].estimates[-1]
        why += (
            f" {_names(_CHAIN[: _CHAIN.index(names[0])])} cannot tell whether {first.assumption}: that is taken for "
            "granted."
        )
    return _chosen(covered[at], why)


def _by_days(by_name: Mapping[str, Evaluation], drifts: Sequence[ResidualDrift], why: str) -> Choice:
    usable = [d for d in drifts if d.estimator in by_name and best_clip(by_name[d.estimator]).verdict == "usable"]
    if not usable:
        return Choice(None, f"{why}: {_BACKTEST}.")
    best = min(usable, key=lambda d: d.rms)
    told = f"of those that are usable, {best.estimator} came closest on the log's own days, off by {best.rms:.4f}"
    return Choice(best_clip(by_name[best.estimator]), f"{why}; {told}.")


def _chosen(evaluation: Evaluation, why: str) -> Choice:
    found, largest = best_clip(evaluation), evaluation.estimates[-1]
    if found is not largest:
        why += (
            f" Clipping at {found.clip:g} changes it by no more than chance explains; what it takes away is not in the "
            "interval."
        )
    elif len(evaluation.estimates) > 1 and evaluation.estimates[0].value != largest.value:
        why += " Stronger clipping changes it by more than chance explains."
    return Choice(found, why)


def _covers(estimate: Estimate) -> bool:
    """Whether all that lost mass could earn is less than the standard error: then it cannot be told from chance."""
    return estimate.lost <= _NOTHING or estimate.ceiling - estimate.floor <= estimate.error


def _values(estimates: Sequence[Estimate]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([e.value for e in estimates]), np.array([e.error for e in estimates])


def _names(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
