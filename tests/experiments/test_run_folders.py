"""Run folders from another hand: nothing is imported, damaged rows are found and computed again."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import clickshift as cs
from clickshift.core.spec import key
from clickshift.errors import FileError, SpecError
from clickshift.experiments import runner
from clickshift.experiments.experiment import open_run, read_run, run_status, start_run
from clickshift.experiments.log_files import LogFile
from clickshift.experiments.models import Contender
from clickshift.experiments.real_logs import RealLogs
from clickshift.experiments.runner import RunFolder
from clickshift.simulation.search_engine import World
from tests.cli.shell import call, cells_here
from tests.codes import raises_code, warns_code
from tests.rows import without_costs

SMALL = cs.PolicyShift(
    users=(("DBN", "DBN"),),
    training=(("random", "Uniform"),),
    contenders=tuple(Contender(name, name, "baseline") for name in ("gCTR", "rCTR", "dCTR")),
    world=World(testing=(("random", "Uniform"),), queries=10, sessions=200, test_sessions=20),
    seeds=1,
    derived=None,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "out"
    with pytest.MonkeyPatch.context() as patch:
        cells_here(patch)
        SMALL.run(folder)
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cells_here(monkeypatch)
    return shutil.copytree(finished, tmp_path / "run")


@pytest.mark.parametrize("where", ["modules", "contender"])
@pytest.mark.parametrize("command", ["shift status", "shift report", "selection status", "selection report"])
def test_no_module_is_imported_because_a_run_names_it(
    where: str, command: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "marker_module.py").write_text("open('imported', 'w').close()\nclass X: pass\n")
    monkeypatch.chdir(tmp_path)
    settings = json.loads((run / "run.json").read_text())
    if where == "modules":
        settings["modules"] = ["marker_module:X"]
    else:
        settings["protocol"] = settings["protocol"].replace("content=''", "module='marker_module:X'")
    (run / "run.json").write_text(json.dumps(settings))
    assert call(*command.split(), "-o", run) == 0
    assert not (tmp_path / "imported").exists()
    assert "marker_module" not in sys.modules


def test_a_run_with_a_candidate_is_reported_where_its_module_is_not_found(run: Path) -> None:
    protocol = key(SMALL).replace("learner='gCTR'", "learner=\"Gradient('Nowhere')\"")
    (run / "run.json").write_text(json.dumps({"protocol": protocol, "modules": ["no.where:Nowhere"]}))
    status = run_status(run)
    assert [row["done"] for row in status.rows()] == [False, True, True]
    assert {row["model"] for row in read_run(run).rows()} == {"rCTR", "dCTR"}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", "3", '"x"', "[" * 100_000, '{"protocol": []}', '{"protocol": null}', "\ud800"]
)
def test_settings_that_are_no_settings_are_one_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(text.encode(errors="surrogatepass"))
    for function in (run_status, read_run):
        with raises_code("damaged-file", FileError, path=tmp_path / "run.json"):
            function(tmp_path)
    assert call("shift", "status", "-o", tmp_path) == 2


@pytest.mark.parametrize(
    "protocol",
    [
        "5",
        "World",
        "Contender('a', 'b')",
        "PolicyShift(contenders=5)",
        "PolicyShift(contenders=('PBM',))",
        "PolicyShift(world=5)",
        "PolicyShift(users=(('a', 5),))",
        "ModelSelection(seeds='x')",
        "RealLogs((5,))",
        "ModelSelection(seeds=1000000000)",
        "PointwiseChecks(seeds=1000000000)",
        "Pointwise(seeds=1000000000)",
        f"PolicyShift(users={(('a', 'DBN'),) * 1000}, training={(('b', 'Uniform'),) * 1000})",
        "(" * 1000,
    ],
)
def test_a_protocol_that_is_none_is_one_error_at_once(protocol: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"protocol": protocol}))
    start = time.process_time()
    with raises_code("other-version", FileError, path=tmp_path):
        open_run(tmp_path)
    assert time.process_time() - start < 2


def test_settings_of_more_than_four_megabytes_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"protocol": key(SMALL), "more": "x" * (1 << 22)}))
    with raises_code("damaged-file", FileError, path=tmp_path / "run.json"):
        open_run(tmp_path)


def test_a_run_that_could_not_be_listed_is_not_started(tmp_path: Path) -> None:
    with raises_code("too-many-tasks", SpecError, limit=200_000, value=600_000):
        replace(SMALL, seeds=100_000).run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_report_is_replaced_by_its_own_kind_only(run: Path, tmp_path: Path) -> None:
    SMALL.run(run, workers=0)
    replace(SMALL, seeds=2).run(run, workers=0)
    written = (run / "run.json").read_bytes()
    other = RealLogs((LogFile("log", "nowhere.csv", "table"),), (), contenders=SMALL.contenders)
    for start in (
        lambda: cs.reproduce("table3", run),
        lambda: cs.reproduce("table1", run),  # as printed, without a run
        lambda: SMALL.run(run, table="figure1"),
        lambda: other.run(run),
    ):
        with raises_code("other-report", FileError, path=run, found="shift run"):
            start()
    assert (run / "run.json").read_bytes() == written
    assert call("reproduce", "ope-figure1", "-o", run) == 2


def test_tables_of_one_run_share_its_folder_and_others_do_not(tmp_path: Path) -> None:
    folder = tmp_path / "cmip"
    start_run(SMALL, RunFolder(folder), table="cmip-counts")
    start_run(SMALL, RunFolder(folder), table="cmip")  # nothing was finished
    (folder / "report.html").write_text("tables 1 and 2")
    start_run(SMALL, RunFolder(folder), table="cmip")
    with raises_code("other-report", FileError, path=folder, found="cmip"):
        start_run(SMALL, RunFolder(folder), table="cmip-counts")
    with raises_code("other-report", FileError, found="cmip"):
        start_run(SMALL, RunFolder(folder))


def test_a_run_of_a_version_without_names_of_tables_is_continued(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"protocol": key(SMALL)}))
    (tmp_path / "report.html").write_text("table 3")
    start_run(SMALL, RunFolder(tmp_path), table="table3")
    assert json.loads((tmp_path / "run.json").read_text())["table"] == "table3"


def test_a_run_of_a_figure_is_reported_as_that_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells_here(monkeypatch)
    made = SMALL.run(tmp_path, table="figure2")
    assert made.shows == read_run(tmp_path).shows == "figure2"
    assert SMALL.run(workers=0).shows == ""


def test_a_report_of_another_command_is_kept(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("audit")
    with raises_code("other-report", FileError, path=tmp_path, found="another command"):
        SMALL.run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def flip(path: Path) -> None:
    """Change one byte of the first column's data, which only a checksum notices."""
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    path.write_bytes(bytes(content))


def replace_by_another_task(path: Path) -> None:
    other = next(file for file in path.parent.glob("*.parquet") if file != path)
    path.write_bytes(other.read_bytes())


def replace_by_another_table(path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), path)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, flip, replace_by_another_task, replace_by_another_table, empty])
def test_damaged_rows_are_found_left_out_and_computed_again(damage: Callable[[Path], None], run: Path) -> None:
    expected = read_run(run).rows()
    file = runner.RunFolder(run).file(SMALL.tasks()[1])
    damage(file)
    status = run_status(run)
    assert (status.n_done, status.n_damaged) == (2, 1)
    assert status.to_dict()["damaged"] == 1
    assert [row["damaged"] for row in status.rows()] == [False, True, False]
    with warns_code("damaged-rows", count=1):
        assert {row["model"] for row in read_run(run).rows()} == {"gCTR", "dCTR"}
    again = SMALL.run(run).rows()
    assert run_status(run).n_done == 3
    assert repr(without_costs(expected)) == repr(without_costs(again)), "as texts, in which NaN equals NaN"


def test_rows_of_an_earlier_version_are_used(run: Path) -> None:
    file = runner.RunFolder(run).file(SMALL.tasks()[1])
    pq.write_table(pq.read_table(file).replace_schema_metadata(None), file)
    assert run_status(run).n_done == 3


def test_rows_that_cannot_be_reported_are_one_error(run: Path) -> None:
    for task in SMALL.tasks():
        runner.RunFolder(run).write(
            task, [{"kind": "clicks", "shift": "ood", "role": "click model", "model": "A", "perplexity": "x"}]
        )
    with raises_code("damaged-file", FileError, path=run):
        read_run(run)


def test_rows_of_other_types_are_one_error(run: Path) -> None:
    """As if somebody had changed a column of a task's file, but not the name of its owner."""
    path = sorted((run / "cells").iterdir())[0]
    table = pq.read_table(path)
    column = table.column_names.index("testing")
    pq.write_table(table.set_column(column, "testing", pa.array([1.5] * len(table))), path)
    with raises_code("damaged-file", FileError, path=run):
        read_run(run)
