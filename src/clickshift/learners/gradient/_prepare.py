"""From sessions to what the compiled program reads: the pairs that are learned, batches, and held-out batches."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from clickshift.core.rng import generator
from clickshift.core.tempfiles import TemporaryStorage
from clickshift.counts.cells import Cells
from clickshift.data import encoded_log
from clickshift.data.corpus import Corpus
from clickshift.data.encoded_log import EncodedLog, folder_of
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import ClickshiftWarning, DataError
from clickshift.learners.gradient._batches import (
    Batch,
    Progress,
    deal_batches,
    held_out_batches,
    load_if_small,
    training_batches,
)
from clickshift.learners.gradient._encoding import EncodedSessions, SessionEncoder
from clickshift.learners.gradient._shuffle import shuffle_on_disk
from clickshift.learners.gradient._towers import tower_for
from clickshift.learners.gradient.step import TrainingProgram
from clickshift.models._differentiable import Differentiable
from clickshift.models.base import PairTable, pair_table

if TYPE_CHECKING:
    from clickshift.learners.gradient import Gradient

_HALF_WEIGHT_IMPRESSIONS = 20.0
"""A pair seen n times counts n / (n + 20) for what is believed of unseen ones."""


@dataclass(frozen=True, eq=False)
class TrainingData:
    program: TrainingProgram
    vocabulary: Vocabulary
    """Of the pairs that are learned: those of the log, or with features those of the corpus."""
    impressions: PairTable
    clicks: PairTable
    batches: Batch
    held_out: Batch
    held_out_total: float
    fingerprint: str


def prepare(
    learner: Gradient,
    model: type[Differentiable],
    data: encoded_log.Log,
    held_out: encoded_log.Log | None,
    corpus: Corpus | None,
    progress: Progress = lambda said: None,
) -> TrainingData:
    """Without a log to hold out, a part of the sessions is. A log that does not fit into memory is read some sessions
    at a time, and put in random order in a file."""
    data = load_if_small(data)
    if held_out is None:
        data, held_out = data.split(1 - learner.held_out, rng=generator(0, "Gradient", "held out"))
    known = _shown_pairs(data)
    if not len(known):
        raise DataError("the log shows no pair of its vocabulary: there is nothing to learn.")
    words = corpus.vocabulary if learner.tower == "features" and corpus else data.vocabulary.with_pairs(known)
    data, held_out = (_merge_in_memory(part.in_vocabulary(words)) for part in (data, load_if_small(held_out)))
    features = None if corpus is None else corpus.features
    tower = tower_for(learner.tower, words, features, size=learner.embedding, hidden=learner.hidden)
    impressions, clicks = Cells.of(data).by_pair()
    often = impressions / (impressions + _HALF_WEIGHT_IMPRESSIONS)
    view, scratch = (
        SessionEncoder.of(model, [data, held_out]),
        TemporaryStorage.beside(folder_of(data), folder_of(held_out)),
    )
    rng, dealing = generator(0, "Gradient", "held out batches"), generator(0, "Gradient", "batches")
    with scratch.room_for("the batches of the log, some 50 bytes for each result that it shows"):
        learnable = (_without_unknown_pairs(part, words.n_pairs) for part in view.chunks(data))
        train = _load_or_shuffle(learnable, data, scratch, dealing, progress)
        _warn_skipped_sessions(data.total, train)
        heaps = deal_batches(train, learner.batch, rng=dealing if isinstance(data, Sessions) else None)
        batches = training_batches(train, heaps, tower.tables, scratch, progress)
        judge = _load_or_shuffle(view.chunks(held_out), held_out, scratch, rng, progress)
        held_out_there = held_out_batches(judge, learner.batch, scratch, progress)
    outputs, per_batch = model.outputs(learner.state), train.total / len(heaps)
    return TrainingData(
        TrainingProgram(model, tower, outputs, view.histories, learner.state, often / often.sum(), per_batch),
        words,
        pair_table(impressions, unseen=0.0),
        pair_table(clicks, unseen=0.0),
        batches,
        held_out_there,
        judge.total,
        _fingerprint(data, held_out),
    )


def _shown_pairs(log: encoded_log.Log) -> Int[np.ndarray, " known"]:
    """The pairs of the vocabulary that a log shows."""
    shown = np.zeros(log.vocabulary.n_pairs + 1, bool)
    for part in log.chunks():
        shown[part.rankings.pair] = True  # the last one is what UNSEEN (-1) points at
    return np.flatnonzero(shown[:-1])


def _merge_in_memory(log: encoded_log.Log) -> encoded_log.Log:
    """Equal sessions meet in memory only."""
    return log.merged() if isinstance(log, Sessions) else log


def _load_or_shuffle(
    parts: Iterator[EncodedSessions],
    log: encoded_log.Log,
    scratch: TemporaryStorage,
    rng: np.random.Generator,
    progress: Progress,
) -> EncodedSessions:
    """The one part that a log in memory has, or all parts of another, in random order in a file."""
    return (
        next(parts)
        if isinstance(log, Sessions)
        else shuffle_on_disk(parts, len(log), scratch, rng=rng, progress=progress)
    )


def _without_unknown_pairs(log: EncodedSessions, n_pairs: int) -> EncodedSessions:
    """Sessions that show something which is not learned cannot be learned from."""
    return log[np.flatnonzero((log.pair < n_pairs).all(axis=1, where=log.shown))]


def _warn_skipped_sessions(total: int, train: EncodedSessions) -> None:
    if not len(train):
        raise DataError("every session shows a pair that is not in the vocabulary: there is nothing to learn.")
    left_out = total - round(train.total)
    if left_out:
        warnings.warn(
            f"left out {left_out:,} of {total:,} sessions: they show documents that are not in the vocabulary "
            "of the log or, for tower='features', of the corpus.",
            ClickshiftWarning,
            stacklevel=4,
        )


def _fingerprint(*logs: encoded_log.Log) -> str:
    """What an encoded log was made of is known without reading it."""
    digest = hashlib.blake2b(digest_size=16)
    for log in logs:
        if isinstance(log, EncodedLog):
            arrays = [array for array in (log.kept, log.translation) if array is not None]
            digest.update(repr((log.facts["key"], len(log), len(arrays))).encode())
        else:
            arrays = [log.rankings.pair, log.click, log.count]
        for array in arrays:
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
