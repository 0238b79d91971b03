"""Counts of cascades against counting by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from clickshift.counts.cascade import Cascade
from clickshift.counts.tail_e_step import SESSIONS_PER_BLOCK
from clickshift.counts.tails import TailsByShape
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from tests.holes import log_with_holes

N_PAIRS, WIDTH = 12, 5
HOLE = N_PAIRS + 1


@pytest.fixture(params=[False, True], ids=["full", "holes"])
def mixed(request: pytest.FixtureRequest, rng: np.random.Generator) -> Sessions:
    """Lists of all lengths, some pairs unknown, some sessions more than once; more than a block of most shapes."""
    words = Vocabulary.of(np.zeros(N_PAIRS, int), np.arange(N_PAIRS))[0]
    rows = 40 * SESSIONS_PER_BLOCK
    pair = rng.permuted(np.tile(np.arange(N_PAIRS), (rows, 1)), axis=1)[:, :WIDTH]
    pair[rng.random(pair.shape) < 0.1] = UNSEEN
    shown = np.arange(WIDTH) < rng.integers(1, WIDTH + 1, rows)[:, None]
    click = (rng.random(pair.shape) < 0.3) & shown
    log = Sessions(Rankings(words, np.zeros(rows, int), pair, shown), click, rng.integers(1, 4, rows))
    return log_with_holes(log, rng) if request.param else log


def unpacked(tails: TailsByShape) -> Counter:
    """How often each tail was seen: the rank it starts at, the clicked pair above it, and its pairs."""
    found: Counter = Counter()
    place = tail = 0
    for start, length, sessions in zip(tails.start, tails.length, tails.sessions, strict=True):
        rows = length - start + (start > 0)
        for first in range(0, sessions, SESSIONS_PER_BLOCK):
            block = tails.pair[place : place + rows * SESSIONS_PER_BLOCK].reshape(rows, SESSIONS_PER_BLOCK)[::-1]
            place += rows * SESSIONS_PER_BLOCK
            for column in block.T[: min(SESSIONS_PER_BLOCK, sessions - first)]:
                found[(int(start), *column.tolist())] += int(tails.count[tail])
                tail += 1
    assert (place, tail) == (len(tails.pair), len(tails.count))
    return found


def by_hand(log: Sessions) -> tuple[dict[str, np.ndarray], Counter]:
    names = ("impressions", "examined", "clicks", "followed", "open_last", "first_examined", "first_clicks")
    tables = {name: np.zeros(N_PAIRS + 1) for name in names}
    tables |= {name: np.zeros(WIDTH) for name in ("followed_at_rank", "open_last_at_rank")} | {"passed": np.zeros(())}
    tails: Counter = Counter()
    for pairs, shown, click, count in zip(log.rankings.pair, log.rankings.shown, log.click, log.count, strict=True):
        n, clicked = int(np.flatnonzero(shown)[-1]) + 1, np.flatnonzero(click)
        first, last = (clicked[0], clicked[-1]) if len(clicked) else (n, -1)
        for r in range(n):
            tables["passed"] += count * (not click[r] and r < last)
            if not shown[r]:
                continue
            p = pairs[r]
            tables["impressions"][p] += count
            tables["examined"][p] += count * (r <= last)
            tables["first_examined"][p] += count * (r <= first)
            tables["clicks"][p] += count * click[r]
            tables["first_clicks"][p] += count * (r == first)
            tables["followed"][p] += count * (click[r] and r < last)
            tables["followed_at_rank"][r] += count * (click[r] and r < last)
            tables["open_last"][p] += count * (r == last < n - 1)
            tables["open_last_at_rank"][r] += count * (r == last < n - 1)
        if last < n - 1:
            ranks = range(max(last, 0), n)
            kept = [int(pairs[r]) if pairs[r] != UNSEEN else N_PAIRS if shown[r] else HOLE for r in ranks]
            tails[(int(last) + 1, *kept)] += int(count)
    return tables, tails


@pytest.mark.parametrize("threads", ["1", "3"])
def test_counts_equal_counting_by_hand(mixed: Sessions, threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLICKSHIFT_THREADS", threads)
    found, (tables, tails) = Cascade.of(mixed), by_hand(mixed)
    for name, table in tables.items():
        assert np.array_equal(getattr(found, name), table), name
    assert unpacked(found.tails) == tails


def test_all_documents_alike(mixed: Sessions) -> None:
    cascade = Cascade.of(mixed)
    pooled = cascade.pooled()
    assert pooled.clicks.tolist() == [cascade.clicks.sum(), 0]
    shapes: Counter = Counter()
    for (start, *pairs), count in unpacked(cascade.tails).items():
        shapes[(start, *(2 if pair == HOLE else 0 for pair in pairs))] += count
    assert unpacked(cascade.tails.pooled()) == shapes


def test_a_log_without_tails() -> None:
    words = Vocabulary.of(np.zeros(2, int), np.arange(2))[0]
    log = Sessions(Rankings(words, np.zeros(3, int), np.array([[0, 1]] * 3)), np.ones((3, 2), bool))
    cascade = Cascade.of(log)
    assert len(cascade.tails.count) == len(cascade.tails.pooled().count) == 0
    assert cascade.clicks.tolist() == [3, 3, 0]
