"""clickshift corpus: describe learning-to-rank data."""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli._console import check_report, render, reporting
from clickshift.cli._options import JSON, REPORT

app = typer.Typer(help="Describe learning-to-rank data.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Describe learning-to-rank data."""


@app.command()
def info(
    corpus: str = typer.Argument("builtin", help="Corpus: 'builtin', or a LETOR file or folder."),
    queries: int = typer.Option(1000, min=1, help="Number of queries of the built-in corpus."),
    seed: int = typer.Option(0, help="Random seed for the built-in corpus."),
    output: Path | None = REPORT,
    json: bool = JSON,
) -> None:
    """Summarise the queries, candidate documents, labels and features of a corpus."""
    from clickshift.metrics.corpus_summary import corpus_summary

    check_report(output)
    with reporting("reading"):
        result = corpus_summary(corpus, queries=queries, seed=seed)
    render(result, json=json, output=output)
