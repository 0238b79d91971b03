"""clickshift reproduce: tables and figures of the papers by name; `clickshift shift table3` is short for one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from clickshift.cli._console import render
from clickshift.cli._options import CLUSTER, JSON, WORKERS
from clickshift.cli.shift import REFERENCE, render_experiment, reporting_tasks

SHIFT_COMMANDS = {
    "table3": "Make Table 3 of the policy-shift paper: ind and ood perplexity, DBN users.",
    "table4": "Make Table 4 of the policy-shift paper: ind and ood perplexity, CoCM users.",
    "figure1": "Make Figure 1 of the policy-shift paper: spider charts of normalised perplexity.",
    "figure2": "Make Figure 2 of the policy-shift paper: clicks of derived policies.",
}
"""Tables and figures that have a command under `clickshift shift`, with its help text: those that need no log."""
_OUTPUT = typer.Option(
    None, "--output", "-o", help="Folder for the result rows and the report; by default, out/ and the name."
)
_CORPUS = typer.Option(
    None,
    help="Corpus: 'builtin', 'one-hot' (the IPS paper's corpus), or a LETOR file or folder; by default, the paper's.",
)
_SEEDS = typer.Option(None, min=1, help="Number of models per task, or of runs, instead of the paper's.")
_QUERIES = typer.Option(None, min=2, help="Number of queries of the corpus, instead of 1,000 or all.")
_SESSIONS = typer.Option(None, min=100, help="Largest number of sessions of a training log, instead of the paper's.")
_TUNED = typer.Option(
    None,
    help="Folder of an ips-tuning run, whose optimisers and learning rates are used for rankers of the IPS paper.",
)


def reproduce(
    name: str | None = typer.Argument(None, help="Table or figure, e.g. table3 or figure1."),
    every: bool = typer.Option(False, "--list", help="Show every table and figure, and whether it can be made."),
    output: Path | None = _OUTPUT,
    corpus: str | None = _CORPUS,
    seeds: int | None = _SEEDS,
    queries: int | None = _QUERIES,
    sessions: int | None = _SESSIONS,
    tuned: Path | None = _TUNED,
    as_published: bool = typer.Option(
        False,
        "--as-published",
        help="Users and training as in the authors' code (not the off-policy paper), to see where numbers differ.",
    ),
    reference: bool = REFERENCE,
    workers: int | None = WORKERS,
    cluster: str | None = CLUSTER,
    json: bool = JSON,
) -> None:
    """Make a table or figure of the papers; --list shows all of them."""
    if every or name is None:
        from clickshift.experiments.papers import tables_and_figures

        render(tables_and_figures(), json=json)
    else:
        options: dict[str, Any] = {"corpus": corpus, "seeds": seeds, "queries": queries, "sessions": sessions}
        options |= {"tuned": tuned, "as_published": as_published}
        _make(name, output, json, **options, reference=reference, workers=workers, cluster=cluster)


def paper_command(name: str) -> Callable[..., None]:
    """Return the command that makes one table or figure."""

    def command(
        output: Path | None = _OUTPUT,
        corpus: str | None = _CORPUS,
        seeds: int | None = _SEEDS,
        queries: int | None = _QUERIES,
        sessions: int | None = _SESSIONS,
        reference: bool = REFERENCE,
        workers: int | None = WORKERS,
        cluster: str | None = CLUSTER,
        json: bool = JSON,
    ) -> None:
        options = {"corpus": corpus, "seeds": seeds, "queries": queries, "sessions": sessions}
        _make(name, output, json, **options, reference=reference, workers=workers, cluster=cluster)

    command.__doc__ = SHIFT_COMMANDS[name]
    return command


def _make(name: str, output: Path | None, json: bool, **options: Any) -> None:
    """Make a table or figure in the folder of its run, unless another one is given."""
    from clickshift.experiments.papers import reproduce, table_or_figure

    folder = output or Path("out") / (table_or_figure(name).run or name)
    with reporting_tasks() as progress:
        result = reproduce(name, folder, **options, progress=progress)
    render_experiment(result, json=json, output=folder)
