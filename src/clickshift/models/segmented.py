"""Segmented: a click model whose users browse differently in each segment, e.g. on phones and on desktops."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np
from jaxtyping import Bool, Float
from typing_extensions import override

from clickshift.data.segments import check_labels
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import ClickshiftWarning, DataError
from clickshift.io.tables.extra_columns import columns_with
from clickshift.models.base import ClickModel, PairTable

__all__ = ["Segmented", "columns_for", "one_curve"]

_LISTED = 3
"""Number of labels that a warning names."""


@final
@dataclass(frozen=True, eq=False)
class Segmented(ClickModel):
    """Click model with a browsing curve per segment: documents have the same attractiveness in all of them.

    The segment of a session decides its curve: examination (PBM, UBM) or continuation (DBN, DCM, CCM). A session whose
    segment is not known, or has a label that the model does not know, has the curve of all sessions together.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    components
        One model: that of a session whose segment is not known.
    segment
        Name of the segment, e.g. "device".
    labels
        Labels of the segment.
    curves
        Browsing parameter by label and entry.
    statistic, degrees_of_freedom, p_value
        Test that all segments browse alike.
    label_sessions
        Sessions of each label in the log; empty where they are not known.
    evidence
        How the parameters were estimated; the errors of the browsing parameter are those of `curves.ravel()`.

    Raises
    ------
    DataError
        If the labels are not distinct texts, or there is not one curve for each ("bad-segment"), or the p-value is not
        a probability ("not-a-probability").

    Examples
    --------
    >>> from clickshift import Segment
    >>> from clickshift.models.base import pair_table
    >>> from clickshift.models.pbm import PBM
    >>> vocabulary, _, _ = Vocabulary.of(["shoes", "shoes"], ["a", "b"])
    >>> pooled = PBM(vocabulary, pair_table(np.array([0.5, 0.4]), unseen=0.1), np.array([1.0, 0.5]))
    >>> model = Segmented(vocabulary, (pooled,), "device", ("desktop", "phone"), np.array([[1, 0.75], [1, 0.25]]))
    >>> device = Segment.of(["phone", "desktop", None])
    >>> lists = Rankings(vocabulary, np.zeros(3, int), np.array([[0, 1]] * 3), segments={"device": device})
    >>> model.click_prob(lists).tolist()
    [[0.5, 0.1], [0.5, 0.30000000000000004], [0.5, 0.2]]
    """

    vocabulary: Vocabulary
    components: tuple[ClickModel, ...]
    segment: str
    labels: tuple[str, ...]
    curves: Float[np.ndarray, "label entry"]
    statistic: float = 0.0
    degrees_of_freedom: float = 0.0
    p_value: float = 1.0
    label_sessions: tuple[int, ...] = ()

    uses_history: ClassVar[bool] = True

    def __post_init__(self) -> None:
        labels, curves = tuple(self.labels), np.asarray(self.curves, np.float64)
        check_labels(labels)
        entries = len(np.atleast_1d(getattr(self.components[0], self.parameter)))
        if not isinstance(self.segment, str) or not self.segment or curves.shape != (len(labels), entries):
            raise DataError(
                f"a segmented model needs the name of its segment and a curve of {entries} values for each of its "
                f"{len(labels)} labels: got {self.segment!r} and {curves.shape}.",
                code="bad-segment",
                value=self.segment,
                shape=curves.shape,
            )
        if len(self.label_sessions) not in {0, len(labels)}:
            raise DataError(
                f"a segmented model needs the sessions of each of its {len(labels)} labels, or none: got "
                f"{len(self.label_sessions)}.",
                code="bad-segment",
                value=self.label_sessions,
            )
        if not 0 <= self.p_value <= 1:
            raise DataError(
                f"the p-value of a test must be from 0 to 1: got {self.p_value}.",
                code="not-a-probability",
                value=self.p_value,
            )
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "curves", curves)

    @property
    def pooled(self) -> ClickModel:
        """Model of a session whose segment is not known."""
        return self.components[0]

    @property
    def parameter(self) -> str:
        """Name of the browsing parameter: "examination" or "continuation"."""
        return self.components[0]._browsing_curve()[0]

    @property
    def title(self) -> str:
        """Name of the model and of its segment, e.g. "PBM by device"."""
        return f"{type(self.pooled).__name__} by {self.segment}"

    @property
    def examination(self) -> Float[np.ndarray, " value"]:
        """Examination of all segments, one after the other."""
        return self._all_curves("examination")

    @property
    def continuation(self) -> Float[np.ndarray, " value"]:
        """Continuation of all segments, one after the other."""
        return self._all_curves("continuation")

    @property
    def attractiveness(self) -> PairTable:
        """P(click | examined) by pair, unseen pairs last."""
        table: PairTable = getattr(self.pooled, "attractiveness")  # noqa: B009
        return table

    @property
    def satisfaction(self) -> PairTable:
        """P(the user leaves | clicked) by pair, unseen pairs last."""
        table: PairTable = getattr(self.pooled, "satisfaction")  # noqa: B009
        return table

    def _all_curves(self, name: str) -> Float[np.ndarray, " value"]:
        """Return the curves of all segments, if this is their name."""
        if self.parameter != name:
            raise AttributeError(f"{type(self.pooled).__name__} has no {name}")
        return self.curves.ravel()

    def of(self, label: str | None) -> ClickModel:
        """Return the model of one segment, with its intervals.

        Parameters
        ----------
        label
            Label of the segment; None, or one that the model does not know, for sessions whose segment is not known.
        """
        if label not in self.labels:
            return self.pooled
        k, name, entries = self.labels.index(label), self.parameter, self.curves.shape[1]
        own = slice(k * entries, (k + 1) * entries)
        value: Any = self.curves[k] if np.ndim(getattr(self.pooled, name)) else float(self.curves[k, 0])
        evidence = self.evidence
        if evidence is not None and name in evidence.logit_error:
            errors = {**evidence.logit_error, name: evidence.logit_error[name][own]}
            counts = dict(evidence.effective_counts)
            if name in counts:
                counts[name] = counts[name][:, own]
            views = {key: values if key == "contradicted" else values[own] for key, values in evidence.views.items()}
            evidence = replace(evidence, logit_error=errors, effective_counts=counts, views=views)
        return replace(self.pooled, evidence=evidence, **{name: value})

    def parts(self, rankings: Rankings) -> Iterator[tuple[ClickModel, np.ndarray]]:
        """Yield the models of the segments of some lists, each with the numbers of its lists.

        Parameters
        ----------
        rankings
            Lists of documents.
        """
        segment = rankings.segments.get(self.segment)
        code = np.full(len(rankings), -1) if segment is None else segment.with_labels(self.labels).code
        for k in np.unique(code).tolist():
            yield self.of(None if k < 0 else self.labels[k]), np.flatnonzero(code == k)

    def warn_of_unknown_labels(self, lists: Iterable[Rankings | Sessions]) -> None:
        """Warn of lists without the segment, or with labels that the model does not know: they have the pooled curve.

        Parameters
        ----------
        lists
            Lists of documents, or sessions, in parts.
        """
        total, unknown = 0, dict[str, int]()
        for part in lists:
            segment = part.segments.get(self.segment)
            if segment is None:
                return self._warn("no-segment", "the lists do not have this segment: all of them", {})
            count = part.count if isinstance(part, Sessions) else None
            total += part.total if isinstance(part, Sessions) else len(part)
            for label, size in zip(segment.labels, segment.sizes(count).tolist(), strict=True):
                if size and label not in self.labels:
                    unknown[label] = unknown.get(label, 0) + size
        if not unknown:
            return None
        n = sum(unknown.values())
        named = ", ".join(sorted(unknown, key=lambda label: -unknown[label])[:_LISTED])
        more = f" and {len(unknown) - _LISTED:,} more" if len(unknown) > _LISTED else ""
        found = f"{n:,} of {total:,} lists have labels that it does not know ({named}{more}): they"
        return self._warn("unknown-labels", found, {"lists": n, "labels": sorted(unknown)})

    def _warn(self, code: str, found: str, facts: dict[str, Any]) -> None:
        """Warn of lists that have the pooled curve."""
        message = f"{self.title} has a curve per {self.segment}, and {found} get the curve of all sessions together."
        warnings.warn(ClickshiftWarning(message, code=code, segment=self.segment, **facts), stacklevel=4)

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        out = np.empty(rankings.pair.shape)
        for model, rows in self.parts(rankings):
            out[rows] = model._click_prob(rankings[rows])
        return out

    @override
    def _click_prob_given_history(self, sessions: Sessions) -> Float[np.ndarray, "session rank"]:
        out = np.empty(sessions.click.shape)
        for model, rows in self.parts(sessions.rankings):
            out[rows] = model._click_prob_given_history(sessions[rows])
        return out

    @override
    def _expected_clicks(self, rankings: Rankings, tolerance: float) -> Float[np.ndarray, " session"]:
        out = np.empty(len(rankings))
        for model, rows in self.parts(rankings):
            out[rows] = model._expected_clicks(rankings[rows], tolerance)
        return out

    @override
    def _sample(
        self, rankings: Rankings, uniform: Float[np.ndarray, "session draw"]
    ) -> Bool[np.ndarray, "session rank"]:
        click = np.zeros(rankings.pair.shape, bool)
        for model, rows in self.parts(rankings):
            click[rows] = model._sample(rankings[rows], uniform[rows])
        return click

    @override
    def _relevance(self) -> PairTable:
        return self.pooled._relevance()

    @override
    def _browsing_curve(self) -> tuple[str, list[dict[str, Any]]]:
        name, entries = self.pooled._browsing_curve()
        return name, [{"segment": label, **entry} for label in self.labels for entry in entries]


def columns_for(model: Any, columns: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Return the names of a log's columns, with that of the segment which a model needs.

    Parameters
    ----------
    model
        A click model, or anything else.
    columns
        The log's names of our columns; an empty name of the segment leaves it out.
    """
    return columns_with(columns, segments=[model.segment]) if isinstance(model, Segmented) else columns


def one_curve(model: ClickModel) -> ClickModel:
    """Return the model of a session whose segment is not known; a model without segments itself.

    Parameters
    ----------
    model
        A click model.
    """
    return model.pooled if isinstance(model, Segmented) else model
