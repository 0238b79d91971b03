"""Segments: a label per session, such as its device, its country or the arm of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Int

from clickshift.errors import DataError

UNKNOWN = -1
"""Code of a session whose label is not known."""
MAX_SEGMENTS = 1000
"""Largest number of labels of a segment: each label has its own numbers, in fits and in tables."""
_DESCRIBED = 4
"""Largest number of labels that are described in words."""


@final
@dataclass(frozen=True, eq=False)
class Segment:
    """A label for each session, e.g. its device; labels are stored once, and sessions have their numbers.

    Parameters
    ----------
    labels
        The distinct labels.
    code
        Int32[session]: number of each session's label; -1 where it is not known.

    Raises
    ------
    DataError
        If a label is not text or occurs twice ("bad-segment"), there are more than 1,000 ("too-many-segments"), the
        codes are not integers ("not-integers"), or a code has no label ("bad-segment").

    Examples
    --------
    >>> device = Segment.of(["phone", "desktop", None, "phone"])
    >>> device.labels, device.code.tolist()
    (('desktop', 'phone'), [1, 0, -1, 1])
    >>> device.sizes().tolist(), device.is_label("phone").tolist()
    ([1, 2], [True, False, False, True])
    """

    labels: tuple[str, ...]
    code: np.ndarray

    def __post_init__(self) -> None:
        labels, code = tuple(self.labels), np.asarray(self.code)
        if code.dtype.kind not in "iu" or code.ndim != 1:
            raise DataError(
                f"codes of a segment must be integers in one dimension: got {code.dtype} of shape {code.shape}. "
                "Segment.of(labels) makes them.",
                code="not-integers",
                name="code",
                dtype=str(code.dtype),
                shape=code.shape,
            )
        check_labels(labels)
        if len(code) and not (code.min() >= UNKNOWN and code.max() < len(labels)):
            row = int(np.argmax((code < UNKNOWN) | (code >= len(labels))))
            raise DataError(
                f"session {row + 1}: a code of a segment must be -1, or the number of one of its {len(labels)} labels: "
                f"got {code[row]}. Segment.of(labels) makes them.",
                code="bad-segment",
                row=row + 1,
                value=int(code[row]),
            )
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "code", np.ascontiguousarray(code, np.int32))

    @classmethod
    def checked(cls, labels: tuple[str, ...], code: np.ndarray) -> Segment:
        """Build a segment from labels and 32-bit codes that are known to be valid, without validation."""
        segment = object.__new__(cls)
        object.__setattr__(segment, "labels", labels)
        object.__setattr__(segment, "code", code)
        return segment

    @classmethod
    def of(cls, values: Sequence[Any] | np.ndarray) -> Segment:
        """Number labels in alphabetical order; None, NaN and an empty text are unknown, and numbers become text.

        Parameters
        ----------
        values
            Label of each session.

        Raises
        ------
        DataError
            "too-many-segments" for more than 1,000 labels.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        array = pa.array(np.asarray(values).tolist() if isinstance(values, np.ndarray) else list(values))
        if pa.types.is_floating(array.type):
            array = pc.if_else(pc.is_nan(array), None, array)
        return segment_of_arrow(array.cast(pa.string()))

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self.code)

    def __getitem__(self, rows: slice | np.ndarray) -> Segment:
        """Return the segment of some sessions, with all labels."""
        return Segment.checked(self.labels, self.code[rows])

    def is_label(self, label: str) -> Bool[np.ndarray, " session"]:
        """Return which sessions have a label.

        Raises
        ------
        DataError
            "unknown-segment" for a label that the segment does not have.
        """
        if label not in self.labels:
            raise DataError(
                f"a segment's label must be one of {', '.join(self.labels[:20])}: got {label!r}.",
                code="unknown-segment",
                value=label,
                known=list(self.labels),
            )
        found: np.ndarray = self.code == self.labels.index(label)
        return found

    def sizes(self, count: np.ndarray | None = None) -> np.ndarray:
        """Return the number of sessions of each label.

        Parameters
        ----------
        count
            Number of sessions that each row represents; by default, 1 each.
        """
        weight = None if count is None or (count == 1).all() else count
        sizes = np.bincount(self.code + np.int32(1), weight, minlength=len(self.labels) + 1)
        return sizes[1:].astype(np.int64)

    def with_labels(self, labels: Sequence[str]) -> Segment:
        """Return the same segment in the numbers of other labels; one that is not among them becomes unknown.

        Parameters
        ----------
        labels
            The other labels.
        """
        if tuple(labels) == self.labels:
            return self
        number = {label: k for k, label in enumerate(labels)}
        codes = np.array([*(number.get(label, UNKNOWN) for label in self.labels), UNKNOWN], np.int32)
        return Segment(tuple(labels), codes[self.code])

    @classmethod
    def concat(cls, parts: Sequence[Segment]) -> Segment:
        """Concatenate segments; different labels are replaced by their union, in alphabetical order.

        Parameters
        ----------
        parts
            At least one segment.
        """
        labels = parts[0].labels
        if any(part.labels != labels for part in parts):
            labels = tuple(sorted({label for part in parts for label in part.labels}))
        return cls(labels, np.concatenate([part.with_labels(labels).code for part in parts]))

    def __repr__(self) -> str:
        shown = ", ".join(self.labels[:5]) + (", ..." if len(self.labels) > 5 else "")
        return f"Segment({len(self.labels)} labels of {len(self):,} sessions: {shown})"


def segment_of_arrow(array: Any) -> Segment:
    """Number the labels of a pyarrow array of text, or of a dictionary of text; nulls and "" are unknown.

    Parameters
    ----------
    array
        Label of each session.

    Raises
    ------
    DataError
        "too-many-segments" for more than 1,000 labels.
    """
    import pyarrow as pa

    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    texts = array.dictionary.to_pylist()
    codes = array.indices.fill_null(UNKNOWN).to_numpy(zero_copy_only=False).astype(np.int64)
    used = np.zeros(len(texts) + 1, bool)
    used[codes] = True
    labels = sorted({text for text, is_used in zip(texts, used, strict=False) if is_used and text})
    check_number_of_labels(len(labels))
    number = {label: k for k, label in enumerate(labels)}
    translation = np.array([*(number.get(text, UNKNOWN) for text in texts), UNKNOWN], np.int32)
    return Segment(tuple(labels), translation[codes])


def check_labels(labels: Sequence[str]) -> None:
    """Raise unless labels are distinct texts, and few enough.

    Parameters
    ----------
    labels
        Labels of a segment.

    Raises
    ------
    DataError
        "bad-segment" or "too-many-segments".
    """
    check_number_of_labels(len(labels))
    bad = [label for label in labels if not isinstance(label, str) or not label]
    if bad or len(set(labels)) < len(labels):
        problem = f"got {bad[0]!r}" if bad else "one occurs twice"
        raise DataError(
            f"labels of a segment must be distinct texts that are not empty: {problem}. Segment.of(labels) makes them.",
            code="bad-segment",
        )


def check_number_of_labels(labels: int, name: str = "") -> None:
    """Raise if a segment has too many labels.

    Parameters
    ----------
    labels
        Number of labels.
    name
        Name of the segment.

    Raises
    ------
    DataError
        "too-many-segments".
    """
    if labels > MAX_SEGMENTS:
        which = f"the segment {name}" if name else "a segment"
        raise DataError(
            f"{which} must have at most {MAX_SEGMENTS:,} labels: got {labels:,}. Is this a column of ids? Group rare "
            "values first, or leave the column out.",
            code="too-many-segments",
            name=name,
            count=labels,
            limit=MAX_SEGMENTS,
        )


def segment_sizes_text(segment: Segment, count: Int[np.ndarray, " session"]) -> str:
    """Return the labels of a segment with the share of the sessions of each, the largest first.

    Parameters
    ----------
    segment
        The segment.
    count
        Number of sessions that each row represents.

    Examples
    --------
    >>> segment_sizes_text(Segment.of(["phone", "desktop", "phone", None]), np.ones(4, int))
    'phone 50.0%, desktop 25.0%, unknown 25.0%'
    """
    sizes = dict(zip(segment.labels, segment.sizes(count).tolist(), strict=True))
    total = int(count.sum())
    ordered = sorted(sizes.items(), key=lambda item: -item[1])
    shown = [*ordered[:8], *([("others", sum(size for _, size in ordered[8:]))] if len(ordered) > 8 else [])]
    unknown = total - sum(sizes.values())
    return ", ".join(
        f"{label} {size / total:.1%}" for label, size in [*shown, *([("unknown", unknown)] * (unknown > 0))]
    )


def largest_segments(texts: Mapping[str, str], sizes: Mapping[str, float]) -> str:
    """Join texts on the labels of a segment; of many, those on the largest labels, and how many more there are.

    Parameters
    ----------
    texts
        Text by label.
    sizes
        Sessions by label; labels without are 0, and labels of equal size keep their order.

    Examples
    --------
    >>> sizes = {"de": 1, "fr": 5, "it": 2, "uk": 3, "us": 9}
    >>> largest_segments({label: f"{size}." for label, size in sizes.items()}, sizes)
    'us: 9. fr: 5. uk: 3. it: 2. And 1 more label.'
    """
    more = max(len(texts) - _DESCRIBED, 0)
    shown = sorted(texts, key=lambda label: -sizes.get(label, 0))[:_DESCRIBED] if more else list(texts)
    parts = [f"{label}: {texts[label]}" for label in shown]
    return " ".join([*parts, f"And {more:,} more label{'s' * (more > 1)}."] if more else parts)
