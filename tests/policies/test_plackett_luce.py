"""Plackett-Luce: exact log-probabilities whatever the weights, and the same lists on any number of threads."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickshift.core.rng import generator, stream_key
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings
from clickshift.errors import CapabilityError, DataError, SpecError
from clickshift.policies.basic import Oracle, Reversed, Scored, Uniform
from clickshift.policies.plackett_luce import PlackettLuce, PlackettLuceRankings
from tests.codes import raises_code
from tests.policies.small_corpora import all_lists, small_corpus


def exact_log_prob(log_weight: np.ndarray, order: np.ndarray, ranks: int) -> float:
    """Sixty digits, and exponents without end."""
    with localcontext() as context:
        context.prec = 60
        weight = [Decimal(float(value)).exp() for value in log_weight]
        log_prob = Decimal(0)
        for rank in range(ranks):
            log_prob += (weight[order[rank]] / sum((weight[i] for i in order[rank:]), Decimal(0))).ln()
        return float(log_prob)


@given(
    size=st.integers(1, 14),
    ranks=st.integers(1, 14),
    span=st.sampled_from([0.0, 1.0, 30.0, 590.0, 610.0, 1500.0, 90_000.0]),
    lift=st.sampled_from([0.0, -1e5, 1e5]),
    order=st.sampled_from(["best first", "worst first", "mixed"]),
    seed=st.integers(0, 2**32),
)
def test_log_prob_is_exact(size: int, ranks: int, span: float, lift: float, order: str, seed: int) -> None:
    rng, ranks = np.random.default_rng(seed), min(ranks, size)
    corpus = small_corpus(size)
    score = np.round(rng.random(size) * span, 3) + lift
    chosen = rng.permutation(size) if order == "mixed" else np.argsort(score if order == "worst first" else -score)
    ranking = Rankings(corpus.vocabulary, np.zeros(1, np.int32), chosen[None, :ranks])
    log_prob = PlackettLuceRankings(corpus.vocabulary, score).log_prob(ranking)[0]
    expected = exact_log_prob(score - score.max(), chosen, ranks)
    # the scores themselves are rounded to an ulp, which is what their differences inherit
    assert log_prob == pytest.approx(expected, rel=1e-12, abs=1e-14)


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=5), st.floats(1e-3, 1e3))
def test_a_temperature_divides_scores(scores: list[float], temperature: float) -> None:
    vocabulary, score = small_corpus(len(scores)).vocabulary, np.array(scores)
    lists = all_lists(vocabulary, 0, 3)
    warm = PlackettLuceRankings(vocabulary, score, temperature).log_prob(lists)
    np.testing.assert_allclose(warm, PlackettLuceRankings(vocabulary, score / temperature).log_prob(lists), rtol=1e-9)


def test_raw_and_log_weights_of_the_two_papers() -> None:
    corpus = Corpus(small_corpus(2).vocabulary, np.array([2, 3], np.float32))  # gains 3/15 and 7/15
    raw = PlackettLuce(Oracle(), 0.1).on(corpus).placement(ranks=1)[0, 0]
    log = PlackettLuce(Oracle(), 0.1, "log").on(corpus).placement(ranks=1)[0, 0]
    assert raw == pytest.approx(1 / (1 + np.exp(40 / 15)), rel=1e-11)
    assert log == pytest.approx((3 / 15 + 0.01) ** 10 / ((3 / 15 + 0.01) ** 10 + (7 / 15 + 0.01) ** 10), rel=1e-9)
    assert log < 0.0003 < 0.06 < raw


def test_at_temperature_0_equal_scores_are_shuffled_in_every_session() -> None:
    corpus = small_corpus(5)
    rankings = PlackettLuceRankings(corpus.vocabulary, np.array([2.0, 1, 2, 1, 2]), 0.0)
    drawn = rankings.sample(np.zeros(6000, np.int32), ranks=4, rng=1)
    assert set(drawn.pair[:, :3].ravel().tolist()) == {0, 2, 4}
    assert set(drawn.pair[:, 3].tolist()) == {1, 3}
    lists, times = np.unique(drawn.pair, axis=0, return_counts=True)
    assert len(lists) == 12
    assert times.min() > 500 - 5 * np.sqrt(500)
    np.testing.assert_allclose(drawn.log_prob, -np.log(12), rtol=1e-14)
    impossible = Rankings(corpus.vocabulary, np.zeros(2, np.int32), np.array([[0, 2, 1], [0, 2, 4]]))
    np.testing.assert_allclose(rankings.log_prob(impossible), [-np.inf, -np.log(6)])


def test_lists_follow_their_probabilities_where_weights_span_more_than_a_float() -> None:
    vocabulary = small_corpus(5).vocabulary
    rankings = PlackettLuceRankings(vocabulary, np.array([-700.7, 0.0, -0.5, -1400, -700]))
    drawn = rankings.sample(np.zeros(20_000, np.int32), rng=1)
    lists, times = np.unique(drawn.pair[:, :5], axis=0, return_counts=True)
    assert lists.tolist() == [[1, 2, 0, 4, 3], [1, 2, 4, 0, 3], [2, 1, 0, 4, 3], [2, 1, 4, 0, 3]]
    top, next_ = 1 / (1 + np.exp(-0.5)), 1 / (1 + np.exp(-0.7))
    expected = np.outer([top, 1 - top], [1 - next_, next_]).ravel()
    np.testing.assert_allclose(times / 20_000, expected, atol=0.015)


def test_a_list_of_probability_near_1_keeps_its_digits() -> None:
    vocabulary = small_corpus(2).vocabulary
    best = Rankings(vocabulary, np.zeros(1, np.int32), np.array([[0]]))
    assert PlackettLuceRankings(vocabulary, np.array([0.0, -50])).log_prob(best)[0] == pytest.approx(-np.exp(-50))


def test_threads_and_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = small_corpus(12, 5, 20)
    query = np.random.default_rng(0).integers(0, 3, 100_000)
    rankings = PlackettLuce(Oracle()).on(corpus)
    monkeypatch.setenv("CLICKSHIFT_THREADS", "1")
    one = rankings.sample(query, rng=5), rankings.placement()
    monkeypatch.setenv("CLICKSHIFT_THREADS", "3")
    three = rankings.sample(query, rng=5), rankings.placement()
    np.testing.assert_array_equal(one[0].pair, three[0].pair)
    np.testing.assert_array_equal(one[0].log_prob, three[0].log_prob)
    np.testing.assert_array_equal(one[1], three[1])
    in_one_block, _ = rankings.draw(query, ranks=10, key=stream_key(generator(5)))
    np.testing.assert_array_equal(one[0].pair, in_one_block)
    assert (one[0].pair != rankings.sample(query, rng=6).pair).any()
    # a generator is used up, so that two draws from it differ
    rng = np.random.default_rng(0)
    assert (rankings.sample(query, rng=rng).pair != rankings.sample(query, rng=rng).pair).any()


def test_a_list_has_the_probability_of_its_own_length() -> None:
    corpus = small_corpus(4)
    rankings = PlackettLuce(Uniform()).on(corpus)
    lists = np.array([[0, 1, 2, 3], [0, 1, 2, -1], [0, 1, -1, -1], [0, -1, -1, -1]])
    log_prob = rankings.log_prob(Rankings(corpus.vocabulary, np.zeros(4, np.int32), lists))
    np.testing.assert_allclose(np.exp(log_prob), [1 / 24, 1 / 24, 1 / 12, 1 / 4])


def test_what_cannot_be_is_refused() -> None:
    corpus = small_corpus(3, 2)
    with raises_code("bad-option", SpecError, option="temperature", value=-1.0):
        PlackettLuce(Uniform(), -1.0)
    with raises_code("no-scores", CapabilityError):
        PlackettLuce(PlackettLuce(Uniform()))  # type: ignore[arg-type]
    with raises_code("score-out-of-range", DataError, value=-1.0):
        PlackettLuce(Reversed(Uniform1()), scores="log").on(corpus)
    with raises_code("bad-option", SpecError, option="temperature", value=1e-10):
        PlackettLuceRankings(corpus.vocabulary, np.arange(5.0), 1e-10).placement()
    with raises_code("not-finite", DataError, count=1, query=101):
        PlackettLuceRankings(corpus.vocabulary, np.array([0, 0, 0, np.nan, 0]))
    with raises_code("query-out-of-range", DataError, row=2, value=2):
        PlackettLuce(Uniform()).on(corpus).sample(np.array([0, 2]), rng=0)
    with raises_code("bad-ranks", DataError, ranks=0):
        PlackettLuce(Uniform()).on(corpus).placement(ranks=0)


class Uniform1(Scored):
    """A user's own policy: one method suffices."""

    def scores(self, corpus: Corpus) -> np.ndarray:
        return np.ones(corpus.n_pairs)
