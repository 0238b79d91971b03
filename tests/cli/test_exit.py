"""How commands end: exit codes, interrupts, what is printed, and what is left on the disk."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clickshift.core import files, interrupts, leftovers
from clickshift.core.files import write_atomically
from clickshift.core.leftovers import temporary_name
from clickshift.errors import DataError
from clickshift.learners.counting import Counting
from tests.cli.shell import Shell


def run_python(code: str, *, stop: Callable[[subprocess.Popen[str]], None]) -> tuple[int, str, float]:
    """Run code that prints "ready", stop it then; exit code, standard error, and the seconds until the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "ready\n", process.communicate()[1]
    start = time.monotonic()
    stop(process)
    _, err = process.communicate(timeout=30)
    return process.returncode, err, time.monotonic() - start


COMMAND = """
import sys, time
from pathlib import Path
from unittest.mock import patch
from clickshift.cli import main, models
from clickshift.core.files import write_atomically
from clickshift.core.interrupts import temporary_folder
from clickshift.learners.counting import Counting

def fit(*arguments, **options):
    with write_atomically({folder!r} + "/out.txt") as temporary, temporary_folder("clickshift-test-") as folder:
        temporary.write_text("half")
        Path({folder!r}, "temporary").write_text(str(folder))
        print("ready", flush=True)
        {wait}

sys.argv = ["clickshift", "fit", "rCTR", {log!r}, "-o", {folder!r} + "/model"]
with patch.object(Counting, "fit", fit):
    main()
"""
PYTHON = "while True: time.sleep(0.01)"
COMPILED = "import hashlib; hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)"
"""Compiled code that does not return to the interpreter for minutes, and releases its lock, as kernels and JAX do."""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("wait", [PYTHON, COMPILED])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_command_within_seconds_and_leaves_nothing(
    number: int, code: int, wait: str, clicks: Path, tmp_path: Path
) -> None:
    program = COMMAND.format(folder=str(tmp_path), log=str(clicks), wait=wait)
    found, err, seconds = run_python(program, stop=lambda process: process.send_signal(number))
    assert found == code
    assert err.splitlines()[-1].startswith("clickshift: interrupted")
    assert "Traceback" not in err
    assert seconds < 4, "2 seconds on a machine that is not busy"
    temporary = Path((tmp_path / "temporary").read_text())
    assert temporary.name.startswith("clickshift-test-")
    assert not temporary.exists()
    assert [file.name for file in tmp_path.iterdir()] == ["temporary"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_second_interrupt_ends_a_command_at_once(clicks: Path, tmp_path: Path) -> None:
    wait = "sys.modules['jax'] = sys; " + COMPILED  # several seconds of patience
    program = COMMAND.format(folder=str(tmp_path), log=str(clicks), wait=wait)

    def twice(process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)

    code, err, seconds = run_python(program, stop=twice)
    assert code == 130
    assert seconds < 3
    assert err.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["temporary"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_an_interrupt_does_not_wait_for_compiled_code() -> None:
    release = threading.Event()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a worker of a test run ignores it

    def interrupt() -> None:
        time.sleep(0.2)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    start = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupts.wait_interruptibly(lambda: release.wait(20))
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - start < 5
    release.set()


def test_what_a_killed_process_left_is_removed_by_the_next_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "_swept", set())
    code = f"""
import os
from clickshift.core.files import write_atomically
with write_atomically({str(tmp_path / "out.csv")!r}) as temporary:
    temporary.write_text("half")
    os._exit(9)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".out.")
    running = temporary_name(tmp_path / "out.csv")
    running.write_text("of a process that runs")
    with write_atomically(tmp_path / "out.csv") as temporary:
        temporary.write_text("whole")
    assert {file.name for file in tmp_path.iterdir()} == {"out.csv", running.name}


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (DataError("a rule."), 2, "a rule."),
        (MemoryError(), 3, "out of memory"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "model"), 3, "model"),
        (OSError(errno.EACCES, os.strerror(errno.EACCES), "model"), 2, "model"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes"), 3, "out of memory"),
        (RuntimeError("can't start new thread"), 3, "out of memory"),
        (RuntimeError(f"I/O error: {os.strerror(errno.ENOSPC)} (os error 28)"), 3, "disk"),
        (ZeroDivisionError("division by\x1b[2J zero"), 70, "internal error (ZeroDivisionError: division by"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_an_error_is_one_line_with_its_exit_code(
    error: BaseException, code: int, said: str, shell: Shell, clicks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(Counting, "fit", fail)
    found, out, err = shell.run("fit", "rCTR", clicks, "-o", "model")
    assert (found, out) == (code, "")
    assert err.count("\n") == 1
    assert err.startswith("clickshift: ")
    assert said in err
    assert "\x1b" not in err


def test_a_full_disk_is_a_lack_of_resources(
    shell: Shell, clicks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    code, _, err = shell.run("log", "split", clicks, "--train", tmp_path / "a.csv", "--test", tmp_path / "b.csv")
    assert code == 3
    assert os.strerror(errno.ENOSPC) in err
    assert list(tmp_path.iterdir()) == []


def test_a_failed_gate_has_its_own_exit_code(shell: Shell, tmp_path: Path) -> None:
    """Two days with other rankings, and two equal days."""
    days = {"first": (["a", "b"], [1, 0]), "second": (["b", "a"], [0, 1])}
    for name, (docs, click) in days.items():
        rows = [json.dumps({"query": f"q{k % 20}", "docs": docs, "clicks": click}) for k in range(2000)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    first, second = (tmp_path / f"{name}.jsonl" for name in days)
    code, out, _ = shell.run("log", "drift", first, second, "--fail-on-change")
    assert code == 1
    assert "should not be trusted" in out
    assert shell.run("log", "drift", first, second)[0] == 0
    assert shell.run("log", "drift", first, first, "--fail-on-change")[0] == 0


def test_quiet_prints_results_and_errors_only(shell: Shell, tmp_path: Path) -> None:
    """A log on which PBM cannot be identified: a warning."""
    log = tmp_path / "log.jsonl"
    log.write_text('{"query": "q", "docs": ["a", "b"], "clicks": [1, 0]}\n' * 20)
    _, loud, warning = shell.run("fit", "PBM", log, "-o", tmp_path / "model")
    assert warning.startswith("clickshift: warning: ")
    code, out, err = shell.run("--quiet", "fit", "PBM", log, "-o", tmp_path / "model")
    time = re.compile(r"\d\d:\d\d:\d\d")  # when it was fitted
    assert (code, time.sub("", out), err) == (0, time.sub("", loud), "")
    assert shell.run("--quiet", "fit", "XYZ", log, "-o", tmp_path / "model")[2].startswith("clickshift: ")


def test_verbose_prints_log_lines_with_times(shell: Shell, clicks: Path, tmp_path: Path) -> None:
    _, _, err = shell.run("--verbose", "fit", "rCTR", clicks, "-o", tmp_path / "model")
    lines = [line for line in err.splitlines() if " DEBUG clickshift" in line]
    assert lines
    assert all(line[:4].isdigit() and line[10] == "T" for line in lines)
    assert any(str(clicks) in line for line in lines), "files that are read"
    assert any(str(tmp_path) in line for line in lines), "files that are written"
    assert shell.run("fit", "rCTR", clicks, "-o", tmp_path / "model")[2] == ""
    assert not logging.getLogger("clickshift").handlers
    assert "exclude" in shell.error("--quiet", "--verbose", "models")


def test_verbose_prints_the_traceback_of_an_internal_error(
    shell: Shell, clicks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Counting, "fit", fail)
    code, _, err = shell.run("--verbose", "fit", "rCTR", clicks, "-o", "model")
    assert code == 70
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("clickshift: internal error (ZeroDivisionError)")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
@pytest.mark.parametrize("command", ["models", "--help", "log info LOG --json"])
def test_a_reader_that_ends_first_is_no_error(command: str, clicks: Path) -> None:
    """As in `clickshift models | head -1`."""
    words = [str(clicks) if word == "LOG" else word for word in command.split()]
    program = f"import sys; from clickshift.cli import main; sys.argv[1:] = {words!r}; main()"
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run([sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
def test_a_pipe_that_breaks_elsewhere_is_told(shell: Shell, clicks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(*arguments: object, **options: object) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    monkeypatch.setattr(Counting, "fit", fit)
    assert os.strerror(errno.EPIPE) in shell.error("fit", "rCTR", clicks, "-o", "model")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of Linux")
def test_a_limit_of_memory_ends_a_command_with_3(clicks: Path) -> None:
    program = (
        "import resource, clickshift.counts.log_summary, pyarrow.parquet, numba;"
        "from clickshift.cli import main;"
        "size = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize() + (8 << 20);"
        "resource.setrlimit(resource.RLIMIT_AS, (size, size));"
        f"main(['log', 'info', {str(clicks)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("clickshift: out of memory")
    assert done.stdout == ""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of Linux")
@pytest.mark.parametrize("megabytes", [400, 1000, 1700])
def test_a_limit_in_which_libraries_would_abort_or_hang_is_refused_at_once(megabytes: int, clicks: Path) -> None:
    program = (
        "import resource, sys; from clickshift.cli import main;"
        f"resource.setrlimit(resource.RLIMIT_AS, ({megabytes} << 20, {megabytes} << 20));"
        f"sys.argv[1:] = ['fit', 'PBM', {str(clicks)!r}, '-o', 'model']; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("clickshift: out of memory")
    assert f"{megabytes:,} MB" in done.stderr
    assert done.stderr.count("\n") == 1


PARQUET = {
    "log": ("simulate", "--sessions", 20_000, "--queries", 40, "-o", "out.parquet"),
    "table": ("predict", "model", "log.parquet", "-o", "out.parquet"),
    "rows": ("log", "info", "log.parquet", "-o", "out"),
}
"""Commands that write Parquet by each of the three writers."""


@pytest.fixture
def old_output(clicks: Path, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a log, a model, and outputs of before that no command wrote."""
    (tmp_path / "log.parquet").write_bytes(clicks.read_bytes())
    monkeypatch.chdir(tmp_path)
    shell.text("fit", "rCTR", "log.parquet", "-o", "model")
    (tmp_path / "out").mkdir()
    for name in ("out.parquet", "out/rows.parquet"):
        (tmp_path / name).write_text("old")
    return tmp_path


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("kind", PARQUET)
def test_a_disk_that_is_full_inside_pyarrow_leaves_the_old_file(
    kind: str, shell: Shell, old_output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def full(path: Path) -> Path:
        temporary = temporary_name(path)
        if path.suffix == ".parquet":  # pyarrow opens and writes the file itself
            temporary.symlink_to("/dev/full")
            written.append(path.name)
        return temporary

    monkeypatch.setattr(files, "temporary_name", full)
    code, out, err = shell.run(*PARQUET[kind])
    assert (code, out) == (3, "")
    assert err.splitlines()[-1].startswith("clickshift: ")
    assert os.strerror(errno.ENOSPC) in err
    assert len(written) == 1
    assert (old_output / "out.parquet").read_text() == (old_output / "out" / "rows.parquet").read_text() == "old"
    assert not list(old_output.rglob(".*"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of Linux")
def test_a_limit_of_file_sizes_is_a_full_disk(old_output: Path) -> None:
    program = (
        "import resource; from clickshift.cli import main;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000));"
        f"main({[str(word) for word in PARQUET['log']]!r})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert os.strerror(errno.EFBIG) in done.stderr
    assert (old_output / "out.parquet").read_text() == "old"
    assert not list(old_output.rglob(".*"))
