"""clickshift ope optimise: the policy that earns most by this log, and what is left of that on the other half."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clickshift.cli._console import Json, LogPath, progress, show_json, show_table, warnings_shown

if TYPE_CHECKING:
    from clickshift.ope.cross_fitting import OptimisedPolicy

RewardText = typer.Option(
    "clicks", "--reward", help="clicks, dcg or any-click; with @K, such as clicks@3, of the first K ranks."
)
Replicates = typer.Option(200, min=20, help="Resampled logs, for intervals.")
_SOME = 0.005
"""Lost mass that is worth a word."""
SkipBad = typer.Option(False, "--skip-bad", help="Leave bad sessions out, and say how many, instead of stopping.")


def optimise(
    log: str = LogPath,
    output: Path = typer.Option(
        ..., "--output", "-o", help="Where the lists and their weights go: .parquet, .csv or .jsonl."
    ),
    estimator: str = typer.Option("IP", help="Whose best policy: List, IP, PBM or Item."),
    clip: float = typer.Option(10.0, help="The largest weight: what may be shown how many times as often as logged."),
    reward: str = RewardText,
    replicates: int = Replicates,
    seed: int = typer.Option(0, help="Of resampled logs, and of halves where the log has no time."),
    skip_bad: bool = SkipBad,
    json: bool = Json,
) -> None:
    """The policy that an estimator thinks best, from the log alone, as lists with weights that --target reads.

    What it was chosen by makes it look too good. So it is also learned from each half of the log and judged on the
    other one: earlier and later days where the log has times, random halves where not.
    """
    from clickshift.counts.open_log import open_log
    from clickshift.data.sessions import Sessions
    from clickshift.io.table_writer import table_ending
    from clickshift.io.target_files import write_target
    from clickshift.ope import Bootstrap, Reward
    from clickshift.ope._report import with_interval
    from clickshift.ope.cross_fitting import optimise_policy

    table_ending(output)
    earned = Reward.named(reward)
    with warnings_shown(), progress("optimising"):
        opened = open_log(log, on_bad_line="skip" if skip_bad else "error")
        sessions = opened if isinstance(opened, Sessions) else opened.sessions()
        found = optimise_policy(sessions, earned, estimator, clip, Bootstrap(replicates, seed=seed), seed=seed)
        write_target(output, found.policy.lists, found.policy.weight)
    promise, kept, gain = found.in_sample, found.cross_fitted, found.gain
    facts = {
        "estimator": estimator,
        "clip": clip,
        "reward": str(earned),
        "logging": found.logging.value,
        "in_sample": promise.value,
        "cross_fitted": kept.value,
        "cross_fitted_low": kept.low,
        "cross_fitted_high": kept.high,
        "cross_fitted_lower_bound": found.lower,
        "cross_fitted_lost": found.lost,
        "gain": gain.value,
        "gain_low": gain.low,
        "gain_high": gain.high,
        "halves": found.halves,
        "lists": len(found.policy.weight),
        "queries": promise.queries,
        "output": str(output),
    }
    if json:
        show_json(facts)
        return
    table = [
        {"": "the log's own lists", "value": f"{found.logging.value:.4f}", "lost": ""},
        {"": "optimised, on the log that chose it", "value": f"{promise.value:.4f}", "lost": f"{promise.lost:.1%}"},
        {
            "": f"optimised, on the other half ({found.halves})",
            "value": with_interval(kept.value, kept.low, kept.high),
            "lost": f"{found.lost:.1%}",
        },
        {"": "the same, at least (bound without bootstrap, 95 %)", "value": f"{found.lower:.4f}", "lost": ""},
    ]
    show_table(table, title=f"{earned} per session, by {estimator} with M = {clip:g}")
    typer.echo(_kept_words(found))
    typer.echo(f"{len(found.policy.weight):,} lists of {promise.queries:,} queries: {output}")


def _kept_words(found: OptimisedPolicy) -> str:
    """What of the promised gain is left on sessions that did not choose the policy."""
    promised, gain, assumption = found.in_sample.value - found.logging.value, found.gain, found.in_sample.assumption
    interval = f"{gain.value:+.4f} [{gain.low:+.4f}, {gain.high:+.4f}]"
    said = f"The log that chose the policy promises {promised:+.4f} per session; the other half says {interval}"
    if gain.low > 0:
        said += ": that is what to expect" + (f", if {assumption}." if assumption else ".")
    else:
        said += ": nothing says that it is better than what is shown now."
    if found.lost >= _SOME:
        said += f" What the other half lacks, {found.lost:.1%} of the policy, counts there as earning nothing."
    return said
