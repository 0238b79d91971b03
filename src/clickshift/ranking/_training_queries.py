"""Which queries a ranker was trained on: fingerprints that a ranker keeps, so that an evaluation can leave them out.

A query is recognised by its id and a document in common, or, under another id, by the same documents. A document is its
features. The id alone is not enough: files without ids number their queries from 1.
"""

from __future__ import annotations

import hashlib

import numpy as np
from jaxtyping import Bool, Int, UInt64

from clickshift.data.corpus import Corpus

_DOCUMENTS = 8
"""Number of documents by which a query is recognised: those with the smallest hashes."""
_CHUNK = 1 << 14
"""Number of documents that are hashed at once."""


def fingerprints_of(corpus: Corpus, queries: Int[np.ndarray, " query"]) -> Int[np.ndarray, "query hash"]:
    """Return a hash of the id of each query, and the smallest hashes of its documents, filled up with 0.

    Parameters
    ----------
    corpus
        Documents with their features.
    queries
        Numbers of the queries.
    """
    vocabulary = corpus.vocabulary
    prints = np.zeros((len(queries), 1 + _DOCUMENTS), np.uint64)
    prints[:, 0] = [_id_hash(raw) for raw in vocabulary.query_ids[queries].tolist()]
    hashes = _document_hashes(corpus)
    for row, query in enumerate(queries.tolist()):
        smallest = np.unique(hashes[corpus.offsets[query] : corpus.offsets[query + 1]])[:_DOCUMENTS]
        prints[row, 1 : 1 + len(smallest)] = smallest
    return prints.view(np.int64)


def trained_on(corpus: Corpus, fingerprints: Int[np.ndarray, "trained hash"]) -> Bool[np.ndarray, " query"]:
    """Return which queries of a corpus a ranker was trained on.

    Parameters
    ----------
    corpus
        Documents with their features.
    fingerprints
        Fingerprints of the queries that the ranker was trained on.
    """
    known: dict[int, set[int]] = {}
    for name, *documents in fingerprints.view(np.uint64).tolist():
        known.setdefault(name, set()).update(documents)
    same_documents = {tuple(documents) for _, *documents in fingerprints.view(np.uint64).tolist()}
    hashes, ids = _document_hashes(corpus), corpus.vocabulary.query_ids.tolist()
    own = fingerprints_of(corpus, np.arange(corpus.n_queries)).view(np.uint64)[:, 1:].tolist()
    return np.array(
        [
            tuple(own[query]) in same_documents
            or not known.get(_id_hash(raw), set()).isdisjoint(
                hashes[corpus.offsets[query] : corpus.offsets[query + 1]].tolist()
            )
            for query, raw in enumerate(ids)
        ],
        bool,
    )


def _id_hash(raw: object) -> int:
    """Hash the text of a query id."""
    return int.from_bytes(hashlib.blake2b(str(raw).encode(), digest_size=8).digest())


def _document_hashes(corpus: Corpus) -> UInt64[np.ndarray, " pair"]:
    """Hash the features of every document; 0 is left for "no document"."""
    assert corpus.features is not None
    width = corpus.features.shape[1]
    factor = np.random.default_rng(0).integers(1, 1 << 63, width, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    hashes = np.empty(corpus.n_pairs, np.uint64)
    for start in range(0, corpus.n_pairs, _CHUNK):
        part = corpus.features[start : start + _CHUNK].astype(np.float32) + np.float32(0)  # -0 is 0
        value = ((part.view(np.uint32).astype(np.uint64) + np.uint64(1)) * factor).sum(axis=1, dtype=np.uint64)
        value = (value ^ (value >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)  # the smallest are random ones
        hashes[start : start + _CHUNK] = np.maximum(value ^ (value >> np.uint64(33)), 1)
    return hashes
