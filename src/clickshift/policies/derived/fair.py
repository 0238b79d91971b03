"""Fair: exposure in proportion to relevance (Singh & Joachims 2018), both as a click model sees them.

A policy decides how often each document stands at each rank. Of the doubly stochastic matrices that keep the exposure
of documents, or of groups of them, near their share, one with the highest utility is found by a linear program per
query; by Birkhoff and von Neumann it is a lottery over lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.rng import as_generator
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings
from clickshift.errors import DataError, SpecError
from clickshift.models.base import ClickModel
from clickshift.policies.derived.model_scores import examination, most_relevant, relevance_in
from clickshift.policies.derived._search import PRECISE

Square = Float[np.ndarray, "doc rank"]

_UNFAIR = 1e3
"""What exposure beyond the tolerance costs. An exact penalty: it is worth at most one utility per document."""
_NOTHING = 1e-9


@final
@dataclass(frozen=True, eq=False)
class FairLists:
    """A lottery over lists for every query."""

    lists: Rankings
    """The lists of all queries, those of a query together, in the corpus' vocabulary and order of queries."""
    weight: Float[np.ndarray, " session"]
    """How likely each list is among those of its query."""
    relevance: Float[np.ndarray, " pair"]
    """According to the model."""
    examination: Float[np.ndarray, " rank"]
    """According to the model: see `beliefs.examination`."""
    predicted: Float[np.ndarray, " query"]
    """Expected clicks according to the model, over the lottery."""

    @property
    def placement(self) -> Float[np.ndarray, "pair rank"]:
        """How likely each document stands at each rank."""
        out = np.zeros((self.lists.vocabulary.n_pairs, self.lists.n_ranks))
        session, rank = np.nonzero(self.lists.shown)
        np.add.at(out, (self.lists.pair[session, rank], rank), self.weight[session])
        return out

    def sample(self, query: Int[np.ndarray, " session"], *, rng: int | np.random.Generator) -> Rankings:
        """A list for each of these query numbers, drawn from the lottery of its query."""
        upper = np.cumsum(self.weight)  # the weights of a query add up to 1
        drawn = np.searchsorted(upper, query + as_generator(rng).random(len(query)), side="right")
        first, last = (np.searchsorted(self.lists.query, query, side=side) for side in ("left", "right"))
        return self.lists[np.clip(drawn, first, last - 1)]


def fair(
    model: ClickModel,
    corpus: Corpus,
    *,
    ranks: int = 10,
    tolerance: float = 0.0,
    group: Int[np.ndarray, " pair"] | None = None,
    rng: int | np.random.Generator,
) -> FairLists:
    """Of each query's `ranks` most relevant documents, the lottery over orders with the highest utility that is fair.

    utility = sum over documents of relevance x exposure, exposure = sum over ranks of P(document at rank) x examination
    fair: |exposure - relevance x (total exposure / total relevance)| <= tolerance, for every document of the query or,
    with numbers of groups, for the mean over a group's documents. Where no lottery is that fair (one document may
    deserve more than the first rank has to give), the tolerance of that query is the smallest possible one.

    Relevance and examination are the model's; examination is its mean over its own Top-Down lists.
    """
    if not tolerance >= 0:
        raise SpecError(f"tolerance is a difference of exposure, 0 or above: got {tolerance}.")
    if group is not None and group.shape != (corpus.n_pairs,):
        raise DataError(f"there must be a group for every pair, {corpus.n_pairs}: got shape {group.shape}.")
    relevance = relevance_in([model], corpus)
    best = most_relevant(corpus, relevance, ranks=ranks, rng=as_generator(rng))
    seen = examination(model, best)
    row, order, weight = [], [], []
    for query, n in enumerate(best.length.tolist()):
        pair = best.pair[query, :n]
        placed = _fair_placement(relevance[pair], seen[:n], tolerance, None if group is None else group[pair])
        for share, documents in _decompose_square_placement(placed):
            row.append(query)
            weight.append(share)
            order.append(np.append(documents, np.arange(n, best.n_ranks)))
    lists = Rankings(best.vocabulary, best.query[row], np.take_along_axis(best.pair[row], np.array(order), axis=1))
    clicks = model.expected_clicks(lists, tolerance=PRECISE)
    predicted = np.bincount(row, np.array(weight) * clicks, len(best))
    return FairLists(lists, np.array(weight), relevance, seen, predicted)


def _fair_placement(
    relevance: Float[np.ndarray, " doc"],
    examination: Float[np.ndarray, " rank"],
    tolerance: float,
    group: Int[np.ndarray, " doc"] | None = None,
) -> Square:
    """P(document at rank), rows and columns adding up to 1, for one query."""
    from scipy.optimize import linprog

    n = len(relevance)
    mean = _means(np.arange(n) if group is None else group)
    target = mean @ _share(relevance, examination.sum())
    exposed = np.kron(mean, examination)  # of each group, from the placement, row by row
    excess = -np.ones((len(mean), 1))
    ones = np.ones((1, n))
    found = linprog(
        np.append(-np.outer(relevance, examination) / max(relevance.max(), _NOTHING), _UNFAIR),
        A_ub=np.block([[exposed, excess], [-exposed, excess]]),
        b_ub=np.concatenate([target, -target]) + tolerance,
        A_eq=np.block([[np.kron(np.eye(n), ones), np.zeros((n, 1))], [np.kron(ones, np.eye(n)), np.zeros((n, 1))]]),
        b_eq=np.ones(2 * n),
        method="highs",
    )
    assert found.status == 0, found.message
    placement: np.ndarray = found.x[:-1].reshape(n, n)
    return placement


def _decompose_square_placement(placement: Square) -> Iterator[tuple[float, Int[np.ndarray, " rank"]]]:
    """Lists (the document at each rank) and their probabilities, which add up to 1 and give the placement."""
    from scipy.optimize import linear_sum_assignment

    left = np.where(placement > _NOTHING, placement, 0.0)
    total = 0.0
    lists = []
    while left.max() > _NOTHING:
        # a matrix with equal row and column sums has a matching without zeros
        doc, rank = linear_sum_assignment(np.where(left > 0, left, -1e3), maximize=True)
        share = left[doc, rank].min()
        if share <= 0:  # only what rounding has left over
            break
        left[doc, rank] -= share
        left[left < _NOTHING] = 0.0
        total += share
        lists.append((share, doc[np.argsort(rank)]))
    for share, documents in lists:
        yield share / total, documents


def disparity(
    lists: Rankings,
    weight: Float[np.ndarray, " session"],
    relevance: Float[np.ndarray, " pair"],
    examination: Float[np.ndarray, " rank"],
    *,
    group: Int[np.ndarray, " pair"] | None = None,
) -> Float[np.ndarray, " query"]:
    """By how much exposure misses its fair share, at worst over the documents (or groups) that each query shows.

    Relevance and examination may be others than those by which the lists were made, e.g. the true user's.
    """
    words = lists.vocabulary
    exposure, shown = np.zeros(words.n_pairs), np.zeros(words.n_pairs, bool)
    session, rank = np.nonzero(lists.shown)
    pair = lists.pair[session, rank]
    np.add.at(exposure, pair, weight[session] * examination[rank])
    shown[pair] = True
    worst = np.zeros(words.n_queries)
    for query in np.unique(lists.query).tolist():
        here = np.flatnonzero(shown[words.query_offsets[query] : words.query_offsets[query + 1]])
        here += words.query_offsets[query]
        mean = _means(here if group is None else group[here])
        share = _share(relevance[here], exposure[here].sum())
        worst[query] = np.abs(mean @ (exposure[here] - share)).max()
    return worst


def _share(relevance: np.ndarray, exposure: float) -> Float[np.ndarray, " doc"]:
    """Exposure in proportion to relevance; equal where nothing is relevant."""
    total = relevance.sum()
    return exposure * (relevance / total if total > 0 else np.full(len(relevance), 1 / len(relevance)))


def _means(group: Int[np.ndarray, " doc"]) -> Float[np.ndarray, "group doc"]:
    """Rows that take the mean over each group."""
    member = np.unique(group)[:, None] == group
    mean: np.ndarray = member / member.sum(axis=1, keepdims=True)
    return mean
