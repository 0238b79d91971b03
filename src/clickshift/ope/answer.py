"""The answer of an off-policy evaluation: one difference with one interval and one verdict.

What the log cannot know is in the interval: sampling, estimated browsing, documents that were never logged or hardly
examined, and which click model is right. The interval is the union over the click-model families that the log does not
reject, or that of whole lists (List) where enough of them were logged, which assumes nothing.

References
----------
Berger, R. L. and Boos, D. D. (1994). P values maximized over a confidence set for the nuisance parameter. JASA.

Armstrong, T. B. and Kolesár, M. (2018). Optimal inference in a class of regression models. Econometrica.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, final

import numpy as np

from clickshift.core.text import join_words
from clickshift.ope.family_values import FamilyValue
from clickshift.ope.model_confidence_set import POSITION_MODELS, REJECTION_LEVEL, FamilyFit
from clickshift.ope.model_free import MAX_PARETO_K, ModelFree
from clickshift.ope.model_value import LostMass
from clickshift.ope.partial_identification import Interval, Quantity

AnswerVerdict = Literal["usable", "weak", "not identified"]
"""Whether the interval of an answer can be trusted at its level, is indicative only, or does not exist."""

MAX_LOST_USABLE = 0.2
"""Lost share of the target's exposure up to which an answer is usable."""
MAX_LOST = 0.5
"""Lost share of the target's exposure above which there is no answer."""
MIN_EFFECTIVE = 100
"""Effective sample size that a usable answer needs, in sessions."""
MIN_SESSIONS = 100
"""Sessions of queries that the target ranks below which there is no answer."""
SPREAD_FACTOR = 0.5
"""Half-width for the choice of the model, in ranges of the values of the families that predict about as well."""
CLOSE_Z = 10.0
"""Deficit in standard errors up to which a family predicts about as well as the best one."""
TOTAL_SPREAD_FACTOR = 0.25
"""The same half-width in ranges of the values of all families, at least: users of none of them may look like one."""
MIN_SWAPS = 30
"""Effective swaps of documents between ranks below which an answer that rests on PBM or UBM is weak."""
MIN_RELATIVE_WIDTH = 0.002
"""Smallest half-width of an answer, as a share of the log's reward: no click model is exact."""


def clipping_constant(sessions: float) -> float:
    """Largest weight of a document, by the number of sessions.

    One click of a document with weight w moves the value by w / n: it must be small against the standard error, which
    is of the order 1 / sqrt(n) (Ionides 2008).

    References
    ----------
    Ionides, E. L. (2008). Truncated importance sampling. Journal of Computational and Graphical Statistics.

    Examples
    --------
    >>> clipping_constant(10_000)
    50.0
    """
    return max(5.0, math.sqrt(sessions) / 2)


@final
@dataclass(frozen=True)
class Family:
    """A click-model family in an answer.

    Parameters
    ----------
    name
        Name of the family.
    kept
        Whether the log does not reject it.
    reason
        Why the log rejects it; empty if it does not.
    deficit
        Held-out log-likelihood per session of the best family minus that of this one, in nats.
    z
        The deficit divided by its standard error.
    p_value
        P-value of the test whether the family reproduces in which sessions documents are clicked.
    lost
        Share of the target's exposure that is lost: never logged, or clipped.
    value
        Reward per session of the target under the family.
    difference
        The same minus the reward of the log (or of the first target, where two are compared).
    low, high
        Interval of the difference under this family; NaN for a rejected one.
    """

    name: str
    kept: bool
    reason: str
    deficit: float
    z: float
    p_value: float
    lost: float
    value: float
    difference: float
    low: float
    high: float


@final
@dataclass(frozen=True)
class Answer:
    """What a target policy would earn more than the log, with everything that the log does not tell in the interval.

    Parameters
    ----------
    verdict
        "usable", "weak" (indicative only) or "not identified" (the log cannot tell; all numbers but `today` are NaN).
    estimator
        What the interval rests on: "CIPS" with the click-model families that the log does not reject, "List", or with
        logged propensities "RIPS" or "IP"; empty where there is no answer.
    value, low, high
        Reward per session of the target, with its interval.
    today
        Reward per session of the log, on the same sessions and over as many ranks; where two targets are compared, the
        reward of the first one.
    difference, difference_low, difference_high
        Value minus today, paired, with its interval.
    level
        Confidence level of the intervals.
    lost
        Share of the target's exposure that is lost: never logged, or clipped.
    effective
        Effective sample size, in sessions.
    reasons
        Sentences: why this verdict, and what would help.
    parts
        Half-widths that add up to that of the difference: "sampling", "model" (estimated browsing), "lost mass" and
        "choice of model".
    families
        The click-model families.
    """

    verdict: AnswerVerdict
    estimator: str
    value: float
    low: float
    high: float
    today: float
    difference: float
    difference_low: float
    difference_high: float
    level: float
    lost: float
    effective: float
    reasons: tuple[str, ...]
    parts: Mapping[str, float]
    families: tuple[Family, ...]

    @property
    def relative(self) -> tuple[float, float, float]:
        """The difference and its limits as shares of today's reward."""
        scale = self.today if self.today > 0 else math.nan
        return self.difference / scale, self.difference_low / scale, self.difference_high / scale

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as texts, numbers, lists and dicts."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        families = [asdict(family) for family in self.families]
        return own | {"reasons": list(self.reasons), "parts": dict(self.parts), "families": families}


def too_few_sessions(sessions: int, today: float, level: float) -> Answer:
    """Return the answer for a log with too few sessions of queries that the target ranks.

    Parameters
    ----------
    sessions
        Number of those sessions.
    today
        Their mean reward.
    level
        Confidence level.
    """
    reason = f"The log has {sessions:,} sessions of queries that the target ranks; an answer needs {MIN_SESSIONS}."
    return _unanswered(today, level, 1.0, 0.0, (reason,), ())


def _unanswered(
    today: float, level: float, lost: float, effective: float, reasons: tuple[str, ...], families: tuple[Family, ...]
) -> Answer:
    """Return the answer where nothing is valid: all numbers but today's are NaN."""
    nan = math.nan
    return Answer(
        "not identified", "", nan, nan, nan, today, nan, nan, nan, level, lost, effective, reasons, {}, families
    )


@final
@dataclass(frozen=True, eq=False)
class TargetValues:
    """Everything that is known about the reward of one target.

    Parameters
    ----------
    families
        Value under each click-model family.
    model_free
        Values by whole lists and, where the log carries such propensities, by prefixes of lists and by documents at
        their ranks.
    """

    families: Sequence[FamilyValue]
    model_free: Sequence[ModelFree]


def make_answer(
    fits: Sequence[FamilyFit],
    target: TargetValues,
    *,
    share: float,
    sessions: float,
    largest: float,
    level: float = 0.95,
    against: TargetValues | None = None,
    weak_reasons: Sequence[str] = (),
    unidentified: str = "",
    swaps: float = math.inf,
) -> Answer:
    """Combine the families that a log does not reject, and whole lists, into one answer.

    Parameters
    ----------
    fits
        Click-model families.
    target
        Values of the target.
    share
        Share of the log's sessions in the jackknife of the families.
    sessions
        Number of sessions of queries that the target ranks.
    largest
        Largest reward of a session.
    level
        Confidence level.
    against
        Values of another target, which takes the place of the log.
    weak_reasons
        Sentences on further reasons for a weak verdict, such as changes between days.
    unidentified
        Sentence on why examination is not identified from this log; empty if it is.
    swaps
        Effective swaps of documents on the weakest link between ranks.

    Returns
    -------
    Answer
        The answer.
    """
    both = [target] if against is None else [target, against]
    union = _union(fits, target, against, share, level)
    exact = _without_model(both, level)
    today = target.families[0].full.today if against is None else against.families[union.best].full.value
    lost, effective = _worst_overlap(both, union.used)
    reasons: list[str] = []
    weak = list(weak_reasons)
    nothing = ""
    use_lists = exact is not None and (union.none_fits or exact.width <= union.difference.width)
    on_ranks = any(fits[k].name in POSITION_MODELS for k in union.used)
    if unidentified and on_ranks:
        nothing = unidentified
    elif lost > MAX_LOST:
        nothing = f"{lost:.0%} of what users would examine of the target was never logged, or hardly ever examined."
    elif union.none_fits:
        nothing = _contradicted(target, against)
    if use_lists or (nothing and exact is not None and exact.known):
        use_lists, nothing = True, ""
    elif on_ranks and swaps < MIN_SWAPS:
        weak.append(
            f"Too few documents were shown at several ranks ({swaps:.0f} effective swaps, {MIN_SWAPS} needed) to "
            "estimate examination well."
        )
    families = _families(fits, target, against, union)
    if nothing:
        advice = (*_advice(lost, effective, sessions), _RANDOMISE)
        return _unanswered(today, level, lost, effective, (nothing, *weak, *advice), families)
    if use_lists and exact is not None:
        estimator = exact.estimator
        if not union.none_fits and (
            exact.difference.low > union.difference.high or exact.difference.high < union.difference.low
        ):
            what = "Whole lists" if estimator == "List" else "Propensities by position"
            weak.append(f"{what} and the click models that the log does not reject disagree.")
        reasons.append(_WITHOUT_A_MODEL[estimator])
        lost, effective = exact.lost, exact.effective
        chosen, today = exact, exact.point - exact.point_difference
    else:
        reasons.append(_on_families(fits, union))
        chosen, estimator = union, f"CIPS ({', '.join(fits[k].name for k in union.used)})"
    if lost > _NEGLIGIBLE:
        reasons.append(
            f"{lost:.1%} of what users would examine of the target was never logged, or hardly ever examined: the "
            "interval covers whatever it earns."
        )
    if lost > MAX_LOST_USABLE:
        weak.append(f"That is more than {MAX_LOST_USABLE:.0%}.")
    if effective < MIN_EFFECTIVE:
        weak.append(f"The effective sample size is {effective:,.0f} sessions, fewer than {MIN_EFFECTIVE}.")
    if weak:
        weak += _advice(lost, effective, sessions)
    limits, parts = _at_least(chosen.difference, chosen.parts, MIN_RELATIVE_WIDTH * today)
    low, high = (min(max(end, 0.0), largest) for end in chosen.value)
    return Answer(
        verdict="weak" if weak else "usable",
        estimator=estimator,
        value=chosen.point,
        low=min(low, chosen.point),
        high=max(high, chosen.point),
        today=today,
        difference=chosen.point_difference,
        difference_low=limits.low,
        difference_high=limits.high,
        level=level,
        lost=lost,
        effective=effective,
        reasons=(*reasons, *weak),
        parts=parts,
        families=families,
    )


_WITHOUT_A_MODEL = {
    "List": "It rests on the lists that the log and the target share, and assumes nothing of clicks.",
    "RIPS": "It rests on the propensities by position that the log carries, and assumes that a click depends only on "
    "its document and on those above it.",
    "IP": "It rests on the propensities by position that the log carries, and assumes that a click depends only on the "
    "document and its rank.",
}
_NEGLIGIBLE = 0.0005
"""Lost share that reasons do not mention."""
_RANDOMISE = "Randomise the order of some results and log the propensities, or show the target to some users."
"""What helps where nothing answers."""


class _Combined(NamedTuple):
    """A value and a difference with their intervals, of one estimator or of several families together."""

    point: float
    point_difference: float
    value: Interval
    difference: Interval
    parts: dict[str, float]
    lost: float = 0.0
    effective: float = math.inf
    used: tuple[int, ...] = ()
    best: int = 0
    none_fits: bool = False
    by_family: Mapping[int, Interval] = MappingProxyType({})
    estimator: str = ""
    known: bool = False

    @property
    def width(self) -> float:
        """Width of the difference."""
        return self.difference.width


def _union(
    fits: Sequence[FamilyFit], target: TargetValues, against: TargetValues | None, share: float, level: float
) -> _Combined:
    """Unite the intervals of all families that the log does not reject, at a slightly higher level.

    Where it rejects all of them, there is no interval: their estimates may all be wrong alike.
    """
    kept = tuple(k for k, fit in enumerate(fits) if fit.kept)
    used = kept or tuple(range(len(fits)))
    best = min(used, key=lambda k: fits[k].deficit)
    full = target.families[best].full
    everyone = _points(target, against)
    if not kept:
        unknown = Interval(math.nan, math.nan)
        return _Combined(full.value, everyone[best], unknown, unknown, {}, used=used, best=best, none_fits=True)
    level = min(level + REJECTION_LEVEL, (1 + level) / 2)
    intervals, values, widths = {}, {}, {}
    for k in kept:
        other = None if against is None else against.families[k]
        intervals[k], *widths[k] = _difference(target.families[k], other).interval(share, level)
        values[k] = _value(target.families[k]).interval(share, level)[0]
    close = [point for k, point in enumerate(everyone) if k in kept or fits[k].z < CLOSE_Z]
    extra = max(SPREAD_FACTOR * _range(close), TOTAL_SPREAD_FACTOR * _range(everyone))
    united, value = (
        Interval(min(i.low for i in ends.values()) - extra, max(i.high for i in ends.values()) + extra)
        for ends in (intervals, values)
    )
    sampling, model = widths[best]
    parts = {
        "sampling": sampling,
        "model": model,
        "lost mass": _rounded(intervals[best].width / 2 - sampling - model),
        "choice of model": _rounded((united.width - intervals[best].width) / 2),
    }
    return _Combined(full.value, everyone[best], value, united, parts, used=kept, best=best, by_family=intervals)


def _range(values: Sequence[float]) -> float:
    """Return the largest value minus the smallest one."""
    return max(values) - min(values)


def _points(target: TargetValues, against: TargetValues | None) -> list[float]:
    """Return the difference under each family, without interval."""
    others: Sequence[FamilyValue | None] = [None] * len(target.families) if against is None else against.families
    return [float(_difference(own, other).full[0]) for own, other in zip(target.families, others, strict=True)]


def _contradicted(target: TargetValues, against: TargetValues | None) -> str:
    """Say that no family is left, and what the families estimate."""
    points = _points(target, against)
    return (
        "The log contradicts every click-model family, and too few of its sessions show lists of the target for an "
        f"answer without one. The click models put the difference between {min(points):+.4f} and {max(points):+.4f}, "
        "but all of them may be wrong alike."
    )


def _without_model(targets: Sequence[TargetValues], level: float) -> _Combined | None:
    """Value without a click model, by the weakest assumption for which enough was logged; None where there is none."""
    for first in targets[0].model_free:
        found = [m for t in targets for m in t.model_free if m.estimator == first.estimator]
        if len(found) == len(targets) and all(_is_reliable(m) for m in found):
            return _combined(found, level)
    return None


def _is_reliable(value: ModelFree) -> bool:
    """Return whether a value without a click model rests on enough sessions, none of which has most of the weight."""
    return value.effective >= MIN_EFFECTIVE and value.pareto_k <= MAX_PARETO_K


def _combined(found: Sequence[ModelFree], level: float) -> _Combined:
    """Make the interval of values without a click model, of one target or two."""
    values = []
    for m in found:
        replicates = np.array(m.replicates)
        lost_mass = LostMass(np.zeros(0, bool), np.zeros(0), m.lost, m.effective)
        values.append(FamilyValue(m.full, replicates, replicates, lost_mass))
    difference = _difference(values[0], values[1] if len(values) > 1 else None)
    interval, sampling, _ = difference.interval(1.0, level)
    parts = {
        "sampling": sampling,
        "model": 0.0,
        "lost mass": _rounded(interval.width / 2 - sampling),
        "choice of model": 0.0,
    }
    return _Combined(
        values[0].full.value,
        float(difference.full[0]),
        _value(values[0]).interval(1.0, level)[0],
        interval,
        parts,
        max(m.lost for m in found),
        min(m.effective for m in found),
        estimator=found[0].estimator,
        known=all(m.known for m in found),
    )


def _rounded(part: float) -> float:
    """Return 0 for a part that is but a rounding error."""
    return part if part > 1e-9 else 0.0


def _value(own: FamilyValue) -> Quantity:
    """The value of a target."""
    return Quantity(np.array(own.full[:3]), own.refitted[:, :3], own.fixed[:, :3])


def _difference(own: FamilyValue, other: FamilyValue | None) -> Quantity:
    """The value of a target minus the reward of the log, or minus the value of another target."""

    def minus(a: np.ndarray, b: np.ndarray | None) -> np.ndarray:
        # of another target: the floor minus the other's ceiling, and the reverse
        difference: np.ndarray = a[..., :3] - (a[..., 3:4] if b is None else b[..., [0, 2, 1]])
        return difference

    fields = (np.array(own.full), own.refitted, own.fixed)
    others = (None, None, None) if other is None else (np.array(other.full), other.refitted, other.fixed)
    return Quantity(*(minus(a, b) for a, b in zip(fields, others, strict=True)))


def _at_least(interval: Interval, parts: dict[str, float], half_width: float) -> tuple[Interval, dict[str, float]]:
    """Widen an interval to a smallest half-width, as part of the model's error."""
    missing = max(0.0, half_width - interval.width / 2)
    return Interval(interval.low - missing, interval.high + missing), parts | {"model": parts["model"] + missing}


def _worst_overlap(targets: Sequence[TargetValues], used: Sequence[int]) -> tuple[float, float]:
    """Largest lost share and smallest effective sample size, over targets and families."""
    lost = [t.families[k].lost for t in targets for k in used]
    return max(x.share for x in lost), min(x.effective for x in lost)


def _families(
    fits: Sequence[FamilyFit], target: TargetValues, against: TargetValues | None, union: _Combined
) -> tuple[Family, ...]:
    """Describe all families."""
    found = []
    for k, fit in enumerate(fits):
        own = target.families[k]
        difference = own.full.value - (own.full.today if against is None else against.families[k].full.value)
        low, high = union.by_family.get(k, (math.nan, math.nan))
        found.append(
            Family(
                name=fit.name,
                kept=fit.kept,
                reason=fit.reason,
                deficit=fit.deficit,
                z=fit.z,
                p_value=fit.p_value,
                lost=own.lost.share,
                value=own.full.value,
                difference=difference,
                low=low,
                high=high,
            )
        )
    return tuple(found)


def _on_families(fits: Sequence[FamilyFit], union: _Combined) -> str:
    """Name the families that an answer rests on."""
    names = join_words([fits[k].name for k in union.used])
    rejected = [fit.name for fit in fits if not fit.kept]
    reason = f"It rests on {names}, which the log does not reject"
    return f"{reason}; it rejects {join_words(rejected)}." if rejected else f"{reason}."


def _advice(lost: float, effective: float, sessions: float) -> list[str]:
    """Say what would help."""
    advice = []
    if lost > MAX_LOST_USABLE:
        advice.append("Show the target's new documents to some users, at high ranks, and log that.")
    if 0 < effective < MIN_EFFECTIVE:
        advice.append(f"About {sessions * (MIN_EFFECTIVE / effective - 1):,.0f} more sessions would help.")
    return advice
