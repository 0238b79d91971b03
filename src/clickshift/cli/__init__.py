"""The command line: one module per command or group of commands.

Only typer is imported before a command runs: each command imports what it needs, so that `--help` is fast.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import typer
from typer.main import get_command

import clickshift.cli.audit as audit
import clickshift.cli.compare as compare
import clickshift.cli.conversions as conversions
import clickshift.cli.corpus as corpus
import clickshift.cli.decide as decide
import clickshift.cli.doctor as doctor
import clickshift.cli.explore as explore
import clickshift.cli.import_events as import_events
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
from clickshift.cli._console import is_verbose, set_verbosity
from clickshift.cli._exit_codes import (
    DONE,
    INPUT,
    INTERNAL,
    INTERRUPTED,
    PIPE_CLOSED,
    RESOURCES,
    is_closed_output,
    is_full_disk,
    is_lack_of_memory,
)
from clickshift.cli._startup import lack_of_address_space, prepare_process
from clickshift.core.interrupts import (
    end_on_signals,
    end_process,
    forget_interrupts,
    is_computing,
    kept_after_interrupt,
    received_signal,
    was_interrupted,
)
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
app.command("import")(import_events.import_events)
app.command()(doctor.doctor)
app.command()(models.fit)
app.command()(models.evaluate)
app.command()(compare.compare)
app.command()(audit.audit)
app.command()(decide.decide)
app.command()(explore.explore)
app.command()(models.examine)
app.command()(models.judgments)
app.command()(conversions.conversions)
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
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Print results and errors only: no progress, no warnings."),
    verbose: bool = typer.Option(
        False, "--verbose", "-v", help="Print log lines with times, and the traceback of an internal error."
    ),
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Learn from clicks on ranked lists."""
    if quiet and verbose:
        raise typer.BadParameter("--quiet and --verbose exclude each other.")
    set_verbosity(quiet=quiet, verbose=verbose)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; an error is printed as one line, without a traceback.

    Exit codes are stable:

    - 0: done.
    - 1: a check that was asked for failed, e.g. `log drift --fail-on-change`; `decide` says anything but ship.
    - 2: input that cannot be used: options, files, or tasks of a run that failed.
    - 3: memory or disk space does not suffice.
    - 70: internal error, a bug; with `--verbose`, its traceback is printed.
    - 130 or 143: interrupted by Ctrl-C (SIGINT) or by SIGTERM. Nothing half-written is left behind.
    - 141: the program that reads standard output ended first, e.g. `head`.

    Parameters
    ----------
    arguments
        Words of the command, without the program's name; by default, those of the process.

    Raises
    ------
    SystemExit
        Always, with the exit code.
    """
    if arguments is not None:
        sys.exit(_run(arguments))
    prepare_process()
    end_on_signals()
    if problem := lack_of_address_space():
        sys.exit(_stop(problem, RESOURCES))
    code = _run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _leave_output()
    if is_computing() or was_interrupted():  # a second signal would kill the interpreter on its way out
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        end_process(code)
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    """Run a command and return its exit code."""
    from clickshift.cli._messages import with_options
    from clickshift.errors import ClickshiftError

    set_verbosity()
    forget_interrupts()
    if problem := _bad_word(arguments):
        return _stop(problem, INPUT)
    try:
        code = _command()(arguments, prog_name="clickshift", standalone_mode=False)
    except _UsageError as error:
        return _explain_usage(error)
    except BaseException as error:
        if was_interrupted() or isinstance(error, KeyboardInterrupt):
            return _stop_interrupted()
        if is_closed_output(error):
            return _leave_output()
        if isinstance(error, SystemExit) and isinstance(error.__context__, OSError):
            error = error.__context__  # typer exits with 1 if any pipe breaks
        if not isinstance(error, Exception):
            raise
        if is_verbose():
            traceback.print_exc()
        if is_lack_of_memory(error):
            return _stop("out of memory. Use fewer sessions at a time.", RESOURCES)
        code = RESOURCES if is_full_disk(error) else INPUT
        if isinstance(error, ClickshiftError):
            return _stop(with_options(str(error), _command_options(arguments)), code)
        if isinstance(error, OSError):
            return _stop(f"{error.filename or ''}: {error.strerror or error}", code)
        if code == RESOURCES:
            return _stop(f"the disk is full ({error}). Choose a disk with free space.", code)
        problem = f"{type(error).__name__}: {error}".removesuffix(": ")
        advice = "" if is_verbose() else "; clickshift --verbose COMMAND shows the traceback"
        return _stop(f"internal error ({problem}). Please report it{advice}.", INTERNAL)
    if was_interrupted() or code == INTERRUPTED + signal.SIGINT:
        return _stop_interrupted(finished=code in {None, DONE})
    return code if isinstance(code, int) else DONE


def _bad_word(arguments: Sequence[str]) -> str:
    """Return what is wrong with the words of any command: an empty path would be the current folder."""
    for word, before in zip(arguments, ("", *arguments), strict=False):
        option, equals, value = word.partition("=")
        if "\0" in word:
            return "an argument must not contain a NUL character."
        if not word or (option.startswith("--") and equals and not value):
            place = f" after {before}" if before and not word else f": {word}" if word else ""
            return f"an argument must not be empty, but one is{place}. Give a value, or leave the option out."
    return ""


def _leave_output() -> int:
    """Discard what is left to be printed, because nobody reads it; return the exit code."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
    return PIPE_CLOSED


def _stop_interrupted(*, finished: bool = False) -> int:
    """Print what an interrupted command has kept; return its exit code."""
    kept = kept_after_interrupt()
    number = received_signal() or signal.SIGINT
    return _stop(f"interrupted; {'the result so far is kept' if finished else kept}.", INTERRUPTED + number)


# the click base class of what typer exports: recent versions of typer include click under a name that is not public
_UsageError: Any = typer.BadParameter.__mro__[1]


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


def _explain_usage(error: Any) -> int:
    """Print what is wrong with the words of a command; return the exit code."""
    message = error.format_message().strip()
    if not message or "\n" in message:  # a group without a command shows its help
        error.show()
        return INPUT
    command = error.ctx.command_path if error.ctx is not None else "clickshift"
    end = "" if message.endswith((".", "?")) else "."
    return _stop(f"{message}{end} Try '{command} --help'.", INPUT)


def _stop(message: str, code: int) -> int:
    """Print an error as one line; return the exit code."""
    with suppress(OSError):  # standard error may be closed
        typer.echo(f"clickshift: {printable(message)}", err=True)
    return code
