"""clickshift ope optimise: find the policy with the highest estimated reward, and evaluate it by cross-fitting."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clickshift.cli._console import progress, show_json, show_table, warnings_shown
from clickshift.cli._options import JSON, LOG, REPLICATES, REWARD, SKIP_BAD

if TYPE_CHECKING:
    from clickshift.ope.cross_fitting import OptimisedPolicy

_LOST_TO_MENTION = 0.005
"""Share of lost mass from which the conclusion mentions it."""


def optimise(
    log: str = LOG,
    output: Path = typer.Option(
        ..., "--output", "-o", help="File for the lists and their weights: .parquet, .csv or .jsonl."
    ),
    estimator: str = typer.Option("IP", help="Estimator whose value is maximised: List, IP, PBM or Item."),
    clip: float = typer.Option(10.0, help="Clipping constant M: the largest importance weight."),
    reward: str = REWARD,
    replicates: int = REPLICATES,
    seed: int = typer.Option(0, help="Random seed for the bootstrap, and for the halves of a log without times."),
    skip_bad: bool = SKIP_BAD,
    json: bool = JSON,
) -> None:
    """Find the policy that an estimator values most, as weighted lists that `ope evaluate --target` reads.

    The value of the policy on the log that it was optimised on is too optimistic. So it is also optimised on each half
    of the log and evaluated on the other half: earlier and later days if the log has times, else random halves.
    """
    from clickshift.counts.open_log import open_log
    from clickshift.data.sessions import Sessions
    from clickshift.io.table_writer import table_ending
    from clickshift.io.target_files import write_target
    from clickshift.ope import Bootstrap, Reward
    from clickshift.ope._report import with_interval
    from clickshift.ope.cross_fitting import optimise_policy

    table_ending(output)
    reward_of_session = Reward.named(reward)
    with warnings_shown(), progress("optimising"):
        opened = open_log(log, on_bad_line="skip" if skip_bad else "error")
        sessions = opened if isinstance(opened, Sessions) else opened.sessions()
        bootstrap = Bootstrap(replicates, seed=seed)
        optimised = optimise_policy(sessions, reward_of_session, estimator, clip, bootstrap, seed=seed)
        write_target(output, optimised.policy)
    in_sample, cross_fitted, gain = optimised.in_sample, optimised.cross_fitted, optimised.gain
    facts = {
        "estimator": estimator,
        "clip": clip,
        "reward": str(reward_of_session),
        "logging": optimised.logging.value,
        "in_sample": in_sample.value,
        "cross_fitted": cross_fitted.value,
        "cross_fitted_low": cross_fitted.low,
        "cross_fitted_high": cross_fitted.high,
        "cross_fitted_lower_bound": optimised.lower,
        "cross_fitted_lost": optimised.lost,
        "gain": gain.value,
        "gain_low": gain.low,
        "gain_high": gain.high,
        "halves": optimised.halves,
        "lists": len(optimised.policy.weight),
        "queries": in_sample.queries,
        "output": str(output),
    }
    if json:
        show_json(facts)
        return
    table = [
        {"": "logging policy", "value": f"{optimised.logging.value:.4f}", "lost mass": ""},
        {
            "": "optimised policy, in-sample",
            "value": f"{in_sample.value:.4f}",
            "lost mass": f"{in_sample.lost:.1%}",
        },
        {
            "": f"optimised policy, cross-fitted (halves {optimised.halves})",
            "value": with_interval(cross_fitted.value, cross_fitted.low, cross_fitted.high),
            "lost mass": f"{optimised.lost:.1%}",
        },
        {
            "": "optimised policy, cross-fitted, 95 % lower bound without bootstrap",
            "value": f"{optimised.lower:.4f}",
            "lost mass": "",
        },
    ]
    show_table(table, title=f"{reward_of_session} per session, by {estimator} with M = {clip:g}")
    typer.echo(_conclusion(optimised))
    typer.echo(f"{len(optimised.policy.weight):,} lists of {in_sample.queries:,} queries: {output}")


def _conclusion(optimised: OptimisedPolicy) -> str:
    """Compare the gain in-sample with the cross-fitted gain."""
    in_sample = optimised.in_sample.value - optimised.logging.value
    gain, assumption = optimised.gain, optimised.in_sample.assumption
    interval = f"{gain.value:+.4f} [{gain.low:+.4f}, {gain.high:+.4f}]"
    text = f"The in-sample gain is {in_sample:+.4f} per session; the cross-fitted gain is {interval}"
    if gain.low > 0:
        text += ": expect the cross-fitted gain" + (f", if {assumption}." if assumption else ".")
    else:
        text += ": this is no evidence that the optimised policy is better than the logging policy."
    if optimised.lost >= _LOST_TO_MENTION:
        text += f" Lost mass, {optimised.lost:.1%} of the policy, is counted there as earning nothing."
    return text
