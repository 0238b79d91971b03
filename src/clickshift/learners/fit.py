"""fit: a click model from any log: sessions, files of any size, daily counts, a table of a warehouse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clickshift.core.progress import Progress, silent
from clickshift.core.spec import label
from clickshift.counts.cascade import Cascade
from clickshift.counts.cells import Cells
from clickshift.counts.daily import DayCounts, is_counts
from clickshift.counts.open_log import open_log
from clickshift.counts.warehouse import count_cascade, count_cells, is_warehouse_table
from clickshift.errors import SpecError
from clickshift.io.read_report import OnBadLine
from clickshift.learners._provenance import with_provenance
from clickshift.learners.base import Learner, fit_seeds, learner_for
from clickshift.learners.counting import Counting
from clickshift.learners.likelihood import MaximumLikelihood

__all__ = ["counts_for", "data_for", "fit", "open_all"]


def fit(
    model: str | Learner,
    log: Any,
    *,
    seeds: int = 1,
    held_out: Any = None,
    features: Any = None,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
    checkpoint: str | Path | None = None,
) -> Any:
    """Fit a click model on a log.

    Parameters
    ----------
    model
        A model by name ("UBM"), which gets its default learner; a learner as text
        ("MaximumLikelihood('UBM', starts=3)"); or a learner.
    log
        `Sessions`, anything that `open_log` opens (a path, a folder, a pattern, a table "FILE.duckdb::TABLE"), daily
        counts, a DuckDB relation, a Spark data frame or an Ibis table.
    seeds
        Number of models to fit from different random seeds (models fitted by gradient only).
    held_out
        Held-out log for early stopping (models fitted by gradient only).
    features
        Corpus with the features for ``tower="features"``, or its file.
    columns
        Names of the log's columns, by the names that `read_log` expects.
    on_bad_line
        "error", or "skip" to leave out bad sessions.
    progress
        Called with the state of the work.
    checkpoint
        File in which training is saved from time to time, and from which it is resumed.

    Returns
    -------
    ClickModel or list of ClickModel
        The fitted model; for several seeds, a list of one model each.

    Raises
    ------
    SpecError
        If the text names no model or learner ("unknown-name"), or if the learner needs sessions and `log` has only
        counts ("needs-sessions").

    Examples
    --------
    >>> import numpy as np
    >>> from clickshift.data.sessions import Rankings, Sessions
    >>> from clickshift.data.vocabulary import Vocabulary
    >>> vocabulary, _, _ = Vocabulary.of(["shoes", "shoes"], ["a", "b"])
    >>> lists = Rankings(vocabulary, np.array([0, 0]), np.array([[0, 1], [1, 0]]), np.ones((2, 2), bool))
    >>> log = Sessions(lists, np.array([[True, False], [False, True]]))
    >>> fit("dCTR", log).relevance().tolist()
    [0.75, 0.25]
    """
    from clickshift.io.datasets.letor import read_corpus

    learner = learner_for(model) if isinstance(model, str) else model
    several = isinstance(log, list | tuple) and len(log) > 1
    opened = open_all(log) if several else _open_any(log, columns=columns, on_bad_line=on_bad_line, progress=progress)
    data = data_for(learner, opened)
    if seeds == 1 and held_out is None and features is None and not hasattr(learner, "fit_seeds"):
        return with_provenance(learner.fit(data), opened, log)
    models = fit_seeds(
        learner,
        data,
        seeds,
        held_out=None if held_out is None else _open_any(held_out, columns=columns, on_bad_line=on_bad_line),
        corpus=read_corpus(features) if isinstance(features, str | Path) else features,
        progress=progress,
        checkpoint=checkpoint,
    )
    kept = [with_provenance(one, opened, log) for one in models]
    return kept[0] if seeds == 1 else kept


def _open_any(log: Any, **options: Any) -> Any:
    """Open a path, as daily counts or as a log; return anything else unchanged."""
    if isinstance(log, list | tuple) and len(log) == 1:
        log = log[0]
    if isinstance(log, str | Path) and is_counts(log):
        return DayCounts.load(log)
    return open_log(log, **options) if isinstance(log, str | Path | list | tuple) else log


def open_all(paths: Sequence[Any]) -> Any:
    """Open one log, or the sum of several daily counts.

    Parameters
    ----------
    paths
        One path of anything that `open_log` opens, or several paths of daily counts.

    Returns
    -------
    Sessions, EncodedLog or DayCounts
        The log, or the merged counts.

    Raises
    ------
    SpecError
        If there are several paths and one of them is not daily counts ("not-daily-counts").
    """
    if len(paths) == 1:
        return _open_any(paths[0])
    if not_counts := [path for path in paths if not is_counts(path)]:
        raise SpecError(
            "several logs must be daily counts, which `clickshift log count` writes: "
            f"{not_counts[0]} is not. Name the files of one log by its folder or by a pattern in quotes.",
            code="not-daily-counts",
            value=not_counts[0],
        )
    return DayCounts.merged([DayCounts.load(path) for path in paths])


def data_for(learner: Learner, log: Any) -> Any:
    """Return the part of a log that a learner needs: sessions, or sufficient statistics.

    Parameters
    ----------
    learner
        The learner.
    log
        A log, daily counts or a table of a warehouse.

    Returns
    -------
    Sessions, EncodedLog, Cells or Cascade
        The argument of the learner's `fit` method.

    Raises
    ------
    SpecError
        If the learner needs sessions, and `log` has only counts ("needs-sessions").
    """
    if isinstance(log, DayCounts):
        if not isinstance(learner, Counting | MaximumLikelihood):
            raise SpecError(
                f"{label(learner)} needs sessions, not daily counts. Pass the log itself.",
                code="needs-sessions",
                learner=label(learner),
            )
        return log.cascade if learner.by is None else log.cells
    return counts_for(learner, log) if is_warehouse_table(log) else log


def counts_for(learner: object, table: Any) -> Cells | Cascade:
    """Count what a learner needs in a table of a warehouse: ``learner.fit(counts_for(learner, table))``.

    Parameters
    ----------
    learner
        `Counting` or `MaximumLikelihood`.
    table
        A DuckDB relation, a Spark data frame or an Ibis table.

    Returns
    -------
    Cells or Cascade
        The sufficient statistics of the learner's model.

    Raises
    ------
    SpecError
        If the learner needs sessions ("needs-sessions").
    """
    if isinstance(learner, Counting | MaximumLikelihood):
        return count_cascade(table) if learner.by is None else count_cells(table, by=learner.by)
    raise SpecError(
        f"{label(learner)} needs the sessions of a log, not their counts. Write the table to Parquet and read it with "
        "read_log, or choose a model that MaximumLikelihood or Counting fits.",
        code="needs-sessions",
        learner=label(learner),
    )
