"""clickshift reproduce: tables and figures of the papers by name; `clickshift shift table3` is short for one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

import clickshift.cli._click_vs_ips as click_vs_ips
import clickshift.cli.selection as selection
from clickshift.cli._console import show_json, show_table
from clickshift.cli._experiment_runner import Pool
from clickshift.cli._options import CLUSTER, JSON, WORKERS
from clickshift.cli.shift import REFERENCE, run_and_report

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
    reference: bool = REFERENCE,
    workers: int | None = WORKERS,
    cluster: str | None = CLUSTER,
    json: bool = JSON,
) -> None:
    """Make a table or figure of the papers; --list shows all of them."""
    if every or name is None:
        _list(json=json)
    else:
        _make(name, output, corpus, seeds, queries, sessions, tuned, reference, Pool(workers, cluster), json)


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
        _make(name, output, corpus, seeds, queries, sessions, None, reference, Pool(workers, cluster), json)

    command.__doc__ = SHIFT_COMMANDS[name]
    return command


def _list(*, json: bool) -> None:
    """Print all tables and figures."""
    from clickshift.experiments.papers import TABLES_AND_FIGURES

    rows = [
        {"name": name, "paper": e.paper, "shows": e.shows, "state": e.state, "command": e.command or None}
        for name, e in TABLES_AND_FIGURES.items()
    ]
    if json:
        show_json(rows)
    else:
        show_table(rows, title="Tables and figures of the papers")


def _make(
    name: str,
    output: Path | None,
    corpus: str | None,
    seeds: int | None,
    queries: int | None,
    sessions: int | None,
    tuned: Path | None,
    reference: bool,
    pool: Pool,
    json: bool,
) -> None:
    """Run the experiment of a table or figure, with the given sizes replaced, and write its report."""
    from clickshift.cli._presets import on_corpus, selection_protocol
    from clickshift.errors import SpecError
    from clickshift.experiments.model_selection.protocol import ModelSelection
    from clickshift.experiments.papers import AnalyticProtocol, TrainedProtocol, table_or_figure, with_changes
    from clickshift.simulation.search_engine import BUILTIN

    wanted = table_or_figure(name)
    if wanted.make is None:
        advice = f"Run it on your log: {wanted.command}" if wanted.command else "It is not implemented yet."
        raise SpecError(
            f"{name} cannot be made by this command: {wanted.state}. {advice}",
            code="cannot-reproduce",
            name=name,
            command=wanted.command,
        )
    protocol, folder = wanted.make(), output or Path("out") / name
    if tuned is not None and not isinstance(protocol, TrainedProtocol):
        raise SpecError(
            f"--tuned is for trained rankers of the IPS paper: {name} has none. Remove it.",
            code="bad-option",
            option="tuned",
        )
    if isinstance(protocol, AnalyticProtocol):
        click_vs_ips.show_analytic(protocol, folder, json=json)
        return
    if isinstance(protocol, TrainedProtocol):
        tuning = None if tuned is None else _read_tuning(tuned)
        protocol = with_changes(protocol, corpus=corpus, queries=queries, sessions=sessions, seeds=seeds, tuning=tuning)
        click_vs_ips.run_and_report(protocol, folder, pool=pool, json=json)
        return
    corpus = corpus or BUILTIN
    if isinstance(protocol, ModelSelection):
        smaller = selection_protocol("paper", corpus=corpus, queries=queries, sessions=sessions, seeds=seeds)
        selection.run_and_report(smaller, folder, corpus=corpus, pool=pool, repeats=1000, json=json)
        return
    world = protocol.world
    world = replace(world, queries=queries or world.queries, sessions=sessions or world.sessions)
    protocol = replace(protocol, world=on_corpus(world, corpus), seeds=seeds or protocol.seeds)
    run_and_report(protocol, folder, corpus=corpus, reference=reference, pool=pool, json=json)


def _read_tuning(folder: Path) -> list[dict[str, Any]]:
    """Read the rows of an ips-tuning run."""
    from clickshift.display.tables import read_rows
    from clickshift.errors import FileError

    rows = folder / "rows.parquet"
    if not rows.exists():
        raise FileError(
            folder,
            f"has no rows of a tuning run. Run clickshift reproduce ips-tuning -o {folder}.",
            code="missing-run",
        )
    return read_rows(rows)
