"""Days: which day a time belongs to, how days are named, ordered, weighted and divided into halves.

A time is a date, a timestamp, a duration or a number of days. Numbers that span more than `MAX_DAYS` are not days but,
e.g., seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, Num, Shaped

from clickshift.errors import DataError

Time = np.datetime64 | float
"""A date, a time, or a day number."""
MAX_DAYS = 1000
"""Most days of a log: more distinct values, or numbers further apart, are not days but, e.g., seconds."""
_MAX_HALF_LIVES = 50
"""Age in half-lives after which a day has weight 0: its weight would be below the precision of a sum."""
_FOLDER = re.compile(r"(day|date|dt|ds)=(.+)")


def floor_to_day(time: Shaped[np.ndarray, "*rows"]) -> Shaped[np.ndarray, "*rows"]:
    """Return the day of each time: a date, a whole number of days, or a number rounded down.

    Parameters
    ----------
    time
        Timestamps, durations or numbers of days.

    Returns
    -------
    array
        The days, which `np.unique` puts in order.
    """
    if time.dtype.kind in "Mm":
        return time.astype(f"{'datetime' if time.dtype.kind == 'M' else 'timedelta'}64[D]")
    return np.floor(time) if time.dtype.kind == "f" else time


def days_of(time: Shaped[np.ndarray, " row"]) -> tuple[Int[np.ndarray, " row"], tuple[str, ...]]:
    """Number the day of each row of a log.

    Parameters
    ----------
    time
        Timestamps, durations or numbers of days; fractions of a day are dropped.

    Returns
    -------
    tuple of array and tuple of str
        The number of each row's day, from 0, and the days' names.

    Raises
    ------
    DataError
        If there are fewer than 2 or more than 1000 days ("bad-days").

    Examples
    --------
    >>> days_of(np.array([2.1, 1.0, 2.9]))
    (array([1, 0, 1]), ('1', '2'))
    """
    days, day = np.unique(floor_to_day(time), return_inverse=True)
    if not 2 <= len(days) <= MAX_DAYS:
        raise DataError(
            f"the times of a log must cover 2 to {MAX_DAYS} days: got {len(days):,} distinct ones. "
            "Add a 'day' column, or choose parts instead of days.",
            code="bad-days",
            count=len(days),
        )
    return day, tuple(f"{value:g}" if isinstance(value, float) else str(value) for value in days.tolist())


def earlier_half(
    time: Shaped[np.ndarray, " row"] | None, count: Num[np.ndarray, " row"]
) -> Bool[np.ndarray, " row"] | None:
    """Divide a log into earlier and later days with about the same number of sessions.

    Parameters
    ----------
    time
        Time of each row; None if the log has none.
    count
        Number of sessions of each row.

    Returns
    -------
    array or None
        Whether each row belongs to the earlier days; None where the log has no time, or only one day.

    Examples
    --------
    >>> earlier_half(np.array([1, 1, 2, 3]), np.ones(4))
    array([ True,  True, False, False])
    """
    if time is None:
        return None
    days, day = np.unique(floor_to_day(time), return_inverse=True)
    if len(days) < 2:
        return None
    cumulative = np.cumsum(np.bincount(day, count))
    earlier: np.ndarray = day <= min(int(np.abs(cumulative - cumulative[-1] / 2).argmin()), len(days) - 2)
    return earlier


def day_of_folder(path: Path) -> Any:
    """Return the day of a partitioned folder, `day=2026-01-31` or `date=...`, as a date or a number; None without.

    Parameters
    ----------
    path
        A file in the folder.

    Examples
    --------
    >>> day_of_folder(Path("logs/day=2026-01-31/part.parquet"))
    datetime.date(2026, 1, 31)
    """
    for name in reversed(path.parent.parts):
        if match := _FOLDER.fullmatch(name):
            text = match[2]
            try:
                day = int(text) if text.isdigit() and len(text) != 8 else date.fromisoformat(text)
            except ValueError:
                return None
            return None if isinstance(day, int) and day >= 1 << 63 else day
    return None


def decay(last: Sequence[Time | None], half_life: float) -> list[float]:
    """Return the exponential-decay weight of each of several days: 1/2 to the power of its age in half-lives.

    Parameters
    ----------
    last
        Time of each day's last session; None for all if there are no times, and each is a day later than the last.
    half_life
        Half-life in days, above 0.

    Returns
    -------
    list[float]
        Weight of each day; 1 for the latest.

    Raises
    ------
    DataError
        If the half-life is not above 0 ("bad-half-life"), only some days have times ("missing-time"), or some times
        are dates and others numbers ("mixed-times").

    Examples
    --------
    >>> decay([np.datetime64("2024-03-01"), np.datetime64("2024-03-08T23:59")], 7)
    [0.5, 1.0]
    >>> decay([None, None, None], 1)  # no times: one day each
    [0.25, 0.5, 1.0]
    """
    if not half_life > 0:
        raise DataError(
            f"a half-life must be above 0 days: got {half_life:g}. Pass no half_life for equal weights.",
            code="bad-half-life",
            value=half_life,
        )
    times = [time for time in last if time is not None]
    if len(times) not in {0, len(last)}:
        raise DataError(
            f"a half-life needs the times of all days or of none: {len(last) - len(times)} of {len(last)} have none. "
            "Count them again with a 'time' or 'day' column, or pass weights.",
            code="missing-time",
            count=len(last) - len(times),
            total=len(last),
        )
    if not times:
        age = np.arange(len(last))[::-1].astype(np.float64)
    else:
        day = np.array([_day_number(time) for time in _check_same_type(times)])
        age = day.max() - day
    weight = np.where(age > _MAX_HALF_LIVES * half_life, 0.0, 0.5 ** (age / half_life))
    weights: list[float] = weight.tolist()
    return weights


def sort_by_time(last: Sequence[Time | None]) -> list[int]:
    """Return the positions of several days in chronological order; in the given order if any has no time.

    Parameters
    ----------
    last
        Time of each day's last session.

    Raises
    ------
    DataError
        If some times are dates and others numbers ("mixed-times").
    """
    given = [time for time in last if time is not None]
    if len(given) < len(last):
        return list(range(len(last)))
    times = _check_same_type(given)
    return sorted(range(len(times)), key=lambda i: times[i])


def _check_same_type(times: Sequence[Time]) -> Sequence[Any]:
    """Return the times if all are dates or all are numbers, or raise."""
    if len({isinstance(time, np.datetime64) for time in times}) > 1:
        raise DataError(
            "the times of all days must be of one type: some are dates, some are numbers. "
            "Count the logs again with the same type of 'time' or 'day' column.",
            code="mixed-times",
        )
    return times


def _day_number(time: Any) -> float:
    """Return the day of a time as a number."""
    return float(floor_to_day(np.array([time])).astype(np.float64)[0])


def time_range(time: np.ndarray | None) -> tuple[Time | None, Time | None]:
    """Return the first and the last of some times; durations become numbers of days."""
    if time is None:
        return None, None
    if time.dtype.kind == "m":
        time = time / np.timedelta64(1, "D")
    first, last = (end if isinstance(end, np.datetime64) else float(end) for end in (time.min(), time.max()))
    return first, last


def choose_time(times: Sequence[Time | None], choose: Callable[[Sequence[Any]], Any]) -> Time | None:
    """Return the time that `choose` (min or max) selects; None if any is missing."""
    given = [time for time in times if time is not None]
    if len(given) < len(times):
        return None
    chosen: Time = choose(_check_same_type(given))
    return chosen
