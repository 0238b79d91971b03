"""Runs survive anything: killed, interrupted, doubled, with tasks that fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickshift.core.progress import Progress, silent
from clickshift.display.tables import read_rows, write_rows
from clickshift.errors import FileError
from clickshift.experiments.models import Contender
from clickshift.experiments.runner import FinishedTask, RunFolder, ThisProcess, digest, process_pool, run_tasks
from tests.codes import raises_code


@dataclass(frozen=True)
class Square:
    """A task that notes each time it is done, waits, and may fail."""

    number: int
    notes: str
    seconds: float = 0.0

    @property
    def name(self) -> str:
        return str(self.number)

    def rows(self) -> list[dict[str, Any]]:
        with Path(self.notes).open("a") as file:
            file.write(f"{self.number}\n")
        time.sleep(self.seconds)
        if self.number < 0:
            raise ArithmeticError("no root")
        return [{"number": self.number, "square": self.number**2}, {"number": self.number, "note": "é<b>"}]


def tasks(folder: Path, n: int, seconds: float = 0.0) -> list[Square]:
    return [Square(k, str(folder / "notes"), seconds) for k in range(n)]


def done_by_whom(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "notes").read_text().split()]


@dataclass(frozen=True)
class Costly:
    """A task that holds some megabytes for a while, and is busy and idle for a tenth of a second each."""

    megabytes: int
    name: str = "costly"

    def rows(self) -> list[dict[str, Any]]:
        held = np.ones(self.megabytes << 17)
        busy = time.process_time()
        while time.process_time() - busy < 0.1:
            held.sum()
        time.sleep(0.1)
        return [{"sum": 1.0}]


def test_rows_say_what_their_task_cost(tmp_path: Path) -> None:
    """A task that follows one with more memory does not inherit its peak."""
    folder, small, large = RunFolder(tmp_path), Costly(10), Costly(200)
    for task in (Costly(1), large, small):  # the first one loads what writes rows
        run_tasks([task], folder, ThisProcess())
    (low,), (high,) = folder.rows([small]), folder.rows([large])
    assert 0.1 <= low["task_cpu_seconds"] <= low["task_seconds"] - 0.09
    if Path("/proc/self/clear_refs").exists():
        assert 150 < high["task_megabytes"] - low["task_megabytes"] < 250


@dataclass(frozen=True)
class Long:
    """A task that reports its state, and goes on once that was read."""

    number: int
    notes: str

    @property
    def name(self) -> str:
        return f"long {self.number}"

    def rows(self, progress: Progress = silent) -> list[dict[str, Any]]:
        progress(1, total=3)
        progress("round 1: é")
        seen = Path(self.notes, f"{self.number}")
        for _ in range(100):
            if seen.exists():
                break
            time.sleep(0.1)
        progress("round 2")
        return [{"number": self.number}]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_running_task_reports_its_state(tmp_path: Path, workers: int) -> None:
    folder, wanted, states = RunFolder(tmp_path / "run"), [Long(k, str(tmp_path)) for k in range(2)], []

    def state(task: Any, text: str) -> None:
        states.append((task.number, text))
        (tmp_path / str(task.number)).touch()

    with process_pool(workers) if workers else ThisProcess() as executor:
        run_tasks(wanted, folder, executor, state=state)
    assert [text for text in states if text[1] == "round 1: é"] == [(0, "round 1: é"), (1, "round 1: é")]
    assert sorted(path.suffix for path in (tmp_path / "run" / "cells").iterdir()) == [".parquet"] * 2


def test_states_are_texts_of_limited_length_and_may_be_damaged(tmp_path: Path) -> None:
    folder, task = RunFolder(tmp_path), Long(0, "")
    assert folder.read_state(task) == ""
    folder.write_state(task, "lost")
    assert folder.read_state(task) == "", "nothing is written where no task runs"
    with folder.claim(task):
        folder.write_state(task, "x" * 10_000)
        assert len(folder.read_state(task)) == 200
        next(tmp_path.glob("cells/.*.state")).write_bytes(b"\xff\xfe" * 10_000)
        assert len(folder.read_state(task)) <= 800
    assert folder.read_state(task) == ""


def test_rows_come_back_without_the_keys_they_did_not_have(tmp_path: Path) -> None:
    rows = [{"a": 1, "b": "x"}, {"a": 2, "c": 0.5}]
    write_rows(rows, tmp_path / "rows.parquet")
    assert read_rows(tmp_path / "rows.parquet") == rows
    (tmp_path / "bad.parquet").write_text("no rows")
    with raises_code("damaged-file", FileError, path=tmp_path / "bad.parquet"):
        read_rows(tmp_path / "bad.parquet")


def test_any_setting_changes_the_name_of_a_task() -> None:
    assert digest(Square(1, "a")) == digest(Square(1, "a", 0.0))
    assert (
        len({digest(Square(1, "a")), digest(Square(2, "a")), digest(Square(1, "b")), digest(Square(1, "a", 1.0))}) == 4
    )


def test_only_missing_tasks_run_and_a_failure_costs_nothing_else(tmp_path: Path) -> None:
    folder, wanted = RunFolder(tmp_path / "run"), tasks(tmp_path, 4)
    news: list[FinishedTask] = []
    with ThreadPoolExecutor(2) as pool:
        run_tasks(wanted[:2], folder, pool)
        run_tasks([*wanted, Square(-1, str(tmp_path / "notes"))], folder, pool, progress=news.append)
    assert sorted(done_by_whom(tmp_path)) == [-1, 0, 1, 2, 3]
    assert {one.task.number: one.error for one in news} == {2: None, 3: None, -1: "ArithmeticError: no root"}
    assert [row["square"] for row in folder.rows(wanted) if "square" in row] == [0, 1, 4, 9]
    assert not folder.has(Square(-1, str(tmp_path / "notes")))


def test_two_runs_in_one_folder_share_the_work(tmp_path: Path) -> None:
    folder, wanted = RunFolder(tmp_path / "run"), tasks(tmp_path, 12, 0.05)
    with ThreadPoolExecutor(2) as both, ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        for future in [both.submit(run_tasks, wanted, folder, pool) for pool in (one, other)]:
            future.result()
    assert sorted(done_by_whom(tmp_path)) == list(range(12)), "no task was done twice"
    assert len(folder.rows(wanted)) == 24


def test_a_process_per_core(tmp_path: Path) -> None:
    folder, wanted = RunFolder(tmp_path / "run"), tasks(tmp_path, 3)
    with process_pool() as pool:
        cores = pool.submit(os.sched_getaffinity, 0).result()
        run_tasks(wanted, folder, pool)
    assert len(cores) == 1
    assert len(folder.rows(wanted)) == 6


def test_without_workers_tasks_run_in_this_process(tmp_path: Path) -> None:
    folder, wanted = RunFolder(tmp_path / "run"), tasks(tmp_path, 2)
    with ThisProcess() as executor:
        pid = executor.submit(os.getpid).result()
        assert isinstance(executor.submit(int, "no number").exception(), ValueError)
        run_tasks(wanted, folder, executor)
    assert pid == os.getpid()
    assert len(folder.rows(wanted)) == 4


OWN = """
from dataclasses import dataclass
from clickshift.models.arm import ARM

@dataclass(frozen=True, eq=False)
class Mine(ARM):
    "One's own."
"""


def test_a_candidates_module_is_imported_in_worker_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker looks for it where the parent does, which has not imported it here: the worker alone can have."""
    (tmp_path / "model_for_workers.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    own = Contender("Mine", "Gradient('Mine')", "candidate", module="model_for_workers:Mine")
    with process_pool(1) as pool:
        learner = pool.submit(own.make).result()
    assert repr(learner).startswith("Gradient(model='Mine'")
    assert "model_for_workers" not in sys.modules


KILLED = """
import sys
sys.path.insert(0, {root!r})
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tests.experiments.test_runner import RunFolder, run_tasks, tasks
run_tasks(tasks(Path({folder!r}), 6, 0.3), RunFolder(Path({folder!r}) / "run"), ThreadPoolExecutor(1))
"""


def test_after_a_kill_only_what_is_missing_runs_and_the_result_is_the_same(tmp_path: Path) -> None:
    wanted = tasks(tmp_path, 6, 0.3)
    folder = RunFolder(tmp_path / "run")
    code = KILLED.format(root=str(Path(__file__).parents[2]), folder=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", code])
    while not folder.has(wanted[1]):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = {task.number for task in wanted if folder.has(task)}
    assert {0, 1} <= before < set(range(6))
    (tmp_path / "notes").write_text("")
    with ThreadPoolExecutor(2) as pool:
        run_tasks(wanted, folder, pool)
    assert set(done_by_whom(tmp_path)) == set(range(6)) - before
    assert [row["square"] for row in folder.rows(wanted) if "square" in row] == [k * k for k in range(6)]
    assert not [
        file for file in (tmp_path / "run" / "cells").iterdir() if file.suffix != ".parquet" and "lock" not in file.name
    ]


ORPHANED = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.experiments.test_runner import Endless, RunFolder, process_pool, run_tasks
if __name__ == "__main__":
    run_tasks([Endless(0, {folder!r} + "/notes")], RunFolder(Path({folder!r}) / "run"), process_pool(1))
"""


class Endless(Square):
    """A task that notes its process and never ends."""

    def rows(self) -> list[dict[str, Any]]:
        Path(self.notes).write_text(str(os.getpid()))
        time.sleep(600)
        return []


def test_processes_do_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    script, notes = tmp_path / "orphaned.py", tmp_path / "notes"
    script.write_text(ORPHANED.format(root=str(Path(__file__).parents[2]), folder=str(tmp_path)))
    process = subprocess.Popen([sys.executable, str(script)])
    while not (notes.exists() and notes.read_text()):
        assert process.poll() is None
        time.sleep(0.02)
    worker = int(notes.read_text())
    process.kill()
    process.wait()
    for _ in range(500):
        if not Path(f"/proc/{worker}").exists() or "State:\tZ" in Path(f"/proc/{worker}/status").read_text():
            return
        time.sleep(0.02)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the process lives on")


def test_settings_of_a_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with raises_code("not-a-run", FileError, path=folder.path):
        folder.read_settings()
    folder.write_settings({"protocol": "é"})
    assert folder.read_settings() == {"protocol": "é"}
    (folder.path / "run.json").write_text("{")
    with raises_code("damaged-file", FileError, path=folder.path / "run.json"):
        folder.read_settings()
