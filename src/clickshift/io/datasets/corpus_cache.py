"""A parsed corpus on disk, keyed by what its files hold.

Arrays without pickle; a damaged entry is ignored and rewritten.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clickshift.core.files import cache_folder, content_key, read_arrays, write_arrays
from clickshift.data.corpus import Corpus
from clickshift.data.vocabulary import Ids, Vocabulary
from clickshift.errors import ClickshiftWarning, FileError
from clickshift.io.datasets.letor_parser import Skipped

_CACHE_FORMAT = 1  # to be raised whenever the same files would give another corpus


def cache_entry(sources: Sequence[Path], *settings: str | int | bool | None) -> Path | None:
    """Where the corpus of these files, read with these settings, is kept; None where there is no room for it."""
    key = content_key(sources, "letor", _CACHE_FORMAT, *settings)
    try:
        return cache_folder() / "letor" / f"{key}.npz"
    except FileError as error:
        warnings.warn(f"the corpus is not cached. {error}", ClickshiftWarning, stacklevel=3)
        return None


def to_cache(entry: Path, corpus: Corpus, skipped: Skipped) -> None:
    words = corpus.vocabulary
    arrays = {
        "query_ids": _packed(words.query_ids),
        "doc_ids": _packed(words.doc_ids),
        "pair_query": words.pair_query,
        "pair_doc": words.pair_doc,
        "label": corpus.label,
        "max_label": np.array(corpus.max_label),
        "skipped": np.array(skipped[:3]),
        "problem": np.array(skipped.problem),
    }
    if corpus.features is not None:
        arrays["features"] = corpus.features
    try:
        write_arrays(entry, arrays)
    except FileError as error:
        warnings.warn(f"the corpus is not cached. {error}", ClickshiftWarning, stacklevel=3)


def from_cache(entry: Path) -> tuple[Corpus, Skipped] | None:
    """What was saved, or None where nothing was or it is damaged."""
    found = read_arrays(entry)
    try:
        if found is None:
            return None
        ids = _unpacked_ids(found["query_ids"]), _unpacked_ids(found["doc_ids"])
        vocabulary = Vocabulary(*ids, found["pair_query"], found["pair_doc"])
        corpus = Corpus(vocabulary, found["label"], found.get("features"), int(found["max_label"]))
        total, file, line = found["skipped"].tolist()
        return corpus, Skipped(total, file, line, str(found["problem"]))
    except (KeyError, ValueError):
        return None


def _packed(ids: Ids) -> np.ndarray:
    """Ids as they can be stored: integers, or the bytes of texts with line ends between them (no id has one)."""
    return ids if ids.dtype.kind == "i" else np.frombuffer("\n".join(ids.tolist()).encode(), np.uint8)


def _unpacked_ids(stored: np.ndarray) -> Ids:
    if stored.dtype == np.int64:
        return stored
    return np.array(stored.tobytes().decode().split("\n"), np.dtypes.StringDType())
