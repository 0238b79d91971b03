"""Targets as seen from a log: policies against lotteries written out, ids of other vocabularies, bad input."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError
from clickshift.models import PBM
from clickshift.models.base import pair_table
from clickshift.ope import Bootstrap, GroupedLog, Hoeffding, WeightedLists, evaluate_target, policy_from_scores
from clickshift.ope.target_policy import TargetProbabilities, expected_reward
from clickshift.policies.basic import Scores
from clickshift.policies.plackett_luce import PlackettLuceRankings
from tests.codes import raises_code
from tests.ope.small_worlds import LISTS, WORDS, all_lists


def log_of(words: Vocabulary, *lists: tuple[int, tuple[int, ...]]) -> Sessions:
    """One session per (query number, pair numbers), nothing clicked."""
    width = max(len(a) for _, a in lists)
    pair = np.array([[*a, *[-1] * (width - len(a))] for _, a in lists], np.int32)
    return Sessions(Rankings(words, np.array([q for q, _ in lists], np.int32), pair), np.zeros(pair.shape, bool))


@pytest.mark.parametrize("temperature", [0.7, 0.0])
def test_a_policy_and_its_lists_written_out_are_the_same_target(temperature: float) -> None:
    policy = PlackettLuceRankings(WORDS, np.array([0.3, 1.0, 0.3, -0.5]), temperature)
    lottery = WeightedLists(all_lists(), np.exp(policy.log_prob(all_lists())))
    logged = GroupedLog.of(log_of(WORDS, *[(0, a) for a in LISTS[::2]]))
    one, other = (TargetProbabilities.at(logged, target, prefixes=True) for target in (policy, lottery))
    for name in ("list_prob", "placement", "mass", "prefix_prob"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-12)
    assert one.list_prob.sum() > 0.2
    if temperature == 0:  # the second of equal scores is at random
        assert sorted(one.list_prob[one.list_prob > 0].tolist()) == [0.5]


def test_scores_are_sorted_as_the_policy_of_scores_does() -> None:
    score = np.array([0.3, 1.0, 0.3, -0.5])
    logged = GroupedLog.of(log_of(WORDS, *[(0, a) for a in LISTS]))
    expected = Scores(WORDS, score).on(Corpus(WORDS, np.zeros(4)))
    one, other = (
        TargetProbabilities.at(logged, policy_from_scores(WORDS, score)),
        TargetProbabilities.at(logged, expected),
    )
    assert one.list_prob.tolist() == other.list_prob.tolist()
    assert {LISTS[i] for i in np.flatnonzero(one.list_prob)} == {(1, 0), (1, 2)}


def test_lists_are_cut_to_the_ranks_that_count() -> None:
    logged = GroupedLog.of(log_of(WORDS, *[(0, a) for a in permutations(range(4), 3)]), "clicks@1")
    target = Rankings(WORDS, np.array([0]), np.array([[2, 0, 1, 3]]))
    aim = TargetProbabilities.at(logged, target)
    assert logged.lists.pair[aim.list_prob == 1].tolist() == [[2]]
    policy = PlackettLuceRankings(WORDS, np.array([0.0, 0.0, np.log(2), 0.0]))
    assert sorted(TargetProbabilities.at(logged, policy).list_prob.tolist()) == pytest.approx([0.2, 0.2, 0.2, 0.4])


def test_a_list_that_a_policy_would_not_end_there_is_not_one_of_its_lists() -> None:
    logged = GroupedLog.of(log_of(WORDS, (0, (1,)), (0, (1, 0))))
    policy = policy_from_scores(WORDS, np.array([3.0, 4.0, 2.0, 1.0]))
    aim = TargetProbabilities.at(logged, policy, prefixes=True)
    assert aim.list_prob.tolist() == [0, 1]
    assert aim.prefix_prob is not None
    assert aim.prefix_prob.tolist() == [[1, 0], [1, 1]]
    same = TargetProbabilities.at(
        logged, WeightedLists(Rankings(WORDS, np.array([0]), np.array([[1, 0]]))), prefixes=True
    )
    assert same.list_prob.tolist() == [0, 1]
    assert same.prefix_prob is not None
    assert same.prefix_prob.tolist() == [[1, 0], [1, 1]]


@pytest.fixture
def two_queries() -> tuple[Sessions, Vocabulary]:
    """The log knows cats 1 2 3 and dogs 1 2; the target knows cats 2 3 9 and fish 1."""
    words, _, _ = Vocabulary.of(["cats"] * 3 + ["dogs"] * 2, [1, 2, 3, 1, 2])
    theirs, _, _ = Vocabulary.of(["cats"] * 3 + ["fish"], [2, 3, 9, 1])
    return log_of(words, (0, (0, 1)), (0, (1, 2)), (1, (3, 4))), theirs


def test_documents_and_queries_are_matched_by_id(two_queries: tuple[Sessions, Vocabulary]) -> None:
    log, theirs = two_queries
    logged = GroupedLog.of(log)
    lists = Rankings(theirs, np.array([0, 0, 1]), np.array([[0, 1], [0, 2], [3, -1]]))
    target = WeightedLists(lists, np.array([0.75, 0.25, 1.0]))
    aim = TargetProbabilities.at(logged, target, prefixes=True)
    assert aim.list_prob.tolist() == [0, 0.75, 0]
    assert aim.placement[:, 0].tolist() == [0, 1, 0, 0, 0]
    assert aim.placement[:, 1].tolist() == [0, 0, 0.75, 0, 0]
    assert aim.mass.tolist() == [[1, 1], [0, 0]]
    assert aim.prefix_prob is not None
    assert aim.prefix_prob.tolist() == [[0, 0], [1, 0.75], [0, 0]]
    assert aim.unlogged == 1
    assert aim.unlogged_names == ("9 (query cats)",)
    policy = policy_from_scores(theirs, np.array([3.0, 1.0, 2.0, 0.0]))
    aim = TargetProbabilities.at(logged, policy)
    assert aim.list_prob.tolist() == [0, 0, 0]
    assert aim.placement[:, 0].tolist() == [0, 1, 0, 0, 0]
    assert aim.placement[:, 1].tolist() == [0, 0, 0, 0, 0]
    assert aim.mass.tolist() == [[1, 1], [0, 0]]
    assert aim.unlogged_names == ("9 (query cats)",)


def test_skips_and_strangers_are_reported(two_queries: tuple[Sessions, Vocabulary]) -> None:
    log, theirs = two_queries
    target = WeightedLists(
        Rankings(theirs, np.array([0, 0, 1]), np.array([[0, 1], [0, 2], [3, -1]])), np.array([0.75, 0.25, 1.0])
    )
    estimate = evaluate_target(GroupedLog.of(log), target, ["IP"], interval=Bootstrap(20))[0].estimates[0]
    assert (estimate.sessions, estimate.sessions_skipped) == (2, 1)
    assert (estimate.queries, estimate.queries_skipped, estimate.queries_without_overlap) == (1, 1, 0)
    assert estimate.coverage == pytest.approx(1.75 / 2)
    assert estimate.never_logged == pytest.approx(0.25 / 2)
    assert estimate.notes == ("The target shows 1 document that the log never shows: 9 (query cats).",)


def test_no_overlap_is_said_and_not_a_zero(two_queries: tuple[Sessions, Vocabulary]) -> None:
    log, theirs = two_queries
    logged = GroupedLog.of(log)
    strangers = Rankings(theirs, np.array([0]), np.array([[2]]))
    for name in ("List", "IP", "PBM", "Item"):
        estimate = evaluate_target(logged, strangers, [name], interval=Bootstrap(20))[0].estimates[0]
        assert np.isnan([estimate.value, estimate.error, estimate.low, estimate.high]).all()
        assert estimate.verdict == "not identified"
        assert "Nothing that the target shows was ever logged" in estimate.explanation
        assert estimate.queries_without_overlap == 1
    nowhere = Rankings(theirs, np.array([1]), np.array([[3]]))
    estimate = evaluate_target(logged, nowhere, ["RCTR"], interval=Bootstrap(20))[0].estimates[0]
    assert np.isnan(estimate.value)
    assert "ranks no query of the log" in estimate.explanation
    assert estimate.sessions_skipped == 3
    bound = evaluate_target(logged, nowhere, ["IP"], clip=(2.0,), logging=nowhere, interval=Hoeffding())[0].estimates[0]
    assert np.isnan(bound.value)
    assert bound.verdict == "not identified"


def test_the_policy_of_a_part_is_its_frequencies(log: Sessions) -> None:
    logged = GroupedLog.of(log, "clicks@3")
    day = np.arange(len(log)) % 5 == 0
    one = TargetProbabilities.frequencies(logged, logged.tally(day))
    other = TargetProbabilities.at(logged, WeightedLists.frequencies(log[day]))
    for name in ("list_prob", "placement", "mass"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-12)


def test_expected_reward_of_drawn_lists_is_that_of_the_policy() -> None:
    model = PBM(WORDS, pair_table(np.array([0.2, 0.8, 0.4, 0.6]), unseen=0.5), np.array([1.0, 0.5]))
    policy = PlackettLuceRankings(WORDS, np.array([0.0, 2.0, 1.0, 0.0]))
    logged = GroupedLog.of(log_of(WORDS, (0, (0, 1))))
    exact = expected_reward(logged, WeightedLists(all_lists(), np.exp(policy.log_prob(all_lists()))), model)
    placed = policy.placement(ranks=2)
    assert exact == pytest.approx([model.attractiveness[:-1] @ placed @ [1, 0.5]], rel=1e-9)
    drawn = expected_reward(logged, policy, model)
    assert abs(drawn[0] - exact[0]) < 5 * 0.3 / np.sqrt(200)
    assert drawn[0] != exact[0]


@pytest.mark.parametrize(
    ("weight", "code", "facts"),
    [
        ([0.5, 0.4], "weights-do-not-sum-to-one", {"query": "cats", "value": 0.9, "count": 1}),
        ([1.5, -0.5], "not-a-probability", {"row": 1, "value": 1.5, "count": 2}),
        ([np.nan, 1.0], "not-a-probability", {"row": 1, "count": 1}),
        ([1.0], "unequal-lengths", {"expected": 2, "shape": (1,)}),
    ],
)
def test_weights_are_checked(weight: list[float], code: str, facts: dict[str, object]) -> None:
    words, _, _ = Vocabulary.of(["cats"] * 3, [1, 2, 3])
    lists = Rankings(words, np.array([0, 0]), np.array([[0, 1], [1, 0]]))
    with raises_code(code, DataError, **facts):
        WeightedLists(lists, np.array(weight))
    with raises_code("duplicate-query", DataError, query="cats", count=2):
        WeightedLists(lists)


def test_targets_must_know_their_documents() -> None:
    words, _, _ = Vocabulary.of(["cats"] * 3, [1, 2, 3])
    lists = Rankings(words, np.array([0]), np.array([[0, 1]])).in_vocabulary(words.with_pairs(np.array([0])))
    with raises_code("missing-id", DataError):
        WeightedLists(lists)
    with raises_code("duplicate-document", DataError, row=1, rank=2):
        Rankings(words, np.array([0]), np.array([[1, 1]]))


@pytest.mark.parametrize("prob", [0.0, -0.1, 1.5])
def test_propensities_are_probabilities(prob: float) -> None:
    with np.errstate(divide="ignore", invalid="ignore"):
        log_prob = np.array([np.log(prob)])
    with raises_code("not-a-probability", DataError, row=1, count=1):
        Rankings(WORDS, np.array([0]), np.array([[1, 2]]), log_prob=log_prob)
