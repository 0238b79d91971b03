"""The process of a command: it says that it compiles."""

from __future__ import annotations

import numba
import pytest

from clickshift.cli import _startup


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_startup, "_own_process", False)
    _startup.prepare_process()


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
