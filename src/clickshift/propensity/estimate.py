"""Position-bias estimation: examination propensities by rank from clicks, by five methods, with intervals and warnings.

| method        | needs                                                    | assumes of clicks                        |
|---------------|----------------------------------------------------------|------------------------------------------|
| swaps         | documents randomly swapped with the first result         | examination depends on the rank alone    |
| harvesting    | documents that several rankers showed at several ranks   | the same                                 |
| regression-em | a corpus with features that predict attractiveness       | the same, and attractiveness by features |
| dual-learning | the same                                                 | the same, and relevance by features      |
| a click model | what that model needs                                    | what that model assumes                  |
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from clickshift.core.intervals import check_replicates
from clickshift.core.progress import Progress, silent
from clickshift.core.rng import generator
from clickshift.counts.cells import Cells
from clickshift.counts.connectivity import MAX_GRAPH_RANKS, swap_graph
from clickshift.counts.daily import DayCounts
from clickshift.counts.open_log import LogLike, open_log_or_counts
from clickshift.counts.segment_differences import segment_difference
from clickshift.counts.segment_numbers import SegmentNumbers
from clickshift.counts.severe_defects import warn_of_severe_defects
from clickshift.data.corpus import Corpus
from clickshift.data.days import time_range
from clickshift.data.description import describe_log, log_source
from clickshift.data.encoded_log import EncodedLog, Log
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import UNSEEN
from clickshift.errors import ClickshiftWarning, DataError, FileError, SpecError
from clickshift.io.datasets.letor import read_corpus
from clickshift.io.read_log import read_log_with_number
from clickshift.io.read_report import OnBadLine
from clickshift.io.tables.extra_columns import columns_with
from clickshift.models.base import ClickModel
from clickshift.models.segmented import Segmented
from clickshift.models.storage import load_model
from clickshift.propensity._bootstrap import CurveWarning, ExaminationCurve, check_level
from clickshift.propensity._dual_learning import dual_learning
from clickshift.propensity._from_click_model import (
    ModelIntervals,
    fit_named_model,
    is_pbm,
    model_curve,
    model_intervals,
    pbm_curve,
)
from clickshift.propensity._harvesting import harvest
from clickshift.propensity._regression_em import regression_em
from clickshift.propensity._swaps import swap_ratios
from clickshift.propensity.files import read_propensities as read_propensities
from clickshift.propensity.result import Propensities as Propensities

METHODS = ("swaps", "harvesting", "regression-em", "dual-learning")
"""Methods besides click models."""
_FEATURE_METHODS = ("regression-em", "dual-learning")
_FEW_QUERIES = 10
_REPLICATES, _REFITS = 200, 20
"""Default number of resampled logs: counts are fast, refitting a click model is slow."""


def propensities(
    log: LogLike | Cells | DayCounts,
    method: str | Path | ClickModel = "harvesting",
    *,
    by: str | None = None,
    corpus: Corpus | str | Path | None = None,
    swapped: Int[np.ndarray, " session"] | str | None = None,
    reference_rank: int = 0,
    level: float = 0.95,
    replicates: int | None = None,
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> Propensities:
    """Estimate the position bias of a log: the examination probability of each rank, relative to a reference rank.

    Warns, and keeps the warnings in the result, where the log cannot separate position bias from relevance.

    Parameters
    ----------
    log
        Anything that :func:`open_log` opens: a path, a data frame, `Sessions`, an encoded log. Counts (`Cells`, or
        daily counts) are enough for unmarked swaps, harvesting and regression-em. A log larger than memory is counted
        in parts; dual-learning loads the sessions of the corpus, and models other than PBM all sessions.
    method
        One of `METHODS`, a fitted click model or its folder, or the name of one to fit, e.g. "PBM" or "EM('UBM')".
    by
        Segment of sessions, e.g. "device": the result has a curve for each of its labels, too, from their sessions. It
        names a segment of the log, or a column that becomes one; by default, that of a fitted model by segment.
    corpus
        Corpus with the features that regression-em and dual-learning need, or its LETOR file or folder.
    swapped
        For the method swaps, which sessions are interventions: the rank, from 0, that was swapped with the reference
        rank; -1, or the reference rank, where none was. As a text, the log's column of that rank, from 1, and 0 where
        none was.
    reference_rank
        The rank, from 0, whose examination is 1.
    level
        Confidence level of the intervals.
    replicates
        Number of resampled logs, for a bootstrap over queries; None for a default that suits the method, 0 for no
        intervals. A fitted PBM has intervals of its own.
    seed
        Random seed of the bootstrap and of cross-fitting.
    columns
        The log's names of our columns, e.g. ``{"docs": "results"}``.
    on_bad_line
        "error" stops at the first bad session; "skip" leaves bad sessions out and warns.
    progress
        Called with a message before each long step.

    Returns
    -------
    Propensities
        Examination by rank, with intervals and warnings.

    Raises
    ------
    DataError
        If the log or the corpus does not have what the method needs ("needs-sessions", "no-features",
        "no-common-documents", "no-clicks", "cannot-predict-clicks", "not-ranks"), or if an argument is out of range
        ("bad-level", "rank-out-of-range", "wrong-shape"), or lists are too long for swaps and harvesting
        ("lists-too-long"); for segments "no-segment", "one-segment".
    SpecError
        If an argument does not belong to the method ("bad-option"), or if there are too few or too many
        replicates ("too-few-replicates", "too-many-replicates").

    References
    ----------
    Joachims, T., Swaminathan, A. & Schnabel, T. (2017). Unbiased learning-to-rank with biased feedback. WSDM. (swaps)

    Agarwal, A. et al. (2019). Estimating position bias without intrusive interventions. WSDM. (harvesting)

    Wang, X. et al. (2018). Position bias estimation for unbiased learning to rank in personal search. WSDM.
    (regression-em)

    Ai, Q. et al. (2018). Unbiased learning to rank with unbiased propensity estimation. SIGIR. (dual-learning)

    Examples
    --------
    >>> from clickshift.data.sessions import Rankings
    >>> from clickshift.data.vocabulary import Vocabulary
    >>> vocabulary = Vocabulary.of(np.array([0, 0]), np.array([10, 11]))[0]
    >>> lists = Rankings(vocabulary, np.zeros(2, np.int32), np.array([[0, 1], [1, 0]], np.int32))
    >>> log = Sessions(lists, np.array([[True, True], [True, False]]), np.array([1000, 1000]))
    >>> curve = propensities(log, "swaps", replicates=0)
    >>> curve.estimate.tolist()
    [1.0, 0.5]
    """
    check_level(level)
    method = load_model(method) if isinstance(method, str | Path) and Path(method).is_dir() else method
    if by is None and isinstance(method, Segmented):
        by = method.segment
    if by is not None:
        options: Any = {"reference_rank": reference_rank, "level": level, "replicates": replicates, "seed": seed}
        options |= {"progress": progress, "corpus": read_corpus(corpus) if isinstance(corpus, str | Path) else corpus}
        names: Any = {"columns": columns_with(columns, segments=[by]), "on_bad_line": on_bad_line}
        return _by_segment(log, method, by, swapped, names, options)
    source: Any = {"columns": columns, "on_bad_line": on_bad_line}
    opened: Log | Cells
    if isinstance(swapped, str):
        opened, swapped = _read_swaps(log, swapped, **source)
    else:
        given = log if isinstance(log, Cells) else open_log_or_counts(log, **source, progress=progress)
        warn_of_severe_defects(given)
        opened = given.cells if isinstance(given, DayCounts) else given
    corpus = read_corpus(corpus) if isinstance(corpus, str | Path) else corpus
    cells = opened if isinstance(opened, Cells) else Cells.of(opened)
    cells = cells if cells.by == "rank" else cells.rolled_up("rank")
    _check_arguments(opened, method, corpus, swapped, reference_rank, replicates, cells.n_ranks)
    findings: list[CurveWarning] = []
    if corpus is not None:
        cells, opened = _in_corpus(opened, cells, corpus, findings)
    graph = swap_graph(cells)
    name = method if isinstance(method, str) else type(method).__name__
    rng = generator(seed, "propensities", name)
    n = replicates
    if method in METHODS:
        n = _REPLICATES if n is None else n
        progress(f"{n} resampled logs")
        result: ExaminationCurve | ModelIntervals = _estimate_curve(
            opened, cells, name, corpus, swapped, reference_rank, n, rng
        )
    elif isinstance(method, str) and is_pbm(method):
        assert not isinstance(opened, Cells)
        n = _REPLICATES if n is None else n
        connected = graph.n_components == 1
        result = pbm_curve(opened, cells, method, reference=reference_rank, connected=connected, replicates=n, rng=rng)
    else:
        assert not isinstance(opened, Cells)
        n = _REFITS if n is None else n
        progress("fitting the click model" if isinstance(method, str) else "computing examination")
        model = fit_named_model(opened, method) if isinstance(method, str) else method
        assert isinstance(model, ClickModel)
        own = model_intervals(model, ranks=opened.n_ranks, reference=reference_rank, level=level)
        text = method if isinstance(method, str) else None
        result = own if own is not None and n else model_curve(_in_memory(opened), model, text, replicates=n, rng=rng)
    if message := graph.warning():
        apart = np.flatnonzero(graph.component != graph.component[reference_rank]) + 1
        message = f"{name}: {message}{_basis(name)}"
        findings.insert(0, CurveWarning("weakly-connected-ranks", message, tuple(apart.tolist())))
    if isinstance(result, ModelIntervals):
        values, interval = (
            (result.estimate, result.low, result.high, result.error),
            "observed information of the fitted model",
        )
    else:
        n = len(result.replicates)
        interval = f"bootstrap over queries, {n} replicates" if n > 1 else "none"
        curve = result.relative_to(reference_rank)
        values = curve.estimate, *curve.interval(level)
        findings += [finding._replace(message=f"{name}: {finding.message}") for finding in curve.warnings]
        if n > 1 and result.n_queries < _FEW_QUERIES and np.isfinite(curve.replicates).all(axis=0).sum() > 1:
            message = (
                f"{name}: the effective number of queries is only {result.n_queries:.1f}: treat the intervals as rough."
            )
            findings.append(CurveWarning("few-queries", message))
    estimate, low, high, error = values
    estimate[reference_rank] = low[reference_rank] = high[reference_rank] = 1.0  # by definition, not by measurement
    error[reference_rank] = 0.0
    findings += _gaps(name, estimate, reference_rank, disconnected=graph.n_components > 1)
    for code, message, ranks in findings:
        warnings.warn(ClickshiftWarning(message, code=code, method=name, ranks=ranks), stacklevel=2)
    return Propensities(
        name,
        estimate,
        low,
        high,
        error,
        reference_rank=reference_rank,
        level=level,
        interval=interval,
        impressions=cells.by_rank()[0],
        swaps=graph.of_rank(),
        warnings=tuple(finding.message for finding in findings),
        data=_describe(opened, cells, log),
    )


def _by_segment(
    log: Any, method: str | Path | ClickModel, by: str, swapped: Any, names: Any, options: Any
) -> Propensities:
    """Estimate the curve of all sessions, and that of each label of a segment from its own sessions."""
    opened: Log | Cells | DayCounts
    if isinstance(swapped, str):
        opened, swapped = _read_swaps(log, swapped, **names)
    else:
        opened = log if isinstance(log, Cells) else open_log_or_counts(log, **names, progress=options["progress"])
    if isinstance(opened, Cells | DayCounts):
        raise SpecError(
            f"propensities by {by} need sessions, not counts. Pass the log itself.", code="needs-sessions", method=by
        )
    segments = SegmentNumbers.in_log(opened, by)
    number = np.concatenate([segments.of(part) for part in opened.chunks()])
    own: dict[str, Propensities] = {}
    for k, label in enumerate(segments.labels):
        rows = number == k
        part: Any = opened[np.flatnonzero(rows)] if isinstance(opened, Sessions) else opened[rows]
        model = method.of(label) if isinstance(method, Segmented) else method
        own_swaps = None if swapped is None else swapped[rows]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            own[label] = propensities(part, model, swapped=own_swaps, **options)
        for warning in caught:
            _warn_of_label(warning.message, label)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickshiftWarning)  # labels have given theirs
        pooled = propensities(opened, _one_curve(method), swapped=swapped, **options)
    difference = segment_difference(Cells.of(opened, segments=segments), segments)
    data = _describe(opened, Cells.of(opened), log)
    return replace(pooled, by=by, segments=own, p_value=difference.p_value, data=data)


def _one_curve(method: str | Path | ClickModel) -> str | Path | ClickModel:
    """Return a method without segments."""
    return method.pooled if isinstance(method, Segmented) else method


def _warn_of_label(message: Warning | str, label: str) -> None:
    """Warn of a problem with the sessions of a label."""
    if isinstance(message, ClickshiftWarning):
        again = ClickshiftWarning(f"{label}: {message}", code=message.code, **message.facts | {"label": label})
        warnings.warn(again, stacklevel=4)
    else:
        warnings.warn(message, stacklevel=4)


def _describe(opened: Log | Cells, cells: Cells, log: Any) -> str:
    """Describe a log in one line; of counts by rank, the sessions are those that show a document at the first rank."""
    sessions = float(cells.by_rank()[0][0] if isinstance(opened, Cells) else opened.total)
    first, last = (None, None) if isinstance(opened, Cells) else time_range(opened.time)
    queries = len(np.unique(cells.vocabulary.pair_query[cells.pair]))
    return describe_log(sessions, queries, source=log_source(log), first=first, last=last)


def _in_memory(log: Log, queries: np.ndarray | None = None) -> Sessions:
    """Load the sessions of an encoded log, or of some of its queries."""
    return log.sessions(queries) if isinstance(log, EncodedLog) else log


def _read_swaps(
    log: Any, column: str, *, columns: Mapping[str, str] | None, on_bad_line: OnBadLine
) -> tuple[Sessions, np.ndarray]:
    """Read a log with the rank that was swapped in each session, from 0, or -1 where none was."""
    try:
        sessions, rank = read_log_with_number(log, column, columns=columns, on_bad_line=on_bad_line)
    except FileError as error:
        if error.facts.get("column") == column:  # there is no such column
            known = list(error.facts["known"])
            problem = f"there is no column {column}, which `swapped` names: the table has {', '.join(known)}."
            raise FileError(error.path, problem, code=error.code, column=column, known=known) from None
        if error.facts.get("column") != "number":
            raise
        rank = np.array([np.nan])
    if not (rank == np.rint(rank)).all():
        raise DataError(
            f"`swapped`: column {column} must hold ranks, whole numbers, and 0 where none was swapped.",
            code="not-ranks",
            column=column,
        )
    return sessions, rank.astype(np.int64) - 1


def _estimate_curve(
    log: Log | Cells,
    cells: Cells,
    method: str,
    corpus: Corpus | None,
    swapped: np.ndarray | None,
    reference: int,
    replicates: int,
    rng: np.random.Generator,
) -> ExaminationCurve:
    """Estimate examination by one of `METHODS`."""
    if method == "swaps":
        return swap_ratios(
            cells if swapped is None else log, swapped, reference=reference, replicates=replicates, rng=rng
        )
    if method == "harvesting":
        return harvest(cells, replicates=replicates, rng=rng)
    assert corpus is not None
    if method == "regression-em":
        return regression_em(cells, corpus, replicates=replicates, rng=rng)
    assert not isinstance(log, Cells)
    known = np.append(np.ones(corpus.n_queries, bool), False)  # UNSEEN is -1, the last entry
    return dual_learning(_in_memory(log, known), corpus, replicates=replicates, rng=rng)


def _check_arguments(
    log: Log | Cells,
    method: Any,
    corpus: Corpus | None,
    swapped: np.ndarray | None,
    reference: int,
    replicates: int | None,
    n_ranks: int,
) -> None:
    """Check that the arguments of `propensities` belong to the method."""
    by_features = isinstance(method, str) and method in _FEATURE_METHODS
    name = method if isinstance(method, str) else type(method).__name__
    if isinstance(log, Cells) and method not in {"swaps", "harvesting", "regression-em"}:
        raise DataError(
            f"{name} needs whole lists, which counts do not contain: pass the log itself.",
            code="needs-sessions",
            method=name,
        )
    if by_features and (corpus is None or corpus.features is None):
        raise DataError(f"{name} learns from features: pass a corpus that has them.", code="no-features", method=name)
    if corpus is not None and not by_features:
        raise SpecError(
            f"corpus is only for {' and '.join(_FEATURE_METHODS)}: {name} does not use it.",
            code="bad-option",
            option="corpus",
            method=name,
        )
    if swapped is not None and method != "swaps":
        raise SpecError(
            f"swapped is only for the method swaps: {name} does not use it.",
            code="bad-option",
            option="swapped",
            method=name,
        )
    if not 0 <= reference < n_ranks:
        raise DataError(
            f"the reference rank must be one of the log's {n_ranks}: got rank {reference + 1}.",
            code="rank-out-of-range",
            value=reference + 1,
            n_ranks=n_ranks,
        )
    if method in {"swaps", "harvesting"} and n_ranks > MAX_GRAPH_RANKS:
        raise DataError(
            f"{name} compares each rank with every other one, and takes lists of at most {MAX_GRAPH_RANKS:,} ranks: "
            f"got {n_ranks:,}. Pass the method PBM, or cut the longest lists.",
            code="lists-too-long",
            ranks=n_ranks,
            limit=MAX_GRAPH_RANKS,
        )
    if replicates:  # 0 for no interval
        check_replicates(replicates, at_least=5)


def _in_corpus(
    log: Log | Cells, cells: Cells, corpus: Corpus, findings: list[CurveWarning]
) -> tuple[Cells, Log | Cells]:
    """Translate counts and log to the corpus' vocabulary, without documents that it does not contain."""
    pair = corpus.vocabulary.pairs_of(cells.vocabulary)[cells.pair]
    in_corpus = pair != UNSEEN
    if not in_corpus.any():
        raise DataError(
            "no document of the log is in the corpus. Check that both have the same ids.", code="no-common-documents"
        )
    if not in_corpus.all():
        share = float(cells.impressions[~in_corpus].sum() / cells.impressions.sum())
        message = f"{share:.1%} of all impressions are of documents that are not in the corpus; they are left out."
        findings.append(CurveWarning("outside-corpus", message))
    order = np.argsort(pair[in_corpus], kind="stable")
    kept = np.flatnonzero(in_corpus)[order]
    translated = Cells(
        corpus.vocabulary,
        cells.n_ranks,
        "rank",
        pair[kept].astype(cells.pair.dtype),
        cells.situation[kept],
        cells.impressions[kept],
        cells.clicks[kept],
    )
    return translated, translated if isinstance(log, Cells) else log.in_vocabulary(corpus.vocabulary)


def _basis(name: str) -> str:
    """Sentence on what the estimate of unconnected ranks is based on."""
    if name in _FEATURE_METHODS:
        return f" The estimate of {name} for them rests on the features alone."
    if name in METHODS:
        return ""
    return f" The estimate of {name} for them rests on its assumptions alone."


def _gaps(name: str, estimate: np.ndarray, reference: int, *, disconnected: bool) -> list[CurveWarning]:
    """Report ranks whose examination is not identified, or 0."""
    unidentified, never_clicked = np.flatnonzero(np.isnan(estimate)) + 1, np.flatnonzero(estimate == 0) + 1
    findings = []
    if len(unidentified) and not disconnected:
        message = f"{name}: no document compares rank {_join(unidentified)} with rank {reference + 1}."
        findings.append(CurveWarning("rank-not-identified", message, tuple(unidentified.tolist())))
    if len(never_clicked):
        message = f"{name}: nothing was clicked at rank {_join(never_clicked)}: its examination is 0, without interval."
        findings.append(CurveWarning("rank-without-clicks", message, tuple(never_clicked.tolist())))
    return findings


def _join(ranks: np.ndarray) -> str:
    """Join ranks with commas."""
    return ", ".join(map(str, ranks))
