"""clickshift models: which click models there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from clickshift.cli._console import Json, progress, sessions_encoded, show, show_json, show_table, warnings_shown


def models(json: bool = Json) -> None:
    """Every click model, what it can do, and how it is learned."""
    rows = _models_table()
    if json:
        show_json({"models": rows})
        return
    show_table([{name.replace("_", " "): value for name, value in row.items()} for row in rows], title="Click models")


def _models_table() -> list[dict[str, Any]]:
    """Every click model with what it can do and the learner that `fit` uses; None where none is usual."""
    from clickshift.core.spec import resolve
    from clickshift.learners import DEFAULT
    from clickshift.models import MODELS
    from clickshift.models._differentiable import Differentiable

    models = {name: resolve(name, MODELS) for name in MODELS}
    return [
        {
            "model": name,
            "predicts_clicks": model.predicts_clicks,
            "uses_history": model.uses_history,
            "ranks_documents": model.ranks_documents,
            "peeks": model.peeks,
            "learner": DEFAULT.get(name),
            "by_gradient": issubclass(model, Differentiable),
        }
        for name, model in models.items()
    ]


def fit(
    model: str = typer.Argument(
        ..., help="A model, e.g. UBM or NCM, or a learner with options, e.g. \"Gradient('PBM', tower='free')\"."
    ),
    log: list[str] = typer.Argument(
        ..., help="The log: a .parquet, .csv or .jsonl file, a folder, a glob or FILE.duckdb::TABLE; or counts of days."
    ),
    output: Path = typer.Option(..., "--output", "-o", help="The folder for the model."),
    seeds: int = typer.Option(1, min=1, help="How many models from different starts; for models by gradient."),
    held_out: str | None = typer.Option(
        None, help="The log that decides when to stop; by default, a tenth of the sessions. For models by gradient."
    ),
    corpus: str | None = typer.Option(None, help="The LETOR file or folder with the features of tower='features'."),
    json: bool = Json,
) -> None:
    """Learn a click model from a log and keep it in a folder.

    A log may be larger than memory: it is encoded once, in a hidden folder beside it. Several folders of counts, which
    `clickshift log count` wrote, are added.

    Models by gradient show how they come along, and can be interrupted: what is best so far is kept, and the same
    command goes on from there.
    """
    from clickshift.counts.daily import DayCounts
    from clickshift.counts.open_log import open_log
    from clickshift.io.datasets.letor import read_corpus
    from clickshift.learners import fit_seeds, learner_for
    from clickshift.learners.fit import data_for, open_all
    from clickshift.models import model_name
    from clickshift.models.storage import save_seeds

    learner = learner_for(model)
    with warnings_shown(), progress(f"fitting {model}") as hear:
        found = open_all(log, progress=sessions_encoded(hear))
        fitted = fit_seeds(
            learner,
            data_for(learner, found),
            seeds,
            held_out=None if held_out is None else open_log(held_out, progress=sessions_encoded(hear)),
            corpus=None if corpus is None else read_corpus(corpus),
            progress=hear,
            checkpoint=output / "checkpoint.npz",
        )
        sessions = round(found.sessions) if isinstance(found, DayCounts) else found.total
        save_seeds(fitted, output, notes={"log": " ".join(log), "sessions": sessions})
    evidence = [one.evidence for one in fitted if one.evidence is not None]
    facts = {
        "model": model_name(fitted[0]),
        "learner": evidence[0].learner,
        "sessions": sessions,
        "pairs": fitted[0].vocabulary.n_pairs,
        "iterations": max(one.iterations for one in evidence),
        "converged": all(one.converged for one in evidence),
        **({"seeds": len(fitted)} if len(fitted) > 1 else {}),
        "output": str(output),
    }
    show(facts, json=json, title="Fitted model")


def evaluate(
    model: Path = typer.Argument(..., help="The folder that `clickshift fit` wrote."),
    log: str = typer.Argument(
        ..., help="The log: a .parquet, .csv or .jsonl file, a folder, a glob or FILE.duckdb::TABLE."
    ),
    json: bool = Json,
) -> None:
    """Perplexity and log-likelihood of a fitted model on a log; of several seeds, their mean and its 95 % interval."""
    from clickshift.counts.open_log import open_log
    from clickshift.metrics.click_prediction import evaluation_of_seeds
    from clickshift.models import model_name
    from clickshift.models.storage import load_seeds

    with warnings_shown(), progress("evaluating") as hear:
        fitted = load_seeds(model)
        facts = evaluation_of_seeds(fitted, open_log(log, progress=sessions_encoded(hear)))
    if fitted[0].peeks:
        facts["caution"] = "this model is shown the clicks that it predicts: its perplexity must not be compared."
    show(facts, json=json, title=f"{model_name(fitted[0])} on {log}")


def predict(
    model: Path = typer.Argument(..., help="The folder that `clickshift fit` wrote."),
    rankings: Path = typer.Argument(
        ..., help="The lists: a .parquet, .csv or .jsonl file with columns query and docs."
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="Where the forecast goes: .parquet, .csv or .jsonl."
    ),
    skip_bad: bool = typer.Option(
        False, "--skip-bad", help="Leave bad lists out, and say how many, instead of stopping."
    ),
    json: bool = Json,
) -> None:
    """Expected clicks of each list and of each of its results, with intervals where the model knows its errors.

    Intervals (95 %) are the delta method's, from the errors of the model's parameters, taken as independent.
    """
    from clickshift.io.rankings import read_rankings
    from clickshift.io.table_writer import table_ending, write_table
    from clickshift.models import model_name
    from clickshift.models.forecast import forecast, forecast_facts, forecast_table
    from clickshift.models.storage import load_model

    if output is not None:
        table_ending(output)
    with warnings_shown():
        fitted = load_model(model)
        lists = read_rankings(rankings, on_bad_line="skip" if skip_bad else "error")
        with progress("predicting", len(lists)) as advance:
            found = forecast(fitted, lists, progress=advance)
        table = found.table()
        if output is not None:
            write_table(
                table, output, notes={"model": model_name(fitted), "folder": str(model), "lists": str(rankings)}
            )
    facts = {"model": model_name(fitted), **forecast_facts(found)}
    if json:
        show_json(facts | ({"lists": table.to_pylist()} if output is None else {"output": str(output)}))
        return
    lines, rest = forecast_table(found)
    show_table(lines, title=f"Expected clicks, by {model_name(fitted)}", caption=rest)
    typer.echo(f"{facts['lists']:,} lists, {facts['unseen_share']:.1%} of their results unseen in training.")
    if output is not None:
        typer.echo(f"Forecast: {output}")


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
    from clickshift.judgments.grading import grade_documents, grading_facts, parse_grades
    from clickshift.models import model_name
    from clickshift.models.storage import load_model

    kind = judgments_format(output, format)
    parse_grades(grades)
    with warnings_shown(), progress("judging"):
        fitted = load_model(model)
        grading = grade_documents(fitted, grades=grades, min_impressions=min_impressions)
        notes = {"model": model_name(fitted), "folder": str(model), "min_impressions": min_impressions}
        files = write_judgments(grading, output, format=kind, notes=notes)
    facts = {
        "model": model_name(fitted),
        "format": kind,
        **grading_facts(grading),
        "files": [str(file) for file in files],
    }
    show(facts, json=json, title="Judgments")
