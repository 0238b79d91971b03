"""One batch of sessions, checked and with hashes instead of ids: all work that needs no other batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, no_type_check

import numpy as np
from jaxtyping import Bool, Int, UInt64
from numba import njit

from clickshift.errors import FileError
from clickshift.io.encode._id_table import hashes_of, pair_hashes
from clickshift.io.read_report import BadSessions, unreadable_lines_error
from clickshift.io.tables.columns import Column, check_no_floats, list_column
from clickshift.io.tables.extra_columns import is_segment, plain_name, result_values, violations_of_results
from clickshift.io.tables.formats import ColumnError, TableFile
from clickshift.io.tables.layouts import TableRows, check_session_columns, ranks_of_lists, read_wide


class TextIdsFound(Exception):
    """Columns of ids that were taken for integers hold text, so the log must be encoded again with text ids."""

    def __init__(self, columns: frozenset[str]) -> None:
        self.columns = columns


@dataclass(frozen=True, eq=False)
class HashedIds:
    """Raw ids and their hashes.

    Parameters
    ----------
    names
        Raw ids, a pyarrow array of integers or text; distinct ones if the column is dictionary-encoded.
    hashes
        Two hashes of every row's id.
    indices
        Index of every row's id in `names`, for a dictionary-encoded column; None if `names` has one id per row.
    """

    names: Any
    hashes: UInt64[np.ndarray, "2 id"]
    indices: np.ndarray | None = None

    @classmethod
    def of(cls, column: str, array: Any, text: frozenset[str]) -> HashedIds | None:
        """Hash a pyarrow array of ids; None for a type that is not an id's, or missing values.

        Integers of the columns in `text` become text.
        """
        import pyarrow as pa

        indices = None
        if array.null_count:
            return None
        if pa.types.is_dictionary(array.type):
            array, indices = array.dictionary, array.indices.to_numpy(zero_copy_only=False)
            if array.null_count:
                return None
        if pa.types.is_signed_integer(array.type):
            array = array.cast(pa.string() if column in text else pa.int64())
        elif not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
            return None
        elif column not in text:
            raise TextIdsFound(frozenset([column]))
        else:
            check_no_floats(column, array[:1000])
        hashes = hashes_of(array)
        return cls(array, hashes if indices is None else hashes[:, indices], indices)

    def integers(self) -> Int[np.ndarray, " id"] | None:
        """Return the raw ids of all rows if they are integers; else None."""
        import pyarrow as pa

        if not pa.types.is_integer(self.names.type):
            return None
        numbers: np.ndarray = self.names.to_numpy()
        return numbers if self.indices is None else numbers[self.indices]

    def take(self, rows: Int[np.ndarray, " new"]) -> Any:
        """Return the raw ids of some rows."""
        import pyarrow as pa

        return self.names.take(pa.array(rows if self.indices is None else self.indices[rows]))


@dataclass(frozen=True, eq=False)
class HashedBatch:
    """Sessions that keep all rules, with hashes instead of ids.

    Parameters
    ----------
    query
        Query of each session.
    doc
        Document of each result; results of all sessions are concatenated.
    pair
        Two hashes of each result's (query, document) pair.
    start
        Results `start[i]` up to `start[i + 1]` belong to session i.
    click
        Whether each result was clicked.
    attributes
        Values of each session, under the names of `Sessions`: count, time, log_prob.
    n_read
        Number of sessions that were read, with the skipped ones.
    n_skipped
        Number of sessions and lines that were skipped.
    first_skipped
        Location and problem of the first one.
    rank
        Rank of each result, from 0, ascending within a session; None if no list has a hole.
    results
        Values of each result by the name of the column: signals, NaN where unknown, and propensities by position.
    segments
        Labels of each segment, and the label's number for each session, -1 where it is unknown.
    user
        User of each session; None if the log has none.
    """

    query: HashedIds
    doc: HashedIds
    pair: UInt64[np.ndarray, "2 result"]
    start: Int[np.ndarray, " bound"]
    click: Bool[np.ndarray, " result"]
    attributes: dict[str, np.ndarray]
    n_read: int
    n_skipped: int = 0
    first_skipped: str = ""
    rank: Int[np.ndarray, " result"] | None = None
    results: Mapping[str, np.ndarray] = field(default_factory=dict)
    segments: Mapping[str, tuple[Sequence[str], np.ndarray]] = field(default_factory=dict)
    user: HashedIds | None = None


def hash_batch(part: TableFile, *, skip_bad: bool, text: frozenset[str]) -> HashedBatch:
    """Check and hash a batch in the wide layout: quickly if all is well, else with the reader that reports problems.

    Parameters
    ----------
    part
        Rows of a file.
    skip_bad
        Whether sessions that break a rule are skipped instead of raising an error.
    text
        Columns of ids that are text in some batch.

    Raises
    ------
    FileError
        "unreadable-line", and those of `read_wide`.
    TextIdsFound
        If a column that is not in `text` holds text.
    """
    if part.unreadable and not skip_bad:
        raise unreadable_lines_error(part.path, part.unreadable)
    try:
        batch = None if part.unreadable else _hash_valid(part, text=text)
    except ColumnError as error:
        message = f"column {error.name} {error.problem}."
        raise FileError(part.path, message, code=error.code, column=error.name) from None
    if batch is not None:
        return batch
    import pyarrow as pa

    first_unreadable = next(
        (f"{part.path}, {f'line {line}: ' if line else ''}{problem}" for line, problem in part.unreadable), ""
    )
    if not len(part.table):
        nothing = HashedIds.of("doc", pa.array([], pa.int64()), frozenset())
        assert nothing is not None
        no_pairs, skipped = np.zeros((2, 0), np.uint64), len(part.unreadable)
        start, click = np.zeros(1, np.int64), np.zeros(0, bool)
        return HashedBatch(nothing, nothing, no_pairs, start, click, {}, skipped, skipped, first_unreadable)
    log, bad_sessions = read_wide(TableRows([part]), skip=skip_bad)
    columns = {"query": log.query, "doc": log.doc}
    columns |= {name: column for name, column in log.attributes.items() if name == "user"}
    raw = {name: column.ids() for name, column in columns.items()}
    arrays = {name: ids if isinstance(ids, pa.Array) else pa.array(ids) for name, ids in raw.items()}
    hashed = {name: HashedIds.of(name, array, text) for name, array in arrays.items()}
    query, doc = hashed["query"], hashed["doc"]
    assert query is not None
    assert doc is not None
    start = np.append(0, np.cumsum(log.length))
    return HashedBatch(
        query,
        doc,
        pair_hashes(query.hashes, doc.hashes, start),
        start,
        log.click,
        _session_attributes({name: column.values for name, column in log.attributes.items()}),
        len(bad_sessions.bad) + len(part.unreadable),
        int(bad_sessions.bad.sum()) + len(part.unreadable),
        bad_sessions.first or first_unreadable,
        log.rank,
        {plain_name(name): values for name, values in log.results.items()},
        _segments(log.attributes),
        hashed.get("user"),
    )


def _hash_valid(part: TableFile, *, text: frozenset[str]) -> HashedBatch | None:
    """Hash a batch without copying its lists; None if a rule may be broken, or a column has an unusual type."""
    import pyarrow as pa

    table = part.table
    query, docs, clicks = (_one_array(table[name]) for name in ("query", "docs", "clicks"))
    lists = (pa.types.is_list, pa.types.is_large_list)
    if query.null_count or not all(any(test(column.type) for test in lists) for column in (docs, clicks)):
        return None
    offsets = [column.offsets.to_numpy() for column in (docs, clicks)]
    start, click_start = (offset.astype(np.int64) - offset[0] for offset in offsets)
    if docs.null_count or clicks.null_count or not np.array_equal(start, click_start) or (np.diff(start) < 1).any():
        return None
    click_items = clicks.flatten()
    if click_items.null_count or not (pa.types.is_integer(click_items.type) or pa.types.is_boolean(click_items.type)):
        return None
    click = click_items.to_numpy(zero_copy_only=False)
    if click.dtype != bool and (click.min() < 0 or click.max() > 1):
        return None
    rows = TableRows([part])
    results = _valid_results(rows, start)
    if results is None:
        return None
    bad_sessions = BadSessions(len(table), locate=rows.locate, skip=True)
    attributes = rows.attributes()
    check_session_columns(rows, bad_sessions, attributes)
    ids = {"query": query, "doc": docs.flatten()}
    ids |= {"user": _one_array(table["user"])} if "user" in table.column_names else {}
    if columns := frozenset(name for name, array in ids.items() if name not in text and not _is_integer(array.type)):
        raise TextIdsFound(columns)
    hashed = {name: HashedIds.of(name, array, text) for name, array in ids.items()}
    query_ids, doc_ids = hashed["query"], hashed["doc"]
    if bad_sessions.bad.any() or query_ids is None or doc_ids is None or None in hashed.values():
        return None
    pair = pair_hashes(query_ids.hashes, doc_ids.hashes, start)
    if _has_duplicates(pair[0], start):
        return None
    values = {name: column.values for name, column in attributes.items()}
    return HashedBatch(
        query_ids,
        doc_ids,
        pair,
        start,
        click.astype(bool),
        _session_attributes(values),
        len(table),
        rank=results.pop("rank", None),
        results=results,
        segments=_segments(attributes),
        user=hashed.get("user"),
    )


def _valid_results(rows: TableRows, start: Int[np.ndarray, " bound"]) -> dict[str, np.ndarray] | None:
    """Return the values of the results in further columns; None if a rule may be broken."""
    results = {}
    for name, lists in rows.columns_of_results(list_column).items():
        broken = lists.bad.any() or not np.array_equal(lists.length, np.diff(start))
        if broken or any(bad.any() for bad, _, _ in violations_of_results(name, lists.items, None)):
            return None
        results[plain_name(name)] = result_values(name, lists.items)
    if "rank" in rows.names:
        results["rank"] = ranks_of_lists(rows).items.values - 1
    return results


def _segments(attributes: Mapping[str, Column]) -> dict[str, tuple[Sequence[str], np.ndarray]]:
    """Return the labels and codes of the segments among the columns of sessions."""
    found = {plain_name(name): column for name, column in attributes.items() if is_segment(name)}
    return {name: (column.texts.to_pylist(), column.values) for name, column in found.items()}


def _session_attributes(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Convert the optional columns of a log that hold numbers to the attributes of `Sessions`."""
    attributes: dict[str, np.ndarray] = {}
    for name in ("time", "day"):
        if name in values:
            attributes["time"] = values[name]
    if "count" in values:
        attributes["count"] = values["count"].astype(np.int64)
    if "propensity" in values:
        attributes["log_prob"] = np.log(values["propensity"])
    if "log_propensity" in values:
        attributes["log_prob"] = values["log_propensity"].astype(np.float64)
    return attributes


def _is_integer(arrow_type: Any) -> bool:
    """Return whether a pyarrow type, or the value type of a dictionary, is an integer."""
    import pyarrow as pa

    return bool(pa.types.is_integer(arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type))


def _one_array(column: Any) -> Any:
    """Return a column of a table as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


@njit(cache=True, nogil=True)
@no_type_check
def _has_duplicates(pair, start):
    """Return whether a list has two results with the same hash."""
    for i in range(len(start) - 1):
        for j in range(start[i] + 1, start[i + 1]):
            for earlier in range(start[i], j):
                if pair[earlier] == pair[j]:
                    return True
    return False
