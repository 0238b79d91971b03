"""Importance weights: what must be as likely under the target as in the log, and so what is assumed of clicks.

Every estimator of Li et al. (2018) sums the reward of units of the log, each times target / logging, clipped at M:

    V = 1/n sum over units u of reward_u min(h_u / pi_u, M)

A unit is a list, a document at a rank, or a document. With the logging policy estimated from the same log, pi_u is the
unit's exposure over the query's sessions, and counts are all that is needed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, final, no_type_check, runtime_checkable

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from clickshift.core.unique_rows import distinct_rows
from clickshift.data.vocabulary import UNSEEN
from clickshift.errors import CapabilityError, DataError, SpecError
from clickshift.models.base import ClickModel
from clickshift.ope.grouped_log import GroupedLog, Tally, sum_by_index
from clickshift.ope.target_policy import Target, TargetProbabilities, pad_or_truncate, weighted_lists

LoggingPolicy = TargetProbabilities | Literal["frequencies", "propensities"]
"""A policy that is known, list frequencies of the log itself, or the propensities that the log carries."""


_SolveWeights = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@final
@dataclass(frozen=True, eq=False)
class WeightUnits:
    """The units of a log for one kind of weights, and how likely the target shows each."""

    unit: Int[np.ndarray, "entry slot"]
    """One slot for a whole list, or one per rank; `UNSEEN` where nothing is shown."""
    exposure: Float[np.ndarray, "entry_or_1 slot"]
    """What one impression counts for: the same in all lists, or in each its own."""
    query: Int[np.ndarray, " unit"]
    group: Int[np.ndarray, " unit"]
    """Self-normalised estimators divide by the weights of each group apart: those of a rank, or all."""
    target: Float[np.ndarray, " unit"]
    known: Float[np.ndarray, " unit"] | None
    """The same of the logging policy; None where it is estimated from exposure."""
    mass: Float[np.ndarray, "query group"]
    """The target of all units, logged or not."""
    worth: Float[np.ndarray, " group"]
    """The most that one unit of mass can earn."""
    solve: _SolveWeights | None = None
    """For weights that are no ratio of two probabilities, and may be negative."""

    @property
    def by_rank(self) -> bool:
        """Whether units are parts of lists, which share its reward."""
        return bool(self.unit.shape[1] > 1)

    def aimed(
        self, exposed: Float[np.ndarray, "unit part"], sessions: Float[np.ndarray, "query part"]
    ) -> tuple[Float[np.ndarray, "unit part_or_1"], Float[np.ndarray, "query part"] | None]:
        """What stands over the logging probability in the weights, and the mass that they cannot tell of: None where
        that is the mass of what was not logged."""
        return (self.target[:, None], None) if self.solve is None else self.solve(exposed, sessions)

    def exposed(self, tally: Tally) -> Float[np.ndarray, "unit part"]:
        out = np.zeros((len(self.target), tally.shown.shape[1]))
        _expose(self.unit, self.exposure, tally.shown, out)
        return out

    def earned(
        self, tally: Tally, theta: Float[np.ndarray, " rank"], baseline: Float[np.ndarray, "entry slot"] | None = None
    ) -> Float[np.ndarray, "unit part"]:
        """The reward of each unit, less what a model expects of its impressions."""
        out = np.zeros((len(self.target), tally.shown.shape[1]))
        if self.by_rank:
            _earn(self.unit, theta, tally.clicks, out)
        else:
            _earn(self.unit, np.ones(1), tally.earned[:, None, :], out)
        if baseline is not None:
            _expect(self.unit, baseline, tally.shown, out)
        return out


@runtime_checkable
class Weights(Protocol):
    """A kind of importance weights."""

    name: ClassVar[str]
    """As texts call it."""
    assumption: ClassVar[str]
    """What must hold of clicks, to end a sentence that begins with "if"; empty where nothing must."""
    needs_linear: ClassVar[bool]
    """Whether the reward must be a sum over ranks."""

    @abstractmethod
    def strata(
        self, logged: GroupedLog, aim: TargetProbabilities, logging: LoggingPolicy, target: Target | None = None
    ) -> WeightUnits:
        """The units of a log. Weights that ask a click model need the target itself, beside the aim at it."""


@final
@dataclass(frozen=True)
class ListWeights:
    """h(A) / pi(A): whole lists must match. Nothing is assumed of clicks (section 3.1)."""

    name: ClassVar[str] = "List"
    assumption: ClassVar[str] = ""
    needs_linear: ClassVar[bool] = False

    def strata(
        self, logged: GroupedLog, aim: TargetProbabilities, logging: LoggingPolicy, target: Target | None = None
    ) -> WeightUnits:
        unit, known = logged.list_of, None
        if isinstance(logging, TargetProbabilities):
            known = logging.list_prob
        elif logging == "propensities":
            if logged.log_prob is None:
                raise DataError(
                    "the log must carry propensities of its lists: "
                    + ("these are of longer lists than the reward counts. " if logged.was_cut else "it has none. ")
                    + "Give the logging policy, or take frequencies."
                )
            unit, known = np.arange(len(unit)), np.exp(np.minimum(logged.log_prob, 0.0))
        of_unit = np.arange(len(logged.lists)) if logging != "propensities" else logged.list_of
        ranked = aim.mass[:, :1]
        return WeightUnits(
            unit[:, None],
            np.ones((1, 1)),
            logged.lists.query[of_unit],
            np.zeros(len(of_unit), np.int64),
            aim.list_prob[of_unit],
            known,
            ranked,
            np.array([logged.largest]),
        )


@final
@dataclass(frozen=True)
class IPWeights:
    """h(a, k) / pi(a, k): documents must stand at the same rank (section 3.2)."""

    name: ClassVar[str] = "IP"
    assumption: ClassVar[str] = "a click depends on the document and its rank alone"
    needs_linear: ClassVar[bool] = True

    def strata(
        self, logged: GroupedLog, aim: TargetProbabilities, logging: LoggingPolicy, target: Target | None = None
    ) -> WeightUnits:
        pair, rank = logged.cell_pair, logged.cell_rank
        return WeightUnits(
            logged.by_entry(logged.cell),
            np.ones((1, logged.n_ranks)),
            logged.vocabulary.pair_query[pair],
            rank,
            aim.placement[pair, rank],
            known.placement[pair, rank] if (known := _known_logging_policy(self, logging)) else None,
            aim.mass,
            logged.theta,
        )


@final
@dataclass(frozen=True)
class PBMWeights:
    """<theta p, h(a, .)> / <theta p, pi(a, .)>: documents must be examined at all (sections 3.5 and 5).

    `examination` p is the paper's 1 / rank by default, or that of a fitted PBM. Its scale does not matter, except that
    the rank with the largest is taken to be always examined when lost mass is bounded.
    """

    examination: tuple[float, ...] | None = None
    name: ClassVar[str] = "PBM"
    assumption: ClassVar[str] = "a click needs examination, which depends on the rank as stated, and attractiveness"
    needs_linear: ClassVar[bool] = True

    def strata(
        self, logged: GroupedLog, aim: TargetProbabilities, logging: LoggingPolicy, target: Target | None = None
    ) -> WeightUnits:
        if self.examination is None:
            return _by_document(self, 1 / np.arange(1.0, logged.n_ranks + 1), logged, aim, logging)
        p = np.asarray(self.examination, np.float64)
        if p.ndim != 1 or len(p) < logged.n_ranks or not (np.isfinite(p) & (p > 0)).all():
            raise SpecError(
                f"examination must be a number above 0 for each of {logged.n_ranks} ranks: got {self.examination}."
            )
        p = p[: logged.n_ranks]
        return _by_document(self, p / p.max(), logged, aim, logging)


@final
@dataclass(frozen=True)
class ItemWeights:
    """PBM with p = 1: documents must be shown as often, at whatever rank (section 3.6)."""

    name: ClassVar[str] = "Item"
    assumption: ClassVar[str] = "a click depends on the document alone"
    needs_linear: ClassVar[bool] = True

    def strata(
        self, logged: GroupedLog, aim: TargetProbabilities, logging: LoggingPolicy, target: Target | None = None
    ) -> WeightUnits:
        return _by_document(self, np.ones(logged.n_ranks), logged, aim, logging)


@final
@dataclass(frozen=True)
class RCTRWeights:
    """Weight 1: what the log earned, whatever the target (sections 3.3 and 3.4)."""

    name: ClassVar[str] = "RCTR"
    assumption: ClassVar[str] = "a click depends on the rank alone, so that all targets earn the same"
    needs_linear: ClassVar[bool] = False

    def strata(
        self, logged: GroupedLog, aim: TargetProbabilities, logging: LoggingPolicy, target: Target | None = None
    ) -> WeightUnits:
        queries = np.arange(logged.n_queries)
        ranked = aim.ranked.astype(np.float64)
        worth = np.array([logged.largest])
        unit = logged.query.astype(np.int64)[:, None]
        one = np.ones(len(queries))
        return WeightUnits(unit, np.ones((1, 1)), queries, np.zeros_like(queries), ranked, one, ranked[:, None], worth)


@final
@dataclass(frozen=True)
class RIPSWeights:
    """h(a_1..a_k) / pi(a_1..a_k): lists must be the same down to the rank (McInerney et al. 2020, RIPS)."""

    name: ClassVar[str] = "RIPS"
    assumption: ClassVar[str] = "a click depends on its document and on those above it alone"
    needs_linear: ClassVar[bool] = True

    def strata(
        self, logged: GroupedLog, aim: TargetProbabilities, logging: LoggingPolicy, target: Target | None = None
    ) -> WeightUnits:
        unit, first_list, rank = _prefixes(logged)
        known = _known_logging_policy(self, logging)
        if aim.prefix_prob is None or (known is not None and known.prefix_prob is None):
            raise CapabilityError("RIPS needs probabilities of beginnings: make the Aim with prefixes=True.")
        return WeightUnits(
            logged.by_entry(unit),
            np.ones((1, logged.n_ranks)),
            logged.lists.query[first_list],
            rank,
            aim.prefix_prob[first_list, rank],
            None if known is None or known.prefix_prob is None else known.prefix_prob[first_list, rank],
            aim.mass,
            logged.theta,
        )


def _known_logging_policy(weights: Weights, logging: LoggingPolicy) -> TargetProbabilities | None:
    if logging == "propensities":
        raise CapabilityError(
            f"{type(weights).__name__} needs how likely the logging policy shows each document at each rank: "
            "propensities of whole lists do not tell. Give the logging policy, or take frequencies."
        )
    return logging if isinstance(logging, TargetProbabilities) else None


def _by_document(
    weights: Weights,
    examination: Float[np.ndarray, " rank"],
    logged: GroupedLog,
    aim: TargetProbabilities,
    logging: LoggingPolicy,
) -> WeightUnits:
    known, exposure, words = _known_logging_policy(weights, logging), logged.theta * examination, logged.vocabulary
    return WeightUnits(
        logged.by_entry(logged.lists.pair),  # UNSEEN where nothing is shown
        exposure[None],
        words.pair_query,
        np.zeros(words.n_pairs, np.int64),
        aim.placement @ exposure,
        None if known is None else known.placement @ exposure,
        (aim.mass @ exposure)[:, None],
        np.ones(1),
    )


def _prefixes(logged: GroupedLog) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The number of each list's beginnings, and for each number a list that begins so and the rank where it ends."""
    lists = logged.lists
    unit = np.full(lists.pair.shape, UNSEEN, np.int64)
    above, found = lists.query.astype(np.int64), 0
    firsts = []
    for rank in range(lists.n_ranks):
        at = np.flatnonzero(lists.shown[:, rank])
        group, first = distinct_rows(np.stack([above[at], lists.pair[at, rank].astype(np.int64)], axis=1))
        above[at] = group
        unit[at, rank] = found + group
        firsts.append(at[first])
        found += len(first)
    return unit, np.concatenate(firsts), np.repeat(np.arange(lists.n_ranks), [len(f) for f in firsts])


@njit(cache=True, nogil=True)
@no_type_check
def _expose(unit, exposure, shown, out):
    for e in range(unit.shape[0]):
        own = exposure[min(e, len(exposure) - 1)]
        for s in range(unit.shape[1]):
            u = unit[e, s]
            if u >= 0:
                for p in range(shown.shape[1]):
                    out[u, p] += own[s] * shown[e, p]


@njit(cache=True, nogil=True)
@no_type_check
def _earn(unit, theta, clicks, out):
    for e in range(unit.shape[0]):
        for s in range(unit.shape[1]):
            u = unit[e, s]
            if u >= 0:
                for p in range(clicks.shape[2]):
                    out[u, p] += theta[s] * clicks[e, s, p]


@njit(cache=True, nogil=True)
@no_type_check
def _expect(unit, baseline, shown, out):
    for e in range(unit.shape[0]):
        for s in range(unit.shape[1]):
            u = unit[e, s]
            if u >= 0:
                for p in range(shown.shape[1]):
                    out[u, p] -= baseline[e, s] * shown[e, p]


@final
@dataclass(frozen=True, eq=False)
class CIPSWeights:
    """P(click on a | target) / P(click on a | log) by a click model.

    A factor of each document cancels. So it is taken to be clicked for certain where the model thinks that likeliest,
    which matters only for what lost mass could earn.
    """

    model: ClickModel
    name: ClassVar[str] = "CIPS"
    assumption: ClassVar[str] = "the click model is right, but for a factor of each document"
    needs_linear: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.model.predicts_clicks or self.model.peeks:
            raise CapabilityError(f"{type(self.model).__name__} cannot predict the clicks of a list. Choose another.")

    def strata(
        self, logged: GroupedLog, aim: TargetProbabilities, logging: LoggingPolicy, target: Target | None = None
    ) -> WeightUnits:
        if logging != "frequencies":
            raise CapabilityError("CIPS weighs by the lists that were shown. Leave the logging policy out.")
        if target is None:
            raise CapabilityError("CIPS asks its model about the target's lists: give the target.")
        words, (lists, weight) = logged.vocabulary, weighted_lists(logged, target)
        lists = pad_or_truncate(lists, logged.n_ranks)
        shown_there, shown_here = self.model.click_prob(lists), self.model.click_prob(logged.lists)
        there = lists.vocabulary
        pair_here = words.pairs_of(there)
        top, top_there = np.zeros(words.n_pairs + 1), np.zeros(there.n_pairs + 1)  # the last place is UNSEEN's
        np.maximum.at(top, logged.lists.pair, shown_here)
        np.maximum.at(top_there, lists.pair, shown_there)
        np.maximum.at(top, pair_here, top_there[:-1])
        scale = np.append(np.where(pair_here == UNSEEN, top_there[:-1], top[pair_here]), 1.0)
        expected = np.where(lists.shown, shown_there / np.maximum(scale[lists.pair], 1e-300), 0.0)
        expected = expected * logged.theta * weight[:, None]
        pair = np.where(lists.shown, np.append(pair_here, UNSEEN)[lists.pair], UNSEEN)
        aimed = sum_by_index(pair.ravel().astype(np.int64), expected.reshape(-1, 1), words.n_pairs)[:, 0]
        query = words.queries_of(there)[lists.query].astype(np.int64)
        mass = sum_by_index(query, expected.sum(axis=1, keepdims=True), logged.n_queries)
        top[-1] = 1.0
        exposure = np.where(
            logged.lists.shown, shown_here / np.maximum(top[logged.lists.pair], 1e-300) * logged.theta, 0.0
        )
        return WeightUnits(
            logged.by_entry(logged.lists.pair),
            logged.by_entry(exposure),
            words.pair_query,
            np.zeros(words.n_pairs, np.int64),
            aimed,
            None,
            mass,
            np.ones(1),
        )
