"""Fair policies: exposure in proportion to relevance, both according to a click model.

A stochastic policy sets the probability of each document at each rank. Among the doubly stochastic matrices that keep
the exposure of documents, or of groups of documents, near their fair share, a linear program per query finds one with
the highest utility. By the Birkhoff-von Neumann theorem it is a probability distribution over lists.

References
----------
Singh, A., Joachims, T. (2018). Fairness of exposure in rankings. KDD.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.rng import as_generator
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import UNSEEN
from clickshift.data.weighted_lists import WeightedLists
from clickshift.errors import DataError, SpecError
from clickshift.models.base import ClickModel
from clickshift.policies.birkhoff import decompose_placements
from clickshift.policies.derived._search import PRECISE
from clickshift.policies.derived.model_scores import examination, most_relevant, relevance_in

Square = Float[np.ndarray, "doc rank"]
"""Placement probabilities of one query with as many ranks as documents."""

_UNFAIRNESS_COST = 1e3
"""Cost of exposure beyond the tolerance. The penalty is exact: exposure gains at most one unit of utility per
document."""
_NEGLIGIBLE = 1e-9
"""Probability that counts as 0, and smallest divisor of the relevance."""


@final
@dataclass(frozen=True, eq=False)
class FairPolicy:
    """A fair policy, with the relevance and examination by which it is fair.

    Parameters
    ----------
    policy
        Lists with probabilities for every query, in the corpus' vocabulary and order of queries.
    relevance
        Relevance of each pair according to the model.
    examination
        Examination of each rank according to the model: see `model_scores.examination`.
    predicted
        Expected clicks of each query according to the model, averaged over its lists.
    """

    policy: WeightedLists
    relevance: Float[np.ndarray, " pair"]
    examination: Float[np.ndarray, " rank"]
    predicted: Float[np.ndarray, " query"]


def fair(
    model: ClickModel,
    corpus: Corpus,
    *,
    ranks: int = 10,
    tolerance: float = 0.0,
    group: Int[np.ndarray, " pair"] | None = None,
    rng: int | np.random.Generator,
) -> FairPolicy:
    """Find, for each query's most relevant documents, the fair distribution over orders with the highest utility.

    utility = sum over documents of relevance x exposure, exposure = sum over ranks of P(document at rank) x examination

    A distribution is fair if |exposure - relevance x (total exposure / total relevance)| <= tolerance, for every
    document of the query or, with `group`, for the mean over a group's documents. Where no distribution is that fair
    (a document may deserve more than the exposure of the first rank), the tolerance of that query is the smallest
    possible one.

    Relevance and examination are the model's; examination is averaged over the model's Top-Down lists.

    Parameters
    ----------
    model
        Click model that provides relevance and examination.
    corpus
        Queries and candidates to rank.
    ranks
        Number of ranks of a list.
    tolerance
        Largest difference between the exposure of a document or group and its fair share.
    group
        Group number of each pair; None for fairness to single documents.
    rng
        Seed or random generator for tie-breaking.

    Returns
    -------
    FairPolicy
        Lists with probabilities for every query.

    Raises
    ------
    SpecError
        "bad-option" if `tolerance` is negative.
    DataError
        "wrong-shape" if there is not one group number per pair; "bad-ranks" if `ranks` is below 1.

    References
    ----------
    Singh, A., Joachims, T. (2018). Fairness of exposure in rankings. KDD.

    Examples
    --------
    >>> import clickshift as cs
    >>> from clickshift.models import PBM
    >>> vocabulary, _, _ = cs.Vocabulary.of(["shoes"] * 3, ["a", "b", "c"])
    >>> model = PBM(vocabulary, np.array([0.2, 0.8, 0.4, 0.3]), examination=np.array([0.5, 1.0, 0.25]))
    >>> corpus = cs.Corpus(vocabulary, np.zeros(3))
    >>> placement = fair(model, corpus, ranks=3, rng=0).policy.placement
    >>> (placement @ model.examination).round(2).tolist()
    [0.25, 1.0, 0.5]
    """
    if not tolerance >= 0:
        raise SpecError(
            f"tolerance is a difference of exposure, 0 or above: got {tolerance}.",
            code="bad-option",
            option="tolerance",
            value=tolerance,
        )
    if group is not None and group.shape != (corpus.n_pairs,):
        raise DataError(
            f"there must be one group number per pair, {corpus.n_pairs}: got shape {group.shape}.",
            code="wrong-shape",
            expected=corpus.n_pairs,
            shape=group.shape,
        )
    relevance = relevance_in([model], corpus)
    best = most_relevant(corpus, relevance, ranks=ranks, rng=as_generator(rng))
    rank_examination = examination(model, best)
    offsets = np.concatenate([[0], np.cumsum(best.length)])
    placement = np.zeros((offsets[-1], best.n_ranks))  # of the candidates of all queries, one after the other
    for query, n in enumerate(best.length.tolist()):
        pair = best.pair[query, :n]
        placement[offsets[query] : offsets[query + 1], :n] = _fair_placement(
            relevance[pair], rank_examination[:n], tolerance, None if group is None else group[pair]
        )
    row, candidate, weight = decompose_placements(offsets, placement)
    pairs = np.append(best.pair[best.shown], np.int32(UNSEEN))[candidate]
    lists = Rankings(best.vocabulary, best.query[row], pairs)
    predicted = np.bincount(row, weight * model.expected_clicks(lists, tolerance=PRECISE), len(best))
    return FairPolicy(WeightedLists(lists, weight), relevance, rank_examination, predicted)


def _fair_placement(
    relevance: Float[np.ndarray, " doc"],
    examination: Float[np.ndarray, " rank"],
    tolerance: float,
    group: Int[np.ndarray, " doc"] | None = None,
) -> Square:
    """Solve the linear program of one query; rows and columns of P(document at rank) sum to 1."""
    from scipy.optimize import linprog

    n = len(relevance)
    mean = _group_means(np.arange(n) if group is None else group)
    target = mean @ _fair_share(relevance, examination.sum())
    exposure = np.kron(mean, examination)  # of each group, as a function of the placement, row by row
    excess = -np.ones((len(mean), 1))
    ones = np.ones((1, n))
    solution = linprog(
        np.append(-np.outer(relevance, examination) / max(relevance.max(), _NEGLIGIBLE), _UNFAIRNESS_COST),
        A_ub=np.block([[exposure, excess], [-exposure, excess]]),
        b_ub=np.concatenate([target, -target]) + tolerance,
        A_eq=np.block([[np.kron(np.eye(n), ones), np.zeros((n, 1))], [np.kron(ones, np.eye(n)), np.zeros((n, 1))]]),
        b_eq=np.ones(2 * n),
        method="highs",
    )
    assert solution.status == 0, solution.message
    placement: np.ndarray = solution.x[:-1].reshape(n, n)
    placement[placement < _NEGLIGIBLE] = 0.0
    for _ in range(2):  # the solver satisfies constraints only to 1e-7
        placement /= placement.sum(axis=1, keepdims=True)
        placement /= placement.sum(axis=0)
    return placement


def disparity(
    lists: Rankings,
    weight: Float[np.ndarray, " session"],
    relevance: Float[np.ndarray, " pair"],
    examination: Float[np.ndarray, " rank"],
    *,
    group: Int[np.ndarray, " pair"] | None = None,
) -> Float[np.ndarray, " query"]:
    """Compute the largest difference between exposure and fair share over each query's shown documents or groups.

    Parameters
    ----------
    lists
        Lists of the policy.
    weight
        Probability of each list among those of its query.
    relevance
        Relevance of each pair; it may differ from that by which the lists were made, e.g. be the true user's.
    examination
        Examination of each rank; it may differ likewise.
    group
        Group number of each pair; None for single documents.

    Returns
    -------
    Float[query]
        The largest difference of each query, 0 for a query without a list.
    """
    vocabulary = lists.vocabulary
    exposure, shown = np.zeros(vocabulary.n_pairs), np.zeros(vocabulary.n_pairs, bool)
    session, rank = np.nonzero(lists.shown)
    pair = lists.pair[session, rank]
    np.add.at(exposure, pair, weight[session] * examination[rank])
    shown[pair] = True
    worst = np.zeros(vocabulary.n_queries)
    for query in np.unique(lists.query).tolist():
        pairs = np.flatnonzero(shown[vocabulary.query_offsets[query] : vocabulary.query_offsets[query + 1]])
        pairs += vocabulary.query_offsets[query]
        mean = _group_means(pairs if group is None else group[pairs])
        share = _fair_share(relevance[pairs], exposure[pairs].sum())
        worst[query] = np.abs(mean @ (exposure[pairs] - share)).max()
    return worst


def _fair_share(relevance: np.ndarray, exposure: float) -> Float[np.ndarray, " doc"]:
    """Divide total exposure in proportion to relevance, or equally where nothing is relevant."""
    total = relevance.sum()
    return exposure * (relevance / total if total > 0 else np.full(len(relevance), 1 / len(relevance)))


def _group_means(group: Int[np.ndarray, " doc"]) -> Float[np.ndarray, "group doc"]:
    """Return the matrix that takes the mean over each group."""
    member = np.unique(group)[:, None] == group
    mean: np.ndarray = member / member.sum(axis=1, keepdims=True)
    return mean
