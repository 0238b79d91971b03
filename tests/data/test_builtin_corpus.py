"""The built-in corpus: its rules, and that it behaves like the real sample (tests/golden/builtin_corpus.toml)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import rankdata

from clickshift.data import builtin_corpus as synthetic
from clickshift.data.builtin_corpus import builtin_corpus
from clickshift.data.corpus import Corpus
from clickshift.errors import DataError
from clickshift.io.datasets.letor import read_corpus
from tests.codes import raises_code
from tests.golden import golden

GOLDEN = golden("builtin_corpus")
BM25, TITLE_BM25, CLICKS = 110, 108, 134


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return builtin_corpus(1000)


@pytest.fixture(scope="module")
def halves(shared_data: Path) -> list[Corpus]:
    folder = shared_data / "mslr_sample"
    return [read_corpus(folder / f"web10k_fold1_{part}_5k.txt.gz", cache=False) for part in ("train", "test")]


def without_last(corpus: Corpus) -> Corpus:
    """Of a file cut after so many lines the last query is not whole; qids ascend in these files."""
    return corpus.with_queries(np.arange(corpus.n_queries - 1))


def ndcg_at_10(score: np.ndarray, corpus: Corpus) -> np.ndarray:
    query, gain = corpus.vocabulary.pair_query, np.exp2(corpus.label.astype(np.float64)) - 1
    rank = np.arange(corpus.n_pairs) - corpus.offsets[query]
    weight = np.where(rank < 10, 1 / np.log2(rank + 2), 0)
    found, best = (np.bincount(query, gain[np.lexsort((-by, query))] * weight) for by in (score, gain))
    return found[best > 0] / best[best > 0]


def spearman(score: np.ndarray, corpus: Corpus) -> np.ndarray:
    lists = [(score[a:b], corpus.label[a:b]) for a, b in zip(corpus.offsets[:-1], corpus.offsets[1:], strict=True)]
    varied = [(s, y) for s, y in lists if np.ptp(s) > 0 and np.ptp(y) > 0]
    return np.array([np.corrcoef(rankdata(s), rankdata(y))[0, 1] for s, y in varied])


def lambdamart(train: Corpus, test: Corpus) -> np.ndarray:
    import lightgbm as lgb

    settings = {"objective": "lambdarank", "num_leaves": 31, "learning_rate": 0.1, "verbose": -1, "seed": 0}
    data = lgb.Dataset(train.features, train.label, group=train.n_candidates)
    return lgb.train({**settings, "deterministic": True, "num_threads": 1}, data, 100).predict(test.features)


@pytest.fixture(scope="module")
def measured(corpus: Corpus) -> dict[str, float]:
    """The golden statistics that need no training."""
    relevant = np.add.reduceat(corpus.label > 0, corpus.offsets[:-1], dtype=np.int64) / corpus.n_candidates
    best = np.maximum.reduceat(corpus.label, corpus.offsets[:-1])
    return {
        "without_relevant": np.mean(best == 0),
        "best_grade_3_or_4": np.mean(best >= 3),
        "relevant_share_sd": relevant.std(ddof=1),
        "bm25_ndcg": ndcg_at_10(corpus.feature(BM25), corpus).mean(),
        "bm25_spearman": spearman(corpus.feature(BM25), corpus).mean(),
        "title_bm25_ndcg": ndcg_at_10(corpus.feature(TITLE_BM25), corpus).mean(),
        "clicks_ndcg": ndcg_at_10(corpus.feature(CLICKS), corpus).mean(),
    }


# Rules


def test_it_is_a_function_of_the_seed() -> None:
    one, same, other = builtin_corpus(8, seed=3), builtin_corpus(8, seed=3), builtin_corpus(8, seed=4)
    np.testing.assert_array_equal(one.features, same.features)
    np.testing.assert_array_equal(one.label, same.label)
    assert one.vocabulary.fingerprint == same.vocabulary.fingerprint
    assert one.n_candidates.tolist() != other.n_candidates.tolist()


def test_the_first_queries_do_not_depend_on_how_many_follow(corpus: Corpus) -> None:
    short = builtin_corpus(150)
    assert short.n_pairs > 2 * synthetic._DOCUMENTS_PER_BLOCK, "the comparison must cross chunks"
    first = corpus.with_queries(np.arange(150))
    np.testing.assert_array_equal(first.label, short.label)
    np.testing.assert_array_equal(first.features, short.features)
    assert first.vocabulary.fingerprint == short.vocabulary.fingerprint


def test_the_chunk_size_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = builtin_corpus(9)
    monkeypatch.setattr(synthetic, "_DOCUMENTS_PER_BLOCK", 101)
    parts = builtin_corpus(9)
    np.testing.assert_array_equal(whole.label, parts.label)
    # a vectorised exp may round the last of a block otherwise
    np.testing.assert_allclose(whole.features, parts.features, rtol=1e-5)


@pytest.mark.parametrize("queries", [0, -3, 10_000_001, 10**30])
def test_a_corpus_has_a_query_and_at_most_ten_million(queries: int) -> None:
    with raises_code("bad-option", DataError, name="queries", value=queries):
        builtin_corpus(queries)


def test_one_query_is_enough() -> None:
    assert builtin_corpus(1, seed=5).n_queries == 1


def test_shapes_and_values(corpus: Corpus) -> None:
    assert corpus.features is not None
    assert corpus.features.shape == (corpus.n_pairs, 136)
    assert corpus.features.dtype == np.float32
    assert np.isfinite(corpus.features).all()
    assert (corpus.features.std(axis=0) > 0).all()
    assert np.unique(corpus.label).tolist() == [0, 1, 2, 3, 4]
    assert corpus.max_label == 4


def test_features_agree_with_each_other_as_in_mslr(corpus: Corpus) -> None:
    assert corpus.features is not None
    text = corpus.features[:, :125].reshape(-1, 25, 5).astype(np.float64)
    covered, ratio, length, idf, tf_sum, tf_min, tf_max, tf_mean, tf_var = np.moveaxis(text[:, :9], 1, 0)
    np.testing.assert_array_equal(length[:, 4], length[:, :4].sum(axis=1))
    np.testing.assert_array_equal(tf_sum[:, 4], tf_sum[:, :4].sum(axis=1))
    assert (tf_sum <= length).all()
    assert ((tf_min <= tf_mean + 1e-4) & (tf_mean <= tf_max + 1e-4)).all()
    assert (covered[:, 4] >= covered[:, :4].max(axis=1)).all()
    np.testing.assert_array_equal((tf_min > 0), text[:, 19] == 1)  # the boolean model wants every term
    n_terms = np.divide(covered, ratio, where=ratio > 0, out=np.ones_like(ratio))
    np.testing.assert_allclose(tf_mean * n_terms, tf_sum, rtol=1e-4)
    assert (tf_var[n_terms == 1] < 1e-6).all()
    # IDF belongs to the query; where no term is known the text shows nothing
    start = corpus.offsets[corpus.vocabulary.pair_query]
    np.testing.assert_array_equal(idf, idf[start])
    silent = idf[:, 4] == 0
    assert 0.02 < np.mean(idf[corpus.offsets[:-1], 4] == 0) < 0.1
    assert not np.delete(text[silent], 2, axis=1).any()


def test_feature_110_is_bm25_of_the_whole_document(corpus: Corpus) -> None:
    length, idf, tf = (corpus.feature(number).astype(np.float64) for number in (15, 20, 25))
    one_term = (corpus.feature(10) == 1) & (corpus.feature(5) == 1)
    expected = idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length / 768))
    assert one_term.sum() > 1000
    np.testing.assert_allclose(corpus.feature(BM25)[one_term], expected[one_term], rtol=1e-4)


# Behaviour


def test_grades_have_the_shares_of_the_whole_collection(corpus: Corpus) -> None:
    query, n = corpus.vocabulary.pair_query, corpus.n_candidates
    for grade, share in enumerate(GOLDEN["whole"]["grades"]):
        of_grade = np.bincount(query, corpus.label == grade, minlength=corpus.n_queries)
        residual = of_grade - share * n  # a ratio of sums over queries: documents of one query are not independent
        error = residual.std() * np.sqrt(corpus.n_queries) / n.sum()
        assert abs(residual.sum() / n.sum()) < 3 * error + 0.0005, grade


def test_lengths_have_the_published_quantiles() -> None:
    """MSLR's candidates per query: minimum 1, mean 120, median 109, 90th percentile 201, maximum 1,251."""
    n = synthetic._Queries.draw(20_000, lambda name: np.random.default_rng(len(name))).length
    assert n.min() <= 10
    assert n.mean() == pytest.approx(120, abs=3)
    assert np.median(n) == pytest.approx(109, abs=2)
    assert np.percentile(n, 90) == pytest.approx(201, abs=8)
    assert 800 < n.max() <= 1251


@pytest.mark.parametrize("name", [name for name, value in GOLDEN["sample"].items() if np.shape(value) == (2,)])
def test_it_is_within_two_standard_errors_of_the_sample(measured: dict[str, float], name: str) -> None:
    value, error = GOLDEN["sample"][name]
    assert measured[name] == pytest.approx(value, abs=2 * error)


def test_bm25_orders_documents_better_than_chance(corpus: Corpus, rng: np.random.Generator) -> None:
    chance = ndcg_at_10(rng.random(corpus.n_pairs), corpus).mean()
    assert chance + 0.1 < ndcg_at_10(corpus.feature(BM25), corpus).mean()


@pytest.mark.study
def test_lambdamart_is_within_two_standard_errors_of_the_sample(corpus: Corpus) -> None:
    test = corpus.with_queries(np.arange(700, 1000))
    scores = [lambdamart(corpus.with_queries(np.arange(42) + start), test) for start in (0, 42, 84)]
    for metric, name in ((ndcg_at_10, "ndcg"), (spearman, "spearman")):
        value, error = GOLDEN["lambdamart"][name]
        assert np.mean([metric(score, test).mean() for score in scores]) == pytest.approx(value, abs=2 * error)


# The real sample gives the golden numbers


def test_bm25_of_the_sample_as_cut(halves: list[Corpus]) -> None:
    for half, value in zip(halves, GOLDEN["sample"]["halves"]["bm25_ndcg"].values(), strict=True):
        assert ndcg_at_10(half.feature(BM25), half).mean() == pytest.approx(value, abs=GOLDEN["tolerance"])


def test_the_sample_gives_the_golden_numbers(halves: list[Corpus]) -> None:
    golden, whole = GOLDEN["sample"], [without_last(half) for half in halves]
    assert sum(half.n_queries for half in whole) == golden["queries"]
    assert sum(half.n_pairs for half in whole) == golden["documents"]
    label = np.concatenate([half.label for half in whole]).astype(int)
    np.testing.assert_allclose(np.bincount(label) / len(label), golden["grades"], atol=GOLDEN["tolerance"])
    for name, metric, number in (
        ("bm25_ndcg", ndcg_at_10, BM25),
        ("bm25_spearman", spearman, BM25),
        ("title_bm25_ndcg", ndcg_at_10, TITLE_BM25),
        ("clicks_ndcg", ndcg_at_10, CLICKS),
    ):
        values = np.concatenate([metric(half.feature(number), half) for half in whole])
        assert values.mean() == pytest.approx(golden[name][0], abs=GOLDEN["tolerance"]), name
        assert values.std(ddof=1) / np.sqrt(len(values)) == pytest.approx(golden[name][1], rel=0.1), name
    best = np.concatenate([np.maximum.reduceat(half.label, half.offsets[:-1]) for half in whole])
    assert np.mean(best == 0) == pytest.approx(golden["without_relevant"][0], abs=GOLDEN["tolerance"])
    assert np.mean(best >= 3) == pytest.approx(golden["best_grade_3_or_4"][0], abs=GOLDEN["tolerance"])


@pytest.mark.study
def test_lambdamart_on_the_sample_gives_the_golden_numbers(halves: list[Corpus]) -> None:
    one, other = (without_last(half) for half in halves)
    scored = [(lambdamart(train, test), test) for train, test in ((one, other), (other, one))]
    for metric, name in ((ndcg_at_10, "ndcg"), (spearman, "spearman")):
        values = np.concatenate([metric(score, test) for score, test in scored])
        assert values.mean() == pytest.approx(GOLDEN["lambdamart"][name][0], abs=GOLDEN["lambdamart"]["tolerance"])
