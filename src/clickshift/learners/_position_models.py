"""Maximum likelihood of the examination hypothesis: click = examined and attractive, counted by pair and situation.

This is for PBM and UBM, whose situations are ranks, or ranks with the last click above them.

Given examination e, each pair is a problem of its own, concave in its attractiveness a:
    (clicks + yes) ln a + no ln(1 - a) + sum over situations of skips ln(1 - a e)
So the climb is over examination alone, a few dozen numbers, with attractiveness always at its best. Slope and
curvature of that profile come with it: with D the information of a pair, E that of situations and C the block between
them, all by logits, the curvature is E - C' D^-1 C. A few of Newton's steps do what EM needs a hundred and more for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.newton import FAR, NewtonResult, covariance, damped_newton_step, maximise, shift_logits
from clickshift.core.parallel import for_each, n_threads
from clickshift.counts.cells import Cells, rank_of
from clickshift.learners._position_kernels import add_pseudo_counts, attractiveness_variance, solve_pairs
from clickshift.learners._priors import Beta, beta_by_likelihood

_AT_LIMIT = 0.999
_MIN_PROBABILITY = 1e-7
_MAX_HALVINGS = 8
EXAMINATION_PRIOR = Beta(0.1, 0.2)
"""The prior of examination: it only keeps it off 0 and 1. Ten times as much would decide where ranks hardly meet."""
_WEAK_PRIOR = Beta(0.001, 0.01)
_TOLERANCE_FACTOR = 0.1
"""Where ranks are compared by few clicks, a tenth of a nat is half a standard error of examination."""
_RANGES_PER_THREAD = 8
"""For each thread: pairs of frequent queries cost more, and stand together."""


@dataclass(frozen=True, eq=False)
class ExaminationFit:
    """Attractiveness by pair (last row: unseen), examination by situation, and the logit's standard error of both."""

    attractiveness: Float[np.ndarray, " pair_or_unseen"]
    examination: Float[np.ndarray, " situation"]
    attractiveness_error: Float[np.ndarray, " pair_or_unseen"]
    examination_error: Float[np.ndarray, " situation"]
    ascent: NewtonResult


@dataclass(frozen=True, eq=False)
class _ProfileLikelihood:
    """The penalised likelihood at its best for some examination, and how it changes with the logits of that."""

    examination: Float[np.ndarray, " situation"]
    free: Int[np.ndarray, " free"]
    """The situations whose examination is learned."""
    attractiveness: Float[np.ndarray, " pair"]
    objective: float
    slope: Float[np.ndarray, " situation"]
    information: Float[np.ndarray, "situation situation"]

    @cached_property
    def _step(self) -> Float[np.ndarray, " free"]:
        return damped_newton_step(self.information[np.ix_(self.free, self.free)], self.slope[self.free])

    def promise(self) -> float:
        return float(self.slope[self.free] @ self._step) / 2

    def ahead(self) -> Iterator[Float[np.ndarray, " situation"]]:
        """Newton's step, then half of it, and so on."""
        step = self._step * min(1.0, FAR / max(float(np.abs(self._step).max(initial=0.0)), 1e-300))
        for _ in range(_MAX_HALVINGS):
            e = self.examination.copy()
            e[self.free] = shift_logits(e[self.free], step, _MIN_PROBABILITY)
            yield e
            step = step / 2


def fit_examination(
    cells: Cells,
    *,
    prior: Beta | None,
    tolerance: float,
    max_steps: int,
    start: np.ndarray | None = None,
    rng: np.random.Generator | None = None,
) -> ExaminationFit:
    """Maximise the penalised likelihood: from a sensible start, from `start`, or from a random one if `rng` is given.

    Only the product of attractiveness and examination is identified. By convention the first rank has examination 1,
    unless another situation is examined more, which then has it; attractiveness is relative to it.

    Without a prior, examination is found with next to none, since what it says of many documents together may decide
    where ranks are compared by few clicks; rare documents borrow from those of their rank instead. Given examination,
    attractiveness is shrunk towards one mean for all, so that no estimate repeats what the ranker thought. Errors of
    examination know of no prior either.
    """
    problem = _ExaminationProblem(cells, prior or _WEAK_PRIOR, borrowed=prior is None)
    e = (
        problem.start(rng)
        if start is None
        else np.clip(start[cells.vocabulary.n_pairs :], _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
    )
    top, tried = 0, {0}
    while True:
        found, ascent = problem.climb(e, top, tolerance=tolerance * _TOLERANCE_FACTOR, max_steps=max_steps)
        e = found.examination
        rival = problem.most_examined(e, other_than=top)
        if e[rival] < _AT_LIMIT or rival in tried or len(tried) > 3:
            break
        e = e.copy()
        e[top] = _AT_LIMIT
        top = rival  # it would be examined more than the one that was held at 1
        tried.add(top)
    if prior is None:
        problem.give_back()
        information = problem.profile(e, found.free).information
        prior = problem.prior = beta_by_likelihood(problem.examined(e), problem.pair_clicked)
        found = replace(problem.profile(e, found.free), information=information)
    a_error, e_error = problem.errors(found, top)
    a = np.append(found.attractiveness, prior.mean)
    unseen_error = 1 / np.sqrt(prior.information(a[-1:]))
    return ExaminationFit(a, problem.filled(e), np.append(a_error, unseen_error), e_error, ascent)


class _ExaminationProblem:
    """The counts of one log. Only skips hide anything: of clicks it is enough to know how many."""

    def __init__(self, cells: Cells, prior: Beta, *, borrowed: bool) -> None:
        self.cells, self.prior, self.offsets = cells, prior, cells.offsets
        _, self.pair_clicked = cells.by_pair()
        self.shown, self.clicked = cells.by_situation()
        self.situation, self.skips = cells.situation.astype(np.int32, copy=False), cells.impressions - cells.clicks
        self._best = np.full(cells.vocabulary.n_pairs, 0.5)
        self._seen = self.pair_clicked, self.clicked
        if borrowed:
            by_pair, by_situation = add_pseudo_counts(cells, self.skips)
            self.pair_clicked, self.clicked = self.pair_clicked + by_pair, self.clicked + by_situation

    def give_back(self) -> None:
        """What was seen, and nothing else."""
        self.pair_clicked, self.clicked = self._seen
        np.subtract(self.cells.impressions, self.cells.clicks, out=self.skips)

    def start(self, rng: np.random.Generator | None) -> Float[np.ndarray, " situation"]:
        """Examination like the click-through rates of situations."""
        if rng is not None:
            return rng.uniform(0.1, 0.9, self.cells.n_situations)
        rate = (self.clicked + 1) / (self.shown + 2)
        start: np.ndarray = np.clip(0.95 * rate / rate[self._frequent()].max(), 0.01, 0.95)
        return start

    def climb(
        self, start: Float[np.ndarray, " situation"], top: int, *, tolerance: float, max_steps: int
    ) -> tuple[_ProfileLikelihood, NewtonResult]:
        """The examination of one situation is held at 1; what never occurred has the prior's."""
        e = np.where(self.shown > 0, start, 0.5)
        e[top] = 1.0
        free = np.flatnonzero((self.shown > 0) & (np.arange(len(e)) != top))
        self._best = np.clip(
            self.prior.mode(self.pair_clicked, self.examined(e)), _MIN_PROBABILITY, 1 - _MIN_PROBABILITY
        )
        return maximise(lambda point: self.profile(point, free), e, tolerance=tolerance, max_steps=max_steps)

    def profile(self, e: Float[np.ndarray, " situation"], free: Int[np.ndarray, " free"]) -> _ProfileLikelihood:
        """Curvature and all. One from near by would do where ranks are well connected; where they hardly are, it is of
        another size along what hardly matters, and steps by it lead nowhere."""
        n, pieces = len(e), self._pieces()
        a = self._best.copy()
        yes, no = self.prior.yes, self.prior.total - self.prior.yes
        slope, matrix, objective = np.zeros((len(pieces), n)), np.zeros((n_threads(), n, n)), np.zeros(len(pieces))

        def work(thread: int) -> None:
            for k in range(thread, len(pieces), len(matrix)):
                objective[k] = solve_pairs(
                    *pieces[k], self.offsets, self.situation, self.skips, self.pair_clicked, yes, no, e, a,
                    slope[k], matrix[thread],
                )  # fmt: skip

        for_each(work, len(matrix))
        self._best = a
        shared = self.clicked + EXAMINATION_PRIOR.yes
        curvature = matrix.sum(axis=0)
        information = (
            curvature + np.triu(curvature, 1).T + np.diag((self.clicked + EXAMINATION_PRIOR.total) * e * (1 - e))
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            penalty = np.where(
                e < 1, shared * np.log(e) + (EXAMINATION_PRIOR.total - EXAMINATION_PRIOR.yes) * np.log1p(-e), 0.0
            ).sum()
        value = float(objective.sum() + penalty)
        slopes = slope.sum(axis=0) + shared * (1 - e) - (EXAMINATION_PRIOR.total - EXAMINATION_PRIOR.yes) * e
        return _ProfileLikelihood(e, free, a, value, slopes, information)

    def errors(
        self, last: _ProfileLikelihood, top: int
    ) -> tuple[Float[np.ndarray, " pair"], Float[np.ndarray, " situation"]]:
        """Standard errors of the logits from the full observed information, an arrow: with C, D and E as above,
        cov_e = (E - C' D^-1 C)^-1 and var_a = D^-1 + D^-1 C cov_e C' D^-1. The most examined situation is 1 by
        convention and has no error."""
        e, free, n, pieces = last.examination, last.free, len(last.examination), self._pieces()
        cov = np.zeros((n, n))
        if len(free):  # of what was seen: the shared prior is there to keep examination off its limits
            seen = last.information - np.diag(EXAMINATION_PRIOR.total * e * (1 - e))
            cov[np.ix_(free, free)] = covariance(seen[np.ix_(free, free)])
        variance = np.empty(len(self.pair_clicked))

        def work(k: int) -> None:
            attractiveness_variance(
                *pieces[k], self.offsets, self.situation, self.skips, self.pair_clicked, self.prior.total, e,
                last.attractiveness, cov, variance,
            )  # fmt: skip

        for_each(work, len(pieces))
        errors = np.full(n, np.nan)
        errors[free] = np.sqrt(np.maximum(np.diag(cov)[free], 0))
        errors[top] = 0.0
        return np.sqrt(variance), errors

    def examined(self, e: Float[np.ndarray, " situation"]) -> Float[np.ndarray, " pair"]:
        """Expected examinations of each pair, before its clicks are looked at; not fewer than its clicks."""
        more: np.ndarray = np.maximum(self.cells.weighed(e), self.pair_clicked)
        return more

    def most_examined(self, e: Float[np.ndarray, " situation"], *, other_than: int) -> int:
        """Of the situations that are frequent enough to tell."""
        e = np.where(self._frequent(), e, -1.0)
        e[other_than] = -1.0
        return int(np.argmax(e))

    def filled(self, e: Float[np.ndarray, " situation"]) -> Float[np.ndarray, " situation"]:
        """A situation that never occurred is examined like its rank on average."""
        rank, known = rank_of(self.cells.by, self.cells.n_ranks), self.shown > 0
        total, weight = np.bincount(rank, np.where(known, e * self.shown, 0)), np.bincount(rank, self.shown)
        overall = np.average(e[known], weights=self.shown[known])
        by_rank = np.where(weight > 0, total / np.maximum(weight, 1), overall)
        filled: np.ndarray = np.where(known, e, by_rank[rank])
        return filled

    def _frequent(self) -> np.ndarray:
        frequent: np.ndarray = self.shown >= self.shown.max() / 50
        return frequent

    def _pieces(self) -> list[tuple[int, int]]:
        return self.cells.ranges(n_threads() * _RANGES_PER_THREAD)
