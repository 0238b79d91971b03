"""Numbers that the IPS paper printed: found by the content of a data set, and shown beside ours at the same size."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import clickshift as cs
from clickshift.data.corpus import Corpus, signed_log
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import FileError, SpecError
from clickshift.experiments.click_vs_ips import data as data_module
from clickshift.experiments.click_vs_ips._report import ClickVsIpsResult
from clickshift.experiments.click_vs_ips._report_published import _TEXT_REVERSED
from clickshift.experiments.click_vs_ips.data import (
    IPS_TRUE,
    NAIVE,
    PBM_TRUE,
    PRODUCTION,
    PointwiseData,
    _prepared,
    pointwise_data,
    read_corpus_split,
)
from clickshift.experiments.click_vs_ips.protocol import RANKERS_COMPARED, parse_learner
from clickshift.experiments.click_vs_ips.published import (
    published_curve,
    published_half_width,
    published_rate,
    published_row,
    published_table,
    recognised_set,
)
from clickshift.experiments.experiment import Experiment
from clickshift.experiments.papers import table_or_figure, with_changes
from tests.cli.shell import call
from tests.codes import raises_code
from tests.experiments.click_vs_ips.test_report import rows_of

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"
DATA = PointwiseData(content="files", corpus="MSLR-WEB30K/Fold1")


def test_a_data_set_is_recognised_by_its_content() -> None:
    assert recognised_set(136, 31_531, 4) == "MSLR"
    assert recognised_set(136, 10_000, 4) == "", "WEB10K"
    assert recognised_set(699, 29_921, 4) == recognised_set(700, 29_921, 4) == "Yahoo"
    assert recognised_set(700, 6_330, 4) == "", "Yahoo's set 2"
    assert recognised_set(220, 33_018, 4) == "Istella"
    assert recognised_set(220, 33_018, 2) == ""
    assert (pointwise_data("one-hot-twice").published_set, pointwise_data("builtin").published_set) == ("one-hot", "")


def test_published_means_deviations_and_marks() -> None:
    mean, mark = published_row("Istella", IPS_TRUE)["nDCG@10"]
    assert (mean.mean, mark) == (0.724, "▲")
    assert mean.half == pytest.approx(0.004 * stats.t.ppf(0.975, 9) / np.sqrt(10), rel=1e-4)
    assert published_curve("one-hot", "collisions", PBM_TRUE)[0.9] == 0.554
    assert published_curve("Istella", "eta", PBM_TRUE)[2.0] == 0.668
    assert published_half_width("Istella", "eta", PBM_TRUE, 1.5) == pytest.approx(0.005)
    assert np.isnan(published_half_width("one-hot", "collisions", PBM_TRUE, 0.5))
    assert published_row("", IPS_TRUE) == {}
    assert published_curve("", "sessions", NAIVE) == {}


def test_the_published_rates_are_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    text = dict(RANKERS_COMPARED)
    assert published_rate("", loss="ips", bias="given") is None
    for name, rates in {"Yahoo": (5e-4, 1e-4, 5e-3), "Istella": (1e-3, 1e-3, 1e-3), "MSLR": (1e-3, 5e-4, 1e-3)}.items():
        monkeypatch.setattr(data_module, "_published_set", lambda _, name=name: name)
        found = [parse_learner(text[model], DATA, 0).rate for model in (IPS_TRUE, PBM_TRUE, "PBM, estimated bias")]
        assert tuple(found) == rates
        assert parse_learner("ClickRanker(learning_rate=0.2)", DATA, 0).rate == 0.2, "a rate of one's own stays"


def test_tuned_rates_are_beside_the_published_ones() -> None:
    row = {"data": "Fold1", "optimiser": "adam", "seed": 0, "nDCG@10": 0.4, "rounds": 9}
    rows = [
        row | {"set": "MSLR", "model": model, "rate": rate, "held_out_loss": rate}
        for model in (PBM_TRUE, IPS_TRUE)
        for rate in (0.001, 0.01)
    ]
    chosen = ClickVsIpsResult(rows, protocol="Tuning").document.sections[0].table
    assert [(line["model"], line["rate"], line["published"]) for line in chosen] == [
        (PBM_TRUE, "0.001", "adam, 0.0005"),
        (IPS_TRUE, "0.001", "adam, 0.001"),
    ]
    other = ClickVsIpsResult([row | {"set": ""} for row in rows], protocol="Tuning").document.sections[0].table
    assert "published" not in other[0]


def split_of(features: np.ndarray) -> data_module.CorpusSplit:
    vocabulary, _, _ = Vocabulary.of(np.zeros(len(features), int), np.arange(len(features)))
    corpus = Corpus(vocabulary, np.zeros(len(features), np.float32), features.astype(np.float32), 4)
    return data_module.CorpusSplit(corpus, corpus, corpus)


def test_features_are_prepared_as_the_authors_do() -> None:
    values = np.array([[0.0, 0.25], [1.0, 0.9]])
    yahoo = _prepared(split_of(values), "Yahoo").train.features
    assert signed_log(yahoo) == pytest.approx(values, abs=1e-6), "not log-scaled in the end"
    istella = _prepared(split_of(np.array([[3.4e38, 5.0]])), "Istella").test.features
    assert istella.tolist() == [[1e9, 5.0]]
    same = split_of(values)
    assert _prepared(same, "MSLR") is same


@pytest.mark.parametrize(
    "command", ["reproduce ips-table2", "reproduce ips-tuning", "reproduce table3", "shift run", "selection run"]
)
def test_a_bad_line_is_one_error_before_the_tasks(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"{doc % 3} qid:{query} 1:0.{doc}" for query in range(9) for doc in range(5)]
    for part, last in (("train", []), ("test", ["x qid:9 1:0.3"]), ("vali", [])):
        own = [line.replace("qid:", {"train": "qid:1", "test": "qid:2", "vali": "qid:3"}[part]) for line in lines]
        (tmp_path / f"{part}.txt").write_text("\n".join(own + last))
    assert call(*command.split(), "--corpus", tmp_path, "--seeds", 1, "-o", tmp_path / "run") == 2
    errors = capsys.readouterr().err
    assert errors.count("test.txt, line 46: a line must begin with a label") == 1
    assert "tasks" not in errors
    assert "on_bad_line" not in errors
    assert not (tmp_path / "run" / "cells").exists()


def test_the_two_sets_of_yahoo_are_not_mixed(tmp_path: Path) -> None:
    for number in (1, 2):
        for part in ("train", "valid", "test"):
            (tmp_path / f"set{number}.{part}.txt").write_text(
                f"1 qid:{number}{len(part)} 1:0.5\n0 qid:{number}{len(part)} 1:0.1\n"
            )
    with raises_code("several-sets", FileError, sets=["set1", "set2"]):
        read_corpus_split(tmp_path)
    with raises_code("several-sets", FileError):  # before any task runs
        cs.reproduce("ips-table2", corpus=str(tmp_path), seeds=1, workers=0)
    for path in tmp_path.glob("set2.*"):
        path.unlink()
    assert [part.n_queries for part in read_corpus_split(tmp_path)] == [1, 1, 1]


def test_as_published_trains_as_the_authors_do(monkeypatch: pytest.MonkeyPatch) -> None:
    table_2 = table_or_figure("ips-table2").make
    assert table_2 is not None
    changed = with_changes(table_2(), as_published=True)
    assert (changed.data.name, changed.data.as_published) == ("one-hot-twice", True)
    learner = parse_learner("ClickRanker(loss='ips')", changed.data, 3)
    assert (learner.by_traffic, learner.keep, learner.seed) == (False, "last", 3)
    builtin = with_changes(table_2(), corpus="builtin", queries=50, as_published=True).data
    assert (builtin.name, builtin.as_published) == ("builtin", True)
    monkeypatch.setattr(Experiment, "run", lambda *_, **options: pytest.fail("it runs for hours"))
    with raises_code("bad-option", SpecError, option="as_published"):
        cs.reproduce("ips-figure3", as_published=True)


def test_ours_is_beside_the_published_value_at_the_same_number_of_sessions() -> None:
    rows = [row for row in rows_of() if row["kind"] == "trained"]
    lines = published_table(rows, ["sessions"], {})
    found = {(line["model"], line["sessions"], line["metric"]): line for line in lines}
    assert found[NAIVE, 1000, "nDCG@10"]["published"].mean == 0.585
    assert found[NAIVE, 100_000_000, "nDCG@10"]["published"].mean == 0.849
    assert found[NAIVE, 100_000_000, "nDCG@10"]["sd"].mean == 0.004
    assert found[PRODUCTION, 100_000_000, "ARP"]["mark"] == "▲"
    largest = [row for row in rows if row["sessions"] > 1000]
    known = {"data": "one-hot-twice", "as_published": True}
    reasons = [
        next(line["verdict"] for line in published_table(of, [], {}) if line["model"] == NAIVE)
        for of in (largest, [row | {"data": "one-hot-twice"} for row in largest], [row | known for row in largest])
    ]
    assert reasons == [
        "differs because of the data (two copies of each document) and the round (last instead of best)",
        "differs because of the round (last instead of best)",
        "differs",
    ]
    moved = [row | {"nDCG@10": 0.849} for row in rows if row["model"] == NAIVE and row["sessions"] > 1000]
    assert [line["verdict"] for line in published_table(moved, [], {}) if line["metric"] == "nDCG@10"] == ["agrees"]
    assert published_table(rows_of("builtin"), ["sessions"], {}) == []


def test_figure_5_has_its_published_intervals() -> None:
    """A difference within both intervals agrees: .719 and .722 with half widths of .003 and none."""
    rows = [
        row | {"set": "Istella", "data": "files", "eta": eta, "nDCG@10": value}
        for eta, value in ((0.5, 0.7215), (2.0, 0.7215))
        for row in rows_of(seeds=3)
        if row["kind"] == "trained" and row["sessions"] > 1000 and row["model"] == PBM_TRUE
    ]
    lines = {line["eta"]: line for line in published_table(rows, ["eta"], {})}
    assert str(lines[0.5]["published"]) == "0.719 ± .003"
    assert [lines[eta]["verdict"] for eta in (0.5, 2.0)] == ["agrees", "differs"]


def test_the_conclusion_counts_every_number_with_its_reason() -> None:
    rows = [row for row in rows_of() if row["kind"] == "trained"]
    result = ClickVsIpsResult(rows)
    (section,) = (one for one in result.document.sections if one.name == "published")
    verdicts = Counter(line["verdict"] for line in section.table)
    agree, differ = verdicts.pop("agrees"), verdicts.total()
    assert verdicts["differs"], "no reason is known for some"
    first, second = result.conclusion.split("\n\n")[:2]
    assert first == f"{agree} of {agree + differ} published numbers agree with ours within chance."
    for verdict, number in verdicts.items():
        reason = verdict.removeprefix("differs ") if verdict != "differs" else "for a reason that is not known"
        assert f"{number} {reason}" in second
    assert second.startswith(f"{differ} differ: ")
    for number, line in zip(result.to_dict()["published"], section.table, strict=True):
        assert (number["published"], number["ours"]) == (line["published"].mean, line["ours"].mean)
        assert number["half_width"] == line["ours"].half
    json.dumps(result.to_dict()["published"])


def test_one_reason_is_not_listed_and_fewer_queries_are_one() -> None:
    rows = [row | {"set": "Istella", "data": "files", "queries": 100} for row in rows_of() if row["kind"] == "trained"]
    largest = [row for row in rows if row["sessions"] > 1000 and row["model"] == IPS_TRUE]
    result = ClickVsIpsResult(largest)
    assert result.conclusion.split("\n\n")[:2] == [
        "0 of 3 published numbers agree with ours within chance.",
        "3 differ because only some queries are used.",
    ]


def test_columns_that_only_table_2_has_are_not_shown_elsewhere() -> None:
    for collisions, shown in (((0.0,), {"sd", "mark", "our mark"}), ((0.0, 0.5), set())):
        rows = [row for row in rows_of(collisions=collisions) if row["sessions"] > 1000]
        (table,) = (one.table for one in ClickVsIpsResult(rows).document.sections if one.name == "published")
        assert set(table[0]) & {"sd", "mark", "our mark"} == shown


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ope-figure1", {"corpus": "builtin"}),
        ("ope-figure5", {"seeds": 2}),
        ("ips-figure2", {"sessions": 1000}),
        ("table2", {"queries": 100}),
        ("table7", {"as_published": True}),
        ("table3", {"tuned": "folder"}),
    ],
)
def test_an_option_without_effect_is_refused(
    name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Experiment, "run", lambda *_, **options: pytest.fail("it runs"))
    with raises_code("bad-option", SpecError, option=next(iter(options))):
        cs.reproduce(name, **options)


def test_the_reversal_at_10_000_sessions_is_stated_with_its_reason() -> None:
    once, twice = (
        json.loads((RESULTS / f"{name}.json").read_text())["nDCG@10"] for name in ("pointwise", "pointwise_twice")
    )
    rows = [
        {"data": "one-hot", "set": "one-hot", "sessions": 10_000, "eta": 1.0, "collisions": 0.0, "seed": 0,
         "kind": "trained", "model": model, "nDCG@5": 0.5, "nDCG@10": once[model]["10,000"], "ARP": 9.0}
        for model in (PBM_TRUE, IPS_TRUE)
    ]  # fmt: skip
    (section,) = (one for one in ClickVsIpsResult(rows).document.sections if one.name == "published")
    assert "PBM 0.760, IPS 0.781" in section.text
    assert " ".join(_TEXT_REVERSED.split()) in " ".join(section.text.split())
    gains = [twice[model]["10,000"] - once[model]["10,000"] for model in (PBM_TRUE, IPS_TRUE)]
    for number in (*gains, *(twice[model]["10,000"] for model in (PBM_TRUE, IPS_TRUE))):
        assert f"{number:.3f}"[1:] in _TEXT_REVERSED
    swapped = [row | {"nDCG@10": 1 - row["nDCG@10"]} for row in rows]
    (section,) = (one for one in ClickVsIpsResult(swapped).document.sections if one.name == "published")
    assert "reversed" not in section.text
