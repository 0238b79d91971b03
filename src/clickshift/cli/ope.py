"""clickshift ope: what would another ranker earn, estimated from the log of the current one?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup
from typing_extensions import override

from clickshift.cli._console import render, reporting
from clickshift.cli._options import (
    COLUMN,
    EXACT,
    JSON,
    LEVEL,
    LOG,
    PROPENSITY_KIND,
    REPLICATES,
    REPORT,
    REWARD_HELP,
    SKIP_BAD,
    parse_columns,
)
from clickshift.cli.backtest import backtest
from clickshift.cli.optimise import optimise


class _EvaluateByDefault(TyperGroup):
    """A group of commands in which a first word that is no command is the log of `evaluate`."""

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "--help"}:
            args = ["evaluate", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_EvaluateByDefault, no_args_is_help=True)


@app.callback()
def group() -> None:
    """Evaluate and optimise rankers off-policy, from the log of another ranker.

    `clickshift ope LOG --target FILE` is short for `clickshift ope evaluate LOG --target FILE`.
    """


app.command()(backtest)
app.command()(optimise)


@app.command()
def evaluate(
    log: str = LOG,
    target: Path | None = typer.Option(
        None,
        help="Target policy: a table of query and docs, optionally with weight, or a table of query, doc and score.",
    ),
    model: Path | None = typer.Option(
        None,
        help="Folder of a fitted click model, for DM, DR and CIPS, which joins the click models of the answer; without "
        "--target, its ranking is the target policy.",
    ),
    derive: str = typer.Option(
        "top-down", help="Method to derive the target policy from the model: 'top-down' or 'max-reward'."
    ),
    compare: Path | None = typer.Option(None, help="Second target policy, to be compared with the first."),
    estimator: list[str] = typer.Option(
        ["auto"],
        help="Estimator: List, IP, PBM, Item, RCTR, RIPS, PI, CIPS or DM, with the prefix SN- (self-normalised) or DR- "
        "(doubly robust), or 'auto' for all that apply and the answer; repeatable.",
    ),
    reward: str = typer.Option(
        "clicks",
        "--reward",
        help=REWARD_HELP
        + " Or a signal of the log, e.g. purchase or revenue@10, or a sum such as '3*cart + 10*purchase'.",
    ),
    winsorise: float = typer.Option(
        0.999,
        help="Quantile, among sessions that earned anything, above which rewards of a signal are cut; 1 cuts nothing.",
    ),
    clip: str = typer.Option(
        "10,100,inf", help="Clipping constants M, the largest importance weights; inf for no clipping."
    ),
    logging: str = typer.Option(
        "frequencies",
        help="Logging policy: list 'frequencies' of the log, the 'propensities' that it carries (of whole lists or by "
        "position, see --propensity-kind), or a file with the policy itself: a table of query, docs and weight, or of "
        "query, doc and score.",
    ),
    propensity_kind: str = PROPENSITY_KIND,
    examination: str | None = typer.Option(
        None,
        help="Examination by rank for PBM: a file of `clickshift propensities`, numbers such as 1,0.6,0.4, or 1/rank, "
        "which is that of the paper. By default, that of a PBM that is fitted on the log.",
    ),
    cluster: str = typer.Option("session", help="Independent unit of the bootstrap: 'session' or 'user'."),
    level: float = LEVEL,
    replicates: int = REPLICATES,
    seed: int = typer.Option(0, help="Random seed for the bootstrap and tie-breaking."),
    exact: bool = EXACT,
    column: list[str] = COLUMN,
    skip_bad: bool = SKIP_BAD,
    output: Path | None = REPORT,
    json: bool = JSON,
) -> None:
    """Estimate what a target policy would earn more or less than the log, with an interval and a verdict.

    The interval contains everything that the log does not tell. The verdict says whether it can be used. With
    --compare, also estimates the difference of two target policies on the same sessions.
    """
    from clickshift.ope import PolicyEvaluation, evaluate_policy

    if output is not None:
        PolicyEvaluation.check_output(output)
    with reporting("evaluating") as progress:
        result = evaluate_policy(
            log,
            target,
            model=model,
            derive=derive,
            compare=compare,
            estimators=estimator,
            reward=reward,
            clip=_parse_clip(clip),
            logging=logging,
            propensity_kind=propensity_kind,
            examination=examination,
            cluster=cluster,
            level=level,
            replicates=replicates,
            seed=seed,
            exact=exact,
            winsorise=winsorise,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            progress=progress,
        )
    render(result, json=json, output=output)


def _parse_clip(text: str) -> list[float]:
    """Parse clipping constants, e.g. "10,100,inf"."""
    from clickshift.errors import SpecError

    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise SpecError(
            f"--clip takes numbers separated by commas, such as 10,100,inf: got {text!r}.",
            code="bad-option",
            option="clip",
            value=text,
        ) from None
