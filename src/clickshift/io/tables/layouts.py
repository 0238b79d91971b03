"""The two layouts of a log, one row per list ("wide") and one row per result ("long"), checked and brought to one form.

Columns of a table, whatever types a file or a data frame gives them, become numpy arrays with a mask of the unusable
values. Sessions that break a rule are marked in `BadSessions`: the first one is an error, or all of them are dropped
and counted.
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
from clickshift.data.vocabulary import Raw
from clickshift.errors import FileError
from clickshift.io.read_report import BadSessions, SessionLocation, Violation
from clickshift.io.tables.formats import ColumnError, TableFile, integers_or_text, read_json_lines

SESSION_COLUMNS = ("time", "day", "user", "propensity", "log_propensity", "count")
"""Optional columns of a log; in both layouts they describe the session."""

_LAYOUT_COLUMNS = {"query", "docs", "clicks", "session", "rank", "doc", "click"}
_EXPECTED_TYPES = {
    **dict.fromkeys(("session", "query", "doc", "user"), "an integer or text"),
    **dict.fromkeys(("time", "day"), "a number, a date or a time"),
}
_ROUNDING = 1e-9  # by how much rounding may lift a probability above 1


ArrowArray = Any  # a pyarrow.ChunkedArray

_AnyColumn = TypeVar("_AnyColumn", "Column", "ListColumn")
_EPOCH = (631_152_000, 4_102_444_800)  # the years 1990 to 2100, in seconds since 1970
_EPOCH_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FLOAT_TEXT = r"^-?[0-9]+\.0+$"
_BOOLEAN_TEXTS = {"true": "1", "false": "0"}


@dataclass(frozen=True, eq=False)
class Column:
    """A column with one value per row.

    Parameters
    ----------
    values
        Numbers, datetimes, or indices into `texts`.
    bad
        Mask of the rows with no value, or none of the right type; `values` is meaningless there.
    texts
        The distinct texts of a column of text ids, a pyarrow array; None for other columns.
    """

    values: np.ndarray
    bad: Bool[np.ndarray, " row"]
    texts: Any = None

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: np.ndarray) -> Column:
        return Column(self.values[rows], self.bad[rows], self.texts)

    def ids(self) -> Raw:
        """Return the raw ids as `data.vocabulary.encode_ids` takes them; there must be no bad row."""
        import pyarrow as pa

        if self.texts is None:
            return self.values
        return pa.DictionaryArray.from_arrays(pa.array(self.values, pa.int32()), self.texts)

    def show(self, row: int) -> str:
        """Return the value of a row as plain text."""
        return str(self.values[row] if self.texts is None else self.texts[self.values[row]])


@dataclass(frozen=True, eq=False)
class ListColumn:
    """A column with one list per row.

    Parameters
    ----------
    length
        Number of items of each list.
    bad
        Mask of the rows without a list.
    items
        Items of all lists, concatenated.
    """

    length: Int[np.ndarray, " row"]
    bad: Bool[np.ndarray, " row"]
    items: Column


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


def id_column(name: str, parts: Sequence[ArrowArray]) -> Column:
    """Convert a column of raw ids, one pyarrow array per file.

    Parameters
    ----------
    name
        Name of the column, for errors.
    parts
        The column in each file. If one file has integers and another one text, all ids become text.

    Returns
    -------
    Column
        64-bit integers, or indices into the distinct texts.

    Raises
    ------
    ColumnError
        If the values are neither integers nor text.
    """
    import pyarrow as pa

    converted = [_ids(name, part) for part in parts]
    if len({part.type for part in converted}) > 1:
        converted = [part if pa.types.is_dictionary(part.type) else _as_text(part) for part in converted]
    column = pa.chunked_array([chunk for part in converted for chunk in part.chunks], converted[0].type)
    if not pa.types.is_dictionary(column.type):
        return _to_numpy(column)
    array = column.unify_dictionaries().combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    indices = _to_numpy(array.indices)
    check_no_floats(name, array.dictionary)
    return Column(indices.values, indices.bad, array.dictionary)


def number_column(name: str, parts: Sequence[ArrowArray]) -> Column:
    """Convert a column of numbers, one pyarrow array per file; text is parsed, ColumnError for other types."""
    return _parse(name, parts, ("int64", "float64"))


def time_column(name: str, parts: Sequence[ArrowArray]) -> Column:
    """Convert a column of numbers, dates or timestamps, one pyarrow array per file; time zones become UTC."""
    units = ("s", "ms", "us", "ns")
    types = ("int64", "float64", "date32", *(f"timestamp {unit}" for unit in units), *(f"utc {unit}" for unit in units))
    return _as_epoch(_parse(name, parts, types))


def _as_epoch(column: Column) -> Column:
    """Convert numbers that are seconds, milli-, micro- or nanoseconds since 1970 to times; others are day numbers.

    They are if all of them lie between 1990 and 2100 in that unit: no day number is that large.
    """
    values = column.values
    if values.dtype.kind not in "iuf" or not len(values):
        return column
    given = values[~column.bad] if column.bad.any() else values
    for unit, factor in _EPOCH_UNITS.items():
        if len(given) and given.min() >= _EPOCH[0] * factor and given.max() < _EPOCH[1] * factor:
            if values.dtype.kind == "f":
                values, unit = np.where(column.bad, 0, values) * (_EPOCH_UNITS["us"] / factor), "us"
                values = np.rint(values)
            return Column(values.astype(np.int64).view(f"datetime64[{unit}]"), column.bad)
    return column


def list_column(name: str, parts: Sequence[ArrowArray]) -> ListColumn:
    """Convert a column of lists, one pyarrow array per file.

    Parameters
    ----------
    name
        Name of the column: "docs" has lists of ids, other columns have lists of numbers.
    parts
        The column in each file: lists, or text with JSON lists or items separated by white space.

    Returns
    -------
    ListColumn
        Lengths, and the concatenated items.

    Raises
    ------
    ColumnError
        If the column has no lists, or their items have the wrong type.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths: list[Any] = []
    items: list[Any] = []
    for part in parts:
        column = _parse_lists(name, part) if _is_text(part.type) else part
        if pa.types.is_fixed_size_list(column.type):
            column = column.cast(pa.list_(column.type.value_type))
        if pa.types.is_null(column.type):
            column = column.cast(pa.list_(pa.int64()))
        if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
            raise ColumnError(name, f"must hold lists: got {column.type}")
        lengths += pc.list_value_length(column).cast(pa.int64()).chunks
        flat = [chunk.flatten() for chunk in column.chunks]
        items.append(pa.chunked_array(flat, column.type.value_type))
    length = _to_numpy(pa.chunked_array(lengths, pa.int64()))
    convert_items = id_column if name == "docs" else number_column
    return ListColumn(length.values, length.bad, convert_items(name, items))


def _ids(name: str, column: ArrowArray) -> ArrowArray:
    """Convert raw ids to 64-bit integers, or to 32-bit indices into a dictionary of text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    arrow_type = column.type
    if arrow_type == pa.dictionary(pa.int32(), pa.string()) and not any(c.dictionary.null_count for c in column.chunks):
        return column
    try:
        if _is_text(arrow_type):
            return column.cast(pa.string()).dictionary_encode()
        if pa.types.is_dictionary(arrow_type):
            return _ids(name, column.cast(arrow_type.value_type))
        if pa.types.is_unsigned_integer(arrow_type):  # beyond 63 bits (e.g. a hash) the decimal text is the id
            largest = pc.max(column).as_py() or 0
            return _as_text(column) if largest > np.iinfo(np.int64).max else column.cast(pa.int64())
        if pa.types.is_floating(arrow_type):
            raise _float_ids(name, f"{arrow_type}, e.g. {pc.drop_null(column)[:1].to_pylist()}")
        if not pa.types.is_boolean(arrow_type) and not pa.types.is_temporal(arrow_type):
            return column.cast(pa.int64())  # from decimals only if they are integers
    except pa.ArrowException:
        pass
    raise ColumnError(name, f"must hold ids, integers or text: got {arrow_type}. Convert them first")


def check_no_floats(name: str, texts: Any) -> None:
    """Raise if all texts of a column of ids are floats such as "12.0": integers that a table library converted.

    Parameters
    ----------
    name
        Name of the column.
    texts
        The distinct texts, a pyarrow array.

    Raises
    ------
    ColumnError
        With code "float-ids".
    """
    import pyarrow.compute as pc

    some = (texts[:1], texts) if len(texts) else ()  # the first text alone mostly decides
    if some and all(pc.all(pc.match_substring_regex(part, _FLOAT_TEXT)).as_py() for part in some):
        raise _float_ids(name, f"text such as {texts[0]}")


def _float_ids(name: str, found: str) -> ColumnError:
    """Return the error of ids that are floats."""
    return ColumnError(
        name,
        f"must hold ids, integers or text: got {found}. Integers become floats where some are missing: remove those "
        'rows, then convert the column, e.g. with astype("int64")',
        code="float-ids",
    )


def _as_text(column: ArrowArray) -> ArrowArray:
    """Convert a column to dictionary-encoded text."""
    import pyarrow as pa

    return column.cast(pa.string()).dictionary_encode()


def _is_text(arrow_type: Any) -> bool:
    """Return whether a pyarrow type, or the value type of a dictionary, is text."""
    import pyarrow as pa

    value_type = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary)
    return any(test(value_type) for test in tests)


def _to_numpy(array: Any) -> Column:
    """Convert a pyarrow array of numbers, dates or timestamps; nulls and NaN are bad."""
    import pyarrow as pa

    arrow_type, unit = array.type, None
    if pa.types.is_date32(arrow_type):
        array, unit = array.cast(pa.int32()).cast(pa.int64()), "D"
    elif pa.types.is_date64(arrow_type) or pa.types.is_timestamp(arrow_type):
        array, unit = array.cast(pa.int64()), getattr(arrow_type, "unit", "ms")  # since 1970 in UTC, for every zone
    elif pa.types.is_boolean(arrow_type) or pa.types.is_null(arrow_type):
        array = array.cast(pa.int8())
    elif pa.types.is_decimal(arrow_type):
        array = array.cast(pa.float64())
    bad = np.zeros(len(array), bool)
    if array.null_count:
        bad = np.array(array.is_null())
        array = array.fill_null(0)
    values = np.asarray(array)
    if values.dtype.kind == "f":
        bad = bad | np.isnan(values)
    return Column(values if unit is None else values.view(f"datetime64[{unit}]"), bad)


def _parse(name: str, parts: Sequence[ArrowArray], types: Sequence[str]) -> Column:
    """Convert numbers or times of several files, also those written as text."""
    import pyarrow as pa

    is_type = pa.types
    allowed = [is_type.is_integer, is_type.is_floating, is_type.is_boolean, is_type.is_decimal, is_type.is_null]
    if "date32" in types:
        allowed += [is_type.is_date, is_type.is_timestamp]
    columns = []
    for part in parts:
        if _is_text(part.type):
            columns.append(_parse_text(part, types))
            continue
        column = part.cast(part.type.value_type) if is_type.is_dictionary(part.type) else part
        if not any(test(column.type) for test in allowed):
            raise ColumnError(name, f"must hold {'times' if 'date32' in types else 'numbers'}: got {column.type}")
        columns.append(_to_numpy(column))
    if len(columns) == 1:
        return columns[0]
    try:
        values = np.concatenate([column.values for column in columns])
    except TypeError:
        dtypes = " and ".join(sorted({str(column.values.dtype) for column in columns}))
        raise ColumnError(name, f"must have one type in all files: got {dtypes}") from None
    return Column(values, np.concatenate([column.bad for column in columns]))


def _parse_text(column: ArrowArray, types: Sequence[str]) -> Column:
    """Parse numbers or times in texts, once per distinct text; the type is the one that fits most of the first ones."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts, index = _distinct_texts(column)
    lowered = pc.utf8_lower(texts)
    for word, digit in _BOOLEAN_TEXTS.items():
        texts = pc.if_else(pc.equal(lowered, word), digit, texts)
    # the simplest type of a tie
    head = texts[:100]
    n_valid = [len(head) - _cast(head, _arrow_type(kind)).null_count for kind in types]
    kind = types[int(np.argmax(n_valid))]
    values = _cast(texts, _arrow_type(kind))
    if values.null_count and " " in kind:  # some times with a zone and some without, which are in UTC
        unit = kind.split()[1]
        others = _cast(texts, _arrow_type(f"{'timestamp' if kind.startswith('utc') else 'utc'} {unit}"))
        values = pc.coalesce(*(times.cast(pa.timestamp(unit, "UTC")) for times in (values, others)))
    parsed = _to_numpy(values)
    if not len(texts):
        return Column(np.zeros(len(index), np.int64), index.bad)
    return Column(parsed.values[index.values], index.bad | parsed.bad[index.values])


def _arrow_type(text: str) -> Any:
    """Return the pyarrow type of a name such as "int64", "timestamp ms" or "utc ms"."""
    import pyarrow as pa

    name, _, unit = text.partition(" ")
    if name == "utc":
        return pa.timestamp(unit, "UTC")
    return pa.timestamp(unit) if unit else getattr(pa, name)()


def _cast(texts: Any, arrow_type: Any) -> Any:
    """Cast texts to a type, with null for those that do not parse: found by bisection, because few are expected."""
    import pyarrow as pa

    try:
        return texts.cast(arrow_type)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, arrow_type)
        half = len(texts) // 2
        return pa.concat_arrays([_cast(texts[:half], arrow_type), _cast(texts[half:], arrow_type)])


def _distinct_texts(column: ArrowArray) -> tuple[Any, Column]:
    """Return the distinct texts of a column, and the index of every row's text."""
    import pyarrow as pa

    column = _ids("", column)
    array = column.unify_dictionaries().combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return array.dictionary.cast(pa.string()), _to_numpy(array.indices)


def _parse_lists(name: str, column: ArrowArray) -> ArrowArray:
    """Parse lists in texts: JSON if the first text starts with a bracket, else items separated by white space.

    Texts that do not parse become null.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts, index = _distinct_texts(column)
    texts = pc.utf8_trim_whitespace(texts)
    if not len(texts):
        return pa.chunked_array([pa.nulls(len(column), pa.list_(pa.int64()))])
    if texts[0].as_py().startswith("["):
        lists = _parse_json_lists(texts)
    else:
        split = pc.utf8_split_whitespace(pc.if_else(pc.equal(texts, ""), None, texts))
        items = split.flatten()
        if name == "docs":
            items = integers_or_text(pa.chunked_array([items])).combine_chunks()
        lists = pa.ListArray.from_arrays(split.offsets, items, mask=split.is_null())
    return pa.chunked_array([lists.take(pa.array(index.values, mask=index.bad))])


def _parse_json_lists(texts: Any) -> Any:
    """Parse texts that are JSON lists, as one JSON object per line; null for those that do not parse."""
    import pyarrow as pa
    import pyarrow.compute as pc

    one_line = pc.replace_substring_regex(texts, r"[\r\n]", " ")  # between items: JSON has no bare line end within one
    joined = pc.binary_join_element_wise('{"list": ', one_line, "}", "")
    data = "\n".join(joined.to_pylist()).encode()
    table, unreadable = read_json_lines(data, lambda names: {"list": "list"})
    readable = np.ones(len(texts), bool)
    readable[[line - 1 for line, _ in unreadable]] = False
    return table["list"].combine_chunks().take(pa.array(np.cumsum(readable) - 1, mask=~readable))
