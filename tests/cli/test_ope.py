"""clickshift ope, as a user calls it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import clickshift as cs
from clickshift.errors import DataError, FileError
from clickshift.io.rankings import read_rankings
from clickshift.io.read_log import read_log
from clickshift.ope import WeightedLists
from tests.cli.shell import Shell, call
from tests.codes import raises_code, warns_code

FEW: tuple[Any, ...] = ("--replicates", 60)
ESTIMATORS = ("List", "IP", "PBM", "Item", "RCTR")
ROWS: tuple[str, ...] = tuple(text for name in ESTIMATORS for text in ("--estimator", name))
"""The estimators of the answer without the answer, whose click models take most of the time."""
ATTRACTIVENESS = {"a": 0.1, "b": 0.3, "c": 0.5, "d": 0.7}
"""Of the documents of every query; a click needs examination, 1 / rank, too."""
WORST = ["a", "b", "c", "d"]


def earns(docs: list[str]) -> float:
    return sum(ATTRACTIVENESS[d] / k for k, d in enumerate(docs, start=1))


def write_clicks(path: Path, *, queries: int, sessions: int, seed: int, keep: float, days: int = 0) -> None:
    """The log of a ranker that shows the worst order, and exchanges two neighbours at random with 1 - keep."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(sessions):
        docs = list(WORST)
        if rng.random() > keep:
            j = int(rng.integers(3))
            docs[j], docs[j + 1] = docs[j + 1], docs[j]
        clicks = [int(rng.random() < ATTRACTIVENESS[d] / k) for k, d in enumerate(docs, start=1)]
        row = {"query": f"q{i % queries}", "docs": docs, "clicks": clicks, "user": i // 3}
        rows.append(row | ({"day": i * days // sessions} if days else {}))
    pq.write_table(pa.Table.from_pylist(rows), path)


def write_lists(path: Path, docs: list[str], queries: int = 4) -> Path:
    pq.write_table(pa.table({"query": [f"q{q}" for q in range(queries)], "docs": [docs] * queries}), path)
    return path


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ope")
    write_clicks(folder / "log.parquet", queries=4, sessions=12_000, seed=0, keep=0.4)
    write_clicks(folder / "small.parquet", queries=2, sessions=3000, seed=0, keep=0.4)
    write_lists(folder / "worst.parquet", WORST)
    write_lists(folder / "better.parquet", ["a", "b", "d", "c"])
    write_lists(folder / "top.parquet", ["b", "a", "c", "d"])
    write_lists(folder / "best.parquet", ["d", "c", "b", "a"])
    return folder


def now(work: Path) -> float:
    """Expected reward of the lists of the log."""
    return float(np.mean([earns(docs) for docs in pq.read_table(work / "log.parquet")["docs"].to_pylist()]))


def evaluated(shell: Shell, *arguments: object) -> dict[str, Any]:
    found = shell.json("ope", *arguments, *FEW)
    rows = {(row["target"], row["estimator"], row["clip"]): row for row in found["rows"]}
    return found | {"rows": rows}


def test_values_are_those_of_the_world(shell: Shell, work: Path) -> None:
    """Without clipping, of a list that was logged, List, IP and PBM are unbiased in this world."""
    target = work / "top.parquet"
    found = evaluated(shell, work / "log.parquet", "--target", target)
    truth = earns(["b", "a", "c", "d"])
    for name in ("List", "IP", "PBM"):
        row = found["rows"][str(target), name, None]
        assert abs(row["value"] - truth) < 4 * row["error"]
        assert row["low"] < row["value"] < row["high"]
        assert row["verdict"] == "usable"
    log = read_log(work / "log.parquet")
    mean = found["rows"][str(target), "RCTR", None]["value"]
    assert mean == pytest.approx(log.click.sum() / log.total)
    assert found["rows"][str(target), "RCTR", None]["verdict"] == "baseline"
    answer = found["answer"]
    assert answer["verdict"] == "usable"
    assert answer["low"] < truth < answer["high"]
    assert answer["today"] == pytest.approx(mean)
    assert answer["difference"] == pytest.approx(answer["value"] - answer["today"])
    assert answer["difference_low"] < truth - now(work) < answer["difference_high"]


def test_the_function_returns_what_the_command_prints(shell: Shell, work: Path) -> None:
    log, one, other = work / "small.parquet", work / "worst.parquet", work / "top.parquet"
    said = shell.json("ope", log, "--target", one, "--compare", other, "--clip", "10,inf", "--seed", 3, *FEW)
    result = cs.evaluate_policy(log, one, compare=other, clip=(10, math.inf), seed=3, replicates=60)
    assert said == result.to_dict()
    assert said["conclusion"].startswith(f"{other} would earn more than {one}: ")
    assert len(result.rows()) == result.to_arrow().num_rows == 2 * 5 * 2
    assert len(said["conclusion"].split("\n\n")) == 2 * 3, "the comparison, then each target against today's ranker"
    assert f"{one} would earn" in said["conclusion"].split("\n\n")[2]
    assert result.verdict == result.answer.verdict == "usable"  # type: ignore[union-attr]
    assert repr(result).startswith("<PolicyEvaluation: ")
    assert next(iter(result.figures)) == "answer"
    assert "<h3>" in result._repr_html_()


def test_a_target_may_be_a_frame_rankings_or_a_policy(work: Path) -> None:
    docs = ["b", "a", "c", "d"]
    queries = [f"q{q}" for q in range(4)]
    lists = pd.DataFrame({"query": queries, "docs": [docs] * 4})
    scores = pa.table({"query": np.repeat(queries, 4), "doc": docs * 4, "score": [4.0, 3.0, 2.0, 1.0] * 4})
    rankings = read_rankings(work / "top.parquet")
    values = [
        [
            row["value"]
            for row in cs.evaluate_policy(work / "log.parquet", target, estimators=ESTIMATORS, replicates=20).rows()
        ]
        for target in (work / "top.parquet", lists, scores, rankings, WeightedLists(rankings))
    ]
    for value in values[1:]:
        assert value == pytest.approx(values[0])
    with raises_code("not-a-table", DataError, type="int"):
        cs.evaluate_policy(work / "log.parquet", 7)
    with raises_code("missing-column", FileError, known=["query"]):
        cs.evaluate_policy(work / "log.parquet", lists[["query"]])


def test_logs_with_other_column_names_and_bad_rows(shell: Shell, work: Path, tmp_path: Path) -> None:
    write_clicks(tmp_path / "log.parquet", queries=2, sessions=600, seed=1, keep=0.5, days=3)
    good = pd.read_parquet(tmp_path / "log.parquet")
    bad = pd.concat([good, good[:1].assign(clicks=[[1, 1]])]).rename(columns={"query": "term", "docs": "shown"})
    bad.to_parquet(tmp_path / "theirs.parquet")
    theirs = (tmp_path / "theirs.parquet", "--column", "query=term", "--column", "docs=shown")
    names, target = {"query": "term", "docs": "shown"}, write_lists(tmp_path / "t.parquet", WORST, queries=2)
    for command, options in (
        (("ope",), ("--target", target, "--estimator", "IP", *FEW)),
        (("ope", "optimise"), ("-o", tmp_path / "p.parquet", "--estimator", "List", "--reward", "any-click@2", *FEW)),
        (("ope", "backtest"), ("--reward", "clicks", "--queries", 2)),
    ):
        assert "docs and clicks must be equally long" in shell.error(*command, *theirs, *options)
        said = shell.json(*command, *theirs, *options, "--skip-bad")
        assert said | {"output": 0} == shell.json(*command, tmp_path / "log.parquet", *options) | {"output": 0}
    with warns_code("skipped-sessions", count=1, total=601, rule="unequal-lengths"):
        found = cs.evaluate_policy(bad, target, columns=names, estimators=["IP"], on_bad_line="skip", replicates=60)
    assert found.to_dict() == cs.evaluate_policy(good, target, estimators=["IP"], replicates=60).to_dict()


def test_evaluate_is_what_ope_does(shell: Shell, work: Path) -> None:
    options = (work / "log.parquet", "--target", work / "top.parquet", "--estimator", "IP", *FEW)
    said = shell.json("ope", "evaluate", *options)
    assert said == shell.json("ope", *options)
    assert said == shell.json("ope", *options[1:], options[0])
    assert said["answer"] is None
    code, out, _ = shell.run("ope", "--help")
    assert code == 0
    assert "evaluate" in out
    assert "optimise" in out


def test_words_for_people(shell: Shell, work: Path) -> None:
    said = shell.text("ope", work / "log.parquet", "--target", work / "best.parquet", "--clip", "10,inf", *FEW)
    assert "List: not identified. " in said
    assert "Note: List: for 4 of 4 queries, nothing" in said
    assert "right only if a click depends only on the document." in said
    assert "would earn more than today's ranker: " in said.splitlines()[0]


def test_clipping_shows_where_it_matters_only(shell: Shell, work: Path) -> None:
    options = (work / "log.parquet", "--target", work / "top.parquet", "--estimator", "List", *FEW)
    said = shell.text("ope", *options, "--clip", "2,50,inf")  # the weight is about 5
    assert said.count("│ List ") == 2
    rows = shell.json("ope", *options, "--clip", "inf,50,2")["rows"]
    assert [row["clip"] for row in rows] == [2, 50, None]
    assert rows[0]["value"] < 0.5 * rows[1]["value"] == pytest.approx(0.5 * rows[2]["value"])
    assert rows[0]["clipped"] > 0.5


def test_three_kinds_of_targets_agree(shell: Shell, work: Path) -> None:
    """A list, the same list twice with half the weight, and scores that sort to it."""
    docs = ["b", "a", "c", "d"]
    twice = {"query": ["q0", "q0", "q1"], "docs": [docs] * 3, "weight": [0.25, 0.75, 1.0]}
    pq.write_table(pa.table(twice), work / "weighted.parquet")
    lines = [f"q{q},{d},{-docs.index(d)}\n" for q in range(2) for d in WORST]
    (work / "scores.csv").write_text("query,doc,score\n" + "".join(lines))
    write_lists(work / "two.parquet", docs, queries=2)
    values = []
    for name in ("two.parquet", "weighted.parquet", "scores.csv"):
        found = evaluated(shell, work / "log.parquet", "--target", work / name, *ROWS)
        values.append([row["value"] for row in found["rows"].values()])
        row = next(iter(found["rows"].values()))
        assert (row["sessions"], row["sessions_skipped"], row["queries_skipped"]) == (6000, 6000, 2)
        assert "6,000 sessions of 2 queries are skipped" in found["notes"][str(work / name)][0]
    assert values[1] == pytest.approx(values[0])
    assert values[2] == pytest.approx(values[0])


def test_documents_that_were_never_logged_are_named(shell: Shell, work: Path) -> None:
    path = write_lists(work / "new.parquet", ["z", "b", "c", "d"])
    found = evaluated(shell, work / "log.parquet", "--target", path)
    (note,) = [n for n in found["notes"][str(path)] if "the log never shows" in n]
    assert "4 documents" in note
    assert "z (query q0)" in note
    row = found["rows"][str(path), "IP", None]
    assert row["never_logged"] == pytest.approx(0.25)
    assert row["verdict"] == "weak overlap"
    assert row["ceiling"] == pytest.approx(row["floor"] + 1)  # one click more, at most
    assert found["answer"]["verdict"] != "usable"
    assert found["answer"]["lost"] > 0.2


def test_two_targets_are_compared_on_the_same_sessions(shell: Shell, work: Path) -> None:
    one, other = work / "worst.parquet", work / "top.parquet"
    found = evaluated(shell, work / "log.parquet", "--target", one, "--compare", other, *ROWS)
    truth = earns(["b", "a", "c", "d"]) - earns(WORST)
    by_name = {d["estimator"]: d for d in found["differences"]}
    assert set(by_name) == {"List", "IP", "PBM", "Item"}
    for name in ("List", "IP", "PBM"):
        d = by_name[name]
        assert abs(d["difference"] - truth) < 4 * d["error"]
        assert d["difference"] == pytest.approx(d["second"] - d["first"])
    d = by_name["PBM"]
    assert d["words"] == (
        f"{other} earns {d['difference']:.4f} more per session than {one} [{d['low']:+.4f}, {d['high']:+.4f}]."
    )
    alone = [found["rows"][str(name), "PBM", None]["error"] for name in (one, other)]
    assert d["error"] < math.hypot(*alone)  # chance that moves both does not count
    back = evaluated(shell, work / "log.parquet", "--target", other, "--compare", one, *ROWS)["differences"]
    assert "less per session" in {d["estimator"]: d for d in back}["PBM"]["words"]


def test_a_comparison_keeps_to_queries_that_both_rank(shell: Shell, work: Path) -> None:
    write_lists(work / "half.parquet", WORST, queries=2)
    names = ("--target", work / "half.parquet", "--compare", work / "top.parquet")
    found = evaluated(shell, work / "log.parquet", *names, "--estimator", "IP")
    assert {row["sessions"] for row in found["rows"].values()} == {6000}
    assert any("6,000 sessions are left out" in note for note in found["notes"][str(work / "half.parquet")])
    assert found["differences"][0]["words"].endswith("].")
    write_lists(work / "never.parquet", ["d", "a", "c", "b"], queries=2)
    names = ("--target", work / "half.parquet", "--compare", work / "never.parquet")
    (d,) = evaluated(shell, work / "log.parquet", *names, "--estimator", "List")["differences"]
    assert d["words"] == f"the reward of {work / 'never.parquet'} is not identified from this log."


def test_a_difference_that_lost_mass_could_turn_is_a_hint(shell: Shell, work: Path) -> None:
    """The new first document was never logged: it counts as nothing, and may be worth more than all others."""
    write_lists(work / "unknown.parquet", ["z", "b", "c", "d"])
    names = ("--target", work / "worst.parquet", "--compare", work / "unknown.parquet")
    (d,) = evaluated(shell, work / "log.parquet", *names, "--estimator", "IP")["differences"]
    assert d["high"] < 0
    assert "less per session" in d["words"]
    assert d["words"].endswith("Lost mass could reverse this: treat it as indicative only.")


def test_propensities_of_the_log(shell: Shell, tmp_path: Path) -> None:
    policy = ("--policy", "PlackettLuce(Oracle, temperature=2.0)", "--queries", 3, "--documents", 3, "--ranks", 3)
    log, truth = tmp_path / "log.parquet", tmp_path / "truth.csv"
    assert call("simulate", "-o", log, *policy, "--sessions", 6000, "--user", "PBM", "--truth", truth) == 0
    known = evaluated(shell, log, "--target", truth, "--logging", "propensities")
    counted = evaluated(shell, log, "--target", truth, "--estimator", "List")
    assert {name for _, name, _ in known["rows"]} == {"List", "RCTR"}
    for rows in (known["rows"], counted["rows"]):
        assert rows[str(truth), "List", None]["verdict"] == "usable"
    a, b = (rows[str(truth), "List", None] for rows in (known["rows"], counted["rows"]))
    assert a["value"] != b["value"]
    assert a["value"] == pytest.approx(b["value"], abs=4 * a["error"])
    assert known["answer"]["estimator"]
    said = shell.error("ope", log, "--target", truth, "--logging", "propensities", "--estimator", "IP")
    assert "IP" in said
    assert "--logging frequencies" in said


def test_rewards_and_clusters(shell: Shell, work: Path) -> None:
    options = (work / "log.parquet", "--target", work / "worst.parquet")
    found = evaluated(shell, *options, "--reward", "any-click@2")
    assert {name for _, name, _ in found["rows"]} == {"List", "RCTR"}
    truth = 1 - (1 - 0.1) * (1 - 0.3 / 2)
    row = found["rows"][str(work / "worst.parquet"), "List", None]
    assert abs(row["value"] - truth) < 4 * row["error"]
    by_user = evaluated(shell, *options, "--cluster", "user", "--estimator", "IP")["rows"]
    by_session = evaluated(shell, *options, "--estimator", "IP")["rows"]
    for key, row in by_user.items():
        assert row["value"] == by_session[key]["value"]
        assert row["error"] != by_session[key]["error"]


def test_a_model_is_asked_or_judged(shell: Shell, work: Path) -> None:
    assert call("fit", "PBM", work / "log.parquet", "-o", work / "pbm") == 0
    options = (work / "log.parquet", "--target", work / "best.parquet", "--model", work / "pbm", "--estimator", "DM")
    found = evaluated(shell, *options)
    direct = found["rows"][str(work / "best.parquet"), "DM", None]
    assert direct["value"] == pytest.approx(earns(["d", "c", "b", "a"]), rel=0.2)
    for derive in ("top-down", "max-reward"):
        mine = evaluated(shell, work / "log.parquet", "--model", work / "pbm", "--derive", derive, "--estimator", "DM")
        assert mine["rows"][derive, "DM", None]["value"] == pytest.approx(direct["value"], abs=1e-6)
        assert any("too optimistic" in note for note in mine["notes"][derive])


def test_a_log_of_one_list_can_be_enough_with_a_click_model(shell: Shell, work: Path, tmp_path: Path) -> None:
    """The model learns examination where lists vary; the other log shows one list."""
    shell.json("fit", "PBM", work / "log.parquet", "--output", tmp_path / "pbm")
    write_clicks(tmp_path / "one.parquet", queries=4, sessions=12_000, seed=7, keep=1.0)
    found = evaluated(
        shell, tmp_path / "one.parquet", "--target", work / "best.parquet", "--model", tmp_path / "pbm",
        "--estimator", "CIPS", "--estimator", "IP", "--clip", "inf",
    )  # fmt: skip
    row = found["rows"][str(work / "best.parquet"), "CIPS", None]
    assert abs(row["value"] - earns(["d", "c", "b", "a"])) < 4 * row["error"]
    assert row["verdict"] == "usable"
    assert "standard errors of the click model's shared parameters" in row["notes"]
    assert found["rows"][str(work / "best.parquet"), "IP", None]["verdict"] == "not identified"


def test_days_are_told_apart(shell: Shell, work: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.parquet"
    write_clicks(log, queries=2, sessions=3000, seed=1, keep=0.5, days=5)
    target = write_lists(tmp_path / "target.parquet", ["b", "a", "c", "d"], queries=2)
    found = evaluated(shell, log, "--target", target, "--estimator", "IP", "--estimator", "PI")
    assert [(d["estimator"], d["day"]) for d in found["days"]] == [("IP", str(day)) for day in range(5)]
    options = ("--estimator", "IP", "--output", tmp_path / "report", *FEW)
    code, out, _ = shell.run("ope", log, "--target", target, *options)
    assert code == 0
    assert "Daily residuals of IP: mean " in out
    assert "Daily residuals" in (tmp_path / "report" / "report.html").read_text()


def test_a_report(shell: Shell, work: Path, tmp_path: Path) -> None:
    names = ("--target", work / "worst.parquet", "--compare", work / "new-list.parquet")
    write_lists(work / "new-list.parquet", ["<b>", "a", "c", "d"])
    said = shell.text("ope", work / "log.parquet", *names, "--clip", "2,inf", "-o", tmp_path / "out", *FEW)
    assert f"Report: {tmp_path / 'out' / 'report.html'}" in said
    page = (tmp_path / "out" / "report.html").read_text()
    for words in ("Estimates by clipping constant", "PBM", "usable", "against", "&lt;b&gt; (query q0)"):
        assert words in page
    assert "<b> (query" not in page
    rows = pq.read_table(tmp_path / "out" / "rows.parquet")
    assert rows.num_rows == 2 * 5 * 2
    assert (tmp_path / "out" / "exports" / "differences.csv").exists()


@pytest.mark.parametrize("estimator", ["List", "IP", "PBM", "Item"])
def test_a_policy_from_the_log(shell: Shell, work: Path, tmp_path: Path, estimator: str) -> None:
    output = tmp_path / "policy.parquet"
    common = ("--reward", "clicks@2", *FEW)
    found = shell.json("ope", "optimise", work / "log.parquet", "-o", output, "--estimator", estimator, *common)
    log = read_log(work / "log.parquet")
    assert found["logging"] == pytest.approx(log.click[:, :2].sum() / log.total)
    assert found["in_sample"] > found["logging"] + 0.01
    assert found["cross_fitted_low"] < found["cross_fitted"] < found["cross_fitted_high"]
    assert found["cross_fitted"] < found["in_sample"] + 0.01
    assert found["halves"] == "at random"
    back = ("--target", output, "--estimator", estimator, "--clip", 10, "--examination", "1/rank", *common)
    (row,) = shell.json("ope", work / "log.parquet", *back)["rows"]
    assert row["value"] == pytest.approx(found["in_sample"])
    policy = pq.read_table(output).to_pylist()
    assert len(policy) == found["lists"]
    assert {len(row["docs"]) for row in policy} == {2}
    truth = sum(row["weight"] * earns(row["docs"]) for row in policy) / found["queries"]
    now = np.mean([earns(docs[:2]) for docs in pq.read_table(work / "log.parquet")["docs"].to_pylist()])
    assert truth > now
    if estimator != "Item":  # which is not of this world: it does not know that lower ranks are seldom seen
        assert found["gain_low"] < truth - now < found["in_sample"] - found["logging"] + 0.05


def test_optimise_returns_what_the_command_prints(shell: Shell, work: Path, tmp_path: Path) -> None:
    options = ("--estimator", "List", "--reward", "any-click@2", "--seed", 2, *FEW)
    said = shell.json("ope", "optimise", work / "small.parquet", "-o", tmp_path / "p.csv", *options)
    assert said.pop("output") == str(tmp_path / "p.csv")
    result = cs.optimise_policy(work / "small.parquet", estimator="List", reward="any-click@2", seed=2, replicates=60)
    assert said == result.to_dict()
    assert len(result.rows()) == said["lists"]
    assert {len(row["docs"]) for row in result.rows()} == {2}
    assert cs.evaluate_policy(
        work / "small.parquet",
        result.policy,
        estimators=["List"],
        reward="any-click@2",
        clip=[10],
        replicates=20,
    ).rows()[0]["value"] == pytest.approx(said["in_sample"])


def test_logs_on_disk_give_the_same_policy(tmp_path: Path) -> None:
    write_clicks(tmp_path / "days.parquet", queries=2, sessions=1500, seed=1, keep=0.5, days=5)
    write_clicks(tmp_path / "log.parquet", queries=2, sessions=1500, seed=0, keep=0.4)
    for log, halves in ((tmp_path / "log.parquet", "at random"), (tmp_path / "days.parquet", "by time")):
        encoded = cs.open_log(log, in_memory=False, output=tmp_path / f"{log.stem}.encoded")
        here, there = (
            cs.optimise_policy(one, estimator="List", reward="any-click@2", replicates=20) for one in (log, encoded)
        )
        assert there.halves == here.halves == halves
        assert there.in_sample.value == pytest.approx(here.in_sample.value, abs=1e-9)
        assert there.logging.value == pytest.approx(here.logging.value, abs=1e-9)
        if halves == "by time":  # halves at random are those of another generator
            told, other = ({k: v for k, v in one.to_dict().items() if k != "answer"} for one in (here, there))
            assert other == pytest.approx(told, abs=1e-9)


def test_days_stay_whole_when_a_policy_is_judged(shell: Shell, tmp_path: Path) -> None:
    log = tmp_path / "days.parquet"
    write_clicks(log, queries=2, sessions=3000, seed=1, keep=0.5, days=5)
    options = ("-o", tmp_path / "p.csv", "--estimator", "List", "--reward", "any-click@2", *FEW)
    assert shell.json("ope", "optimise", log, *options)["halves"] == "by time"
    said = shell.text("ope", "optimise", log, *options)
    assert "cross-fitted (halves by time)" in said
    assert "(in-sample +" in said


def test_chance_is_not_sold_as_a_gain(shell: Shell, tmp_path: Path) -> None:
    """All lists are equally good: what the optimiser finds is noise, and the other half says so."""
    rng, rows = np.random.default_rng(3), []
    for i in range(1500):
        docs = rng.permutation(4).tolist()
        rows.append({"query": i % 5, "docs": docs, "clicks": (rng.random(4) < 0.3).astype(int).tolist()})
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "noise.parquet")
    options = ("-o", tmp_path / "p.parquet", "--estimator", "IP", *FEW)
    found = shell.json("ope", "optimise", tmp_path / "noise.parquet", *options)
    assert found["in_sample"] > found["logging"] + 0.1
    assert found["gain_low"] < 0
    assert found["answer"]["low"] < 0
    assert "This does not show that it is better" in found["conclusion"]


@pytest.mark.parametrize(
    ("rows", "facts"),
    [
        ([{"docs": ["a", "b", "a"]}], ("got a at rank 1 and at rank 3",)),
        ([{"docs": ["a"], "weight": 0.5}], ("query q0", "sum to 0.5")),
        ([{"docs": ["a"], "weight": 1.5}, {"docs": ["b"], "weight": -0.5}], ("list 1", "1.5")),
        ([{"docs": ["a"]}, {"docs": ["b"]}], ("query q0 has 2",)),
        ([{"doc": "a"}], ("query, doc and score", "docs")),
        ([{"doc": "a", "score": float("inf")}], ("document a of query q0", "inf")),
    ],
)
def test_bad_targets(
    shell: Shell, work: Path, tmp_path: Path, rows: list[dict[str, Any]], facts: tuple[str, ...]
) -> None:
    pq.write_table(pa.Table.from_pylist([{"query": "q0", **row} for row in rows]), tmp_path / "bad.parquet")
    said = shell.error("ope", work / "log.parquet", "--target", tmp_path / "bad.parquet")
    for fact in ("bad.parquet", *facts):
        assert fact in said


@pytest.mark.parametrize("propensity", [0, -0.1, 1.5, None])
def test_bad_propensities(shell: Shell, work: Path, tmp_path: Path, propensity: float | None) -> None:
    rows = [{"query": "q0", "docs": ["a"], "clicks": [1], "propensity": p} for p in (0.5, propensity)]
    (tmp_path / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    options = ("--target", work / "worst.parquet", "--logging", "propensities")
    said = shell.error("ope", tmp_path / "log.jsonl", *options)
    assert "row 2: propensity " in said
    code, out, err = shell.run("ope", tmp_path / "log.jsonl", *options, "--skip-bad", *FEW)
    assert code == 0
    assert "1 of 2 sessions" in err
    assert "an answer needs 100" in out


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ((), ("--target", "--model")),
        (("--target", "{}/missing.parquet"), ("missing.parquet",)),
        (("--target", "{}/top.parquet", "--clip", "ten"), ("--clip", "'ten'")),
        (("--target", "{}/top.parquet", "--clip", "0,10"), ("above 0", "[0.0, 10.0]")),
        (("--target", "{}/top.parquet", "--estimator", "Luck"), ("DM", "List, IP", "'Luck'")),
        (("--target", "{}/top.parquet", "--estimator", "DM"), ("DM", "--model FOLDER")),
        (("--target", "{}/top.parquet", "--estimator", "IP", "--reward", "any-click"), ("IP", "any-click", "List")),
        (("--target", "{}/top.parquet", "--reward", "money"), ("'money'", "clicks")),
        (("--target", "{}/top.parquet", "--logging", "guess"), ("'guess'", "'frequencies', 'propensities'")),
        (
            ("--target", "{}/top.parquet", "--logging", "propensities", "--estimator", "List"),
            ("propensities", "--logging frequencies"),
        ),
        (("--target", "{}/top.parquet", "--cluster", "day"), ("--cluster", "'day'")),
        (("--target", "{}/top.parquet", "--compare", "{}/top.parquet"), ("top.parquet twice",)),
        (("--target", "{}/top.parquet", "--replicates", "3"), ("'--replicates'",)),
        (("--target", "{}/top.parquet", "--output", "out.txt"), ("out.txt", ".html")),
    ],
)
def test_slips(shell: Shell, work: Path, options: tuple[str, ...], facts: tuple[str, ...]) -> None:
    given = [option.format(work) for option in options]
    said = shell.error("ope", work / "log.parquet", *given)
    for fact in facts:
        assert fact in said


def test_slips_of_optimise(shell: Shell, work: Path, tmp_path: Path) -> None:
    log, good = work / "log.parquet", tmp_path / "p.parquet"
    assert "List, IP, PBM or Item" in shell.error("ope", "optimise", log, "-o", good, "--estimator", "RCTR")
    assert "any-click" in shell.error("ope", "optimise", log, "-o", good, "--reward", "any-click")
    assert "above 0: got 0" in shell.error("ope", "optimise", log, "-o", good, "--clip", "0")
    assert "p.txt" in shell.error("ope", "optimise", log, "-o", tmp_path / "p.txt")
    assert not good.exists()


def test_a_target_of_other_queries_is_told(shell: Shell, work: Path) -> None:
    pq.write_table(pa.table({"query": ["x"], "docs": [["a"]]}), work / "foreign.parquet")
    said = shell.text("ope", work / "log.parquet", "--target", work / "foreign.parquet", *FEW)
    assert "The target ranks no query of the log" in said
    two = ("--target", work / "foreign.parquet", "--compare", work / "top.parquet")
    assert "queries that both rank" in shell.error("ope", work / "log.parquet", *two)
