"""Rewards from signals: estimates by definition, exact worlds, heavy tails, unknown values, and the answer."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import clickshift as cs
from clickshift.data.sessions import Rankings, Sessions
from clickshift.ope.grouped_log import GroupedLog
from clickshift.ope.model_value import CalibratedModel
from clickshift.ope.rewards import OUTCOME, Reward
from clickshift.ope.signal_reward import with_outcomes, with_values
from tests.codes import raises_code
from tests.grading.test_conversions import ATTRACTIVENESS, PRICE, QUERIES, RANKS, RATE, shop_log
from tests.ope import small_worlds as sw

PRICES = np.array([3.0, 50.0, 0.5, 7.0])
WORLD = sw.World((10, 8, 7, 6, 5, 4, 4, 4, 4, 3, 3, 2), tuple(float(k) for k in range(1, 13)), sw.pbm)


def priced(log: Sessions) -> Sessions:
    """Every click earns the price of its document."""
    return replace(log, signals={"revenue": log.click * PRICES[log.rankings.pair]})


def values(evaluation: cs.ope.PolicyEvaluation, clip: float = math.inf) -> dict[str, float]:
    return {row["estimator"]: row["value"] for row in evaluation.rows() if row["clip"] == clip}


@pytest.mark.parametrize("text", ["revenue", "revenue@1", "click + 2*revenue"])
def test_estimates_are_those_of_the_definition(text: str) -> None:
    log = priced(WORLD.draw(300, np.random.default_rng(1)))
    clip = 1.5
    names = ["List", "IP", "PBM", "Item", "RCTR", "RIPS"]
    target = WORLD.lottery(WORLD.h())
    found = values(
        cs.evaluate_policy(
            log, target, reward=text, estimators=names, clip=[clip], winsorise=1, examination="1/rank", replicates=20
        ),
        clip,
    )
    ranks = 1 if text.endswith("@1") else sw.RANKS
    per_result = log.signals["revenue"] if text.startswith("revenue") else log.click + 2 * log.signals["revenue"]
    records = [(q, a, tuple(per_result[i, :ranks])) for i, (q, a, _) in enumerate(sw.records_of(log, ranks))]
    h = sw.cut({0: dict(zip(sw.LISTS, WORLD.h(), strict=True))}, ranks)
    for name in names:
        expected, *_ = sw.by_definition(name, records, h, sw.list_frequencies(records), [1.0] * ranks, clip)
        assert found[name] == pytest.approx(expected), name


def test_estimates_are_the_truth_where_everything_happens_as_often_as_it_is_likely() -> None:
    log, target = priced(WORLD.population()), WORLD.lottery(WORLD.h())
    truth = sum(
        p * sum(sw.pbm(a, k) * PRICES[a[k]] for k in range(sw.RANKS)) for p, a in zip(WORLD.h(), sw.LISTS, strict=True)
    )
    names = ["List", "IP", "RIPS", "PI"]
    found = values(cs.evaluate_policy(log, target, reward="revenue", estimators=names, replicates=20))
    for name in names:
        assert found[name] == pytest.approx(truth), name


def test_a_signal_that_is_the_click_is_the_reward_of_clicks() -> None:
    log = WORLD.draw(400, np.random.default_rng(2))
    same = replace(log, signals={"copy": log.click, "tenfold": log.click * 10.0})
    target = WORLD.lottery(WORLD.h())
    clicks, copy, tenfold = (
        cs.evaluate_policy(same, target, reward=text, replicates=30) for text in ("clicks", "copy", "tenfold")
    )
    for a, b, c in zip(clicks.rows(), copy.rows(), tenfold.rows(), strict=True):
        for name in ("value", "low", "high", "floor", "ceiling"):
            assert b[name] == pytest.approx(a[name], nan_ok=True)
            assert c[name] == pytest.approx(10 * a[name], nan_ok=True)
    assert clicks.answer is not None
    assert copy.answer is not None
    assert tenfold.answer is not None
    assert copy.answer.difference == pytest.approx(clicks.answer.difference)
    assert tenfold.answer.difference_low == pytest.approx(10 * clicks.answer.difference_low)
    assert tenfold.answer.verdict == clicks.answer.verdict


def better_ranking(log: Sessions) -> tuple[Rankings, float]:
    """The lists by expected revenue, and what they earn."""
    worth = (ATTRACTIVENESS * RATE * PRICE).reshape(QUERIES, RANKS)
    order = np.argsort(-worth, axis=1)
    query = np.arange(QUERIES, dtype=np.int32)
    lists = Rankings(log.vocabulary, query, (order + query[:, None] * RANKS).astype(np.int32))
    curve = 1 / np.arange(1, RANKS + 1) ** 0.5
    return lists, float((np.take_along_axis(worth, order, 1) * curve).sum(axis=1).mean())


def test_the_answer_for_revenue_holds_the_planted_truth() -> None:
    log = shop_log(4000, 5)
    lists, truth = better_ranking(log)
    evaluation = cs.evaluate_policy(log, lists, reward="revenue", estimators=["auto"], replicates=20)
    answer = evaluation.answer
    assert answer is not None
    assert answer.verdict == "usable"
    assert answer.low < truth < answer.high
    assert answer.today == pytest.approx(float(np.asarray(log.signals["revenue"]).sum() / len(log)), rel=0.01)
    assert answer.difference_low > 0
    assert "revenue per session" in evaluation.conclusion
    treatment = evaluation.to_dict()["reward_treatment"]
    assert 0 < treatment["cut_share"] < 0.02
    assert f"(cuts {treatment['cut_share']:.2%} of the log's reward)" in evaluation._document().data


def test_models_calibrated_on_values_reproduce_those_of_each_document() -> None:
    log = shop_log(1500, 6)
    sessions, reward, _ = with_outcomes(with_values(log, Reward.parse("revenue")), Reward.parse("revenue"), quantile=1)
    model = cs.fit("PBM", log)
    prob = model.click_prob_given_history(sessions)
    calibrated = CalibratedModel.of(model, sessions, prob)
    expected = calibrated.click_prob(sessions.rankings) * calibrated.factor[sessions.rankings.pair] * reward.unit
    pair, size = sessions.rankings.pair.ravel(), log.vocabulary.n_pairs
    assert np.allclose(
        np.bincount(pair, expected.ravel(), size), np.bincount(pair, np.asarray(log.signals["revenue"]).ravel(), size)
    )


@pytest.mark.parametrize("quantile", [0.9, 1.0])
def test_heavy_tails_are_cut_at_the_quantile_and_reported(quantile: float) -> None:
    log = shop_log(800, 7)
    revenue = np.asarray(log.signals["revenue"])
    total = revenue.sum(axis=1)
    earned = np.sort(total[total > 0])
    limit = earned[math.ceil(quantile * len(earned)) - 1]
    reward = Reward.parse("revenue")
    sessions, scaled, treatment = with_outcomes(with_values(log, reward), reward, quantile=quantile)
    assert treatment is not None
    assert treatment.limit == pytest.approx(limit)
    assert treatment.cut_sessions == (total > limit).sum()
    assert treatment.cut_share == pytest.approx(np.maximum(total - limit, 0).sum() / total.sum())
    assert np.allclose(scaled.earned(scaled.outcome(sessions)), np.minimum(total, limit))
    assert bool(treatment.notes()) == (quantile < 1)


def test_unknown_values_of_clicks_leave_their_sessions_out_and_others_are_nothing() -> None:
    log = shop_log(500, 8)
    revenue = np.array(log.signals["revenue"])
    clicked, other = np.argwhere(log.click)[3], np.argwhere(~log.click)[3]
    revenue[tuple(clicked)] = revenue[tuple(other)] = np.nan
    stray = np.argwhere(~log.click & ~np.isnan(revenue))[20]
    revenue[tuple(stray)] = 4.0
    reward = Reward.parse("revenue")
    damaged = replace(log, signals={"revenue": revenue})
    sessions, _, treatment = with_outcomes(with_values(damaged, reward), reward, quantile=1)
    assert treatment is not None
    assert (treatment.unknown_sessions, treatment.without_click) == (1, 1)
    assert len(sessions) == 499
    assert len(treatment.notes()) == 2


def test_rewards_that_nothing_earns_and_unknown_ones_are_refused() -> None:
    log = shop_log(200, 9)
    lists, _ = better_ranking(log)
    with raises_code("all-zero-reward", sessions=200):
        cs.evaluate_policy(replace(log, signals={"none": np.zeros(log.click.shape, bool)}), lists, reward="none")
    with raises_code("unknown-signal", known=["purchase", "revenue"]):
        cs.evaluate_policy(log, lists, reward="cart")
    with raises_code("unknown-name"):
        cs.evaluate_policy(log, lists, reward="3**cart")
    with raises_code("bad-option", option="winsorise"):
        cs.evaluate_policy(log, lists, reward="revenue", winsorise=0.2)
    with raises_code("signal-reward", estimator="DM"):
        cs.evaluate_policy(log, lists, model=cs.fit("dCTR", log), reward="revenue", estimators=["DM"])
    unknown = np.where(log.click, np.nan, 0.0)
    clicked = replace(log, signals={"unknown": unknown})[log.click.any(axis=1)]
    with raises_code("no-sessions"):
        cs.evaluate_policy(clicked, lists, reward="unknown")


def test_values_that_depend_on_the_rank_make_an_answer_weak() -> None:
    log = shop_log(6000, 4, by_rank=-0.15)
    lists, _ = better_ranking(log)
    answer = cs.evaluate_policy(log, lists, reward="purchase", estimators=["auto"], replicates=20).answer
    assert answer is not None
    assert answer.verdict == "weak"
    assert any("per rank of the click" in reason for reason in answer.reasons)


def test_users_are_resampled_with_all_their_values() -> None:
    log = shop_log(300, 10)
    user = np.arange(300) // 3
    lists, _ = better_ranking(log)
    by_user = replace(log, user=user)
    kept: dict[str, object] = {"reward": "revenue", "estimators": ["IP"], "clip": [10], "replicates": 100}
    (alone,), (together,) = (
        cs.evaluate_policy(by_user, lists, cluster=cluster, **kept).rows()
        for cluster in ("session", "user")  # type: ignore[arg-type]
    )
    assert alone["value"] == pytest.approx(together["value"])
    assert alone["high"] != together["high"]


def test_files_are_read_with_the_signals_of_the_reward(tmp_path: Path) -> None:
    log, path = shop_log(300, 11), tmp_path / "log.parquet"
    cs.write_log(log, path)
    lists, _ = better_ranking(log)
    options: dict[str, object] = {"reward": "2*purchase + revenue", "estimators": ["IP", "Item"], "replicates": 20}
    expected = pytest.approx(values(cs.evaluate_policy(log, lists, **options)))  # type: ignore[arg-type]
    assert values(cs.evaluate_policy(str(path), lists, **options)) == expected  # type: ignore[arg-type]
    columns = {"signal:purchase": "purchase", "signal:revenue": "revenue"}
    encoded = cs.open_log(path, columns=columns, in_memory=False)
    assert values(cs.evaluate_policy(encoded, lists, **options)) == expected  # type: ignore[arg-type]
    counted = cs.conversions(encoded, "revenue").rates[0]
    assert np.allclose(counted.value, cs.conversions(log, "revenue").rates[0].value)


def test_outcomes_of_a_grouped_log_are_its_values() -> None:
    log = shop_log(100, 12)
    reward = Reward.parse("revenue@2")
    sessions, reward, _ = with_outcomes(with_values(log, reward), reward, quantile=1)
    assert set(sessions.signals) == {OUTCOME}
    grouped = GroupedLog.of(sessions, reward)
    assert grouped.total.earned.sum() == pytest.approx(np.asarray(log.signals["revenue"])[:, :2].sum())
    by_rank = np.bincount(grouped.clicked[1], grouped.total.clicks[:, 0], 2) * reward.unit
    assert np.allclose(by_rank, np.asarray(log.signals["revenue"])[:, :2].sum(axis=0))
