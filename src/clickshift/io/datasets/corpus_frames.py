"""Documents with features from a data frame: columns query and doc, numeric feature columns, and optionally label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clickshift.data.corpus import Corpus
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError
from clickshift.io.tables.columns import Column, id_column, number_column
from clickshift.io.tables.formats import ColumnError

__all__ = ["corpus_of_frame", "label_scale"]

LABEL_SCALES = (1, 2, 4)
"""Highest labels of the known scales."""
_IDS, _LABEL = ("query", "doc"), "label"
_LARGEST = float(np.finfo(np.float32).max)


def label_scale(highest: float, max_label: int | None) -> int | None:
    """Return the highest label of the scale; None if it is not given and not known for labels this high."""
    return max_label or next((scale for scale in LABEL_SCALES if highest <= scale), None)


def corpus_of_frame(
    frame: Any, *, columns: Mapping[str, str] | None = None, n_features: int | None = None, max_label: int | None = None
) -> Corpus:
    """Make a corpus of a data frame with one row per (query, document) pair.

    Parameters
    ----------
    frame
        A pandas, Polars or Arrow table, or any other object with the Arrow PyCapsule interface.
    columns
        Names of the frame's columns for query, doc and label, where they differ.
    n_features
        Number of features that there must be; None for any.
    max_label
        Highest label of the scale; None as for `read_corpus`.

    Returns
    -------
    Corpus
        All columns but query, doc and label are features, in the order of the frame.

    Raises
    ------
    DataError
        "not-a-table", "duplicate-columns", "missing-column", "empty-table", "bad-column" (not ids, or not numbers),
        "missing-id", "not-finite", "duplicate-document", "wrong-feature-count" or "unknown-label-scale".
    """
    names = {name: (columns or {}).get(name, name) for name in (*_IDS, _LABEL)}
    table = _arrow_table(frame, names)
    ids = [_ids(names[name], table) for name in _IDS]
    vocabulary, _, pair = Vocabulary.of(*(column.ids() for column in ids))
    if vocabulary.n_pairs < len(pair):
        order = np.argsort(pair, kind="stable")
        repeated = np.sort(order[1:][np.diff(pair[order]) == 0])
        query, doc = (column.show(int(repeated[0])) for column in ids)
        raise DataError(
            f"a document must appear once per query: {doc} appears again for query {query} in row {repeated[0]} "
            f"({len(repeated):,} such rows, counted from 0). Remove the rows.",
            code="duplicate-document",
            query=query,
            document=doc,
            row=int(repeated[0]),
            count=len(repeated),
        )
    chosen = [name for name in table.column_names if name not in names.values()]
    if n_features is not None and len(chosen) != n_features:
        raise DataError(
            f"documents must have {n_features} features: the frame has {len(chosen)}, {_listed(chosen)}.",
            code="wrong-feature-count",
            expected=n_features,
            count=len(chosen),
        )
    features = np.empty((len(pair), len(chosen)), np.float32)
    for k, name in enumerate(chosen):
        features[pair, k] = np.clip(_numbers(name, table), -_LARGEST, _LARGEST)
    label = np.zeros(len(pair))
    if names[_LABEL] in table.column_names:
        label[pair] = _numbers(names[_LABEL], table)
    scale = label_scale(label.max(), max_label)
    if scale is None:
        raise DataError(
            f"the scale of labels above {LABEL_SCALES[-1]} is not known: got {label.max():g} in the column "
            f"{names[_LABEL]!r}. Pass max_label.",
            code="unknown-label-scale",
            value=float(label.max()),
        )
    return Corpus(vocabulary, label, features if chosen else None, scale)


def _arrow_table(frame: Any, names: Mapping[str, str]) -> Any:
    """Convert a frame to an Arrow table, whose columns are checked to be distinct and to have the ids."""
    import pyarrow as pa

    if not hasattr(frame, "__arrow_c_stream__"):
        raise DataError(
            "a corpus must be a path, a Corpus or a data frame (pandas, Polars, Arrow): "
            f"got {type(frame).__module__}.{type(frame).__qualname__}.",
            code="not-a-table",
            type=type(frame).__qualname__,
        )
    found = [str(name) for name in getattr(frame, "column_names", getattr(frame, "columns", ()))]
    if repeated := sorted({name for name in found if found.count(name) > 1}):
        raise DataError(
            f"the columns of a frame must have different names: {_listed(repeated)} appears more than once. "
            "Rename or remove them.",
            code="duplicate-columns",
            columns=repeated,
        )
    table = pa.table(frame)
    if missing := [name for name in _IDS if names[name] not in table.column_names]:
        raise DataError(
            f"a frame of documents must have the columns {names['query']} and {names['doc']}: it has no "
            f"{' and no '.join(names[name] for name in missing)}, but {_listed(table.column_names)}. Rename them, or "
            f'pass columns={{"{missing[0]}": "..."}}.',
            code="missing-column",
            columns=[names[name] for name in missing],
            found=table.column_names,
        )
    if not table.num_rows:
        raise DataError("a frame of documents must have rows: it has none.", code="empty-table")
    index = [name for name in table.column_names if name.startswith("__index_level_")]  # of pandas
    return table.drop_columns(index)


def _ids(name: str, table: Any) -> Column:
    """Return a column of ids, none of which may be missing."""
    try:
        column = id_column(name, [table[name]])
    except ColumnError as error:
        raise DataError(f"the column {name!r} {error}.", code="bad-column", column=name) from None
    if column.bad.any():
        row = int(column.bad.argmax())
        raise DataError(
            f"every row must have an id in the column {name!r}: there is none in row {row} "
            f"({int(column.bad.sum()):,} such rows, counted from 0). Remove the rows.",
            code="missing-id",
            column=name,
            row=row,
            count=int(column.bad.sum()),
        )
    return column


def _numbers(name: str, table: Any) -> np.ndarray:
    """Return a column of finite numbers; text, as in a CSV file, is parsed."""
    try:
        column = number_column(name, [table[name]])
        values = np.where(column.bad, np.nan, column.values.astype(np.float64))
    except ColumnError:
        values = np.full(table.num_rows, np.nan)
    if np.isnan(values).all():
        raise DataError(
            f"every column but query, doc and label is a feature and must hold numbers: {name!r} holds "
            f"{table[name].type}, e.g. {table[name][0].as_py()!r}. Convert or remove it.",
            code="bad-column",
            column=name,
            type=str(table[name].type),
        )
    bad = ~np.isfinite(values)
    if bad.any():
        row = int(bad.argmax())
        raise DataError(
            f"a feature or label must be a finite number: got {table[name][row].as_py()!r} in row {row} of the column "
            f"{name!r} "
            f"({int(bad.sum()):,} such rows, counted from 0). Fill it, e.g. with 0.",
            code="not-finite",
            column=name,
            row=row,
            count=int(bad.sum()),
        )
    return values


def _listed(names: Sequence[str]) -> str:
    """Return the first names as a text."""
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") if names else "none"
