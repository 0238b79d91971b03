"""One number per (query, document) pair from a table, such as the scores of a ranker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clickshift.errors import FileError
from clickshift.io.qrels import Judgments, consistent_judgments
from clickshift.io.read_report import ReadReport, unreadable_lines_error
from clickshift.io.tables.formats import ColumnError, read_table
from clickshift.io.tables.layouts import id_column, number_column

_ID_COLUMNS = ("query", "doc")


def read_pair_values(path: str | Path, value: str = "score") -> Judgments:
    """Read one number per (query, document) pair from a table file.

    Parameters
    ----------
    path
        A table (Parquet, CSV or JSON lines) with the columns `query`, `doc` and `value`; other columns are ignored.
    value
        Name of the column with the numbers.

    Returns
    -------
    Judgments
        The numbers as labels; `Judgments.labels_for` looks up those of a log's pairs. Pairs with different values are
        left out and counted in a warning (code "skipped-input").

    Raises
    ------
    FileError
        "missing-column", "unreadable-line", "empty-file", "bad-column" or "missing-value".

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "scores.csv"
    ...     _ = file.write_text("query,doc,score\\ncats,a,0.5\\ncats,b,0.25\\n")
    ...     scores = read_pair_values(file)
    >>> scores.label.tolist()
    [0.5, 0.25]
    """
    path = Path(path)
    part = read_table(path, lambda names: _choose_columns(path, names, value))
    if part.unreadable:
        raise unreadable_lines_error(path, part.unreadable, "Fix or remove it.")
    if not part.table.num_rows:
        raise FileError(path, "has no rows. There must be at least one.", code="empty-file")
    try:
        query, doc = (id_column(name, [part.table[name]]) for name in _ID_COLUMNS)
        number = number_column(value, [part.table[value]])
    except ColumnError as error:
        raise FileError(path, f"column {error.name} {error.problem}.", code=error.code, column=error.name) from None
    for name, column in zip((*_ID_COLUMNS, value), (query, doc, number), strict=True):
        if column.bad.any():
            row, count = int(column.bad.argmax()) + 1, int(column.bad.sum())
            raise FileError(
                path,
                f"every row must have a {name}: row {row} has none ({count:,} such rows). Fix them.",
                code="missing-value",
                column=name,
                row=row,
                count=count,
            )
    report = ReadReport(path)
    judgments = consistent_judgments(query.ids(), doc.ids(), number.values.astype(np.float64), report)
    report.report()
    return judgments


def _choose_columns(path: Path, names: Sequence[str], value: str) -> dict[str, str]:
    """Choose the ids and the value; FileError if one of them is missing."""
    required = (*_ID_COLUMNS, value)
    if missing := [name for name in required if name not in names]:
        raise FileError(
            path,
            f"a table of {value}s must have the columns {', '.join(required)}: {' and '.join(missing)} not found; it "
            f"has {', '.join(names) or 'none'}. Rename or add them.",
            code="missing-column",
            columns=missing,
            known=list(names),
        )
    return {name: name for name in required}
