"""The model-selection protocol: the world is the paper's, cells are what their settings say, rows feed the tables."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clickshift as cs
from clickshift.core.spec import key, parse
from clickshift.errors import FileError, SpecError
from clickshift.experiments.experiment import read_run
from clickshift.experiments.model_selection.protocol import (
    MODELS_FROM_COUNTS,
    SCALES,
    ModelSelection,
)
from clickshift.experiments.model_selection.r2 import r2_rows
from clickshift.experiments.model_selection.regret import ALL, regret_rows
from clickshift.experiments.model_selection.strategies import STRATEGIES
from clickshift.experiments.models import Contender
from clickshift.experiments.papers import table_or_figure
from clickshift.experiments.runner import RunFolder, copy_reference_rows, digest, run_tasks
from clickshift.learners.gradient import Gradient
from clickshift.metrics.click_prediction import perplexity
from clickshift.simulation.search_engine import SelectionWorld
from tests.codes import raises_code
from tests.rows import without_costs
from tests.suite import Study

Rows = list[dict[str, Any]]
FULL = ModelSelection()
RANKER = "LambdaMART(trees=5, rescale=False)"
TRAINING = (FULL.training[0], ("LambdaMART", f"PlackettLuce({RANKER}, temperature=0.1)"))
TESTING = (FULL.world.testing[0], ("LambdaMART", RANKER), FULL.world.testing[2])
SMALL = SelectionWorld(TESTING, queries=30, sessions=6000, held_out_sessions=1000, test_sessions=1000)
SOME = tuple(contender for contender in MODELS_FROM_COUNTS if contender.name in {"dCTR", "PBM", "DBN"})
PARTS = {
    "ModelSelection": "clickshift.experiments.model_selection.protocol:ModelSelection",
    "SelectionWorld": "clickshift.simulation.search_engine:SelectionWorld",
    "Contender": "clickshift.experiments.models:Contender",
}


pytestmark = pytest.mark.filterwarnings("ignore:.*examined less than once")


@pytest.fixture(scope="module")
def rows() -> Rows:
    """Two users, both logging policies, two seeds, models by counting and by EM."""
    users = (FULL.users[0], FULL.users[3])
    protocol = replace(FULL, users=users, training=TRAINING, contenders=SOME, world=SMALL, seeds=2)
    return [row for cell in protocol.tasks() for row in cell.rows()]


def test_the_grid() -> None:
    cells = FULL.tasks()
    assert len(cells) == 4 * 2 * 7 * 10
    assert len({digest(cell) for cell in cells}) == len(cells)
    quick = ModelSelection(**SCALES["quick"])
    assert len(quick.tasks()) == 4 * 2 * 7 * 3
    logs = [cell.log for cell in cells]
    assert all(len(set(logs[k : k + 7])) == 1 for k in range(0, len(logs), 7)), "cells of a log stand together"
    assert parse(key(quick), PARTS) == quick


def test_rows(rows: Rows) -> None:
    metrics = [row for row in rows if row["kind"] == "metrics"]
    tests = [row for row in rows if row["kind"] == "clicks"]
    assert len(metrics) == 2 * 2 * 2 * 3
    assert len(tests) == 3 * len(metrics)
    numbers = ("val_perplexity", "ind_perplexity", "nDCG@10", "cmip", "cmip_classifier", "mean_dependence")
    for row in metrics:
        assert all(isinstance(row[name], float) and np.isfinite(row[name]) for name in (*numbers, "agreement_ratio"))
        assert 1 < row["val_perplexity"] < 2
    for row in tests:
        assert 1 < row["perplexity"] < 2.5
        assert 0 <= row["unseen_mass"] < 1
        assert 0 < row["effective_sessions"] <= 1000
        assert (row["shift"] == "ind") == (row["testing"] == row["training"])
    assert {row["seed"] for row in metrics} == {0, 1}
    of_dctr = [row["val_perplexity"] for row in metrics if row["model"] == "dCTR"]
    assert len(set(of_dctr)) == len(of_dctr), "every seed has a log of its own"


def test_a_biased_model_is_seen_and_mispredicts(rows: Rows) -> None:
    """PBM users, NoisyOracle logging: dCTR takes places for merit, and PBM predicts random lists better."""

    def mean(model: str, name: str, **where: str) -> float:
        where |= {"user": "PBM", "training": "NoisyOracle", "model": model}
        return float(np.mean([row[name] for row in rows if name in row and where.items() <= row.items()]))

    assert mean("dCTR", "mean_dependence_slope") > 0
    assert mean("dCTR", "mean_dependence") > mean("PBM", "mean_dependence")
    assert mean("dCTR", "perplexity", testing="Uniform") > mean("PBM", "perplexity", testing="Uniform")


def test_tables_come_from_the_rows(rows: Rows) -> None:
    table = regret_rows(rows)
    assert len(table) == len(STRATEGIES) * 3 * 3
    assert all(row["regret"] >= 0 for row in table)
    total = {row["strategy"]: row["regret"] for row in table if row["user"] == row["training"] == ALL}
    assert total["best fixed model"] < total["random model"]
    found = r2_rows(rows, repeats=2)
    assert {row["way"] for row in found} == {"published protocol", "leave one model out", "leave one log out"}
    seen = [row for row in found if row["way"].startswith("leave") and not row["r2"] < 1 - 1e-6]
    assert seen == [], "a tree repeats what it was shown without any error"


def test_a_seed_changes_the_logs_and_nothing_else() -> None:
    first, second = (SMALL.logs("Carousel", FULL.training[0][1], seed) for seed in (0, 1))
    assert first.train.total == second.train.total == 6000
    np.testing.assert_array_equal(first.logging_score, second.logging_score)
    np.testing.assert_array_equal(first.label, second.label)
    assert not np.array_equal(first.train.rankings.pair[:100], second.train.rankings.pair[:100])


def test_every_session_shows_all_ten_documents_where_users_look() -> None:
    """The Carousel's six most examined ranks are 1, 2, then 6 (the start of row 2), 3, 7, 4."""
    logs = SMALL.logs("Carousel", FULL.training[0][1], 0)
    log = logs.test["NoisyOracle"]
    assert log.rankings.shown.all()
    assert len(logs.label) == 10 * 30
    score = logs.logging_score[log.rankings.pair]
    place = np.argsort(-score, axis=1)[:, :6]
    assert (place == [0, 1, 5, 2, 6, 3]).all()
    top_down = SMALL.logs("PBM", FULL.training[0][1], 0)
    assert (np.diff(top_down.logging_score[top_down.test["NoisyOracle"].rankings.pair], axis=1) <= 0).all()
    assert len(np.unique(top_down.test["Uniform"].rankings.pair, axis=0)) > 900, "random anew in every session"


def test_placements_are_those_of_the_logs() -> None:
    world = replace(SMALL, testing=TESTING[2:], held_out_sessions=60_000)
    logs = world.logs("MixtureDBN", FULL.training[0][1], 0)
    for log, placement in (
        (logs.held_out, logs.logging_placement),
        (logs.test["NoisyOracle"], logs.target_placement["NoisyOracle"]),
    ):
        shown = np.zeros_like(placement)
        for rank in range(10):
            shown[:, rank] = np.bincount(log.rankings.pair[:, rank], log.count, len(placement))
        visits = np.bincount(log.rankings.query, log.count)[log.vocabulary.pair_query][:, None]
        np.testing.assert_allclose(shown / visits, placement, atol=0.06)


def test_weights_turn_held_out_perplexity_into_that_of_the_target() -> None:
    """Warm logging, PBM users: clicks are independent given the list, so the weights are exact but for chance."""
    warm = ("warm", "PlackettLuce(NoisyOracle(sd=0.5, scale='label'), temperature=2)")
    world = replace(SMALL, testing=(TESTING[0], TESTING[2]), held_out_sessions=60_000, test_sessions=60_000)
    cell = replace(FULL, training=(warm,), contenders=(Contender("PBM", "EM('PBM')"),), world=world).tasks()[0]
    metrics, *tests = cell.rows()
    assert "ind_perplexity" not in metrics, "no test policy ranks by the training policy's scores"
    for test in tests:
        assert test["weighted_perplexity"] == pytest.approx(test["perplexity"], abs=0.01)
        assert test["unseen_mass"] < 0.01


def test_models_by_gradient_stop_by_the_held_out_log_and_start_from_the_seed() -> None:
    """Four documents per query: shorter lists compile faster."""
    tiny = Contender("PBM", "Gradient('PBM', tower='free', rounds=2)")
    world = replace(SMALL, testing=TESTING[:1], queries=60, documents=4)
    cell = replace(FULL, contenders=(tiny,), world=world, seeds=2).tasks()[1]
    logs = world.logs(cell.user[1], cell.training[1], 1)
    model = Gradient("PBM", tower="free", rounds=2, seed=1).fit(logs.train, held_out=logs.held_out)
    found = cell.rows()[0]
    assert (found["seed"], found["judged_rows"]) == (1, 240)
    assert found["val_perplexity"] == pytest.approx(perplexity(model, logs.held_out).average)


def test_a_run_goes_on(tmp_path: Path) -> None:
    others = tuple(contender for contender in MODELS_FROM_COUNTS if contender not in SOME)
    protocol = replace(FULL, users=FULL.users[:1], training=TRAINING, contenders=others, world=SMALL, seeds=1)
    folder = RunFolder(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        run_tasks(protocol.tasks(), folder, pool)
    assert all(folder.has(cell) for cell in protocol.tasks())
    assert len(folder.rows(protocol.tasks())) == 2 * 2 * 4


def test_texts_are_checked_before_any_work() -> None:
    with pytest.raises(SpecError):
        replace(FULL, users=(("X", "Nobody"),))
    with pytest.raises(SpecError):
        replace(FULL, training=(("X", "Nobody"),))
    with pytest.raises(SpecError):
        replace(FULL, contenders=(Contender("TopPop", "TopPop"),)).check_models()


@pytest.mark.parametrize("repeats", [0, -1, 10_001, 10**9])
def test_a_number_of_repetitions_that_would_take_hours_is_refused(repeats: int, tmp_path: Path) -> None:
    with raises_code("bad-option", SpecError, option="repeats", value=repeats):
        replace(FULL, repeats=repeats)
    settings = {"protocol": key(FULL).replace("repeats=1000", f"repeats={repeats}")}
    assert settings["protocol"] != key(FULL)
    (tmp_path / "run.json").write_text(json.dumps(settings))
    with raises_code("other-version", FileError, path=tmp_path):
        read_run(tmp_path)


def test_the_shipped_rows_are_the_papers_grid_for_models_from_counts(tmp_path: Path) -> None:
    """280 tasks of 5,000,000 sessions are taken from the package; the numbers are those of docs/debiasedness.md."""
    models = [contender.name for contender in MODELS_FROM_COUNTS]
    messages: list[str] = []

    def progress(step: int | str, /, *, total: int | None = None) -> None:
        messages.append(str(step))

    result = cs.model_selection(tmp_path, scale="paper", seeds=7, models=models, repeats=1, progress=progress)
    assert any(message.startswith("280 of 280 tasks are taken") for message in messages)
    regret = {row["strategy"]: row for row in result.regret if row["user"] == row["training"] == ALL}
    for strategy, mean, margin in (
        ("PPL", 0.211, 0.009),
        ("PPL among top nDCG & mean dependence", 0.210, 0.016),
        ("best fixed model", 0.274, 0.003),
        ("CMIP", 1.115, 0.106),
        ("nDCG among top PPL & CMIP", 3.401, 0.035),
        ("random model", 10.052, 0.011),
    ):
        row = regret[strategy]
        assert row["seeds"] == 7
        assert row["regret"] == pytest.approx(mean, abs=5e-4)
        assert (row["high"] - row["low"]) / 2 == pytest.approx(margin, abs=5e-4)
    cmip = {row["model"]: row["cmip"] for row in result.rows() if row["kind"] == "metrics" and row["user"] == "PBM"}
    assert cmip["dCTR"] > 0.1 > cmip["PBM"]
    same = table_or_figure("cmip-counts").make
    assert same is not None
    assert [digest(task) for task in same().tasks()] == [digest(task) for task in _shipped().tasks()]


def _shipped() -> ModelSelection:
    """The protocol whose rows come with the package."""
    return ModelSelection(contenders=MODELS_FROM_COUNTS, seeds=7)


@pytest.mark.study
def test_a_shipped_cell_is_made_again(tmp_path: Path, study: Study) -> None:
    """Models of one log; most of the time is its simulation. The order of sums in a fit moves CMIP by some 1e-6."""
    cells = [cell for cell in _shipped().tasks() if (cell.user[0], cell.training[0]) == ("Carousel", "LambdaMART")]
    folder = RunFolder(tmp_path)
    for cell in cells[: study.choose(smallest=1, full=3)]:
        assert copy_reference_rows([cell], folder) == 1
        for fresh, known in zip(without_costs(cell.rows()), without_costs(folder.rows([cell])), strict=True):
            for name, value in known.items():
                assert fresh.get(name) == (pytest.approx(value, rel=1e-4) if isinstance(value, float) else value), name
