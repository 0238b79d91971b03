"""Target policies, and their probabilities of the lists and placements of a log.

The target policy is the one whose value is estimated. A logging policy that is known is represented in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float

from clickshift.core.parallel import for_ranges
from clickshift.core.rng import as_generator
from clickshift.core.unique_rows import RowIndex, distinct_rows
from clickshift.data.segments import UNKNOWN, Segment
from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.data.weighted_lists import WeightedLists
from clickshift.io.target_files import read_target
from clickshift.models.base import ClickModel
from clickshift.ope.grouped_log import GroupedLog, Tally, any_empty, list_keys, sum_by_index
from clickshift.policies.base import RankingDistribution
from clickshift.policies.plackett_luce import PlackettLuceRankings

_N_NAMES = 3
"""Number of unlogged documents that messages name."""
_N_SAMPLES = 200
"""Number of lists that are sampled per query from a policy that cannot be enumerated."""


Target = RankingDistribution | WeightedLists
"""A target policy: a distribution over rankings, or lists with probabilities."""
TargetLike = Target | Rankings | str | Path | Any
"""Anything that `as_target` makes a policy of: a policy, rankings, or a table as a file or a data frame."""


def policy_from_scores(vocabulary: Vocabulary, score: Float[np.ndarray, " pair"]) -> RankingDistribution:
    """Make the policy that ranks each query's documents by descending score, with ties broken at random.

    It ranks as the policy `Scores` does.

    Parameters
    ----------
    vocabulary
        Queries and documents of the policy.
    score
        Score of each (query, document) pair.

    Returns
    -------
    RankingDistribution
        The policy, of the given queries and documents.

    Examples
    --------
    >>> vocabulary = Vocabulary.of(np.array([0, 0]), np.array([10, 11]))[0]
    >>> policy_from_scores(vocabulary, np.array([0.1, 0.9])).placement(ranks=1).tolist()
    [[0.0], [1.0]]
    """
    return PlackettLuceRankings(vocabulary, np.asarray(score, np.float64), temperature=0.0)


def as_target(given: TargetLike) -> Target:
    """Make a target policy of rankings with one list per query, or of a table; return a policy as it is.

    Parameters
    ----------
    given
        A policy, rankings, or a table of lists or scores as a file or a data frame.

    Raises
    ------
    FileError
        If the table is no target, or breaks a rule.
    """
    if isinstance(given, Rankings):
        return WeightedLists(given)
    if isinstance(given, WeightedLists | RankingDistribution):
        return given
    found = read_target(given)
    return found if isinstance(found, WeightedLists) else policy_from_scores(found.vocabulary, found.value)


def ranked_queries(target: Target, vocabulary: Vocabulary) -> Bool[np.ndarray, " query"]:
    """Return which queries of a vocabulary a target policy ranks: those with lists, or with candidates.

    Parameters
    ----------
    target
        The policy.
    vocabulary
        The vocabulary of a log.
    """
    own = target.vocabulary
    ranks = (
        np.bincount(target.lists.query, minlength=own.n_queries)
        if isinstance(target, WeightedLists)
        else (np.diff(own.query_offsets))
    )
    number = own.queries_of(vocabulary)
    ranked: np.ndarray = np.append(ranks > 0, False)[number]  # the last is for UNSEEN
    return ranked


def longest_list(target: Target, vocabulary: Vocabulary) -> int:
    """Return the length of the longest list that a target policy shows for the queries of a vocabulary.

    Parameters
    ----------
    target
        The policy.
    vocabulary
        The vocabulary of a log.
    """
    own = target.vocabulary
    ranked = vocabulary.queries_of(own) != UNSEEN
    if isinstance(target, WeightedLists):
        return int(target.lists.length[ranked[target.lists.query]].max(initial=0))
    return int(np.diff(own.query_offsets)[ranked].max(initial=0))


@final
@dataclass(frozen=True, eq=False)
class TargetProbabilities:
    """Target-policy probabilities of the logged lists and placements, and its total mass by query and rank.

    A list is a logged one if it has the same documents at the same ranks, and so the same holes: a policy that leaves
    no hole shows no list that has one. A document of the target at a rank where the log has a hole is a placement like
    any other: it is logged where sessions show the document at that rank.

    Parameters
    ----------
    list_prob
        Probability that the policy shows this list, truncated to the ranks that count, and nothing more.
    placement
        Probability that the policy shows this document at this rank, for every pair of the log's vocabulary.
    mass
        Probability that the policy shows anything at this rank; 0 for queries that it does not rank.
    prefix_prob
        Probability that the policy's list equals this one down to and including this rank; None unless requested.
    unlogged
        Number of pairs that the policy may show and the log never shows, over queries that both have.
    unlogged_names
        The most likely of those pairs, as text.
    list_mass
        Probability that the policy shows a list; None where that is the mass of the first rank, i.e. where no list of
        the target begins with a hole.
    """

    list_prob: Float[np.ndarray, " list"]
    placement: Float[np.ndarray, "pair rank"]
    mass: Float[np.ndarray, "query rank"]
    prefix_prob: Float[np.ndarray, "list rank"] | None = None
    unlogged: int = 0
    unlogged_names: tuple[str, ...] = ()
    list_mass: Float[np.ndarray, " query"] | None = None

    @property
    def mass_of_lists(self) -> Float[np.ndarray, "query 1"]:
        """Probability that the policy shows a list; 0 for queries that it does not rank."""
        mass: np.ndarray = self.mass[:, :1] if self.list_mass is None else self.list_mass[:, None]
        return mass

    @property
    def ranked(self) -> Bool[np.ndarray, " query"]:
        """Whether the policy ranks each query."""
        ranked: np.ndarray = self.mass_of_lists[:, 0] > 0
        return ranked

    @classmethod
    def at(cls, log: GroupedLog, target: Target | Rankings, *, prefixes: bool = False) -> TargetProbabilities:
        """Compute the probabilities of a policy at the lists and placements of a log.

        Queries and documents are matched by id: the policy has a vocabulary of its own.

        Parameters
        ----------
        log
            The grouped log.
        target
            The policy.
        prefixes
            Whether to compute `prefix_prob`, too.
        """
        target = as_target(target)
        if isinstance(target, WeightedLists):
            return _probabilities_of_lists(log, target, prefixes)
        return _probabilities_of_policy(log, target, prefixes)

    @classmethod
    def frequencies(cls, log: GroupedLog, tally: Tally) -> TargetProbabilities:
        """Estimate the policy of a part of the log, e.g. of one day, from its tally (of one part)."""
        share = tally.shown / np.maximum(tally.sessions, 1)[log.query]
        list_prob = sum_by_index(log.list_of, share, len(log.lists))[:, 0]
        mass = sum_by_index(log.lists.query, list_prob[:, None] * log.lists.shown, log.n_queries)
        return cls(
            list_prob,
            _placement(log, log.lists, list_prob),
            mass,
            list_mass=_list_mass(log.lists, list_prob, log.n_queries),
        )


def _list_mass(lists: Rankings, weight: np.ndarray, n_queries: int) -> Float[np.ndarray, " query"] | None:
    """Total weight of the lists of each query; None where every list shows a document at the first rank."""
    return None if lists.shown[:, 0].all() else sum_by_index(lists.query, weight[:, None], n_queries)[:, 0]


def _probabilities_of_lists(log: GroupedLog, target: WeightedLists, prefixes: bool) -> TargetProbabilities:
    """Compute the probabilities of a policy that is given as weighted lists."""
    lists = pad_or_truncate(target.lists, log.n_ranks)
    in_log = log.vocabulary.queries_of(lists.vocabulary)[lists.query] != UNSEEN
    lists, weight = lists[in_log], target.weight[in_log]
    translated = lists.in_vocabulary(log.vocabulary)
    mass = sum_by_index(translated.query, weight[:, None] * translated.shown, log.n_queries)
    prefix_prob = _prefix_prob_of_lists(log.lists, translated, weight) if prefixes else None
    never_logged = translated.shown & ~_is_logged(log)[translated.pair] & (weight > 0)[:, None]
    row, rank = np.nonzero(never_logged)
    pair, index = np.unique(lists.pair[row, rank], return_inverse=True)
    unlogged = _describe_unlogged(lists.vocabulary, pair, np.bincount(index, weight[row], len(pair)))
    list_prob = _list_prob(log.lists, translated, weight)
    list_mass = _list_mass(translated, weight, log.n_queries)
    return TargetProbabilities(list_prob, _placement(log, translated, weight), mass, prefix_prob, *unlogged, list_mass)


def _probabilities_of_policy(log: GroupedLog, target: RankingDistribution, prefixes: bool) -> TargetProbabilities:
    """Compute the probabilities of a policy that is a distribution over rankings."""
    lists, ranks, vocabulary = log.lists, log.n_ranks, target.vocabulary
    target_query = vocabulary.queries_of(log.vocabulary)
    wanted = target_query[np.flatnonzero(np.bincount(lists.query))]
    wanted = wanted[wanted != UNSEEN]
    placement = target.placement(wanted, ranks=ranks) if len(wanted) else np.zeros((vocabulary.n_pairs, ranks))
    log_query = log.vocabulary.queries_of(vocabulary)
    mass = sum_by_index(log_query[vocabulary.pair_query], placement, log.n_queries)
    target_pair = vocabulary.pairs_of(log.vocabulary)
    log_placement = np.where((target_pair == UNSEEN)[:, None], 0.0, placement[target_pair])
    # a policy shows min(ranks, candidates) documents, without a hole: a shorter list is not one of its lists
    candidates = np.append(np.diff(vocabulary.query_offsets), 0)[target_query[lists.query]]
    whole = (lists.length == np.minimum(candidates, ranks)) & (lists.n_shown == lists.length)
    list_prob = np.where(whole, np.exp(target.log_prob(lists)), 0.0)
    never_logged = ~_is_logged(log)[log.vocabulary.pairs_of(vocabulary)]
    total = placement.sum(axis=1)
    pair = np.flatnonzero(never_logged & (total > 0))
    prefix_prob = _prefix_prob_of_policy(lists, target) if prefixes else None
    unlogged = _describe_unlogged(vocabulary, pair, total[pair])
    return TargetProbabilities(list_prob, log_placement, mass, prefix_prob, *unlogged)


def _prefix_prob_of_policy(lists: Rankings, target: RankingDistribution) -> Float[np.ndarray, "list rank"]:
    """Probability, under a distribution over rankings, of every prefix of the logged lists."""
    prob = np.zeros(lists.pair.shape)
    unbroken = np.ones(len(lists), bool)
    for r in range(lists.n_ranks):
        unbroken &= lists.shown[:, r]  # a policy leaves no hole
        rows = np.flatnonzero(unbroken)
        if len(rows):
            prefix = Rankings(lists.vocabulary, lists.query[rows], lists.pair[rows, : r + 1])
            prob[rows, r] = np.exp(target.log_prob(prefix))
    return prob


def _list_prob(logged: Rankings, target: Rankings, weight: np.ndarray) -> Float[np.ndarray, " list"]:
    """Total weight of the target's lists that equal each logged list.

    Both are in the log's vocabulary. A target list with a document that the log does not have equals none.
    """
    rows, ranks = np.flatnonzero((target.shown == (target.pair != UNSEEN)).all(axis=1)), logged.n_ranks
    with_query = any_empty(target, ranks) or any_empty(logged, ranks)
    target_keys, logged_keys = (list_keys(lists, ranks, with_query=with_query) for lists in (target[rows], logged))
    group, first = distinct_rows(target_keys)
    prob, index = np.append(np.bincount(group, weight[rows], len(first)), 0.0), RowIndex.of(target_keys[first])
    list_prob = np.empty(len(logged))

    def look_up(block: slice) -> None:
        # a list that the target never shows has the index -1, and so the 0 at the end
        list_prob[block] = prob[index.find(logged_keys[block])]

    for_ranges(look_up, len(logged))
    return list_prob


def _prefix_prob_of_lists(logged: Rankings, target: Rankings, weight: np.ndarray) -> Float[np.ndarray, "list rank"]:
    """Total weight of the target's lists that share each prefix of each logged list; holes are part of prefixes."""
    prefix_prob = np.zeros(logged.pair.shape)
    # rows whose prefix may still be shared, and the number of that prefix
    logged_rows, target_rows = np.arange(len(logged)), np.arange(len(target))
    # a prefix that begins with a hole does not tell its query
    logged_prefix, target_prefix = logged.query.astype(np.int64), target.query.astype(np.int64)
    logged_length, target_length = logged.length, target.length
    for rank in range(logged.n_ranks):
        logged_on = rank < logged_length[logged_rows]
        target_on = (rank < target_length[target_rows]) & (
            target.shown[target_rows, rank] == (target.pair[target_rows, rank] != UNSEEN)
        )
        logged_rows, target_rows = logged_rows[logged_on], target_rows[target_on]
        keys = np.stack([target_prefix[target_on], target.pair[target_rows, rank].astype(np.int64)], axis=1)
        target_prefix, first = distinct_rows(keys)
        prob = np.bincount(target_prefix, weight[target_rows], len(first))
        logged_keys = np.stack([logged_prefix[logged_on], logged.pair[logged_rows, rank].astype(np.int64)], axis=1)
        logged_prefix = RowIndex.of(keys[first]).find(logged_keys)
        logged_rows, logged_prefix = logged_rows[logged_prefix >= 0], logged_prefix[logged_prefix >= 0]
        prefix_prob[logged_rows, rank] = np.where(logged.shown[logged_rows, rank], prob[logged_prefix], 0.0)
    return prefix_prob


def _placement(log: GroupedLog, lists: Rankings, weight: np.ndarray) -> Float[np.ndarray, "pair rank"]:
    """Total weight of the lists that show each pair at each rank; the lists are in the log's vocabulary."""
    cell = np.where(lists.pair == UNSEEN, UNSEEN, lists.pair * np.int64(log.n_ranks) + np.arange(log.n_ranks))
    weights = np.repeat(weight, log.n_ranks)[:, None]
    size = log.vocabulary.n_pairs * log.n_ranks
    return sum_by_index(cell.ravel(), weights, size).reshape(-1, log.n_ranks)


def _is_logged(log: GroupedLog) -> Bool[np.ndarray, " pair_or_unseen"]:
    """Whether the log shows each pair at any rank that counts; False at the end, for `UNSEEN`."""
    logged = np.zeros(log.vocabulary.n_pairs + 1, bool)
    logged[log.cell_pair] = True
    return logged


def _describe_unlogged(vocabulary: Vocabulary, pair: np.ndarray, prob: np.ndarray) -> tuple[int, tuple[str, ...]]:
    """Count unlogged pairs, and name the most likely ones."""
    likeliest = pair[np.argsort(-prob, kind="stable")[:_N_NAMES]]
    names = [
        f"{vocabulary.doc_ids[vocabulary.pair_doc[p]]} (query {_query_id(vocabulary, int(vocabulary.pair_query[p]))})"
        for p in likeliest
    ]
    return len(pair), tuple(names)


def pad_or_truncate(lists: Rankings, ranks: int) -> Rankings:
    """Give lists exactly `ranks` ranks: truncate longer ones, pad shorter ones with `UNSEEN`.

    Lists that begin with holes may show nothing then.
    """
    padding = ((0, 0), (0, max(0, ranks - lists.n_ranks)))
    pair = np.pad(lists.pair[:, :ranks], padding, constant_values=UNSEEN)
    shown = np.pad(lists.shown[:, :ranks], padding)
    return Rankings.checked(lists.vocabulary, lists.query, pair, shown, segments=dict(lists.segments))


def weighted_lists(
    log: GroupedLog, target: Target, *, rng: int | np.random.Generator = 0
) -> tuple[Rankings, Float[np.ndarray, " list"]]:
    """Enumerate or sample the target's lists for the queries of a log, with their weights.

    Parameters
    ----------
    log
        The grouped log.
    target
        Weighted lists are enumerated; from any other policy, 200 lists per query are sampled.
    rng
        Seed or generator of the sample.

    Returns
    -------
    tuple of Rankings and array
        The lists in the target's own vocabulary, and their weights.
    """
    vocabulary = target.vocabulary
    wanted = np.zeros(log.n_queries + 1, bool)  # the last element is for UNSEEN
    wanted[log.lists.query] = True
    wanted = wanted[log.vocabulary.queries_of(vocabulary)]
    if isinstance(target, WeightedLists):
        rows = wanted[target.lists.query]
        return target.lists[rows], target.weight[rows]
    query = np.repeat(np.flatnonzero(wanted), _N_SAMPLES).astype(np.int32)
    lists = target.sample(query, ranks=log.n_ranks, rng=as_generator(rng))
    return lists, np.full(len(query), 1 / _N_SAMPLES)


def split_by_segment(
    log: GroupedLog, lists: Rankings, weight: Float[np.ndarray, " list"]
) -> tuple[Rankings, Float[np.ndarray, " split"]]:
    """Divide lists among the labels of the segment that a log keeps, as the sessions of their queries are.

    Parameters
    ----------
    log
        The grouped log.
    lists
        Lists of queries of the log, in any vocabulary.
    weight
        Weight of each list.

    Returns
    -------
    tuple of Rankings and array
        The lists with their labels, and their weights; the lists themselves if the log keeps no segment.
    """
    if not log.segments:
        return lists, weight
    ((name, segment),) = log.segments.items()
    shares = log.segment_shares[log.vocabulary.queries_of(lists.vocabulary)[lists.query]]
    row, label = np.nonzero(shares)
    code = np.where(label < len(segment.labels), label, UNKNOWN).astype(np.int32)
    own = lists[row]
    segments = {name: Segment.checked(segment.labels, code)}
    split = Rankings.checked(own.vocabulary, own.query, own.pair, own.shown, segments=segments)
    return split, weight[row] * shares[row, label]


def expected_reward(
    log: GroupedLog,
    target: Target | Rankings,
    model: ClickModel,
    *,
    max_error: float = 0.0,
    rng: int | np.random.Generator = 0,
) -> Float[np.ndarray, " query"]:
    """Predict the reward of the target policy by a click model: the direct method.

    Parameters
    ----------
    log
        The grouped log, whose queries and reward are used.
    target
        The target policy.
    model
        The fitted click model.
    max_error
        Largest accepted error of the model's marginal click probabilities.
    rng
        Seed or generator for the lists of a policy that must be sampled.

    Returns
    -------
    array
        Expected reward per session, for each query of the log; 0 for queries that the target does not rank.
    """
    lists, weight = split_by_segment(log, *weighted_lists(log, as_target(target), rng=rng))
    if not len(lists):
        return np.zeros(log.n_queries)
    reward = log.reward.expected(model, pad_or_truncate(lists, log.n_ranks), max_error=max_error) * weight
    log_query = log.vocabulary.queries_of(lists.vocabulary)[lists.query]
    return sum_by_index(log_query, reward[:, None], log.n_queries)[:, 0]


def _query_id(vocabulary: Vocabulary, query: int) -> str:
    """Id of a query, as text."""
    return str(vocabulary.query_ids[query])
