"""Files of position bias: examination propensities, examination as text, and trust bias.

- Propensities: JSON, which keeps everything, or a table with a row per rank.
- Examination as text: "1/rank", "1/rank^0.5", or numbers such as "1,0.6,0.4".
- Trust bias: a table with the columns rank (from 1), alpha and beta.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float

from clickshift.core.files import open_text
from clickshift.errors import DataError, FileError, SpecError
from clickshift.io.table_writer import ENDINGS, table_ending
from clickshift.io.tables.columns import number_column
from clickshift.io.tables.formats import ColumnError, read_table
from clickshift.propensity.result import KIND, Propensities

_REQUIRED_COLUMNS = ("rank", "examination")
_OPTIONAL_COLUMNS = ("low", "high", "error", "impressions", "swaps")


def read_propensities(path: str | Path) -> Propensities:
    """Read propensities from a file.

    Parameters
    ----------
    path
        A file that `Propensities.write` wrote, or any table with the columns rank, from 1, and examination.

    Returns
    -------
    Propensities
        The propensities.

    Raises
    ------
    FileError
        If the file is damaged ("damaged-file"), is not of propensities ("not-propensities"), lacks a column
        ("missing-column") or rows ("empty-file"), has a curve for each of several labels ("several-curves"; JSON files
        may), or contains invalid lines ("bad-line"), ranks ("bad-ranks"), numbers
        ("not-a-number", "bad-column") or examination ("bad-examination").
    """
    path = Path(path)
    if table_ending(path, (".json", *ENDINGS)) != ".json":
        return _from_columns(path, _read_columns(path), {})
    with open_text(path) as file:
        try:
            content = json.load(file)
        except (json.JSONDecodeError, RecursionError) as error:
            raise FileError(
                path, f"must be JSON as `Propensities.write` writes it: {error}.", code="damaged-file"
            ) from None
    known = isinstance(content, dict) and content.get("kind") == KIND
    return _with_segments(path, content) if known and content.get("segments") else _from_json(path, content, known)


def _with_segments(path: Path, content: Mapping[str, Any]) -> Propensities:
    """Make propensities with segments of the content of a file."""
    segments, by, p_value = (content.get(name) for name in ("segments", "by", "p_value"))
    if not isinstance(segments, dict) or not isinstance(by, str) or not isinstance(p_value, int | float | None):
        raise FileError(path, "its segments are damaged. Write the file again.", code="damaged-file")
    own = {label: _from_json(path, part, isinstance(part, dict)) for label, part in segments.items()}
    return replace(_from_json(path, content, True), by=by, segments=own, p_value=p_value)


def _from_json(path: Path, content: Any, known: bool) -> Propensities:
    """Make propensities of the content of a JSON file, or of one of its segments."""
    rows = content.get("ranks") if known else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise FileError(
            path,
            "is JSON, but not of propensities. Choose a file that `Propensities.write` wrote.",
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
    if "segment" in names:
        raise FileError(
            path,
            "a table of propensities must have one curve, and this one has a curve for each label of a segment. Write "
            "propensities by segment as JSON, e.g. curves.json.",
            code="several-curves",
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


@final
@dataclass(frozen=True, eq=False)
class Trust:
    """Trust bias: users who trust the ranker click with P(click at rank k) = alpha_k x relevance + beta_k.

    Parameters
    ----------
    alpha
        Slope of the click probability in relevance, by rank.
    beta
        Click probability of a non-relevant document, by rank.

    Raises
    ------
    DataError
        If alpha and beta differ in length ("unequal-lengths"), or beta or alpha + beta is not a probability
        ("not-a-probability").

    References
    ----------
    Vardasbi, A., Oosterhuis, H., de Rijke, M. (2020). When inverse propensity scoring does not work: affine corrections
    for unbiased learning to rank. CIKM.

    Examples
    --------
    >>> Trust.of(np.array([1.0, 0.5]), np.array([0.9, 0.8]), np.array([0.3, 0.2])).alpha.round(3).tolist()
    [0.6, 0.3]
    """

    alpha: Float[np.ndarray, " rank"]
    beta: Float[np.ndarray, " rank"]

    def __post_init__(self) -> None:
        if self.alpha.shape != self.beta.shape:
            raise DataError(
                f"alpha and beta must have one entry per rank: got {len(self.alpha)} and {len(self.beta)}.",
                code="unequal-lengths",
                alpha=len(self.alpha),
                beta=len(self.beta),
            )
        bad = ~((self.beta >= 0) & (self.alpha + self.beta <= 1 + 1e-9))
        if bad.any():
            rank = int(bad.argmax())
            raise DataError(
                f"beta and alpha + beta must be probabilities of a click: got beta = {self.beta[rank]:g}, "
                f"alpha = {self.alpha[rank]:g} at rank {rank + 1}. Fix them.",
                code="not-a-probability",
                rank=rank + 1,
                alpha=float(self.alpha[rank]),
                beta=float(self.beta[rank]),
            )

    @classmethod
    def of(
        cls,
        examination: Float[np.ndarray, " rank"],
        true_positive: Float[np.ndarray, " rank"],
        false_positive: Float[np.ndarray, " rank"],
    ) -> Trust:
        """Build trust bias from examination and click probabilities given examination (Agarwal et al. 2019).

        Parameters
        ----------
        examination
            Probability that a rank is examined.
        true_positive
            Probability that an examined relevant document is clicked, by rank.
        false_positive
            Probability that an examined non-relevant document is clicked, by rank.

        References
        ----------
        Agarwal, A. et al. (2019). Addressing trust bias for unbiased learning-to-rank. WWW.
        """
        return cls(examination * (true_positive - false_positive), examination * false_positive)


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
