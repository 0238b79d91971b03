"""Click logs in tables: Parquet, CSV or JSON lines, one row per list ("wide") or one row per result ("long").

| layout | columns                             | a row                                                              |
|--------|-------------------------------------|--------------------------------------------------------------------|
| wide   | query, docs, clicks                 | `docs` a list of ids, `clicks` a list of 0 and 1, equally long     |
| long   | session, query, rank, doc, click    | one result, `rank` from 1; rows of a session may be anywhere       |

Both may have `time` or `day` (number, date or timestamp), `user`, `count` (how many equal sessions a row stands for),
and `propensity`, the probability with which the list was drawn (or `log_propensity`, for lists so long that it is too
small for a number). Other columns are ignored. Ids are integers or text. The wide layout reads quicker.
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
LONG = ("session", "query", "rank", "doc", "click")


def read_log(
    path: str | Path | Sequence[str | Path],
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    vocabulary: Vocabulary | None = None,
) -> Sessions:
    """The sessions of a file, or of all files of a folder, a pattern ("logs/*.parquet") or a list, sorted by name.

    `columns` says what the file calls our columns: {"query": "q", "docs": "results"}. With `on_bad_line="skip"`
    sessions that break a rule are dropped, counted, and reported in one `ClickshiftWarning`. With a `vocabulary` the
    sessions come in its numbers, and what it does not hold is `UNSEEN`.
    """
    columns = checked_columns(columns or {})
    if on_bad_line not in {"error", "skip"}:
        raise DataError(f'on_bad_line must be "error" or "skip": got {on_bad_line!r}.')
    skip = on_bad_line == "skip"
    files = log_files(path)
    parts = [with_partition_day(read_table(file, partial(choose_columns, file, columns))) for file in files]
    _check_same_columns(parts)
    wide = "docs" in parts[0].table.column_names
    told = f"{files[0]}" if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    unreadable = _unreadable(parts, skip=skip, wide=wide)
    if not any(part.table.num_rows for part in parts):
        why = (
            f"{len(unreadable):,} line(s) cannot be read, the first: {unreadable[0]}"
            if unreadable
            else "it has no rows"
        )
        raise FileError(told, f"there must be at least one session to read: {why}.")
    log, faults = (read_wide if wide else read_long)(TableRows(parts), skip=skip)
    faults.report(told, unreadable=unreadable)
    sessions = _sessions(log)
    return sessions if vocabulary is None else sessions.in_vocabulary(vocabulary)


def _sessions(log: RawSessions) -> Sessions:
    query_ids, query = encode_ids(log.query.ids(), "query")
    doc_ids, doc = encode_ids(log.doc.ids(), "document")
    key, pair = distinct_sorted(np.repeat(query * len(doc_ids), log.length) + doc)
    vocabulary = Vocabulary(query_ids, doc_ids, *np.divmod(key, len(doc_ids)))
    shown = np.arange(log.length.max()) < log.length[:, None]
    values = {name: column.values for name, column in log.about.items()}
    log_prob = values.get("log_propensity")
    if "propensity" in values:
        log_prob = np.log(values["propensity"])
    user = None
    if "user" in log.about:
        user_ids, place = encode_ids(log.about["user"].ids(), "user")
        user = user_ids[place]
    return Sessions(
        Rankings(vocabulary, query, _rectangle(pair, shown, UNSEEN), shown, log_prob),
        _rectangle(log.click, shown, False),
        values["count"].astype(np.int64) if "count" in values else np.ones(len(query), np.int64),
        values.get("time", values.get("day")),
        user,
    )


def _rectangle(flat: np.ndarray, shown: np.ndarray, padding: Any) -> np.ndarray:
    """Lists one after the other as rows of a matrix."""
    if flat.size == shown.size:
        return flat.reshape(shown.shape)
    matrix = np.full(shown.shape, padding, flat.dtype)
    matrix[shown] = flat
    return matrix


def log_files(path: str | Path | Sequence[str | Path]) -> list[Path]:
    """The files of a log, sorted: of a file, a folder and its folders, a pattern, or a list. Hidden ones are left out,
    and so is what is in hidden folders."""
    if not isinstance(path, str | Path):
        if not path:
            raise DataError("there must be at least one file to read: got an empty list.")
        return sorted(Path(file) for file in path)
    where = Path(path)
    if where.is_dir():
        found = sorted(
            file
            for file in where.rglob("*")
            if ending(file) and not any(name[0] in "._" for name in file.relative_to(where).parts) and file.is_file()
        )
        if not found:
            raise FileError(
                where, f"the folder has no log file (ending in {', '.join(LOG_ENDINGS)}). Name the one that has."
            )
        return found
    if not where.exists() and glob.has_magic(str(path)):
        found = sorted(Path(file) for file in glob.glob(str(path), recursive=True))
        if not found:
            raise FileError(where, "no file has a name of this pattern. Check it.")
        return found
    return [where]


def checked_columns(columns: Mapping[str, str]) -> Mapping[str, str]:
    known = list(dict.fromkeys((*WIDE, *LONG, *SESSION_COLUMNS)))
    if unknown := [name for name in columns if name not in known]:
        raise DataError(
            f"columns must map our names to the file's: {unknown[0]} is not one of ours, which are {', '.join(known)}. "
            'Write columns={"docs": "results"} for a file that calls the documents results.'
        )
    return columns


def choose_columns(path: Path, columns: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """{our name: the file's}, for the layout whose columns are there and everything that may be there."""
    chosen = {name: columns.get(name, name) for name in (*WIDE, *LONG, *SESSION_COLUMNS)}
    has = ", ".join(names) or "none"
    for name, theirs in columns.items():
        if theirs not in names:
            raise FileError(path, f"there is no column {theirs}, which columns gives for {name}: the file has {has}.")
    layout = min(WIDE, LONG, key=lambda layout: sum(chosen[name] not in names for name in layout))
    if missing := [name for name in layout if chosen[name] not in names]:
        example = ", ".join(f'"{name}": "..."' for name in missing)
        raise FileError(
            path,
            f"a log must have the columns {', '.join(WIDE)} (one row per list) or {', '.join(LONG)} "
            f"(one row per result): {', '.join(missing)} not found; the file has {has}. "
            f"If it has other names for them, say so: columns={{{example}}}.",
        )
    found = {name: chosen[name] for name in (*layout, *SESSION_COLUMNS) if chosen[name] in names}
    if "time" in found:
        found.pop("day", None)
    if "log_propensity" in found:
        found.pop("propensity", None)
    if twice := [theirs for theirs in found.values() if names.count(theirs) > 1]:
        raise FileError(path, f"the name of a column must be its own: {twice[0]} stands twice among {has}. Rename one.")
    return found


def _check_same_columns(parts: Sequence[TableFile]) -> None:
    for part in parts[1:]:
        check_same(part.path, part.table.column_names, parts[0].path, parts[0].table.column_names)


def check_same(path: Path, names: Collection[str], first: Path, wanted: Collection[str]) -> None:
    """Of one file and the first one: the columns that a log may have or not."""
    if differ := set(names) ^ set(wanted):
        raise FileError(
            path,
            f"files of one log must have the same columns: {', '.join(sorted(differ))} is only here or only in "
            f"{first}. Read the files one by one, and join them with Sessions.concat.",
        )


def _unreadable(parts: Sequence[TableFile], *, skip: bool, wide: bool) -> list[str]:
    """Lines that are no rows. Of a result that cannot be read nobody knows the session, so that it could be dropped."""
    found = [(part.path, line) for part in parts for line in part.unreadable]
    if found and not (skip and wide):
        path, (line, problem) = found[0]
        advice = (
            'Mend or remove it, or read with on_bad_line="skip".' if wide else "Mend the line, or remove its session."
        )
        raise FileError(path, f"{problem} ({len(found):,} such lines). {advice}", line=line)
    return [f"{path}, line {line}: {problem}" for path, (line, problem) in found]
