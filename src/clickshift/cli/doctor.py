"""clickshift doctor: check a log for the ways in which tracking lies."""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli._console import render, reporting
from clickshift.cli._exit_codes import GATE_FAILED
from clickshift.cli._options import COLUMN, JSON, LEVEL, REPORT, SKIP_BAD, parse_columns


def doctor(
    log: str = typer.Argument(
        ..., help="Click log, as for other commands, or a file of events, as for `clickshift import`."
    ),
    check: list[str] = typer.Option([], "--check", help="Name of a check to run; by default, all; repeatable."),
    arm_share: list[str] = typer.Option(
        [],
        "--arm-share",
        metavar="ARM=SHARE",
        help="Share of the traffic that a label of the segment arm was given, e.g. new=0.1; by default, equal shares; "
        "repeatable.",
    ),
    fail_on: str = typer.Option(
        "severe",
        "--fail-on",
        help="Smallest severity with which the exit code is 1: notice, warning, severe, or never.",
    ),
    effects: bool = typer.Option(True, help="Examination with and without the sessions of each finding."),
    level: float = LEVEL,
    column: list[str] = COLUMN,
    skip_bad: bool = SKIP_BAD,
    output: Path | None = REPORT,
    json: bool = JSON,
) -> None:
    """Check a log for the ways in which tracking lies: ranks, repeats, bots, truncated lists, tests, arms.

    Each finding has its rate with an interval, examples, a severity, what to do, and what it does to examination. The
    exit code is 1 if there is a severe finding.
    """
    from clickshift.errors import SpecError
    from clickshift.log_health._report import LogHealth
    from clickshift.log_health.check_log import check_log

    if fail_on not in {"notice", "warning", "severe", "never"}:
        raise SpecError(
            f"--fail-on must be notice, warning, severe or never: got {fail_on!r}.",
            code="bad-option",
            option="fail_on",
            value=fail_on,
        )
    if output is not None:
        LogHealth.check_output(output)
    with reporting("checking") as progress:
        result = check_log(
            log,
            checks=check or None,
            arm_shares=_shares(arm_share),
            effects=effects,
            level=level,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            progress=progress,
        )
    render(result, json=json, output=output)
    if fail_on != "never" and result.at_least(fail_on):  # type: ignore[arg-type]
        raise typer.Exit(GATE_FAILED)


def _shares(texts: list[str]) -> dict[str, float] | None:
    """Parse ARM=SHARE options."""
    from clickshift.errors import SpecError

    shares = {}
    for text in texts:
        arm, _, share = text.rpartition("=")
        try:
            shares[arm] = float(share)
        except ValueError:
            arm = ""
        if not arm:
            raise SpecError(
                f"--arm-share takes ARM=SHARE, e.g. --arm-share new=0.1: got {text!r}.",
                code="bad-option",
                option="arm_share",
                value=text,
            )
    return shares or None
