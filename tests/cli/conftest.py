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
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        code = stop.value.code
        assert isinstance(code, int)
        return code, *self._capsys.readouterr()

    def text(self, *arguments: object) -> str:
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
        assert "Traceback" not in err
        return err


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.delenv("COLUMNS", raising=False)
    return Shell(capsys)


def call(*arguments: object) -> None:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    assert stop.value.code == 0


@pytest.fixture(scope="session")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of two thousand sessions, twelve queries, integer ids."""
    path = tmp_path_factory.mktemp("log") / "clicks.parquet"
    call("simulate", "-o", path, "--sessions", 2000, "--queries", 12, "--ranks", 5, "--seed", 3)
    return path


@pytest.fixture(scope="session")
def fitted(clicks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models fitted on it: PBM, DBN, rCTR, TopPop."""
    folder = tmp_path_factory.mktemp("models")
    for model in ("PBM", "DBN", "rCTR", "TopPop"):
        call("fit", model, clicks, "-o", folder / model)
    return folder
