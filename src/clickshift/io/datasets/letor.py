"""LETOR text: the learning-to-rank files of MSLR, Istella, Yahoo!, LETOR 4.0 and LightGBM, read into a Corpus.

    2 qid:10 1:0.03 2:0 45:-7.2 #docid = GX008-86-4444840 inc = 1 prob = 0.08

One document per line: its label, its query, its features (those left out are 0), a comment. LightGBM's files have no
qid; how many lines each query has stands in a file beside them (`rank.train.gz` -> `rank.train.query`). A compiled
kernel parses blocks of bytes, and the result is kept in the cache folder, keyed by what the files hold.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.core.files import (
    cache_folder,
    content_key,
    files_in,
    open_text,
    read_arrays,
    unpacked_name,
    write_arrays,
)
from clickshift.core.unique_rows import distinct_sorted
from clickshift.data.corpus import Corpus
from clickshift.data.vocabulary import Ids, Raw, Vocabulary
from clickshift.errors import ClickshiftWarning, DataError, FileError
from clickshift.io.datasets._letor_parser import HIGHEST_LABEL, LetorRows, SkippedLines
from clickshift.io.read_report import OnBadLine

Paths = str | Path | Sequence[str | Path]

_SCALES = (1, 2, 4)
_DATA_SUFFIXES = (".dat", ".letor", ".libsvm", ".svm", ".svmlight", ".test", ".train", ".txt", ".vali", ".valid")
_GROUP_SUFFIXES = (".query", ".group")  # LightGBM's and XGBoost's names for the same


def read_corpus(
    path: Paths,
    *,
    groups: Paths | None = None,
    features: int | None = None,
    max_label: int | None = None,
    on_bad_line: OnBadLine = "error",
    cache: bool = True,
) -> Corpus:
    """Read one file, several, or all data files of a folder, plain or gzip, as one corpus.

    `groups`: files with the number of lines of each query, one per data file, where lines have no qid; by default those
    beside the data. `features`: how many there are; by default the highest number in the data, which may be 10,000.
    `max_label`: the best grade of the scale; by default the smallest of 1, 2 (LETOR 4.0) and 4 (MSLR, Istella, Yahoo!)
    that holds all labels; higher ones need it. `on_bad_line="skip"` leaves bad lines out, with one warning.

    Queries are named by their qid (integers where all are), without qid by their running number. A qid must not come
    back in another file: it may be the query's other half, a copy, or another collection's query, and we do not guess.
    Documents are named by the comment's `docid = ...` where every line has one, else by the running number of their
    line over all files: without a name nothing says that documents of two queries are the same.

    Features are float32. What is larger becomes the largest of them: Istella writes 1.8e308 where it knows no value.
    """
    if features is not None and features < 1:
        raise DataError(f"features must be 1 or more: got {features}.")
    if max_label is not None and not 1 <= max_label <= HIGHEST_LABEL:
        raise DataError(f"max_label must be from 1 to {HIGHEST_LABEL}: got {max_label}.")
    files = corpus_files(path)
    sizes = _group_files(files, groups)
    entry = None
    if cache:
        sources = [*files, *(file for file in sizes if file)]
        beside = "".join("-+"[file is not None] for file in sizes)
        entry = _cache_path(sources, beside, groups is None, features, max_label, on_bad_line)
    result = _read_cache(entry) if entry else None
    if result is None:
        rows = LetorRows(files, features, max_label, skip=on_bad_line == "skip")
        if rows.has_qid and groups is not None:
            raise FileError(files[0], "lines have a qid, so groups are not needed. Leave groups out.")
        query = _as_ids(rows.query) if rows.has_qid else _numbered_queries(rows, files, sizes)
        result = _assemble(rows, query, files, max_label)
        if entry:
            _write_cache(entry, *result)
    corpus, skipped = result
    if skipped.total:
        first = FileError(files[skipped.file], skipped.problem, line=skipped.line)
        warnings.warn(f"skipped {skipped.total:,} bad line(s); the first is {first}", ClickshiftWarning, stacklevel=2)
    return corpus


def corpus_files(path: Paths) -> list[Path]:
    """All files; of a folder not those of its subfolders, because folds repeat each other's queries."""
    paths = [Path(path)] if isinstance(path, str | Path) else [Path(p) for p in path]
    files = [file for p in paths for file in (files_in(p, _DATA_SUFFIXES) if p.is_dir() else [p])]
    if not files:
        raise DataError("there must be at least one file to read: got an empty list of paths.")
    return files


def _group_files(files: list[Path], groups: Paths | None) -> list[Path | None]:
    """The file of query sizes of each data file: as given, or beside it where there is one."""
    if groups is None:
        return [next(filter(Path.is_file, _names_of_groups(file)), None) for file in files]
    given = [Path(groups)] if isinstance(groups, str | Path) else [Path(group) for group in groups]
    if len(given) != len(files):
        raise DataError(f"there must be one file of groups per data file, {len(files)}: got {len(given)}.")
    return [*given]


def _names_of_groups(file: Path) -> list[Path]:
    return [Path(f"{name}{suffix}") for name in (unpacked_name(file), file) for suffix in _GROUP_SUFFIXES]


def _as_ids(texts: list[Any]) -> Raw:
    """Integers where every id is the plain decimal text of one (007 is not), else the texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = pa.concat_arrays(texts).dictionary_encode()
    names = encoded.dictionary
    if pc.all(pc.match_substring_regex(names, r"^(0|-?[1-9][0-9]{0,17})$")).as_py():
        names = names.cast(pa.int64())
    return pa.DictionaryArray.from_arrays(encoded.indices, names)


def _numbered_queries(rows: LetorRows, files: list[Path], sizes: list[Path | None]) -> np.ndarray:
    """Queries that are known by how many lines they have: their running number from 1, over all files."""
    ends: list[np.ndarray] = []
    for file, beside, n_lines in zip(files, sizes, rows.data_lines, strict=True):
        if beside is None:
            expected = _names_of_groups(file)[0].name
            problem = f"lines have no qid, and there is no {expected} with the number of lines of each query beside it."
            raise FileError(file, f"{problem} Give such a file with groups=...")
        size = _sizes(beside)
        if sum(size) != n_lines:
            problem = f"the sizes of queries must add up to the {n_lines:,} lines of data in {file}: got {sum(size):,}."
            raise FileError(beside, f"{problem} Do the two files belong together?")
        ends.append(np.array(size))
    number = np.concatenate([chunk["number"] for chunk in rows.rows])
    query: np.ndarray = np.searchsorted(np.cumsum(np.concatenate(ends)), number, side="right") + 1
    return query


def _sizes(path: Path) -> list[int]:
    size = []
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            if text := line.strip():
                if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text)):
                    problem = f"a line must be the number of lines of one query, 1 or more: got {text[:40]!r}."
                    raise FileError(path, problem, line=number)
                size.append(int(text))
    return size


def _assemble(rows: LetorRows, query: Raw, files: list[Path], max_label: int | None) -> tuple[Corpus, SkippedLines]:
    """Number the pairs, and put every row where its pair belongs."""
    table = np.concatenate(rows.rows)
    named = all(chunk["doc_end"][0] and np.diff(chunk["doc_end"]).all() for chunk in rows.rows)
    vocabulary, query_row, pair = Vocabulary.of(query, _as_ids(rows.doc) if named else table["number"] + 1)
    _refuse_shared_queries(vocabulary, query_row, table, files)
    kept = _first_of_each(vocabulary, pair, table, files, rows)
    highest = int(table["label"][kept].max())
    if max_label is None and highest > _SCALES[-1]:
        row = table[np.argmax(table["label"])]
        problem = f"a label above {_SCALES[-1]} is of a scale that is not known: got {highest}. Give max_label."
        raise FileError(files[row["file"]], problem, line=int(row["line"]))
    label = np.empty(vocabulary.n_pairs, np.float32)
    label[pair[kept]] = table["label"][kept]
    width = int(rows.state["widest"])
    features = np.empty((vocabulary.n_pairs, width), np.float32)
    stop = len(table)
    while rows.features:  # from the last, each freed when it is copied: the table is never held twice
        part = rows.features.pop()[:, :width]
        start = stop - len(part)
        target, keep, stop = pair[start:stop], kept[start:stop], start
        if not keep.all():
            part, target = part[keep], target[keep]
        features[target, : part.shape[1]] = part
        features[target, part.shape[1] :] = 0
    scale = max_label or next(scale for scale in _SCALES if highest <= scale)
    return Corpus(vocabulary, label, features if width else None, scale), rows.skipped


def _refuse_shared_queries(vocabulary: Vocabulary, query: np.ndarray, table: np.ndarray, files: list[Path]) -> None:
    key, _ = distinct_sorted(query.astype(np.int64) * len(files) + table["file"])
    shared = np.flatnonzero(np.diff(key // len(files)) == 0)
    if len(shared):
        number, other = divmod(int(key[shared[0]]), len(files))
        here = int(key[shared[0] + 1]) % len(files)
        row = table[np.argmax((query == number) & (table["file"] == here))]
        problem = f"query {vocabulary.query_ids[number]} is in {files[other]} too, and may be the same one or not."
        advice = "Read the files one by one, join them to one file, or rename the query."
        raise FileError(files[here], f"{problem} {advice}", line=int(row["line"]))


def _first_of_each(
    vocabulary: Vocabulary, pair: np.ndarray, table: np.ndarray, files: list[Path], rows: LetorRows
) -> np.ndarray:
    """Which rows to keep: all, or the first of each pair where bad lines are skipped."""
    kept = np.ones(len(pair), bool)
    if vocabulary.n_pairs < len(pair):
        order = np.argsort(pair, kind="stable")
        again = order[1:][np.diff(pair[order]) == 0]
        kept[again] = False
        row = table[again.min()]
        which = pair[again.min()]
        query, doc = vocabulary.pair_query[which], vocabulary.pair_doc[which]
        names = f"{vocabulary.doc_ids[doc]} is there again for query {vocabulary.query_ids[query]}"
        problem = f"a document must be there once per query: {names}."
        if not rows.state["skip"]:
            advice = 'Drop the line, or read with on_bad_line="skip".'
            raise FileError(files[row["file"]], f"{problem} {advice}", line=int(row["line"]))
        rows.skip(len(again), SkippedLines(1, int(row["file"]), int(row["line"]), problem))
    return kept


_CACHE_FORMAT = 1  # to be raised whenever the same files would give another corpus


def _cache_path(sources: Sequence[Path], *settings: str | int | bool | None) -> Path | None:
    """Where the corpus of these files, read with these settings, is kept; None where there is no room for it."""
    key = content_key(sources, "letor", _CACHE_FORMAT, *settings)
    try:
        return cache_folder() / "letor" / f"{key}.npz"
    except FileError as error:
        warnings.warn(f"the corpus is not cached. {error}", ClickshiftWarning, stacklevel=3)
        return None


def _write_cache(entry: Path, corpus: Corpus, skipped: SkippedLines) -> None:
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


def _read_cache(entry: Path) -> tuple[Corpus, SkippedLines] | None:
    """What was saved, or None where nothing was or it is damaged."""
    found = read_arrays(entry)
    try:
        if found is None:
            return None
        ids = _unpacked_ids(found["query_ids"]), _unpacked_ids(found["doc_ids"])
        vocabulary = Vocabulary(*ids, found["pair_query"], found["pair_doc"])
        corpus = Corpus(vocabulary, found["label"], found.get("features"), int(found["max_label"]))
        total, file, line = found["skipped"].tolist()
        return corpus, SkippedLines(total, file, line, str(found["problem"]))
    except (KeyError, ValueError):
        return None


def _packed(ids: Ids) -> np.ndarray:
    """Ids as they can be stored: integers, or the bytes of texts with line ends between them (no id has one)."""
    return ids if ids.dtype.kind == "i" else np.frombuffer("\n".join(ids.tolist()).encode(), np.uint8)


def _unpacked_ids(stored: np.ndarray) -> Ids:
    if stored.dtype == np.int64:
        return stored
    return np.array(stored.tobytes().decode().split("\n"), np.dtypes.StringDType())
