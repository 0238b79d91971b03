"""Targets: the policy whose value is asked for, and a logging policy that is known, seen from the lists of a log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float

from clickshift.core.parallel import for_ranges
from clickshift.core.rng import as_generator
from clickshift.core.unique_rows import RowIndex, distinct_rows
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import DataError
from clickshift.models.base import ClickModel
from clickshift.ope.grouped_log import GroupedLog, Tally, pack_rows, sum_by_index
from clickshift.policies.base import RankingDistribution
from clickshift.policies.plackett_luce import PlackettLuceRankings

_SUM = 1e-6  # by how much weights may miss a sum of 1: files carry rounded numbers
_NAMED = 3
_SAMPLES = 200


@final
@dataclass(frozen=True, eq=False)
class WeightedLists:
    """A lottery over lists for every query: the weights of a query's lists sum to 1. One list has weight 1."""

    lists: Rankings
    weight: np.ndarray = None  # type: ignore[assignment]
    """Float[session]; by default every query has one list."""

    def __post_init__(self) -> None:
        lists = self.lists
        if (lists.query == UNSEEN).any() or ((lists.pair == UNSEEN) & lists.shown).any():
            raise DataError(
                "every query and document of a target must have an id. Give its lists in their own vocabulary, "
                "not in the log's."
            )
        weight = _one_each(lists) if self.weight is None else np.asarray(self.weight, np.float64)
        if weight.shape != lists.query.shape:
            raise DataError(f"there must be one weight per list, {len(lists)}: got shape {weight.shape}.")
        bad = ~((weight >= 0) & (weight <= 1 + _SUM))
        if bad.any():
            row = int(bad.argmax())
            raise DataError(
                f"the weight of a list must be a probability: list {row + 1} has {weight[row]} "
                f"({int(bad.sum()):,} such lists). Mend it."
            )
        total = np.bincount(lists.query, weight)
        off = (np.abs(total - 1) > _SUM) & (np.bincount(lists.query) > 0)
        if off.any():
            query = int(off.argmax())
            raise DataError(
                f"the weights of a query's lists must sum to 1: those of query {_name(lists.vocabulary, query)} sum to "
                f"{total[query]:.6g} ({int(off.sum()):,} such queries). Divide them by their sum."
            )
        object.__setattr__(self, "weight", weight / total[lists.query])

    @classmethod
    def frequencies(cls, sessions: Sessions) -> WeightedLists:
        """How often each list was shown for its query: the policy that another log, or another day, had."""
        rankings = sessions.rankings
        keys = np.concatenate([rankings.query[:, None], rankings.pair], axis=1)
        group, first = distinct_rows(keys)
        count = np.bincount(group, sessions.count, len(first))
        query = rankings.query[first]
        lists = Rankings(rankings.vocabulary, query, rankings.pair[first], rankings.shown[first])
        return cls(lists, count / np.bincount(query, count)[query])


Target = RankingDistribution | WeightedLists


def policy_from_scores(vocabulary: Vocabulary, score: Float[np.ndarray, " pair"]) -> RankingDistribution:
    """Each query's documents by descending score, ties at random, as the `Scores` policy ranks them."""
    return PlackettLuceRankings(vocabulary, np.asarray(score, np.float64), temperature=0.0)


def as_target(given: Target | Rankings) -> Target:
    """One list per query is a lottery with one ticket."""
    return WeightedLists(given) if isinstance(given, Rankings) else given


@final
@dataclass(frozen=True, eq=False)
class TargetProbabilities:
    """A policy as seen from a log: how likely it shows what the log has, and how much it shows in all."""

    list_prob: Float[np.ndarray, " list"]
    """That it shows this list, cut to the ranks that count, and nothing more."""
    placement: Float[np.ndarray, "pair rank"]
    """That it shows this document at this rank, for every pair of the log's vocabulary."""
    mass: Float[np.ndarray, "query rank"]
    """That it shows anything at this rank; 0 for queries that it does not rank."""
    prefix_prob: Float[np.ndarray, "list rank"] | None = None
    """That its list begins like this one, up to and including this rank; where it was asked for."""
    unlogged: int = 0
    """Pairs that it may show and that the log never does, of queries that both have."""
    unlogged_names: tuple[str, ...] = ()
    """The likeliest of them."""

    @property
    def ranked(self) -> Bool[np.ndarray, " query"]:
        """The queries that it ranks."""
        ranked: np.ndarray = self.mass[:, 0] > 0
        return ranked

    @classmethod
    def at(cls, logged: GroupedLog, target: Target | Rankings, *, prefixes: bool = False) -> TargetProbabilities:
        """Ids are matched by name: the target has a vocabulary of its own."""
        target = as_target(target)
        if isinstance(target, WeightedLists):
            return _of_lists(logged, target, prefixes)
        return _of_policy(logged, target, prefixes)

    @classmethod
    def frequencies(cls, logged: GroupedLog, tally: Tally) -> TargetProbabilities:
        """The policy of a part of the log itself, such as one day, from its tally (of one part)."""
        share = tally.shown / np.maximum(logged.per_query(tally.shown), 1)[logged.query]
        of_list = sum_by_index(logged.list_of, share, len(logged.lists))[:, 0]
        mass = sum_by_index(logged.lists.query, of_list[:, None] * logged.lists.shown, logged.n_queries)
        return cls(of_list, _placed(logged, logged.lists, of_list), mass)


def _of_lists(logged: GroupedLog, target: WeightedLists, prefixes: bool) -> TargetProbabilities:
    own = pad_or_truncate(target.lists, logged.n_ranks)
    known = logged.vocabulary.queries_of(own.vocabulary)[own.query] != UNSEEN
    own, weight = own[known], target.weight[known]
    here = own.in_vocabulary(logged.vocabulary)
    mass = sum_by_index(here.query, weight[:, None] * here.shown, logged.n_queries)
    beginning = _begun(logged.lists, here, weight) if prefixes else None
    stranger = here.shown & ~_occurs(logged)[here.pair] & (weight > 0)[:, None]
    row, rank = np.nonzero(stranger)
    pair, at = np.unique(own.pair[row, rank], return_inverse=True)
    found = _likeliest(own.vocabulary, pair, np.bincount(at, weight[row], len(pair)))
    return TargetProbabilities(
        _whole(logged.lists, here, weight), _placed(logged, here, weight), mass, beginning, *found
    )


def _of_policy(logged: GroupedLog, target: RankingDistribution, prefixes: bool) -> TargetProbabilities:
    log, ranks, words = logged.lists, logged.n_ranks, target.vocabulary
    query_there = words.queries_of(logged.vocabulary)
    wanted = query_there[np.flatnonzero(np.bincount(log.query))]
    wanted = wanted[wanted != UNSEEN]
    placement = target.placement(wanted, ranks=ranks) if len(wanted) else np.zeros((words.n_pairs, ranks))
    query_here = logged.vocabulary.queries_of(words)
    mass = sum_by_index(query_here[words.pair_query], placement, logged.n_queries)
    pair_there = words.pairs_of(logged.vocabulary)
    here = np.where((pair_there == UNSEEN)[:, None], 0.0, placement[pair_there])
    # a policy shows min(ranks, candidates) documents: a shorter list is not one of its lists
    candidates = np.append(np.diff(words.query_offsets), 0)[query_there[log.query]]
    list_prob = np.where(log.length == np.minimum(candidates, ranks), np.exp(target.log_prob(log)), 0.0)
    strange = ~_occurs(logged)[logged.vocabulary.pairs_of(words)]
    total = placement.sum(axis=1)
    pair = np.flatnonzero(strange & (total > 0))
    beginning = _beginnings(log, target) if prefixes else None
    return TargetProbabilities(list_prob, here, mass, beginning, *_likeliest(words, pair, total[pair]))


def _beginnings(log: Rankings, target: RankingDistribution) -> Float[np.ndarray, "list rank"]:
    prob = np.zeros(log.pair.shape)
    for r in range(log.n_ranks):
        at = np.flatnonzero(log.shown[:, r])
        if len(at):
            prob[at, r] = np.exp(target.log_prob(Rankings(log.vocabulary, log.query[at], log.pair[at, : r + 1])))
    return prob


def _whole(log: Rankings, here: Rankings, weight: np.ndarray) -> Float[np.ndarray, " list"]:
    """The weight of the target's lists that are each logged list. A document that the log does not know is in none."""
    at = np.flatnonzero((here.shown == (here.pair != UNSEEN)).all(axis=1))
    theirs, ours = pack_rows(here.pair[at]), pack_rows(log.pair)
    group, first = distinct_rows(theirs)
    prob, index = np.append(np.bincount(group, weight[at], len(first)), 0.0), RowIndex.of(theirs[first])
    out = np.empty(len(log))

    def look(rows: slice) -> None:
        out[rows] = prob[index.find(ours[rows])]  # the last one for a list that the target never shows

    for_ranges(look, len(log))
    return out


def _begun(log: Rankings, here: Rankings, weight: np.ndarray) -> Float[np.ndarray, "list rank"]:
    """The weight of the target's lists that begin like each logged list, rank by rank."""
    out = np.zeros(log.pair.shape)
    ours, theirs = np.arange(len(log)), np.arange(len(here))  # those that may still have a beginning in common
    above, above_theirs = np.zeros(len(ours), np.int64), np.zeros(len(theirs), np.int64)
    for rank in range(log.n_ranks):
        go_on, go_on_theirs = log.pair[ours, rank] != UNSEEN, here.pair[theirs, rank] != UNSEEN
        ours, theirs = ours[go_on], theirs[go_on_theirs]
        keys = np.stack([above_theirs[go_on_theirs], here.pair[theirs, rank].astype(np.int64)], axis=1)
        above_theirs, first = distinct_rows(keys)
        prob = np.bincount(above_theirs, weight[theirs], len(first))
        above = RowIndex.of(keys[first]).find(np.stack([above[go_on], log.pair[ours, rank].astype(np.int64)], axis=1))
        ours, above = ours[above >= 0], above[above >= 0]
        out[ours, rank] = prob[above]
    return out


def _placed(logged: GroupedLog, here: Rankings, weight: np.ndarray) -> Float[np.ndarray, "pair rank"]:
    """The weight of the lists that show each pair at each rank."""
    place = np.where(here.pair == UNSEEN, UNSEEN, here.pair * np.int64(logged.n_ranks) + np.arange(logged.n_ranks))
    weights = np.repeat(weight, logged.n_ranks)[:, None]
    size = logged.vocabulary.n_pairs * logged.n_ranks
    return sum_by_index(place.ravel(), weights, size).reshape(-1, logged.n_ranks)


def _occurs(logged: GroupedLog) -> Bool[np.ndarray, " pair_or_unseen"]:
    """Which pairs the log shows at any rank that counts."""
    occurs = np.zeros(logged.vocabulary.n_pairs + 1, bool)
    occurs[logged.cell_pair] = True
    return occurs


def _likeliest(words: Vocabulary, pair: np.ndarray, prob: np.ndarray) -> tuple[int, tuple[str, ...]]:
    first = pair[np.argsort(-prob, kind="stable")[:_NAMED]]
    names = [f"{words.doc_ids[words.pair_doc[p]]} (query {_name(words, int(words.pair_query[p]))})" for p in first]
    return len(pair), tuple(names)


def pad_or_truncate(lists: Rankings, ranks: int) -> Rankings:
    """Lists of so many ranks, longer ones cut and shorter ones padded."""
    spare = ((0, 0), (0, max(0, ranks - lists.n_ranks)))
    pair = np.pad(lists.pair[:, :ranks], spare, constant_values=UNSEEN)
    return Rankings(lists.vocabulary, lists.query, pair, np.pad(lists.shown[:, :ranks], spare))


def weighted_lists(
    logged: GroupedLog, target: Target, *, rng: int | np.random.Generator = 0
) -> tuple[Rankings, Float[np.ndarray, " list"]]:
    """The target's lists for the queries of the log, with their weights, in its own vocabulary.

    All of them, if it is a lottery. Of a policy, 200 lists per query are drawn.
    """
    words = target.lists.vocabulary if isinstance(target, WeightedLists) else target.vocabulary
    wanted = np.zeros(logged.n_queries + 1, bool)  # the last place is for UNSEEN
    wanted[logged.lists.query] = True
    wanted = wanted[logged.vocabulary.queries_of(words)]
    if isinstance(target, WeightedLists):
        rows = wanted[target.lists.query]
        return target.lists[rows], target.weight[rows]
    query = np.repeat(np.flatnonzero(wanted), _SAMPLES).astype(np.int32)
    lists = target.sample(query, ranks=logged.n_ranks, rng=as_generator(rng))
    return lists, np.full(len(query), 1 / _SAMPLES)


def expected_reward(
    logged: GroupedLog, target: Target | Rankings, model: ClickModel, *, rng: int | np.random.Generator = 0
) -> Float[np.ndarray, " query"]:
    """What a click model expects of the target's lists: the direct method, per query of the log; 0 where not ranked."""
    lists, weight = weighted_lists(logged, as_target(target), rng=rng)
    if not len(lists):
        return np.zeros(logged.n_queries)
    reward = logged.reward.expected(model, pad_or_truncate(lists, logged.n_ranks)) * weight
    return sum_by_index(logged.vocabulary.queries_of(lists.vocabulary)[lists.query], reward[:, None], logged.n_queries)[
        :, 0
    ]


def _one_each(lists: Rankings) -> Float[np.ndarray, " session"]:
    times = np.bincount(lists.query)
    if (times > 1).any():
        raise DataError(
            f"a ranking must have one list per query: query {_name(lists.vocabulary, int(times.argmax()))} has "
            f"{times.max()}. Keep one, or give the lists weights that sum to 1."
        )
    return np.ones(len(lists))


def _name(words: Vocabulary, query: int) -> str:
    return str(words.query_ids[query])
