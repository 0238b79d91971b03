"""Click logs as tables: Parquet, CSV, JSON lines or data frames, one row per list ("wide") or per result ("long").

| layout | columns                             | a row                                                              |
|--------|-------------------------------------|--------------------------------------------------------------------|
| wide   | query, docs, clicks                 | `docs` a list of ids, `clicks` a list of 0 and 1, equally long     |
| long   | session, query, rank, doc, click    | one result, `rank` from 1; rows of a session may be anywhere       |

A list may have holes, ranks at which nothing was recorded: a missing item of `docs`, or a rank without a row.

Optional columns of both layouts: `time` or `day` (see below), `user`, `count` (how many identical
sessions a row stands for), and `propensity`, the probability with which the logging policy drew the list (or
`log_propensity`, for lists whose probability is too small for a floating-point number); `viewed`, whether a result was
in the viewport; `propensity_at_rank`, the probability with which the logging policy showed a document at its rank;
`arm`, the arm of an experiment; further signals of results and segments of sessions that a caller names. Other columns
are ignored. Ids are integers or text. The wide layout reads faster. Common names of these columns are recognised, see
`COMMON_NAMES`.

A time is a date, a timestamp, ISO text, or seconds, milli-, micro- or nanoseconds since 1970 (numbers that lie between
the years 1990 and 2100), without a zone in UTC; other numbers are day numbers.

Data frames have the same two layouts, the same rules and the same errors, see `clickshift.io.frames`.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.core.unique_rows import distinct_sorted
from clickshift.data._columns import PROPENSITY_AT_RANK, as_signal
from clickshift.data.segments import Segment
from clickshift.data.sessions import Rankings, Sessions, as_matrix, check_rectangle, check_total
from clickshift.data.vocabulary import UNSEEN, Vocabulary, encode_ids
from clickshift.errors import DataError, FileError
from clickshift.io.read_report import OnBadLine, ReadReport, unreadable_lines_error
from clickshift.io.tables._writer import check_different as check_different
from clickshift.io.tables._writer import check_output as check_output
from clickshift.io.tables._writer import write_log as write_log
from clickshift.io.tables.extra_columns import (
    EXTRA_COLUMNS,
    SEGMENT,
    SIGNAL,
    chosen_extras,
    columns_with,
    is_segment,
    plain_name,
)
from clickshift.io.tables.formats import LOG_ENDINGS, Choose, TableFile, ending, read_table
from clickshift.io.tables.layouts import SESSION_COLUMNS, RawSessions, TableRows, read_long, read_wide

WIDE = ("query", "docs", "clicks")
"""Required columns of the wide layout."""
LONG = ("session", "query", "rank", "doc", "click")
"""Required columns of the long layout."""
COMMON_NAMES = {
    "query": ("q", "query_id", "qid", "search_query", "query_text", "keyword"),
    "docs": ("results", "doc_ids", "items", "documents", "ranking"),
    "clicks": ("clicked",),
    "session": ("session_id", "sid", "search_id", "impression_id", "list_id", "serp_id", "request_id"),
    "rank": ("position", "pos"),
    "doc": ("doc_id", "document", "document_id", "product_id", "item", "item_id", "url", "asin"),
    "click": ("clicked", "is_click", "is_clicked"),
    "time": ("timestamp", "ts", "datetime", "event_time", "date"),
    "user": ("user_id", "uid", "visitor_id"),
    "propensity": ("logging_propensity", "logging_probability"),
    "viewed": ("is_viewed", "in_viewport"),
    "propensity_at_rank": ("pscore", "pscore_item_position", "position_propensity"),
    "arm": ("experiment_arm", "search_config"),
}
"""Other names of our columns that are recognised, in upper or lower case, where a table has none of our name."""
_LIBRARIES = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs", "hf": "huggingface_hub"}
_SAME_MEANING = {"time": "day", "propensity": "log_propensity"}
_MAX_COLUMNS = 10_000
"""Largest number of columns of a table."""
_LISTED = 50
"""Number of column names that a message lists."""


def read_log(
    log: str | Path | Sequence[str | Path] | Any,
    *,
    columns: Mapping[str, str] | None = None,
    signals: Sequence[str] = (),
    segments: Sequence[str] = (),
    on_bad_line: OnBadLine = "error",
    vocabulary: Vocabulary | None = None,
) -> Sessions:
    """Read a click log into memory.

    Parameters
    ----------
    log
        A file, a folder, a pattern ("logs/*.parquet") or a list of files, which are read in order of name; or a data
        frame: pandas, Polars, Arrow, a DuckDB relation, or another one that `narwhals` or Arrow's PyCapsule interface
        can read.
    columns
        The log's names of our columns, e.g. ``{"query": "text", "docs": "shown"}``. Those of `COMMON_NAMES` are
        recognised; an empty name leaves an optional column out. ``{"signal:cart": "added"}`` and ``{"segment:device":
        "ua"}`` name the columns of a signal and of a segment.
    signals
        Names of the columns of further signals of results, such as purchases, dwell time or revenue: numbers of 0 or
        more; a missing one is unknown. `viewed` is read without being named.
    segments
        Names of the columns of segments of sessions, such as the device: text or numbers, at most 1,000 different ones;
        a missing one is unknown. `arm` is read without being named.
    on_bad_line
        "error" raises at the first session that breaks a rule; "skip" drops such sessions and reports their number in
        one `ClickshiftWarning` (code "skipped-sessions").
    vocabulary
        Vocabulary of the result; ids that it does not hold become `UNSEEN`. By default, the log's own.

    Returns
    -------
    Sessions
        One row per row of a wide log or per session of a long one.

    Raises
    ------
    FileError
        For files that cannot be read ("file-not-found", "not-local", "unknown-format", "empty-file", "damaged-file",
        "unreadable-line"), columns that cannot be used ("missing-column", "unknown-column", "duplicate-column",
        "ambiguous-column", "inconsistent-columns", "bad-column", "float-ids", "mixed-ids"), sessions that break a rule
        ("missing-value", "empty-list", "unequal-lengths", "not-zero-or-one", "not-an-integer", "bad-ranks",
        "inconsistent-session", "duplicate-document", "bad-count", "not-a-probability", "click-without-document",
        "signal-without-document", "bad-signal", "not-a-number"), segments with more than 1,000 labels
        ("too-many-segments"), and a log without sessions ("empty-log").
    DataError
        "bad-option" for another `on_bad_line`, "unknown-column" for a key of `columns` that is not one of ours,
        "bad-column-name" for a signal or a segment that has the name of another column, "not-a-log" for an object that
        is neither a path nor a table, "lists-too-long" if a few long lists would take more than 1 GB of memory.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"query": ["cats"], "results": [["a", "b"]], "clicks": [[0, 1]]})
    >>> read_log(frame)
    Sessions(1 in 1 rows, up to 2 ranks, Vocabulary(1 queries, 2 documents, 2 pairs))
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "log.jsonl"
    ...     _ = file.write_text('{"query": "cats", "docs": ["a", "b"], "clicks": [0, 1]}')
    ...     sessions = read_log(file)
    >>> sessions.click.tolist()
    [[False, True]]
    """
    columns = columns_with(columns, signals, segments)
    parts = read_tables(log, lambda path: partial(choose_columns, path, columns))
    sessions = _to_sessions(raw_sessions(parts, on_bad_line))
    return sessions if vocabulary is None else sessions.in_vocabulary(vocabulary)


def read_log_with_number(
    log: str | Path | Sequence[str | Path] | Any,
    number: str,
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
) -> tuple[Sessions, np.ndarray]:
    """Read a click log into memory with one more column, which has a number for each session.

    Parameters
    ----------
    log, columns, on_bad_line
        As in `read_log`.
    number
        The log's name of the column.

    Returns
    -------
    tuple[Sessions, array]
        The log, and the number of each of its rows.

    Raises
    ------
    FileError
        "unknown-column" if there is no such column, "bad-column" or "missing-value" if it does not hold numbers, and
        those of `read_log`.
    """

    def choose(path: str | Path, names: Sequence[str]) -> dict[str, str]:
        chosen = choose_columns(path, columns or {}, names)
        if number not in names:
            message = f"there is no column {number}: the table has {', '.join(names)}."
            raise FileError(path, message, code="unknown-column", column=number, known=list(names))
        return chosen | {"number": number}

    raw = raw_sessions(read_tables(log, lambda path: partial(choose, path)), on_bad_line)
    return _to_sessions(raw), raw.attributes["number"].values


def read_tables(log: Any, choose: Callable[[str | Path], Choose]) -> list[TableFile]:
    """Read the chosen columns of the files of a log, or of a data frame.

    Parameters
    ----------
    log
        A file, a folder, a pattern, a list of files, or a data frame.
    choose
        Function from a file to the function that selects and names its columns.

    Returns
    -------
    list of TableFile
        The columns of each file under our names.
    """
    if isinstance(log, str | Path | list | tuple):
        return [read_table(file, choose(file)) for file in log_files(log)]
    from clickshift.io.frames import PLACE, read_frame

    return [read_frame(log, choose(PLACE))]


def raw_sessions(
    parts: Sequence[TableFile], on_bad_line: OnBadLine, *, missing: tuple[str, str] = ("session to read", "empty-log")
) -> RawSessions:
    """Return the sessions, or lists without clicks, of tables that keep all rules, with raw ids.

    Parameters
    ----------
    parts
        The tables, of one layout.
    on_bad_line
        "error" raises at the first session that breaks a rule; "skip" drops such sessions and reports their number.
    missing
        What tables without rows lack, and the code of the error.
    """
    first, skip = parts[0], on_bad_line == "skip"
    report = ReadReport(f"{first.path}" if len(parts) == 1 else f"{first.path} and {len(parts) - 1} more", on_bad_line)
    wide = "docs" in first.table.column_names
    for part in parts:
        if part is not first:
            check_same(part.path, part.table.column_names, first.path, first.table.column_names)
        if part.unreadable and not (wide and skip):
            # the session of an unreadable result is unknown: its list would be too short
            advice = 'Fix or remove it, or pass on_bad_line="skip".' if wide else "Fix the line, or remove its session."
            raise unreadable_lines_error(part.path, part.unreadable, advice)
        if part.unreadable:
            report.unreadable_lines(part.path, part.unreadable)
    if not any(part.table.num_rows for part in parts):
        report.fail_empty(*missing)
    sessions, bad_sessions = (read_wide if wide else read_long)(TableRows(parts), skip=skip)
    if skip:
        bad_sessions.report_to(report)
        if bad_sessions.bad.all():
            report.fail_empty(missing[0], "empty-log")
        report.report()
    return sessions


def numbered_lists(raw: RawSessions) -> Rankings:
    """Number the ids, and arrange the concatenated lists as rows of a matrix, with the results' propensities.

    Parameters
    ----------
    raw
        Sessions that keep all rules, with raw ids.
    """
    query_ids, query = encode_ids(raw.query.ids(), "query")
    doc_ids, doc = encode_ids(raw.doc.ids(), "document")
    key, pair = distinct_sorted(np.repeat(query * len(doc_ids), raw.length) + doc)
    vocabulary = Vocabulary(query_ids, doc_ids, *np.divmod(key, len(doc_ids)))
    check_rectangle(len(query), int(raw.extent.max()), len(pair))
    shown = raw.shown()
    values = {name: column.values for name, column in raw.attributes.items()}
    log_prob = values.get("log_propensity")
    if "propensity" in values:
        log_prob = np.log(values["propensity"])
    propensity = raw.results.get(PROPENSITY_AT_RANK)
    labelled = {plain_name(name): column for name, column in raw.attributes.items() if is_segment(name)}
    segments = {name: Segment(tuple(column.texts.to_pylist()), column.values) for name, column in labelled.items()}
    return Rankings.checked(
        vocabulary,
        query.astype(np.int32),
        as_matrix(pair.astype(np.int32), shown, UNSEEN),
        shown,
        None if log_prob is None else log_prob.astype(np.float64),
        None if propensity is None else as_matrix(propensity, shown, 0.0),
        segments,
    )


def _to_sessions(raw: RawSessions) -> Sessions:
    """Return sessions with numbered ids, as rows of matrices."""
    rankings = numbered_lists(raw)
    values = {name: column.values for name, column in raw.attributes.items()}
    user = None
    if "user" in raw.attributes:
        user_ids, index = encode_ids(raw.attributes["user"].ids(), "user")
        user = user_ids[index]
    count = values["count"].astype(np.int64) if "count" in values else np.ones(len(rankings), np.int64)
    check_total(float(count.sum(dtype=np.float64)))
    clicks = as_matrix(raw.click, rankings.shown, False)
    time = values.get("time", values.get("day"))
    signals = {
        plain_name(name): as_signal(as_matrix(results, rankings.shown, 0.0), rankings.shown)
        for name, results in raw.results.items()
        if name != PROPENSITY_AT_RANK
    }
    return Sessions.checked(rankings, clicks, count, time, user, signals)


def log_files(path: str | Path | Sequence[Any]) -> list[Path]:
    """Return the files of a log, sorted by name.

    Parameters
    ----------
    path
        A file, a folder (with its subfolders), a pattern, or a list of files. Hidden files and folders are ignored.

    Returns
    -------
    list of Path
        The files; a single path is returned whether it exists or not.

    Raises
    ------
    FileError
        "no-files" if the folder or the pattern has no log file.
    DataError
        "no-files" for an empty list, "not-a-log" for one of other things.
    """
    if not isinstance(path, str | Path):
        if not path:
            raise DataError("there must be at least one file to read: got an empty list.", code="no-files")
        if other := [file for file in path if not isinstance(file, str | Path)]:
            raise DataError(
                f"a list must hold the paths of a log's files: got {type(other[0]).__name__}. Concatenate data frames "
                "first.",
                code="not-a-log",
                type=type(path).__name__,
            )
        return sorted(Path(file) for file in path)
    if "://" in str(path):
        scheme = str(path).split("://")[0]
        advice = "Download it, or read it with pandas, Polars or DuckDB and pass the data frame."
        library = _LIBRARIES.get(scheme, "the fsspec library")
        raise FileError(
            str(path),
            f"a log must be on this machine: this is an address ({scheme}://). {advice} They need {library} for it.",
            code="not-local",
            scheme=scheme,
        )
    if "\0" in str(path):
        raise FileError(str(path), "a path must not contain a NUL character. Check the path.", code="bad-path")
    root = Path(path)
    if root.is_dir():
        files = sorted(
            file
            for file in root.rglob("*")
            if ending(file) and not any(name[0] in "._" for name in file.relative_to(root).parts) and file.is_file()
        )
        if not files:
            raise FileError(
                root,
                f"the folder has no log file (ending in {', '.join(LOG_ENDINGS)}). Pass the folder that has one.",
                code="no-files",
                known=list(LOG_ENDINGS),
            )
        return files
    if not root.exists() and glob.has_magic(str(path)):
        files = sorted(Path(file) for file in glob.glob(str(path), recursive=True))
        if not files:
            raise FileError(root, "no file matches this pattern. Check it.", code="no-files")
        return files
    return [root]


def choose_columns(
    path: str | Path, columns: Mapping[str, str], names: Sequence[str], *, clicks: bool = True
) -> dict[str, str]:
    """Choose the columns of a table: those of the layout that it has, and the optional ones.

    A column is found by the name that `columns` gives, else by our name, else by one of `COMMON_NAMES` in upper or
    lower case.

    Parameters
    ----------
    path
        The file, for errors.
    columns
        The table's names of our columns, where they differ.
    names
        Names of the table's columns.
    clicks
        Whether the lists have clicks. Without them, columns beyond lists and segments are not chosen.

    Returns
    -------
    dict
        ``{our name: the table's name}``.

    Raises
    ------
    DataError
        "unknown-column" for a key of `columns` that is not one of our names.
    FileError
        "unknown-column" if `columns` gives a name that the table does not have, "missing-column" if the table has
        neither layout, "ambiguous-column" if several of its columns have a common name of one of ours,
        "duplicate-column" if a name occurs twice.
    """
    known = list(dict.fromkeys((*WIDE, *LONG, *SESSION_COLUMNS, *EXTRA_COLUMNS)))
    if unknown := [name for name in columns if name not in known and not name.startswith((SIGNAL, SEGMENT))]:
        raise DataError(
            f"columns must map our names to the log's: {unknown[0]} is not one of ours, which are {', '.join(known)}. "
            'Pass columns={"docs": "results"} for a log that calls the documents results.',
            code="unknown-column",
            column=unknown[0],
            known=known,
        )
    if len(names) > _MAX_COLUMNS:
        raise FileError(
            path,
            f"a table must have at most {_MAX_COLUMNS:,} columns: got {len(names):,}. Is this the right file?",
            code="too-many-columns",
            count=len(names),
            limit=_MAX_COLUMNS,
        )
    listed = (", ".join(names[:_LISTED]) or "none") + (" and more" if len(names) > _LISTED else "")
    known += chosen_extras(columns)
    for name, theirs in columns.items():
        if theirs and theirs not in names:
            problem = f"there is no column {theirs}, which columns gives for {name}: the table has {listed}"
            kind = name.partition(":")[0]
            if name == f"{kind}:{theirs}":  # named by another option, such as `by`
                free = [other for other in names if other.lower() not in {*WIDE, *LONG, *SESSION_COLUMNS}][:_LISTED]
                has = f"the table has {', '.join(free)}. Name one of them" if free else "the table has no others"
                problem = f"there is no column {theirs} to read as a {kind}: {has}. "
                problem += f'columns={{"{name}": "COLUMN"}} takes it from a column of another name'
            hint = f' (columns={{"{name}": ""}} leaves the {kind} out)' if name.startswith(SEGMENT) else ""
            raise FileError(
                path,
                f"{problem}{hint}.",
                code="unknown-column",
                column=theirs,
                known=list(names),
            )
    given = set(columns.values())
    found: dict[str, list[str]] = {}
    for name in known:
        if name in columns:
            found[name] = [columns[name]] if columns[name] else []
        elif name in names:
            found[name] = [name]
        else:
            common = {name, *COMMON_NAMES.get(name, ())}
            others = (theirs for theirs in dict.fromkeys(names) if theirs not in given)
            found[name] = [theirs for theirs in others if theirs.lower() in common]
    for name, other in _SAME_MEANING.items():
        if found[other] == [columns.get(other, other)] and found[name] != [columns.get(name, name)]:
            found[name] = []
    wide, long = (WIDE, LONG) if clicks else (WIDE[:-1], LONG[:-1])
    exact = all(found[name] == [columns.get(name, name)] for name in wide)
    layouts = (wide, long) if exact else (long, wide)  # on a tie, five common names say more than three
    layout = min(layouts, key=lambda layout: sum(not found[name] for name in layout))
    if missing := [name for name in layout if not found[name]]:
        if sum(not found[name] for name in wide) == sum(not found[name] for name in long):
            missing = [name for name in wide if not found[name]]
        example = ", ".join(f'"{name}": "..."' for name in missing)
        recognised = [f"{theirs[0]} as {name}" for name, theirs in found.items() if theirs and theirs[0] != name]
        also = f" (recognised: {', '.join(recognised)})" if recognised else ""
        raise FileError(
            path,
            f"a {'log' if clicks else 'table of lists'} must have the columns {', '.join(wide)} (one row per list) or "
            f"{', '.join(long)} "
            f"(one row per result): {', '.join(missing)} not found; the table has {listed}{also}. "
            f"If it has other names for them, pass columns={{{example}}}.",
            code="missing-column",
            columns=missing,
            known=list(names),
        )
    optional = [name for name in known if name not in {*WIDE, *LONG} and (clicks or is_segment(name))]
    chosen = {name: found[name] for name in (*layout, *optional) if found[name]}
    if "time" in chosen:
        chosen.pop("day", None)
    if "log_propensity" in chosen:
        chosen.pop("propensity", None)
    for name, candidates in chosen.items():
        if len(candidates) > 1:
            raise FileError(
                path,
                f"column {name} must be one: the table has {' and '.join(candidates)}, which are names for it. Pass "
                f'columns={{"{name}": "{candidates[0]}"}}.',
                code="ambiguous-column",
                column=name,
                known=candidates,
            )
        if names.count(candidates[0]) > 1:
            raise FileError(
                path,
                f"column names must be unique: {candidates[0]} occurs twice among {listed}. Rename one.",
                code="duplicate-column",
                column=candidates[0],
                known=list(names),
            )
    return {name: candidates[0] for name, candidates in chosen.items()}


def check_same(path: Path, names: Collection[str], first: Path, first_names: Collection[str]) -> None:
    """Check that a file has the same columns of a log as the first file.

    Raises
    ------
    FileError
        "inconsistent-columns" if they differ.
    """
    if differ := sorted(set(names) ^ set(first_names)):
        raise FileError(
            path,
            f"files of one log must have the same columns: {', '.join(differ)} is only here or only in {first}. "
            + ("Name every partition by its date, as in day=2026-01-31, or read " if differ == ["day"] else "Read ")
            + "the files one by one, and join them with Sessions.concat.",
            code="inconsistent-columns",
            columns=differ,
            first=str(first),
        )
