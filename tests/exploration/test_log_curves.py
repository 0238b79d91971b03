"""Observed examination and clicks by segment on the page, where a log has them; nothing of them where it has not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clickshift as cs
from clickshift.core.intervals import wilson_interval
from clickshift.exploration import Exploration
from clickshift.exploration._page import _tables, explore_page
from tests.codes import warns_code
from tests.display.browsers import window
from tests.exploration.conftest import HOSTILE
from tests.exploration.test_explore import parts_of

RANKS, DOCS = 5, 8
CURVES = {"desktop": 1 / np.arange(1, RANKS + 1) ** 0.3, "phone": 0.9 / np.arange(1, RANKS + 1) ** 1.3}
COUNTRIES = ("AT", "BE", "CH", "DE", "ES", "FR", "IT", "NL")
WIDTHS = (1400, 390)


def make_log(n: int = 3000, *, countries: tuple[str, ...] = COUNTRIES) -> cs.Sessions:
    """Position-based users of two devices; most views are known, and country is at random."""
    rng = np.random.default_rng(29)
    vocabulary, _, _ = cs.Vocabulary.of(np.repeat(np.arange(3), DOCS), np.tile(np.arange(DOCS), 3))
    query = rng.integers(0, 3, n)
    pair = query[:, None] * DOCS + rng.permuted(np.tile(np.arange(DOCS), (n, 1)), axis=1)[:, :RANKS]
    device = rng.choice(["desktop", "phone", ""], n, p=[0.45, 0.45, 0.1])
    share = np.arange(1.0, 1 + len(countries))
    share[0] = 0.02 * share.sum()  # too few sessions for a curve
    examined = rng.random(pair.shape) < np.stack([CURVES.get(one, CURVES["phone"]) for one in device])
    click = examined & (rng.random(pair.shape) < rng.beta(2, 2, 3 * DOCS)[pair])
    viewed = np.where(rng.random(pair.shape) < 0.2, np.nan, examined)
    viewed[:20] = np.where(click[:20], 0, viewed[:20])  # clicks on results that are marked as not viewed
    country = rng.choice(countries, n, p=share / share.sum())
    segments = {"device": cs.Segment.of(device), "country": cs.Segment.of(country)}
    rankings = cs.Rankings(vocabulary, query.astype(np.int32), pair.astype(np.int32), segments=segments)
    count = np.where(np.arange(n) < 30, 3, 1)  # more equal sessions than users make would be differences
    return cs.Sessions(rankings, click, count, signals={"viewed": viewed})


def plain(log: cs.Sessions) -> cs.Sessions:
    """The same lists and clicks without segments and views."""
    rankings = cs.Rankings(log.vocabulary, log.rankings.query, log.rankings.pair)
    return cs.Sessions(rankings, log.click, log.count)


@pytest.fixture(scope="module")
def log() -> cs.Sessions:
    return make_log()


@pytest.fixture(scope="module")
def explored(log: cs.Sessions) -> Exploration:
    with warns_code("segments-differ", segment="device"):
        return cs.explore(log, sample=0)


def check_rate(row: Any, names: tuple[str, str, str], yes: float, n: float) -> None:
    """A row has this rate with its Wilson interval."""
    low, high = wilson_interval(np.array([float(yes)]), np.array([float(n)]))
    assert [row[name] for name in names] == pytest.approx([yes / n, low[0], high[0]])


def test_observed_examination_is_the_rate_of_known_views(explored: Exploration, log: cs.Sessions) -> None:
    viewed, known = Counter[int](), Counter[int]()
    for row in range(len(log)):
        for rank in range(RANKS):
            value, count = log.signals["viewed"][row, rank], int(log.count[row])
            if not np.isnan(value):
                known[rank] += count
                viewed[rank] += count * int(value == 1 or log.click[row, rank])
    for rank, row in enumerate(explored.by_rank()):
        names = ("observed_examination", "observed_low", "observed_high")
        check_rate(row, names, viewed[rank], known[rank])
        curve = cs.examination(explored.model).rows()[rank]
        assert row["observed_examination"] == pytest.approx(curve["observed"])
        assert row["examination_from_clicks"] == pytest.approx(curve["from_clicks"])


def test_clicks_by_segment_are_counted(explored: Exploration, log: cs.Sessions) -> None:
    device, country = explored.to_dict()["segments"]
    assert [device["segment"], country["segment"]] == ["device", "country"]
    for one in (device, country):
        own = log.segments[one["segment"]]
        shown, clicks = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
        for row, code in enumerate(own.code.tolist()):
            for rank in range(RANKS) if code >= 0 else ():
                shown[own.labels[code], rank + 1] += int(log.count[row])
                clicks[own.labels[code], rank + 1] += int(log.count[row]) * int(log.click[row, rank])
        for label in one["labels"]:
            assert label["sessions"] == shown[label["label"], 1]
            for row in label["by_rank"]:
                key = label["label"], row["rank"]
                assert (row["impressions"], row["clicks"]) == (shown[key], clicks[key])
                check_rate(row, ("ctr", "low", "high"), clicks[key], shown[key])


def test_the_page_says_whether_segments_differ(explored: Exploration) -> None:
    device, country = explored.to_dict()["segments"]
    assert device["p_value"] < 0.001
    assert "differ in clicks on the same documents at the same ranks" in device["conclusion"]
    assert country["p_value"] > 0.05
    assert "do not differ significantly" in country["conclusion"]
    page = explore_page(explored, served=False).decode()
    for one in (device, country):
        assert f"<p>{one['conclusion']}</p>" in page
    *_, data = parts_of(page)
    assert [[label["label"] for label in one["labels"]] for one in data["segments"]] == [
        [label["label"] for label in one["labels"]] for one in (device, country)
    ]


def test_the_largest_labels_have_a_curve(explored: Exploration, log: cs.Sessions) -> None:
    country = explored.to_dict()["segments"][1]
    sizes = dict(zip(COUNTRIES, log.segments["country"].sizes(log.count).tolist(), strict=True))
    assert [one["label"] for one in country["labels"]] == sorted(COUNTRIES, key=lambda one: -sizes[one])[:6]
    assert country["conclusion"].endswith("The 6 largest of 8 labels are shown.")
    few = cs.explore(make_log(60, countries=("AT", "BE")), explored.model, sample=0)
    assert "segments" not in few.to_dict()  # fewer than 100 sessions of one of the labels, or of both


@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
def test_a_log_without_them_has_none_of_it(explored: Exploration, log: cs.Sessions) -> None:
    without = cs.explore(plain(log), explored.model, sample=0)
    assert "segments" not in without.to_dict()
    assert set(without.by_rank()[0]) == {
        *("rank", "impressions", "clicks", "ctr", "low", "high"),
        *("examination", "examination_low", "examination_high"),
    }
    page = explore_page(without, served=False).decode()
    assert 'id="segments"' not in page
    assert "Examination was observed" not in page
    only_viewed = replace(plain(log), signals={"viewed": np.ones(log.click.shape, bool)})
    assert "observed_examination" not in cs.explore(only_viewed, explored.model, sample=0).by_rank()[0]


def test_a_model_without_examination_leaves_the_observed_one(log: cs.Sessions) -> None:
    explored = cs.explore(log, cs.fit("dCTR", plain(log)), sample=0)  # type: ignore[arg-type]
    assert explored.by_rank()[0]["examination"] is None
    assert explored.by_rank()[0]["observed_examination"] > 0.5
    assert "Observed examination by rank" in explore_page(explored, served=False).decode()


@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
def test_charts_have_a_legend_and_fit(explored: Exploration, tmp_path: Path, width: int) -> None:
    explored.write(tmp_path / "page.html")
    with window(tmp_path / "page.html", width=width, height=1000) as shown:
        shown.page.wait_for_selector(".predicted:not(:empty)")

        def keys(chart: str) -> list[str]:
            texts: list[str] = shown.page.locator(f"#{chart} .key").all_inner_texts()
            return texts

        assert keys("chart-examination") == ["examination (PBM)", "observed in views", "from clicks alone"]
        device, country = explored.to_dict()["segments"]
        for chart, one in (("chart-segment-0", device), ("chart-segment-1", country)):
            assert keys(chart) == [label["label"] for label in one["labels"]]
            assert shown.page.locator(f"#{chart} .dot").count() == RANKS * len(one["labels"])
            colours = shown.page.eval_on_selector_all(
                f"#{chart} .dot", "(dots) => [...new Set(dots.map((dot) => getComputedStyle(dot).fill))]"
            )
            assert len(colours) == len(one["labels"])
        title = shown.page.locator("#chart-segment-0 .dot title").first.text_content()
        first = device["labels"][0]["by_rank"][0]
        assert title.startswith(f"{device['labels'][0]['label']}, rank 1: {first['ctr']:.4f} [{first['low']:.4f}")
        assert shown.page.evaluate("() => document.documentElement.scrollWidth") == width
        assert shown.complaints == []


def test_hostile_labels_are_data(log: cs.Sessions) -> None:
    labels = tuple(HOSTILE[:2])
    rankings = replace(log.rankings, segments={labels[0]: cs.Segment(labels, log.rankings.query % 2)})
    page = explore_page(cs.explore(replace(log, rankings=rankings), sample=0), served=False).decode()
    *_, data = parts_of(page)
    assert data["segments"][0]["segment"] == labels[0]
    assert {one["label"] for one in data["segments"][0]["labels"]} == set(labels)
    assert "<script>window" not in page
    assert "<img" not in page


def test_the_page_counts_what_the_log_has(explored: Exploration, log: cs.Sessions) -> None:
    sizes = {row[""]: row[" "] for row in _tables(explored)["sizes"]}
    code = log.segments["device"].code
    unknown = log.count[code < 0].sum() / log.total
    assert sizes["segment device"].endswith(f"unknown {unknown:.1%}")
    known = log.count @ (~np.isnan(log.signals["viewed"])).sum(axis=1)
    assert f"views of {known:,} results; segments device, country" in explored.document.data
    assert "views of" not in cs.explore(plain(log), sample=0).document.data
