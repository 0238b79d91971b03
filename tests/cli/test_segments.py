"""One log with a device, through the commands that follow it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import clickshift as cs
from clickshift.models.segmented import Segmented
from tests.cli.shell import Shell, call
from tests.codes import warns_code
from tests.learners.segmented_log import FLAT, segmented_log

pytestmark = pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("segments")
    log, _ = segmented_log(sessions=3000, unknown=0.05)
    cs.write_log(log, folder / "log.parquet")
    assert call("fit", "PBM", folder / "log.parquet", "--by", "device", "-o", folder / "model") == 0
    return folder


def test_a_fit_by_device_says_what_it_found(shell: Shell, work: Path, tmp_path: Path) -> None:
    facts = shell.json("fit", "PBM", work / "log.parquet", "--by", "device", "-o", tmp_path / "model")
    assert (facts["model"], facts["by"], facts["labels"]) == ("PBM by device", "device", ["desktop", "phone"])
    assert facts["p_value"] < 1e-9
    assert {row["segment"] for row in facts["curve"]} == {"desktop", "phone"}
    desktop = [row["estimate"] for row in facts["curve"] if row["segment"] == "desktop"]
    assert np.abs(np.array(desktop) - FLAT).max() < 0.15
    model = cs.load_model(tmp_path / "model")
    assert isinstance(model, Segmented)
    assert "segment='device'" in model.evidence.learner
    assert shell.json("examine", work / "model")["curve"] == facts["curve"]


def test_a_pooled_fit_warns_on_standard_error(shell: Shell, work: Path, tmp_path: Path) -> None:
    log = work / "log.parquet", "--column", "segment:device=device"
    code, _, err = shell.run("fit", "PBM", *log, "-o", tmp_path / "model")
    assert code == 0
    assert "labels of device differ" in err
    assert "--by device" in err


def test_predictions_follow_the_device_of_a_table(shell: Shell, work: Path, tmp_path: Path) -> None:
    evaluated = shell.json("evaluate", work / "model", work / "log.parquet")
    pooled = shell.json("evaluate", work / "model", work / "log.parquet", "--column", "segment:device=")
    assert evaluated["conditional_perplexity"] < pooled["conditional_perplexity"] - 0.005
    rows = [{"query": 0, "docs": [1, 2, 3], "device": device} for device in ("desktop", "phone", "watch", None)]
    lists = tmp_path / "lists.jsonl"
    lists.write_text("\n".join(json.dumps(row) for row in rows))
    prob = [row["click_prob"] for row in shell.json("predict", work / "model", lists)["lists"]]
    assert prob[0][2] > prob[2][2] > prob[1][2]
    assert prob[2] == prob[3]
    lists.write_text("\n".join(json.dumps({k: row[k] for k in ("query", "docs")}) for row in rows))
    with warns_code("no-segment", segment="device"):
        forecast = cs.predict(work / "model", lists)
    assert forecast.rows()[0]["click_prob"] == pytest.approx(prob[2])
    assert shell.json("judgments", work / "model", "-o", tmp_path / "qrels.csv")["pairs"] > 50


def test_labels_that_only_the_later_log_has_are_counted(shell: Shell, work: Path, tmp_path: Path) -> None:
    log, _ = segmented_log(sessions=100, seed=1)
    number = np.arange(100)
    device = cs.Segment.of(np.where(number < 30, "watch", np.where(number < 40, "tv", "phone")))
    lists = cs.Rankings(log.vocabulary, log.rankings.query, log.rankings.pair, segments={"device": device})
    later = cs.Sessions(lists, log.click, count=np.where(number < 30, 2, 1))
    cs.write_log(later, tmp_path / "later.parquet")
    facts = {"segment": "device", "lists": 70, "labels": ["tv", "watch"]}
    with warns_code("unknown-labels", **facts):
        cs.evaluate(work / "model", tmp_path / "later.parquet")
    with warns_code("unknown-labels", **facts | {"lists": 40}):
        cs.predict(work / "model", lists)
    encoded = cs.open_log(tmp_path / "later.parquet", columns={"segment:device": "device"}, in_memory=False)
    with warns_code("unknown-labels", **facts):
        cs.evaluate_policy(encoded, lists[:1], model=cs.load_model(work / "model"), estimators=["IP"], replicates=20)
    _, _, err = shell.run("evaluate", work / "model", tmp_path / "later.parquet")
    assert "70 of 130 lists have labels that it does not know (watch, tv)" in " ".join(err.split())
    cs.write_log(later[:0:-1], tmp_path / "no.csv", layout="long")
    text = (tmp_path / "no.csv").read_text().replace("device", "ua")
    (tmp_path / "no.csv").write_text(text)
    assert "--column segment:device= leaves" in shell.error("evaluate", work / "model", tmp_path / "no.csv")


def test_a_log_on_disk_gives_the_same_curves(work: Path, tmp_path: Path) -> None:
    columns = {"segment:device": "device"}
    encoded = cs.open_log(work / "log.parquet", columns=columns, in_memory=False, output=tmp_path / "encoded")
    memory = cs.open_log(work / "log.parquet", columns=columns)
    for name in ("PBM", "DBN"):
        model, other = cs.fit(name, encoded, by="device"), cs.fit(name, memory, by="device")
        np.testing.assert_allclose(model.curves, other.curves, atol=1e-4)
    with warns_code("segments-differ"):
        cs.fit("dCTR", encoded)


def test_off_policy_evaluation_and_the_page_to_explore_accept_the_model(
    shell: Shell, work: Path, tmp_path: Path
) -> None:
    model = cs.load_model(work / "model")
    relevance, vocabulary = model.relevance(), model.vocabulary
    with (tmp_path / "target.jsonl").open("w") as file:
        for query in range(vocabulary.n_queries):
            pairs = np.flatnonzero(vocabulary.pair_query == query)
            best = pairs[np.argsort(-relevance[pairs])][:6]
            docs = vocabulary.doc_ids[vocabulary.pair_doc[best]].tolist()
            file.write(json.dumps({"query": int(vocabulary.query_ids[query]), "docs": docs}) + "\n")
    target = "--target", tmp_path / "target.jsonl", "--model", work / "model", "--estimator", "IP"
    facts = shell.json("ope", "evaluate", work / "log.parquet", *target, "--replicates", "20")
    assert facts["conclusion"]
    page = tmp_path / "page.html"
    text = shell.text("explore", work / "log.parquet", "--model", work / "model", "-o", page, "--sample", "0")
    assert "the curve is that of all segments together" in " ".join(text.split())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("fit", "PBM", "log.parquet", "--by", "country"), "there is no column country"),
        (("fit", "CM", "log.parquet", "--by", "device"), "PBM, UBM, DBN, DCM, CCM"),
        (("fit", "NCM", "log.parquet", "--by", "device"), "PBM, UBM, DBN, DCM, CCM"),
        (("fit", "PBM", "log.parquet", "--by", "query"), "query"),
        (("propensities", "log.parquet", "--by", "country"), "there is no column country"),
    ],
)
def test_wrong_segments_are_one_line(
    shell: Shell, work: Path, tmp_path: Path, arguments: tuple[str, ...], problem: str
) -> None:
    given = [work / part if part == "log.parquet" else part for part in arguments]
    output = ["-o", tmp_path / "model"] if arguments[0] == "fit" else []
    assert problem in shell.error(*given, *output)
