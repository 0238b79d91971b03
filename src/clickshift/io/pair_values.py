"""One number per (query, document) from a table, such as the scores that a ranker gave."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clickshift.errors import FileError
from clickshift.io.qrels import Judgments, consistent_judgments
from clickshift.io.read_report import ReadReport
from clickshift.io.tables.columns import id_column, number_column
from clickshift.io.tables.formats import read_table
from clickshift.io.tables.json_lines import ColumnError

_IDS = ("query", "doc")


def read_pair_values(path: str | Path, value: str = "score") -> Judgments:
    """From one table (Parquet, CSV or JSON lines) with the columns `query`, `doc` and the one named; others are
    ignored.

    A pair with different values is left out, and counted in a warning. `labels_for` finds the numbers of a log's pairs.
    """
    path = Path(path)
    part = read_table(path, lambda names: _choose(path, names, value))
    if part.unreadable:
        line, problem = part.unreadable[0]
        raise FileError(path, f"{problem} ({len(part.unreadable):,} such lines). Mend or remove it.", line=line)
    if not part.table.num_rows:
        raise FileError(path, "has no rows. There must be at least one.")
    try:
        query, doc = (id_column(name, [part.table[name]]) for name in _IDS)
        number = number_column(value, [part.table[value]])
    except ColumnError as error:
        raise FileError(path, f"{error}.") from None
    for name, column in zip((*_IDS, value), (query, doc, number), strict=True):
        if column.bad.any():
            at, n = int(column.bad.argmax()) + 1, int(column.bad.sum())
            raise FileError(path, f"every row must have a {name}: row {at} has none ({n:,} such rows). Mend them.")
    notes = ReadReport(path)
    found = consistent_judgments(query.ids(), doc.ids(), number.values.astype(np.float64), notes)
    notes.report()
    return found


def _choose(path: Path, names: Sequence[str], value: str) -> dict[str, str]:
    wanted = (*_IDS, value)
    if missing := [name for name in wanted if name not in names]:
        raise FileError(
            path,
            f"a table of {value}s must have the columns {', '.join(wanted)}: {' and '.join(missing)} not found; it has "
            f"{', '.join(names) or 'none'}. Rename or add them.",
        )
    return {name: name for name in wanted}
