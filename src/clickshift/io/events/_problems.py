"""Events that break a format: which they are, and in which lines of their files."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence

from clickshift.core.files import open_bytes
from clickshift.io.encode.duckdb import sql_text, sql_texts
from clickshift.io.events._database import EventDatabase
from clickshift.io.events._sources import Source
from clickshift.io.read_report import BadEvent


def report_problems(
    database: EventDatabase,
    sources: Sequence[Source],
    rules: Mapping[str, tuple[str, str]],
    *,
    all_rows: bool = False,
    shown_values: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Report the documents that break the format, with the lines of the first ones, and drop them.

    Parameters
    ----------
    database
        Database with the table `raw`: the columns file, problem and got, the text of a document with a problem.
    sources
        The sources, by the number of the file.
    rules
        For each problem, what every document must be, and the code.
    all_rows
        Whether `raw` has a row for each one of the sources, so that the place of a row tells its number.
    shown_values
        Paths of the values of JSON documents to show instead of the document, by problem; the first one that it has.
    """
    for problem, file, count in database.rows(
        "SELECT problem, file, count(*) FROM raw WHERE problem IS NOT NULL GROUP BY ALL ORDER BY file, min(rowid)"
    ):
        rule, code = rules[problem]
        examples = sources[file].unreadable() if problem == "bad-json" else []
        if not examples:
            where = f"problem = '{problem}' AND file = {file}"
            first = f"(SELECT min(rowid) FROM raw WHERE file = {file})"
            paths = (shown_values or {}).get(problem, ())
            blamed = f"coalesce(NULL, {', '.join(f'got->>{sql_text(path)}' for path in paths)})" if paths else "NULL"
            found = database.rows(
                f"SELECT got, rowid - {first} + 1, {blamed} FROM raw WHERE {where} ORDER BY rowid LIMIT 3"
            )
            if all_rows:
                examples = [located(database, sources[file], int(row), str(text)) for text, row, _ in found]
            else:
                examples = _located_documents(database, sources[file], [str(text or "") for text, *_ in found])
                examples = [
                    one if value is None else one._replace(got=str(value))
                    for one, (*_, value) in zip(examples, found, strict=True)
                ]
        database.report.bad_events(count, rule, code, examples)
    database.execute("DELETE FROM raw WHERE problem IS NOT NULL")


def located(database: EventDatabase, source: Source, row: int, got: str) -> BadEvent:
    """Return a row of a table with its line, or its row where a file has no lines."""
    line = row if source.kind in {"json-lines", "tagged-json"} else None
    if source.kind == "csv":
        line = _line_of_row(database, source, row)
    return BadEvent(source.path, line, got, "" if line else f"row {row}")


def _located_documents(database: EventDatabase, source: Source, texts: Sequence[str]) -> list[BadEvent]:
    """Return documents with their lines, or their rows."""
    lines = source.locate(texts)
    if source.kind == "text" or len(lines) == len(set(texts)):
        return [BadEvent(source.path, lines.get(text), text) for text in texts]
    rows = database.rows(
        f"""SELECT text, min(row) FROM (
        SELECT CAST(doc AS VARCHAR) AS text, row_number() OVER () AS row FROM {source.documents(database)})
        WHERE text IN ({sql_texts(texts)[1:-1]}) GROUP BY text"""
    )
    found = {text: located(database, source, int(row), text) for text, row in rows}
    return [found.get(text, BadEvent(source.path, lines.get(text), text)) for text in texts]


def check_rejected(database: EventDatabase, sources: Sequence[Source]) -> None:
    """Report the rows of CSV files that have too few or too many values, once they were read."""
    for source in sources:
        rows = _rejected_rows(database, source)
        texts = [text.strip() for _, text in rows[:3]]
        lines = source.locate([text.partition("\n")[0] for text in texts])
        rule = f"a row must have {len(source.names)} values as the header"
        examples = [
            BadEvent(source.path, lines.get(text.partition("\n")[0], line), text)
            for (line, _), text in zip(rows[:3], texts, strict=True)
        ]
        database.report.bad_events(len(rows), rule, "unreadable-line", examples)


def _rejected_rows(database: EventDatabase, source: Source) -> list[tuple[int, str]]:
    """Return the rows of a CSV file that DuckDB could not read, in order: about their lines, and texts."""
    exists = "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'reject_errors'"
    if source.kind != "csv" or not database.number(exists):
        return []
    return [
        (int(line), str(text))
        for line, text in database.rows(
            "SELECT line, any_value(csv_line) FROM reject_errors JOIN reject_scans USING (scan_id, file_id) "
            f"WHERE file_path = '{source.scanned_path(database)}' GROUP BY line ORDER BY line"
        )
    ]


def _line_of_row(database: EventDatabase, source: Source, row: int) -> int | None:
    """Return the line in which a row of a CSV file begins: lines may be blank, and values may have several."""
    rejected = {text.strip() for _, text in _rejected_rows(database, source)}
    own: list[str] = []

    def lines() -> Iterator[str]:
        with open_bytes(source.path) as file:
            for line in file:
                own.append(line.decode())
                yield own[-1]

    reader, before, found = csv.reader(lines(), delimiter=source.delimiter), 0, -1  # the header is no row
    try:
        for values in reader:
            found += len(values) == len(source.names) and "".join(own).strip() not in rejected
            if found == row:
                return before + 1
            before = reader.line_num
            own.clear()
    except csv.Error:  # a value that is too long for it
        pass
    return None
