"""The order of given documents that a click model expects most clicks from, where a rule gives it.

A rule is here only if it is proved. Lists are places: `order[q, r]` is the place, in the list that was given, of the
document that should stand at rank r.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from clickshift.data.sessions import Rankings
from clickshift.models import CCM, CM, DBN, DCTR, DRCTR, PBM, SDBN, TrustPBM
from clickshift.models.base import ClickModel, at_rank

Order = Int[np.ndarray, "query rank"]

_ALONE = (DCTR, DRCTR, TrustPBM)
"""A click depends on the document and its rank alone, so that the best order is an assignment."""


def best_order(model: ClickModel, lists: Rankings) -> Order | None:
    """None where no rule is known. Lists must have the model's vocabulary."""
    if isinstance(model, PBM):
        return _most_examined_first(model, lists)
    if isinstance(model, DBN | SDBN | CCM | CM):
        return _by_ratio(model, lists)
    return _assigned(model, lists) if isinstance(model, _ALONE) else None


def _most_examined_first(model: PBM, lists: Rankings) -> Order:
    """The i-th best document at the i-th most examined rank: sum e_r a_d is largest if both are sorted alike."""
    best_first = _sorted_places(-model.attractiveness[lists.pair], lists)
    return match_examination(best_first, at_rank(model.examination, lists.n_ranks), lists)


def match_examination(best_first: Order, examination: Float[np.ndarray, " rank"], lists: Rankings) -> Order:
    """The i-th of `best_first` at the i-th most examined of the ranks that the list has."""
    rank = _sorted_places(np.broadcast_to(-examination, lists.pair.shape), lists)
    order = np.empty_like(best_first)
    np.put_along_axis(order, rank, best_first, axis=1)
    return order


def _by_ratio(model: DBN | SDBN | CCM | CM, lists: Rankings) -> Order:
    """Ascending (1 - f) / a for cascades whose probabilities do not depend on the rank.

    An examined document is clicked with probability a, and the next one is examined with probability f, clicks and
    skips taken together. A list's expected clicks are V = a_1 + f_1 (a_2 + f_2 (a_3 + ...)). Exchange neighbours i, j,
    with W clicks expected below them: a_i + f_i (a_j + f_j W) is at least a_j + f_j (a_i + f_i W) if and only if
    a_i (1 - f_j) >= a_j (1 - f_i), that is (1 - f_i) / a_i <= (1 - f_j) / a_j, whatever W and what is above. A list
    out of this order has neighbours out of it, and exchanging them loses nothing; so the sorted list is best.
    For DBN, f = continuation (1 - a satisfaction), and the ratio is (1 - continuation) / a + continuation satisfaction.
    In a bottom-up walk the first document is the one at the last rank.
    """
    a = model.attractiveness[lists.pair]
    f = _goes_on(model, lists.pair, a)
    with np.errstate(divide="ignore", invalid="ignore"):
        # nobody clicks a document with a = 0: last if it ends walks, anywhere if it does not
        ratio = np.where(a > 0, (1 - f) / a, np.inf)
    order = _sorted_places(ratio, lists)
    if model.bottom_up:
        rank = np.arange(lists.n_ranks)
        back = np.where(lists.shown, lists.length[:, None] - 1 - rank, rank)
        order = np.take_along_axis(order, back, axis=1)
    return order


def _goes_on(
    model: DBN | SDBN | CCM | CM, pair: Int[np.ndarray, "query rank"], a: Float[np.ndarray, "query rank"]
) -> Float[np.ndarray, "query rank"]:
    """The probability that the document after this one is examined, if this one is."""
    if isinstance(model, CM):
        return 1 - a
    if isinstance(model, CCM):
        skip, irrelevant, relevant = model.continuation
        after: np.ndarray = (1 - a) * skip + a * (irrelevant * (1 - a) + relevant * a)
        return after
    continuation = model.continuation if isinstance(model, DBN) else 1.0
    on: np.ndarray = continuation * (1 - a * model.satisfaction[pair])
    return on


def _assigned(model: ClickModel, lists: Rankings) -> Order:
    """Click probabilities of every document at every rank, from the lists turned round by 1, 2, ... places."""
    from scipy.optimize import linear_sum_assignment

    n_ranks, length = lists.n_ranks, lists.length
    order = np.tile(np.arange(n_ranks), (len(lists), 1))
    prob = np.zeros((len(lists), n_ranks, n_ranks))
    rank = np.arange(n_ranks)
    for turn in range(n_ranks):
        place = np.where(lists.shown, (rank + turn) % length[:, None], rank)
        turned = Rankings(lists.vocabulary, lists.query, np.take_along_axis(lists.pair, place, axis=1), lists.shown)
        np.put_along_axis(prob, place[:, None, :], model.click_prob(turned)[:, None, :], axis=1)
    for q, n in enumerate(length.tolist()):  # ten microseconds each
        place, at = linear_sum_assignment(prob[q, :n, :n], maximize=True)
        order[q, at] = place
    return order


def _sorted_places(key: Float[np.ndarray, "query rank"], lists: Rankings) -> Order:
    """The places of each list in ascending order of the key, those where nothing is shown last."""
    return np.argsort(np.where(lists.shown, key, np.nan), axis=1, kind="stable")  # NaN is sorted behind infinity
