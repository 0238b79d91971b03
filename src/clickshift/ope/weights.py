"""Importance weights: what must be as likely under the target policy as in the log, and what that assumes of clicks.

Every estimator of Li et al. (2018) sums the reward of units of the log, each times target / logging, clipped at M:

    V = 1/n sum over units u of reward_u min(h_u / pi_u, M)

A unit is a list, a document at a rank, or a document; h is the target policy and pi the logging policy. If the logging
policy is estimated from the same log, pi_u is the unit's exposure divided by the query's sessions, so that counts are
all that is needed. A hole in a list is no unit: nobody knows what was there.

If the log carries propensities by position, every impression is weighted by the propensity pi_t(a, k) of its document a
at its rank k in its session t. IP takes h(a, k) / pi_t(a, k). PBM and Item would need the propensities of the document
at all ranks, which a log does not carry. They take X / (pi_t(a, k) sum_j e_j) with the target's exposure
X = sum_j e_j h(a, j), e_j = theta_j p_j: multiple importance sampling over the ranks at which a document may be shown,
with the weights e_k / sum_j e_j (Veach & Guibas 1995). This is unbiased where the logging policy may show every
document of the target at every rank; otherwise the mean weight is below 1.

References
----------
Li, S. et al. (2018). Offline evaluation of ranking policies with click models. KDD. (Section numbers refer to it.)

McInerney, J. et al. (2020). Counterfactual evaluation of slate recommendations with sequential reward interactions.
KDD.

Tanaka, K. et al. (2026). Off-policy evaluation for ranking policies under deterministic logging policies. ICLR.
(CIPS and, with a model of rewards, CDR)

Veach, E. & Guibas, L. (1995). Optimally combining sampling techniques for Monte Carlo rendering. SIGGRAPH.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import ClassVar, Literal, Protocol, final, no_type_check, runtime_checkable

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from clickshift.core.unique_rows import distinct_rows
from clickshift.data.vocabulary import UNSEEN
from clickshift.errors import CapabilityError, SpecError
from clickshift.models.base import MARGINAL_ERROR, ClickModel
from clickshift.ope.grouped_log import GroupedLog, Tally, sum_by_index
from clickshift.ope.target_policy import Target, TargetProbabilities, pad_or_truncate, split_by_segment, weighted_lists

LoggingPolicy = TargetProbabilities | Literal["frequencies", "propensities"]
"""A known logging policy, the list frequencies of the log itself, or the propensities that the log carries."""

_SolveWeights = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@final
@dataclass(frozen=True, eq=False)
class WeightUnits:
    """The units of a log for one kind of importance weights, with their target-policy probabilities.

    Parameters
    ----------
    unit
        Unit of each entry and slot: one slot for a whole list, or one per rank; `UNSEEN` where nothing is shown.
    exposure
        Exposure of one impression: the same in all lists (one row), or by entry.
    query
        Query of each unit.
    group
        Group of each unit. Self-normalised estimators divide by the mean weight of each group: a rank, or all units.
    target
        Target-policy probability (or expected exposure) of each unit.
    logging
        The same under the logging policy; None where it is estimated from the exposure in the log.
    mass
        Target-policy probability of all units of a query and group, logged or not.
    max_reward
        Largest reward of one unit of mass, by group.
    solve
        Solver for weights that are not a ratio of two probabilities, and may be negative.
    signed
        Whether weights may be negative.
    """

    unit: Int[np.ndarray, "entry slot"]
    exposure: Float[np.ndarray, "entry_or_1 slot"]
    query: Int[np.ndarray, " unit"]
    group: Int[np.ndarray, " unit"]
    target: Float[np.ndarray, " unit"]
    logging: Float[np.ndarray, " unit"] | None
    mass: Float[np.ndarray, "query group"]
    max_reward: Float[np.ndarray, " group"]
    solve: _SolveWeights | None = None
    signed: bool = False

    @property
    def by_rank(self) -> bool:
        """Whether units are parts of lists, which share the list's reward."""
        return bool(self.unit.shape[1] > 1)

    @cached_property
    def shown_by_target(self) -> WeightUnits:
        """The units that the target policy shows: the others have weight 0, and add nothing to an estimate."""
        if self.solve is not None:
            return self
        kept = self.target != 0
        number = np.where(kept, np.cumsum(kept) - 1, UNSEEN)
        number = np.append(number, UNSEEN)  # of the unit UNSEEN
        return replace(
            self,
            unit=number[self.unit],
            query=self.query[kept],
            group=self.group[kept],
            target=self.target[kept],
            logging=None if self.logging is None else self.logging[kept],
        )

    def numerator(
        self, exposed: Float[np.ndarray, "unit part"], sessions: Float[np.ndarray, "query part"]
    ) -> tuple[Float[np.ndarray, "unit part_or_1"], Float[np.ndarray, "query part"] | None]:
        """Numerator of the weights, and the mass that they cannot cover.

        That mass is None where it is the mass of what was not logged.
        """
        return (self.target[:, None], None) if self.solve is None else self.solve(exposed, sessions)

    def exposed(self, tally: Tally) -> Float[np.ndarray, "unit part"]:
        """Total exposure of each unit in a tally."""
        exposed = np.zeros((len(self.target), tally.shown.shape[1]))
        _add_exposure(self.unit, self.exposure, tally.shown, exposed)
        return exposed

    def earned(
        self, tally: Tally, log: GroupedLog, baseline: Float[np.ndarray, "entry slot"] | None = None
    ) -> Float[np.ndarray, "unit part"]:
        """Total reward of each unit in a tally, minus the click model's prediction (`baseline`) for its impressions."""
        if self.by_rank:
            earned = np.zeros((len(self.target), tally.shown.shape[1]))
            _add_reward(self.unit, *log.clicked, log.theta, tally.clicks, earned)
        else:
            earned = sum_by_index(self.unit[:, 0], tally.earned, len(self.target))
        if baseline is not None:
            _subtract_baseline(self.unit, baseline, tally.shown, earned)
        return earned


@runtime_checkable
class Weights(Protocol):
    """A kind of importance weights: implement this to add an estimator."""

    name: ClassVar[str]
    """Name of the estimator, as `Estimator.named` reads it."""
    assumption: ClassVar[str]
    """What must hold of clicks, as the end of a sentence that begins with "if"; empty where nothing must."""
    needs_linear: ClassVar[bool]
    """Whether the reward must be a sum over ranks."""

    @abstractmethod
    def units(
        self,
        log: GroupedLog,
        probabilities: TargetProbabilities,
        logging: LoggingPolicy,
        target: Target | None = None,
    ) -> WeightUnits:
        """Split a log into the units that are weighted.

        Parameters
        ----------
        log
            The grouped log.
        probabilities
            Target-policy probabilities at the lists and placements of the log.
        logging
            The logging policy.
        target
            The target policy itself, which weights by a click model need.
        """


@final
@dataclass(frozen=True)
class ListWeights:
    """List weights h(A) / pi(A): whole lists must match. Nothing is assumed of clicks (section 3.1).

    References
    ----------
    Li, S. et al. (2018). Offline evaluation of ranking policies with click models. KDD.
    """

    name: ClassVar[str] = "List"
    assumption: ClassVar[str] = ""
    needs_linear: ClassVar[bool] = False

    def units(
        self,
        log: GroupedLog,
        probabilities: TargetProbabilities,
        logging: LoggingPolicy,
        target: Target | None = None,
    ) -> WeightUnits:
        """Return one unit per list, or per entry where the log carries propensities."""
        unit, logging_prob = log.list_of, None
        if isinstance(logging, TargetProbabilities):
            logging_prob = logging.list_prob
        elif logging == "propensities":
            unit, logging_prob = np.arange(len(unit)), log.propensities.lists()
        list_of_unit = np.arange(len(log.lists)) if logging != "propensities" else log.list_of
        return WeightUnits(
            unit=unit[:, None],
            exposure=np.ones((1, 1)),
            query=log.lists.query[list_of_unit],
            group=np.zeros(len(list_of_unit), np.int64),
            target=probabilities.list_prob[list_of_unit],
            logging=logging_prob,
            mass=probabilities.mass_of_lists,
            max_reward=np.array([log.largest]),
        )


@final
@dataclass(frozen=True)
class IPWeights:
    """Item-position weights h(a, k) / pi(a, k): documents must be at the same rank (section 3.2).

    References
    ----------
    Li, S. et al. (2018). Offline evaluation of ranking policies with click models. KDD.
    """

    name: ClassVar[str] = "IP"
    assumption: ClassVar[str] = "a click depends only on the document and its rank"
    needs_linear: ClassVar[bool] = True

    def units(
        self,
        log: GroupedLog,
        probabilities: TargetProbabilities,
        logging: LoggingPolicy,
        target: Target | None = None,
    ) -> WeightUnits:
        """Return one unit per cell, i.e. per document at a rank."""
        pair, rank, unit = log.cell_pair, log.cell_rank, log.cell
        propensity: np.ndarray | None
        if logging == "propensities":
            unit, cell, propensity = _split_by_propensity(log.by_entry(log.cell), log.propensities.ranks(self.name))
            pair, rank = pair[cell], rank[cell]
        else:
            unit, known = log.by_entry(unit), _known_logging_policy(logging)
            propensity = None if known is None else known.placement[pair, rank]
        return WeightUnits(
            unit=unit,
            exposure=np.ones((1, log.n_ranks)),
            query=log.vocabulary.pair_query[pair],
            group=rank,
            target=probabilities.placement[pair, rank],
            logging=propensity,
            mass=probabilities.mass,
            max_reward=log.theta,
        )


@final
@dataclass(frozen=True)
class PBMWeights:
    """Position-based weights <theta p, h(a, .)> / <theta p, pi(a, .)>: documents must be examined (sections 3.5 and 5).

    Parameters
    ----------
    examination
        Examination probability p by rank; by default the paper's 1 / rank, or e.g. that of a fitted PBM. Its scale does
        not matter, except that the rank with the largest p counts as always examined when lost mass is bounded.

    References
    ----------
    Li, S. et al. (2018). Offline evaluation of ranking policies with click models. KDD.
    """

    examination: tuple[float, ...] | None = None
    name: ClassVar[str] = "PBM"
    assumption: ClassVar[str] = "a click needs examination, which depends on the rank as stated, and attractiveness"
    needs_linear: ClassVar[bool] = True

    def units(
        self,
        log: GroupedLog,
        probabilities: TargetProbabilities,
        logging: LoggingPolicy,
        target: Target | None = None,
    ) -> WeightUnits:
        """Return one unit per (query, document) pair.

        Raises
        ------
        SpecError
            If `examination` is not a number above 0 for each rank ("bad-examination").
        """
        if self.examination is None:
            return _units_by_document(self, 1 / np.arange(1.0, log.n_ranks + 1), log, probabilities, logging)
        p = np.asarray(self.examination, np.float64)
        if p.ndim != 1 or len(p) < log.n_ranks or not (np.isfinite(p) & (p > 0)).all():
            raise SpecError(
                f"examination must be a number above 0 for each of {log.n_ranks} ranks: got {self.examination}.",
                code="bad-examination",
                value=self.examination,
                n_ranks=log.n_ranks,
            )
        p = p[: log.n_ranks]
        return _units_by_document(self, p / p.max(), log, probabilities, logging)


@final
@dataclass(frozen=True)
class ItemWeights:
    """Item weights: PBM weights with p = 1, so that documents must be shown, at whatever rank (section 3.6).

    References
    ----------
    Li, S. et al. (2018). Offline evaluation of ranking policies with click models. KDD.
    """

    name: ClassVar[str] = "Item"
    assumption: ClassVar[str] = "a click depends only on the document"
    needs_linear: ClassVar[bool] = True

    def units(
        self,
        log: GroupedLog,
        probabilities: TargetProbabilities,
        logging: LoggingPolicy,
        target: Target | None = None,
    ) -> WeightUnits:
        """Return one unit per (query, document) pair."""
        return _units_by_document(self, np.ones(log.n_ranks), log, probabilities, logging)


@final
@dataclass(frozen=True)
class RCTRWeights:
    """Weight 1: the mean reward of the log, whatever the target policy (sections 3.3 and 3.4).

    References
    ----------
    Li, S. et al. (2018). Offline evaluation of ranking policies with click models. KDD.
    """

    name: ClassVar[str] = "RCTR"
    assumption: ClassVar[str] = "a click depends only on the rank, so that all target policies earn the same"
    needs_linear: ClassVar[bool] = False

    def units(
        self,
        log: GroupedLog,
        probabilities: TargetProbabilities,
        logging: LoggingPolicy,
        target: Target | None = None,
    ) -> WeightUnits:
        """Return one unit per query."""
        queries = np.arange(log.n_queries)
        ranked = probabilities.ranked.astype(np.float64)
        return WeightUnits(
            unit=log.query.astype(np.int64)[:, None],
            exposure=np.ones((1, 1)),
            query=queries,
            group=np.zeros_like(queries),
            target=ranked,
            logging=np.ones(len(queries)),
            mass=ranked[:, None],
            max_reward=np.array([log.largest]),
        )


@final
@dataclass(frozen=True)
class RIPSWeights:
    """Reward-interaction weights h(a_1..a_k) / pi(a_1..a_k): lists must be equal down to the rank.

    References
    ----------
    McInerney, J. et al. (2020). Counterfactual evaluation of slate recommendations with sequential reward interactions.
    KDD.
    """

    name: ClassVar[str] = "RIPS"
    assumption: ClassVar[str] = "a click depends only on its document and on those above it"
    needs_linear: ClassVar[bool] = True

    def units(
        self,
        log: GroupedLog,
        probabilities: TargetProbabilities,
        logging: LoggingPolicy,
        target: Target | None = None,
    ) -> WeightUnits:
        """Return one unit per distinct list prefix.

        Raises
        ------
        CapabilityError
            If the probabilities of prefixes were not computed ("missing-prefixes"), or if the log carries propensities
            that do not give those of prefixes ("no-prefix-propensities").
        """
        by_propensity = log.propensities.prefixes(self.name) if logging == "propensities" else None
        if by_propensity is not None and log.n_ranks == 1:
            return IPWeights().units(log, probabilities, logging, target)
        number, first_list, rank = _number_prefixes(log)
        unit = log.by_entry(number)
        known = _known_logging_policy(logging)
        if probabilities.prefix_prob is None or (known is not None and known.prefix_prob is None):
            raise CapabilityError(
                "RIPS needs the probabilities of list prefixes: make TargetProbabilities with prefixes=True.",
                code="missing-prefixes",
            )
        propensity = None if known is None or known.prefix_prob is None else known.prefix_prob[first_list, rank]
        if by_propensity is not None:
            unit, prefix, propensity = _split_by_propensity(unit, by_propensity)
            first_list, rank = first_list[prefix], rank[prefix]
        return WeightUnits(
            unit=unit,
            exposure=np.ones((1, log.n_ranks)),
            query=log.lists.query[first_list],
            group=rank,
            target=probabilities.prefix_prob[first_list, rank],
            logging=propensity,
            mass=probabilities.mass,
            max_reward=log.theta,
        )


def _known_logging_policy(logging: LoggingPolicy) -> TargetProbabilities | None:
    """Return the logging policy if it is known, None if it is estimated by list frequencies."""
    return logging if isinstance(logging, TargetProbabilities) else None


def _units_by_document(
    weights: Weights,
    examination: Float[np.ndarray, " rank"],
    log: GroupedLog,
    probabilities: TargetProbabilities,
    logging: LoggingPolicy,
) -> WeightUnits:
    """Return one unit per (query, document) pair, exposed by theta x examination at each rank.

    Where the log carries propensities by position, units are pairs with the same propensity.
    """
    exposure, vocabulary = log.theta * examination, log.vocabulary
    unit, pair = log.by_entry(log.lists.pair), np.arange(vocabulary.n_pairs)  # UNSEEN where nothing is shown
    propensity: np.ndarray | None
    if logging == "propensities":
        unit, pair, of_rank = _split_by_propensity(unit, log.propensities.ranks(weights.name))
        propensity = of_rank * exposure.sum()
    else:
        known = _known_logging_policy(logging)
        propensity = None if known is None else known.placement @ exposure
    return WeightUnits(
        unit=unit,
        exposure=exposure[None],
        query=vocabulary.pair_query[pair],
        group=np.zeros(len(pair), np.int64),
        target=(probabilities.placement @ exposure)[pair],
        logging=propensity,
        mass=(probabilities.mass @ exposure)[:, None],
        max_reward=np.ones(1),
    )


def _split_by_propensity(
    unit: Int[np.ndarray, "entry rank"], propensity: Float[np.ndarray, "entry rank"]
) -> tuple[Int[np.ndarray, "entry rank"], Int[np.ndarray, " unit"], Float[np.ndarray, " unit"]]:
    """Split units of single results by the logged propensity of the result.

    Returns the new units, and the old unit and the propensity of each.
    """
    shown = unit != UNSEEN
    split, first = distinct_rows(np.stack([unit[shown].astype(np.int64), propensity[shown].view(np.int64)], axis=1))
    new = np.full(unit.shape, UNSEEN, np.int64)
    new[shown] = split
    return new, unit[shown][first].astype(np.int64), propensity[shown][first]


def _number_prefixes(log: GroupedLog) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number the distinct prefixes of lists, of which holes are part.

    Returns the number of each list's prefix at each rank where a document is shown and, for each number, a list with
    that prefix and the rank where the prefix ends.
    """
    lists, length = log.lists, log.lists.length
    unit = np.full(lists.pair.shape, UNSEEN, np.int64)
    prefix, n_prefixes = lists.query.astype(np.int64), 0
    first_lists = []
    for rank in range(lists.n_ranks):
        rows = np.flatnonzero(length > rank)
        group, first = distinct_rows(np.stack([prefix[rows], lists.pair[rows, rank].astype(np.int64)], axis=1))
        prefix[rows] = group
        unit[rows, rank] = np.where(lists.shown[rows, rank], n_prefixes + group, UNSEEN)
        first_lists.append(rows[first])
        n_prefixes += len(first)
    ranks = np.repeat(np.arange(lists.n_ranks), [len(rows) for rows in first_lists])
    return unit, np.concatenate(first_lists), ranks


@njit(cache=True, nogil=True)
@no_type_check
def _add_exposure(unit, exposure, shown, out):
    """Add the exposure of every impression to its unit."""
    for e in range(unit.shape[0]):
        own = exposure[min(e, len(exposure) - 1)]
        for s in range(unit.shape[1]):
            u = unit[e, s]
            if u >= 0:
                for p in range(shown.shape[1]):
                    out[u, p] += own[s] * shown[e, p]


@njit(cache=True, nogil=True)
@no_type_check
def _add_reward(unit, entry, rank, theta, clicks, out):
    """Add theta x clicks of every clicked entry and rank to its unit."""
    for k in range(len(entry)):
        u = unit[entry[k], rank[k]]
        if u >= 0:
            for p in range(clicks.shape[1]):
                out[u, p] += theta[rank[k]] * clicks[k, p]


@njit(cache=True, nogil=True)
@no_type_check
def _subtract_baseline(unit, baseline, shown, out):
    """Subtract the click model's prediction for every impression from its unit."""
    for e in range(unit.shape[0]):
        for s in range(unit.shape[1]):
            u = unit[e, s]
            if u >= 0:
                for p in range(shown.shape[1]):
                    out[u, p] -= baseline[e, s] * shown[e, p]


@final
@dataclass(frozen=True, eq=False)
class CIPSWeights:
    """Click-based weights P(click on a | target) / P(click on a | log) by a click model.

    The randomness of clicks takes the place of that of the logging policy, so that the log of one deterministic ranker
    can be enough. With a PBM, attractiveness cancels, and what remains are the PBM weights of Li et al. (2018) with the
    model's examination instead of 1 / rank.

    A factor of each document cancels. A document therefore counts as clicked for certain in the list where the model
    thinks a click most likely, which only matters for the reward that lost mass could earn.

    Parameters
    ----------
    model
        Fitted click model.
    max_error
        Largest accepted error of the model's marginal click probabilities; 0 for exact ones.

    Raises
    ------
    CapabilityError
        If the click model cannot predict the clicks of a list ("cannot-predict-clicks").

    References
    ----------
    Tanaka, K. et al. (2026). Off-policy evaluation for ranking policies under deterministic logging policies. ICLR.
    """

    model: ClickModel
    max_error: float = field(default=MARGINAL_ERROR, repr=False)
    name: ClassVar[str] = "CIPS"
    assumption: ClassVar[str] = "the click model is right up to a factor of each document"
    needs_linear: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.model.predicts_clicks or self.model.peeks:
            name = type(self.model).__name__
            raise CapabilityError(
                f"{name} cannot predict the clicks of a list. Choose another model.",
                code="cannot-predict-clicks",
                model=name,
            )

    def units(
        self,
        log: GroupedLog,
        probabilities: TargetProbabilities,
        logging: LoggingPolicy,
        target: Target | None = None,
    ) -> WeightUnits:
        """Return one unit per (query, document) pair, exposed by the model's click probability.

        Raises
        ------
        CapabilityError
            If a logging policy is given ("frequencies-only") or the target is not ("missing-target").
        """
        if logging != "frequencies":
            raise CapabilityError(
                "CIPS weights by the lists that were shown. Leave the logging policy out.",
                code="frequencies-only",
                estimator="CIPS",
            )
        if target is None:
            raise CapabilityError(
                "CIPS applies its click model to the target's lists: pass the target.",
                code="missing-target",
                estimator="CIPS",
            )
        vocabulary = log.vocabulary
        lists, weight = split_by_segment(log, *weighted_lists(log, target))
        lists = pad_or_truncate(lists, log.n_ranks)
        predict = partial(self.model.click_prob, max_error=self.max_error)
        target_prob, logged_prob, logged = predict(lists), log.of_lists(predict), log.by_entry(log.lists.pair)
        target_vocabulary = lists.vocabulary
        log_pair = vocabulary.pairs_of(target_vocabulary)
        # largest click probability of each pair, in the log's and in the target's vocabulary; the last is UNSEEN's
        top, target_top = np.zeros(vocabulary.n_pairs + 1), np.zeros(target_vocabulary.n_pairs + 1)
        np.maximum.at(top, logged, logged_prob)
        np.maximum.at(target_top, lists.pair, target_prob)
        np.maximum.at(top, log_pair, target_top[:-1])
        scale = np.append(np.where(log_pair == UNSEEN, target_top[:-1], top[log_pair]), 1.0)
        expected = np.where(lists.shown, target_prob / np.maximum(scale[lists.pair], 1e-300), 0.0)
        expected = expected * log.theta * weight[:, None]
        pair = np.where(lists.shown, np.append(log_pair, UNSEEN)[lists.pair], UNSEEN)
        target_exposure = sum_by_index(pair.ravel().astype(np.int64), expected.reshape(-1, 1), vocabulary.n_pairs)[:, 0]
        query = vocabulary.queries_of(target_vocabulary)[lists.query].astype(np.int64)
        mass = sum_by_index(query, expected.sum(axis=1, keepdims=True), log.n_queries)
        top[-1] = 1.0
        shown = log.by_entry(log.lists.shown)
        exposure = np.where(shown, logged_prob / np.maximum(top[logged], 1e-300) * log.theta, 0.0)
        return WeightUnits(
            unit=logged,
            exposure=exposure,
            query=vocabulary.pair_query,
            group=np.zeros(vocabulary.n_pairs, np.int64),
            target=target_exposure,
            logging=None,
            mass=mass,
            max_reward=np.ones(1),
        )
