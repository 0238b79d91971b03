"""LETOR files: the learning-to-rank data of MSLR, Istella, Yahoo!, LETOR 4.0 and LightGBM, read into a Corpus.

    2 qid:10 1:0.03 2:0 45:-7.2 #docid = GX008-86-4444840 inc = 1 prob = 0.08

One document per line: its label, its query, its features (omitted ones are 0), a comment. LightGBM's files have no qid;
the number of lines of each query is in a second file (`rank.train.gz` -> `rank.train.query`).

A compiled kernel parses blocks of bytes. The parsed corpus is kept in the cache folder under a digest of the content of
its files, as arrays without pickle; a damaged entry is ignored and rewritten.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
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
from clickshift.data.builtin_corpus import builtin_corpus
from clickshift.data.corpus import Corpus
from clickshift.data.vocabulary import Ids, Raw, Vocabulary
from clickshift.errors import ClickshiftWarning, DataError, FileError
from clickshift.io.datasets._letor_parser import HIGHEST_LABEL, LetorRows, SkippedLines
from clickshift.io.datasets.corpus_frames import LABEL_SCALES, corpus_of_frame, label_scale
from clickshift.io.read_report import OnBadLine
from clickshift.io.table_writer import ENDINGS
from clickshift.io.tables.formats import read_table

Paths = str | Path | Sequence[str | Path]
"""One path or several."""
CorpusLike = Any
"""A corpus: `Corpus`, anything that `read_corpus` reads (LETOR files, a data frame), or "builtin"."""

_DATA_SUFFIXES = (".dat", ".letor", ".libsvm", ".svm", ".svmlight", ".test", ".train", ".txt", ".vali", ".valid")
SAVED_CORPUS = ".corpus.npz"
"""How the names of files of `save_corpus` end."""
_GROUP_SUFFIXES = (".query", ".group")  # LightGBM's and XGBoost's names of the files of query sizes


def read_corpus(
    path: Any,
    *,
    groups: Paths | None = None,
    features: int | None = None,
    max_label: int | None = None,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    cache: bool = True,
) -> Corpus:
    """Read a learning-to-rank data set: files in LETOR format, or a data frame.

    Parameters
    ----------
    path
        One file, several, or a folder, plain or gzip, read as one corpus. Subfolders are not read, because folds repeat
        each other's queries. Or a data frame (pandas, Polars, Arrow; or a .parquet, .csv or .jsonl file) with the
        columns query and doc, optionally label, and one numeric column per feature.
    groups
        Files with the number of lines of each query, one per data file, for lines without qid; by default those next to
        the data files.
    features
        Number of features; by default the highest feature number in the data, which may be up to 10,000.
    max_label
        Highest label of the scale; by default the smallest of 1, 2 (LETOR 4.0) and 4 (MSLR, Istella, Yahoo!) that holds
        all labels. Labels above 4 need it.
    columns
        Names of a data frame's columns for query, doc and label, where they differ.
    on_bad_line
        "error" raises at the first bad line; "skip" leaves bad lines out, with one warning (code "skipped-input").
    cache
        Whether to keep the parsed corpus in the cache folder, and to read it from there.

    Returns
    -------
    Corpus
        Queries, documents, labels, and float32 features. Features beyond the range of float32 become the largest
        float32: Istella writes 1.8e308 for unknown values.

    Raises
    ------
    FileError
        "bad-line", "empty-file", "unexpected-groups" if lines have both a qid and groups, "missing-groups" if they have
        neither, "group-sizes" if the sizes do not add up, "shared-query" if a qid is in several files,
        "duplicate-document", or "unknown-label-scale" for labels above 4 without `max_label`.
    DataError
        "bad-option" for `features`, `max_label` or `groups` out of range, "no-files" for an empty list. For a data
        frame, "not-a-table", "duplicate-columns", "missing-column", "empty-table", "bad-column", "missing-id",
        "not-finite", "duplicate-document", "wrong-feature-count" or "unknown-label-scale".

    Notes
    -----
    Queries are named by their qid (integers if all are), or by their running number without qid. A qid must not occur
    in two files: it may be the query's other half, a copy, or another collection's query, and we do not guess.
    Documents are named by the comment's `docid = ...` if every line has one, else by the running number of their line
    over all files: without a name nothing says that documents of two queries are the same.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "train.txt"
    ...     _ = file.write_text("2 qid:10 1:0.5 2:1\\n0 qid:10 2:0.25\\n")
    ...     corpus = read_corpus(file, cache=False)
    >>> corpus.label.tolist(), corpus.features.tolist()
    ([2.0, 0.0], [[0.5, 1.0], [0.0, 0.25]])
    >>> import pyarrow as pa
    >>> read_corpus(pa.table({"query": [10, 10], "doc": ["a", "b"], "bm25": [0.5, 0.0], "clicks": [1, 3]}))
    Corpus(1 queries, 2 candidates, 2 features)
    """
    if features is not None and features < 1:
        raise DataError(
            f"features must be 1 or more: got {features}.", code="bad-option", option="features", value=features
        )
    if max_label is not None and not 1 <= max_label <= HIGHEST_LABEL:
        raise DataError(
            f"max_label must be from 1 to {HIGHEST_LABEL}: got {max_label}.",
            code="bad-option",
            option="max_label",
            value=max_label,
        )
    if isinstance(path, str | Path) and Path(path).suffix.lower() in ENDINGS:
        path = read_table(Path(path), lambda names: {name: name for name in names}).table
    if not isinstance(path, str | Path | list | tuple):
        return corpus_of_frame(path, columns=columns, n_features=features, max_label=max_label)
    files = corpus_files(path)
    group_files = _group_files(files, groups)
    cache_path = None
    if cache:
        sources = [*files, *(file for file in group_files if file)]
        has_groups = "".join("-+"[file is not None] for file in group_files)
        cache_path = _cache_path(sources, has_groups, groups is None, features, max_label, on_bad_line)
    result = _read_cache(cache_path) if cache_path else None
    if result is None:
        rows = LetorRows(files, features, max_label, skip=on_bad_line == "skip")
        if rows.has_qid and groups is not None:
            raise FileError(
                files[0], "lines have a qid, so groups are not needed. Remove groups.", code="unexpected-groups"
            )
        query = _as_ids(rows.query) if rows.has_qid else _query_numbers(rows, files, group_files)
        result = _assemble(rows, query, files, max_label)
        if cache_path:
            _write_cache(cache_path, *result)
    corpus, skipped = result
    if skipped.total:
        first = FileError(files[skipped.file], skipped.problem, line=skipped.line, code="bad-line")
        message = f"skipped {skipped.total:,} bad line(s); the first is {first}"
        warnings.warn(
            ClickshiftWarning(
                message,
                code="skipped-input",
                bad_lines=skipped.total,
                path=files[skipped.file],
                line=skipped.line,
                problem=skipped.problem,
            ),
            stacklevel=2,
        )
    return corpus


def open_corpus(
    corpus: CorpusLike,
    *,
    queries: int | None = None,
    seed: int = 0,
    features: int | None = None,
    max_label: int | None = None,
) -> Corpus:
    """Return a corpus unchanged, the built-in one, or that of files or a data frame.

    Parameters
    ----------
    corpus
        A `Corpus`, "builtin", or anything that `read_corpus` reads.
    queries
        Number of queries of the built-in corpus; by default 1,000.
    seed
        Random seed for the built-in corpus.
    features, max_label
        Options of `read_corpus`.

    Returns
    -------
    Corpus
        The corpus.
    """
    if isinstance(corpus, Corpus):
        return corpus
    if isinstance(corpus, str) and corpus == "builtin":
        return builtin_corpus(queries or 1000, seed=seed)
    return read_corpus(corpus, features=features, max_label=max_label)


def corpus_files(path: Paths) -> list[Path]:
    """Return the data files of paths; those of a folder without its subfolders, whose folds repeat queries.

    Raises
    ------
    DataError
        "no-files" for an empty list.
    """
    paths = [Path(path)] if isinstance(path, str | Path) else [Path(p) for p in path]
    files = [file for p in paths for file in (files_in(p, _DATA_SUFFIXES) if p.is_dir() else [p])]
    if not files:
        raise DataError("there must be at least one file to read: got an empty list of paths.", code="no-files")
    return files


def _group_files(files: list[Path], groups: Paths | None) -> list[Path | None]:
    """Return the file of query sizes of each data file: as given, or the one next to it, or None."""
    if groups is None:
        return [next(filter(Path.is_file, _group_paths(file)), None) for file in files]
    given = [Path(groups)] if isinstance(groups, str | Path) else [Path(group) for group in groups]
    if len(given) != len(files):
        raise DataError(
            f"there must be one file of groups per data file, {len(files)}: got {len(given)}.",
            code="bad-option",
            option="groups",
            expected=len(files),
            count=len(given),
        )
    return [*given]


def _group_paths(file: Path) -> list[Path]:
    """Return the paths that the file of query sizes of a data file may have."""
    return [Path(f"{name}{suffix}") for name in (unpacked_name(file), file) for suffix in _GROUP_SUFFIXES]


def _as_ids(texts: list[Any]) -> Raw:
    """Return integers if every id is the canonical decimal text of one (007 is not), else the texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = pa.concat_arrays(texts).dictionary_encode()
    names = encoded.dictionary
    if pc.all(pc.match_substring_regex(names, r"^(0|-?[1-9][0-9]{0,17})$")).as_py():
        names = names.cast(pa.int64())
    return pa.DictionaryArray.from_arrays(encoded.indices, names)


def _query_numbers(rows: LetorRows, files: list[Path], group_files: list[Path | None]) -> np.ndarray:
    """Number queries from 1, over all files, by the number of lines of each."""
    sizes: list[np.ndarray] = []
    for file, group_file, n_lines in zip(files, group_files, rows.data_lines, strict=True):
        if group_file is None:
            expected = _group_paths(file)[0].name
            problem = f"lines have no qid, and there is no file {expected} with the number of lines of each query."
            raise FileError(
                file, f"{problem} Pass such a file with groups=...", code="missing-groups", expected=expected
            )
        size = _read_group_sizes(group_file)
        if sum(size) != n_lines:
            problem = f"the sizes of queries must add up to the {n_lines:,} lines of data in {file}: got {sum(size):,}."
            raise FileError(
                group_file,
                f"{problem} Do the two files belong together?",
                code="group-sizes",
                expected=n_lines,
                total=sum(size),
            )
        sizes.append(np.array(size))
    number = np.concatenate([chunk["number"] for chunk in rows.rows])
    query: np.ndarray = np.searchsorted(np.cumsum(np.concatenate(sizes)), number, side="right") + 1
    return query


def _read_group_sizes(path: Path) -> list[int]:
    """Read the number of lines of each query."""
    size = []
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            if text := line.strip():
                if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text)):
                    problem = f"a line must be the number of lines of one query, 1 or more: got {text[:40]!r}."
                    raise FileError(path, problem, line=number, code="bad-line", value=text[:40])
                size.append(int(text))
    return size


def _assemble(rows: LetorRows, query: Raw, files: list[Path], max_label: int | None) -> tuple[Corpus, SkippedLines]:
    """Number the pairs, and arrange labels and features by pair."""
    table = np.concatenate(rows.rows)
    named = all(chunk["doc_end"][0] and np.diff(chunk["doc_end"]).all() for chunk in rows.rows)
    vocabulary, query_row, pair = Vocabulary.of(query, _as_ids(rows.doc) if named else table["number"] + 1)
    _refuse_shared_queries(vocabulary, query_row, table, files)
    kept = _drop_duplicates(vocabulary, pair, table, files, rows)
    highest = int(table["label"][kept].max())
    scale = label_scale(highest, max_label)
    if scale is None:
        row = table[np.argmax(table["label"])]
        raise FileError(
            files[row["file"]],
            f"the scale of labels above {LABEL_SCALES[-1]} is not known: got {highest}. Pass max_label.",
            line=int(row["line"]),
            code="unknown-label-scale",
            value=highest,
        )
    label = np.empty(vocabulary.n_pairs, np.float32)
    label[pair[kept]] = table["label"][kept]
    width = int(rows.state["widest"])
    features = np.empty((vocabulary.n_pairs, width), np.float32)
    stop = len(table)
    while rows.features:  # from the last, each freed after it is copied: the features are never in memory twice
        part = rows.features.pop()[:, :width]
        start = stop - len(part)
        target, keep, stop = pair[start:stop], kept[start:stop], start
        if not keep.all():
            part, target = part[keep], target[keep]
        features[target, : part.shape[1]] = part
        features[target, part.shape[1] :] = 0
    return Corpus(vocabulary, label, features if width else None, scale), rows.skipped


def _refuse_shared_queries(vocabulary: Vocabulary, query: np.ndarray, table: np.ndarray, files: list[Path]) -> None:
    """Raise an error if a query occurs in two files."""
    key, _ = distinct_sorted(query.astype(np.int64) * len(files) + table["file"])
    shared = np.flatnonzero(np.diff(key // len(files)) == 0)
    if len(shared):
        number, first_file = divmod(int(key[shared[0]]), len(files))
        second_file = int(key[shared[0] + 1]) % len(files)
        row = table[np.argmax((query == number) & (table["file"] == second_file))]
        name = vocabulary.query_ids[number]
        problem = f"query {name} is in {files[first_file]} too, and may or may not be the same one."
        advice = "Read the files one by one, join them to one file, or rename the query."
        raise FileError(
            files[second_file],
            f"{problem} {advice}",
            line=int(row["line"]),
            code="shared-query",
            query=str(name),
            first=files[first_file],
        )


def _drop_duplicates(
    vocabulary: Vocabulary, pair: np.ndarray, table: np.ndarray, files: list[Path], rows: LetorRows
) -> np.ndarray:
    """Return the mask of the first row of each pair; other rows are an error unless bad lines are skipped."""
    kept = np.ones(len(pair), bool)
    if vocabulary.n_pairs < len(pair):
        order = np.argsort(pair, kind="stable")
        repeated = order[1:][np.diff(pair[order]) == 0]
        kept[repeated] = False
        row = table[repeated.min()]
        first_pair = pair[repeated.min()]
        query = vocabulary.query_ids[vocabulary.pair_query[first_pair]]
        doc = vocabulary.doc_ids[vocabulary.pair_doc[first_pair]]
        problem = f"a document must appear once per query: {doc} appears again for query {query}."
        if not rows.state["skip"]:
            advice = 'Remove the line, or pass on_bad_line="skip".'
            raise FileError(
                files[row["file"]],
                f"{problem} {advice}",
                line=int(row["line"]),
                code="duplicate-document",
                query=str(query),
                document=str(doc),
                count=len(repeated),
            )
        rows.skip(len(repeated), SkippedLines(1, int(row["file"]), int(row["line"]), problem))
    return kept


_CACHE_FORMAT = 1  # increase it whenever the same files would give another corpus


def _cache_path(sources: Sequence[Path], *settings: str | int | bool | None) -> Path | None:
    """Return the cache file of a corpus with these files and settings; None if there is no cache folder."""
    key = content_key(sources, "letor", _CACHE_FORMAT, *settings)
    try:
        return cache_folder() / "letor" / f"{key}.npz"
    except FileError as error:
        _warn_not_cached(error)
        return None


def _write_cache(path: Path, corpus: Corpus, skipped: SkippedLines) -> None:
    """Write a parsed corpus to the cache; a failure is a warning."""
    about_lines = {"skipped": np.array(skipped[:3]), "problem": np.array(skipped.problem)}
    try:
        write_arrays(path, _corpus_arrays(corpus) | about_lines)
    except FileError as error:
        _warn_not_cached(error)


def save_corpus(corpus: Corpus, folder: str | Path) -> tuple[Path, str]:
    """Save a corpus for other processes, in a file that is named by a digest of its content.

    Parameters
    ----------
    corpus
        The corpus.
    folder
        Folder for the file; a file of the same content is kept.

    Returns
    -------
    Path
        The file, for `load_corpus`.
    str
        The digest: the same for equal ids, labels and features in the same order, on every machine.

    Examples
    --------
    >>> import tempfile
    >>> corpus = builtin_corpus(3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path, digest = save_corpus(corpus, folder)
    ...     path.name.startswith(digest), load_corpus(path).n_pairs == corpus.n_pairs
    (True, True)
    """
    arrays, digest = _corpus_arrays(corpus), hashlib.blake2b(digest_size=16)
    for name, array in arrays.items():
        digest.update(repr((name, array.dtype.str, array.shape)).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    path = Path(folder) / f"{digest.hexdigest()}{SAVED_CORPUS}"
    if not path.exists():
        write_arrays(path, arrays)
    return path, digest.hexdigest()


def load_corpus(path: str | Path) -> Corpus:
    """Load a corpus that `save_corpus` saved.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    Corpus
        The corpus.

    Raises
    ------
    FileError
        "damaged-file" if the file is missing or cannot be read.
    """
    arrays = read_arrays(path)
    try:
        return _corpus_of_arrays(arrays or {})
    except (KeyError, ValueError):
        raise FileError(
            path, "is not a saved corpus. Delete it and start the run again.", code="damaged-file"
        ) from None


def _corpus_arrays(corpus: Corpus) -> dict[str, np.ndarray]:
    """Return a corpus as arrays without objects."""
    vocabulary = corpus.vocabulary
    arrays = {
        "query_ids": _pack_ids(vocabulary.query_ids),
        "doc_ids": _pack_ids(vocabulary.doc_ids),
        "pair_query": vocabulary.pair_query,
        "pair_doc": vocabulary.pair_doc,
        "label": corpus.label,
        "max_label": np.array(corpus.max_label),
    }
    return arrays if corpus.features is None else arrays | {"features": corpus.features}


def _corpus_of_arrays(arrays: Mapping[str, np.ndarray]) -> Corpus:
    """Return the corpus of which `_corpus_arrays` made arrays."""
    ids = _unpack_ids(arrays["query_ids"]), _unpack_ids(arrays["doc_ids"])
    vocabulary = Vocabulary(*ids, arrays["pair_query"], arrays["pair_doc"])
    return Corpus(vocabulary, arrays["label"], arrays.get("features"), int(arrays["max_label"]))


def _warn_not_cached(error: FileError) -> None:
    """Warn that the cache folder cannot be used."""
    warnings.warn(ClickshiftWarning(f"the corpus is not cached. {error}", code="not-cached"), stacklevel=4)


def _read_cache(path: Path) -> tuple[Corpus, SkippedLines] | None:
    """Read a parsed corpus from the cache; None if there is none or it is damaged."""
    arrays = read_arrays(path)
    try:
        if arrays is None:
            return None
        corpus = _corpus_of_arrays(arrays)
        total, file, line = arrays["skipped"].tolist()
        return corpus, SkippedLines(total, file, line, str(arrays["problem"]))
    except (KeyError, ValueError):
        return None


def _pack_ids(ids: Ids) -> np.ndarray:
    """Return ids as they are stored: integers, or the bytes of texts separated by line ends (no id has one)."""
    return ids if ids.dtype.kind == "i" else np.frombuffer("\n".join(ids.tolist()).encode(), np.uint8)


def _unpack_ids(stored: np.ndarray) -> Ids:
    """Return the ids that `_pack_ids` stored."""
    if stored.dtype == np.int64:
        return stored
    return np.array(stored.tobytes().decode().split("\n"), np.dtypes.StringDType())
