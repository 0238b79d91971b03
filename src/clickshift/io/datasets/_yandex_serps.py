"""The SERPs of a Yandex log that are kept, block by block: only what is asked for is held in memory.

A log is read in one pass, or in two where the most frequent queries are to be kept: the first pass counts queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from clickshift.core.unique_rows import distinct_rows
from clickshift.data.vocabulary import Raw
from clickshift.io.datasets._serps import REPEATED, UNSHOWN_CLICKS, without_duplicates
from clickshift.io.datasets._yandex_parser import FIRST, RANKS, SECOND, SESSION, URL, read_serps
from clickshift.io.encode.batches import BATCH_ROWS, ReadBatch
from clickshift.io.read_report import OnBadLine, ReadReport
from clickshift.io.tables.formats import TableFile

_WSCD_RULE = (
    "a line must be 'SessionID TimePassed Q QueryID RegionID' and ten URLIDs, or 'SessionID TimePassed C URLID', "
    "with tabs between whole numbers"
)
_KAGGLE_RULE = (
    "a line must be 'SessionID M Day UserID', or 'SessionID TimePassed Q (or T) SERPID QueryID Term,Term,...' and ten "
    "'URLID,DomainID', or 'SessionID TimePassed C SERPID URLID', with tabs between them"
)
_LEAST_COUNTED = 1 << 20
"""Number of SERPs whose queries are counted at once, at least; more if more queries are known."""


@dataclass(frozen=True)
class SerpFilter:
    """Which SERPs of a Yandex log are kept while it is read.

    Parameters
    ----------
    kaggle
        Whether the log has the format of the Kaggle challenge or that of WSCD 2012.
    queries
        Names of the queries to keep; None for all.
    with_clicks
        Keep only SERPs with a click.
    merge_regions
        Name queries of WSCD 2012 by QueryID alone, instead of QueryID_RegionID.
    """

    kaggle: bool
    queries: frozenset[str] | None = None
    with_clicks: bool = False
    merge_regions: bool = False

    @property
    def key(self) -> list[int]:
        """Columns of a query line that name its query."""
        return [FIRST] if self.kaggle or self.merge_regions else [FIRST, SECOND]

    @property
    def noun(self) -> str:
        """What the log must contain, for messages."""
        return "SERP" if self.queries is None else "SERP of the chosen queries"

    def rows(self, keys: Int[np.ndarray, "serp key"], click: Bool[np.ndarray, "serp rank"]) -> Int[np.ndarray, " row"]:
        """Return the rows of the SERPs that are kept."""
        keep = click.any(axis=1) if self.with_clicks else np.ones(len(keys), bool)
        if self.queries is not None:
            group, first = distinct_rows(keys)
            keep &= np.array([name in self.queries for name in _key_texts(keys[first])], bool)[group]
        return np.flatnonzero(keep)


@dataclass(frozen=True, eq=False)
class Serps:
    """Some SERPs of a log, by raw ids.

    Parameters
    ----------
    keys
        Numbers that name the query.
    docs
        URLs.
    click
        Whether each result was clicked.
    time
        Running number of the query action in the log (WSCD 2012), or day (Kaggle).
    user
        Search session (WSCD 2012), or user (Kaggle).
    """

    keys: Int[np.ndarray, "serp key"]
    docs: Int[np.ndarray, "serp rank"]
    click: Bool[np.ndarray, "serp rank"]
    time: Int[np.ndarray, " serp"]
    user: Int[np.ndarray, " serp"]

    def columns(self) -> tuple[np.ndarray, ...]:
        """Return all columns, in their order."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def __getitem__(self, rows: Any) -> Serps:
        """Return some rows."""
        return Serps(*(column[rows] for column in self.columns()))


def kept_serps(paths: Sequence[str | Path], reports: Sequence[ReadReport], kept: SerpFilter) -> Iterator[Serps]:
    """Yield the SERPs of a log that are kept, block by block.

    Parameters
    ----------
    paths
        The files, plain or gzip, in order of time.
    reports
        Where bad lines, left-out queries and clicks are counted, for each file.
    kept
        The SERPs to keep.
    """
    n_read = 0
    for path, report in zip(paths, reports, strict=True):
        rule = _KAGGLE_RULE if kept.kaggle else _WSCD_RULE
        for block in read_serps(path, kaggle=kept.kaggle, rule=rule, report=report):
            report.left_out(block.unshown, UNSHOWN_CLICKS, "unshown-click")
            rows = kept.rows(block.serp[:, kept.key], block.click)
            time, user = n_read + rows, block.serp[rows, SESSION]
            if block.meta is not None:
                time, user = block.meta[rows, FIRST], block.meta[rows, SECOND]
            yield Serps(block.serp[rows][:, kept.key], block.serp[rows, URL:], block.click[rows], time, user)
            n_read += len(block.serp)


def most_frequent_queries(
    paths: Sequence[str | Path], n: int, *, kaggle: bool, merge_regions: bool = False, on_bad_line: OnBadLine = "error"
) -> list[str]:
    """Find the most frequent queries of a log in one pass, which holds two numbers per distinct query in memory.

    Parameters
    ----------
    paths
        The files, plain or gzip.
    n
        Number of queries.
    kaggle, merge_regions
        As in `SerpFilter`.
    on_bad_line
        "error", or "skip" to leave out bad lines.

    Returns
    -------
    list of str
        Names of the queries, the most frequent first; among equally frequent ones, the smallest number first.
    """
    everything = SerpFilter(kaggle, merge_regions=merge_regions)
    keys, count = np.zeros((0, len(everything.key)), np.int64), np.zeros(0, np.int64)
    waiting: list[np.ndarray] = []
    n_waiting = 0
    for serps in kept_serps(paths, [ReadReport(path, on_bad_line) for path in paths], everything):
        waiting.append(serps.keys)
        n_waiting += len(serps.keys)
        if n_waiting > max(len(keys), _LEAST_COUNTED):
            keys, count = _add_counts(keys, count, waiting)
            waiting, n_waiting = [], 0
    keys, count = _add_counts(keys, count, waiting)
    order = np.lexsort((*keys.T[::-1], -count))[:n]
    return _key_texts(keys[order])


def _add_counts(
    keys: Int[np.ndarray, "query key"], count: Int[np.ndarray, " query"], more: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Add the queries of some SERPs to distinct queries and their counts."""
    both = np.concatenate([keys, *more])
    weight = np.ones(len(both), np.int64)
    weight[: len(keys)] = count
    group, first = distinct_rows(both)
    return both[first], np.bincount(group, weight, len(first)).astype(np.int64)


def yandex_batches(
    paths: Sequence[str | Path], kept: SerpFilter, *, on_bad_line: OnBadLine = "error"
) -> Iterator[ReadBatch]:
    """Yield the SERPs of a log that are kept, as batches of a table that `write_encoded_log` encodes.

    Parameters
    ----------
    paths
        The files, plain or gzip, in order of time.
    kept
        The SERPs to keep.
    on_bad_line
        "error", or "skip" to leave out bad lines.

    Raises
    ------
    FileError
        "bad-line", or "empty-file" if no SERP is kept.
    """
    reports = [ReadReport(path, on_bad_line) for path in paths]
    waiting: list[Serps] = []
    n_waiting = n_kept = 0
    for serps in kept_serps(paths, reports, kept):
        shown_once = without_duplicates(serps.docs, np.ones(serps.docs.shape, bool))
        reports[0].left_out(int((~shown_once).sum()), REPEATED, "duplicate-document")
        waiting.append(serps[shown_once])
        n_waiting += int(shown_once.sum())
        if n_waiting >= BATCH_ROWS:
            yield partial(_tables, Path(paths[0]), waiting, n_kept)
            waiting, n_waiting, n_kept = [], 0, n_kept + n_waiting
    if n_waiting:
        yield partial(_tables, Path(paths[0]), waiting, n_kept)
    if not n_waiting + n_kept:
        reports[0].fail_empty(kept.noun)
    for report in reports:
        report.report()


def _tables(path: Path, parts: Sequence[Serps], first_row: int) -> list[TableFile]:
    """Make a table in the layout of clickshift of some SERPs."""
    import pyarrow as pa

    keys, docs, click, time, user = (
        np.concatenate(columns) for columns in zip(*(p.columns() for p in parts), strict=True)
    )
    start = np.arange(len(keys) + 1, dtype=np.int32) * RANKS
    lists = {
        "docs": pa.ListArray.from_arrays(start, pa.array(docs.reshape(-1))),
        "clicks": pa.ListArray.from_arrays(start, pa.array(click.reshape(-1).astype(np.int8))),
    }
    table = pa.table({"query": query_ids(keys), **lists, "time": time, "user": user})
    return [TableFile(path, table, [], first_row)]


def query_ids(keys: Int[np.ndarray, "serp key"]) -> Raw:
    """Return query ids: a number as it is, (query, region) as text, which is written once per distinct query.

    Parameters
    ----------
    keys
        Numbers that name the query of each SERP.
    """
    if keys.shape[1] == 1:
        return keys[:, 0]
    import pyarrow as pa

    group, first = distinct_rows(keys)
    return pa.DictionaryArray.from_arrays(group.astype(np.int32), pa.array(_key_texts(keys[first]), pa.string()))


def _key_texts(keys: Int[np.ndarray, "query key"]) -> list[str]:
    """Join the numbers of each key by an underscore."""
    return ["_".join(map(str, key)) for key in keys.tolist()]
