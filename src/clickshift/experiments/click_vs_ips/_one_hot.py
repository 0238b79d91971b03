"""The one-hot set of the IPS paper, and what click models and IPS make of documents that share their features.

Every document is its own feature, until some are projected on the features of others (collisions). A ranker then has
one score r for several documents i, and with ever more clicks it goes where its loss is least:

    PBM   sum_i w_i [ c_i / r - (1 - c_i) o_i / (1 - o_i r) ] = 0        IPS   r = sum_i w_i c_i / o_i / sum_i w_i

with click rates c_i, examination o_i, impressions w_i. For small o_i r the first is about the mean of c_i / o_i
weighted by w_i o_i: a click model believes the documents that users look at. IPS believes all alike.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.rng import generator
from clickshift.data.corpus import Corpus, CorpusSplit
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError

_HALVINGS = 50
"""Of the interval from 0 to 1: 1e-15 is left, and no middle is rounded up to 1."""


def one_hot_split(
    *,
    seed: int,
    collisions: float = 0.0,
    occurrences: int = 1,
    documents: int = 10_000,
    per_query: int = 25,
    max_label: int = 4,
) -> CorpusSplit:
    """Three parts of the same documents, dealt at random to queries; grades are uniform.

    Every document is in `occurrences` queries of a part: one in the paper's text, two, by all signs, in the numbers it
    prints (docs/decisions/0010). The only feature is the number of the document's column in the one-hot table. With
    `collisions` p there are documents x (1 - p) columns, and document d has column d modulo that. (The published code
    rounds down after a rounding error, to 1999 columns where 2000 are meant.)

    >>> parts = one_hot_parts(seed=0, collisions=0.5, documents=100, per_query=10)
    >>> parts.train.n_queries, parts.test.n_pairs, int(parts.train.features.max())
    (10, 100, 49)
    """
    if not 0 <= collisions < 1:
        raise DataError(f"a rate of collisions must be 0 or more and below 1: got {collisions}.")
    if min(occurrences, per_query, documents) < 1 or documents * occurrences % per_query:
        raise DataError(f"{documents} documents in {occurrences} queries each must fill queries of {per_query}.")
    columns = max(round(documents * (1 - collisions)), 1)
    label = generator(seed, "one-hot", "labels").integers(0, max_label + 1, documents)
    queries, parts = documents * occurrences // per_query, []
    for number, part in enumerate(CorpusSplit._fields):
        # an occurrence has an id of its own, so that a query may hold a document twice
        dealt = generator(seed, "one-hot", part).permutation(documents * occurrences)
        words, _, _ = Vocabulary.of(np.repeat(np.arange(queries) + number * queries + 1, per_query), dealt)
        doc = words.doc_ids[words.pair_doc] % documents
        column = (doc % columns).astype(np.float32)[:, None]
        parts.append(Corpus(words, label[doc].astype(np.float32), column, max_label))
    return CorpusSplit(*parts)


def pbm_limit(
    clicks: Float[np.ndarray, " doc"],
    examination: Float[np.ndarray, " doc"],
    column: Int[np.ndarray, " doc"],
    weight: Float[np.ndarray, " doc"] | None = None,
) -> Float[np.ndarray, " column"]:
    """The relevance that a click model with the true bias gives each column; NaN where no document has it.

    `clicks` are click rates. Where they exceed the examination, as few clicks may, the root may be above 1: it is 1.

    >>> two = np.zeros(2, int)  # figure 2 of the paper: relevance .1, always seen, and .9, seldom seen
    >>> pbm_limit(np.array([0.1, 0.09]), np.array([1.0, 0.1]), two).round(4).tolist()
    [0.1627]
    """
    weight = np.ones_like(clicks) if weight is None else weight
    size = int(column.max()) + 1
    clicked, missed = np.bincount(column, weight * clicks, size), weight * (1 - clicks) * examination
    low, high = np.zeros(size), np.ones(size)
    for _ in range(_HALVINGS):  # r times the condition falls with r: halve the interval of all columns at once
        middle = (low + high) / 2
        r = middle[column]
        below = clicked > np.bincount(column, missed * r / (1 - examination * r), size)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    found: np.ndarray = np.where(np.bincount(column, minlength=size) > 0, (low + high) / 2, np.nan)
    return found


def ips_limit(
    clicks: Float[np.ndarray, " doc"],
    examination: Float[np.ndarray, " doc"],
    column: Int[np.ndarray, " doc"],
    weight: Float[np.ndarray, " doc"] | None = None,
) -> Float[np.ndarray, " column"]:
    """The relevance that pointwise IPS gives each column: a plain mean; NaN where no document has it.

    With an examination of 1 for all it is what both naive rankers learn.

    >>> ips_limit(np.array([0.1, 0.09]), np.array([1.0, 0.1]), np.zeros(2, int)).round(4).tolist()
    [0.5]
    """
    weight = np.ones_like(clicks) if weight is None else weight
    size = int(column.max()) + 1
    with np.errstate(invalid="ignore"):
        mean: np.ndarray = np.bincount(column, weight * clicks / examination, size) / np.bincount(column, weight, size)
    return mean


def document_columns(corpus: Corpus) -> Int[np.ndarray, " pair"]:
    """The one-hot column of every document."""
    column: np.ndarray = corpus.feature(1).astype(np.int64)
    return column
