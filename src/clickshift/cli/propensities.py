"""clickshift propensities: estimate the position bias of a log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clickshift.cli._console import progress, show_json, show_table, warnings_shown
from clickshift.cli._options import JSON, LOG_FILES

if TYPE_CHECKING:
    import numpy as np

    from clickshift.data.sessions import Sessions


def propensities(
    log: str = LOG_FILES,
    method: str = typer.Option(
        "harvesting",
        help="Method: harvesting, swaps, regression-em, dual-learning, a click model to fit, e.g. PBM, or the folder "
        "of a fitted one.",
    ),
    corpus: str | None = typer.Option(
        None, help="LETOR file or folder with the features that regression-em and dual-learning need."
    ),
    swapped: str | None = typer.Option(
        None,
        help="Column, for the method swaps, of the rank that was swapped with the reference rank, 0 where none was.",
    ),
    reference_rank: int = typer.Option(1, min=1, help="Reference rank, whose examination probability is set to 1."),
    level: float = typer.Option(0.95, help="Confidence level of the intervals."),
    replicates: int | None = typer.Option(
        None, min=0, help="Number of bootstrap replicates for intervals; the default depends on the method's cost."
    ),
    seed: int = typer.Option(0, help="Random seed for the bootstrap."),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="File for the curve, which `rank train` reads: .json, .csv, .parquet or .jsonl."
    ),
    plot: Path | None = typer.Option(None, help="File for the plot, one .html page."),
    json: bool = JSON,
) -> None:
    """Estimate the examination probability of each rank from clicks, with intervals and a check of identifiability.

    Position bias is identified by documents that were shown at several ranks: by several rankers (harvesting) or by
    random swaps (swaps). Without them, only features can help (regression-em, dual-learning).
    """
    from clickshift.display.document import check_page
    from clickshift.io.datasets.letor import read_corpus
    from clickshift.io.read_log import read_log
    from clickshift.models.storage import load_model
    from clickshift.propensity._report import propensities_table, propensities_title, write_propensities_report
    from clickshift.propensity.estimate import propensities as estimate_propensities
    from clickshift.propensity.estimate import write_propensities
    from clickshift.propensity.files import check_propensities_file

    if output is not None:
        check_propensities_file(output)
    if plot is not None:
        check_page(plot)
    with warnings_shown(), progress(f"propensities by {method}") as report:
        swapped_rank, sessions = (None, read_log(log)) if swapped is None else _read_swaps(log, swapped)
        curve = estimate_propensities(
            sessions,
            load_model(method) if Path(method).is_dir() else method,
            corpus=None if corpus is None else read_corpus(corpus),
            swapped=swapped_rank,
            reference_rank=reference_rank - 1,
            level=level,
            replicates=replicates,
            seed=seed,
            progress=report,
        )
        if output is not None:
            write_propensities(curve, output)
        if plot is not None:
            settings = {
                "log": log,
                "method": method,
                "corpus": corpus,
                "swapped": swapped,
                "level": level,
                "seed": seed,
            }
            write_propensities_report(plot, curve, settings)
    if json:
        show_json(
            {
                "method": curve.method,
                "reference_rank": curve.reference_rank + 1,
                "level": curve.level,
                "interval": curve.interval,
                "ranks": curve.table(),
                "warnings": curve.warnings,
                "output": None if output is None else str(output),
                "plot": None if plot is None else str(plot),
            }
        )
        return
    show_table(propensities_table(curve), title=propensities_title(curve))
    for name, path in (("Propensities", output), ("Plot", plot)):
        if path is not None:
            typer.echo(f"{name}: {path}")


def _read_swaps(log: str, column: str) -> tuple[np.ndarray, Sessions]:
    """Read a log with the rank that was swapped in each session, from 0, or -1 where none was."""
    import numpy as np

    from clickshift.errors import ClickshiftError, DataError, FileError
    from clickshift.io.read_log import read_log

    not_ranks = DataError(
        f"--swapped: column {column} must hold ranks, whole numbers, and 0 where none was swapped.",
        code="not-ranks",
        column=column,
    )
    try:
        # the reader has one free number per session, the time, which is not used here: the rank takes its place
        sessions = read_log(log, columns={"time": column})
    except ClickshiftError as error:
        read_log(log)  # raises the error of the log itself, if it is not the column
        if isinstance(error, FileError) and error.code == "unknown-column":
            listed = ", ".join(error.facts["known"]) or "none"
            problem = f"there is no column {column}, which --swapped names: the file has {listed}."
            raise FileError(error.path, problem, code=error.code, **error.facts) from None
        raise not_ranks from None
    rank = np.asarray(sessions.time)
    if rank.dtype.kind not in "iuf" or (rank != np.rint(rank)).any():
        raise not_ranks
    return rank.astype(np.int64) - 1, sessions
