"""What a log was, in one line: its size, where it came from, and its period."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "June", "July", "Aug", "Sept", "Oct", "Nov", "Dec")


def log_source(log: Any) -> str:
    """Name where a log came from: its path or paths, or the type of an object.

    Parameters
    ----------
    log
        What a caller passed as a log.

    Examples
    --------
    >>> log_source(["monday.counts", "tuesday.counts"]), log_source(object())
    ('monday.counts tuesday.counts', 'object in memory')
    """
    if isinstance(log, list | tuple) and all(isinstance(part, str | Path) for part in log):
        return " ".join(map(str, log))
    return str(log) if isinstance(log, str | Path) else f"{type(log).__name__} in memory"


def describe_log(
    sessions: float, queries: int | None = None, *, source: str = "", first: Any = None, last: Any = None
) -> str:
    """Describe a log in one line, below the conclusion of a result.

    Parameters
    ----------
    sessions
        Number of sessions; 0 if it is not known.
    queries
        Number of queries.
    source
        Where the log came from, as `log_source` names it.
    first, last
        Time of its first and of its last session, or their text; None or "" if it has no times.

    Returns
    -------
    str
        The line.

    Examples
    --------
    >>> describe_log(100_000, 1200, source="logs/clicks.parquet", first="2026-05-01", last="2026-05-10T23:59:01")
    '100,000 sessions of 1,200 queries from logs/clicks.parquet, 1 to 10 May 2026'
    >>> describe_log(0, 50, source="/data/clicks.parquet")
    '50 queries from clicks.parquet'
    >>> describe_log(2, 1, source="DataFrame in memory")
    '2 sessions of 1 query from a DataFrame in memory'
    """
    sizes = [f"{round(sessions):,} sessions"] if sessions else []
    sizes += [f"{queries:,} quer{'y' if queries == 1 else 'ies'}"] if queries else []
    single = Path(source)
    name = single.name if single.is_absolute() and " " not in source else source
    name = f"a {name}" if name.endswith(" in memory") else name
    text = " from ".join(part for part in (" of ".join(sizes), name) if part)
    return ", ".join(part for part in (text, period(first, last)) if part)


def period(first: Any, last: Any) -> str:
    """Return a period as text, in days where its ends are dates or times.

    Parameters
    ----------
    first, last
        Its ends, or their text; None or "" if they are not known.

    Examples
    --------
    >>> period("2026-05-01", "2026-05-10"), period("2026-04-30", "2026-05-02"), period("2025-12-31", "2026-01-01")
    ('1 to 10 May 2026', '30 Apr to 2 May 2026', '31 Dec 2025 to 1 Jan 2026')
    >>> period("2026-05-01T08:00", "2026-05-01T20:00"), period(1.0, 14.0), period("", "")
    ('1 May 2026', 'time 1 to 14', '')
    """
    if first is None or last is None or not str(first) or not str(last):
        return ""
    start, end = _day(str(first)), _day(str(last))
    if start is None or end is None:
        ends = [str(value).removesuffix(".0") for value in (first, last)]
        return f"time {ends[0]} to {ends[1]}" if ends[0] != ends[1] else f"time {ends[0]}"
    text = f"{end.day} {_MONTHS[end.month - 1]} {end.year}"
    if start == end:
        return text
    if start.year != end.year:
        return f"{start.day} {_MONTHS[start.month - 1]} {start.year} to {text}"
    return f"{start.day}{'' if start.month == end.month else f' {_MONTHS[start.month - 1]}'} to {text}"


def _day(text: str) -> date | None:
    """Return the day of a date or a time in ISO format; None for anything else."""
    try:
        return datetime.fromisoformat(text[:26]).date()  # nanoseconds have more digits
    except ValueError:
        return None
