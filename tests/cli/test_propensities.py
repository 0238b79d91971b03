"""clickshift propensities, as a user calls it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import clickshift as cs
from clickshift.models.pbm import PBM
from clickshift.models.storage import load_model
from clickshift.propensity.estimate import read_propensities
from tests.cli.shell import Shell, call

ATTRACTIVENESS = {"a": 0.9, "b": 0.6, "c": 0.3}
EXAMINATION = (1.0, 0.5, 0.25)


def write_clicks(path: Path, orders: list[str], *, swaps: bool = False) -> Path:
    """Rankers that show one order each to 20 queries, half the time; with swaps, the first changes places at random."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(6000):
        docs = list(orders[i % len(orders)])
        rank = int(rng.integers(3)) if swaps else 0
        docs[0], docs[rank] = docs[rank], docs[0]
        clicks = [int(rng.random() < ATTRACTIVENESS[d] * e) for d, e in zip(docs, EXAMINATION, strict=True)]
        rows.append(
            {"query": i // 2 % 20, "docs": docs, "clicks": clicks, "swap": rank + 1 if rank else 0, "word": "x"}
        )
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("propensities")
    write_clicks(folder / "two.parquet", ["abc", "bca"])
    write_clicks(folder / "one.parquet", ["abc"])
    write_clicks(folder / "swaps.parquet", ["abc"], swaps=True)
    lines = [
        f"{grade} qid:{q} 1:{grade} 2:{q} # docid = {doc}"
        for q in range(20)
        for doc, grade in zip("abc", (3, 2, 1), strict=True)
    ]
    (folder / "features.txt").write_text("\n".join(lines) + "\n")
    return folder


def test_a_curve_as_a_table_a_file_and_a_page(shell: Shell, work: Path, tmp_path: Path) -> None:
    curve, page = tmp_path / "curve.json", tmp_path / "curve.html"
    text = shell.text("propensities", work / "two.parquet", "-o", curve, "--report", page)
    assert "Examination relative to rank 1, by harvesting" in text
    found = read_propensities(curve)
    assert np.abs(np.log(found.estimate / EXAMINATION)).max() < 0.15
    assert (found.low[1:] < found.estimate[1:]).all()
    assert f"{found.estimate[2]:.3f}" in text
    assert f"{found.estimate[2]:.3f}" in page.read_text(encoding="utf-8")
    assert "effective swaps" in page.read_text(encoding="utf-8")
    said = shell.json("propensities", work / "two.parquet", "--reference-rank", 2)
    assert said["reference_rank"] == 2
    assert [row["rank"] for row in said["ranks"]] == [1, 2, 3]
    assert said["ranks"][2]["examination"] == pytest.approx(found.estimate[2] / found.estimate[1])
    assert said["warnings"] == []


def test_marked_swaps(shell: Shell, work: Path) -> None:
    said = shell.json(
        "propensities", work / "swaps.parquet", "--method", "swaps", "--swapped", "swap", "--level", 0.999
    )
    for row, truth in zip(said["ranks"], EXAMINATION, strict=True):
        assert row["low"] <= truth <= row["high"]


def test_one_ranker_warns_and_what_is_unknown_is_null(shell: Shell, work: Path, tmp_path: Path) -> None:
    code, out, err = shell.run("propensities", work / "one.parquet", "-o", tmp_path / "curve.csv", "--json")
    assert code == 0
    assert '"examination": null' in out
    assert err.startswith("clickshift: warning: harvesting: ")
    assert (tmp_path / "curve.csv").read_text().splitlines()[2].startswith("2,,")


@pytest.mark.parametrize("method", ["regression-em", "dual-learning"])
def test_features(shell: Shell, work: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clickshift.propensity._rank_model._REPEATS", 1)
    options = ("--method", method, "--corpus", work / "features.txt", "--replicates", 0)
    said = shell.json("propensities", work / "two.parquet", *options)
    assert said["method"] == method
    assert [row["examination"] for row in said["ranks"]] == pytest.approx(EXAMINATION, rel=0.15)


def test_a_click_model_by_name_and_from_its_folder(shell: Shell, work: Path, tmp_path: Path) -> None:
    """A fitted PBM says what it says; the name compares every document with itself, so that they differ a little."""
    assert call("fit", "PBM", work / "two.parquet", "-o", tmp_path / "pbm") == 0
    named = shell.json("propensities", work / "two.parquet", "--method", "PBM")
    loaded = shell.json("propensities", work / "two.parquet", "--method", tmp_path / "pbm")
    model = load_model(tmp_path / "pbm")
    assert isinstance(model, PBM)
    assert [row["examination"] for row in loaded["ranks"]] == model.examination.tolist()
    for row, other, truth in zip(named["ranks"], loaded["ranks"], EXAMINATION, strict=True):
        assert row["examination"] == pytest.approx(other["examination"], rel=0.1)
        assert row["examination"] == pytest.approx(truth, rel=0.1)
    assert named["ranks"][1]["low"] < named["ranks"][1]["examination"] < named["ranks"][1]["high"]


def test_one_line_for_what_cannot_be_done(shell: Shell, work: Path, tmp_path: Path) -> None:
    log = work / "two.parquet"
    for options, facts in (
        (("--method", "magic"), ("'magic'",)),
        (("--method", "regression-em"), ("regression-em", "corpus")),
        (("--swapped", "swap"), ("swapped", "harvesting")),
        (("--method", "swaps", "--swapped", "nothing"), ("nothing", "--swapped", "query, docs, clicks, swap, word")),
        (("--method", "swaps", "--swapped", "word"), ("--swapped", "column word")),
        (("--method", "swaps", "--swapped", "query"), ("row 9 has rank 4 of a list of 3",)),
        (("--reference-rank", 4), ("got rank 4",)),
        (("--level", 2), ("between 0 and 1", "got 2")),
        (("-o", tmp_path / "curve.txt"), ("curve.txt", ".json")),
        (("--report", tmp_path / "curve.pdf"), ("curve.pdf", ".html")),
        (("--plot", tmp_path / "curve.pdf"), ("curve.pdf", ".html")),
    ):
        said = shell.error("propensities", log, *options)
        for fact in facts:
            assert fact in said, options
    assert not list(tmp_path.iterdir()), "nothing half-written"


def test_the_function_returns_what_the_command_prints(shell: Shell, work: Path, tmp_path: Path) -> None:
    two, swaps = work / "two.parquet", work / "swaps.parquet"
    options = ("--reference-rank", 2, "--replicates", 20, "--seed", 3)
    wanted = cs.propensities(two, reference_rank=1, replicates=20, seed=3)
    assert shell.json("propensities", two, *options) == wanted.to_dict()
    assert "conclusion" in wanted.to_dict()
    marked = shell.json("propensities", swaps, "--method", "swaps", "--swapped", "swap")
    assert marked == cs.propensities(swaps, "swaps", swapped="swap").to_dict()
    assert list(wanted.figures) == ["examination"]
    assert wanted.write(tmp_path / "page.html").page == tmp_path / "page.html"


@pytest.mark.parametrize("method", ["harvesting", "PBM", "DBN", "dual-learning", "swaps"])
def test_a_log_on_disk_gives_the_same_curve(
    work: Path, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clickshift.propensity._rank_model._REPEATS", 1)
    log = cs.read_log(work / ("swaps.parquet" if method == "swaps" else "two.parquet"))
    options: dict[str, Any] = {"replicates": 0, "corpus": work / "features.txt" if method == "dual-learning" else None}
    if method == "swaps":
        options["swapped"] = pq.read_table(work / "swaps.parquet")["swap"].to_numpy() - 1
    encoded = cs.encode_log(log, tmp_path / "encoded").log
    one, two = (cs.propensities(each, method, **options) for each in (log, encoded))
    np.testing.assert_allclose(one.estimate, two.estimate, rtol=1e-6)


def test_daily_counts_are_enough_for_harvesting(work: Path, tmp_path: Path) -> None:
    counts = cs.count_log(work / "two.parquet", tmp_path / "counts").counts
    wanted = cs.propensities(work / "two.parquet", replicates=0)
    for each in (counts, tmp_path / "counts"):
        np.testing.assert_allclose(cs.propensities(each, replicates=0).estimate, wanted.estimate)
