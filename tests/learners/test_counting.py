"""Counting, by hand on a log small enough to count on fingers."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift.counts.cells import Cells
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import CapabilityError, SpecError
from clickshift.learners import fit, learner_for
from clickshift.learners._priors import beta_by_likelihood, fit_beta_binomial
from clickshift.learners.base import DEFAULT, LEARNERS
from clickshift.learners.counting import Counting
from tests.codes import raises_code

WORDS = Vocabulary.of([1, 1, 1], [10, 20, 30])[0]  # pairs 0, 1, 2; pair 2 is never shown
LOG = Sessions(
    Rankings(WORDS, np.array([0, 0]), np.array([[0, 1], [1, 0]])),
    np.array([[1, 0], [1, 1]]),
    np.array([3, 1]),
)
# pair 0: 3 at rank 1 (3 clicks), 1 at rank 2 (1 click); pair 1: 3 at rank 2 (0), 1 at rank 1 (1)
RATE = (5 + 0.5) / (8 + 1)


def test_rates_are_smoothed_towards_the_global_rate() -> None:
    assert fit("gCTR", LOG).ctr == pytest.approx(RATE)
    assert fit("rCTR", LOG).ctr == pytest.approx([(4 + 1) / (4 + 1 / RATE), (1 + 1) / (4 + 1 / RATE)])
    dctr = fit("dCTR", LOG)
    assert dctr.ctr == pytest.approx([(4 + 1) / (4 + 1 / RATE), (1 + 1) / (4 + 1 / RATE), 1 / (1 / RATE), RATE])
    strong = fit(Counting("dCTR", strength=2.0), LOG)
    assert strong.ctr[0] == pytest.approx((4 + 2) / (4 + 2 / RATE))


def test_drctr_is_by_pair_and_rank() -> None:
    model = fit("drCTR", LOG)
    first = (4 + RATE) / 5
    assert model.ctr[0, 0] == pytest.approx((3 + 1) / (3 + 1 / first))
    assert model.ctr[2, 0] == pytest.approx(first), "never seen: the rank's rate"
    second = (1 + RATE) / 5
    assert model.relevance() == pytest.approx([1 / first + 1 / second, 1 / first, 0])


def test_popularity_ranks_but_does_not_predict() -> None:
    assert fit("TopPop", LOG).relevance().tolist() == [4, 1, 0]
    assert fit("TopPopObs", LOG).relevance().tolist() == [16, 4, 0]
    assert fit("RankTopObs", LOG).relevance() == pytest.approx([3 * 1 + 1 * 0.25, 1 * 1 + 3 * 0.25, 0])
    for name in ("TopPop", "TopPopObs", "RankTopObs"):
        with raises_code("cannot-predict-clicks", CapabilityError, model=name):
            fit(name, LOG).click_prob(LOG.rankings)
    with raises_code("cannot-rank-documents", CapabilityError, model="RCTR"):
        fit("rCTR", LOG).relevance()


def test_evidence_says_how_much_was_seen() -> None:
    evidence = fit("dCTR", LOG).evidence
    assert evidence is not None
    assert evidence.impressions.tolist() == [4, 4, 0, 0]
    assert evidence.clicks.tolist() == [4, 1, 0, 0]
    assert evidence.learner == "Counting('dCTR')"


def test_empirical_bayes_finds_the_beta_that_was_planted(rng: np.random.Generator) -> None:
    rate = rng.beta(2.0, 6.0, 20_000)
    shown = rng.integers(1, 50, 20_000).astype(float)
    clicks = rng.binomial(shown.astype(int), rate).astype(float)
    a, b = fit_beta_binomial(shown, clicks)
    assert a == pytest.approx(2.0, rel=0.05)
    assert b == pytest.approx(6.0, rel=0.05)


@pytest.mark.parametrize("clicks", [0.0, 5.0])
def test_empirical_bayes_survives_logs_without_variation(clicks: float) -> None:
    a, b = fit_beta_binomial(np.full(10, 5.0), np.full(10, clicks))
    assert 0 < a < np.inf
    assert 0 < b < np.inf
    assert fit_beta_binomial(np.zeros(3), np.zeros(3)) == (1.0, 1.0)


def test_fitted_smoothing_runs_on_all(log: Sessions) -> None:
    for name in ("rCTR", "dCTR", "drCTR"):
        model = fit(Counting(name, smoothing="fitted"), log)
        prob = model.click_prob(log.rankings)[log.rankings.shown]
        assert ((prob > 0) & (prob < 1)).all()


def test_learners_by_text() -> None:
    assert learner_for("dCTR") == Counting("dCTR")
    assert learner_for("Counting('dCTR', strength=3.0)") == Counting("dCTR", strength=3.0)
    cases: list[tuple[str, str, dict[str, object]]] = [
        ("XYZ", "unknown-name", {"value": "XYZ", "known": [*DEFAULT, *LEARNERS]}),
        ("Counting('PBM')", "unknown-name", {"value": "PBM"}),
        ("Counting('dCTR', smoothing='x')", "bad-option", {"option": "smoothing", "value": "x"}),
        ("Counting('dCTR', strength=0.0)", "bad-option", {"option": "strength", "value": 0.0}),
    ]
    for text, code, facts in cases:
        with raises_code(code, SpecError, **facts):
            learner_for(text)


def test_finer_counts_are_rolled_up(log: Sessions) -> None:
    assert np.allclose(Counting("dCTR").fit(Cells.of(log, "prefix")).ctr, fit("dCTR", log).ctr)


def test_the_learned_prior_finds_what_was_planted(rng: np.random.Generator) -> None:
    rate = rng.beta(0.8, 7.2, 50_000)
    shown = rng.integers(5, 200, 50_000).astype(float)
    found = beta_by_likelihood(shown, rng.binomial(shown.astype(int), rate).astype(float))
    assert found.mean == pytest.approx(0.1, rel=0.03)
    assert found.total == pytest.approx(8.0, rel=0.1)


@pytest.mark.parametrize("clicks", [[0.0, 0.0, 0.0], [5.0, 5.0, 5.0], [0.0, 5.0, 0.0], [5.0, 0.0, 0.0]])
def test_the_learned_prior_is_always_a_prior(clicks: list[float]) -> None:
    for trials in ([5.0, 5.0, 5.0], [5.0, 0.0, 0.0]):
        found = beta_by_likelihood(np.array(trials), np.minimum(clicks, trials))
        assert 0 < found.yes < found.total <= 100


def test_rare_documents_are_taken_for_others_of_their_rank(rng: np.random.Generator) -> None:
    """Four hundred documents of the first rank with rates near .6, four hundred of the second with rates near .1."""
    queries, sessions = 400, 4000
    words = Vocabulary.of(np.repeat(np.arange(queries), 2), np.arange(2 * queries))[0]
    query = np.r_[np.arange(queries), rng.integers(1, queries, sessions)].astype(np.int32)  # the first is shown once
    pair = (2 * query[:, None] + np.arange(2)).astype(np.int32)
    click = rng.random(pair.shape) < np.array([0.6, 0.1])
    log = Sessions(Rankings(words, query, pair), click)
    rate = fit(Counting("dCTR", smoothing="fitted"), log).ctr
    assert rate[0] == pytest.approx(0.6, abs=0.06)
    assert rate[1] == pytest.approx(0.1, abs=0.06)
