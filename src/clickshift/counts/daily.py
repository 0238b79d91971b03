"""The counts of a day: all that models by counting and by EM need of a log, kept in a folder, and added day by day.

Counts add where sessions need not be kept: a month is the sum of its days, and a day that matters less than today is
multiplied before it is added. Equal tails stand once, with their counts added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float, UInt32

from clickshift.core.artifacts import ArtifactFormat
from clickshift.core.unique_rows import distinct_rows, distinct_sorted
from clickshift.counts.cascade import Cascade
from clickshift.counts.cells import Cells, count_situations
from clickshift.counts.tail_e_step import SIDE_BY_SIDE
from clickshift.counts.tails import TailsByShape, TailsInParts
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import union
from clickshift.data.vocabulary import Vocabulary, pack_vocabulary, unpack_vocabulary
from clickshift.errors import ClickshiftError, DataError

Time = np.datetime64 | float
"""A date or time, or the number that a log calls a day."""

_COUNTS_FORMAT = ArtifactFormat("count", 1, "count the log again", "clickshift log count")
_PAIR_TABLES = ("impressions", "examined", "clicks", "followed", "open_last", "first_examined", "first_clicks")
_RANK_TABLES = ("followed_at_rank", "open_last_at_rank")
_SHAPE_TABLES = ("start", "length", "sessions", "pair", "count")
_MOST_DAYS = 1000
"""A log whose times are numbers further apart than this does not count days, but e.g. seconds."""
_FORGOTTEN = 50
"""Half-lives after which a day weighs less than the last digit of a number."""


@final
@dataclass(frozen=True, eq=False)
class DayCounts:
    """The counts of the sessions of one day, or of several days added."""

    cells: Cells
    """By last_click, which is what UBM needs; PBM and click-through rates roll it up."""
    cascade: Cascade
    """For DBN, SDBN, DCM, CCM and CM."""
    sessions: float
    """How many there were; of days that were weighted, the sum of the weights."""
    first: Time | None = None
    last: Time | None = None
    """When; None where the log, or one of several, has no times."""

    @classmethod
    def of(cls, log: Log) -> DayCounts:
        """Count a log."""
        ends = [_ends(part.time) for part in log.chunks()]
        first, last = _extreme([one[0] for one in ends], min), _extreme([one[1] for one in ends], max)
        return cls(Cells.of(log, "last_click"), Cascade.of(log), float(log.total), first, last)

    @classmethod
    def merged(
        cls, days: Sequence[DayCounts], *, weights: Sequence[float] | None = None, half_life: float | None = None
    ) -> DayCounts:
        """The sum of several days, each multiplied by its weight: that of a log whose sessions weigh so much.

        With a `half_life`, a day weighs half as much as one that is so many days later, and the last one 1; age is
        counted from date to date of the days' last sessions, so that yesterday's sum and today give today's. Where no
        log has times, a day is a file later than the one before it.
        """
        if not days:
            raise DataError("there must be at least one day to merge: got none.")
        if half_life is not None:
            if weights is not None:
                raise DataError("a sum of days takes weights or a half_life: got both.")
            for day in days:
                _check_day_numbers(day)
            weights = decay([day.last for day in days], half_life)
        weight = np.ones(len(days)) if weights is None else np.asarray(weights, np.float64)
        if weight.shape != (len(days),) or not (np.isfinite(weight) & (weight >= 0)).all() or not weight.any():
            raise DataError(
                f"weights must be one number of 0 or more for each of {len(days)} days, and not all 0: "
                f"got {weight.tolist()}."
            )
        # a tail of weight 0 would be divided by
        used = [(day, float(w)) for day, w in zip(days, weight, strict=True) if w]
        parts, factors = [day for day, _ in used], [factor for _, factor in used]
        words, ranks = union([part.vocabulary for part in parts]), max(part.n_ranks for part in parts)
        numbers = [np.append(words.pairs_of(part.vocabulary), words.n_pairs) for part in parts]
        return cls(
            _add_cells(words, ranks, parts, numbers, factors),
            _add_cascades(words, ranks, parts, numbers, factors),
            sum(factor * part.sessions for part, factor in used),
            _extreme([part.first for part in parts], min),
            _extreme([part.last for part in parts], max),
        )

    @property
    def vocabulary(self) -> Vocabulary:
        return self.cells.vocabulary

    @property
    def n_ranks(self) -> int:
        return self.cells.n_ranks

    def save(self, folder: str | Path, *, notes: dict[str, Any] | None = None) -> None:
        """Write the counts. `notes` is anything of JSON's that should be kept with them, e.g. which log was counted."""
        cells, cascade, arrays = self.cells, self.cascade, dict[str, np.ndarray]()
        tails = _together(_parts(cascade))
        for name in ("pair", "situation", "impressions", "clicks"):
            arrays[f"cells.{name}"] = getattr(cells, name)
        for name in (*_PAIR_TABLES, *_RANK_TABLES):
            arrays[f"cascade.{name}"] = getattr(cascade, name)
        for name in _SHAPE_TABLES:
            arrays[f"tails.{name}"] = getattr(tails, name)
        facts = {
            "vocabulary": pack_vocabulary(self.vocabulary, arrays),
            "ranks": self.n_ranks,
            "sessions": self.sessions,
            "first": _put_time(self.first),
            "last": _put_time(self.last),
            "passed": cascade.passed,
            "notes": notes or {},
        }
        _COUNTS_FORMAT.write(folder, facts, arrays)

    @classmethod
    def load(cls, folder: str | Path) -> DayCounts:
        """Read what `save` wrote. A folder of another kind, damaged or from a newer version is refused."""
        header, arrays = _COUNTS_FORMAT.read(folder)
        try:
            words, ranks = unpack_vocabulary(header["vocabulary"], arrays), int(header["ranks"])
            cells = [arrays[f"cells.{name}"] for name in ("pair", "situation", "impressions", "clicks")]
            tables = {name: arrays[f"cascade.{name}"] for name in (*_PAIR_TABLES, *_RANK_TABLES)}
            tails = TailsByShape(*(arrays[f"tails.{name}"] for name in _SHAPE_TABLES))
            return cls(
                Cells(words, ranks, "last_click", *cells),
                _cascade(words, ranks, tables, float(header["passed"]), tails),
                float(header["sessions"]),
                _get_time(header["first"]),
                _get_time(header["last"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            if isinstance(error, ClickshiftError):
                raise
            raise _COUNTS_FORMAT.damaged(folder, error) from None

    def __repr__(self) -> str:
        return f"DayCounts({self.sessions:,.0f} sessions, up to {self.n_ranks} ranks, {self.vocabulary})"


def is_counts(path: str | Path) -> bool:
    """Whether a path is a folder that `DayCounts.save` wrote, by its looks."""
    return (Path(path) / _COUNTS_FORMAT.header).is_file()


def decay(last: Sequence[Time | None], half_life: float) -> list[float]:
    """What each of several days weighs: 1/2 to the power of its age in half-lives.

    >>> decay([np.datetime64("2024-03-01"), np.datetime64("2024-03-08T23:59")], 7)
    [0.5, 1.0]
    >>> decay([None, None, None], 1)  # no times: file by file
    [0.25, 0.5, 1.0]
    """
    if not half_life > 0:
        raise DataError(f"a half-life must be above 0 days: got {half_life:g}. Leave it out for days that weigh alike.")
    known = [time for time in last if time is not None]
    if len(known) not in {0, len(last)}:
        raise DataError(
            f"a half-life needs the times of all days or of none: {len(last) - len(known)} of {len(last)} have none. "
            "Count them again with a 'time' or 'day' column, or give weights."
        )
    if not known:
        age = np.arange(len(last))[::-1].astype(np.float64)
    else:
        day = np.array([_day(time) for time in _of_one_kind(known)])
        age = day.max() - day
    weight = np.where(age > _FORGOTTEN * half_life, 0.0, 0.5 ** (age / half_life))
    weights: list[float] = weight.tolist()
    return weights


def sort_by_time(last: Sequence[Time | None]) -> list[int]:
    """The numbers of several days in order of time; as they are given where times are not known of all."""
    known = [time for time in last if time is not None]
    if len(known) < len(last):
        return list(range(len(last)))
    time = _of_one_kind(known)
    return sorted(range(len(time)), key=lambda i: time[i])


def _of_one_kind(times: Sequence[Time]) -> Sequence[Any]:
    if len({isinstance(time, np.datetime64) for time in times}) > 1:
        raise DataError(
            "the times of all days must be of one kind: some are dates, some are numbers. "
            "Count the logs again with the same kind of 'time' or 'day' column."
        )
    return times


def _check_day_numbers(day: DayCounts) -> None:
    if isinstance(day.first, float) and isinstance(day.last, float) and day.last - day.first > _MOST_DAYS:
        raise DataError(
            f"a half-life needs times that are dates or numbers of days: one log has numbers from {day.first:.10g} to "
            f"{day.last:.10g}, which are no days. Count it again with a date in its 'time' or 'day' column."
        )


def _day(time: Any) -> float:
    """The day of a time, as a number."""
    if isinstance(time, np.datetime64):
        return float(time.astype("datetime64[D]").astype(np.int64))
    return float(np.floor(time))


def _ends(time: np.ndarray | None) -> tuple[Time | None, Time | None]:
    if time is None:
        return None, None
    if time.dtype.kind == "m":
        time = time / np.timedelta64(1, "D")
    first, last = (end if isinstance(end, np.datetime64) else float(end) for end in (time.min(), time.max()))
    return first, last


def _extreme(times: Sequence[Time | None], choose: Callable[[Sequence[Any]], Any]) -> Time | None:
    """What only some logs know is not known of the whole."""
    known = [time for time in times if time is not None]
    if len(known) < len(times):
        return None
    chosen: Time = choose(_of_one_kind(known))
    return chosen


def _add_cells(
    words: Vocabulary, ranks: int, parts: Sequence[DayCounts], numbers: Sequence[np.ndarray], factors: Sequence[float]
) -> Cells:
    """Situations by last click have the same numbers in lists of any length."""
    n = count_situations("last_click", ranks)
    cells = [part.cells for part in parts]
    keys = [number[c.pair].astype(np.int64) * n + c.situation for c, number in zip(cells, numbers, strict=True)]
    key, cell = distinct_sorted(np.concatenate(keys))
    counts = (
        np.bincount(cell, np.concatenate([f * c for f, c in zip(factors, counted, strict=True)]), len(key))
        for counted in ([c.impressions for c in cells], [c.clicks for c in cells])
    )
    return Cells(words, ranks, "last_click", *np.divmod(key, n), *counts)


def _add_cascades(
    words: Vocabulary, ranks: int, parts: Sequence[DayCounts], numbers: Sequence[np.ndarray], factors: Sequence[float]
) -> Cascade:
    tables = {name: np.zeros(words.n_pairs + 1) for name in _PAIR_TABLES} | {n: np.zeros(ranks) for n in _RANK_TABLES}
    passed, tails = 0.0, []
    for part, number, factor in zip(parts, numbers, factors, strict=True):
        for name in _PAIR_TABLES:
            tables[name][number] += factor * getattr(part.cascade, name)
        for name in _RANK_TABLES:
            tables[name][: part.n_ranks] += factor * getattr(part.cascade, name)
        passed += factor * part.cascade.passed
        place = number.astype(np.uint32)
        tails += [replace(own, pair=place[own.pair], count=factor * own.count) for own in _parts(part.cascade)]
    return _cascade(words, ranks, tables, passed, _together(tails))


def _cascade(
    words: Vocabulary, ranks: int, tables: dict[str, np.ndarray], passed: float, tails: TailsByShape
) -> Cascade:
    return Cascade(vocabulary=words, n_ranks=ranks, sort_tails=lambda: tails, passed=passed, **tables)


def _parts(cascade: Cascade) -> Sequence[TailsByShape]:
    tails = cascade.tails
    if isinstance(tails, TailsInParts):
        return tails.parts
    if isinstance(tails, TailsByShape):
        return [tails]
    raise DataError("counts can be added and kept where their tails are at hand: these are on a cluster.")


def _together(parts: Sequence[TailsByShape]) -> TailsByShape:
    """The tails of several logs in one vocabulary, shape by shape; equal ones once, with their counts added."""
    found: dict[tuple[int, int], list[tuple[TailsByShape, int]]] = {}
    for part in parts:
        for k, shape in enumerate(zip(part.start.tolist(), part.length.tolist(), strict=True)):
            found.setdefault(shape, []).append((part, k))
    shapes = sorted(found)
    merged = [_merged([_unpacked(part, k) for part, k in found[shape]]) for shape in shapes]
    start, length = np.array(shapes, np.int64).reshape(-1, 2).T.copy()
    return TailsByShape(
        start,
        length,
        np.array([len(count) for _, count in merged], np.int64),
        np.concatenate([np.empty(0, np.uint32), *(pair for pair, _ in merged)]),
        np.concatenate([np.empty(0), *(count for _, count in merged)]),
    )


def _merged(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """The tails of one shape, as `TailsByShape` keeps them."""
    pair, count = _distinct(*(np.concatenate(some, axis=-1) for some in zip(*parts, strict=True)))
    return _side_by_side(pair), count


def _unpacked(tails: TailsByShape, k: int) -> tuple[UInt32[np.ndarray, "row tail"], Float[np.ndarray, " tail"]]:
    """The pairs of shape k, a column for each tail, and their counts."""
    places, rows = slice(*tails.first_place[k : k + 2]), tails.rows[k]
    pair = tails.pair[places].reshape(-1, rows, SIDE_BY_SIDE).transpose(1, 0, 2).reshape(rows, -1)
    return pair[:, : tails.sessions[k]], tails.count[slice(*tails.first_tail[k : k + 2])]


def _distinct(
    pair: UInt32[np.ndarray, "row tail"], count: Float[np.ndarray, " tail"]
) -> tuple[UInt32[np.ndarray, "row distinct"], Float[np.ndarray, " distinct"]]:
    rows, n = pair.shape
    # two pair numbers in one: half as much to hash
    wide = np.zeros((n, rows + rows % 2), np.uint32)
    wide[:, :rows] = pair.T
    group, first = distinct_rows(wide.view(np.int64))
    return pair[:, first], np.bincount(group, count, len(first))


def _side_by_side(pair: UInt32[np.ndarray, "row tail"]) -> UInt32[np.ndarray, " place"]:
    """The opposite of unpacking."""
    rows, n = pair.shape
    blocks = -(-n // SIDE_BY_SIDE)
    padded = np.zeros((rows, blocks * SIDE_BY_SIDE), np.uint32)
    padded[:, :n] = pair
    return padded.reshape(rows, blocks, SIDE_BY_SIDE).transpose(1, 0, 2).ravel()


def _put_time(time: Time | None) -> dict[str, Any] | None:
    if time is None:
        return None
    if isinstance(time, np.datetime64):
        return {"date": str(time), "unit": np.datetime_data(time.dtype)[0]}
    return {"number": time}


def _get_time(header: dict[str, Any] | None) -> Time | None:
    if header is None:
        return None
    return float(header["number"]) if "number" in header else np.datetime64(header["date"], header["unit"])
