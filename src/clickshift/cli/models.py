"""clickshift fit, evaluate, predict, examine, judgments and models: click models on the command line."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import Any

import typer

from clickshift.cli._console import encoding_progress, progress, show, show_json, show_table, warnings_shown
from clickshift.cli._options import JSON, LOG, MODEL_FOLDER


def models(json: bool = JSON) -> None:
    """List every click model with its capabilities and its default learner."""
    rows = _models_table()
    if json:
        show_json({"models": rows})
        return
    show_table([{name.replace("_", " "): value for name, value in row.items()} for row in rows], title="Click models")


def _models_table() -> list[dict[str, Any]]:
    """Return a row for every click model; its learner is the one that `fit` uses, or None if there is no default."""
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
        ...,
        help="Click model, e.g. UBM or NCM, or a learner with options, e.g. \"Gradient('PBM', tower='free')\".",
    ),
    log: list[str] = typer.Argument(
        ...,
        help="Click log: a .parquet, .csv or .jsonl file, a folder, a glob, FILE.duckdb::TABLE, or an encoded log; "
        "or folders of daily counts.",
    ),
    output: Path = typer.Option(..., "--output", "-o", help="Folder for the fitted model."),
    seeds: int = typer.Option(
        1, min=1, help="Number of models to fit from different random seeds (models fitted by gradient only)."
    ),
    held_out: str | None = typer.Option(
        None,
        help="Held-out log for early stopping; by default, a tenth of the sessions (models fitted by gradient only).",
    ),
    corpus: str | None = typer.Option(None, help="LETOR file or folder with the features for tower='features'."),
    json: bool = JSON,
) -> None:
    """Fit a click model on a log and save it to a folder.

    A log may be larger than memory: it is encoded once, in a hidden folder next to it. Several folders of daily
    counts, which `clickshift log count` writes, are added.

    Models fitted by gradient report their progress and can be interrupted: the best parameters so far are kept, and
    the same command resumes from there.
    """
    from clickshift.counts.daily import DayCounts
    from clickshift.counts.open_log import open_log_or_counts
    from clickshift.learners.base import learner_for
    from clickshift.learners.fit import fit as fit_model
    from clickshift.models import model_name
    from clickshift.models.storage import save_seeds

    learner = learner_for(model)
    with warnings_shown(), progress(f"fitting {model}") as report:
        opened = open_log_or_counts(log if len(log) > 1 else log[0], progress=report)
        models = fit_model(
            learner,
            opened,
            seeds=seeds,
            held_out=held_out,
            features=corpus,
            progress=report,
            checkpoint=output / "checkpoint.npz",
        )
        fitted = models if isinstance(models, list) else [models]
        sessions = round(opened.sessions) if isinstance(opened, DayCounts) else opened.total
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


def evaluate(model: Path = MODEL_FOLDER, log: str = LOG, json: bool = JSON) -> None:
    """Compute the perplexity and log-likelihood of a fitted model on a log.

    For several seeds, each metric is their mean with a 95 % interval.
    """
    from clickshift.counts.open_log import open_log
    from clickshift.metrics.click_prediction import evaluation_of_seeds
    from clickshift.models import model_name
    from clickshift.models.storage import load_seeds

    with warnings_shown(), progress("evaluating") as report:
        fitted = load_seeds(model)
        facts = evaluation_of_seeds(fitted, open_log(log, progress=encoding_progress(report)))
    if fitted[0].peeks:
        facts["caution"] = (
            "this model sees the clicks that it predicts: its perplexity must not be compared with that of others."
        )
    show(facts, json=json, title=f"{model_name(fitted[0])} on {log}")


def predict(
    model: Path = MODEL_FOLDER,
    rankings: Path = typer.Argument(
        ..., help="Ranked lists: a .parquet, .csv or .jsonl file with the columns query and docs."
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="File for the predictions: .parquet, .csv or .jsonl."
    ),
    skip_bad: bool = typer.Option(
        False, "--skip-bad", help="Skip bad lists and report their number, instead of stopping."
    ),
    json: bool = JSON,
) -> None:
    """Predict the clicks of ranked lists and of each of their results, with intervals where the model has errors.

    The 95 % intervals are by the delta method, from the standard errors of the model's parameters, taken as
    independent.
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
            prediction = forecast(fitted, lists, progress=advance)
        table = prediction.table()
        if output is not None:
            write_table(
                table, output, notes={"model": model_name(fitted), "folder": str(model), "lists": str(rankings)}
            )
    facts = {"model": model_name(fitted), **forecast_facts(prediction)}
    if json:
        show_json(facts | ({"lists": table.to_pylist()} if output is None else {"output": str(output)}))
        return
    lines, rest = forecast_table(prediction)
    show_table(lines, title=f"Expected clicks, by {model_name(fitted)}", caption=rest)
    typer.echo(f"{facts['lists']:,} lists, {facts['unseen_share']:.1%} of their results unseen in training.")
    if output is not None:
        typer.echo(f"Predictions: {output}")


def examine(
    model: Path = MODEL_FOLDER,
    output: Path | None = typer.Option(None, "--output", "-o", help="File for the plot, one .html page."),
    json: bool = JSON,
) -> None:
    """Show the examination or continuation curve of a fitted model, with intervals, as a table and a plot."""
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


def judgments(
    model: Path = MODEL_FOLDER,
    output: Path = typer.Option(..., "--output", "-o", help="File for the judgments."),
    format: str | None = typer.Option(
        None, help="Format of the file: parquet, csv, qrels or lightgbm; by default, that of its ending."
    ),
    grades: str = typer.Option(
        "0.05,0.1,0.2,0.4", help="Ascending cut points of the relevance, or quantile:N for N grades of equal size."
    ),
    min_impressions: int = typer.Option(
        0, min=0, help="Smallest number of impressions of a (query, document) pair to be judged."
    ),
    json: bool = JSON,
) -> None:
    """Export graded relevance judgments with their uncertainty from a fitted model.

    They are written as a table, as TREC qrels, or as labels and weights for LightGBM.
    """
    from clickshift.judgments.export import judgments_format, write_judgments
    from clickshift.judgments.grading import grade_documents, grading_facts, parse_grades
    from clickshift.models import model_name
    from clickshift.models.storage import load_model

    kind = judgments_format(output, format)
    parse_grades(grades)
    with warnings_shown(), progress("grading"):
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


@wraps(judgments)
def relevance(*arguments: Any, **options: Any) -> None:
    """Run `judgments` under its former name."""
    typer.echo("clickshift: note: `relevance` is now `judgments`.", err=True)
    judgments(*arguments, **options)


relevance.__name__ = "relevance"  # which names the command
