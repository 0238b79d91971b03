"""Rankings and Sessions: the lists that were shown, their clicks, and how often each occurred.

Both are rectangular: one row per session, one column per rank. A list shorter than the longest one is padded on the
right, where `shown` is False. A rank above the end of a list where nothing is shown is a hole: an advertisement, or a
result that was not recorded. The documented shapes are those after construction. Arguments are validated once, with an
error that names the first bad row; slices of a validated container are not validated again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, final

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.core.rng import as_generator
from clickshift.core.unique_rows import distinct_rows
from clickshift.data._arrow import Layout, arrow_tables, check_layout
from clickshift.data._columns import (
    VIEWED,
    checked_propensity,
    checked_segments,
    checked_signals,
    concat_segments,
    concat_signals,
    key_columns,
    pack_bits,
    padded,
    rows_of,
)
from clickshift.data._validation import (
    any_hole,
    check_bits,
    check_integers,
    check_lists,
    check_shape,
    last_ranks,
    raise_for_rows,
)
from clickshift.data.segments import Segment
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import DataError

RowSelection = slice | np.ndarray
"""Rows of a container: a slice, row numbers or a mask."""
_TABLE_RESULTS = 1 << 30
"""Results of one chunk of an Arrow table, whose lists have 32-bit offsets."""
MAX_PADDING = 8
"""Largest size of the matrix of a log or of a block, as a multiple of its results; small ones may be larger."""
_RESULT_BYTES, _MAX_PADDED_BYTES = 6, 1 << 30
"""Bytes of a pair, whether it is shown, and its click; and of a matrix that may have any number of empty places."""
MAX_TOTAL = 1 << 62
"""Sessions that a log may have, counts added up; sums of 64-bit counts stay exact below it."""
_Container = TypeVar("_Container", "Rankings", "Sessions")


def check_total(total: float) -> None:
    """Raise if a log has more sessions than can be added up.

    Parameters
    ----------
    total
        Number of sessions: the sum of all counts, as a float, which does not overflow.

    Raises
    ------
    DataError
        If the total is 2^62 or more ("too-many-sessions").
    """
    if not total < MAX_TOTAL:
        raise DataError(
            f"the counts of a log must add up to less than 2^62 sessions: got {total:.6g}. Divide all counts by the "
            "same number.",
            code="too-many-sessions",
            value=total,
            limit=MAX_TOTAL,
        )


def check_rectangle(n_sessions: int, n_ranks: int, n_results: int) -> None:
    """Raise if the matrices of a log in memory would be far larger than its results.

    Parameters
    ----------
    n_sessions, n_ranks
        Number of sessions, and of ranks of the longest list.
    n_results
        Number of results of all lists.

    Raises
    ------
    DataError
        If they would take more than 1 GB, and more than eight times what the results take ("lists-too-long").
    """
    size = n_sessions * n_ranks
    if size * _RESULT_BYTES > _MAX_PADDED_BYTES and size > MAX_PADDING * n_results:
        raise DataError(
            f"lists in memory must have similar lengths: of {n_sessions:,} lists with {n_results:,} results, the "
            f"longest has {n_ranks:,} ranks, and their matrix would take {size * _RESULT_BYTES / 1e9:,.1f} GB. Encode "
            "the log (`clickshift log encode`, or open_log(..., in_memory=False)), or cut its longest lists.",
            code="lists-too-long",
            sessions=n_sessions,
            ranks=n_ranks,
            results=n_results,
        )


@final
@dataclass(frozen=True, eq=False)
class Rankings:
    """Lists of documents as shown, without clicks: the input of a marginal click prediction.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs that the numbers below refer to.
    query
        Int[session]: query number; `UNSEEN` for a query that is not in the vocabulary.
    pair
        Int[session rank]: pair number; `UNSEEN` for a pair that is not in the vocabulary and where nothing is shown.
    shown
        Bool[session rank]: True where a document is shown. By default, everywhere that `pair` is not `UNSEEN`. A rank
        above the last document where nothing is shown is a hole: nobody knows what was there, and it is never clicked.
    log_prob
        Float[session]: log-probability of the list under the policy that drew it (the logging policy's propensity),
        if known.
    propensity
        Float[session rank]: probability that this policy shows the document at its rank, if known; 0 where nothing is
        shown.
    segments
        Labels of a session that are known before its clicks, by name, such as its device. The segment `arm` is the
        experiment arm.

    Raises
    ------
    DataError
        If the log is empty ("empty-log"), an array has the wrong type or shape ("not-integers", "not-zero-or-one",
        "wrong-shape"), a list breaks a rule ("empty-list", "duplicate-document", "pair-out-of-range",
        "pair-of-other-query"), a propensity is not a probability above 0 ("not-a-probability"), a segment has more than
        1,000 labels ("too-many-segments"), or its name is that of another column ("bad-column-name").

    Examples
    --------
    >>> vocabulary, query, pair = Vocabulary.of(["cats", "cats", "dogs", "dogs"], [7, 12, 12, 9])
    >>> rankings = Rankings(vocabulary, query[::2], pair.reshape(2, 2))
    >>> len(rankings), rankings.n_ranks
    (2, 2)
    """

    vocabulary: Vocabulary
    query: np.ndarray
    pair: np.ndarray
    shown: np.ndarray = None  # type: ignore[assignment]
    log_prob: np.ndarray | None = None
    propensity: np.ndarray | None = None
    segments: Mapping[str, Segment] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        query, pair = check_integers("query", self.query, 1), check_integers("pair", self.pair, 2)
        shown = pair != UNSEEN if self.shown is None else check_bits("shown", self.shown, 2)
        check_shape("query", query.shape, "pair", pair.shape[:1])
        check_shape("shown", shown.shape, "pair", pair.shape)
        if not pair.size:
            raise DataError("the log is empty: there must be at least one session with one result.", code="empty-log")
        if self.shown is not None:
            pair = np.where(shown, pair, np.int32(UNSEEN))
        check_lists(self.vocabulary, query, pair, shown)
        object.__setattr__(self, "query", query)
        object.__setattr__(self, "pair", pair)
        object.__setattr__(self, "shown", shown)
        if self.log_prob is not None:
            log_prob = np.asarray(self.log_prob, np.float64)
            check_shape("log_prob", log_prob.shape, "query", query.shape)
            raise_for_rows(
                ~((log_prob > -np.inf) & (log_prob <= 1e-9)),
                "a propensity must be a probability above 0 and at most 1",
                lambda row: np.exp(min(log_prob[row], 700.0)),
                "Remove the session, or pass no propensities.",
                code="not-a-probability",
            )
            object.__setattr__(self, "log_prob", log_prob)
        if self.propensity is not None:
            object.__setattr__(self, "propensity", checked_propensity(self.propensity, shown))
        object.__setattr__(self, "segments", checked_segments(self.segments, len(query)))

    @classmethod
    def checked(
        cls,
        vocabulary: Vocabulary,
        query: np.ndarray,
        pair: np.ndarray,
        shown: np.ndarray,
        log_prob: np.ndarray | None = None,
        propensity: np.ndarray | None = None,
        segments: Mapping[str, Segment] | None = None,
        *,
        has_holes: bool | None = None,
    ) -> Rankings:
        """Build rankings from arrays that are known to be valid, e.g. read back from disk, without validation.

        Parameters
        ----------
        vocabulary, query, pair, shown, log_prob, propensity, segments
            As for `Rankings`.
        has_holes
            Whether a list has a hole, if that is known.
        """
        fields = {"vocabulary": vocabulary, "query": query, "pair": pair, "shown": shown, "log_prob": log_prob}
        known = {} if has_holes is None else {"has_holes": has_holes}
        return _replace(object.__new__(cls), **fields, propensity=propensity, segments=segments or {}, **known)

    def __len__(self) -> int:
        """Return the number of lists."""
        return len(self.query)

    def __getitem__(self, rows: RowSelection) -> Rankings:
        """Return the rankings of some rows."""
        part = _replace(
            self,
            query=self.query[rows],
            pair=self.pair[rows],
            shown=self.shown[rows],
            log_prob=None if self.log_prob is None else self.log_prob[rows],
            propensity=None if self.propensity is None else self.propensity[rows],
            segments=rows_of(self.segments, rows),
        )
        if vars(part).get("has_holes"):  # perhaps not in these rows
            del vars(part)["has_holes"]
        return part

    @property
    def n_ranks(self) -> int:
        """Number of ranks: the length of the longest list."""
        return int(self.pair.shape[1])

    @cached_property
    def has_holes(self) -> bool:
        """Whether any list has a hole: a rank above its last document where nothing is shown."""
        return any_hole(self.shown)

    @property
    def length(self) -> Int[np.ndarray, " session"]:
        """Rank of the last document of each list, from 1: its end, with the holes above it."""
        return last_ranks(self.shown) if self.has_holes else self.n_shown

    @property
    def n_shown(self) -> Int[np.ndarray, " session"]:
        """Number of documents that each list shows, without holes."""
        n_shown: np.ndarray = self.shown.sum(axis=1)
        return n_shown

    def in_vocabulary(self, vocabulary: Vocabulary) -> Rankings:
        """Return the same lists in the numbers of another vocabulary; missing queries and pairs become `UNSEEN`."""
        if vocabulary.same_as(self.vocabulary):
            return self
        # UNSEEN is -1, which indexes the extra last entry
        pairs = np.append(vocabulary.pairs_of(self.vocabulary), np.int32(UNSEEN))
        queries = np.append(vocabulary.queries_of(self.vocabulary), np.int32(UNSEEN))
        return _replace(self, vocabulary=vocabulary, query=queries[self.query], pair=pairs[self.pair])

    def __repr__(self) -> str:
        return f"Rankings({len(self):,} lists of up to {self.n_ranks}, {self.vocabulary})"


@final
@dataclass(frozen=True, eq=False)
class Sessions:
    """Rankings with their clicks. A row may represent several equal sessions, as given by `count`.

    Parameters
    ----------
    rankings
        The lists that were shown.
    click
        Bool[session rank]: True where the result was clicked; 0 and 1 are accepted.
    count
        Int[session]: number of equal sessions that a row represents. By default, 1 each.
    time
        Integers, floats or datetime64 that increase with time; a day number is enough.
    user
        Raw user ids, integers or strings: the clusters within which sessions are not independent.
    signals
        Further signals of a result, by name: [session rank] arrays, such as purchases or revenue. They become Bool
        where all values are 0 or 1, else Float with NaN where a value is unknown; 0 where nothing is shown. The signal
        `viewed` is whether the result was in the viewport; all others are conversions.

    Raises
    ------
    DataError
        If an array has the wrong type or shape ("not-zero-or-one", "not-integers", "not-a-number", "wrong-shape"), a
        click or signal is on an empty rank ("click-without-document", "signal-without-document"), a count is below 1
        ("bad-count"), the counts add up to 2^62 or more ("too-many-sessions"), a time or user is missing
        ("missing-value"), a signal is negative or infinite ("bad-signal"), or its name is that of another column
        ("bad-column-name").

    Examples
    --------
    >>> vocabulary, query, pair = Vocabulary.of(["cats", "cats", "dogs", "dogs"], [7, 12, 12, 9])
    >>> rankings = Rankings(vocabulary, query[::2], pair.reshape(2, 2))
    >>> sessions = Sessions(rankings, np.array([[1, 0], [1, 1]]), count=np.array([3, 1]))
    >>> sessions.total
    4
    >>> sessions.ctr_by_rank().tolist()
    [1.0, 0.25]
    """

    rankings: Rankings
    click: np.ndarray
    count: np.ndarray = None  # type: ignore[assignment]
    time: np.ndarray | None = None
    user: np.ndarray | None = field(default=None, repr=False)
    signals: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        shape = self.rankings.pair.shape
        click = check_bits("click", self.click, 2)
        check_shape("click", click.shape, "pair", shape)
        click_on_empty_rank = click & ~self.rankings.shown
        raise_for_rows(
            click_on_empty_rank,
            "a click must be on a document that is shown",
            lambda row: f"one at rank {click_on_empty_rank[row].argmax() + 1}",
            "Remove the click, or show the document.",
            code="click-without-document",
        )
        count = np.ones(shape[0], np.int64) if self.count is None else check_integers("count", self.count, 1, np.int64)
        check_shape("count", count.shape, "query", shape[:1])
        raise_for_rows(
            count < 1, "a count must be 1 or more", lambda row: count[row], "Remove the row.", code="bad-count"
        )
        check_total(float(count.sum(dtype=np.float64)))
        object.__setattr__(self, "click", click)
        object.__setattr__(self, "count", count)
        for name in ("time", "user"):
            values = getattr(self, name)
            if values is not None:
                values = np.asarray(values)
                check_shape(name, values.shape, "query", shape[:1])
                if values.dtype.kind in "fMm":
                    raise_for_rows(
                        np.isnan(values),
                        f"{name} must not be missing",
                        lambda row: "none",
                        f"Fill it, or pass no {name}.",
                        code="missing-value",
                    )
                object.__setattr__(self, name, values)
        object.__setattr__(self, "signals", checked_signals(self.signals, self.rankings.shown))
        checked_segments(self.segments, shape[0], self.signals)  # no signal has the name of a segment

    @classmethod
    def checked(
        cls,
        rankings: Rankings,
        click: np.ndarray,
        count: np.ndarray,
        time: np.ndarray | None = None,
        user: np.ndarray | None = None,
        signals: Mapping[str, np.ndarray] | None = None,
    ) -> Sessions:
        """Build sessions from arrays that are known to be valid, without validation."""
        fields = {"rankings": rankings, "click": click, "count": count, "time": time, "user": user}
        return _replace(object.__new__(cls), **fields, signals=signals or {})

    def __len__(self) -> int:
        """Return the number of rows; see `total` for the number of sessions."""
        return len(self.count)

    def __getitem__(self, rows: RowSelection) -> Sessions:
        """Return the sessions of some rows."""
        return _replace(
            self,
            rankings=self.rankings[rows],
            click=self.click[rows],
            count=self.count[rows],
            time=None if self.time is None else self.time[rows],
            user=None if self.user is None else self.user[rows],
            signals=rows_of(self.signals, rows),
        )

    @property
    def total(self) -> int:
        """Number of sessions: the sum of the counts of all rows."""
        return int(self.count.sum())

    @property
    def has_counts(self) -> bool:
        """Whether any row represents more than one session."""
        return bool((self.count != 1).any())

    @property
    def vocabulary(self) -> Vocabulary:
        """Vocabulary of the rankings."""
        return self.rankings.vocabulary

    @property
    def n_ranks(self) -> int:
        """Number of ranks: the length of the longest list."""
        return int(self.click.shape[1])

    @property
    def segments(self) -> Mapping[str, Segment]:
        """Segments of the rankings: labels of a session that are known before its clicks, by name."""
        return self.rankings.segments

    @property
    def viewed(self) -> np.ndarray | None:
        """The signal `viewed`: whether each result was in the viewport; None if the log does not have it."""
        return self.signals.get(VIEWED)

    def chunks(self, *, narrow: bool = False, user_ids: bool = False) -> Iterator[Sessions]:
        """Yield the log itself as its only chunk; an `EncodedLog` yields several, perhaps with fewer ranks each."""
        yield self

    def padded_to(self, n_ranks: int) -> Sessions:
        """Return the same sessions in matrices with at least so many ranks."""
        rankings = self.rankings
        lists = _replace(
            rankings,
            pair=padded(rankings.pair, n_ranks, UNSEEN),
            shown=padded(rankings.shown, n_ranks),
            propensity=None if rankings.propensity is None else padded(rankings.propensity, n_ranks),
        )
        signals = {name: padded(values, n_ranks) for name, values in self.signals.items()}
        return _replace(self, rankings=lists, click=padded(self.click, n_ranks), signals=signals)

    def in_vocabulary(self, vocabulary: Vocabulary) -> Sessions:
        """Return the same sessions in the numbers of another vocabulary; missing pairs become `UNSEEN`."""
        return _replace(self, rankings=self.rankings.in_vocabulary(vocabulary))

    def impressions_by_rank(self) -> Int[np.ndarray, " rank"]:
        """Return the number of documents shown at each rank."""
        impressions: np.ndarray = self.count @ self.rankings.shown
        return impressions

    def ctr_by_rank(self) -> Float[np.ndarray, " rank"]:
        """Return the click-through rate of each rank: clicks divided by impressions."""
        ctr: np.ndarray = (self.count @ self.click) / np.maximum(self.impressions_by_rank(), 1)
        return ctr

    def merged(self) -> Sessions:
        """Return equal sessions merged into one row each, with their counts added; times and users are dropped.

        Sessions are equal if their lists, clicks, propensities, signals and segments are.
        """
        rankings = self.rankings
        parts = [rankings.query[:, None], rankings.n_shown[:, None], rankings.pair, pack_bits(self.click)]
        parts += [pack_bits(rankings.shown)] if rankings.has_holes else []
        parts += key_columns(rankings.propensity, self.signals, self.segments)
        if rankings.log_prob is not None:
            parts.append(rankings.log_prob[:, None].view(np.int64))
        group, first = distinct_rows(np.concatenate(parts, axis=1, dtype=np.int64))
        kept = self[first]
        count = np.bincount(group, weights=self.count, minlength=len(first)).astype(np.int64)
        return _replace(kept, count=count, time=None, user=None)

    def split(self, fraction: float, *, rng: int | np.random.Generator) -> tuple[Sessions, Sessions]:
        """Split at random into about `fraction` of the sessions and the rest.

        Sessions that one row represents may end up in both parts.

        Parameters
        ----------
        fraction
            Share of the sessions in the first part, between 0 and 1.
        rng
            Random seed or generator.

        Returns
        -------
        tuple[Sessions, Sessions]
            The first part and the rest.

        Raises
        ------
        DataError
            If a part would be empty ("empty-split").
        """
        first = _first_part_size(fraction, self.total)
        taken = as_generator(rng).multivariate_hypergeometric(self.count, first, method="marginals")
        return self._with_counts(taken), self._with_counts(self.count - taken)

    def split_by_time(self, fraction: float) -> tuple[Sessions, Sessions]:
        """Split chronologically into the earliest `fraction` of the sessions and the rest.

        Raises
        ------
        DataError
            If the log has no times ("missing-time") or a part would be empty ("empty-split").
        """
        if self.time is None:
            raise DataError(
                "a chronological split needs times: this log has none. "
                "Add a 'time' or 'day' column, or use split_in_order if the rows are in chronological order.",
                code="missing-time",
            )
        return self[np.argsort(self.time, kind="stable")].split_in_order(fraction)

    def split_in_order(self, fraction: float) -> tuple[Sessions, Sessions]:
        """Split into the first `fraction` of the sessions, in the order of the rows, and the rest."""
        first = _first_part_size(fraction, self.total)
        taken = np.clip(first - (np.cumsum(self.count) - self.count), 0, self.count)
        return self._with_counts(taken), self._with_counts(self.count - taken)

    def split_within_queries(self, fraction: float) -> tuple[Sessions, Sessions]:
        """Split into the first `fraction` of each query's sessions, in the order of the rows, and the rest.

        This suits a log that is sorted by query. The number of a query's sessions in the first part is rounded, so a
        query with few sessions may be in one part only.
        """
        query = self.rankings.query + 1  # UNSEEN (-1) is treated as one more query
        order = np.argsort(query, kind="stable")
        total = np.bincount(query, self.count).astype(np.int64)
        before = np.empty_like(self.count)
        before[order] = np.cumsum(self.count[order]) - self.count[order]
        before -= (np.cumsum(total) - total)[query]
        first = np.rint((fraction if 0 < fraction < 1 else 0) * total).astype(np.int64)
        _check_split(fraction, int(first.sum()), self.total)
        taken = np.clip(first[query] - before, 0, self.count)
        return self._with_counts(taken), self._with_counts(self.count - taken)

    def _with_counts(self, count: np.ndarray) -> Sessions:
        """Return the sessions with other counts; rows with a count of 0 are removed."""
        rows = np.flatnonzero(count)
        return _replace(self[rows], count=count[rows])

    @classmethod
    def concat(cls, parts: Sequence[Sessions]) -> Sessions:
        """Concatenate the rows of several logs; different vocabularies are replaced by their union.

        Propensities, times, users, signals and segments are kept if every log has them.

        Raises
        ------
        DataError
            If there is no log ("no-logs"), or a few long lists would take more than 1 GB ("lists-too-long").
        """
        if not parts:
            raise DataError("there must be at least one log to concatenate: got none.", code="no-logs")
        vocabulary = union([part.vocabulary for part in parts])
        ranks = max(part.n_ranks for part in parts)
        if any(part.n_ranks < ranks for part in parts):
            results = sum(int(np.count_nonzero(part.rankings.shown)) for part in parts)
            check_rectangle(sum(map(len, parts)), ranks, results)
        rankings = [part.rankings.in_vocabulary(vocabulary) for part in parts]
        propensities = [None if r.propensity is None else padded(r.propensity, ranks) for r in rankings]
        return cls(
            Rankings.checked(  # rows of valid lists
                vocabulary,
                np.concatenate([r.query for r in rankings]),
                np.concatenate([padded(r.pair, ranks, UNSEEN) for r in rankings]),
                np.concatenate([padded(r.shown, ranks) for r in rankings]),
                _concat_if_all([r.log_prob for r in rankings]),
                _concat_if_all(propensities),
                concat_segments([r.segments for r in rankings]),
            ),
            np.concatenate([padded(part.click, ranks) for part in parts]),
            np.concatenate([part.count for part in parts]),
            _concat_if_all([part.time for part in parts]),
            _concat_if_all([part.user for part in parts]),
            concat_signals([part.signals for part in parts], ranks),
        )

    def to_arrow(self, layout: Layout = "wide") -> Any:
        """Return the log as a pyarrow table, which `read_log` reads back: the same ids, lists, clicks, counts, times.

        Parameters
        ----------
        layout
            "wide" for one row per list (columns query, docs, clicks), "long" for one row per result (columns session,
            query, rank, doc, click); `time`, `user`, `count` and `propensity` where the log has them.

        Returns
        -------
        pyarrow.Table
            The table.

        Raises
        ------
        DataError
            "bad-option" for another layout, "unseen-id" for ids that the vocabulary does not hold, "bad-column" for
            times or users that a table cannot hold.

        Examples
        --------
        >>> vocabulary, query, pair = Vocabulary.of(["cats", "cats"], [7, 12])
        >>> sessions = Sessions(Rankings(vocabulary, query[:1], pair[None]), np.array([[0, 1]]))
        >>> sessions.to_arrow("long").to_pylist()[1]
        {'session': 1, 'query': 'cats', 'rank': 2, 'doc': 12, 'click': 1}
        """
        import pyarrow as pa

        check_layout(layout)
        return pa.concat_tables(arrow_tables(self, layout, _TABLE_RESULTS))

    def to_pandas(self, layout: Layout = "wide") -> Any:
        """Return the log as a pandas data frame; see `to_arrow`.

        Parameters
        ----------
        layout
            "wide" for one row per list, "long" for one row per result.

        Returns
        -------
        pandas.DataFrame
            The table.
        """
        return self.to_arrow(layout).to_pandas()

    def __repr__(self) -> str:
        return f"Sessions({self.total:,} in {len(self):,} rows, up to {self.n_ranks} ranks, {self.vocabulary})"


def as_matrix(values: np.ndarray, shown: Bool[np.ndarray, "row rank"], padding: Any) -> np.ndarray:
    """Arrange concatenated lists as the rows of a matrix.

    Parameters
    ----------
    values
        Items of all lists, one list after the other.
    shown
        Which positions of the matrix have an item.
    padding
        Value of the other positions.

    Examples
    --------
    >>> as_matrix(np.array([7, 8, 9]), np.array([[True, True], [True, False]]), -1).tolist()
    [[7, 8], [9, -1]]
    """
    if values.size == shown.size:
        return values.reshape(shown.shape)
    matrix = np.full(shown.shape, padding, values.dtype)
    matrix[shown] = values
    return matrix


def union(vocabularies: Sequence[Vocabulary]) -> Vocabulary:
    """Return the vocabulary of all pairs of several vocabularies.

    Integer ids are compared as text if another vocabulary has text ids.

    Parameters
    ----------
    vocabularies
        At least one vocabulary.

    Returns
    -------
    Vocabulary
        The first one if all are the same.

    Examples
    --------
    >>> cats, dogs = Vocabulary.of(["cats"], [7])[0], Vocabulary.of(["dogs"], [7])[0]
    >>> union([cats, dogs])
    Vocabulary(2 queries, 1 documents, 2 pairs)
    """
    first = vocabularies[0]
    if all(first.same_as(other) for other in vocabularies[1:]):
        return first
    kinds = {v.query_ids.dtype.kind for v in vocabularies}, {v.doc_ids.dtype.kind for v in vocabularies}
    columns = []
    for kind, ids in zip(kinds, ("query", "doc"), strict=True):
        raw = [getattr(v, f"{ids}_ids")[getattr(v, f"pair_{ids}")] for v in vocabularies]
        if len(kind) > 1:  # some vocabularies have integers, others strings: compare them as text
            raw = [part.astype(np.dtypes.StringDType()) for part in raw]
        columns.append(np.concatenate(raw))
    return Vocabulary.of(*columns)[0]


def _replace(container: _Container, **changes: Any) -> _Container:
    """Return a copy with some fields changed, without validation: for rows of a container that is valid."""
    changed = copy.copy(container)
    for name, value in changes.items():
        object.__setattr__(changed, name, value)
    return changed


def _concat_if_all(parts: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Concatenate optional columns; None if any part lacks the column."""
    present = [part for part in parts if part is not None]
    return np.concatenate(present) if len(present) == len(parts) else None


def _first_part_size(fraction: float, total: int) -> int:
    """Return the number of sessions in the first part of a split, or raise if a part would be empty."""
    first = round(fraction * total) if 0 < fraction < 1 else 0
    _check_split(fraction, first, total)
    return first


def _check_split(fraction: float, first: int, total: int) -> None:
    """Raise if one of the two parts of a split is empty."""
    if first in {0, total}:
        raise DataError(
            f"both parts of a split must have a session: fraction {fraction} of {total} sessions leaves one part "
            "empty. Choose a fraction between 0 and 1, or use a larger log.",
            code="empty-split",
            fraction=fraction,
            total=total,
        )
