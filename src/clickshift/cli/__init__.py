"""The command line: one file per command, no logic. Only typer is imported before a command runs."""

from __future__ import annotations

import sys

import typer

import clickshift.cli.corpus as corpus
import clickshift.cli.evaluate as evaluate
import clickshift.cli.fit as fit
import clickshift.cli.log as log
import clickshift.cli.shift as shift
import clickshift.cli.simulate as simulate
from clickshift._version import __version__

app = typer.Typer(
    name="clickshift",
    help="Learn from clicks on ranked lists: what they say, whether that holds when the ranker changes, "
    "what a new ranker would earn, and how to learn a better one.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(simulate.simulate)
app.command()(fit.fit)
app.command()(evaluate.evaluate)
app.add_typer(log.app, name="log")
app.add_typer(corpus.app, name="corpus")
app.add_typer(shift.app, name="shift")


def _version(value: bool) -> None:
    if value:
        typer.echo(f"clickshift {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and stop."
    ),
) -> None:
    """Learn from clicks on ranked lists."""


def main() -> None:
    """Run a command; what the user can mend is said in one line, without a traceback."""
    from clickshift.errors import ClickshiftError

    try:
        app()
    except ClickshiftError as error:
        _stop(str(error), 2)
    except KeyboardInterrupt:
        _stop("interrupted; nothing half-written was left behind.", 130)
    except MemoryError:
        _stop("out of memory. Use fewer sessions at a time.", 3)
    except OSError as error:
        _stop(f"{error.filename or ''}: {error.strerror or error}", 2)


def _stop(message: str, code: int) -> None:
    typer.echo(f"clickshift: {message}", err=True)
    sys.exit(code)
