"""Click logs in table files: Parquet, CSV or JSON lines, one row per list ("wide") or one row per result ("long").

| layout | columns                             | a row                                                              |
|--------|-------------------------------------|--------------------------------------------------------------------|
| wide   | query, docs, clicks                 | `docs` a list of ids, `clicks` a list of 0 and 1, equally long     |
| long   | session, query, rank, doc, click    | one result, `rank` from 1; rows of a session may be anywhere       |

Optional columns of both layouts: `time` or `day` (number, date or timestamp), `user`, `count` (how many identical
sessions a row stands for), and `propensity`, the probability with which the logging policy drew the list (or
`log_propensity`, for lists whose probability is too small for a floating-point number). Other columns are ignored. Ids
are integers or text. The wide layout reads faster.
"""

from __future__ import annotations

import glob
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.core.unique_rows import distinct_sorted
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary, encode_ids
from clickshift.errors import DataError, FileError
from clickshift.io.encode.batches import with_partition_day
from clickshift.io.read_report import OnBadLine
from clickshift.io.tables._layouts import SESSION_COLUMNS, RawSessions, TableRows, read_long, read_wide
from clickshift.io.tables._writer import check_output as check_output
from clickshift.io.tables._writer import write_log as write_log
from clickshift.io.tables.formats import LOG_ENDINGS, TableFile, ending, read_table

WIDE = ("query", "docs", "clicks")
"""Required columns of the wide layout."""
LONG = ("session", "query", "rank", "doc", "click")
"""Required columns of the long layout."""


def read_log(
    path: str | Path | Sequence[str | Path],
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    vocabulary: Vocabulary | None = None,
) -> Sessions:
    """Read a click log into memory.

    Parameters
    ----------
    path
        A file, a folder, a pattern ("logs/*.parquet") or a list of files; several files are read in order of name.
    columns
        The file's names of our columns, e.g. ``{"query": "q", "docs": "results"}``.
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
        For files that cannot be read ("file-not-found", "unknown-format", "empty-file", "damaged-file",
        "unreadable-line"), columns that cannot be used ("missing-column", "unknown-column", "duplicate-column",
        "inconsistent-columns", "bad-column"), sessions that break a rule ("missing-value", "empty-list",
        "unequal-lengths", "not-zero-or-one", "not-an-integer", "bad-ranks", "inconsistent-session",
        "duplicate-document", "bad-count", "not-a-probability"), and a log without sessions ("empty-log").
    DataError
        "bad-option" for another `on_bad_line`, "unknown-column" for a key of `columns` that is not one of ours.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "log.jsonl"
    ...     _ = file.write_text('{"query": "cats", "docs": ["a", "b"], "clicks": [0, 1]}')
    ...     sessions = read_log(file)
    >>> sessions.click.tolist()
    [[False, True]]
    """
    columns = checked_columns(columns or {})
    if on_bad_line not in {"error", "skip"}:
        raise DataError(
            f'on_bad_line must be "error" or "skip": got {on_bad_line!r}.',
            code="bad-option",
            option="on_bad_line",
            value=on_bad_line,
        )
    skip = on_bad_line == "skip"
    files = log_files(path)
    parts = [with_partition_day(read_table(file, partial(choose_columns, file, columns))) for file in files]
    for part in parts[1:]:
        check_same(part.path, part.table.column_names, parts[0].path, parts[0].table.column_names)
    wide = "docs" in parts[0].table.column_names
    source = f"{files[0]}" if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    unreadable = _unreadable_lines(parts, skip=skip, wide=wide)
    if not any(part.table.num_rows for part in parts):
        reason = (
            f"{len(unreadable):,} line(s) cannot be read, the first: {unreadable[0]}"
            if unreadable
            else "it has no rows"
        )
        raise FileError(
            source,
            f"there must be at least one session to read: {reason}.",
            code="empty-log",
            unreadable_lines=len(unreadable),
        )
    raw_sessions, bad_sessions = (read_wide if wide else read_long)(TableRows(parts), skip=skip)
    bad_sessions.report(source, unreadable=unreadable)
    sessions = _to_sessions(raw_sessions)
    return sessions if vocabulary is None else sessions.in_vocabulary(vocabulary)


def _to_sessions(raw: RawSessions) -> Sessions:
    """Number the ids, and arrange the concatenated lists as rows of a matrix."""
    query_ids, query = encode_ids(raw.query.ids(), "query")
    doc_ids, doc = encode_ids(raw.doc.ids(), "document")
    key, pair = distinct_sorted(np.repeat(query * len(doc_ids), raw.length) + doc)
    vocabulary = Vocabulary(query_ids, doc_ids, *np.divmod(key, len(doc_ids)))
    shown = np.arange(raw.length.max()) < raw.length[:, None]
    values = {name: column.values for name, column in raw.attributes.items()}
    log_prob = values.get("log_propensity")
    if "propensity" in values:
        log_prob = np.log(values["propensity"])
    user = None
    if "user" in raw.attributes:
        user_ids, index = encode_ids(raw.attributes["user"].ids(), "user")
        user = user_ids[index]
    return Sessions(
        Rankings(vocabulary, query, _as_matrix(pair, shown, UNSEEN), shown, log_prob),
        _as_matrix(raw.click, shown, False),
        values["count"].astype(np.int64) if "count" in values else np.ones(len(query), np.int64),
        values.get("time", values.get("day")),
        user,
    )


def _as_matrix(flat: np.ndarray, shown: np.ndarray, padding: Any) -> np.ndarray:
    """Arrange concatenated lists as the rows of a matrix."""
    if flat.size == shown.size:
        return flat.reshape(shown.shape)
    matrix = np.full(shown.shape, padding, flat.dtype)
    matrix[shown] = flat
    return matrix


def log_files(path: str | Path | Sequence[str | Path]) -> list[Path]:
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
        "no-files" for an empty list.
    """
    if not isinstance(path, str | Path):
        if not path:
            raise DataError("there must be at least one file to read: got an empty list.", code="no-files")
        return sorted(Path(file) for file in path)
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


def checked_columns(columns: Mapping[str, str]) -> Mapping[str, str]:
    """Return a mapping of column names after checking that its keys are names of ours.

    Raises
    ------
    DataError
        "unknown-column" for another key.
    """
    known = list(dict.fromkeys((*WIDE, *LONG, *SESSION_COLUMNS)))
    if unknown := [name for name in columns if name not in known]:
        raise DataError(
            f"columns must map our names to the file's: {unknown[0]} is not one of ours, which are {', '.join(known)}. "
            'Pass columns={"docs": "results"} for a file that calls the documents results.',
            code="unknown-column",
            column=unknown[0],
            known=known,
        )
    return columns


def choose_columns(path: Path, columns: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Choose the columns of a log file: those of the layout that it has, and the optional ones.

    Parameters
    ----------
    path
        The file, for errors.
    columns
        The file's names of our columns, where they differ.
    names
        Names of the file's columns.

    Returns
    -------
    dict
        ``{our name: the file's name}``.

    Raises
    ------
    FileError
        "unknown-column" if `columns` gives a name that the file does not have, "missing-column" if the file has neither
        layout, "duplicate-column" if a name occurs twice.
    """
    file_names = {name: columns.get(name, name) for name in (*WIDE, *LONG, *SESSION_COLUMNS)}
    listed = ", ".join(names) or "none"
    for name, file_name in columns.items():
        if file_name not in names:
            raise FileError(
                path,
                f"there is no column {file_name}, which columns gives for {name}: the file has {listed}.",
                code="unknown-column",
                column=file_name,
                known=list(names),
            )
    layout = min(WIDE, LONG, key=lambda layout: sum(file_names[name] not in names for name in layout))
    if missing := [name for name in layout if file_names[name] not in names]:
        example = ", ".join(f'"{name}": "..."' for name in missing)
        raise FileError(
            path,
            f"a log must have the columns {', '.join(WIDE)} (one row per list) or {', '.join(LONG)} "
            f"(one row per result): {', '.join(missing)} not found; the file has {listed}. "
            f"If it has other names for them, pass columns={{{example}}}.",
            code="missing-column",
            columns=missing,
            known=list(names),
        )
    chosen = {name: file_names[name] for name in (*layout, *SESSION_COLUMNS) if file_names[name] in names}
    if "time" in chosen:
        chosen.pop("day", None)
    if "log_propensity" in chosen:
        chosen.pop("propensity", None)
    if duplicates := [file_name for file_name in chosen.values() if names.count(file_name) > 1]:
        raise FileError(
            path,
            f"column names must be unique: {duplicates[0]} occurs twice among {listed}. Rename one.",
            code="duplicate-column",
            column=duplicates[0],
            known=list(names),
        )
    return chosen


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
            "Read the files one by one, and join them with Sessions.concat.",
            code="inconsistent-columns",
            columns=differ,
            first=str(first),
        )


def _unreadable_lines(parts: Sequence[TableFile], *, skip: bool, wide: bool) -> list[str]:
    """Return the lines that are not rows, with their problems.

    In the long layout they are always an error: the session of an unreadable result is unknown, so it cannot be
    dropped, and its list would be too short.
    """
    lines = [(part.path, line) for part in parts for line in part.unreadable]
    if lines and not (skip and wide):
        path, (line, problem) = lines[0]
        advice = 'Fix or remove it, or pass on_bad_line="skip".' if wide else "Fix the line, or remove its session."
        raise FileError(
            path,
            f"{problem} ({len(lines):,} such lines). {advice}",
            line=line,
            code="unreadable-line",
            count=len(lines),
        )
    return [f"{path}, line {line}: {problem}" for path, (line, problem) in lines]
