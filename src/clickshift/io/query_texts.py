"""Texts of queries: a table of the ids that a log has and of what was typed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.core.text import join_words
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import DataError, FileError
from clickshift.io.frames import read_source
from clickshift.io.pair_values import complete_columns

__all__ = ["read_query_texts"]

_COLUMNS = ("query", "text")


def read_query_texts(source: str | Path | Any, vocabulary: Vocabulary) -> np.ndarray:
    """Read the text of every query of a vocabulary.

    Parameters
    ----------
    source
        A table (Parquet, CSV or JSON lines) or a data frame with the columns `query`, the id in the log, and `text`.
    vocabulary
        The queries.

    Returns
    -------
    numpy.ndarray
        The text of each query, as Python texts in the order of the vocabulary.

    Raises
    ------
    FileError
        "missing-column", "unreadable-line", "empty-file", "bad-column" or "missing-value".
    DataError
        If a query has no text ("missing-query-text"), or two of them have the same ("repeated-query-text").

    Examples
    --------
    >>> import pandas as pd
    >>> vocabulary, _, _ = Vocabulary.of([7, 8], ["a", "b"])
    >>> read_query_texts(pd.DataFrame({"query": [8, 7], "text": ["red shoes", "hats"]}), vocabulary).tolist()
    ['hats', 'red shoes']
    """
    part = read_source(source, _choose_columns)
    columns = complete_columns(part, _COLUMNS)
    number = vocabulary.query_numbers(columns[0].ids())
    texts, known = np.full(vocabulary.n_queries, None, object), number != UNSEEN
    texts[number[known]] = np.array([str(text) for text in columns[1].ids().tolist()], object)[known]
    missing = np.flatnonzero([text is None for text in texts])
    if len(missing):
        first = vocabulary.query_ids[missing[0]]
        raise DataError(
            f"every query must have a text: query {first} is not in {part.path} ({len(missing):,} of "
            f"{len(texts):,} queries). Add them.",
            code="missing-query-text",
            query=str(first),
            count=len(missing),
        )
    _, numbered, counts = np.unique(texts.astype(str), return_inverse=True, return_counts=True)
    if (counts > 1).any():
        repeated = np.flatnonzero(counts[numbered] > 1)
        same = [str(query) for query in vocabulary.query_ids[numbered == numbered[repeated[0]]][:3].tolist()]
        raise DataError(
            f"a text must belong to one query: {texts[repeated[0]]!r} is the text of {join_words(same)} "
            f"({len(repeated):,} queries share a text). Use the texts as the queries of the log.",
            code="repeated-query-text",
            value=texts[repeated[0]],
            count=len(repeated),
        )
    return texts


def _choose_columns(path: Path, names: Sequence[str]) -> dict[str, str]:
    """Choose the two columns; FileError if one of them is missing."""
    if missing := [name for name in _COLUMNS if name not in names]:
        raise FileError(
            path,
            f"a table of query texts must have the columns query and text: {' and '.join(missing)} not found; it has "
            f"{', '.join(names) or 'none'}. Rename or add them.",
            code="missing-column",
            columns=missing,
            known=list(names),
        )
    return {name: name for name in _COLUMNS}
