"""Encoding of sessions for the gradient learner: numbers of learned pairs, clicks, and the situation of each result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
    """Log in the form that the learner needs, in memory or mapped from a file.

    Parameters
    ----------
    pair
        Number of each result's pair; the number of learned pairs if the pair is not learned.
    shown
        Where a result is shown.
    click
        Where a result is clicked.
    count
        Number of sessions that each row stands for.
    situation
        Situation of each result, for models that are learned from counts.
    as_tree
        Whether lists that begin with the same documents and clicks are merged, for recurrent models.
    has_holes
        Whether the log has holes that the model sees: not if it is learned from counts.
    """

    pair: Int[np.ndarray, "session rank"]
    shown: Bool[np.ndarray, "session rank"]
    click: Bool[np.ndarray, "session rank"]
    count: Float[np.ndarray, " session"]
    situation: Int[np.ndarray, "session rank"] | None = None
    as_tree: bool = False
    has_holes: bool = False

    def __len__(self) -> int:
        """Return the number of rows; see `total` for the number of sessions."""
        return len(self.count)

    @property
    def total(self) -> float:
        """Number of sessions."""
        return float(self.count.sum())

    def __getitem__(self, rows: slice | np.ndarray) -> EncodedSessions:
        """Return some of the rows."""
        situation = None if self.situation is None else self.situation[rows]
        return replace(
            self,
            pair=self.pair[rows],
            shown=self.shown[rows],
            click=self.click[rows],
            count=self.count[rows],
            situation=situation,
        )


@dataclass(frozen=True, eq=False)
class SessionEncoder:
    """Encoder of sessions for one model.

    Parameters
    ----------
    model
        Class of the model.
    histories
        Distinct click histories, by which "prefix" numbers situations.
    patterns
        For "prefix", the distinct click patterns of whole lists.
    history
        History of each result of each click pattern.
    has_holes
        Whether a log has holes that the model sees.
    """

    model: type[Differentiable]
    histories: Histories
    patterns: RowIndex | None
    history: Int[np.ndarray, "pattern rank"]
    has_holes: bool = False

    @classmethod
    def of(cls, model: type[Differentiable], logs: Sequence[encoded_log.Log]) -> SessionEncoder:
        """Make the encoder for all of these logs, which are read once if the model depends on all clicks above."""
        ranks = max(log.n_ranks for log in logs)
        if _situation_kind(model) != "prefix":
            histories, history = Histories.of(np.zeros((1, ranks), bool))
            from_counts = issubclass(model, ExaminationBased)
            has_holes = not from_counts and any(part.rankings.has_holes for log in logs for part in log.chunks())
            return cls(model, histories, None, history, has_holes)
        click = np.zeros((0, ranks), bool)
        for part in (part for log in logs for part in log.chunks()):
            click = np.concatenate([click, _pad_lists(part, ranks).click])
            click = click[distinct_rows(_pack_clicks(click))[1]]
        histories, history = Histories.of(click)
        return cls(model, histories, RowIndex.of(_pack_clicks(click)), history)

    def chunks(self, log: encoded_log.Log) -> Iterator[EncodedSessions]:
        """Encode a log, some sessions at a time."""
        return map(self.encode, log.chunks())

    def encode(self, part: Sessions) -> EncodedSessions:
        """Encode sessions."""
        part, by = _pad_lists(part, self.histories.n_ranks), _situation_kind(self.model)
        pair = np.where(part.rankings.pair < 0, part.vocabulary.n_pairs, part.rankings.pair)
        if by is None:
            situation = None
        elif self.patterns is None:
            situation = situation_of(by, part)
        else:
            situation = self.history[self.patterns.find(_pack_clicks(part.click))]
        count, as_tree = part.count.astype(np.float64), issubclass(self.model, Recurrent)
        return EncodedSessions(pair, part.rankings.shown, part.click, count, situation, as_tree, self.has_holes)


def _situation_kind(model: type[Differentiable]) -> By | None:
    """Return the situations that the model's examination depends on; None if it is not learned from counts."""
    return model.situations if issubclass(model, ExaminationBased) else None


def _pack_clicks(click: Bool[np.ndarray, "session rank"]) -> Int[np.ndarray, "session column"]:
    """Pack the clicks of a list into few integers."""
    return np.packbits(click, axis=1).astype(np.int64)


def _pad_lists(part: Sessions, ranks: int) -> Sessions:
    """Pad sessions to lists of this many ranks."""
    if part.n_ranks == ranks:
        return part
    padding, lists = ((0, 0), (0, ranks - part.n_ranks)), part.rankings
    pair, shown = np.pad(lists.pair, padding, constant_values=UNSEEN), np.pad(lists.shown, padding)
    rankings = Rankings.checked(part.vocabulary, lists.query, pair, shown)
    return Sessions.checked(rankings, np.pad(part.click, padding), part.count)
