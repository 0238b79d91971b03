"""Vocabulary: raw ids of queries and documents, and the row numbers that everything else computes with.

Ids are sorted, and pairs are sorted by (query, document), so the same ids give the same numbers and the same
fingerprint whatever order the log is read in, and the pairs of a query are neighbours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Int, UInt8

from clickshift.core.unique_rows import distinct_sorted
from clickshift.errors import DataError, VocabularyError

UNSEEN = -1
"""The number of a pair or query that a vocabulary does not hold. Tables indexed by pair keep its value in their last
row."""

Ids = np.ndarray  # int64 or numpy's StringDType, one dimension
Raw = Any  # a sequence of integers or strings: list, numpy array, or pyarrow array (dictionary-encoded is fastest)


@final
@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Which queries, documents and (query, document) pairs there are.

    >>> words, query, pair = Vocabulary.of(["cats", "cats", "dogs"], [12, 7, 12])
    >>> words.n_queries, words.n_docs, words.n_pairs
    (2, 2, 3)
    >>> pair.tolist()  # cats: documents 7 and 12; dogs: document 12
    [1, 0, 2]
    """

    query_ids: Ids
    doc_ids: Ids
    pair_query: Int[np.ndarray, " pair"]
    pair_doc: Int[np.ndarray, " pair"]

    @classmethod
    def of(cls, query: Raw, doc: Raw) -> tuple[Vocabulary, Int[np.ndarray, " row"], Int[np.ndarray, " row"]]:
        """The vocabulary of aligned columns of raw ids, with the query number and the pair number of every row."""
        query_ids, query_row = encode_ids(query, "query")
        doc_ids, doc_row = encode_ids(doc, "document")
        if len(query_row) != len(doc_row):
            raise DataError(f"queries and documents must be aligned: got {len(query_row)} and {len(doc_row)} rows.")
        key, pair = distinct_sorted(query_row * max(len(doc_ids), 1) + doc_row)
        pair_query, pair_doc = np.divmod(key, max(len(doc_ids), 1))
        return cls(query_ids, doc_ids, pair_query, pair_doc), query_row.astype(np.int32), pair.astype(np.int32)

    @property
    def n_queries(self) -> int:
        return len(self.query_ids)

    @property
    def n_docs(self) -> int:
        return len(self.doc_ids)

    @property
    def n_pairs(self) -> int:
        return len(self.pair_query)

    @cached_property
    def query_offsets(self) -> Int[np.ndarray, " bound"]:
        """Pairs `query_offsets[q]` up to, not including, `query_offsets[q + 1]` belong to query q."""
        offsets: np.ndarray = np.searchsorted(self.pair_query, np.arange(self.n_queries + 1))
        return offsets

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all ids and pairs: equal fingerprints mean that row numbers mean the same."""
        digest = hashlib.blake2b(digest_size=16)
        for ids in (self.query_ids, self.doc_ids):
            if ids.dtype.kind == "i":
                digest.update(b"int" + np.ascontiguousarray(ids).tobytes())
            else:
                lengths, data = text_bytes(ids)
                digest.update(b"str" + lengths.tobytes())
                digest.update(data.tobytes())
        digest.update(np.ascontiguousarray(self.pair_query, np.int64).tobytes())
        digest.update(np.ascontiguousarray(self.pair_doc, np.int64).tobytes())
        return digest.hexdigest()

    def same_as(self, other: Vocabulary) -> bool:
        return self is other or self.fingerprint == other.fingerprint

    def query_numbers(self, query: Raw) -> Int[np.ndarray, " row"]:
        """The number of each raw query id, `UNSEEN` where it is not here."""
        return _look_up(self.query_ids, query, "query")

    def pair_numbers(self, query: Raw, doc: Raw) -> Int[np.ndarray, " row"]:
        """The pair number of each (raw query id, raw document id), `UNSEEN` where it is not here."""
        return self._find(self.query_numbers(query), _look_up(self.doc_ids, doc, "document"))

    def _find(self, query: np.ndarray, doc: np.ndarray) -> np.ndarray:
        if not self.n_pairs:
            return np.full(len(query), UNSEEN, np.int32)
        keys = self.pair_query * self.n_docs + self.pair_doc
        wanted = query.astype(np.int64) * self.n_docs + doc
        place = np.minimum(np.searchsorted(keys, wanted), self.n_pairs - 1)
        known = (query >= 0) & (doc >= 0) & (keys[place] == wanted)
        return np.where(known, place, UNSEEN).astype(np.int32)

    def pairs_of(self, other: Vocabulary) -> Int[np.ndarray, " other_pair"]:
        """For every pair of another vocabulary its number here, `UNSEEN` where it is not here."""
        if self.same_as(other):
            return np.arange(self.n_pairs, dtype=np.int32)
        query = self.query_numbers(other.query_ids)
        doc = _look_up(self.doc_ids, other.doc_ids, "document")
        return self._find(query[other.pair_query], doc[other.pair_doc])

    def queries_of(self, other: Vocabulary) -> Int[np.ndarray, " other_query"]:
        """For every query of another vocabulary its number here, `UNSEEN` where it is not here."""
        return self.query_numbers(other.query_ids)

    def with_pairs(self, keep: Int[np.ndarray, " kept"]) -> Vocabulary:
        """The vocabulary of these pairs alone, renumbered; queries and documents without a pair are dropped."""
        keep = np.unique(keep)
        if len(keep) and (keep[0] < 0 or keep[-1] >= self.n_pairs):
            raise VocabularyError(
                f"pair numbers must be from 0 to {self.n_pairs - 1}: got {keep[0]} to {keep[-1]}. "
                "Were they made with another vocabulary?"
            )
        queries, query = np.unique(self.pair_query[keep], return_inverse=True)
        docs, doc = np.unique(self.pair_doc[keep], return_inverse=True)
        return Vocabulary(self.query_ids[queries], self.doc_ids[docs], query, doc)

    def __repr__(self) -> str:
        return f"Vocabulary({self.n_queries:,} queries, {self.n_docs:,} documents, {self.n_pairs:,} pairs)"


def encode_ids(raw: Raw, what: str) -> tuple[Ids, Int[np.ndarray, " row"]]:
    """Distinct raw ids in ascending order, and the place of every row's id among them."""
    array = _as_arrow(raw, what)
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_integer(array.type):
        return distinct_sorted(array.to_numpy(zero_copy_only=False).astype(np.int64))
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    dictionary = array.dictionary
    if pa.types.is_integer(dictionary.type):
        ids = dictionary.to_numpy(zero_copy_only=False).astype(np.int64)
        order = np.argsort(ids)
    else:
        ids = np.array(dictionary.to_numpy(zero_copy_only=False), dtype=np.dtypes.StringDType())
        order = pc.array_sort_indices(dictionary).to_numpy()  # by UTF-8 bytes, as numpy's own comparison
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    used = np.zeros(len(order), bool)
    code = place[array.indices.to_numpy(zero_copy_only=False)]
    used[code] = True
    if not used.all():  # a dictionary may hold entries that no row uses
        return ids[order][used], (np.cumsum(used) - 1)[code]
    return ids[order], code


def text_bytes(ids: Ids) -> tuple[Int[np.ndarray, " id"], UInt8[np.ndarray, " byte"]]:
    """The lengths of texts in bytes, and all their bytes one after the other."""
    import pyarrow as pa

    array = pa.array(ids.astype(object), pa.large_string())
    _, offsets, data = array.buffers()
    lengths: np.ndarray = np.diff(np.frombuffer(offsets, np.int64)[: len(ids) + 1])
    return lengths, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[: int(lengths.sum())]


def texts_of(lengths: Int[np.ndarray, " id"], data: UInt8[np.ndarray, " byte"]) -> Ids:
    """The opposite of `text_bytes`."""
    import pyarrow as pa

    buffers = [None, pa.py_buffer(np.append(0, np.cumsum(lengths)).astype(np.int64)), pa.py_buffer(data)]
    array = pa.Array.from_buffers(pa.large_string(), len(lengths), buffers)
    array.validate(full=True)
    return np.array(array.to_numpy(zero_copy_only=False), dtype=np.dtypes.StringDType())


def _as_arrow(raw: Raw, what: str) -> Any:
    """A pyarrow array of integers or strings (perhaps dictionary-encoded), with nothing missing."""
    import pyarrow as pa

    if isinstance(raw, np.ndarray) and raw.dtype.kind == "T":
        raw = raw.astype(object)
    try:
        array = raw if isinstance(raw, pa.Array | pa.ChunkedArray) else pa.array(raw)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise DataError(f"{what} ids must be all integers or all strings: {error}.") from None
    if isinstance(array, pa.ChunkedArray):
        array = array.unify_dictionaries().combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if len(array) == 0 and pa.types.is_null(array.type):
        array = array.cast(pa.int64())
    if array.null_count:
        row = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise DataError(f"{what} ids must not be missing: row {row + 1} has none. Drop such rows or give them an id.")
    values = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if not (pa.types.is_integer(values) or pa.types.is_string(values) or pa.types.is_large_string(values)):
        raise DataError(f"{what} ids must be integers or strings: got {values}. Convert them first.")
    return array


def _look_up(ids: Ids, raw: Raw, what: str) -> np.ndarray:
    """The place of each raw id among sorted ids, `UNSEEN` where it is not there. Integers match their decimal text."""
    wanted, code = encode_ids(raw, what)
    if ids.dtype.kind == wanted.dtype.kind == "i":
        found = _match(ids, wanted)
    else:
        found = _match_texts(*(these.astype(np.dtypes.StringDType()) for these in (ids, wanted)))
    numbers: np.ndarray = found[code].astype(np.int32)
    return numbers


def _match(ids: Ids, wanted: Ids) -> np.ndarray:
    if not len(ids):
        return np.full(len(wanted), UNSEEN, np.int64)
    place = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    found: np.ndarray = np.where(ids[place] == wanted, place, UNSEEN)
    return found


def _match_texts(ids: Ids, wanted: Ids) -> np.ndarray:
    """By pyarrow: numpy's searchsorted loses texts of 16 bytes and more (numpy issue 31533)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    those, these = (pa.array(texts.astype(object), pa.large_string()) for texts in (ids, wanted))
    found: np.ndarray = pc.index_in(these, value_set=those).fill_null(UNSEEN).to_numpy().astype(np.int64)
    return found


def pack_vocabulary(vocabulary: Vocabulary, arrays: dict[str, np.ndarray]) -> dict[str, str]:
    """Put its arrays among others; what comes back belongs into the header."""
    kinds = {"fingerprint": vocabulary.fingerprint}
    for name, ids in (("query_ids", vocabulary.query_ids), ("doc_ids", vocabulary.doc_ids)):
        if ids.dtype.kind == "i":
            kinds[name], arrays[f"vocabulary.{name}"] = "integers", ids
        else:
            kinds[name] = "strings"
            arrays[f"vocabulary.{name}.length"], arrays[f"vocabulary.{name}"] = text_bytes(ids)
    arrays["vocabulary.pair_query"], arrays["vocabulary.pair_doc"] = vocabulary.pair_query, vocabulary.pair_doc
    return kinds


def unpack_vocabulary(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Vocabulary:
    """What `pack_vocabulary` put there."""

    def ids(name: str) -> Ids:
        raw = arrays[f"vocabulary.{name}"]
        if header[name] == "integers":
            return raw
        return texts_of(arrays[f"vocabulary.{name}.length"], raw)

    pairs = arrays["vocabulary.pair_query"], arrays["vocabulary.pair_doc"]
    return Vocabulary(ids("query_ids"), ids("doc_ids"), *pairs)
