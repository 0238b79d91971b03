"""Branches of other operating systems: what macOS and Windows lack is asked for before it is used."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from pathlib import Path

import pytest

from clickshift.core import files, interrupts, leftovers, parallel
from clickshift.errors import FileError, SpecError
from clickshift.experiments.runner import RunFolder
from tests.codes import raises_code


def test_all_cores_are_used_where_the_system_does_not_tell_which(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS and Windows."""
    monkeypatch.delenv("CLICKSHIFT_THREADS", raising=False)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert parallel.available_cores() == [0, 1, 2]
    assert parallel.n_threads() == 3
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert parallel.n_threads() == 1


def test_parallel_loops_work_without_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows."""
    monkeypatch.delattr(os, "register_at_fork", raising=False)
    spec = importlib.util.spec_from_file_location("parallel_again", str(parallel.__file__))
    assert spec is not None
    assert spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    assert list(again.map_in_order(abs, [-1, -2])) == [1, 2]


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "9" * 40, "²"])
def test_a_number_of_threads_is_a_number(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLICKSHIFT_THREADS", text)
    with raises_code("bad-option", SpecError, option="CLICKSHIFT_THREADS"):
        parallel.n_threads()


def test_tasks_are_claimed_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has no fcntl: a task may be computed twice, never be left out."""
    monkeypatch.setitem(sys.modules, "fcntl", None)
    folder = RunFolder(tmp_path)
    with folder.claim("task") as first, folder.claim("task") as second:
        assert first
        assert second


def test_a_rename_waits_for_readers_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts, really = [], os.replace

    def replace(source: Path, target: Path) -> None:
        attempts.append(source)
        if len(attempts) < 3:
            raise PermissionError("in use")
        really(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with raises_code("not-writable", FileError), files.write_atomically(tmp_path / "file") as temporary:
        temporary.write_text("new")
    assert len(attempts) == 1, "elsewhere, a file that may not be replaced will not be later"
    monkeypatch.setattr(sys, "platform", "win32")
    with files.write_atomically(tmp_path / "file") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "file").read_text() == "new"
    assert len(attempts) == 3


def test_no_process_is_signalled_on_windows_to_see_whether_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("signal 0 ends a process there"))
    own = leftovers.temporary_name(tmp_path / "file")
    other = own.with_name(own.name.replace(f"-{os.getpid()}-", "-999999999-"))
    other.write_text("perhaps in use")
    with files.write_atomically(tmp_path / "file") as temporary:
        temporary.write_text("new")
    assert other.exists()


def test_signals_that_a_system_lacks_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "SIGTERM")
    assert signal.SIGINT in interrupts._stop_signals()
