"""Parser of LETOR files: a compiled kernel that reads blocks of bytes.

A line is a label, perhaps a qid, features in ascending order, and a comment that may name the document; see `letor`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple, no_type_check

import numpy as np
from numba import njit

from clickshift.core.files import line_blocks
from clickshift.errors import FileError

HIGHEST_LABEL = 31
"""The highest label that is accepted."""
_TABLE = 1 << 24  # values of a table that the kernel fills: 64 MB, which return to the system when it is freed
_MOST_FEATURES = 10_000  # a higher feature number is more likely a typing error than a table of that width


class SkippedLines(NamedTuple):
    """Number of bad lines, and the first of them: the number of its file, its line and its problem."""

    total: int = 0
    file: int = 0
    line: int = 0
    problem: str = ""


_LABEL, _NO_QID, _QID, _EMPTY_QID, _FEATURE, _ORDER, _WIDTH, _VALUE = 1, 2, 3, 4, 5, 6, 7, 8
_RULES = {
    _LABEL: "a line must begin with a label, a whole number from 0 to {max_label}",
    _NO_QID: "a line must have a qid after its label, as the lines before it",
    _QID: "a line must not have a qid, as the lines before it have none",
    _EMPTY_QID: "qid: must be followed by the id of a query",
    _FEATURE: "a feature must be written number:value",
    _ORDER: "feature numbers must ascend from 1",
    _WIDTH: "a feature number must be at most {most_features} (pass features=... for more)",
    _VALUE: "the value of a feature must be a decimal number, neither nan nor inf",
}
_RULE_CODES = {
    _LABEL: "bad-label",
    _NO_QID: "missing-qid",
    _QID: "unexpected-qid",
    _EMPTY_QID: "empty-qid",
    _FEATURE: "bad-feature",
    _ORDER: "feature-order",
    _WIDTH: "feature-number",
    _VALUE: "bad-feature-value",
}

# Settings of the parser; its position (in the block, the line in its file, the number of data lines in all files); and
# its results.
_STATE = np.dtype(
    [(name, np.int64) for name in ("max_label", "most_features", "skip", "position", "file", "line", "number")]
    + [(name, np.int64) for name in ("rows", "has_qid", "width", "widest", "bad", "problem", "token", "bad_line")]
)
_ROW = np.dtype([(name, np.int64) for name in ("label", "file", "line", "number", "query_end", "doc_end")])


class LetorRows:
    """The rows of all files in reading order; texts and features stay in the chunks that they were parsed into.

    Parameters
    ----------
    files
        The files.
    features
        Number of features; None to take the highest number in the data.
    max_label
        Highest label; None for `HIGHEST_LABEL`.
    skip
        Whether bad lines are skipped and counted instead of raising an error.

    Raises
    ------
    FileError
        "bad-line", or "empty-file" for a file without a usable line.
    """

    def __init__(self, files: list[Path], features: int | None, max_label: int | None, *, skip: bool) -> None:
        self._states = np.zeros(1, _STATE)
        self.state = state = self._states[0]
        state["max_label"] = max_label or HIGHEST_LABEL
        state["most_features"] = features or _MOST_FEATURES
        state["width"] = state["widest"] = features or 0
        state["has_qid"] = -1  # unknown before the first row
        state["skip"] = skip
        self.skipped = SkippedLines()
        self.data_lines: list[int] = []
        """Number of data lines of each file, with bad ones: the sizes of its queries must add up to it."""
        self.rows: list[np.ndarray] = []
        self.query: list[Any] = []
        self.doc: list[Any] = []
        self.features: list[np.ndarray] = []
        """Tables of features: all rows of the first one, then those of the second, ..."""
        self._table = np.empty((0, 0), np.float32)
        self._n_filled = 0
        for number, path in enumerate(files):
            self._read(number, path)
        self._close_table()

    @property
    def has_qid(self) -> bool:
        """Whether lines name their query."""
        return bool(self.state["has_qid"] == 1)

    def _read(self, number: int, path: Path) -> None:
        """Add the rows of one file."""
        state, n_chunks, lines_before, first = self.state, len(self.rows), int(self.state["number"]), SkippedLines()
        state["file"], state["line"], state["bad"] = number, 1, 0
        for text in line_blocks(path):
            block = np.frombuffer(text, np.uint8)
            state["position"] = 0
            while state["position"] < len(block):
                self._parse(block)
                if state["bad"] and not first.total:
                    first = SkippedLines(1, number, int(state["bad_line"]), self._describe_problem(block))
                    if not state["skip"]:
                        advice = 'Fix the line, or pass on_bad_line="skip".'
                        raise FileError(
                            path,
                            f"{first.problem} {advice}",
                            line=first.line,
                            code="bad-line",
                            rule=_RULE_CODES[int(state["problem"])],
                            value=self._bad_token(block),
                        )
        if len(self.rows) == n_chunks:
            if first.total:
                raise FileError(
                    path,
                    f"no line can be used. The first: {first.problem}",
                    line=first.line,
                    code="empty-file",
                    count=int(state["bad"]),
                )
            content = "the file is empty" if state["line"] == 1 else "only blank lines and comments"
            raise FileError(
                path,
                f"there must be at least one line of data: got none ({content}).",
                code="empty-file",
                lines=int(state["line"]) - 1,
            )
        self.skip(int(state["bad"]), first)
        self.data_lines.append(int(state["number"]) - lines_before)

    def skip(self, total: int, first: SkippedLines) -> None:
        """Count bad lines, and keep the first one of all files."""
        earliest = min(self.skipped, first, key=lambda bad: (not bad.total, bad.file, bad.line))
        self.skipped = earliest._replace(total=self.skipped.total + total)

    def _parse(self, block: np.ndarray) -> None:
        """Add the rows that the kernel parses in one call: the block, or less if the table is full or too narrow."""
        import pyarrow as pa

        if self._n_filled == len(self._table) or self._table.shape[1] < self.state["width"]:
            self._close_table()
        table = self._table[self._n_filled :]
        rows = np.empty(len(table), _ROW)
        query, doc = np.empty(len(block), np.uint8), np.empty(len(block), np.uint8)
        _parse_lines(block, self._states, rows, table, query, doc)
        if n := int(self.state["rows"]):
            self._n_filled += n
            self.rows.append(rows[:n].copy())
            for text, end, texts in ((query, "query_end", self.query), (doc, "doc_end", self.doc)):
                offsets = np.concatenate([[0], rows[end][:n]])
                buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text[: offsets[-1]].tobytes())]
                texts.append(pa.Array.from_buffers(pa.large_string(), n, buffers))

    def _close_table(self) -> None:
        """Append the table to the others, and start one that is as wide as the widest row so far."""
        if self._n_filled:
            self.features.append(self._table[: self._n_filled])
        width = int(self.state["width"])
        self._table, self._n_filled = np.empty((max(1, _TABLE // max(width, 16)), width), np.float32), 0

    def _describe_problem(self, block: np.ndarray) -> str:
        """Describe the rule that the first bad line breaks, and the token that breaks it."""
        token = self._bad_token(block)
        got = repr(token) if token else "the end of the line"
        limits = {name: int(self.state[name]) for name in ("max_label", "most_features")}
        return f"{_RULES[int(self.state['problem'])].format(**limits)}: got {got}."

    def _bad_token(self, block: np.ndarray) -> str:
        """Return the token that breaks the rule, empty at the end of the line."""
        token = int(self.state["token"])
        tokens = block[token : token + 60].tobytes().split(b"\n")[0].split(maxsplit=1)
        return tokens[0].decode("utf-8", "replace") if tokens else ""


@njit(cache=True, nogil=True)
@no_type_check
def _parse_lines(data, states, rows, features, query, doc):
    """Parse lines from the state's position until the data end, the table is full or too narrow, or a line is bad.

    The last byte of the data is a line end, at which every loop stops, so no bounds are checked.
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
    """Parse the line at i; return its problem (0: none), the index of the bad token, and the last feature number."""
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
    """Parse the decimal number at i (infinity from 10^91 on), NaN if there is none; also return the index after it.

    18 digits are kept and there are at most three roundings, so the relative error is 2^-51: nothing in float32.
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
    """Return the index of the next byte that is not white space; a line end is not skipped."""
    while data[i] == 32 or (9 <= data[i] <= 13 and data[i] != 10):
        i += 1
    return i


@njit
@no_type_check
def _is_end(byte):
    """Return whether a byte ends a token: white space, the end of the line, or a comment."""
    return byte == 32 or 9 <= byte <= 13 or byte == 35
