"""Scores of the policies that need no learning."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift.data.corpus import Corpus
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import CapabilityError, DataError, SpecError
from clickshift.policies.basic import BM25, Feature, NoisyOracle, Oracle, Reversed, Scores, Uniform, _pair_noise
from clickshift.policies.plackett_luce import PlackettLuce
from tests.codes import raises_code
from tests.policies.small_corpora import small_corpus


def test_a_feature_is_rescaled_within_each_query() -> None:
    vocabulary, _, _ = Vocabulary.of([1, 1, 1, 2, 2, 3], [1, 2, 3, 1, 2, 1])
    features = np.array([[0, 5], [0, 7], [0, 6], [0, -1], [0, -3], [0, 9]], np.float32)
    corpus = Corpus(vocabulary, np.zeros(6, np.float32), features)
    assert Feature(2).scores(corpus).tolist() == [0, 1, 0.5, 1, 0, 0.5]  # a query of equal scores gets .5
    assert Feature(2, rescale=False).scores(corpus).tolist() == [5, 7, 6, -1, -3, 9]
    assert Feature(1).scores(corpus).tolist() == [0.5] * 6
    with raises_code("unknown-feature", DataError, value=110, count=2):
        BM25().scores(corpus)


def test_bm25_is_feature_110() -> None:
    corpus = small_corpus(5, 7, features=136)
    np.testing.assert_array_equal(BM25().scores(corpus), Feature(110).scores(corpus))
    assert not np.array_equal(BM25().scores(corpus), Feature(109).scores(corpus))


def test_oracles_know_the_labels() -> None:
    corpus = small_corpus(30)
    np.testing.assert_allclose(Oracle().scores(corpus), (2**corpus.label - 1) / 15, rtol=1e-6)
    np.testing.assert_array_equal(Oracle("label").scores(corpus), corpus.label)
    np.testing.assert_array_equal(Reversed(Oracle("label")).scores(corpus), -corpus.label)
    assert Uniform().scores(corpus).tolist() == [0] * 30


def test_noise_is_a_standard_deviation_and_clipped_on_the_gain_scale_alone() -> None:
    corpus = small_corpus(*[40] * 500)
    label = NoisyOracle(sd=0.5, scale="label").scores(corpus) - corpus.label
    assert label.mean() == pytest.approx(0, abs=4 * 0.5 / np.sqrt(20_000))
    assert label.std() == pytest.approx(0.5, rel=0.02)
    assert (label + corpus.label).min() < -1
    gain = NoisyOracle().scores(corpus)
    assert (gain.min(), gain.max()) == (0, 1)
    inside = (gain > 0) & (gain < 1)
    np.testing.assert_allclose(gain[inside], (corpus.gain + 0.15 / 0.5 * label)[inside], atol=1e-12)


def test_noise_belongs_to_the_query_and_the_document() -> None:
    corpus = small_corpus(20, 30, 25)
    vocabulary = corpus.vocabulary
    all_noise = _pair_noise(vocabulary, 3)
    for keep in (np.array([0, 3, 19, 22, 50, 74]), np.array([4, 29])):  # the latter have ids of one digit
        np.testing.assert_array_equal(_pair_noise(vocabulary.with_pairs(keep), 3), all_noise[keep])
    assert len(np.unique(all_noise)) == 75  # document 7 of one query has another noise than document 7 of the next
    assert not np.isclose(all_noise, _pair_noise(vocabulary, 4)).any()
    text, _, pair = Vocabulary.of(
        [str(q) for q in vocabulary.query_ids[vocabulary.pair_query]],
        [str(d) for d in vocabulary.doc_ids[vocabulary.pair_doc]],
    )
    np.testing.assert_array_equal(_pair_noise(text, 3)[pair], all_noise)  # and so if ids are read as text
    swapped, _, pair = Vocabulary.of([1, 2], [2, 1])
    assert _pair_noise(swapped, 0)[pair[0]] != _pair_noise(swapped, 0)[pair[1]]


def test_noise_is_normal_and_without_memory() -> None:
    value = _pair_noise(small_corpus(*[100] * 300).vocabulary, 0)
    shares = [(value < z).mean() for z in (-2, -1, 0, 1, 2)]
    np.testing.assert_allclose(shares, [0.0228, 0.1587, 0.5, 0.8413, 0.9772], atol=4 * 0.5 / np.sqrt(30_000))
    assert abs(np.corrcoef(value[:-1], value[1:])[0, 1]) < 4 / np.sqrt(30_000)
    assert abs(np.corrcoef(value[:-100], value[100:])[0, 1]) < 4 / np.sqrt(30_000)


def test_a_scored_policy_sorts_without_leaking_the_storage_order() -> None:
    """The published Uniform policy showed one fixed order in all sessions; this one does not."""
    drawn = Uniform().on(small_corpus(10)).sample(np.zeros(2000, np.int32), rng=0)
    assert len(np.unique(drawn.pair, axis=0)) > 1990  # of 10! orders
    top = np.bincount(drawn.pair[:, 0], minlength=10)
    assert np.abs(top - 200).max() < 5 * np.sqrt(180)


def test_a_small_temperature_comes_close_to_the_limit() -> None:
    corpus = small_corpus(12, 5)
    limit, warm = Oracle("label").on(corpus), PlackettLuce(Oracle("label"), 1e-3).on(corpus)
    np.testing.assert_allclose(warm.placement(), limit.placement(), atol=1e-12)


def test_given_scores_stay_with_their_pairs() -> None:
    corpus = small_corpus(6, 4)
    value = np.arange(10.0)
    given = Scores(corpus.vocabulary, value)
    cut = corpus.with_pairs(np.array([1, 3, 8]))
    assert given.scores(corpus).tolist() == value.tolist()
    assert given.scores(cut).tolist() == [1, 3, 8]
    assert given.on(cut).sample(np.array([0]), rng=0).pair[0, :2].tolist() == [1, 0]
    with raises_code("missing-score", DataError, count=7, document=0, query=100):
        Scores(cut.vocabulary, np.zeros(3)).scores(corpus)
    with raises_code("wrong-shape", DataError, expected=10, shape=(9,)):
        Scores(corpus.vocabulary, np.zeros(9))


def test_a_wrong_use_is_refused() -> None:
    with raises_code("bad-option", SpecError, option="sd", value=-1.0):
        NoisyOracle(sd=-1.0)
    with raises_code("no-scores", CapabilityError):
        Reversed(PlackettLuce(Oracle()))  # type: ignore[arg-type]
