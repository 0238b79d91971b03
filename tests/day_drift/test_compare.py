"""How days differ: chance against permutations and scipy, alarms against rankers that do and do not change."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import hypergeom

from clickshift.counts.daily import DayCounts
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.day_drift._results import CLICK_THRESHOLD, NEW_DOCUMENT_THRESHOLD, POSITION_THRESHOLD, Change
from clickshift.day_drift.compare import _mean_deviation, _prob_none, compare_days
from clickshift.errors import DataError
from clickshift.io.datasets.open_bandit import read_open_bandit
from tests.codes import raises_code

DOCS = 12


def day(
    rng: np.random.Generator,
    *,
    sessions: int = 2000,
    queries: int = 40,
    ranker: int = 0,
    noise: float = 2.0,
    appeal: float = 1.0,
    shorter: int = 0,
    shift: int = 0,
) -> Sessions:
    """Five documents of twelve, by a ranker with noise; frequent queries have half of the traffic."""
    query = np.minimum(rng.integers(0, queries, sessions), rng.integers(0, queries, sessions))
    score = np.random.default_rng(ranker).permuted(np.tile(np.arange(DOCS), (queries, 1)), axis=1)[query]
    order = np.argsort(score + noise * rng.standard_normal(score.shape), axis=1)[:, :5]
    examined = rng.random((sessions, 5)) < 1 / np.arange(1, 6)
    click = examined & (rng.random((sessions, 5)) < appeal * (0.1 + 0.5 * order / DOCS))
    shown = np.arange(5) < 5 - shorter * rng.integers(0, 2, (sessions, 1))
    words, number, pair = Vocabulary.of(np.repeat(query, 5), (1000 * query[:, None] + order + shift).ravel())
    return Sessions(Rankings(words, number[::5], pair.reshape(-1, 5), shown), click & shown)


def change(*logs: Sessions, ranks: int = 10) -> Change:
    (found,) = compare_days([DayCounts.of(log) for log in logs], ["old", "new"], ranks=ranks).steps
    return found


def test_chance_is_hypergeometric(rng: np.random.Generator) -> None:
    n, m = rng.integers(1, 15, (2, 400))
    marked = rng.integers(0, n + m + 1)
    deviation, none = [], []
    for a, b, c in zip(n, m, marked, strict=True):
        law, x = hypergeom(a + b, c, a), np.arange(a + 1)
        deviation.append(float(law.pmf(x) @ np.abs(x - c * a / (a + b))))
        none.append(float(law.pmf(0)))
    counts = marked.astype(float), n.astype(float), m.astype(float)
    np.testing.assert_allclose(_mean_deviation(*counts), deviation, atol=1e-12)
    np.testing.assert_allclose(_prob_none(*counts), none, atol=1e-12)


@pytest.mark.parametrize("shorter", [0, 1])
def test_chance_is_what_dealing_sessions_anew_gives(shorter: int, rng: np.random.Generator) -> None:
    logs = day(rng, sessions=60, queries=4, shorter=shorter), day(rng, sessions=90, queries=4, shorter=shorter)
    whole, found = Sessions.concat(logs), change(*logs)
    query, n_queries = whole.rankings.query, whole.vocabulary.n_queries
    here = np.arange(150) < 60
    distances: list[float] = []
    new: list[float] = []
    for deal in range(200):
        shuffled = here.copy()
        for q in range(n_queries if deal else 0):  # the first is the log as it is
            shuffled[query == q] = rng.permutation(here[query == q])
        for dealt, share in zip((distances, new), by_hand(whole, shuffled), strict=True):
            dealt.append(share)
    assert found.places.observed == pytest.approx(distances[0], rel=1e-12)
    assert found.new_documents.observed == pytest.approx(new[0], rel=1e-12)
    for share, dealt in ((found.places, distances), (found.new_documents, new)):
        assert share.chance == pytest.approx(np.mean(dealt), abs=4 * np.std(dealt) / 14)
    assert np.std(distances) < found.places.error, "few queries: the most that the error can be"


def by_hand(log: Sessions, here: np.ndarray) -> tuple[float, float]:
    """The distance of places, and the share of new results, of two parts of a log that have the same queries."""
    pairs, total, weights, new, results = log.rankings.pair, 0.0, 0.0, 0.0, 0.0
    for q in range(log.vocabulary.n_queries):
        a, b = pairs[(log.rankings.query == q) & here], pairs[(log.rankings.query == q) & ~here]
        weight = len(a) * len(b) / (len(a) + len(b))
        depth = max((rows >= 0).any(axis=0).sum() for rows in (a, b))
        apart = 0.0
        for r in range(depth):
            ids = set(a[:, r]) | set(b[:, r])  # -1 where nothing is shown
            apart += sum(abs((a[:, r] == i).mean() - (b[:, r] == i).mean()) for i in ids) / 2
        total, weights = total + weight * apart / depth, weights + weight
        new += (~np.isin(b, a) & (b >= 0)).sum()
        results += (b >= 0).sum()
    return total / weights, new / results


def test_a_ranker_that_shows_nothing_of_before() -> None:
    rng = np.random.default_rng(0)
    found = change(day(rng, noise=0), day(rng, noise=0, shift=100))
    assert found.places.change == pytest.approx(1)
    assert found.new_documents.change == pytest.approx(1)
    assert found.clicks == ()
    assert found.verdict == "changed"
    assert found.reasons[0].startswith("100 % of the positions")


def test_a_hole_is_another_content_of_its_rank() -> None:
    """On the later day, half of the lists have an advertisement at rank 1: half of one of three ranks is different."""
    words, _, pair = Vocabulary.of([0, 0, 0], [7, 8, 9])
    lists = np.tile(pair, (100, 1))
    holed = np.where((np.arange(100) % 2 == 0)[:, None] & (np.arange(3) == 0), -1, lists)
    days = [Sessions(Rankings(words, np.zeros(100, int), each), np.zeros((100, 3))) for each in (lists, holed)]
    assert change(*days).places.observed == pytest.approx((0.5 + 0 + 0) / 3)
    assert change(days[1], days[1]).places.observed == 0


def test_the_same_lists_every_day() -> None:
    rng = np.random.default_rng(1)
    found = change(day(rng, noise=0), day(rng, noise=0))
    assert (found.places.observed, found.new_documents.observed) == (0, 0)
    assert (found.verdict, found.reasons) == ("same", [])


@pytest.mark.parametrize("noise", [0.5, 5.0])
@pytest.mark.parametrize(("sessions", "queries"), [(300, 40), (1000, 20), (1000, 1), (1000, 250)])
def test_one_ranker_raises_no_alarm(noise: float, sessions: int, queries: int) -> None:
    found = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        found.append(change(*(day(rng, sessions=sessions, queries=queries, noise=noise) for _ in range(2))))
    assert [c.verdict for c in found].count("changed") == 0
    known = [c.places for c in found if math.isfinite(c.places.error)]
    z = [(places.observed - places.chance) / places.error for places in known]
    assert max(z) < 4
    assert abs(np.mean(z)) < 0.5


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_another_ranker_raises_one(share: float) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        moved = int(2000 * share)
        parts = [day(rng, sessions=moved, ranker=1)] + ([day(rng, sessions=2000 - moved)] if share < 1 else [])
        found = change(day(rng), Sessions.concat(parts))
        assert found.verdict == "changed"
        assert found.places.low > POSITION_THRESHOLD


def test_new_documents_raise_one() -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        fresh = Sessions.concat([day(rng, sessions=1600), day(rng, sessions=400, shift=100)])
        found = change(day(rng), fresh)
        assert found.new_documents.low > NEW_DOCUMENT_THRESHOLD
        assert found.new_documents.change == pytest.approx(0.2, abs=0.03)


def test_other_clicks_raise_one() -> None:
    rng = np.random.default_rng(5)
    found = change(day(rng, sessions=6000), day(rng, sessions=6000, appeal=1.6))
    assert found.verdict == "changed"
    assert found.places.low < POSITION_THRESHOLD
    assert found.clicks[0].ratio == pytest.approx(1.6, rel=0.1)
    assert found.clicks[0].low > 1 + CLICK_THRESHOLD
    assert "the same documents at rank" in found.reasons[0]
    back = change(day(rng, sessions=6000, appeal=1.6), day(rng, sessions=6000))
    assert back.clicks[0].high < 1 / (1 + CLICK_THRESHOLD)


def test_intervals_of_clicks_cover() -> None:
    """Sure for all ranks together: of pairs of days, a thousandth may miss 1 at some rank.

    Intervals of 95 % for each rank would miss in a fifth: of 20 pairs none would miss once in a hundred times.
    """
    for seed in range(20):
        rng = np.random.default_rng(seed)
        found = change(*(day(rng, sessions=600) for _ in range(2))).clicks
        assert len(found) == 5
        assert all(c.low <= 1 <= c.high for c in found)


def test_ranks_and_days_of_other_kinds() -> None:
    rng = np.random.default_rng(7)
    log = day(rng)
    short = Sessions(
        Rankings(log.vocabulary, log.rankings.query, log.rankings.pair[:, :2], log.rankings.shown[:, :2]),
        log.click[:, :2],
    )
    assert change(log, short).places.observed == pytest.approx(3 / 5), "three of five ranks are empty now"
    assert change(log, short, ranks=2).places.observed == 0
    other = change(day(rng, queries=3), Sessions.concat([day(rng, queries=3), day(rng, sessions=500)]))
    assert 0.1 < other.new_queries < 0.25
    strangers = Vocabulary.of(["x"], ["y"])[0]
    nothing = change(log, Sessions(Rankings(strangers, np.array([0]), np.array([[0]])), np.array([[1]])))
    assert (nothing.verdict, nothing.new_queries) == ("unclear", 1)
    assert math.isnan(nothing.places.change)


def test_days_are_in_order_of_time() -> None:
    rng = np.random.default_rng(8)
    logs = [day(rng, ranker=ranker) for ranker in (1, 0, 0)]
    times = (np.datetime64(f"2024-03-0{d}") for d in (3, 1, 2))
    dated = [Sessions(log.rankings, log.click, time=np.full(len(log), t)) for log, t in zip(logs, times, strict=True)]
    found = compare_days([DayCounts.of(log) for log in dated], ["c", "a", "b"])
    assert found.reordered
    assert [d.name for d in found.days] == ["a", "b", "c"]
    assert [(s.earlier, s.later, s.verdict) for s in found.steps] == [("a", "b", "same"), ("b", "c", "changed")]
    assert [(s.earlier, s.later, s.verdict) for s in found.until_last] == [("a", "c", "changed"), ("b", "c", "changed")]
    assert not compare_days([DayCounts.of(log) for log in logs], ["c", "a", "b"]).reordered
    first = found.days[0]
    np.testing.assert_allclose(first.ctr, logs[1].ctr_by_rank())
    assert ((first.low < first.ctr) & (first.ctr < first.high)).all()
    assert first.clicks_per_session == pytest.approx(logs[1].click.sum() / 2000)


def test_real_logs(shared_data: Path) -> None:
    """One week of Open Bandit's two policies: one draws at random, the other learns from day to day."""
    chance, learning = (read_open_bandit(shared_data / "open_bandit" / name / "men") for name in ("random", "bts"))
    for log in (chance, learning):
        assert change(*log.split(0.5, rng=1)).verdict == "same"
    assert change(*chance.split_by_time(0.5)).verdict == "same"
    assert change(*learning.split_by_time(0.5)).verdict == "changed"
    assert change(chance, learning).verdict == "changed"


def test_there_must_be_two_days() -> None:
    one = DayCounts.of(day(np.random.default_rng(9)))
    with raises_code("too-few-days", DataError, count=1):
        compare_days([one], ["a"])
    with raises_code("bad-ranks", DataError, ranks=0):
        compare_days([one, one], ["a", "b"], ranks=0)
