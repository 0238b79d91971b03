"""Relevance without graded annotations: against planted truths, brute force and scipy."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import optimize, stats

import clickshift as cs
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.debiasedness.label_grades import coarse_label_warning, grades
from clickshift.debiasedness.metrics import CMIP
from clickshift.debiasedness.relevance_from_preferences import relevance_from_orderings
from clickshift.debiasedness.relevance_from_random_traffic import randomisation_test, relevance_from_random_log
from clickshift.debiasedness.scored_pairs import ScoredPairs
from clickshift.errors import DataError
from clickshift.models import PBM
from clickshift.models.base import ClickModel, pair_table
from tests.codes import raises_code, warns_code

NAN = float("nan")


def world(queries: int, docs: int, *, extra: int = 0) -> Corpus:
    """Queries of `docs` documents, every second one with `extra` more."""
    size = docs + extra * (np.arange(queries) % 2)
    vocabulary = Vocabulary.of(np.repeat(np.arange(queries), size), np.arange(size.sum()))[0]
    return Corpus(vocabulary, np.zeros(vocabulary.n_pairs, np.float32))


def users(corpus: Corpus, attractiveness: np.ndarray, ranks: int = 10) -> ClickModel:
    return PBM(corpus.vocabulary, pair_table(attractiveness, unseen=0.1), 1.0 / np.arange(1, ranks + 1))


class TestRandomTraffic:
    def test_many_sessions_give_the_click_rate_at_an_average_rank(self, rng: np.random.Generator) -> None:
        corpus = world(20, 5)
        truth = rng.uniform(0.05, 0.9, corpus.n_pairs)
        log = cs.simulate(corpus, cs.Uniform(), users(corpus, truth), 200_000, rng=1)
        expected = truth * np.mean(1 / np.arange(1, 6))
        # 10,000 impressions each: a standard error of at most .005
        assert np.abs(relevance_from_random_log(log) - expected).max() < 0.02

    def test_lists_of_different_lengths_do_not_confound_ranks_with_queries(self, rng: np.random.Generator) -> None:
        """Long lists belong to attractive documents: the click rates of low ranks flatter them, attention does not."""
        corpus = world(40, 3, extra=5)
        long = (np.arange(40) % 2 == 1)[corpus.vocabulary.pair_query]
        truth = np.where(long, 0.8, 0.2) * rng.uniform(0.9, 1.1, corpus.n_pairs)
        log = cs.simulate(corpus, cs.Uniform(), users(corpus, truth), 200_000, rng=1)
        ratio = relevance_from_random_log(log) / truth
        assert ratio[long].mean() == pytest.approx(ratio[~long].mean(), rel=0.02)

    def test_shrinking_comes_closer_to_the_truth_than_rates_do(self, rng: np.random.Generator) -> None:
        corpus = world(300, 10)
        truth = rng.beta(1, 6, corpus.n_pairs)
        log = cs.simulate(corpus, cs.Uniform(), users(corpus, truth), 300 * 20, rng=1)
        pair = log.rankings.pair.ravel()
        impressions, clicks = np.bincount(pair, minlength=3000), np.bincount(pair, log.click.ravel(), 3000)
        expected = truth * np.mean(1 / np.arange(1, 11))
        found, plain = relevance_from_random_log(log), clicks / impressions
        error, plain_error, no_idea = (
            np.sqrt(np.mean((x - expected) ** 2)) for x in (found, plain, np.full(3000, plain.mean()))
        )
        assert error < 0.95 * no_idea
        assert error < 0.8 * plain_error
        assert found.mean() == pytest.approx(expected.mean(), rel=0.1)

    def test_the_ranks_that_chance_gave_are_corrected(self) -> None:
        """Two documents, each clicked at half of its chances; one stood more often at the rank that nobody misses."""
        words = Vocabulary.of([0, 0], [0, 1])[0]
        pair = np.array([[0, 1], [0, 1], [1, 0], [1, 0]])
        click = np.array([[1, 0], [0, 0], [1, 0], [0, 0]], bool)
        count = np.array([600, 600, 400, 400])
        log = Sessions(Rankings(words, np.zeros(4, int), pair), click, count)
        with warns_code("not-randomised", share=pytest.approx(0.04, abs=0.005)):
            first, second = relevance_from_random_log(log)
        # plain rates are .3 and .2; attention is (2, 0), so that 600 / 2,400 and 400 / 1,600 clicks are the same
        assert first == pytest.approx(0.25)
        assert second == pytest.approx(0.25)

    def test_counts_are_sessions(self, rng: np.random.Generator) -> None:
        corpus = world(5, 4)
        log = cs.simulate(corpus, cs.Uniform(), users(corpus, rng.random(20)), 2000, rng=1)
        np.testing.assert_allclose(relevance_from_random_log(log.merged()), relevance_from_random_log(log))
        assert randomisation_test(log.merged().rankings, weight=log.merged().count) == randomisation_test(log.rankings)

    def test_what_was_never_shown_is_unknown(self) -> None:
        words = Vocabulary.of([0, 0, 1], [0, 1, 0])[0]
        log = Sessions(Rankings(words, np.zeros(2, int), np.array([[0, 1], [1, 0]])), np.array([[1, 0], [0, 0]], bool))
        assert np.isnan(relevance_from_random_log(log)).tolist() == [False, False, True]

    def test_a_log_without_clicks(self) -> None:
        words = Vocabulary.of([0, 0], [0, 1])[0]
        log = Sessions(Rankings(words, np.zeros(2, int), np.array([[0, 1], [1, 0]])), np.zeros((2, 2), bool))
        assert relevance_from_random_log(log).tolist() == [0, 0]


class TestHowRandom:
    def test_of_one_query_it_is_friedmans_test(self, rng: np.random.Generator) -> None:
        words = Vocabulary.of([0] * 6, np.arange(6))[0]
        pair = rng.random((50, 6)).argsort(axis=1)
        ranks = pair.argsort(axis=1)
        found = randomisation_test(Rankings(words, np.zeros(50, int), pair))
        assert found.p_value == pytest.approx(stats.friedmanchisquare(*ranks.T).pvalue, rel=1e-9)

    def test_only_the_order_counts_not_where_the_holes_are(self, rng: np.random.Generator) -> None:
        """Rank 3 is an advertisement in half of the lists."""
        words = Vocabulary.of([0] * 5, np.arange(5))[0]
        pair = np.where(rng.random((60, 1)) < 0.3, np.arange(5), rng.random((60, 5)).argsort(axis=1))
        holed = np.where(rng.random((60, 1)) < 0.5, np.insert(pair, 2, -1, axis=1), np.insert(pair, 5, -1, axis=1))
        lists = Rankings(words, np.zeros(60, int), holed)
        assert lists.has_holes
        plain = randomisation_test(Rankings(words, np.zeros(60, int), pair))
        assert randomisation_test(lists) == plain
        assert plain.share > 0.02

    @pytest.mark.parametrize("ranks", [2, 4, 8])
    def test_random_lists_raise_no_alarm(self, ranks: int) -> None:
        corpus = world(50, 8)
        draws = cs.Uniform().on(corpus)
        query = np.repeat(np.arange(50, dtype=np.int32), 20)
        found = [randomisation_test(draws.sample(query, ranks=ranks, rng=seed)) for seed in range(100)]
        alarms = np.mean([one.p_value < 0.05 for one in found])
        assert alarms < 0.1  # 5%, with a standard error of 2%
        assert np.mean([one.share for one in found]) == pytest.approx(0, abs=0.002)
        assert not any(one.warning() for one in found)

    def test_the_share_is_that_of_the_documents(self, rng: np.random.Generator) -> None:
        """Half of the lists in one order: deviations from the middle are half as large on average, squares a fourth."""
        words = Vocabulary.of([0] * 9, np.arange(9))[0]
        pair = np.where(rng.random((4000, 1)) < 0.5, np.arange(9), rng.random((4000, 9)).argsort(axis=1))
        found = randomisation_test(Rankings(words, np.zeros(4000, int), pair))
        assert found.share == pytest.approx(0.25, abs=0.02)
        assert found.p_value < 1e-6

    def test_one_random_order_for_all_sessions_is_not_random(self, rng: np.random.Generator) -> None:
        """So does the published code rank at random."""
        corpus = world(30, 10)
        fixed = cs.Scores(corpus.vocabulary, rng.random(300))
        log = cs.simulate(corpus, fixed, users(corpus, np.full(300, 0.3)), 3000, rng=1)
        assert randomisation_test(log.rankings).share == pytest.approx(1)
        with warns_code("not-randomised", share=pytest.approx(1)):
            relevance_from_random_log(log)

    def test_little_order_in_a_large_log_is_let_pass(self, rng: np.random.Generator) -> None:
        words = Vocabulary.of([0] * 9, np.arange(9))[0]
        pair = np.where(rng.random((20_000, 1)) < 0.05, np.arange(9), rng.random((20_000, 9)).argsort(axis=1))
        found = randomisation_test(Rankings(words, np.zeros(20_000, int), pair))
        assert found.p_value < 1e-3
        assert found.warning() is None

    def test_lists_that_say_nothing(self) -> None:
        words = Vocabulary.of([0, 0], [0, 1])[0]
        assert randomisation_test(Rankings(words, np.array([0]), np.array([[0, 1]]))).p_value == 1
        assert randomisation_test(Rankings(words, np.array([0, 0]), np.array([[0], [0]]))).warning() is None


def lists(words: Vocabulary, query: int, *orders: list[int]) -> Rankings:
    width = max(map(len, orders))
    pair = np.array([order + [-1] * (width - len(order)) for order in orders])
    return Rankings(words, np.full(len(orders), query), pair)


def most_probable(orders: list[list[int]], docs: int, prior: float) -> np.ndarray:
    """By scipy, on the definition: log-likelihood plus imaginary wins and losses against a document of utility 0."""

    def loss(u: np.ndarray) -> float:
        total = prior * float((np.logaddexp(0, -u) + np.logaddexp(0, u)).sum())
        for order in orders:
            for place in range(len(order) - 1):
                total -= u[order[place]] - float(np.logaddexp.reduce(u[order[place:]]))
        return total

    u: np.ndarray = optimize.minimize(loss, np.zeros(docs), method="BFGS", options={"gtol": 1e-7}).x
    return u - u.mean()


class TestOrderings:
    WORDS = Vocabulary.of([0] * 5, np.arange(5))[0]

    @pytest.mark.parametrize("prior", [0.01, 0.1, 1.0])
    @pytest.mark.parametrize(
        "orders",
        [
            [[0, 1], [0, 2], [1, 2], [2, 1], [3, 4], [4, 0], [3, 2]],  # Bradley-Terry
            [[0, 1], [0, 2], [0, 3], [0, 4]],  # one always wins, the others never meet
            [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]],  # a cycle
            [[0, 1], [0, 1], [2, 3], [3, 4]],  # two parts that nothing compares
            [[0, 1, 2, 3, 4]],  # one list
            [[0, 1, 2, 3, 4], [4, 1, 0], [2, 3], [3, 1, 4, 2]],
        ],
    )
    def test_it_is_the_most_probable(self, orders: list[list[int]], prior: float) -> None:
        found = relevance_from_orderings(lists(self.WORDS, 0, *orders), prior=prior)
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, most_probable(orders, 5, prior), atol=2e-4)

    def test_a_cycle_is_a_tie(self) -> None:
        found = relevance_from_orderings(lists(self.WORDS, 0, [0, 1], [1, 2], [2, 3], [3, 4], [4, 0]))
        np.testing.assert_allclose(found, 0, atol=1e-8)

    def test_turning_all_preferences_turns_utilities(self, rng: np.random.Generator) -> None:
        pairs = [rng.permutation(5)[:2].tolist() for _ in range(30)]
        found = relevance_from_orderings(lists(self.WORDS, 0, *pairs))
        turned = relevance_from_orderings(lists(self.WORDS, 0, *(pair[::-1] for pair in pairs)))
        np.testing.assert_allclose(found, -turned, atol=1e-6)

    @pytest.mark.parametrize("length", [2, 3, 6])
    def test_planted_utilities_are_found_in_all_queries_at_once(self, length: int, rng: np.random.Generator) -> None:
        corpus = world(100, 6)
        utility = rng.normal(0, 1, 600)
        query = np.repeat(np.arange(100), 600)
        # Gumbel noise sorted: Plackett-Luce; of each list a random part in its order
        noisy = utility.reshape(100, 6)[query] + rng.gumbel(size=(len(query), 6))
        order = np.argsort(-noisy, axis=1)
        part = np.sort(rng.random(order.shape).argsort(axis=1)[:, :length], axis=1)
        pair = query[:, None] * 6 + np.take_along_axis(order, part, axis=1)
        found = relevance_from_orderings(Rankings(corpus.vocabulary, query, pair))
        centred = (utility.reshape(100, 6) - utility.reshape(100, 6).mean(axis=1, keepdims=True)).ravel()
        assert np.sqrt(np.mean((found - centred) ** 2)) < 0.2
        assert np.polyfit(centred, found, 1)[0] == pytest.approx(1, abs=0.03)
        np.testing.assert_allclose(found.reshape(100, 6).mean(axis=1), 0, atol=1e-9)

    def test_queries_do_not_matter_to_each_other(self) -> None:
        words = Vocabulary.of([0, 0, 0, 1, 1], [0, 1, 2, 0, 1])[0]
        both = Rankings(words, np.array([1, 0, 1]), np.array([[4, 3, -1], [2, 0, 1], [3, 4, -1]]))
        alone = relevance_from_orderings(Rankings(words, np.array([0]), np.array([[2, 0, 1]])))
        np.testing.assert_allclose(relevance_from_orderings(both)[:3], alone[:3], atol=1e-8)
        np.testing.assert_allclose(relevance_from_orderings(both)[3:], 0, atol=1e-8)

    def test_what_was_never_compared_is_unknown(self) -> None:
        found = relevance_from_orderings(lists(self.WORDS, 0, [0, 1], [2]))
        assert np.isnan(found).tolist() == [False, False, True, True, True]
        assert found[0] == pytest.approx(-found[1])

    def test_strange_documents_are_passed_over(self) -> None:
        """Of a list, and of a query, that the vocabulary does not hold."""
        known = lists(self.WORDS, 0, [0, 1, 2])
        shown = np.array([[True] * 4, [True, True, False, False]])
        strange = Rankings(self.WORDS, np.array([0, -1]), np.array([[0, -1, 1, 2], [-1] * 4]), shown)
        np.testing.assert_allclose(relevance_from_orderings(strange), relevance_from_orderings(known), atol=1e-8)

    def test_no_prior_is_refused(self) -> None:
        with raises_code("bad-option", DataError, option="prior", value=0.0):
            relevance_from_orderings(lists(self.WORDS, 0, [0, 1]), prior=0.0)


class TestGrades:
    def test_groups_are_as_large_as_each_other(self, rng: np.random.Generator) -> None:
        relevance = rng.normal(size=1000)
        found = grades(relevance, 4)
        assert np.bincount(found.astype(int)).tolist() == [250] * 4
        for grade in range(3):
            assert relevance[found == grade].max() < relevance[found == grade + 1].min()

    def test_equal_values_stay_together_and_numbers_have_no_gap(self) -> None:
        relevance = np.array([0, 0, 0, 0, 0, 0, 0, 0, 1, 2, NAN])
        # eight tenths are equal, their middle at .4: the second of five groups; the rest is in the fifth
        assert grades(relevance, 5).tolist()[:-1] == [0] * 8 + [1, 1]
        assert np.isnan(grades(relevance, 5)[-1])
        assert grades(np.ones(4), 3).tolist() == [0, 0, 0, 0]

    def test_grades_are_their_own_grades(self) -> None:
        label = np.repeat([0.0, 1.0, 2.0, 3.0], 25)
        assert (grades(label, 4) == label).all()

    def test_nothing_known(self) -> None:
        assert np.isnan(grades(np.full(3, NAN), 2)).all()

    def test_one_group_is_refused(self) -> None:
        with raises_code("bad-option", DataError, option="groups", value=1):
            grades(np.zeros(3), 1)


class TestCoarseLabels:
    def test_few_grades(self) -> None:
        assert "there are 2." in str(coarse_label_warning(np.array([0.0, 1.0, 1.0, 0.0])))

    def test_one_grade_for_nearly_all(self) -> None:
        label = np.r_[np.zeros(95), np.arange(5.0)]
        assert "96% of the rows have label 0." in str(coarse_label_warning(label))

    def test_missing_labels_do_not_count(self) -> None:
        label = np.r_[np.full(900, NAN), np.zeros(50), np.ones(30), np.full(20, 2.0)]
        assert coarse_label_warning(label) is None

    def test_a_perfect_model_depends_on_a_good_policy_given_coarse_labels(self, rng: np.random.Generator) -> None:
        """What the warning says: it is the labels, not the model."""
        relevance = rng.integers(0, 5, 4000)
        logging = relevance + rng.normal(size=4000)
        dependence = {}
        for said, label in (("fine", relevance), ("coarse", np.minimum(relevance, 1))):
            rows = ScoredPairs.of(np.arange(4000), estimate=relevance, logging=logging, label=label)
            dependence[said] = CMIP(permutations=0, subsamples=0)(rows, rng=0).value
        assert coarse_label_warning(np.minimum(relevance, 1).astype(float))
        assert dependence["fine"] == pytest.approx(0, abs=0.03)
        # within 1 to 4: I(a; a + noise) of four equally likely values one apart, by a sum over a fine grid
        grid, values = np.linspace(-8, 13, 20_001), np.arange(1, 5)
        density = stats.norm.pdf(grid[:, None] - values).mean(axis=1)
        entropy = -np.trapezoid(density * np.log(density), grid)
        known = (relevance > 0).mean() * (entropy - 0.5 * np.log(2 * np.pi * np.e))
        assert dependence["coarse"] == pytest.approx(known, abs=0.06)


def test_random_traffic_gives_labels_to_condition_on(rng: np.random.Generator) -> None:
    """From one end to the other: with enough random sessions, groups order the true relevance."""
    corpus = world(50, 10)
    truth = rng.uniform(0.05, 0.9, 500)
    log = cs.simulate(corpus, cs.Uniform(), users(corpus, truth), 50 * 400, rng=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        label = grades(relevance_from_random_log(log), 5)
    assert coarse_label_warning(label) is None
    means = [truth[label == grade].mean() for grade in range(5)]
    assert (np.diff(means) > 0.05).all()
