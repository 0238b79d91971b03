"""The part of `clickshift reproduce` that compares neural click models with pointwise IPS rankers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clickshift.cli._experiment_runner import Pool
    from clickshift.display.export import Written
    from clickshift.experiments.papers import AnalyticProtocol, TrainedProtocol


def run_and_report(protocol: TrainedProtocol, output: Path, *, pool: Pool, json: bool) -> None:
    """Run an experiment of the IPS paper and write its report.

    Finished tasks are kept in the folder: after an interruption, only the missing ones run.
    """
    from clickshift.cli._experiment_runner import run_with_progress
    from clickshift.core.spec import key
    from clickshift.experiments.click_vs_ips import checks, tuning
    from clickshift.experiments.click_vs_ips import protocol as pointwise
    from clickshift.experiments.click_vs_ips._report import (
        write_checks_report,
        write_pointwise_report,
        write_tuning_report,
    )
    from clickshift.experiments.runner import RunFolder

    folder, settings = RunFolder(output), {"protocol": key(protocol), "data": protocol.data.corpus}
    folder.write_settings(settings)
    by_protocol: dict[type, tuple[Any, Any]] = {
        pointwise.Pointwise: (pointwise.rows_of, write_pointwise_report),
        tuning.Tuning: (tuning.rows_of, write_tuning_report),
        checks.PointwiseChecks: (checks.rows_of, write_checks_report),
    }
    work, write = by_protocol[type(protocol)]
    cells = protocol.cells()
    failures = run_with_progress(cells, work, folder, pool, name=lambda cell: cell.name)
    if any(map(folder.has, cells)):
        rows = folder.rows(cells)
        _show(rows, write(output, rows, settings), json=json)
    failures.raise_if_any()


def show_analytic(protocol: AnalyticProtocol, output: Path, *, json: bool) -> None:
    """Compute figures that need no training and write their report; their rows are too cheap to be kept by task."""
    from clickshift.core.spec import key
    from clickshift.experiments.click_vs_ips._report import write_gradient_report, write_losses_report
    from clickshift.experiments.click_vs_ips.losses import GradientByRank

    rows = protocol.rows()
    write = write_gradient_report if isinstance(protocol, GradientByRank) else write_losses_report
    _show(rows, write(output, rows, {"protocol": key(protocol)}), json=json)


def _show(rows: list[dict[str, Any]], written: Written, *, json: bool) -> None:
    """Print the rows as JSON, or the report's tables."""
    from clickshift.cli._console import show_json
    from clickshift.cli._experiment_runner import show_written

    if json:
        show_json({"rows": rows, "report": str(written.page)})
    else:
        show_written(written)
