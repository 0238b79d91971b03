"""fit: a click model from any log: files of any size, data frames, sessions, daily counts, a table of a warehouse."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

from clickshift.core.progress import Progress, silent
from clickshift.core.spec import label
from clickshift.counts.daily import DayCounts
from clickshift.counts.open_log import LogLike, open_log, open_log_or_counts
from clickshift.counts.query_groups import QueryGroups
from clickshift.counts.segment_differences import segment_differences
from clickshift.counts.severe_defects import warn_of_severe_defects
from clickshift.counts.warehouse import can_be_counted, count_cascade, count_cells, is_warehouse_table
from clickshift.data.corpus import Corpus
from clickshift.data.encoded_log import EncodedLog, Log
from clickshift.data.sessions import Sessions
from clickshift.errors import ClickshiftWarning, SpecError
from clickshift.io.read_report import OnBadLine
from clickshift.io.tables.extra_columns import columns_with
from clickshift.learners._provenance import with_provenance
from clickshift.learners.base import Learner, Requirement, fit_seeds, learner_for
from clickshift.learners.likelihood import SEGMENTED, MaximumLikelihood
from clickshift.learners.shared_attractiveness import share_attractiveness
from clickshift.models import model_name
from clickshift.models.base import ClickModel
from clickshift.models.segmented import Segmented

__all__ = ["data_for", "fit"]


@overload
def fit(
    model: str | Learner,
    log: LogLike,
    *,
    by: str | None = None,
    seeds: Literal[1] = 1,
    held_out: LogLike | None = None,
    features: Corpus | str | Path | None = None,
    groups: QueryGroups | str | Path | Any | None = None,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
    checkpoint: str | Path | None = None,
) -> ClickModel: ...
@overload
def fit(
    model: str | Learner,
    log: LogLike,
    *,
    by: str | None = None,
    seeds: int,
    held_out: LogLike | None = None,
    features: Corpus | str | Path | None = None,
    groups: QueryGroups | str | Path | Any | None = None,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
    checkpoint: str | Path | None = None,
) -> ClickModel | list[ClickModel]: ...
def fit(
    model: str | Learner,
    log: LogLike,
    *,
    by: str | None = None,
    seeds: int = 1,
    held_out: LogLike | None = None,
    features: Corpus | str | Path | None = None,
    groups: QueryGroups | str | Path | Any | None = None,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
    checkpoint: str | Path | None = None,
) -> ClickModel | list[ClickModel]:
    """Fit a click model on a log.

    Warns ("segments-differ") if the log has segments (other than the arm of an experiment) whose users clearly click
    differently on the same documents at the same ranks, and the model has one curve for all of them.

    Parameters
    ----------
    model
        A model by name ("UBM"), which gets its default learner; a learner as text
        ("MaximumLikelihood('UBM', starts=3)"); or a learner.
    log
        Anything that `open_log` opens: a path, a folder, a pattern, a table "FILE.duckdb::TABLE", a data frame
        (pandas, Polars, Arrow), `Sessions`, an encoded log. A DuckDB relation, a Spark data frame or an Ibis table is
        counted where it is, if counts are enough for the learner. Also daily counts, or several of them, which are
        added.
    by
        Segment of sessions, e.g. "device", by which PBM and UBM learn examination, and DBN, DCM and CCM continuation;
        attractiveness and satisfaction are shared. It names a segment of the log, or a column that becomes one.
    seeds
        Number of models to fit, each from another random seed; above 1 only for models that are fitted by gradient.
    held_out
        Log that decides when training by gradient stops; by default, a part of `log` is held out.
    features
        Corpus with the features for ``Gradient(tower="features")``, or its LETOR file or folder.
    groups
        Groups of queries between which the attractiveness of documents is shared (`share_attractiveness`): the result
        of `group_queries`, or a table with the columns query and group.
    columns
        The log's names of our columns, e.g. ``{"doc": "product_id"}``; common ones are recognised.
    on_bad_line
        "error", or "skip" to leave out bad sessions and report their number.
    progress
        Called with a text on the state of the work.
    checkpoint
        File in which training by gradient is saved from time to time, and from which it is resumed.

    Returns
    -------
    ClickModel or list of ClickModel
        The fitted model; for `seeds` above 1, one model per seed.

    Raises
    ------
    SpecError
        If the text names no model or learner ("unknown-name"), the learner needs sessions and `log` has only counts
        ("needs-sessions"), it takes no seeds, held-out log or features ("bad-option"), or it cannot be fitted by
        segment ("cannot-segment").
    CapabilityError
        If the model has no attractiveness to share between groups of queries ("no-attractiveness").
    DataError, FileError
        If the log cannot be read; see `read_log`. If it does not have the segment ("no-segment"), only one of its
        labels ("one-segment"), or too many ("too-many-segments").

    Examples
    --------
    >>> import pandas as pd
    >>> log = pd.DataFrame({"query": ["shoes"] * 2, "docs": [["a", "b"], ["b", "a"]], "clicks": [[1, 0], [0, 1]]})
    >>> fit("dCTR", log).relevance().tolist()
    [0.75, 0.25]
    """
    learner = learner_for(model) if isinstance(model, str) else model
    if by is not None:
        learner, columns = by_segment(learner, by), columns_with(columns, segments=[by])
    if isinstance(features, str | Path):
        from clickshift.io.datasets.letor import read_corpus

        features = read_corpus(features)
    if held_out is not None:
        held_out = open_log(held_out, columns=columns, on_bad_line=on_bad_line, progress=progress)
    opened = _open_for(learner, log, columns, on_bad_line, progress)
    warn_of_severe_defects(opened)
    data = _needed_part(learner, opened)
    models = fit_seeds(
        learner, data, seeds, held_out=held_out, corpus=features, progress=progress, checkpoint=checkpoint
    )
    models = [with_provenance(one, opened, log) for one in models]
    if groups is not None:
        models = [share_attractiveness(one, groups) for one in models]
    if isinstance(data, Sessions | EncodedLog):
        _warn_of_differences(data, models[0])
    return models[0] if seeds == 1 else models


def by_segment(learner: Learner, segment: str) -> Learner:
    """Return a learner that learns a curve per segment.

    Parameters
    ----------
    learner
        A learner of one curve.
    segment
        Name of the segment.

    Raises
    ------
    SpecError
        If the learner cannot ("cannot-segment").

    Examples
    --------
    >>> by_segment(MaximumLikelihood("PBM"), "device").segment
    'device'
    """
    if not isinstance(learner, MaximumLikelihood):
        raise SpecError(
            f"{label(learner)} cannot be fitted by {segment}. Models that can: {', '.join(SEGMENTED)}.",
            code="cannot-segment",
            model=label(learner),
            segment=segment,
            known=list(SEGMENTED),
        )
    return replace(learner, segment=segment)


def _warn_of_differences(log: Log, model: ClickModel) -> None:
    """Warn if a model has one curve for segments whose users clearly click differently."""
    if isinstance(model, Segmented) or not model.predicts_clicks:
        return
    for name, difference in segment_differences(log).items():
        if difference.is_clear:
            warnings.warn(
                ClickshiftWarning(
                    f"{difference.sentence(name)} {model_name(model)} has one curve for all. To fit one for each, pass "
                    f'by="{name}" (--by {name}) for {", ".join(SEGMENTED)}.',
                    code="segments-differ",
                    segment=name,
                    p_value=difference.p_value,
                    relative=difference.relative,
                    label=difference.largest[0],
                    rank=difference.largest[1],
                    ratio=difference.largest[2],
                ),
                stacklevel=3,
            )


def data_for(
    learner: Learner,
    log: LogLike,
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> Any:
    """Open a log as what a learner needs: sessions, or sufficient statistics where only those can be had.

    Parameters
    ----------
    learner
        The learner; its attribute `requires` decides.
    log, columns, on_bad_line, progress
        As in `fit`.

    Returns
    -------
    Sessions, EncodedLog, Cells or Cascade
        The argument of the learner's `fit` method.

    Raises
    ------
    SpecError
        If the learner needs sessions, and `log` has only counts ("needs-sessions").
    """
    return _needed_part(learner, _open_for(learner, log, columns, on_bad_line, progress))


def _requirement(learner: Learner) -> Requirement:
    """Return what a learner needs of a log; a learner that does not say so needs sessions."""
    requires: Requirement = getattr(learner, "requires", "sessions")
    return requires


def _open_for(
    learner: Learner, log: LogLike, columns: Mapping[str, str] | None, on_bad_line: OnBadLine, progress: Progress
) -> Any:
    """Open a log or daily counts; count a table of a warehouse where it is, if it can and counts are enough."""
    requires = _requirement(learner)
    counts_are_enough = requires != "sessions" and on_bad_line == "error"
    if counts_are_enough and not isinstance(log, str | Path | Sessions) and is_warehouse_table(log):
        table, cascade = _with_our_names(log, columns or {}), requires == "cascade"
        if can_be_counted(table, whole_lists=cascade):
            return count_cascade(table) if cascade else count_cells(table, by=learner.by)  # type: ignore[attr-defined]
    return open_log_or_counts(log, columns=columns, on_bad_line=on_bad_line, progress=progress)


def _needed_part(learner: Learner, opened: Any) -> Any:
    """Return what a learner needs of daily counts; anything else unchanged."""
    requires = _requirement(learner)
    if not isinstance(opened, DayCounts):
        return opened
    if requires == "sessions":
        raise SpecError(
            f"{label(learner)} needs sessions, not daily counts. Pass the log itself.",
            code="needs-sessions",
            learner=label(learner),
        )
    if requires == "cascade" and opened.cascade is None:
        raise SpecError(
            f"{label(learner)} needs the clicks above each result, and these counts are by rank only. Pass the log, or "
            "fit a model of counts by rank, such as PBM or dCTR.",
            code="counts-too-coarse",
            learner=label(learner),
        )
    return opened.cascade if requires == "cascade" else opened.cells


def _with_our_names(table: Any, columns: Mapping[str, str]) -> Any:
    """Return a table of a warehouse with our names of its columns, renamed or left out where it is."""
    import narwhals as nw

    from clickshift.io.read_log import choose_columns

    frame = nw.from_native(table)
    chosen = choose_columns("the table", columns, frame.collect_schema().names())
    if all(columns.values()) and all(ours == theirs for ours, theirs in chosen.items()):
        return table
    return frame.select(nw.col(theirs).alias(ours) for ours, theirs in chosen.items()).to_native()
