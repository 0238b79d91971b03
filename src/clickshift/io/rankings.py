"""Rankings without clicks: the lists that a ranker would show, from a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.data.segments import Segment
from clickshift.data.sessions import Rankings, as_matrix
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import FileError
from clickshift.io.frames import read_source
from clickshift.io.read_report import OnBadLine, ReadReport, unreadable_lines_error
from clickshift.io.tables.extra_columns import SEGMENT, is_segment, plain_name
from clickshift.io.tables.formats import TableFile
from clickshift.io.tables.layouts import TableRows, read_wide

_COLUMNS = ("query", "docs")


def read_rankings(
    source: str | Path | Any,
    *,
    columns: Mapping[str, str] | None = None,
    segments: Sequence[str] = (),
    on_bad_line: OnBadLine = "error",
) -> Rankings:
    """Read ranked lists from a table.

    Parameters
    ----------
    source
        A table (Parquet, CSV or JSON lines) or a data frame, with the columns `query` and `docs`; other columns are
        ignored.
    columns
        The table's names of these columns, where they differ, and of segments, as ``{"segment:device": "ua"}``.
    segments
        Names of segments of the lists, such as the device, which are read if the table has their columns.
    on_bad_line
        "error" raises at the first list that breaks a rule; "skip" drops such lists and reports their number in one
        `ClickshiftWarning` (code "skipped-sessions").

    Returns
    -------
    Rankings
        The lists, in a vocabulary of their own: `Rankings.in_vocabulary` translates them, and models do so themselves.

    Notes
    -----
    A missing document is a hole: at its rank, the list shows nothing.

    Raises
    ------
    FileError
        "missing-column", "duplicate-column", "unreadable-line", "empty-file", and those of a log's lists ("empty-list",
        "missing-value", "duplicate-document").

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "lists.jsonl"
    ...     _ = file.write_text('{"query": "cats", "docs": ["b", "a"]}')
    ...     rankings = read_rankings(file)
    >>> rankings.vocabulary.doc_ids[rankings.vocabulary.pair_doc[rankings.pair[0]]].tolist()
    ['b', 'a']
    """
    named = {name: (columns or {}).get(name, name) for name in _COLUMNS}
    optional = {f"{SEGMENT}{name}": (columns or {}).get(f"{SEGMENT}{name}", name) for name in segments}
    part = read_source(source, lambda path, names: _choose_columns(path, named, optional, names))
    return rankings_of(part, on_bad_line=on_bad_line)


def rankings_of(part: TableFile, *, on_bad_line: OnBadLine = "error") -> Rankings:
    """Return the lists of a table with the columns query and docs; see `read_rankings`."""
    path, skip = part.path, on_bad_line == "skip"
    if part.unreadable and not skip:
        raise unreadable_lines_error(path, part.unreadable)
    report = ReadReport(path)
    report.unreadable_lines(path, part.unreadable)
    if not part.table.num_rows:
        report.fail_empty("list")
    lists, bad_lists = read_wide(TableRows([part]), skip=skip)
    bad_lists.report_to(report)
    if bad_lists.bad.all():
        report.fail_empty("list", "empty-log")
    report.report()
    owner = np.repeat(np.arange(len(lists.length)), lists.length)
    vocabulary, query, pair = Vocabulary.of(lists.query[owner].ids(), lists.doc.ids())
    shown = lists.shown()
    pairs = as_matrix(pair.astype(np.int32), shown, UNSEEN)
    segments = {
        plain_name(name): Segment(tuple(column.texts.to_pylist()), column.values)
        for name, column in lists.attributes.items()
        if is_segment(name)
    }
    return Rankings(vocabulary, query[np.cumsum(lists.length) - lists.length], pairs, shown, segments=segments)


def _choose_columns(
    path: Path, named: dict[str, str], optional: dict[str, str], names: Sequence[str]
) -> dict[str, str]:
    """Choose query, docs, and the optional columns that the table has; FileError if query or docs is missing."""
    if missing := [name for name in named.values() if name not in names]:
        raise FileError(
            path,
            f"a table of lists must have the columns {' and '.join(named.values())} (one row per list, docs a list of "
            f"ids): {' and '.join(missing)} not found; it has {', '.join(names) or 'none'}. Rename or add them.",
            code="missing-column",
            columns=missing,
            known=list(names),
        )
    return named | {ours: theirs for ours, theirs in optional.items() if theirs in names}
