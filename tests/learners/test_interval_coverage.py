"""Intervals hold the truth about as often as they say; `benchmarks/interval_coverage.py` measures it at length."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import clickshift as cs
from clickshift.errors import ClickshiftWarning
from tests.codes import warns_code
from tests.scripts import script
from tests.suite import Study

CASCADES = ("DCM", "CCM", "SDBN", "DBN")


def benchmark() -> ModuleType:
    return script("benchmarks/interval_coverage.py")


def rows(name: str, logs: int, **design: Any) -> dict[tuple[str, bool], dict[str, Any]]:
    module = benchmark()
    found = module.coverage(name, module.Design(**design), logs)
    return {(row["parameter"], row["enough"]): row for row in found}


def fitted(name: str, seed: int = 0, **design: Any) -> tuple[Any, cs.ClickModel]:
    """A world and the model that was fitted to its log."""
    module = benchmark()
    shape = module.Design(**design)
    world, query, document, click = module.draw(name, shape, seed)
    size = shape.queries * shape.ranks
    vocabulary = cs.Vocabulary.of(np.repeat(np.arange(shape.queries), shape.ranks), np.arange(size))[0]
    rankings = cs.Rankings(vocabulary, query.astype(np.int32), document.astype(np.int32))
    return world, cs.fit(name, cs.Sessions(rankings, click))


@pytest.mark.parametrize("name", benchmark().NAMES)
def test_errors_are_neither_half_nor_twice_what_they_should_be(name: str) -> None:
    """180 intervals of pairs: the standard error of the rate is .02. With half the errors, .67 would hold the truth."""
    found = rows(name, 3, swaps=None, impressions=700, queries=6)
    for (parameter, enough), row in found.items():
        if parameter in {"attractiveness", "satisfaction"} and enough:
            assert 0.88 < row["coverage"] < 1, parameter
        elif enough:  # few shared parameters
            assert row["coverage"] > 0.6, parameter


@pytest.mark.parametrize("name", CASCADES)
def test_intervals_of_cascades_hold_where_lists_are_sorted_by_relevance(name: str) -> None:
    """With the learned prior, which pulls the bottom of lists towards the top: .43 to .51."""
    found = rows(name, 3, ranker="sorted", swaps=0.3, impressions=1000, queries=6)
    assert found["attractiveness", True]["coverage"] > 0.87
    if name in {"SDBN", "DBN"}:
        assert found["satisfaction", True]["coverage"] > 0.87


@pytest.mark.parametrize("name", benchmark().NAMES)
def test_intervals_of_rarely_shown_documents_hold_and_are_flagged(name: str) -> None:
    """Five impressions of each document, best ones first: .3 (DBN) to .8 with the learned prior."""
    found = rows(name, 1, ranker="sorted", swaps=0.3, impressions=5, queries=100)
    row = found["attractiveness", False]
    assert row["coverage"] > 0.93
    assert row["flagged"] > 0.95


@pytest.mark.parametrize("name", ["PBM", "UBM"])
def test_errors_are_not_far_too_small_where_lists_hardly_change(name: str) -> None:
    """Ranks are compared by few clicks there: a prior of one pseudo-session for each document decided, .3 to .8."""
    found = rows(name, 3, swaps=0.3, impressions=3333, queries=6)
    assert found["attractiveness", True]["coverage"] > 0.87
    assert found["examination", True]["coverage"] > 0.85


def test_no_click_at_a_rank_allows_what_the_rule_of_three_allows() -> None:
    """240 sessions without a click at the third rank, of documents that are clicked at .3 at the first one: the rate is
    below 3 / 240 with 95 %, and examination hence below .04. The upper bound was a quarter of that."""
    order = np.array([[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1], [1, 0, 2], [2, 1, 0]], np.int32)
    vocabulary = cs.Vocabulary.of(np.zeros(3, np.int64), np.arange(3))[0]
    n = 240
    click = np.random.default_rng(0).random((n, 3)) < 0.3 * np.array([1.0, 0.5, 0.0])
    log = cs.Sessions(cs.Rankings(vocabulary, np.zeros(n, np.int32), order[np.arange(n) % 6]), click)
    last = cs.fit("PBM", log).examination_table()[-1]
    first_rate = click[:, 0].mean()
    assert last["low"] == 0
    assert 3 / n / first_rate < last["high"] < 6 / n / first_rate
    assert last["support"] == "prior"


@pytest.mark.parametrize("name", ["PBM", "UBM"])
def test_what_cannot_be_told_has_no_narrow_interval(name: str) -> None:
    """Every query has one list: how much of a rate is examination is not in the log."""
    with pytest.warns(ClickshiftWarning):
        world, found = fitted(name, swaps=0.0, impressions=1000, queries=20, ranks=5)
    low, high, support = found.intervals("examination")
    free = support != "convention"
    assert (high - low)[free].mean() > 0.5
    assert ((world.browsing >= low) & (world.browsing <= high))[free].mean() > 0.8
    assert (support[free] == "not identified").mean() > 0.5


def test_a_cascade_warns_of_documents_that_nobody_reached() -> None:
    """Everybody leaves after the first result, on which they click: the log says nothing about those below."""
    vocabulary = cs.Vocabulary.of(np.repeat(np.arange(10), 5), np.arange(50))[0]
    query = np.repeat(np.arange(10, dtype=np.int32), 100)
    pair = (query[:, None] * 5 + np.arange(5)).astype(np.int32)
    click = np.zeros(pair.shape, bool)
    click[:, 0] = True
    log = cs.Sessions(cs.Rankings(vocabulary, query, pair), click)
    with warns_code("weak-identification", model="SDBN"):
        found = cs.fit("SDBN", log)
    table = found.relevance_table().to_pandas()
    below = table[table["clicks"] == 0]
    assert set(below["support"]) <= {"not identified", "prior"}
    assert (below["high"] > 0.9).all()


def test_the_simulated_users_click_as_the_models_predict() -> None:
    """The study's own users against the package's click models: expected clicks on every document."""
    module = benchmark()
    design = module.Design(ranker="sorted", swaps=0.3, impressions=50, queries=4, ranks=5)
    for name in module.NAMES:
        world, query, document, _ = module.draw(name, design, 0)
        vocabulary = cs.Vocabulary.of(np.repeat(np.arange(4), 5), np.arange(20))[0]
        a, s = (np.append(table, 0.1) for table in (world.attractiveness, world.satisfaction))
        browsing = world.browsing[0] if name == "DBN" else world.browsing
        extra = {"SDBN": (s,), "DBN": (s, browsing)}.get(name, (browsing,))
        model = getattr(cs.models, name)(vocabulary, a, *extra)
        rankings = cs.Rankings(vocabulary, query.astype(np.int32), document.astype(np.int32))
        clicks = np.bincount(document.ravel(), model.click_prob(rankings).ravel())
        assert world.expected_clicks(document)[0] == pytest.approx(clicks), name


@pytest.mark.study
@pytest.mark.parametrize("name", benchmark().NAMES)
@pytest.mark.parametrize("ranker", ["random", "sorted"])
def test_intervals_cover_at_their_nominal_rate(name: str, ranker: str, study: Study) -> None:
    logs = study.choose(smallest=1, full=40)
    found = rows(name, logs, ranker=ranker, swaps=1.0, impressions=1000 if study.full else 200, queries=6)
    row = found["attractiveness", True]
    if study.full:
        assert 0.93 <= row["coverage"] <= 0.985
    study.record(f"interval coverage, {name}, {ranker}", logs=logs, coverage=row["coverage"])


def test_the_page_on_intervals_has_the_tables_of_the_results_file() -> None:
    module = benchmark()
    text = module.PAGE.read_text(encoding="utf-8")
    assert module.with_tables(text, json.loads(module.RESULTS.read_text())) == text


def test_rows_of_two_runs_are_combined_by_their_intervals() -> None:
    row = {"model": "PBM", "ranker": "random", "swaps": 0.3, "impressions": 5, "parameter": "examination"}
    one = row | {"enough": True, "coverage": 0.9, "bias": 0.0, "width": 0.1, "flagged": 0.0, "intervals": 10}
    two = one | {"coverage": 1.0, "intervals": 30}
    (found,) = benchmark().combined([one, two])
    assert found["coverage"] == pytest.approx(0.975)
    assert found["intervals"] == 40
