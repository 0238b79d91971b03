"""Parser of Yandex logs, one query or click per line: from bytes to SERPs with their clicks.

The logs have hundreds of millions of lines of two or three kinds, so they are read in blocks, and a compiled kernel
parses the bytes. Every line becomes a row of the same 15 numbers:

    line number, session, letter of the kind, two numbers that depend on the kind, ten URLs

    WSCD    Q   query, region, URLs             C   -, -, the URL clicked
    Kaggle  Q   query, SERP, URLs (T likewise)  C   -, SERP, the URL clicked     M   day, user
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final, no_type_check

import numpy as np
from jaxtyping import Bool, Int
from numba import njit, uint64

from clickshift.core.files import line_blocks
from clickshift.io.read_report import ReadReport

BLOCK = 1 << 22
"""Number of bytes that are read at once."""

RANKS: Final = 10
LINE, SESSION, KIND, FIRST, SECOND, URL = 0, 1, 2, 3, 4, 5
_WIDTH: Final = URL + RANKS
_QUERY, _TEST, _CLICK, _META = (ord(letter) for letter in "QTCM")
_MOST_TOKENS = 1 << 10  # of a line: 25 and the terms of the query
_TAB, _NEWLINE, _RETURN, _COMMA, _ZERO, _NINE = (ord(letter) for letter in "\t\n\r,09")
_BLANK, _GOOD, _BAD = 0, 1, 2
_LARGEST = np.uint64(np.iinfo(np.int64).max)


@final
@dataclass(frozen=True, eq=False)
class MatchedSerps:
    """The SERPs of a block of whole search sessions, with the clicks on them.

    Parameters
    ----------
    serp
        The row of each query action.
    click
        Whether each result was clicked.
    meta
        The row of the metadata of each SERP's session, if the log has them.
    unshown
        Number of clicks on documents that no SERP of their session shows.
    """

    serp: Int[np.ndarray, "serp 15"]
    click: Bool[np.ndarray, "serp rank"]
    meta: Int[np.ndarray, "serp 15"] | None
    unshown: int


def read_serps(path: str | Path, *, kaggle: bool, rule: str, report: ReadReport) -> Iterator[MatchedSerps]:
    """Yield the SERPs of a log, block by block; consecutive lines with the same session number are one session.

    Parameters
    ----------
    path
        The file.
    kaggle
        Whether the log has the format of the Kaggle challenge or that of WSCD 2012.
    rule
        What every line must be, for messages.
    report
        Where bad lines and left-out queries are counted.
    """
    rest = np.empty((0, _WIDTH), np.int64)
    for actions in _read_actions(path, kaggle, rule, report):
        rows = np.concatenate([rest, actions])
        # the last session of a block may continue in the next one
        ends = np.flatnonzero(rows[1:, SESSION] != rows[:-1, SESSION])
        cut = int(ends[-1]) + 1 if len(ends) else 0
        rest = rows[cut:]
        if cut:
            yield _match_clicks(rows[:cut], kaggle, report)
    if len(rest):
        yield _match_clicks(rest, kaggle, report)


def _match_clicks(actions: np.ndarray, kaggle: bool, report: ReadReport) -> MatchedSerps:
    """Assign clicks to SERPs, and leave out test queries and queries of sessions without metadata."""
    query_row, meta_row, click, unshown = _match(actions, kaggle)
    serp = actions[query_row]
    if not kaggle:
        return MatchedSerps(serp, click, None, unshown)
    for row in serp[meta_row < 0]:
        rule = "a query must follow the M line of its session"
        report.bad_line(int(row[LINE]), rule, f"a query of session {row[SESSION]}, which has none")
    has_meta, is_test = meta_row >= 0, serp[:, KIND] == _TEST
    report.left_out(int((has_meta & is_test).sum()), "test queries (T), whose clicks are withheld", "withheld-clicks")
    keep = has_meta & ~is_test
    return MatchedSerps(serp[keep], click[keep], actions[meta_row[keep]], unshown)


def _read_actions(path: str | Path, kaggle: bool, rule: str, report: ReadReport) -> Iterator[np.ndarray]:
    """Yield the rows of a log's valid lines, block by block."""
    n_lines = 0
    for data in line_blocks(path, size=BLOCK):
        rows, state, start = _parse(np.frombuffer(data, np.uint8), kaggle, n_lines)
        for i in np.flatnonzero(state == _BAD):
            report.bad_line(n_lines + int(i) + 1, rule, data[start[i] : start[i + 1]].rstrip(b"\r\n"))
        n_lines += len(state)
        yield rows[state == _GOOD]


@njit(cache=True, nogil=True)
@no_type_check
def _parse(data, kaggle, lines_before):
    """Parse all lines: the row of each, whether it is blank, good or bad, and where in the data it starts."""
    n = 0
    for byte in data:
        n += byte == _NEWLINE
    n += len(data) > 0 and data[-1] != _NEWLINE
    rows = np.full((n, _WIDTH), -1, np.int64)
    state = np.empty(n, np.uint8)
    start = np.zeros(n + 1, np.int64)
    value = np.empty(_MOST_TOKENS, np.int64)
    after = np.empty(_MOST_TOKENS, np.uint8)
    for i in range(n):
        count, start[i + 1] = _tokens(data, start[i], value, after)
        row = rows[i]
        row[LINE] = lines_before + i + 1
        if count <= 0:
            state[i] = _BLANK if count == 0 else _BAD
        elif kaggle:
            state[i] = _GOOD if _kaggle_line(value, after, count, row) else _BAD
        else:
            state[i] = _GOOD if _wscd_line(value, after, count, row) else _BAD
    return rows, state, start


@njit
@no_type_check
def _tokens(data, at, value, after):
    """Parse the tokens of a line: numbers, and capital letters as negative numbers, with the byte after each.

    Returned are the number of tokens and the start of the next line. A line with anything else, or with a number that
    does not fit into 64 bits, has -1 tokens.
    """
    count, good = 0, True
    number, digits, letter = uint64(0), 0, 0
    end = len(data)
    while True:
        byte = data[at] if at < end else _NEWLINE
        if byte == _RETURN and (at + 1 >= end or data[at + 1] == _NEWLINE):
            byte = _NEWLINE
            at += 1
        at += 1
        if _ZERO <= byte <= _NINE:
            digits += 1
            number = number * uint64(10) + uint64(byte - _ZERO)
        elif 65 <= byte <= 90:  # A to Z
            letter += 1
            number = uint64(byte)
        elif byte in (_TAB, _COMMA, _NEWLINE):
            if byte == _NEWLINE and count == 0 and digits == 0 and letter == 0:
                return (0 if good else -1), min(at, end)
            # 19 digits never overflow an unsigned number
            whole = letter == 0 and 1 <= digits <= 19 and number <= _LARGEST
            good = good and (whole or (letter == 1 and digits == 0)) and count < len(value)
            if good:
                value[count] = -np.int64(number) if letter else np.int64(number)
                after[count] = byte
                count += 1
            number, digits, letter = uint64(0), 0, 0
            if byte == _NEWLINE:
                return (count if good else -1), min(at, end)
        else:
            good = False


@njit
@no_type_check
def _numbers(value, start, stop):
    """Return whether there is no letter among these tokens."""
    for i in range(start, stop):  # noqa: SIM110  (numba has no generators)
        if value[i] < 0:
            return False
    return True


@njit
@no_type_check
def _followed_by(byte, after, start, stop, step):
    """Return whether this byte follows each of these tokens."""
    for i in range(start, stop, step):  # noqa: SIM110
        if after[i] != byte:
            return False
    return True


@njit
@no_type_check
def _wscd_line(value, after, n, row):
    """Fill the row of a WSCD line: session, time, Q, query, region and ten URLs; or session, time, C and a URL."""
    if n < 4 or not _numbers(value, 0, 2) or not _numbers(value, 3, n) or not _followed_by(_TAB, after, 0, n - 1, 1):
        return False
    row[SESSION], row[KIND] = value[0], -value[2]
    if n == 4:
        row[URL] = value[3]
        return row[KIND] == _CLICK
    if n != 5 + RANKS or row[KIND] != _QUERY:
        return False
    row[FIRST], row[SECOND] = value[3], value[4]
    for rank in range(RANKS):
        row[URL + rank] = value[5 + rank]
    return True


@njit
@no_type_check
def _kaggle_line(value, after, n, row):
    """Fill the row of a Kaggle line.

    It is session, M, day, user; or session, time, Q or T, SERP, query, terms, ten (URL, domain); or session, time, C,
    SERP, URL.
    """
    if n < 4 or value[0] < 0 or not _numbers(value, 3, n) or not _followed_by(_TAB, after, 0, 3, 1):
        return False
    row[SESSION] = value[0]
    if n == 4:
        row[KIND], row[FIRST], row[SECOND] = -value[1], value[2], value[3]
        return row[KIND] == _META and value[2] >= 0
    if value[1] < 0 or after[3] != _TAB:
        return False
    row[KIND], row[SECOND] = -value[2], value[3]
    if n == 5:
        row[URL] = value[4]
        return row[KIND] == _CLICK
    urls = n - 2 * RANKS  # the first token after the terms
    if (row[KIND] != _QUERY and row[KIND] != _TEST) or urls < 6 or after[4] != _TAB or after[urls - 1] != _TAB:
        return False
    row[FIRST] = value[4]
    for rank in range(RANKS):
        row[URL + rank] = value[urls + 2 * rank]
    terms_fit = _followed_by(_COMMA, after, 5, urls - 1, 1)
    return terms_fit and _followed_by(_COMMA, after, urls, n, 2) and _followed_by(_TAB, after, urls + 1, n - 1, 2)


@njit(cache=True, nogil=True)
@no_type_check
def _match(actions, by_serp):
    """Assign each click to the latest earlier query of its session that shows the URL.

    With `by_serp` the query must also have the click's SERP number. Returned are the rows of the queries and of their
    sessions' metadata, the clicks, and the number of clicks that no query shows.
    """
    n = 0
    for i in range(len(actions)):
        n += actions[i, KIND] == _QUERY or actions[i, KIND] == _TEST
    query_row, meta_row = np.empty(n, np.int64), np.empty(n, np.int64)
    click = np.zeros((n, RANKS), np.bool_)
    n_serps, first, meta, unshown = 0, 0, -1, 0
    for i in range(len(actions)):
        kind = actions[i, KIND]
        if i == 0 or actions[i, SESSION] != actions[i - 1, SESSION]:
            first, meta = n_serps, -1
        if kind == _META:
            meta = i
        elif kind == _CLICK:
            clicked_rank = -1
            serp = n_serps
            while clicked_rank < 0 and serp > first:
                serp -= 1
                if not by_serp or actions[query_row[serp], SECOND] == actions[i, SECOND]:
                    for rank in range(RANKS):
                        if actions[query_row[serp], URL + rank] == actions[i, URL]:
                            clicked_rank = rank
                            break
            if clicked_rank < 0:
                unshown += 1
            else:
                click[serp, clicked_rank] = True
        else:
            query_row[n_serps], meta_row[n_serps] = i, meta
            n_serps += 1
    return query_row, meta_row, click, unshown
