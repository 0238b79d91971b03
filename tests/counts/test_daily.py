"""Counts of days: kept, added and weighted, against one log with all sessions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from clickshift.counts.cascade import Cascade
from clickshift.counts.cells import Cells
from clickshift.counts.daily import _COUNTS_FORMAT, DayCounts, is_counts
from clickshift.counts.tails import TailsByShape, TailsInParts, TailTransitions
from clickshift.data.days import sort_by_time
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import DataError, FileError
from clickshift.learners.base import DEFAULT, learner_for
from clickshift.models.base import ClickModel
from tests.codes import raises_code
from tests.folders import arrays_file, craft
from tests.holes import log_with_holes

WIDTH = 6
CASCADES = ("DBN", "SDBN", "DCM", "CCM", "CM")
TABLES = (
    *("impressions", "examined", "clicks", "followed", "open_last", "first_examined", "first_clicks"),
    *("followed_at_rank", "open_last_at_rank", "passed"),
)
BY_COUNTS = [name for name, learner in DEFAULT.items() if learner in {"Counting", "MaximumLikelihood"}]


def log_of(rows: int, rng: np.random.Generator, *, docs: int = 9, width: int = WIDTH, text: bool = False) -> Sessions:
    """Lists of all lengths for four queries; good documents tend to stand above, and users walk down and stop."""
    query = np.sort(rng.integers(0, 4, rows))
    order = np.argsort(np.arange(docs) + 4 * rng.random((rows, docs)), axis=1)[:, :width]
    shown = np.arange(width) < rng.integers(1, width + 1, rows)[:, None]
    appeal = np.linspace(0.7, 0.1, docs)[order] * (0.6 + 0.1 * query[:, None])
    click = (rng.random(order.shape) < appeal) & shown
    click &= np.cumsum(click, axis=1) <= rng.integers(1, 4, rows)[:, None]
    flat = np.repeat(query, width), (100 * query[:, None] + order).ravel()
    words, _, pair = Vocabulary.of(*(column.astype(str).tolist() if text else column for column in flat))
    return Sessions(Rankings(words, query, pair.reshape(order.shape), shown), click, rng.integers(1, 4, rows))


def given(counts: DayCounts, model: str) -> Cells | Cascade:
    return counts.cascade if model in CASCADES else counts.cells


def fitted(model: str, data: Sessions | Cells | Cascade) -> ClickModel:
    found: ClickModel = learner_for(model).fit(data)  # type: ignore[arg-type]
    return found


def parameters(model: ClickModel, words: Vocabulary) -> dict[str, np.ndarray]:
    """All arrays of a model, its tables by pair in the order of another vocabulary."""
    place = np.append(model.vocabulary.pairs_of(words), model.vocabulary.n_pairs)
    assert (place >= 0).all()
    arrays = {name: value for name, value in vars(model).items() if isinstance(value, np.ndarray | float)}
    assert model.evidence is not None
    arrays |= {f"error of {name}": value for name, value in model.evidence.logit_error.items()}
    arrays |= {"impressions": model.evidence.impressions, "likelihood": np.array(model.evidence.log_likelihood)}
    by_pair = len(place)
    return {
        name: np.asarray(value)[place] if np.shape(value)[:1] == (by_pair,) else np.asarray(value)
        for name, value in arrays.items()
    }


def assert_same(found: ClickModel, expected: ClickModel) -> None:
    mine, theirs = (parameters(model, expected.vocabulary) for model in (found, expected))
    assert mine.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_allclose(mine[name], value, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("model", BY_COUNTS)
def test_halves_added_give_the_parameters_of_the_whole(model: str, rng: np.random.Generator) -> None:
    one, two = log_of(700, rng), log_with_holes(log_of(500, rng, docs=11, width=4), rng)
    whole = Sessions.concat([one, two])
    assert not one.vocabulary.same_as(two.vocabulary)
    counts = DayCounts.merged([DayCounts.of(one), DayCounts.of(two)])
    assert counts.sessions == whole.total
    assert_same(fitted(model, given(counts, model)), fitted(model, whole))


@pytest.mark.filterwarnings("ignore:.*examined less than once")
@pytest.mark.parametrize("model", ["PBM", "UBM", "DBN", "DCM", "CCM", "CM", "dCTR"])
def test_decay_is_that_of_sessions_weighted_so(model: str, rng: np.random.Generator) -> None:
    whole, days = dated(rng)
    weight = whole.count * np.repeat([1 / 8, 1 / 2, 1.0], 400)  # three days and one day old: sums without rounding
    counts = DayCounts.merged([DayCounts.of(day) for day in days], half_life=1)
    assert_same(fitted(model, given(counts, model)), fitted(model, weighted(whole, weight, model)))


def dated(rng: np.random.Generator) -> tuple[Sessions, list[Sessions]]:
    """28 February of a leap year, 1 and 2 March."""
    times = ("2024-02-28T10:00", "2024-03-01T23:00", "2024-03-02T01:00")
    logs = [log_of(400, rng) for _ in times]
    days = [
        Sessions(log.rankings, log.click, log.count, np.full(len(log), np.datetime64(time)))
        for log, time in zip(logs, times, strict=True)
    ]
    return Sessions.concat(days), days


def weighted(log: Sessions, weight: np.ndarray, model: str) -> Cells | Cascade:
    return Cascade.of(log, weight=weight) if model in CASCADES else Cells.of(log, "last_click", weight=weight)


def test_decay_from_day_to_day(rng: np.random.Generator) -> None:
    whole, logs = dated(rng)
    days = [DayCounts.of(log) for log in logs]
    counts = DayCounts.merged(days, half_life=2.5)
    weight = whole.count * np.repeat(0.5 ** (np.array([3, 1, 0]) / 2.5), 400)
    assert counts.sessions == pytest.approx(weight.sum(), rel=1e-12)
    assert (counts.first, counts.last) == (logs[0].time[0], logs[2].time[0])  # type: ignore[index]
    assert_same_counts(counts, weighted(whole, weight, "UBM"), weighted(whole, weight, "DBN"))
    shuffled = DayCounts.merged([days[2], days[0], days[1]], half_life=2.5)
    yesterday = DayCounts.merged(days[:2], half_life=2.5)
    for other in (shuffled, DayCounts.merged([yesterday, days[2]], half_life=2.5)):
        assert other.sessions == pytest.approx(counts.sessions, rel=1e-12)
        assert_same_counts(other, counts.cells, counts.cascade)
    assert DayCounts.merged(days, half_life=0.01).sessions == logs[2].total, "more than fifty half-lives ago"


def assert_same_counts(found: DayCounts, cells: Cells | Cascade, cascade: Cells | Cascade) -> None:
    assert isinstance(cells, Cells)
    assert isinstance(cascade, Cascade)
    assert found.vocabulary.same_as(cells.vocabulary)
    for name in ("pair", "situation", "impressions", "clicks"):
        np.testing.assert_allclose(getattr(found.cells, name), getattr(cells, name), rtol=1e-12, err_msg=name)
    for name in TABLES:
        np.testing.assert_allclose(getattr(found.cascade, name), getattr(cascade, name), rtol=1e-12, err_msg=name)
    rng, size = np.random.default_rng(1), cells.vocabulary.n_pairs + 1
    walk = TailTransitions(rng.uniform(0.2, 0.9, size), 0.8, rng.uniform(0.2, 0.9, size), rng.random(found.n_ranks))
    mine, theirs = (part.tails.expect(walk) for part in (found.cascade, cascade))
    for name, value in vars(theirs).items():
        if name != "curvature":
            np.testing.assert_allclose(getattr(mine, name), value, rtol=1e-9, err_msg=name)


def test_days_without_times_are_files(rng: np.random.Generator) -> None:
    logs = [log_of(50, rng) for _ in range(3)]
    counts = DayCounts.merged([DayCounts.of(log) for log in logs], half_life=2)
    total = sum(log.total * weight for log, weight in zip(logs, (0.5, 0.5**0.5, 1.0), strict=True))
    assert counts.sessions == pytest.approx(total, rel=1e-12)
    assert (counts.first, counts.last) == (None, None)


def test_numbers_of_days(rng: np.random.Generator) -> None:
    log = log_of(50, rng)
    days = [Sessions(log.rankings, log.click, log.count, np.full(50, time)) for time in (7, 9.75)]
    assert DayCounts.merged([DayCounts.of(day) for day in days], half_life=1).sessions == log.total * 1.25
    first = DayCounts.of(days[0])
    assert DayCounts.merged([first, DayCounts.of(log)]).last is None, "what only some logs know"
    seconds = Sessions(log.rankings, log.click, log.count, 1_700_000_000 + 1700 * np.arange(50))
    dates = Sessions(log.rankings, log.click, log.count, np.full(50, np.datetime64("2024-03-01")))
    cases: list[tuple[list[Sessions], str, dict[str, float]]] = [
        ([seconds], "not-day-numbers", {"first": 1_700_000_000, "last": 1_700_000_000 + 1700 * 49}),
        ([days[0], log], "missing-time", {"count": 1, "total": 2}),
        ([days[0], dates], "mixed-times", {}),
    ]
    for others, code, facts in cases:
        with raises_code(code, DataError, **facts):
            DayCounts.merged([DayCounts.of(other) for other in others], half_life=7)


def test_weights(rng: np.random.Generator) -> None:
    logs = [log_of(300, rng, docs=7), log_of(300, rng)]
    one, two = (DayCounts.of(log) for log in logs)
    alone = DayCounts.merged([one, two], weights=[3, 0])
    assert alone.vocabulary.same_as(one.vocabulary), "what weighs nothing is left out"
    assert_same_counts(alone, *(weighted(logs[0], 3 * logs[0].count, model) for model in ("UBM", "DBN")))
    for weights in ([1.0], [1, -1], [0, 0], [1, float("nan")], [1, float("inf")]):
        with raises_code("bad-weights", DataError):
            DayCounts.merged([one, two], weights=weights)
    for half_life in (0.0, -3, float("nan")):
        with raises_code("bad-half-life", DataError):
            DayCounts.merged([one, two], half_life=half_life)
    with raises_code("bad-option", DataError):
        DayCounts.merged([one, two], weights=[1, 1], half_life=7)
    with raises_code("no-days", DataError):
        DayCounts.merged([])


def test_equal_tails_stand_once(rng: np.random.Generator, tmp_path: Path) -> None:
    log = log_of(2000, rng, docs=5, width=3)
    shown, pairs = log.rankings.shown, log.rankings.pair
    expected = set()
    for pair, n, click in zip(pairs.tolist(), shown.sum(axis=1), log.click, strict=True):
        start = max(np.flatnonzero(click), default=-1) + 1
        if start < n:
            expected.add((start, *pair[max(start - 1, 0) : n]))
    half = len(log) // 2
    counts = DayCounts.merged([DayCounts.of(log[:half]), DayCounts.of(log[half:])])
    assert isinstance(counts.cascade.tails, TailsByShape)
    assert len(counts.cascade.tails.count) == len(expected) < len(log) / 4
    DayCounts.of(log).save(tmp_path / "counts")
    kept = DayCounts.load(tmp_path / "counts").cascade.tails
    assert isinstance(kept, TailsByShape)
    assert len(kept.count) == len(expected)


@pytest.mark.parametrize("holes", [False, True])
def test_tails_in_parts(holes: bool, rng: np.random.Generator, tmp_path: Path) -> None:
    """As a log that is larger than memory has them."""
    log = log_with_holes(log_of(900, rng), rng) if holes else log_of(900, rng)
    counts, thirds = DayCounts.of(log), [Cascade.of(log[k : k + 300]).tails for k in (0, 300, 600)]
    parts = TailsInParts([tails for tails in thirds if isinstance(tails, TailsByShape)])
    on_disk = replace(counts, cascade=replace(counts.cascade, sort_tails=lambda: parts))
    assert_same_counts(DayCounts.merged([on_disk]), counts.cells, counts.cascade)
    on_disk.save(tmp_path / "counts")
    assert_same_counts(DayCounts.load(tmp_path / "counts"), counts.cells, counts.cascade)
    whole, in_parts = (tails.pooled() for tails in (counts.cascade.tails, parts))
    assert np.array_equal(whole.length, in_parts.length)
    assert whole.count.sum() == in_parts.count.sum() == counts.cascade.tails.count.sum()


def test_ids_as_numbers_and_as_text(rng: np.random.Generator) -> None:
    numbers, text = log_of(300, np.random.default_rng(3)), log_of(300, np.random.default_rng(3), text=True)
    assert text.vocabulary.doc_ids.dtype.kind == "T"
    counts = DayCounts.merged([DayCounts.of(numbers), DayCounts.of(text)])
    whole = Sessions.concat([numbers, text])
    assert counts.vocabulary.n_pairs == numbers.vocabulary.n_pairs
    assert_same_counts(counts, Cells.of(whole, "last_click"), Cascade.of(whole))


def test_what_a_vocabulary_does_not_hold(rng: np.random.Generator) -> None:
    one, two = log_of(300, rng, docs=7), log_of(300, rng)
    words = one.vocabulary
    foreign = two.in_vocabulary(words)
    assert (foreign.rankings.pair[foreign.rankings.shown] == UNSEEN).any()
    counts = DayCounts.merged([DayCounts.of(one), DayCounts.of(foreign)])
    whole = Sessions.concat([one, foreign])
    assert_same_counts(counts, Cells.of(whole, "last_click"), Cascade.of(whole))


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("time", [None, 12.5, np.datetime64("2024-03-01T12:30", "us"), np.datetime64("2024-03-01")])
def test_counts_are_read_as_they_were_written(
    text: bool, time: np.datetime64 | float | None, rng: np.random.Generator, tmp_path: Path
) -> None:
    log = log_of(300, rng, text=text)
    if time is not None:
        log = Sessions(log.rankings, log.click, log.count, np.full(300, time))
    counts, folder = DayCounts.of(log), tmp_path / "day.counts"
    assert not is_counts(folder)
    counts.save(folder, notes={"logs": ["a"]})
    assert is_counts(folder)
    read = DayCounts.load(folder)
    assert (read.first, read.last, read.sessions) == (time, time, log.total)
    assert_same_counts(read, counts.cells, counts.cascade)
    assert read.vocabulary.query_ids.tolist() == log.vocabulary.query_ids.tolist()
    assert_same(fitted("DBN", read.cascade), fitted("DBN", log))


def test_texts_of_all_kinds(tmp_path: Path) -> None:
    words, query, pair = Vocabulary.of(["", "ä", "日本", "ä"], ["x" * 100, "\n", "y", "🙂"])
    log = Sessions(Rankings(words, query, pair[:, None]), np.ones((4, 1), int))
    DayCounts.of(log).save(tmp_path)
    read = DayCounts.load(tmp_path)
    assert read.vocabulary.same_as(words)
    assert len(read.cascade.tails.count) == 0  # type: ignore[attr-defined]
    assert DayCounts.merged([read, read]).sessions == 8, "no tails at all"


def test_what_is_not_counts_is_refused(rng: np.random.Generator, tmp_path: Path) -> None:
    counts, folder = DayCounts.of(log_of(50, rng)), tmp_path / "day.counts"
    with raises_code("not-a-count", FileError, path=folder):
        DayCounts.load(folder)
    (tmp_path / "clicks.parquet").touch()
    with raises_code("not-a-count", FileError, path=tmp_path / "clicks.parquet"):
        DayCounts.load(tmp_path / "clicks.parquet")
    counts.save(folder)
    header = json.loads((folder / _COUNTS_FORMAT.header).read_text())
    changes: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
        ({"format": 99}, "newer-format", {"format": 99, "supported": 2}),
        ({"format": 0}, "older-format", {"format": 0, "supported": 2}),
        ({"format": None}, "damaged-file", {}),
        ({"arrays": "0"}, "damaged-file", {"cause": "arrays-changed"}),
        ({"ranks": None}, "damaged-file", {"cause": "TypeError"}),
        ({"ranks": 2**63}, "damaged-file", {}),
        ({"ranks": 2**40}, "damaged-file", {}),
        ({"first": {}}, "damaged-file", {"cause": "KeyError"}),
    ]
    for change, code, facts in changes:
        (folder / _COUNTS_FORMAT.header).write_text(json.dumps(header | change))
        with raises_code(code, FileError, **facts):
            DayCounts.load(folder)
    (folder / _COUNTS_FORMAT.header).write_text(json.dumps(header))
    arrays_file(folder).write_bytes(arrays_file(folder).read_bytes()[:1000])
    with raises_code("damaged-file", FileError, path=arrays_file(folder)):
        DayCounts.load(folder)


def at(k: int, value: float) -> Callable[[np.ndarray], np.ndarray]:
    """Replace one number."""
    return lambda array: np.concatenate([array[:k], np.array([value]).astype(array.dtype), array[k + 1 :]])


CRAFTED: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "a pair of cells out of range": ("cells.pair", at(-2, 10**6)),
    "a negative pair of cells": ("cells.pair", at(0, -1)),
    "cells in another order": ("cells.pair", lambda array: array[::-1].copy()),
    "too few cells": ("cells.pair", lambda array: array[1:]),
    "a table of cells": ("cells.pair", lambda array: array[:, None].copy()),
    "cells that are fractions": ("cells.pair", lambda array: array.astype(float)),
    "a situation out of range": ("cells.situation", lambda array: array + 10**6),
    "more clicks than impressions": ("cells.clicks", lambda array: array + 1000),
    "negative impressions": ("cells.impressions", lambda array: -array),
    "infinite impressions": ("cells.impressions", at(0, np.inf)),
    "impressions that are no number": ("cells.impressions", at(0, np.nan)),
    "a tail of a pair out of range": ("tails.pair", at(0, 2**31)),
    "the second number after the last pair": ("tails.pair", lambda array: np.full_like(array, 35)),
    "a tail longer than the lists": ("tails.length", lambda array: array + 100),
    "a tail that begins below its end": ("tails.start", lambda array: array + 100),
    "a tail that begins above the list": ("tails.start", lambda array: array - 100),
    "more tails than there are": ("tails.sessions", lambda array: array + 1),
    "so many tails that sums overflow": ("tails.sessions", at(0, 2**62)),
    "a tail of weight 0": ("tails.count", at(0, 0.0)),
    "too few pairs in tails": ("tails.pair", lambda array: array[:-1]),
    "a cascade table that is too short": ("cascade.clicks", lambda array: array[:-1]),
    "more examined than shown": ("cascade.examined", lambda array: array + 1000),
    "negative clicks": ("cascade.followed", lambda array: array - 1000),
    "a rank too few": ("cascade.followed_at_rank", lambda array: array[:-1]),
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Counts of 34 pairs in a folder."""
    folder = tmp_path_factory.mktemp("stored") / "counts"
    counts = DayCounts.of(log_of(200, np.random.default_rng(0)))
    assert counts.vocabulary.n_pairs == 34
    counts.save(folder)
    return folder


@pytest.mark.parametrize("crafted", CRAFTED)
def test_numbers_that_no_count_gives_are_one_error(crafted: str, stored: Path, tmp_path: Path) -> None:
    name, change = CRAFTED[crafted]
    folder = shutil.copytree(stored, tmp_path / "counts")
    craft(folder, "count.json", {name: np.ascontiguousarray(change(load_file(arrays_file(folder))[name]))})
    with raises_code("damaged-file", FileError, path=folder):
        DayCounts.load(folder)


@pytest.mark.parametrize(
    "header",
    [{"sessions": -1}, {"sessions": 1e300}, {"ranks": 10**9}, {"ranks": float("inf")}, {"passed": float("nan")}],
    ids=str,
)
def test_facts_that_no_count_gives_are_one_error(header: dict[str, Any], stored: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(stored, tmp_path / "counts")
    craft(folder, "count.json", {}, **header)
    with raises_code("damaged-file", FileError, path=folder):
        DayCounts.load(folder)


def test_order_of_days() -> None:
    dates = [np.datetime64(day) for day in ("2024-03-02", "2024-03-01T10", "2024-03-01T09:30")]
    assert sort_by_time(dates) == [2, 1, 0]
    assert sort_by_time([3.0, 1.0, 2.0]) == [1, 2, 0]
    assert sort_by_time([3.0, None, 2.0]) == [0, 1, 2]
    with raises_code("mixed-times", DataError):
        sort_by_time([dates[0], 3.0])
