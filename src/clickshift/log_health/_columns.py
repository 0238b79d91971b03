"""Columns of a log that the checks need: a few numbers per row, gathered in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped, UInt64

from clickshift.core.unique_rows import distinct_sorted, row_hashes
from clickshift.counts.cells import Cells
from clickshift.data._columns import pack_bits
from clickshift.data.encoded_log import Log
from clickshift.data.segments import Segment
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import UNSEEN
from clickshift.log_health.finding import NeedsError

DAY = 86400.0
_NUMBERS = (
    *("query", "count", "first_rank", "length", "n_shown", "n_clicks", "first_click", "last_click", "list_hash"),
    "click_hash",
)
"""What `_numbers` returns."""
_RESOLUTIONS = (DAY, 3600.0, 60.0)


@dataclass(frozen=True, eq=False)
class LogColumns:
    """A log as a few numbers per row.

    Parameters
    ----------
    log
        The log.
    query
        Query number.
    count
        Number of sessions.
    first_rank, length, n_shown
        Rank of the first and of the last document, from 1, and the number of documents.
    n_clicks, first_click, last_click
        Number of clicks, and the ranks of the first and the last one, from 1; 0 without a click.
    list_hash, click_hash
        Hashes of query and list, and of the clicks.
    time
        Seconds; None if the log has no times.
    user
        Number of the user; None if the log has none.
    user_ids
        Ids of the users, by number.
    arm
        The segment `arm`, if the log has it.
    first_rank_shift
        What was added to the ranks of the file; not 0 if they began at 0.
    """

    log: Log
    query: Int[np.ndarray, " row"]
    count: Int[np.ndarray, " row"]
    first_rank: Int[np.ndarray, " row"]
    length: Int[np.ndarray, " row"]
    n_shown: Int[np.ndarray, " row"]
    n_clicks: Int[np.ndarray, " row"]
    first_click: Int[np.ndarray, " row"]
    last_click: Int[np.ndarray, " row"]
    list_hash: UInt64[np.ndarray, " row"]
    click_hash: UInt64[np.ndarray, " row"]
    time: Float[np.ndarray, " row"] | None = None
    user: Int[np.ndarray, " row"] | None = None
    user_ids: Any = None
    arm: Segment | None = None
    first_rank_shift: int = 0

    @classmethod
    def of(cls, log: Log, first_rank_shift: int = 0) -> LogColumns:
        """Gather the columns of a log.

        Parameters
        ----------
        log
            Sessions or an encoded log.
        first_rank_shift
            What was added to the ranks of the file.
        """
        parts, times, users, arms = [], [], [], []
        for part in log.chunks(user_ids=True):
            parts.append(_numbers(part))
            times.append(part.time)
            users.append(part.user)
            arms.append(part.segments.get("arm"))
        columns: dict[str, Any] = {name: np.concatenate([part[k] for part in parts]) for k, name in enumerate(_NUMBERS)}
        user, user_ids = _numbered(users)
        known_arms = [arm for arm in arms if arm is not None]
        arm = Segment.concat(known_arms) if known_arms and len(known_arms) == len(arms) else None
        known_times = [time for time in times if time is not None]
        time = seconds(np.concatenate(known_times)) if len(known_times) == len(times) else None
        return cls(log, **columns, time=time, user=user, user_ids=user_ids, arm=arm, first_rank_shift=first_rank_shift)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.query)

    @cached_property
    def total(self) -> float:
        """Number of sessions."""
        return float(self.count.sum())

    @cached_property
    def cells(self) -> Cells:
        """Impressions and clicks of each pair at each rank."""
        return Cells.of(self.log)

    @cached_property
    def resolution(self) -> float:
        """Seconds of which all times are multiples: 1 for finer ones."""
        return next((s for s in _RESOLUTIONS if self.time is not None and not (self.time % s).any()), 1.0)

    @cached_property
    def visits(self) -> Visits:
        """Consecutive sessions of the same user; raises `NeedsError` without users and times."""
        missing = [name for name, value in (("time", self.time), ("user", self.user)) if value is None]
        if missing:
            raise NeedsError(f"needs the column{'s' if len(missing) > 1 else ''} {' and '.join(missing)}")
        if self.resolution > 1:
            raise NeedsError("needs times to the second")
        if (self.count != 1).any():
            raise NeedsError("needs one row per session: rows of this log stand for several")
        assert self.user is not None
        assert self.time is not None
        return Visits.of(self.user, self.time)

    def sessions_of(self, rows: Bool[np.ndarray, " row"]) -> float:
        """Return the number of sessions of some rows."""
        return float(self.count[rows].sum())

    def frequency(self, keys: Int[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
        """Return the probability that another session, drawn at random, has the key of each row."""
        _, position = distinct_sorted(keys)
        sizes = np.bincount(position, self.count)
        frequency: np.ndarray = (sizes[position] - 1) / max(self.total - 1, 1)
        return frequency

    def take(self, rows: Int[np.ndarray, " some"]) -> Sessions:
        """Return some rows of the log, in order of their numbers."""
        if isinstance(self.log, Sessions):
            return self.log[rows]
        order = np.argsort(rows, kind="stable")
        wanted, start, parts = rows[order], 0, []
        for part in self.log.chunks(user_ids=True):
            inside = wanted[(wanted >= start) & (wanted < start + len(part))] - start
            parts += [part[inside]] if len(inside) else []
            start += len(part)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return Sessions.concat(parts)[back]


@dataclass(frozen=True, eq=False)
class Visits:
    """Pairs of consecutive sessions of the same user.

    Parameters
    ----------
    order
        Rows by user and time.
    first, second
        Rows of each pair.
    gap
        Seconds between them.
    """

    order: Int[np.ndarray, " row"]
    first: Int[np.ndarray, " pair"]
    second: Int[np.ndarray, " pair"]
    gap: Float[np.ndarray, " pair"]

    @classmethod
    def of(cls, user: Int[np.ndarray, " row"], time: Float[np.ndarray, " row"]) -> Visits:
        """Find the pairs, from each session to the next one."""
        order = np.lexsort((time, user))
        same = np.flatnonzero(user[order[1:]] == user[order[:-1]])
        first, second = order[same], order[same + 1]
        return cls(order, first, second, time[second] - time[first])

    def within(self, low: float, high: float) -> Visits:
        """Return the pairs with a gap above `low` and at most `high` seconds."""
        kept = np.flatnonzero((self.gap > low) & (self.gap <= high))
        return Visits(self.order, self.first[kept], self.second[kept], self.gap[kept])

    def followed_by(self, most: int, low: float, high: float) -> Visits:
        """Return pairs of a session and each of the user's next `most` ones within `high` seconds."""
        next_row, next_gap = (
            np.full(len(self.order), fill, kind) for fill, kind in ((-1, np.int64), (0.0, np.float64))
        )
        next_row[self.first], next_gap[self.first] = self.second, self.gap
        first, second, gap = self.first, self.second, self.gap
        found = []
        for _ in range(most):
            near = np.flatnonzero(gap <= high)
            first, second, gap = first[near], second[near], gap[near]
            found.append((first, second, gap))
            more = np.flatnonzero(next_row[second] >= 0)
            first, gap = first[more], gap[more] + next_gap[second[more]]
            second = next_row[second[more]]
        columns = [np.concatenate([part[k] for part in found]) for k in range(3)]
        return Visits(self.order, *columns).within(low, high)


def seconds(time: Shaped[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
    """Return times as seconds; numbers are days."""
    if time.dtype.kind in "Mm":
        unit = "datetime64[us]" if time.dtype.kind == "M" else "timedelta64[us]"
        return time.astype(unit).astype(np.int64) / 1e6
    return time.astype(np.float64) * DAY


def _numbers(part: Sessions) -> tuple[np.ndarray, ...]:
    """Return the numbers of a chunk's rows, as `_NUMBERS` names them."""
    rankings, click = part.rankings, part.click
    shown, ranks = rankings.shown, part.n_ranks
    any_click = click.any(axis=1)
    first_click = np.where(any_click, click.argmax(axis=1) + 1, 0)
    last_click = np.where(any_click, ranks - click[:, ::-1].argmax(axis=1), 0)
    lists = np.concatenate([rankings.query[:, None], rankings.pair], axis=1)
    return (
        rankings.query,
        part.count,
        shown.argmax(axis=1) + 1,
        np.asarray(rankings.length, np.int64),
        rankings.n_shown,
        click.sum(axis=1),
        first_click,
        last_click,
        row_hashes(lists),
        row_hashes(pack_bits(click).astype(np.int64)),
    )


def _numbered(users: Sequence[Any]) -> tuple[np.ndarray | None, Any]:
    """Number raw user ids; None if a chunk has none."""
    if any(user is None for user in users):
        return None, None
    import pyarrow as pa

    whole = np.concatenate(users)
    if whole.dtype.kind in "iu":
        ids, number = np.unique(whole, return_inverse=True)
        return number, ids
    encoded = pa.array(whole.tolist()).dictionary_encode()
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary


def same_documents(a: Int[np.ndarray, "n rank"], b: Int[np.ndarray, "n rank"]) -> Bool[np.ndarray, " n"]:
    """Return whether two lists share a document, for many pairs of lists.

    Parameters
    ----------
    a, b
        Pair numbers of the lists.
    """
    shared = np.zeros(len(a), bool)
    for rank in range(a.shape[1]):
        document = a[:, rank, None]
        shared |= ((document == b) & (document != UNSEEN)).any(axis=1)
    return shared
