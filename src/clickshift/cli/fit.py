"""clickshift fit: learn a click model from a log."""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli.console import Json, progress, sessions_encoded, show, warnings_shown


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
    from clickshift.learners.fit import data_for, opened_all
    from clickshift.models import model_name
    from clickshift.models.storage import save_seeds

    learner = learner_for(model)
    with warnings_shown(), progress(f"fitting {model}") as hear:
        found = opened_all(log, progress=sessions_encoded(hear))
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
