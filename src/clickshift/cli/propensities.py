"""clickshift propensities: how likely each rank is examined."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clickshift.cli._console import Json, progress, show_json, show_table, warnings_shown

if TYPE_CHECKING:
    import numpy as np

    from clickshift.data.sessions import Sessions


def propensities(
    log: str = typer.Argument(..., help="The log: a .parquet, .csv or .jsonl file, a folder or a glob."),
    method: str = typer.Option(
        "harvesting",
        help="harvesting, swaps, regression-em, dual-learning, a click model to fit, e.g. PBM, or the folder of a "
        "fitted one.",
    ),
    corpus: str | None = typer.Option(
        None, help="The LETOR file or folder with the features that regression-em and dual-learning need."
    ),
    swapped: str | None = typer.Option(
        None, help="For swaps: the column with the rank that was swapped with the reference rank, 0 where none was."
    ),
    reference_rank: int = typer.Option(1, min=1, help="The rank whose examination counts as 1."),
    level: float = typer.Option(0.95, help="Of the intervals."),
    replicates: int | None = typer.Option(
        None, min=0, help="Resampled logs, for intervals; by default as many as the method can afford."
    ),
    seed: int = typer.Option(0, help="Of resampled logs."),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="Where the curve goes, for `rank train`: .json, .csv, .parquet or .jsonl."
    ),
    plot: Path | None = typer.Option(None, help="Where the plot goes: one .html page."),
    json: bool = Json,
) -> None:
    """How likely each rank is examined, told from clicks, with intervals, and whether the log can tell.

    Documents that were seen at several ranks tell a good place from a good document: several rankers will do
    (harvesting), or swaps at random. Without them, only features are left (regression-em, dual-learning).
    """
    from clickshift.display.document import check_page
    from clickshift.io.datasets.letor import read_corpus
    from clickshift.io.read_log import read_log
    from clickshift.models.storage import load_model
    from clickshift.propensity._report import propensities_table, propensities_title, write_propensities_report
    from clickshift.propensity.estimate import propensities as estimated
    from clickshift.propensity.estimate import write_propensities
    from clickshift.propensity.files import check_propensities_file

    if output is not None:
        check_propensities_file(output)
    if plot is not None:
        check_page(plot)
    with warnings_shown(), progress(f"propensities by {method}") as hear:
        marked, sessions = (None, read_log(log)) if swapped is None else _with_swaps(log, swapped)
        found = estimated(
            sessions,
            load_model(method) if Path(method).is_dir() else method,
            corpus=None if corpus is None else read_corpus(corpus),
            swapped=marked,
            reference_rank=reference_rank - 1,
            level=level,
            replicates=replicates,
            seed=seed,
            progress=hear,
        )
        if output is not None:
            write_propensities(found, output)
        if plot is not None:
            settings = {
                "log": log,
                "method": method,
                "corpus": corpus,
                "swapped": swapped,
                "level": level,
                "seed": seed,
            }
            write_propensities_report(plot, found, settings)
    if json:
        show_json(
            {
                "method": found.method,
                "reference_rank": found.reference_rank + 1,
                "level": found.level,
                "interval": found.interval,
                "ranks": found.table(),
                "warnings": found.warnings,
                "output": None if output is None else str(output),
                "plot": None if plot is None else str(plot),
            }
        )
        return
    show_table(propensities_table(found), title=propensities_title(found))
    for what, path in (("Propensities", output), ("Plot", plot)):
        if path is not None:
            typer.echo(f"{what}: {path}")


def _with_swaps(log: str, column: str) -> tuple[np.ndarray, Sessions]:
    """The log, and the rank that was swapped, from 0; -1 where none was."""
    import numpy as np

    from clickshift.errors import ClickshiftError, DataError
    from clickshift.io.read_log import read_log

    wrong = DataError(f"--swapped: column {column} must hold ranks, whole numbers, and 0 where none was swapped.")
    try:
        # the reader knows one number of a session: the rank stands in for the time, for which nothing here asks
        sessions = read_log(log, columns={"time": column})
    except ClickshiftError as error:
        read_log(log)  # says what is wrong with the log, if it is not the column
        raise error if f"no column {column}" in str(error) else wrong from None
    rank = np.asarray(sessions.time)
    if rank.dtype.kind not in "iuf" or (rank != np.rint(rank)).any():
        raise wrong
    return rank.astype(np.int64) - 1, sessions
