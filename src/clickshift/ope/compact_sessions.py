"""An encoded log in memory, as the rows that off-policy evaluation tells apart: equal ones are counted."""

from __future__ import annotations

from functools import partial

import numpy as np
from jaxtyping import Bool

from clickshift.core.unique_rows import distinct_rows
from clickshift.data._columns import key_columns, rows_of
from clickshift.data.days import floor_to_day
from clickshift.data.encoded_log import EncodedLog
from clickshift.data.sessions import Rankings, Sessions
from clickshift.errors import DataError
from clickshift.ope.grouped_log import list_keys, pack_rows
from clickshift.ope.rewards import OUTCOME, Reward
from clickshift.ope.signal_reward import with_values

_WAITING_ROWS = 1 << 20
"""Number of rows of an encoded log that are read before equal ones are merged."""


def compact_sessions(
    log: EncodedLog,
    reward: Reward,
    *,
    queries: Bool[np.ndarray, " query"] | None = None,
    users: bool = False,
    propensities: bool = False,
    segment: str | None = None,
) -> Sessions:
    """Read an encoded log into memory as rows that differ in list, clicks or day: equal sessions are counted.

    Estimates from them are those of the log itself.

    Parameters
    ----------
    log
        The encoded log.
    reward
        Reward of a list: only the ranks that it counts are kept, unless the log has propensities of whole lists.
    queries
        Mask of the queries to read; None for all.
    users
        Whether to keep the users of sessions apart.
    propensities
        Whether to keep propensities by position, where the log has them.
    segment
        Segment to keep, where the log has it.

    Returns
    -------
    Sessions
        The rows with their counts, in order of first appearance.

    Raises
    ------
    DataError
        If there is no such session ("no-sessions").
    """
    ranks = log.n_ranks if "log_prob" in log.kinds else len(reward.theta(log.n_ranks))
    merged = partial(_merge_equal_rows, ranks=ranks, users=users, propensities=propensities, segment=segment)
    parts: list[Sessions] = []
    for chunk in log.chunks():
        part = chunk if queries is None else chunk[queries[chunk.rankings.query]]
        if len(part):
            part = with_values(part, reward)
            parts.append(merged(part))
        # the merged rows are merged again when as many new ones wait, so that each row is merged a few times only
        if sum(map(len, parts[1:])) > max(len(parts[0]) if parts else 0, _WAITING_ROWS):
            parts = [merged(Sessions.concat(parts))]
    if not parts:
        raise DataError("no session of the log belongs to one of these queries.", code="no-sessions")
    return parts[0] if len(parts) == 1 else merged(Sessions.concat(parts))


def _merge_equal_rows(
    sessions: Sessions, *, ranks: int, users: bool, propensities: bool, segment: str | None
) -> Sessions:
    """Merge the rows with equal first ranks, clicks and days, and add their counts."""
    rankings = sessions.rankings
    pair, shown, click = (a[:, :ranks] for a in (rankings.pair, rankings.shown, sessions.click))
    time = None if sessions.time is None else floor_to_day(sessions.time)
    user = sessions.user if users else None
    keys = [list_keys(rankings, ranks), pack_rows(np.packbits(click, axis=1))]
    rank_prob = None
    if propensities and rankings.propensity is not None:
        rank_prob = np.ascontiguousarray(rankings.propensity[:, :ranks])
        keys.append(rank_prob.view(np.int64))
    values = sessions.signals.get(OUTCOME)
    signals = {} if values is None else {OUTCOME: np.ascontiguousarray(values[:, :ranks])}
    segments = {name: own for name, own in rankings.segments.items() if name == segment}
    keys += key_columns(None, signals, segments)
    for column in (time, rankings.log_prob, user):
        if column is not None:
            keys.append(np.unique(column, return_inverse=True)[1][:, None])
    group, first = distinct_rows(np.concatenate(keys, axis=1, dtype=np.int64))
    log_prob = None if rankings.log_prob is None else rankings.log_prob[first]
    return Sessions(
        Rankings.checked(
            rankings.vocabulary,
            rankings.query[first],
            pair[first],
            shown[first],
            log_prob,
            None if rank_prob is None else rank_prob[first],
            rows_of(segments, first),
        ),
        click[first],
        np.bincount(group, sessions.count, len(first)).astype(np.int64),
        None if time is None else time[first],
        None if user is None else user[first],
        rows_of(signals, first),
    )
