"""Sessions as Arrow tables, in the two layouts of a log: one row per list ("wide") or one row per result ("long")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from clickshift.core.unique_rows import distinct_sorted
from clickshift.data._columns import PROPENSITY_AT_RANK
from clickshift.data.segments import UNKNOWN, Segment
from clickshift.data.vocabulary import UNSEEN, Ids
from clickshift.errors import DataError

if TYPE_CHECKING:
    from clickshift.data.encoded_log import Log
    from clickshift.data.sessions import Rankings, Sessions

Layout = Literal["wide", "long"]
"""Layout of a log: one row per list, or one row per result."""

_SMALLEST_LOG = -700.0  # below it, exp underflows to 0 or loses its digits


def check_layout(layout: str) -> None:
    """Check the name of a layout.

    Raises
    ------
    DataError
        "bad-option" for another one.
    """
    if layout not in {"wide", "long"}:
        raise DataError(
            f'layout must be "wide" or "long": got {layout!r}.', code="bad-option", option="layout", value=layout
        )


def _check_ids(sessions: Sessions) -> None:
    """Refuse sessions with a query or document that the vocabulary does not hold: its raw id is unknown."""
    rankings = sessions.rankings
    unseen = (rankings.query == UNSEEN) | ((rankings.pair == UNSEEN) & rankings.shown).any(axis=1)
    if unseen.any():
        first, count = int(np.argmax(unseen)) + 1, int(unseen.sum())
        raise DataError(
            f"session {first}: ids must be known to be written, and the vocabulary lacks its query or a document "
            f"({count:,} such sessions). Write the log before translating it to another vocabulary.",
            code="unseen-id",
            row=first,
            count=count,
        )


def arrow_tables(log: Log, layout: Layout, results: int) -> Iterator[Any]:
    """Yield a log in pyarrow tables of about this many results, all with the same columns.

    Parameters
    ----------
    log
        The log, in memory or encoded.
    layout
        "wide" for one row per list, "long" for one row per result.
    results
        Number of results of a table, about.

    Raises
    ------
    DataError
        "unseen-id" for sessions with ids that their vocabulary does not hold, "bad-column" for times or users that a
        table cannot hold.
    """
    # the columns must be known before the first table is yielded; signals have one type in all chunks
    underflows = any(
        part.rankings.log_prob is not None and part.rankings.log_prob.min() < _SMALLEST_LOG
        for part in log.chunks(narrow=True)
    )
    first_row = 0
    for part in log.chunks(narrow=True, user_ids=True):
        _check_ids(part)
        attributes: dict[str, np.ndarray] = {}
        if part.time is not None:
            attributes["time"] = _writable_time(part.time)
        if part.user is not None:
            attributes["user"] = _writable_user(part.user)
        if (log_prob := part.rankings.log_prob) is not None:
            attributes |= {"log_propensity": log_prob} if underflows else {"propensity": np.exp(log_prob)}
        if log.has_counts:
            attributes["count"] = part.count
        size = max(results // part.n_ranks, 1)
        for start in range(0, len(part), size):
            rows = slice(start, start + size)
            of_rows = {name: values[rows] for name, values in attributes.items()}
            yield _table(part[rows], of_rows, layout, first_row + start)
        first_row += len(part)


def _table(sessions: Sessions, attributes: Mapping[str, np.ndarray], layout: Layout, first_row: int) -> Any:
    """Return sessions as a table."""
    import pyarrow as pa

    rankings, vocabulary = sessions.rankings, sessions.vocabulary
    columns = {"query": _ids(vocabulary.query_ids, rankings.query)}
    columns |= {name: pa.array(values) for name, values in attributes.items()}
    columns |= {name: _labels(segment) for name, segment in sessions.segments.items()}
    doc = _ids(vocabulary.doc_ids, vocabulary.pair_doc[rankings.pair[rankings.shown]])
    values = {name: signal[rankings.shown] for name, signal in sessions.signals.items()}
    if rankings.propensity is not None:
        values[PROPENSITY_AT_RANK] = rankings.propensity[rankings.shown]
    results = {name: _numbers(signal) for name, signal in values.items()}
    click = pa.array(sessions.click[rankings.shown].astype(np.int8))
    if layout == "wide":
        columns |= _lists(rankings, {"docs": doc, "clicks": click} | results)
        return pa.table(columns)
    row, rank = np.nonzero(rankings.shown)
    numbers = pa.array(first_row + 1 + np.arange(len(rankings)))
    table = pa.table({"session": numbers} | columns).take(pa.array(row))
    result_columns = {"rank": pa.array(rank + 1), "doc": doc, "click": click} | results
    return pa.table(dict(zip(table.column_names, table.columns, strict=True)) | result_columns)


def _lists(rankings: Rankings, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of results as columns of lists; at a hole there is no document, no click and no other value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    length = rankings.length
    offsets = pa.array(np.r_[0, np.cumsum(length)], pa.int32())
    if rankings.has_holes:
        shown = rankings.shown[np.arange(rankings.n_ranks) < length[:, None]]
        result = pa.array(np.cumsum(shown) - 1, mask=~shown)
        columns = {name: values.take(result) for name, values in columns.items()}
        columns["clicks"] = pc.fill_null(columns["clicks"], 0)
    return {name: pa.ListArray.from_arrays(offsets, values) for name, values in columns.items()}


def _numbers(signal: np.ndarray) -> Any:
    """Return the values of a signal; 0 and 1 for truth values, and null where it is unknown."""
    import pyarrow as pa

    return pa.array(signal.astype(np.int8)) if signal.dtype == bool else pa.array(signal, from_pandas=True)


def _labels(segment: Segment) -> Any:
    """Return the labels of sessions, null where a label is unknown."""
    import pyarrow as pa

    index = pa.array(segment.code, pa.int32(), mask=segment.code == UNKNOWN)
    return pa.DictionaryArray.from_arrays(index, pa.array(segment.labels, pa.string()))


def _ids(ids: Ids, numbers: np.ndarray) -> Any:
    """Look up raw ids by number; text as a dictionary of the used ids, which Parquet writes once."""
    import pyarrow as pa

    if ids.dtype.kind == "i":
        return pa.array(ids[numbers])
    used, index = distinct_sorted(numbers)
    return pa.DictionaryArray.from_arrays(pa.array(index, pa.int32()), pa.array(ids[used].astype(object), pa.string()))


def _writable_time(time: np.ndarray) -> np.ndarray:
    """Return times with a unit that pyarrow knows; DataError for values that are neither finite numbers nor dates."""
    if time.dtype.kind == "M":
        has_arrow_unit = np.datetime_data(time.dtype)[0] in {"D", "s", "ms", "us", "ns"}
        return time if has_arrow_unit else time.astype("datetime64[s]")
    if time.dtype.kind not in "iuf" or not np.isfinite(time).all():
        raise DataError(
            f"time must be finite numbers or datetimes to be written: got {time.dtype}. Convert it first.",
            code="bad-column",
            column="time",
            value=str(time.dtype),
        )
    return time


def _writable_user(user: np.ndarray) -> np.ndarray:
    """Return users as integers or Python strings; DataError for other types."""
    if user.dtype.kind in "iu":
        return user
    if user.dtype.kind in "UT" or all(isinstance(one, str) for one in user.tolist()):
        return user.astype(object)
    raise DataError(
        f"users must be integers or text to be written: got {user.dtype}. Convert them first.",
        code="bad-column",
        column="user",
        value=str(user.dtype),
    )
