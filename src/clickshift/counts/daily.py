"""Daily counts: the sufficient statistics of a log, saved in a directory and added up day by day.

They are all that counting and maximum likelihood need, so sessions need not be kept: a month is the sum of its days,
and an older day can be multiplied by a smaller weight before it is added. Equal tails are stored once, with their
counts added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from clickshift.core.artifacts import ArtifactFormat
from clickshift.core.unique_rows import distinct_sorted
from clickshift.counts.cascade import Cascade
from clickshift.counts.cells import By, Cells, CellViews, add_views, count_situations
from clickshift.counts.tails import TailsByShape, TailsInParts, merge_tails
from clickshift.data.days import MAX_DAYS, Time, choose_time, decay, time_range
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import MAX_TOTAL, check_total, union
from clickshift.data.vocabulary import Vocabulary, pack_vocabulary, unpack_vocabulary
from clickshift.errors import DataError

_COUNTS_FORMAT = ArtifactFormat("count", 2, "count the log again", "clickshift log count")
_PAIR_TABLES = ("impressions", "examined", "clicks", "followed", "open_last", "first_examined", "first_clicks")
_RANK_TABLES = ("followed_at_rank", "open_last_at_rank")
_VIEW_TABLES = ("clicks", "skips", "unviewed")
_SHAPE_TABLES = ("start", "length", "sessions", "pair", "count")


@final
@dataclass(frozen=True, eq=False)
class DayCounts:
    """Sufficient statistics of the sessions of one day, or of several days added.

    Parameters
    ----------
    cells
        Counts by last click, as UBM needs them; PBM and click-through rates aggregate them.
    cascade
        Counts for DBN, SDBN, DCM, CCM and CM; None if only counts by rank are known, e.g. of a table of counts. Cells
        are then by rank.
    sessions
        Number of sessions; for weighted days, the sum of the weights.
    first, last
        Time of the first and of the last session; None if the log, or one of several, has no times.

    Examples
    --------
    >>> import clickshift as cs
    >>> corpus = cs.builtin_corpus(queries=5)
    >>> log = cs.simulate(corpus, cs.Uniform(), cs.users.PBM(), 100, rng=1)
    >>> monday, tuesday = (DayCounts.of(part) for part in log.split(0.5, rng=0))
    >>> DayCounts.merged([monday, tuesday]).sessions
    100.0
    """

    cells: Cells
    cascade: Cascade | None
    sessions: float
    first: Time | None = None
    last: Time | None = None

    @classmethod
    def of(cls, log: Log) -> DayCounts:
        """Count a log: sessions or an encoded log."""
        ranges = [time_range(part.time) for part in log.chunks(narrow=True)]
        first, last = choose_time([one[0] for one in ranges], min), choose_time([one[1] for one in ranges], max)
        return cls(Cells.of(log, "last_click", views=True), Cascade.of(log), float(log.total), first, last)

    @classmethod
    def merged(
        cls, days: Sequence[DayCounts], *, weights: Sequence[float] | None = None, half_life: float | None = None
    ) -> DayCounts:
        """Return the weighted sum of several days, equal to the counts of a log with weighted sessions.

        Parameters
        ----------
        days
            Counts of each day, in any vocabularies.
        weights
            Weight of each day, 0 or more; by default 1.
        half_life
            Half-life of an exponential decay, in days, instead of `weights`. The last day has weight 1. A day's age is
            counted between the dates of the last sessions, so that yesterday's sum merged with today gives today's
            sum. If no log has times, each day is one day later than the one before it.

        Raises
        ------
        DataError
            If there is no day ("no-days"), both weights and a half-life are given ("bad-option"), or they cannot be
            used ("bad-weights", "bad-half-life", "missing-time", "mixed-times", "not-day-numbers"), or the sum has 2^62
            sessions or more ("too-many-sessions").
        """
        if not days:
            raise DataError("there must be at least one day to merge: got none.", code="no-days")
        if half_life is not None:
            if weights is not None:
                raise DataError("a sum of days takes weights or a half_life: got both.", code="bad-option")
            for day in days:
                _check_day_numbers(day)
            weights = decay([day.last for day in days], half_life)
        weight = np.ones(len(days)) if weights is None else np.asarray(weights, np.float64)
        if weight.shape != (len(days),) or not (np.isfinite(weight) & (weight >= 0)).all() or not weight.any():
            raise DataError(
                f"weights must be one number of 0 or more for each of {len(days)} days, and not all 0: "
                f"got {weight.tolist()}.",
                code="bad-weights",
                value=weight.tolist(),
            )
        check_total(float(weight @ [day.sessions for day in days]))
        # days of weight 0 are left out: the count of a tail is a divisor
        used = [(day, float(w)) for day, w in zip(days, weight, strict=True) if w]
        parts, factors = [day for day, _ in used], [factor for _, factor in used]
        vocabulary, n_ranks = union([part.vocabulary for part in parts]), max(part.n_ranks for part in parts)
        numbers = [np.append(vocabulary.pairs_of(part.vocabulary), vocabulary.n_pairs) for part in parts]
        cascades = [part.cascade for part in parts if part.cascade is not None]
        whole = len(cascades) == len(parts)
        return cls(
            _add_cells(vocabulary, n_ranks, parts, numbers, factors, "last_click" if whole else "rank"),
            _add_cascades(vocabulary, n_ranks, cascades, numbers, factors) if whole else None,
            sum(factor * part.sessions for part, factor in used),
            choose_time([part.first for part in parts], min),
            choose_time([part.last for part in parts], max),
        )

    @property
    def vocabulary(self) -> Vocabulary:
        """Vocabulary of the pair numbers."""
        return self.cells.vocabulary

    @property
    def n_ranks(self) -> int:
        """Number of ranks: the length of the longest list."""
        return self.cells.n_ranks

    def save(self, folder: str | Path, *, notes: dict[str, Any] | None = None) -> None:
        """Write the counts to a directory.

        Parameters
        ----------
        folder
            Directory to write to; it is created if necessary.
        notes
            JSON values to keep with the counts, e.g. which log was counted.

        Raises
        ------
        DataError
            If the tails are on a cluster ("tails-on-cluster").
        FileError
            If the directory cannot be written ("not-writable").
        """
        cells, cascade, arrays, has_holes = self.cells, self.cascade, dict[str, np.ndarray](), False
        for name in ("pair", "situation", "impressions", "clicks"):
            arrays[f"cells.{name}"] = getattr(cells, name)
        if cells.views is not None:
            for name in _VIEW_TABLES:
                arrays[f"views.{name}"] = getattr(cells.views, name)
        if cascade is not None:
            tails = merge_tails(_tail_parts(cascade))
            has_holes = tails.hole is not None
            for name in (*_PAIR_TABLES, *_RANK_TABLES):
                arrays[f"cascade.{name}"] = getattr(cascade, name)
            for name in _SHAPE_TABLES:
                arrays[f"tails.{name}"] = getattr(tails, name)
        facts = {
            "vocabulary": pack_vocabulary(self.vocabulary, arrays),
            "ranks": self.n_ranks,
            "sessions": self.sessions,
            "first": _time_to_json(self.first),
            "last": _time_to_json(self.last),
            "by": cells.by,
            "passed": 0.0 if cascade is None else cascade.passed,
            "has_holes": has_holes,
            "contradicted_views": None if cells.views is None else cells.views.contradicted,
            "notes": notes or {},
        }
        _COUNTS_FORMAT.write(folder, facts, arrays)

    @classmethod
    def load(cls, folder: str | Path) -> DayCounts:
        """Read the counts that `save` wrote.

        Raises
        ------
        FileError
            If the directory does not hold counts ("not-a-count"), is damaged ("damaged-file"), or was written by a
            newer version ("newer-format").
        """
        header, arrays = _COUNTS_FORMAT.read(folder)
        with _COUNTS_FORMAT.checking(folder):
            vocabulary, n_ranks = unpack_vocabulary(header["vocabulary"], arrays), int(header["ranks"])
            cells = [arrays[f"cells.{name}"] for name in ("pair", "situation", "impressions", "clicks")]
            by_rank = header.get("by") == "rank"
            cascade = None if by_rank else _load_cascade(vocabulary, n_ranks, arrays, header)
            contradicted = header.get("contradicted_views")  # None, also in files of earlier versions, for no views
            views = None
            if contradicted is not None:
                columns = [arrays[f"views.{name}"] for name in _VIEW_TABLES]
                views = CellViews(columns[0], columns[1], columns[2], float(contradicted))
            day = cls(
                replace(Cells(vocabulary, n_ranks, "rank" if by_rank else "last_click", *cells), views=views),
                cascade,
                float(header["sessions"]),
                _time_from_json(header["first"]),
                _time_from_json(header["last"]),
            )
            day.cells.validate()
            if not 0 <= day.sessions < MAX_TOTAL:
                raise ValueError(f"the number of sessions must be 0 or more and below 2^62: got {day.sessions}")
            return day

    def __repr__(self) -> str:
        return f"DayCounts({self.sessions:,.0f} sessions, up to {self.n_ranks} ranks, {self.vocabulary})"


def _load_cascade(
    vocabulary: Vocabulary, n_ranks: int, arrays: dict[str, np.ndarray], facts: dict[str, Any]
) -> Cascade:
    """Build cascade counts from the arrays of a file; ValueError if they are damaged."""
    tables = {name: arrays[f"cascade.{name}"] for name in (*_PAIR_TABLES, *_RANK_TABLES)}
    hole = vocabulary.n_pairs + 1 if facts.get("has_holes") else None
    shapes = {name: arrays[f"tails.{name}"] for name in _SHAPE_TABLES}
    tails = TailsByShape(**shapes, hole=hole)
    cascade = _make_cascade(vocabulary, n_ranks, tables, float(facts["passed"]), tails)
    cascade.validate()
    tails.validate(vocabulary.n_pairs, n_ranks)
    return cascade


def is_counts(path: str | Path) -> bool:
    """Return whether a path is a directory written by `DayCounts.save`: whether it has the header file.

    Parameters
    ----------
    path
        Any path.
    """
    return (Path(path) / _COUNTS_FORMAT.header).is_file()


def _check_day_numbers(day: DayCounts) -> None:
    """Raise if numeric times are too far apart to be day numbers."""
    if isinstance(day.first, float) and isinstance(day.last, float) and day.last - day.first > MAX_DAYS:
        raise DataError(
            f"a half-life needs times that are dates or day numbers: one log has numbers from {day.first:.10g} to "
            f"{day.last:.10g}, which are not days. Count it again with a date in its 'time' or 'day' column.",
            code="not-day-numbers",
            first=day.first,
            last=day.last,
        )


def _add_cells(
    vocabulary: Vocabulary,
    n_ranks: int,
    parts: Sequence[DayCounts],
    numbers: Sequence[np.ndarray],
    factors: Sequence[float],
    by: By,
) -> Cells:
    """Add the cells of several days; situations have the same numbers in lists of any length."""
    n_situations = count_situations(by, n_ranks)
    cells = [part.cells if part.cells.by == by else part.cells.rolled_up(by) for part in parts]
    keys = [
        number[c.pair].astype(np.int64) * n_situations + c.situation for c, number in zip(cells, numbers, strict=True)
    ]
    key, cell = distinct_sorted(np.concatenate(keys))
    counts = (
        np.bincount(cell, np.concatenate([f * c for f, c in zip(factors, column, strict=True)]), len(key))
        for column in ([c.impressions for c in cells], [c.clicks for c in cells])
    )
    views = None
    if any(c.views is not None for c in cells):  # of the other days, no view is known
        views = add_views([c.views or _no_views(len(c.pair)) for c in cells], factors, cell, len(key))
    return replace(Cells(vocabulary, n_ranks, by, *np.divmod(key, n_situations), *counts), views=views)


def _no_views(n_cells: int) -> CellViews:
    """Return views of cells of which none is known."""
    return CellViews(np.zeros(n_cells), np.zeros(n_cells), np.zeros(n_cells))


def _add_cascades(
    vocabulary: Vocabulary,
    n_ranks: int,
    parts: Sequence[Cascade],
    numbers: Sequence[np.ndarray],
    factors: Sequence[float],
) -> Cascade:
    """Add the cascade counts of several days."""
    tables = {name: np.zeros(vocabulary.n_pairs + 1) for name in _PAIR_TABLES}
    tables |= {name: np.zeros(n_ranks) for name in _RANK_TABLES}
    passed, tails = 0.0, []
    for part, number, factor in zip(parts, numbers, factors, strict=True):
        for name in _PAIR_TABLES:
            tables[name][number] += factor * getattr(part, name)
        for name in _RANK_TABLES:
            tables[name][: part.n_ranks] += factor * getattr(part, name)
        passed += factor * part.passed
        hole = vocabulary.n_pairs + 1
        pair_number = np.append(number, hole).astype(np.uint32)
        tails += [
            replace(
                own,
                pair=pair_number[own.pair],
                count=factor * own.count,
                hole=None if own.hole is None else hole,
            )
            for own in _tail_parts(part)
        ]
    return _make_cascade(vocabulary, n_ranks, tables, passed, merge_tails(tails))


def _make_cascade(
    vocabulary: Vocabulary, n_ranks: int, tables: dict[str, Any], passed: float, tails: TailsByShape
) -> Cascade:
    """Build cascade counts from tables and sorted tails."""
    return Cascade(vocabulary=vocabulary, n_ranks=n_ranks, sort_tails=lambda: tails, passed=passed, **tables)


def _tail_parts(cascade: Cascade) -> Sequence[TailsByShape]:
    """Return the tails of a cascade in parts, or raise if they are on a cluster."""
    tails = cascade.tails
    if isinstance(tails, TailsInParts):
        return tails.parts
    if isinstance(tails, TailsByShape):
        return [tails]
    raise DataError(
        "counts can be added and saved only if their tails are on this machine: these are on a cluster.",
        code="tails-on-cluster",
    )


def _time_to_json(time: Time | None) -> dict[str, Any] | None:
    """Return a time as a JSON value."""
    if time is None:
        return None
    if isinstance(time, np.datetime64):
        return {"date": str(time), "unit": np.datetime_data(time.dtype)[0]}
    return {"number": time}


def _time_from_json(value: dict[str, Any] | None) -> Time | None:
    """Return the time that `_time_to_json` wrote."""
    if value is None:
        return None
    return float(value["number"]) if "number" in value else np.datetime64(value["date"], value["unit"])
