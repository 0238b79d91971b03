"""Models from elsewhere: the exported logs are those of the protocol, and predictions are scored like a model's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import clickshift as cs
from clickshift.errors import FileError, SpecError
from clickshift.experiments.experiment import open_run
from clickshift.experiments.models import ORACLE
from clickshift.experiments.runner import digest
from clickshift.learners.likelihood import MaximumLikelihood
from tests.cli.shell import Shell
from tests.codes import raises_code
from tests.rows import without_costs

SMALL: dict[str, Any] = {
    "users": ["DBN", "PBM"],
    "testing": ["random"],
    "queries": 15,
    "sessions": 1500,
    "test_sessions": 200,
}
LOGS = ("DBN, PL-oracle", "PBM, PL-oracle")


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    cs.export_policy_shift(folder, **SMALL)
    return folder


@pytest.fixture(scope="module")
def predictions(export: Path) -> pd.DataFrame:
    """Predictions of UBM, fitted and asked through the files alone."""
    parts = []
    for log in LOGS:
        model = cs.fit("UBM", export / log / "train.parquet")
        test = pd.read_parquet(export / log / "test.parquet")
        prob = model.click_prob_given_history(cs.read_log(test.drop(columns=["session", "testing"])))
        parts.append(pd.DataFrame({"session": test.session, "click_prob": [list(row) for row in prob]}))
    return pd.concat(parts, ignore_index=True)


def test_files_have_the_logs_of_the_protocol(export: Path) -> None:
    protocol, _, _ = open_run(export)
    logs = protocol.world.logs("DBN", protocol.training[0][1])
    train = cs.read_log(export / LOGS[0] / "train.parquet")
    assert train.total == logs.train.total
    assert train.click.sum() == logs.train.click.sum()
    test = pd.read_parquet(export / LOGS[0] / "test.parquet")
    assert test.testing.value_counts().to_dict() == {name: len(log) for name, log in logs.test.items()}
    random = test[test.testing == "random"]
    assert np.array_equal(np.stack(random.clicks.to_list()), logs.test["random"].click)
    everything = pd.concat([pd.read_parquet(export / log / "test.parquet") for log in LOGS])
    assert everything.session.is_unique
    for column in ("session", "testing", "query", "docs", "clicks", "click_prob"):
        assert f"`{column}`" in (export / "README.md").read_text()


def test_predictions_are_scored_like_the_same_model_in_the_protocol(
    export: Path, predictions: pd.DataFrame, tmp_path: Path
) -> None:
    by_file = cs.score_policy_shift(predictions, export=export, name="UBM from elsewhere").rows()
    shuffled = predictions.sample(frac=1, random_state=0)
    shuffled[:100].to_parquet(tmp_path / "first.parquet")
    shuffled[100:].to_parquet(tmp_path / "second.parquet")
    files = [tmp_path / "first.parquet", tmp_path / "second.parquet"]
    assert cs.score_policy_shift(files, export=export, name="UBM from elsewhere").rows() == by_file
    protocol, _, _ = open_run(export)
    inside = cs.policy_shift(
        candidates=["MaximumLikelihood('UBM')"], models=["dCTR"], derived=False, workers=0, **SMALL
    )
    expected = [row for row in inside.rows() if row["role"] == "candidate" and row["kind"] in {"clicks", "check"}]
    found = [row for row in by_file if row["role"] == "candidate"]
    assert len(found) == len(expected) == 6
    for ours, theirs in zip(found, expected, strict=True):
        for name in set(ours) - {"model", "fit_seconds"}:
            same = (
                pytest.approx(theirs[name], abs=1e-9, nan_ok=True) if not isinstance(ours[name], str) else theirs[name]
            )
            assert ours[name] == same, name
    models = {row["model"] for row in by_file}
    assert {ORACLE, "dCTR", "rCTR", "UBM from elsewhere"} <= models
    assert "PBM" not in models, "no gradient model was trained"
    assert len(protocol.contenders) > len(models)


def test_a_model_that_knows_the_clicks_is_reported_as_impossible(export: Path) -> None:
    test = pd.concat([pd.read_parquet(export / log / "test.parquet") for log in LOGS])
    test["click_prob"] = [np.where(clicks, 0.6, 0.05) for clicks in test.clicks]
    result = cs.score_policy_shift(test[["session", "click_prob"]], export=export, name="peeking")
    assert result.verdicts[0]["model"] == "peeking"
    assert "No model can" in result.verdicts[0]["text"]
    assert result.conclusion.startswith("Warning: peeking predicts clicks better")


def test_seeds_become_seeds_of_the_report(export: Path, predictions: pd.DataFrame) -> None:
    seeds = pd.concat([predictions.assign(seed=7), predictions.assign(seed=9)])
    rows = cs.score_policy_shift(seeds, export=export).rows()
    assert {row["seed"] for row in rows if row["role"] == "candidate" and row["kind"] == "clicks"} == {0, 1}


@pytest.mark.parametrize(
    ("change", "code", "facts"),
    [
        (lambda t: t.drop(columns="click_prob"), "missing-column", {"column": "click_prob"}),
        (lambda t: t.rename(columns={"session": "row"}), "missing-column", {"column": "session"}),
        (lambda t: t[:0], "empty-file", {}),
        (lambda t: t[t.session != 3], "missing-prediction", {"session": 3, "count": 1}),
        (lambda t: pd.concat([t, t[4:5]]), "duplicate-prediction", {"session": 4}),
        (lambda t: t.assign(session=t.session.replace(0, 10**6)), "missing-prediction", {"session": 0}),
        (lambda t: pd.concat([t, t[:1].assign(session=10**6)]), "unknown-session", {"session": 10**6}),
        (lambda t: t.assign(session=t.session + 0.5), "bad-column", {"column": "session"}),
        (lambda t: t.assign(click_prob=0.1), "bad-column", {"column": "click_prob"}),
        (lambda t: t.assign(click_prob="many"), "bad-column", {"column": "click_prob"}),
        (lambda t: t.assign(click_prob=[[*p[:-1], 1.5] for p in t.click_prob]), "bad-probability", {"value": 1.5}),
        (
            lambda t: t.assign(click_prob=[[*p[:-1], np.nan] for p in t.click_prob]),
            "bad-column",
            {"column": "click_prob"},
        ),
        (lambda t: t.assign(click_prob=[p[:-1] for p in t.click_prob]), "wrong-length", {"session": 0}),
    ],
)
def test_predictions_that_cannot_be_used_are_refused(
    export: Path, predictions: pd.DataFrame, change: Any, code: str, facts: dict[str, Any]
) -> None:
    with raises_code(code, FileError, **facts):
        cs.score_policy_shift(change(predictions), export=export)


def test_lists_in_csv_are_json(export: Path, predictions: pd.DataFrame, tmp_path: Path) -> None:
    texts = predictions.assign(click_prob=[json.dumps(list(prob)) for prob in predictions.click_prob])
    texts.to_csv(tmp_path / "p.csv", index=False)
    found = cs.score_policy_shift(tmp_path / "p.csv", export=export)
    assert found.rows() == cs.score_policy_shift(predictions, export=export).rows()
    predictions.assign(click_prob="[0.1 0.2]").to_csv(tmp_path / "p.csv", index=False)
    with raises_code("bad-column", FileError, column="click_prob"):
        cs.score_policy_shift(tmp_path / "p.csv", export=export)


def test_other_folders_and_names_are_refused(export: Path, predictions: pd.DataFrame, tmp_path: Path) -> None:
    with raises_code("not-a-run", FileError):
        cs.score_policy_shift(predictions, export=tmp_path)
    for name in ("", "PBM"):
        with raises_code("bad-option", SpecError, option="name"):
            cs.score_policy_shift(predictions, export=export, name=name)


def test_the_commands_export_and_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell, folder = Shell(capsys), tmp_path / "export"
    options = ["--user", "DBN", "--testing", "random", "--queries", 12, "--sessions", 400, "--test-sessions", 50]
    facts = shell.json("shift", "export", "-o", folder, *options)
    assert facts["test_sessions"] == 90
    small: dict[str, Any] = {"users": ["DBN"], "testing": ["random"], "queries": 12, "sessions": 400}
    assert facts == cs.export_policy_shift(folder, **small, test_sessions=50).to_dict()
    test = pd.read_parquet(folder / LOGS[0] / "test.parquet")
    test["click_prob"] = [[0.1] * len(docs) for docs in test.docs]
    test[["session", "click_prob"]].to_json(tmp_path / "p.jsonl", orient="records", lines=True)
    scored = shell.json(
        "shift", "score", tmp_path / "p.jsonl", "--export", folder, "--name", "constant", "-o", tmp_path / "report"
    )
    assert [verdict["model"] for verdict in scored["verdicts"]] == ["constant"]
    wanted = cs.score_policy_shift(tmp_path / "p.jsonl", export=folder, name="constant").to_dict()
    assert {name: value for name, value in scored.items() if name != "output"} == json.loads(json.dumps(wanted))
    assert (tmp_path / "report" / "report.html").exists()


def test_models_are_kept_by_users_log_and_learner() -> None:
    """Kept models of other users would be loaded without an error."""
    cells = cs.PolicyShift().tasks()
    assert len({digest(cell._without_tests()) for cell in cells}) == len(cells)
    assert len({(cell.user, cell.training, cell.contender.name) for cell in cells}) == len(cells)


def test_kept_models_are_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another test policy: the same rows as a run that trains, without training."""
    options: dict[str, Any] = SMALL | {"users": ["DBN"], "derived": False, "workers": 0}
    options |= {"models": ["MaximumLikelihood('UBM')"]}
    cs.policy_shift(tmp_path, keep_models=True, **options)
    other = options | {"testing": ["oracle"]}
    fresh = cs.policy_shift(**other).rows()
    monkeypatch.setattr(MaximumLikelihood, "fit", lambda *_: pytest.fail("a model is trained again"))
    kept = cs.policy_shift(tmp_path, keep_models=True, **other).rows()
    assert len(kept) == len(fresh)
    for ours, theirs in zip(without_costs(kept), without_costs(fresh), strict=True):
        for name in ours:
            assert ours[name] == pytest.approx(theirs[name], nan_ok=True) or ours[name] is theirs[name] is None
    with raises_code("bad-option", SpecError, option="output"):
        cs.policy_shift(keep_models=True, **options)
