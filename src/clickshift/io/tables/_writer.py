"""Write sessions as a table that `read_log` reads back: same ids, lists, clicks, counts, times, users, propensities."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import numpy as np

from clickshift.core.files import write_atomically
from clickshift.core.unique_rows import distinct_sorted
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import UNSEEN, Ids
from clickshift.errors import DataError, FileError
from clickshift.io.table_writer import ArrowTable
from clickshift.io.tables.formats import LOG_ENDINGS, ending

Layout = Literal["wide", "long"]

_Output = io.BufferedIOBase  # a plain file or a packed one

_ROW_GROUP = 1 << 23  # results; large, for every group of rows has its own dictionary of ids
_TEXT_BLOCK = 1 << 20  # results whose text is held in memory
_DICTIONARY_BYTES = 1 << 28  # Parquet's usual megabyte would write long ids out again and again
_SMALLEST_LOG = -700.0  # exp of what is below is 0, or has lost its digits


def write_log(sessions: Sessions, path: str | Path, *, layout: Layout = "wide") -> None:
    """Write a log. The ending of the path says how: .parquet, or .csv, .tsv, .jsonl, .ndjson, each also with .gz.

    The file appears complete or not at all. In the long layout `session` is the running number of the row, from 1.
    `count` is written where a row stands for several sessions, `log_propensity` where one is too small for a number.
    """
    path = Path(path)
    kind = check_output(path, layout)
    _check_known(sessions)
    tables = _tables(sessions, layout, _ROW_GROUP if kind == ".parquet" else _TEXT_BLOCK)
    with write_atomically(path) as temporary:
        if kind == ".parquet":
            _write_parquet(tables, temporary)
            return
        with ExitStack() as stack:
            file: _Output = stack.enter_context(temporary.open("wb"))
            if kind.endswith(".gz"):  # without name and time: the same log is the same file
                file = stack.enter_context(gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0))
            if kind.startswith((".jsonl", ".ndjson")):
                _write_json(tables, file)
            else:
                _write_csv(tables, file, path, "\t" if kind.startswith(".tsv") else ",")


def check_output(path: str | Path, layout: str = "wide") -> str:
    """The ending of a path that `write_log` can write to: ask before the work whose result is to be written."""
    path = Path(path)
    kind = ending(path)
    if kind is None:
        raise FileError(path, f"the ending of a log file must be one of {', '.join(LOG_ENDINGS)}. Choose one of them.")
    if path.is_dir():
        raise FileError(path, "is a folder, where a log is to be written. Name a file in it.")
    if layout not in {"wide", "long"}:
        raise DataError(f'layout must be "wide" or "long": got {layout!r}.')
    return kind


def _check_known(sessions: Sessions) -> None:
    rankings = sessions.rankings
    unknown = (rankings.query == UNSEEN) | ((rankings.pair == UNSEEN) & rankings.shown).any(axis=1)
    if unknown.any():
        raise DataError(
            f"session {int(np.argmax(unknown)) + 1}: ids must be known to be written, and the vocabulary lacks its "
            f"query or a document ({int(unknown.sum()):,} such sessions). Write the log before you translate it."
        )


def _tables(sessions: Sessions, layout: Layout, results: int) -> Iterator[ArrowTable]:
    """The log in pieces of about so many results, all with the same columns."""
    import pyarrow as pa

    about: dict[str, np.ndarray] = {}
    if sessions.time is not None:
        about["time"] = _writable_time(sessions.time)
    if sessions.user is not None:
        about["user"] = _writable_user(sessions.user)
    if (log_prob := sessions.rankings.log_prob) is not None:
        tiny = log_prob.min() < _SMALLEST_LOG
        about |= {"log_propensity": log_prob} if tiny else {"propensity": np.exp(log_prob)}
    if (sessions.count != 1).any():
        about["count"] = sessions.count
    size = max(results // sessions.n_ranks, 1)
    for start in range(0, len(sessions), size):
        rows = slice(start, start + size)
        chunk, ranks = sessions[rows].rankings, sessions.click[rows]
        words = chunk.vocabulary
        columns = {"query": _ids(words.query_ids, chunk.query)}
        columns |= {name: pa.array(values[rows]) for name, values in about.items()}
        doc = _ids(words.doc_ids, words.pair_doc[chunk.pair[chunk.shown]])
        click = pa.array(ranks[chunk.shown].astype(np.int8))
        if layout == "wide":
            ends = pa.array(np.r_[0, np.cumsum(chunk.length)], pa.int32())
            columns["docs"] = pa.ListArray.from_arrays(ends, doc)
            columns["clicks"] = pa.ListArray.from_arrays(ends, click)
            yield pa.table(columns)
        else:
            row, rank = np.nonzero(chunk.shown)
            table = pa.table({"session": pa.array(start + 1 + np.arange(len(chunk)))} | columns).take(pa.array(row))
            results_ = {"rank": pa.array(rank + 1), "doc": doc, "click": click}
            yield pa.table(dict(zip(table.column_names, table.columns, strict=True)) | results_)


def _ids(ids: Ids, numbers: np.ndarray) -> Any:
    """Raw ids by their numbers; text as a dictionary of what is used, which Parquet writes once."""
    import pyarrow as pa

    if ids.dtype.kind == "i":
        return pa.array(ids[numbers])
    used, place = distinct_sorted(numbers)
    return pa.DictionaryArray.from_arrays(pa.array(place, pa.int32()), pa.array(ids[used].astype(object), pa.string()))


def _writable_time(time: np.ndarray) -> np.ndarray:
    if time.dtype.kind == "M":
        known = np.datetime_data(time.dtype)[0] in {"D", "s", "ms", "us", "ns"}
        return time if known else time.astype("datetime64[s]")
    if time.dtype.kind not in "iuf" or not np.isfinite(time).all():
        raise DataError(f"time must be finite numbers or datetimes to be written: got {time.dtype}. Convert it first.")
    return time


def _writable_user(user: np.ndarray) -> np.ndarray:
    if user.dtype.kind in "iu":
        return user
    if user.dtype.kind in "UT" or all(isinstance(one, str) for one in user.tolist()):
        return user.astype(object)
    raise DataError(f"users must be integers or text to be written: got {user.dtype}. Convert them first.")


def _write_parquet(tables: Iterator[ArrowTable], path: Path) -> None:
    import pyarrow.parquet as pq

    with ExitStack() as stack:
        writer = None
        for table in tables:
            if writer is None:
                writer = pq.ParquetWriter(
                    path,
                    table.schema,
                    dictionary_pagesize_limit=_DICTIONARY_BYTES,
                    write_page_checksum=True,
                    store_schema=False,  # lists of text to all readers: pyarrow cannot join lists of dictionary items
                )
                stack.enter_context(writer)
            writer.write_table(table)


def _write_csv(tables: Iterator[ArrowTable], file: _Output, path: Path, delimiter: str) -> None:
    """Text in quotation marks and numbers without, which tells the id "7" from 7; lists as JSON."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as csv

    with ExitStack() as stack:
        writer = None
        for table in tables:
            columns = {}
            for name, column in zip(table.column_names, table.columns, strict=True):
                text = _json(column) if pa.types.is_list(column.type) else _plain(column)
                if pa.types.is_string(text.type) and pc.any(pc.match_substring(text, "\0")).as_py():
                    raise DataError(
                        f"{path}: {name} ids hold a NUL character, which CSV cannot. Write .parquet or .jsonl."
                    )
                columns[name] = text
            text_table = pa.table(columns)
            if writer is None:
                writer = csv.CSVWriter(file, text_table.schema, write_options=csv.WriteOptions(delimiter=delimiter))
                stack.enter_context(writer)
            writer.write_table(text_table)


def _write_json(tables: Iterator[ArrowTable], file: _Output) -> None:
    import pyarrow.compute as pc

    for table in tables:
        pieces: list[Any] = []
        for name, column in zip(table.column_names, table.columns, strict=True):
            pieces += [f'{", " if pieces else "{"}"{name}": ', _json(column)]
        file.write("".join(pc.binary_join_element_wise(*pieces, "}\n", "").to_pylist()).encode())


def _plain(column: Any) -> Any:
    import pyarrow as pa

    array = column.combine_chunks()
    return array.cast(pa.string()) if pa.types.is_dictionary(array.type) else array


def _json(column: Any) -> Any:
    """Values as JSON text; ids are escaped once each, not once per result."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_list(array.type):
        items = pa.ListArray.from_arrays(array.offsets, _json(array.values))
        return pc.binary_join_element_wise("[", pc.binary_join(items, ", "), "]", "")
    if pa.types.is_string(array.type):
        array = array.dictionary_encode()
    if pa.types.is_dictionary(array.type):
        texts = [json.dumps(text, ensure_ascii=False) for text in array.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(array.indices)
    text = array.cast(pa.string())
    return pc.binary_join_element_wise('"', text, '"', "") if pa.types.is_temporal(array.type) else text
