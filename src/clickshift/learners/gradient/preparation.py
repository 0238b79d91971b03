"""From sessions to what the compiled program reads: the pairs that are learned, batches, and held-out batches."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clickshift.corpus import Corpus
from clickshift.errors import ClickshiftWarning, DataError
from clickshift.learners.gradient.batches import Batch, Log, as_log, dealt, held_out_batches, training_batches
from clickshift.learners.gradient.program import Program
from clickshift.learners.gradient.towers import tower_for
from clickshift.models.base import PairTable, pair_table
from clickshift.models.differentiable import Differentiable
from clickshift.seeds import generator
from clickshift.sessions import Sessions
from clickshift.statistics import Cells
from clickshift.vocabulary import Vocabulary

if TYPE_CHECKING:
    from clickshift.learners.gradient import Gradient

SEEN_OFTEN = 20.0
"""A pair seen n times counts n / (n + 20) for what is believed of unseen ones."""


@dataclass(frozen=True, eq=False)
class Prepared:
    program: Program
    vocabulary: Vocabulary
    """Of the pairs that are learned: those of the log, or with features those of the corpus."""
    impressions: PairTable
    clicks: PairTable
    batches: Batch
    held_out: Batch
    held_out_total: float
    fingerprint: str


def prepared(
    learner: Gradient, model: type[Differentiable], data: Sessions, held_out: Sessions, corpus: Corpus | None
) -> Prepared:
    shown = data.rankings.pair[data.rankings.shown]
    known = np.unique(shown[shown >= 0])
    if not len(known):
        raise DataError("the log shows no pair of its vocabulary: there is nothing to learn.")
    words = corpus.vocabulary if learner.tower == "features" and corpus else data.vocabulary.with_pairs(known)
    data, held_out = (part.in_vocabulary(words).merged() for part in (data, held_out))
    log, histories = as_log(Sessions.concat([data, held_out]), model)
    train, judge = log[: len(data)], log[len(data) :]
    train = _without_unknown(train, words.n_pairs)
    impressions, clicks = Cells.of(data).by_pair()
    features = None if corpus is None else corpus.features
    tower = tower_for(learner.tower, words, features, size=learner.embedding, hidden=learner.hidden)
    heaps = dealt(train, learner.batch, rng=generator(0, "Gradient", "batches"))
    often = impressions / (impressions + SEEN_OFTEN)
    outputs, per_batch = model.outputs(learner.state), train.total / len(heaps)
    program = Program(model, tower, outputs, histories, learner.state, often / often.sum(), per_batch)
    return Prepared(
        program,
        words,
        pair_table(impressions, unseen=0.0),
        pair_table(clicks, unseen=0.0),
        training_batches(train, heaps, tower.tables),
        held_out_batches(judge, learner.batch),
        judge.total,
        _fingerprint(train, judge),
    )


def _without_unknown(log: Log, n_pairs: int) -> Log:
    """Sessions that show something which is not learned cannot be learned from."""
    known = (log.pair < n_pairs).all(axis=1, where=log.shown)
    if not known.any():
        raise DataError("every session shows a pair that is not in the vocabulary: there is nothing to learn.")
    if not known.all():
        left_out = int(log.count[~known].sum())
        warnings.warn(
            f"left out {left_out:,} of {int(log.total):,} sessions: they show documents that are not in the vocabulary "
            "of the log or, for tower='features', of the corpus.",
            ClickshiftWarning,
            stacklevel=4,
        )
    return log[np.flatnonzero(known)]


def _fingerprint(*logs: Log) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for log in logs:
        for array in (log.pair, log.click, log.count):
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
