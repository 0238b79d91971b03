"""The reward of a target policy under one click model, with what the log does not tell about documents it lacks.

The model's attractiveness is calibrated first: each document's is multiplied by its logged clicks divided by those that
the model expects, given the clicks above it. Shrinkage of rarely shown documents then cancels, and what remains of the
model is how users browse. With a PBM this is the click-based estimator CIPS: logged clicks weighted by examination in
the target's lists, divided by examination in the log.

Documents that the log never shows could have any attractiveness: the floor and the ceiling of the reward set it to 0
and to 1. So could the part of a document's weight above the clipping constant: a document that was hardly ever examined
in the log, but would often be by the target.

References
----------
Tanaka, K. et al. (2026). Off-policy evaluation for ranking policies under deterministic logging policies. ICLR.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, final

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.core.unique_rows import distinct_rows
from clickshift.data.sessions import Rankings, Sessions
from clickshift.models.base import MARGINAL_ERROR, ClickModel
from clickshift.models.perturb import is_pair_table
from clickshift.models.segmented import Segmented, one_curve
from clickshift.ope.grouped_log import GroupedLog, pack_rows
from clickshift.ope.rewards import OUTCOME, Reward
from clickshift.ope.target_policy import Target, pad_or_truncate, split_by_segment, weighted_lists

_CERTAIN = 1e-9
"""Distance from 0 and 1 of attractiveness and satisfaction at the limits of what unseen documents may be like."""
_MOST_ATTRACTIVE = 0.98
"""Largest calibrated attractiveness within a list; a document's own clicks are scaled beyond it."""


@final
@dataclass(frozen=True, eq=False)
class TargetLists:
    """Lists of a target policy for the queries of a log, cut to the ranks that the reward counts.

    Parameters
    ----------
    lists
        Distinct lists, in the vocabulary of the log; `UNSEEN` pairs are not in the log's vocabulary.
    weight
        Probability of each list, given its query.
    length
        Length of the longest list of each query of the log; 0 for queries that the target does not rank.
    """

    lists: Rankings
    weight: Float[np.ndarray, " list"]
    length: Int[np.ndarray, " query"]

    @classmethod
    def of(cls, log: GroupedLog, target: Target) -> TargetLists:
        """Enumerate or sample the lists of a target policy for the queries of a log."""
        lists, weight = weighted_lists(log, target)
        if not len(lists):
            return cls(lists, weight, np.zeros(log.n_queries, np.int64))
        longest, query = np.minimum(lists.length, log.n_ranks), log.vocabulary.queries_of(lists.vocabulary)[lists.query]
        lists = pad_or_truncate(lists, log.n_ranks).in_vocabulary(log.vocabulary)
        keys = np.concatenate(
            [lists.query[:, None], pack_rows(lists.pair), pack_rows(np.packbits(lists.shown, axis=1))],
            axis=1,
            dtype=np.int64,
        )
        group, first = distinct_rows(keys)
        lists, weight = lists[first], np.bincount(group, weight, len(first))
        length = np.zeros(log.n_queries, np.int64)
        np.maximum.at(length, query, longest)
        return cls(lists, weight, length)

    def by_segment(self, log: GroupedLog) -> TargetLists:
        """Return the lists with the labels of the segment that the log keeps, as often as its sessions have them."""
        return TargetLists(*split_by_segment(log, self.lists, self.weight), self.length)

    @property
    def ranked(self) -> Bool[np.ndarray, " query"]:
        """Whether the target ranks each query."""
        return self.length > 0

    def earned(self, sessions: Sessions, reward: Reward) -> Float[np.ndarray, " row"]:
        """Logged reward of each session, over as many ranks as the target shows for its query."""
        ranks = len(reward.theta(sessions.n_ranks))
        shown = np.arange(ranks) < self.length[sessions.rankings.query][:, None]
        return reward.earned(reward.outcome(sessions)[:, :ranks] * shown)


class Valuation(NamedTuple):
    """Reward of a target per session under one click model.

    Parameters
    ----------
    value
        Reward, with unseen documents of average attractiveness.
    floor, ceiling
        The same if lost mass earns nothing, and if all of it is attractive.
    today
        Reward of the log on the same sessions.
    """

    value: float
    floor: float
    ceiling: float
    today: float


@final
@dataclass(frozen=True, eq=False)
class LostMass:
    """What the log does not tell about a target: documents without logged exposure, and clipped weights.

    Parameters
    ----------
    unlogged
        Whether each pair of the vocabulary has no logged exposure; the last is for pairs that the vocabulary lacks.
    kept
        Share of each pair's weight that is below the clipping constant.
    share
        Lost share of the target's exposure.
    effective
        Effective sample size of the weights, in sessions.
    """

    unlogged: Bool[np.ndarray, " pair_or_unseen"]
    kept: Float[np.ndarray, " pair_or_unseen"]
    share: float
    effective: float


@final
@dataclass(frozen=True, eq=False)
class CalibratedModel:
    """A click model whose attractiveness reproduces the logged clicks of each document.

    Parameters
    ----------
    model
        The calibrated model.
    factor
        Factor of each pair's click probability beyond what the calibrated attractiveness can express.
    exposed
        Clicks on each pair that the calibrated model expects in the log.
    """

    model: ClickModel
    factor: Float[np.ndarray, " pair_or_unseen"]
    exposed: Float[np.ndarray, " pair_or_unseen"]

    @classmethod
    def of(cls, model: ClickModel, sessions: Sessions, prob: Float[np.ndarray, "row rank"]) -> CalibratedModel:
        """Calibrate a model on a log.

        Parameters
        ----------
        model
            The fitted model, in the vocabulary of the log.
        sessions
            The log.
        prob
            Click probabilities given the clicks above, by the model.
        """
        return cls.from_sums(model, *sums_by_pair(sessions, prob))

    @classmethod
    def from_sums(
        cls,
        model: ClickModel,
        expected: Float[np.ndarray, " pair_or_unseen"],
        clicks: Float[np.ndarray, " pair_or_unseen"],
        value: Float[np.ndarray, " pair_or_unseen"] | None = None,
    ) -> CalibratedModel:
        """Calibrate a model on the clicks that it expects on each pair of a log, and those that were logged.

        With the total `value` of the clicks of each pair, the factor is that of the click probability and of the mean
        value of a click; of documents that were never logged, it is the mean of all clicks.
        """
        logged = expected > 0
        ratio = np.where(logged, clicks / np.where(logged, expected, 1.0), 1.0)
        mean = 1.0 if value is None else value.sum() / max(clicks.sum(), 1e-300)
        per_click = 1.0 if value is None else np.where(clicks > 0, value / np.maximum(clicks, 1e-300), mean)
        if not hasattr(model, "attractiveness"):
            return cls(model, ratio * per_click, expected)
        a = model.attractiveness
        raw = np.where(logged, a * ratio, a[-1])
        calibrated = np.clip(raw, _CERTAIN, _MOST_ATTRACTIVE)
        factor = np.where(logged, raw / calibrated * per_click, mean)
        exposed = np.where(logged, expected * calibrated / np.where(logged, a, 1.0), 0.0)
        return cls(_with_tables(model, {"attractiveness": calibrated}), factor, exposed)

    def click_prob(self, lists: Rankings) -> Float[np.ndarray, "list rank"]:
        """Click probabilities of lists by the calibrated model, with the error that is accepted of NCM."""
        return self.model.click_prob(lists, max_error=MARGINAL_ERROR)

    def with_unlogged(self, unlogged: Bool[np.ndarray, " pair_or_unseen"], **values: float) -> ClickModel:
        """Return the model with given parameters of the documents that were never logged."""
        tables = {name: np.where(unlogged, value, getattr(self.model, name)) for name, value in values.items()}
        return _with_tables(self.model, tables)


def _with_tables(model: ClickModel, tables: Mapping[str, Any]) -> ClickModel:
    """Return a model with other parameters of documents, which all segments share."""
    own = replace(one_curve(model), **tables)
    return replace(model, components=(own,)) if isinstance(model, Segmented) else own


def sums_by_pair(
    sessions: Sessions, prob: Float[np.ndarray, "row rank"]
) -> tuple[Float[np.ndarray, " pair_or_unseen"], ...]:
    """Sum the clicks on each pair that a model expects, those that were logged, and their values where a log has them.

    Parameters
    ----------
    sessions
        The log.
    prob
        Click probabilities given the clicks above, by the model.
    """
    pair, size = sessions.rankings.pair + 1, sessions.vocabulary.n_pairs + 1  # UNSEEN is 0 here
    row, rank = np.nonzero(sessions.click)
    expected = np.bincount(pair.ravel(), (prob * sessions.count[:, None]).ravel(), size)
    clicks = np.bincount(pair[row, rank], sessions.count[row], size)
    sums = [expected, clicks]
    if (values := sessions.signals.get(OUTCOME)) is not None:
        sums.append(np.bincount(pair.ravel(), (values * sessions.count[:, None]).ravel(), size))
    return tuple(np.append(own[1:], 0.0) for own in sums)


def lost_mass(
    calibrated: CalibratedModel, target: TargetLists, sessions: Float[np.ndarray, " query"], reward: Reward, clip: float
) -> LostMass:
    """Determine what a log does not tell about a target.

    Parameters
    ----------
    calibrated
        The calibrated click model.
    target
        The target's lists.
    sessions
        Number of sessions by query.
    reward
        The reward.
    clip
        Largest weight: expected clicks on a document by the target, divided by those in the log.
    """
    size, lists = len(calibrated.exposed), target.lists
    mass = _exposure_weight(target, sessions, reward)
    prob = calibrated.click_prob(lists)
    attractiveness = getattr(calibrated.model, "attractiveness", None)
    exposure = mass * (prob / attractiveness[lists.pair] if attractiveness is not None else lists.shown)
    clicks = np.bincount((lists.pair % size).ravel(), (mass * prob).ravel(), size)
    exposed = np.bincount((lists.pair % size).ravel(), np.where(lists.shown, exposure, 0).ravel(), size)
    unlogged = calibrated.exposed <= 0
    weight = clicks / np.where(unlogged, 1.0, calibrated.exposed)
    kept = np.where(unlogged, 0.0, np.minimum(1.0, clip / np.maximum(weight, 1e-300)))
    total = exposed.sum()
    # the effective sample size of weights w of examinations e: (sum w e)^2 / sum w^2 e, as a share of the sessions
    logged = np.where(unlogged, 0.0, calibrated.exposed)
    square = (np.minimum(weight, clip) ** 2 * logged).sum()
    effective = (np.minimum(weight, clip) * logged).sum() ** 2 / square / max(logged.sum(), 1e-300) if square > 0 else 0
    share = float(((1 - kept) * exposed).sum() / total) if total > 0 else 1.0
    return LostMass(unlogged, kept, share, float(effective * sessions[target.ranked].sum()))


def value_target(
    calibrated: CalibratedModel,
    target: TargetLists,
    sessions: Float[np.ndarray, " query"],
    earned: float,
    reward: Reward,
    lost: LostMass,
) -> Valuation:
    """Compute the reward of a target per session.

    Parameters
    ----------
    calibrated
        The calibrated click model.
    target
        The target's lists.
    sessions
        Number of sessions by query.
    earned
        Total logged reward of the sessions of queries that the target ranks.
    reward
        The reward.
    lost
        What the log does not tell about the target.
    """
    total = float(sessions[target.ranked].sum())
    lists, weight = target.lists, target.weight * sessions[target.lists.query]
    pair = lists.pair
    attractiveness = getattr(calibrated.model, "attractiveness", None)
    prob = calibrated.click_prob(lists)
    theta = reward.theta(lists.n_ranks)
    own = weight[:, None] * theta * prob
    unknown = 1 - lost.kept[pair]
    limit = weight[:, None] * theta * (prob / attractiveness[pair] if attractiveness is not None else 1.0)
    clipped = np.where(lists.shown & ~lost.unlogged[pair], unknown, 0.0)
    scaled = own * calibrated.factor[pair]
    if reward.is_linear:
        by_list = scaled.sum(axis=1, where=lists.shown)
    else:
        by_list = weight * reward.expected(calibrated.model, lists)
    floor = by_list - (clipped * scaled).sum(axis=1)
    ceiling = by_list + (clipped * np.maximum(limit - scaled, 0)).sum(axis=1)
    rows = np.flatnonzero((lists.shown & lost.unlogged[pair]).any(axis=1))
    if len(rows):
        low, high = _unlogged_range(calibrated, lists[rows], weight[rows], reward, lost.unlogged)
        floor[rows] += low - by_list[rows]
        ceiling[rows] += high - by_list[rows]
    return Valuation(*(float(x) / total for x in (by_list.sum(), floor.sum(), ceiling.sum(), earned)))


def _unlogged_range(
    calibrated: CalibratedModel,
    lists: Rankings,
    weight: Float[np.ndarray, " list"],
    reward: Reward,
    unlogged: Bool[np.ndarray, " pair_or_unseen"],
) -> tuple[Float[np.ndarray, " list"], Float[np.ndarray, " list"]]:
    """Smallest and largest reward of lists with unlogged documents, over what those documents may be like."""
    model, pair = calibrated.model, lists.pair
    tables = [f.name for f in fields(one_curve(model)) if is_pair_table(f)]
    factor = np.where(unlogged, 1.0, calibrated.factor)[pair]
    theta = reward.theta(lists.n_ranks)
    values = []
    if not tables:  # the model has no parameters of documents: an unlogged result is clicked never, or always
        prob = calibrated.click_prob(lists) * factor
        for click in (0.0, 1.0):
            values.append((theta * np.where(unlogged[pair], click, prob)).sum(axis=1, where=lists.shown))
        return weight * values[0], weight * values[1]
    for corner in itertools.product((_CERTAIN, 1 - _CERTAIN), repeat=len(tables)):
        changed = calibrated.with_unlogged(unlogged, **dict(zip(tables, corner, strict=True)))
        if reward.is_linear:
            values.append((theta * factor * changed.click_prob(lists)).sum(axis=1, where=lists.shown))
        else:
            values.append(reward.expected(changed, lists))
    return weight * np.min(values, axis=0), weight * np.max(values, axis=0)


def _exposure_weight(
    target: TargetLists, sessions: Float[np.ndarray, " query"], reward: Reward
) -> Float[np.ndarray, "list rank"]:
    """Sessions that each result of the target's lists would have, times the weight of its rank."""
    theta = reward.theta(target.lists.n_ranks) / reward.unit
    weight: np.ndarray = (target.weight * sessions[target.lists.query])[:, None] * theta
    return np.where(target.lists.shown, weight, 0.0)
