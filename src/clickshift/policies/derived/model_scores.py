"""What a click model believes of a corpus: which documents are relevant, and where users look."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import UNSEEN
from clickshift.errors import DataError
from clickshift.models.base import ClickModel


def relevance_in(models: Sequence[ClickModel], corpus: Corpus) -> Float[np.ndarray, " pair"]:
    """The mean over models of their relevance of every candidate; of one they do not know, what they think of such."""
    total = [model.relevance(model.vocabulary.pairs_of(corpus.vocabulary)) for model in models]
    mean: np.ndarray = np.mean(total, axis=0)
    return mean


def most_relevant(
    corpus: Corpus, relevance: Float[np.ndarray, " pair"], *, ranks: int, rng: np.random.Generator
) -> Rankings:
    """A list per query: its documents by decreasing relevance, ties at random, cut at `ranks`."""
    if ranks < 1:
        raise DataError(f"a list must have at least one rank: got ranks = {ranks}.")
    query = corpus.vocabulary.pair_query
    order = np.lexsort((rng.permutation(corpus.n_pairs), -relevance, query))
    place = np.arange(corpus.n_pairs) - corpus.offsets[:-1][query]
    pair = np.full((corpus.n_queries, min(ranks, int(corpus.n_candidates.max()))), UNSEEN, np.int32)
    kept = place < ranks
    pair[query[kept], place[kept]] = order[kept]
    return Rankings(corpus.vocabulary, np.arange(corpus.n_queries, dtype=np.int32), pair)


def examination(
    model: ClickModel, lists: Rankings, *, weight: Float[np.ndarray, " session"] | None = None
) -> Float[np.ndarray, " rank"]:
    """How likely each rank is examined, on average over these lists, relative to a document that stands alone.

    e_r = sum over lists of P(click at r) / sum over lists of P(click on the document at r, were it the only result)

    For PBM this is its examination, relative to the first rank. Any model that predicts clicks has one, whether its
    examination depends on clicks (UBM), on the documents above (DBN), or is no part of it (NCM). Of models that look at
    what was clicked or shown, it is a mean over lists: take those that are to be shown, or the model's Top-Down lists.
    """
    weight = np.ones(len(lists)) if weight is None else weight
    shown = lists.shown
    alone = np.zeros(shown.shape)
    session, _ = np.nonzero(shown)
    single = Rankings(
        lists.vocabulary, lists.query[session], lists.pair[shown][:, None], np.ones((len(session), 1), bool)
    )
    alone[shown] = model.click_prob(single)[:, 0]
    clicked: np.ndarray = weight @ model.click_prob(lists)
    return clicked / np.maximum(weight @ alone, 1e-300)
