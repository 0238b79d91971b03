"""The two layouts of a log, one row per list and one row per result: read, checked, and brought to one form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, no_type_check

import numpy as np
from jaxtyping import Bool, Int
from numba import njit

from clickshift.core.unique_rows import distinct_rows
from clickshift.errors import FileError
from clickshift.io.read_report import BadSessions
from clickshift.io.tables.columns import Column, ListColumn, id_column, list_column, number_column, time_column
from clickshift.io.tables.formats import TableFile
from clickshift.io.tables.json_lines import ColumnError

SESSION_COLUMNS = ("time", "day", "user", "propensity", "log_propensity", "count")
"""Columns that a log may have or not; in both layouts they say something of the session."""

_KINDS = {
    **dict.fromkeys(("session", "query", "doc", "user"), "an integer or text"),
    **dict.fromkeys(("time", "day"), "a number, a date or a time"),
    **dict.fromkeys(("propensity", "log_propensity", "count"), "a number"),
}
_ABOVE_ONE = 1e-9  # what rounding may add to a probability


@dataclass(frozen=True, eq=False)
class RawSessions:
    """Sessions one after the other, and so their results, by rank; ids are still raw."""

    query: Column
    length: Int[np.ndarray, " session"]
    doc: Column
    click: Bool[np.ndarray, " result"]
    about: dict[str, Column]


class TableRows:
    """The rows of all files, one after the other."""

    def __init__(self, parts: Sequence[TableFile]) -> None:
        self.parts = [part for part in parts if part.table.num_rows]
        self._ends = np.cumsum([part.table.num_rows for part in self.parts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def place(self, row: int) -> tuple[TableFile, int]:
        """The file of a row, and its number in it, from 0."""
        part = int(np.searchsorted(self._ends, row, side="right"))
        return self.parts[part], row - int(self._ends[part - 1] if part else 0)

    def name(self, row: int) -> tuple[Path, str]:
        """The file of a row, and its number there as people count."""
        part, number = self.place(row)
        return part.path, f"row {part.first_row + number + 1}"

    def show(self, name: str, row: int) -> str:
        """What a row holds, as plain text."""
        part, number = self.place(row)
        value = part.table[name][number].as_py()
        return "nothing" if value is None else str(value)[:80]

    def ids(self, name: str) -> Column:
        column: Column = self._read(id_column, name)
        return column

    def numbers(self, name: str) -> Column:
        column: Column = self._read(number_column, name)
        return column

    def lists(self, name: str) -> ListColumn:
        lists: ListColumn = self._read(list_column, name)
        return lists

    def about(self) -> dict[str, Column]:
        kinds = {"time": time_column, "day": time_column, "user": id_column}
        names = [name for name in SESSION_COLUMNS if name in self.parts[0].table.column_names]
        return {name: self._read(kinds.get(name, number_column), name) for name in names}

    def _read(self, read: Callable[[str, Sequence[Any]], Any], name: str) -> Any:
        try:
            return read(name, [part.table[name] for part in self.parts])
        except ColumnError as error:
            raise FileError(self.parts[0].path, f"column {name} {error.problem}.") from None


def read_wide(rows: TableRows, *, skip: bool) -> tuple[RawSessions, BadSessions]:
    """One row per list: query, docs, clicks."""
    faults = BadSessions(len(rows), name=rows.name, skip=skip)
    query, about, docs, clicks = rows.ids("query"), rows.about(), rows.lists("docs"), rows.lists("clicks")
    check_session_columns(rows, faults, {"query": query} | about)
    for column, lists in (("docs", docs), ("clicks", clicks)):
        rule = 'must be a list with one item or more (as text: [1, 2], ["a", "b"], or items between blanks)'
        faults.mark(lists.bad | (lists.length == 0), partial(_got, rows, column, rule))
    faults.mark(
        docs.length != clicks.length,
        lambda row: f"docs and clicks must be equally long: got {docs.length[row]} and {clicks.length[row]}",
    )
    faults.mark(_any_in(docs.items.bad, docs.length), partial(_got, rows, "docs", "must not have missing items"))
    faults.mark(_any_in(_no_bit(clicks.items), clicks.length), partial(_got, rows, "clicks", "must be 0 or 1 each"))
    return _good(faults, query, docs, clicks, about), faults


def read_long(rows: TableRows, *, skip: bool) -> tuple[RawSessions, BadSessions]:
    """One row per result: session, query, rank from 1, doc, click; in any order. Sessions come as they first appear."""
    session = rows.ids("session")
    owner, first = _sessions(session)

    def name(number: int) -> tuple[Path, str]:
        row = int(first[number])
        path, place = rows.name(row)
        return path, place if session.bad[row] else f"session {session.show(row)}"

    faults = BadSessions(len(first), owner=owner, name=name, skip=skip)
    query, about, doc = rows.ids("query"), rows.about(), rows.ids("doc")
    click, rank = rows.numbers("click"), rows.numbers("rank")
    check_session_columns(rows, faults, {"session": session, "query": query, "doc": doc} | about)
    faults.mark_rows(_no_bit(click), partial(_got, rows, "click", "must be 0 or 1"))
    faults.mark_rows(_no_integer(rank), partial(_got, rows, "rank", "must be a whole number"))
    again = " (do session ids begin anew in every file? they must differ)" if len(rows.parts) > 1 else ""
    for column, found in ({"query": query} | about).items():
        differs = found.values != found.values[first][owner]
        faults.mark_rows(differs, partial(_got, rows, column, f"must be the same in all rows of a session{again}"))
    length = np.bincount(owner, minlength=len(first))
    order = _by_rank(owner, np.where(_no_integer(rank), 0, rank.values).astype(np.int64), length)
    faults.mark(
        _any_in(order < 0, length),
        lambda number: f"ranks must be 1, 2, 3, ... once each{again}: got {_ranks(rank.values[owner == number])}",
    )
    if not np.array_equal(order, np.arange(len(order))):
        doc, click = doc[order], click[order]
    about = {key: column[first] for key, column in about.items()}
    alright = np.zeros(len(first), bool)
    docs, clicks = ListColumn(length, alright, doc), ListColumn(length, alright, click)
    return _good(faults, query[first], docs, clicks, about), faults


def _good(
    faults: BadSessions, query: Column, docs: ListColumn, clicks: ListColumn, about: Mapping[str, Column]
) -> RawSessions:
    """The sessions without fault, once it is known that no document stands in a list twice."""
    start = np.cumsum(docs.length) - docs.length
    twice = _repeats(docs.items.values, start, np.where(faults.bad, 0, docs.length))

    def describe(session: int) -> str:
        earlier, later = twice[session] - start[session] + 1
        doc = docs.items.show(int(twice[session, 1]))
        return f"a document must stand once in a list: got {doc} at rank {earlier} and at rank {later}"

    faults.mark(twice[:, 1] >= 0, describe)
    good = ~faults.bad
    if good.all():
        return RawSessions(query, docs.length, docs.items, clicks.items.values.astype(bool), dict(about))
    return RawSessions(
        query[good],
        docs.length[good],
        docs.items[np.repeat(good, docs.length)],
        clicks.items.values[np.repeat(good, clicks.length)].astype(bool),
        {key: column[good] for key, column in about.items()},
    )


def check_session_columns(rows: TableRows, faults: BadSessions, columns: Mapping[str, Column]) -> None:
    """Values that must not be missing, and what they must be."""
    for name, column in columns.items():
        faults.mark_rows(column.bad, partial(_got, rows, name, f"must be {_KINDS[name]}"))
        if name == "count":
            faults.mark_rows(
                _no_integer(column) | (column.values < 1), partial(_got, rows, name, "must be 1, 2, 3, ...")
            )
        if name == "propensity":
            outside = ~((column.values > 0) & (column.values <= 1 + _ABOVE_ONE))
            faults.mark_rows(outside, partial(_got, rows, name, "must be above 0 and at most 1"))
        if name == "log_propensity":
            outside = ~((column.values > -np.inf) & (column.values <= _ABOVE_ONE))
            faults.mark_rows(outside, partial(_got, rows, name, "must be a finite number of at most 0"))


def _got(rows: TableRows, name: str, rule: str, row: int) -> str:
    return f"{name} {rule}: got {rows.show(name, row)}"


def _no_bit(column: Column) -> Bool[np.ndarray, " row"]:
    no_bit: np.ndarray = column.bad | ~((column.values == 0) | (column.values == 1))
    return no_bit


def _no_integer(column: Column) -> Bool[np.ndarray, " row"]:
    if column.values.dtype.kind != "f":
        return column.bad
    no_integer: np.ndarray = ~(np.abs(column.values) < 2**53) | (column.values != np.rint(column.values))
    no_integer |= column.bad
    return no_integer


def _ranks(ranks: np.ndarray) -> str:
    return ", ".join(f"{rank:g}" for rank in np.sort(ranks)[:20])


def _any_in(bad: Bool[np.ndarray, " item"], length: Int[np.ndarray, " row"]) -> Bool[np.ndarray, " row"]:
    """Rows whose lists have a bad item."""
    found = np.zeros(len(length), bool)
    if bad.any():
        found[np.repeat(np.arange(len(length)), length)[bad]] = True
    return found


def _sessions(session: Column) -> tuple[Int[np.ndarray, " row"], Int[np.ndarray, " session"]]:
    """The session number of every row, in order of appearance, and the first row of every session."""
    key = session.values
    if session.bad.any():  # rows without an id make a session of their own, which will be refused
        key, _ = distinct_rows(np.stack([np.where(session.bad, 0, key), session.bad], axis=1))
    run = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
    number, first = distinct_rows(key[run][:, None])  # rows of a session mostly stand together: runs are few
    return np.repeat(number, np.diff(np.r_[run, len(key)])), run[first]


@njit(cache=True, nogil=True)
@no_type_check
def _by_rank(owner, rank, length):
    """Rows by session and rank, -1 where a session lacks a rank: ranks 1, 2, ... are places, so nothing is sorted."""
    start = np.cumsum(length) - length
    order = np.full(len(owner), -1)
    for row in range(len(owner)):
        if 1 <= rank[row] <= length[owner[row]]:
            order[start[owner[row]] + rank[row] - 1] = row
    return order


@njit(cache=True, nogil=True)
@no_type_check
def _repeats(doc, start, length):
    """For every list the places of the first two equal documents, -1 where there are none."""
    found = np.full((len(length), 2), -1)
    for i in range(len(length)):
        for j in range(start[i], start[i] + length[i]):
            for earlier in range(start[i], j):
                if doc[earlier] == doc[j] and found[i, 1] < 0:
                    found[i, 0], found[i, 1] = earlier, j
    return found
