"""Counts of a log as a result: count the log of a day once, and add the counts of several days."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

from clickshift.core.progress import Progress, silent
from clickshift.counts.daily import DayCounts
from clickshift.counts.open_log import LogLike, open_log
from clickshift.data.days import decay
from clickshift.display.document import Document, Section
from clickshift.display.summary import Summary
from clickshift.display.tables import Rows
from clickshift.errors import DataError
from clickshift.io.read_report import OnBadLine


@dataclass(frozen=True, repr=False, eq=False)
class LogCounts(Summary):
    """Sufficient statistics of a log, and where they were written.

    Parameters
    ----------
    counts
        The counts.
    output
        Folder with the counts; None if they were not written.

    Notes
    -----
    Facts, as `to_dict` returns them:

    - conclusion: what was counted, as text.
    - from, to: first and last time, if the log has times.
    - sessions: number of sessions; for days with weights, their weighted sum.
    - queries, pairs, ranks: numbers.
    - clicks_per_session: a mean.
    - output: the folder, or None.
    """

    title: ClassVar[str] = "Counts"

    counts: DayCounts
    output: Path | None = None

    @property
    def conclusion(self) -> str:
        """Number of sessions, queries and pairs."""
        counts = self.counts
        return (
            f"{counts.sessions:,.0f} sessions of {counts.vocabulary.n_queries:,} queries and "
            f"{counts.vocabulary.n_pairs:,} (query, document) pairs were counted"
            + ("." if self.output is None else f" and written to {self.output}.")
        )

    def values(self) -> dict[str, Any]:
        """Return the facts that the notes of the class list."""
        counts = self.counts
        return {
            **_period(counts),
            "sessions": counts.sessions if counts.sessions % 1 else int(counts.sessions),
            "queries": counts.vocabulary.n_queries,
            "pairs": counts.vocabulary.n_pairs,
            "ranks": counts.n_ranks,
            "clicks_per_session": float(counts.cells.clicks.sum() / counts.sessions),
            "output": None if self.output is None else str(self.output),
        }


@final
@dataclass(frozen=True, repr=False, eq=False)
class MergedCounts(LogCounts):
    """Counts of several days, added with weights.

    Parameters
    ----------
    counts, output
        As in `LogCounts`.
    days
        For each day its name (day), its first and last time if they are known (from, to), its sessions and its weight.

    Notes
    -----
    Facts are those of `LogCounts`, and days: a list of day, from, to, sessions and weight.
    """

    title: ClassVar[str] = "Merged counts"

    days: tuple[dict[str, Any], ...] = ()

    def rows(self) -> Rows:
        """Return one row per day."""
        return list(self.days)

    def facts(self) -> Mapping[str, Any]:
        """Return the conclusion, the days, and the values of their sum."""
        return {"conclusion": self.conclusion, "days": self.days, **self.values()}

    def _document(self) -> Document:
        """Show the days, then their sum."""
        summed = super()._document()
        return Document(self.title, self.conclusion, [Section("Days", table=self.rows()), *summed.sections])


def count_log(
    log: LogLike,
    output: str | Path | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> LogCounts:
    """Count the log of a day once: the sufficient statistics to merge, fit and compare days later.

    They suffice for all models that are fitted by counting or by maximum likelihood.

    Parameters
    ----------
    log
        Anything that :func:`open_log` opens: a path, a data frame, `Sessions`, an encoded log.
    output
        Folder for the counts, e.g. "monday.counts"; None to keep them in memory only.
    columns
        The log's names of our columns, e.g. ``{"docs": "results"}``.
    on_bad_line
        "error" stops at the first bad session; "skip" leaves bad sessions out and warns.
    progress
        Called while a large log is encoded.

    Returns
    -------
    LogCounts
        The counts, and the folder with them.

    Raises
    ------
    FileError
        Those of :func:`open_log`, and "not-writable" for the folder.

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(queries=5), cs.Uniform(), cs.users.PBM(), 100, rng=1)
    >>> cs.count_log(log).counts.sessions
    100.0
    """
    counts = DayCounts.of(open_log(log, columns=columns, on_bad_line=on_bad_line, progress=progress))
    if output is not None:
        counts.save(output, notes={"logs": [str(log)]})
    return LogCounts(counts, None if output is None else Path(output))


def merge_counts(
    days: Sequence[str | Path | DayCounts],
    output: str | Path | None = None,
    *,
    half_life: float | None = None,
    progress: Progress = silent,
) -> MergedCounts:
    """Add the counts of several days, with exponential decay of older days if a half-life is given.

    Yesterday's merged counts and today's counts give today's merged counts, with the same half-life.

    Parameters
    ----------
    days
        Folders of counts, as :func:`count_log` or this function writes them, or `DayCounts`.
    output
        Folder for the merged counts, e.g. "week.counts"; None to keep them in memory only.
    half_life
        Half-life of the exponential decay, in days (in counts if logs carry no times); None for equal weights.
    progress
        Called after each day.

    Returns
    -------
    MergedCounts
        The sum, the folder with it, and the weight of each day.

    Raises
    ------
    DataError
        "no-days", "duplicate-day" if a folder is named twice, and those of `DayCounts.merged`.
    FileError
        "not-a-count", "damaged-file" or "newer-format" for a folder without counts.

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(queries=5), cs.Uniform(), cs.users.PBM(), 100, rng=1)
    >>> monday, tuesday = (cs.count_log(part).counts for part in log.split(0.5, rng=0))
    >>> [day["weight"] for day in cs.merge_counts([monday, tuesday], half_life=1).days]
    [0.5, 1.0]
    """
    names = [str(day) if isinstance(day, str | Path) else f"day {k}" for k, day in enumerate(days, 1)]
    folders = [Path(day).resolve() for day in days if isinstance(day, str | Path)]
    if repeated := [folder for k, folder in enumerate(folders) if folder in folders[:k]]:
        raise DataError(
            f"a day must be added once: {repeated[0]} is named twice. Remove one of them.",
            code="duplicate-day",
            path=str(repeated[0]),
        )
    counts = []
    for day in days:
        counts.append(day if isinstance(day, DayCounts) else DayCounts.load(day))
        progress(1, total=len(days))
    total = DayCounts.merged(counts, half_life=half_life)
    if output is not None:
        total.save(output, notes={"logs": names, "half_life": half_life})
    weights = [1.0] * len(days) if half_life is None else decay([day.last for day in counts], half_life)
    parts = (
        {
            "day": name,
            **(_period(day) if total.last is not None else {}),
            "sessions": round(day.sessions),
            "weight": weight,
        }
        for name, day, weight in zip(names, counts, weights, strict=True)
    )
    return MergedCounts(total, None if output is None else Path(output), tuple(parts))


def _period(counts: DayCounts) -> dict[str, str]:
    """Return the first and the last time of counts, where they have times."""
    return {} if counts.first is None or counts.last is None else {"from": str(counts.first), "to": str(counts.last)}
