"""Export of graded judgments: tables, and the judgment files of search engines, evaluation tools and learners."""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.core.files import write_atomically
from clickshift.errors import ClickshiftWarning, DataError, FileError, SpecError
from clickshift.io.table_writer import table_ending, write_table

_FORMAT_BY_ENDING = {".parquet": "parquet", ".csv": "csv", ".qrels": "trec"}
_FORMER_NAMES = {"qrels": "trec"}
_Notes = Mapping[str, Any]


def judgments_format(path: str | Path, format: str | None = None) -> str:
    """Choose the format of a file of judgments, and check that it can be written, before a long computation.

    Parameters
    ----------
    path
        File to write.
    format
        One of `JUDGMENT_FORMATS`; None to choose by the ending of the path. "qrels" is another name of "trec".

    Returns
    -------
    str
        The format.

    Raises
    ------
    SpecError
        If the format is unknown ("unknown-format").
    FileError
        If the ending does not fit the format ("wrong-ending") or the path is a folder ("is-a-folder").

    Examples
    --------
    >>> judgments_format("judgments.qrels")
    'trec'
    """
    path = Path(path)
    ending = path.suffix.lower()
    format = _FORMAT_BY_ENDING.get(ending) if format is None else _FORMER_NAMES.get(format, format)
    if format not in _FORMATS:
        got = f"got {format!r}" if format else f"the ending of {path} does not determine it"
        raise SpecError(
            f"the format of judgments must be one of {', '.join(JUDGMENT_FORMATS)}: {got}. Choose one of them: "
            'format="trec".',
            code="unknown-format",
            value=format,
            known=list(JUDGMENT_FORMATS),
        )
    if format in {"parquet", "csv"} and ending != f".{format}":
        raise FileError(
            path,
            f"the ending of a {format} file must be .{format}. Rename it, or choose another format.",
            code="wrong-ending",
            value=ending,
        )
    if _FORMATS[format].is_table:
        table_ending(path, (".csv", ".parquet"))
    if path.is_dir():
        raise FileError(
            path, "is a folder, but judgments are written to a file. Name a file in it.", code="is-a-folder"
        )
    return format


def write_judgments(table: Any, path: str | Path, *, format: str, notes: _Notes | None = None) -> list[Path]:
    """Write graded judgments to a file. Files appear complete or not at all.

    Parameters
    ----------
    table
        The table of `GradedJudgments`, ordered by query.
    path
        File to write.
    format
        - "parquet", "csv": all columns of the result but the weight: estimates, evidence and grade.
        - "trec": lines `query 0 doc grade` (qrels). White space separates columns there: if an id contains any, all
          queries (or documents) are numbered from 1, and `PATH.queries.csv` (`PATH.docs.csv`) has the number of each.
        - "opensearch": JSON to import into the Search Relevance Workbench.
        - "quepid": CSV of query, docid and rating. "quepid-rre": JSON of Quepid's own RRE import.
        - "rre": JSON ratings of the Rated Ranking Evaluator, without documents of grade 0, which are not relevant; a
          query group per query. The name of the file stands for the index, `template.json` for the query template.
        - "ltr": lines `grade qid:1 # doc query` of RankLib and Quepid, with queries numbered from 1.
        - "ranx": JSON of queries, documents and grades, for ranx, ir_measures and pytrec_eval.
        - "lightgbm": a table of query, doc, grade and weight to join features to, ordered by query, and beside it
          `PATH.query` with the number of rows of each query, which is LightGBM's `group`.
        - "xgboost": a table of qid (from 1), query, doc and grade: XGBoost weights queries, not documents.
    notes
        Model, cut points and other metadata, which Parquet and OpenSearch's description keep.

    Returns
    -------
    list of Path
        The files that were written, the named one first.

    Raises
    ------
    SpecError, FileError
        If the path or format is not valid: see `judgments_format`.
    DataError
        If an id cannot be written in this format ("bad-id").

    Warns
    -----
    ClickshiftWarning
        "empty-query" if queries without a text are left out of a file that knows queries by their text.
    """
    import pyarrow as pa

    path = Path(path)
    chosen = _FORMATS[judgments_format(path, format)]
    if chosen.by_text and pa.types.is_integer(table["query"].type):
        warnings.warn(
            ClickshiftWarning(
                f"queries must be given by their text in a file for {format}, but these are numbers: "
                f"{table['query'][0]} for one. Pass a table of their texts as query_text.",
                code="queries-without-texts",
                value=str(table["query"][0]),
            ),
            stacklevel=2,
        )
    if chosen.by_text:
        table = _without_empty_queries(table, format)
    return chosen.write(table, path, notes or {})


def _without_empty_queries(table: Any, format: str) -> Any:
    """Leave out the rows of queries whose text is empty, such as those of pages without a search, with a warning."""
    import pyarrow.compute as pc

    kept = pc.not_equal(pc.utf8_trim_whitespace(_texts(table, "query")), "")
    left_out = len(table) - pc.sum(kept).as_py()
    if left_out in {0, len(table)}:
        return table
    warnings.warn(
        ClickshiftWarning(
            f"{left_out:,} of {len(table):,} judgments are left out of the file for {format}, because the text of "
            "their query is empty. Parquet and CSV files keep them.",
            code="empty-query",
            count=left_out,
        ),
        stacklevel=3,
    )
    return table.filter(kept)


def _write_all_columns(table: Any, path: Path, notes: _Notes) -> list[Path]:
    """Write estimates, evidence and grades as a table."""
    write_table(table.drop_columns(["weight"]), path, notes=notes)
    return [path]


def _write_lightgbm(table: Any, path: Path, notes: _Notes) -> list[Path]:
    """Write grades and weights as a table, and beside it the number of rows of each query."""
    if np.isnan(table["low"].to_numpy()).all():
        warnings.warn(
            ClickshiftWarning("the model has no standard errors, so every weight is 1.", code="no-standard-errors"),
            stacklevel=3,
        )
    groups = path.with_name(f"{path.name}.query")
    with write_atomically(groups) as temporary:
        temporary.write_text("".join(f"{size}\n" for size in _group_sizes(table)), encoding="ascii")
        write_table(table.select(["query", "doc", "grade", "weight"]), path, notes=notes)
    return [path, groups]


def _write_xgboost(table: Any, path: Path, notes: _Notes) -> list[Path]:
    """Write grades as a table with numbered queries."""
    import pyarrow as pa

    grades = table.select(["query", "doc", "grade"])
    write_table(grades.add_column(0, "qid", pa.array(_query_numbers(table))), path, notes=notes)
    return [path]


def _write_trec(table: Any, path: Path, _: _Notes) -> list[Path]:
    """Write TREC qrels; ids with white space are numbered, and a file beside it has the number of each."""
    import pyarrow.compute as pc

    keys, columns = [], []
    for name, plural in (("query", "queries"), ("doc", "docs")):
        column = _texts(table, name)
        if any(text.split() != [text] for text in column.unique().to_pylist()):
            encoded = column.combine_chunks().dictionary_encode()
            keys.append((path.with_name(f"{path.name}.{plural}.csv"), name, encoded.dictionary.to_pylist()))
            column = pc.add(encoded.indices, 1).cast("string")
        columns.append(column)
    for file, name, ids in keys:
        _write_csv(file, ("number", name), enumerate(ids, start=1))
    lines = pc.binary_join_element_wise(columns[0], "0", columns[1], _texts(table, "grade"), " ").to_pylist()
    _write_lines(path, lines)
    return [path, *(file for file, _, _ in keys)]


def _write_ltr(table: Any, path: Path, _: _Notes) -> list[Path]:
    """Write a line of grade, query number, document and query per judgment."""
    import pyarrow as pa
    import pyarrow.compute as pc

    _check_ids(table, "ltr", lambda text: len(text.splitlines()) == 1 and text.strip() == text)
    doc = _texts(table, "doc")
    if bad := [text for text in doc.unique().to_pylist() if text.split() != [text]]:
        raise _bad_id("document", bad, "a document id must not contain white space in a file for ltr")
    qid = pc.binary_join_element_wise("qid", pa.array(_query_numbers(table)).cast(pa.string()), ":")
    columns = (_texts(table, "grade"), qid, "#", doc, _texts(table, "query"))
    _write_lines(path, pc.binary_join_element_wise(*columns, " ").to_pylist())
    return [path]


def _write_quepid(table: Any, path: Path, _: _Notes) -> list[Path]:
    """Write Quepid's CSV of ratings."""
    _check_ids(table, "quepid")
    rows = zip(*(_texts(table, name).to_pylist() for name in ("query", "doc", "grade")), strict=True)
    _write_csv(path, ("query", "docid", "rating"), rows)
    return [path]


def _write_opensearch(table: Any, path: Path, notes: _Notes) -> list[Path]:
    """Write the body of OpenSearch's import of judgments: its ratings are numbers as text."""
    _check_ids(table, "opensearch")
    described = ", ".join(f"{name.replace('_', ' ')} {_one_line(value)}" for name, value in notes.items())
    head = {"name": path.stem, "description": f"clickshift: {described}", "type": "IMPORT_JUDGMENT"}
    ratings = (
        {"query": query, "ratings": [{"docId": doc, "rating": f"{grade:.3f}"} for doc, grade in graded]}
        for query, graded in _by_query(table)
    )
    _write_json_list(path, head, "judgmentRatings", ratings)
    return [path]


def _write_quepid_rre(table: Any, path: Path, _: _Notes) -> list[Path]:
    """Write RRE ratings as Quepid imports them: queries with their documents by gain."""
    _check_ids(table, "quepid-rre")
    queries = (
        {"placeholders": {"$query": query}, "relevant_documents": _by_gain(graded)}
        for query, graded in _by_query(table)
    )
    _write_json_list(path, {"id_field": "id", "index": path.stem}, "queries", queries)
    return [path]


def _by_gain(graded: list[tuple[str, int]]) -> dict[str, list[str]]:
    """Return the documents of each grade, the highest one first."""
    gains = sorted({grade for _, grade in graded}, reverse=True)
    return {str(gain): [doc for doc, grade in graded if grade == gain] for gain in gains}


def _write_rre(table: Any, path: Path, _: _Notes) -> list[Path]:
    """Write ratings of the Rated Ranking Evaluator: a group per query, since RRE takes documents from groups."""
    _check_ids(table, "rre")
    groups = (
        {
            "name": query,
            "queries": [{"template": "template.json", "placeholders": {"$query": query}}],
            "relevant_documents": {doc: {"gain": grade} for doc, grade in graded if grade > 0},
        }
        for query, graded in _by_query(table)
    )
    _write_json_list(path, {"id_field": "id", "index": path.stem}, "query_groups", groups)
    return [path]


def _write_ranx(table: Any, path: Path, _: _Notes) -> list[Path]:
    """Write a JSON object of queries, each with the grades of its documents."""
    with write_atomically(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for number, (query, graded) in enumerate(_by_query(table)):
            text = f"{json.dumps(query, ensure_ascii=False)}: {json.dumps(dict(graded), ensure_ascii=False)}"
            file.write(f"{',' if number else '{'}\n{text}")
        file.write("\n}\n")
    return [path]


@dataclass(frozen=True)
class _Format:
    """A format of judgments: how it is written, whether as a table, and whether it knows queries by text only."""

    write: Callable[[Any, Path, _Notes], list[Path]]
    is_table: bool = False
    by_text: bool = False


_FORMATS = {
    "parquet": _Format(_write_all_columns),
    "csv": _Format(_write_all_columns),
    "trec": _Format(_write_trec),
    "opensearch": _Format(_write_opensearch, by_text=True),
    "quepid": _Format(_write_quepid, by_text=True),
    "quepid-rre": _Format(_write_quepid_rre, by_text=True),
    "rre": _Format(_write_rre, by_text=True),
    "ltr": _Format(_write_ltr, by_text=True),
    "ranx": _Format(_write_ranx),
    "lightgbm": _Format(_write_lightgbm, is_table=True),
    "xgboost": _Format(_write_xgboost, is_table=True),
}
JUDGMENT_FORMATS = tuple(_FORMATS)
"""Formats that `write_judgments` writes."""


def _texts(table: Any, name: str) -> Any:
    """Return a column as text."""
    return table[name].cast("string")


def _group_sizes(table: Any) -> list[int]:
    """Return the number of rows of each query, in the order of the table."""
    sizes: list[int] = table["query"].value_counts().field("counts").to_pylist()
    return sizes


def _query_numbers(table: Any) -> np.ndarray:
    """Return the number of each row's query, from 1."""
    sizes = _group_sizes(table)
    return np.repeat(np.arange(1, len(sizes) + 1), sizes)


def _by_query(table: Any) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Yield each query with its documents and grades."""
    query, doc = _texts(table, "query"), _texts(table, "doc")
    first = 0
    for size in _group_sizes(table):
        grades = table["grade"].slice(first, size).to_pylist()
        yield query[first].as_py(), list(zip(doc.slice(first, size).to_pylist(), grades, strict=True))
        first += size


def _check_ids(table: Any, format: str, is_valid: Callable[[str], bool] = bool) -> None:
    """Raise a `DataError` unless every query and document has a text that the format can hold."""
    for name, kind in (("query", "query"), ("doc", "document")):
        if bad := [text for text in _texts(table, name).unique().to_pylist() if not text.strip() or not is_valid(text)]:
            raise _bad_id(kind, bad, f"the text of a query or document must be one line, and not empty, for {format}")


def _bad_id(kind: str, bad: list[str], rule: str) -> DataError:
    """Return the error for ids that a format cannot hold."""
    return DataError(
        f"{rule}: got the {kind} {bad[0]!r} ({len(bad):,} such ids). Change them in the log, or write parquet or csv.",
        code="bad-id",
        kind=kind,
        value=bad[0],
        count=len(bad),
    )


def _one_line(value: Any) -> str:
    """Return a value as one line of text."""
    return ", ".join(map(str, value)) if isinstance(value, list) else " ".join(str(value).split())


def _write_lines(path: Path, lines: list[str]) -> None:
    """Write lines of text."""
    with write_atomically(path) as temporary:
        temporary.write_bytes("".join(f"{line}\n" for line in lines).encode())


def _write_csv(path: Path, header: tuple[str, ...], rows: Any) -> None:
    """Write a CSV file."""
    with write_atomically(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def _write_json_list(path: Path, head: _Notes, name: str, items: Iterator[Any]) -> None:
    """Write a JSON object whose last value is a long list, with one item per line."""
    start = json.dumps(dict(head), ensure_ascii=False)[:-1]  # without the closing brace
    with write_atomically(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write(f'{start}, "{name}": [')
        for number, item in enumerate(items):
            file.write(f"{',' if number else ''}\n{json.dumps(item, ensure_ascii=False)}")
        file.write("\n]}\n")
