"""The functions of the model commands return the facts that --json prints, and results are written as asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import clickshift as cs
from clickshift.grading.graded_judgments import GradedJudgments
from clickshift.models.forecast import Forecast
from clickshift.models.storage import load_model, save_model
from clickshift.models.summary import ModelSummary
from tests.cli.shell import Shell
from tests.codes import raises_code, warns_code


@pytest.fixture(scope="session")
def halves(clicks: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("halves")
    for part, path in zip(cs.read_log(clicks).split(0.5, rng=0), ("train", "test"), strict=True):
        cs.write_log(part, folder / f"{path}.parquet")
    return folder / "train.parquet", folder / "test.parquet"


def printed(shell: Shell, *arguments: object) -> Any:
    """What --json prints, without the output that only a command has."""
    return {name: value for name, value in shell.json(*arguments).items() if name != "output"}


def test_fit(shell: Shell, clicks: Path, tmp_path: Path) -> None:
    facts = printed(shell, "fit", "UBM", clicks, "-o", tmp_path / "ubm")
    assert load_model(tmp_path / "ubm").to_dict() == facts, "a saved model knows how it was fitted"
    here = cs.fit("UBM", str(clicks)).to_dict()
    assert {**here, "fitted_at": ""} == {**facts, "fitted_at": ""}
    assert facts["source"] == str(clicks)
    assert facts["version"] == cs.__version__
    text = shell.text("fit", "UBM", clicks, "-o", tmp_path / "ubm")
    assert f"Output: {tmp_path / 'ubm'}" in text
    shell.text("fit", "UBM", clicks, "-o", tmp_path / "ubm", "--report", tmp_path / "ubm.html")
    assert facts["conclusion"] in (tmp_path / "ubm.html").read_text(encoding="utf-8")
    assert ".html" in shell.error("fit", "UBM", clicks, "-o", tmp_path / "again", "--report", tmp_path / "ubm.pdf")
    assert not (tmp_path / "again").exists()
    assert facts["conclusion"] in text


def test_evaluate(shell: Shell, halves: tuple[Path, Path], tmp_path: Path) -> None:
    train, test = halves
    shell.json("fit", "UBM", train, "-o", tmp_path / "ubm")
    code, out, err = shell.run("evaluate", tmp_path / "ubm", test, "--json", "-o", tmp_path / "page.html")
    facts = json.loads(out)
    assert (code, err) == (0, "")
    assert facts.pop("output") == str(tmp_path / "page.html")
    result = cs.evaluate(tmp_path / "ubm", test)
    assert result.to_dict() == facts
    assert cs.evaluate(load_model(tmp_path / "ubm"), cs.read_log(test)).to_dict() == facts
    assert facts["on_training_log"] is False
    assert 1 < facts["conditional_perplexity"] < facts["baseline_perplexity"]
    rows = {(row["metric"], row["rank"]): row["value"] for row in result.rows()}
    assert rows["conditional_perplexity", None] == facts["conditional_perplexity"]
    assert rows["marginal_perplexity", 5] == facts["marginal_perplexity_at_rank"][4]
    assert [len(line.x) for line in result.figure("Perplexity by rank").data] == [5, 5, 5]
    deciles = [row for row in facts["calibration"] if row["by"] == "decile"]
    assert list(result.figure("calibration").data[1].y) == [row["observed_ctr"] for row in deciles]
    assert (result.document.verdict, result.document.data.split(" from ")[1]) == ("", test.name)
    assert "data-chart=" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_evaluating_on_the_training_log_warns(shell: Shell, halves: tuple[Path, Path], tmp_path: Path) -> None:
    train, test = halves
    shell.json("fit", "PBM", train, "-o", tmp_path / "pbm")
    code, out, err = shell.run("evaluate", tmp_path / "pbm", train)
    assert code == 0
    assert err.startswith("clickshift: warning: this log is the one that the model was fitted on")
    assert "fitted on this log" in out
    model = load_model(tmp_path / "pbm")
    log = cs.read_log(train)
    encoded = cs.open_log(train, in_memory=False, output=tmp_path / "encoded")
    for same in (train, log, log.merged(), log[::-1], log.to_pandas(), encoded):
        with warns_code("training-log", sessions=1000):
            cs.evaluate(model, same)
    for other in (cs.fit("PBM", log), cs.fit("PBM", encoded)):
        assert other.evidence is not None
        assert model.evidence is not None
        assert other.evidence.fingerprint == model.evidence.fingerprint
    assert not cs.evaluate(model, test).on_training_log
    assert not cs.evaluate(model, log[:-1]).on_training_log


def test_a_part_of_a_log_is_recognised_when_it_is_read_back(halves: tuple[Path, Path], clicks: Path) -> None:
    """In memory a part keeps the vocabulary of the whole log; read back, it has its own."""
    part = cs.read_log(clicks).split(0.5, rng=0)[0]
    with warns_code("training-log"):
        cs.evaluate(cs.fit("rCTR", part), halves[0])


def test_a_model_of_an_earlier_version_loads(clicks: Path, tmp_path: Path) -> None:
    save_model(cs.fit("rCTR", clicks), tmp_path / "old")
    header = json.loads((tmp_path / "old" / "model.json").read_text())
    for name in ("sessions", "fingerprint", "source", "fitted_at", "version", "first_time", "last_time"):
        del header["model"]["fields"]["evidence"][name]
    (tmp_path / "old" / "model.json").write_text(json.dumps(header))
    model = load_model(tmp_path / "old")
    assert not cs.evaluate(model, clicks).on_training_log
    assert repr(model).startswith("<rCTR: fitted by Counting on ")


def test_predict(shell: Shell, fitted: Path, clicks: Path, tmp_path: Path) -> None:
    facts = printed(shell, "predict", fitted / "UBM", clicks, "-o", tmp_path / "page.html")
    result = cs.predict(fitted / "UBM", clicks)
    assert result.to_dict() == facts
    assert facts["n_lists"] == len(facts["lists"]) == 2000
    assert cs.predict(load_model(fitted / "UBM"), cs.read_log(clicks)).to_dict()["conclusion"] == facts["conclusion"]
    frame = cs.read_log(clicks).to_pandas().rename(columns={"docs": "results"})
    assert cs.predict(fitted / "UBM", frame, columns={"docs": "results"}).to_dict() == facts
    assert printed(shell, "predict", fitted / "UBM", clicks.parent / "[c]licks.parquet") == facts
    result.write(tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == result.rows() == facts["lists"]
    result.write(tmp_path / "out.csv")
    assert pyarrow.csv.read_csv(tmp_path / "out.csv").num_rows == 2000
    with raises_code("unknown-format"):
        Forecast.check_output("out.txt")


def test_judgments(shell: Shell, fitted: Path, tmp_path: Path) -> None:
    options = {"grades": "quantile:4", "min_impressions": 20}
    facts = printed(shell, "judgments", fitted / "PBM", "--grades", "quantile:4", "--min-impressions", 20)
    result = cs.judgments(fitted / "PBM", **options)  # type: ignore[arg-type]
    assert result.to_dict() == facts
    assert facts["conclusion"] in shell.text(
        "judgments", fitted / "PBM", "--grades", "quantile:4", "--min-impressions", 20
    )
    assert result.to_pandas()["grade"].max() == 3
    cs.judgments(load_model(fitted / "PBM"), format="qrels").write(tmp_path / "labels.txt")
    assert (tmp_path / "labels.txt").read_text().split()[1] == "0"
    result.write(tmp_path / "page.html")
    assert "data-chart=" in (tmp_path / "page.html").read_text(encoding="utf-8")
    with raises_code("unknown-format"):
        GradedJudgments.check_output("labels.txt")


@pytest.mark.parametrize("model", ["PBM", "UBM", "DBN", "rCTR"])
def test_examination(model: str, shell: Shell, fitted: Path) -> None:
    result = cs.examination(fitted / model)
    assert result.to_dict() == printed(shell, "examine", fitted / model)
    assert list(result.figures) == [result.rows()[0]["parameter"]]
    shown = {"ctr": "click-through rate"}.get(name := str(result.rows()[0]["parameter"]), name)
    assert shown in shell.text("examine", fitted / model)


def test_models(shell: Shell) -> None:
    assert cs.list_models().to_dict() == shell.json("models")


def test_no_model_is_refused() -> None:
    with raises_code("not-a-model", value="list"):
        cs.evaluate([], "log.parquet")


def test_the_summary_of_a_model_is_a_page_or_a_saved_model(clicks: Path, tmp_path: Path) -> None:
    summary = cs.fit("DBN", clicks).summary()
    assert isinstance(summary, ModelSummary)
    summary.write(tmp_path / "dbn.html")
    assert "Continuation is" in (tmp_path / "dbn.html").read_text(encoding="utf-8")
    summary.write(tmp_path / "dbn")
    assert load_model(tmp_path / "dbn").to_dict() == summary.to_dict()
