"""The command line in this process, as a shell would call it, and small files to call it on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clickshift.cli import main


class Shell:
    """Runs commands and looks at what they say."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def run(self, *arguments: object) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        self._capsys.readouterr()
        code = call(*arguments)
        return code, *self._capsys.readouterr()

    def text(self, *arguments: object) -> str:
        """What a command that works says."""
        code, out, err = self.run(*arguments)
        assert code == 0, err
        return out

    def json(self, *arguments: object) -> Any:
        """The one JSON object that --json prints, and nothing else."""
        return json.loads(self.text(*arguments, "--json"), parse_constant=pytest.fail)

    def error(self, *arguments: object) -> str:
        """The one line that a command says when it cannot do what it is asked."""
        code, out, err = self.run(*arguments)
        assert code not in {0, 1}, "1 is Python's own: an exception that nobody expected"
        assert out == ""
        assert err.startswith("clickshift: ")
        assert err.count("\n") == 1
        assert err.endswith("\n")
        return err


def call(*arguments: object) -> int:
    """Run a command; its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    assert isinstance(stop.value.code, int)
    return stop.value.code


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
