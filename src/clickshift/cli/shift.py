"""clickshift shift: will a click model hold when the ranker changes?"""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli.console import Json, progress, show_json, show_table, warnings_shown

app = typer.Typer(help="Will a click model hold when the ranker changes?", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Will a click model hold when the ranker changes?"""


@app.command()
def run(
    output: Path = typer.Option(Path("out/shift"), "--output", "-o", help="The folder for the rows and the report."),
    corpus: str = typer.Option("builtin", help="'builtin', or a LETOR file or folder."),
    user: str = typer.Option("DBN", help="Who clicks."),
    training: str = typer.Option(
        "PlackettLuce(NoisyOracle, temperature=0.1, scores='log')", help="Who ranked the log."
    ),
    model: list[str] = typer.Option([], help="A model to compare; repeatable. By default, the naive baselines."),
    queries: int = typer.Option(1000, min=2, help="How many queries of the corpus."),
    sessions: int = typer.Option(100_000, min=100, help="Sessions of the training policy's log."),
    test_sessions: int = typer.Option(10_000, min=10, help="Sessions of each test policy's log."),
    seed: int = typer.Option(0),
    json: bool = Json,
) -> None:
    """Learn from one policy's log, predict clicks on other policies' lists: a table, a plot and a report."""
    from dataclasses import asdict

    from clickshift._version import __version__
    from clickshift.cli.corpus import open_corpus
    from clickshift.protocols.policy_shift import PolicyShift
    from clickshift.report.html import Section, write_report
    from clickshift.report.plots import shift_figure
    from clickshift.report.tables import shift_table
    from clickshift.report.words import shift_verdict
    from clickshift.runs import write_rows

    protocol = PolicyShift(
        user,
        training,
        models=tuple(model) or PolicyShift.models,
        queries=queries,
        sessions=sessions,
        test_sessions=test_sessions,
        seed=seed,
    )
    output.mkdir(parents=True, exist_ok=True)
    with warnings_shown(), progress("policy shift", len(protocol.testing) + 3) as advance:
        documents = None if corpus == "builtin" else open_corpus(corpus, None, seed)
        rows = list(protocol.rows(documents, progress=lambda done: advance(1)))
    table, words = shift_table(rows), shift_verdict(rows)
    write_rows(rows, output / "rows.parquet")
    write_report(
        output / "report.html",
        title="Policy shift: do click models hold when the ranker changes?",
        sections=[Section("What it says", words), Section("Perplexity", "", table, shift_figure(rows))],
        settings={**asdict(protocol), "corpus": corpus, "clickshift": __version__},
    )
    if json:
        show_json({"rows": rows, "report": str(output / "report.html")})
        return
    show_table(table, title=f"Conditional perplexity, {user} users, trained on {training}", caption="lower is better")
    typer.echo(words)
    typer.echo(f"Report: {output / 'report.html'}   Rows: {output / 'rows.parquet'}")
