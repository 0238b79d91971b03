"""Export of graded judgments: tables, TREC qrels, and training labels for LightGBM's rankers."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.core.files import write_atomically
from clickshift.errors import ClickshiftWarning, DataError, FileError, SpecError
from clickshift.io.table_writer import table_ending, write_table

JUDGMENT_FORMATS = ("parquet", "csv", "qrels", "lightgbm")
"""Formats that `write_judgments` writes."""
_FORMAT_BY_ENDING = {".parquet": "parquet", ".csv": "csv", ".qrels": "qrels"}


def judgments_format(path: str | Path, format: str | None = None) -> str:
    """Choose the format of a file of judgments, and check that it can be written, before a long computation.

    Parameters
    ----------
    path
        File to write.
    format
        One of `JUDGMENT_FORMATS`; None to choose by the ending of the path.

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
    'qrels'
    """
    path = Path(path)
    ending = path.suffix.lower()
    format = _FORMAT_BY_ENDING.get(ending) if format is None else format
    if format not in JUDGMENT_FORMATS:
        got = f"got {format!r}" if format else f"the ending of {path} does not determine it"
        raise SpecError(
            f"the format of judgments must be one of {', '.join(JUDGMENT_FORMATS)}: {got}. Choose one of them: "
            'format="qrels".',
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
    if format == "lightgbm":
        table_ending(path, (".csv", ".parquet"))
    if path.is_dir():
        raise FileError(
            path, "is a folder, but judgments are written to a file. Name a file in it.", code="is-a-folder"
        )
    return format


def write_judgments(table: Any, path: str | Path, *, format: str, notes: dict[str, Any] | None = None) -> list[Path]:
    """Write graded judgments to a file. Files appear complete or not at all.

    Parameters
    ----------
    table
        The table of `GradedJudgments`, ordered by query.
    path
        File to write.
    format
        - "parquet", "csv": the columns query, doc, relevance, low, high, support, impressions, clicks and grade.
        - "qrels": lines `query 0 doc grade`.
        - "lightgbm": a table of query, doc, grade and weight to join features to, ordered by query, and beside it
          `PATH.query` with the number of rows of each query, which is LightGBM's `group`.
    notes
        Metadata that Parquet keeps.

    Returns
    -------
    list of Path
        The files that were written.

    Raises
    ------
    SpecError, FileError
        If the path or format is not valid: see `judgments_format`.
    DataError
        If an id cannot be written to a qrels file ("bad-id").
    """
    path, format = Path(path), judgments_format(path, format)
    if format == "qrels":
        _write_qrels(table, path)
        return [path]
    if format == "lightgbm":
        if np.isnan(table["low"].to_numpy()).all():
            warnings.warn(
                ClickshiftWarning("the model has no standard errors, so every weight is 1.", code="no-standard-errors"),
                stacklevel=2,
            )
        groups = path.with_name(f"{path.name}.query")
        with write_atomically(groups) as temporary:
            sizes = table["query"].value_counts().field("counts").to_pylist()
            temporary.write_text("".join(f"{size}\n" for size in sizes), encoding="ascii")
            write_table(table.select(["query", "doc", "grade", "weight"]), path, notes=notes)
        return [path, groups]
    write_table(table.drop_columns(["weight"]), path, notes=notes)
    return [path]


def _write_qrels(table: Any, path: Path) -> None:
    """Write judgments as TREC qrels."""
    import pyarrow as pa
    import pyarrow.compute as pc

    query, doc, grade = (table[name].cast(pa.string()) for name in ("query", "doc", "grade"))
    for name, column in (("query", query), ("document", doc)):
        bad = [text for text in column.unique().to_pylist() if text.split() != [text]]
        if bad:
            raise DataError(
                f"ids in a qrels file must not be empty or contain white space: got the {name} id {bad[0]!r} "
                f"({len(bad):,} such ids). Use other ids in the log, or write parquet or csv.",
                code="bad-id",
                kind=name,
                value=bad[0],
                count=len(bad),
            )
    lines = pc.binary_join_element_wise(query, "0", doc, grade, " ").to_pylist()
    with write_atomically(path) as temporary:
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
