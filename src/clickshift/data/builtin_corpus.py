"""Built-in corpus: a synthetic collection that behaves like MSLR-WEB10K, so that examples need no download.

Nothing is copied from the real data. Each query draws its terms and each document its lengths and term frequencies, and
the 136 features are computed from these by textbook formulas, in MSLR's numbering (110 is BM25 of the whole document).
Grades are cut from a latent relevance: one part of it is visible in the text, another in links and clicks, and the rest
in no feature. The constants were calibrated on a sample of the real data: docs/built-in-corpus.md describes the model
and the comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.core.rng import generator
from clickshift.data.corpus import Corpus
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError

N_FEATURES = 136
_DOCUMENTS_PER_BLOCK = 1 << 13
"""Documents generated at once, which keeps their term tables small; the result does not depend on it."""

# Candidates of a query: the log of their number is logistic around its median, with a larger scale below than above it.
MEDIAN_LENGTH, SPREAD_BELOW, SPREAD_ABOVE, MAX_LENGTH = 109, 0.33, 0.27, 1251

# Latent relevance of a document = query effect + MATCH x text match (capped at MATCH_CAP)
# + POPULARITY x popularity + HIDDEN x a part that no feature shows. Its grade is the number of CUTS below that.
MATCH, MATCH_CAP, POPULARITY, HIDDEN = 0.68, 1.5, 0.75, 1.0
CUTS = np.array([0.188, 1.787, 3.602, 4.65])
QUERY_SPREAD, LENGTH_RELEVANCE = 0.75, 0.5
"""Standard deviation of the query effect, and its correlation with the log of the number of candidates."""
STRENGTH_SHAPE = 1.5
"""In each query, MATCH is multiplied by a gamma draw of this shape and mean 1: text matters more in some queries."""
NO_RELEVANT_SHARE = 0.025
"""Share of queries without a relevant document."""

# Number of query terms in the index, from none to six; without any, the text carries no information.
TERM_SHARES = np.array([0.06, 0.15, 0.34, 0.30, 0.10, 0.03, 0.02])
MAX_TERMS = len(TERM_SHARES) - 1
IDF_BASE, IDF_SHAPE, IDF_SCALE = 1.0, 2.0, 1.7
COMMON_SALIENCE = 0.5
"""Correlation between the saliences of two query terms in a document."""


def _per_stream(*values: float) -> np.ndarray:
    """Return one constant per text stream of a document."""
    return np.array(values, np.float32)


# Streams: body, anchor, title, url. Lengths are log-normal, rounded down: nearly three quarters of anchors are empty.
LOG_LENGTH, LOG_LENGTH_SPREAD = _per_stream(5.95, -1.2, 1.85, 2.0), _per_stream(1.2, 1.9, 0.65, 0.35)
LENGTH_BY_POPULARITY, LENGTH_BY_LINKS = _per_stream(-0.25, 0.1, -0.05, -0.05), _per_stream(0, 0.5, 0, 0)
# Mean frequency of a term:
# length^GROWTH x exp(LOG_RATE + RATE_BY_SALIENCE x salience + RATE_BY_POPULARITY x popularity).
LOG_RATE, RATE_BY_SALIENCE = _per_stream(-2.7, -1.6, -1.6, -3.15), _per_stream(1.2, 1.1, 1.1, 1.1)
RATE_BY_POPULARITY, GROWTH = _per_stream(0, 0.15, 0.1, 0.1), 0.7
# The four streams and the whole document: difference of a term's IDF to that in the body, and mean lengths for BM25.
IDF_ABOVE_BODY, MEAN_LENGTH = _per_stream(0, 4.3, 3.5, 4.2, 0), _per_stream(750, 2, 8, 8, 768)

_MOST_QUERIES = 10_000_000
"""Largest number of queries: more than a billion documents."""

_Generators = Callable[[str], np.random.Generator]
"""Random generators by name. Each is used row by row, so that a longer corpus starts with the same queries."""


def builtin_corpus(queries: int = 1000, *, seed: int = 0) -> Corpus:
    """Generate a synthetic corpus like MSLR-WEB10K: labels 0 to 4, about 120 candidates per query, 136 features.

    The corpus is a function of the seed, and its first queries do not depend on the number of queries.

    Parameters
    ----------
    queries
        Number of queries, from 1 to 10,000,000.
    seed
        Random seed.

    Returns
    -------
    Corpus
        The corpus; query and document ids are numbers from 1.

    Raises
    ------
    DataError
        If there is no query, or more than 10,000,000 ("bad-option").

    Examples
    --------
    >>> corpus = builtin_corpus(20)
    >>> corpus.n_queries, corpus.features.shape[1]
    (20, 136)
    >>> first = builtin_corpus(10)
    >>> bool((corpus.label[: first.n_pairs] == first.label).all())
    True
    """
    if not 1 <= queries <= _MOST_QUERIES:
        raise DataError(
            f"the built-in corpus must have 1 to {_MOST_QUERIES:,} queries: got {queries}.",
            code="bad-option",
            name="queries",
            value=queries,
        )
    rngs = cache(partial(generator, seed, "corpus"))
    drawn = _Queries.draw(queries, rngs)
    query = np.repeat(np.arange(queries), drawn.length)
    label = np.empty(len(query), np.float32)
    features = np.empty((len(query), N_FEATURES), np.float32)
    for start in range(0, len(query), _DOCUMENTS_PER_BLOCK):
        rows = slice(start, start + _DOCUMENTS_PER_BLOCK)
        label[rows], features[rows] = _documents(drawn.at(query[rows]), rngs)
    vocabulary = Vocabulary(np.arange(1, queries + 1), np.arange(1, len(query) + 1), query, np.arange(len(query)))
    return Corpus(vocabulary, label, features)


@dataclass(frozen=True, eq=False)
class _Queries:
    """Attributes of queries that their documents depend on; one row per query, or per document after `at`."""

    length: Int[np.ndarray, " row"]
    relevance: Float[np.ndarray, " row"]
    strength: Float[np.ndarray, " row"]
    n_terms: Int[np.ndarray, " row"]
    idf: Float[np.ndarray, "row term"]

    @classmethod
    def draw(cls, n: int, rngs: _Generators) -> _Queries:
        """Draw the attributes of n queries."""
        size = rngs("length").logistic(size=n)
        length = MEDIAN_LENGTH * np.exp(np.where(size < 0, SPREAD_BELOW, SPREAD_ABOVE) * size)
        standard_size = size * np.sqrt(3) / np.pi
        other = rngs("relevance").standard_normal(n)
        relevance = QUERY_SPREAD * (LENGTH_RELEVANCE * standard_size + np.sqrt(1 - LENGTH_RELEVANCE**2) * other)
        relevance[rngs("barren").random(n) < NO_RELEVANT_SHARE] = -np.inf
        n_terms = np.searchsorted(np.cumsum(TERM_SHARES)[:-1], rngs("terms").random(n), side="right")
        return cls(
            length=np.clip(np.rint(length), 1, MAX_LENGTH).astype(np.int64),
            relevance=relevance,
            strength=rngs("strength").gamma(STRENGTH_SHAPE, 1 / STRENGTH_SHAPE, n).astype(np.float32),
            n_terms=n_terms,
            idf=(IDF_BASE + rngs("idf").gamma(IDF_SHAPE, IDF_SCALE, (n, MAX_TERMS))).astype(np.float32),
        )

    def at(self, row: Int[np.ndarray, " chosen"]) -> _Queries:
        """Return the attributes of some rows, e.g. of the query of each document."""
        return _Queries(*(getattr(self, name)[row] for name in self.__dataclass_fields__))


def _documents(query: _Queries, rngs: _Generators) -> tuple[np.ndarray, np.ndarray]:
    """Draw the labels and features of documents, given the attributes of their queries."""
    n = len(query.length)
    normal = rngs("documents").standard_normal((n, 18), np.float32)
    topic, links, hidden, length_noise, other_noise = np.split(normal, [1, 2, 3, 7], axis=1)
    popularity = rngs("sought").standard_exponential((n, 1), np.float32) - 1
    is_term = np.arange(MAX_TERMS) < query.n_terms[:, None]
    idf = query.idf * is_term

    # salience of each query term in the document, and of the query as a whole: rare terms weigh more
    own = rngs("salience").standard_normal((n, MAX_TERMS), np.float32)
    weight = idf / np.maximum(idf.sum(axis=1, keepdims=True), 1)
    common, rest = COMMON_SALIENCE**0.5, (1 - COMMON_SALIENCE) ** 0.5
    salience = common * topic + rest * own
    match = common * topic + rest * (weight * own).sum(axis=1, keepdims=True)
    match /= np.sqrt(common**2 + rest**2 * np.square(weight).sum(axis=1, keepdims=True))  # variance 1 for any weights

    relevance = (
        MATCH * query.strength[:, None] * np.minimum(match, MATCH_CAP) + POPULARITY * popularity + HIDDEN * hidden
    )[:, 0]
    label = np.searchsorted(CUTS, query.relevance + relevance)

    log_length = (
        LOG_LENGTH + LOG_LENGTH_SPREAD * length_noise + LENGTH_BY_POPULARITY * popularity + LENGTH_BY_LINKS * links
    )
    length = np.floor(np.exp(log_length))
    log_rate = (LOG_RATE + RATE_BY_POPULARITY * popularity)[:, :, None]
    log_rate = log_rate + RATE_BY_SALIENCE[:, None] * salience[:, None, :]
    mean = np.maximum(np.exp(log_rate) * (length**GROWTH)[:, :, None], 1e-9)
    # an exponential in units of log(1 + 1/mean), rounded down, is geometric with that mean: terms occur in bursts
    exponential = rngs("frequency").standard_exponential(mean.shape, np.float32)
    frequency = np.floor(exponential / np.log1p(1 / mean)) * is_term[:, None, :]
    length = np.maximum(length, frequency.sum(axis=2))  # a stream is at least as long as its query terms

    text = _text_features(frequency, length, idf, is_term)
    other = _other_features(length[:, 3], relevance, popularity[:, 0], links[:, 0], other_noise)
    return label, np.concatenate([text, other], axis=1)


def _text_features(
    frequency: Float[np.ndarray, "doc 4 term"],
    length: Float[np.ndarray, "doc 4"],
    idf: Float[np.ndarray, "doc term"],
    is_term: Bool[np.ndarray, "doc term"],
) -> Float[np.ndarray, "doc 125"]:
    """Compute features 1 to 125: 25 groups of five, for body, anchor, title, url and whole document."""
    # sums over the first axis are the fastest: arrays are term x document x stream from here on
    tf = np.concatenate([frequency, frequency.sum(axis=1, keepdims=True)], axis=1)
    tf = np.ascontiguousarray(np.moveaxis(tf, 2, 0))
    length = np.concatenate([length, length.sum(axis=1, keepdims=True)], axis=1)
    is_term = np.ascontiguousarray(is_term.T)[:, :, None]
    idf = (np.ascontiguousarray(idf.T)[:, :, None] + IDF_ABOVE_BODY) * is_term
    n_terms = is_term.sum(axis=0, dtype=np.float32)
    n_words = np.maximum(length, 1)
    tf_idf = tf * idf

    def moments(x: np.ndarray) -> list[np.ndarray]:
        """Return the sum, minimum, maximum, mean and variance over the query's terms."""
        total = x.sum(axis=0)
        mean = total / np.maximum(n_terms, 1)
        variance = (np.square(x - mean) * is_term).sum(axis=0) / np.maximum(n_terms, 1)
        return [total, np.where(n_terms, np.where(is_term, x, np.inf).min(axis=0), 0), x.max(axis=0), mean, variance]

    covered = (tf > 0).sum(axis=0, dtype=np.float32)
    norms = np.sqrt(np.square(tf_idf).sum(axis=0) * np.square(idf).sum(axis=0))
    k1, b = 1.2, 0.75
    bm25 = tf_idf * (k1 + 1) / (tf + k1 * (1 - b + b * n_words / MEAN_LENGTH))
    # Zhai & Lafferty's language models: absolute discounting, Dirichlet and Jelinek-Mercer smoothing
    background = 0.05 * np.exp(-idf)
    absolute = np.maximum(tf - 0.7, 0) / n_words + 0.5 * background
    dirichlet = (tf + 2000 * background) / (n_words + 2000)
    jelinek_mercer = 0.9 * tf / n_words + 0.1 * background
    groups = [
        covered,
        covered / np.maximum(n_terms, 1),
        length,
        idf.sum(axis=0),
        *moments(tf),
        *moments(tf / n_words),
        *moments(tf_idf),
        ((covered == n_terms) & (n_terms > 0)).astype(np.float32),
        (tf_idf * idf).sum(axis=0) / np.maximum(norms, 1e-6),
        bm25.sum(axis=0),
        *((np.log(prob) * is_term).sum(axis=0) for prob in (absolute, dirichlet, jelinek_mercer)),
    ]
    return np.stack(groups, axis=1).reshape(len(length), -1)


def _other_features(
    url_length: Float[np.ndarray, " doc"],
    relevance: Float[np.ndarray, " doc"],
    popularity: Float[np.ndarray, " doc"],
    links: Float[np.ndarray, " doc"],
    noise: Float[np.ndarray, "doc 11"],
) -> Float[np.ndarray, "doc 11"]:
    """Compute features 126 to 136: url, links, quality, clicks. Counts are log-normal, rounded down (hence zeros)."""
    z = noise.T
    clicks = np.floor(np.exp(-2.5 + 3 * z[9] + 1.5 * links + 0.4 * popularity))
    columns = [
        1 + np.floor(np.exp(0.7 + 0.5 * z[0] - 0.05 * popularity)),  # slashes in the url
        np.floor(5.5 * url_length * np.exp(0.25 * z[1])),  # its length in characters
        np.floor(np.exp(1.5 + 3 * z[2] + 2.5 * links + 0.3 * popularity)),  # links to the page
        np.floor(np.exp(0.1 + 1.65 * z[3] + 0.1 * popularity)),  # links from it
        np.minimum(np.exp(8.9 + 1.8 * z[4] + 0.8 * links + 0.2 * popularity), 65535),  # PageRank
        np.minimum(np.exp(10.2 + 1.6 * z[5]), 65535),  # SiteRank
        np.clip(np.floor(np.exp(1.8 + 1.4 * z[6])), 1, 255),  # two quality scores
        np.clip(np.floor(np.exp(2.1 + 1.4 * z[7])), 1, 255),
        np.floor(np.exp(-6.3 + 3.3 * z[8] + 0.8 * relevance)),  # clicks on the page for this query
        clicks,  # clicks on it for any query
        np.where(clicks > 0, np.exp(2.9 + 1.4 * z[10]), 0),  # dwell time
    ]
    return np.stack(columns, axis=1)
