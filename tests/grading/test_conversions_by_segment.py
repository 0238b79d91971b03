"""Conversions by segment: counts, planted rates, tests, and a dependence on the rank that a segment explains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import clickshift as cs
from clickshift.counts.segment_conversions import SegmentConversions
from clickshift.counts.segment_differences import segment_difference
from clickshift.data.segments import Segment
from clickshift.data.sessions import Sessions
from clickshift.data.signal_values import SignalValue
from clickshift.errors import ClickshiftWarning
from clickshift.models.intervals import counts_interval
from tests.grading.test_conversions import ATTRACTIVENESS, PAIRS, RANKS, RATE, shop_log

DESKTOP, PHONE = np.array([0.9, 0.8, 0.7, 0.6, 0.5]), np.array([0.9, 0.4, 0.2, 0.1, 0.05])


def device_log(n: int, seed: int, *, phones: float = 0.5, signal: str = "purchase") -> Sessions:
    """Users of phones examine fewer ranks, and buy `phones` times as often; arms make no difference."""
    rng, log = np.random.default_rng([seed, 9]), shop_log(n, seed)
    pair, device = log.rankings.pair, rng.integers(0, 2, n)
    click = rng.random(pair.shape) < np.stack([DESKTOP, PHONE])[device] * ATTRACTIVENESS[pair]
    bought = click & (rng.random(pair.shape) < RATE[pair] * np.where(device == 1, phones, 1.0)[:, None])
    unknown = rng.random(n) < 0.1
    segments = {
        "device": Segment(("desktop", "phone"), np.where(unknown, -1, device)),
        "arm": Segment(("a", "b"), rng.integers(0, 2, n)),
    }
    return Sessions(replace(log.rankings, segments=segments), click, signals={signal: bought})


def test_counts_are_those_of_the_sessions_of_each_label() -> None:
    log = device_log(400, 1)
    revenue = np.where(log.signals["purchase"], 2.5, 0.0)
    revenue[np.random.default_rng(0).random(revenue.shape) < 0.1] = np.nan
    log = Sessions(log.rankings, log.click, np.arange(1, 401), signals={"revenue": revenue})
    (_, one) = SegmentConversions.of(log, [SignalValue.parse("revenue")])
    assert one.segments.name == "device"
    code = log.rankings.segments["device"].code
    known = log.click & ~np.isnan(revenue)
    for k in range(2):
        own, count = code == k, log.count[code == k]
        shown, followed = one.by_label(one.shown)[:, k], one.by_label(one.followed[0])[:, k]
        assert shown[:2].tolist() == [count.sum() * RANKS, count @ log.click[own].sum(axis=1)]
        converted = (known & (np.nan_to_num(revenue) > 0))[own].sum(axis=1)
        assert followed[:2].tolist() == [count @ known[own].sum(axis=1), count @ converted]
        assert one.amounts[0, :, k] == pytest.approx([2.5 * (count @ converted), 2.5**2 * (count @ converted)])
        rate = np.zeros(PAIRS)
        for p in range(PAIRS):
            at = (log.rankings.pair == p) & known
            clicks = log.count @ at.sum(axis=1)
            rate[p] = log.count @ (at & (np.nan_to_num(revenue) > 0)).sum(axis=1) / max(clicks, 1)
        expected = (count[:, None] * known[own] * rate[log.rankings.pair[own]]).sum()
        assert followed[2] == pytest.approx(expected)


def test_planted_rates_by_device_are_beside_each_other() -> None:
    result = cs.conversions(device_log(8000, 2), "purchase")
    facts = {own["segment"]: own for own in result.to_dict()["by_segment"]}
    assert (facts["device"]["p_value"] < 1e-6, facts["arm"]["p_value"] > 0.01) == (True, True)
    desktop, phone = facts["device"]["labels"]
    assert phone["relative_conversions"] / desktop["relative_conversions"] == pytest.approx(0.5, abs=0.05)
    assert phone["relative_clicks"] < 0.8 < 1 < desktop["relative_clicks"]
    for row in (desktop, phone):
        low, high = counts_interval(np.array([[row["conversions"]], [row["clicks"]]]), 0.95)
        assert (row["low"], row["high"]) == (low[0], high[0])
        assert row["rate"] == row["value"]
    assert "on desktop" in result.conclusion
    assert "arm" not in result.conclusion


def test_a_dependence_on_the_rank_that_the_device_explains_is_no_warning() -> None:
    """Clicks at low ranks are those of desktops, which convert twice as often: documents do not depend on the rank."""
    log = device_log(8000, 3)
    with pytest.warns(ClickshiftWarning) as caught:
        cs.conversions(Sessions(replace(log.rankings, segments={}), log.click, signals=log.signals), "purchase")
    assert [warning.message.code for warning in caught] == ["conversion-depends-on-rank"]  # type: ignore[union-attr]
    result = cs.conversions(log, "purchase")  # warnings are errors
    (own,) = (one for one in result.to_dict()["by_segment"] if one["segment"] == "device")
    assert own["rank_p_value"] > 0.01 > result.to_dict()["signals"][0]["rank_p_value"]
    assert "per rank" not in result.conclusion


def test_labels_that_are_alike_rarely_differ() -> None:
    p_values = []
    for seed in range(60):
        (_, device) = SegmentConversions.of(device_log(1500, seed, phones=1.0), [SignalValue.parse("purchase")])
        p_values.append(segment_difference(device.followed[0], device.segments).p_value)
    assert np.mean(np.array(p_values) < 0.05) < 0.15
    assert np.mean(p_values) > 0.4


def test_revenue_by_label_has_the_mean_and_its_interval() -> None:
    log = device_log(5000, 4)
    revenue = log.signals["purchase"] * np.exp(np.random.default_rng(5).normal(3, 0.5, log.click.shape))
    result = cs.conversions(Sessions(log.rankings, log.click, signals={"revenue": revenue}), "click + 2*revenue")
    (own,) = (one for one in result.to_dict()["by_segment"] if one["segment"] == "device")
    for k, row in enumerate(own["labels"]):
        rows = log.rankings.segments["device"].code == k
        values = 1 + 2 * revenue[rows][log.click[rows]]
        assert row["value"] == pytest.approx(values.mean())
        assert row["high"] - row["low"] == pytest.approx(2 * 1.96 * values.std() / np.sqrt(len(values)), rel=1e-3)


def test_a_log_without_segments_has_none_and_the_page_says_what_the_log_has(tmp_path: Path) -> None:
    assert cs.conversions(shop_log(600, 1), "purchase").segments == ()
    log = device_log(600, 6)
    viewed = np.where(np.random.default_rng(0).random(log.click.shape) < 0.5, log.click.astype(float), np.nan)
    both = Sessions(log.rankings, log.click, signals={**log.signals, "viewed": viewed})
    result = cs.conversions(both, "purchase")
    assert f"views of {(~np.isnan(viewed)).sum():,} results; signals purchase; segments" in result._document().data
    cs.write_log(both, tmp_path / "log.parquet")
    for in_memory in (True, False):
        columns = {"segment:device": "device", "signal:purchase": "purchase"}
        opened = cs.open_log(tmp_path / "log.parquet", columns=columns, in_memory=in_memory)
        assert cs.conversions(opened, "purchase").to_dict() == result.to_dict()
    frame = pd.DataFrame(result.to_dict()["by_segment"][1]["labels"])
    assert frame["sessions"].sum() < 600, "sessions without a device are not on a label"
