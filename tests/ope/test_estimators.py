"""Estimators against the paper's definitions, and their expectations in worlds that can be written out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import CapabilityError, DataError, SpecError
from clickshift.models import CM
from clickshift.models import PBM as PBMModel
from clickshift.models.base import Evidence, pair_table
from clickshift.ope import Bootstrap, Estimator, GroupedLog, Reward, WeightedLists, evaluate_target
from clickshift.ope._accumulators import ClippingPath
from clickshift.ope.bound_estimator import BoundEstimator, ClusterTerms
from clickshift.ope.estimators import WEIGHTS, checked_clip
from clickshift.ope.grouped_log import tally_resampled
from clickshift.ope.target_policy import Target, TargetProbabilities
from clickshift.ope.weights import CIPSWeights, IPWeights, ListWeights, LoggingPolicy, PBMWeights
from clickshift.testing import random_rankings
from tests.codes import raises_code
from tests.ope.small_worlds import (
    ATTRACTIVENESS,
    DOCS,
    LISTS,
    RANKS,
    WORDS,
    Policy,
    Record,
    World,
    all_lists,
    by_definition,
    by_place,
    by_rank,
    cascade,
    cut,
    dctr,
    list_frequencies,
    list_of,
    pbm,
    records_of,
    whole_list,
)

INF = math.inf
NAMES = [name for name in WEIGHTS if name not in {"PI", "CIPS"}]
"""Weights that are ratios of two probabilities."""
MORE = ["PI", "CIPS", "SN-CIPS", "DR-PI", "CDR", "Cascade-DR"]
PI = (1, 2, 3, 4, 5, 6, 7, 8, 9, 5, 6, 4)
H = (9, 3, 1, 1, 2, 4, 6, 1, 1, 20, 2, 10)


def path(
    name: str | Estimator,
    logged: GroupedLog,
    target: Target | Rankings,
    logging: Target | str = "frequencies",
    *clip: float,
) -> ClippingPath:
    estimator = Estimator.named(name) if isinstance(name, str) else name
    known: LoggingPolicy = (
        logging if isinstance(logging, str) else TargetProbabilities.at(logged, logging, prefixes=True)
    )  # type: ignore[assignment]
    aim = TargetProbabilities.at(logged, target, prefixes=True)
    prepared = BoundEstimator.of(estimator, logged, aim, known, target=target)
    return prepared.path(logged.total, checked_clip(clip or (INF,)))


def value(name: str | Estimator, logged: GroupedLog, target: Target, logging: Target | str = "frequencies") -> float:
    return float(path(name, logged, target, logging).value[0, 0])


@pytest.fixture
def mixed_log(rng: np.random.Generator) -> Sessions:
    """Three queries, lists of one to three of five documents, rows that stand for several sessions."""
    words, _, _ = Vocabulary.of(np.repeat(np.arange(3), 5), np.tile(np.arange(5), 3))
    rankings = random_rankings(words, 60, 3, rng=rng)
    click = (rng.random(rankings.pair.shape) < 0.4) & rankings.shown
    return Sessions(rankings, click, rng.integers(1, 4, 60))


@pytest.fixture
def mixed_target(mixed_log: Sessions, rng: np.random.Generator) -> WeightedLists:
    """Two of the three queries: a lottery over some logged lists, and lists that the log may not have."""
    r = mixed_log.rankings
    logged = np.flatnonzero(r.query < 2)[:14]
    other = random_rankings(mixed_log.vocabulary, 20, 3, rng=rng)
    other = other[other.query < 2]
    query = np.concatenate([r.query[logged], other.query])
    pair, shown = (np.concatenate([getattr(r, k)[logged], getattr(other, k)]) for k in ("pair", "shown"))
    weight = rng.random(len(query))
    assert set(query.tolist()) == {0, 1}
    return WeightedLists(Rankings(r.vocabulary, query, pair, shown), weight / np.bincount(query, weight)[query])


def policy_of(target: WeightedLists) -> dict[int, dict[tuple[int, ...], float]]:
    out: dict[int, dict[tuple[int, ...], float]] = {}
    for i, w in enumerate(target.weight):
        shown = list_of(target.lists, i, target.lists.n_ranks)
        lists = out.setdefault(int(target.lists.query[i]), {})
        lists[shown] = lists.get(shown, 0.0) + float(w)
    return out


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reward", ["clicks", "clicks@2", "dcg", (0.3, 0.0, 2.0)])
def test_counts_give_what_the_definition_gives_session_by_session(
    name: str, reward: str | tuple[float, ...], mixed_log: Sessions, mixed_target: WeightedLists
) -> None:
    earns = Reward.named(reward) if isinstance(reward, str) else Reward(weights=reward)
    logged = GroupedLog.of(mixed_log, earns)
    theta = {"clicks": [1, 1, 1], "clicks@2": [1, 1], "dcg": [1, 1 / np.log2(3), 0.5]}.get(str(reward), reward)
    theta = [float(t) for t in theta]
    records = records_of(mixed_log, len(theta))
    h, pi = cut(policy_of(mixed_target), len(theta)), list_frequencies(records)
    clips = (0.5, 1.5, 4.0, INF)
    found = path(name, logged, mixed_target, "frequencies", *clips)
    expected = [by_definition(name, records, h, pi, theta, m)[0] for m in clips]
    assert found.value[:, 0] == pytest.approx(expected, rel=1e-12, abs=1e-14)
    assert found.sessions[0] == sum(q in h for q, _, _ in records) < len(records)
    if name != "RCTR":
        assert expected[0] < expected[-1], "clipping must be felt"


@pytest.mark.parametrize("name", NAMES)
def test_a_known_logging_policy_takes_the_place_of_frequencies(
    name: str, mixed_log: Sessions, mixed_target: WeightedLists
) -> None:
    other = Sessions(mixed_log.rankings, mixed_log.click, np.roll(mixed_log.count, 7))
    held_out = WeightedLists.frequencies(other)
    logged = GroupedLog.of(mixed_log)
    records, theta = records_of(mixed_log, 3), [1.0, 1.0, 1.0]
    h, pi = policy_of(mixed_target), policy_of(held_out)
    found = path(name, logged, mixed_target, held_out, 2.0, INF)
    expected = [by_definition(name, records, h, pi, theta, m)[0] for m in (2.0, INF)]
    assert found.value[:, 0] == pytest.approx(expected, rel=1e-12)
    if name != "RCTR":
        assert found.value[1, 0] != pytest.approx(value(name, logged, mixed_target), rel=1e-6)


def test_propensities_of_the_log_weigh_each_session_by_its_own(mixed_log: Sessions, rng: np.random.Generator) -> None:
    """Equal lists may carry different propensities, as when the policy changed half-way."""
    prob = rng.choice([0.1, 0.2, 0.4], len(mixed_log))
    r = mixed_log.rankings
    log = Sessions(Rankings(r.vocabulary, r.query, r.pair, r.shown, np.log(prob)), mixed_log.click, mixed_log.count)
    target = WeightedLists.frequencies(Sessions(r, mixed_log.click, np.roll(mixed_log.count, 3)))
    h = policy_of(target)
    total = 0.0
    for i in range(len(log)):
        shown = tuple(r.pair[i][r.shown[i]].tolist())
        weight = min(h[int(r.query[i])][shown] / prob[i], 1.7)
        total += log.count[i] * log.click[i].sum() * weight
    found = path("List", GroupedLog.of(log), target, "propensities", 1.7)
    assert found.value[0, 0] == pytest.approx(total / log.total, rel=1e-12)
    assert value("List", GroupedLog.of(log), target) == pytest.approx(
        value("List", GroupedLog.of(mixed_log), target), rel=1e-12
    )


def test_propensities_are_refused_where_they_do_not_tell(mixed_log: Sessions, mixed_target: WeightedLists) -> None:
    r = mixed_log.rankings
    log = Sessions(Rankings(r.vocabulary, r.query, r.pair, r.shown, np.zeros(len(r))), mixed_log.click)
    with raises_code("list-propensities-only", CapabilityError, estimator="IP"):
        path("IP", GroupedLog.of(log), mixed_target, "propensities")
    with raises_code("missing-propensities", DataError, was_cut=False):
        path("List", GroupedLog.of(mixed_log), mixed_target, "propensities")
    with raises_code("missing-propensities", DataError, was_cut=True):
        path("List", GroupedLog.of(log, "clicks@1"), mixed_target, "propensities")


@pytest.mark.parametrize(
    "name", [*NAMES, "SN-List", "SN-IP", "SN-PBM", "SN-Item", "SN-RIPS", "DR-List", "DR-IP", *MORE]
)
def test_a_target_that_is_the_logging_policy_earns_the_mean_of_the_log(name: str, mixed_log: Sessions) -> None:
    r = mixed_log.rankings
    model = PBMModel(r.vocabulary, pair_table(np.linspace(0.1, 0.9, 15), unseen=0.5), np.array([0.9, 0.6, 0.2]))
    estimator = Estimator.named(name, model)
    mean = (mixed_log.count @ mixed_log.click).sum() / mixed_log.total
    logged = GroupedLog.of(mixed_log)
    target = WeightedLists.frequencies(mixed_log)
    found = path(estimator, logged, target, "frequencies", 1.0 + 1e-9, INF)
    close = 1e-9 if name.endswith("PI") else 1e-12  # PI is solved step by step
    assert found.value[:, 0] == pytest.approx([mean, mean], rel=close)
    prepared = BoundEstimator.of(
        estimator, logged, TargetProbabilities.at(logged, target, prefixes=True), target=target
    )
    spread = prepared.diagnostics(logged.total, checked_clip((1.0, INF)))
    assert spread.largest_weight == pytest.approx(1, rel=close)
    assert spread.effective == pytest.approx([mixed_log.total] * 2, rel=1e-9)
    assert found.never_logged[0] == pytest.approx(0, abs=close)
    assert found.clipped[:, 0] == pytest.approx([0, 0], abs=close)


@pytest.mark.parametrize(
    ("name", "click", "theta"),
    [
        ("List", whole_list, (1.0, 1.0)),
        ("List", cascade, (1.0, 0.25)),
        ("RIPS", cascade, (1.0, 1.0)),
        ("RIPS", by_place, (1.0, 0.25)),
        ("IP", by_place, (1.0, 1.0)),
        ("IP", by_place, (1.0, 0.25)),
        ("PBM", pbm, (1.0, 1.0)),
        ("PBM", pbm, (1.0, 0.25)),
        ("Item", dctr, (1.0, 1.0)),
        ("Item", dctr, (1.0, 0.25)),
        ("RCTR", by_rank, (1.0, 0.25)),
        ("PI", by_place, (1.0, 0.25)),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_expectation_is_the_value_where_the_model_of_clicks_holds(
    name: str, click: object, theta: tuple[float, ...], known: bool
) -> None:
    world = World(PI, H, click)  # type: ignore[arg-type]
    logged = GroupedLog.of(world.population(), Reward(weights=theta))
    logging = world.lottery(world.pi()) if known and name != "PI" else "frequencies"
    assert value(name, logged, world.lottery(world.h()), logging) == pytest.approx(
        world.value(theta), rel=1e-9 if name == "PI" else 1e-12
    )


@pytest.mark.parametrize(
    ("name", "click"),
    [("IP", whole_list), ("RIPS", whole_list), ("PBM", dctr), ("PBM", by_place), ("Item", pbm), ("RCTR", dctr)],
)
def test_expectation_is_not_the_value_where_it_does_not(name: str, click: object) -> None:
    world = World(PI, H, click)  # type: ignore[arg-type]
    found = value(name, GroupedLog.of(world.population()), world.lottery(world.h()))
    assert abs(found - world.value()) > 0.005


@pytest.mark.parametrize("name", ["IP", "PBM", "Item"])
def test_structured_estimators_need_less_support_than_lists(name: str) -> None:
    """The log has no list that the target shows, but all of its documents at their ranks."""
    logging = tuple(int(a in {(0, 1), (2, 3), (1, 0)}) for a in LISTS)
    target = tuple(float(a in {(0, 3), (2, 1)}) for a in LISTS)
    world = World(logging, target, {"IP": by_place, "PBM": pbm, "Item": dctr}[name])  # type: ignore[arg-type]
    logged, lottery = GroupedLog.of(world.population()), world.lottery(world.h())
    assert value(name, logged, lottery) == pytest.approx(world.value(), rel=1e-12)
    alone = path("List", logged, lottery)
    assert math.isnan(alone.value[0, 0]), "a value of which the log tells nothing is not 0"
    assert alone.never_logged[0] == alone.most[0] == 2


@pytest.mark.parametrize("clip", [0.5, 1.0, 1.5, 2.0, 4.0, 9.0])
@pytest.mark.parametrize(("click", "chain"), [(pbm, ["List", "IP", "PBM"]), (dctr, ["List", "IP", "Item"])])
@pytest.mark.parametrize("known", [True, False])
def test_clipping_biases_downwards_and_lists_most(clip: float, click: object, chain: list[str], known: bool) -> None:
    """Li et al. (2018), propositions 4.3 and 4.4."""
    world = World(PI, H, click)  # type: ignore[arg-type]
    logged, target = GroupedLog.of(world.population()), world.lottery(world.h())
    logging = world.lottery(world.pi()) if known else "frequencies"
    values = [float(path(name, logged, target, logging, clip).value[0, 0]) for name in chain]
    assert all(a <= b + 1e-12 for a, b in zip(values, [*values[1:], world.value()], strict=True))
    if clip <= 4:
        assert values[0] < values[1] - 1e-3
    # the clipping bias of lists, in closed form: sum of f(A) (h - M pi)+
    f = np.array([sum(world.click(a, k) for k in range(RANKS)) for a in LISTS])
    bias = f @ np.maximum(world.h() - clip * world.pi(), 0)
    assert values[0] == pytest.approx(world.value() - bias, rel=1e-12)


@pytest.mark.parametrize("clip", [1.0, 2.0, INF])
def test_lost_mass_is_told_apart_and_bounds_the_value(clip: float) -> None:
    logging = tuple(0 if a in {(1, 0), (3, 2), (0, 1)} else n for a, n in zip(LISTS, PI, strict=True))
    world = World(logging, H, pbm)
    pi, h = world.pi(), world.h()
    logged, target = GroupedLog.of(world.population()), world.lottery(world.h())
    found = {name: path(name, logged, target, "frequencies", clip) for name in ("List", "IP", "PBM")}
    never = 2 * h[pi == 0].sum()
    capped = np.zeros(len(LISTS)) if clip == INF else np.maximum(h - clip * pi, 0) * (pi > 0)
    assert found["List"].never_logged[0] == pytest.approx(never, rel=1e-12)
    assert found["List"].clipped[0, 0] == pytest.approx(2 * capped.sum(), rel=1e-12, abs=1e-14)
    place_h, place_pi = np.zeros((DOCS, RANKS)), np.zeros((DOCS, RANKS))
    for a, p, q in zip(LISTS, h, pi, strict=True):
        for k in range(RANKS):
            place_h[a[k], k] += p
            place_pi[a[k], k] += q
    for name, up, down in (
        ("IP", place_h, place_pi),
        ("PBM", place_h @ [1, 0.5], place_pi @ [1, 0.5]),
    ):
        lost = np.maximum(up - (0 if clip == INF else clip) * down, 0)
        assert found[name].never_logged[0] == pytest.approx(up[down == 0].sum(), rel=1e-12, abs=1e-14)
        if clip < INF:
            assert found[name].clipped[0, 0] == pytest.approx(lost[down > 0].sum(), rel=1e-12, abs=1e-14)
    for p in found.values():
        assert p.floor[0, 0] <= world.value() + 1e-12
        assert world.value() <= p.ceiling[0, 0] + 1e-12


def test_self_normalised_weights_forget_what_was_not_logged() -> None:
    """Covered value over covered mass; by rank for IP."""
    logging = tuple(0 if a in {(1, 0), (3, 2)} else n for a, n in zip(LISTS, PI, strict=True))
    world = World(logging, H, by_place)
    pi, h = world.pi(), world.h()
    logged, target = GroupedLog.of(world.population()), world.lottery(world.h())
    f = np.array([sum(world.click(a, k) for k in range(RANKS)) for a in LISTS])
    assert value("SN-List", logged, target) == pytest.approx((h * f)[pi > 0].sum() / h[pi > 0].sum(), rel=1e-12)
    records = records_of(
        World((1, 0, 2, 3, 0, 1, 0, 2, 1, 0, 0, 1), H, by_place).draw(300, np.random.default_rng(1)), 2
    )
    rows = [(np.int32(q), a, c) for q, a, c in records]
    log = Sessions(
        Rankings(WORDS, np.array([r[0] for r in rows]), np.array([r[1] for r in rows], np.int32)),
        np.array([r[2] for r in rows]),
    )
    policy = {0: dict(zip(LISTS, h.tolist(), strict=True))}
    for name in ("IP", "RIPS", "List"):
        _, reward, weight = by_definition(name, records, policy, list_frequencies(records), [1.0, 1.0], 2.0)
        expected = (reward / weight).sum() if name != "List" else reward.sum() / weight[0]
        found = path(f"SN-{name}", GroupedLog.of(log), target, "frequencies", 2.0)
        assert found.value[0, 0] == pytest.approx(expected, rel=1e-12)


def test_self_normalised_weights_do_not_depend_on_the_scale_of_propensities() -> None:
    world = World(PI, H, whole_list)
    log, target = world.draw(400, np.random.default_rng(3)), world.lottery(world.h())
    r = log.rankings
    assert r.log_prob is not None
    half = Sessions(Rankings(WORDS, r.query, r.pair, r.shown, r.log_prob + np.log(0.5)), log.click)
    plain = [value("List", GroupedLog.of(x), target, "propensities") for x in (log, half)]
    normal = [value("SN-List", GroupedLog.of(x), target, "propensities") for x in (log, half)]
    assert plain[1] == pytest.approx(2 * plain[0], rel=1e-12)
    assert normal[1] == pytest.approx(normal[0], rel=1e-12)


def wrong_model() -> PBMModel:
    return PBMModel(WORDS, pair_table(np.array([0.9, 0.1, 0.5, 0.3]), unseen=0.5), np.array([0.8, 0.7]))


def right_model() -> PBMModel:
    return PBMModel(WORDS, pair_table(np.array(ATTRACTIVENESS), unseen=0.5), np.array([1.0, 0.5]))


@pytest.mark.parametrize("weights", [ListWeights(), IPWeights()])
def test_doubly_robust_estimates_are_right_if_either_side_is(weights: ListWeights | IPWeights) -> None:
    world = World(PI, H, pbm)
    logged, target = GroupedLog.of(world.population()), world.lottery(world.h())
    wrong_logging = world.lottery(np.roll(world.pi(), 5))
    for model, logging in ((wrong_model(), world.lottery(world.pi())), (right_model(), wrong_logging)):
        found = value(Estimator(weights, model=model), logged, target, logging)
        assert found == pytest.approx(world.value(), rel=1e-12)
    both = value(Estimator(weights, model=wrong_model()), logged, target, wrong_logging)
    assert abs(both - world.value()) > 0.01
    assert abs(value(Estimator(weights), logged, target, wrong_logging) - world.value()) > 0.01


def test_the_direct_method_is_what_the_model_expects_of_the_target() -> None:
    world = World(PI, H, pbm)
    logged, target = GroupedLog.of(world.population(), Reward(weights=(1.0, 0.25))), world.lottery(world.h())
    assert value(Estimator(None, model=right_model()), logged, target) == pytest.approx(world.value((1.0, 0.25)))
    model = wrong_model()
    expected = world.h() @ [model.attractiveness[a[0]] * 0.8 + 0.25 * model.attractiveness[a[1]] * 0.7 for a in LISTS]
    assert value(Estimator(None, model=model), logged, target) == pytest.approx(expected, rel=1e-12)


def test_any_click_is_for_lists_and_models() -> None:
    world = World(PI, H, whole_list)
    logged, target = GroupedLog.of(world.population(), "any-click"), world.lottery(world.h())
    f = np.array([1 - np.prod([1 - world.click(a, k) for k in range(RANKS)]) for a in LISTS])
    assert value("List", logged, target) == pytest.approx(world.h() @ f, rel=1e-12)
    assert path("List", logged, target).most[0] == 1
    assert value("RCTR", logged, target) == pytest.approx(world.pi() @ f, rel=1e-12)
    model = wrong_model()
    p = model.click_prob(all_lists())
    assert value(Estimator(None, model=model), logged, target) == pytest.approx(
        world.h() @ (1 - (1 - p[:, 0]) * (1 - p[:, 1])), rel=1e-12
    )
    for name in ("IP", "PBM", "Item", "RIPS"):
        with raises_code("nonlinear-reward", CapabilityError, estimator=name, reward="any-click"):
            value(name, logged, target)


def test_examination_may_be_given_at_any_scale() -> None:
    def steep(shown: tuple[int, ...], rank: int) -> float:
        return ATTRACTIVENESS[shown[rank]] * (1.0, 0.25)[rank]

    world = World(PI, H, steep)
    logged, target = GroupedLog.of(world.population()), world.lottery(world.h())
    for p in ((1.0, 0.25), (0.4, 0.1), (0.4, 0.1, 0.05)):
        found = path(Estimator(PBMWeights(p)), logged, target)
        assert found.value[0, 0] == pytest.approx(world.value(), rel=1e-12)
        assert found.most[0] == pytest.approx(1.25)
    assert abs(value("PBM", logged, target) - world.value()) > 0.005
    for bad in ((1.0,), (1.0, 0.0), (1.0, -1.0), (1.0, math.nan)):
        with raises_code("bad-examination", SpecError, n_ranks=2):
            value(Estimator(PBMWeights(bad)), logged, target)


def test_values_by_query_add_up_to_the_whole(mixed_log: Sessions, mixed_target: WeightedLists) -> None:
    logged, clip = GroupedLog.of(mixed_log), checked_clip((1.5, INF))
    aim = TargetProbabilities.at(logged, mixed_target)
    for name in ("List", "IP", "PBM", "Item", "RCTR"):
        prepared = BoundEstimator.of(Estimator.named(name), logged, aim)
        per_query = prepared.per_query(logged.total, clip)
        sessions = prepared.sessions(logged.total)
        assert np.isnan(per_query[2]).all()
        pooled = np.nansum(per_query * sessions, axis=0) / sessions.sum()
        assert pooled == pytest.approx(prepared.path(logged.total, clip).value[:, 0], rel=1e-12)
        alone = GroupedLog.of(mixed_log[mixed_log.rankings.query == 1])
        one = BoundEstimator.of(Estimator.named(name), alone, TargetProbabilities.at(alone, mixed_target))
        assert per_query[1] == pytest.approx(one.path(alone.total, clip).value[:, 0], rel=1e-12)
        normal = BoundEstimator.of(Estimator.named(f"SN-{name}"), logged, aim).per_query(logged.total, clip)
        one = replace(one, estimator=Estimator.named(f"SN-{name}"))
        assert normal[1] == pytest.approx(one.path(alone.total, clip).value[:, 0], rel=1e-12)


@pytest.mark.parametrize("name", [*NAMES, "SN-IP", "SN-List", "DR-IP", "DR-SN-List"])
@pytest.mark.parametrize("users", [True, False])
def test_terms_of_sessions_add_up_to_what_counts_say(
    name: str, users: bool, mixed_log: Sessions, mixed_target: WeightedLists, rng: np.random.Generator
) -> None:
    words = mixed_log.vocabulary
    model = PBMModel(words, pair_table(np.linspace(0.1, 0.9, 15), unseen=0.5), np.array([0.9, 0.6, 0.2]))
    logged = GroupedLog.of(mixed_log, "dcg", cluster=np.arange(60) // 3 if users else "session")
    held_out = WeightedLists.frequencies(Sessions(mixed_log.rankings, mixed_log.click, np.roll(mixed_log.count, 7)))
    aims = [TargetProbabilities.at(logged, target, prefixes=True) for target in (mixed_target, held_out)]
    prepared = BoundEstimator.of(Estimator.named(name, model), logged, aims[0], aims[1], target=mixed_target)
    c, clip = logged.clusters, checked_clip((1.5, INF))
    drawn = rng.poisson(c.size[:, None], (len(c.size), 6)).astype(float)
    drawn[:, 5] = 0
    terms = ClusterTerms.of(prepared, clip)
    assert terms is not None
    found = terms.path(drawn)
    expected = prepared.path(tally_resampled(logged, c.entry, c.click, drawn, c.of_row, c.count), clip)
    for field in ("sessions", "value", "floor", "ceiling", "most", "never_logged", "clipped"):
        assert getattr(found, field) == pytest.approx(getattr(expected, field), rel=1e-10, abs=1e-12, nan_ok=True)
    assert np.isfinite(found.value[:, :5]).all()
    if name != "RCTR":
        assert (
            ClusterTerms.of(BoundEstimator.of(Estimator.named(name, model), logged, aims[0], target=mixed_target), clip)
            is None
        )


def test_what_the_logging_policy_cannot_show_is_clipped_or_refused(mixed_log: Sessions) -> None:
    logged = GroupedLog.of(mixed_log)
    target = WeightedLists.frequencies(mixed_log)
    held_out = WeightedLists.frequencies(mixed_log[np.arange(len(mixed_log)) % 2 == 0])
    with raises_code("zero-propensity", DataError, count=21):
        value("List", logged, target, held_out)
    records, h, pi = records_of(mixed_log, 3), policy_of(target), policy_of(held_out)
    total, used = 0.0, 0
    for q, a, c in records:
        if q in pi:
            used += 1
            p = pi[q].get(a, 0.0)
            total += sum(c[: len(a)]) * (min(h[q][a] / p, 3.0) if p else 3.0)
    assert path("List", logged, target, held_out, 3.0).value[0, 0] == pytest.approx(total / used, rel=1e-12)


@pytest.mark.parametrize("clip", [(), (0.0,), (-1.0,), (2.0, 1.0), (1.0, 1.0), (math.nan,)])
def test_clipping_constants_must_ascend_above_0(clip: tuple[float, ...]) -> None:
    with raises_code("bad-clip", SpecError):
        checked_clip(clip)


def test_names_say_what_an_estimator_is() -> None:
    model = wrong_model()
    for text in ("List", "SN-IP", "DR-List", "DR-SN-IP", "DM"):
        assert Estimator.named(text, model).name == text
    for text in ("Lists", "SN-DM", "SN-DR-IP", "XX-IP", ""):
        with raises_code("unknown-name", SpecError, value=text):
            Estimator.named(text, model)
    with raises_code("missing-model", SpecError, value="DR-IP"):
        Estimator.named("DR-IP")
    with raises_code("bad-option", SpecError):
        Estimator(None)


def pseudo_inverse(records: list[Record], h: Policy, ranks: int) -> Callable[[int, tuple[int, ...]], float]:
    """w(A) = q^T pinv(G) 1_A (Swaminathan et al. 2017, eq. 1), by dense matrices."""
    pi = list_frequencies(records)
    weight: dict[tuple[int, tuple[int, ...]], float] = {}
    for query, lists in h.items():
        place = {(a[k], k): 0 for policy in (lists, pi[query]) for a in policy for k in range(min(len(a), ranks))}
        place = {key: number for number, key in enumerate(place)}

        def marked(a: tuple[int, ...], place: dict[tuple[int, int], int] = place) -> np.ndarray:
            out = np.zeros(len(place))
            out[[place[a[k], k] for k in range(len(a))]] = 1
            return out

        q = sum(p * marked(a) for a, p in lists.items())
        gram = sum(p * np.outer(marked(a), marked(a)) for a, p in pi[query].items())
        solved = q @ np.linalg.pinv(gram, hermitian=True)
        weight |= {(query, a): float(solved @ marked(a)) for a in pi[query]}
    return lambda query, a: weight[query, a]


@pytest.mark.parametrize("reward", ["clicks", "dcg@2", "any-click"])
@pytest.mark.parametrize("clip", [0.7, INF])
def test_the_pseudo_inverse_is_that_of_dense_matrices(
    reward: str, clip: float, mixed_log: Sessions, mixed_target: WeightedLists
) -> None:
    """Also where places of the target cannot be put together from logged lists."""
    earns = Reward.named(reward)
    logged = GroupedLog.of(mixed_log, earns)
    ranks = logged.n_ranks
    records, h = records_of(mixed_log, ranks), cut(policy_of(mixed_target), ranks)
    weight = pseudo_inverse(records, h, ranks)
    used = [r for r in records if r[0] in h]
    clicks = np.array([[*c, *[False] * (ranks - len(c))][:ranks] for _, _, c in used])
    weights = np.array([weight(q, a) for q, a, _ in used])
    expected = np.mean(earns.earned(clicks) * np.minimum(weights, clip))
    found = path("PI", logged, mixed_target, "frequencies", clip)
    assert found.value[0, 0] == pytest.approx(expected, rel=1e-7)
    assert (weights < 0).any(), "weights of a pseudo-inverse may be negative"


def test_lost_places_bound_what_the_pseudo_inverse_can_miss() -> None:
    logging = tuple(int(a in {(0, 1), (2, 3), (1, 0)}) for a in LISTS)
    for target in ({(0, 3)}, {(3, 2)}, {(0, 1), (2, 1)}, {(0, 3), (2, 1)}):
        world = World(logging, tuple(float(a in target) for a in LISTS), by_place)
        found = path("PI", GroupedLog.of(world.population()), world.lottery(world.h()))
        assert found.floor[0, 0] - 1e-9 <= world.value() <= found.ceiling[0, 0] + 1e-9
        told = target == {(0, 3), (2, 1)}  # its places are those of the first two logged lists
        assert (found.never_logged[0] < 1e-6) == told
        if told:
            assert found.value[0, 0] == pytest.approx(world.value(), rel=1e-9)


def test_pseudo_inverse_wants_frequencies_and_no_normalising(mixed_log: Sessions, mixed_target: WeightedLists) -> None:
    with raises_code("frequencies-only", CapabilityError, estimator="PI"):
        path("PI", GroupedLog.of(mixed_log), mixed_target, mixed_target)
    with raises_code("bad-option", SpecError):
        Estimator.named("SN-PI")


def cascade_model(attractiveness: tuple[float, ...] = ATTRACTIVENESS) -> CM:
    return CM(WORDS, pair_table(np.array(attractiveness), unseen=0.5))


def seen_by_cascade(shown: tuple[int, ...], rank: int) -> float:
    """Users go on until they click."""
    return ATTRACTIVENESS[shown[rank]] * (1 - ATTRACTIVENESS[shown[0]] if rank else 1)


def test_a_log_of_one_ranker_is_enough_where_the_click_model_is_right() -> None:
    world = World(tuple(60 * (a == (1, 3)) for a in LISTS), tuple(float(a == (3, 1)) for a in LISTS), seen_by_cascade)
    logged, target = GroupedLog.of(world.population()), world.lottery(world.h())
    assert value(Estimator(CIPSWeights(cascade_model())), logged, target) == pytest.approx(world.value(), rel=1e-12)
    for name in ("List", "IP"):
        assert math.isnan(value(name, logged, target))


@pytest.mark.parametrize("theta", [(1.0, 1.0), (1.0, 0.25)])
def test_a_click_model_needs_to_be_right_but_for_a_factor_of_each_document(theta: tuple[float, ...]) -> None:
    world = World(PI, H, pbm)
    logged, target = GroupedLog.of(world.population(), Reward(weights=theta)), world.lottery(world.h())
    wrong_relevance = PBMModel(WORDS, wrong_model().attractiveness, np.array([1.0, 0.5]))
    found = path(Estimator(CIPSWeights(wrong_relevance)), logged, target)
    assert found.value[0, 0] == pytest.approx(world.value(theta), rel=1e-12)
    fitted = path(Estimator(PBMWeights((1.0, 0.5))), logged, target)
    for name in ("value", "floor", "ceiling", "most", "never_logged"):
        assert getattr(found, name) == pytest.approx(getattr(fitted, name), rel=1e-12, abs=1e-12)
    assert abs(value(Estimator(CIPSWeights(wrong_model())), logged, target) - world.value(theta)) > 0.005


def test_click_ratios_know_what_the_log_lacks() -> None:
    logging = tuple(60 * (a in {(0, 1), (1, 2)}) for a in LISTS)
    world = World(logging, tuple(float(a in {(3, 1), (1, 0)}) for a in LISTS), pbm)
    logged, target = GroupedLog.of(world.population()), world.lottery(world.h())
    found = path(Estimator(CIPSWeights(right_model())), logged, target)
    assert found.never_logged[0] == pytest.approx(0.5, rel=1e-12), "document 3 is first in half of the lists"
    assert found.floor[0, 0] <= world.value() <= found.ceiling[0, 0]
    assert found.ceiling[0, 0] - found.floor[0, 0] == pytest.approx(0.5, rel=1e-12)


def test_cascade_dr_is_its_definition(rng: np.random.Generator) -> None:
    """1/n sum_i sum_k w_{1:k} (theta_k r_k - Q_k) + w_{1:k-1} E_target[Q_k] (Kiyohara et al. 2022, eq. 9)."""
    world, theta = World(PI, H, cascade), (1.0, 0.25)
    log, model = world.draw(300, rng), cascade_model((0.9, 0.1, 0.5, 0.3))
    h, pi = dict(zip(LISTS, world.h(), strict=True)), dict(zip(LISTS, world.pi(), strict=True))

    def begins(policy: dict[tuple[int, ...], float], a: tuple[int, ...]) -> float:
        return sum(p for b, p in policy.items() if b[: len(a)] == a)

    expected = dict(zip(LISTS, model.click_prob(all_lists()) * theta, strict=True))

    def value_from(a: tuple[int, ...]) -> float:
        """What a list that begins so earns from its next rank on, under the target."""
        k = len(a)
        if k == RANKS:
            return 0.0
        ends = [(*a, d) for d in range(DOCS) if d not in a]
        return sum(begins(h, b) * q(b) for b in ends) / begins(h, a)

    def q(a: tuple[int, ...]) -> float:
        k, whole = len(a) - 1, next(b for b in LISTS if b[: len(a)] == a)
        return float(expected[whole][k]) + value_from(a)

    total = 0.0
    for _, a, c in records_of(log, RANKS):
        for k in range(RANKS):
            w, above = (begins(h, a[:j]) / begins(pi, a[:j]) for j in (k + 1, k))
            total += w * (theta[k] * c[k] - q(a[: k + 1])) + above * value_from(a[:k])
    logged = GroupedLog.of(log, Reward(weights=theta))
    found = value(Estimator.named("Cascade-DR", model), logged, world.lottery(world.h()), world.lottery(world.pi()))
    assert found == pytest.approx(total / len(log), rel=1e-12)


def test_the_error_of_examination_is_in_the_interval() -> None:
    """The delta method by hand: value = sum_a C_a e_h(a) / e_pi(a), moved by the logit of the second rank."""
    world = World(PI, H, pbm)
    log, target = world.draw(2000, np.random.default_rng(5)), world.lottery(world.h())
    logged = GroupedLog.of(log)

    def model(error: float, second: float = 0.5) -> PBMModel:
        impressions = pair_table(np.ones(DOCS), unseen=0.0)
        evidence = Evidence("", impressions, impressions, {"examination": np.array([0.0, error])})
        return PBMModel(WORDS, right_model().attractiveness, np.array([1.0, second]), evidence=evidence)

    interval = Bootstrap(2000, seed=3)
    sure, unsure = (
        evaluate_target(logged, target, [Estimator(CIPSWeights(model(e)))], interval=interval)[0].estimates[0]
        for e in (1e-9, 0.8)
    )
    step = 1e-4
    up, down = (value(Estimator(CIPSWeights(model(0, 1 / (1 + math.exp(-s))))), logged, target) for s in (step, -step))
    slope = (up - down) / (2 * step)
    assert unsure.value == sure.value
    assert unsure.error == pytest.approx(math.hypot(sure.error, 0.8 * slope), rel=0.05)
    assert unsure.error > 1.5 * sure.error
    assert "standard errors of the click model's shared parameters" in unsure.notes[-1]
