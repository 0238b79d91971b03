"""Write sessions as a table that `read_log` reads back: the same ids, lists, clicks, signals, and session columns."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from clickshift.core.files import write_atomically
from clickshift.data._arrow import Layout, arrow_tables, check_layout
from clickshift.data.encoded_log import Log
from clickshift.errors import DataError, SpecError
from clickshift.io.table_writer import ArrowTable, table_ending
from clickshift.io.tables.formats import LOG_ENDINGS

_Output = io.BufferedIOBase  # a plain file or a gzip file

_ROW_GROUP = 1 << 23  # results; large, because every row group has its own dictionary of ids
_TEXT_BLOCK = 1 << 20  # results whose text is held in memory
_DICTIONARY_BYTES = 1 << 28  # with Parquet's default of 1 MB, long ids would be written again and again


def check_different(files: Sequence[Path], *outputs: str | Path) -> None:
    """Check that outputs are different files, and none of those that are read: each would replace the other.

    Raises
    ------
    SpecError
        "same-file" if two of them are the same file.
    """
    for k, output in enumerate(map(Path, outputs)):
        for other in (*files, *map(Path, outputs[:k])):
            same = other.resolve() == output.resolve()
            if same or (other.exists() and output.exists() and other.samefile(output)):
                raise SpecError(
                    f"input and outputs must be different files: {output} is the same as {other}. Choose another file.",
                    code="same-file",
                    path=str(output),
                    other=str(other),
                )


def write_log(sessions: Log, path: str | Path, *, layout: Layout = "wide") -> None:
    """Write a click log as a table file, which appears complete or not at all.

    Parameters
    ----------
    sessions
        The log; an encoded one is written chunk by chunk. `count` is written if a row stands for several sessions, and
        `log_propensity` instead of `propensity` if a probability is too small for a floating-point number. Signals and
        segments have columns of their names; `read_log` reads them back with ``signals=[...]`` and
        ``segments=[...]``. A hole is a missing item of `docs`, or a rank without a row.
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
    >>> import numpy as np
    >>> from clickshift.data.sessions import Rankings, Sessions
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
    tables = arrow_tables(sessions, layout, _ROW_GROUP if file_ending == ".parquet" else _TEXT_BLOCK)
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
    file_ending = table_ending(path, LOG_ENDINGS, what="log")
    check_layout(layout)
    return file_ending


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
        text = pa.array(texts, pa.string()).take(array.indices)
    else:
        text = array.cast(pa.string())
        if pa.types.is_temporal(array.type):
            text = pc.binary_join_element_wise('"', text, '"', "")
    return pc.fill_null(text, "null") if array.null_count else text
