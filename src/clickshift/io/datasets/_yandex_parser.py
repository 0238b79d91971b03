"""Logs of actions, one query or click a line, as Yandex published them: from bytes to pages with their clicks.

The logs have hundreds of millions of lines of two or three kinds, so they are read in blocks, and the bytes are taken
apart by a compiled kernel. Every line becomes a row of the same 15 numbers:

    line number, session, letter of the kind, two numbers that depend on the kind, ten URLs

    WSCD    Q   query, region, URLs          C   -, -, the URL clicked
    Kaggle  Q   query, page, URLs (T alike)  C   -, page, the URL clicked     M   day, user
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
"""Bytes that are read at once."""

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
    """The pages of a block of whole sessions, with the clicks on them."""

    page: Int[np.ndarray, "page 15"]
    """The row of each query action."""
    click: Bool[np.ndarray, "page rank"]
    meta: Int[np.ndarray, "page 15"] | None
    """The row of each page's session metadata, where the log has them."""
    unshown: int
    """How many clicks are on no page of their session."""


def read_serps(path: str | Path, *, kaggle: bool, rule: str, notes: ReadReport) -> Iterator[MatchedSerps]:
    """The pages of a log, block by block; lines with the same session number that follow each other are one session."""
    rest = np.empty((0, _WIDTH), np.int64)
    for actions in _actions(path, kaggle, rule, notes):
        rows = np.concatenate([rest, actions])
        # the last session of a block may go on in the next one
        ends = np.flatnonzero(rows[1:, SESSION] != rows[:-1, SESSION])
        cut = int(ends[-1]) + 1 if len(ends) else 0
        rest = rows[cut:]
        if cut:
            yield _matched(rows[:cut], kaggle, notes)
    if len(rest):
        yield _matched(rest, kaggle, notes)


def _matched(actions: np.ndarray, kaggle: bool, notes: ReadReport) -> MatchedSerps:
    at, meta, click, unshown = _match(actions, kaggle)
    page = actions[at]
    if not kaggle:
        return MatchedSerps(page, click, None, unshown)
    for row in page[meta < 0]:
        rule = "a query must follow the M line of its session"
        notes.bad_line(int(row[LINE]), rule, f"a query of session {row[SESSION]}, which has none")
    known, test = meta >= 0, page[:, KIND] == _TEST
    notes.left_out(int((known & test).sum()), "test queries (T), whose clicks are withheld")
    keep = known & ~test
    return MatchedSerps(page[keep], click[keep], actions[meta[keep]], unshown)


def _actions(path: str | Path, kaggle: bool, rule: str, notes: ReadReport) -> Iterator[np.ndarray]:
    """The rows of a log's good lines, block by block."""
    lines = 0
    for data in line_blocks(path, size=BLOCK):
        rows, state, start = _parse(np.frombuffer(data, np.uint8), kaggle, lines)
        for i in np.flatnonzero(state == _BAD):
            notes.bad_line(lines + int(i) + 1, rule, data[start[i] : start[i + 1]].rstrip(b"\r\n"))
        lines += len(state)
        yield rows[state == _GOOD]


@njit(cache=True, nogil=True)
@no_type_check
def _parse(data, kaggle, lines_before):
    """The row of every line, whether it is blank, good or bad, and where in the data it starts."""
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
    """The numbers (and capital letters, as negative numbers) of a line and the byte after each, up to the next line.

    A line that has anything else, or a number that 64 bits do not hold, has -1 tokens.
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
    """No letter among these tokens."""
    for i in range(start, stop):  # noqa: SIM110  (numba has no generators)
        if value[i] < 0:
            return False
    return True


@njit
@no_type_check
def _followed_by(byte, after, start, stop, step):
    """This byte after each of these tokens."""
    for i in range(start, stop, step):  # noqa: SIM110
        if after[i] != byte:
            return False
    return True


@njit
@no_type_check
def _wscd_line(value, after, n, row):
    """Session, time, Q, query, region and ten URLs; or session, time, C and a URL."""
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
    """Session, M, day, user; or session, time, Q or T, page, query, terms, ten (URL, domain); or ... C, page, URL."""
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
def _match(actions, by_page):
    """Give each click to the latest earlier query of its session that shows the URL (and has the click's page number).

    The rows of the queries and of their sessions' metadata, the clicks, and how many clicks found no place.
    """
    n = 0
    for i in range(len(actions)):
        n += actions[i, KIND] == _QUERY or actions[i, KIND] == _TEST
    at, meta = np.empty(n, np.int64), np.empty(n, np.int64)
    click = np.zeros((n, RANKS), np.bool_)
    found, first, about, unshown = 0, 0, -1, 0
    for i in range(len(actions)):
        kind = actions[i, KIND]
        if i == 0 or actions[i, SESSION] != actions[i - 1, SESSION]:
            first, about = found, -1
        if kind == _META:
            about = i
        elif kind == _CLICK:
            place = -1
            page = found
            while place < 0 and page > first:
                page -= 1
                if not by_page or actions[at[page], SECOND] == actions[i, SECOND]:
                    for rank in range(RANKS):
                        if actions[at[page], URL + rank] == actions[i, URL]:
                            place = rank
                            break
            if place < 0:
                unshown += 1
            else:
                click[page, place] = True
        else:
            at[found], meta[found] = i, about
            found += 1
    return at, meta, click, unshown
