"""Sessions of a batch, checked and with hashes for ids: what can be done without knowing any other batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, no_type_check

import numpy as np
from jaxtyping import Bool, Int, UInt64
from numba import njit

from clickshift.errors import FileError
from clickshift.io.encode._id_table import hashes_of, pair_hashes
from clickshift.io.read_report import BadSessions
from clickshift.io.tables._layouts import TableRows, check_session_columns, read_wide
from clickshift.io.tables.formats import TableFile


class TextIdsFound(Exception):
    """Columns of ids that were taken for integers have text: all of them must be text."""

    def __init__(self, columns: frozenset[str]) -> None:
        self.columns = columns


@dataclass(frozen=True, eq=False)
class HashedIds:
    """Raw ids, a pyarrow array of integers or text, perhaps as places in it, and their hashes."""

    names: Any
    hashes: UInt64[np.ndarray, "2 id"]
    places: np.ndarray | None = None

    @classmethod
    def of(cls, column: str, array: Any, text: frozenset[str]) -> HashedIds | None:
        """None for a type that is no id's. In columns of `text`, integers become text."""
        import pyarrow as pa

        places = None
        if array.null_count:
            return None
        if pa.types.is_dictionary(array.type):
            array, places = array.dictionary, array.indices.to_numpy(zero_copy_only=False)
            if array.null_count:
                return None
        if pa.types.is_signed_integer(array.type):
            array = array.cast(pa.string() if column in text else pa.int64())
        elif not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
            return None
        elif column not in text:
            raise TextIdsFound(frozenset([column]))
        hashes = hashes_of(array)
        return cls(array, hashes if places is None else hashes[:, places], places)

    def taken(self, rows: Int[np.ndarray, " new"]) -> Any:
        import pyarrow as pa

        return self.names.take(pa.array(rows if self.places is None else self.places[rows]))


@dataclass(frozen=True, eq=False)
class HashedBatch:
    """Sessions that keep the rules, with hashes for ids."""

    query: HashedIds
    doc: HashedIds
    pair: UInt64[np.ndarray, "2 result"]
    start: Int[np.ndarray, " bound"]
    click: Bool[np.ndarray, " result"]
    about: dict[str, np.ndarray]
    skipped: int = 0
    first_fault: str = ""


def hash_batch(part: TableFile, *, skip_bad: bool, text: frozenset[str]) -> HashedBatch:
    """Quickly where all is well; the usual reader says, or leaves out, what is not."""
    if part.unreadable and not skip_bad:
        line, problem = part.unreadable[0]
        advice = "Mend or remove it, or leave bad ones out with --skip-bad."
        raise FileError(part.path, f"{problem} ({len(part.unreadable):,} such lines). {advice}", line=line)
    found = None if part.unreadable else _plain(part, text=text)
    if found is not None:
        return found
    import pyarrow as pa

    log, faults = read_wide(TableRows([part]), skip=skip_bad)
    raw = [column.ids() for column in (log.query, log.doc)]
    arrays = [ids if isinstance(ids, pa.Array) else pa.array(ids) for ids in raw]
    query, doc = (HashedIds.of(name, array, text) for name, array in zip(("query", "doc"), arrays, strict=True))
    assert query is not None
    assert doc is not None
    start = np.append(0, np.cumsum(log.length))
    return HashedBatch(
        query,
        doc,
        pair_hashes(query.hashes, doc.hashes, start),
        start,
        log.click,
        _about({name: column.values for name, column in log.about.items()}, part, faults.bad),
        int(faults.bad.sum()) + len(part.unreadable),
        faults.first or next((f"{part.path}, line {line}: {problem}" for line, problem in part.unreadable), ""),
    )


def _plain(part: TableFile, *, text: frozenset[str]) -> HashedBatch | None:
    """None where a rule may be broken, or a column has an unusual type."""
    import pyarrow as pa

    table = part.table
    query, docs, clicks = (_one(table[name]) for name in ("query", "docs", "clicks"))
    lists = (pa.types.is_list, pa.types.is_large_list)
    if query.null_count or not all(any(test(column.type) for test in lists) for column in (docs, clicks)):
        return None
    bounds = [column.offsets.to_numpy() for column in (docs, clicks)]
    start, clicked = (bound.astype(np.int64) - bound[0] for bound in bounds)
    if docs.null_count or clicks.null_count or not np.array_equal(start, clicked) or (np.diff(start) < 1).any():
        return None
    bits = clicks.flatten()
    if bits.null_count or not (pa.types.is_integer(bits.type) or pa.types.is_boolean(bits.type)):
        return None
    click = bits.to_numpy(zero_copy_only=False)
    if click.dtype != bool and (click.min() < 0 or click.max() > 1):
        return None
    rows = TableRows([part])
    faults = BadSessions(len(table), name=rows.name, skip=True)
    about = rows.about()
    check_session_columns(rows, faults, about)
    ids = {"query": query, "doc": docs.flatten()}
    if found := frozenset(name for name, array in ids.items() if name not in text and not _is_integer(array.type)):
        raise TextIdsFound(found)
    query_ids, doc_ids = (HashedIds.of(name, array, text) for name, array in ids.items())
    if faults.bad.any() or query_ids is None or doc_ids is None:
        return None
    pair = pair_hashes(query_ids.hashes, doc_ids.hashes, start)
    if _any_twice(pair[0], start):
        return None
    values = {name: column.values for name, column in about.items()}
    return HashedBatch(query_ids, doc_ids, pair, start, click.astype(bool), _about(values, part, faults.bad))


def _about(values: dict[str, np.ndarray], part: TableFile, bad: Bool[np.ndarray, " row"]) -> dict[str, np.ndarray]:
    """Under the names that `Sessions` has."""
    found: dict[str, np.ndarray] = {}
    for name in ("time", "day"):
        if name in values:
            found["time"] = values[name]
    if "count" in values:
        found["count"] = values["count"].astype(np.int64)
    if "propensity" in values:
        found["log_prob"] = np.log(values["propensity"])
    if "log_propensity" in values:
        found["log_prob"] = values["log_propensity"].astype(np.float64)
    if "user" in values:
        ids = HashedIds.of("user", _one(part.table["user"]), frozenset(["user"]))
        if ids is None:
            raise FileError(part.path, "column user must hold ids, integers or text. Convert it first.")
        found["user"] = ids.hashes[0][~bad].view(np.int64)
    return found


def _is_integer(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind.value_type if pa.types.is_dictionary(kind) else kind))


def _one(column: Any) -> Any:
    """A column of a table as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


@njit(cache=True, nogil=True)
@no_type_check
def _any_twice(pair, start):
    """Whether a list has two results of one hash."""
    for i in range(len(start) - 1):
        for j in range(start[i] + 1, start[i + 1]):
            for earlier in range(start[i], j):
                if pair[earlier] == pair[j]:
                    return True
    return False
