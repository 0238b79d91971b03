"""LETOR text: the learning-to-rank files of MSLR, Istella, Yahoo!, LETOR 4.0 and LightGBM, read into a Corpus.

    2 qid:10 1:0.03 2:0 45:-7.2 #docid = GX008-86-4444840 inc = 1 prob = 0.08

One document per line: its label, its query, its features (those left out are 0), a comment. LightGBM's files have no
qid; how many lines each query has stands in a file beside them (`rank.train.gz` -> `rank.train.query`). A compiled
kernel parses blocks of bytes, and the result is kept in the cache folder, keyed by what the files hold.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, no_type_check

import numpy as np
from numba import njit

from clickshift.corpus import Corpus
from clickshift.errors import ClickshiftWarning, DataError, FileError
from clickshift.files import (
    cache_folder,
    content_key,
    files_in,
    line_blocks,
    open_text,
    read_arrays,
    unpacked_name,
    write_arrays,
)
from clickshift.grouping import distinct_sorted
from clickshift.readers.notes import OnBadLine
from clickshift.vocabulary import Ids, Raw, Vocabulary

Paths = str | Path | Sequence[str | Path]

_CACHE_FORMAT = 1  # to be raised whenever the same files would give another corpus
_TABLE = 1 << 24  # features in a table that the kernel fills: 64 MB, which go back to the system when it is freed
_MOST_FEATURES = 10_000  # a higher number is more likely a slip in one line than a table of that width
_HIGHEST_LABEL = 31
_SCALES = (1, 2, 4)
_DATA_SUFFIXES = (".dat", ".letor", ".libsvm", ".svm", ".svmlight", ".test", ".train", ".txt", ".vali", ".valid")
_GROUP_SUFFIXES = (".query", ".group")  # LightGBM's and XGBoost's names for the same


class _Skipped(NamedTuple):
    """How many bad lines there were, and the first of them."""

    total: int = 0
    file: int = 0
    line: int = 0
    problem: str = ""


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
    if max_label is not None and not 1 <= max_label <= _HIGHEST_LABEL:
        raise DataError(f"max_label must be from 1 to {_HIGHEST_LABEL}: got {max_label}.")
    files = _data_files(path)
    sizes = _group_files(files, groups)
    entry = None
    if cache:
        sources = [*files, *(file for file in sizes if file)]
        beside = "".join("-+"[file is not None] for file in sizes)
        entry = _cache_entry(
            content_key(sources, "letor", _CACHE_FORMAT, beside, groups is None, features, max_label, on_bad_line)
        )
    result = _from_cache(entry) if entry else None
    if result is None:
        rows = _Rows(files, features, max_label, skip=on_bad_line == "skip")
        if rows.has_qid and groups is not None:
            raise FileError(files[0], "lines have a qid, so groups are not needed. Leave groups out.")
        query = _as_ids(rows.query) if rows.has_qid else _numbered_queries(rows, files, sizes)
        result = _assemble(rows, query, files, max_label)
        if entry:
            _to_cache(entry, *result)
    corpus, skipped = result
    if skipped.total:
        first = FileError(files[skipped.file], skipped.problem, line=skipped.line)
        warnings.warn(f"skipped {skipped.total:,} bad line(s); the first is {first}", ClickshiftWarning, stacklevel=2)
    return corpus


# From paths to files


def _data_files(path: Paths) -> list[Path]:
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


# From files to rows

_LABEL, _NO_QID, _QID, _EMPTY_QID, _FEATURE, _ORDER, _WIDTH, _VALUE = 1, 2, 3, 4, 5, 6, 7, 8
_RULES = {
    _LABEL: "a line must begin with a label, a whole number from 0 to {max_label}",
    _NO_QID: "a line must have a qid after its label, as the lines before it",
    _QID: "a line must not have a qid, as the lines before it have none",
    _EMPTY_QID: "qid: must be followed by the id of a query",
    _FEATURE: "a feature must be written number:value",
    _ORDER: "feature numbers must ascend from 1",
    _WIDTH: "a feature number must be at most {most_features} (features=... sets it)",
    _VALUE: "the value of a feature must be a decimal number, neither nan nor inf",
}

# What the parser must check; where it is (the place in the block, the line in its file, the number of data lines in all
# files); what it found.
_STATE = np.dtype(
    [(name, np.int64) for name in ("max_label", "most_features", "skip", "position", "file", "line", "number")]
    + [(name, np.int64) for name in ("rows", "has_qid", "width", "widest", "bad", "problem", "token", "bad_line")]
)
_ROW = np.dtype([(name, np.int64) for name in ("label", "file", "line", "number", "query_end", "doc_end")])


class _Rows:
    """The rows of all files in reading order; texts and features stay in the chunks that they were parsed into."""

    def __init__(self, files: list[Path], features: int | None, max_label: int | None, *, skip: bool) -> None:
        self._states = np.zeros(1, _STATE)
        self.state = state = self._states[0]
        state["max_label"] = max_label or _HIGHEST_LABEL
        state["most_features"] = features or _MOST_FEATURES
        state["width"] = state["widest"] = features or 0
        state["has_qid"] = -1  # the first row will tell
        state["skip"] = skip
        self.skipped = _Skipped()
        self.data_lines: list[int] = []
        """Of each file, bad ones too: what the sizes of its queries must add up to."""
        self.rows: list[np.ndarray] = []
        self.query: list[Any] = []
        self.doc: list[Any] = []
        self.features: list[np.ndarray] = []
        """Filled tables: all rows of the first one, then those of the second, ..."""
        self._table = np.empty((0, 0), np.float32)
        self._filled = 0
        for number, path in enumerate(files):
            self._read(number, path)
        self._close_table()

    @property
    def has_qid(self) -> bool:
        return bool(self.state["has_qid"] == 1)

    def _read(self, number: int, path: Path) -> None:
        """Add the rows of one file."""
        state, chunks, lines_before, first = self.state, len(self.rows), int(self.state["number"]), _Skipped()
        state["file"], state["line"], state["bad"] = number, 1, 0
        for text in line_blocks(path):
            block = np.frombuffer(text, np.uint8)
            state["position"] = 0
            while state["position"] < len(block):
                self._parse(block)
                if state["bad"] and not first.total:
                    first = _Skipped(1, number, int(state["bad_line"]), self._problem(block))
                    if not state["skip"]:
                        advice = 'Mend the line, or read with on_bad_line="skip".'
                        raise FileError(path, f"{first.problem} {advice}", line=first.line)
        if len(self.rows) == chunks:
            if first.total:
                raise FileError(path, f"no line can be used. The first: {first.problem}", line=first.line)
            found = "the file is empty" if state["line"] == 1 else "only blank lines and comments"
            raise FileError(path, f"there must be at least one line of data: got none ({found}).")
        self.skip(int(state["bad"]), first)
        self.data_lines.append(int(state["number"]) - lines_before)

    def skip(self, total: int, first: _Skipped) -> None:
        """Count bad lines, and remember the first of all."""
        earliest = min(self.skipped, first, key=lambda bad: (not bad.total, bad.file, bad.line))
        self.skipped = earliest._replace(total=self.skipped.total + total)

    def _parse(self, block: np.ndarray) -> None:
        """Add what the kernel can parse in one go: the block, or less where the table is full or too narrow."""
        import pyarrow as pa

        if self._filled == len(self._table) or self._table.shape[1] < self.state["width"]:
            self._close_table()
        table = self._table[self._filled :]
        rows = np.empty(len(table), _ROW)
        query, doc = np.empty(len(block), np.uint8), np.empty(len(block), np.uint8)
        _parse_lines(block, self._states, rows, table, query, doc)
        if n := int(self.state["rows"]):
            self._filled += n
            self.rows.append(rows[:n].copy())
            for text, end, texts in ((query, "query_end", self.query), (doc, "doc_end", self.doc)):
                offsets = np.concatenate([[0], rows[end][:n]])
                buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text[: offsets[-1]].tobytes())]
                texts.append(pa.Array.from_buffers(pa.large_string(), n, buffers))

    def _close_table(self) -> None:
        """Put the table with the others, and begin one that is as wide as the widest row so far."""
        if self._filled:
            self.features.append(self._table[: self._filled])
        width = int(self.state["width"])
        self._table, self._filled = np.empty((max(1, _TABLE // max(width, 16)), width), np.float32), 0

    def _problem(self, block: np.ndarray) -> str:
        token = int(self.state["token"])
        words = block[token : token + 60].tobytes().split(b"\n")[0].split(maxsplit=1)
        got = repr(words[0].decode("utf-8", "replace")) if words else "the end of the line"
        limits = {name: int(self.state[name]) for name in ("max_label", "most_features")}
        return f"{_RULES[int(self.state['problem'])].format(**limits)}: got {got}."


@njit(cache=True, nogil=True)
@no_type_check
def _parse_lines(data, states, rows, features, query, doc):
    """Parse lines from the state's position on until the data end, the table is full or narrow, or a line is bad.

    The last byte of the data is a line end, on which every loop stops: no bounds are checked.
    """
    at = states[0]
    at.rows = 0
    width = features.shape[1]
    while at.position < len(data) and at.rows < len(rows):
        i = _past_blanks(data, at.position)
        if data[i] != 10 and data[i] != 35:  # neither the end of the line nor a comment
            problem, i, last = _parse_line(data, i, at, rows, features, query, doc)
            if problem == 0 and last > width:
                at.width = min(max(last, width + width // 4), at.most_features)
                return
            if problem:
                at.bad += 1
                if at.bad == 1:
                    at.problem, at.token, at.bad_line = problem, i, at.line
            else:
                row = at.rows
                rows[row].file, rows[row].line, rows[row].number = at.file, at.line, at.number
                at.widest = max(at.widest, last)
                at.rows = row + 1
            at.number += 1
            if problem and not at.skip:
                return
        while data[i] != 10:
            i += 1
        at.position = i + 1
        at.line += 1


@njit
@no_type_check
def _parse_line(data, i, at, rows, features, query, doc):
    """The problem (0: none) of the line at i, the place of the token that has it, and the highest feature number."""
    row, width = at.rows, features.shape[1]
    token = i
    grade, i = _number(data, i)
    if not (0 <= grade <= at.max_label and grade == math.floor(grade) and _is_end(data[i])):
        return _LABEL, token, 0
    rows[row].label = int(grade)

    token = i = _past_blanks(data, i)
    has_qid = data[i] == 113 and data[i + 1] == 105 and data[i + 2] == 100 and data[i + 3] == 58  # qid:
    if at.has_qid >= 0 and has_qid != (at.has_qid == 1):
        return _QID if has_qid else _NO_QID, token, 0
    written = rows[row - 1].query_end if row else 0
    if has_qid:
        i += 4
        if _is_end(data[i]):
            return _EMPTY_QID, token, 0
        while not _is_end(data[i]):
            query[written] = data[i]
            written += 1
            i += 1
    rows[row].query_end = written

    features[row, :] = 0
    last = 0
    while True:
        token = i = _past_blanks(data, i)
        if data[i] == 10 or data[i] == 35:
            break
        number = 0
        while 48 <= data[i] <= 57 and number <= at.most_features:
            number = 10 * number + data[i] - 48
            i += 1
        if number > at.most_features:
            return _WIDTH, token, 0
        if i == token or data[i] != 58:
            return _FEATURE, token, 0
        if number <= last:
            return _ORDER, token, 0
        value, i = _number(data, i + 1)
        if math.isnan(value) or not _is_end(data[i]):
            return _VALUE, token, 0
        if number <= width:
            features[row, number - 1] = min(max(value, -_LARGEST), _LARGEST)
        last = number

    written = rows[row - 1].doc_end if row else 0
    while data[i] != 10:
        if data[i] == 100 and data[i + 1] == 111 and data[i + 2] == 99 and data[i + 3] == 105 and data[i + 4] == 100:
            i = _past_blanks(data, i + 5)  # after "docid"
            if data[i] == 61:  # =
                i = _past_blanks(data, i + 1)
                while data[i] > 32:
                    doc[written] = data[i]
                    written += 1
                    i += 1
                break
        else:
            i += 1
    rows[row].doc_end = written
    at.has_qid = has_qid
    return 0, i, last


_POWERS = np.array([float(f"1e{n}") for n in range(91)])
_LARGEST = float(np.finfo(np.float32).max)


@njit
@no_type_check
def _number(data, i):
    """The decimal number at i (infinity from 10^91 on), NaN where there is none, and the place after it.

    18 digits are kept and there are at most three roundings, so it is off by 2^-51 of its size: nothing in float32.
    """
    negative = data[i] == 45
    if negative or data[i] == 43:
        i += 1
    mantissa, exponent, point, digits = 0, 0, False, 0
    while True:
        if 48 <= data[i] <= 57:
            digits += 1
            if mantissa < 900_000_000_000_000_000:  # ten times that and nine more fit into 63 bits
                mantissa = 10 * mantissa + data[i] - 48
                exponent -= point
            else:
                exponent += not point
        elif data[i] == 46 and not point:
            point = True
        else:
            break
        i += 1
    if digits == 0:
        return math.nan, i
    if data[i] == 101 or data[i] == 69:  # e or E
        i += 1
        below = data[i] == 45
        if below or data[i] == 43:
            i += 1
        if not 48 <= data[i] <= 57:
            return math.nan, i
        power = 0
        while 48 <= data[i] <= 57:
            power = min(10 * power + data[i] - 48, 1_000_000_000)
            i += 1
        exponent += -power if below else power
    value = float(mantissa)
    if exponent > 90 and mantissa:
        value = math.inf
    elif exponent >= 0:
        value *= _POWERS[min(exponent, 90)]
    else:
        value = value / _POWERS[-exponent] if exponent >= -90 else 0.0
    return -value if negative else value, i


@njit
@no_type_check
def _past_blanks(data, i):
    while data[i] == 32 or (9 <= data[i] <= 13 and data[i] != 10):
        i += 1
    return i


@njit
@no_type_check
def _is_end(byte):
    """Of a token: a blank, the end of the line, or a comment."""
    return byte == 32 or 9 <= byte <= 13 or byte == 35


# From rows to a corpus


def _as_ids(texts: list[Any]) -> Raw:
    """Integers where every id is the plain decimal text of one (007 is not), else the texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = pa.concat_arrays(texts).dictionary_encode()
    names = encoded.dictionary
    if pc.all(pc.match_substring_regex(names, r"^(0|-?[1-9][0-9]{0,17})$")).as_py():
        names = names.cast(pa.int64())
    return pa.DictionaryArray.from_arrays(encoded.indices, names)


def _numbered_queries(rows: _Rows, files: list[Path], sizes: list[Path | None]) -> np.ndarray:
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


def _assemble(rows: _Rows, query: Raw, files: list[Path], max_label: int | None) -> tuple[Corpus, _Skipped]:
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
    vocabulary: Vocabulary, pair: np.ndarray, table: np.ndarray, files: list[Path], rows: _Rows
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
        rows.skip(len(again), _Skipped(1, int(row["file"]), int(row["line"]), problem))
    return kept


# The cache


def _cache_entry(key: str) -> Path | None:
    try:
        return cache_folder() / "letor" / f"{key}.npz"
    except FileError as error:
        warnings.warn(f"the corpus is not cached. {error}", ClickshiftWarning, stacklevel=3)
        return None


def _to_cache(entry: Path, corpus: Corpus, skipped: _Skipped) -> None:
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


def _from_cache(entry: Path) -> tuple[Corpus, _Skipped] | None:
    """What was saved, or None where nothing was or it is damaged."""
    found = read_arrays(entry)
    try:
        if found is None:
            return None
        ids = _unpacked_ids(found["query_ids"]), _unpacked_ids(found["doc_ids"])
        vocabulary = Vocabulary(*ids, found["pair_query"], found["pair_doc"])
        corpus = Corpus(vocabulary, found["label"], found.get("features"), int(found["max_label"]))
        total, file, line = found["skipped"].tolist()
        return corpus, _Skipped(total, file, line, str(found["problem"]))
    except (KeyError, ValueError):
        return None


def _packed(ids: Ids) -> np.ndarray:
    """Ids as they can be stored: integers, or the bytes of texts with line ends between them (no id has one)."""
    return ids if ids.dtype.kind == "i" else np.frombuffer("\n".join(ids.tolist()).encode(), np.uint8)


def _unpacked_ids(stored: np.ndarray) -> Ids:
    if stored.dtype == np.int64:
        return stored
    return np.array(stored.tobytes().decode().split("\n"), np.dtypes.StringDType())
