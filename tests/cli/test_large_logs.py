"""Logs on disk, as a user calls them: encoded, looked at, fitted, evaluated, compared, and asked about a new ranker."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import clickshift as cs
from tests.cli.shell import Shell, call


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days in folders of their own, one of them encoded too, and a database with both."""
    folder = tmp_path_factory.mktemp("large")
    corpus, ranker = cs.builtin_corpus(queries=20), cs.PlackettLuce(cs.NoisyOracle(), temperature=0.05, scores="log")
    for day in (1, 2):
        place = folder / "logs" / f"day=2026-03-0{day}"
        place.mkdir(parents=True)
        cs.write_log(cs.simulate(corpus, ranker, cs.users.DBN(), 3000, ranks=5, rng=day), place / "part.parquet")
    with duckdb.connect(str(folder / "clicks.duckdb")) as connection:
        files = f"read_parquet('{folder}/logs/*/*.parquet', hive_partitioning = false)"
        connection.sql(f"CREATE TABLE sessions AS SELECT * FROM {files}")
    assert call("log", "encode", folder / "logs", "-o", folder / "encoded") == 0
    return folder


def sources(work: Path) -> list[str]:
    return [
        str(work / "logs"),
        str(work / "encoded"),
        f"{work / 'clicks.duckdb'}::sessions",
        f"{work}/logs/**/*.parquet",
    ]


def same(one: dict[str, object], other: dict[str, object]) -> None:
    assert list(one) == list(other)
    for name in one:
        if isinstance(one[name], str):
            assert one[name] == other[name]
        else:
            np.testing.assert_allclose(one[name], other[name], atol=1e-9, err_msg=name)


def test_encode_says_what_it_did(shell: Shell, work: Path, tmp_path: Path) -> None:
    said = shell.json("log", "encode", work / "logs", "-o", tmp_path / "here")
    assert (said["sessions"], said["files"], said["sessions_left_out"]) == (6000, 2, 0)
    assert said["output"] == str(tmp_path / "here")
    assert sum(file.stat().st_size for file in (tmp_path / "here").glob("[pc]*.bin")) == 6000 * (5 * 4 + 1)


def test_every_way_to_name_a_log_gives_the_same_model(shell: Shell, work: Path, tmp_path: Path) -> None:
    found = []
    for k, log in enumerate(sources(work)):
        said = shell.json("fit", "UBM", log, "-o", tmp_path / str(k))
        assert said["sessions"] == 6000
        found.append(shell.json("evaluate", tmp_path / str(k), work / "encoded"))
    for other in found[1:]:
        same(other, found[0])


def test_info_agrees(shell: Shell, work: Path) -> None:
    one, two = (shell.json("log", "info", log) for log in sources(work)[:2])
    assert one.pop("time")[0] == two.pop("time")[0].split("T")[0]
    assert one == two


def test_compare(shell: Shell, work: Path) -> None:
    models = [word for name in ("PBM", "DBN", "dCTR") for word in ("--model", name)]
    rows = shell.json("compare", work / "encoded", "--split", "time", "--fraction", "0.5", *models)["rows"]
    assert [row["error"] for row in rows] == [None] * 3
    assert {row["train_sessions"] for row in rows} == {3000}
    in_memory = shell.json("compare", work / "logs", "--split", "time", "--fraction", "0.5", *models)["rows"]
    for one, other in zip(rows, in_memory, strict=True):
        assert one["conditional_perplexity"] == pytest.approx(other["conditional_perplexity"], abs=1e-9)


def test_off_policy_estimates_read_what_the_target_ranks(shell: Shell, work: Path, tmp_path: Path) -> None:
    assert call("fit", "DBN", work / "encoded", "-o", tmp_path / "model") == 0
    assert call("judgments", tmp_path / "model", "-o", tmp_path / "labels.parquet") == 0
    labels = pq.read_table(tmp_path / "labels.parquet", columns=["query", "doc", "relevance"])
    some = labels.filter(pc.less(labels["query"], 5)).rename_columns(["query", "doc", "score"])
    pq.write_table(some, tmp_path / "target.parquet")
    # without a given curve, examination is fitted on what was read
    options = ("--target", tmp_path / "target.parquet", "--examination", "1/rank", "--reward", "clicks@2")
    options = (*options, "--replicates", "20")
    one, two = (shell.json("ope", log, *options) for log in sources(work)[:2])
    values = [{(row["estimator"], row["clip"]): row["value"] for row in found["rows"]} for found in (one, two)]
    assert values[0] == pytest.approx(values[1], abs=1e-9)
    assert any("were not read" in note for notes in two["notes"].values() for note in notes)


def test_counts_are_fitted_together(shell: Shell, work: Path, tmp_path: Path) -> None:
    for day in (1, 2):
        assert call("log", "count", work / "logs" / f"day=2026-03-0{day}", "-o", tmp_path / f"{day}.counts") == 0
    said = shell.json("fit", "DBN", tmp_path / "1.counts", tmp_path / "2.counts", "-o", tmp_path / "sum")
    assert said["sessions"] == 6000
    assert call("fit", "DBN", work / "encoded", "-o", tmp_path / "whole") == 0
    one, two = (shell.json("evaluate", tmp_path / name, work / "encoded") for name in ("sum", "whole"))
    same(one, two)


@pytest.mark.parametrize("command", [("fit", "PBM"), ("log", "info"), ("log", "encode")])
def test_bad_files_are_one_message(shell: Shell, work: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    shutil.copytree(work / "logs", tmp_path / "logs")
    (tmp_path / "logs" / "day=2026-03-02" / "other.parquet").write_bytes(b"no Parquet at all")
    output = () if command == ("log", "info") else ("-o", tmp_path / "out")
    said = shell.error(*command, tmp_path / "logs", *output)
    assert "other.parquet: " in said
    assert "Parquet" in said
    assert not (tmp_path / "out").exists()


def test_counts_and_logs_are_not_mixed(shell: Shell, work: Path, tmp_path: Path) -> None:
    assert call("log", "count", work / "logs", "-o", tmp_path / "all.counts") == 0
    said = shell.error("fit", "PBM", tmp_path / "all.counts", work / "encoded", "-o", tmp_path / "model")
    assert str(work / "encoded") in said
    assert "clickshift log count" in said
    assert not (tmp_path / "model").exists()
