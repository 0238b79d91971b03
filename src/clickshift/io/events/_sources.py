"""Sources of events: files and data frames, recognised by their content, as tables of DuckDB.

A source is read as JSON documents (`documents`: formats whose events are nested) or as columns (`columns`). Nothing is
read before DuckDB scans it, except the first megabyte, by which the format is recognised.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from clickshift.core.files import open_bytes
from clickshift.errors import DataError, FileError
from clickshift.io.encode.duckdb import sql_name, sql_text
from clickshift.io.events._database import EventDatabase
from clickshift.io.frames import PLACE, read_frame
from clickshift.io.read_log import log_files
from clickshift.io.read_report import BadEvent
from clickshift.io.tables.columns import float_ids
from clickshift.io.tables.formats import parquet_errors

Kind = Literal["csv", "json-lines", "json-array", "json-object", "tagged-json", "parquet", "frame", "text"]

_HEAD_BYTES = 1 << 20
_SAMPLE = 200
_DELIMITERS = ",\t;|"
_BOM = b"\xef\xbb\xbf"
_LONGEST_OBJECT = 1 << 24  # of JSON lines, in bytes
_LONGEST_FILE = 1 << 30  # of a JSON file that is one object, in bytes
_OBJECT = "CASE WHEN left(json, 1) = '{' THEN json END"  # a value of JSON, if it is an object
_NAME = re.compile(r"\s*[A-Za-z_][\w .-]*")
_TAGGED = re.compile(r"[\w.-]+\t\{")
_ENDINGS = (".parquet", ".feather", ".arrow", ".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson", ".xml", ".gz")


@dataclass(frozen=True, eq=False)
class Source:
    """A file or a data frame with events.

    Parameters
    ----------
    path
        The file; for a data frame, a text that stands for it.
    kind
        How its content is written.
    names
        Names of its columns, or the keys of its first JSON objects.
    sample
        The first rows or JSON objects, by name.
    lines
        The first lines of a text file.
    delimiter
        Separator of the columns of a CSV file.
    gzip, rewritten
        Whether the file is compressed, and whether DuckDB must read a copy of it: without a byte order mark, and with
        the same end of all lines.
    table
        The data frame as an Arrow table.
    types
        Arrow types of the columns of Parquet files and data frames, by name.
    unnested
        Columns of lists of equal length, which are read as a row per item.
    """

    path: Path
    kind: Kind
    names: tuple[str, ...] = ()
    sample: tuple[dict[str, Any], ...] = ()
    lines: tuple[str, ...] = ()
    delimiter: str = ","
    gzip: bool = False
    rewritten: bool = False
    table: Any = None
    types: dict[str, Any] = field(default_factory=dict)
    unnested: frozenset[str] = frozenset()

    def documents(self, database: EventDatabase) -> str:
        """Return a relation of SQL with one column `doc` of JSON, NULL where a line is not JSON."""
        if self.kind in {"csv", "parquet", "frame"}:
            scan = self._scan(database, self.names)
            return f"(SELECT to_json(t) AS doc FROM {scan} AS t)"
        options = f"'{self.scanned_path(database)}', maximum_object_size = "
        if self.kind == "tagged-json":
            return (
                f"(SELECT try_cast(substr(line, strpos(line, chr(9)) + 1) AS JSON) AS doc FROM {self.text(database)})"
            )
        packed = ", compression = 'gzip'" if self.gzip and not self.rewritten else ""
        if self.kind == "json-lines":
            read = f"read_json_objects({options}{_LONGEST_OBJECT}, format = 'newline_delimited', ignore_errors = true"
            relation = f"(SELECT {_OBJECT} AS doc FROM {read}{packed}))"
        elif self.kind == "json-array":
            relation = (
                f"(SELECT {_OBJECT} AS doc FROM read_json_objects({options}{_LONGEST_OBJECT}, format = 'array'"
                f"{packed}))"
            )
        else:
            read = f"read_json_objects({options}{_LONGEST_FILE}, format = 'unstructured'{packed})"
            relation = f"(SELECT unnest(json_extract(json, '$.hits.hits[*]')) AS doc FROM {read})"
        if any("_source" in one for one in self.sample):
            return f"(SELECT coalesce(json_extract(doc, '$._source'), doc) AS doc FROM {relation})"
        return relation

    def columns(self, database: EventDatabase, names: Sequence[str], ids: Sequence[str] = ()) -> str:
        """Return a relation of SQL with columns, text unless they have a type, `readable` and `nested`.

        These say whether it is a row, and whether one of the ids is a list or an object. Names of nested values of JSON
        have dots.
        """
        if self.kind in {"csv", "parquet", "frame"}:
            return f"(SELECT *, true AS readable, false AS nested FROM {self._scan(database, names)})"
        paths = ", ".join(sql_text(self._json_path(name)) for name in names)
        values = ", ".join(f"v[{k}] AS {sql_name(name)}" for k, name in enumerate(names, 1))
        nested = " OR ".join(
            is_nested(f"v[{k}]", self._json_path(name)) for k, name in enumerate(names, 1) if name in ids
        )
        return (
            f"(SELECT {values}, doc IS NOT NULL AS readable, coalesce({nested or 'false'}, false) AS nested FROM "
            f"(SELECT doc, json_extract_string(doc, [{paths}]) AS v FROM {self.documents(database)}))"
        )

    def text(self, database: EventDatabase) -> str:
        """Return a relation of SQL with one column `line`: the lines of a text file.

        Raises
        ------
        FileError
            "unknown-format" for a data frame or a Parquet file.
        """
        if self.types:
            problem = f"the format is text: this is a table with columns {', '.join(self.names[:20])}."
            raise FileError(self.path, problem, code="unknown-format")
        packed = ", compression = 'gzip'" if self.gzip and not self.rewritten else ""
        return (
            f"read_csv('{self.scanned_path(database)}', columns = {{'line': 'VARCHAR'}}, delim = chr(28), quote = '', "
            f"escape = '', header = false, auto_detect = false, max_line_size = {_LONGEST_OBJECT}{packed})"
        )

    def _json_path(self, name: str) -> str:
        """Return the path of a key, or of a nested one."""
        parts = [name] if name in self.names else name.split(".")
        return "$" + "".join('."' + part.replace('"', '\\"') + '"' for part in parts)

    def _scan(self, database: EventDatabase, names: Sequence[str]) -> str:
        """Return a relation of SQL with columns of a table."""
        chosen = ", ".join(
            f"unnest({sql_name(name)}) AS {sql_name(name)}" if name in self.unnested else sql_name(name)
            for name in dict.fromkeys(names)
        )
        if self.kind == "frame":
            name = f"frame_{id(self)}"
            database.connection.register(name, self.table)
            return f"(SELECT {chosen} FROM {name})"
        if self.kind == "parquet":
            return f"(SELECT {chosen} FROM read_parquet({sql_text(self.path)}, hive_partitioning = false))"
        types = ", ".join(f"{sql_text(name)}: 'VARCHAR'" for name in self.names)
        packed = ", compression = 'gzip'" if self.gzip and not self.rewritten else ""
        return (
            f"(SELECT {chosen} FROM read_csv('{self.scanned_path(database)}', columns = {{{types}}}, header = true, "
            f"delim = {sql_text(self.delimiter)}, quote = '\"', escape = '\"', auto_detect = false, "
            f"store_rejects = true{packed}))"
        )

    def scanned_path(self, database: EventDatabase) -> str:
        """Return the quoted path that DuckDB reads: of a copy, if it cannot read the file itself."""
        path = self.path
        if self.rewritten:
            path = database.folder / f"text_{id(self)}"
            if not path.exists():
                with open_bytes(self.path) as file, path.open("wb") as copy:
                    copy.writelines(line.rstrip(b"\r\n") + b"\n" for line in file)
        return str(path).replace("'", "''")

    def unreadable(self, limit: int = 3) -> list[BadEvent]:
        """Return the first lines of a file of JSON that are not JSON objects."""
        found: list[BadEvent] = []
        if self.kind not in {"json-lines", "tagged-json"}:
            return found
        with open_bytes(self.path) as file:
            for number, line in enumerate(file, 1):
                text = line.decode().strip()
                if self.kind == "tagged-json":
                    text = text.partition("\t")[2]
                try:
                    if not text or isinstance(json.loads(text), dict):
                        continue
                except (ValueError, RecursionError):
                    pass
                found.append(BadEvent(self.path, number, text))
                if len(found) == limit:
                    break
        return found

    def locate(self, texts: Sequence[str]) -> dict[str, int]:
        """Return the lines of documents, or of lines, where the file has a line for each."""
        lines: dict[str, int] = {}
        if self.kind in {"json-lines", "tagged-json", "csv", "text"} and texts:
            with open_bytes(self.path) as file:
                for number, line in enumerate(file, 1):
                    text = line.decode().strip()
                    for wanted in texts:
                        if wanted not in lines and (wanted == text or (self.kind != "csv" and wanted in text)):
                            lines[wanted] = number
                    if len(lines) == len(set(texts)):
                        break
        return lines


def is_nested(text: str, path: str) -> str:
    """Return whether the value at a path of the JSON object `doc`, as text, is a list or an object, in SQL."""
    parsed = f"json_type(doc, {sql_text(path)}) IN ('ARRAY', 'OBJECT')"
    return f"CASE WHEN left({text}, 1) IN ('[', '{{') THEN {parsed} ELSE false END"  # parsed where it may be one


def check_types(source: Source, found: Mapping[str, str], ids: Sequence[str]) -> None:
    """Check that no column of ids, or of lists of ids, has floats, and that only columns of documents have lists.

    Parameters
    ----------
    source
        A table whose columns may have types.
    found
        The table's names of our columns.
    ids
        Our columns of ids.

    Raises
    ------
    FileError
        "float-ids" or "bad-id", with the column.
    """
    import pyarrow as pa

    for ours, name in found.items():
        kind = source.types.get(name)
        if kind is None:
            continue
        if ours in ids and source.sample and ("double" in str(kind) or "float" in str(kind)):
            problem = float_ids(name, str(kind))
            raise FileError(source.path, f"column {name} {problem}.", code=problem.code, column=name)
        inner = kind.value_type if ours == "docs" and is_list(kind) else kind
        if pa.types.is_nested(inner):
            raise FileError(
                source.path,
                f"column {name}, read as {ours}, must hold single values: got {kind}. Name a column of text or "
                f'numbers: columns={{"{ours}": "..."}}.',
                code="bad-id",
                column=name,
                value=str(kind),
            )


def is_list(kind: Any) -> bool:
    """Return whether an Arrow type is one of lists."""
    import pyarrow as pa

    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return kind is not None and any(test(kind) for test in tests)


def open_sources(source: Any) -> list[Source]:
    """Open files, folders, patterns and data frames, or a list of them, as sources.

    Raises
    ------
    FileError
        For a file that cannot be read ("file-not-found", "not-text", "empty-file", "damaged-file"), and those of
        `log_files`.
    DataError
        "no-files" for an empty list, "not-a-log" for another object.
    """
    parts = list(source) if isinstance(source, list | tuple) else [source]
    if not parts:
        raise DataError("there must be at least one source of events: got an empty list.", code="no-files")
    opened: list[Source] = []
    for part in parts:
        if isinstance(part, str | Path):
            opened += [open_file(path) for path in _files(part)]
        else:
            opened.append(_open_frame(part))
    return opened


def _files(path: str | Path) -> list[Path]:
    """Return the files of a path, a folder or a pattern."""
    folder = Path(path)
    if "://" in str(path) or not folder.is_dir():
        return log_files(path)
    files = sorted(
        file
        for file in folder.rglob("*")
        if file.is_file()
        and file.name.lower().endswith(_ENDINGS)
        and not any(name[0] in "._" for name in file.relative_to(folder).parts)
    )
    if not files:
        raise FileError(
            folder,
            f"the folder has no file of events (ending in {', '.join(_ENDINGS)}). Pass the folder that has one.",
            code="no-files",
            known=list(_ENDINGS),
        )
    return files


def _open_frame(frame: Any) -> Source:
    """Open a data frame."""
    table = read_frame(_with_text(frame), lambda names: {name: name for name in names}).table
    return _of_arrow(PLACE, "frame", table.schema, table=table, sample=_rows(table.slice(0, _SAMPLE)))


def _with_text(frame: Any) -> Any:
    """Return a pandas frame whose columns of several types, such as ids, are text; other frames as they are."""
    if type(frame).__module__.split(".")[0] != "pandas" or not hasattr(frame, "columns"):
        return frame
    import pyarrow as pa

    changed = {}
    if not frame.columns.is_unique:  # which is refused
        return frame
    for name in frame.columns:
        column = frame[name]
        if column.dtype == object:
            try:
                kind = pa.array(column, from_pandas=True).type
            except (pa.ArrowException, ValueError, OverflowError):
                kind = None
            # of times and numbers Arrow makes times, whatever the unit of the numbers
            if kind is None or (
                pa.types.is_temporal(kind) and column.map(lambda one: isinstance(one, int | float)).any()
            ):
                changed[name] = column.astype(str).where(column.notna(), None)
    return frame.assign(**changed) if changed else frame


def _of_arrow(path: Path, kind: Kind, schema: Any, **others: Any) -> Source:
    """Return a source with the columns of an Arrow schema."""
    return Source(path, kind, tuple(schema.names), types=dict(zip(schema.names, schema.types, strict=True)), **others)


def open_file(path: Path) -> Source:
    """Open a file; its content, not its name, says what it is.

    Raises
    ------
    FileError
        "file-not-found", "not-text", "empty-file" or "damaged-file".
    """
    start = _first_bytes(path)
    if start.startswith(b"PAR1"):
        return _open_parquet(path)
    if start.startswith(b"ARROW1"):
        import pyarrow.feather as feather

        with parquet_errors(path, "Feather"):
            table = feather.read_table(path)
            table.validate(full=True)
        return _of_arrow(path, "frame", table.schema, table=table, sample=_rows(table.slice(0, _SAMPLE)))
    with open_bytes(path) as file:
        head = file.read(_HEAD_BYTES)
    text = head.decode("utf-8", "ignore")
    if not text.strip():
        raise FileError(path, "is empty. Was it written to the end?", code="empty-file")
    complete = text if len(head) < _HEAD_BYTES else text[: text.rfind("\n") + 1] or text
    lines = tuple(complete.splitlines()[:_SAMPLE])
    packed = start.startswith(b"\x1f\x8b")
    facts: dict[str, Any] = {
        "lines": lines,
        "gzip": packed,
        "rewritten": _is_marked(path, start) or _has_mixed_ends(head),
    }
    first = text.lstrip()[0]
    if first == "<":
        return Source(path, "text", **facts)
    if first == "{" or _TAGGED.match(lines[0]):
        return _open_json(path, text, facts, tagged=first != "{")
    if first == "[" and not lines[0].lstrip().startswith("[Timestamp"):
        sample = _array_head(text)
        return Source(path, "json-array", _keys(sample), sample, **facts)
    delimiter, header = _header(lines[0])
    if delimiter not in lines[0] or len(set(header)) < len(header) or not all(name.strip() for name in header):
        return Source(path, "text", **facts)
    rows = csv.reader(lines[1:], delimiter=delimiter)
    sample = tuple(dict(zip(header, row, strict=False)) for row in rows)
    return Source(path, "csv", tuple(header), sample, delimiter=delimiter, **facts)


def _rows(table: Any) -> tuple[dict[str, Any], ...]:
    """Return the rows of an Arrow table, by name; columns that Python cannot hold, such as late dates, are left out."""
    values: dict[str, list[Any]] = {}
    for name, column in zip(table.schema.names, table.columns, strict=True):
        with suppress(ValueError, ArithmeticError):
            values[name] = column.to_pylist()
    return tuple(dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True))


def _header(line: str) -> tuple[str, list[str]]:
    """Return the separator of a table, and the names in its first line."""
    delimiter = max(_DELIMITERS, key=line.count)
    names = next(csv.reader([line], delimiter=delimiter))
    named = [name for name in names if name.strip()]
    if 2 <= len(named) < len(names) and all(map(_NAME.fullmatch, named)):  # an index without a name, a last separator
        names = [name if name.strip() else f"column {k}" for k, name in enumerate(names, 1)]
    return delimiter, names


def repeated_names(source: Source) -> list[str]:
    """Return the names that the first line of a text has more than once, if all of them may be names of columns."""
    _, header = _header(source.lines[0])
    if len(header) < 3 or not all(map(_NAME.fullmatch, header)):
        return []
    return sorted({name for name in header if header.count(name) > 1})


def _open_parquet(path: Path) -> Source:
    """Open a Parquet file."""
    import pyarrow.parquet as pq

    with parquet_errors(path), pq.ParquetFile(path) as file:
        batch = next(file.iter_batches(_SAMPLE), None)
        sample = () if batch is None else _rows(batch)
        return _of_arrow(path, "parquet", file.schema_arrow, sample=sample)


def _open_json(path: Path, text: str, facts: dict[str, Any], *, tagged: bool) -> Source:
    """Open a file of JSON objects: one per line, one per line after a tag, or one object that holds all hits."""
    sample: list[dict[str, Any]] = []
    for line in facts["lines"]:
        body = line.partition("\t")[2] if tagged else line
        try:
            one = json.loads(body)
        except (ValueError, RecursionError):
            continue
        if isinstance(one, dict):
            sample.append(one.get("_source", one) if "_source" not in one else one)
    whole = not tagged and (not sample or "hits" in sample[0])
    if whole and re.match(r'\s*\{.*?"hits"\s*:\s*\{', text, re.DOTALL):
        found = re.search(r'"_source"\s*:\s*(?=\{)', text)
        hit = {}
        if found:
            try:
                hit = json.JSONDecoder().raw_decode(text, found.end())[0]
            except ValueError:
                hit = {}
        return Source(path, "json-object", tuple(hit), ({"_source": hit},), **facts)
    if not sample:
        body = facts["lines"][0]
        raise FileError(
            path,
            f"a line must be a JSON object: got {body[:80]!r}. Write one object per line, or a list of objects.",
            line=1,
            code="damaged-file",
            format="JSON",
        )
    inner = [one.get("_source", one) for one in sample]
    return Source(path, "tagged-json" if tagged else "json-lines", _keys(inner), tuple(sample), **facts)


def _array_head(text: str) -> tuple[dict[str, Any], ...]:
    """Return the first objects of a JSON array."""
    decoder, position, found = json.JSONDecoder(), text.index("[") + 1, list[dict[str, Any]]()
    while len(found) < _SAMPLE:
        position = len(text) - len(text[position:].lstrip(" \t\r\n,"))
        try:
            one, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            break
        if isinstance(one, dict):
            found.append(one)
    return tuple(found)


def _keys(sample: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Return the keys of JSON objects, in order."""
    return tuple(dict.fromkeys(key for one in sample for key in one.get("_source", one)))


def _first_bytes(path: Path) -> bytes:
    """Return the first bytes of a file as it is stored."""
    if not path.is_file():
        with open_bytes(path) as file:  # raises what is wrong
            file.read(1)
    with path.open("rb") as stored:
        return stored.read(8)


def _has_mixed_ends(head: bytes) -> bool:
    """Return whether some lines of a text end in a line feed alone, and others in two characters."""
    return 0 < head.count(b"\r\n") < head.count(b"\n")


def _is_marked(path: Path, start: bytes) -> bool:
    """Return whether a text file begins with a byte order mark."""
    if not start.startswith(b"\x1f\x8b"):
        return start.startswith(_BOM)
    import gzip

    with gzip.open(path) as file:
        return file.read(3) == _BOM
