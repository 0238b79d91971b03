"""Propensities as a value and as a file: JSON with everything that is known of them, or a table with a row per rank."""

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
from clickshift.io.tables.columns import number_column
from clickshift.io.tables.formats import read_table
from clickshift.io.tables.json_lines import ColumnError
from clickshift.ranking.labels import Trust

_KIND = "propensities"
_NEEDED, _MORE = ("rank", "examination"), ("low", "high", "error", "impressions", "swaps")


@final
@dataclass(frozen=True, eq=False)
class Propensities:
    """Examination by rank, relative to a reference rank, and how sure it is."""

    method: str
    estimate: Float[np.ndarray, " rank"]
    """1 at the reference rank; NaN where the log does not tell."""
    low: Float[np.ndarray, " rank"]
    high: Float[np.ndarray, " rank"]
    error: Float[np.ndarray, " rank"]
    """The standard error of the estimate; NaN, as low and high, where there is none."""
    reference_rank: int = 0
    level: float = 0.95
    interval: str = "none"
    """How intervals were found."""
    impressions: Float[np.ndarray, " rank"] | None = None
    swaps: Float[np.ndarray, " rank"] | None = None
    """Effective swaps with all other ranks: what the comparison rests on."""
    warnings: tuple[str, ...] = ()

    @property
    def n_ranks(self) -> int:
        return len(self.estimate)

    @property
    def examination(self) -> Float[np.ndarray, " rank"]:
        """The curve that is 1 at rank 1: what rankers and estimators take. It must be known for all ranks."""
        bad = np.flatnonzero(~(self.estimate > 0) | ~np.isfinite(self.estimate))
        if len(bad):
            raise DataError(
                f"examination must be known and above 0 at all ranks: {self.method} found {self.estimate[bad[0]]:g} at "
                f"rank {bad[0] + 1}. Use a log in which documents change ranks, another method, or fewer ranks."
            )
        curve: np.ndarray = self.estimate / self.estimate[0]
        return curve

    def table(self) -> list[dict[str, Any]]:
        """A row per rank, from 1."""
        nothing = np.full(self.n_ranks, np.nan)
        columns = {
            "examination": self.estimate,
            "low": self.low,
            "high": self.high,
            "error": self.error,
            "impressions": nothing if self.impressions is None else self.impressions,
            "swaps": nothing if self.swaps is None else self.swaps,
        }
        return [
            {"rank": rank + 1} | {name: float(values[rank]) for name, values in columns.items()}
            for rank in range(self.n_ranks)
        ]

    def __repr__(self) -> str:
        curve = ", ".join(f"{value:.3f}" for value in self.estimate)
        return f"Propensities({self.method!r}, [{curve}])"


def check_propensities_file(path: str | Path) -> str:
    """The ending of a file that `write_propensities` can write: ask before the work whose result is to be written."""
    return table_ending(path, (".json", *ENDINGS))


def write_propensities(found: Propensities, path: str | Path) -> None:
    """Write a .json file, which keeps everything, or a table (.csv, .parquet, .jsonl) with a row per rank."""
    if check_propensities_file(path) != ".json":
        import pyarrow as pa

        write_table(pa.Table.from_pylist(found.table()), path, notes=_about(found))
        return
    rows = [{name: None if _nan(value) else value for name, value in row.items()} for row in found.table()]
    text = json.dumps({"kind": _KIND, "clickshift": __version__, **_about(found), "ranks": rows}, indent=1)
    with write_atomically(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_propensities(path: str | Path) -> Propensities:
    """What `write_propensities` wrote, or one's own table with the columns rank, from 1, and examination."""
    path = Path(path)
    if check_propensities_file(path) != ".json":
        return _of_columns(path, _columns(path), {})
    with open_text(path) as file:
        try:
            known = json.load(file)
        except (json.JSONDecodeError, RecursionError) as error:
            raise FileError(path, f"must be JSON as `clickshift propensities` writes it: {error}.") from None
    rows = known.get("ranks") if isinstance(known, dict) and known.get("kind") == _KIND else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise FileError(path, "is JSON, but not of propensities. Write it with `clickshift propensities -o`.")
    columns = {name: [row.get(name) for row in rows] for name in (*_NEEDED, *_MORE)}
    try:
        numbers = {
            name: np.array([np.nan if v is None else v for v in values], np.float64) for name, values in columns.items()
        }
    except (TypeError, ValueError):
        raise FileError(path, "holds something that is no number among its ranks. Write it again.") from None
    return _of_columns(path, numbers, known)


def _columns(path: Path) -> dict[str, np.ndarray]:
    part = read_table(path, lambda names: _choose(path, names))
    if part.unreadable:
        line, problem = part.unreadable[0]
        raise FileError(path, f"{problem}. Mend or remove the line.", line=line)
    if not part.table.num_rows:
        raise FileError(path, "has no rows. There must be one for each rank.")
    try:
        read = {name: number_column(name, [part.table[name]]) for name in part.table.column_names}
    except ColumnError as error:
        raise FileError(path, f"{error}.") from None
    return {name: np.where(column.bad, np.nan, column.values.astype(np.float64)) for name, column in read.items()}


def _choose(path: Path, names: Sequence[str]) -> dict[str, str]:
    if missing := [name for name in _NEEDED if name not in names]:
        raise FileError(
            path,
            f"a table of propensities must have the columns rank and examination: {' and '.join(missing)} not found; "
            f"it has {', '.join(names) or 'none'}. Rename or add them.",
        )
    return {name: name for name in (*_NEEDED, *_MORE) if name in names}


def _of_columns(path: Path, columns: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> Propensities:
    rank, estimate = columns["rank"], columns["examination"]
    order = np.argsort(rank, kind="stable")
    if not np.array_equal(rank[order], np.arange(1, len(rank) + 1)):
        raise FileError(path, f"ranks must be 1 to {len(rank)}, each once: got {_shown(rank)}. Mend the table.")
    bad = np.flatnonzero((estimate < 0) | np.isinf(estimate))
    if len(bad):
        raise FileError(
            path, f"examination must be 0 or more: got {estimate[bad[0]]:g} at rank {rank[bad[0]]:.0f}. Mend it."
        )
    low, high, error, *counts = (
        columns[name][order] if name in columns else np.full(len(rank), np.nan) for name in _MORE
    )
    impressions, swaps = (None if np.isnan(values).all() else values for values in counts)
    one = np.flatnonzero(estimate[order] == 1)
    try:
        return Propensities(
            str(about.get("method", path.name)),
            estimate[order],
            low,
            high,
            error,
            int(about.get("reference_rank", one[0] + 1 if len(one) else 1)) - 1,
            float(about.get("level", 0.95)),
            str(about.get("interval", "unknown")),
            impressions,
            swaps,
            tuple(map(str, about.get("warnings", ()))),
        )
    except (TypeError, ValueError):
        raise FileError(
            path, "level and reference_rank must be numbers, warnings a list. Write the file again."
        ) from None


def _about(found: Propensities) -> dict[str, Any]:
    return {
        "method": found.method,
        "reference_rank": found.reference_rank + 1,
        "level": found.level,
        "interval": found.interval,
        "warnings": list(found.warnings),
    }


def _nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _shown(rank: np.ndarray) -> str:
    return ", ".join("nothing" if np.isnan(r) else f"{r:g}" for r in rank[:8]) + (", ..." if len(rank) > 8 else "")


_POWER = re.compile(r"1\s*/\s*rank\s*(?:(?:\^|\*\*)\s*([0-9]*\.?[0-9]+))?")


def parse_examination(text: str, ranks: int) -> Float[np.ndarray, " rank"]:
    """A curve by its law, for so many ranks, or as it is written.

    >>> parse_examination("1/rank^0.5", 4).round(3).tolist()
    [1.0, 0.707, 0.577, 0.5]
    >>> parse_examination("1, 0.6", 4).tolist()
    [1.0, 0.6]
    """
    if law := _POWER.fullmatch(text.strip()):
        curve: np.ndarray = np.arange(1.0, ranks + 1) ** -float(law[1] or 1)
        return curve
    try:
        return np.array([float(part) for part in text.split(",")])
    except ValueError:
        raise SpecError(
            f"examination must be 1/rank, 1/rank^0.5 or the like, or numbers such as 1,0.6,0.4: got {text!r}."
        ) from None


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

    part = read_table(path, choose)
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
