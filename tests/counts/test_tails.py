"""The E-step of the tails against summing over every way in which a session may have ended."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift.counts.cascade import Cascade
from clickshift.counts.tail_e_step import SESSIONS_PER_BLOCK, TailTransitions, TransitionDerivatives
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from tests.holes import log_with_holes

N_PAIRS, WIDTH, G = 8, 5, 0.8


def log_of(rng: np.random.Generator, rows: int, most: int) -> Sessions:
    words = Vocabulary.of(np.zeros(N_PAIRS, int), np.arange(N_PAIRS))[0]
    pair = rng.permuted(np.tile(np.arange(N_PAIRS), (rows, 1)), axis=1)[:, :WIDTH]
    pair[rng.random(pair.shape) < 0.1] = UNSEEN
    shown = np.arange(WIDTH) < rng.integers(1, WIDTH + 1, rows)[:, None]
    click = (rng.random(pair.shape) < 0.2) & shown
    return Sessions(Rankings(words, np.zeros(rows, int), pair, shown), click, rng.integers(1, most + 1, rows))


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize(("most", "threads"), [(1, "1"), (3, "1"), (3, "3")])
def test_expectations_equal_enumeration(
    most: int, threads: str, holes: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLICKSHIFT_THREADS", threads)
    log = log_of(rng, 50 * SESSIONS_PER_BLOCK, most)
    log = log_with_holes(log, rng) if holes else log
    a, h_pair, h_rank = (
        rng.uniform(0.05, 0.9, N_PAIRS + 1),
        rng.uniform(0.2, 1, N_PAIRS + 1),
        rng.uniform(0.2, 1, WIDTH),
    )
    examined, went_on, inverse = np.zeros((3, N_PAIRS + 1))
    squares, at_rank = np.zeros((2, N_PAIRS + 1)), np.zeros(WIDTH)
    log_likelihood = skip_went_on = skip_could = 0.0
    for pairs, shown, click, count in zip(log.rankings.pair, log.rankings.shown, log.click, log.count, strict=True):
        n, clicked = int(np.flatnonzero(shown)[-1]) + 1, np.flatnonzero(click)
        not_attracted = np.where(shown, 1 - a[pairs], 1.0)
        start = int(clicked[-1]) + 1 if len(clicked) else 0
        if start == n:
            continue
        h = h_pair[pairs[start - 1]] * h_rank[start - 1] if start else 1.0
        seen, ways = np.arange(start, n + 1), []  # the first rank that was not examined, and how likely that is
        for end in seen:
            skipped = np.prod(not_attracted[start:end]) * G ** max(end - start - 1, 0)
            ways.append(1 - h if end == start else h * skipped * (1 if end == n else 1 - G))
        z = sum(ways)
        prob = np.array(ways) / z
        log_likelihood += count * np.log(z)
        for r in range(start, n):
            here = prob[seen > r].sum()
            examined[pairs[r]] += count * here * shown[r]
            squares[0, pairs[r]] += count * here**2 * shown[r]
            if r + 1 < n:
                skip_could += count * here
                skip_went_on += count * prob[seen > r + 1].sum()
        if start:
            onward = prob[seen > start].sum()
            went_on[pairs[start - 1]] += count * onward
            at_rank[start - 1] += count * onward
            inverse[pairs[start - 1]] += count / z
            squares[1, pairs[start - 1]] += count / z**2
    none = TransitionDerivatives(np.zeros(0), np.ones((1, N_PAIRS + 1)), np.zeros((0, WIDTH)))
    found = Cascade.of(log).tails.expect(TailTransitions(1 - a, G, h_pair, h_rank), none)
    assert found.log_likelihood == pytest.approx(log_likelihood, rel=1e-12)
    assert (found.skip_went_on, found.skip_could) == pytest.approx((skip_went_on, skip_could), rel=1e-12)
    assert found.curvature is not None
    for left, right in (
        (found.examined, examined),
        (found.went_on, went_on),
        (found.inverse, inverse),
        (found.went_on_at_rank, at_rank),
        (found.curvature.examined, squares[0]),
        (found.curvature.inverse, squares[1]),
    ):
        assert np.allclose(left, right, rtol=1e-11)


def test_sessions_that_hardly_happen_have_a_likelihood(rng: np.random.Generator) -> None:
    """Sixteen of them share a logarithm."""
    log = log_of(rng, 200, 1)
    found = Cascade.of(log).tails.expect(
        TailTransitions(np.full(N_PAIRS + 1, 1e-3), 1.0, np.ones(N_PAIRS + 1), np.ones(WIDTH))
    )
    skips = sum(np.flatnonzero(np.r_[True, click])[-1] for click in log.click)
    assert found.log_likelihood == pytest.approx((log.rankings.length.sum() - skips) * np.log(1e-3), rel=1e-12)
