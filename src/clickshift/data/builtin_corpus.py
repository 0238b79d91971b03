"""The built-in corpus: a small made-up web that behaves like MSLR-WEB10K, so that everything runs with no download.

Nothing is copied from the real data. A query draws its terms, a document its lengths and term frequencies, and the 136
features are computed from these by textbook formulas, in MSLR's numbering (110 is BM25 of the whole document). Grades
are cut from a latent relevance of which text shows one part, links and clicks show another, and nothing shows the rest.
The constants were calibrated on a sample of the real data: docs/built-in-corpus.md has the model and the comparison.
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
QUERIES_AT_ONCE = 1 << 13
"""Documents that are made at once, so that their tables of terms stay small; it changes no number."""

# Candidates of a query: the log of their number is logistic around its median, wider below it than above.
MEDIAN_LENGTH, SPREAD_BELOW, SPREAD_ABOVE, MAX_LENGTH = 109, 0.33, 0.27, 1251

# Relevance of a document = its query's part + MATCH x how well its text matches (more than ENOUGH does not help)
# + SOUGHT x how far it is the page that people look for + HIDDEN x what no feature shows.
# Its grade is the number of cuts below that.
MATCH, ENOUGH, SOUGHT, HIDDEN = 0.68, 1.5, 0.75, 1.0
CUTS = np.array([0.188, 1.787, 3.602, 4.65])
QUERY_SPREAD, LENGTH_RELEVANCE = 0.75, 0.5
"""Standard deviation of the query's part, and its correlation with the log of the number of candidates."""
STRENGTH_SHAPE = 1.5
"""In each query MATCH is multiplied by a gamma draw of this shape and mean 1: words help more in some queries."""
BARREN = 0.025
"""Share of queries for which nothing is relevant."""

# Terms of a query that the index knows, none to six: of a query with none the text shows nothing.
TERM_SHARES = np.array([0.06, 0.15, 0.34, 0.30, 0.10, 0.03, 0.02])
MAX_TERMS = len(TERM_SHARES) - 1
IDF_BASE, IDF_SHAPE, IDF_SCALE = 1.0, 2.0, 1.7
COMMON_SALIENCE = 0.5
"""Correlation between the saliences of two query terms in a document."""


def _per_stream(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


# Body, anchor, title, url. Lengths are log-normal and rounded down: that empties nearly three quarters of the anchors.
LOG_LENGTH, LOG_LENGTH_SPREAD = _per_stream(5.95, -1.2, 1.85, 2.0), _per_stream(1.2, 1.9, 0.65, 0.35)
LENGTH_BY_SOUGHT, LENGTH_BY_LINKS = _per_stream(-0.25, 0.1, -0.05, -0.05), _per_stream(0, 0.5, 0, 0)
# Mean frequency of a term: length^GROWTH x exp(LOG_RATE + RATE_BY_SALIENCE x salience + RATE_BY_SOUGHT x sought).
LOG_RATE, RATE_BY_SALIENCE = _per_stream(-2.7, -1.6, -1.6, -3.15), _per_stream(1.2, 1.1, 1.1, 1.1)
RATE_BY_SOUGHT, GROWTH = _per_stream(0, 0.15, 0.1, 0.1), 0.7
# The same and, last, the whole document: what a term's IDF has above that of the body, and mean lengths for BM25.
IDF_ABOVE_BODY, MEAN_LENGTH = _per_stream(0, 4.3, 3.5, 4.2, 0), _per_stream(750, 2, 8, 8, 768)

Chance = Callable[[str], np.random.Generator]
"""The one generator of a name. Each is drawn from row by row, so a longer corpus begins like a shorter one."""


def builtin_corpus(queries: int = 1000, *, seed: int = 0) -> Corpus:
    """A synthetic corpus like MSLR-WEB10K: labels 0 to 4, about 120 candidates per query, 136 features.

    It is a function of the seed, and its first queries do not depend on how many follow.

    >>> corpus = builtin_corpus(20)
    >>> corpus.n_queries, corpus.features.shape[1]
    (20, 136)
    >>> first = builtin_corpus(10)
    >>> bool((corpus.label[: first.n_pairs] == first.label).all())
    True
    """
    if queries < 1:
        raise DataError(f"the built-in corpus must have at least one query: got {queries}.")
    chance = cache(partial(generator, seed, "corpus"))
    drawn = _Queries.draw(queries, chance)
    query = np.repeat(np.arange(queries), drawn.length)
    label = np.empty(len(query), np.float32)
    features = np.empty((len(query), N_FEATURES), np.float32)
    for start in range(0, len(query), QUERIES_AT_ONCE):
        rows = slice(start, start + QUERIES_AT_ONCE)
        label[rows], features[rows] = _documents(drawn.of(query[rows]), chance)
    vocabulary = Vocabulary(np.arange(1, queries + 1), np.arange(1, len(query) + 1), query, np.arange(len(query)))
    return Corpus(vocabulary, label, features)


@dataclass(frozen=True, eq=False)
class _Queries:
    """What a query gives to its documents; one row per query, or per document when spread over them with `of`."""

    length: Int[np.ndarray, " row"]
    relevance: Float[np.ndarray, " row"]
    strength: Float[np.ndarray, " row"]
    n_terms: Int[np.ndarray, " row"]
    idf: Float[np.ndarray, "row term"]

    @classmethod
    def draw(cls, n: int, chance: Chance) -> _Queries:
        size = chance("length").logistic(size=n)
        length = MEDIAN_LENGTH * np.exp(np.where(size < 0, SPREAD_BELOW, SPREAD_ABOVE) * size)
        standard_size = size * np.sqrt(3) / np.pi
        other = chance("relevance").standard_normal(n)
        relevance = QUERY_SPREAD * (LENGTH_RELEVANCE * standard_size + np.sqrt(1 - LENGTH_RELEVANCE**2) * other)
        relevance[chance("barren").random(n) < BARREN] = -np.inf
        n_terms = np.searchsorted(np.cumsum(TERM_SHARES)[:-1], chance("terms").random(n), side="right")
        return cls(
            length=np.clip(np.rint(length), 1, MAX_LENGTH).astype(np.int64),
            relevance=relevance,
            strength=chance("strength").gamma(STRENGTH_SHAPE, 1 / STRENGTH_SHAPE, n).astype(np.float32),
            n_terms=n_terms,
            idf=(IDF_BASE + chance("idf").gamma(IDF_SHAPE, IDF_SCALE, (n, MAX_TERMS))).astype(np.float32),
        )

    def of(self, row: Int[np.ndarray, " chosen"]) -> _Queries:
        return _Queries(*(getattr(self, name)[row] for name in self.__dataclass_fields__))


def _documents(query: _Queries, chance: Chance) -> tuple[np.ndarray, np.ndarray]:
    """Labels and features of documents, given their queries."""
    n = len(query.length)
    normal = chance("documents").standard_normal((n, 18), np.float32)
    topic, links, hidden, length_noise, other_noise = np.split(normal, [1, 2, 3, 7], axis=1)
    sought = chance("sought").standard_exponential((n, 1), np.float32) - 1
    known = np.arange(MAX_TERMS) < query.n_terms[:, None]
    idf = query.idf * known

    # how much of the document is about each term, and about the query: rare terms weigh more
    own = chance("salience").standard_normal((n, MAX_TERMS), np.float32)
    weight = idf / np.maximum(idf.sum(axis=1, keepdims=True), 1)
    common, rest = COMMON_SALIENCE**0.5, (1 - COMMON_SALIENCE) ** 0.5
    salience = common * topic + rest * own
    match = common * topic + rest * (weight * own).sum(axis=1, keepdims=True)
    match /= np.sqrt(common**2 + rest**2 * np.square(weight).sum(axis=1, keepdims=True))  # variance 1 for any weights

    relevance = (MATCH * query.strength[:, None] * np.minimum(match, ENOUGH) + SOUGHT * sought + HIDDEN * hidden)[:, 0]
    label = np.searchsorted(CUTS, query.relevance + relevance)

    log_length = LOG_LENGTH + LOG_LENGTH_SPREAD * length_noise + LENGTH_BY_SOUGHT * sought + LENGTH_BY_LINKS * links
    length = np.floor(np.exp(log_length))
    log_rate = (LOG_RATE + RATE_BY_SOUGHT * sought)[:, :, None] + RATE_BY_SALIENCE[:, None] * salience[:, None, :]
    mean = np.maximum(np.exp(log_rate) * (length**GROWTH)[:, :, None], 1e-9)
    # an exponential in units of log(1 + 1/mean), rounded down, is geometric with that mean: words come in bursts
    chances = chance("frequency").standard_exponential(mean.shape, np.float32)
    frequency = np.floor(chances / np.log1p(1 / mean)) * known[:, None, :]
    length = np.maximum(length, frequency.sum(axis=2))  # a stream holds at least the terms that were found in it

    text = _text_features(frequency, length, idf, known)
    other = _other_features(length[:, 3], relevance, sought[:, 0], links[:, 0], other_noise)
    return label, np.concatenate([text, other], axis=1)


def _text_features(
    frequency: Float[np.ndarray, "doc 4 term"],
    length: Float[np.ndarray, "doc 4"],
    idf: Float[np.ndarray, "doc term"],
    known: Bool[np.ndarray, "doc term"],
) -> Float[np.ndarray, "doc 125"]:
    """Features 1 to 125: 25 groups of five, which are body, anchor, title, url and whole document."""
    # sums over a first axis are the quick ones: term x document x stream from here on
    tf = np.concatenate([frequency, frequency.sum(axis=1, keepdims=True)], axis=1)
    tf = np.ascontiguousarray(np.moveaxis(tf, 2, 0))
    length = np.concatenate([length, length.sum(axis=1, keepdims=True)], axis=1)
    known = np.ascontiguousarray(known.T)[:, :, None]
    idf = (np.ascontiguousarray(idf.T)[:, :, None] + IDF_ABOVE_BODY) * known
    n_terms = known.sum(axis=0, dtype=np.float32)
    words = np.maximum(length, 1)
    tf_idf = tf * idf

    def moments(x: np.ndarray) -> list[np.ndarray]:
        """Sum, minimum, maximum, mean and variance over the query's terms."""
        total = x.sum(axis=0)
        mean = total / np.maximum(n_terms, 1)
        variance = (np.square(x - mean) * known).sum(axis=0) / np.maximum(n_terms, 1)
        return [total, np.where(n_terms, np.where(known, x, np.inf).min(axis=0), 0), x.max(axis=0), mean, variance]

    covered = (tf > 0).sum(axis=0, dtype=np.float32)
    norms = np.sqrt(np.square(tf_idf).sum(axis=0) * np.square(idf).sum(axis=0))
    k1, b = 1.2, 0.75
    bm25 = tf_idf * (k1 + 1) / (tf + k1 * (1 - b + b * words / MEAN_LENGTH))
    # Zhai & Lafferty's language models: absolute discounting, Dirichlet and Jelinek-Mercer smoothing
    background = 0.05 * np.exp(-idf)
    absolute = np.maximum(tf - 0.7, 0) / words + 0.5 * background
    dirichlet = (tf + 2000 * background) / (words + 2000)
    jelinek_mercer = 0.9 * tf / words + 0.1 * background
    groups = [
        covered,
        covered / np.maximum(n_terms, 1),
        length,
        idf.sum(axis=0),
        *moments(tf),
        *moments(tf / words),
        *moments(tf_idf),
        ((covered == n_terms) & (n_terms > 0)).astype(np.float32),
        (tf_idf * idf).sum(axis=0) / np.maximum(norms, 1e-6),
        bm25.sum(axis=0),
        *((np.log(prob) * known).sum(axis=0) for prob in (absolute, dirichlet, jelinek_mercer)),
    ]
    return np.stack(groups, axis=1).reshape(len(length), -1)


def _other_features(
    url_length: Float[np.ndarray, " doc"],
    relevance: Float[np.ndarray, " doc"],
    sought: Float[np.ndarray, " doc"],
    links: Float[np.ndarray, " doc"],
    noise: Float[np.ndarray, "doc 11"],
) -> Float[np.ndarray, "doc 11"]:
    """Features 126 to 136: url, links, quality, clicks. Counts are log-normal and rounded down, hence their zeros."""
    z = noise.T
    clicks = np.floor(np.exp(-2.5 + 3 * z[9] + 1.5 * links + 0.4 * sought))
    columns = [
        1 + np.floor(np.exp(0.7 + 0.5 * z[0] - 0.05 * sought)),  # slashes in the url
        np.floor(5.5 * url_length * np.exp(0.25 * z[1])),  # its length in characters
        np.floor(np.exp(1.5 + 3 * z[2] + 2.5 * links + 0.3 * sought)),  # links to the page
        np.floor(np.exp(0.1 + 1.65 * z[3] + 0.1 * sought)),  # links from it
        np.minimum(np.exp(8.9 + 1.8 * z[4] + 0.8 * links + 0.2 * sought), 65535),  # PageRank
        np.minimum(np.exp(10.2 + 1.6 * z[5]), 65535),  # SiteRank
        np.clip(np.floor(np.exp(1.8 + 1.4 * z[6])), 1, 255),  # two quality scores
        np.clip(np.floor(np.exp(2.1 + 1.4 * z[7])), 1, 255),
        np.floor(np.exp(-6.3 + 3.3 * z[8] + 0.8 * relevance)),  # clicks on the page for this query
        clicks,  # clicks on it for any query
        np.where(clicks > 0, np.exp(2.9 + 1.4 * z[10]), 0),  # dwell time
    ]
    return np.stack(columns, axis=1)
