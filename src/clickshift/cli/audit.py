"""clickshift audit: do fitted models still know what the ranker of their log thought?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clickshift.cli.console import Json, printable, progress, show_json, show_table, warnings_shown

if TYPE_CHECKING:
    from clickshift.models.base import ClickModel

_STRATEGY = "PPL among top nDCG & mean dependence"


def audit(
    model: list[Path] = typer.Argument(..., help="Folders that `clickshift fit` wrote; several are compared."),
    log: str = typer.Argument(..., help="A log of the same ranker, best one that was not learned from."),
    labels: Path | None = typer.Option(None, help="Relevance labels: TREC qrels, or a table of query, doc, label."),
    random_log: str | None = typer.Option(
        None, help="Instead of labels: a log of lists in random order, whose clicks tell relevance."
    ),
    orderings: Path | None = typer.Option(
        None, help="Instead of labels: a table of query and docs, best first: preferences (two docs) or whole lists."
    ),
    grades: int = typer.Option(5, min=2, help="Relevance that is no label is parted into so many grades."),
    logging_scores: Path | None = typer.Option(
        None, help="What the ranker ranked by: a table of query, doc, score. By default, where it put documents."
    ),
    logging: str = typer.Option("rank", help="Without scores: 'rank' (mean rank) or 'exposure' (share of attention)."),
    within_queries: bool = typer.Option(
        False, "--within-queries", help="Compare ranks within queries: for scores that mean nothing between them."
    ),
    estimator: str = typer.Option("ksg", help="Of CMIP: 'ksg', or 'classifier', the published one (slow, biased)."),
    permutations: int = typer.Option(100, min=0, help="Shuffles that show what chance does."),
    subsamples: int = typer.Option(100, min=0, help="Halves of the queries, for intervals."),
    strategy: str = typer.Option(_STRATEGY, help="How to choose among several models; '?' lists the ways."),
    seed: int = typer.Option(0, help="Of shuffles, halves and ties."),
    output: Path | None = typer.Option(None, "--output", "-o", help="The folder for the rows and the report."),
    json: bool = Json,
) -> None:
    """Once the true relevance is known, does a model's estimate still say what the logging policy thought?

    Shows mean dependence and CMIP with intervals and chance levels, beside perplexity and nDCG, says what they mean,
    and recommends one of several models.
    """
    from clickshift.debiasedness.metrics import CMIP, MeanDependence
    from clickshift.experiments._audit_report import audit_table, choice_note, verdict, write_audit_report
    from clickshift.experiments.audit import Audit, choose_by_strategy, read_logging_scores, read_relevance
    from clickshift.experiments.model_selection.strategies import STRATEGIES
    from clickshift.experiments.model_selection.strategies import strategy as strategy_of
    from clickshift.io.read_log import read_log

    if strategy == "?":
        show_table([{"strategy": name, "chooses by": " then ".join(s.metrics)} for name, s in STRATEGIES.items()])
        return
    strategy_of(strategy)  # a wrong name is told before any work
    with warnings_shown(), progress("auditing", len(model)) as advance:
        models, sessions = _models(model), read_log(log)
        task = Audit(
            sessions,
            read_logging_scores(sessions, logging_scores, otherwise=logging),
            read_relevance(sessions, labels=labels, random_log=random_log, orderings=orderings, groups=grades),
            within_queries or orderings is not None,
            CMIP(estimator, permutations, subsamples),
            MeanDependence(permutations, subsamples),
            seed,
        )
        cautions = task.cautions(models)
        audited = list(task.run(models, progress=lambda done: advance(1)))
    facts = [one.facts for one in audited]
    chosen = {"strategy": strategy, "model": choose_by_strategy(strategy, facts)} if len(facts) > 1 else {}
    settings = {
        "models": [str(path) for path in model],
        "log": log,
        "labels": str(labels or random_log or orderings),
        "logging": str(logging_scores or logging),
        "estimator": estimator,
        "permutations": permutations,
        "subsamples": subsamples,
        "strategy": strategy,
        "seed": seed,
    }
    written = None if output is None else write_audit_report(output, audited, chosen, cautions, settings)
    report = None if written is None else str(written.page)
    if json:
        verdicts = [verdict(one) for one in facts]
        show_json({"rows": facts, "verdicts": verdicts, "chosen": chosen, "cautions": cautions, "report": report})
        return
    show_table(audit_table(facts), title=f"Debiasedness on {facts[0]['pairs']:,} judged pairs of {log}")
    for said in map(verdict, facts):
        typer.echo(f"{printable(said['model'])}: {said['verdict']}. {said['text']}\n")
    typer.echo("Random scores would be debiased too: read this beside perplexity and nDCG.")
    if chosen:
        typer.echo(printable(choice_note(chosen)))
    for text in cautions:
        typer.echo(f"clickshift: warning: {printable(text)}", err=True)
    if written is not None:
        typer.echo(f"Report: {written.page}   Rows: {written.rows}")


def _models(paths: list[Path]) -> dict[str, list[ClickModel]]:
    """By the names of the models, or of their folders where two are of a kind."""
    from clickshift.models import model_name
    from clickshift.models.storage import load_seeds

    fitted = {path: load_seeds(path) for path in dict.fromkeys(paths)}
    names = [model_name(seeds[0]) for seeds in fitted.values()]
    alone = {name for name in names if names.count(name) == 1}
    return {
        name if name in alone else f"{name} ({path})": seeds
        for name, (path, seeds) in zip(names, fitted.items(), strict=True)
    }
