"""Training: rounds of steps until held-out sessions are predicted no better, for several seeds at once.

After two rounds without progress a seed's learning rate is halved, after three it stops; it gives its best round.
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
SAVE_EVERY = 30.0
"""Seconds between two checkpoints."""
_MIN_STEPS = 16
"""Of a round: held-out sessions are looked at after every epoch, but not more often than this."""


@dataclass(eq=False)
class TrainingProgress:
    """How far each seed has come: everything that a checkpoint holds beside the arrays of the states."""

    rate: np.ndarray
    best: np.ndarray
    since_best: np.ndarray
    done: np.ndarray
    round: int = 0
    steps: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def heard(self, loss: np.ndarray, steps: int) -> np.ndarray:
        """Take the held-out losses of a round; True for the seeds that did better than ever."""
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
    """Per seed: what the model is made of, its loss on held-out sessions, and how it came about."""

    found: list[PyTree]
    loss: np.ndarray
    steps: np.ndarray
    converged: np.ndarray
    interrupted: bool


def train(
    work: TrainingData,
    *,
    seeds: Sequence[int],
    rate: float,
    rounds: int,
    progress: Progress,
    checkpoint: Path | None = None,
    key: str = "",
) -> TrainingResult:
    """Run the rounds. Ctrl-C ends them early with the best so far; with a checkpoint, the next call goes on."""
    program = work.program
    states, n = program.start(seeds), len(seeds)
    course = TrainingProgress(
        np.full(n, rate), np.full(n, np.inf), np.zeros(n, np.int64), np.zeros(n, bool), steps=np.zeros(n, np.int64)
    )
    frozen = {name: jnp.asarray(table, jnp.float32) for name, table in program.tower.frozen.items()}
    best = program.found(states, frozen)
    if checkpoint is not None and (saved := _load_checkpoint(checkpoint, key, states, best)):
        states, best, course = saved
        progress(f"going on after round {course.round}")
    interrupted, saved_at = False, time.monotonic()
    source, judge = _BatchSource.of(work.batches), _BatchSource.of(work.held_out)
    while not course.done.all() and course.round < rounds:
        try:
            before = course.round
            for chunk, order in source.round(seeds, course.round):
                states, losses = program.steps(states, frozen, chunk, order, jnp.asarray(course.rate, jnp.float32))
                _check_losses(np.asarray(losses), course, seeds)
            found = program.found(states, frozen)
            nats = [np.asarray(program.held_out(found, some), np.float64) for some in judge.parts()]
            loss = np.sum(nats, axis=0) / work.held_out_total
            better = course.heard(loss, source.steps)
            best = keep_better(jnp.asarray(better), found, best)
            if checkpoint is not None and time.monotonic() - saved_at > SAVE_EVERY:
                _save_checkpoint(checkpoint, key, states, best, course)
                saved_at = time.monotonic()
            progress(
                f"round {course.round}, {int(course.steps.max()):,} steps: "
                f"held-out loss {loss.mean():.4f}, best {course.best.mean():.4f}, rate {course.rate.max():.2g}"
            )
        except KeyboardInterrupt:
            if before == 0 and course.round == 0:
                raise
            interrupted = True
            break
    arrays = jax.tree.map(np.asarray, best)
    if checkpoint is not None and not interrupted:
        checkpoint.unlink(missing_ok=True)
    return TrainingResult(
        [jax.tree.map(lambda array, k=k: array[k], arrays) for k in range(n)],
        course.best,
        course.steps,
        course.done,
        interrupted,
    )


@dataclass(frozen=True, eq=False)
class _BatchSource:
    """Batches on the device, or in a file of which a part is on the device at a time."""

    whole: Batch
    chunk: int
    epochs: int
    resident: PyTree | None

    @classmethod
    def of(cls, batches: Batch) -> _BatchSource:
        n, size = len(next(iter(batches.values()))), sum(array.nbytes for array in batches.values())
        if size <= RESIDENT_BYTES:
            return cls(batches, n, -(-_MIN_STEPS // n), jax.tree.map(jnp.asarray, batches))
        parts = -(-2 * size // RESIDENT_BYTES)
        return cls(batches, -(-n // parts), 1, None)

    @property
    def steps(self) -> int:
        """Of a round."""
        n = len(next(iter(self.whole.values())))
        return self.epochs * -(-n // self.chunk) * self.chunk

    def parts(self) -> Iterator[PyTree]:
        """All batches once, as they stand."""
        if self.resident is not None:
            yield self.resident
            return
        n = len(next(iter(self.whole.values())))
        for at in range(0, n, self.chunk):
            yield {name: jnp.asarray(array[at : at + self.chunk]) for name, array in self.whole.items()}

    def round(self, seeds: Sequence[int], number: int) -> Iterator[tuple[PyTree, Any]]:
        """Chunks of batches, and in which order each seed takes them: a function of the seed and the round."""
        n = len(next(iter(self.whole.values())))
        common = generator(0, "Gradient", "chunks", number).permutation(n)
        orders = [generator(seed, "Gradient", "order", number) for seed in seeds]
        for at in range(0, n, self.chunk):
            order = np.stack(
                [np.concatenate([rng.permutation(self.chunk) for _ in range(self.epochs)]) for rng in orders]
            )
            if self.resident is not None:
                yield self.resident, jnp.asarray(order)
            else:
                some = np.resize(common[at:], self.chunk) if at + self.chunk > n else common[at : at + self.chunk]
                yield (
                    {name: jnp.asarray(array[np.sort(some)]) for name, array in self.whole.items()},
                    jnp.asarray(order),
                )


def _check_losses(losses: np.ndarray, course: TrainingProgress, seeds: Sequence[int]) -> None:
    bad = ~np.isfinite(losses)
    if bad.any():
        step, seed = np.argwhere(bad)[0]
        raise DataError(
            f"the loss of seed {seeds[seed]} is not a number after {int(course.steps[seed]) + int(step) + 1} steps. "
            "Try a lower learning_rate, e.g. a third of it."
        )


def _save_checkpoint(path: Path, key: str, states: PyTree, best: PyTree, course: TrainingProgress) -> None:
    leaves = jax.tree.leaves((states, best))
    arrays = {f"{k}": np.asarray(leaf) for k, leaf in enumerate(leaves)}
    write_arrays(
        path,
        {
            **arrays,
            "key": _digest(key),
            "rate": course.rate,
            "best": course.best,
            "since_best": course.since_best,
            "done": course.done,
            "round": np.array(course.round),
            "steps": course.steps,
        },
    )


def _load_checkpoint(
    path: Path, key: str, states: PyTree, best: PyTree
) -> tuple[PyTree, PyTree, TrainingProgress] | None:
    """What `_save_checkpoint` kept, if it belongs to this learner and this log."""
    arrays = read_arrays(path)
    if arrays is None or not np.array_equal(arrays.get("key", 0), _digest(key)):
        return None
    leaves, shape = jax.tree.flatten((states, best))
    saved = [jnp.asarray(arrays[f"{k}"]) for k in range(len(leaves))]
    states, best = jax.tree.unflatten(shape, saved)
    course = TrainingProgress(
        arrays["rate"], arrays["best"], arrays["since_best"], arrays["done"], int(arrays["round"]), arrays["steps"]
    )
    return states, best, course


def _digest(key: str) -> np.ndarray:
    return np.frombuffer(hashlib.blake2b(key.encode(), digest_size=16).digest(), np.uint8)
