"""Preparation of training data: the pairs that are learned, training batches and held-out batches."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.progress import Progress, silent
from clickshift.core.rng import generator
from clickshift.core.tempfiles import TemporaryStorage
from clickshift.counts.cells import Cells
from clickshift.data import encoded_log
from clickshift.data.corpus import Corpus
from clickshift.data.encoded_log import EncodedLog, folder_of
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import ClickshiftWarning, DataError
from clickshift.learners._position_models import maximum_likelihood_examination
from clickshift.learners.gradient._batches import (
    Batch,
    deal_batches,
    held_out_batches,
    load_if_small,
    training_batches,
)
from clickshift.learners.gradient._encoding import EncodedSessions, SessionEncoder
from clickshift.learners.gradient._shuffle import shuffle_on_disk
from clickshift.learners.gradient._towers import tower_for
from clickshift.learners.gradient.step import TrainingProgram
from clickshift.models._differentiable import Differentiable, ExaminationTableBased
from clickshift.models.base import PairTable, pair_table

if TYPE_CHECKING:
    from clickshift.learners.gradient import Gradient

_MIN_LEVEL, _MAX_LEVEL = 0.001, 0.9
"""Limits of the initial attractiveness, for logs without clicks and logs in which everything is clicked."""
_HALF_WEIGHT_IMPRESSIONS = 20.0
"""A pair with n impressions has weight n / (n + 20) in the outputs of unseen pairs."""


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Everything that training needs.

    Parameters
    ----------
    program
        The compiled program.
    vocabulary
        Vocabulary of the pairs that are learned: those of the log, or with features those of the corpus.
    impressions
        Impressions of each pair in the training sessions.
    clicks
        Clicks on each pair in the training sessions.
    batches
        Training batches.
    held_out
        Held-out batches.
    held_out_total
        Number of held-out sessions.
    fingerprint
        Digest of the sessions.
    """

    program: TrainingProgram
    vocabulary: Vocabulary
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
    progress: Progress = silent,
) -> TrainingData:
    """Prepare the training of a model.

    A log that does not fit into memory is read some sessions at a time, and shuffled into a file.

    Parameters
    ----------
    learner
        The learner, with its options.
    model
        Class of the model.
    data
        The training log.
    held_out
        The held-out log; None holds out a share of `data`.
    corpus
        Corpus with the features for ``tower="features"``.
    progress
        Called with a message from time to time.

    Returns
    -------
    TrainingData
        The program and its batches.

    Raises
    ------
    DataError
        If the log shows no pair of its vocabulary ("no-pairs"), or if every session shows an unknown pair
        ("no-sessions").
    """
    data = load_if_small(data)
    if held_out is None:
        data, held_out = data.split(1 - learner.held_out, rng=generator(0, "Gradient", "held out"))
    pairs = _shown_pairs(data)
    if not len(pairs):
        raise DataError("the log shows no pair of its vocabulary: there is nothing to learn.", code="no-pairs")
    vocabulary = corpus.vocabulary if learner.tower == "features" and corpus else data.vocabulary.with_pairs(pairs)
    data, held_out = (_merge_in_memory(part.in_vocabulary(vocabulary)) for part in (data, load_if_small(held_out)))
    features = None if corpus is None else corpus.features
    tower = tower_for(learner.tower, vocabulary, features, size=learner.embedding, hidden=learner.hidden)
    cells = Cells.of(data, model.situations if issubclass(model, ExaminationTableBased) else "rank")
    impressions, clicks = cells.by_pair()
    weight = impressions / (impressions + _HALF_WEIGHT_IMPRESSIONS)
    encoder, scratch = (
        SessionEncoder.of(model, [data, held_out]),
        TemporaryStorage.in_first_writable(folder_of(data), folder_of(held_out)),
    )
    rng, batch_rng = generator(0, "Gradient", "held out batches"), generator(0, "Gradient", "batches")
    with scratch.room_for("the batches of the log, some 50 bytes for each result that it shows"):
        learnable = (_without_unknown_pairs(part, vocabulary.n_pairs) for part in encoder.chunks(data))
        train = _load_or_shuffle(learnable, data, scratch, batch_rng, progress)
        _warn_skipped_sessions(data.total, train)
        batch_rows = deal_batches(train, learner.batch, rng=batch_rng if isinstance(data, Sessions) else None)
        batches = training_batches(train, batch_rows, tower.tables, scratch, progress)
        evaluation = _load_or_shuffle(encoder.chunks(held_out), held_out, scratch, rng, progress)
        held_out_arrays = held_out_batches(evaluation, learner.batch, scratch, progress)
    outputs, per_batch = model.outputs(learner.state), train.total / len(batch_rows)
    levels, examination = _table_start(cells) if issubclass(model, ExaminationTableBased) else ({}, None)
    typical = weight / weight.sum()
    return TrainingData(
        TrainingProgram(
            model,
            tower,
            outputs,
            encoder.histories,
            learner.state,
            typical,
            per_batch,
            levels,
            examination,
            encoder.has_holes,
        ),
        vocabulary,
        pair_table(impressions, unseen=0.0),
        pair_table(clicks, unseen=0.0),
        batches,
        held_out_arrays,
        evaluation.total,
        _fingerprint(data, held_out),
    )


def _table_start(cells: Cells) -> tuple[dict[str, float], Float[np.ndarray, " situation"]]:
    """Return the initial level of attractiveness and the initial examination of a model with a table of examination.

    Training stops long before examination has moved far, so that it must start near its maximum-likelihood estimate
    (docs/decisions/0003). At the level of attractiveness that goes with it, as many clicks are expected as there are.
    """
    examination = maximum_likelihood_examination(cells)
    impressions, clicks = cells.by_situation()
    level = np.clip(clicks.sum() / max(impressions @ examination, 1.0), _MIN_LEVEL, _MAX_LEVEL)
    return {"attractiveness": float(np.log(level / (1 - level)))}, examination


def _shown_pairs(log: encoded_log.Log) -> Int[np.ndarray, " pair"]:
    """Return the pairs of the vocabulary that a log shows."""
    shown = np.zeros(log.vocabulary.n_pairs + 1, bool)
    for part in log.chunks():
        shown[part.rankings.pair] = True  # the last entry is that of UNSEEN (-1)
    return np.flatnonzero(shown[:-1])


def _merge_in_memory(log: encoded_log.Log) -> encoded_log.Log:
    """Merge equal sessions of a log in memory; return any other log unchanged."""
    return log.merged() if isinstance(log, Sessions) else log


def _load_or_shuffle(
    parts: Iterator[EncodedSessions],
    log: encoded_log.Log,
    scratch: TemporaryStorage,
    rng: np.random.Generator,
    progress: Progress,
) -> EncodedSessions:
    """Return the single part of a log in memory, or all parts of another log shuffled into a file."""
    return (
        next(parts)
        if isinstance(log, Sessions)
        else shuffle_on_disk(parts, len(log), scratch, rng=rng, progress=progress)
    )


def _without_unknown_pairs(log: EncodedSessions, n_pairs: int) -> EncodedSessions:
    """Drop sessions that show a pair which is not learned."""
    return log[np.flatnonzero((log.pair < n_pairs).all(axis=1, where=log.shown))]


def _warn_skipped_sessions(total: int, train: EncodedSessions) -> None:
    """Warn of sessions that were dropped; raise an error if all were."""
    if not len(train):
        raise DataError(
            "every session shows a pair that is not in the vocabulary: there is nothing to learn.", code="no-sessions"
        )
    skipped = total - round(train.total)
    if skipped:
        warnings.warn(
            ClickshiftWarning(
                f"skipped {skipped:,} of {total:,} sessions: they show documents that are not in the vocabulary "
                "of the log or, for tower='features', of the corpus.",
                code="skipped-sessions",
                count=skipped,
                total=total,
            ),
            stacklevel=4,
        )


def _fingerprint(*logs: encoded_log.Log) -> str:
    """Return a digest of logs; that of an encoded log comes from its header, without reading it."""
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
