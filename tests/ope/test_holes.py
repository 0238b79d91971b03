"""Off-policy estimates on logs with holes, against the paper's definitions as loops."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickshift.counts.open_log import open_log
from clickshift.data.encoded_log import EncodedLog
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.io.read_log import write_log
from clickshift.models import PBM
from clickshift.models.base import pair_table
from clickshift.ope import Estimator, GroupedLog, Reward, WeightedLists, evaluate_policy
from clickshift.ope.model_value import TargetLists
from clickshift.ope.target_policy import TargetProbabilities, policy_from_scores
from clickshift.testing import random_rankings
from tests.ope.small_worlds import HOLE, by_definition, cut, list_frequencies, records_of
from tests.ope.test_estimators import NAMES, path, policy_of

INF = math.inf
REWARDS = {"clicks": [1.0, 1.0, 1.0], "clicks@1": [1.0], "dcg@2": [1.0, 1 / np.log2(3)]}


def with_random_holes(lists: Rankings, rng: np.random.Generator) -> Rankings:
    """Holes anywhere, also at the first rank, but not at the last document."""
    kept = (rng.random(lists.pair.shape) < 0.65) | (np.arange(lists.n_ranks) == lists.length[:, None] - 1)
    shown = lists.shown & kept
    return Rankings(lists.vocabulary, lists.query, np.where(shown, lists.pair, UNSEEN), shown)


@pytest.fixture
def holed_log(rng: np.random.Generator) -> Sessions:
    words, _, _ = Vocabulary.of(np.repeat(np.arange(3), 4), np.tile(np.arange(4), 3))
    lists = with_random_holes(random_rankings(words, 80, 3, rng=rng), rng)
    assert lists.has_holes
    assert not lists.shown[:, 0].all()
    click = (rng.random(lists.pair.shape) < 0.4) & lists.shown
    return Sessions(lists, click, rng.integers(1, 4, 80))


@pytest.fixture
def holed_target(holed_log: Sessions, rng: np.random.Generator) -> WeightedLists:
    """Logged lists of two of the queries, and others: some with holes at other ranks, some without."""
    r = holed_log.rankings
    logged = np.flatnonzero(r.query < 2)[:15]
    other = random_rankings(r.vocabulary, 24, 3, rng=rng)
    other = other[other.query < 2]
    holes = with_random_holes(other[::2], rng)
    parts = (r[logged], other, holes)
    query, pair, shown = (np.concatenate([getattr(part, k) for part in parts]) for k in ("query", "pair", "shown"))
    weight = rng.random(len(query))
    return WeightedLists(Rankings(r.vocabulary, query, pair, shown), weight / np.bincount(query, weight)[query])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reward", REWARDS)
def test_estimates_are_those_of_the_definition_and_a_hole_is_no_unit(
    name: str, reward: str, holed_log: Sessions, holed_target: WeightedLists
) -> None:
    theta = REWARDS[reward]
    records = records_of(holed_log, len(theta))
    h, pi = cut(policy_of(holed_target), len(theta)), list_frequencies(records)
    found = path(name, GroupedLog.of(holed_log, reward), holed_target, "frequencies", 1.5, INF)
    expected = [by_definition(name, records, h, pi, theta, clip)[0] for clip in (1.5, INF)]
    assert found.value[:, 0] == pytest.approx(expected, rel=1e-12, abs=1e-14)
    assert found.sessions[0] == sum(q in h for q, _, _ in records)


@pytest.mark.parametrize("name", NAMES)
def test_a_known_policy_with_holes_weighs_them_by_its_own_probabilities(
    name: str, holed_log: Sessions, holed_target: WeightedLists
) -> None:
    known = WeightedLists.frequencies(Sessions(holed_log.rankings, holed_log.click, np.roll(holed_log.count, 7)))
    h, pi = policy_of(holed_target), policy_of(known)
    found = path(name, GroupedLog.of(holed_log), holed_target, known, 2.0, INF)
    expected = [by_definition(name, records_of(holed_log, 3), h, pi, [1.0] * 3, clip)[0] for clip in (2.0, INF)]
    assert found.value[:, 0] == pytest.approx(expected, rel=1e-12)


def placements(policy: dict[tuple[int, ...], float], cells: list[tuple[int, int]]) -> np.ndarray:
    return np.array([sum(p for a, p in policy.items() if len(a) > k and a[k] == d) for d, k in cells])


def test_pseudo_inverse_is_that_of_the_placements(holed_log: Sessions, holed_target: WeightedLists) -> None:
    records = [r for r in records_of(holed_log, 3) if r[0] < 2]
    h, pi = policy_of(holed_target), list_frequencies(records)
    total = 0.0
    for q in (0, 1):
        cells = sorted({(d, k) for a in pi[q] for k, d in enumerate(a) if d != HOLE})
        rows = np.array([[float(len(a) > k and a[k] == d) for d, k in cells] for a in pi[q]])
        frequency = np.array(list(pi[q].values()))
        weights = np.linalg.pinv(rows.T @ (rows * frequency[:, None])) @ placements(h[q], cells)
        by_list = dict(zip(pi[q], rows @ weights, strict=True))
        total += sum(sum(c) * by_list[a] for query, a, c in records if query == q)
    assert path("PI", GroupedLog.of(holed_log), holed_target).value[0, 0] == pytest.approx(
        total / len(records), rel=1e-6
    )


def test_a_policy_shows_no_list_that_has_a_hole(holed_log: Sessions) -> None:
    logged = GroupedLog.of(holed_log)
    policy = policy_from_scores(holed_log.vocabulary, np.zeros(holed_log.vocabulary.n_pairs))
    found = TargetProbabilities.at(logged, policy, prefixes=True)
    lists = logged.lists
    assert found.list_prob == pytest.approx(np.where(lists.n_shown == 3, 1 / 24, 0)), "lists of three of four documents"
    assert found.prefix_prob is not None
    unbroken = np.logical_and.accumulate(lists.shown, axis=1)
    assert found.prefix_prob[~unbroken].max() == 0
    assert found.prefix_prob[unbroken] == pytest.approx(
        np.broadcast_to([1 / 4, 1 / 12, 1 / 24], unbroken.shape)[unbroken]
    )


# not PI: that the reward is a sum over placements excludes a constant, unless all lists have as many documents
@pytest.mark.parametrize("name", ["List", "IP", "RIPS", "PBM", "Item", "CIPS", "DR-IP"])
@pytest.mark.parametrize("reward", ["clicks", "clicks@1"])
def test_a_target_that_is_the_log_earns_its_mean(name: str, reward: str, holed_log: Sessions) -> None:
    model = PBM(holed_log.vocabulary, pair_table(np.linspace(0.1, 0.9, 12), unseen=0.5), np.array([0.9, 0.6, 0.2]))
    ranks = len(Reward.named(reward).theta(3))
    mean = (holed_log.count @ holed_log.click)[:ranks].sum() / holed_log.total
    found = path(Estimator.named(name, model), GroupedLog.of(holed_log, reward), WeightedLists.frequencies(holed_log))
    assert found.value[0, 0] == pytest.approx(mean, rel=1e-9)
    assert found.never_logged[0] == pytest.approx(0, abs=1e-9)


def test_a_document_that_the_target_puts_at_a_hole_is_logged_where_other_sessions_show_it() -> None:
    """Two of four sessions have an advertisement at rank 1: documents at rank 1 are known from the other two."""
    words, _, _ = Vocabulary.of([0, 0, 0], [7, 8, 9])
    pair = np.array([[0, 1], [0, 2], [UNSEEN, 0], [UNSEEN, 1]], np.int32)
    log = Sessions(Rankings(words, np.zeros(4, np.int32), pair), np.array([[1, 0], [0, 1], [0, 1], [0, 0]]))
    target = Rankings(words, np.zeros(1, np.int32), np.array([[0, 1]], np.int32))
    found = path("IP", GroupedLog.of(log), target)
    assert found.value[0, 0] == pytest.approx(1 / 2 + 0 / 2), "click rates of the document at each rank"
    assert path("List", GroupedLog.of(log), target).value[0, 0] == 1, "the one session that shows the whole list"


def test_empty_ranks_below_all_lists_change_nothing(holed_log: Sessions, holed_target: WeightedLists) -> None:
    r, more = holed_log.rankings, ((0, 0), (0, 2))
    wide = Rankings(r.vocabulary, r.query, np.pad(r.pair, more, constant_values=UNSEEN), np.pad(r.shown, more))
    wider = Sessions(wide, np.pad(holed_log.click, more), holed_log.count)
    names = ["List", "IP", "PBM", "Item", "RIPS", "PI", "RCTR"]
    found = [
        evaluate_policy(log, holed_target, estimators=names, reward="clicks@3", examination="1/rank", replicates=20)
        for log in (holed_log, wider)
    ]
    assert found[0].rows() == found[1].rows()
    for name in names:  # without a limit of the ranks, too
        logs = (GroupedLog.of(log) for log in (holed_log, wider))
        values = [float(path(name, logged, holed_target).value[0, 0]) for logged in logs]
        assert values[0] == pytest.approx(values[1], rel=1e-12), name


@pytest.mark.parametrize("reward", ["clicks@1", "dcg"])
def test_an_encoded_log_gives_the_same_estimates(
    reward: str, holed_log: Sessions, holed_target: WeightedLists, tmp_path: Path
) -> None:
    """Lists that show nothing at rank 1 are merged by query, and keep their sessions."""
    write_log(holed_log, tmp_path / "log.parquet", layout="long")
    encoded = open_log(tmp_path / "log.parquet", in_memory=False)
    assert isinstance(encoded, EncodedLog)
    options: dict[str, Any] = {"estimators": ["List", "IP", "PBM", "RIPS"], "examination": "1/rank", "replicates": 20}
    rows = [evaluate_policy(log, holed_target, reward=reward, **options).rows() for log in (holed_log, encoded)]
    for one, other in zip(*rows, strict=True):
        assert one["sessions"] == other["sessions"] > 0
        assert one["value"] == pytest.approx(other["value"], rel=1e-12), one["estimator"]


def test_the_log_is_compared_over_the_ranks_that_a_target_with_holes_takes() -> None:
    words, _, _ = Vocabulary.of([0, 0, 0], [7, 8, 9])
    log = Sessions(Rankings(words, np.zeros(1, np.int32), np.array([[0, 1, 2]], np.int32)), np.ones((1, 3), bool))
    target = WeightedLists(Rankings(words, np.zeros(1, np.int32), np.array([[UNSEEN, UNSEEN, 0]], np.int32)))
    for reward, earned in (("clicks", 3), ("clicks@2", 2)):
        logged = GroupedLog.of(log, reward)
        lists = TargetLists.of(logged, target)
        assert lists.ranked.all()
        assert lists.earned(log, logged.reward).tolist() == [earned]


def test_a_target_that_fills_holes_is_not_compared_like_with_like(holed_log: Sessions) -> None:
    many = Sessions(holed_log.rankings, holed_log.click, holed_log.count * 20)
    r = holed_log.rankings
    above = sum(
        int(n) * (int(end) - int(shown.sum())) for n, end, shown in zip(many.count, r.length, r.shown, strict=True)
    )
    share = above / float(many.count @ r.length)
    filling = policy_from_scores(r.vocabulary, np.arange(12.0))
    keeping = WeightedLists.frequencies(holed_log)
    for target, fills in ((filling, True), (keeping, False)):
        found = evaluate_policy(many, target, replicates=20)
        said = f"{share:.0%} of the ranks"
        assert found.answer is not None
        assert any(said in reason for reason in found.answer.reasons) == fills
        assert any(f"{share:.1%} of the ranks" in note for note in found.notes["target"]) == fills
        assert found.answer.verdict != "usable" or not fills


def test_the_policy_of_a_part_is_that_of_its_list_frequencies(holed_log: Sessions) -> None:
    logged, part = GroupedLog.of(holed_log, "clicks@2"), np.arange(80) % 3 == 0
    found = TargetProbabilities.frequencies(logged, logged.tally(part))
    expected = TargetProbabilities.at(logged, WeightedLists.frequencies(holed_log[part]))
    for name in ("list_prob", "placement", "mass", "mass_of_lists"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=1e-12), name


def test_an_answer_on_a_log_with_holes_has_finite_ends(holed_log: Sessions, holed_target: WeightedLists) -> None:
    many = Sessions(holed_log.rankings, holed_log.click, holed_log.count * 20)
    evaluation = evaluate_policy(many, holed_target, replicates=20)
    assert evaluation.answer is not None
    assert [row["estimator"] for row in evaluation.rows()][::3] == ["List", "IP", "PBM", "Item", "RCTR"]
