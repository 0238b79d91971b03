"""Arguments and options that several commands share."""

from __future__ import annotations

import typer

LOG_HELP = "Click log: a .parquet, .csv or .jsonl file, a folder, a glob, FILE.duckdb::TABLE, or an encoded log."
LOG = typer.Argument(..., help=LOG_HELP)
MODEL_FOLDER = typer.Argument(..., help="Folder of a fitted model, as `clickshift fit` writes it.")
COLUMN = typer.Option(
    [],
    help="Column name of the log, as OURS=THEIRS, e.g. docs=results, where it differs from ours; time= leaves an "
    "optional column out; repeatable.",
)
EXACT = typer.Option(
    False, "--exact", help="Exact marginal probabilities of NCM, instead of an error of at most 0.001; slow."
)
SKIP_BAD = typer.Option(False, "--skip-bad", help="Skip bad sessions and report their number, instead of stopping.")
REWARD_HELP = (
    "Reward of a session: clicks, dcg or any-click; @K counts the first K ranks only, e.g. clicks@3. Or weights "
    "of the ranks, e.g. 1,0.5,0.25."
)
REWARD = typer.Option("clicks", "--reward", help=REWARD_HELP)
MERGE_REGIONS = typer.Option(
    False,
    "--merge-regions",
    help="Name queries of the Yandex relevance log by QueryID alone, as in the policy-shift paper.",
)
PROPENSITY_KIND = typer.Option(
    "marginal",
    help="What the column propensity_at_rank is with --logging propensities: 'marginal', P(document at this rank); "
    "'conditional', the same given the documents above, as Plackett-Luce samplers record it; 'cascade', P(documents "
    "down to this rank); or 'independent', of a policy that fills every position by itself.",
)
LEVEL = typer.Option(0.95, help="Confidence level of the intervals.")
REPLICATES = typer.Option(200, min=20, help="Number of bootstrap replicates for the confidence intervals.")
REPORT_FOLDER = typer.Option(None, "--output", "-o", help="Folder for the result rows and the report.")
REPORT = typer.Option(
    None,
    "--output",
    "-o",
    help="Report: one .html page, or a folder for the page, its rows, and its tables and figures as files.",
)
PAGE = typer.Option(
    None,
    "--report",
    help="Report: one .html page, or a folder for the page, its rows, and its tables and figures as files.",
)
WORKERS = typer.Option(
    None, min=0, help="Number of worker processes; by default, one per core; 0 runs the tasks in this process."
)
CLUSTER = typer.Option(
    None, metavar="ADDRESS", help="Address of a Dask cluster to run on instead of this machine, e.g. tcp://host:8786."
)
JSON = typer.Option(False, "--json", help="Print the result as one JSON object instead of tables.")


def parse_columns(pairs: list[str]) -> dict[str, str] | None:
    """Parse OURS=THEIRS options into a mapping; OURS= leaves an optional column out."""
    from clickshift.errors import SpecError

    mapping = {}
    for pair in pairs:
        ours, equals, theirs = pair.partition("=")
        if not (ours and equals):
            raise SpecError(
                f"--column takes OURS=THEIRS, e.g. --column docs=results: got {pair!r}.",
                code="bad-option",
                option="column",
                value=pair,
            )
        mapping[ours] = theirs
    return mapping or None
