"""clickshift fit: learn a click model from a log."""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli.console import Json, progress, show, warnings_shown


def fit(
    model: str = typer.Argument(..., help="A model, e.g. dCTR, or a learner with options, e.g. \"Counting('dCTR')\"."),
    log: str = typer.Argument(..., help="The log: a .parquet, .csv or .jsonl file, a folder or a glob."),
    output: Path = typer.Option(..., "--output", "-o", help="The folder for the model."),
    json: bool = Json,
) -> None:
    """Learn a click model from a log and keep it in a folder."""
    from clickshift.learners import fit as learn
    from clickshift.learners import learner_for
    from clickshift.models import model_name
    from clickshift.models.storage import save_model
    from clickshift.readers.tabular import read_log

    learner = learner_for(model)
    with warnings_shown(), progress(f"fitting {model}"):
        sessions = read_log(log)
        fitted = learn(learner, sessions)
        save_model(fitted, output, notes={"log": str(log), "sessions": sessions.total})
    evidence = fitted.evidence
    assert evidence is not None
    facts = {
        "model": model_name(fitted),
        "learner": evidence.learner,
        "sessions": sessions.total,
        "pairs": fitted.vocabulary.n_pairs,
        "iterations": evidence.iterations,
        "converged": evidence.converged,
        "output": str(output),
    }
    show(facts, json=json, title="Fitted model")
