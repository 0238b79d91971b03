"""A log grouped by distinct list: how often each list was shown, and what was clicked.

One pass groups the sessions; after it, the cost of every estimator grows with the number of distinct lists, not of
sessions. A tally of a part of the log (a day, a resampled log) has the same entries, so tallies can be added and
subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import final, no_type_check

import numpy as np
from jaxtyping import Bool, Float, Int, Num, Shaped
from numba import njit

from clickshift.core.parallel import for_ranges
from clickshift.core.unique_rows import distinct_rows, stable_order
from clickshift.data._columns import rows_of
from clickshift.data.segments import Segment
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import DataError
from clickshift.ope.logged_propensities import LoggedPropensities, PropensityKind, checked_kind
from clickshift.ope.rewards import Outcome, Reward


@final
@dataclass(frozen=True, eq=False)
class Tally:
    """Counts by entry of a grouped log. The last dimension holds several logs at once, e.g. resampled ones.

    Parameters
    ----------
    shown
        Number of sessions; for resampled logs, like `clicks`, stored in a small type where the counts fit.
    clicks
        Number of clicks of each entry and rank that was ever clicked (`GroupedLog.clicked`).
    earned
        Total reward of all sessions of an entry.
    sessions
        Number of sessions of each query.
    """

    shown: Num[np.ndarray, "entry part"]
    clicks: Num[np.ndarray, "clicked part"]
    earned: Float[np.ndarray, "entry part"]
    sessions: Float[np.ndarray, "query part"]

    def __sub__(self, other: Tally) -> Tally:
        return Tally(
            self.shown - other.shown,
            self.clicks - other.clicks,
            self.earned - other.earned,
            self.sessions - other.sessions,
        )


@final
@dataclass(frozen=True, eq=False)
class Clusters:
    """Units of the bootstrap: sessions, or users with all of their sessions.

    Equal rows are merged, and are in the order of their entries.

    Parameters
    ----------
    size
        Number of equal clusters that one cluster stands for.
    of_row
        Cluster of each row.
    entry
        Entry of each row.
    click
        Clicks of each row, or values between 0 and 1.
    count
        Number of sessions of a row in one cluster.
    """

    size: Float[np.ndarray, " cluster"]
    of_row: Int[np.ndarray, " row"]
    entry: Int[np.ndarray, " row"]
    click: Outcome
    count: Float[np.ndarray, " row"]


@final
@dataclass(frozen=True, eq=False)
class GroupedLog:
    """Distinct lists of a log, truncated to the ranks that the reward counts. The context of a list is its query.

    An entry is a distinct list together with its logged propensities, and its label of a segment that is kept: entries
    are lists where there is neither. A cell is a document at a rank, among those that were shown. Lists of a query are
    adjacent, and so are entries of a list, so that counts by document are close in memory.

    Lists are equal if they show the same documents at the same ranks: where their holes are is part of a list. A hole
    is no cell. A list whose documents are all below the ranks that count is empty here, and its sessions count.

    Parameters
    ----------
    reward
        Reward of a list.
    theta
        Weight of each rank in the reward.
    lists
        Distinct lists.
    list_of
        List of each entry.
    log_prob
        Logged log-propensities; None where the log has none, or where they belong to longer lists.
    rank_prob
        Logged propensities by position; None where the log has none.
    was_cut
        Whether lists are shorter here than in the log.
    cell
        Cell number of each list at each rank, `UNSEEN` below the end of the list.
    cell_pair
        (Query, document) pair of each cell.
    cell_rank
        Rank of each cell, from 0.
    entry_of
        Entry of each row of the log.
    click
        Clicks of each row of the log; of a reward by a signal, its values as shares of the largest one.
    count
        Number of sessions that each row of the log stands for.
    cluster
        User, or other cluster, of each row of the log; None where sessions are independent.
    propensity_kind
        What the propensities by position are the probabilities of.
    segments
        The segment of each entry by its name, if one is kept.

    Examples
    --------
    >>> from clickshift.data.vocabulary import Vocabulary
    >>> vocabulary = Vocabulary.of(np.array([0, 0]), np.array([10, 11]))[0]
    >>> lists = Rankings(vocabulary, np.array([0, 0, 0], np.int32), np.array([[0, 1], [0, 1], [1, 0]], np.int32))
    >>> GroupedLog.of(Sessions(lists, np.array([[True, False], [False, False], [True, True]])))
    GroupedLog(3 sessions, 2 distinct lists of 2 ranks)
    """

    reward: Reward
    theta: Float[np.ndarray, " rank"]
    lists: Rankings
    list_of: Int[np.ndarray, " entry"]
    log_prob: Float[np.ndarray, " entry"] | None
    rank_prob: Float[np.ndarray, "entry rank"] | None
    was_cut: bool
    cell: Int[np.ndarray, "list rank"]
    cell_pair: Int[np.ndarray, " cell"]
    cell_rank: Int[np.ndarray, " cell"]
    entry_of: Int[np.ndarray, " row"]
    click: Outcome
    count: Float[np.ndarray, " row"]
    cluster: Int[np.ndarray, " row"] | None
    propensity_kind: PropensityKind = "marginal"
    segments: Mapping[str, Segment] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        sessions: Sessions,
        reward: Reward | str = "clicks",
        *,
        cluster: str | np.ndarray = "session",
        propensity_kind: str = "marginal",
        segment: str | None = None,
    ) -> GroupedLog:
        """Group the sessions of a log by list.

        Parameters
        ----------
        sessions
            The log.
        reward
            Reward of a list, or its name, e.g. "dcg@3".
        cluster
            Which sessions the bootstrap resamples together: "session" for independent sessions, "user" for all sessions
            of a user, or one label per row of the log.
        propensity_kind
            What the propensities by position are the probabilities of: a document at its rank ("marginal"), given the
            documents above ("conditional"), together with them ("cascade"), or of a policy that fills every position by
            itself ("independent").
        segment
            Segment of the log whose labels are kept apart, for click models with a curve per label; a log without it
            has none.

        Returns
        -------
        GroupedLog
            The grouped log.

        Raises
        ------
        DataError
            If queries or documents have no id ("missing-id"), or if clusters are invalid ("bad-option",
            "missing-users", "unequal-lengths", "too-few-clusters").
        SpecError
            If `propensity_kind` is another text ("bad-option").
        """
        kind = checked_kind(propensity_kind)
        reward = Reward.named(reward) if isinstance(reward, str) else reward
        rankings = sessions.rankings
        if rankings.query.min() == UNSEEN or (
            rankings.pair.min() == UNSEEN and ((rankings.pair == UNSEEN) & rankings.shown).any()
        ):
            raise DataError(
                "every query and document of the log must have an id, so that lists can be distinguished: some ids "
                "were lost when the log was translated to another vocabulary. Pass the log in its own vocabulary.",
                code="missing-id",
            )
        theta = reward.theta(sessions.n_ranks)
        ranks = len(theta)
        was_cut = ranks < sessions.n_ranks and bool(rankings.shown[:, ranks:].any())
        of_row, first = distinct_rows(list_keys(rankings, ranks))
        of_row, first = _sort_groups(of_row, first, rankings.query, rankings.vocabulary.n_queries)
        pairs = _take_prefixes(rankings.pair, first, ranks)
        lists = Rankings.checked(rankings.vocabulary, rankings.query[first], pairs, pairs != UNSEEN)
        list_of, entry_of = np.arange(len(first)), of_row
        log_prob = None if was_cut else rankings.log_prob
        rank_prob = None if rankings.propensity is None else np.ascontiguousarray(rankings.propensity[:, :ranks])
        columns = [] if log_prob is None else [log_prob[:, None]]
        columns += [] if rank_prob is None else [rank_prob]
        kept = {name: own for name, own in rankings.segments.items() if name == segment}
        columns += [own.code.astype(np.float64)[:, None] for own in kept.values()]
        if any(not np.array_equal(column, column[first][of_row]) for column in columns):
            keys = np.concatenate([of_row[:, None], *(column.view(np.int64) for column in columns)], axis=1)
            entry_of, first = _sort_groups(*distinct_rows(keys), of_row, len(lists))
            list_of = of_row[first]
        return cls(
            reward,
            theta,
            lists,
            list_of,
            None if log_prob is None else log_prob[first],
            None if rank_prob is None else rank_prob[first],
            was_cut,
            *_number_cells(lists),
            entry_of,
            np.ascontiguousarray(reward.outcome(sessions)[:, :ranks]),
            sessions.count.astype(np.float64),
            _cluster_numbers(sessions, cluster),
            kind,
            rows_of(kept, first),
        )

    @property
    def vocabulary(self) -> Vocabulary:
        """Vocabulary of the log."""
        return self.lists.vocabulary

    @property
    def n_ranks(self) -> int:
        """Number of ranks that the reward counts."""
        return len(self.theta)

    @property
    def n_queries(self) -> int:
        """Number of queries of the vocabulary; some may have no session."""
        return self.vocabulary.n_queries

    @property
    def largest(self) -> float:
        """Largest reward of one list."""
        return self.reward.largest(self.n_ranks)

    @cached_property
    def query(self) -> Int[np.ndarray, " entry"]:
        """Query of each entry."""
        query: np.ndarray = self.lists.query[self.list_of]
        return query

    @cached_property
    def total(self) -> Tally:
        """Tally of the whole log."""
        return self.tally()

    def tally(self, rows: Bool[np.ndarray, " row"] | None = None) -> Tally:
        """Count the whole log, or some of its rows, e.g. those of one day."""
        entry, click, count = (a if rows is None else a[rows] for a in (self.entry_of, self.click, self.count))
        shown, clicks, earned = counts = _zeros(self, 1, np.dtype(np.float64))
        if click.dtype == bool:
            _count_once(entry, click, self.clicked_number, self.theta, _reward_cap(self), count, *counts)
        else:
            drawn, cluster = np.ones((1, 1)), np.zeros(len(entry), np.int64)
            _count_values(entry, click, self.clicked_number, self.theta, drawn, cluster, count, *counts)
        return Tally(shown, clicks, earned, self.per_query(shown))

    @cached_property
    def clicked_number(self) -> Int[np.ndarray, "entry rank"]:
        """Number of each entry and rank that was ever clicked, in order; `UNSEEN` elsewhere."""
        number = np.full((len(self.list_of), self.n_ranks), UNSEEN, np.int32)
        row, rank = np.nonzero(self.click)
        number[self.entry_of[row], rank] = 0
        number[number == 0] = np.arange(np.count_nonzero(number == 0))
        return number

    @cached_property
    def clicked(self) -> tuple[Int[np.ndarray, " clicked"], Int[np.ndarray, " clicked"]]:
        """Entry and rank of each number of `clicked_number`."""
        entry, rank = np.nonzero(self.clicked_number != UNSEEN)
        return entry, rank

    @cached_property
    def clusters(self) -> Clusters:
        """Units of the bootstrap, built when the log is first resampled."""
        is_click = self.click.dtype == bool
        keys = [self.entry_of[:, None]]
        keys.append(pack_rows(np.packbits(self.click, axis=1)) if is_click else self.click.view(np.int64))
        if self.cluster is not None:
            keys.append(self.cluster[:, None])
        group, first = distinct_rows(np.concatenate(keys, axis=1, dtype=np.int64))
        count = np.bincount(group, self.count, len(first))
        order = stable_order(self.entry_of[first], len(self.list_of))
        rows = first[order]
        entry, click = self.entry_of[rows], self.click[rows]
        if self.cluster is None:  # in order of appearance, so that random draws do not depend on the order of lists
            return Clusters(count, order, entry, click, np.ones(len(rows)))
        return Clusters(np.ones(int(self.cluster.max()) + 1), self.cluster[rows], entry, click, count[order])

    @cached_property
    def resampled_type(self) -> np.dtype:
        """Smallest number type for the counts of a resampled log: it must count the draws of the most frequent list.

        A sum of Poisson numbers stays below twice its mean plus 100, and one over clusters below sixteen times its mean
        plus 100, except with a probability of about 10^-14.
        """
        most = (2 if self.cluster is None else 16) * float(self.total.shown.max()) + 100
        return np.dtype(np.uint16 if most < 1 << 16 else np.float32 if most < 1 << 24 else np.float64)

    @cached_property
    def propensities(self) -> LoggedPropensities:
        """Propensities that the log carries."""
        return LoggedPropensities(
            self.propensity_kind,
            None if self.log_prob is None else np.exp(np.minimum(self.log_prob, 0.0)),
            None if self.rank_prob is None else np.minimum(self.rank_prob, 1.0),
            self.by_entry(self.lists.shown),
            self.was_cut,
        )

    def by_entry(self, of_list: Shaped[np.ndarray, "list slot"]) -> Shaped[np.ndarray, "entry slot"]:
        """Spread values by list over entries; not copied where entries are lists."""
        return of_list if len(self.list_of) == len(self.lists) else of_list[self.list_of]

    def of_lists(self, values: Callable[[Rankings], Float[np.ndarray, "list slot"]]) -> Float[np.ndarray, "entry slot"]:
        """Compute values of the list of each entry, such as the predictions of a click model: once for each list.

        Where the labels of a segment are kept, lists carry them.
        """
        if not self.segments:
            return self.by_entry(values(self.lists))
        own = self.lists[self.list_of]
        lists = Rankings.checked(own.vocabulary, own.query, own.pair, own.shown, segments=dict(self.segments))
        return values(lists)

    @cached_property
    def segment_shares(self) -> Float[np.ndarray, "query label_or_unknown"]:
        """Share of each label of the kept segment among the sessions of a query; the last is of unknown labels."""
        (segment,) = self.segments.values()
        size = len(segment.labels) + 1
        number = self.query.astype(np.int64) * size + segment.code % size
        sessions = np.bincount(number, self.total.shown[:, 0], self.n_queries * size).reshape(-1, size)
        shares: np.ndarray = sessions / np.maximum(sessions.sum(axis=1, keepdims=True), 1e-300)
        return shares

    def per_query(self, values: Num[np.ndarray, "entry part"]) -> Float[np.ndarray, "query part"]:
        """Sum values by entry over the entries of each query."""
        return sum_by_index(self.query, values, self.n_queries)

    def __repr__(self) -> str:
        return (
            f"GroupedLog({self.count.sum():,.0f} sessions, {len(self.lists):,} distinct lists of {self.n_ranks} ranks)"
        )


def tally_resampled(
    log: GroupedLog,
    entry: Int[np.ndarray, " row"],
    click: Outcome,
    drawn: Num[np.ndarray, "cluster part"],
    cluster: Int[np.ndarray, " row"],
    count: Float[np.ndarray, " row"],
) -> Tally:
    """Count the rows of resampled logs: each counts `count` times as often as its cluster was drawn."""
    if click.dtype == bool:
        shown, clicks, earned = counts = _zeros(log, drawn.shape[1], log.resampled_type)
        _count(entry, click, log.clicked_number, log.theta, _reward_cap(log), drawn, cluster, count, *counts)
    else:
        shown, clicks, earned = counts = _zeros(log, drawn.shape[1], np.dtype(np.float64))
        drawn = drawn.astype(np.float64)
        _count_values(entry, click, log.clicked_number, log.theta, drawn, cluster.astype(np.int64), count, *counts)
    return Tally(shown, clicks, earned, log.per_query(shown))


def _zeros(log: GroupedLog, parts: int, count_type: np.dtype) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make arrays for the counts: sessions by entry, clicks by entry and rank, and reward by entry."""
    entries = len(log.list_of)
    return (
        np.zeros((entries, parts), count_type),
        np.zeros((len(log.clicked[0]), parts), count_type),
        np.zeros((entries, parts)),
    )


def _reward_cap(log: GroupedLog) -> float:
    """Cap of a session's reward: 1 where any number of clicks counts as one."""
    return np.inf if log.reward.is_linear else log.largest


def sum_by_index(
    index: Int[np.ndarray, " n"], values: Num[np.ndarray, "n part"], size: int
) -> Float[np.ndarray, "m part"]:
    """Sum the rows with the same index; rows with the index `UNSEEN` are ignored."""
    out = np.zeros((size, values.shape[1]))
    _add(index, values, out)
    return out


def pack_rows(rows: np.ndarray) -> Int[np.ndarray, "row word"]:
    """Pack rows of small integers into 8-byte words, which are faster to hash; not copied where they fit."""
    per_word = 8 // rows.dtype.itemsize
    padding = -rows.shape[1] % per_word
    if padding:
        rows = np.pad(rows, ((0, 0), (0, padding)))
    return np.ascontiguousarray(rows).view(np.int64)


def list_keys(lists: Rankings, ranks: int, *, with_query: bool | None = None) -> Int[np.ndarray, "row word"]:
    """Return integers that are equal if, and only if, the first ranks of two lists are; pairs must be known.

    Pairs tell the query apart, except in lists that show nothing at these ranks.

    Parameters
    ----------
    lists
        The lists.
    ranks
        Number of ranks to compare.
    with_query
        Whether the keys contain the query. By default, if a list shows nothing.
    """
    pair = lists.pair[:, :ranks]
    if with_query is None:
        with_query = any_empty(lists, ranks)
    return (
        np.concatenate([lists.query[:, None], pack_rows(pair)], axis=1, dtype=np.int64)
        if with_query
        else pack_rows(pair)
    )


def any_empty(lists: Rankings, ranks: int) -> bool:
    """Return whether a list shows nothing at the first ranks, which only lists with holes may do."""
    return not lists.shown[:, 0].all() and not lists.shown[:, :ranks].any(axis=1).all()


def _sort_groups(
    group: Int[np.ndarray, " row"], first: Int[np.ndarray, " group"], number: Int[np.ndarray, " row"], size: int
) -> tuple[Int[np.ndarray, " row"], Int[np.ndarray, " group"]]:
    """Renumber groups in the order of a number that all rows of a group share."""
    order = stable_order(number[first], size)
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    return position[group], first[order]


def _take_prefixes(
    pair: Int[np.ndarray, "row _"], rows: Int[np.ndarray, " list"], ranks: int
) -> Int[np.ndarray, "list rank"]:
    """Copy the first `ranks` ranks of some rows."""
    taken = np.empty((len(rows), ranks), np.int32)
    for_ranges(lambda block: _take(pair, rows[block], taken[block]), len(rows))
    return taken


def _number_cells(lists: Rankings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number the cells by rank, then by pair.

    Returns the cell of each list at each rank, and the pair and the rank of each cell.
    """
    occurs = np.zeros((lists.vocabulary.n_pairs, lists.n_ranks), bool)
    for_ranges(lambda rows: _mark(lists.pair[rows], occurs), len(lists))
    rank, pair = np.nonzero(occurs.T)
    number = np.empty(occurs.shape, np.int32)
    number[pair, rank] = np.arange(len(pair))
    cell = np.empty(lists.pair.shape, np.int32)
    for_ranges(lambda rows: _look_up(lists.pair[rows], number, cell[rows]), len(lists))
    return cell, pair, rank


def _cluster_numbers(sessions: Sessions, cluster: str | np.ndarray) -> np.ndarray | None:
    """Number the cluster of each row from 0; None where every session is a cluster of its own."""
    if isinstance(cluster, str) and cluster == "session":
        return None
    if isinstance(cluster, str):
        if cluster != "user":
            raise DataError(
                f"`cluster` must be 'session', 'user' or one label per row: got {cluster!r}.",
                code="bad-option",
                value=cluster,
            )
        if sessions.user is None:
            raise DataError(
                'clusters by user need users: this log has none. Add a user column, or pass cluster="session".',
                code="missing-users",
            )
        cluster = sessions.user
    if len(cluster) != len(sessions):
        raise DataError(
            f"there must be one cluster per row of the log, {len(sessions)}: got {len(cluster)}.",
            code="unequal-lengths",
            count=len(cluster),
            expected=len(sessions),
        )
    number: np.ndarray = np.unique(cluster, return_inverse=True)[1]
    if not number.any():
        raise DataError("a bootstrap over clusters needs at least two clusters: got one.", code="too-few-clusters")
    return number


@njit(cache=True, nogil=True)
@no_type_check
def _count(entry, click, number, theta, reward_cap, drawn, cluster, count, shown, clicks, earned):
    """Count the rows of resampled logs; the reward of a session is the sum of theta over its clicks, capped."""
    parts, ranks = drawn.shape[1], click.shape[1]
    for i in range(len(entry)):
        e, c, reward, once = entry[i], cluster[i], 0.0, count[i] == 1.0
        if once:  # nearly always, and whole numbers are faster
            for p in range(parts):
                shown[e, p] += drawn[c, p]
        else:
            for p in range(parts):
                shown[e, p] += drawn[c, p] * count[i]
        for r in range(ranks):
            if click[i, r]:
                reward += theta[r]
                if once:
                    for p in range(parts):
                        clicks[number[e, r], p] += drawn[c, p]
                else:
                    for p in range(parts):
                        clicks[number[e, r], p] += drawn[c, p] * count[i]
        reward = min(reward, reward_cap)
        if reward > 0.0:
            for p in range(parts):
                earned[e, p] += drawn[c, p] * count[i] * reward


@njit(cache=True, nogil=True)
@no_type_check
def _count_values(entry, value, number, theta, drawn, cluster, count, shown, clicks, earned):
    """Count the rows of resampled logs whose results earn values in place of clicks."""
    for i in range(len(entry)):
        e, reward = entry[i], 0.0
        for p in range(drawn.shape[1]):
            shown[e, p] += drawn[cluster[i], p] * count[i]
        for r in range(value.shape[1]):
            if value[i, r] > 0.0:
                reward += theta[r] * value[i, r]
                for p in range(drawn.shape[1]):
                    clicks[number[e, r], p] += drawn[cluster[i], p] * count[i] * value[i, r]
        if reward > 0.0:
            for p in range(drawn.shape[1]):
                earned[e, p] += drawn[cluster[i], p] * count[i] * reward


@njit(cache=True, nogil=True)
@no_type_check
def _count_once(entry, click, number, theta, reward_cap, count, shown, clicks, earned):
    """Count the rows of one log, as `_count` does for several."""
    for i in range(len(entry)):
        e, reward = entry[i], 0.0
        shown[e, 0] += count[i]
        for r in range(click.shape[1]):
            if click[i, r]:
                reward += theta[r]
                clicks[number[e, r], 0] += count[i]
        if reward > 0.0:
            earned[e, 0] += count[i] * min(reward, reward_cap)


@njit(cache=True, nogil=True)
@no_type_check
def _add(index, values, out):
    """Add each row of `values` to the row of `out` that `index` names, unless that is negative."""
    for i in range(len(index)):
        if index[i] >= 0:
            for p in range(values.shape[1]):
                out[index[i], p] += values[i, p]


@njit(cache=True, nogil=True)
@no_type_check
def _take(pair, rows, taken):
    """Copy rows at random positions, 32 at a time.

    A first loop touches all 32 rows, so that their cache misses overlap (see `core.unique_rows`); the sum of what it
    touched is returned so that the compiler keeps that loop.
    """
    touched = 0
    for start in range(0, len(rows), 32):
        end = min(start + 32, len(rows))
        for i in range(start, end):
            touched += pair[rows[i], 0]
        for i in range(start, end):
            for r in range(taken.shape[1]):
                taken[i, r] = pair[rows[i], r]
    return touched


@njit(cache=True, nogil=True)
@no_type_check
def _mark(pair, occurs):
    """Mark each (pair, rank) that occurs."""
    for i in range(pair.shape[0]):
        for r in range(pair.shape[1]):
            if pair[i, r] >= 0:
                occurs[pair[i, r], r] = True


@njit(cache=True, nogil=True)
@no_type_check
def _look_up(pair, number, out):
    """Look up the cell number of each list at each rank."""
    for i in range(pair.shape[0]):
        for r in range(pair.shape[1]):
            out[i, r] = number[pair[i, r], r] if pair[i, r] >= 0 else UNSEEN
