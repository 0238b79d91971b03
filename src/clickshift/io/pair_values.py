"""One number per (query, document) pair from a table, such as the scores of a ranker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float

from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import FileError
from clickshift.io.frames import read_source
from clickshift.io.qrels import consistent_pairs
from clickshift.io.read_report import ReadReport, unreadable_lines_error
from clickshift.io.tables.columns import Column, id_column, number_column
from clickshift.io.tables.formats import ColumnError, TableFile

_ID_COLUMNS = ("query", "doc")


@final
@dataclass(frozen=True, eq=False)
class PairValues:
    """One number per (query, document) pair, such as the score that a ranker gives it.

    Parameters
    ----------
    vocabulary
        The pairs that have a number.
    value
        The number of each pair.

    Examples
    --------
    >>> scores = PairValues(Vocabulary.of(["cats", "cats"], [7, 12])[0], np.array([0.5, 0.25]))
    >>> scores.values_for(Vocabulary.of(["cats", "dogs"], [12, 12])[0]).tolist()
    [0.25, nan]
    """

    vocabulary: Vocabulary
    value: Float[np.ndarray, " pair"]

    def __len__(self) -> int:
        return len(self.value)

    def values_for(self, vocabulary: Vocabulary) -> Float[np.ndarray, " pair"]:
        """Return the number of every pair of another vocabulary, NaN for pairs without one."""
        values = np.full(vocabulary.n_pairs, np.nan)
        pair = vocabulary.pairs_of(self.vocabulary)
        values[pair[pair != UNSEEN]] = self.value[pair != UNSEEN]
        return values


def read_pair_values(source: str | Path | Any, value: str = "score") -> PairValues:
    """Read one number per (query, document) pair from a table.

    Parameters
    ----------
    source
        A table (Parquet, CSV or JSON lines) or a data frame, with the columns `query`, `doc` and `value`; other columns
        are ignored.
    value
        Name of the column with the numbers.

    Returns
    -------
    PairValues
        The numbers. Pairs with different ones are left out and counted in a warning (code "skipped-input").

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
    >>> scores.value.tolist()
    [0.5, 0.25]
    """
    return pair_values_of(read_source(source, lambda path, names: _choose_columns(path, names, value)), value)


def pair_values_of(part: TableFile, value: str) -> PairValues:
    """Return the numbers of a table with the columns query, doc and `value`; see `read_pair_values`."""
    query, doc, label = read_pair_columns(part, value)
    report = ReadReport(part.path)
    vocabulary, values, consistent = consistent_pairs(query, doc, label, report, name=value)
    report.report()
    if not consistent.all():
        keys = (
            vocabulary.query_ids[vocabulary.pair_query[consistent]],
            vocabulary.doc_ids[vocabulary.pair_doc[consistent]],
        )
        vocabulary, _, pair = Vocabulary.of(*keys)
        values = values[consistent][np.argsort(pair)]
    return PairValues(vocabulary, values)


def read_pair_columns(part: TableFile, value: str) -> tuple[Any, Any, Float[np.ndarray, " row"]]:
    """Return the raw queries, documents and numbers of a table, none of which may be missing."""
    query, doc, number = complete_columns(part, _ID_COLUMNS, (value,))
    return query.ids(), doc.ids(), number.values.astype(np.float64)


def complete_columns(part: TableFile, ids: Sequence[str], numbers: Sequence[str] = ()) -> list[Column]:
    """Convert columns of ids and of numbers, in which no value may be missing.

    Parameters
    ----------
    part
        A table that was read.
    ids, numbers
        Names of the columns.

    Returns
    -------
    list of Column
        The columns, in this order.

    Raises
    ------
    FileError
        "unreadable-line", "empty-file", "bad-column" or "missing-value".
    """
    path = part.path
    if part.unreadable:
        raise unreadable_lines_error(path, part.unreadable, "Fix or remove it.")
    if not part.table.num_rows:
        raise FileError(path, "has no rows. There must be at least one.", code="empty-file")
    try:
        columns = [id_column(name, [part.table[name]]) for name in ids]
        columns += [number_column(name, [part.table[name]]) for name in numbers]
    except ColumnError as error:
        raise FileError(path, f"column {error.name} {error.problem}.", code=error.code, column=error.name) from None
    for name, column in zip((*ids, *numbers), columns, strict=True):
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
    return columns


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
