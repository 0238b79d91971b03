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

from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import UNSEEN, Ids, Vocabulary
from clickshift.errors import FileError
from clickshift.io.pair_values import read_pair_values
from clickshift.io.qrels import Judgments
from clickshift.io.rankings import read_rankings
from clickshift.io.table_writer import table_ending, write_table
from clickshift.io.tables.formats import ColumnError, read_table
from clickshift.io.tables.layouts import number_column


def read_target(path: str | Path) -> tuple[Rankings, np.ndarray | None] | tuple[Vocabulary, np.ndarray]:
    """Read a target policy from a table file; its columns decide between lists and scores.

    Parameters
    ----------
    path
        A table (Parquet, CSV or JSON lines) with the columns query and docs; query, docs and weight; or query, doc and
        score. Other columns are ignored.

    Returns
    -------
    tuple
        Lists with their weights (None if the table has none), or the vocabulary of the scored pairs with their scores.
        Whether the weights of a query sum to 1 is not checked here.

    Raises
    ------
    FileError
        "missing-column", "bad-column", "missing-value", "not-finite" for a score that is not a finite number,
        "empty-file", and those of `read_rankings` and `read_pair_values`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "target.csv"
    ...     _ = file.write_text("query,doc,score\\ncats,a,0.5\\ncats,b,0.25\\n")
    ...     read_target(file)
    (Vocabulary(1 queries, 2 documents, 2 pairs), array([0.5 , 0.25]))
    """
    path = Path(path)
    # one column suffices to find the kind of the table; the reader of that kind reads and checks the others
    part = read_table(path, lambda names: _choose_column(path, names))
    if "score" in part.table.column_names:
        return _scores(path, read_pair_values(path))
    lists = read_rankings(path)
    return lists, _weights(path, part.table) if "weight" in part.table.column_names else None


def write_target(path: str | Path, lists: Rankings, weight: Float[np.ndarray, " list"]) -> None:
    """Write a stochastic target policy as a table that `read_target` reads back.

    Parameters
    ----------
    path
        The file: .parquet, .csv or .jsonl.
    lists
        Lists of all queries.
    weight
        Probability of each list.

    Raises
    ------
    FileError
        "unknown-format" for another ending, "is-a-folder".
    """
    import pyarrow as pa

    table_ending(path)
    vocabulary = lists.vocabulary
    offsets = np.concatenate([[0], np.cumsum(lists.length)]).astype(np.int32)
    items = _ids(vocabulary.doc_ids, vocabulary.pair_doc[lists.pair[lists.shown]])
    docs = pa.ListArray.from_arrays(pa.array(offsets), items)
    columns = {"query": _ids(vocabulary.query_ids, lists.query), "docs": docs, "weight": pa.array(weight)}
    write_table(pa.table(columns), path)


def _choose_column(path: Path, names: Sequence[str]) -> dict[str, str]:
    """Choose the column that marks the kind of the table: weight, score, or query for lists without weights."""
    if {"query", "docs"} <= {*names}:
        name = "weight" if "weight" in names else "query"
    elif {"query", "doc", "score"} <= {*names}:
        name = "score"
    else:
        raise FileError(
            path,
            "a target must have the columns query and docs (lists), query, docs and weight (lists with probabilities), "
            f"or query, doc and score: it has {', '.join(names) or 'none'}. Rename or add them.",
            code="missing-column",
            known=list(names),
        )
    return {name: name}


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


def _scores(path: Path, scored: Judgments) -> tuple[Vocabulary, np.ndarray]:
    """Return the vocabulary of the scored pairs, and their scores in its order."""
    if not len(scored):
        raise FileError(path, "no document is left with a score. Give each pair one.", code="empty-file")
    vocabulary, _, pair = Vocabulary.of(scored.query, scored.doc)
    score = np.empty(vocabulary.n_pairs)
    score[pair] = scored.label
    bad = ~np.isfinite(score)
    if bad.any():
        first = int(bad.argmax())
        query = vocabulary.query_ids[vocabulary.pair_query[first]]
        doc = vocabulary.doc_ids[vocabulary.pair_doc[first]]
        raise FileError(
            path,
            f"a score must be a finite number: document {doc} of query {query} has {score[first]}. Fix it.",
            code="not-finite",
            query=str(query),
            document=str(doc),
            value=float(score[first]),
        )
    return vocabulary, score


def _ids(ids: Ids, number: np.ndarray) -> Any:
    """Look up raw ids by number, as a pyarrow array."""
    import pyarrow as pa

    assert (number != UNSEEN).all(), "ids that the vocabulary does not hold cannot be written"
    return pa.array(ids[number] if ids.dtype.kind == "i" else ids[number].astype(object))
