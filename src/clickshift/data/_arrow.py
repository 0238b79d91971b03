"""Sessions as Arrow tables, in the two layouts of a log: one row per list ("wide") or one row per result ("long")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from clickshift.core.unique_rows import distinct_sorted
from clickshift.data.vocabulary import UNSEEN, Ids
from clickshift.errors import DataError

if TYPE_CHECKING:
    from clickshift.data.sessions import Sessions

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


def arrow_tables(sessions: Sessions, layout: Layout, results: int) -> Iterator[Any]:
    """Yield a log in pyarrow tables of about this many results, all with the same columns.

    Parameters
    ----------
    sessions
        The log.
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
    import pyarrow as pa

    _check_ids(sessions)
    attributes: dict[str, np.ndarray] = {}
    if sessions.time is not None:
        attributes["time"] = _writable_time(sessions.time)
    if sessions.user is not None:
        attributes["user"] = _writable_user(sessions.user)
    if (log_prob := sessions.rankings.log_prob) is not None:
        underflows = log_prob.min() < _SMALLEST_LOG
        attributes |= {"log_propensity": log_prob} if underflows else {"propensity": np.exp(log_prob)}
    if (sessions.count != 1).any():
        attributes["count"] = sessions.count
    size = max(results // sessions.n_ranks, 1)
    for start in range(0, len(sessions), size):
        rows = slice(start, start + size)
        rankings, clicks = sessions[rows].rankings, sessions.click[rows]
        vocabulary = rankings.vocabulary
        columns = {"query": _ids(vocabulary.query_ids, rankings.query)}
        columns |= {name: pa.array(values[rows]) for name, values in attributes.items()}
        doc = _ids(vocabulary.doc_ids, vocabulary.pair_doc[rankings.pair[rankings.shown]])
        click = pa.array(clicks[rankings.shown].astype(np.int8))
        if layout == "wide":
            offsets = pa.array(np.r_[0, np.cumsum(rankings.length)], pa.int32())
            columns["docs"] = pa.ListArray.from_arrays(offsets, doc)
            columns["clicks"] = pa.ListArray.from_arrays(offsets, click)
            yield pa.table(columns)
        else:
            row, rank = np.nonzero(rankings.shown)
            numbers = pa.array(start + 1 + np.arange(len(rankings)))
            table = pa.table({"session": numbers} | columns).take(pa.array(row))
            result_columns = {"rank": pa.array(rank + 1), "doc": doc, "click": click}
            yield pa.table(dict(zip(table.column_names, table.columns, strict=True)) | result_columns)


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
