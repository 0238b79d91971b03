"""The training loop of click models and rankers: rounds with early stopping, for several runs side by side.

A run is one seed of a click model, or one ranker. After every round, its parameters are kept if its held-out loss is
the smallest so far. Training can be interrupted, and resumed from a checkpoint.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.core.files import cache_folder, read_arrays, write_arrays
from clickshift.core.interrupts import save_after_interrupt, wait_interruptibly
from clickshift.core.progress import Progress
from clickshift.errors import ClickshiftWarning, DataError

PyTree = Any
"""Nested dictionaries of arrays."""
SAVE_EVERY = 30.0
"""Seconds between two checkpoints."""
_RATE_FACTOR = 0.5
"""Factor of the learning rate of a run on a plateau."""
_PLATEAU_GAIN, _SMALLEST_CHANGE = 1e-4, 1e-8
"""Relative gain in held-out loss that ends a plateau, and change of the rate that is too small to be made: `threshold`
and `eps` of PyTorch's ReduceLROnPlateau."""


@runtime_checkable
class TrainingTask(Protocol):
    """What is trained. The arrays of states and parameters have a first dimension of runs."""

    @property
    def names(self) -> Sequence[str]:
        """Spec text of each run's learner."""

    def start(self) -> PyTree:
        """Return the states before the first round."""

    def round(self, states: PyTree, number: int, rate: Float[np.ndarray, " run"]) -> tuple[PyTree, np.ndarray]:
        """Train for a round (from 0) and return the states and each run's training loss; it may consume `states`."""

    def parameters(self, states: PyTree) -> PyTree:
        """Return the part of the states that is evaluated, and kept from the best round."""

    def held_out_loss(self, parameters: PyTree) -> Float[np.ndarray, " run"]:
        """Return the held-out loss of each run."""


@dataclass(frozen=True, eq=False)
class EarlyStopping:
    """When a run stops.

    Parameters
    ----------
    rounds
        Largest number of rounds, of all runs or of each.
    patience
        Number of rounds without progress after which a run stops, of all runs or of each.
    plateau_patience
        Number of bad rounds in a row that leave the learning rate as it is: it is halved at the next one, as by
        PyTorch's ``ReduceLROnPlateau(factor=0.5, patience=plateau_patience)``. None for never. A round is bad unless
        its loss is below that of the last good round by a ten thousandth of it.
    keep_last
        Whether the parameters of the last round are kept instead of those of the best one, for all runs or each.
    """

    rounds: int | Int[np.ndarray, " run"]
    patience: int | Int[np.ndarray, " run"]
    plateau_patience: int | None = None
    keep_last: bool | Bool[np.ndarray, " run"] = False


@dataclass(eq=False)
class RunProgress:
    """Progress of each run: everything that a checkpoint holds beside the arrays of the states.

    Parameters
    ----------
    rate
        Learning rate.
    best
        Smallest held-out loss.
    since_best
        Number of rounds since then.
    plateau_loss
        Loss of the last good round, with which the next ones are compared to find a plateau.
    plateau_rounds
        Number of bad rounds since then, or since the rate was last halved.
    rounds
        Number of rounds.
    done
        Whether training has ended.
    converged
        Whether early stopping ended it, rather than the limit on rounds or a loss that is not finite.
    losses
        Held-out loss of each round; NaN for the rounds after a run has ended.
    """

    rate: Float[np.ndarray, " run"]
    best: Float[np.ndarray, " run"]
    since_best: Int[np.ndarray, " run"]
    plateau_loss: Float[np.ndarray, " run"]
    plateau_rounds: Int[np.ndarray, " run"]
    rounds: Int[np.ndarray, " run"]
    done: Bool[np.ndarray, " run"]
    converged: Bool[np.ndarray, " run"]
    losses: Float[np.ndarray, "round run"]

    @classmethod
    def of(cls, rate: Float[np.ndarray, " run"]) -> RunProgress:
        """Return the progress before the first round."""
        n = len(rate)
        zeros, no = np.zeros(n, np.int64), np.zeros(n, bool)
        worst = np.full(n, np.inf)
        return cls(rate, worst, zeros, worst, zeros, zeros, no, no, np.zeros((0, n)))

    @property
    def round(self) -> int:
        """Number of finished rounds."""
        return int(self.rounds.max())

    def record(self, rule: EarlyStopping, loss: np.ndarray, diverged: np.ndarray) -> Bool[np.ndarray, " run"]:
        """Record the held-out losses of a round; return True for the runs that improved on their best."""
        better: np.ndarray = ~self.done & ~diverged & (loss < self.best)
        self.losses = np.vstack([self.losses, np.where(self.done, np.nan, loss)])
        self.rounds = self.rounds + ~self.done
        self.best = np.where(better, loss, self.best)
        self.since_best = np.where(better, 0, self.since_best + 1)
        if rule.plateau_patience is not None:
            good = loss < self.plateau_loss * (1 - _PLATEAU_GAIN)
            self.plateau_loss = np.where(good, loss, self.plateau_loss)
            self.plateau_rounds = np.where(good, 0, self.plateau_rounds + 1)
            ended = self.plateau_rounds > rule.plateau_patience
            halved = self.rate * _RATE_FACTOR
            self.rate = np.where(ended & (self.rate - halved > _SMALLEST_CHANGE), halved, self.rate)
            self.plateau_rounds = np.where(ended, 0, self.plateau_rounds)
        self.converged = self.converged | (~self.done & (self.since_best >= rule.patience))
        self.done = self.done | self.converged | diverged | (self.rounds >= rule.rounds)
        return better


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """Result of training, by run.

    Parameters
    ----------
    parameters
        Parameters of the best round.
    progress
        Held-out loss of the best round, number of rounds, and whether early stopping ended them.
    """

    parameters: list[PyTree]
    progress: RunProgress


def train(
    task: TrainingTask,
    rule: EarlyStopping,
    *,
    rate: Float[np.ndarray, " run"],
    progress: Progress,
    checkpoint: Path | None = None,
    key: str = "",
    advice: str = "Lower learning_rate",
) -> TrainingResult:
    """Train all runs until they stop.

    Ctrl-C ends training with the best parameters so far and a warning ("interrupted"); with a checkpoint, the next call
    resumes it. A run whose loss is not finite ends with its best round and a warning ("training-diverged").

    Parameters
    ----------
    task
        What is trained.
    rule
        When a run stops.
    rate
        Initial learning rate of each run.
    progress
        Called with a message after each round.
    checkpoint
        File in which training is saved from time to time, and from which it is resumed.
    key
        Text that a checkpoint must have been saved with: the learners, the seeds and the data.
    advice
        What to do if a loss is not finite.

    Returns
    -------
    TrainingResult
        The best parameters of each run.

    Raises
    ------
    DataError
        If the loss of a run is not finite before a first round could be kept ("training-diverged").
    """
    states, best = wait_interruptibly(partial(_start, task))
    status = RunProgress.of(rate)
    if checkpoint is not None and (saved := _load_checkpoint(checkpoint, key, states, best)):
        states, best, status = saved
        progress(f"resumed after round {status.round}")
    interrupted, saved_at = False, time.monotonic()
    while not status.done.all() and not interrupted:
        number = status.round
        try:
            states, parameters, train_loss, loss = wait_interruptibly(
                partial(_round, task, states, number, status.rate)
            )
            diverged = ~status.done & ~(np.isfinite(train_loss) & np.isfinite(loss))
            for k in np.flatnonzero(diverged).tolist():
                _report_divergence(task.names[k], number + 1, float(status.rate[k]), float(status.best[k]), advice)
            running = ~status.done & ~diverged
            kept = np.where(rule.keep_last, running, status.record(rule, loss, diverged))
            best = keep_better(jnp.asarray(kept), parameters, best)
            if checkpoint is not None and time.monotonic() - saved_at > SAVE_EVERY:
                _save_checkpoint(checkpoint, key, states, best, status)
                saved_at = time.monotonic()
            progress(
                f"round {status.round}: held-out loss {loss.mean():.4f}, best {status.best.mean():.4f}, "
                f"rate {status.rate.max():.2g}"
            )
        except KeyboardInterrupt:
            if status.round == 0:
                raise
            save_after_interrupt()
            interrupted = True
    if interrupted:
        warnings.warn(
            ClickshiftWarning(
                "training was interrupted: these are the best parameters so far, not the final ones.",
                code="interrupted",
            ),
            stacklevel=3,
        )
    elif checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    arrays = jax.tree.map(np.array, best)
    return TrainingResult([jax.tree.map(lambda array, k=k: array[k], arrays) for k in range(len(rate))], status)


def _start(task: TrainingTask) -> tuple[PyTree, PyTree]:
    """Return the states before the first round, and a copy of their parameters: a round may consume the states."""
    states = task.start()
    return states, jax.tree.map(jnp.copy, task.parameters(states))


def _round(task: TrainingTask, states: PyTree, number: int, rate: np.ndarray) -> tuple[PyTree, PyTree, Any, Any]:
    """Train for a round; return the states, the parameters, and the training and held-out loss of each run."""
    states, train_loss = task.round(states, number, rate)
    parameters = task.parameters(states)
    return states, parameters, train_loss, task.held_out_loss(parameters)


def keep_compiled() -> None:
    """Keep compiled programs in clickshift's cache folder, unless JAX has a compilation cache already.

    Compiling takes longer than training on a small log.
    """
    settings: Any = jax.config
    if settings.jax_compilation_cache_dir is None:
        settings.update("jax_compilation_cache_dir", str(cache_folder() / "compiled"))
        settings.update("jax_persistent_cache_min_compile_time_secs", 0.2)


@jax.jit
def keep_better(better: Any, new: PyTree, old: PyTree) -> PyTree:
    """Choose the new tree for the runs where it is better, and the old one for the others."""
    return jax.tree.map(lambda a, b: jnp.where(better.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, old)


def _report_divergence(name: str, number: int, rate: float, best: float, advice: str) -> None:
    """Warn that the loss of a run is not finite; raise an error if there is no round before."""
    problem = f"training diverged: the loss of {name} is not finite in round {number}."
    facts = {"learner": name, "round": number, "learning_rate": rate}
    if not np.isfinite(best):
        raise DataError(f"{problem} {advice}, now {rate:g}.", code="training-diverged", **facts)
    message = f"{problem} The best round before is kept."
    warnings.warn(ClickshiftWarning(message, code="training-diverged", **facts), stacklevel=4)


def _save_checkpoint(path: Path, key: str, states: PyTree, best: PyTree, status: RunProgress) -> None:
    """Save the states, the best parameters and the progress of all runs."""
    arrays = {f"{k}": np.asarray(leaf) for k, leaf in enumerate(jax.tree.leaves((states, best)))}
    write_arrays(path, {**arrays, **vars(status), "key": _digest(key)})


def _load_checkpoint(path: Path, key: str, states: PyTree, best: PyTree) -> tuple[PyTree, PyTree, RunProgress] | None:
    """Load what `_save_checkpoint` saved, if it belongs to these learners and this data."""
    arrays = read_arrays(path)
    if arrays is None or not np.array_equal(arrays.get("key", 0), _digest(key)):
        return None
    if not {field.name for field in fields(RunProgress)} <= arrays.keys():  # a checkpoint of an earlier version
        return None
    leaves, shape = jax.tree.flatten((states, best))
    states, best = jax.tree.unflatten(shape, [jnp.asarray(arrays[f"{k}"]) for k in range(len(leaves))])
    return states, best, RunProgress(**{field.name: arrays[field.name] for field in fields(RunProgress)})


def _digest(key: str) -> np.ndarray:
    """Return a digest of the key, as an array."""
    return np.frombuffer(hashlib.blake2b(key.encode(), digest_size=16).digest(), np.uint8)
