"""Kinds of propensities by position: each serves the estimators whose probabilities it gives, and no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickshift import Oracle, PlackettLuce
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import CapabilityError, DataError, SpecError
from clickshift.io.read_log import write_log
from clickshift.io.target_files import write_target
from clickshift.models import PBM
from clickshift.models.base import pair_table
from clickshift.ope import (
    Bernstein,
    Bootstrap,
    Estimator,
    GroupedLog,
    Reward,
    WeightedLists,
    evaluate_policy,
    evaluate_target,
)
from clickshift.ope.bound_estimator import BoundEstimator, ClusterTerms
from clickshift.ope.estimators import checked_clip
from clickshift.ope.grouped_log import tally_resampled
from clickshift.ope.target_policy import TargetProbabilities
from tests.cli.conftest import shell  # noqa: F401
from tests.cli.shell import Shell
from tests.codes import raises_code
from tests.ope.small_worlds import ATTRACTIVENESS, LISTS, RANKS, WORDS, Clicks, World, by_place, cascade, whole_list
from tests.ope.test_estimators import PI, H, path, policy_of
from tests.ope.test_holes import INF, holed_log, holed_target  # noqa: F401
from tests.ope.test_position_propensities import marginals, with_propensities

FIRST, SECOND = {0: 0.25, 1: 0.75}, {2: 0.4, 3: 0.6}
"""A policy that fills each of two positions by itself, with documents of its own."""
INDEPENDENT = tuple(round(20 * FIRST.get(a, 0) * SECOND.get(b, 0)) for a, b in LISTS)
OTHER = tuple(
    float(5 * (n > 0) + 3 * (a == (0, 3)) - 4 * (a == (1, 3))) for a, n in zip(LISTS, INDEPENDENT, strict=True)
)
"""A target with the same support, whose positions depend on each other."""
MODEL = PBM(WORDS, pair_table(np.array([0.9, 0.1, 0.4, 0.3]), unseen=0.5), np.array([0.9, 0.7]))


def recorded(world: World, kind: str) -> dict[tuple[int, ...], list[float]]:
    """Propensities by position of each list of the small world, by their definitions."""
    placed, prob = marginals(world.pi()), dict(zip(LISTS, world.pi(), strict=True))
    out = {}
    for shown in LISTS:
        prefix = [sum(p for a, p in prob.items() if a[: k + 1] == shown[: k + 1]) for k in range(RANKS)]
        out[shown] = {
            "marginal": [placed[doc, k] for k, doc in enumerate(shown)],
            "cascade": prefix,
            "conditional": [p / above if above else 1 for p, above in zip(prefix, [1.0, *prefix], strict=False)],
            "independent": [placed[doc, k] for k, doc in enumerate(shown)],
        }[kind]
    return out


def population(world: World, kind: str) -> Sessions:
    log, values = world.population(), recorded(world, kind)
    return with_propensities(log, np.array([values[tuple(map(int, row))] for row in log.rankings.pair]))


def value(name: str, log: Sessions, kind: str, target: WeightedLists, theta: tuple[float, ...] = (1.0, 1.0)) -> float:
    estimator = Estimator.named(name, MODEL if name.startswith("DR") else None)
    logged = GroupedLog.of(log, Reward(weights=theta), propensity_kind=kind)
    return float(path(estimator, logged, target, "propensities").value[0, 0])


CASES = [
    *(("conditional", *case) for case in (("RIPS", cascade), ("SN-RIPS", cascade), ("DR-RIPS", cascade))),
    *(("cascade", *case) for case in (("RIPS", cascade), ("List", whole_list), ("DR-List", whole_list))),
    ("conditional", "List", whole_list),
    ("conditional", "SN-List", whole_list),
]


@pytest.mark.parametrize(("kind", "name", "click"), CASES)
@pytest.mark.parametrize("theta", [(1.0, 1.0), (1.0, 0.25), (1.0,)])
def test_the_expectation_is_the_value(kind: str, name: str, click: Clicks, theta: tuple[float, ...]) -> None:
    click = cascade if len(theta) == 1 else click  # what is cut off must not matter
    world = World(PI, H, click)
    truth = world.value((*theta, 0.0)[:2]) if len(theta) == 1 else world.value(theta)
    log, target = population(world, kind), world.lottery(world.h())
    assert value(name, log, kind, target, theta) == pytest.approx(truth, rel=1e-12)
    estimator = Estimator.named(name, MODEL if name.startswith("DR") else None)
    logged = GroupedLog.of(log, Reward(weights=theta), propensity_kind=kind)
    probabilities = TargetProbabilities.at(logged, target, prefixes=True)
    bound = BoundEstimator.of(estimator, logged, probabilities, "propensities", target=target)
    assert bound.mean_weight()[0] == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "click"),
    [
        ("IP", by_place), ("SN-IP", by_place), ("DR-IP", by_place), ("RIPS", cascade), ("List", whole_list),
        ("PI", by_place), ("DR-PI", by_place),
    ],
)  # fmt: skip
@pytest.mark.parametrize("theta", [(1.0, 1.0), (1.0, 0.25)])
def test_independent_positions_serve_all(name: str, click: Clicks, theta: tuple[float, ...]) -> None:
    world = World(INDEPENDENT, OTHER, click)
    assert np.linalg.matrix_rank(world.h().reshape(4, 3)) > 1, "positions of the target depend on each other"
    log, target = population(world, "independent"), world.lottery(world.h())
    assert value(name, log, "independent", target, theta) == pytest.approx(world.value(theta), rel=1e-12)


def test_pi_of_independent_positions_is_the_pseudo_inverse() -> None:
    """The closed form is what list frequencies give, in a log with exactly these; also of a reward that is no sum."""
    world = World(INDEPENDENT, OTHER, whole_list)
    log, target = population(world, "independent"), world.lottery(world.h())
    for reward in ("clicks", "any-click"):
        logged = GroupedLog.of(log, reward, propensity_kind="independent")
        found = [path("PI", logged, target, kind).value[0, 0] for kind in ("propensities", "frequencies")]
        assert found[0] == pytest.approx(found[1], rel=1e-9)


def test_pi_is_unbiased_where_an_independent_coin_makes_holes() -> None:
    """Three ranks with documents of their own; the second is a hole in a third of the sessions."""
    docs, weight = [[0, 1], [2, 3, UNSEEN], [4, 5]], [[0.25, 0.75], [0.5, 1 / 6, 1 / 3], [0.5, 0.5]]
    words, _, _ = Vocabulary.of(np.zeros(6, int), np.arange(6))
    attractive = np.array(
        [[0.6, 0.1, 0.3], [0.2, 0.4, 0.5], [0.7, 0.2, 0.1], [0.1, 0.9, 0.3], [0.2, 0.2, 0.8], [0.3] * 3]
    )
    rows = []
    for picked in product(*(range(len(d)) for d in docs)):
        a = [docs[k][i] for k, i in enumerate(picked)]
        p = [weight[k][i] for k, i in enumerate(picked)]
        click = [0.0 if doc == UNSEEN else attractive[doc, k] for k, doc in enumerate(a)]
        for clicks in product((0, 1), repeat=3):
            chance = np.prod([c if x else 1 - c for x, c in zip(clicks, click, strict=True)])
            count = round(120_000 * float(np.prod(p)) * float(chance))
            if count:
                rows.append((a, clicks, p, count))
    pair, click, propensity, count = (np.array(column) for column in zip(*rows, strict=True))
    shown = pair != UNSEEN
    lists = Rankings(words, np.zeros(len(rows), int), pair, shown, propensity=np.where(shown, propensity, 0))
    log = Sessions(lists, click.astype(bool), count)
    lists_of_target = np.array([[0, 2, 5], [1, 3, 4]])
    target = WeightedLists(Rankings(words, np.zeros(2, int), lists_of_target), np.array([0.7, 0.3]))
    truth = target.weight @ attractive[lists_of_target, np.arange(3)].sum(axis=1)
    for name in ("PI", "IP"):
        assert value(name, log, "independent", target, (1.0, 1.0, 1.0)) == pytest.approx(truth, rel=2e-4)


REFUSED = [
    ("marginal", "RIPS", "no-prefix-propensities", CapabilityError, ["conditional", "cascade", "independent"]),
    ("marginal", "List", "missing-propensities", DataError, ["conditional", "cascade", "independent"]),
    ("marginal", "PI", "frequencies-only", CapabilityError, ["independent"]),
    ("conditional", "PI", "frequencies-only", CapabilityError, ["independent"]),
    *((kind, name, "no-rank-propensities", CapabilityError, ["marginal"])
      for kind in ("conditional", "cascade") for name in ("IP", "PBM", "Item")),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name", "code", "error", "options"), REFUSED)
def test_other_estimators_are_refused_with_the_option_to_pass(
    kind: str, name: str, code: str, error: type[Exception], options: list[str]
) -> None:
    world = World(PI, H, by_place)
    log, target = population(world, kind), world.lottery(world.h())
    with raises_code(code, error) as caught:
        value(name, log, kind, target)
    assert all(f'propensity_kind="{option}"' in str(caught.value) for option in options)


@pytest.mark.parametrize(("kind", "name"), [("conditional", "IP"), ("marginal", "RIPS"), ("marginal", "List")])
def test_what_is_refused_would_be_biased(kind: str, name: str) -> None:
    """The same numbers under a name that they do not have: an estimator off the truth by more than a percent."""
    world = World(PI, H, by_place)
    false = "marginal" if kind == "conditional" else "conditional"
    found = value(name, population(world, kind), false, world.lottery(world.h()))
    assert abs(found / world.value() - 1) > 0.01


def test_each_result_is_weighted_by_the_propensity_of_its_own_prefix(
    holed_log: Sessions,  # noqa: F811
    holed_target: WeightedLists,  # noqa: F811
    rng: np.random.Generator,
) -> None:
    """Session by session: equal prefixes carry different propensities, some ranks are holes, weights are clipped."""
    own = with_propensities(holed_log, rng.choice([0.3, 0.6, 0.9], holed_log.rankings.pair.shape))
    r, h, theta = own.rankings, policy_of(holed_target), (1.0, 0.5, 0.25)
    assert r.propensity is not None
    total = {"RIPS": 0.0, "List": 0.0}
    sessions = 0.0
    for i in range(len(own)):
        if (q := int(r.query[i])) not in h:
            continue
        sessions += own.count[i]
        shown = [int(p) if s else UNSEEN for p, s in zip(r.pair[i], r.shown[i], strict=True)]
        so_far, rewards = 1.0, 0.0
        for k in range(int(r.length[i])):
            if shown[k] == UNSEEN:
                continue
            so_far *= r.propensity[i, k]
            prefix = tuple(shown[: k + 1])
            prob = sum(p for a, p in h[q].items() if a[: k + 1] == prefix)
            reward = theta[k] * float(own.click[i, k])
            rewards += reward
            total["RIPS"] += own.count[i] * reward * min(prob / so_far, 1.3)
        prob = h[q].get(tuple(shown[: int(r.length[i])]), 0.0)
        total["List"] += own.count[i] * rewards * min(prob / so_far, 1.3)
    logged = GroupedLog.of(own, Reward(weights=theta), propensity_kind="conditional")
    for name, expected in total.items():
        found = path(name, logged, holed_target, "propensities", 1.3)
        assert found.value[0, 0] == pytest.approx(expected / sessions, rel=1e-12), name
        assert expected > 0


@pytest.mark.parametrize("name", ["RIPS", "PI", "List"])
def test_resampled_terms_are_those_of_resampled_tallies(name: str, rng: np.random.Generator) -> None:
    world = World(INDEPENDENT, OTHER, by_place)
    drawn = world.draw(150, rng)
    plain = Sessions(replace(drawn.rankings, log_prob=None), drawn.click)
    log = with_propensities(plain, rng.choice([0.3, 0.9], drawn.click.shape))
    logged, target = GroupedLog.of(log, propensity_kind="independent"), world.lottery(world.h())
    probabilities = TargetProbabilities.at(logged, target, prefixes=True)
    bound = BoundEstimator.of(Estimator.named(name), logged, probabilities, "propensities", target=target)
    clip, clusters = checked_clip((1.5, INF)), logged.clusters
    times = rng.poisson(1.0, (len(clusters.size), 3)).astype(np.uint16)
    terms = ClusterTerms.of(bound, clip)
    assert terms is not None
    tally = tally_resampled(logged, clusters.entry, clusters.click, times, clusters.of_row, clusters.count)
    one, other = terms.path(times), bound.path(tally, clip)
    for field in ("value", "floor", "ceiling"):
        assert getattr(one, field) == pytest.approx(getattr(other, field), rel=1e-10)
    if name == "PI":
        assert (bound.known_weights() < 0).any()
        assert (one.floor <= one.value).all(), "what is lost may have either sign"
        with raises_code("invalid-bounds", CapabilityError, reason="not-a-mean"):
            evaluate_target(logged, target, ["PI"], logging="propensities", clip=[2.0], interval=Bernstein())


def plackett_luce_log(
    n: int, rng: np.random.Generator, temperature: float = 1.0, times: int = 1
) -> tuple[Sessions, Corpus, Callable[[float], PlackettLuce]]:
    """Lists of three of five documents by a Plackett-Luce sampler that records the probability of each draw.

    A click depends on the document and the one above it, and `times` sessions belong to each context.
    """
    docs, ranks = 5, 3
    words, _, _ = Vocabulary.of(np.repeat(np.arange(n), docs), np.tile(np.arange(docs), n))
    label = rng.integers(0, 3, n * docs).astype(float)
    corpus = Corpus(words, label)
    query = np.repeat(np.arange(n), times)
    score = label.reshape(n, docs)[query] / temperature
    order = np.argsort(-(score + rng.gumbel(size=score.shape)), axis=1)[:, :ranks]
    weight, left, propensity = np.exp(score), np.exp(score).sum(axis=1), np.empty(order.shape)
    for k in range(ranks):
        own = np.take_along_axis(weight, order[:, k : k + 1], axis=1)[:, 0]
        propensity[:, k], left = own / left, left - own
    relevance = 0.1 + 0.3 * np.take_along_axis(label.reshape(n, docs)[query], order, axis=1)
    above = np.concatenate([np.zeros((len(query), 1)), relevance[:, :-1]], axis=1)
    click = rng.random(order.shape) < relevance * (1 - above)
    lists = Rankings(words, query, order + docs * query[:, None], propensity=propensity)
    return Sessions(lists, click), corpus, lambda t: PlackettLuce(Oracle(scale="label"), temperature=t)


def true_value(log: Sessions, target: Any) -> float:
    """Expected clicks under a target, by its probabilities of all lists."""
    words, total = log.vocabulary, 0.0
    from itertools import permutations

    lists = np.array(list(permutations(range(5), 3)), np.int32)
    query = np.repeat(np.arange(words.n_queries, dtype=np.int32), len(lists))
    pair = np.tile(lists, (words.n_queries, 1)) + 5 * query[:, None]
    prob = np.exp(target.log_prob(Rankings(words, query, pair)))
    relevance = 0.1 + 0.3 * target.score[pair]
    above = np.concatenate([np.zeros((len(pair), 1)), relevance[:, :-1]], axis=1)
    total = float(prob @ (relevance * (1 - above)).sum(axis=1))
    return total / words.n_queries


def test_a_plackett_luce_sampler_records_conditional_propensities() -> None:
    """RIPS and List by what it recorded are those by the policy itself; cascade propensities are the products."""
    log, corpus, policy = plackett_luce_log(20, np.random.default_rng(1), temperature=2.0, times=200)
    target, known = policy(1.0).on(corpus), policy(2.0).on(corpus)
    r = log.rankings
    assert r.propensity is not None
    products = with_propensities(log, np.cumprod(r.propensity, axis=1))
    for name in ("RIPS", "SN-RIPS", "List"):
        by_policy = path(name, GroupedLog.of(log), target, known).value[0, 0]
        for source, kind in ((log, "conditional"), (products, "cascade")):
            logged = GroupedLog.of(source, propensity_kind=kind)
            assert path(name, logged, target, "propensities").value[0, 0] == pytest.approx(by_policy, rel=1e-9)


def test_contexts_that_occur_once_are_evaluated_with_intervals_that_hold_the_truth() -> None:
    held = {"RIPS": 0, "List": 0, "DR-RIPS": 0}
    for seed in range(40):
        log, corpus, policy = plackett_luce_log(300, np.random.default_rng(seed), temperature=2.0)
        target = policy(1.0).on(corpus)
        truth = true_value(log, target)
        model = PBM(log.vocabulary, pair_table(np.full(1500, 0.4), unseen=0.4), np.array([1.0, 0.7, 0.6]))
        logged = GroupedLog.of(log, propensity_kind="conditional")
        chosen = ["RIPS", "List", Estimator.named("DR-RIPS", model)]
        interval = Bootstrap(100, seed=seed)
        for found in evaluate_target(logged, target, chosen, logging="propensities", interval=interval):
            (e,) = found.estimates
            held[e.estimator] += e.low <= truth <= e.high
    assert min(held.values()) >= 35, held


def test_the_answer_rests_on_prefixes_where_whole_lists_are_too_rare() -> None:
    log, corpus, policy = plackett_luce_log(700, np.random.default_rng(5), temperature=4.0)
    target = policy(0.0).on(corpus)
    evaluation = evaluate_policy(
        log, target, logging="propensities", propensity_kind="conditional", clip=[INF], replicates=20
    )
    answer = evaluation.answer
    assert answer is not None
    rows = {row["estimator"]: row for row in evaluation.rows()}
    assert list(rows) == ["List", "RCTR", "RIPS"]
    assert rows["List"]["effective"] < 100 < rows["RIPS"]["effective"]
    assert (answer.estimator, answer.verdict) == ("RIPS", "usable")
    assert "on those above it" in answer.reasons[0]
    assert answer.low < true_value(log, target) < answer.high
    assert evaluation.settings["propensity_kind"] == "conditional"


def test_a_target_is_a_file_a_frame_or_a_policy(
    shell: Shell,  # noqa: F811
    tmp_path: Path,
) -> None:
    """The probabilities of the target's prefixes come from weighted lists as well as from the policy."""
    world = World(PI, H, cascade)
    log, target = population(world, "conditional"), world.lottery(world.h())
    write_log(log, tmp_path / "log.parquet")
    write_target(tmp_path / "target.csv", target)
    frame = {"query": [0] * 12, "docs": [list(a) for a in LISTS], "weight": world.h()}
    import pandas as pd

    options: dict[str, Any] = {"estimators": ["RIPS"], "clip": [INF], "replicates": 20}
    options |= {"logging": "propensities", "propensity_kind": "conditional"}
    for given in (target, tmp_path / "target.csv", pd.DataFrame(frame)):
        for source in (log, tmp_path / "log.parquet"):
            (row,) = evaluate_policy(source, given, **options).rows()
            assert row["value"] == pytest.approx(world.value(), rel=1e-9)
    command = ["ope", str(tmp_path / "log.parquet"), "--target", str(tmp_path / "target.csv"), "--estimator", "RIPS"]
    command += ["--clip", "inf", "--replicates", "20", "--logging", "propensities", "--json", "--propensity-kind"]
    (row,) = json.loads(shell.text(*command, "conditional"))["rows"]
    assert row["value"] == pytest.approx(world.value(), rel=1e-9)
    assert "pass --propensity-kind conditional" in shell.error(*command, "marginal")
    assert "--propensity-kind must be marginal" in shell.error(*command, "joint")


def test_wrong_kinds_are_noticed() -> None:
    world = World(PI, H, cascade)
    log = population(world, "conditional")
    with raises_code("bad-option", SpecError, option="propensity_kind"):
        GroupedLog.of(log, propensity_kind="joint")
    target = world.lottery(world.h())
    with raises_code("rising-propensities", DataError):
        value("RIPS", log, "cascade", target)
    prob = dict(zip(LISTS, world.pi(), strict=True))
    r = log.rankings
    of_lists = np.log([prob[tuple(map(int, row))] for row in r.pair])
    both = Sessions(replace(r, log_prob=of_lists), log.click, log.count)
    assert value("List", both, "conditional", target) == pytest.approx(world.value(), rel=1e-12)
    with raises_code("propensities-disagree", DataError):
        value("List", with_propensities(both, marginals(world.pi())[r.pair, np.arange(2)]), "independent", target)


def test_pi_refuses_a_target_that_leaves_ranks_empty() -> None:
    world = World(INDEPENDENT, OTHER, by_place)
    shorter = WeightedLists(
        Rankings(WORDS, np.zeros(2, int), np.array([[0, 2], [0, UNSEEN]]), np.array([[1, 1], [1, 0]], bool)),
        np.array([0.5, 0.5]),
    )
    with raises_code("unfilled-ranks", CapabilityError, count=1):
        value("PI", population(world, "independent"), "independent", shorter)
    assert value("IP", population(world, "independent"), "independent", shorter) == pytest.approx(
        by_place((0, 2), 0) + 0.5 * by_place((0, 2), 1)
    )


def test_a_hole_that_is_always_there_is_certain() -> None:
    """An advertisement at rank 2 of every list: RIPS and List are exact for a target that keeps it there."""
    world = World(PI, H, cascade)
    log = population(world, "conditional")
    r, wide = log.rankings, [0, 2]

    def with_hole(lists: Rankings, propensity: np.ndarray | None) -> Rankings:
        pair, shown = np.full((len(lists), 3), UNSEEN), np.zeros((len(lists), 3), bool)
        pair[:, wide], shown[:, wide] = lists.pair, True
        given = None if propensity is None else np.insert(propensity, 1, 0.0, axis=1)
        return Rankings(lists.vocabulary, lists.query, pair, shown, propensity=given)

    holed = Sessions(with_hole(r, r.propensity), np.insert(log.click, 1, False, axis=1), log.count)
    target = WeightedLists(with_hole(world.lottery(world.h()).lists, None), world.h())
    for name in ("RIPS", "List"):
        assert value(name, holed, "conditional", target, (1.0, 1.0, 1.0)) == pytest.approx(world.value(), rel=1e-12)
    assert ATTRACTIVENESS[1] == 0.8
