"""A vocabulary as plain arrays, for files: integers as they are, text as bytes and lengths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from clickshift.vocabulary import Ids, Vocabulary


def put_vocabulary(vocabulary: Vocabulary, arrays: dict[str, np.ndarray]) -> dict[str, str]:
    """Put its arrays among others; what comes back belongs into the header."""
    kinds = {"fingerprint": vocabulary.fingerprint}
    for name, ids in (("query_ids", vocabulary.query_ids), ("doc_ids", vocabulary.doc_ids)):
        if ids.dtype.kind == "i":
            kinds[name], arrays[f"vocabulary.{name}"] = "integers", ids
        else:
            texts = [text.encode() for text in ids.tolist()]
            kinds[name] = "strings"
            arrays[f"vocabulary.{name}"] = np.frombuffer(b"".join(texts), np.uint8)
            arrays[f"vocabulary.{name}.length"] = np.array([len(text) for text in texts], np.int64)
    arrays["vocabulary.pair_query"], arrays["vocabulary.pair_doc"] = vocabulary.pair_query, vocabulary.pair_doc
    return kinds


def get_vocabulary(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Vocabulary:
    """What `put_vocabulary` put there."""

    def ids(name: str) -> Ids:
        raw = arrays[f"vocabulary.{name}"]
        if header[name] == "integers":
            return raw
        data, end = raw.tobytes(), np.cumsum(arrays[f"vocabulary.{name}.length"])
        start = np.append(0, end[:-1]) if len(end) else end
        texts = [data[a:b].decode() for a, b in zip(start.tolist(), end.tolist(), strict=True)]
        return np.array(texts, dtype=np.dtypes.StringDType())

    pairs = arrays["vocabulary.pair_query"], arrays["vocabulary.pair_doc"]
    return Vocabulary(ids("query_ids"), ids("doc_ids"), *pairs)
