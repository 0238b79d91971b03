"""Tables that say what a ranker would show: one list per query, several with weights, or scores to be sorted by.

| columns             | a row                                                                       |
|---------------------|-----------------------------------------------------------------------------|
| query, docs         | the list of a query                                                         |
| query, docs, weight | one of its lists, with its probability: weights of a query add up to 1      |
| query, doc, score   | a document; each query's documents are ranked by descending score           |
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
from clickshift.io.tables.columns import number_column
from clickshift.io.tables.formats import read_table
from clickshift.io.tables.json_lines import ColumnError


def read_target(path: str | Path) -> tuple[Rankings, np.ndarray | None] | tuple[Vocabulary, np.ndarray]:
    """Lists with their weights, None where the table has none; or pairs with their scores. The columns tell which.

    Parquet, CSV or JSON lines; other columns are ignored. Whether weights add up is asked by who uses them.
    """
    path = Path(path)
    # columns of another kind are left to the readers of their kind, and so are their faults
    part = read_table(path, lambda names: _choose(path, names))
    if "score" in part.table.column_names:
        return _scores(path, read_pair_values(path))
    lists = read_rankings(path)
    return lists, _weights(path, part.table) if "weight" in part.table.column_names else None


def write_target(path: str | Path, lists: Rankings, weight: Float[np.ndarray, " list"]) -> None:
    """A table with the columns query, docs and weight, which `read_target` reads back: .parquet, .csv or .jsonl."""
    import pyarrow as pa

    table_ending(path)
    words = lists.vocabulary
    offsets = np.concatenate([[0], np.cumsum(lists.length)]).astype(np.int32)
    docs = pa.ListArray.from_arrays(pa.array(offsets), _ids(words.doc_ids, words.pair_doc[lists.pair[lists.shown]]))
    columns = {"query": _ids(words.query_ids, lists.query), "docs": docs, "weight": pa.array(weight)}
    write_table(pa.table(columns), path)


def _choose(path: Path, names: Sequence[str]) -> dict[str, str]:
    if {"query", "docs"} <= {*names}:
        name = "weight" if "weight" in names else "query"
    elif {"query", "doc", "score"} <= {*names}:
        name = "score"
    else:
        raise FileError(
            path,
            "a target must have the columns query and docs (lists), query, docs and weight (lists with probabilities), "
            f"or query, doc and score: it has {', '.join(names) or 'none'}. Rename or add them.",
        )
    return {name: name}


def _weights(path: Path, table: Any) -> Float[np.ndarray, " list"]:
    try:
        found = number_column("weight", [table["weight"]])
    except ColumnError as error:
        raise FileError(path, f"column weight {error.problem}.") from None
    if found.bad.any():
        raise FileError(
            path,
            f"every list must have a weight: row {int(found.bad.argmax()) + 1} has none "
            f"({int(found.bad.sum()):,} such rows). Mend them.",
        )
    return found.values.astype(np.float64)


def _scores(path: Path, scored: Judgments) -> tuple[Vocabulary, np.ndarray]:
    """Every pair with one score, so that the vocabulary has no other."""
    if not len(scored):
        raise FileError(path, "no document is left with a score. Give each pair one.")
    words, _, pair = Vocabulary.of(scored.query, scored.doc)
    score = np.empty(words.n_pairs)
    score[pair] = scored.label
    bad = ~np.isfinite(score)
    if bad.any():
        at = int(bad.argmax())
        where = f"document {words.doc_ids[words.pair_doc[at]]} of query {words.query_ids[words.pair_query[at]]}"
        raise FileError(path, f"a score must be a finite number: {where} has {score[at]}. Mend it.")
    return words, score


def _ids(ids: Ids, number: np.ndarray) -> Any:
    import pyarrow as pa

    assert (number != UNSEEN).all(), "what has no id cannot be written"
    return pa.array(ids[number] if ids.dtype.kind == "i" else ids[number].astype(object))
