"""One-hot data set of the IPS paper, and the relevance that both losses converge to where documents share features.

Every document has a feature of its own, until some are mapped to the features of others (collisions). A ranker then has
one score r for several documents i. With unlimited clicks it converges to the minimum of its loss:

    PBM   sum_i w_i [ c_i / r - (1 - c_i) o_i / (1 - o_i r) ] = 0        IPS   r = sum_i w_i c_i / o_i / sum_i w_i

with click rates c_i, examination o_i and impressions w_i. For small o_i r, the PBM solution is about the mean of
c_i / o_i weighted by w_i o_i: a click model is biased towards documents that users examine often. IPS weights all
documents alike.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.rng import generator
from clickshift.data.corpus import Corpus, CorpusSplit
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError

_BISECTIONS = 50
"""Bisections of the interval from 0 to 1: its width is then 1e-15, and no midpoint is rounded up to 1."""


def one_hot_split(
    *,
    seed: int,
    collisions: float = 0.0,
    occurrences: int = 1,
    documents: int = 10_000,
    per_query: int = 25,
    max_label: int = 4,
) -> CorpusSplit:
    """Draw the one-hot data set: three splits of the same documents, assigned to queries at random.

    Grades are uniform. The only feature is the number of the document's column in the one-hot table.

    Parameters
    ----------
    seed
        Random seed for the grades and the assignment to queries.
    collisions
        Collision rate p: there are documents x (1 - p) columns, and document d has column d modulo that. (The published
        code rounds down after a floating-point error, to 1999 columns where 2000 are meant.)
    occurrences
        Number of queries of a split that a document is in: one in the paper's text, but in all likelihood two in its
        printed numbers (docs/decisions/0010).
    documents
        Number of documents.
    per_query
        Number of documents per query.
    max_label
        Highest grade.

    Returns
    -------
    CorpusSplit
        Training, held-out and test corpus.

    Raises
    ------
    DataError
        If the collision rate is not in [0, 1) or the documents do not fill the queries ("bad-option").

    Examples
    --------
    >>> split = one_hot_split(seed=0, collisions=0.5, documents=100, per_query=10)
    >>> split.train.n_queries, split.test.n_pairs, int(split.train.features.max())
    (10, 100, 49)
    """
    if not 0 <= collisions < 1:
        raise DataError(
            f"a collision rate must be 0 or more and below 1: got {collisions}.",
            code="bad-option",
            option="collisions",
            value=collisions,
        )
    if min(occurrences, per_query, documents) < 1 or documents * occurrences % per_query:
        raise DataError(
            f"{documents} documents in {occurrences} queries each must fill queries of {per_query}. Choose a multiple.",
            code="bad-option",
            option="documents",
            value=documents,
        )
    columns = max(round(documents * (1 - collisions)), 1)
    label = generator(seed, "one-hot", "labels").integers(0, max_label + 1, documents)
    queries, corpora = documents * occurrences // per_query, []
    for number, part in enumerate(CorpusSplit._fields):
        # an occurrence has an id of its own, so that a query may contain a document twice
        occurrence = generator(seed, "one-hot", part).permutation(documents * occurrences)
        query = np.repeat(np.arange(queries) + number * queries + 1, per_query)
        vocabulary, _, _ = Vocabulary.of(query, occurrence)
        doc = vocabulary.doc_ids[vocabulary.pair_doc] % documents
        column = (doc % columns).astype(np.float32)[:, None]
        corpora.append(Corpus(vocabulary, label[doc].astype(np.float32), column, max_label))
    return CorpusSplit(*corpora)


def pbm_limit(
    clicks: Float[np.ndarray, " doc"],
    examination: Float[np.ndarray, " doc"],
    column: Int[np.ndarray, " doc"],
    weight: Float[np.ndarray, " doc"] | None = None,
) -> Float[np.ndarray, " column"]:
    """Compute the relevance that a click model with the true position bias gives each column with unlimited clicks.

    Parameters
    ----------
    clicks
        Click rate of each document. Where it exceeds the examination, as it may with few clicks, the solution can be
        above 1: it is then 1.
    examination
        Examination of each document.
    column
        Column of each document.
    weight
        Impressions of each document; None for 1.

    Returns
    -------
    array
        Relevance of each column; NaN for a column without documents.

    Examples
    --------
    Figure 2 of the paper: relevance .1, always examined, and .9, rarely examined.

    >>> same_column = np.zeros(2, int)
    >>> pbm_limit(np.array([0.1, 0.09]), np.array([1.0, 0.1]), same_column).round(4).tolist()
    [0.1627]
    """
    weight = np.ones_like(clicks) if weight is None else weight
    size = int(column.max()) + 1
    clicked, missed = np.bincount(column, weight * clicks, size), weight * (1 - clicks) * examination
    low, high = np.zeros(size), np.ones(size)
    for _ in range(_BISECTIONS):  # r times the condition decreases in r: bisect all columns at once
        middle = (low + high) / 2
        r = middle[column]
        below = clicked > np.bincount(column, missed * r / (1 - examination * r), size)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    limit: np.ndarray = np.where(np.bincount(column, minlength=size) > 0, (low + high) / 2, np.nan)
    return limit


def ips_limit(
    clicks: Float[np.ndarray, " doc"],
    examination: Float[np.ndarray, " doc"],
    column: Int[np.ndarray, " doc"],
    weight: Float[np.ndarray, " doc"] | None = None,
) -> Float[np.ndarray, " column"]:
    """Compute the relevance that pointwise IPS gives each column with unlimited clicks: the mean of its documents.

    With an examination of 1 everywhere, it is the limit of both naive rankers.

    Parameters
    ----------
    clicks
        Click rate of each document.
    examination
        Examination of each document.
    column
        Column of each document.
    weight
        Impressions of each document; None for 1.

    Returns
    -------
    array
        Relevance of each column; NaN for a column without documents.

    Examples
    --------
    >>> ips_limit(np.array([0.1, 0.09]), np.array([1.0, 0.1]), np.zeros(2, int)).round(4).tolist()
    [0.5]
    """
    weight = np.ones_like(clicks) if weight is None else weight
    size = int(column.max()) + 1
    with np.errstate(invalid="ignore"):
        mean: np.ndarray = np.bincount(column, weight * clicks / examination, size) / np.bincount(column, weight, size)
    return mean


def document_columns(corpus: Corpus) -> Int[np.ndarray, " pair"]:
    """Return the one-hot column of every document."""
    column: np.ndarray = corpus.feature(1).astype(np.int64)
    return column
