"""From a log and its targets to answers: families are fitted once, and every target is valued under each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import final

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.progress import Progress, silent
from clickshift.counts.cells import Cells
from clickshift.counts.connectivity import SwapGraph, swap_graph
from clickshift.counts.conversion_counts import ConversionCounts
from clickshift.data.days import days_of
from clickshift.data.segments import Segment
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.signal_values import SignalValue
from clickshift.errors import DataError
from clickshift.learners.conversion_rates import rank_dependence
from clickshift.models import model_title
from clickshift.models.base import ClickModel, at_rank
from clickshift.models.pbm import PBM
from clickshift.models.perturb import is_pair_table
from clickshift.models.segmented import Segmented
from clickshift.ope.answer import MAX_LOST_USABLE, Answer, TargetValues, clipping_constant, make_answer
from clickshift.ope.family_values import N_GROUPS, FamilyJackknife
from clickshift.ope.grouped_log import GroupedLog
from clickshift.ope.model_confidence_set import FAMILIES, FamilyFit, fit_families
from clickshift.ope.model_free import model_free_values
from clickshift.ope.model_value import TargetLists
from clickshift.ope.rewards import OUTCOME
from clickshift.ope.target_policy import Target, TargetProbabilities
from clickshift.ope.weights import LoggingPolicy

_DRIFT_LEVEL = 0.001
"""P-value below which documents are clicked otherwise on later days than on earlier ones."""
_DRIFT_SIZE = 0.1
"""Root mean square of relative changes of click rates that is worth a warning."""
_MAX_HOLES = 0.05
"""Share of holes among the ranks of the log above which a target without holes is not compared like with like."""
_MIN_VARIANCE = 3.0
"""Expected variance of a document's clicks on later days below which it is not tested."""


@final
@dataclass(frozen=True, eq=False)
class LogModels:
    """Click-model families of a log, ready to value targets.

    Parameters
    ----------
    log
        The grouped log.
    sessions
        The same log, with equal sessions merged where they are independent.
    targets
        Lists of the targets.
    fits
        The families.
    jackknife
        The log without each of several groups of sessions.
    graph
        Which ranks the log connects by documents that were shown at both.
    drift
        Sentence on changes between days; empty if there are none.
    value_by_rank
        Of a reward by a signal, sentence on documents that convert otherwise at lower ranks; empty if there are none.
    """

    log: GroupedLog
    sessions: Sessions
    targets: Sequence[TargetLists]
    fits: Sequence[FamilyFit]
    jackknife: FamilyJackknife
    graph: SwapGraph
    drift: str
    value_by_rank: str = ""

    @classmethod
    def of(
        cls,
        sessions: Sessions,
        log: GroupedLog,
        targets: Sequence[Target],
        *,
        model: ClickModel | None = None,
        examination: Float[np.ndarray, " rank"] | None = None,
        seed: int = 0,
        progress: Progress = silent,
    ) -> LogModels:
        """Fit the families to a log.

        Parameters
        ----------
        sessions
            The log.
        log
            The same log, grouped.
        targets
            Target policies: the test of residuals looks at documents that they show more often than the log.
        model
            A further model.
        examination
            Known examination by rank: the family PBM then has it, and is not fitted.
        seed
            Random seed of halves and groups.
        progress
            Called with a text on the state of the work.
        """
        rankings = sessions.rankings
        plain = Sessions.checked(
            Rankings.checked(
                rankings.vocabulary,
                rankings.query,
                rankings.pair,
                rankings.shown,
                segments=_segment_of(model, rankings),
            ),
            sessions.click,
            sessions.count,
            signals={} if log.reward.signal is None else sessions.signals,
        )
        merged = plain.merged() if log.cluster is None else plain
        lists = [TargetLists.of(log, target) for target in targets]
        cells = Cells.of(merged, "rank")
        given: dict[str, ClickModel] = {}
        families: Sequence[str] = FAMILIES
        if examination is not None:
            families = tuple(name for name in FAMILIES if name != "PBM")
            given["PBM"] = _pbm_with(examination, cells)
        if model is not None:
            given[f"given {model_title(model)}"] = _in_log_vocabulary(model, merged)
        progress("fitting click-model families")
        fits = fit_families(
            merged,
            cluster=log.cluster,
            weight=_target_weight(merged, lists[0]),
            given=given,
            families=families,
            seed=seed,
        )
        jackknife = FamilyJackknife.of(merged, log.reward, cluster=log.cluster, seed=seed)
        best = min(fits, key=lambda fit: fit.deficit)
        by_rank = "" if log.reward.signal is None else _value_by_rank(merged)
        return cls(log, merged, lists, fits, jackknife, swap_graph(cells), _drift(sessions, best), by_rank)

    @property
    def examination(self) -> Float[np.ndarray, " rank"]:
        """Examination of the family PBM, by rank."""
        model = next(fit.model for fit in self.fits if fit.name == "PBM")
        assert isinstance(model, PBM)
        return at_rank(model.examination, self.log.n_ranks)

    def values(
        self, number: int, probabilities: TargetProbabilities, logging: LoggingPolicy, progress: Progress = silent
    ) -> TargetValues:
        """Value one of the targets under each family, and without a click model.

        Parameters
        ----------
        number
            Number of the target.
        probabilities
            Its probabilities of the logged lists.
        logging
            The logging policy.
        progress
            Called with a text on the state of the work.
        """
        target = self.targets[number]
        clip = clipping_constant(self._n_sessions(target))
        families = [
            self.jackknife.value(
                fit,
                target.by_segment(self.log) if isinstance(fit.model, Segmented) else target,
                clip,
                replicates=fit.kept,
                progress=progress,
            )
            for fit in self.fits
        ]
        model_free = model_free_values(
            self.log, probabilities, target, logging, n_groups=N_GROUPS, max_lost=MAX_LOST_USABLE, seed=0
        )
        return TargetValues(families, model_free)

    def answer(
        self, number: int, values: Sequence[TargetValues], level: float, *, against: int | None = None
    ) -> Answer:
        """Answer what a target earns more than the log, or than another target.

        Parameters
        ----------
        number
            Number of the target.
        values
            Values of all targets.
        level
            Confidence level.
        against
            Number of the other target.
        """
        return make_answer(
            self.fits,
            values[number],
            share=self.jackknife.share,
            sessions=self._n_sessions(self.targets[number]),
            largest=self.log.largest,
            level=level,
            against=None if against is None else values[against],
            weak_reasons=[
                reason for reason in (self.drift, self.value_by_rank, self._filled_holes(number, against)) if reason
            ],
            unidentified=(self.graph.warning() or "") if self.graph.n_components > 1 else "",
            swaps=self.graph.weakest_link,
        )

    def _filled_holes(self, number: int, against: int | None) -> str:
        """Sentence on holes of the log that a target fills; empty if it has holes, too, or the log has few."""
        share = share_of_holes(self.sessions.rankings, self.sessions.count, self.log.n_ranks)
        if against is not None or share < _MAX_HOLES or self.targets[number].lists.has_holes:
            return ""
        return (
            f"{share:.0%} of the ranks of the log's lists are holes, and the target's lists have none: the difference "
            "includes what documents would earn there."
        )

    def _n_sessions(self, target: TargetLists) -> float:
        """Number of sessions of queries that a target ranks."""
        return float(self.sessions.count @ target.ranked[self.sessions.rankings.query])


def share_of_holes(rankings: Rankings, count: Int[np.ndarray, " row"], ranks: int) -> float:
    """Return the share of holes among the first ranks of lists, down to their last document.

    Parameters
    ----------
    rankings
        The lists.
    count
        Number of sessions of each list.
    ranks
        Number of ranks that count.
    """
    if not rankings.has_holes:
        return 0.0
    above = np.arange(min(ranks, rankings.n_ranks)) < rankings.length[:, None]
    holes = count @ (above & ~rankings.shown[:, : above.shape[1]])
    return float(holes.sum() / (count @ above).sum())


def _pbm_with(examination: Float[np.ndarray, " rank"], cells: Cells) -> PBM:
    """Position-based model with known examination: attractiveness is clicks divided by examinations."""
    curve = at_rank(examination / examination.max(), cells.n_ranks)
    _, clicks = cells.by_pair()
    exposed = cells.weighted_impressions(curve)
    mean = clicks.sum() / max(exposed.sum(), 1e-300)
    attractiveness = np.clip((clicks + mean) / (exposed + 1), 1e-6, 1 - 1e-6)
    return PBM(cells.vocabulary, np.append(attractiveness, min(mean, 0.999)), curve)


def _in_log_vocabulary(model: ClickModel, sessions: Sessions) -> ClickModel:
    """Return a model with its tables over pairs in the vocabulary of the log, where it has such tables."""
    if isinstance(model, Segmented):
        own = _in_log_vocabulary(model.pooled, sessions)
        return replace(model, vocabulary=own.vocabulary, evidence=None, components=(own,))
    tables = [f.name for f in fields(model) if is_pair_table(f)]
    if not tables:
        return model
    rows = np.append(model.vocabulary.pairs_of(sessions.vocabulary), -1)
    changed = {name: getattr(model, name)[rows] for name in tables}
    return replace(model, vocabulary=sessions.vocabulary, evidence=None, **changed)


def _target_weight(sessions: Sessions, target: TargetLists) -> Float[np.ndarray, " pair"]:
    """How much more prominent a target shows each pair than the log does; ranks count by 1 / rank."""
    by_query = np.bincount(sessions.rankings.query, sessions.count, sessions.vocabulary.n_queries)
    shown = (
        _prominence(sessions.rankings, sessions.count),
        _prominence(target.lists, target.weight * by_query[target.lists.query]),
    )
    weight: np.ndarray = shown[1] / np.maximum(shown[0], 1e-12)
    return weight


def _prominence(lists: Rankings, weight: Float[np.ndarray, " list"] | Int[np.ndarray, " list"]) -> np.ndarray:
    """Total weight of each pair, divided by its rank."""
    by_rank = weight[:, None] / np.arange(1.0, lists.n_ranks + 1)
    size = lists.vocabulary.n_pairs
    total: np.ndarray = np.bincount((lists.pair + 1).ravel(), by_rank.ravel(), size + 1)[1:]
    return total


def _value_by_rank(sessions: Sessions) -> str:
    """Sentence on documents that convert otherwise at lower ranks; empty if that may be chance."""
    (counts,) = ConversionCounts.of(sessions, [SignalValue.parse(OUTCOME)])
    slope, p_value = rank_dependence(counts)
    if p_value > _DRIFT_LEVEL:
        return ""
    return (
        f"Click models take the value of a click as that of its document, but the same documents convert {slope:+.1%} "
        f"per rank of the click (p = {p_value:.1g})."
    )


def _segment_of(model: ClickModel | None, rankings: Rankings) -> dict[str, Segment]:
    """Return the segment of lists that a model follows, by its name."""
    name = model.segment if isinstance(model, Segmented) else None
    return {own: segment for own, segment in rankings.segments.items() if own == name}


def _drift(sessions: Sessions, fit: FamilyFit) -> str:
    """Sentence on documents that are clicked otherwise on later days than on earlier ones; empty if there are none."""
    from scipy.special import chdtrc

    if sessions.time is None:
        return ""
    try:
        day, names = days_of(sessions.time)
    except DataError:
        return ""
    later = day >= len(names) / 2
    shown, size = sessions.rankings.shown, sessions.vocabulary.n_pairs
    prob = fit.model.click_prob_given_history(sessions) * sessions.count[:, None]
    clicks = sessions.click * sessions.count[:, None]
    pair = sessions.rankings.pair[shown]
    total, late = np.bincount(pair, clicks[shown], size), np.bincount(pair, (clicks * later[:, None])[shown], size)
    expected = np.bincount(pair, prob[shown], size)
    share = np.bincount(pair, (prob * later[:, None])[shown], size) / np.maximum(expected, 1e-300)
    variance = total * share * (1 - share)
    tested = variance >= _MIN_VARIANCE
    if not tested.any():
        return ""
    change = (late - total * share)[tested]
    p_value = float(chdtrc(tested.sum(), (change**2 / variance[tested]).sum()))
    excess = max(0.0, float((change**2 - variance[tested]).sum()))
    # later and earlier clicks move apart: a change of d clicks on later days is one of d / (share (1 - share)) of all
    scale = (variance[tested] ** 2).sum()
    size_of_change = float(np.sqrt(excess / scale)) if scale > 0 else 0.0
    if p_value > _DRIFT_LEVEL or size_of_change < _DRIFT_SIZE:
        return ""
    return (
        f"Documents are clicked otherwise on later days than on earlier ones (by {size_of_change:.0%} on average, "
        f"p = {p_value:.1g}): the past may not repeat itself."
    )
