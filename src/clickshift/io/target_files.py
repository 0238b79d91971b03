"""Target policies as tables: one list per query, several lists with probabilities, or scores to sort by.

| columns             | a row                                                                          |
|---------------------|--------------------------------------------------------------------------------|
| query, docs         | the list of a query                                                            |
| query, docs, weight | one of a query's lists, with its probability: the weights of a query sum to 1  |
| query, doc, score   | a document; the documents of a query are ranked by descending score            |
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from clickshift.data.vocabulary import UNSEEN, Ids
from clickshift.data.weighted_lists import WeightedLists
from clickshift.errors import DataError, FileError
from clickshift.io.frames import read_source
from clickshift.io.pair_values import PairValues, pair_values_of
from clickshift.io.rankings import rankings_of
from clickshift.io.table_writer import table_ending, write_table
from clickshift.io.tables.columns import number_column
from clickshift.io.tables.formats import ColumnError


def read_target(source: str | Path | Any) -> WeightedLists | PairValues:
    """Read a target policy from a table; its columns decide between lists and scores.

    Parameters
    ----------
    source
        A table (Parquet, CSV or JSON lines) or a data frame, with the columns query and docs; query, docs and weight;
        or query, doc and score. Other columns are ignored.

    Returns
    -------
    WeightedLists or PairValues
        Lists with their probabilities, or the scores to rank by.

    Raises
    ------
    FileError
        "missing-column", "bad-column", "missing-value", "not-finite" for a score that is not a finite number,
        "empty-file", those of `read_rankings` and `read_pair_values`, and those of `WeightedLists`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "target.csv"
    ...     _ = file.write_text("query,doc,score\\ncats,a,0.5\\ncats,b,0.25\\n")
    ...     read_target(file).value
    array([0.5 , 0.25])
    """
    part = read_source(source, _choose_columns)
    if "score" in part.table.column_names:
        return _finite(part.path, pair_values_of(part, "score"))
    lists = rankings_of([part])
    weight = _weights(part.path, part.table) if "weight" in part.table.column_names else None
    try:
        return WeightedLists(lists) if weight is None else WeightedLists(lists, weight)
    except DataError as error:
        raise FileError(part.path, str(error), code=error.code, **error.facts) from None


def write_target(path: str | Path, policy: WeightedLists) -> None:
    """Write a stochastic target policy as a table that `read_target` reads back; a hole is a missing document.

    Parameters
    ----------
    path
        The file: .parquet, .csv or .jsonl.
    policy
        Lists with their probabilities.

    Raises
    ------
    FileError
        "unknown-format" for another ending, "is-a-folder".
    """
    import pyarrow as pa

    table_ending(path)
    lists, vocabulary = policy.lists, policy.vocabulary
    length = lists.length
    offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int32)
    items = _ids(vocabulary.doc_ids, vocabulary.pair_doc[lists.pair[lists.shown]])
    if lists.has_holes:
        shown = lists.shown[np.arange(lists.n_ranks) < length[:, None]]
        items = items.take(pa.array(np.cumsum(shown) - 1, mask=~shown))
    docs = pa.ListArray.from_arrays(pa.array(offsets), items)
    columns = {"query": _ids(vocabulary.query_ids, lists.query), "docs": docs, "weight": pa.array(policy.weight)}
    write_table(pa.table(columns), path)


def _choose_columns(path: Path, names: Sequence[str]) -> dict[str, str]:
    """Choose the columns of lists, with their weights, or of scores."""
    if {"query", "docs"} <= {*names}:
        chosen = ["query", "docs", *(["weight"] if "weight" in names else [])]
    elif {"query", "doc", "score"} <= {*names}:
        chosen = ["query", "doc", "score"]
    else:
        raise FileError(
            path,
            "a target must have the columns query and docs (lists), query, docs and weight (lists with probabilities), "
            f"or query, doc and score: it has {', '.join(names) or 'none'}. Rename or add them.",
            code="missing-column",
            known=list(names),
        )
    return {name: name for name in chosen}


def _weights(path: Path, table: Any) -> Float[np.ndarray, " list"]:
    """Return the weights of the lists; FileError if one is missing."""
    try:
        column = number_column("weight", [table["weight"]])
    except ColumnError as error:
        raise FileError(path, f"column weight {error.problem}.", code="bad-column", column="weight") from None
    if column.bad.any():
        row, count = int(column.bad.argmax()) + 1, int(column.bad.sum())
        raise FileError(
            path,
            f"every list must have a weight: row {row} has none ({count:,} such rows). Fix them.",
            code="missing-value",
            column="weight",
            row=row,
            count=count,
        )
    return column.values.astype(np.float64)


def _finite(path: Path, scores: PairValues) -> PairValues:
    """Return the scores; FileError if there is none, or one that is not a finite number."""
    if not len(scores):
        raise FileError(path, "no document is left with a score. Give each pair one.", code="empty-file")
    bad = ~np.isfinite(scores.value)
    if bad.any():
        vocabulary, first = scores.vocabulary, int(bad.argmax())
        query = vocabulary.query_ids[vocabulary.pair_query[first]]
        doc = vocabulary.doc_ids[vocabulary.pair_doc[first]]
        value = float(scores.value[first])
        raise FileError(
            path,
            f"a score must be a finite number: document {doc} of query {query} has {value}. Fix it.",
            code="not-finite",
            query=str(query),
            document=str(doc),
            value=value,
        )
    return scores


def _ids(ids: Ids, number: np.ndarray) -> Any:
    """Look up raw ids by number, as a pyarrow array."""
    import pyarrow as pa

    assert (number != UNSEEN).all(), "ids that the vocabulary does not hold cannot be written"
    return pa.array(ids[number] if ids.dtype.kind == "i" else ids[number].astype(object))
