"""The process of a command: it says that it compiles, and leaves out what it does not need."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from clickshift.cli import _startup


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_startup, "_own_process", False)
    _startup.prepare_process()
    gc.enable()


@pytest.mark.usefixtures("process")
def test_compiling_is_announced_once(capsys: pytest.CaptureFixture[str]) -> None:
    kernels = [numba.njit(lambda x, k=k: x + k) for k in range(2)]
    with _startup.compilation_announced():
        assert [kernel(1) for kernel in kernels] == [1, 2]
    assert capsys.readouterr().err == "clickshift: compiling kernels, once after installation…\n"
    with _startup.compilation_announced():
        assert kernels[0](2) == 2
    assert capsys.readouterr().err == "", "nothing was compiled"


def test_a_program_that_calls_commands_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with _startup.compilation_announced():
        assert numba.njit(lambda x: x + 1)(1) == 2
    assert capsys.readouterr().err == ""


def test_garbage_is_collected_once_modules_are_loaded() -> None:
    code = """
import gc
from clickshift.cli import main
from clickshift.cli._startup import modules_are_loaded
try:
    main()
except SystemExit:
    assert not gc.isenabled()
modules_are_loaded()
assert gc.isenabled() and gc.get_freeze_count() > 10_000
"""
    subprocess.run([sys.executable, "-c", code, "--version"], check=True, timeout=60)


def test_a_command_does_not_import_pandas_and_arrow_tables_still_become_frames(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(
        "session,query,doc,rank,click\n" + "".join(f"{s},q,{d},{d},{d % 2}\n" for s in (1, 2) for d in (1, 2))
    )
    code = """
import sys
from clickshift.cli import main
try:
    main()
except SystemExit as end:
    assert end.code == 0
assert "plotly" not in sys.modules and "sklearn" not in sys.modules
assert "pandas" not in sys.modules
import gc
assert gc.isenabled() and gc.get_freeze_count() > 10_000
import pyarrow as pa
frame = pa.table({"a": [1, 2]}).to_pandas()
assert pa.array(frame["a"]).to_pylist() == [1, 2]
print("done")
"""
    ran = subprocess.run([sys.executable, "-c", code, "log", "info", log], capture_output=True, text=True, timeout=60)
    assert ran.stdout.endswith("done\n"), ran.stderr
