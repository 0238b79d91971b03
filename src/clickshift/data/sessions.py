"""Rankings and Sessions: what was shown, what was clicked, and how often.

Both are rectangular: one row per session, one column per rank. A list shorter than the widest one is padded on the
right, where `shown` is False. Fields say the shape that they have after construction; what they are given is checked,
once, with an error that names the first bad row. Slices of a checked container are not checked again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, final

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.rng import as_generator
from clickshift.core.unique_rows import distinct_rows
from clickshift.data.validation import check_bits, check_integers, check_lists, check_shape, raise_for_rows
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import DataError

RowSelection = slice | np.ndarray
_Container = TypeVar("_Container", "Rankings", "Sessions")


@final
@dataclass(frozen=True, eq=False)
class Rankings:
    """Lists of documents as shown, without clicks: what a marginal prediction may look at."""

    vocabulary: Vocabulary
    query: np.ndarray
    """Int[session]: query number, `UNSEEN` for a query that the vocabulary does not hold."""
    pair: np.ndarray
    """Int[session rank]: pair number, `UNSEEN` for a pair that the vocabulary does not hold and where nothing is
    shown."""
    shown: np.ndarray = None  # type: ignore[assignment]
    """Bool[session rank]: True where a document is shown; by default, everywhere that `pair` is a number."""
    log_prob: np.ndarray | None = None
    """Float[session]: log-probability of the list under the policy that drew it, where it is known."""

    def __post_init__(self) -> None:
        query, pair = check_integers("query", self.query, 1), check_integers("pair", self.pair, 2)
        shown = pair != UNSEEN if self.shown is None else check_bits("shown", self.shown, 2)
        check_shape("query", query.shape, "pair", pair.shape[:1])
        check_shape("shown", shown.shape, "pair", pair.shape)
        if not pair.size:
            raise DataError("the log is empty: there must be at least one session with one result.")
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
                "Remove the session, or leave propensities out.",
            )
            object.__setattr__(self, "log_prob", log_prob)

    @classmethod
    def checked(
        cls,
        vocabulary: Vocabulary,
        query: np.ndarray,
        pair: np.ndarray,
        shown: np.ndarray,
        log_prob: np.ndarray | None = None,
    ) -> Rankings:
        """What keeps the rules already, such as what was written after a check: it is not looked at again."""
        fields = {"vocabulary": vocabulary, "query": query, "pair": pair, "shown": shown, "log_prob": log_prob}
        return _replace(object.__new__(cls), **fields)

    def __len__(self) -> int:
        return len(self.query)

    def __getitem__(self, rows: RowSelection) -> Rankings:
        return _replace(
            self,
            query=self.query[rows],
            pair=self.pair[rows],
            shown=self.shown[rows],
            log_prob=None if self.log_prob is None else self.log_prob[rows],
        )

    @property
    def n_ranks(self) -> int:
        return int(self.pair.shape[1])

    @property
    def length(self) -> Int[np.ndarray, " session"]:
        """How many results each list shows."""
        length: np.ndarray = self.shown.sum(axis=1)
        return length

    def in_vocabulary(self, vocabulary: Vocabulary) -> Rankings:
        """The same lists with the numbers of another vocabulary; what it does not hold becomes `UNSEEN`."""
        if vocabulary.same_as(self.vocabulary):
            return self
        # the extra last entry is what UNSEEN (-1) points at
        pairs = np.append(vocabulary.pairs_of(self.vocabulary), np.int32(UNSEEN))
        queries = np.append(vocabulary.queries_of(self.vocabulary), np.int32(UNSEEN))
        return _replace(self, vocabulary=vocabulary, query=queries[self.query], pair=pairs[self.pair])

    def __repr__(self) -> str:
        return f"Rankings({len(self):,} lists of up to {self.n_ranks}, {self.vocabulary})"


@final
@dataclass(frozen=True, eq=False)
class Sessions:
    """Rankings with their clicks. A row may stand for several equal sessions: `count` says how many."""

    rankings: Rankings
    click: np.ndarray
    """Bool[session rank]; 0 and 1 are accepted."""
    count: np.ndarray = None  # type: ignore[assignment]
    """Int[session]: how many sessions a row stands for; by default one each."""
    time: np.ndarray | None = None
    """When: integers, floats or datetime64, ascending with time; a day number will do."""
    user: np.ndarray | None = field(default=None, repr=False)
    """Raw user ids, integers or strings: the clusters in which sessions are not independent."""

    def __post_init__(self) -> None:
        shape = self.rankings.pair.shape
        click = check_bits("click", self.click, 2)
        check_shape("click", click.shape, "pair", shape)
        astray = click & ~self.rankings.shown
        raise_for_rows(
            astray,
            "a click must be on a document that is shown",
            lambda row: f"one at rank {astray[row].argmax() + 1}",
            "Drop the click, or show the document.",
        )
        count = np.ones(shape[0], np.int64) if self.count is None else check_integers("count", self.count, 1, np.int64)
        check_shape("count", count.shape, "query", shape[:1])
        raise_for_rows(count < 1, "a count must be 1 or more", lambda row: count[row], "Drop the row.")
        object.__setattr__(self, "click", click)
        object.__setattr__(self, "count", count)
        for name in ("time", "user"):
            values = getattr(self, name)
            if values is not None:
                values = np.asarray(values)
                check_shape(name, values.shape, "query", shape[:1])
                if values.dtype.kind in "fMm":
                    advice = f"Fill it or leave {name} out."
                    raise_for_rows(np.isnan(values), f"{name} must not be missing", lambda row: "none", advice)
                object.__setattr__(self, name, values)

    @classmethod
    def checked(
        cls,
        rankings: Rankings,
        click: np.ndarray,
        count: np.ndarray,
        time: np.ndarray | None = None,
        user: np.ndarray | None = None,
    ) -> Sessions:
        """What keeps the rules already: it is not looked at again."""
        fields = {"rankings": rankings, "click": click, "count": count, "time": time, "user": user}
        return _replace(object.__new__(cls), **fields)

    def __len__(self) -> int:
        """The number of rows; see `total` for the number of sessions."""
        return len(self.count)

    def __getitem__(self, rows: RowSelection) -> Sessions:
        return _replace(
            self,
            rankings=self.rankings[rows],
            click=self.click[rows],
            count=self.count[rows],
            time=None if self.time is None else self.time[rows],
            user=None if self.user is None else self.user[rows],
        )

    @property
    def total(self) -> int:
        """The number of sessions, counts included."""
        return int(self.count.sum())

    @property
    def has_counts(self) -> bool:
        """Whether a row may stand for several sessions."""
        return bool((self.count != 1).any())

    @property
    def vocabulary(self) -> Vocabulary:
        return self.rankings.vocabulary

    @property
    def n_ranks(self) -> int:
        return self.rankings.n_ranks

    def chunks(self) -> Iterator[Sessions]:
        """This log alone: larger ones come in several chunks."""
        yield self

    def in_vocabulary(self, vocabulary: Vocabulary) -> Sessions:
        return _replace(self, rankings=self.rankings.in_vocabulary(vocabulary))

    def impressions_by_rank(self) -> Int[np.ndarray, " rank"]:
        impressions: np.ndarray = self.count @ self.rankings.shown
        return impressions

    def ctr_by_rank(self) -> Float[np.ndarray, " rank"]:
        """Share of the documents shown at each rank that were clicked."""
        ctr: np.ndarray = (self.count @ self.click) / np.maximum(self.impressions_by_rank(), 1)
        return ctr

    def merged(self) -> Sessions:
        """Equal sessions in one row each, with their counts added; times and users are dropped."""
        parts = [self.rankings.query[:, None], self.rankings.length[:, None], self.rankings.pair, _pack(self.click)]
        if self.rankings.log_prob is not None:
            parts.append(self.rankings.log_prob[:, None].view(np.int64))
        group, first = distinct_rows(np.concatenate(parts, axis=1, dtype=np.int64))
        kept = self[first]
        count = np.bincount(group, weights=self.count, minlength=len(first)).astype(np.int64)
        return _replace(kept, count=count, time=None, user=None)

    def split(self, fraction: float, *, rng: int | np.random.Generator) -> tuple[Sessions, Sessions]:
        """Split at random: about `fraction` of the sessions, and the rest. Sessions of one merged row may part."""
        first = _share(fraction, self.total)
        taken = as_generator(rng).multivariate_hypergeometric(self.count, first, method="marginals")
        return self._with_counts(taken), self._with_counts(self.count - taken)

    def split_by_time(self, fraction: float) -> tuple[Sessions, Sessions]:
        """Split chronologically: the earliest `fraction` of the sessions, and the rest."""
        if self.time is None:
            raise DataError(
                "a chronological split needs a time: this log has none. "
                "Give it a 'time' or 'day' column, or use split_in_order if its rows are in order of time."
            )
        return self[np.argsort(self.time, kind="stable")].split_in_order(fraction)

    def split_in_order(self, fraction: float) -> tuple[Sessions, Sessions]:
        """The first `fraction` of the sessions as they stand, and the rest."""
        first = _share(fraction, self.total)
        taken = np.clip(first - (np.cumsum(self.count) - self.count), 0, self.count)
        return self._with_counts(taken), self._with_counts(self.count - taken)

    def split_within_queries(self, fraction: float) -> tuple[Sessions, Sessions]:
        """The first `fraction` of each query's sessions as they stand, and the rest: for a log that is sorted by query.

        The number of a query's sessions is rounded, so that a query with few of them may be in one part only.
        """
        query = self.rankings.query + 1  # UNSEEN counts as a query of its own
        order = np.argsort(query, kind="stable")
        total = np.bincount(query, self.count).astype(np.int64)
        before = np.empty_like(self.count)
        before[order] = np.cumsum(self.count[order]) - self.count[order]
        before -= (np.cumsum(total) - total)[query]
        first = np.rint((fraction if 0 < fraction < 1 else 0) * total).astype(np.int64)
        _check_share(fraction, int(first.sum()), self.total)
        taken = np.clip(first[query] - before, 0, self.count)
        return self._with_counts(taken), self._with_counts(self.count - taken)

    def _with_counts(self, count: np.ndarray) -> Sessions:
        rows = np.flatnonzero(count)
        return _replace(self[rows], count=count[rows])

    @classmethod
    def concat(cls, parts: Sequence[Sessions]) -> Sessions:
        """All rows of several logs. Logs of different vocabularies get the union of them."""
        if not parts:
            raise DataError("there must be at least one log to concatenate: got none.")
        vocabulary = union([part.vocabulary for part in parts])
        ranks = max(part.n_ranks for part in parts)
        rankings = [part.rankings.in_vocabulary(vocabulary) for part in parts]
        pad = [((0, 0), (0, ranks - part.n_ranks)) for part in parts]
        return cls(
            Rankings(
                vocabulary,
                np.concatenate([r.query for r in rankings]),
                np.concatenate([np.pad(r.pair, p, constant_values=UNSEEN) for r, p in zip(rankings, pad, strict=True)]),
                np.concatenate([np.pad(r.shown, p) for r, p in zip(rankings, pad, strict=True)]),
                _concat_known([r.log_prob for r in rankings]),
            ),
            np.concatenate([np.pad(part.click, p) for part, p in zip(parts, pad, strict=True)]),
            np.concatenate([part.count for part in parts]),
            _concat_known([part.time for part in parts]),
            _concat_known([part.user for part in parts]),
        )

    def __repr__(self) -> str:
        return f"Sessions({self.total:,} in {len(self):,} rows, up to {self.n_ranks} ranks, {self.vocabulary})"


def union(vocabularies: Sequence[Vocabulary]) -> Vocabulary:
    """The vocabulary of all pairs of several ones."""
    first = vocabularies[0]
    if all(first.same_as(other) for other in vocabularies[1:]):
        return first
    kinds = {v.query_ids.dtype.kind for v in vocabularies}, {v.doc_ids.dtype.kind for v in vocabularies}
    columns = []
    for kind, ids in zip(kinds, ("query", "doc"), strict=True):
        raw = [getattr(v, f"{ids}_ids")[getattr(v, f"pair_{ids}")] for v in vocabularies]
        if len(kind) > 1:  # integers here, strings there: compare them as text
            raw = [part.astype(np.dtypes.StringDType()) for part in raw]
        columns.append(np.concatenate(raw))
    return Vocabulary.of(*columns)[0]


def _replace(self: _Container, **changes: Any) -> _Container:
    """A copy with some fields changed, unchecked: for rows of a container that has been checked."""
    other = copy.copy(self)
    for name, value in changes.items():
        object.__setattr__(other, name, value)
    return other


def _concat_known(parts: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """All values where every part has them: what only some logs know is not known of the whole."""
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if len(known) == len(parts) else None


def _pack(click: np.ndarray) -> np.ndarray:
    """Click patterns as one integer per 32 ranks: a row that hashes faster."""
    weights = 1 << (np.arange(click.shape[1], dtype=np.int64) % 32)
    starts = np.arange(0, click.shape[1], 32)
    packed: np.ndarray = np.add.reduceat(click * weights, starts, axis=1)
    return packed


def _share(fraction: float, total: int) -> int:
    first = round(fraction * total) if 0 < fraction < 1 else 0
    _check_share(fraction, first, total)
    return first


def _check_share(fraction: float, first: int, total: int) -> None:
    if first in {0, total}:
        raise DataError(
            f"both parts of a split must get a session: fraction {fraction} of {total} sessions leaves one part empty. "
            "Choose a fraction between 0 and 1, or use a larger log."
        )
