"""What a model sees of sessions: numbers of learned pairs, clicks, and the situation of each result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.core.unique_rows import RowIndex, distinct_rows
from clickshift.counts.cells import By, situation_of
from clickshift.data import encoded_log
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN
from clickshift.models._differentiable import Differentiable, ExaminationBased, Recurrent
from clickshift.models._histories import Histories


@dataclass(frozen=True, eq=False)
class EncodedSessions:
    """A log as the learner sees it, in memory or mapped from a file."""

    pair: Int[np.ndarray, "session rank"]
    """One more than the last number where a pair is not learned."""
    shown: Bool[np.ndarray, "session rank"]
    click: Bool[np.ndarray, "session rank"]
    count: Float[np.ndarray, " session"]
    situation: Int[np.ndarray, "session rank"] | None = None
    """For models that are learned from counts, the number of each result's situation."""
    as_tree: bool = False
    """For recurrent models: lists that begin alike are put together."""

    def __len__(self) -> int:
        """The number of rows; see `total` for the number of sessions."""
        return len(self.count)

    @property
    def total(self) -> float:
        return float(self.count.sum())

    def __getitem__(self, rows: slice | np.ndarray) -> EncodedSessions:
        situation = None if self.situation is None else self.situation[rows]
        return EncodedSessions(
            self.pair[rows], self.shown[rows], self.click[rows], self.count[rows], situation, self.as_tree
        )


@dataclass(frozen=True, eq=False)
class SessionEncoder:
    """How a model looks at sessions, and the distinct histories, by which "prefix" numbers situations."""

    model: type[Differentiable]
    histories: Histories
    patterns: RowIndex | None
    """For "prefix": the distinct clicks on a list..."""
    history: Int[np.ndarray, "pattern rank"]
    """...and the history of each of their results."""

    @classmethod
    def of(cls, model: type[Differentiable], logs: Sequence[encoded_log.Log]) -> SessionEncoder:
        """For all of these logs, which are read once where the model looks at all clicks above."""
        ranks = max(log.n_ranks for log in logs)
        if _situation_kind(model) != "prefix":
            histories, history = Histories.of(np.zeros((1, ranks), bool))
            return cls(model, histories, None, history)
        click = np.zeros((0, ranks), bool)
        for part in (part for log in logs for part in log.chunks()):
            click = np.concatenate([click, _pad_lists(part, ranks).click])
            click = click[distinct_rows(_pack_clicks(click))[1]]
        histories, history = Histories.of(click)
        return cls(model, histories, RowIndex.of(_pack_clicks(click)), history)

    def chunks(self, log: encoded_log.Log) -> Iterator[EncodedSessions]:
        """What the model sees of a log, some sessions at a time."""
        return map(self.see, log.chunks())

    def see(self, part: Sessions) -> EncodedSessions:
        part, by = _pad_lists(part, self.histories.n_ranks), _situation_kind(self.model)
        pair = np.where(part.rankings.pair < 0, part.vocabulary.n_pairs, part.rankings.pair)
        if by is None:
            situation = None
        elif self.patterns is None:
            situation = situation_of(by, part)
        else:
            situation = self.history[self.patterns.find(_pack_clicks(part.click))]
        count, as_tree = part.count.astype(np.float64), issubclass(self.model, Recurrent)
        return EncodedSessions(pair, part.rankings.shown, part.click, count, situation, as_tree)


def _situation_kind(model: type[Differentiable]) -> By | None:
    return model.situations if issubclass(model, ExaminationBased) else None


def _pack_clicks(click: Bool[np.ndarray, "session rank"]) -> Int[np.ndarray, "session column"]:
    return np.packbits(click, axis=1).astype(np.int64)


def _pad_lists(part: Sessions, ranks: int) -> Sessions:
    """The same sessions in lists of this many ranks."""
    if part.n_ranks == ranks:
        return part
    wider, lists = ((0, 0), (0, ranks - part.n_ranks)), part.rankings
    pair, shown = np.pad(lists.pair, wider, constant_values=UNSEEN), np.pad(lists.shown, wider)
    rankings = Rankings.checked(part.vocabulary, lists.query, pair, shown)
    return Sessions.checked(rankings, np.pad(part.click, wider), part.count)
