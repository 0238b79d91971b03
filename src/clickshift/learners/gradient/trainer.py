"""Training with early stopping on held-out sessions, for several seeds at once.

After two rounds without progress the learning rate of a seed is halved, after three the seed stops; its best round is
returned.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from clickshift.core.files import read_arrays, write_arrays
from clickshift.core.rng import generator
from clickshift.errors import DataError
from clickshift.learners.gradient._batches import RESIDENT_BYTES, Batch, Progress
from clickshift.learners.gradient._prepare import TrainingData
from clickshift.learners.gradient.step import PyTree, keep_better

_HALVE_AFTER, _STOP_AFTER, _RATE_FACTOR = 2, 3, 0.5
"""Rounds without progress before the rate is halved and before a seed stops, and the factor of the rate."""
SAVE_EVERY = 30.0
"""Seconds between two checkpoints."""
_MIN_STEPS = 16
"""Steps of a round, at least: the held-out loss is computed after every epoch, but not after fewer steps."""


@dataclass(eq=False)
class TrainingProgress:
    """Progress of each seed: everything that a checkpoint holds beside the arrays of the states.

    Parameters
    ----------
    rate
        Learning rate of each seed.
    best
        Smallest held-out loss of each seed.
    since_best
        Rounds since the smallest held-out loss.
    done
        Whether each seed has stopped.
    round
        Number of finished rounds.
    steps
        Number of steps of each seed.
    """

    rate: np.ndarray
    best: np.ndarray
    since_best: np.ndarray
    done: np.ndarray
    round: int = 0
    steps: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def record(self, loss: np.ndarray, steps: int) -> np.ndarray:
        """Record the held-out losses of a round; return True for the seeds that improved on their best."""
        self.round += 1
        better: np.ndarray = (loss < self.best) & ~self.done
        self.steps = np.where(self.done, self.steps, self.steps + steps)
        self.best = np.where(better, loss, self.best)
        self.since_best = np.where(better, 0, self.since_best + 1)
        self.rate = np.where(self.since_best == _HALVE_AFTER, self.rate * _RATE_FACTOR, self.rate)
        self.done = self.done | (self.since_best >= _STOP_AFTER)
        return better


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """Result of training, by seed.

    Parameters
    ----------
    parameters
        Outputs of all pairs ("by_pair") and shared parameters ("shared") of the best round.
    loss
        Held-out loss of the best round, in nats per session.
    steps
        Number of steps.
    converged
        Whether the seed stopped because its held-out loss did not improve.
    interrupted
        Whether training was interrupted.
    """

    parameters: list[PyTree]
    loss: np.ndarray
    steps: np.ndarray
    converged: np.ndarray
    interrupted: bool


def train(
    training: TrainingData,
    *,
    seeds: Sequence[int],
    rate: float,
    rounds: int,
    progress: Progress,
    checkpoint: Path | None = None,
    key: str = "",
) -> TrainingResult:
    """Train all seeds until they stop or the rounds are used up.

    Ctrl-C ends training with the best parameters so far; with a checkpoint, the next call resumes it.

    Parameters
    ----------
    training
        The program and its batches.
    seeds
        Random seeds.
    rate
        Initial learning rate.
    rounds
        Number of rounds, at most.
    progress
        Called with a message after each round.
    checkpoint
        File in which training is saved from time to time, and from which it is resumed.
    key
        Text that a checkpoint must have been saved with: the learner, the seeds and the log.

    Returns
    -------
    TrainingResult
        The best parameters of each seed.

    Raises
    ------
    DataError
        If the loss of a seed is not finite ("training-diverged").
    """
    program = training.program
    states, n = program.start(seeds), len(seeds)
    status = TrainingProgress(
        np.full(n, rate), np.full(n, np.inf), np.zeros(n, np.int64), np.zeros(n, bool), steps=np.zeros(n, np.int64)
    )
    frozen = {name: jnp.asarray(table, jnp.float32) for name, table in program.tower.frozen.items()}
    best = program.parameters(states, frozen)
    if checkpoint is not None and (saved := _load_checkpoint(checkpoint, key, states, best)):
        states, best, status = saved
        progress(f"resumed after round {status.round}")
    interrupted, saved_at = False, time.monotonic()
    source, evaluation = _BatchSource.of(training.batches), _BatchSource.of(training.held_out)
    while not status.done.all() and status.round < rounds:
        try:
            rounds_before = status.round
            for chunk, order in source.round(seeds, status.round):
                states, losses = program.steps(states, frozen, chunk, order, jnp.asarray(status.rate, jnp.float32))
                _check_losses(np.asarray(losses), status, seeds)
            parameters = program.parameters(states, frozen)
            nats = [np.asarray(program.held_out(parameters, part), np.float64) for part in evaluation.parts()]
            loss = np.sum(nats, axis=0) / training.held_out_total
            better = status.record(loss, source.steps)
            best = keep_better(jnp.asarray(better), parameters, best)
            if checkpoint is not None and time.monotonic() - saved_at > SAVE_EVERY:
                _save_checkpoint(checkpoint, key, states, best, status)
                saved_at = time.monotonic()
            progress(
                f"round {status.round}, {int(status.steps.max()):,} steps: "
                f"held-out loss {loss.mean():.4f}, best {status.best.mean():.4f}, rate {status.rate.max():.2g}"
            )
        except KeyboardInterrupt:
            if rounds_before == 0 and status.round == 0:
                raise
            interrupted = True
            break
    arrays = jax.tree.map(np.asarray, best)
    if checkpoint is not None and not interrupted:
        checkpoint.unlink(missing_ok=True)
    return TrainingResult(
        [jax.tree.map(lambda array, k=k: array[k], arrays) for k in range(n)],
        status.best,
        status.steps,
        status.done,
        interrupted,
    )


@dataclass(frozen=True, eq=False)
class _BatchSource:
    """Source of batches: all on the device, or in a file of which a part is on the device at a time.

    Parameters
    ----------
    whole
        All batches.
    chunk
        Number of batches that are on the device at a time.
    epochs
        Passes over the batches in a round.
    resident
        All batches on the device; None if they are streamed.
    """

    whole: Batch
    chunk: int
    epochs: int
    resident: PyTree | None

    @classmethod
    def of(cls, batches: Batch) -> _BatchSource:
        """Decide by the size of the batches whether they are kept on the device."""
        n, size = len(next(iter(batches.values()))), sum(array.nbytes for array in batches.values())
        if size <= RESIDENT_BYTES:
            return cls(batches, n, -(-_MIN_STEPS // n), jax.tree.map(jnp.asarray, batches))
        parts = -(-2 * size // RESIDENT_BYTES)
        return cls(batches, -(-n // parts), 1, None)

    @property
    def steps(self) -> int:
        """Number of steps of a round."""
        n = len(next(iter(self.whole.values())))
        return self.epochs * -(-n // self.chunk) * self.chunk

    def parts(self) -> Iterator[PyTree]:
        """Yield all batches once, in their order."""
        if self.resident is not None:
            yield self.resident
            return
        n = len(next(iter(self.whole.values())))
        for at in range(0, n, self.chunk):
            yield {name: jnp.asarray(array[at : at + self.chunk]) for name, array in self.whole.items()}

    def round(self, seeds: Sequence[int], number: int) -> Iterator[tuple[PyTree, Any]]:
        """Yield chunks of batches with the order of each seed, which depends on the seed and the round alone."""
        n = len(next(iter(self.whole.values())))
        shuffled = generator(0, "Gradient", "chunks", number).permutation(n)
        orders = [generator(seed, "Gradient", "order", number) for seed in seeds]
        for at in range(0, n, self.chunk):
            order = np.stack(
                [np.concatenate([rng.permutation(self.chunk) for _ in range(self.epochs)]) for rng in orders]
            )
            if self.resident is not None:
                yield self.resident, jnp.asarray(order)
            else:
                chosen = np.resize(shuffled[at:], self.chunk) if at + self.chunk > n else shuffled[at : at + self.chunk]
                yield (
                    {name: jnp.asarray(array[np.sort(chosen)]) for name, array in self.whole.items()},
                    jnp.asarray(order),
                )


def _check_losses(losses: np.ndarray, status: TrainingProgress, seeds: Sequence[int]) -> None:
    """Raise an error if the loss of a step is not finite."""
    not_finite = ~np.isfinite(losses)
    if not_finite.any():
        step, k = np.argwhere(not_finite)[0]
        steps = int(status.steps[k]) + int(step) + 1
        raise DataError(
            f"training diverged: the loss of seed {seeds[k]} is not finite after {steps} steps. "
            "Lower learning_rate, e.g. to a third of it.",
            code="training-diverged",
            seed=seeds[k],
            steps=steps,
        )


def _save_checkpoint(path: Path, key: str, states: PyTree, best: PyTree, status: TrainingProgress) -> None:
    """Save the states, the best parameters and the progress of all seeds."""
    leaves = jax.tree.leaves((states, best))
    arrays = {f"{k}": np.asarray(leaf) for k, leaf in enumerate(leaves)}
    write_arrays(
        path,
        {
            **arrays,
            "key": _digest(key),
            "rate": status.rate,
            "best": status.best,
            "since_best": status.since_best,
            "done": status.done,
            "round": np.array(status.round),
            "steps": status.steps,
        },
    )


def _load_checkpoint(
    path: Path, key: str, states: PyTree, best: PyTree
) -> tuple[PyTree, PyTree, TrainingProgress] | None:
    """Load what `_save_checkpoint` saved, if it belongs to this learner and this log."""
    arrays = read_arrays(path)
    if arrays is None or not np.array_equal(arrays.get("key", 0), _digest(key)):
        return None
    leaves, shape = jax.tree.flatten((states, best))
    saved = [jnp.asarray(arrays[f"{k}"]) for k in range(len(leaves))]
    states, best = jax.tree.unflatten(shape, saved)
    status = TrainingProgress(
        arrays["rate"], arrays["best"], arrays["since_best"], arrays["done"], int(arrays["round"]), arrays["steps"]
    )
    return states, best, status


def _digest(key: str) -> np.ndarray:
    """Return a digest of the key, as an array."""
    return np.frombuffer(hashlib.blake2b(key.encode(), digest_size=16).digest(), np.uint8)
