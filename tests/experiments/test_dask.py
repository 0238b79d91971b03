"""A real Dask cluster, a scheduler and two workers over TCP, with workers and schedulers that are killed."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from logging.handlers import QueueHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from clickshift.cli import app, main
from clickshift.errors import FileError, RunError
from clickshift.experiments import dask as clusters
from clickshift.experiments import runner
from clickshift.experiments.dask import cluster
from clickshift.experiments.runner import FinishedTask, RunFolder, process_pool, run_tasks
from tests.codes import raises_code
from tests.rows import without_costs

Client = pytest.importorskip("distributed", reason="a cluster needs Dask: pip install 'clickshift[dask]'").Client
LONG = 60
"""Seconds after which something hangs."""


class Dask:
    """A scheduler and its workers, in folders of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.started = folder, list[subprocess.Popen[bytes]]()

    def start_scheduler(self) -> None:
        file = self.folder / "scheduler.json"
        self.scheduler = self.start("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file))
        until(lambda: file.exists() and file.read_text().endswith("}"))
        self.address = str(json.loads(file.read_text())["address"])

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        place = self.folder / f"process{len(self.started)}"
        place.mkdir()
        settings = {
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",  # a cell that kills its worker twice is given up
            "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",  # processes that wait take no time
            "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "500ms",
            "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "5s",
            "DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "forkserver",  # where Dask is imported once
            "PYTHONPATH": "",
        }
        with (place / "said").open("w") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", *arguments, "--no-dashboard"],
                env={**os.environ, **settings},
                cwd=place,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def start_workers(self, *options: str) -> subprocess.Popen[bytes]:
        return self.start("worker", self.address, "--nthreads", "1", "--host", "127.0.0.1", *options)

    def end(self) -> None:
        for process in self.started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def dask_in(folder: Path) -> Iterator[Dask]:
    dask = Dask(folder)
    try:
        dask.start_scheduler()
        yield dask
    finally:
        dask.end()


@pytest.fixture(scope="module")
def long_lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dask]:
    with dask_in(tmp_path_factory.mktemp("dask")) as dask:
        dask.start_workers("--nworkers", "2")
        yield dask


@pytest.fixture
def dask(long_lived: Dask) -> Dask:
    """A cluster with two workers, both alive: Dask starts one that was killed anew."""
    with Client(long_lived.address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=LONG)
    return long_lived


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG
    while not true():
        assert time.monotonic() < end, "it hangs"
        time.sleep(0.02)


@dataclass(frozen=True)
class Cell:
    """A task that notes who is at it."""

    number: int
    notes: str
    seconds: float = 0.0
    deadly: bool = False

    @property
    def name(self) -> str:
        return str(self.number)

    @property
    def at(self) -> Path:
        return Path(self.notes) / self.name

    def rows(self) -> list[dict[str, Any]]:
        with self.at.open("a") as file:
            file.write(f"{os.getpid()}\n")
        if self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.seconds)
        if self.number < 0:
            raise ArithmeticError("no root")
        return [{"number": self.number, "root": self.number**0.5, "folder": os.getcwd(), "cores": cores()}]


def cores() -> str:
    return str(sorted(os.sched_getaffinity(0)))


def cells(folder: Path, n: int, seconds: float = 0.0) -> list[Cell]:
    (folder / "notes").mkdir(exist_ok=True)
    return [Cell(k, str(folder / "notes"), seconds) for k in range(n)]


def pids(cell: Cell) -> list[int]:
    return list(map(int, cell.at.read_text().split())) if cell.at.exists() else []


def rows(folder: RunFolder, wanted: list[Cell]) -> list[dict[str, Any]]:
    same = {"task_seconds": 0, "task_cpu_seconds": 0, "task_megabytes": 0, "cores": ""}
    return [row | same for row in folder.rows(wanted)]


def test_the_same_rows_as_here(dask: Dask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # workers are elsewhere, and a folder's name is still the same
    wanted, there, here = cells(tmp_path, 8), RunFolder(Path("there")), RunFolder(Path("here"))
    news: list[FinishedTask] = []
    with cluster(dask.address, there.path) as executor:
        run_tasks([*wanted, Cell(-1, str(tmp_path / "notes"))], there, executor, progress=news.append)
    with process_pool(1) as pool:
        run_tasks(wanted, here, pool)
    assert len(rows(there, wanted)) == 8
    assert rows(there, wanted) == rows(here, wanted)
    assert {one.task.number: one.error for one in news} == dict.fromkeys(range(8)) | {-1: "ArithmeticError: no root"}
    at = {pid for cell in wanted for pid in pids(cell)[:1]}
    assert len(at) == 2
    assert os.getpid() not in at
    assert not [file for file in there.path.rglob(".*")], "neither the probe nor locks are left"
    dealt = {row["cores"] for row in there.rows(wanted)}
    assert len(dealt) == min(2, len(os.sched_getaffinity(0))), "each worker keeps to its own cores"


def test_a_worker_that_is_killed_costs_its_cell(dask: Dask, tmp_path: Path) -> None:
    wanted, folder = cells(tmp_path, 5, 0.8), RunFolder(tmp_path / "run")
    news: list[FinishedTask] = []

    def kill() -> int:
        until(lambda: any(map(pids, wanted[2:])))
        victim = next(pids(cell)[0] for cell in wanted[2:] if pids(cell))
        os.kill(victim, signal.SIGKILL)
        return victim

    with ThreadPoolExecutor(1) as other, cluster(dask.address, folder.path) as executor:
        victim = other.submit(kill)
        run_tasks(wanted, folder, executor, progress=news.append)
        killed = victim.result()
    assert [row["number"] for row in folder.rows(wanted)] == list(range(5))
    assert [one.error for one in news] == [None] * 5
    again = [cell for cell in wanted if len(pids(cell)) > 1]
    assert len(again) == 1, "only what it was at is done again"
    assert pids(again[0])[0] == killed


def test_a_cell_that_kills_its_workers_is_left_out(dask: Dask, tmp_path: Path) -> None:
    wanted, folder = cells(tmp_path, 4, 0.2), RunFolder(tmp_path / "run")
    deadly = Cell(99, str(tmp_path / "notes"), deadly=True)
    news: list[FinishedTask] = []
    with cluster(dask.address, folder.path) as executor:
        run_tasks([deadly, *wanted], folder, executor, progress=news.append)
    said = {one.task.number: one.error for one in news}
    assert "2 workers died" in str(said.pop(99))
    assert said == dict.fromkeys(range(4))
    assert len(pids(deadly)) == 2


def test_an_outcome_that_died_with_its_worker_is_waited_for() -> None:
    class Remote:
        """A Dask future whose outcome is lost at first, and computed again."""

        outcomes: ClassVar[list[Any]] = [TimeoutError(), TimeoutError(), 7]

        def result(self, timeout: float) -> Any:
            outcome = self.outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        def add_done_callback(self, call: Callable[[Remote], None]) -> None:
            call(self)

    client, future = SimpleNamespace(status="running"), Future[int]()
    here = clusters._Environment("", (), Path("probe"), {}, {})
    executor = clusters._DaskExecutor(client, "tcp://here", here)
    executor._settle(Remote(), future)
    assert future.result(timeout=0) == 7
    Remote.outcomes, future = [TimeoutError()], Future()
    client.status = "closed"
    executor._settle(Remote(), future)
    with pytest.raises(BrokenExecutor, match="was lost"):
        future.result(timeout=0)


def wait_briefly(patch: pytest.MonkeyPatch) -> None:
    """Wait for half a second for workers and files; to connect may take as long as for users, on a busy machine."""
    check = clusters._checked_workers

    def checked(*arguments: Any) -> Any:
        patch.setattr(clusters, "_TIMEOUT", 0.5)
        return check(*arguments)

    patch.setattr(clusters, "_checked_workers", checked)


def test_a_scheduler_that_is_lost_leaves_a_run_to_go_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, folder = cells(tmp_path, 6, 0.4), RunFolder(tmp_path / "run")
    logged: list[logging.LogRecord] = []
    for name in ("distributed", "distributed.client"):
        handlers: list[logging.Handler] = [QueueHandler(SimpleNamespace(put_nowait=logged.append))]
        monkeypatch.setattr(logging.getLogger(name), "handlers", handlers)
    with dask_in(tmp_path) as dask:
        with monkeypatch.context() as hurry:
            wait_briefly(hurry)
            with raises_code("no-workers", RunError, address=dask.address), cluster(dask.address, folder.path):
                pass
        dask.start_workers("--no-nanny")

        def kill() -> None:
            until(lambda: any(map(folder.has, wanted)))
            dask.scheduler.kill()

        with ThreadPoolExecutor(1) as other, cluster(dask.address, folder.path) as executor:
            other.submit(kill)
            with raises_code("executor-lost", RunError) as said:
                run_tasks(wanted, folder, executor)
        assert dask.address in str(said.value)
        kept = [cell for cell in wanted if folder.has(cell)]
        assert 0 < len(kept) < 6
        news: list[FinishedTask] = []
        with ThreadPoolExecutor(1) as pool:
            run_tasks(wanted, folder, pool, progress=news.append)
    assert [row["number"] for row in folder.rows(wanted)] == list(range(6))
    assert not {one.task for one in news} & set(kept)
    assert not logged, "the error is all that is said"


def test_workers_must_be_like_us(dask: Dask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(code: str, **facts: object) -> None:
        with raises_code(code, RunError, **facts), cluster(dask.address, tmp_path / "run"):
            pass

    monkeypatch.setattr(clusters, "__version__", "99.0")
    refused("version-mismatch", name="the scheduler", package="clickshift", expected="99.0")
    monkeypatch.undo()
    wait_briefly(monkeypatch)
    monkeypatch.setattr(clusters, "_probe", lambda folder: nullcontext(folder / "not shared"))
    refused("folder-not-shared", folder=tmp_path / "run")
    monkeypatch.undo()
    with_threads = dask.start("worker", dask.address, "--nthreads", "3", "--host", "127.0.0.1", "--no-nanny")
    try:
        until(lambda: "Registered to" in (dask.folder / f"process{len(dask.started) - 1}" / "said").read_text())
        refused("too-many-threads", threads=3)
    finally:
        with_threads.terminate()
        with_threads.wait()


def test_a_worker_that_comes_late_is_looked_at_too(dask: Dask, tmp_path: Path) -> None:
    with cluster(dask.address, tmp_path / "run") as executor:
        assert isinstance(executor, clusters._DaskExecutor)
        executor._environment = replace(
            executor._environment, cores={}, versions={"numpy": "0.9"}
        )  # nobody was there before
        with raises_code("executor-lost", RunError) as said:
            run_tasks(cells(tmp_path, 3), RunFolder(tmp_path / "run"), executor)
        assert re.match(r"the worker .* numpy .* 0\.9", str(said.value))


def test_cores_are_dealt_out_among_the_workers_of_a_machine() -> None:
    def worker(host: str, *cores: int) -> clusters._WorkerInfo:
        return clusters._WorkerInfo({}, host, cores, True, 1)

    three = {name: worker("one", 0, 1, 2, 3) for name in "abc"}
    assert clusters._assign_cores(three | {"d": worker("two", 0, 1)}) == {
        "a": (0, 3),
        "b": (1,),
        "c": (2,),
        "d": (0, 1),
    }
    assert clusters._assign_cores({name: worker("one", 5, 7) for name in "abc"}) == {"a": (5,), "b": (7,), "c": (5,)}


def test_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "_TIMEOUT", 0.5)
    for address in ("", "host", "tcp://host", "host:8786", "tcp://host:port", "tcp://host:99999"):
        with raises_code("bad-address", RunError, address=address), cluster(address, tmp_path):
            pass
    with raises_code("no-scheduler", RunError), cluster("tcp://127.0.0.1:1", tmp_path):
        pass
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes the call, and says nothing
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with raises_code("no-scheduler", RunError, address=address), cluster(address, tmp_path):
            pass
    with raises_code("cluster-unusable", RunError, error="ValueError"), cluster("abc://127.0.0.1:1", tmp_path):
        pass
    monkeypatch.setitem(sys.modules, "distributed", None)
    with raises_code("missing-package", RunError, package="distributed"), cluster("tcp://127.0.0.1:1", tmp_path):
        pass


def test_dask_is_quiet_from_the_start() -> None:
    """It turns its logging on when it is imported, which a fresh process has not done yet."""
    code = "import logging; from clickshift.experiments.dask import _quiet_dask\nwith _quiet_dask():\n    "
    code += "print(logging.getLogger('distributed.client').isEnabledFor(logging.ERROR))"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True).stdout == "False\n"


def test_a_lock_of_the_same_run_is_that_of_a_process_that_was_lost(tmp_path: Path) -> None:
    folder, (cell,) = RunFolder(tmp_path / "run"), cells(tmp_path, 1)
    with folder.claim(cell, run="one") as first, folder.claim(cell, run="other") as other:
        assert (first, other) == (True, False)
        with folder.claim(cell, run="one") as again:
            assert again


def test_rows_that_cannot_be_written_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(rows: object, path: Path, **named: object) -> None:
        raise FileError(path, "cannot be written (no space left on device).")

    monkeypatch.setattr(runner, "write_rows", fail)
    news: list[FinishedTask] = []
    with ThreadPoolExecutor(1) as pool:
        run_tasks(cells(tmp_path, 2), RunFolder(tmp_path / "run"), pool, progress=news.append)
    assert ["no space left" in str(one.error) for one in news] == [True, True]


def test_rows_that_nobody_sees_are_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_TIMEOUT", 0.2)
    monkeypatch.setattr(runner, "write_rows", lambda rows, path, **named: None)  # as if to a disk of its own
    news: list[FinishedTask] = []
    with ThreadPoolExecutor(1) as pool:
        run_tasks(cells(tmp_path, 1), RunFolder(tmp_path / "run"), pool, progress=news.append)
    assert f"do not appear in {tmp_path / 'run'}" in str(news[0].error)


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno
    import fcntl

    def refuse(file: object, how: int) -> None:
        raise OSError(errno.ENOTSUP, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    folder, wanted = RunFolder(tmp_path / "run"), cells(tmp_path, 2)
    with ThreadPoolExecutor(2) as pool:
        run_tasks(wanted, folder, pool)
    assert len(folder.rows(wanted)) == 2


def call(*arguments: str) -> object:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    return stop.value.code


def test_from_the_command_line(
    dask: Dask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(7)
    lines = [
        {"query": f"q{q}", "docs": rng.permutation(6).tolist(), "clicks": (rng.random(6) < 0.3).tolist()}
        for q in rng.integers(0, 5, 400)
    ]
    Path("log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ["shift", "logs", "--train", "log.jsonl", "--model", "dCTR", "--model", "rCTR", "--json"]
    assert call(*command, "-o", "there", "--cluster", dask.address) == 0
    first = json.loads(capsys.readouterr().out)["rows"]
    monkeypatch.setattr(runner, "process_pool", lambda workers: ThreadPoolExecutor(1))
    assert call(*command, "-o", "here") == 0
    second = json.loads(capsys.readouterr().out)["rows"]
    assert {row["model"] for row in first} == {"dCTR", "rCTR"}
    assert without_costs(first) == without_costs(second)
    assert call(*command, "-o", "there", "--cluster", dask.address, "--workers", "2") == 2
    told = capsys.readouterr().err
    assert "--workers" in told
    assert "--cluster" in told
    assert call(*command, "-o", "new", "--cluster", "host") == 2
    told = capsys.readouterr().err
    assert [line for line in told.splitlines() if line.startswith("clickshift: ") and "'host'" in line]


def test_every_command_that_runs_cells_takes_a_cluster() -> None:
    from typer.main import get_command

    def commands(group: Any) -> Iterator[Any]:
        for command in getattr(group, "commands", {}).values():
            yield from [command, *commands(command)]

    found = {command.name: {option.name for option in command.params} for command in commands(get_command(app))}
    assert {"logs", "reproduce", "table3"} <= {name for name, options in found.items() if "cluster" in options}
    resampled = {"ope", "decide", "evaluate"}  # whose option of this name is the unit of the bootstrap
    assert all(("workers" in found[name]) == ("cluster" in found[name]) for name in found.keys() - resampled)
