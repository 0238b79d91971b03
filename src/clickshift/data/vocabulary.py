"""Vocabulary: raw ids of queries and documents, and the numbers that all other modules compute with.

Ids are sorted, and pairs are sorted by (query, document). The same ids therefore give the same numbers and the same
fingerprint in whatever order the log is read, and the pairs of a query are contiguous. `pack_vocabulary` and
`unpack_vocabulary` convert a vocabulary to and from plain arrays for files: integers as they are, text as bytes and
lengths.
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
"""Number of a pair or query that is not in the vocabulary. It is -1, so tables indexed by pair keep the value of unseen
pairs in an extra last row."""

Ids = np.ndarray
"""Distinct raw ids: a one-dimensional array of int64 or of numpy's StringDType."""
Raw = Any
"""A column of raw ids, integers or strings: a list, a numpy or a pyarrow array (dictionary-encoded is fastest)."""


@final
@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Queries, documents and (query, document) pairs of a log or corpus, each with a number.

    Use `Vocabulary.of` to build one from raw ids.

    Parameters
    ----------
    query_ids
        Raw query ids, ascending; the position of an id is the query's number.
    doc_ids
        Raw document ids, ascending; the position of an id is the document's number.
    pair_query
        Query number of each pair; pairs are sorted by (query, document).
    pair_doc
        Document number of each pair.

    Examples
    --------
    >>> vocabulary, query, pair = Vocabulary.of(["cats", "cats", "dogs"], [12, 7, 12])
    >>> vocabulary.n_queries, vocabulary.n_docs, vocabulary.n_pairs
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
        """Build the vocabulary of aligned columns of raw ids, and number their rows.

        Parameters
        ----------
        query, doc
            Raw query id and raw document id of each row: integers or strings, as a list, numpy or pyarrow array.

        Returns
        -------
        tuple
            The vocabulary, the query number of each row, and the pair number of each row.

        Raises
        ------
        DataError
            If the columns differ in length ("unequal-lengths"), or ids are missing ("missing-id"), of mixed types
            ("mixed-ids") or neither integers nor strings ("bad-id-type").
        """
        query_ids, query_row = encode_ids(query, "query")
        doc_ids, doc_row = encode_ids(doc, "document")
        if len(query_row) != len(doc_row):
            raise DataError(
                f"queries and documents must be aligned: got {len(query_row)} and {len(doc_row)} rows.",
                code="unequal-lengths",
                queries=len(query_row),
                documents=len(doc_row),
            )
        key, pair = distinct_sorted(query_row * max(len(doc_ids), 1) + doc_row)
        pair_query, pair_doc = np.divmod(key, max(len(doc_ids), 1))
        return cls(query_ids, doc_ids, pair_query, pair_doc), query_row.astype(np.int32), pair.astype(np.int32)

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self.query_ids)

    @property
    def n_docs(self) -> int:
        """Number of documents."""
        return len(self.doc_ids)

    @property
    def n_pairs(self) -> int:
        """Number of (query, document) pairs."""
        return len(self.pair_query)

    @cached_property
    def query_offsets(self) -> Int[np.ndarray, " bound"]:
        """Bounds of the queries: query q has the pairs from `query_offsets[q]` to `query_offsets[q + 1] - 1`."""
        offsets: np.ndarray = np.searchsorted(self.pair_query, np.arange(self.n_queries + 1))
        return offsets

    @cached_property
    def fingerprint(self) -> str:
        """Digest of all ids and pairs: vocabularies with equal fingerprints have the same numbers."""
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
        """Return whether both vocabularies have the same ids and numbers."""
        return self is other or self.fingerprint == other.fingerprint

    def query_numbers(self, query: Raw) -> Int[np.ndarray, " row"]:
        """Return the number of each raw query id; `UNSEEN` if it is not in the vocabulary."""
        return _look_up(self.query_ids, query, "query")

    def pair_numbers(self, query: Raw, doc: Raw) -> Int[np.ndarray, " row"]:
        """Return the pair number of each (raw query id, raw document id); `UNSEEN` if it is not in the vocabulary."""
        return self._find_pairs(self.query_numbers(query), _look_up(self.doc_ids, doc, "document"))

    def _find_pairs(self, query: np.ndarray, doc: np.ndarray) -> np.ndarray:
        """Return the pair number of each (query number, document number); `UNSEEN` if there is no such pair."""
        if not self.n_pairs:
            return np.full(len(query), UNSEEN, np.int32)
        keys = self.pair_query * self.n_docs + self.pair_doc
        wanted = query.astype(np.int64) * self.n_docs + doc
        position = np.minimum(np.searchsorted(keys, wanted), self.n_pairs - 1)
        exists = (query >= 0) & (doc >= 0) & (keys[position] == wanted)
        return np.where(exists, position, UNSEEN).astype(np.int32)

    def pairs_of(self, other: Vocabulary) -> Int[np.ndarray, " other_pair"]:
        """Return the number that each pair of another vocabulary has in this one; `UNSEEN` if it has none."""
        if self.same_as(other):
            return np.arange(self.n_pairs, dtype=np.int32)
        query = self.query_numbers(other.query_ids)
        doc = _look_up(self.doc_ids, other.doc_ids, "document")
        return self._find_pairs(query[other.pair_query], doc[other.pair_doc])

    def queries_of(self, other: Vocabulary) -> Int[np.ndarray, " other_query"]:
        """Return the number that each query of another vocabulary has in this one; `UNSEEN` if it has none."""
        return self.query_numbers(other.query_ids)

    def with_pairs(self, keep: Int[np.ndarray, " kept"]) -> Vocabulary:
        """Return the vocabulary of some pairs, renumbered; queries and documents without a pair are dropped.

        Raises
        ------
        VocabularyError
            If a pair number does not exist ("pair-out-of-range").
        """
        keep = np.asarray(keep)
        if not (np.diff(keep) > 0).all():
            keep = np.unique(keep)
        if len(keep) and (keep[0] < 0 or keep[-1] >= self.n_pairs):
            raise VocabularyError(
                f"pair numbers must be from 0 to {self.n_pairs - 1}: got {keep[0]} to {keep[-1]}. "
                "Use the vocabulary that they were made with.",
                code="pair-out-of-range",
                n_pairs=self.n_pairs,
            )
        queries, query = distinct_sorted(self.pair_query[keep])
        docs, doc = distinct_sorted(self.pair_doc[keep])
        return Vocabulary(self.query_ids[queries], self.doc_ids[docs], query, doc)

    def __repr__(self) -> str:
        return f"Vocabulary({self.n_queries:,} queries, {self.n_docs:,} documents, {self.n_pairs:,} pairs)"


def encode_ids(raw: Raw, kind: str) -> tuple[Ids, Int[np.ndarray, " row"]]:
    """Encode a column of raw ids as distinct ids in ascending order and the position of each row's id among them.

    Parameters
    ----------
    raw
        Raw ids, integers or strings, none missing.
    kind
        What the ids identify, for error messages: "query" or "document".

    Returns
    -------
    tuple
        The distinct ids, ascending, and for each row the position of its id.

    Raises
    ------
    DataError
        If ids are missing ("missing-id"), of mixed types ("mixed-ids") or neither integers nor strings
        ("bad-id-type").

    Examples
    --------
    >>> ids, position = encode_ids([30, 10, 30], "document")
    >>> ids.tolist(), position.tolist()
    ([10, 30], [1, 0, 1])
    """
    array = _as_arrow(raw, kind)
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
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    used = np.zeros(len(order), bool)
    row_position = position[array.indices.to_numpy(zero_copy_only=False)]
    used[row_position] = True
    if not used.all():  # a dictionary may hold entries that no row uses
        return ids[order][used], (np.cumsum(used) - 1)[row_position]
    return ids[order], row_position


def text_bytes(ids: Raw) -> tuple[Int[np.ndarray, " id"], UInt8[np.ndarray, " byte"]]:
    """Return the lengths of texts in bytes, and the concatenation of their bytes.

    Parameters
    ----------
    ids
        The texts: an array of numpy or of pyarrow.
    """
    import pyarrow as pa

    array = (
        ids.cast(pa.large_string()) if isinstance(ids, pa.Array) else pa.array(ids.astype(object), pa.large_string())
    )
    _, offsets, data = array.buffers()
    lengths: np.ndarray = np.diff(np.frombuffer(offsets, np.int64)[: len(ids) + 1])
    return lengths, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[: int(lengths.sum())]


def texts_from_bytes(lengths: Int[np.ndarray, " id"], data: UInt8[np.ndarray, " byte"]) -> Ids:
    """Return the texts that `text_bytes` turned into lengths and bytes.

    Parameters
    ----------
    lengths, data
        What `text_bytes` returned.

    Raises
    ------
    ValueError
        If they are not lengths and bytes of texts.
    """
    import pyarrow as pa

    buffers = [None, pa.py_buffer(np.append(0, np.cumsum(lengths)).astype(np.int64)), pa.py_buffer(data)]
    array = pa.Array.from_buffers(pa.large_string(), len(lengths), buffers)
    array.validate(full=True)
    return np.array(array.to_numpy(zero_copy_only=False), dtype=np.dtypes.StringDType())


def _as_arrow(raw: Raw, kind: str) -> Any:
    """Return raw ids as a pyarrow array of integers or strings, perhaps dictionary-encoded, with none missing."""
    import pyarrow as pa

    if isinstance(raw, np.ndarray) and raw.dtype.kind == "T":
        raw = raw.astype(object)
    try:
        array = raw if isinstance(raw, pa.Array | pa.ChunkedArray) else pa.array(raw)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise DataError(f"{kind} ids must be all integers or all strings: {error}.", code="mixed-ids") from None
    if isinstance(array, pa.ChunkedArray):
        array = array.unify_dictionaries().combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if len(array) == 0 and pa.types.is_null(array.type):
        array = array.cast(pa.int64())
    if array.null_count:
        row = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise DataError(
            f"{kind} ids must not be missing: row {row + 1} has none. Remove such rows, or give them an id.",
            code="missing-id",
            row=row + 1,
        )
    value_type = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if not (pa.types.is_integer(value_type) or pa.types.is_string(value_type) or pa.types.is_large_string(value_type)):
        raise DataError(
            f"{kind} ids must be integers or strings: got {value_type}. Convert them first.",
            code="bad-id-type",
            type=str(value_type),
        )
    return array


def _look_up(ids: Ids, raw: Raw, kind: str) -> np.ndarray:
    """Return the position of each raw id among sorted ids; `UNSEEN` if absent. Integers match their decimal text."""
    wanted, row_position = encode_ids(raw, kind)
    if ids.dtype.kind == wanted.dtype.kind == "i":
        position = _match_integers(ids, wanted)
    else:
        position = _match_texts(*(column.astype(np.dtypes.StringDType()) for column in (ids, wanted)))
    numbers: np.ndarray = position[row_position].astype(np.int32)
    return numbers


def _match_integers(ids: Ids, wanted: Ids) -> np.ndarray:
    """Return the position of each wanted integer among sorted ids; `UNSEEN` if absent."""
    if not len(ids):
        return np.full(len(wanted), UNSEEN, np.int64)
    position = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    matched: np.ndarray = np.where(ids[position] == wanted, position, UNSEEN)
    return matched


def _match_texts(ids: Ids, wanted: Ids) -> np.ndarray:
    """Return the position of each wanted text among ids; `UNSEEN` if absent."""
    # with pyarrow, because numpy's searchsorted misses texts of 16 bytes and more (numpy issue 31533)
    import pyarrow as pa
    import pyarrow.compute as pc

    id_array, wanted_array = (pa.array(texts.astype(object), pa.large_string()) for texts in (ids, wanted))
    matched: np.ndarray = pc.index_in(wanted_array, value_set=id_array).fill_null(UNSEEN).to_numpy().astype(np.int64)
    return matched


def pack_vocabulary(vocabulary: Vocabulary, arrays: dict[str, np.ndarray]) -> dict[str, str]:
    """Add the arrays of a vocabulary to those of a file, and return the header entry that describes them.

    Parameters
    ----------
    vocabulary
        The vocabulary to save.
    arrays
        Named arrays of the file; arrays named "vocabulary.*" are added.

    Returns
    -------
    dict
        The fingerprint and the type of the ids, for `unpack_vocabulary`.
    """
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
    """Return the vocabulary that `pack_vocabulary` saved.

    Parameters
    ----------
    header
        The header entry that `pack_vocabulary` returned.
    arrays
        Named arrays of the file.

    Raises
    ------
    ValueError
        If the numbers are not those of a vocabulary, e.g. because the file was changed.
    """

    def ids(name: str) -> Ids:
        raw = arrays[f"vocabulary.{name}"]
        if header[name] == "integers":
            return raw
        return texts_from_bytes(arrays[f"vocabulary.{name}.length"], raw)

    pairs = arrays["vocabulary.pair_query"], arrays["vocabulary.pair_doc"]
    vocabulary = Vocabulary(ids("query_ids"), ids("doc_ids"), *pairs)
    _validate(vocabulary)
    return vocabulary


def _validate(vocabulary: Vocabulary) -> None:
    """Raise ValueError unless the numbers of a vocabulary are in range and sorted; kernels index tables by them."""
    pair_query, pair_doc = vocabulary.pair_query, vocabulary.pair_doc
    for name, ids in (("query_ids", vocabulary.query_ids), ("doc_ids", vocabulary.doc_ids)):
        if ids.ndim != 1 or (ids.dtype.kind != "T" and ids.dtype != np.int64):
            raise ValueError(f"{name} must be a column of 64-bit integers or texts")
        if ids.dtype.kind == "i" and not (ids[1:] > ids[:-1]).all():
            raise ValueError(f"{name} must be distinct and ascending")
    if any(column.ndim != 1 or column.dtype not in (np.int32, np.int64) for column in (pair_query, pair_doc)):
        raise ValueError("pair_query and pair_doc must be columns of integers")
    if len(pair_query) != len(pair_doc) or len(pair_query) >= 1 << 31:
        raise ValueError("pair_query and pair_doc must be equally long, below 2^31 pairs")
    for name, column, size in (("query", pair_query, vocabulary.n_queries), ("doc", pair_doc, vocabulary.n_docs)):
        if len(column) and not (column.min() >= 0 and column.max() < size):
            raise ValueError(f"pair_{name} must be from 0 to {size - 1}: got {column.min()} to {column.max()}")
    later = (pair_query[1:] > pair_query[:-1]) | ((pair_query[1:] == pair_query[:-1]) & (pair_doc[1:] > pair_doc[:-1]))
    if not later.all():
        raise ValueError("pairs must be distinct and sorted by query and document")
