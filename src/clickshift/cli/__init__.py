"""The command line: one file per command, no logic. Only typer is imported before a command runs."""

from __future__ import annotations

import sys
from typing import Any

import typer

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
from clickshift.cli._console import printable

app = typer.Typer(
    name="clickshift",
    help="Learn from clicks on ranked lists: what they say, whether that holds when the ranker changes, "
    "what a new ranker would earn, and how to learn a better one.",
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
app.command()(models.relevance)
app.command()(models.predict)
app.command()(propensities.propensities)
app.command()(models.models)
app.command()(reproduce.reproduce)
app.add_typer(log.app, name="log")
app.add_typer(corpus.app, name="corpus")
for name in reproduce.SHIFT_COMMANDS:
    shift.app.command(name)(reproduce.named(name))
app.add_typer(shift.app, name="shift")
app.add_typer(selection.app, name="selection")
app.add_typer(ope.app, name="ope")
app.add_typer(rank.app, name="rank")


def _version(value: bool) -> bool:
    if value:
        typer.echo(f"clickshift {__version__}")
        raise typer.Exit
    return value


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and stop."
    ),
) -> None:
    """Learn from clicks on ranked lists."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command; what the user can mend is said in one line, without a traceback."""
    from clickshift.errors import ClickshiftError

    try:
        code = app(arguments, prog_name="clickshift", standalone_mode=False)
    except _UsageError as error:
        _explain_usage(error)
    except ClickshiftError as error:
        _stop(str(error), 2)
    except MemoryError:
        _stop("out of memory. Use fewer sessions at a time.", 3)
    except OSError as error:
        _stop(f"{error.filename or ''}: {error.strerror or error}", 2)
    else:
        if code == _INTERRUPTED:
            _stop("interrupted; nothing half-written was left behind.", _INTERRUPTED)
        sys.exit(code if isinstance(code, int) else 0)


# click's own base of what typer exports: newer typers bring click along under a name that is not public
_UsageError: Any = typer.BadParameter.__mro__[1]
_INTERRUPTED = 130


def _explain_usage(error: Any) -> None:
    message = error.format_message().strip()
    if not message or "\n" in message:  # a group without a command shows its help
        error.show()
        sys.exit(error.exit_code)
    command = error.ctx.command_path if error.ctx is not None else "clickshift"
    end = "" if message.endswith((".", "?")) else "."
    _stop(f"{message}{end} Try '{command} --help'.", error.exit_code)


def _stop(message: str, code: int) -> None:
    typer.echo(f"clickshift: {printable(message)}", err=True)
    sys.exit(code)
