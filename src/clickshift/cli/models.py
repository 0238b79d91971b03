"""clickshift fit, evaluate, predict, examine, judgments and models: click models on the command line."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import Any

import typer

from clickshift.cli._console import check_report, render, reporting, say, warnings_shown
from clickshift.cli._options import COLUMN, EXACT, JSON, LEVEL, LOG, MODEL_FOLDER, PAGE, REPORT, SKIP_BAD, parse_columns


def models(json: bool = JSON) -> None:
    """List every click model with its capabilities and its default learner."""
    from clickshift.learners.model_list import list_models

    render(list_models(), json=json)


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
    by: str | None = typer.Option(
        None,
        help="Column of the log, e.g. device, by which examination (PBM, UBM) or continuation (DBN, DCM, CCM) differs; "
        "attractiveness is shared.",
    ),
    seeds: int = typer.Option(
        1, min=1, help="Number of models to fit from different random seeds (models fitted by gradient only)."
    ),
    held_out: str | None = typer.Option(
        None,
        help="Held-out log for early stopping; by default, a tenth of the sessions (models fitted by gradient only).",
    ),
    corpus: str | None = typer.Option(None, help="LETOR file or folder with the features for tower='features'."),
    groups: Path | None = typer.Option(
        None, help="Table of query and group, e.g. of `clickshift log group`: queries that share their documents."
    ),
    report: Path | None = PAGE,
    column: list[str] = COLUMN,
    skip_bad: bool = SKIP_BAD,
    json: bool = JSON,
) -> None:
    """Fit a click model on a log and save it to a folder.

    A log may be larger than memory: it is encoded once, in a hidden folder next to it. Several folders of daily
    counts, which `clickshift log count` writes, are added.

    Models fitted by gradient report their progress and can be interrupted: the best parameters so far are kept, and
    the same command resumes from there.
    """
    from clickshift.learners.fit import fit as fit_model
    from clickshift.models.summary import ModelSummary

    check_report(report)
    with reporting(f"fitting {model}") as progress:
        fitted = fit_model(
            model,
            log if len(log) > 1 else log[0],
            by=by,
            seeds=seeds,
            held_out=held_out,
            features=corpus,
            groups=groups,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            progress=progress,
            checkpoint=output / "checkpoint.npz",
        )
    summary = ModelSummary(tuple(fitted) if isinstance(fitted, list) else (fitted,))
    render(summary, json=json, output=output, report=report)


def evaluate(
    model: Path = MODEL_FOLDER,
    log: str = LOG,
    output: Path | None = REPORT,
    exact: bool = EXACT,
    column: list[str] = COLUMN,
    skip_bad: bool = SKIP_BAD,
    json: bool = JSON,
) -> None:
    """Compute the perplexity and log-likelihood of a fitted model on a log.

    For several seeds, each metric is their mean with a 95 % interval.
    """
    from clickshift.metrics.model_evaluation import ClickPrediction
    from clickshift.metrics.model_evaluation import evaluate as evaluate_model

    if output is not None:
        ClickPrediction.check_output(output)
    with reporting("evaluating") as progress:
        result = evaluate_model(
            model,
            log,
            exact=exact,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            progress=progress,
        )
    render(result, json=json, output=output)


def predict(
    model: Path = MODEL_FOLDER,
    rankings: str = typer.Argument(
        ..., help="Ranked lists: a click log, or one without clicks: a file, folder, glob or FILE.duckdb::TABLE."
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="File for the predictions (.parquet, .csv or .jsonl), page (.html) or folder."
    ),
    report: Path | None = PAGE,
    exact: bool = EXACT,
    column: list[str] = COLUMN,
    skip_bad: bool = typer.Option(
        False, "--skip-bad", help="Skip bad lists and report their number, instead of stopping."
    ),
    json: bool = JSON,
) -> None:
    """Predict the clicks of ranked lists and of each of their results, with intervals where the model has errors.

    The 95 % intervals are by the delta method, from the standard errors of the model's parameters, taken as
    independent.
    """
    from clickshift.models.forecast import Forecast
    from clickshift.models.forecast import predict as predict_clicks

    if output is not None:
        Forecast.check_output(output)
    check_report(report)
    with reporting("predicting") as progress:
        result = predict_clicks(
            model,
            rankings,
            exact=exact,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            progress=progress,
        )
    render(result, json=json, output=output, report=report)


def examine(
    model: Path = MODEL_FOLDER,
    output: Path | None = REPORT,
    json: bool = JSON,
) -> None:
    """Show the examination or continuation curve of a fitted model, with intervals, as a table and a plot."""
    from clickshift.models.summary import Examination, examination

    if output is not None:
        Examination.check_output(output)
    with reporting("examining"):
        result = examination(model)
    render(result, json=json, output=output)


def judgments(
    model: Path = MODEL_FOLDER,
    output: Path | None = typer.Option(None, "--output", "-o", help="File for the judgments, or page (.html)."),
    format: str | None = typer.Option(
        None,
        "--for",
        "--format",
        help="What the file is for: opensearch, quepid, quepid-rre, rre, trec, ltr, ranx, lightgbm, xgboost, parquet "
        "or csv; by default, that of its ending.",
    ),
    value: str | None = typer.Option(
        None,
        help="Value of a click, for relevance as an expected value: a signal of --log, e.g. purchase or revenue, or a "
        "weighted sum such as 'click + 3*cart + 10*purchase'.",
    ),
    log: str | None = typer.Option(None, help="Click log with the signals of --value."),
    grades: str | None = typer.Option(
        None,
        help="Ascending cut points of the relevance, or quantile:N for N grades of equal size; by default "
        "0.05,0.1,0.2,0.4, and quantile:5 with --value.",
    ),
    min_impressions: int = typer.Option(
        0, min=0, help="Smallest number of impressions of a (query, document) pair to be judged."
    ),
    keep_prior: bool = typer.Option(
        False, "--keep-prior", help="Keep pairs whose grade the prior decides, marked in the column grade_from."
    ),
    groups: Path | None = typer.Option(
        None, help="Table of query and group, e.g. of `clickshift log group`: queries that share their documents."
    ),
    query_text: Path | None = typer.Option(
        None, help="Table with the columns query and text: the texts of the queries, if the log has ids."
    ),
    level: float = LEVEL,
    report: Path | None = PAGE,
    column: list[str] = COLUMN,
    skip_bad: bool = SKIP_BAD,
    json: bool = JSON,
) -> None:
    """Export graded relevance judgments with their evidence from a fitted model.

    They are written as a table, as TREC qrels, for OpenSearch, Quepid or RRE, or as labels for a ranker. Documents
    about which the log says too little are left out and counted: their grade would be that of the prior.
    """
    from clickshift.errors import SpecError
    from clickshift.grading.graded_judgments import GradedJudgments
    from clickshift.grading.graded_judgments import judgments as grade

    if output is None and format is not None:
        raise SpecError(
            f"--for {format} must have a file to write: no --output was given. Name one.",
            code="bad-option",
            option="format",
            value=format,
        )
    if output is not None:
        GradedJudgments.check_output(output, format)
    check_report(report)
    with warnings_shown():
        with reporting("grading") as progress:
            result = grade(
                model,
                value=value,
                log=log,
                grades=grades,
                min_impressions=min_impressions,
                keep_prior=keep_prior,
                query_text=query_text,
                groups=groups,
                level=level,
                format=format,
                columns=parse_columns(column),
                on_bad_line="skip" if skip_bad else "error",
                progress=progress,
            )
        render(result, json=json, output=output, report=report)


@wraps(judgments)
def relevance(*arguments: Any, **options: Any) -> None:
    """Run `judgments` under its former name."""
    say("clickshift: note: `relevance` is now `judgments`.")
    judgments(*arguments, **options)


relevance.__name__ = "relevance"  # which names the command
