"""Files of position bias: examination propensities, examination as text, and trust bias.

- Propensities: JSON, which keeps everything, or a table with a row per rank.
- Examination as text: "1/rank", "1/rank^0.5", or numbers such as "1,0.6,0.4".
- Trust bias: a table with the columns rank (from 1), alpha and beta.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float

from clickshift._version import __version__
from clickshift.core.files import open_text, write_atomically
from clickshift.errors import DataError, FileError, SpecError
from clickshift.io.table_writer import ENDINGS, table_ending, write_table
from clickshift.io.tables.formats import ColumnError, read_table
from clickshift.io.tables.layouts import number_column
from clickshift.ranking.labels import Trust

_KIND = "propensities"
_REQUIRED_COLUMNS = ("rank", "examination")
_OPTIONAL_COLUMNS = ("low", "high", "error", "impressions", "swaps")


@final
@dataclass(frozen=True, eq=False)
class Propensities:
    """Position bias: examination by rank, relative to a reference rank, with intervals.

    Parameters
    ----------
    method
        Name of the method.
    estimate
        Examination by rank: 1 at the reference rank, NaN where it is not identified from the log.
    low, high
        Limits of the confidence interval; NaN where there is none.
    error
        Standard error of the estimate; NaN where there is none.
    reference_rank
        The rank, from 0, whose examination is 1.
    level
        Confidence level of the intervals.
    interval
        Method of the intervals.
    impressions
        Impressions by rank.
    swaps
        Effective number of swaps with all other ranks: what the comparison rests on.
    warnings
        What makes the estimate doubtful, as sentences.

    Examples
    --------
    >>> none = np.full(2, np.nan)
    >>> Propensities("by hand", np.array([0.5, 1.0]), none, none, none, reference_rank=1).examination.tolist()
    [1.0, 2.0]
    """

    method: str
    estimate: Float[np.ndarray, " rank"]
    low: Float[np.ndarray, " rank"]
    high: Float[np.ndarray, " rank"]
    error: Float[np.ndarray, " rank"]
    reference_rank: int = 0
    level: float = 0.95
    interval: str = "none"
    impressions: Float[np.ndarray, " rank"] | None = None
    swaps: Float[np.ndarray, " rank"] | None = None
    warnings: tuple[str, ...] = ()

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return len(self.estimate)

    @property
    def examination(self) -> Float[np.ndarray, " rank"]:
        """Examination relative to rank 1, as rankers and estimators take it.

        Raises
        ------
        DataError
            If it is not known and above 0 at all ranks ("bad-examination").
        """
        bad = np.flatnonzero(~(self.estimate > 0) | ~np.isfinite(self.estimate))
        if len(bad):
            rank, value = int(bad[0]) + 1, float(self.estimate[bad[0]])
            raise DataError(
                f"examination must be known and above 0 at all ranks: {self.method} estimated {value:g} at rank "
                f"{rank}. Use a log in which documents change ranks, another method, or fewer ranks.",
                code="bad-examination",
                method=self.method,
                rank=rank,
                value=value,
                count=len(bad),
            )
        curve: np.ndarray = self.estimate / self.estimate[0]
        return curve

    def table(self) -> list[dict[str, Any]]:
        """Rows with the rank, from 1, its examination, and everything that is known about it."""
        unknown = np.full(self.n_ranks, np.nan)
        columns = {
            "examination": self.estimate,
            "low": self.low,
            "high": self.high,
            "error": self.error,
            "impressions": unknown if self.impressions is None else self.impressions,
            "swaps": unknown if self.swaps is None else self.swaps,
        }
        return [
            {"rank": rank + 1} | {name: float(values[rank]) for name, values in columns.items()}
            for rank in range(self.n_ranks)
        ]

    def __repr__(self) -> str:
        curve = ", ".join(f"{value:.3f}" for value in self.estimate)
        return f"Propensities({self.method!r}, [{curve}])"


def check_propensities_file(path: str | Path) -> str:
    """Check that `write_propensities` can write a path, before a long computation; returns the ending of the path."""
    return table_ending(path, (".json", *ENDINGS))


def write_propensities(propensities: Propensities, path: str | Path) -> None:
    """Write propensities to a file.

    Parameters
    ----------
    propensities
        The propensities.
    path
        A .json file, which keeps everything, or a table (.csv, .parquet, .jsonl) with a row per rank.
    """
    if check_propensities_file(path) != ".json":
        import pyarrow as pa

        write_table(pa.Table.from_pylist(propensities.table()), path, notes=_metadata(propensities))
        return
    rows = [{name: None if _is_nan(value) else value for name, value in row.items()} for row in propensities.table()]
    text = json.dumps({"kind": _KIND, "clickshift": __version__, **_metadata(propensities), "ranks": rows}, indent=1)
    with write_atomically(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_propensities(path: str | Path) -> Propensities:
    """Read propensities from a file.

    Parameters
    ----------
    path
        A file that `write_propensities` wrote, or any table with the columns rank, from 1, and examination.

    Returns
    -------
    Propensities
        The propensities.

    Raises
    ------
    FileError
        If the file is damaged ("damaged-file"), is not of propensities ("not-propensities"), lacks a column
        ("missing-column") or rows ("empty-file"), or contains invalid lines ("bad-line"), ranks ("bad-ranks"), numbers
        ("not-a-number", "bad-column") or examination ("bad-examination").
    """
    path = Path(path)
    if check_propensities_file(path) != ".json":
        return _from_columns(path, _read_columns(path), {})
    with open_text(path) as file:
        try:
            content = json.load(file)
        except (json.JSONDecodeError, RecursionError) as error:
            raise FileError(
                path, f"must be JSON as `write_propensities` writes it: {error}.", code="damaged-file"
            ) from None
    rows = content.get("ranks") if isinstance(content, dict) and content.get("kind") == _KIND else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise FileError(
            path,
            "is JSON, but not of propensities. Choose a file that `write_propensities` wrote.",
            code="not-propensities",
        )
    columns = {name: [row.get(name) for row in rows] for name in (*_REQUIRED_COLUMNS, *_OPTIONAL_COLUMNS)}
    try:
        numbers = {
            name: np.array([np.nan if v is None else v for v in values], np.float64) for name, values in columns.items()
        }
    except (TypeError, ValueError):
        raise FileError(
            path, "contains something that is not a number among its ranks. Write it again.", code="not-a-number"
        ) from None
    return _from_columns(path, numbers, content)


def _read_columns(path: Path) -> dict[str, np.ndarray]:
    """Read the columns of a table of propensities."""
    part = read_table(path, lambda names: _choose_columns(path, names))
    if part.unreadable:
        line, problem = part.unreadable[0]
        raise FileError(path, f"{problem}. Fix or remove the line.", line=line, code="bad-line")
    if not part.table.num_rows:
        raise FileError(path, "has no rows. There must be one for each rank.", code="empty-file")
    try:
        read = {name: number_column(name, [part.table[name]]) for name in part.table.column_names}
    except ColumnError as error:
        raise FileError(path, f"{error}.", code="bad-column") from None
    return {name: np.where(column.bad, np.nan, column.values.astype(np.float64)) for name, column in read.items()}


def _choose_columns(path: Path, names: Sequence[str]) -> dict[str, str]:
    """Choose the columns to read among those that a table has."""
    if missing := [name for name in _REQUIRED_COLUMNS if name not in names]:
        raise FileError(
            path,
            f"a table of propensities must have the columns rank and examination: {' and '.join(missing)} not found; "
            f"it has {', '.join(names) or 'none'}. Rename or add them.",
            code="missing-column",
            column=missing[0],
            known=list(names),
        )
    return {name: name for name in (*_REQUIRED_COLUMNS, *_OPTIONAL_COLUMNS) if name in names}


def _from_columns(path: Path, columns: Mapping[str, np.ndarray], metadata: Mapping[str, Any]) -> Propensities:
    """Make propensities of the columns of a file."""
    rank, estimate = columns["rank"], columns["examination"]
    order = np.argsort(rank, kind="stable")
    if not np.array_equal(rank[order], np.arange(1, len(rank) + 1)):
        raise FileError(
            path,
            f"ranks must be 1 to {len(rank)}, each once: got {_list_ranks(rank)}. Fix the table.",
            code="bad-ranks",
            value=rank.tolist(),
        )
    bad = np.flatnonzero((estimate < 0) | np.isinf(estimate))
    if len(bad):
        raise FileError(
            path,
            f"examination must be 0 or more: got {estimate[bad[0]]:g} at rank {rank[bad[0]]:.0f}. Fix it.",
            code="bad-examination",
            rank=int(rank[bad[0]]),
            value=float(estimate[bad[0]]),
            count=len(bad),
        )
    low, high, error, *counts = (
        columns[name][order] if name in columns else np.full(len(rank), np.nan) for name in _OPTIONAL_COLUMNS
    )
    impressions, swaps = (None if np.isnan(values).all() else values for values in counts)
    ones = np.flatnonzero(estimate[order] == 1)
    try:
        return Propensities(
            str(metadata.get("method", path.name)),
            estimate[order],
            low,
            high,
            error,
            int(metadata.get("reference_rank", ones[0] + 1 if len(ones) else 1)) - 1,
            float(metadata.get("level", 0.95)),
            str(metadata.get("interval", "unknown")),
            impressions,
            swaps,
            tuple(map(str, metadata.get("warnings", ()))),
        )
    except (TypeError, ValueError):
        raise FileError(
            path,
            "level and reference_rank must be numbers, and warnings a list. Write the file again.",
            code="damaged-file",
        ) from None


def _metadata(propensities: Propensities) -> dict[str, Any]:
    """Everything but the rows by rank."""
    return {
        "method": propensities.method,
        "reference_rank": propensities.reference_rank + 1,
        "level": propensities.level,
        "interval": propensities.interval,
        "warnings": list(propensities.warnings),
    }


def _is_nan(value: Any) -> bool:
    """Whether a value is the number NaN."""
    return isinstance(value, float) and math.isnan(value)


def _list_ranks(rank: np.ndarray) -> str:
    """List the first ranks of a file, as text."""
    return ", ".join("nothing" if np.isnan(r) else f"{r:g}" for r in rank[:8]) + (", ..." if len(rank) > 8 else "")


_POWER_LAW = re.compile(r"1\s*/\s*rank\s*(?:(?:\^|\*\*)\s*([0-9]*\.?[0-9]+))?")


def parse_examination(text: str, ranks: int) -> Float[np.ndarray, " rank"]:
    """Parse examination by rank from a power law, or from numbers.

    Parameters
    ----------
    text
        A power law such as 1/rank or 1/rank^0.5, or numbers such as 1,0.6,0.4.
    ranks
        Number of ranks of a power law.

    Returns
    -------
    array, shape (rank,)
        Examination by rank: `ranks` values of a power law, or the numbers as they are given.

    Raises
    ------
    SpecError
        If the text is neither ("bad-examination").

    Examples
    --------
    >>> parse_examination("1/rank^0.5", 4).round(3).tolist()
    [1.0, 0.707, 0.577, 0.5]
    >>> parse_examination("1, 0.6", 4).tolist()
    [1.0, 0.6]
    """
    if match := _POWER_LAW.fullmatch(text.strip()):
        curve: np.ndarray = np.arange(1.0, ranks + 1) ** -float(match[1] or 1)
        return curve
    try:
        return np.array([float(part) for part in text.split(",")])
    except ValueError:
        raise SpecError(
            f"examination must be 1/rank, 1/rank^0.5 or the like, or numbers such as 1,0.6,0.4: got {text!r}.",
            code="bad-examination",
            value=text,
        ) from None


_TRUST_COLUMNS = ("rank", "alpha", "beta")


def read_trust(path: str | Path) -> Trust:
    """Read trust bias from a table with the columns rank, alpha and beta.

    Parameters
    ----------
    path
        A Parquet, CSV or JSON lines file with a row for every rank from 1 on.

    Returns
    -------
    Trust
        Alpha and beta by rank.

    Raises
    ------
    FileError
        If the file lacks a column ("missing-column"), or contains invalid lines ("bad-line"), columns ("bad-column"),
        ranks ("bad-ranks") or numbers ("not-a-number").
    """
    path = Path(path)
    table_ending(path)

    def choose(names: Sequence[str]) -> dict[str, str]:
        missing = [name for name in _TRUST_COLUMNS if name not in names]
        if missing:
            raise FileError(
                path,
                f"must have the columns rank, alpha and beta: there is no {missing[0]}.",
                code="missing-column",
                column=missing[0],
                known=list(names),
            )
        return {name: name for name in _TRUST_COLUMNS}

    part = read_table(path, choose)
    if part.unreadable:
        line, problem = part.unreadable[0]
        raise FileError(path, f"{problem}. Fix or remove the line.", line=line, code="bad-line")
    try:
        columns = [number_column(name, [part.table[name]]) for name in _TRUST_COLUMNS]
    except ColumnError as error:
        raise FileError(path, f"{error}.", code="bad-column") from None
    rank, alpha, beta = (np.where(column.bad, np.nan, column.values.astype(np.float64)) for column in columns)
    order = np.argsort(rank)
    if not np.array_equal(rank[order], np.arange(1, len(rank) + 1)) or not len(rank):
        raise FileError(
            path,
            f"must have one row for every rank from 1 on: got the ranks {rank.tolist()[:20]}.",
            code="bad-ranks",
            value=rank.tolist(),
        )
    if not np.isfinite(alpha + beta).all():
        raise FileError(
            path, "alpha and beta must be numbers at every rank. Add the missing values.", code="not-a-number"
        )
    return Trust(alpha[order], beta[order])
