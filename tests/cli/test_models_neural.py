"""Models by gradient from the command line: a newcomer need not know which learner runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from clickshift.io.read_log import read_log
from clickshift.learners import training
from clickshift.models.arm import ARM
from clickshift.models.ncm import NCM
from clickshift.models.storage import load_model, load_seeds, save_model
from tests.cli.shell import Shell, call

QUICK = "Gradient('ARM', tower='free', rounds=5)"


def fit(clicks: Path, output: Path) -> tuple[object, ...]:
    """A command that all tests share, so that its programs are compiled once."""
    return "fit", QUICK, clicks, "-o", output, "--seeds", 2, "--held-out", clicks


@pytest.fixture(scope="module")
def several(clicks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("neural")
    assert call(*fit(clicks, folder / "arm")) == 0
    return folder / "arm"


def test_several_seeds_are_kept_and_the_best_is_the_model(several: Path) -> None:
    models = load_seeds(several)
    losses = [model.evidence.held_out_loss for model in models if model.evidence is not None]
    best = load_model(several).evidence
    assert models[0].evidence is not None
    assert models[0].evidence.learner == QUICK
    assert len(models) == 2
    assert best is not None
    assert best.held_out_loss == min(losses)
    assert len(set(losses)) == 2
    assert not (several / "checkpoint.npz").exists()


def test_seeds_are_judged_together(shell: Shell, several: Path, clicks: Path) -> None:
    facts = shell.json("evaluate", several, clicks)
    low, high = facts["conditional_perplexity_interval"]
    assert facts["seeds"] == 2
    assert facts["on_training_log"], "whichever sessions were held out"
    assert 1 < low < facts["conditional_perplexity"] < high < 2
    assert len(facts["conditional_perplexity_at_rank"]) == 5
    one = shell.json("evaluate", several / "seed-1", clicks)
    assert "seeds" not in one
    assert low - 0.1 < one["conditional_perplexity"] < high + 0.1


def test_the_other_commands_take_the_folder(shell: Shell, several: Path, clicks: Path, tmp_path: Path) -> None:
    shell.json("judgments", several, "-o", tmp_path / "judgments.parquet", "--keep-prior")
    assert pq.read_table(tmp_path / "judgments.parquet").num_rows == load_model(several).vocabulary.n_pairs
    lists = shell.json("predict", several, clicks)["lists"]
    assert all(0 < p < 1 for p in lists[0]["click_prob"])
    assert lists[0]["low"][0] is None


def test_a_single_fit_removes_the_seeds_of_an_earlier_one(
    shell: Shell, several: Path, clicks: Path, tmp_path: Path
) -> None:
    """Of whichever model: counting is the quickest."""
    folder = shutil.copytree(several, tmp_path / "model")
    assert len(load_seeds(folder)) == 2
    shell.json("fit", "rCTR", clicks, "-o", folder)
    assert len(load_seeds(folder)) == 1
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".safetensors"]


def test_examination_of_a_model_by_gradient(shell: Shell, several: Path, tmp_path: Path) -> None:
    curve = shell.json("examine", several, "-o", tmp_path / "curve.html")["curve"]
    assert [(row["rank"], row["last_click"]) for row in curve[:4]] == [(1, None), (2, None), (2, 1), (3, None)]
    arm = load_model(several)
    assert isinstance(arm, ARM)
    logit = arm.shared["bias"] + arm.shared["weight"][0]
    assert curve[2]["estimate"] == pytest.approx(1 / (1 + np.exp(-logit)), rel=1e-5)
    assert (tmp_path / "curve.html").exists()


def test_a_model_without_examination_says_so(shell: Shell, clicks: Path, tmp_path: Path) -> None:
    """NCM, whose parameters need no training for that."""
    words = read_log(clicks).vocabulary
    by_pair = {"input": np.zeros((words.n_pairs + 1, 6))}
    save_model(NCM(words, by_pair, NCM.start(5, 2, np.random.default_rng(0))), tmp_path / "ncm")
    assert "NCM has no examination" in shell.error("examine", tmp_path / "ncm")


def test_a_peeking_model_is_labelled(shell: Shell, clicks: Path, tmp_path: Path) -> None:
    shell.json("fit", "Gradient('ARM_NC', tower='free', rounds=2)", clicks, "-o", tmp_path / "nc")
    facts = shell.json("evaluate", tmp_path / "nc", clicks)
    assert "must not be compared" in facts["caution"]
    assert facts["marginal_perplexity"] is None
    rows = {row["model"]: row for row in shell.json("models")["models"]}
    assert [name for name, row in rows.items() if row["peeks"]] == ["ARM_NC"]
    assert not rows["CCM"]["by_gradient"]
    assert rows["PBM"]["by_gradient"]


def test_seeds_of_a_learner_without_seeds_are_refused(shell: Shell, clicks: Path, tmp_path: Path) -> None:
    said = shell.error("fit", "UBM", clicks, "-o", tmp_path / "ubm", "--seeds", 3)
    assert "UBM" in said
    assert "seed" in said
    assert not (tmp_path / "ubm").exists()


def test_an_interrupted_fit_keeps_the_best_and_the_same_command_goes_on(
    shell: Shell, clicks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "SAVE_EVERY", -1.0)
    whole = training.keep_better

    def stop(*arguments: object) -> object:
        stop.rounds += 1  # type: ignore[attr-defined]
        if stop.rounds == 3:  # type: ignore[attr-defined]
            raise KeyboardInterrupt
        return whole(*arguments)

    stop.rounds = 0  # type: ignore[attr-defined]
    monkeypatch.setattr(training, "keep_better", stop)
    command = fit(clicks, tmp_path / "arm")
    code, _, err = shell.run(*command)
    assert code == 130
    assert "interrupted; the result so far is kept" in err
    load_model(tmp_path / "arm")
    assert (tmp_path / "arm" / "checkpoint.npz").exists()
    monkeypatch.setattr(training, "keep_better", whole)
    shell.json(*command)
    assert not (tmp_path / "arm" / "checkpoint.npz").exists()
    evidence = load_model(tmp_path / "arm").evidence
    assert evidence is not None
    assert evidence.iterations % 5 == 0
