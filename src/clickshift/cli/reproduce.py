"""clickshift reproduce: the tables and figures of the papers, by name; `clickshift shift table3` is short for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

import clickshift.cli.click_vs_ips as click_vs_ips
import clickshift.cli.selection as selection
from clickshift.cli.console import Cluster, Json, Workers, show_json, show_table
from clickshift.cli.experiment_runner import Pool
from clickshift.cli.shift import Fresh, run_and_report

SHIFT = {
    "table3": "Table 3 of the policy-shift paper: ind and ood perplexity, DBN users.",
    "table4": "Table 4 of the policy-shift paper: ind and ood perplexity, CoCM users.",
    "figure1": "Figure 1 of the policy-shift paper: spider charts of normalised perplexity.",
    "figure2": "Figure 2 of the policy-shift paper: clicks of derived policies.",
}
"""Commands of their own under `clickshift shift`: those that need no log."""
Output = typer.Option(None, "--output", "-o", help="The folder; by default out/ and the name.")
Corpus = typer.Option(
    None, help="'builtin', 'one-hot' (the IPS paper's set), or a LETOR file or folder; by default, what the paper has."
)
Seeds = typer.Option(None, min=1, help="Models per cell, or runs, instead of the paper's number.")
Queries = typer.Option(None, min=2, help="How many queries of the corpus, instead of 1,000 or all.")
Sessions = typer.Option(None, min=100, help="Sessions of a training log, at most, instead of the paper's number.")
Tuned = typer.Option(
    None, help="A folder that ips-tuning wrote: rankers of the IPS paper take the optimisers and rates chosen there."
)


def reproduce(
    name: str | None = typer.Argument(None, help="A table or figure, e.g. table3 or figure1."),
    every: bool = typer.Option(False, "--list", help="Show every table and figure, and whether it can be made."),
    output: Path | None = Output,
    corpus: str | None = Corpus,
    seeds: int | None = Seeds,
    queries: int | None = Queries,
    sessions: int | None = Sessions,
    tuned: Path | None = Tuned,
    reference: bool = Fresh,
    workers: int | None = Workers,
    cluster: str | None = Cluster,
    json: bool = Json,
) -> None:
    """Make a table or figure of the papers; `--list` shows them all."""
    if every or name is None:
        _list(json=json)
    else:
        _make(name, output, corpus, seeds, queries, sessions, tuned, reference, Pool(workers, cluster), json)


def named(name: str) -> Callable[..., None]:
    """The command of one table or figure."""

    def command(
        output: Path | None = Output,
        corpus: str | None = Corpus,
        seeds: int | None = Seeds,
        queries: int | None = Queries,
        sessions: int | None = Sessions,
        reference: bool = Fresh,
        workers: int | None = Workers,
        cluster: str | None = Cluster,
        json: bool = Json,
    ) -> None:
        _make(name, output, corpus, seeds, queries, sessions, None, reference, Pool(workers, cluster), json)

    command.__doc__ = SHIFT[name]
    return command


def _list(*, json: bool) -> None:
    from clickshift.experiments.papers import TABLES_AND_FIGURES

    lines = [
        {"name": name, "paper": e.paper, "shows": e.shows, "state": e.state, "command": e.command or None}
        for name, e in TABLES_AND_FIGURES.items()
    ]
    if json:
        show_json(lines)
    else:
        show_table(lines, title="Tables and figures of the papers")


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
    from clickshift.cli.presets import on_corpus, selection_protocol
    from clickshift.errors import SpecError
    from clickshift.experiments.model_selection.protocol import ModelSelection
    from clickshift.experiments.papers import AnalyticProtocol, TrainedProtocol, table_or_figure, with_changes
    from clickshift.simulation.search_engine import BUILTIN

    wanted = table_or_figure(name)
    if wanted.make is None:
        how = f"Run it on your own: {wanted.command}" if wanted.command else "It is not there yet."
        raise SpecError(f"{name} cannot be made by itself: {wanted.state}. {how}")
    protocol, folder = wanted.make(), output or Path("out") / name
    if tuned is not None and not isinstance(protocol, TrainedProtocol):
        raise SpecError(f"--tuned is for trained rankers of the IPS paper: {name} has none.")
    if isinstance(protocol, AnalyticProtocol):
        click_vs_ips.show_analytic(protocol, folder, json=json)
        return
    if isinstance(protocol, TrainedProtocol):
        tuning = None if tuned is None else _rows_of_tuning(tuned)
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


def _rows_of_tuning(folder: Path) -> list[dict[str, Any]]:
    from clickshift.errors import FileError
    from clickshift.io.table_writer import read_rows

    rows = folder / "rows.parquet"
    if not rows.exists():
        raise FileError(folder, f"has no rows of a tuning. Run clickshift reproduce ips-tuning -o {folder}.")
    return read_rows(rows)
