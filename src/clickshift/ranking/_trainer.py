"""Training of rankers: one network, or several one-hot runs side by side. Importing this module imports JAX."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, UInt32

from clickshift.core.progress import Progress
from clickshift.core.rng import generator
from clickshift.core.spec import key, label
from clickshift.learners.training import EarlyStopping, train
from clickshift.ranking._examples import shuffled_batches
from clickshift.ranking._prepare import PreparedRun
from clickshift.ranking._step import compile_program, to_device
from clickshift.ranking.ranker import Ranker


class RankingTask:
    """Training task of rankers.

    Parameters
    ----------
    runs
        One network, or one-hot runs of the same group.
    """

    def __init__(self, runs: Sequence[PreparedRun]) -> None:
        self.runs, self.names = runs, [label(run.learner) for run in runs]
        self._side_by_side = runs[0].learner.tower == "one-hot"
        self._round, self._held_out_loss = compile_program(runs[0].program, self._side_by_side)
        self._batches = [_assign_batches(run) for run in runs]
        widths = [run.train.widths(batches) for run, batches in zip(runs, self._batches, strict=True)]
        self._widths, held_out_widths = _common_widths(widths), _common_widths([run.held_out_widths for run in runs])
        terms = [run.padded_terms(run.train) | {"features": run.features[0]} for run in runs]
        self._data = to_device(terms, self._side_by_side)
        self._held_out = to_device([run.held_out_data(held_out_widths) for run in runs], self._side_by_side)

    def start(self) -> Any:
        """Return the states of all runs before the first round."""
        return to_device([run.program.initial_state(run.weights) for run in self.runs], True)

    def round(self, states: Any, number: int, rate: np.ndarray) -> tuple[Any, np.ndarray]:
        """Make a pass over the batches; a run that has finished continues with any batches, without effect."""
        packed = [
            run.train.packed(batches[min(number, len(batches) - 1)], self._widths)
            for run, batches in zip(self.runs, self._batches, strict=True)
        ]
        train = {"data": self._data, "batches": to_device(packed, self._side_by_side)}
        seed = to_device(list(self._dropout_seeds[number]), self._side_by_side)
        rates = to_device(list(rate.astype(np.float32)), self._side_by_side)
        states, loss = self._round(states, train, seed, rates)
        return states, np.asarray(loss)

    def parameters(self, states: Any) -> Any:
        """Return the weights."""
        return states["weights"]

    def held_out_loss(self, parameters: Any) -> np.ndarray:
        """Return the held-out loss of each run, in nats per query."""
        return np.asarray(self._held_out_loss(parameters, self._held_out))

    @cached_property
    def _dropout_seeds(self) -> UInt32[np.ndarray, "round run"]:
        """Random seeds of dropout, by round and run."""
        rngs = [generator(run.learner.seed, "ClickRanker", "dropout") for run in self.runs]
        rounds = max(run.learner.rounds for run in self.runs)
        return np.array([[rng.integers(2**32, dtype=np.uint32) for rng in rngs] for _ in range(rounds)])

    @property
    def fingerprint(self) -> str:
        """Digest of the learners, the clicks and the features."""
        digest = hashlib.blake2b(digest_size=16)
        for run in self.runs:
            digest.update(key(run.learner).encode())
            for examples in (run.train, run.held_out):
                for array in (examples.pair, examples.start, *examples.terms.values()):
                    digest.update(np.ascontiguousarray(array).tobytes())
            for features in run.features:
                digest.update(np.asarray(features).tobytes())
        return digest.hexdigest()


def train_runs(runs: Sequence[PreparedRun], progress: Progress, checkpoint: str | Path | None = None) -> list[Ranker]:
    """Train one network, or several one-hot runs side by side, until early stopping or the limit on rounds.

    Parameters
    ----------
    runs
        One network, or one-hot runs of the same group.
    progress
        Called with a text after every round.
    checkpoint
        File in which training is saved from time to time, and from which it is resumed.

    Returns
    -------
    list of Ranker
        The ranker of the best round of each run, or of the last one.

    Raises
    ------
    DataError
        If the loss of a run is not finite before a first round could be kept ("training-diverged").
    """
    task = RankingTask(runs)
    rounds, patience, rate = (
        np.array([getattr(run.learner, name) for run in runs]) for name in ("rounds", "patience", "rate")
    )
    trained = train(
        task,
        EarlyStopping(rounds, patience, keep_last=np.array([run.learner.keep == "last" for run in runs])),
        rate=rate,
        progress=progress,
        checkpoint=None if checkpoint is None else Path(checkpoint),
        key="" if checkpoint is None else task.fingerprint,
        advice="Clip propensities, or lower learning_rate",
    )
    rankers = []
    for k, (run, weights) in enumerate(zip(runs, trained.parameters, strict=True)):
        logit, status = weights.pop("examination", None), trained.progress
        is_examination = logit is not None and run.learner.loss == "pbm"  # logits of an additive model are none
        examination = 1 / (1 + np.exp(-logit.astype(np.float64))) if is_examination else None
        best, n, converged = float(status.best[k]), int(status.rounds[k]), bool(status.converged[k])
        losses = tuple(status.losses[:n, k].tolist())
        rankers.append(Ranker(run.learner.tower, weights, task.names[k], examination, best, n, converged, losses))
    return rankers


def _assign_batches(run: PreparedRun) -> Int[np.ndarray, "round batch slot"]:
    """Assign the training queries to batches for all rounds, by the learner's seed."""
    learner = run.learner
    return shuffled_batches(
        run.train.length, learner.batch, learner.rounds, generator(learner.seed, "ClickRanker", "order")
    )


def _common_widths(widths: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the largest widths, rounded up by a few percent so that other seeds reuse the program.

    Compiling another program takes seconds.
    """
    largest = max(documents for documents, _ in widths), max(terms for _, terms in widths)
    steps = [1 << max(width.bit_length() - 6, 0) for width in largest]
    return -(-largest[0] // steps[0]) * steps[0], -(-largest[1] // steps[1]) * steps[1]
