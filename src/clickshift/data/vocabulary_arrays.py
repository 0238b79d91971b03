"""A vocabulary as plain arrays, for files: integers as they are, text as bytes and lengths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from clickshift.data.vocabulary import Ids, Vocabulary, text_bytes, texts_of


def put_vocabulary(vocabulary: Vocabulary, arrays: dict[str, np.ndarray]) -> dict[str, str]:
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


def get_vocabulary(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Vocabulary:
    """What `put_vocabulary` put there."""

    def ids(name: str) -> Ids:
        raw = arrays[f"vocabulary.{name}"]
        if header[name] == "integers":
            return raw
        return texts_of(arrays[f"vocabulary.{name}.length"], raw)

    pairs = arrays["vocabulary.pair_query"], arrays["vocabulary.pair_doc"]
    return Vocabulary(ids("query_ids"), ids("doc_ids"), *pairs)
