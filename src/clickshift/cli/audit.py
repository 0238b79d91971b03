"""clickshift audit: does a fitted model's relevance still depend on the logging policy?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clickshift.cli._console import printable, progress, show_json, show_table, show_warnings, warnings_shown
from clickshift.cli._experiment_runner import show_paths
from clickshift.cli._options import JSON, REPORT_FOLDER

if TYPE_CHECKING:
    from clickshift.models.base import ClickModel

_STRATEGY = "PPL among top nDCG & mean dependence"


def audit(
    model: list[Path] = typer.Argument(
        ..., help="Folders of fitted models, as `clickshift fit` writes them; several are compared."
    ),
    log: str = typer.Argument(..., help="Click log of the same ranker, preferably not the training log."),
    labels: Path | None = typer.Option(None, help="Relevance labels: TREC qrels, or a table of query, doc, label."),
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
    strategy: str = typer.Option(_STRATEGY, help="Strategy to choose among several models; '?' lists all strategies."),
    seed: int = typer.Option(0, help="Random seed for permutations, subsamples and tie-breaking."),
    output: Path | None = REPORT_FOLDER,
    json: bool = JSON,
) -> None:
    """Test whether a model's relevance depends on the logging policy once the true relevance is known.

    Shows mean dependence and CMIP with intervals and chance levels, next to perplexity and nDCG, explains them in a
    verdict, and recommends one of several models.
    """
    from clickshift.debiasedness.metrics import CMIP, MeanDependence
    from clickshift.experiments._audit_report import audit_table, choice_note, verdict, write_audit_report
    from clickshift.experiments.audit import Audit, choose_by_strategy, read_logging_scores, read_relevance
    from clickshift.experiments.model_selection.strategies import STRATEGIES
    from clickshift.experiments.model_selection.strategies import strategy_by_name as strategy_of
    from clickshift.io.read_log import read_log

    if strategy == "?":
        show_table([{"strategy": name, "chooses by": " then ".join(s.metrics)} for name, s in STRATEGIES.items()])
        return
    strategy_of(strategy)  # an unknown name is an error before any work
    with warnings_shown(), progress("auditing", len(model)) as advance:
        models, sessions = _load_models(model), read_log(log)
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
    verdicts = [verdict(one) for one in facts]
    if json:
        report = None if written is None else str(written.page)
        show_json({"rows": facts, "verdicts": verdicts, "chosen": chosen, "cautions": cautions, "report": report})
        return
    show_table(audit_table(facts), title=f"Debiasedness on {facts[0]['pairs']:,} judged pairs of {log}")
    for one in verdicts:
        typer.echo(f"{printable(one['model'])}: {one['verdict']}. {one['text']}\n")
    typer.echo("Random scores would be debiased too: read this together with perplexity and nDCG.")
    if chosen:
        typer.echo(printable(choice_note(chosen)))
    show_warnings(cautions)
    if written is not None:
        show_paths(written)


def _load_models(paths: list[Path]) -> dict[str, list[ClickModel]]:
    """Load the seeds of each model, by the model's name; with the folder added where two have the same name."""
    from clickshift.models import model_name
    from clickshift.models.storage import load_seeds

    fitted = {path: load_seeds(path) for path in dict.fromkeys(paths)}
    names = [model_name(seeds[0]) for seeds in fitted.values()]
    unique = {name for name in names if names.count(name) == 1}
    return {
        name if name in unique else f"{name} ({path})": seeds
        for name, (path, seeds) in zip(names, fitted.items(), strict=True)
    }
