"""Policies derived from a click model: the lists that the model considers best (policy-shift paper, section 5.1.2).

The optimiser's curse is the difference between the clicks that the model predicts for such a list and the clicks that
the list receives.

References
----------
Deffayet, R., Renders, J.-M., de Rijke, M. (2022). Evaluating the robustness of click models to policy distributional
shift. ACM TOIS.
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
from clickshift.policies.derived._optimal_orders import Order, best_order, match_examination
from clickshift.policies.derived._search import PRECISE, PredictedReward, local_search, sampled_search
from clickshift.policies.derived.fair import FairPolicy as FairPolicy
from clickshift.policies.derived.fair import fair as fair
from clickshift.policies.derived.model_scores import examination, most_relevant, relevance_in

__all__ = ["SEARCHES", "DerivedLists", "FairPolicy", "fair", "max_reward", "top_down"]

SEARCHES = ("local", "sampled")
"""Search methods of `max_reward`."""
_EXAMINATION_LISTS = 30
"""Number of lists from which the examination of ranks is estimated for a starting point of the search."""


@final
@dataclass(frozen=True, eq=False)
class DerivedLists:
    """One list per query, with the clicks that the click model predicts for it.

    Parameters
    ----------
    rankings
        One list per query of the corpus, in its vocabulary and order.
    predicted
        Expected clicks of each list according to the model, or on average over the models, to six digits.
    """

    rankings: Rankings
    predicted: Float[np.ndarray, " query"]


def top_down(model: ClickModel, corpus: Corpus, *, ranks: int = 10, rng: int | np.random.Generator) -> DerivedLists:
    """Rank each query's candidates by decreasing relevance according to a click model.

    Parameters
    ----------
    model
        Click model whose relevance is used.
    corpus
        Queries and candidates to rank.
    ranks
        Number of ranks of a list.
    rng
        Seed or random generator for tie-breaking.

    Returns
    -------
    DerivedLists
        The Top-Down lists and their expected clicks.

    Raises
    ------
    DataError
        "bad-ranks" if `ranks` is below 1.

    Examples
    --------
    >>> import clickshift as cs
    >>> from clickshift.models import PBM
    >>> vocabulary, _, _ = cs.Vocabulary.of(["shoes"] * 3, ["a", "b", "c"])
    >>> model = PBM(vocabulary, np.array([0.2, 0.8, 0.4, 0.3]), examination=np.array([0.5, 1.0, 0.25]))
    >>> corpus = cs.Corpus(vocabulary, np.zeros(3))
    >>> top_down(model, corpus, ranks=3, rng=0).rankings.pair.tolist()
    [[1, 2, 0]]
    """
    lists = most_relevant(corpus, relevance_in([model], corpus), ranks=ranks, rng=as_generator(rng))
    return _derived_lists(PredictedReward([model], lists), _identity_order(lists))


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
    """Order each query's most relevant documents so that a click model expects the most clicks.

    Several models that differ by seed are combined: documents are chosen by mean relevance, and lists are compared by
    the mean of their expected clicks less `penalty` times their standard deviation, a defence against the optimiser's
    curse.

    Parameters
    ----------
    models
        Click model, or models of one kind fitted with different seeds.
    corpus
        Queries and candidates to rank.
    ranks
        Number of ranks of a list.
    search
        "local" uses a proven rule for the optimal order where there is one; else a local search that exchanges and
        moves documents. "sampled" takes the best of `samples` random orders, as in the paper; PBM and DBN are solved
        by their rules, as in the paper. (The paper's code uses DBN's own relevance order, which is not optimal.)
    starts
        Number of starting points of the local search: the Top-Down order, the best documents at the most examined
        ranks, then random orders.
    samples
        Number of random orders of the sampled search (8! = 40,320 in the paper; 4,032 in its code).
    penalty
        Number of standard deviations between models that are subtracted from the mean.
    rng
        Seed or random generator for tie-breaking, starting points and samples.

    Returns
    -------
    DerivedLists
        The Max-Reward lists and their expected clicks.

    Raises
    ------
    SpecError
        "bad-option" if `search`, `starts` or `samples` is out of range.
    DataError
        "too-few-models" without a model, or with a penalty and one model; "bad-ranks" if `ranks` is below 1.

    Examples
    --------
    >>> import clickshift as cs
    >>> from clickshift.models import PBM
    >>> vocabulary, _, _ = cs.Vocabulary.of(["shoes"] * 3, ["a", "b", "c"])
    >>> model = PBM(vocabulary, np.array([0.2, 0.8, 0.4, 0.3]), examination=np.array([0.5, 1.0, 0.25]))
    >>> corpus = cs.Corpus(vocabulary, np.zeros(3))
    >>> max_reward(model, corpus, ranks=3, rng=0).rankings.pair.tolist()  # the best document at the most examined rank
    [[2, 1, 0]]
    """
    fitted = [models] if isinstance(models, ClickModel) else list(models)
    _check_options(fitted, search, starts, samples, penalty)
    rng = as_generator(rng)
    lists = most_relevant(corpus, relevance_in(fitted, corpus), ranks=ranks, rng=rng)
    reward = PredictedReward(fitted, lists, penalty)
    order = None
    if len(fitted) == 1 and (search == "local" or isinstance(fitted[0], PBM | DBN)):
        order = best_order(fitted[0], lists.in_vocabulary(fitted[0].vocabulary))
    if order is None and search == "sampled":
        order = sampled_search(reward, samples, rng=rng)
    if order is None:
        order = local_search(reward, _starting_orders(reward, starts, rng))
    return _derived_lists(reward, order)


def _check_options(models: Sequence[ClickModel], search: str, starts: int, samples: int, penalty: float) -> None:
    """Check the options of `max_reward`."""
    if search not in SEARCHES:
        raise SpecError(
            f"search must be one of {', '.join(SEARCHES)}: got {search!r}.",
            code="bad-option",
            option="search",
            value=search,
            known=list(SEARCHES),
        )
    if starts < 1 or samples < 1:
        raise SpecError(
            f"a search needs at least one start and one sample: got starts={starts}, samples={samples}.",
            code="bad-option",
            starts=starts,
            samples=samples,
        )
    if not models or (penalty and len(models) < 2):
        raise DataError(
            f"a penalty on the standard deviation between models needs at least two models: got {len(models)}. "
            "Fit several seeds, or omit the penalty.",
            code="too-few-models",
            count=len(models),
        )


def _starting_orders(reward: PredictedReward, starts: int, rng: np.random.Generator) -> list[Order]:
    """Return the starting points of a local search: Top-Down, by examination, and random orders."""
    lists = reward.lists
    identity = _identity_order(lists)
    orders = [identity]
    if starts > 1:
        some_lists = lists[np.sort(rng.permutation(len(lists))[:_EXAMINATION_LISTS])]
        mean_examination = np.mean([examination(model, some_lists) for model in reward.models], axis=0)
        orders.append(match_examination(identity, mean_examination, lists))
    for _ in range(starts - 2):
        shuffled = np.argsort(np.where(lists.shown, rng.random(lists.shown.shape), np.inf), axis=1)
        orders.append(shuffled)
    return orders


def _identity_order(lists: Rankings) -> Order:
    """Return the order that leaves every list as it is."""
    return np.tile(np.arange(lists.n_ranks), (len(lists), 1))


def _derived_lists(reward: PredictedReward, order: Order) -> DerivedLists:
    """Return the reordered lists with their precisely computed expected clicks."""
    lists = reward.lists
    pair = np.take_along_axis(lists.pair, order, axis=1)
    predicted = reward.clicks(np.arange(len(lists)), order, PRECISE).mean(axis=0)
    return DerivedLists(Rankings(lists.vocabulary, lists.query, pair), predicted)
