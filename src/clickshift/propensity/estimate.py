"""Propensities: how likely each rank is examined, told from clicks in five ways, with intervals and doubts.

| method        | what it needs                                            | what it assumes of clicks                |
|---------------|----------------------------------------------------------|------------------------------------------|
| swaps         | documents swapped with the first result at random        | examination depends on the rank alone    |
| harvesting    | documents that several rankers showed at several ranks   | the same                                 |
| regression-em | a corpus with features that say what attracts            | the same, and attractiveness by features |
| dual-learning | the same                                                 | the same, and relevance by features      |
| a click model | what that model needs                                    | what that model assumes                  |
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from jaxtyping import Int

from clickshift.core.rng import generator
from clickshift.counts.cells import Cells
from clickshift.counts.connectivity import swap_graph
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import UNSEEN
from clickshift.errors import ClickshiftWarning, DataError, SpecError
from clickshift.models.base import ClickModel
from clickshift.propensity._bootstrap import ExaminationCurve, check_level
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
from clickshift.propensity.files import Propensities as Propensities
from clickshift.propensity.files import read_propensities as read_propensities
from clickshift.propensity.files import write_propensities as write_propensities

METHODS = ("swaps", "harvesting", "regression-em", "dual-learning")
_BY_FEATURES = ("regression-em", "dual-learning")
_FEW_QUERIES = 10
_RESAMPLED, _REFITS = 200, 20
"""Resampled logs, where nobody says how many: counts are quick, a click model that is fitted anew takes its time."""


def propensities(
    log: Sessions | Cells,
    method: str | ClickModel = "harvesting",
    *,
    corpus: Corpus | None = None,
    swapped: Int[np.ndarray, " session"] | None = None,
    reference_rank: int = 0,
    level: float = 0.95,
    replicates: int | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda said: None,
) -> Propensities:
    """How likely each rank is examined, relative to `reference_rank`, by one of `METHODS`, a fitted click model, or the
    name of one that is then fitted ("PBM", "EM('UBM')").

    `corpus` has the features of regression-em and dual-learning. `swapped` says which sessions are interventions, for
    swaps: the rank, from 0, that changed places with the reference rank; -1, or the reference rank, where none did.
    Counts (`Cells`) do for swaps that are not marked, harvesting and regression-em. Intervals are by resampled queries,
    `replicates` of them (None: what the method can afford, 0: no intervals); a PBM that is given has its own.
    Warns, and keeps the words, where the log cannot tell a good place from a good document.
    """
    check_level(level)
    cells = log if isinstance(log, Cells) else Cells.of(log)
    cells = cells if cells.by == "rank" else cells.rolled_up("rank")
    _check(log, method, corpus, swapped, reference_rank, replicates, cells.n_ranks)
    doubts: list[str] = []
    if corpus is not None:
        cells, log = _in_corpus(log, cells, corpus, doubts)
    graph = swap_graph(cells)
    if isinstance(method, str) and method in METHODS:
        name, n = method, _RESAMPLED if replicates is None else replicates
        rng = generator(seed, "propensities", method)
        progress(f"{n} resampled logs")
        found: ExaminationCurve | ModelIntervals = _estimate(
            log, cells, method, corpus, swapped, reference_rank, n, rng
        )
    elif isinstance(method, str) and is_pbm(method):
        assert isinstance(log, Sessions)
        name, n = method, _RESAMPLED if replicates is None else replicates
        rng = generator(seed, "propensities", method)
        connected = graph.n_components == 1
        found = pbm_curve(log, cells, method, reference=reference_rank, connected=connected, replicates=n, rng=rng)
    else:
        assert isinstance(log, Sessions)
        n = _REFITS if replicates is None else replicates
        progress("fitting" if isinstance(method, str) else "examining")
        model = fit_named_model(log, method) if isinstance(method, str) else method
        name = method if isinstance(method, str) else type(model).__name__
        own = model_intervals(model, ranks=log.n_ranks, reference=reference_rank, level=level)
        text = method if isinstance(method, str) else None
        rng = generator(seed, "propensities", name)
        found = own if own is not None and n else model_curve(log, model, text, replicates=n, rng=rng)
    if doubt := graph.warning():
        doubts.insert(0, f"{name}: {doubt}{_rests_on(name)}")
    if isinstance(found, ModelIntervals):
        values, how = (found.estimate, found.low, found.high, found.error), "observed information of the fitted model"
    else:
        n = len(found.replicates)
        how = f"bootstrap over queries, {n} replicates" if n > 1 else "none"
        curve = found.relative_to(reference_rank)
        values = curve.estimate, *curve.interval(level)
        doubts += [f"{name}: {doubt}" for doubt in curve.doubts]
        if n > 1 and found.n_queries < _FEW_QUERIES and np.isfinite(curve.replicates).all(axis=0).sum() > 1:
            doubts.append(
                f"{name}: intervals rest on few queries, as many as {found.n_queries:.1f} that are equally frequent; "
                "take them as rough."
            )
    estimate, low, high, error = values
    estimate[reference_rank] = low[reference_rank] = high[reference_rank] = 1.0  # by definition, not by measurement
    error[reference_rank] = 0.0
    doubts += _gaps(name, estimate, reference_rank, disconnected=graph.n_components > 1)
    for doubt in doubts:
        warnings.warn(doubt, ClickshiftWarning, stacklevel=2)
    return Propensities(
        name,
        estimate,
        low,
        high,
        error,
        reference_rank=reference_rank,
        level=level,
        interval=how,
        impressions=cells.by_rank()[0],
        swaps=graph.swaps.sum(axis=1),
        warnings=tuple(doubts),
    )


def _estimate(
    log: Sessions | Cells,
    cells: Cells,
    method: str,
    corpus: Corpus | None,
    swapped: np.ndarray | None,
    reference: int,
    replicates: int,
    rng: np.random.Generator,
) -> ExaminationCurve:
    if method == "swaps":
        return swap_ratios(
            cells if swapped is None else log, swapped, reference=reference, replicates=replicates, rng=rng
        )
    if method == "harvesting":
        return harvest(cells, replicates=replicates, rng=rng)
    assert corpus is not None
    if method == "regression-em":
        return regression_em(cells, corpus, replicates=replicates, rng=rng)
    assert isinstance(log, Sessions)
    return dual_learning(log, corpus, replicates=replicates, rng=rng)


def _check(
    log: Sessions | Cells,
    method: str | ClickModel,
    corpus: Corpus | None,
    swapped: np.ndarray | None,
    reference: int,
    replicates: int | None,
    n_ranks: int,
) -> None:
    by_features = isinstance(method, str) and method in _BY_FEATURES
    if not isinstance(log, Sessions) and method not in {"swaps", "harvesting", "regression-em"}:
        raise DataError(f"{method} looks at whole lists, which counts do not hold: give the log itself.")
    if by_features and (corpus is None or corpus.features is None):
        raise DataError(f"{method} learns from features: give a corpus that has them.")
    if corpus is not None and not by_features:
        raise SpecError(f"a corpus is for {' and '.join(_BY_FEATURES)}: {method} takes none.")
    if swapped is not None and method != "swaps":
        raise SpecError(f"swapped is for the method swaps: {method} does not use it.")
    if not 0 <= reference < n_ranks:
        raise DataError(f"the reference rank must be one of the log's {n_ranks}: got rank {reference + 1}.")
    if replicates is not None and replicates and replicates < 5:
        raise SpecError(f"an interval needs at least 5 replicates, or give 0 for none: got {replicates}.")


def _in_corpus(
    log: Sessions | Cells, cells: Cells, corpus: Corpus, doubts: list[str]
) -> tuple[Cells, Sessions | Cells]:
    """The log in the corpus' numbers, without the documents that it does not hold."""
    pair = corpus.vocabulary.pairs_of(cells.vocabulary)[cells.pair]
    known = pair != UNSEEN
    if not known.any():
        raise DataError("no document of the log is in the corpus. Do both have the same ids?")
    if not known.all():
        share = float(cells.impressions[~known].sum() / cells.impressions.sum())
        doubts.append(f"{share:.1%} of what was shown is not in the corpus and is left out.")
    order = np.argsort(pair[known], kind="stable")
    kept = np.flatnonzero(known)[order]
    here = Cells(
        corpus.vocabulary,
        cells.n_ranks,
        "rank",
        pair[kept].astype(cells.pair.dtype),
        cells.situation[kept],
        cells.impressions[kept],
        cells.clicks[kept],
    )
    return here, log.in_vocabulary(corpus.vocabulary) if isinstance(log, Sessions) else here


def _rests_on(name: str) -> str:
    if name in _BY_FEATURES:
        return f" What {name} says of them rests on the features alone."
    if name in METHODS:
        return ""
    return f" What {name} says of them rests on its assumptions alone."


def _gaps(name: str, estimate: np.ndarray, reference: int, *, disconnected: bool) -> list[str]:
    unknown, never = np.flatnonzero(np.isnan(estimate)) + 1, np.flatnonzero(estimate == 0) + 1
    said = []
    if len(unknown) and not disconnected:
        said.append(f"{name}: no document says how rank {_listed(unknown)} compares with rank {reference + 1}.")
    if len(never):
        said.append(f"{name}: nothing was clicked at rank {_listed(never)}, which gets 0 without an interval.")
    return said


def _listed(ranks: np.ndarray) -> str:
    return ", ".join(map(str, ranks))
