"""EM for the examination hypothesis: click = examined and attractive, counted by pair and situation (PBM, UBM).

E-step, for a result that was not clicked, with e = examination and a = attractiveness:
    P(attractive | skip) = a (1 - e) / (1 - e a),   P(examined | skip) = e (1 - a) / (1 - e a)
M-step: the expected share of attractive (examined) among impressions, with the prior's pseudo-counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import no_type_check

import numpy as np
from jaxtyping import Float
from numba import njit

from clickshift.learners.prior import SHARED, Beta, beta_by_group, beta_by_likelihood
from clickshift.learners.squarem import Ascent, Step, ascend
from clickshift.statistics import Cells, rank_of, sorted_pieces
from clickshift.threads import for_each, for_ranges, n_threads

_WARM_UP = 3
_AT_LIMIT = 0.999
_MOST_NEWTON_STEPS, _STILL = 60, 1e-8


@dataclass(frozen=True, eq=False)
class Fitted:
    """Attractiveness by pair (last row: unseen), examination by situation, and the logit's standard error of both."""

    attractiveness: Float[np.ndarray, " pair_or_unseen"]
    examination: Float[np.ndarray, " situation"]
    attractiveness_error: Float[np.ndarray, " pair_or_unseen"]
    examination_error: Float[np.ndarray, " situation"]
    ascent: Ascent


def fit_examination(
    cells: Cells,
    *,
    prior: Beta | None,
    tolerance: float,
    max_steps: int,
    start: np.ndarray | None = None,
    rng: np.random.Generator | None = None,
) -> Fitted:
    """Maximise the penalised likelihood: from a sensible start, from `start`, or from a random one if `rng` is given.

    Only the product of attractiveness and examination is identified. By convention the first rank has examination 1,
    unless another situation is examined more, which then has it; attractiveness is relative to it. Left free, EM would
    creep along a ridge for hundreds of steps.

    Without a prior, one is learned, in three parts. A prior that is the same for all documents takes what a good
    ranker does, better documents on top, for more examination there. So the first climb has next to none, and the
    second one a mean of its own for every rank that documents usually stand at: together they find examination. Given
    that, attractiveness is shrunk towards one mean for all, so that no estimate repeats what the ranker thought.
    """
    problem = _Problem(cells, Beta() if prior is None else prior)
    here = problem.start(rng) if start is None else start
    top = 0
    while True:
        ascent = ascend(problem.step_with(top), _without(here, top, cells), tolerance=tolerance, max_steps=max_steps)
        here = _with_top(ascent.parameters, top, cells)
        rival = problem.most_examined(here, other_than=top)
        if here[cells.vocabulary.n_pairs + rival] < _AT_LIMIT or problem.tried(top):
            break
        here[cells.vocabulary.n_pairs + top] = _AT_LIMIT
        top = rival  # it would be examined more than the one that was held at 1
    if prior is None:
        problem.prior = beta_by_group(problem.usual_rank(), problem.examined(here), problem.pair_clicked)
        second = ascend(problem.step_with(top), _without(here, top, cells), tolerance=tolerance, max_steps=max_steps)
        here = _with_top(second.parameters, top, cells)
        prior = problem.prior = beta_by_likelihood(problem.examined(here), problem.pair_clicked)
        here = np.concatenate([problem.attractiveness(here), here[cells.vocabulary.n_pairs :]])
        # objectives under different priors cannot be compared: that of the first climb is the same from any start
        ascent = replace(ascent, steps=ascent.steps + second.steps)
    a, e = np.append(here[: cells.vocabulary.n_pairs], prior.mean), here[cells.vocabulary.n_pairs :]
    a_error, e_error = _errors(cells, a, e, top, prior)
    return Fitted(a, _filled(e, cells), a_error, e_error, ascent)


def _without(parameters: np.ndarray, top: int, cells: Cells) -> np.ndarray:
    return np.delete(parameters, cells.vocabulary.n_pairs + top)


def _with_top(parameters: np.ndarray, top: int, cells: Cells) -> np.ndarray:
    return np.insert(parameters, cells.vocabulary.n_pairs + top, 1.0)


class _Problem:
    """The counts of one log, and the EM step on them."""

    def __init__(self, cells: Cells, prior: Beta) -> None:
        self.cells, self.prior = cells, prior
        self.pair_shown, self.pair_clicked = cells.by_pair()
        self.shown, self.clicked = cells.by_situation()
        skips = cells.impressions - cells.clicks
        some = np.flatnonzero(skips > 0)  # only skips hide anything
        self.skips = cells.pair[some].astype(np.int32), cells.situation[some].astype(np.int32), skips[some]
        self.no = np.empty(len(some))
        self.pieces = sorted_pieces(self.skips[0], n_threads())
        self._tried: set[int] = set()

    def start(self, rng: np.random.Generator | None) -> np.ndarray:
        """Examination like the click-through rates of situations, attractiveness like clicks over examinations."""
        cells = self.cells
        if rng is not None:
            e = rng.uniform(0.1, 0.9, cells.n_situations)
        else:
            rate = (self.clicked + 1) / (self.shown + 2)
            e = np.clip(0.95 * rate / rate[self._frequent()].max(), 0.01, 0.95)
        here = np.concatenate([np.full(cells.vocabulary.n_pairs, 0.5), e])
        a = np.clip(self.prior.mode(self.pair_clicked, self.examined(here)), 0.001, 0.95)
        here = np.concatenate([a, e])
        for _ in range(_WARM_UP):
            here, _ = self.step(here)
        return here

    def examined(self, parameters: np.ndarray) -> np.ndarray:
        """Expected examinations of each pair, before its clicks are looked at; not fewer than its clicks."""
        cells, e = self.cells, parameters[self.cells.vocabulary.n_pairs :]
        examined = np.bincount(cells.pair, cells.impressions * e[cells.situation], cells.vocabulary.n_pairs)
        more: np.ndarray = np.maximum(examined, self.pair_clicked)
        return more

    def usual_rank(self) -> np.ndarray:
        """The rank nearest to each pair's mean."""
        cells = self.cells
        ranks = np.bincount(cells.pair, cells.impressions * cells.rank(), cells.vocabulary.n_pairs)
        rank: np.ndarray = np.rint(ranks / np.maximum(self.pair_shown, 1)).astype(np.int64)
        return rank

    def _frequent(self) -> np.ndarray:
        frequent: np.ndarray = self.shown >= self.shown.max() / 50
        return frequent

    def most_examined(self, parameters: np.ndarray, *, other_than: int) -> int:
        """Of the situations that are frequent enough to tell."""
        e = np.where(self._frequent(), parameters[self.cells.vocabulary.n_pairs :], -1.0)
        e[other_than] = -1.0
        return int(np.argmax(e))

    def tried(self, top: int) -> bool:
        again = top in self._tried
        self._tried.add(top)
        return again or len(self._tried) > 3

    def step_with(self, top: int) -> Step:
        """The EM step with the examination of one situation held at 1."""

        def step(parameters: np.ndarray) -> tuple[np.ndarray, float]:
            following, objective = self.step(_with_top(parameters, top, self.cells), top)
            return _without(following, top, self.cells), objective

        return step

    def attractiveness(self, parameters: np.ndarray) -> np.ndarray:
        """The most probable attractiveness of every pair, given examination: each pair is a problem of its own."""
        n_pairs = self.cells.vocabulary.n_pairs
        a, e = parameters[:n_pairs].copy(), parameters[n_pairs:]
        pair, situation, skips = self.skips
        offsets = np.searchsorted(pair, np.arange(n_pairs + 1))

        def work(some: slice) -> None:
            _newton(
                some.start,
                some.stop,
                offsets,
                situation,
                skips,
                self.pair_clicked,
                e,
                self.prior.mean,
                self.prior.total,
                a,
            )

        for_ranges(work, n_pairs)
        return a

    def step(self, parameters: np.ndarray, top: int | None = None) -> tuple[np.ndarray, float]:
        cells, n_pairs = self.cells, self.cells.vocabulary.n_pairs
        a, e = parameters[:n_pairs], parameters[n_pairs:]
        a_sum, e_sums = np.zeros(n_pairs), np.zeros((len(self.pieces), cells.n_situations))

        terms = np.zeros(len(self.pieces))

        def work(k: int) -> None:
            _e_step(*self.skips, a, e, *self.pieces[k], a_sum, e_sums[k], self.no)
            some = slice(*self.pieces[k])
            terms[k] = np.einsum("k,k->", self.skips[2][some], np.log(self.no[some]))  # numpy's logarithms are quicker

        for_each(work, len(self.pieces))
        objective = float(terms.sum())
        objective += float((self.pair_clicked * np.log(a)).sum() + (self.clicked * np.log(e)).sum())
        objective += self.prior.log_density(a) + SHARED.log_density(e if top is None else np.delete(e, top))
        new_a = self.prior.mode(self.pair_clicked + a_sum, self.pair_shown)
        new_e = SHARED.mode(self.clicked + e_sums.sum(axis=0), self.shown)
        return np.concatenate([new_a, new_e]), objective


def _filled(e: np.ndarray, cells: Cells) -> np.ndarray:
    """A situation that never occurred is examined like its rank on average."""
    rank = rank_of(cells.by, cells.n_ranks)
    shown, _ = cells.by_situation()
    known = shown > 0
    total, weight = np.bincount(rank, np.where(known, e * shown, 0)), np.bincount(rank, shown)
    overall = np.average(e[known], weights=shown[known])
    by_rank = np.where(weight > 0, total / np.maximum(weight, 1), overall)
    return np.where(known, e, by_rank[rank])


@njit(cache=True, nogil=True, fastmath=True)
@no_type_check
def _e_step(pair, situation, skips, a, e, start, stop, a_sum, e_sum, no):
    """Expected attractive and examined results among the skips of these cells; `no` is the probability of a skip."""
    k = start
    while k < stop:
        p, total = pair[k], 0.0
        while k < stop and pair[k] == p:
            s = situation[k]
            both = a[p] * e[s]
            no[k] = 1 - both
            share = skips[k] / no[k]
            total += share * (a[p] - both)
            e_sum[s] += share * (e[s] - both)
            k += 1
        a_sum[p] = total


@njit(cache=True, nogil=True)
@no_type_check
def _newton(start, stop, offsets, situation, skips, clicked, e, mean, strength, a):
    """Maximise  (clicks + yes) ln a + no ln(1 - a) + sum of skips ln(1 - a e)  for each pair: concave in a."""
    for p in range(start, stop):
        low, high, x = 0.0, 1.0, a[p]
        for _ in range(_MOST_NEWTON_STEPS):
            yes, no = clicked[p] + strength * mean, strength * (1 - mean)
            slope, curve = yes / x - no / (1 - x), yes / x**2 + no / (1 - x) ** 2
            for k in range(offsets[p], offsets[p + 1]):
                part = e[situation[k]] / (1 - x * e[situation[k]])
                slope -= skips[k] * part
                curve += skips[k] * part**2
            if slope > 0:
                low = x
            else:
                high = x
            following = x + slope / curve
            if not low < following < high:
                following = (low + high) / 2
            moved, x = abs(following - x), following
            if moved < _STILL * x:
                break
        a[p] = x


def _errors(cells: Cells, a: np.ndarray, e: np.ndarray, top: int, prior: Beta) -> tuple[np.ndarray, np.ndarray]:
    """Standard errors of the logits from the full observed information.

    Pairs meet only through the situations, so the information matrix is an arrow: diagonal in the pairs (D), small and
    dense in the situations (E). With C the block between them,
    cov_e = (E - C' D^-1 C)^-1 and var_a = D^-1 + D^-1 C cov_e C' D^-1.
    The most examined situation is 1 by convention and has no error.
    """
    n_pairs, n = cells.vocabulary.n_pairs, cells.n_situations
    pieces = sorted_pieces(cells.pair, n_threads())
    counts = cells.pair, cells.situation, cells.clicks, cells.impressions - cells.clicks
    d_a, cross = prior.information(a[:n_pairs]), np.empty(len(cells.pair))
    d_e = np.zeros((len(pieces), n))
    for_each(lambda k: _information(*counts, a, e, *pieces[k], d_a, d_e[k], cross), len(pieces))
    d_a = np.maximum(d_a, 1e-12)
    schur, free = np.diag(d_e.sum(axis=0)), np.flatnonzero((d_e.sum(axis=0) > 0) & (np.arange(n) != top))
    for pairs, block in _blocks(cells, cross, n_pairs):
        schur -= block.T @ (block / d_a[pairs, None])
    cov = np.zeros((n, n))
    cov[np.ix_(free, free)] = np.linalg.pinv(schur[np.ix_(free, free)], hermitian=True) if len(free) else 0.0
    variance = 1 / d_a
    for pairs, block in _blocks(cells, cross, n_pairs):
        variance[pairs] += np.maximum(np.einsum("ps,ps->p", block @ cov, block), 0) / d_a[pairs] ** 2
    errors = np.full(n, np.nan)
    errors[free] = np.sqrt(np.maximum(np.diag(cov)[free], 0))
    errors[top] = 0.0
    prior_error = np.sqrt(1 / prior.information(np.array([a[-1]]))[0])
    return np.append(np.sqrt(variance), prior_error), errors


@njit(cache=True, nogil=True, fastmath=True)
@no_type_check
def _information(pair, situation, clicks, skips, a, e, start, stop, d_a, d_e, cross):
    """Minus the second derivatives of  clicks ln(ae) + skips ln(1 - ae)  by the logits of a and e, added up."""
    for k in range(start, stop):
        p, s = pair[k], situation[k]
        a_no, e_no, both = 1 - a[p], 1 - e[s], min(a[p] * e[s], 1 - 1e-12)
        odds = skips[k] * both / (1 - both)
        curve = odds / (1 - both)
        d_a[p] += clicks[k] * a[p] * a_no + curve * a_no**2 - odds * a_no * a[p]
        d_e[s] += clicks[k] * e[s] * e_no + curve * e_no**2 - odds * e_no * e[s]
        cross[k] = curve * a_no * e_no


def _blocks(cells: Cells, values: np.ndarray, n_pairs: int, size: int = 1 << 12) -> Iterator[tuple[slice, np.ndarray]]:
    """A value per cell as dense blocks, pairs x situations: cells are sorted by pair."""
    for first in range(0, n_pairs, size):
        pairs = slice(first, min(first + size, n_pairs))
        start, stop = np.searchsorted(cells.pair, [pairs.start, pairs.stop])
        block = np.zeros((pairs.stop - pairs.start, cells.n_situations))
        block[cells.pair[start:stop] - first, cells.situation[start:stop]] = values[start:stop]
        yield pairs, block
