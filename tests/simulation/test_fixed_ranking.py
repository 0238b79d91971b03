"""Simulated clicks: the law of counts is that of single sessions, and nothing leaks from the order of a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from clickshift.counts.cells import Cells
from clickshift.data.builtin_corpus import builtin_corpus
from clickshift.data.corpus import Corpus, CorpusSplit
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError
from clickshift.io.datasets.letor import read_corpus
from clickshift.policies.lambdamart import LambdaMART
from clickshift.simulation.fixed_ranking import FixedRanking, FixedRankingEngine, _attractiveness, truncated
from clickshift.simulation.users import PBM
from tests.codes import raises_code

WEAK = LambdaMART(trees=10, rescale=False)


def small_corpus(sizes: list[int], label: list[int], max_label: int = 4) -> Corpus:
    words, _, _ = Vocabulary.of(np.repeat(np.arange(len(sizes)), sizes), np.arange(sum(sizes)))
    return Corpus(words, np.array(label, np.float32), None, max_label)


@pytest.fixture
def shown(rng: np.random.Generator) -> FixedRanking:
    corpus = small_corpus([3, 5, 1], [0, 4, 2, 1, 3, 0, 4, 4, 2])
    return FixedRanking.of(corpus, rng.random(9), rng=rng)


def test_ranks_follow_the_score(rng: np.random.Generator) -> None:
    corpus = small_corpus([4, 2], [0, 1, 2, 3, 4, 0])
    shown = FixedRanking.of(corpus, np.array([0.1, 0.9, -3.0, 0.4, 1.0, 2.0]), rng=rng)
    assert shown.rank.tolist() == [2, 0, 3, 1, 1, 0]
    with raises_code("wrong-shape", DataError, shape=(3,), expected=(6,)):
        FixedRanking.of(corpus, np.zeros(3), rng=rng)


def test_ties_do_not_leak_the_order_of_the_file(rng: np.random.Generator) -> None:
    """Documents sorted by label, all scores equal: every label has every rank equally often."""
    corpus = small_corpus([5] * 4000, list(range(5)) * 4000)
    rank = FixedRanking.of(corpus, np.zeros(corpus.n_pairs), rng=rng).rank.reshape(-1, 5)
    table = np.array([np.bincount(rank[:, k], minlength=5) for k in range(5)])
    assert stats.chi2_contingency(table).pvalue > 0.001
    again = FixedRanking.of(corpus, np.zeros(corpus.n_pairs), rng=np.random.default_rng(1)).rank
    assert (again != rank.ravel()).any()


def test_click_prob_is_examination_times_attractiveness(rng: np.random.Generator) -> None:
    corpus = small_corpus([3], [0, 1, 2], max_label=2)
    shown = FixedRanking.of(corpus, np.array([3.0, 2.0, 1.0]), rng=rng)
    y = np.array([0.1, 0.1 + 0.9 / 3, 1.0])
    assert _attractiveness(corpus, PBM()) == pytest.approx(y)
    assert shown.click_prob(PBM(eta=2.0)) == pytest.approx(y / np.array([1, 4, 9]))


def test_counts_have_the_moments_of_their_law(shown: FixedRanking, rng: np.random.Generator) -> None:
    """Over 4,000 logs of 30 sessions: mean and variance of clicks, and covariance of the clicks of two documents of one
    query, which arises from the number of its sessions alone."""
    sessions, logs, user = 30, 4000, PBM()
    clicks = np.zeros((logs, 9))
    impressions = np.zeros((logs, 9))
    for log in range(logs):
        cells = shown.clicks(user, sessions, rng=rng)
        clicks[log, cells.pair], impressions[log, cells.pair] = cells.clicks, cells.impressions
        assert (cells.rank() == shown.rank[cells.pair]).all()
    starts = [0, 3, 8]
    assert (impressions[:, starts].sum(axis=1) == sessions).all()
    p, share = shown.click_prob(user), 1 / 3
    mean = sessions * share * p
    assert clicks.mean(axis=0) == pytest.approx(mean, abs=5 * np.sqrt(mean.max() / logs))
    # each session shows the query and is clicked with probability p / 3: the counts are binomial
    assert clicks.var(axis=0) == pytest.approx(mean * (1 - share * p), rel=0.15)
    covariance = np.cov(clicks[:, 3], clicks[:, 4])[0, 1]
    expected = sessions * p[3] * p[4] * share * (1 - share)
    assert covariance == pytest.approx(expected, abs=5 * np.sqrt(clicks[:, 3].var() * clicks[:, 4].var() / logs))


def test_counts_have_the_distribution_of_single_sessions(shown: FixedRanking, rng: np.random.Generator) -> None:
    """Chi-square on the joint counts of clicks of two documents of a query, in logs of six sessions.

    Sessions of a long log, shuffled and taken six at a time, are logs of six.
    """
    user, logs = PBM(eta=0.5), 4000
    pairs = np.array([1, 2])
    counted = np.zeros((logs, 9))
    for log in range(logs):
        cells = shown.clicks(user, 6, rng=rng)
        counted[log, cells.pair] = cells.clicks
    single = shown.sessions(user, 6 * logs, rng=rng)
    order = rng.permutation(6 * logs).reshape(logs, 6)
    clicked = np.stack([((single.rankings.pair == pair) & single.click).any(axis=1) for pair in pairs], axis=1)
    tables = []
    for clicks in (counted[:, pairs], clicked[order].sum(axis=1)):
        first, second = np.minimum(clicks, 3).astype(int).T
        tables.append(np.bincount(first * 4 + second, minlength=16))
    both = np.array(tables)
    assert stats.chi2_contingency(both[:, both.sum(axis=0) >= 10]).pvalue > 0.001


def test_single_sessions_show_every_document_at_its_rank(shown: FixedRanking, rng: np.random.Generator) -> None:
    log = shown.sessions(PBM(), 50, rng=rng)
    assert log.total == 50
    assert log.n_ranks == 5
    cells = Cells.of(log)
    assert (cells.rank() == shown.rank[cells.pair]).all()


def test_a_hundred_million_sessions(rng: np.random.Generator) -> None:
    corpus = small_corpus([130] * 50, rng.integers(0, 5, 6500).tolist())
    shown = FixedRanking.of(corpus, rng.random(6500), rng=rng)
    cells = shown.clicks(PBM(), 10**8, rng=rng)
    assert cells.n_ranks == 130
    assert cells.impressions.sum() == 130 * 10**8
    rate = cells.clicks / cells.impressions
    error = np.sqrt(shown.click_prob(PBM()) / cells.impressions)
    assert np.abs((rate - shown.click_prob(PBM())) / error).max() < 5.5
    with raises_code("no-sessions", DataError, sessions=0):
        shown.clicks(PBM(), 0, rng=rng)


@pytest.fixture(scope="module")
def parts() -> CorpusSplit:
    corpus = builtin_corpus(160)
    number = np.arange(160)
    return CorpusSplit(*(corpus.with_queries(number % 4 == k) for k in (0, 1, 2)))


def test_truncation_keeps_the_shares_of_grades(parts: CorpusSplit) -> None:
    short = truncated(parts, seed=1)
    most = int(np.ceil(np.percentile(parts.train.n_candidates, 90)))
    for long, cut in zip(parts, short, strict=True):
        assert cut.n_candidates.max() <= most
        assert cut.n_queries == long.n_queries
        assert (cut.n_candidates[long.n_candidates <= most] == long.n_candidates[long.n_candidates <= most]).all()
        query = int(long.n_candidates.argmax())
        share = [
            np.bincount(one.label[one.offsets[query] : one.offsets[query + 1]].astype(int), minlength=5)
            for one in (long, cut)
        ]
        assert share[1] / share[1].sum() == pytest.approx(share[0] / share[0].sum(), abs=0.02)
    assert (truncated(parts, seed=2).train.n_pairs, short.train.max_label) == (short.train.n_pairs, 4)


def agreement(corpus: Corpus, rank: np.ndarray) -> np.ndarray:
    """Kendall's tau between rank and label, by query."""
    pieces = zip(np.split(rank, corpus.offsets[1:-1]), np.split(corpus.label, corpus.offsets[1:-1]), strict=True)
    return np.array([stats.kendalltau(-r, label).statistic for r, label in pieces if np.ptp(label) > 0])


def test_the_production_ranker_is_weak_and_knows_no_query_that_it_ranks(
    parts: CorpusSplit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLICKSHIFT_THREADS", "1")  # on a busy machine, threads of so small a fit wait for each other
    engine = FixedRankingEngine.of(parts, WEAK, seed=0)
    train = agreement(parts.train, engine.train.rank)
    held_out = agreement(parts.held_out, engine.held_out.rank)
    assert 0.05 < held_out.mean() < 0.5, "better than chance, far from the truth"
    assert abs(train.mean() - held_out.mean()) < 0.1
    assert train.max() < 0.75, "fitted on its own queries it would be nearly an oracle on half of them"
    same, other = (FixedRankingEngine.of(parts, WEAK, seed=seed) for seed in (0, 1))
    assert (same.train.rank == engine.train.rank).all()
    assert (other.train.rank != engine.train.rank).any()
    published = FixedRankingEngine.of(parts, WEAK, seed=0, own_queries=True)
    differ = np.unique(parts.train.vocabulary.pair_query[published.train.rank != engine.train.rank])
    assert 15 <= len(differ) <= 20, "as published, it ranks its own 20 queries, too"
    own = agreement(parts.train, published.train.rank)
    assert own.mean() > train.mean() + 0.05
    assert (published.held_out.rank == engine.held_out.rank).all()


def test_a_ranker_that_knows_nothing_is_random(parts: CorpusSplit) -> None:
    engine = FixedRankingEngine.of(parts, None, seed=0)
    assert abs(agreement(parts.train, engine.train.rank).mean()) < 0.05
    assert (engine.test_score == 0).all()


def test_held_out_sessions_are_in_proportion(parts: CorpusSplit) -> None:
    fewer = CorpusSplit(parts.train, parts.held_out.with_queries(np.arange(10)), parts.test)
    train, held_out = FixedRankingEngine.of(fewer, None, seed=0).clicks(PBM(), 1000, seed=0)
    first = {corpus: corpus.vocabulary.query_offsets[:-1] for corpus in (fewer.train, fewer.held_out)}
    for corpus, cells, expected in ((fewer.train, train, 1000), (fewer.held_out, held_out, 250)):
        visits = np.zeros(corpus.n_pairs)
        visits[cells.pair] = cells.impressions
        assert visits[first[corpus]].sum() == expected


def test_too_few_queries(parts: CorpusSplit) -> None:
    tiny = CorpusSplit(parts.train.with_queries(np.arange(20)), parts.held_out, parts.test)
    with raises_code("too-few-queries", DataError, count=20):
        FixedRankingEngine.of(tiny, WEAK, seed=0)


def test_labels_from_0_to_2(shared_data: Path) -> None:
    corpus = read_corpus(shared_data / "mq2008" / "S5.txt.gz", cache=False)
    assert sorted(set(_attractiveness(corpus, PBM()).round(6).tolist())) == [0.1, 0.4, 1.0]
