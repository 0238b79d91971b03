"""Write sessions as a table that `read_log` reads back: same ids, lists, clicks, counts, times, users, propensities."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import numpy as np

from clickshift.core.files import write_atomically
from clickshift.core.unique_rows import distinct_sorted
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import UNSEEN, Ids
from clickshift.errors import DataError, FileError
from clickshift.io.table_writer import ArrowTable
from clickshift.io.tables.formats import LOG_ENDINGS, ending

Layout = Literal["wide", "long"]
"""Layout of a log: one row per list, or one row per result."""

_Output = io.BufferedIOBase  # a plain file or a gzip file

_ROW_GROUP = 1 << 23  # results; large, because every row group has its own dictionary of ids
_TEXT_BLOCK = 1 << 20  # results whose text is held in memory
_DICTIONARY_BYTES = 1 << 28  # with Parquet's default of 1 MB, long ids would be written again and again
_SMALLEST_LOG = -700.0  # below it, exp underflows to 0 or loses its digits


def write_log(sessions: Log, path: str | Path, *, layout: Layout = "wide") -> None:
    """Write a click log as a table file, which appears complete or not at all.

    Parameters
    ----------
    sessions
        The log; an encoded one is written chunk by chunk. `count` is written if a row stands for several sessions, and
        `log_propensity` instead of `propensity` if a probability is too small for a floating-point number.
    path
        The file; its ending chooses the format: .parquet, or .csv, .tsv, .jsonl, .ndjson, each also with .gz.
    layout
        "wide" for one row per list, "long" for one row per result; in the long layout `session` is the running number
        of the row, from 1.

    Raises
    ------
    FileError
        "unknown-format" for another ending, "is-a-folder".
    DataError
        "bad-option" for another layout, "unseen-id" for sessions with ids that their vocabulary does not hold,
        "bad-column" for times, users or ids that the format cannot hold.

    Examples
    --------
    >>> import tempfile
    >>> from clickshift.data.sessions import Rankings
    >>> from clickshift.data.vocabulary import Vocabulary
    >>> vocabulary, query, pair = Vocabulary.of(["cats", "cats"], ["a", "b"])
    >>> log = Sessions(Rankings(vocabulary, query[:1], pair[None]), np.array([[False, True]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_log(log, Path(folder) / "log.jsonl")
    ...     print((Path(folder) / "log.jsonl").read_text().strip())
    {"query": "cats", "docs": ["a", "b"], "clicks": [0, 1]}
    """
    path = Path(path)
    file_ending = check_output(path, layout)
    tables = _tables(sessions, layout, _ROW_GROUP if file_ending == ".parquet" else _TEXT_BLOCK)
    with write_atomically(path) as temporary:
        if file_ending == ".parquet":
            _write_parquet(tables, temporary)
            return
        with ExitStack() as stack:
            file: _Output = stack.enter_context(temporary.open("wb"))
            if file_ending.endswith(".gz"):  # without name and time, so that the same log gives the same bytes
                file = stack.enter_context(gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0))
            if file_ending.startswith((".jsonl", ".ndjson")):
                _write_json(tables, file)
            else:
                _write_csv(tables, file, path, "\t" if file_ending.startswith(".tsv") else ",")


def check_output(path: str | Path, layout: str = "wide") -> str:
    """Check that `write_log` can write to a path; call it before the work whose result is to be written.

    Returns
    -------
    str
        The ending of the path, in lower case.

    Raises
    ------
    FileError
        "unknown-format" for another ending, "is-a-folder".
    DataError
        "bad-option" for another layout.
    """
    path = Path(path)
    file_ending = ending(path)
    if file_ending is None:
        raise FileError(
            path,
            f"the ending of a log file must be one of {', '.join(LOG_ENDINGS)}. Choose one of them.",
            code="unknown-format",
            known=list(LOG_ENDINGS),
        )
    if path.is_dir():
        raise FileError(path, "is a folder; a log must be written to a file. Pass a file in it.", code="is-a-folder")
    if layout not in {"wide", "long"}:
        raise DataError(
            f'layout must be "wide" or "long": got {layout!r}.', code="bad-option", option="layout", value=layout
        )
    return file_ending


def _check_ids(sessions: Sessions) -> None:
    """Refuse sessions with a query or document that the vocabulary does not hold: its raw id is unknown."""
    rankings = sessions.rankings
    unseen = (rankings.query == UNSEEN) | ((rankings.pair == UNSEEN) & rankings.shown).any(axis=1)
    if unseen.any():
        first, count = int(np.argmax(unseen)) + 1, int(unseen.sum())
        raise DataError(
            f"session {first}: ids must be known to be written, and the vocabulary lacks its query or a document "
            f"({count:,} such sessions). Write the log before translating it to another vocabulary.",
            code="unseen-id",
            row=first,
            count=count,
        )


def _tables(log: Log, layout: Layout, results: int) -> Iterator[ArrowTable]:
    """Yield the log in tables of about this many results, all with the same columns."""
    # the columns must be known before the first table is written
    underflows = any(
        part.rankings.log_prob is not None and part.rankings.log_prob.min() < _SMALLEST_LOG for part in log.chunks()
    )
    first_row = 0
    for part in log.chunks():
        _check_ids(part)
        attributes: dict[str, np.ndarray] = {}
        if part.time is not None:
            attributes["time"] = _writable_time(part.time)
        if part.user is not None:
            attributes["user"] = _writable_user(part.user)
        if (log_prob := part.rankings.log_prob) is not None:
            attributes |= {"log_propensity": log_prob} if underflows else {"propensity": np.exp(log_prob)}
        if log.has_counts:
            attributes["count"] = part.count
        size = max(results // part.n_ranks, 1)
        for start in range(0, len(part), size):
            rows = slice(start, start + size)
            of_rows = {name: values[rows] for name, values in attributes.items()}
            yield _table(part[rows], of_rows, layout, first_row + start)
        first_row += len(part)


def _table(sessions: Sessions, attributes: Mapping[str, np.ndarray], layout: Layout, first_row: int) -> ArrowTable:
    """Return sessions as a table."""
    import pyarrow as pa

    rankings, vocabulary = sessions.rankings, sessions.vocabulary
    columns = {"query": _ids(vocabulary.query_ids, rankings.query)}
    columns |= {name: pa.array(values) for name, values in attributes.items()}
    doc = _ids(vocabulary.doc_ids, vocabulary.pair_doc[rankings.pair[rankings.shown]])
    click = pa.array(sessions.click[rankings.shown].astype(np.int8))
    if layout == "wide":
        offsets = pa.array(np.r_[0, np.cumsum(rankings.length)], pa.int32())
        columns["docs"] = pa.ListArray.from_arrays(offsets, doc)
        columns["clicks"] = pa.ListArray.from_arrays(offsets, click)
        return pa.table(columns)
    row, rank = np.nonzero(rankings.shown)
    numbers = pa.array(first_row + 1 + np.arange(len(rankings)))
    table = pa.table({"session": numbers} | columns).take(pa.array(row))
    result_columns = {"rank": pa.array(rank + 1), "doc": doc, "click": click}
    return pa.table(dict(zip(table.column_names, table.columns, strict=True)) | result_columns)


def _ids(ids: Ids, numbers: np.ndarray) -> Any:
    """Look up raw ids by number; text as a dictionary of the used ids, which Parquet writes once."""
    import pyarrow as pa

    if ids.dtype.kind == "i":
        return pa.array(ids[numbers])
    used, index = distinct_sorted(numbers)
    return pa.DictionaryArray.from_arrays(pa.array(index, pa.int32()), pa.array(ids[used].astype(object), pa.string()))


def _writable_time(time: np.ndarray) -> np.ndarray:
    """Return times with a unit that pyarrow knows; DataError for values that are neither finite numbers nor dates."""
    if time.dtype.kind == "M":
        has_arrow_unit = np.datetime_data(time.dtype)[0] in {"D", "s", "ms", "us", "ns"}
        return time if has_arrow_unit else time.astype("datetime64[s]")
    if time.dtype.kind not in "iuf" or not np.isfinite(time).all():
        raise DataError(
            f"time must be finite numbers or datetimes to be written: got {time.dtype}. Convert it first.",
            code="bad-column",
            column="time",
            value=str(time.dtype),
        )
    return time


def _writable_user(user: np.ndarray) -> np.ndarray:
    """Return users as integers or Python strings; DataError for other types."""
    if user.dtype.kind in "iu":
        return user
    if user.dtype.kind in "UT" or all(isinstance(one, str) for one in user.tolist()):
        return user.astype(object)
    raise DataError(
        f"users must be integers or text to be written: got {user.dtype}. Convert them first.",
        code="bad-column",
        column="user",
        value=str(user.dtype),
    )


def _write_parquet(tables: Iterator[ArrowTable], path: Path) -> None:
    """Write Parquet, one row group per table."""
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
                    store_schema=False,  # readers see lists of text: pyarrow cannot join lists of dictionary items
                )
                stack.enter_context(writer)
            writer.write_table(table)


def _write_csv(tables: Iterator[ArrowTable], file: _Output, path: Path, delimiter: str) -> None:
    """Write text in quotation marks and numbers without, which distinguishes the id "7" from 7; lists as JSON."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as csv

    with ExitStack() as stack:
        writer = None
        for table in tables:
            columns = {}
            for name, column in zip(table.column_names, table.columns, strict=True):
                text = _json(column) if pa.types.is_list(column.type) else _decoded(column)
                if pa.types.is_string(text.type) and pc.any(pc.match_substring(text, "\0")).as_py():
                    raise DataError(
                        f"{path}: {name} ids hold a NUL character, which CSV cannot. Write .parquet or .jsonl.",
                        code="bad-column",
                        column=name,
                    )
                columns[name] = text
            text_table = pa.table(columns)
            if writer is None:
                writer = csv.CSVWriter(file, text_table.schema, write_options=csv.WriteOptions(delimiter=delimiter))
                stack.enter_context(writer)
            writer.write_table(text_table)


def _write_json(tables: Iterator[ArrowTable], file: _Output) -> None:
    """Write JSON lines, joined column by column."""
    import pyarrow.compute as pc

    for table in tables:
        pieces: list[Any] = []
        for name, column in zip(table.column_names, table.columns, strict=True):
            pieces += [f'{", " if pieces else "{"}"{name}": ', _json(column)]
        file.write("".join(pc.binary_join_element_wise(*pieces, "}\n", "").to_pylist()).encode())


def _decoded(column: Any) -> Any:
    """Return a column as one array, without dictionary encoding."""
    import pyarrow as pa

    array = column.combine_chunks()
    return array.cast(pa.string()) if pa.types.is_dictionary(array.type) else array


def _json(column: Any) -> Any:
    """Format values as JSON; each distinct id is escaped once, not once per result."""
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
