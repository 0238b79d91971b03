"""Policies derived from a click model: what it would rank if one trusted it (policy-shift paper, section 5.1.2).

The optimiser's curse is what such a list was predicted to earn, less what it earns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from clickshift.core.rng import as_generator
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings
from clickshift.errors import DataError, SpecError
from clickshift.models import DBN, PBM
from clickshift.models.base import ClickModel
from clickshift.policies.derived.fair import FairLists as FairLists
from clickshift.policies.derived.fair import fair as fair
from clickshift.policies.derived.model_scores import examination, most_relevant, relevance_in
from clickshift.policies.derived._optimal_orders import Order, match_examination, best_order
from clickshift.policies.derived._search import PRECISE, PredictedReward, local_search, sampled_search

SEARCHES = ("local", "sampled")
_SOME = 30
"""Lists from which the examination of ranks is guessed, to start a search from."""


@final
@dataclass(frozen=True, eq=False)
class DerivedLists:
    """A list per query, and what the model that it is derived from expects of it."""

    rankings: Rankings
    """One list per query of the corpus, in its vocabulary and order."""
    predicted: Float[np.ndarray, " query"]
    """Expected clicks of each list according to the model, or on average over the models, to six digits."""


def top_down(model: ClickModel, corpus: Corpus, *, ranks: int = 10, rng: int | np.random.Generator) -> DerivedLists:
    """Each query's candidates by decreasing relevance according to the model, ties at random."""
    lists = most_relevant(corpus, relevance_in([model], corpus), ranks=ranks, rng=as_generator(rng))
    return _promised(PredictedReward([model], lists), _as_given(lists))


def max_reward(
    models: ClickModel | Sequence[ClickModel],
    corpus: Corpus,
    *,
    ranks: int = 10,
    search: str = "local",
    starts: int = 3,
    samples: int = 40_320,
    penalty: float = 0.0,
    rng: int | np.random.Generator,
) -> DerivedLists:
    """Of each query's `ranks` most relevant documents, the order that the model expects most clicks from.

    search="local": by a rule that is proved, where there is one (`exact`); else by exchanging and moving documents,
    from so many `starts`: the Top-Down order, the best documents at the most examined ranks, orders at random.
    search="sampled": the best of so many random orders, as in the paper (8! = 40,320; its code takes 4,032). PBM and
    DBN are solved by their rules, as there; the paper's code takes DBN's own relevance order, which is not its best.

    Several models that differ by seed are one opinion: the mean of their expected clicks, less `penalty` times their
    standard deviation, a defence against the optimiser's curse. Documents are then chosen by mean relevance.
    """
    fits = [models] if isinstance(models, ClickModel) else list(models)
    _check(fits, search, starts, samples, penalty)
    rng = as_generator(rng)
    lists = most_relevant(corpus, relevance_in(fits, corpus), ranks=ranks, rng=rng)
    promise = PredictedReward(fits, lists, penalty)
    order = None
    if len(fits) == 1 and (search == "local" or isinstance(fits[0], PBM | DBN)):
        order = best_order(fits[0], lists.in_vocabulary(fits[0].vocabulary))
    if order is None and search == "sampled":
        order = sampled_search(promise, samples, rng=rng)
    if order is None:
        order = local_search(promise, _starts(promise, starts, rng))
    return _promised(promise, order)


def _check(models: Sequence[ClickModel], search: str, starts: int, samples: int, penalty: float) -> None:
    if search not in SEARCHES:
        raise SpecError(f"search must be one of {', '.join(SEARCHES)}: got {search!r}.")
    if starts < 1 or samples < 1:
        raise SpecError(f"a search needs at least one start and one sample: got starts={starts}, samples={samples}.")
    if not models or (penalty and len(models) < 2):
        raise DataError(
            f"a penalty on the spread between models needs at least two of them: got {len(models)}. "
            "Fit several seeds, or leave the penalty out."
        )


def _starts(promise: PredictedReward, starts: int, rng: np.random.Generator) -> list[Order]:
    lists = promise.lists
    given = _as_given(lists)
    orders = [given]
    if starts > 1:
        some = lists[np.sort(rng.permutation(len(lists))[:_SOME])]
        seen = np.mean([examination(model, some) for model in promise.models], axis=0)
        orders.append(match_examination(given, seen, lists))
    for _ in range(starts - 2):
        shuffled = np.argsort(np.where(lists.shown, rng.random(lists.shown.shape), np.inf), axis=1)
        orders.append(shuffled)
    return orders


def _as_given(lists: Rankings) -> Order:
    return np.tile(np.arange(lists.n_ranks), (len(lists), 1))


def _promised(promise: PredictedReward, order: Order) -> DerivedLists:
    lists = promise.lists
    pair = np.take_along_axis(lists.pair, order, axis=1)
    predicted = promise.clicks(np.arange(len(lists)), order, PRECISE).mean(axis=0)
    return DerivedLists(Rankings(lists.vocabulary, lists.query, pair), predicted)
