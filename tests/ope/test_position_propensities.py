"""Propensities by position: estimates weigh every result by the propensity that the log carries for it."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from clickshift.counts.open_log import open_log
from clickshift.data.encoded_log import EncodedLog
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import CapabilityError, DataError
from clickshift.io.datasets.open_bandit import read_open_bandit
from clickshift.models import PBM
from clickshift.models.base import pair_table
from clickshift.ope import (
    Bootstrap,
    Estimator,
    GroupedLog,
    PBMWeights,
    Reward,
    WeightedLists,
    evaluate_policy,
    evaluate_target,
)
from clickshift.ope.bound_estimator import BoundEstimator, ClusterTerms
from clickshift.ope.estimators import checked_clip
from clickshift.ope.grouped_log import tally_resampled
from clickshift.ope.target_policy import TargetProbabilities
from tests.codes import raises_code, warns_code
from tests.ope.small_worlds import DOCS, LISTS, RANKS, WORDS, World, by_place, dctr, pbm, whole_list
from tests.ope.test_estimators import PI, H, path, policy_of
from tests.ope.test_holes import INF, holed_log, holed_target  # noqa: F401

EXAMINATION = {"PBM": [1.0, 1 / 2, 1 / 3], "Item": [1.0, 1.0, 1.0]}


def with_propensities(sessions: Sessions, propensity: np.ndarray) -> Sessions:
    r = sessions.rankings
    lists = Rankings(r.vocabulary, r.query, r.pair, r.shown, r.log_prob, np.where(r.shown, propensity, 0))
    return Sessions(lists, sessions.click, sessions.count, sessions.time, sessions.user)


def marginals(prob: np.ndarray) -> np.ndarray:
    """Probability of each document at each rank, of the lists of the small world."""
    placed = np.zeros((DOCS, RANKS))
    for shown, p in zip(LISTS, prob, strict=True):
        for k, doc in enumerate(shown):
            placed[doc, k] += p
    return placed


def carrying_its_marginals(world: World) -> Sessions:
    population = world.population()
    placed = marginals(world.pi())
    return with_propensities(population, placed[population.rankings.pair, np.arange(RANKS)])


@pytest.mark.parametrize("name", ["IP", "PBM", "Item", "DR-IP"])
@pytest.mark.parametrize("theta", [(1.0, 1.0, 1.0), (1.0, 0.25)])
def test_every_result_is_weighted_by_its_own_propensity(
    name: str,
    theta: tuple[float, ...],
    holed_log: Sessions,  # noqa: F811
    holed_target: WeightedLists,  # noqa: F811
    rng: np.random.Generator,
) -> None:
    """Equal lists carry different propensities, as where they depend on the user; some ranks are holes."""
    own = with_propensities(holed_log, rng.choice([0.1, 0.2, 0.5], holed_log.rankings.pair.shape))
    r, h, ranks = own.rankings, policy_of(holed_target), len(theta)
    assert r.propensity is not None
    model = PBM(holed_log.vocabulary, pair_table(np.linspace(0.1, 0.9, 12), unseen=0.5), np.array([0.9, 0.6, 0.2]))
    predicted = model.click_prob(r)

    def at(q: int, doc: int, rank: int) -> float:
        return sum(p for a, p in h[q].items() if len(a) > rank and a[rank] == doc)

    total = sessions = 0.0
    for i in range(len(own)):
        q = int(r.query[i])
        if q not in h:
            continue
        sessions += own.count[i]
        if name == "DR-IP":
            prediction = model.click_prob(holed_target.lists)[holed_target.lists.query == q][:, :ranks] @ theta
            total += own.count[i] * float(prediction @ holed_target.weight[holed_target.lists.query == q])
        for k in range(ranks):
            if not r.shown[i, k]:
                continue
            doc, exposure = int(r.pair[i, k]), np.array(theta) * EXAMINATION.get(name, [1.0] * 3)[:ranks]
            if name.endswith("IP"):
                weight = at(q, doc, k) / r.propensity[i, k]
            else:
                shown = sum(exposure[j] * at(q, doc, j) for j in range(ranks))
                weight = shown / (r.propensity[i, k] * exposure.sum())
            reward = float(own.click[i, k]) - (predicted[i, k] if name == "DR-IP" else 0.0)
            total += own.count[i] * theta[k] * reward * min(weight, 1.3)
    estimator = Estimator.named(name, model if name == "DR-IP" else None)
    found = path(estimator, GroupedLog.of(own, Reward(weights=theta)), holed_target, "propensities", 1.3)
    assert found.value[0, 0] == pytest.approx(total / sessions, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "click", "theta"),
    [
        ("IP", by_place, (1.0, 1.0)),
        ("IP", by_place, (1.0, 0.25)),
        ("SN-IP", by_place, (1.0, 1.0)),
        ("PBM", pbm, (1.0, 0.25)),
        ("Item", dctr, (1.0, 0.25)),
        ("DR-IP", by_place, (1.0, 1.0)),
    ],
)
def test_the_expectation_is_the_value_and_the_mean_weight_1(name: str, click: object, theta: tuple[float, ...]) -> None:
    world = World(PI, H, click)  # type: ignore[arg-type]
    log, target = carrying_its_marginals(world), world.lottery(world.h())
    model = PBM(WORDS, pair_table(np.array([0.9, 0.1, 0.4, 0.3]), unseen=0.5), np.array([0.9, 0.7]))
    estimator = Estimator.named(name, model if name.startswith("DR") else None)
    logged = GroupedLog.of(log, Reward(weights=theta))
    assert path(estimator, logged, target, "propensities").value[0, 0] == pytest.approx(world.value(theta), rel=1e-12)
    bound = BoundEstimator.of(estimator, logged, TargetProbabilities.at(logged, target), "propensities", target=target)
    assert bound.mean_weight()[0] == pytest.approx(1, rel=1e-12)


def test_the_expectation_holds_where_the_logging_policy_depends_on_what_the_log_does_not_show() -> None:
    """Half of the sessions are ranked in one way, half in another: their own propensities correct for it."""
    one, other = (carrying_its_marginals(World(tuple(np.roll(PI, k)), H, by_place)) for k in (0, 5))
    both = Sessions.concat([one, other])
    world = World(PI, H, by_place)
    found = path("IP", GroupedLog.of(both), world.lottery(world.h()), "propensities")
    assert found.value[0, 0] == pytest.approx(world.value(), rel=1e-12)


def test_a_click_that_depends_on_its_neighbour_needs_whole_lists() -> None:
    world = World(PI, H, whole_list)
    found = path("IP", GroupedLog.of(carrying_its_marginals(world)), world.lottery(world.h()), "propensities")
    assert abs(float(found.value[0, 0]) - world.value()) > 0.005


def test_items_that_are_never_shown_at_a_rank_lower_the_mean_weight() -> None:
    """Documents 0 and 1 are shown first only: PBM would need them at rank 2, too, and its mean weight tells."""
    logging = tuple(int(a[0] in {0, 1} and a[1] in {2, 3}) for a in LISTS)
    world = World(logging, tuple(map(float, logging)), pbm)
    logged, target = GroupedLog.of(carrying_its_marginals(world)), world.lottery(world.h())
    probabilities = TargetProbabilities.at(logged, target)
    # a document that is shown at rank 1 only has the share e_1 / (e_1 + e_2) of its weight
    expected = {"IP": 1.0, "PBM": (1 * 1 / 1.5 + 0.5 * 0.5 / 1.5) / 1.5}
    for name, mean in expected.items():
        bound = BoundEstimator.of(Estimator.named(name), logged, probabilities, "propensities", target=target)
        assert bound.mean_weight()[0] == pytest.approx(mean, rel=1e-12)


def once(n: int, rng: np.random.Generator, *, holes: float = 0.0) -> tuple[Sessions, WeightedLists, float]:
    """Every context occurs once: five documents of a context, three ranks, a click by document and rank.

    Returns the log, a target that sorts by relevance, and the target's expected clicks.
    """
    docs, ranks = 5, 3
    relevance = rng.random((n, docs))
    query, doc = np.repeat(np.arange(n), docs), np.tile(np.arange(docs), n)
    vocabulary, _, _ = Vocabulary.of(query, doc)
    order = rng.permuted(np.tile(np.arange(docs), (n, 1)), axis=1)[:, :ranks]
    shown = rng.random((n, ranks)) >= holes
    shown[~shown.any(axis=1), 0] = True
    pair = np.where(shown, order + docs * np.arange(n)[:, None], UNSEEN)
    prob = np.array([0.8, 0.5, 0.3]) * np.take_along_axis(relevance, order, axis=1)
    click = shown & (rng.random((n, ranks)) < prob)
    propensity = np.full((n, ranks), (1 - holes) / docs)
    log = Sessions(Rankings(vocabulary, np.arange(n), pair, shown, propensity=np.where(shown, propensity, 0)), click)
    best = np.argsort(-relevance, axis=1)[:, :ranks]
    target = WeightedLists(Rankings(vocabulary, np.arange(n), best + docs * np.arange(n)[:, None]))
    return log, target, float((np.array([0.8, 0.5, 0.3]) * np.take_along_axis(relevance, best, axis=1)).sum() / n)


@pytest.mark.parametrize("holes", [0.0, 0.25])
def test_contexts_that_occur_once_are_evaluated_and_intervals_hold_the_truth(holes: float) -> None:
    held = dict.fromkeys(("IP", "SN-IP", "PBM"), 0)
    examination = (0.8, 0.5, 0.3)
    for seed in range(40):
        log, target, truth = once(300, np.random.default_rng(seed), holes=holes)
        chosen = ["IP", "SN-IP", Estimator(PBMWeights(examination))]
        for found in evaluate_target(
            GroupedLog.of(log), target, chosen, logging="propensities", interval=Bootstrap(100, seed=seed)
        ):
            (e,) = found.estimates
            held[e.estimator] += e.low <= truth <= e.high
            assert e.coverage > 0.5
    assert min(held.values()) >= 35, held


def test_the_answer_rests_on_propensities_where_contexts_occur_once() -> None:
    log, target, truth = once(1000, np.random.default_rng(7))
    evaluation = evaluate_policy(log, target, logging="propensities", replicates=20)
    answer = evaluation.answer
    assert answer is not None
    assert (answer.estimator, answer.verdict) == ("IP", "usable")
    matches = log.rankings.pair == target.lists.pair
    assert answer.effective == pytest.approx(matches.sum() / 3), (
        "sessions that show the target's documents at their ranks"
    )
    assert answer.low < truth < answer.high
    names = list(dict.fromkeys(row["estimator"] for row in evaluation.rows()))
    assert names == ["IP", "PBM", "Item", "RCTR"]
    unknown = evaluate_policy(log, target, replicates=20).answer
    assert unknown is not None
    assert unknown.verdict == "not identified", "frequencies of one session tell nothing"


def test_propensities_that_do_not_average_to_1_are_reported() -> None:
    log, target, _ = once(500, np.random.default_rng(1))
    r = log.rankings
    assert r.propensity is not None
    options = {"estimators": ["IP"], "logging": "propensities", "replicates": 20}
    right = evaluate_policy(log, target, **options).evaluations["target"][0].estimates[0]  # type: ignore[arg-type]
    assert abs(right.mean_weight - 1) < 4 * right.mean_weight_error
    low, high = (with_propensities(log, np.minimum(r.propensity * factor, 1)) for factor in (0.5, 2))
    for wrong, mean in ((low, 2 * right.mean_weight), (high, right.mean_weight / 2)):
        with warns_code("mean-weight-not-one", estimator="IP", target="target", mean=pytest.approx(mean)):
            evaluate_policy(wrong, target, **options)  # type: ignore[arg-type]


def test_the_error_of_the_mean_weight_is_that_of_its_variation_over_users() -> None:
    log, target, _ = once(400, np.random.default_rng(2))
    means = []
    for part in np.array_split(np.random.default_rng(3).permutation(400), 20):
        logged = GroupedLog.of(log[part])
        probabilities = TargetProbabilities.at(logged, target)
        means.append(BoundEstimator.of(Estimator.named("IP"), logged, probabilities, "propensities").mean_weight()[0])
    logged = GroupedLog.of(log)
    probabilities = TargetProbabilities.at(logged, target)
    mean, error = BoundEstimator.of(Estimator.named("IP"), logged, probabilities, "propensities").mean_weight()
    assert mean == pytest.approx(np.mean(means), rel=1e-9)
    assert error == pytest.approx(np.std(means) / math.sqrt(20), rel=0.35)
    pairs_of_sessions = np.repeat(np.arange(200), 2)
    doubled = GroupedLog.of(log[np.repeat(np.arange(200), 2)], cluster=pairs_of_sessions)
    single = GroupedLog.of(log[:200])
    errors = [
        BoundEstimator.of(Estimator.named("IP"), g, TargetProbabilities.at(g, target), "propensities").mean_weight()[1]
        for g in (doubled, single)
    ]
    assert errors[0] == pytest.approx(errors[1], rel=1e-9), "a user who repeats each session knows no more"


@pytest.mark.parametrize("name", ["IP", "PBM", "DR-IP"])
def test_resampled_terms_are_those_of_resampled_tallies(name: str, rng: np.random.Generator) -> None:
    world = World(PI, H, by_place)
    drawn = world.draw(150, rng)
    log = with_propensities(drawn, rng.choice([0.2, 0.4], drawn.click.shape))
    model = PBM(WORDS, pair_table(np.array([0.9, 0.1, 0.4, 0.3]), unseen=0.5), np.array([0.9, 0.7]))
    logged, target = GroupedLog.of(log), world.lottery(world.h())
    estimator = Estimator.named(name, model if name == "DR-IP" else None)
    bound = BoundEstimator.of(estimator, logged, TargetProbabilities.at(logged, target), "propensities", target=target)
    clip, clusters = checked_clip((1.5, INF)), logged.clusters
    times = rng.poisson(1.0, (len(clusters.size), 3)).astype(np.uint16)
    terms = ClusterTerms.of(bound, clip)
    assert terms is not None
    tally = tally_resampled(logged, clusters.entry, clusters.click, times, clusters.of_row, clusters.count)
    assert terms.path(times).value == pytest.approx(bound.path(tally, clip).value, rel=1e-10)


def test_prefixes_and_pairs_of_documents_need_more_than_propensities_by_position() -> None:
    world = World(PI, H, by_place)
    log, target = carrying_its_marginals(world), world.lottery(world.h())
    for name, code in (("RIPS", "no-prefix-propensities"), ("PI", "frequencies-only"), ("CIPS", "frequencies-only")):
        model = PBM(WORDS, pair_table(np.full(4, 0.5), unseen=0.5), np.array([0.9, 0.7]))
        with raises_code(code, CapabilityError, estimator=name):
            path(Estimator.named(name, model), GroupedLog.of(log), target, "propensities")
    with raises_code("missing-propensities", DataError, was_cut=False):
        path("List", GroupedLog.of(log), target, "propensities")
    with raises_code("missing-propensities", DataError):
        evaluate_policy(log, target, reward="any-click", logging="propensities")
    with raises_code("missing-propensities", DataError):
        evaluate_policy(world.population(), target, logging="propensities")


@pytest.mark.parametrize("name", ["List", "IP", "RIPS", "PI", "PBM", "Item"])
def test_the_first_document_is_a_list_a_prefix_and_a_placement(name: str) -> None:
    """All estimators agree on the first rank; of lists of one document, the list's propensity is the document's."""
    world = World(PI, H, by_place)
    log, target = carrying_its_marginals(world), world.lottery(world.h())
    value = path(name, GroupedLog.of(log, "clicks@1"), target, "propensities").value[0, 0]
    assert value == pytest.approx(world.value((1.0, 0.0)), rel=1e-12)
    r = log.rankings
    assert r.propensity is not None
    single = Sessions(
        Rankings(r.vocabulary, r.query, r.pair[:, :1], log_prob=np.log(r.propensity[:, 0])), log.click[:, :1], log.count
    )
    assert path(name, GroupedLog.of(single), target, "propensities").value[0, 0] == pytest.approx(value, rel=1e-12)


def test_an_encoded_log_gives_the_same_estimates(tmp_path: Path) -> None:
    log, target, _ = once(200, np.random.default_rng(4), holes=0.2)
    encoded = open_log(_written(log, tmp_path / "log.parquet"), in_memory=False)
    assert isinstance(encoded, EncodedLog)
    options = {"estimators": ["IP", "PBM"], "examination": [1, 0.5, 0.3], "logging": "propensities", "replicates": 20}
    found = [evaluate_policy(source, target, **options) for source in (log, encoded)]  # type: ignore[arg-type]
    values = [[row["value"] for row in evaluation.rows()] for evaluation in found]
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def _written(log: Sessions, file: Path) -> Path:
    import pyarrow.parquet as pq

    pq.write_table(log.to_arrow("long"), file)
    return file


@pytest.mark.parametrize("name", ["List", "IP"])
def test_open_bandit_one_policy_is_evaluated_on_the_log_of_the_other(name: str, shared_data: Path) -> None:
    random, bts = (read_open_bandit(shared_data / "open_bandit" / policy / "men") for policy in ("random", "bts"))
    shows: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    words = bts.vocabulary
    for q, p in zip(bts.rankings.query, bts.rankings.pair[:, 0], strict=True):
        shows[str(words.query_ids[q])][int(words.doc_ids[words.pair_doc[p]])] += 1
    words, total = random.vocabulary, 0.0
    assert random.rankings.propensity is not None
    for q, p, c, prob in zip(
        random.rankings.query,
        random.rankings.pair[:, 0],
        random.click[:, 0],
        random.rankings.propensity[:, 0],
        strict=True,
    ):
        of_slot = shows[str(words.query_ids[q])]
        total += c * of_slot[int(words.doc_ids[words.pair_doc[p]])] / sum(of_slot.values()) / prob
    target = WeightedLists.frequencies(bts)
    found = evaluate_policy(random, target, estimators=[name], logging="propensities", clip=[INF], replicates=20)
    assert found.rows()[0]["value"] == pytest.approx(total / len(random), rel=1e-9)
