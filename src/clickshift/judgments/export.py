"""Graded judgments as files: tables, TREC qrels, and what LightGBM's rankers train on."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.core.files import write_atomically
from clickshift.errors import ClickshiftWarning, DataError, FileError, SpecError
from clickshift.io.table_writer import table_ending, write_table
from clickshift.judgments.grading import Grading

JUDGMENT_FORMATS = ("parquet", "csv", "qrels", "lightgbm")
_BY_ENDING = {".parquet": "parquet", ".csv": "csv", ".qrels": "qrels"}


def judgments_format(path: str | Path, format: str | None = None) -> str:
    """The format of a file of judgments, told or by its ending: ask before the work whose result is to be written."""
    path = Path(path)
    ending = path.suffix.lower()
    format = _BY_ENDING.get(ending) if format is None else format
    if format not in JUDGMENT_FORMATS:
        got = f"got {format!r}" if format else f"{path} does not tell"
        raise SpecError(
            f"the format of judgments must be one of {', '.join(JUDGMENT_FORMATS)}: {got}. Choose one with --format."
        )
    if format in {"parquet", "csv"} and ending != f".{format}":
        raise FileError(path, f"the ending of a {format} file must be .{format}. Rename it, or choose another format.")
    if format == "lightgbm":
        table_ending(path, (".csv", ".parquet"))
    if path.is_dir():
        raise FileError(path, "is a folder, where judgments are to be written. Name a file in it.")
    return format


def write_judgments(
    grading: Grading, path: str | Path, *, format: str, notes: dict[str, Any] | None = None
) -> list[Path]:
    """Write judgments, and tell which files there are now. They appear complete or not at all.

    parquet, csv: query, doc, relevance, low, high, impressions, clicks, grade.
    qrels: `query 0 doc grade`. lightgbm: a table of query, doc, grade, weight to join features to, ordered by query,
    and beside it `PATH.query` with the number of rows of each query, LightGBM's `group`.
    Parquet keeps the cut points and `notes` as metadata.
    """
    path, format = Path(path), judgments_format(path, format)
    told = {"cut_points": list(grading.cuts), **(notes or {})}
    if format == "qrels":
        _write_qrels(grading.table, path)
        return [path]
    if format == "lightgbm":
        if np.isnan(grading.table["low"].to_numpy()).all():
            warnings.warn("the model has no errors, so that every weight is 1.", ClickshiftWarning, stacklevel=2)
        groups = path.with_name(f"{path.name}.query")
        with write_atomically(groups) as temporary:
            temporary.write_text("".join(f"{size}\n" for size in grading.group_sizes.tolist()), encoding="ascii")
            write_table(grading.table.select(["query", "doc", "grade", "weight"]), path, notes=told)
        return [path, groups]
    write_table(grading.table.drop_columns(["weight"]), path, notes=told)
    return [path]


def _write_qrels(table: Any, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    query, doc, grade = (table[name].cast(pa.string()) for name in ("query", "doc", "grade"))
    for name, column in (("query", query), ("document", doc)):
        bad = [text for text in column.unique().to_pylist() if text.split() != [text]]
        if bad:
            raise DataError(
                f"ids in a qrels file must have no white space and not be empty: got the {name} id {bad[0]!r} "
                f"({len(bad):,} such ids). Use other ids in the log, or write parquet or csv."
            )
    lines = pc.binary_join_element_wise(query, "0", doc, grade, " ").to_pylist()
    with write_atomically(path) as temporary:
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
