"""Training rounds with early stopping on held-out clicks, for one run or for several side by side."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from clickshift.core.progress import Progress
from clickshift.core.rng import generator
from clickshift.core.spec import label
from clickshift.errors import ClickshiftWarning, DataError
from clickshift.ranking._examples import shuffled_batches
from clickshift.ranking._prepare import PreparedRun
from clickshift.ranking.ranker import Ranker


@dataclass(eq=False)
class _TrainingState:
    """Progress of several runs, one entry per run.

    Parameters
    ----------
    best
        Smallest held-out loss so far.
    since_best
        Number of rounds since then.
    rounds
        Number of rounds.
    done
        Whether training has ended.
    stopped
        Whether early stopping ended it, rather than the limit on rounds or a loss that is not finite.
    """

    best: np.ndarray
    since_best: np.ndarray
    rounds: np.ndarray
    done: np.ndarray
    stopped: np.ndarray

    @classmethod
    def of(cls, n: int) -> _TrainingState:
        """Return the state of n runs before the first round."""
        zeros = np.zeros(n, np.int64)
        return cls(np.full(n, np.inf), zeros, zeros.copy(), np.zeros(n, bool), np.zeros(n, bool))

    def update(self, runs: Sequence[PreparedRun], train_loss: np.ndarray, held_out_loss: np.ndarray) -> None:
        """Update the state with the losses of a round. A run whose loss is not finite ends with its best round."""
        self.rounds += ~self.done
        diverged = ~self.done & ~(np.isfinite(train_loss) & np.isfinite(held_out_loss))
        for k in np.flatnonzero(diverged).tolist():
            learner, number = runs[k].learner, int(self.rounds[k])
            problem = f"{label(learner)} diverged in round {number}: the loss is not finite."
            if not np.isfinite(self.best[k]):
                raise DataError(
                    f"{problem} Lower learning_rate, now {learner.rate:g}, or clip propensities.",
                    code="training-diverged",
                    round=number,
                    learning_rate=learner.rate,
                )
            warnings.warn(
                ClickshiftWarning(f"{problem} The best round before is kept.", code="training-diverged", round=number),
                stacklevel=4,
            )
        better = ~self.done & ~diverged & (held_out_loss < self.best)
        self.best = np.where(better, held_out_loss, self.best)
        self.since_best = np.where(better, 0, self.since_best + 1)
        patience, max_rounds = (
            np.array([getattr(run.learner, name) for run in runs]) for name in ("patience", "rounds")
        )
        self.stopped |= ~self.done & (self.since_best >= patience)
        self.done |= self.stopped | diverged | (self.rounds >= max_rounds)


def train_runs(runs: Sequence[PreparedRun], progress: Progress) -> list[Ranker]:
    """Train one network, or several one-hot runs side by side, until early stopping or the limit on rounds.

    Parameters
    ----------
    runs
        One network, or one-hot runs of the same group.
    progress
        Called with a text after every round.

    Returns
    -------
    list of Ranker
        The ranker of the best round of each run.

    Raises
    ------
    DataError
        If the loss of a run is not finite before a first round could be kept ("training-diverged").
    """
    from clickshift.ranking._step import compile_round, to_device, unstack_runs

    side_by_side = runs[0].learner.tower == "one-hot"
    train_round = compile_round(runs[0].program, side_by_side)
    assignments = [_assign_batches(run) for run in runs]
    widths = _common_widths([run.train.widths(batches) for run, batches in zip(runs, assignments, strict=True)])
    state = to_device([run.program.initial_state(run.weights) for run in runs], side_by_side)
    data = to_device([run.padded_terms(run.train) | {"features": run.features[0]} for run in runs], side_by_side)
    held_out_widths = _common_widths([run.held_out_widths for run in runs])
    held_out = to_device([run.held_out_data(held_out_widths) for run in runs], side_by_side)
    rate = to_device([np.float32(run.learner.rate) for run in runs], side_by_side)
    dropout_rngs = [generator(run.learner.seed, "ClickRanker", "dropout") for run in runs]
    training = _TrainingState.of(len(runs))
    while not training.done.all():
        number = int(training.rounds.max())
        # a run that has finished continues with any batches, without effect
        current = [rounds[min(number, len(rounds) - 1)] for rounds in assignments]
        packed = [run.train.packed(batches, widths) for run, batches in zip(runs, current, strict=True)]
        train = {"data": data, "batches": to_device(packed, side_by_side)}
        seed = to_device([rng.integers(2**32, dtype=np.uint32) for rng in dropout_rngs], side_by_side)
        active = to_device([np.bool_(not done) for done in training.done], side_by_side)
        state, train_loss, held_out_loss = train_round(state, train, held_out, seed, rate, active)
        training.update(runs, np.atleast_1d(np.asarray(train_loss)), np.atleast_1d(np.asarray(held_out_loss)))
        progress(f"round {number + 1}: held-out loss {np.mean(held_out_loss):.4f}, best {training.best.mean():.4f}")
    weights = unstack_runs(state["best"], len(runs), side_by_side)
    return [_trained_ranker(run, weights[k], training, k) for k, run in enumerate(runs)]


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


def _trained_ranker(run: PreparedRun, weights: dict[str, np.ndarray], training: _TrainingState, k: int) -> Ranker:
    """Build the ranker of run k from its best weights."""
    logit = weights.pop("examination", None)
    examination = None if logit is None else 1 / (1 + np.exp(-logit.astype(np.float64)))
    best, rounds, stopped = float(training.best[k]), int(training.rounds[k]), bool(training.stopped[k])
    return Ranker(run.learner.tower, weights, label(run.learner), examination, best, rounds, stopped)
