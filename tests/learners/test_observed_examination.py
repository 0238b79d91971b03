"""Views in a log are observed examination: counts, likelihood, intervals, and the comparison with clicks alone."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clickshift as cs
from clickshift.counts.cells import By, Cells, situation_of
from clickshift.counts.daily import DayCounts
from clickshift.data.sessions import Rankings, Sessions
from clickshift.errors import ClickshiftWarning
from clickshift.learners._position_models import EXAMINATION_PRIOR
from clickshift.learners.likelihood import MaximumLikelihood
from tests.codes import warns_code
from tests.suite import Study

RANKS, QUERIES = 5, 8
EXAMINATION = 0.9 / np.arange(1, RANKS + 1) ** 0.6
ATTRACTIVENESS = np.random.default_rng(3).uniform(0.1, 0.7, QUERIES * RANKS)


def viewed_log(
    n: int, seed: int, *, known: float = 1.0, shown_as_viewed: np.ndarray = EXAMINATION, holes: bool = False
) -> Sessions:
    """A log of a planted PBM in random orders, with views of a share of its sessions."""
    rng = np.random.default_rng(seed)
    query = rng.integers(0, QUERIES, n).astype(np.int32)
    order = np.argsort(rng.random((n, RANKS)), axis=1)
    pair = (query[:, None] * RANKS + order).astype(np.int32)
    vocabulary = cs.Vocabulary.of(np.repeat(np.arange(QUERIES), RANKS), np.arange(QUERIES * RANKS))[0]
    shown = np.ones(pair.shape, bool)
    if holes:
        shown[:, :-1] = rng.random((n, RANKS - 1)) < 0.8
    uniform = rng.random(pair.shape)
    examined = (uniform < EXAMINATION) & shown
    click = examined & (rng.random(pair.shape) < ATTRACTIVENESS[pair])
    viewed = np.where(click, 1.0, (uniform < shown_as_viewed) & shown)
    viewed[rng.random(n) >= known] = np.nan
    return Sessions(Rankings(vocabulary, query, pair, shown), click, signals={"viewed": viewed})


def without_views(log: Sessions) -> Sessions:
    return replace(log, signals={})


@pytest.mark.parametrize("by", ["rank", "last_click", "prefix"])
def test_views_are_counted_as_a_loop_counts_them(by: By) -> None:
    log = viewed_log(300, 1, known=0.7, holes=True)
    viewed = np.array(log.signals["viewed"])
    row, rank = np.argwhere(log.click & (viewed == 1))[0]
    viewed[row, rank] = 0  # a click on a result that is marked as not viewed
    log = Sessions(log.rankings, log.click, np.arange(1, 301), signals={"viewed": viewed})
    cells = Cells.of(log, by, views=True)
    situation, expected = situation_of(by, log), {}
    for i, r in np.argwhere(log.rankings.shown & ~np.isnan(viewed)):
        kind = 0 if log.click[i, r] else 1 if viewed[i, r] else 2
        key = int(log.rankings.pair[i, r]), int(situation[i, r]), kind
        expected[key] = expected.get(key, 0) + log.count[i]
    assert cells.views is not None
    keys = list(zip(cells.pair.tolist(), cells.situation.tolist(), strict=True))
    for kind in range(3):
        assert cells.views[kind].tolist() == [expected.get((*key, kind), 0) for key in keys]
    assert cells.views.contradicted == log.count[row]
    cells.validate()
    coarse = cells.rolled_up("rank")
    assert coarse.views is not None
    for counted, once in zip(coarse.views, Cells.of(log, "rank", views=True).views or (), strict=True):
        assert np.array_equal(counted, once)


def test_a_log_without_views_has_no_counts_of_them() -> None:
    assert Cells.of(without_views(viewed_log(50, 1)), views=True).views is None


def log_likelihood(log: Sessions, a: np.ndarray, e: np.ndarray, prior: Any) -> float:
    """Result by result, as the definition says, with the penalties of the priors."""
    total = float((prior.yes * np.log(a) + (prior.total - prior.yes) * np.log1p(-a)).sum())
    total += float((0.1 * np.log(e) + 0.1 * np.log1p(-e)).sum())
    viewed = log.signals["viewed"]
    for i, r in np.argwhere(log.rankings.shown):
        own = a[log.rankings.pair[i, r]]
        if log.click[i, r]:
            total += np.log(own * e[r])
        elif np.isnan(viewed[i, r]):
            total += np.log1p(-own * e[r])
        else:
            total += np.log((1 - own) * e[r]) if viewed[i, r] else np.log1p(-e[r])
    return total


def test_the_fit_maximises_the_likelihood_of_clicks_and_views() -> None:
    log = viewed_log(400, 2, known=0.4, holes=True)
    learner = MaximumLikelihood("PBM", prior=(0.5, 2.0), tolerance=1e-9)
    model: Any = learner.fit(log)
    a, e, prior = model.attractiveness[:-1], model.examination, learner._beta_prior()
    assert (EXAMINATION_PRIOR.yes, EXAMINATION_PRIOR.total) == (0.1, 0.2)
    best = log_likelihood(log, a, e, prior)
    assert model.evidence.log_likelihood == pytest.approx(best)
    for table in (a, e):
        for k in range(0, len(table), 7):
            for step in (-1e-3, 1e-3):
                table[k] += step
                assert log_likelihood(log, a, e, prior) < best
                table[k] -= step


@pytest.mark.parametrize("name", ["PBM", "UBM"])
def test_fully_known_views_are_the_rates_of_views_and_of_clicks_when_viewed(name: str) -> None:
    log = viewed_log(4000, 3)
    model: Any = cs.fit(name, log)
    viewed = np.array(log.signals["viewed"], bool)
    rows = [row for row in model.examination_table() if row.get("last_click") is None]
    assert next(row["observed"] for row in rows) == pytest.approx(viewed[:, 0].mean())
    if name == "PBM":
        assert np.allclose(model.examination, viewed.mean(axis=0), atol=2e-3)
        assert all(row["low"] <= truth <= row["high"] for row, truth in zip(rows, EXAMINATION, strict=True))
        errors = model.evidence.logit_error["examination"]
        assert np.allclose(errors, 1 / np.sqrt(4000 * model.examination * (1 - model.examination)), rtol=0.02)
    pair = log.rankings.pair
    seen, clicked = (np.bincount(pair[mask], minlength=len(ATTRACTIVENESS)) for mask in (viewed, log.click))
    successes, trials = model.evidence.effective_counts["attractiveness"]
    assert np.allclose(successes[:-1], clicked, atol=0.5)
    assert np.allclose(trials[:-1], seen, rtol=0.02)


@pytest.mark.parametrize("name", ["PBM", "UBM"])
def test_a_few_known_views_give_examination_its_scale(name: str) -> None:
    log = viewed_log(6000, 4, known=0.15)
    model: Any = cs.fit(name, log)
    curve = np.array([row["estimate"] for row in model.examination_table() if row.get("last_click") is None])
    assert np.allclose(curve, EXAMINATION, atol=0.05)
    assert np.abs(model.attractiveness[:-1] - ATTRACTIVENESS).mean() < 0.03
    alone: Any = cs.fit(name, without_views(log))
    assert alone.examination[0] == 1


def test_views_of_the_first_ranks_give_the_others_their_scale() -> None:
    """Without clicks on viewed results in the conditional likelihood, low ranks are pulled to their click rates."""
    estimates, held = [], 0
    for seed in range(20):
        log = viewed_log(3000, 50 + seed)
        viewed = np.array(log.signals["viewed"], np.float64)
        viewed[:, 2:] = np.nan
        rows = cs.fit("PBM", replace(log, signals={"viewed": viewed})).examination_table()[2:]
        estimates.append([row["estimate"] for row in rows])
        held += sum(row["low"] <= e <= row["high"] for row, e in zip(rows, EXAMINATION[2:], strict=True))
        widest = max(row["high"] - row["low"] for row in rows)
        assert widest < 0.2
    assert np.abs(np.mean(estimates, axis=0) - EXAMINATION[2:]).max() < 0.02
    assert held >= 51, "of 60; with probability .95 each, 50 or fewer happen four times in 1,000"


def test_views_are_ignored_on_request(tmp_path: Path) -> None:
    log, path = viewed_log(500, 5), tmp_path / "log.parquet"
    cs.write_log(log, path)
    ignored, alone = cs.fit("PBM", str(path), columns={"viewed": ""}), cs.fit("PBM", without_views(log))
    assert np.allclose(ignored.examination, alone.examination)  # type: ignore[attr-defined]
    assert cs.fit("PBM", str(path)).examination[0] < 1  # type: ignore[attr-defined]


def test_views_of_an_encoded_log_are_those_of_the_log(tmp_path: Path) -> None:
    log = viewed_log(500, 5, known=0.6)
    cs.write_log(log, tmp_path / "log.parquet")
    encoded = cs.open_log(tmp_path / "log.parquet", in_memory=False)
    assert np.allclose(cs.fit("UBM", encoded).examination, cs.fit("UBM", log).examination)  # type: ignore[attr-defined]


def test_off_policy_evaluation_learns_examination_from_clicks_alone(tmp_path: Path) -> None:
    """In memory and encoded, where equal sessions are merged without their views."""
    log = viewed_log(400, 6)
    cs.write_log(log, tmp_path / "log.parquet")
    encoded = cs.open_log(tmp_path / "log.parquet", in_memory=False)
    target = log.rankings[np.unique(log.rankings.query, return_index=True)[1]]
    values = [
        cs.evaluate_policy(one, target, estimators=["PBM"], replicates=20).rows()[0]["value"]
        for one in (log, without_views(log), encoded)
    ]
    assert values == pytest.approx([values[0]] * 3)


def test_views_without_any_unviewed_result_are_not_used() -> None:
    log = viewed_log(500, 6)
    only = np.where(log.signals["viewed"], 1.0, np.nan)
    with warns_code("no-unviewed-results", model="PBM"):
        model: Any = cs.fit("PBM", replace(log, signals={"viewed": only}))
    assert np.array_equal(model.examination, cs.fit("PBM", without_views(log)).examination)  # type: ignore[attr-defined]
    assert not model.evidence.views


def test_views_that_clicks_contradict_are_reported_with_their_rank() -> None:
    wrong = EXAMINATION * np.array([1, 1, 1, 1, 0.5])
    with warns_code("views-contradict-clicks", model="PBM", rank=5):
        model = cs.fit("PBM", viewed_log(6000, 7, shown_as_viewed=wrong))
    largest = cs.examination(model).to_dict()["largest_difference"]
    assert largest["beyond_chance"]
    assert largest["difference"] == pytest.approx(EXAMINATION[4] / 2, abs=0.12)


def test_right_views_agree_with_clicks() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ClickshiftWarning)
        for seed in range(6):
            cs.fit("PBM", viewed_log(1000, 20 + seed))


def test_summaries_show_both_curves_and_are_stored(tmp_path: Path) -> None:
    model = cs.fit("UBM", viewed_log(600, 8, known=0.5))
    model.summary().write(tmp_path / "model")
    stored = cs.examination(tmp_path / "model")
    assert stored.to_dict() == cs.examination(model).to_dict()
    facts = stored.to_dict()
    assert facts["known_views"] > 1000
    assert {"observed", "from_clicks"} < set(stored.rows()[0])
    assert {"observed", "from clicks alone"} <= {trace.name for trace in next(iter(stored.figures.values())).data}
    assert "curve" in model.summary().to_dict()


def test_daily_counts_keep_views(tmp_path: Path) -> None:
    """A day without views has none that are known."""
    log = viewed_log(600, 9)
    days = [DayCounts.of(log[:300]), DayCounts.of(without_views(log[300:]))]
    days[0].save(tmp_path / "monday.counts")
    total = DayCounts.merged([DayCounts.load(tmp_path / "monday.counts"), days[1]])
    viewed = np.array(log.signals["viewed"], float)
    viewed[300:] = np.nan
    once: Any = cs.fit("PBM", replace(log, signals={"viewed": viewed}))
    assert np.allclose(cs.fit("PBM", total).examination, once.examination)  # type: ignore[attr-defined]


@pytest.mark.study
def test_intervals_of_examination_hold_the_truth(study: Study) -> None:
    for known in (1.0, 0.3, 0.1):
        hits, warned = [], 0
        for seed in range(study.choose(smallest=4, full=300)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model = cs.fit("PBM", viewed_log(2000, seed, known=known))
            warned += len(caught)
            low, high, _ = model.intervals("examination")
            hits.append((low <= EXAMINATION) & (high >= EXAMINATION))
        study.record(f"coverage of observed examination, {known:.0%} of views known", coverage=float(np.mean(hits)))
        if study.full:
            assert 0.92 < np.mean(hits) < 0.98
            assert warned <= 9, "views and clicks agree, so that a test of level .01 rarely says that they do not"
