"""Fixtures of the command-line tests: the shell, a small log, models fitted on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shell import Shell, call


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.delenv("COLUMNS", raising=False)
    return Shell(capsys)


@pytest.fixture(scope="session")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of two thousand sessions, twelve queries, integer ids."""
    path = tmp_path_factory.mktemp("log") / "clicks.parquet"
    assert call("simulate", "-o", path, "--sessions", 2000, "--queries", 12, "--ranks", 5, "--seed", 3) == 0
    return path


@pytest.fixture(scope="session")
def fitted(clicks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models fitted on it, each under its name."""
    folder = tmp_path_factory.mktemp("models")
    for model in ("PBM", "UBM", "DBN", "rCTR", "TopPop"):
        assert call("fit", model, clicks, "-o", folder / model) == 0
    return folder
