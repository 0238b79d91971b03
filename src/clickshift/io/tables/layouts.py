"""The two layouts of a log, one row per list ("wide") and one row per result ("long"), checked and brought to one form.

Sessions that break a rule are marked in `BadSessions`: the first one is an error, or all of them are dropped and
counted. `columns` reads the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, no_type_check

import numpy as np
from jaxtyping import Bool, Int
from numba import njit

from clickshift.core.unique_rows import distinct_rows, stable_order
from clickshift.errors import FileError
from clickshift.io.read_report import BadSessions, SessionLocation, Violation
from clickshift.io.tables.columns import (
    Column,
    ListColumn,
    id_column,
    list_column,
    number_column,
    segment_column,
    time_column,
)
from clickshift.io.tables.extra_columns import (
    EXTRA_COLUMNS,
    is_of_results,
    is_segment,
    plain_name,
    result_values,
    violations_of_results,
)
from clickshift.io.tables.formats import ColumnError, TableFile

SESSION_COLUMNS = ("time", "day", "user", "propensity", "log_propensity", "count")
"""Optional columns of a log; in both layouts they describe the session."""

_LAYOUT_COLUMNS = {"query", "docs", "clicks", "session", "rank", "doc", "click"}
_EXPECTED_TYPES = {
    **dict.fromkeys(("session", "query", "doc", "user"), "an integer or text"),
    **dict.fromkeys(("time", "day"), "a number, a date or a time"),
}
_ROUNDING = 1e-9  # by how much rounding may lift a probability above 1
MAX_RANK = 100_000
"""Largest rank of a log: memory is needed for all ranks of a list, also for those where nothing was recorded."""
_LONG_LIST = 64
"""Length from which documents of a list are sorted to find a duplicate, instead of compared with each other."""

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
        Those of `SESSION_COLUMNS` and the segments that the table has, by name.
    results
        Values of the results in the signals that the table has, NaN where unknown, and propensities by position.
    rank
        Rank of each result, from 0; None if no list has a hole.
    """

    query: Column
    length: Int[np.ndarray, " session"]
    doc: Column
    click: Bool[np.ndarray, " result"]
    attributes: dict[str, Column]
    results: dict[str, np.ndarray] = field(default_factory=dict)
    rank: Int[np.ndarray, " result"] | None = None

    @property
    def extent(self) -> Int[np.ndarray, " session"]:
        """Rank of the last result of each session, from 1."""
        return self.length if self.rank is None else self.rank[np.cumsum(self.length) - 1] + 1

    def shown(self) -> Bool[np.ndarray, "session rank"]:
        """Return where the lists show a document, as rows of a matrix."""
        ranks = int(self.extent.max())
        if self.rank is None:
            return np.arange(ranks) < self.length[:, None]
        shown = np.zeros((len(self.length), ranks), bool)
        shown[np.repeat(np.arange(len(self.length)), self.length), self.rank] = True
        return shown


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
        optional = name in SESSION_COLUMNS or name in EXTRA_COLUMNS
        hint = f' (columns={{"{name}": ""}} leaves the column out)' if optional else ""
        return Violation(code, f"{self._named(name)} {rule}: got {value}{hint}", {"column": name, "value": value})

    def attributes(self) -> dict[str, Column]:
        """Return the columns that describe sessions: those of `SESSION_COLUMNS`, segments, and others as numbers."""
        readers = {"time": time_column, "day": time_column, "user": id_column}
        readers |= {name: segment_column for name in self.names if is_segment(name)}
        names = [name for name in self.names if name not in _LAYOUT_COLUMNS and not is_of_results(name)]
        return {name: self.read(readers.get(name, number_column), name) for name in names}

    def columns_of_results(self, convert: Callable[[str, Sequence[Any]], _AnyColumn]) -> dict[str, _AnyColumn]:
        """Return the signals and the propensities by position that the table has."""
        return {name: self.read(convert, name) for name in self.names if is_of_results(name)}

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
        name = plain_name(name)
        return name if theirs == name else f"{name} (column {theirs})"


def read_wide(rows: TableRows, *, skip: bool) -> tuple[RawSessions, BadSessions]:
    """Read the wide layout: one row per list, with the columns query, docs and clicks; without clicks, none is clicked.

    A column of ranks, which only lists have that were joined from rows, says where the documents are; else their lists
    begin at rank 1, and a missing document is a hole.

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
        "missing-value", "empty-list", "unequal-lengths", "not-zero-or-one", "click-without-document",
        "duplicate-document", those of `check_session_columns`, and of columns of results "not-a-number",
        "not-a-probability", "bad-signal" and "signal-without-document".
    """
    bad_sessions = BadSessions(rows.n_rows, locate=rows.locate, skip=skip)
    query, attributes, docs = rows.read(id_column, "query"), rows.attributes(), rows.read(list_column, "docs")
    if "clicks" in rows.names:
        clicks = rows.read(list_column, "clicks")
    else:
        clicks = ListColumn(docs.length, docs.bad, _no_clicks(len(docs.items)))
    check_session_columns(rows, bad_sessions, {"query": query} | attributes)
    for column, lists in (("docs", docs), ("clicks", clicks)) if "clicks" in rows.names else (("docs", docs),):
        rule = 'must be a list with one item or more (as text: [1, 2], ["a", "b"], or items separated by spaces)'
        bad_sessions.mark(lists.bad | (lists.length == 0), partial(rows.violation, column, "empty-list", rule))

    results = rows.columns_of_results(list_column)
    for column, lists in {"clicks": clicks, **results}.items():
        bad_sessions.mark(docs.length != lists.length, partial(_unequal_lengths, column, docs, lists))
    equal = np.logical_and.reduce([docs.length == lists.length for lists in (clicks, *results.values())])
    docs, clicks = _lists_where(docs, equal), _lists_where(clicks, equal)
    ranks = _lists_where(ranks_of_lists(rows), equal).items.values - 1 if "rank" in rows.names else None
    hole = docs.items.bad if docs.items.bad.any() else None
    if hole is None:
        not_a_click = _not_zero_or_one(clicks.items)
    else:
        nothing = equal & (np.bincount(_owner(docs.length)[~hole], minlength=len(docs.length)) == 0) & ~bad_sessions.bad
        bad_sessions.mark(nothing, partial(rows.violation, "docs", "empty-list", "must have a document"))
        not_a_click = _not_zero_or_one(clicks.items) & ~(hole & clicks.items.bad)
        on_a_hole = hole & ~clicks.items.bad & (clicks.items.values == 1)
        rule = "must be 0 or missing where docs is missing"
        bad_sessions.mark(
            _any_item(on_a_hole, docs.length), partial(rows.violation, "clicks", "click-without-document", rule)
        )
    bad_sessions.mark(
        _any_item(not_a_click, clicks.length),
        partial(rows.violation, "clicks", "not-zero-or-one", "must be 0 or 1 each"),
    )
    values = {}
    for name, lists in results.items():
        items = _lists_where(lists, equal).items
        for bad, code, rule in violations_of_results(name, items, hole):
            bad_sessions.mark(_any_item(bad, docs.length), partial(rows.violation, name, code, rule))
        values[name] = result_values(name, items)
    raw = RawSessions(query, docs.length, docs.items, clicks.items.values.astype(bool), attributes, values, ranks)
    return _valid_sessions(bad_sessions, raw if hole is None else _without_holes(raw, hole)), bad_sessions


def _no_clicks(n_results: int) -> Column:
    """Return the clicks of results of which none was clicked."""
    none = np.zeros(n_results, bool)
    return Column(none, none)


def ranks_of_lists(rows: TableRows) -> ListColumn:
    """Return the ranks of the results, from 1, of lists that were joined from rows; see `io/encode/duckdb.py`."""
    return rows.read(list_column, "rank")


def _unequal_lengths(column: str, docs: ListColumn, lists: ListColumn, row: int) -> Violation:
    """Describe a list that is not as long as the list of documents."""
    lengths, name = (int(docs.length[row]), int(lists.length[row])), plain_name(column)
    problem = f"docs and {name} must be equally long: got {lengths[0]} and {lengths[1]}"
    return Violation("unequal-lengths", problem, {"docs": lengths[0], name: lengths[1]})


def _lists_where(lists: ListColumn, kept: Bool[np.ndarray, " row"]) -> ListColumn:
    """Return lists without the items of some rows."""
    if kept.all():
        return lists
    return ListColumn(np.where(kept, lists.length, 0), lists.bad, lists.items[np.repeat(kept, lists.length)])


def _without_holes(raw: RawSessions, hole: Bool[np.ndarray, " item"]) -> RawSessions:
    """Remove the items that are holes, and note the ranks of the others."""
    owner = _owner(raw.length)
    rank = np.arange(len(owner)) - np.repeat(np.cumsum(raw.length) - raw.length, raw.length)
    length = np.bincount(owner[~hole], minlength=len(raw.length))
    values = {name: column[~hole] for name, column in raw.results.items()}
    docs, clicks = raw.doc[~hole], raw.click[~hole]
    return RawSessions(raw.query, length, docs, clicks, raw.attributes, values, rank[~hole])


def read_long(rows: TableRows, *, skip: bool) -> tuple[RawSessions, BadSessions]:
    """Read the long layout: one row per result, with the columns session, query, rank (from 1), doc and click.

    Without a column of clicks, none is clicked. Rows may come in any order, and a rank may be missing: it is a hole.
    Sessions are returned in order of first appearance.

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
        "duplicate-document", those of `check_session_columns`, and of columns of results "not-a-number",
        "not-a-probability" and "bad-signal".
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
    click = rows.read(number_column, "click") if "click" in rows.names else _no_clicks(rows.n_rows)
    rank = rows.read(number_column, "rank")
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
    results = rows.columns_of_results(number_column)
    for name, column in results.items():
        for bad, code, rule in violations_of_results(name, column, None):
            bad_sessions.mark(bad, partial(rows.violation, name, code, rule))
    length = np.bincount(owner, minlength=len(first))
    number = np.where(_not_an_integer(rank), 0, rank.values).astype(np.int64)
    order, ranks = _order_by_rank(owner, number, length), None
    if (order < 0).any():
        possible = (number >= 1) & (number <= MAX_RANK)
        number[~possible] = 0
        order = stable_order(number, MAX_RANK + 1)
        order = order[stable_order(owner[order], len(first))]
        twice = np.r_[False, (owner[order][1:] == owner[order][:-1]) & (number[order][1:] == number[order][:-1])]
        bad_rank = ~possible
        bad_rank[order[twice]] = True

        def describe_ranks(row: int) -> Violation:
            found = ", ".join(f"{value:g}" for value in np.sort(rank.values[owner == owner[row]])[:20])
            problem = f"ranks must be from 1 to {MAX_RANK:,}, each once{hint}: got {found}"
            return Violation("bad-ranks", problem, {"value": found})

        bad_sessions.mark(bad_rank, describe_ranks)
        ranks = number[order] - 1
    if not np.array_equal(order, np.arange(len(order))):
        doc, click = doc[order], click[order]
        results = {name: column[order] for name, column in results.items()}
    attributes = {name: column[first] for name, column in attributes.items()}
    values = {name: result_values(name, column) for name, column in results.items()}
    raw = RawSessions(query[first], length, doc, click.values.astype(bool), attributes, values, ranks)
    return _valid_sessions(bad_sessions, raw), bad_sessions


def _valid_sessions(bad_sessions: BadSessions, raw: RawSessions) -> RawSessions:
    """Mark sessions that show a document twice, and return those that keep all rules."""
    start = np.cumsum(raw.length) - raw.length
    duplicates = _find_duplicates(raw.doc.values, start, np.where(bad_sessions.bad, 0, raw.length))

    def describe(session: int) -> Violation:
        places = duplicates[session]
        ranks = places - start[session] if raw.rank is None else raw.rank[places]
        earlier, later = (int(rank) + 1 for rank in ranks)
        doc = raw.doc.show(int(places[1]))
        problem = f"a document must appear once in a list: got {doc} at rank {earlier} and at rank {later}"
        return Violation("duplicate-document", problem, {"document": doc, "ranks": (earlier, later)})

    bad_sessions.mark(duplicates[:, 1] >= 0, describe)
    valid = ~bad_sessions.bad
    if valid.all():
        return raw
    of_valid = np.repeat(valid, raw.length)
    return RawSessions(
        raw.query[valid],
        raw.length[valid],
        raw.doc[of_valid],
        raw.click[of_valid],
        {name: column[valid] for name, column in raw.attributes.items()},
        {name: values[of_valid] for name, values in raw.results.items()},
        None if raw.rank is None else raw.rank[of_valid],
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


def _owner(length: Int[np.ndarray, " row"]) -> Int[np.ndarray, " item"]:
    """Return the row of each item of concatenated lists."""
    return np.repeat(np.arange(len(length)), length)


def _any_item(bad: Bool[np.ndarray, " item"], length: Int[np.ndarray, " row"]) -> Bool[np.ndarray, " row"]:
    """Return the mask of the rows whose lists have a bad item."""
    mask = np.zeros(len(length), bool)
    if bad.any():
        mask[_owner(length)[bad]] = True
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
        if length[i] > _LONG_LIST:
            ordered = np.sort(doc[start[i] : start[i] + length[i]])
            if not (ordered[1:] == ordered[:-1]).any():
                continue
        for j in range(start[i], start[i] + length[i]):
            for earlier in range(start[i], j):
                if doc[earlier] == doc[j] and pairs[i, 1] < 0:
                    pairs[i, 0], pairs[i, 1] = earlier, j
    return pairs
