"""Training of a click model, several seeds at once: batches on the device or in a file, steps, held-out sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from clickshift.core.rng import generator
from clickshift.learners.gradient._batches import RESIDENT_BYTES, Batch
from clickshift.learners.gradient._prepare import TrainingData
from clickshift.learners.training import EarlyStopping, PyTree

_MIN_STEPS = 16
"""Steps of a round, at least: the held-out loss is computed after every epoch, but not after fewer steps."""


def early_stopping(rounds: int) -> EarlyStopping:
    """Return the rule of click models, which is that of the policy-shift paper (appendix A).

    The rate is halved as by PyTorch's ``ReduceLROnPlateau(factor=0.5, patience=2)``, and training stops as by
    Lightning's ``EarlyStopping(patience=3)``: at the third round in a row without a smaller held-out loss.
    """
    return EarlyStopping(rounds, patience=3, plateau_patience=2)


@dataclass(frozen=True, eq=False)
class ClickModelTask:
    """Training task of a click model: one run per seed.

    Parameters
    ----------
    data
        The program and its batches.
    seeds
        Random seeds.
    names
        Spec text of each seed's learner.
    """

    data: TrainingData
    seeds: Sequence[int]
    names: Sequence[str]

    def start(self) -> PyTree:
        """Return the states of all seeds before the first round."""
        return self.data.program.start(self.seeds)

    def round(self, states: PyTree, number: int, rate: np.ndarray) -> tuple[PyTree, np.ndarray]:
        """Take the steps of a round; return the states and the mean training loss of each seed."""
        losses = []
        for chunk, order in self.batches.round(self.seeds, number):
            states, loss = self.data.program.steps(states, self._frozen, chunk, order, jnp.asarray(rate, jnp.float32))
            losses.append(np.asarray(loss, np.float64))
        return states, np.concatenate(losses).mean(axis=0)

    def parameters(self, states: PyTree) -> PyTree:
        """Return the outputs of all pairs and the shared parameters."""
        return self.data.program.parameters(states, self._frozen)

    def held_out_loss(self, parameters: PyTree) -> np.ndarray:
        """Return the held-out loss of each seed, in nats per session."""
        parts = (self.data.program.held_out(parameters, part) for part in self._held_out.parts())
        nats: np.ndarray = np.sum([np.asarray(part, np.float64) for part in parts], axis=0)
        return nats / self.data.held_out_total

    @cached_property
    def batches(self) -> _BatchSource:
        """Training batches."""
        return _BatchSource.of(self.data.batches)

    @cached_property
    def _held_out(self) -> _BatchSource:
        """Held-out batches."""
        return _BatchSource.of(self.data.held_out)

    @cached_property
    def _frozen(self) -> PyTree:
        """Tables that are not learned, on the device."""
        return {name: jnp.asarray(table, jnp.float32) for name, table in self.data.program.tower.frozen.items()}


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
