"""clickshift decide: ship the new ranker, keep the current one, or test?"""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli._console import render, reporting
from clickshift.cli._exit_codes import GATE_FAILED
from clickshift.cli._options import (
    COLUMN,
    JSON,
    LOG,
    PROPENSITY_KIND,
    REPLICATES,
    REPORT,
    REWARD,
    SKIP_BAD,
    parse_columns,
)


def decide(
    log: str = LOG,
    candidate: list[Path] = typer.Option(
        ...,
        help="New ranker: a table of query and docs, optionally with weight, or a table of query, doc and score; "
        "repeatable.",
    ),
    reward: str = REWARD,
    logging: str = typer.Option(
        "frequencies", help="Logging policy: list 'frequencies' of the log, or the 'propensities' that it carries."
    ),
    propensity_kind: str = PROPENSITY_KIND,
    cluster: str = typer.Option("session", help="Independent unit of the bootstrap: 'session' or 'user'."),
    level: float = typer.Option(0.95, help="Confidence level of the intervals, for all candidates together."),
    replicates: int = REPLICATES,
    seed: int = typer.Option(0, help="Random seed for resampling and tie-breaking."),
    column: list[str] = COLUMN,
    skip_bad: bool = SKIP_BAD,
    output: Path | None = REPORT,
    json: bool = JSON,
) -> None:
    """Decide from the log of the current ranker whether to ship a new one: ship, keep, test or unclear.

    Exits with 0 for ship, and with 1 otherwise.
    """
    from clickshift.ope import Decision
    from clickshift.ope import decide as decide_candidates

    if output is not None:
        Decision.check_output(output)
    with reporting("deciding") as progress:
        result = decide_candidates(
            log,
            candidate,
            reward=reward,
            logging=logging,
            propensity_kind=propensity_kind,
            cluster=cluster,
            level=level,
            replicates=replicates,
            seed=seed,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            progress=progress,
        )
    render(result, json=json, output=output)
    if result.decision != "ship":
        raise typer.Exit(GATE_FAILED)
