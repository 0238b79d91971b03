"""Views by segment: counts, likelihood, planted curves, and what is reported of them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clickshift as cs
from clickshift.counts.cells import By, Cells, situation_of
from clickshift.counts.segment_numbers import SegmentNumbers, rows_of_segments
from clickshift.data.segments import Segment
from clickshift.data.sessions import Sessions
from clickshift.learners._position_models import ExaminationProblem, fit_with_reference
from clickshift.learners._priors import Beta
from tests.codes import warns_code
from tests.learners.segmented_log import FLAT, STEEP, segmented_log
from tests.learners.test_observed_examination import log_likelihood, without_views

DESKTOP, PHONE = 0.8 * FLAT, 0.9 * STEEP


def viewed_log(n: int, seed: int, *, known: float = 1.0, unknown: float = 0.0, only: int | None = None) -> Sessions:
    """A log of desktops and phones with the views of a share of its sessions, or of those of one device only."""
    log, attractiveness = segmented_log((DESKTOP, PHONE), n, seed=seed)
    rng, r = np.random.default_rng([seed, 1]), log.rankings
    device = r.segments["device"].code
    examined = np.stack([DESKTOP, PHONE])[device]
    attractive = attractiveness[r.pair]
    prob = np.where(log.click, 1.0, examined * (1 - attractive) / (1 - examined * attractive))
    viewed = (rng.random(prob.shape) < prob).astype(float)
    viewed[(rng.random(n) >= known) | ((device != only) if only is not None else False)] = np.nan
    code = np.where(rng.random(n) < unknown, -1, device)
    rankings = replace(r, segments={"device": Segment(r.segments["device"].labels, code)})
    return Sessions(rankings, log.click, signals={"viewed": viewed})


@pytest.mark.parametrize("by", ["rank", "last_click", "prefix"])
def test_views_are_counted_by_segment(by: By, tmp_path: Path) -> None:
    """Those of each segment are those of its sessions alone, and a loop counts the same; also from disk."""
    log = viewed_log(300, 1, known=0.7, unknown=0.2)
    segments = SegmentNumbers.in_log(log, "device")
    assert segments.n == 3
    cells = Cells.of(log, by, segments=segments, views=True)
    cells.validate()
    n = cells.n_situations // 3
    number, situation, viewed = segments.of(log), situation_of(by, log), log.signals["viewed"]
    expected = dict[tuple[int, int, int], int]()
    for i, r in np.argwhere(~np.isnan(viewed)):
        kind = 0 if log.click[i, r] else 1 if viewed[i, r] else 2
        key = int(log.rankings.pair[i, r]), int(number[i] * n + situation[i, r]), kind
        expected[key] = expected.get(key, 0) + 1
    assert cells.views is not None
    keys = list(zip(cells.pair.tolist(), cells.situation.tolist(), strict=True))
    for kind in range(3):
        assert cells.views[kind].tolist() == [expected.get((*key, kind), 0) for key in keys]
    once = Cells.of(log, "rank", views=True)
    for added, alone in zip(cells.pooled_by_rank().views or (), once.views or (), strict=True):
        assert np.array_equal(added, alone)
    cs.write_log(log, tmp_path / "log.parquet")
    columns = {"segment:device": "device"}
    encoded = cs.open_log(tmp_path / "log.parquet", in_memory=False, columns=columns)
    again = Cells.of(encoded, by, segments=segments, views=True)
    assert again.views is not None
    assert [part.sum() for part in again.views[:3]] == [part.sum() for part in cells.views[:3]]


def test_the_maximum_is_that_of_the_likelihood_of_each_segments_sessions() -> None:
    """The joint likelihood is the sum of those of the segments, result by result, with attractiveness in common."""
    log, prior = viewed_log(300, 2, known=0.4), Beta(0.5, 2.0)
    segments = SegmentNumbers.in_log(log, "device")
    cells = Cells.of(log, segments=segments, views=True)
    problem = ExaminationProblem(cells, prior, pseudo_counts=False)
    fitted, newton, reference = fit_with_reference(problem, problem.start(None), 1e-9, 200)
    assert reference is None
    parts = [log[rows] for rows in rows_of_segments(log, segments)]

    def value(a: np.ndarray, e: np.ndarray) -> float:
        penalty = (prior.yes * np.log(a) + (prior.total - prior.yes) * np.log1p(-a)).sum()  # once, not by segment
        own = [log_likelihood(part, a, curve, prior) for part, curve in zip(parts, e.reshape(2, -1), strict=True)]
        return float(sum(own) - penalty)

    a, e = fitted.attractiveness.copy(), fitted.examination.copy()
    best = value(a, e)
    assert newton.objective == pytest.approx(best)
    for table, every in ((a, 37), (e, 1)):
        for k in range(0, len(table), every):
            for step in (-1e-3, 1e-3):
                table[k] += step
                assert value(a, e) < best
                table[k] -= step


@pytest.mark.parametrize(
    ("name", "known", "tolerance"), [("PBM", 1.0, 0.035), ("PBM", 0.1, 0.08), ("UBM", 1.0, 0.05), ("UBM", 0.1, 0.12)]
)
def test_planted_curves_are_recovered_with_their_scale(name: str, known: float, tolerance: float) -> None:
    """No rank is 1 by convention: clicks alone say that desktops examine the first rank with certainty."""
    log = viewed_log(5000, 3, known=known, unknown=0.1)
    model: Any = cs.fit(name, log, by="device")
    rows = [row for row in model.examination_table() if row.get("last_click") is None]
    truth = np.concatenate([DESKTOP, PHONE])
    assert np.abs(np.array([row["estimate"] for row in rows]) - truth).max() < tolerance
    assert sum(row["low"] <= t <= row["high"] for row, t in zip(rows, truth, strict=True)) >= 10
    assert {row["segment"] for row in rows if row["observed"] is not None} == {"desktop", "phone"}
    alone: Any = cs.fit(name, without_views(log), by="device")
    assert alone.curves.max() == 1
    assert np.abs(model.pooled.examination).max() < 0.95


def test_views_of_all_results_are_the_rates_of_each_segment() -> None:
    log = viewed_log(4000, 4)
    model: Any = cs.fit("PBM", log, by="device")
    viewed = np.array(log.signals["viewed"], bool)
    device = log.rankings.segments["device"].code
    for k in range(2):
        rates, n = viewed[device == k].mean(axis=0), (device == k).sum()
        assert np.allclose(model.curves[k], rates, atol=1.5 / math.sqrt(n))
        own = model.of(("desktop", "phone")[k])
        assert np.allclose([row["observed"] for row in own.examination_table()], rates)
        found = 1 / (own.evidence.logit_error["examination"] ** 2 * rates * (1 - rates))
        assert np.allclose(found, n, rtol=0.15), "as many trials as sessions"


def test_views_of_one_segment_give_the_other_its_scale() -> None:
    """Attractiveness is shared: phones alone say which views there were, and desktops follow."""
    held, found = 0, []
    for seed in range(10):
        model: Any = cs.fit("PBM", viewed_log(4000, seed, only=1), by="device")
        rows = model.examination_table()
        assert all(row["observed"] is None for row in rows if row["segment"] == "desktop")
        held += sum(row["low"] <= t <= row["high"] for row, t in zip(rows, DESKTOP, strict=False))
        found.append([row["estimate"] for row in rows[: len(DESKTOP)]])
    assert np.abs(np.mean(found, axis=0) - DESKTOP).max() < 0.03
    assert held >= 52, "of 60; with probability .95 each, 51 or fewer happen once in 100 times"


def test_a_tracker_that_sees_everything_at_the_first_rank() -> None:
    log = viewed_log(2000, 5)
    viewed = np.array(log.signals["viewed"])
    viewed[:, 0] = 1
    model: Any = cs.fit("PBM", replace(log, signals={"viewed": viewed}), by="device")
    first = [row for row in model.examination_table() if row["rank"] == 1]
    assert all(row["estimate"] > 0.99 for row in first)
    assert all(0.98 < row["low"] <= row["estimate"] <= row["high"] <= 1 for row in first)


def test_intervals_hold_the_planted_curves() -> None:
    held, truth = [], np.concatenate([DESKTOP, PHONE])
    for seed in range(40):
        rows = cs.fit("PBM", viewed_log(3000, 200 + seed, known=0.3), by="device").examination_table()
        held += [row["low"] <= t <= row["high"] for row, t in zip(rows, truth, strict=True)]
    assert 0.92 < np.mean(held) < 0.985


def test_views_without_the_unviewed_are_not_used() -> None:
    log = viewed_log(1000, 6)
    seen = np.where(np.array(log.signals["viewed"]) == 1, 1.0, np.nan)
    with warns_code("no-unviewed-results", model="PBM"):
        model: Any = cs.fit("PBM", replace(log, signals={"viewed": seen}), by="device")
    np.testing.assert_array_equal(model.curves, cs.fit("PBM", without_views(log), by="device").curves)  # type: ignore[attr-defined]


def test_the_result_says_how_far_clicks_alone_are_from_views(tmp_path: Path) -> None:
    log = viewed_log(6000, 7)
    viewed = np.array(log.signals["viewed"])
    phones = log.rankings.segments["device"].code == 1
    rng = np.random.default_rng(8)
    viewed[phones, 2] = np.maximum(
        log.click[phones, 2], rng.random(phones.sum()) < 0.9
    )  # a tracker that is wrong there
    with warns_code("views-contradict-clicks", rank=3):
        model = cs.fit("PBM", replace(log, signals={"viewed": viewed}), by="device")
    facts = json.loads(json.dumps(model.summary().to_dict()))
    largest = facts["largest_difference"]
    assert (largest["segment"], largest["rank"], largest["beyond_chance"]) == ("phone", 3, True)
    assert "rank 3 on phone" in facts["conclusion"]
    cs.save_model(model, tmp_path / "model")
    assert cs.load_model(tmp_path / "model").examination_table() == model.examination_table()


def test_the_figure_has_the_views_of_each_segment_in_its_colour() -> None:
    model = cs.fit("PBM", viewed_log(2000, 9), by="device")
    lines = {trace.name: trace for trace in cs.examination(model).figure().data if trace.name}
    for label in ("desktop", "phone"):
        crosses, rows = lines[f"observed, {label}"], [r for r in model.examination_table() if r["segment"] == label]
        assert crosses.marker.color == lines[label].line.color
        assert list(crosses.y) == [row["observed"] for row in rows]
        assert list(lines[f"from clicks alone, {label}"].y) == [row["from_clicks"] for row in rows]
