"""Fixtures of the command-line tests: the shell, a small log, models fitted on it, a real log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Shell, call, cells_here


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.delenv("COLUMNS", raising=False)
    return Shell(capsys)


@pytest.fixture(autouse=True, scope="module")
def quick_runs() -> Iterator[None]:
    """Cells run in this process; `tests/test_runs.py` and a page of `tests/test_docs.py` run them in processes."""
    with pytest.MonkeyPatch.context() as patch:
        cells_here(patch)
        yield


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


@pytest.fixture(scope="session")
def yandex(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample of the Yandex relevance prediction log as a table."""
    log, raw = tmp_path_factory.mktemp("yandex") / "log.parquet", shared_data / "yandex_wscd" / "trainSample.gz"
    assert call("log", "convert", raw, "--format", "yandex-sample", "-o", log) == 0
    return log
