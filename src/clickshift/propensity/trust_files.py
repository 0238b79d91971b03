"""Trust bias as a table: columns rank (from 1), alpha and beta."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clickshift.errors import FileError
from clickshift.io.table_writer import table_ending
from clickshift.io.tables.columns import number_column
from clickshift.io.tables.formats import read_part
from clickshift.io.tables.json_lines import ColumnError
from clickshift.ranking.labels import Trust

_COLUMNS = ("rank", "alpha", "beta")


def read_trust(path: str | Path) -> Trust:
    """Parquet, CSV or JSON lines; there must be a row for every rank from 1 on."""
    path = Path(path)
    table_ending(path)

    def choose(names: Sequence[str]) -> dict[str, str]:
        missing = [name for name in _COLUMNS if name not in names]
        if missing:
            raise FileError(path, f"must have the columns rank, alpha and beta: there is no {missing[0]}.")
        return {name: name for name in _COLUMNS}

    part = read_part(path, choose)
    if part.unreadable:
        line, problem = part.unreadable[0]
        raise FileError(path, f"{problem}. Mend or remove the line.", line=line)
    try:
        columns = [number_column(name, [part.table[name]]) for name in _COLUMNS]
    except ColumnError as error:
        raise FileError(path, f"{error}.") from None
    rank, alpha, beta = (np.where(column.bad, np.nan, column.values.astype(np.float64)) for column in columns)
    order = np.argsort(rank)
    if not np.array_equal(rank[order], np.arange(1, len(rank) + 1)) or not len(rank):
        raise FileError(path, f"must have one row for every rank from 1 on: got the ranks {rank.tolist()[:20]}.")
    if not np.isfinite(alpha + beta).all():
        raise FileError(path, "alpha and beta must be numbers at every rank. Fill what is missing.")
    return Trust(alpha[order], beta[order])
