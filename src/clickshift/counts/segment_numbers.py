"""SegmentNumbers: the sessions of a log by their label of one segment, for counts by segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Int

from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Rankings, Sessions
from clickshift.errors import DataError


@final
@dataclass(frozen=True)
class SegmentNumbers:
    """Labels of a segment, and how many sessions of a log have each.

    Parameters
    ----------
    name
        Name of the segment, e.g. "device".
    labels
        Labels that occur in the log.
    sessions
        Number of sessions of each label; if some sessions have no known label, one more number for those.

    Examples
    --------
    >>> from clickshift import Rankings, Segment, Vocabulary
    >>> vocabulary, query, pair = Vocabulary.of(["cats"] * 2, [7, 12])
    >>> lists = np.array([[0, 1]] * 3, np.int32)
    >>> device = Segment.of(["phone", "desktop", None])
    >>> rankings = Rankings(vocabulary, np.zeros(3, np.int32), lists, segments={"device": device})
    >>> SegmentNumbers.in_log(Sessions(rankings, np.zeros((3, 2), bool)), "device")
    SegmentNumbers(name='device', labels=('desktop', 'phone'), sessions=(1, 1, 1))
    """

    name: str
    labels: tuple[str, ...]
    sessions: tuple[int, ...]

    @classmethod
    def in_log(cls, log: Log, name: str) -> SegmentNumbers:
        """Find the labels of a segment that occur in a log.

        Parameters
        ----------
        log
            Sessions or an encoded log.
        name
            Name of the segment.

        Raises
        ------
        DataError
            If the log does not have the segment ("no-segment"), or fewer than two of its labels ("one-segment").
        """
        if name not in segment_names(log):
            raise _no_segment(name, segment_names(log))
        sizes: dict[str, int] = {}
        total = 0
        for part in log.chunks():
            segment = part.segments[name]
            total += part.total
            for label, size in zip(segment.labels, segment.sizes(part.count).tolist(), strict=True):
                sizes[label] = sizes.get(label, 0) + size
        known = {label: size for label, size in sorted(sizes.items()) if size}
        if len(known) < 2:
            found = f"only {next(iter(known))}" if known else "none"
            raise DataError(
                f"the segment {name} must have at least two labels to be compared: this log has {found}. Fit the model "
                "without it.",
                code="one-segment",
                name=name,
                labels=list(known),
            )
        unknown = total - sum(known.values())
        return cls(name, tuple(known), (*known.values(), *([unknown] if unknown else [])))

    @property
    def n(self) -> int:
        """Number of labels, and one more if some sessions have no known label."""
        return len(self.sessions)

    def of(self, part: Sessions | Rankings) -> Int[np.ndarray, " session"]:
        """Return the number of each session's label; the last one for a session without a known label.

        Parameters
        ----------
        part
            Sessions or lists; without the segment, none of them has a known label.
        """
        segment = part.segments.get(self.name)
        if segment is None:
            return np.full(len(part), len(self.labels), np.int32)
        code = segment.with_labels(self.labels).code
        return np.where(code < 0, np.int32(len(self.labels)), code)


def segment_names(log: Log) -> list[str]:
    """Return the names of the segments of a log.

    Parameters
    ----------
    log
        Sessions or an encoded log.
    """
    return list(log.segments if isinstance(log, Sessions) else log.files.segments)


def rows_of_segments(log: Sessions, segments: SegmentNumbers) -> list[np.ndarray]:
    """Return the rows of a log that belong to each segment.

    Parameters
    ----------
    log
        Sessions with the segment.
    segments
        The segment.
    """
    number = segments.of(log)
    order = np.argsort(number, kind="stable")
    return np.split(order, np.cumsum(np.bincount(number, minlength=segments.n))[:-1])


def _no_segment(name: str, known: list[str]) -> DataError:
    """Return the error for a segment that a log does not have ("no-segment")."""
    has = f"it has {', '.join(known)}. Name one of them" if known else "it has no segments. Leave it out"
    return DataError(
        f"the log must have the segment {name}: {has}, or read its tables again with "
        f'columns={{"segment:{name}": "COLUMN"}}.',
        code="no-segment",
        name=name,
        known=known,
    )
