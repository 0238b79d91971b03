"""Orders of given documents that maximise a click model's expected clicks, where a proven rule gives them.

An order holds places: `order[q, r]` is the index, in the given list of query q, of the document to show at rank r.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from clickshift.data.sessions import Rankings
from clickshift.models import CCM, CM, DBN, DCTR, DRCTR, PBM, SDBN, TrustPBM
from clickshift.models.base import ClickModel, at_rank

Order = Int[np.ndarray, "query rank"]

_INDEPENDENT_CLICKS = (DCTR, DRCTR, TrustPBM)
"""Models in which a click depends only on the document and its rank, so that the best order is an assignment."""


def best_order(model: ClickModel, lists: Rankings) -> Order | None:
    """Return the order of each list with the most expected clicks, None where no rule is known for the model.

    Parameters
    ----------
    model
        Click model.
    lists
        One list per query, in the model's vocabulary.
    """
    if isinstance(model, PBM):
        return _order_by_examination(model, lists)
    if isinstance(model, DBN | SDBN | CCM | CM):
        return _order_by_stop_ratio(model, lists)
    return _order_by_assignment(model, lists) if isinstance(model, _INDEPENDENT_CLICKS) else None


def _order_by_examination(model: PBM, lists: Rankings) -> Order:
    """Put the i-th best document at the i-th most examined rank: sum e_r a_d is largest if both are sorted alike."""
    best_first = _argsort_shown(-model.attractiveness[lists.pair], lists)
    return match_examination(best_first, at_rank(model.examination, lists.n_ranks), lists)


def match_examination(best_first: Order, examination: Float[np.ndarray, " rank"], lists: Rankings) -> Order:
    """Put the i-th document of `best_first` at the i-th most examined rank of its list.

    Parameters
    ----------
    best_first
        Places of each list's documents, best document first.
    examination
        Examination of each rank.
    lists
        The lists, which may have different lengths.
    """
    rank = _argsort_shown(np.broadcast_to(-examination, lists.pair.shape), lists)
    order = np.empty_like(best_first)
    np.put_along_axis(order, rank, best_first, axis=1)
    return order


def _order_by_stop_ratio(model: DBN | SDBN | CCM | CM, lists: Rankings) -> Order:
    """Sort by ascending (1 - f) / a for cascades whose probabilities do not depend on the rank.

    An examined document is clicked with probability a, and the next one is examined with probability f, averaged over
    clicks and skips. A list's expected clicks are V = a_1 + f_1 (a_2 + f_2 (a_3 + ...)). Exchange neighbours i, j, with
    W clicks expected below them: a_i + f_i (a_j + f_j W) is at least a_j + f_j (a_i + f_i W) if and only if
    a_i (1 - f_j) >= a_j (1 - f_i), that is (1 - f_i) / a_i <= (1 - f_j) / a_j, whatever W and the documents above are.
    A list that is not in this order has neighbours that are not, and exchanging them loses nothing; so the sorted list
    is optimal. For DBN, f = continuation (1 - a satisfaction), and the ratio is
    (1 - continuation) / a + continuation satisfaction. In a bottom-up cascade the first document is at the last rank.
    """
    a = model.attractiveness[lists.pair]
    f = _next_examined_prob(model, lists.pair, a)
    with np.errstate(divide="ignore", invalid="ignore"):
        # a document with a = 0 is never clicked: last if it can end the cascade, at any rank if it cannot
        ratio = np.where(a > 0, (1 - f) / a, np.inf)
    order = _argsort_shown(ratio, lists)
    if model.bottom_up:
        rank = np.arange(lists.n_ranks)
        reverse = np.where(lists.shown, lists.length[:, None] - 1 - rank, rank)
        order = np.take_along_axis(order, reverse, axis=1)
    return order


def _next_examined_prob(
    model: DBN | SDBN | CCM | CM, pair: Int[np.ndarray, "query rank"], a: Float[np.ndarray, "query rank"]
) -> Float[np.ndarray, "query rank"]:
    """Return the probability that the document after this one is examined, given that this one is."""
    if isinstance(model, CM):
        return 1 - a
    if isinstance(model, CCM):
        skip, irrelevant, relevant = model.continuation
        ccm_prob: np.ndarray = (1 - a) * skip + a * (irrelevant * (1 - a) + relevant * a)
        return ccm_prob
    continuation = model.continuation if isinstance(model, DBN) else 1.0
    prob: np.ndarray = continuation * (1 - a * model.satisfaction[pair])
    return prob


def _order_by_assignment(model: ClickModel, lists: Rankings) -> Order:
    """Assign documents to ranks by their click probabilities, which come from the lists rotated by 1, 2, ... ranks."""
    from scipy.optimize import linear_sum_assignment

    n_ranks, length = lists.n_ranks, lists.length
    order = np.tile(np.arange(n_ranks), (len(lists), 1))
    prob = np.zeros((len(lists), n_ranks, n_ranks))
    rank = np.arange(n_ranks)
    for shift in range(n_ranks):
        place = np.where(lists.shown, (rank + shift) % length[:, None], rank)
        rotated = Rankings(lists.vocabulary, lists.query, np.take_along_axis(lists.pair, place, axis=1), lists.shown)
        np.put_along_axis(prob, place[:, None, :], model.click_prob(rotated)[:, None, :], axis=1)
    for q, n in enumerate(length.tolist()):  # ten microseconds each
        place, assigned_rank = linear_sum_assignment(prob[q, :n, :n], maximize=True)
        order[q, assigned_rank] = place
    return order


def _argsort_shown(key: Float[np.ndarray, "query rank"], lists: Rankings) -> Order:
    """Return the places of each list in ascending order of the key, empty ranks last."""
    return np.argsort(np.where(lists.shown, key, np.nan), axis=1, kind="stable")  # NaN is sorted behind infinity
