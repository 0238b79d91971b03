"""clickshift audit: does a fitted model's relevance still depend on the logging policy?"""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli._console import render, reporting, show_table
from clickshift.cli._options import COLUMN, JSON, REPORT, SKIP_BAD, parse_columns


def audit(
    model: list[Path] | None = typer.Argument(
        None, help="Folders of fitted models, as `clickshift fit` writes them; several are compared."
    ),
    log: str = typer.Argument(..., help="Click log of the same ranker, preferably not the training log."),
    scores: list[str] = typer.Option(
        [],
        help="Scores of a model from elsewhere, audited like a fitted model: a table of query, doc and score, as FILE "
        "or NAME=FILE; repeatable.",
    ),
    labels: Path | None = typer.Option(None, help="Relevance labels: TREC qrels, or a table of query, doc, label."),
    labels_format: str = typer.Option(
        "table", help="Format of the labels: table for these two, or that of a public log, trec or yandex-wscd."
    ),
    random_log: str | None = typer.Option(
        None, help="Log of randomly ordered lists, whose click rates serve as relevance instead of labels."
    ),
    orderings: Path | None = typer.Option(
        None,
        help="Table of query and docs, best first, instead of labels: preferences (two docs) or whole lists.",
    ),
    grades: int = typer.Option(5, min=2, help="Number of grades that relevance is divided into if it is not graded."),
    logging_scores: Path | None = typer.Option(
        None, help="Scores of the logging policy: a table of query, doc, score. By default, they come from --logging."
    ),
    logging: str = typer.Option(
        "rank", help="Logging policy's preference without scores: 'rank' (mean rank) or 'exposure' (exposure share)."
    ),
    within_queries: bool = typer.Option(
        False, "--within-queries", help="Compare ranks within queries, for scores that differ in scale between queries."
    ),
    estimator: str = typer.Option(
        "ksg", help="Estimator of CMIP: 'ksg', or the published 'classifier' (slow, biased)."
    ),
    permutations: int = typer.Option(100, min=0, help="Number of permutations for the chance level."),
    subsamples: int = typer.Option(100, min=0, help="Number of half-samples of the queries for intervals."),
    strategy: str = typer.Option(
        "PPL among top nDCG & mean dependence",
        help="Strategy to choose among several models; '?' lists all strategies.",
    ),
    seed: int = typer.Option(0, help="Random seed for permutations, subsamples and tie-breaking."),
    column: list[str] = COLUMN,
    skip_bad: bool = SKIP_BAD,
    output: Path | None = REPORT,
    json: bool = JSON,
) -> None:
    """Test whether a model's relevance depends on the logging policy once the true relevance is known.

    Shows mean dependence and CMIP with intervals and chance levels, next to perplexity and nDCG, explains them in a
    verdict, and recommends one of several models.
    """
    from clickshift.experiments._audit_report import AuditResult
    from clickshift.experiments.audit import AUDIT_STRATEGIES
    from clickshift.experiments.audit import audit as audit_models

    if strategy == "?":
        rules = AUDIT_STRATEGIES.items()
        show_table(
            [
                {"strategy": name, "best by": s.optimise, "among the best by": " and ".join(s.filters)}
                for name, s in rules
            ]
        )
        return
    if output is not None:
        AuditResult.check_output(output)
    with reporting("auditing", len(model or []) + len(scores)) as progress:
        result = audit_models(
            model or [],
            log,
            scores=scores,
            labels=labels,
            labels_format=labels_format,
            random_log=random_log,
            orderings=orderings,
            grades=grades,
            logging_scores=logging_scores,
            logging=logging,
            within_queries=within_queries,
            estimator=estimator,
            permutations=permutations,
            subsamples=subsamples,
            strategy=strategy,
            seed=seed,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            progress=progress,
        )
    render(result, json=json, output=output)
