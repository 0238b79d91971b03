"""The two layouts of a log, one row per list ("wide") and one row per result ("long"), checked and brought to one form.

Sessions that break a rule are marked in `BadSessions`: the first one is an error, or all of them are dropped and
counted. `columns` reads the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, no_type_check

import numpy as np
from jaxtyping import Bool, Int
from numba import njit

from clickshift.core.unique_rows import distinct_rows
from clickshift.errors import FileError
from clickshift.io.read_report import BadSessions, SessionLocation, Violation
from clickshift.io.tables.columns import Column, ListColumn, id_column, list_column, number_column, time_column
from clickshift.io.tables.formats import ColumnError, TableFile

SESSION_COLUMNS = ("time", "day", "user", "propensity", "log_propensity", "count")
"""Optional columns of a log; in both layouts they describe the session."""

_LAYOUT_COLUMNS = {"query", "docs", "clicks", "session", "rank", "doc", "click"}
_EXPECTED_TYPES = {
    **dict.fromkeys(("session", "query", "doc", "user"), "an integer or text"),
    **dict.fromkeys(("time", "day"), "a number, a date or a time"),
}
_ROUNDING = 1e-9  # by how much rounding may lift a probability above 1

_AnyColumn = TypeVar("_AnyColumn", Column, ListColumn)


@dataclass(frozen=True, eq=False)
class RawSessions:
    """Sessions of a table, and their results in order of rank, concatenated; ids are raw.

    Parameters
    ----------
    query
        Query of each session.
    length
        Number of results of each session.
    doc
        Document of each result.
    click
        Whether each result was clicked.
    attributes
        Those of `SESSION_COLUMNS` that the table has, by name.
    """

    query: Column
    length: Int[np.ndarray, " session"]
    doc: Column
    click: Bool[np.ndarray, " result"]
    attributes: dict[str, Column]


class TableRows:
    """The rows of all files of a log, concatenated.

    Parameters
    ----------
    parts
        The files; those without rows are ignored.
    """

    def __init__(self, parts: Sequence[TableFile]) -> None:
        self.parts = [part for part in parts if part.table.num_rows]
        self._ends = np.cumsum([part.table.num_rows for part in self.parts])
        self.n_rows = int(self._ends[-1])
        self.names = self.parts[0].table.column_names

    def locate(self, row: int) -> SessionLocation:
        """Return the file of a row, and its number there, from 1."""
        part, index = self._part_of(row)
        number = part.first_row + index + 1
        return SessionLocation(part.path, f"row {number}", {"row": number})

    def show(self, name: str, row: int) -> str:
        """Return a value as plain text, "nothing" where it is missing."""
        part, index = self._part_of(row)
        value = part.table[name][index].as_py()
        return "nothing" if value is None else str(value)[:80]

    def violation(self, name: str, code: str, rule: str, row: int) -> Violation:
        """Describe how a row's value breaks a rule of its column, with the file's name of the column."""
        value = self.show(name, row)
        hint = f' (columns={{"{name}": ""}} leaves the column out)' if name in SESSION_COLUMNS else ""
        return Violation(code, f"{self._named(name)} {rule}: got {value}{hint}", {"column": name, "value": value})

    def attributes(self) -> dict[str, Column]:
        """Return those of `SESSION_COLUMNS` that the table has, and any other column that was read, as numbers."""
        readers = {"time": time_column, "day": time_column, "user": id_column}
        names = [name for name in self.names if name not in _LAYOUT_COLUMNS]
        return {name: self.read(readers.get(name, number_column), name) for name in names}

    def _part_of(self, row: int) -> tuple[TableFile, int]:
        """Return the file of a row, and its index in that file's table, from 0."""
        part = int(np.searchsorted(self._ends, row, side="right"))
        return self.parts[part], row - int(self._ends[part - 1] if part else 0)

    def read(self, convert: Callable[[str, Sequence[Any]], _AnyColumn], name: str) -> _AnyColumn:
        """Read a column of all files; one that cannot be used is a FileError of the first file."""
        try:
            return convert(name, [part.table[name] for part in self.parts])
        except ColumnError as error:
            message = f"column {self._named(name)} {error.problem}."
            raise FileError(self.parts[0].path, message, code=error.code, column=name) from None

    def _named(self, name: str) -> str:
        """Return our name of a column, with the file's name where it differs."""
        theirs = (self.parts[0].table.schema.metadata or {}).get(name.encode(), name.encode()).decode()
        return name if theirs == name else f"{name} (column {theirs})"


def read_wide(rows: TableRows, *, skip: bool) -> tuple[RawSessions, BadSessions]:
    """Read the wide layout: one row per list, with the columns query, docs and clicks; without clicks, none is clicked.

    Parameters
    ----------
    rows
        Rows of the table.
    skip
        Whether sessions that break a rule are dropped and counted instead of raising an error.

    Returns
    -------
    sessions
        The sessions that keep all rules.
    bad_sessions
        The sessions that were dropped.

    Raises
    ------
    FileError
        "missing-value", "empty-list", "unequal-lengths", "not-zero-or-one", "duplicate-document", and those of
        `check_session_columns`.
    """
    bad_sessions = BadSessions(rows.n_rows, locate=rows.locate, skip=skip)
    query, attributes, docs = rows.read(id_column, "query"), rows.attributes(), rows.read(list_column, "docs")
    if "clicks" in rows.names:
        clicks = rows.read(list_column, "clicks")
    else:
        no_clicks = np.zeros(len(docs.items), bool)
        clicks = ListColumn(docs.length, docs.bad, Column(no_clicks, no_clicks))
    check_session_columns(rows, bad_sessions, {"query": query} | attributes)
    for column, lists in (("docs", docs), ("clicks", clicks)) if "clicks" in rows.names else (("docs", docs),):
        rule = 'must be a list with one item or more (as text: [1, 2], ["a", "b"], or items separated by spaces)'
        bad_sessions.mark(lists.bad | (lists.length == 0), partial(rows.violation, column, "empty-list", rule))

    def describe_lengths(row: int) -> Violation:
        lengths = int(docs.length[row]), int(clicks.length[row])
        problem = f"docs and clicks must be equally long: got {lengths[0]} and {lengths[1]}"
        return Violation("unequal-lengths", problem, {"docs": lengths[0], "clicks": lengths[1]})

    bad_sessions.mark(docs.length != clicks.length, describe_lengths)
    bad_sessions.mark(
        _any_item(docs.items.bad, docs.length),
        partial(rows.violation, "docs", "missing-value", "must not have missing items"),
    )
    bad_sessions.mark(
        _any_item(_not_zero_or_one(clicks.items), clicks.length),
        partial(rows.violation, "clicks", "not-zero-or-one", "must be 0 or 1 each"),
    )
    return _valid_sessions(bad_sessions, query, docs, clicks, attributes), bad_sessions


def read_long(rows: TableRows, *, skip: bool) -> tuple[RawSessions, BadSessions]:
    """Read the long layout: one row per result, with the columns session, query, rank (from 1), doc and click.

    Rows may come in any order. Sessions are returned in order of first appearance.

    Parameters
    ----------
    rows
        Rows of the table.
    skip
        Whether sessions that break a rule are dropped and counted instead of raising an error.

    Returns
    -------
    sessions
        The sessions that keep all rules.
    bad_sessions
        The sessions that were dropped.

    Raises
    ------
    FileError
        "missing-value", "not-zero-or-one", "not-an-integer", "inconsistent-session", "bad-ranks",
        "duplicate-document", and those of `check_session_columns`.
    """
    session = rows.read(id_column, "session")
    owner, first = _session_numbers(session)

    def locate(number: int) -> SessionLocation:
        row = int(first[number])
        location = rows.locate(row)
        if session.bad[row]:
            return location
        name = session.show(row)
        return SessionLocation(location.path, f"session {name}", {"session": name})

    bad_sessions = BadSessions(len(first), owner=owner, locate=locate, skip=skip)
    query, attributes, doc = rows.read(id_column, "query"), rows.attributes(), rows.read(id_column, "doc")
    click, rank = rows.read(number_column, "click"), rows.read(number_column, "rank")
    check_session_columns(rows, bad_sessions, {"session": session, "query": query, "doc": doc} | attributes)
    bad_sessions.mark(_not_zero_or_one(click), partial(rows.violation, "click", "not-zero-or-one", "must be 0 or 1"))
    bad_sessions.mark(
        _not_an_integer(rank), partial(rows.violation, "rank", "not-an-integer", "must be a whole number")
    )
    hint = " (do session ids start again in every file? they must differ)" if len(rows.parts) > 1 else ""
    for name, column in ({"query": query} | attributes).items():
        differs = column.values != column.values[first][owner]
        rule = f"must be the same in all rows of a session{hint}"
        bad_sessions.mark(differs, partial(rows.violation, name, "inconsistent-session", rule))
    length = np.bincount(owner, minlength=len(first))
    order = _order_by_rank(owner, np.where(_not_an_integer(rank), 0, rank.values).astype(np.int64), length)

    def describe_ranks(number: int) -> Violation:
        ranks = ", ".join(f"{value:g}" for value in np.sort(rank.values[owner == number])[:20])
        return Violation("bad-ranks", f"ranks must be 1, 2, 3, ... once each{hint}: got {ranks}", {"value": ranks})

    bad_sessions.mark(_any_item(order < 0, length), describe_ranks)
    if not np.array_equal(order, np.arange(len(order))):
        doc, click = doc[order], click[order]
    attributes = {name: column[first] for name, column in attributes.items()}
    no_bad_lists = np.zeros(len(first), bool)
    docs, clicks = ListColumn(length, no_bad_lists, doc), ListColumn(length, no_bad_lists, click)
    return _valid_sessions(bad_sessions, query[first], docs, clicks, attributes), bad_sessions


def _valid_sessions(
    bad_sessions: BadSessions, query: Column, docs: ListColumn, clicks: ListColumn, attributes: Mapping[str, Column]
) -> RawSessions:
    """Mark sessions that show a document twice, and return those that keep all rules."""
    start = np.cumsum(docs.length) - docs.length
    duplicates = _find_duplicates(docs.items.values, start, np.where(bad_sessions.bad, 0, docs.length))

    def describe(session: int) -> Violation:
        earlier, later = (int(rank) for rank in duplicates[session] - start[session] + 1)
        doc = docs.items.show(int(duplicates[session, 1]))
        problem = f"a document must appear once in a list: got {doc} at rank {earlier} and at rank {later}"
        return Violation("duplicate-document", problem, {"document": doc, "ranks": (earlier, later)})

    bad_sessions.mark(duplicates[:, 1] >= 0, describe)
    valid = ~bad_sessions.bad
    if valid.all():
        return RawSessions(query, docs.length, docs.items, clicks.items.values.astype(bool), dict(attributes))
    return RawSessions(
        query[valid],
        docs.length[valid],
        docs.items[np.repeat(valid, docs.length)],
        clicks.items.values[np.repeat(valid, clicks.length)].astype(bool),
        {name: column[valid] for name, column in attributes.items()},
    )


def check_session_columns(rows: TableRows, bad_sessions: BadSessions, columns: Mapping[str, Column]) -> None:
    """Mark the sessions with a missing value, or with a count or propensity out of range.

    Parameters
    ----------
    rows
        Rows of the table, for messages.
    bad_sessions
        Where bad sessions are marked.
    columns
        The columns to check, by name.

    Raises
    ------
    FileError
        "missing-value", "bad-count" or "not-a-probability", unless bad sessions are skipped.
    """
    for name, column in columns.items():
        expected = _EXPECTED_TYPES.get(name, "a number")
        bad_sessions.mark(column.bad, partial(rows.violation, name, "missing-value", f"must be {expected}"))
        if name == "count":
            not_a_count = _not_an_integer(column) | (column.values < 1)
            bad_sessions.mark(not_a_count, partial(rows.violation, name, "bad-count", "must be 1, 2, 3, ..."))
        if name == "propensity":
            outside = ~((column.values > 0) & (column.values <= 1 + _ROUNDING))
            bad_sessions.mark(
                outside, partial(rows.violation, name, "not-a-probability", "must be above 0 and at most 1")
            )
        if name == "log_propensity":
            outside = ~((column.values > -np.inf) & (column.values <= _ROUNDING))
            rule = "must be a finite number of at most 0"
            bad_sessions.mark(outside, partial(rows.violation, name, "not-a-probability", rule))


def _not_zero_or_one(column: Column) -> Bool[np.ndarray, " row"]:
    """Return the mask of the rows that are neither 0 nor 1."""
    mask: np.ndarray = column.bad | ~((column.values == 0) | (column.values == 1))
    return mask


def _not_an_integer(column: Column) -> Bool[np.ndarray, " row"]:
    """Return the mask of the rows that are not integers, also as floats."""
    if column.values.dtype.kind != "f":
        return column.bad
    mask: np.ndarray = ~(np.abs(column.values) < 2**53) | (column.values != np.rint(column.values))
    mask |= column.bad
    return mask


def _any_item(bad: Bool[np.ndarray, " item"], length: Int[np.ndarray, " row"]) -> Bool[np.ndarray, " row"]:
    """Return the mask of the rows whose lists have a bad item."""
    mask = np.zeros(len(length), bool)
    if bad.any():
        mask[np.repeat(np.arange(len(length)), length)[bad]] = True
    return mask


def _session_numbers(session: Column) -> tuple[Int[np.ndarray, " row"], Int[np.ndarray, " session"]]:
    """Return the session number of every row, in order of appearance, and the first row of every session."""
    key = session.values
    if session.bad.any():  # rows without an id become one session, which is refused later
        key, _ = distinct_rows(np.stack([np.where(session.bad, 0, key), session.bad], axis=1))
    run = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
    number, first = distinct_rows(key[run][:, None])  # rows of a session are mostly neighbours: there are few runs
    return np.repeat(number, np.diff(np.r_[run, len(key)])), run[first]


@njit(cache=True, nogil=True)
@no_type_check
def _order_by_rank(owner, rank, length):
    """Order rows by session and rank, -1 where a session lacks a rank: ranks 1, 2, ... are indices, so no sorting."""
    start = np.cumsum(length) - length
    order = np.full(len(owner), -1)
    for row in range(len(owner)):
        if 1 <= rank[row] <= length[owner[row]]:
            order[start[owner[row]] + rank[row] - 1] = row
    return order


@njit(cache=True, nogil=True)
@no_type_check
def _find_duplicates(doc, start, length):
    """Return the indices of the first two equal documents of every list, -1 if there are none."""
    pairs = np.full((len(length), 2), -1)
    for i in range(len(length)):
        for j in range(start[i], start[i] + length[i]):
            for earlier in range(start[i], j):
                if doc[earlier] == doc[j] and pairs[i, 1] < 0:
                    pairs[i, 0], pairs[i, 1] = earlier, j
    return pairs
