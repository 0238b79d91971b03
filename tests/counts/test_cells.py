from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import clickshift.counts.cells as statistics
from clickshift.counts.cells import By, Cells, count_situations, rank_of, situation_of
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN
from clickshift.errors import DataError
from tests.codes import raises_code
from tests.holes import log_with_holes

KINDS: list[By] = ["rank", "last_click", "prefix"]


def by_hand(log: Sessions, by: By) -> tuple[Counter, Counter]:
    """The same counts, one result at a time."""
    shown, clicked = Counter(), Counter()
    for i in range(len(log)):
        last, bits = 0, 0
        for r in range(log.n_ranks):
            if not log.rankings.shown[i, r]:
                continue
            situation = {"rank": r, "last_click": r * (r + 1) // 2 + last, "prefix": 2**r - 1 + bits}[by]
            cell = (int(log.rankings.pair[i, r]), situation)
            shown[cell] += int(log.count[i])
            if log.click[i, r]:
                clicked[cell] += int(log.count[i])
                last, bits = r + 1, bits + 2**r
    return shown, +clicked


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("by", KINDS)
def test_counts_equal_counting_by_hand(
    by: By, dense: bool, holes: bool, log: Sessions, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_with_holes(log, rng) if holes else log
    if not dense:
        monkeypatch.setattr(statistics, "_MAX_DENSE_CELLS", 0)
        monkeypatch.setattr(statistics, "_CELLS_PER_THREAD", 50)
    log = Sessions.concat([log, log[:40]]).merged()
    cells = Cells.of(log, by)
    shown, clicked = by_hand(log, by)
    found = {(int(p), int(s)): n for p, s, n in zip(cells.pair, cells.situation, cells.impressions, strict=True)}
    assert found == shown
    clicks = {(int(p), int(s)): c for p, s, c in zip(cells.pair, cells.situation, cells.clicks, strict=True) if c}
    assert clicks == clicked
    assert (np.diff(cells.pair) >= 0).all()


@pytest.mark.parametrize(
    ("fine", "coarse"), [("prefix", "last_click"), ("prefix", "rank"), ("last_click", "rank"), ("rank", "rank")]
)
def test_rolling_up_equals_counting(fine: By, coarse: By, log: Sessions) -> None:
    rolled, counted = Cells.of(log, fine).rolled_up(coarse), Cells.of(log, coarse)
    for name in ("pair", "situation", "impressions", "clicks"):
        assert (getattr(rolled, name) == getattr(counted, name)).all(), name


def test_what_was_not_counted_cannot_be_rolled_up(log: Sessions) -> None:
    with raises_code("counts-too-coarse", DataError, by="rank", requested="prefix"):
        Cells.of(log).rolled_up("prefix")


@pytest.mark.parametrize("by", KINDS)
def test_situations_are_in_order_of_rank(by: By, log: Sessions) -> None:
    rank = rank_of(by, 5)
    assert len(rank) == count_situations(by, 5)
    assert (np.diff(rank) >= 0).all()
    assert (rank[situation_of(by, log)] == np.arange(5)).all()


def test_unknown_pairs_are_left_out(log: Sessions) -> None:
    part = log.in_vocabulary(log.vocabulary.with_pairs(np.array([0, 1, 2])))
    known = (part.rankings.pair != UNSEEN).sum()
    assert Cells.of(part).impressions.sum() == known
    assert Cells.of(part, "prefix").impressions.sum() == known


def test_long_lists_cannot_be_counted_by_prefix(log: Sessions) -> None:
    shown = np.ones((1, 31), bool)
    rankings = Rankings(log.vocabulary, np.array([0]), np.full((1, 31), UNSEEN), shown)
    with raises_code("lists-too-long", DataError, value=31, limit=30):
        Cells.of(Sessions(rankings, np.zeros((1, 31), bool)), "prefix")
