"""Sparse logs: what they say about examination, and that a model does not predict worse than one that it contains."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import clickshift as cs
from clickshift.counts.cells import Cells
from clickshift.errors import ClickshiftWarning
from clickshift.learners._examination_shrinkage import (
    _VARIANCES,
    conditional_covariance,
    learned_variances,
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
    share variance / (variance + v) of a deviation (Efron and Morris)."""
    deviation = np.random.default_rng(1).normal(0, 1.5, 90)
    e, by_rank, free = 1 / (1 + np.exp(-deviation)), np.full(90, 0.5), np.arange(90)
    apart = np.zeros(90, np.int64)
    shrunk = shrink_towards_ranks(e, by_rank, apart, free, 0.5 * np.eye(90))
    between = (deviation**2).mean() - 0.5
    kept = np.log(shrunk / (1 - shrunk)) / deviation
    assert kept == pytest.approx(np.full(90, between / (between + 0.5)), rel=0.1)
    noise = 1 / (1 + np.exp(-deviation / 30))
    assert shrink_towards_ranks(noise, by_rank, apart, free, 0.5 * np.eye(90)) == pytest.approx(by_rank, abs=1e-3)


def test_variances_of_deviations_are_those_of_the_largest_marginal_likelihood() -> None:
    """Against the density of the normal distribution with the sum of all covariances, at every pair of variances."""
    rng = np.random.default_rng(4)
    group, noise = np.repeat(np.arange(6), 5), rng.normal(size=(30, 30)) / 20
    member = (group[:, None] == np.arange(6)).astype(float)
    error = noise @ noise.T + 0.02 * np.eye(30)
    beyond = rng.normal(0, 1.2, 6)[group] + rng.normal(0, 0.3, 30) + rng.multivariate_normal(np.zeros(30), error)

    def density(within: float, between: float) -> float:
        total = error + within * np.eye(30) + between * member @ member.T
        return float(multivariate_normal(np.zeros(30), total).logpdf(beyond))

    likeliest = max(((w, b) for w in _VARIANCES for b in _VARIANCES), key=lambda pair: density(*pair))
    assert learned_variances(beyond, error, member) == likeliest
    alone = rng.permutation(beyond)  # no groups: what they seem to share is chance
    within, between = learned_variances(alone, error, member)
    assert between == 0
    assert within > 0.5


def test_situations_that_the_log_hardly_tells_follow_the_others_at_their_distance() -> None:
    """Three situations at each of ten distances. The estimates of the first and the tenth are far off, and hardly
    known: without groups, they would be shrunk to examination by rank, here 1/2."""
    distance, error = np.tile(np.arange(1, 11), 3), np.full(30, 0.02)
    logit = np.linspace(2, -2, 10)[distance - 1]
    error[[0, 9]], logit[[0, 9]] = 50.0, [-3.0, 3.0]
    e, by_rank = 1 / (1 + np.exp(-logit)), np.full(30, 0.5)
    shrunk = shrink_towards_ranks(e, by_rank, distance, np.arange(30), np.diag(error))
    assert shrunk[[0, 9]] == pytest.approx([0.88, 0.12], abs=0.04)
    assert shrunk[1:9] == pytest.approx(e[1:9], abs=0.02)


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
