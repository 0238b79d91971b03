"""Conversions after a click: counts, planted rates and values, coverage, rank dependence, and relevance by value."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import clickshift as cs
from clickshift.counts.conversion_counts import ConversionCounts
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.signal_values import SignalValue
from clickshift.learners.conversion_rates import conversion_rates, rank_dependence
from clickshift.models.ctr import DCTR
from tests.codes import raises_code, warns_code
from tests.suite import Study

QUERIES, RANKS = 12, 5
PAIRS = QUERIES * RANKS
_RNG = np.random.default_rng(7)
ATTRACTIVENESS = _RNG.uniform(0.2, 0.7, PAIRS)
QUERY_RATE = _RNG.beta(4, 12, QUERIES)
RATE = _RNG.beta(20 * np.repeat(QUERY_RATE, RANKS), 20 * (1 - np.repeat(QUERY_RATE, RANKS)))
PRICE = np.exp(_RNG.normal(3, 0.5, PAIRS))


def shop_log(n: int, seed: int, *, by_rank: float = 0.0) -> Sessions:
    """Planted attractiveness, purchase rates and prices; rates change by a share of `by_rank` with each rank."""
    rng = np.random.default_rng(seed)
    query = rng.integers(0, QUERIES, n).astype(np.int32)
    pair = (query[:, None] * RANKS + np.argsort(rng.random((n, RANKS)), axis=1)).astype(np.int32)
    vocabulary = cs.Vocabulary.of(np.repeat(np.arange(QUERIES), RANKS), np.arange(PAIRS))[0]
    examined = rng.random(pair.shape) < 1 / np.arange(1, RANKS + 1) ** 0.5
    click = examined & (rng.random(pair.shape) < ATTRACTIVENESS[pair])
    purchase = click & (rng.random(pair.shape) < RATE[pair] * (1 + by_rank * np.arange(RANKS)))
    revenue = purchase * PRICE[pair] * np.exp(rng.normal(-0.08, 0.4, pair.shape))
    rankings = Rankings(vocabulary, query, pair, np.ones(pair.shape, bool))
    return Sessions(rankings, click, signals={"purchase": purchase, "revenue": revenue})


@pytest.fixture(scope="module")
def log() -> Sessions:
    return shop_log(6000, 1)


@pytest.mark.parametrize(
    ("text", "click", "weights"),
    [
        ("purchase", 0, {"purchase": 1}),
        ("click + 3*cart + 10 * purchase", 1, {"cart": 3, "purchase": 10}),
        ("0.5*clicks+dwell time", 0.5, {"dwell time": 1}),
    ],
)
def test_values_are_parsed(text: str, click: float, weights: dict[str, float]) -> None:
    value = SignalValue.parse(text)
    assert (value.click, dict(value.weights)) == (click, weights)


@pytest.mark.parametrize("text", ["", "click", "3", "-1*cart", "nan*cart", "cart + cart", "2*3*cart", "__import__*2"])
def test_what_is_no_sum_of_signals_is_refused(text: str) -> None:
    with raises_code("bad-value", value=text):
        SignalValue.parse(text)


@pytest.mark.parametrize("keep", [False, True])
def test_counts_are_those_of_a_loop(keep: bool) -> None:
    log = shop_log(300, 2)
    revenue = np.array(log.signals["revenue"])
    revenue[np.random.default_rng(0).random(revenue.shape) < 0.1] = np.nan  # unknown, also of some clicks
    revenue[4, 2] = 5.0
    click = log.click.copy()
    click[4, 2] = False  # a conversion without a click
    log = Sessions(log.rankings, click, np.arange(1, 301), signals={"revenue": revenue})
    (counts,) = ConversionCounts.of(log, [SignalValue.parse("2*revenue")], keep_without_click=keep)
    expected: dict[tuple[int, int], np.ndarray] = {}
    unknown = 0
    for i, r in np.ndindex(*click.shape):
        value, weight = 2 * revenue[i, r], log.count[i]
        unknown += weight * (click[i, r] and np.isnan(value))
        if not np.isnan(value) and (click[i, r] or (keep and value > 0)):
            key = int(log.rankings.pair[i, r]), r
            expected.setdefault(key, np.zeros(4))
            expected[key] += weight * np.array([1, value > 0, value, value**2])
    assert list(zip(counts.pair.tolist(), counts.rank.tolist(), strict=True)) == sorted(expected)
    columns = np.stack([counts.clicks, counts.conversions, counts.total, counts.squares], axis=1)
    assert np.allclose(columns, [expected[key] for key in sorted(expected)])
    stray = ~click & (revenue > 0)
    assert counts.unknown == unknown
    assert counts.without_click == log.count @ stray.sum(axis=1)
    assert counts.without_click_total == pytest.approx(log.count @ np.where(stray, 2 * revenue, 0).sum(axis=1))


def test_planted_rates_and_values_are_recovered(log: Sessions) -> None:
    result = cs.conversions(log, ["purchase", "revenue", "click + 3*purchase"])
    purchase, revenue, mixed = result.rates
    assert np.abs(purchase.value - RATE).mean() < 0.03
    assert np.abs(revenue.value / (RATE * PRICE) - 1).mean() < 0.2
    assert np.allclose(mixed.value, 3 * purchase.value)
    assert np.mean((purchase.low <= RATE) & (purchase.high >= RATE)) > 0.85
    rows = result.to_pandas()
    assert set(rows["signal"]) == {"purchase", "revenue", "click + 3*purchase"}
    assert np.allclose(rows[rows.signal == "click + 3*purchase"].value, 1 + 3 * purchase.value)
    raw = purchase.conversions / purchase.clicks
    few = shop_log(300, 3)
    small = cs.conversions(few, "purchase").rates[0]
    assert np.abs(small.rate - RATE).mean() < np.abs(small.conversions / np.maximum(small.clicks, 1) - RATE).mean()
    assert np.corrcoef(raw, purchase.rate)[0, 1] > 0.95


def test_the_conclusion_counts_conversions_without_a_click() -> None:
    frame = pd.DataFrame({"query": ["a"] * 8, "docs": [[1, 2]] * 8, "clicks": [[1, 0]] * 8, "buy": [[1, 1]] * 8})
    conclusion = {option: cs.conversions(frame, "buy", without_click=option).conclusion for option in ("drop", "keep")}
    assert conclusion["drop"].endswith(" 8 results with buy but without a click are left out.")
    assert conclusion["keep"].endswith(" 8 results with buy but without a click are counted as clicked.")


def test_documents_without_clicks_have_the_rate_of_their_query() -> None:
    frame = pd.DataFrame(
        {
            "query": ["a"] * 8 + ["b"] * 8,
            "docs": [[1, 2]] * 16,
            "clicks": [[1, 0]] * 16,
            "buy": [[1, 0]] * 7 + [[0, 0]] * 9,
        }
    )
    rates = cs.conversions(frame, "buy").rates[0]
    assert rates.support.tolist() == ["log", "not identified", "prior", "not identified"]
    assert rates.rate[1] > 0.6
    assert rates.rate[3] < 0.4
    assert rates.low[1] == 0


def test_rates_that_fall_with_the_rank_are_reported() -> None:
    with warns_code("conversion-depends-on-rank", signal="purchase"):
        result = cs.conversions(shop_log(6000, 4, by_rank=-0.15), "purchase")
    (facts,) = result.to_dict()["signals"]
    assert facts["rank_slope"] < -0.08
    last = facts["by_rank"][-1]
    assert last["conversions"] < 0.8 * last["expected"]


def test_the_test_of_ranks_is_that_of_a_loop_over_documents(log: Sessions) -> None:
    (counts,) = ConversionCounts.of(log[:1500], [SignalValue.parse("purchase")])
    trend, variance, scale = 0.0, 0.0, 0.0
    for pair in range(PAIRS):
        click = log.click[:1500] & (log.rankings.pair[:1500] == pair)
        ranks = np.nonzero(click)[1]
        bought = np.asarray(log.signals["purchase"])[:1500][click].astype(float)
        if len(ranks) > 1:
            centred = ranks - ranks.mean()
            trend += centred @ bought
            variance += (centred @ centred) * ((bought - bought.mean()) ** 2).sum() / (len(ranks) - 1)
            scale += (centred @ centred) * bought.mean()
    slope, p_value = rank_dependence(counts)
    assert slope == pytest.approx(trend / scale)
    from scipy.stats import norm

    assert p_value == pytest.approx(2 * norm.sf(abs(trend) / variance**0.5))


def test_signals_that_no_click_carries_are_reported(log: Sessions) -> None:
    zero = replace(log[:200], signals={"purchase": np.zeros((200, RANKS), bool)})
    with warns_code("all-zero-signal", signals=["purchase"]):
        rates = cs.conversions(zero, "purchase").rates[0]
    assert (rates.value < 0.01).all()
    assert (rates.low == 0).all()


def test_signals_that_no_click_knows_are_refused(log: Sessions) -> None:
    unknown = np.where(log.click[:50], np.nan, 0.0)
    with raises_code("no-known-clicks", signal="stars", unknown=log.click[:50].sum()):
        cs.conversions(Sessions(log.rankings[:50], log.click[:50], signals={"stars": unknown}), "stars")


def test_unknown_signals_are_refused_with_those_of_the_log(log: Sessions) -> None:
    with raises_code("unknown-signal", known=["purchase", "revenue"]):
        cs.conversions(log, "cart")
    with raises_code("bad-option", option="without_click"):
        cs.conversions(log, "purchase", without_click="maybe")


def test_relevance_is_attractiveness_times_the_value_of_a_click(log: Sessions, tmp_path: Path) -> None:
    model = cs.fit("PBM", log)
    worth = cs.conversions(log, ["revenue", "click + 3*purchase"])
    graded = cs.judgments(model, value="revenue", log=worth)
    table = graded.table.to_pandas()
    assert np.allclose(table.relevance, model.relevance()[table.doc] * worth.rates[0].value[table.doc])
    truth = (ATTRACTIVENESS * RATE * PRICE)[table.doc]
    assert np.corrcoef(table.relevance, truth)[0, 1] > 0.95
    assert np.mean((table.low <= truth) & (truth <= table.high)) > 0.85
    assert (np.diff(table.relevance)[np.diff(table["query"]) == 0] <= 0).all()
    assert graded.to_dict()["value"] == "revenue"
    mixed = cs.judgments(model, value="click + 3*purchase", log=worth).table.to_pandas()
    assert np.allclose(mixed.value_per_click, 1 + 3 * worth.rates[0].rate[mixed.doc])
    graded.write(tmp_path / "judgments.parquet")
    with raises_code("missing-log"):
        cs.judgments(model, value="revenue")
    with raises_code("unknown-signal"):
        cs.judgments(model, value="purchase", log=worth)


def test_pairs_that_the_conversions_lack_have_the_mean_value(log: Sessions) -> None:
    worth = cs.conversions(log, "revenue")
    other = cs.Vocabulary.of(["new"], ["document"])[0]
    (row,) = cs.judgments(DCTR(other, np.array([0.5, 0.1])), value="revenue", log=worth, grades="1").rows()
    assert row["relevance"] == pytest.approx(0.5 * worth.rates[0].mean)
    assert row["low"] is None or np.isnan(row["low"])


@pytest.mark.study
def test_intervals_of_values_hold_the_truth(study: Study) -> None:
    hits = []
    for seed in range(study.choose(smallest=3, full=200)):
        counts = ConversionCounts.of(shop_log(1500, seed), [SignalValue.parse(t) for t in ("purchase", "revenue")])
        for own, truth in zip(counts, (RATE, RATE * PRICE), strict=True):
            rates = conversion_rates(own)
            hits.append((rates.low <= truth) & (truth <= rates.high))
    coverage = [float(np.mean(hits[k::2])) for k in range(2)]
    study.record("coverage of conversions", purchase=coverage[0], revenue=coverage[1])
    if study.full:
        assert all(0.93 < rate < 0.99 for rate in coverage)
