"""Relevance and examination of a corpus according to click models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from clickshift.data.corpus import Corpus
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import UNSEEN
from clickshift.errors import DataError
from clickshift.models.base import ClickModel


def relevance_in(models: Sequence[ClickModel], corpus: Corpus) -> Float[np.ndarray, " pair"]:
    """Return the mean relevance of every candidate of a corpus over click models.

    Parameters
    ----------
    models
        Click models. A candidate that a model has not seen gets that model's relevance of an unseen pair.
    corpus
        Corpus of the candidates.
    """
    by_model = [model.relevance(model.vocabulary.pairs_of(corpus.vocabulary)) for model in models]
    mean: np.ndarray = np.mean(by_model, axis=0)
    return mean


def most_relevant(
    corpus: Corpus, relevance: Float[np.ndarray, " pair"], *, ranks: int, rng: np.random.Generator
) -> Rankings:
    """Rank each query's documents by decreasing relevance and keep the first `ranks`.

    Parameters
    ----------
    corpus
        Queries and candidates.
    relevance
        Relevance of each candidate.
    ranks
        Number of ranks of a list.
    rng
        Random generator for tie-breaking.

    Returns
    -------
    Rankings
        One list per query.

    Raises
    ------
    DataError
        "bad-ranks" if `ranks` is below 1.
    """
    if ranks < 1:
        raise DataError(f"a list must have at least one rank: got ranks = {ranks}.", code="bad-ranks", ranks=ranks)
    query = corpus.vocabulary.pair_query
    order = np.lexsort((rng.permutation(corpus.n_pairs), -relevance, query))
    rank = np.arange(corpus.n_pairs) - corpus.offsets[:-1][query]
    pair = np.full((corpus.n_queries, min(ranks, int(corpus.n_candidates.max()))), UNSEEN, np.int32)
    kept = rank < ranks
    pair[query[kept], rank[kept]] = order[kept]
    return Rankings(corpus.vocabulary, np.arange(corpus.n_queries, dtype=np.int32), pair)


def examination(
    model: ClickModel, lists: Rankings, *, weight: Float[np.ndarray, " session"] | None = None
) -> Float[np.ndarray, " rank"]:
    """Return the examination of each rank, averaged over lists, relative to a document shown alone.

    e_r = sum over lists of P(click at r) / sum over lists of P(click on the document at r, were it the only result)

    For PBM this is its examination relative to the first rank. It is defined for any model that predicts clicks,
    whether its examination depends on clicks (UBM), on the documents above (DBN), or is not modelled (NCM). For models
    that depend on what was clicked or shown it is a mean over lists: pass the lists that will be shown, or the model's
    Top-Down lists.

    Parameters
    ----------
    model
        Click model that predicts clicks.
    lists
        Lists to average over.
    weight
        Weight of each list; None for equal weights.
    """
    clicks, alone = _click_sums(model, lists, np.ones(len(lists)) if weight is None else weight)
    curve: np.ndarray = clicks / np.maximum(alone, 1e-300)
    return curve


def examination_in_log(model: ClickModel, log: Log) -> Float[np.ndarray, " rank"]:
    """Return the examination of each rank, averaged over the lists of a log of any size; see `examination`."""
    sums = [_click_sums(model, part.rankings, part.count.astype(np.float64)) for part in log.chunks()]
    clicks, alone = (np.sum(parts, axis=0) for parts in zip(*sums, strict=True))
    curve: np.ndarray = clicks / np.maximum(alone, 1e-300)
    return curve


def _click_sums(model: ClickModel, lists: Rankings, weight: Float[np.ndarray, " session"]) -> tuple[np.ndarray, ...]:
    """Return the expected clicks at each rank, and those on the same documents, were each the only result."""
    shown = lists.shown
    click_prob_alone = np.zeros(shown.shape)
    session, _ = np.nonzero(shown)
    single = Rankings(
        lists.vocabulary, lists.query[session], lists.pair[shown][:, None], np.ones((len(session), 1), bool)
    )
    click_prob_alone[shown] = model.click_prob(single)[:, 0]
    return weight @ model.click_prob(lists), weight @ click_prob_alone
