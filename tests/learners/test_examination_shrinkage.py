"""Sparse logs: what they say about examination, and that a model does not predict worse than one that it contains."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

import clickshift as cs
from clickshift.counts.cells import Cells
from clickshift.errors import ClickshiftWarning
from clickshift.learners._examination_shrinkage import (
    conditional_covariance,
    shrink_examination,
    shrink_towards_ranks,
)
from clickshift.learners.likelihood import MaximumLikelihood


def sparse_log(sessions: int, seed: int, docs: int = 6007) -> cs.Sessions:
    """Ten documents out of thousands in each session: they hardly ever change ranks."""
    rng = np.random.default_rng(seed)
    quality = np.random.default_rng(99).beta(0.5, 4.0, docs)
    vocabulary = cs.Vocabulary.of(np.zeros(docs, np.int64), np.arange(docs))[0]
    pair = (
        (rng.integers(docs, size=(sessions, 1)) + 601 * rng.permuted(np.tile(np.arange(10), (sessions, 1)), axis=1))
        % docs
    ).astype(np.int32)
    click = rng.random(pair.shape) < quality[pair] * 0.8 ** np.arange(10)
    return cs.Sessions(cs.Rankings(vocabulary, np.zeros(sessions, np.int32), pair), click)


def held_out(name: str, train: cs.Sessions, test: cs.Sessions) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickshiftWarning)
        return cs.fit(name, train).log_likelihood(test)


def test_pbm_predicts_a_sparse_log_no_worse_than_rctr_which_it_contains() -> None:
    gaps = []
    for seed in range(4):
        train, test = sparse_log(600, seed), sparse_log(600, 100 + seed)
        gaps.append(float((held_out("PBM", train, test) - held_out("rCTR", train, test)).mean()))
    assert np.mean(gaps) > -0.02


def test_the_conditional_likelihood_of_one_document_is_binomial() -> None:
    """40 clicks on a document that was shown 4,000 times at either of two ranks: given their number, the clicks at the
    second rank are binomial with probability e / (1 + e), whose logit has the variance 1 / (40 share (1 - share))."""
    rng = np.random.default_rng(0)
    vocabulary = cs.Vocabulary.of(np.zeros(2, np.int64), np.arange(2))[0]
    pair = np.tile(np.array([[0, 1], [1, 0]], np.int32), (4000, 1))
    click = np.zeros(pair.shape, bool)
    click[rng.choice(np.flatnonzero(pair[:, 0] == 0), 30, replace=False), 0] = True
    click[rng.choice(np.flatnonzero(pair[:, 1] == 0), 10, replace=False), 1] = True
    cells = Cells.of(cs.Sessions(cs.Rankings(vocabulary, np.zeros(8000, np.int32), pair), click), "rank")
    e = 1 / 3
    variance = conditional_covariance(cells, np.array([1.0, e]), np.array([1]))[0, 0]
    share = e / (1 + e)
    assert variance * (1 - e) ** 2 == pytest.approx(1 / (40 * share * (1 - share)), rel=0.02)


def test_viewed_impressions_give_what_the_first_rank_gives_without_views() -> None:
    """Their examination is known to be 1, as that of the first rank is by convention."""
    corpus = cs.builtin_corpus(20, seed=0)
    log = cs.simulate(corpus, cs.PlackettLuce(cs.Oracle(), temperature=2.0), cs.users.PBM(), 5000, rng=0)
    cells, e = Cells.of(log, "rank"), 1.0 / np.arange(1, 11)
    first = cells.situation == 0
    impressions, clicks = (
        np.bincount(cells.pair, np.where(first, n, 0), cells.vocabulary.n_pairs)
        for n in (cells.impressions, cells.clicks)
    )
    others = replace(cells, impressions=np.where(first, 0, cells.impressions), clicks=np.where(first, 0, cells.clicks))
    free = np.arange(1, 10)
    expected = conditional_covariance(cells, e, free)
    assert np.allclose(conditional_covariance(others, e, free, seen=(impressions, clicks)), expected)
    assert conditional_covariance(others, e, free)[0, 0] > 2 * expected[0, 0], "clicks alone give no scale"


def test_examination_is_shrunk_as_far_as_the_log_cannot_tell() -> None:
    e, alike, free = np.array([1.0, 0.5, 0.2]), np.array([1.0, 0.8, 0.1]), np.array([1, 2])
    assert shrink_examination(e, alike, free, 1e-9 * np.eye(2)) == pytest.approx(e)
    assert shrink_examination(e, alike, free, 1e9 * np.eye(2)) == pytest.approx(alike)
    half = shrink_examination(e, alike, free, np.eye(2))[1]
    assert np.log(half / (1 - half)) == pytest.approx(np.log(0.8 / 0.2) / 2)


def test_ubm_predicts_clicks_of_pbm_users_no_worse_than_pbm_which_it_contains() -> None:
    """Without shrinkage UBM is .02 nats per session worse: it learns 54 numbers where nine suffice."""
    corpus = cs.builtin_corpus(20, seed=0)
    policy = cs.PlackettLuce(cs.NoisyOracle(sd=0.5, scale="label"), temperature=0.5)
    gaps = []
    for seed in range(2):
        train, test = (cs.simulate(corpus, policy, cs.users.PBM(), n, rng=seed + n) for n in (600, 4000))
        gaps.append(float((held_out("UBM", train, test) - held_out("PBM", train, test)).mean()))
    assert np.mean(gaps) > -0.004


def test_situations_are_shrunk_towards_their_rank_by_as_much_as_their_errors_suggest() -> None:
    """With equal errors v, the variance of situations is that of the estimates less v, and the posterior mean keeps the
    share variance / (variance + v) of a deviation (Efron and Morris). Examination is rare here, where its logarithm, in
    which the likelihood is normal, and its logit are the same."""
    deviation = np.random.default_rng(1).normal(0, 1.0, 90)
    e, by_rank, free = _expit(deviation - 8), np.full(90, _expit(-8.0)), np.arange(90)
    shrunk = shrink_towards_ranks(e, by_rank, free, 0.2 * np.eye(90))
    between = (deviation**2).mean() - 0.2
    kept = (np.log(shrunk / (1 - shrunk)) + 8) / deviation
    assert kept == pytest.approx(np.full(90, between / (between + 0.2)), rel=0.1)
    noise = _expit(deviation / 30 - 8)
    assert shrink_towards_ranks(noise, by_rank, free, 0.2 * np.eye(90)) == pytest.approx(by_rank, rel=1e-2)


def _expit(logit: np.ndarray | float) -> np.ndarray:
    return 1 / (1 + np.exp(-np.asarray(logit)))


@pytest.mark.parametrize(("shown", "clicks"), [(400, 199), (40, 18), (40, 12), (400, 180), (400, 20)])
def test_shrinkage_of_one_situation_is_near_the_posterior_that_integration_gives(shown: int, clicks: int) -> None:
    """Documents of attractiveness 1/2: clicks are binomial with probability e/2. Where examination is next to 1, the
    curvature of the logit says nothing of values further down: 199 clicks of 400 were shrunk to .35."""
    e, by_rank, variance = clicks / shown / 0.5, 0.3, 1.0
    information = shown * 0.5 * e / (1 - 0.5 * e) * (1 - e) ** 2
    error = np.diag([1 / information, 1e-9, 1e-9])  # two more situations, precisely known, determine the variance
    far = _expit(np.log(by_rank / (1 - by_rank)) + np.array([1.0, -1.0]))
    shrunk = shrink_towards_ranks(np.append(e, far), np.full(3, by_rank), np.arange(3), error)[0]
    logit = np.linspace(-15, 15, 60_001)
    value = _expit(logit)
    log_posterior = clicks * np.log(value / 2) + (shown - clicks) * np.log1p(-value / 2)
    log_posterior -= (logit - np.log(by_rank / (1 - by_rank))) ** 2 / (2 * variance)
    posterior = np.exp(log_posterior - log_posterior.max())
    assert shrunk == pytest.approx((posterior * value).sum() / posterior.sum(), abs=0.03)


def test_precise_estimates_stay_where_they_are_though_their_ranks_are_always_examined() -> None:
    """Where examination of a rank is 1, the likelihood is flat there: steps from it would not leave it."""
    e, by_rank = np.array([0.2, 0.5, 0.7, 0.4]), np.array([1.0, 1.0, 0.9999, 0.5])
    for variance, within in ((1e-4, 0.001), (1e-2, 0.02)):  # the rank's logit is infinite: its distance must not count
        error = variance * (np.eye(4) + 0.2 * np.ones((4, 4)))
        assert shrink_towards_ranks(e, by_rank, np.arange(4), error) == pytest.approx(e, abs=within)


def test_cascade_models_stop_near_the_maximum_where_documents_keep_co_occurring() -> None:
    """The expected gain of a step leaves out the terms between documents: SDBN stopped .23 nats too early."""
    rng = np.random.default_rng(0)
    vocabulary = cs.Vocabulary.of(np.repeat(np.arange(40), 10), np.arange(400))[0]
    query = np.repeat(np.arange(40, dtype=np.int32), 100)
    place = np.tile(np.arange(10), (4000, 1))
    rank = rng.integers(0, 9, 4000)
    place[np.arange(4000), rank], place[np.arange(4000), rank + 1] = rank + 1, rank
    a, s = (np.append(rng.uniform(0.1, 0.8, 400), 0.1) for _ in range(2))
    rankings = cs.Rankings(vocabulary, query, (place + 10 * query[:, None]).astype(np.int32))
    log = cs.models.SDBN(vocabulary, a, s).sample(rankings, rng=1)
    usual, exact = (
        MaximumLikelihood("SDBN", tolerance=tolerance).fit(log).evidence.log_likelihood  # type: ignore[union-attr]
        for tolerance in (0.1, 1e-6)
    )
    assert exact - usual < 0.05
