"""How often each query is asked: a table of queries and counts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import FileError
from clickshift.io.frames import read_source
from clickshift.io.pair_values import complete_columns

__all__ = ["read_query_counts"]

_COLUMNS = ("query", "count")


def read_query_counts(source: str | Path | Any, vocabulary: Vocabulary) -> Float[np.ndarray, " query"]:
    """Read how often each query of a vocabulary is asked.

    Parameters
    ----------
    source
        A table (Parquet, CSV or JSON lines) or a data frame with the columns `query` and `count`. Counts of several
        rows of a query add up, such as those of several days; other queries are ignored.
    vocabulary
        The queries.

    Returns
    -------
    Float[query]
        The count of each query; 0 for those that the table lacks.

    Raises
    ------
    FileError
        "missing-column", "unreadable-line", "empty-file", "bad-column", "missing-value"; "bad-count" for a count that
        is infinite or below 0; "no-such-query" if no query of the vocabulary has a count above 0.

    Examples
    --------
    >>> import pandas as pd
    >>> vocabulary, _, _ = Vocabulary.of([7, 8], ["a", "b"])
    >>> read_query_counts(pd.DataFrame({"query": [8, 9, 8], "count": [30, 5, 12]}), vocabulary).tolist()
    [0.0, 42.0]
    """
    part = read_source(source, _choose_columns)
    query, count = complete_columns(part, _COLUMNS[:1], _COLUMNS[1:])
    ids, number = query.ids(), count.values.astype(np.float64)
    bad = ~(np.isfinite(number) & (number >= 0))
    if bad.any():
        row = int(bad.argmax())
        raise FileError(
            part.path,
            f"a count must be a number from 0 on: got {number[row]:g} for query {ids[row]} in row {row + 1} "
            f"({bad.sum():,} such rows). Fix or remove them.",
            code="bad-count",
            row=row + 1,
            value=float(number[row]),
            count=int(bad.sum()),
        )
    at = vocabulary.query_numbers(ids)
    counts: np.ndarray = np.bincount(at[at != UNSEEN], number[at != UNSEEN], vocabulary.n_queries)
    if not counts.any():
        raise FileError(
            part.path,
            f"at least one query of the corpus must have a count above 0: none of {vocabulary.n_queries:,} has, e.g. "
            f"query {vocabulary.query_ids[0]}; it has queries such as {ids[0]}. Use the corpus' names.",
            code="no-such-query",
            query=vocabulary.query_ids[0],
            value=ids[0],
        )
    return counts.astype(np.float64)


def _choose_columns(path: Path, names: Sequence[str]) -> dict[str, str]:
    """Choose the two columns; FileError if one of them is missing."""
    if missing := [name for name in _COLUMNS if name not in names]:
        raise FileError(
            path,
            f"a table of query frequencies must have the columns query and count: {' and '.join(missing)} not found; "
            f"it has {', '.join(names) or 'none'}. Rename or add them.",
            code="missing-column",
            columns=missing,
            known=list(names),
        )
    return {name: name for name in _COLUMNS}
