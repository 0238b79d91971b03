"""clickshift ope optimise: find the policy with the highest estimated reward, and evaluate it by cross-fitting."""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli._console import render, reporting
from clickshift.cli._options import COLUMN, JSON, LOG, REPLICATES, REWARD, SKIP_BAD, parse_columns


def optimise(
    log: str = LOG,
    output: Path = typer.Option(
        ..., "--output", "-o", help="File for the lists and their weights: .parquet, .csv or .jsonl."
    ),
    estimator: str = typer.Option("IP", help="Estimator whose value is maximised: List, IP, PBM or Item."),
    clip: float = typer.Option(10.0, help="Clipping constant M: the largest importance weight, or inf."),
    reward: str = REWARD,
    replicates: int = REPLICATES,
    seed: int = typer.Option(0, help="Random seed for the bootstrap, and for the halves of a log without times."),
    column: list[str] = COLUMN,
    skip_bad: bool = SKIP_BAD,
    json: bool = JSON,
) -> None:
    """Find the policy that an estimator values most, as weighted lists that `ope evaluate --target` reads.

    The value of the policy on the log that it was optimised on is too optimistic. So it is also optimised on each half
    of the log and evaluated on the other half: earlier and later days if the log has times, else random halves. The
    answer is its gain over all click models that the log does not reject.
    """
    from clickshift.ope import OptimisedPolicy, optimise_policy

    OptimisedPolicy.check_output(output)
    with reporting("optimising") as progress:
        result = optimise_policy(
            log,
            estimator=estimator,
            clip=clip,
            reward=reward,
            replicates=replicates,
            seed=seed,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            progress=progress,
        )
    render(result, json=json, output=output)
