"""clickshift examine: how users move through the list."""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli.console import Json, progress, show_json, show_table, warnings_shown


def examine(
    model: Path = typer.Argument(..., help="The folder that `clickshift fit` wrote."),
    output: Path | None = typer.Option(None, "--output", "-o", help="Where the plot goes: one .html page."),
    json: bool = Json,
) -> None:
    """The examination or continuation curve of a fitted model, with intervals: a table and a plot."""
    from clickshift.display.document import Section, check_page, write_report
    from clickshift.display.figures import curve_figure
    from clickshift.display.tables import curve_table
    from clickshift.models import model_name
    from clickshift.models.storage import load_model, read_header

    if output is not None:
        check_page(output)
    with warnings_shown(), progress("examining"):
        fitted = load_model(model)
        rows = fitted.examination_table()
        table, name = curve_table(rows), model_name(fitted)
        if output is not None:
            header = read_header(model)
            write_report(
                output,
                title=f"{name}: how users move through the list",
                sections=[
                    Section(f"{rows[0]['parameter']} with 95 % intervals".capitalize(), "", table, curve_figure(rows))
                ],
                settings={"model": name, "folder": model, "clickshift": header["clickshift"], **header["notes"]},
            )
    if json:
        show_json({"model": name, "curve": rows, "plot": None if output is None else str(output)})
        return
    show_table(table, title=f"{name}: {rows[0]['parameter']} with 95 % intervals")
    if output is not None:
        typer.echo(f"Plot: {output}")
