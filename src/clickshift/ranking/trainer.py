"""Rounds of training until held-out clicks are predicted no better, for one run or for several side by side."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from clickshift.core.rng import generator
from clickshift.core.spec import label
from clickshift.errors import ClickshiftWarning, DataError
from clickshift.ranking.examples import shuffled_batches
from clickshift.ranking.prepare import PreparedRun
from clickshift.ranking.ranker import Ranker

Progress = Callable[[int | str], None]


@dataclass(eq=False)
class _Course:
    """How far each run has come."""

    best: np.ndarray
    since_best: np.ndarray
    rounds: np.ndarray
    done: np.ndarray
    stopped: np.ndarray
    """Whether it stopped by itself, not for want of rounds."""

    @classmethod
    def of(cls, n: int) -> _Course:
        zeros = np.zeros(n, np.int64)
        return cls(np.full(n, np.inf), zeros, zeros.copy(), np.zeros(n, bool), np.zeros(n, bool))

    def heard(self, works: Sequence[PreparedRun], train_loss: np.ndarray, loss: np.ndarray) -> None:
        """Take the losses of a round. A run whose loss is no number any more keeps its best round."""
        self.rounds += ~self.done
        lost = ~self.done & ~(np.isfinite(train_loss) & np.isfinite(loss))
        for k in np.flatnonzero(lost).tolist():
            what = f"{label(works[k].learner)} diverged in round {self.rounds[k]}: its loss is no number any more."
            if not np.isfinite(self.best[k]):
                raise DataError(f"{what} Lower learning_rate, now {works[k].learner.rate:g}, or clip propensities.")
            warnings.warn(f"{what} The best round before is kept.", ClickshiftWarning, stacklevel=4)
        better = ~self.done & ~lost & (loss < self.best)
        self.best = np.where(better, loss, self.best)
        self.since_best = np.where(better, 0, self.since_best + 1)
        patience, rounds = (
            np.array([getattr(work.learner, name) for work in works]) for name in ("patience", "rounds")
        )
        self.stopped |= ~self.done & (self.since_best >= patience)
        self.done |= self.stopped | lost | (self.rounds >= rounds)


def train(works: Sequence[PreparedRun], progress: Progress) -> list[Ranker]:
    """Run the rounds of one network, or of several one-hot runs side by side."""
    from clickshift.ranking.step import compiled, on_device, per_run

    side_by_side = works[0].learner.tower == "one-hot"
    round_of = compiled(works[0].program, side_by_side)
    dealt = [_dealt(work) for work in works]
    widths = _widest([work.train.widths(batches) for work, batches in zip(works, dealt, strict=True)])
    state = on_device([work.program.start(work.weights) for work in works], side_by_side)
    data = on_device([work.terms(work.train) | {"features": work.features[0]} for work in works], side_by_side)
    held_out = _widest([work.held_out_widths for work in works])
    judge = on_device([work.held_out(held_out) for work in works], side_by_side)
    rate = on_device([np.float32(work.learner.rate) for work in works], side_by_side)
    seeds = [generator(work.learner.seed, "ClickRanker", "dropout") for work in works]
    course = _Course.of(len(works))
    while not course.done.all():
        number = int(course.rounds.max())
        # a run that has finished goes on with any batches
        now = [batches[min(number, len(batches) - 1)] for batches in dealt]
        batches = on_device([work.train.packed(k, widths) for work, k in zip(works, now, strict=True)], side_by_side)
        seed = on_device([rng.integers(2**32, dtype=np.uint32) for rng in seeds], side_by_side)
        active = on_device([np.bool_(not done) for done in course.done], side_by_side)
        state, train_loss, loss = round_of(state, {"data": data, "batches": batches}, judge, seed, rate, active)
        course.heard(works, np.atleast_1d(np.asarray(train_loss)), np.atleast_1d(np.asarray(loss)))
        progress(f"round {number + 1}: held-out loss {np.mean(loss):.4f}, best {course.best.mean():.4f}")
    found = per_run(state["best"], len(works), side_by_side)
    return [_ranker(work, found[k], course, k) for k, work in enumerate(works)]


def _dealt(work: PreparedRun) -> Int[np.ndarray, "round batch place"]:
    learner = work.learner
    return shuffled_batches(
        work.train.length, learner.batch, learner.rounds, generator(learner.seed, "ClickRanker", "order")
    )


def _widest(widths: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Rounded up by a few percent at most, so that other seeds need no program of their own: that takes seconds."""
    most = max(documents for documents, _ in widths), max(terms for _, terms in widths)
    steps = [1 << max(width.bit_length() - 6, 0) for width in most]
    return -(-most[0] // steps[0]) * steps[0], -(-most[1] // steps[1]) * steps[1]


def _ranker(work: PreparedRun, weights: dict[str, np.ndarray], course: _Course, k: int) -> Ranker:
    logit = weights.pop("examination", None)
    examination = None if logit is None else 1 / (1 + np.exp(-logit.astype(np.float64)))
    best, rounds, stopped = float(course.best[k]), int(course.rounds[k]), bool(course.stopped[k])
    return Ranker(work.learner.tower, weights, label(work.learner), examination, best, rounds, stopped)
