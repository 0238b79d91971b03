"""Inputs that the functions of this package share: trained rankers, and the position bias of a log."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from clickshift.counts.daily import DayCounts
from clickshift.counts.segment_numbers import SegmentNumbers, segment_names
from clickshift.data.encoded_log import Log
from clickshift.errors import ClickshiftWarning, SpecError
from clickshift.models.base import ClickModel
from clickshift.models.segmented import Segmented, one_curve
from clickshift.models.storage import load_model
from clickshift.policies.derived.model_scores import examination_in_log
from clickshift.propensity.files import Trust, parse_examination, read_propensities, read_trust
from clickshift.propensity.result import Propensities
from clickshift.ranking.lambdamart import TreeRanker
from clickshift.ranking.ranker import Ranker
from clickshift.ranking.storage import load_ranker

RankerLike = str | Path | Ranker | TreeRanker
"""A ranker, or the folder of one."""


def as_ranker(ranker: RankerLike) -> Ranker | TreeRanker:
    """Return a ranker unchanged, or load it from its folder."""
    return load_ranker(ranker) if isinstance(ranker, str | Path) else ranker


def source_name(source: Any) -> str:
    """Return the text of a path, or the type of an object, to name where data came from."""
    return str(source) if isinstance(source, str | Path) else type(source).__name__


def n_sessions(log: Log | DayCounts) -> int:
    """Return the number of sessions of a log or of daily counts."""
    return round(log.sessions) if isinstance(log, DayCounts) else log.total


class BiasSource(NamedTuple):
    """Where the position bias of a log comes from; at most one is given.

    Parameters
    ----------
    propensities
        Propensities, or the file of them.
    examination
        Examination by rank: numbers, or a text such as "1/rank".
    model
        Click model, or the folder of one.
    trust
        Trust bias, or the file of it.
    """

    propensities: str | Path | Propensities | None = None
    examination: str | Float[np.ndarray, " rank"] | None = None
    model: str | Path | ClickModel | None = None
    trust: str | Path | Trust | None = None

    def check(self, bias: str) -> None:
        """Check that exactly one source is given where the correction needs one.

        Raises
        ------
        SpecError
            If there are several sources ("bad-option"), or none that a correction needs ("missing-examination").
        """
        given = [name for name, value in self._asdict().items() if value is not None]
        if len(given) > 1:
            raise SpecError(
                "pass one of `propensities`, `examination`, `model` and `trust`, not several: got "
                f"{' and '.join(f'`{name}`' for name in given)}.",
                code="bad-option",
                options=given,
            )
        if bias == "given" and not given:
            raise SpecError(
                "correcting clicks for position bias needs the examination of each rank: none was given. Estimate it "
                "with propensities(log) and pass it as `propensities`; or pass `examination`, e.g. 1/rank, a click "
                "model as `model`, or trust bias as `trust`; or learn from uncorrected clicks: bias='naive'.",
                code="missing-examination",
            )

    def loaded(self) -> BiasSource:
        """Return the same source with files and folders read."""
        propensities, model = self.propensities, self.model
        if isinstance(propensities, str | Path):
            propensities = read_propensities(propensities)
        if isinstance(model, str | Path):
            model = load_model(model)
        return self._replace(propensities=propensities, model=model)

    @property
    def segment(self) -> str:
        """Name of the segment whose labels have curves of their own; "" for one curve. The source must be loaded."""
        if isinstance(self.model, Segmented):
            return self.model.segment
        return self.propensities.by if isinstance(self.propensities, Propensities) else ""

    def segments(self, log: Log | DayCounts) -> SegmentNumbers | None:
        """Return the segment by which clicks are counted, as its curves differ; None for one curve.

        A log without the segment gets the curve of all sessions together, with a warning ("no-segment"); so do sessions
        whose label has no curve.
        """
        if not self.segment:
            return None
        if isinstance(log, DayCounts) or self.segment not in segment_names(log):
            warnings.warn(
                ClickshiftWarning(
                    f"there is a curve for each {self.segment}, and the clicks do not have this segment: all of them "
                    "get the curve of all sessions together.",
                    code="no-segment",
                    segment=self.segment,
                ),
                stacklevel=3,
            )
            return None
        labels = tuple(self.propensities.segments) if isinstance(self.propensities, Propensities) else ()
        labels = self.model.labels if isinstance(self.model, Segmented) else labels
        return SegmentNumbers(self.segment, labels, (0,) * (len(labels) + 1))

    def read(self, log: Log | DayCounts, segments: SegmentNumbers | None = None) -> dict[str, Any]:
        """Return the arguments `examination` and `trust` of a learner, for the ranks of a log.

        With segments, examination has the curve of each label, then that of sessions without one.
        """
        if segments is not None:
            curves = [
                self._level(label) * self._of(label).read(log)["examination"] for label in (*segments.labels, None)
            ]
            return {"examination": np.concatenate([_of_length(curve, log.n_ranks) for curve in curves]), "trust": None}
        if self.trust is not None:
            trust = self.trust if isinstance(self.trust, Trust) else read_trust(self.trust)
            return {"examination": None, "trust": trust}
        curve: np.ndarray | None = None
        if self.propensities is not None:
            known = self.propensities
            curve = (read_propensities(known) if isinstance(known, str | Path) else known).estimate
        elif isinstance(self.examination, str):
            curve = parse_examination(self.examination, log.n_ranks)
        elif self.examination is not None:
            curve = np.asarray(self.examination, np.float64)
        elif self.model is not None:
            if isinstance(log, DayCounts):
                raise SpecError(
                    "the examination of a click model is a mean over lists, and daily counts have no lists. Pass "
                    "`examination` or `propensities`.",
                    code="needs-sessions",
                )
            model = load_model(self.model) if isinstance(self.model, str | Path) else self.model
            curve = examination_in_log(one_curve(model), log)
        return {"examination": curve, "trust": None}

    def _level(self, label: str | None) -> float:
        """Return the examination of the first rank, relative to which the curve of a label is given."""
        if not isinstance(self.model, Segmented) or self.model.parameter != "examination":
            return 1.0  # users of cascade models examine the first rank; propensities are relative to it
        return float(self.model.of(label).examination[0])  # type: ignore[attr-defined]

    def _of(self, label: str | None) -> BiasSource:
        """Return the source of the sessions with a label, or of those without a known one."""
        if isinstance(self.model, Segmented):
            return BiasSource(model=self.model.of(label))
        assert isinstance(self.propensities, Propensities)
        own = self.propensities.segments.get(label or "", self.propensities)
        return BiasSource(propensities=replace(own, segments={}))


def _of_length(curve: Float[np.ndarray, " known_rank"], n_ranks: int) -> Float[np.ndarray, " rank"]:
    """Cut a curve to the ranks of a log; missing ranks are not known."""
    return np.append(curve[:n_ranks], np.full(max(n_ranks - len(curve), 0), np.nan))
