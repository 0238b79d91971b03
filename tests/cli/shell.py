"""The command line in this process, as a shell would call it, and small files to call it on."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import typer.main

from clickshift.cli import app, main
from clickshift.display import export
from clickshift.display._chrome import RenderedFigure
from clickshift.experiments import runner


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


class Here(ThreadPoolExecutor):
    """One cell after the other in this process, which has imported and compiled all that it needs.

    Tasks are pickled and read back, as on their way to another process.
    """

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        work, arguments, options = pickle.loads(pickle.dumps((work, arguments, options)))
        return super().submit(work, *arguments, **options)


def cells_here(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(runner, "process_pool", lambda workers: Here(1))


def pictures_without_a_browser(patch: pytest.MonkeyPatch) -> None:
    """The name of a chart in place of its picture: starting a browser takes longer than most commands."""

    def draw(figures: Mapping[str, Any]) -> dict[str, RenderedFigure]:
        return {name: RenderedFigure(name.encode(), name.encode()) for name in figures}

    patch.setattr(export, "draw", draw)


def commands(group: Any = None, names: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command of the app, hidden ones too: the words that call it, and what typer made of it."""
    group = typer.main.get_command(app) if group is None else group
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*names, name))
        else:
            yield " ".join((*names, name)), command
