"""clickshift relevance: graded judgments from clicks."""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli.console import Json, progress, show, warnings_shown


def relevance(
    model: Path = typer.Argument(..., help="The folder that `clickshift fit` wrote."),
    output: Path = typer.Option(..., "--output", "-o", help="Where the judgments go."),
    format: str | None = typer.Option(None, help="parquet, csv, qrels or lightgbm; by default, what the ending says."),
    grades: str = typer.Option(
        "0.05,0.1,0.2,0.4", help="Ascending cut points of the relevance, or quantile:N for N grades of equal size."
    ),
    min_impressions: int = typer.Option(
        0, min=0, help="Leave out documents that were shown less often for their query."
    ),
    json: bool = Json,
) -> None:
    """Graded judgments with uncertainty: a table, TREC qrels, or labels and weights for LightGBM."""
    from clickshift.judgments.export import judgments_format, write_judgments
    from clickshift.judgments.grading import graded, grading_facts, parse_grades
    from clickshift.models import model_name
    from clickshift.models.storage import load_model

    kind = judgments_format(output, format)
    parse_grades(grades)
    with warnings_shown(), progress("judging"):
        fitted = load_model(model)
        grading = graded(fitted, grades=grades, min_impressions=min_impressions)
        notes = {"model": model_name(fitted), "folder": str(model), "min_impressions": min_impressions}
        files = write_judgments(grading, output, format=kind, notes=notes)
    facts = {
        "model": model_name(fitted),
        "format": kind,
        **grading_facts(grading),
        "files": [str(file) for file in files],
    }
    show(facts, json=json, title="Judgments")
