"""Intervals: closed forms, coverage in small worlds, and bounds where they hold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import CapabilityError, SpecError
from clickshift.models import PBM
from clickshift.models.base import pair_table
from clickshift.ope import (
    Bernstein,
    Bootstrap,
    Estimator,
    GroupedLog,
    Hoeffding,
    WeightedLists,
    evaluate_target,
    paired_difference,
)
from clickshift.ope import intervals as module
from clickshift.ope.intervals import Interval
from tests.codes import raises_code
from tests.ope.small_worlds import LISTS, RANKS, WORDS, World, by_place, pbm, whole_list
from tests.suite import Study

INF = math.inf
PI = (1, 2, 3, 4, 5, 6, 7, 8, 9, 5, 6, 4)
H = (9, 3, 1, 1, 2, 4, 6, 1, 1, 20, 2, 10)


@pytest.mark.parametrize("size", [1.0, 3.0, 50.0, 2000.0])
def test_clusters_are_drawn_a_poisson_number_of_times(size: float) -> None:
    from scipy.special import pdtr

    n = 20_000
    sizes = np.full(n, size)
    mode = np.floor(sizes)
    drawn = np.empty((n, 4))
    once = pdtr(np.arange(6.0), 1.0)
    module._draw(7, 0, sizes, mode, pdtr(mode, sizes), module._poisson_prob(mode, sizes), once, drawn)
    draws = drawn.ravel()
    for at in np.unique(np.quantile(draws, [0.02, 0.2, 0.5, 0.8, 0.98])):
        expected = pdtr(at, size)
        assert abs((draws <= at).mean() - expected) < 4.5 * math.sqrt(expected * (1 - expected) / draws.size)
    assert abs(np.corrcoef(drawn.T) - np.eye(4)).max() < 4.5 / math.sqrt(n), "replicates are independent"


def test_the_bootstrap_error_of_a_mean_is_its_standard_error() -> None:
    world = World(PI, H, by_place)
    log = world.draw(800, np.random.default_rng(4))
    logged, target, pi = GroupedLog.of(log), world.lottery(world.h()), world.pi()
    h = dict(zip(LISTS, world.h().tolist(), strict=True))
    known = dict(zip(LISTS, pi.tolist(), strict=True))
    place = {
        (d, k): [sum(p[a] for a in LISTS if a[k] == d) for p in (h, known)] for d in range(4) for k in range(RANKS)
    }
    terms = []
    for a, c in zip(log.rankings.pair.tolist(), log.click, strict=True):
        lists = c.sum() * min(h[tuple(a)] / known[tuple(a)], 3.0)
        places = sum(c[k] * min(place[a[k], k][0] / place[a[k], k][1], 3.0) for k in range(RANKS))
        terms.append((lists, places, c.sum()))
    expected = np.std(terms, axis=0, ddof=1) / math.sqrt(len(log))
    boot = evaluate_target(
        logged, target, ["List", "IP", "RCTR"], clip=(3.0,), logging=world.lottery(pi), interval=Bootstrap(1500)
    )
    assert [e.estimates[0].error for e in boot] == pytest.approx(expected, rel=0.08)
    bound = evaluate_target(
        logged, target, ["List", "IP", "RCTR"], clip=(3.0,), logging=world.lottery(pi), interval=Bernstein()
    )
    assert [e.estimates[0].error for e in bound] == pytest.approx(expected, rel=1e-9)
    for e in boot:
        one = e.estimates[0]
        assert one.high - one.low == pytest.approx(2 * 1.959964 * one.error, rel=1e-6)


def test_frequencies_are_estimated_anew_in_every_replicate() -> None:
    """With weights h n / n_A, V = sum of h(A) mean(A): its variance is sum of h^2 var(A) / n_A, by the delta method.

    Weights held fixed would give another one.
    """
    world = World(PI, H, whole_list)
    log = world.draw(3000, np.random.default_rng(2))
    variance, fixed = 0.0, []
    for a, h in zip(LISTS, world.h(), strict=True):
        clicks = log.click[(log.rankings.pair == a).all(axis=1)].sum(axis=1)
        variance += h**2 * clicks.var() / len(clicks)
        fixed += (h * len(log) / len(clicks) * clicks).tolist()
    found = evaluate_target(GroupedLog.of(log), world.lottery(world.h()), ["List"], interval=Bootstrap(1500))[
        0
    ].estimates[0]
    assert found.error == pytest.approx(math.sqrt(variance), rel=0.08)
    assert abs(np.std(fixed) / math.sqrt(len(log)) / math.sqrt(variance) - 1) > 0.3


def test_users_who_do_the_same_five_times_count_once() -> None:
    world = World(PI, H, pbm)
    once = world.draw(2000, np.random.default_rng(6))
    rows = np.repeat(np.arange(2000), 5)
    r = once.rankings
    log = Sessions(Rankings(WORDS, r.query[rows], r.pair[rows]), once.click[rows], user=rows)
    target = world.lottery(world.h())
    names = ["List", "IP", "SN-IP", "PBM"]
    alone, users, naive = (
        [e.estimates[0] for e in evaluate_target(logged, target, names, interval=Bootstrap(600))]
        for logged in (GroupedLog.of(once), GroupedLog.of(log, cluster="user"), GroupedLog.of(log))
    )
    for a, u, n in zip(alone, users, naive, strict=True):
        assert u.value == pytest.approx(a.value, rel=1e-12)
        assert u.error == pytest.approx(a.error, rel=0.12)
        assert u.error == pytest.approx(math.sqrt(5) * n.error, rel=0.12)


NAMES = ["List", "SN-IP", "PBM"]


def clipped_estimates(known: bool, repeats: int, replicates: int) -> tuple[np.ndarray, np.ndarray]:
    """Value, error, low and high of three estimators on many logs, and what they estimate: their clipped values."""
    world = World(PI, H, pbm)
    target = world.lottery(world.h())
    logging = world.lottery(world.pi()) if known else "frequencies"

    def found(logged: GroupedLog, seed: int) -> list[tuple[float, ...]]:
        interval = Bootstrap(replicates, seed=seed)
        asked = evaluate_target(logged, target, NAMES, clip=(2.0,), logging=logging, interval=interval)
        return [(e.value, e.error, e.low, e.high) for e in (one.estimates[0] for one in asked)]

    truth = np.array(found(GroupedLog.of(world.population()), 0))[:, 0]
    assert truth[0] < world.value() - 0.05, "clipping matters here"
    rng = np.random.default_rng(8)
    return np.array([found(GroupedLog.of(world.draw(500, rng)), repeat) for repeat in range(repeats)]), truth


@pytest.mark.parametrize("known", [True, False])
def test_bootstrap_errors_are_the_spread_of_values_over_logs(known: bool) -> None:
    """The spread of 40 logs is known to 11 %: an error that is a third off would be found."""
    found, truth = clipped_estimates(known, 40, 20)
    value, error = found[:, :, 0], found[:, :, 1]
    spread = value.std(axis=0, ddof=1)
    assert error.mean(axis=0) == pytest.approx(spread, rel=0.3)
    assert (np.abs(value.mean(axis=0) - truth) < 4 * spread / math.sqrt(40)).all()


@pytest.mark.study
@pytest.mark.parametrize("known", [True, False])
def test_bootstrap_intervals_cover_the_clipped_value(study: Study, known: bool) -> None:
    """A quick look: the 2,000 repeats are in the benchmarks."""
    logs = study.choose(smallest=3, full=120)
    found, truth = clipped_estimates(known, logs, 60)
    value, _, low, high = np.moveaxis(found, 2, 0)
    assert ((low < value) & (value < high)).all()
    covered = ((low <= truth) & (truth <= high)).mean(axis=0)
    name = f"bootstrap intervals of values, {'known propensities' if known else 'frequencies'}"
    study.record(name, coverage=dict(zip(NAMES, covered.tolist(), strict=True)), level=0.95, logs=logs)
    if study.full:
        assert (covered > 0.89).all()
        assert (covered < 0.995).all()


def test_the_widened_range_covers_the_value_itself() -> None:
    logging = tuple(0 if a in {(1, 0), (3, 2), (0, 1)} else n for a, n in zip(LISTS, PI, strict=True))
    world = World(logging, H, pbm)
    target, rng, hits, repeats = world.lottery(world.h()), np.random.default_rng(9), np.zeros(3), 10
    for repeat in range(repeats):
        logged = GroupedLog.of(world.draw(400, rng))
        found = evaluate_target(
            logged, target, ["List", "IP", "SN-List"], clip=(2.0,), interval=Bootstrap(60, seed=repeat)
        )
        hits += [e.estimates[0].floor_low <= world.value() <= e.estimates[0].ceiling_high for e in found]
        assert all(e.estimates[0].high < world.value() for e in found[:1]), "the plain interval does not, nor claims to"
    assert (hits == repeats).all()


def rare(clicked: int) -> tuple[GroupedLog, WeightedLists, WeightedLists]:
    """The fact sheet's counterexample: K = 1, pi(A) = .01, h(A) = 1, A is always clicked, B never; 100 sessions."""
    words, _, _ = Vocabulary.of([0, 0], [0, 1])
    rows = [0] * clicked + [1] * (100 - clicked)
    pair = np.array(rows, np.int32)[:, None]
    log = Sessions(Rankings(words, np.zeros(100, np.int32), pair), pair == 0)
    lists = Rankings(words, np.array([0, 0]), np.array([[0], [1]]))
    return GroupedLog.of(log), WeightedLists(lists, np.array([1.0, 0.0])), WeightedLists(lists, np.array([0.01, 0.99]))


@pytest.mark.parametrize("interval", [Hoeffding(), Bernstein()])
def test_bounds_hold_where_the_printed_one_does_not(interval: Interval) -> None:
    printed = 1 * math.sqrt(math.log(4 / 0.05) / (2 * 100))
    assert printed == pytest.approx(0.148, abs=5e-4)
    above_printed = outside = 0.0
    for k in range(15):
        prob = math.comb(100, k) * 0.01**k * 0.99 ** (100 - k)
        logged, target, pi = rare(k)
        estimate = evaluate_target(logged, target, ["List"], clip=(100.0,), logging=pi, interval=interval)[0].estimates[
            0
        ]
        if k:
            assert estimate.value == pytest.approx(k)
            above_printed += prob * (estimate.value - 1 > printed)
        outside += prob * (not estimate.low <= 1 <= estimate.high)
        assert estimate.verdict != "usable"
    assert above_printed == pytest.approx(0.264, abs=1e-3), "instead of at most .025"
    assert outside < 0.05


def test_bounds_by_hand() -> None:
    world = World(PI, H, pbm)
    log = world.draw(250, np.random.default_rng(1))
    h, pi = (dict(zip(LISTS, p.tolist(), strict=True)) for p in (world.h(), world.pi()))
    x = np.array(
        [
            c.sum() * min(h[tuple(a)] / pi[tuple(a)], 1.2)
            for a, c in zip(log.rankings.pair.tolist(), log.click, strict=True)
        ]
    )
    logged, target = GroupedLog.of(log), world.lottery(world.h())

    def found(interval: Interval, logging: WeightedLists | str) -> tuple[float, float]:
        e = evaluate_target(logged, target, ["List"], clip=(1.2,), logging=logging, interval=interval)[0].estimates[0]
        return e.low, e.high

    reach = 2 * 1.2 * math.sqrt(math.log(2 / 0.1) / (2 * 250))
    for logging in (world.lottery(world.pi()), "propensities"):
        assert found(Hoeffding(0.9), logging) == pytest.approx((x.mean() - reach, x.mean() + reach), rel=1e-9)
        log4 = math.log(4 / 0.1)
        wide = math.sqrt(2 * x.var(ddof=1) * log4 / 250) + 7 * 2.4 * log4 / (3 * 249)
        expected = (max(0.0, x.mean() - wide), min(2.0, x.mean() + wide))
        assert found(Bernstein(0.9), logging) == pytest.approx(expected, rel=1e-9)


def test_bounds_are_refused_where_they_do_not_hold() -> None:
    world = World(PI, H, pbm)
    log = world.draw(50, np.random.default_rng(1))
    logged, target, pi = GroupedLog.of(log), world.lottery(world.h()), world.lottery(world.pi())
    by_user = GroupedLog.of(log, cluster=np.arange(50) // 2)
    model = PBM(WORDS, pair_table(np.full(4, 0.5), unseen=0.5), np.array([1.0, 0.5]))
    for reason, args, options in (
        ("estimated-logging-policy", (logged, target, ["IP"]), {"clip": (2.0,)}),
        ("no-clipping", (logged, target, ["IP"]), {"logging": pi}),
        ("clusters", (by_user, target, ["IP"]), {"clip": (2.0,), "logging": pi}),
        ("not-a-mean", (logged, target, ["SN-IP"]), {"clip": (2.0,), "logging": pi}),
        ("not-a-mean", (logged, target, [Estimator(None, model=model)]), {"clip": (2.0,)}),
    ):
        for interval in (Hoeffding(), Bernstein()):
            with raises_code("invalid-bounds", CapabilityError, interval=interval.name, reason=reason):
                evaluate_target(*args, interval=interval, **options)  # type: ignore[arg-type]


def test_replicates_do_not_depend_on_threads_or_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(PI, H, pbm)
    log = world.draw(200, np.random.default_rng(1))
    found = []
    for threads, memory in ((1, 1 << 27), (2, 1 << 27), (2, 1)):
        monkeypatch.setenv("CLICKSHIFT_THREADS", str(threads))
        monkeypatch.setattr(module, "_MEMORY", memory)
        found.append(
            evaluate_target(GroupedLog.of(log), world.lottery(world.h()), ["IP"], interval=Bootstrap(37))[0].replicates
        )
    assert found[0] is not None
    assert found[0].shape == (1, 37)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_differences_of_targets_are_paired() -> None:
    world, interval = World(PI, H, pbm), Bootstrap(400)
    logged = GroupedLog.of(world.draw(600, np.random.default_rng(1)))
    near = (0.98 * world.h() + 0.02 * world.pi()).tolist()
    one, other = (
        evaluate_target(logged, world.lottery(np.array(h)), ["IP"], interval=interval)[0] for h in (world.h(), near)
    )
    same = paired_difference(one, one, interval)
    assert (same.value, same.error) == (0, 0)
    found = paired_difference(one, other, interval)
    assert found.value == pytest.approx(other.estimates[0].value - one.estimates[0].value)
    assert 0 < found.error < 0.05 * math.hypot(one.estimates[0].error, other.estimates[0].error)
    assert found.low < found.value < found.high


def test_levels_and_replicates_are_checked() -> None:
    for make in (Bootstrap, Hoeffding, Bernstein):
        with raises_code("bad-level", SpecError, value=1.0):
            make(level=1.0)
    with raises_code("too-few-replicates", SpecError, value=5):
        Bootstrap(5)
    with raises_code("too-many-replicates", SpecError, value=10**29):  # it would never end
        Bootstrap(10**29)
