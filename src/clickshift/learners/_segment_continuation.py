"""Maximum likelihood of cascade models with continuation by segment and shared attractiveness and satisfaction.

Each segment has its own counts and tails, and the family of its model computes their likelihood with the segment's
continuation. `SegmentedFamily` adds them up: the shared parameters of `_cascade_fit` are those of all segments, one
after the other, so that the same Newton steps fit them jointly. Then continuations are pooled (`_segment_pooling`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.core.newton import CascadeParameters, PairValues, Shared
from clickshift.counts.cascade import Cascade
from clickshift.counts.segment_differences import SegmentDifference
from clickshift.counts.segment_numbers import SegmentNumbers
from clickshift.counts.tail_e_step import ExpectedTails, TailCurvature, TailTransitions, TransitionDerivatives
from clickshift.counts.tails import HiddenTails, TailsByShape
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Sessions
from clickshift.learners._cascade_fit import (
    CascadeFamily,
    CascadeFit,
    ExpectedChoices,
    SharedCurvature,
    TailsOfSegment,
)
from clickshift.learners._cascade_models import CCMFamily, DCMFamily
from clickshift.learners._segment_examination import SegmentCurves
from clickshift.learners._segment_pooling import SegmentEstimates
from clickshift.models.intervals import EffectiveCounts, effective_counts

_LEAST_TRIALS = 1.0
"""Effective trials of a continuation below which the log does not identify it."""


def cascades_of_segments(log: Log, segments: SegmentNumbers) -> list[Cascade]:
    """Count each segment of a log.

    Parameters
    ----------
    log
        Sessions or an encoded log.
    segments
        The segment.
    """
    number = np.concatenate([segments.of(part) for part in log.chunks()])
    rows = (number == k for k in range(segments.n))
    return [Cascade.of(log[np.flatnonzero(own)] if isinstance(log, Sessions) else log[own]) for own in rows]


@dataclass(frozen=True, eq=False)
class _SegmentedExpectations(ExpectedTails):
    """Expected counts of all segments, added up, and those of each.

    Parameters
    ----------
    parts
        Expected counts of each segment.
    """

    parts: Sequence[ExpectedTails] = ()


@dataclass(frozen=True, eq=False)
class _SegmentedTails:
    """Tails of all segments.

    Parameters
    ----------
    by_segment
        Tails of each segment.
    """

    by_segment: Sequence[HiddenTails]

    @property
    def parts(self) -> Sequence[TailsByShape]:
        """Parts of the tails of all segments."""
        return [part for tails in self.by_segment for part in tails.parts]

    def pooled(self) -> _SegmentedTails:
        """Return the tails of each segment as if all documents were one."""
        return _SegmentedTails([tails.pooled() for tails in self.by_segment])

    def expect(self, walk: Any, turns: Any = None) -> ExpectedTails:
        """Run the E-step of each segment with its transitions, or with those of all."""
        n = len(self.by_segment)
        walks: Sequence[TailTransitions] = [walk] * n if isinstance(walk, TailTransitions) else walk
        derivatives: Sequence[TransitionDerivatives | None] = [None] * n if turns is None else turns
        parts = [tails.expect(one, two) for tails, one, two in zip(self.by_segment, walks, derivatives, strict=True)]
        sums = {
            field.name: sum(getattr(part, field.name) for part in parts)
            for field in fields(ExpectedTails)
            if field.name != "curvature"
        }
        return _SegmentedExpectations(**sums, curvature=_total_curvature(parts), parts=parts)


def _total_curvature(parts: Sequence[ExpectedTails]) -> TailCurvature | None:
    """Add up second derivatives; those by shared parameters are stacked, because each segment has its own."""
    curvatures = [part.curvature for part in parts if part.curvature is not None]
    if not curvatures:
        return None
    sums = {name: sum(getattr(one, name) for one in curvatures) for name in TailCurvature._fields if name != "cross"}
    return TailCurvature(**sums, cross=np.vstack([one.cross for one in curvatures]))


class SegmentedFamily(CascadeFamily):
    """Likelihood of a cascade model whose continuation differs by segment.

    Parameters
    ----------
    families
        Likelihood of the model on the counts of each segment.
    """

    def __init__(self, families: Sequence[CascadeFamily]) -> None:
        self.families = list(families)
        first, tables = families[0].data, {}
        for name in _SUMS:
            tables[name] = sum(getattr(family.data, name) for family in families)
        tails = _SegmentedTails([family.tails for family in families])
        total = replace(first, sort_tails=lambda: tails, **tables)
        super().__init__(total, None if families[0].learns_prior else families[0].prior)

    def _split(self, parameters: CascadeParameters) -> Iterator[tuple[CascadeFamily, CascadeParameters]]:
        """Yield the family of each segment with its parameters."""
        shared = np.split(parameters.shared, len(self.families))
        for family, own in zip(self.families, shared, strict=True):
            yield family, parameters._replace(shared=own)

    @override
    def start_shared(self) -> Shared:
        return np.concatenate([family.start_shared() for family in self.families])

    @override
    def start(self, homogeneous: CascadeParameters, tails: ExpectedTails) -> np.ndarray:
        """Start pairs from the start of the model without segments, and continuations from those of each segment."""
        one, n = copy(self.families[0]), len(self.families)
        one.data, one.prior = self.data, self.prior
        shared = homogeneous.shared.reshape(n, -1)
        together = one.split(one.start(homogeneous._replace(shared=shared.mean(axis=0)), tails))
        own = self.split(self.m_step(homogeneous, tails)).shared
        if isinstance(one, CCMFamily):  # whose continuations after a click are not identified with equal documents
            own = np.column_stack([shared[:, :1], np.tile(together.shared[1:], (n, 1))]).ravel()
        return self.join(together.attractiveness, together.satisfaction, own)

    @override
    def homogeneous(self) -> CascadeFamily:
        one = super().homogeneous()
        assert isinstance(one, SegmentedFamily)
        one.families = [family.homogeneous() for family in self.families]
        return one

    @override
    def transitions(self, parameters: CascadeParameters) -> Any:
        return [family.transitions(own) for family, own in self._split(parameters)]

    @override
    def transition_derivatives(self, parameters: CascadeParameters) -> Any:
        return [family.transition_derivatives(own) for family, own in self._split(parameters)]

    @override
    def continuation_derivatives(self, parameters: CascadeParameters) -> tuple[PairValues | float, PairValues | float]:
        raise NotImplementedError  # they differ by segment: `tails_of_segments`

    @override
    def tails_of_segments(self, parameters: CascadeParameters) -> Iterator[TailsOfSegment]:
        for family, own in self._split(parameters):
            yield from family.tails_of_segments(own)

    @override
    def certain_log_likelihood(self, parameters: CascadeParameters) -> float:
        return sum(family.certain_log_likelihood(own) for family, own in self._split(parameters))

    @override
    def expected_choices(self, parameters: CascadeParameters, tails: ExpectedTails) -> ExpectedChoices:
        assert isinstance(tails, _SegmentedExpectations)
        parts = [
            family.expected_choices(own, part)
            for (family, own), part in zip(self._split(parameters), tails.parts, strict=True)
        ]
        return ExpectedChoices(
            np.concatenate([part.successes for part in parts]),
            np.concatenate([part.chances for part in parts]),
            _added([part.yes for part in parts]),
            _added([part.trials for part in parts]),
        )

    @override
    def curvature(
        self, parameters: CascadeParameters, tails: ExpectedTails, tail_curvature: TailCurvature
    ) -> SharedCurvature:
        from scipy.linalg import block_diag

        assert isinstance(tails, _SegmentedExpectations)
        parts = []
        for (family, own), part in zip(self._split(parameters), tails.parts, strict=True):
            assert part.curvature is not None
            found, shape = family.curvature(own, part, part.curvature), part.curvature.cross.shape
            parts.append(
                found._replace(
                    cross_satisfaction=np.broadcast_to(found.cross_satisfaction, shape),
                    cross_attractiveness=np.broadcast_to(found.cross_attractiveness, shape),
                )
            )
        return SharedCurvature(
            block_diag(*[part.shared for part in parts]),
            np.vstack([part.cross_satisfaction for part in parts]),
            _added([part.attractiveness for part in parts]),
            np.vstack([part.cross_attractiveness for part in parts]),
        )


_SUMS = (
    "impressions",
    "examined",
    "clicks",
    "followed",
    "open_last",
    "followed_at_rank",
    "open_last_at_rank",
    "first_examined",
    "first_clicks",
    "passed",
)
"""Count tables of cascades that add up."""


@final
class SegmentedDBNFamily(SegmentedFamily):
    """Likelihood of DBN with continuation by segment."""

    has_satisfaction: ClassVar[bool] = True


def _added(parts: Sequence[PairValues | float]) -> PairValues | float:
    """Add up tables, or numbers that stand for constant tables."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def pooled_continuations(
    fitted: CascadeFit, family: SegmentedFamily, segments: SegmentNumbers
) -> tuple[SegmentCurves, SegmentDifference]:
    """Pool the continuations of all segments partially, and test whether they differ.

    Intervals come from the likelihood under the neutral prior of attractiveness, as without segments.

    Parameters
    ----------
    fitted
        Joint fit of all segments.
    family
        Its likelihood.
    segments
        The segment.
    """
    assert fitted.counts is not None
    assert fitted.shared_covariance is not None
    n, shared, counts = segments.n, fitted.parameters.shared, fitted.counts.shared
    entry, trials = np.tile(np.arange(len(shared) // n), n), counts[1]
    known = np.flatnonzero(trials >= _LEAST_TRIALS)
    weight = _weights(family, len(shared) // n)
    curves, intervals = shared.copy(), counts.copy()
    errors = 1 / np.sqrt(np.maximum(trials * shared * (1 - shared), 1e-12))
    cov = np.diag(errors**2)
    difference = SegmentDifference(0.0, 0.0)
    if len(known):
        at_likelihood = (counts[0, known] + 0.5) / (trials[known] + 1)
        own = np.diag(fitted.shared_covariance)[known]
        scale = np.sqrt(1 / (trials[known] * at_likelihood * (1 - at_likelihood)) / np.maximum(own, 1e-12))
        cov_known = fitted.shared_covariance[np.ix_(known, known)] * scale * scale[:, None]
        entries = np.unique(entry[known], return_inverse=True)[1]
        curves[known] = _expit(SegmentEstimates(_logit(shared[known]), cov_known, entries).pooled().mean)
        likelihood = SegmentEstimates(_logit(at_likelihood), cov_known, entries).pooled()
        cov[np.ix_(known, known)] = likelihood.covariance
        errors[known] = np.sqrt(np.maximum(np.diag(likelihood.covariance), 0))
        intervals[:, known] = effective_counts(_expit(likelihood.mean), errors[known])
        labelled = known // (len(shared) // n) < len(segments.labels)
        difference = _wald(
            SegmentEstimates(
                _logit(shared[known])[labelled], cov_known[np.ix_(labelled, labelled)], entry[known][labelled]
            )
        )
    share = np.divide(weight, weight.sum(axis=0), out=np.full_like(weight, 1 / n), where=weight.sum(axis=0) > 0)
    pooled = (share * curves.reshape(n, -1)).sum(axis=0)
    pooled_errors, pooled_counts = _of_mean(share, curves, cov, pooled, counts)
    return SegmentCurves(curves.reshape(n, -1), errors, intervals, pooled, pooled_errors, pooled_counts), difference


def _of_mean(
    share: Float[np.ndarray, "segment entry"],
    curves: Float[np.ndarray, " value"],
    cov: Float[np.ndarray, "value value"],
    pooled: Float[np.ndarray, " entry"],
    counts: EffectiveCounts,
) -> tuple[Float[np.ndarray, " entry"], EffectiveCounts]:
    """Return the errors of the logits, and the effective counts, of the mean curve, by the delta method."""
    n, entries = share.shape
    slope = np.zeros((entries, n * entries))
    for k in range(n):
        slope[np.arange(entries), k * entries + np.arange(entries)] = share[k]
    slope = slope * (curves * (1 - curves))
    variance = np.einsum("ev,vw,ew->e", slope, cov, slope)
    errors = np.sqrt(np.maximum(variance, 0)) / np.maximum(pooled * (1 - pooled), 1e-12)
    own = effective_counts(pooled, errors)
    unknown = counts.reshape(2, n, entries)[1].max(axis=0) < _LEAST_TRIALS
    return errors, np.where(unknown, counts.reshape(2, n, entries).sum(axis=1), own)


def _weights(family: SegmentedFamily, entries: int) -> Float[np.ndarray, "segment entry"]:
    """Return how often users of each segment could continue: clicks by rank if continuation depends on it."""
    rows = []
    for one in family.families:
        if isinstance(one, DCMFamily):
            rows.append(one.by_known_rank(one.data.followed_at_rank + one.data.open_last_at_rank))
        else:
            rows.append(np.full(entries, one.data.first_examined.sum()))
    return np.stack(rows)


def _wald(estimates: SegmentEstimates) -> SegmentDifference:
    """Return the Wald test that all segments have the same continuation."""
    contrasts = estimates.contrasts()
    if not len(contrasts):
        return SegmentDifference(0.0, 0.0)
    found, cov = contrasts @ estimates.value, contrasts @ estimates.covariance @ contrasts.T
    statistic = float(found @ np.linalg.solve(cov, found))
    return SegmentDifference(statistic, float(len(contrasts)), float(np.sqrt(np.mean(np.square(found)))))


def _logit(p: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
    p = np.clip(p, 1e-6, 1 - 1e-6)
    logit: np.ndarray = np.log(p) - np.log1p(-p)
    return logit


def _expit(x: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
    p: np.ndarray = 1 / (1 + np.exp(-x))
    return p
