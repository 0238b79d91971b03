"""The command line: one module per command or group of commands.

Only typer is imported before a command runs: each command imports what it needs, so that `--help` is fast.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import typer
from typer.main import get_command

import clickshift.cli.audit as audit
import clickshift.cli.compare as compare
import clickshift.cli.corpus as corpus
import clickshift.cli.log as log
import clickshift.cli.models as models
import clickshift.cli.ope as ope
import clickshift.cli.propensities as propensities
import clickshift.cli.rank as rank
import clickshift.cli.reproduce as reproduce
import clickshift.cli.selection as selection
import clickshift.cli.shift as shift
import clickshift.cli.simulate as simulate
from clickshift._version import __version__
from clickshift.cli._startup import prepare_process
from clickshift.core.text import printable

__all__ = ["app", "main"]

app = typer.Typer(
    name="clickshift",
    help="Learn from clicks on ranked lists: fit click models, test them under policy shift, evaluate new rankers "
    "off-policy, and learn to rank.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(simulate.simulate)
app.command()(models.fit)
app.command()(models.evaluate)
app.command()(compare.compare)
app.command()(audit.audit)
app.command()(models.examine)
app.command()(models.judgments)
app.command(hidden=True)(models.relevance)
app.command()(models.predict)
app.command()(propensities.propensities)
app.command()(models.models)
app.command()(reproduce.reproduce)
app.add_typer(log.app, name="log")
app.add_typer(corpus.app, name="corpus")
for name in reproduce.SHIFT_COMMANDS:
    shift.app.command(name)(reproduce.paper_command(name))
app.add_typer(shift.app, name="shift")
app.add_typer(selection.app, name="selection")
app.add_typer(ope.app, name="ope")
app.add_typer(rank.app, name="rank")


def _show_version(value: bool) -> bool:
    """Print the version and exit, if asked for."""
    if value:
        typer.echo(f"clickshift {__version__}")
        raise typer.Exit
    return value


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Learn from clicks on ranked lists."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; user errors are printed as one line, without a traceback.

    Parameters
    ----------
    arguments
        Words of the command, without the program's name; by default, those of the process.

    Raises
    ------
    SystemExit
        Always, with the exit code: 0 on success, 2 for input that cannot be used, 3 if memory does not suffice, 130
        after an interrupt.
    """
    from clickshift.cli._messages import with_options
    from clickshift.errors import ClickshiftError

    if arguments is None:
        prepare_process()
    try:
        code = _command()(arguments, prog_name="clickshift", standalone_mode=False)
    except _UsageError as error:
        _explain_usage(error)
    except ClickshiftError as error:
        _stop(with_options(str(error), _command_options(sys.argv[1:] if arguments is None else arguments)), 2)
    except MemoryError:
        _stop("out of memory. Use fewer sessions at a time.", 3)
    except OSError as error:
        _stop(f"{error.filename or ''}: {error.strerror or error}", 2)
    else:
        if code == _INTERRUPTED:
            _stop("interrupted; nothing half-written was left behind.", _INTERRUPTED)
        sys.exit(code if isinstance(code, int) else 0)


# the click base class of what typer exports: recent versions of typer include click under a name that is not public
_UsageError: Any = typer.BadParameter.__mro__[1]
_INTERRUPTED = 130
"""Exit code after an interrupt, as shells use it."""


@cache
def _command() -> Any:
    """Build the commands of the app, once in a process: typer would inspect all of them at every call."""
    return get_command(app)


def _command_options(arguments: Sequence[str]) -> dict[str, str]:
    """Map the parameters of the command that the arguments call to its options."""
    command = _command()
    for word in arguments:
        command = getattr(command, "commands", {}).get(word, command)
    command = getattr(command, "commands", {}).get("evaluate", command)  # `ope LOG` is short for `ope evaluate LOG`
    return {option.name: option.opts[0] for option in command.params if option.opts[0].startswith("--")}


def _explain_usage(error: Any) -> None:
    """Print what is wrong with the words of a command, and exit."""
    message = error.format_message().strip()
    if not message or "\n" in message:  # a group without a command shows its help
        error.show()
        sys.exit(error.exit_code)
    command = error.ctx.command_path if error.ctx is not None else "clickshift"
    end = "" if message.endswith((".", "?")) else "."
    _stop(f"{message}{end} Try '{command} --help'.", error.exit_code)


def _stop(message: str, code: int) -> None:
    """Print an error as one line and exit."""
    typer.echo(f"clickshift: {printable(message)}", err=True)
    sys.exit(code)
