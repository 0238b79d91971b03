"""fit: a click model from a log, whatever it is: sessions, files of any size, counts of days, a warehouse's table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from clickshift.core.spec import label
from clickshift.counts.cascade import Cascade
from clickshift.counts.cells import Cells
from clickshift.counts.daily import DayCounts, is_counts
from clickshift.counts.open_log import open_log
from clickshift.counts.warehouse import count_cascade, count_cells, is_warehouse_table
from clickshift.errors import SpecError
from clickshift.learners.base import Learner, learner_for
from clickshift.learners.counting import Counting
from clickshift.learners.likelihood import MaximumLikelihood
from clickshift.models.base import ClickModel


def fit(model: str | Learner, log: Any) -> ClickModel:
    """Fit a click model on a log: by name, with the learner that suits it, or with a learner of your own.

    The log is `Sessions`, what `open_log` opens (a path, a folder, a pattern, a table "FILE.duckdb::TABLE"), the counts
    of days, a DuckDB relation, a Spark data frame or an Ibis table.
    """
    learner = learner_for(model) if isinstance(model, str) else model
    return learner.fit(data_for(learner, _open_any(log)))


def _open_any(log: Any, *, progress: Callable[[int], None] = lambda rows: None) -> Any:
    """What a path leads to, counts of days or a log; anything else as it is."""
    if isinstance(log, str | Path) and is_counts(log):
        return DayCounts.load(log)
    return open_log(log, progress=progress) if isinstance(log, str | Path | list | tuple) else log


def open_all(paths: Sequence[str], *, progress: Callable[[int], None] = lambda rows: None) -> Any:
    """A log, or the sum of several counts of days; `progress` hears how many sessions of a large log are encoded."""
    if len(paths) == 1:
        return _open_any(paths[0], progress=progress)
    if no_counts := [path for path in paths if not is_counts(path)]:
        raise SpecError(
            f"several logs must be counts of days, which `clickshift log count` writes: {no_counts[0]} is none. "
            "Name the files of one log by its folder or a pattern in quotes."
        )
    return DayCounts.merged([DayCounts.load(path) for path in paths])


def data_for(learner: Learner, log: Any) -> Any:
    """What a learner needs of a log."""
    if isinstance(log, DayCounts):
        if not isinstance(learner, Counting | MaximumLikelihood):
            raise SpecError(f"{label(learner)} needs sessions, not counts of days. Give it the log itself.")
        return log.cascade if learner.by is None else log.cells
    return counts_for(learner, log) if is_warehouse_table(log) else log


def counts_for(learner: object, table: Any) -> Cells | Cascade:
    """What a learner needs of a table: `learner.fit(counts_for(learner, table))`."""
    if isinstance(learner, Counting | MaximumLikelihood):
        return count_cascade(table) if learner.by is None else count_cells(table, by=learner.by)
    raise SpecError(
        f"{label(learner)} needs the sessions of a log, not their counts: write the table to Parquet and read_log it, "
        "or choose a model that EM or Counting fits."
    )
