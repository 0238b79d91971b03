"""clickshift simulate: draw a click log from a corpus, a ranking policy and a simulated user."""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli._console import render, reporting
from clickshift.cli._options import JSON


def simulate(
    output: Path = typer.Option(
        ..., "--output", "-o", help="File for the log: .parquet, .csv or .jsonl; .ndjson for events."
    ),
    sessions: int = typer.Option(100_000, min=1, help="Number of sessions."),
    corpus: str = typer.Option("builtin", help="Corpus: 'builtin', or a LETOR file or folder."),
    queries: int = typer.Option(1000, min=1, help="Number of queries of the corpus."),
    documents: int | None = typer.Option(
        None,
        min=1,
        help="Number of documents per query, in a sample stratified by grade; queries with fewer are dropped.",
    ),
    policy: str = typer.Option(
        "PlackettLuce(NoisyOracle, temperature=0.1, scores='log')", help="Logging policy, which ranks the documents."
    ),
    user: str = typer.Option("DBN", help="Simulated user, who clicks."),
    query_law: str = typer.Option(
        "power-law", help="Distribution of the queries: 'power-law' (exponent 1.12) or 'uniform'."
    ),
    ranks: int = typer.Option(10, min=1, help="Length of the lists."),
    layout: str = typer.Option(
        "wide",
        help="Layout of the file: 'wide' (one row per session), 'long' (one row per result), or 'ubi' (OpenSearch UBI "
        "events, .ndjson).",
    ),
    truth: Path | None = typer.Option(
        None, help="File for the ground truth: a table of query, doc, label, and the policy's score where it has one."
    ),
    seed: int = typer.Option(0, help="Random seed for the whole simulation."),
    json: bool = JSON,
) -> None:
    """Simulate a click log: queries arrive, a policy ranks documents, a user clicks."""
    from clickshift.simulation.simulate_log import simulate_log

    with reporting("simulating", sessions) as progress:
        result = simulate_log(
            output,
            sessions=sessions,
            corpus=corpus,
            queries=queries,
            documents=documents,
            policy=policy,
            user=user,
            query_law=query_law,
            ranks=ranks,
            layout=layout,
            truth=truth,
            seed=seed,
            progress=progress,
        )
    render(result, json=json)
