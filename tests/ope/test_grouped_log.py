"""Grouping a log: counts by hand, parts by subtraction, clusters."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from clickshift.counts.open_log import open_log
from clickshift.data.encoded_log import EncodedLog
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError, SpecError
from clickshift.io.read_log import write_log
from clickshift.models import PBM
from clickshift.models.base import pair_table
from clickshift.ope import Bootstrap, GroupedLog, Reward, evaluate_target
from clickshift.ope.compact_sessions import compact_sessions
from tests.codes import raises_code


def test_lists_are_counted_once_each(log: Sessions) -> None:
    log = Sessions(log.rankings, log.click, np.arange(len(log)) % 3 + 1)
    logged = GroupedLog.of(log, "dcg@3")
    r = log.rankings
    shown: Counter[tuple[int, ...]] = Counter()
    earned: Counter[tuple[int, ...]] = Counter()
    clicks: Counter[tuple[int, int]] = Counter()
    impressions: Counter[tuple[int, int]] = Counter()
    for i in range(len(log)):
        n = int(log.count[i])
        beginning = tuple(r.pair[i][r.shown[i]][:3].tolist())
        shown[beginning] += n
        for k, p in enumerate(beginning):
            earned[beginning] += n * log.click[i, k] / np.log2(k + 2)
            impressions[p, k] += n
            clicks[p, k] += n * int(log.click[i, k])
    keys = [tuple(p[s].tolist()) for p, s in zip(logged.lists.pair, logged.lists.shown, strict=True)]
    assert len(set(keys)) == len(keys) == len(shown)
    assert logged.was_cut
    assert logged.total.shown[:, 0].tolist() == [shown[k] for k in keys]
    assert logged.total.earned[:, 0] == pytest.approx([earned[k] for k in keys], rel=1e-12)
    cells = list(zip(logged.cell_pair.tolist(), logged.cell_rank.tolist(), strict=True))
    assert len(set(cells)) == len(cells) == len(impressions)
    by_cell = Counter[tuple[int, int]]()
    for (lst, k), cell in np.ndenumerate(logged.cell):
        assert cell < 0 or cells[cell] == (logged.lists.pair[lst, k], k)
    for lst, k, n in zip(*logged.clicked, logged.total.clicks[:, 0], strict=True):
        by_cell[cells[logged.cell[lst, k]]] += n
    assert by_cell == clicks


def test_a_tally_of_the_rest_is_the_whole_less_a_part(log: Sessions) -> None:
    logged = GroupedLog.of(log)
    day = np.arange(len(log)) % 7 == 2
    rest = logged.total - logged.tally(day)
    direct = logged.tally(~day)
    for name in ("shown", "clicks", "earned"):
        assert getattr(rest, name) == pytest.approx(getattr(direct, name), abs=1e-12)
    assert rest.shown.sum() == len(log) - day.sum()


def test_any_click_counts_sessions(log: Sessions) -> None:
    logged = GroupedLog.of(log, "any-click@2")
    assert logged.total.earned.sum() == log.click[:, :2].any(axis=1).sum()
    assert logged.largest == 1


def test_clusters_hold_every_session_once(log: Sessions) -> None:
    log = Sessions(log.rankings, log.click, np.arange(len(log)) % 3 + 1, user=np.arange(len(log)) // 4)
    alone, users = GroupedLog.of(log), GroupedLog.of(log, cluster="user")
    c = alone.clusters
    assert c.size.sum() == log.total
    assert len(c.size) < len(log)
    assert (c.count == 1).all()
    c = users.clusters
    assert (c.size == 1).all()
    assert len(c.size) == 125
    assert c.count.sum() == log.total
    assert np.bincount(c.of_row, c.count) == pytest.approx(np.bincount(np.arange(500) // 4, log.count))
    clicks = (c.count[:, None] * c.click).sum(axis=0)
    assert clicks == pytest.approx(log.count @ log.click)
    labels = np.array(["b", "a"] * 250)
    assert GroupedLog.of(log, cluster=labels).clusters.size.tolist() == [1, 1]


def test_what_cannot_be_grouped_is_refused(log: Sessions) -> None:
    with raises_code("missing-users", DataError):
        GroupedLog.of(log, cluster="user")
    with raises_code("unequal-lengths", DataError, count=3, expected=500):
        GroupedLog.of(log, cluster=np.arange(3))
    with raises_code("too-few-clusters", DataError):
        GroupedLog.of(log, cluster=np.zeros(len(log)))
    smaller = log.vocabulary.with_pairs(np.arange(100))
    with raises_code("missing-id", DataError):
        GroupedLog.of(log.in_vocabulary(smaller))


def test_rewards_by_hand() -> None:
    assert Reward.named("clicks").theta(3).tolist() == [1, 1, 1]
    assert Reward.named("clicks@2").theta(3).tolist() == [1, 1]
    assert Reward.named("clicks@5").theta(3).tolist() == [1, 1, 1]
    assert Reward.named("dcg").theta(4) == pytest.approx([1, 0.63092975, 0.5, 0.43067656])
    assert Reward(weights=(0.5, 0.0, 2.0, 0.0)).theta(10).tolist() == [0.5, 0, 2]
    click = np.array([[True, False, True], [False, False, False]])
    assert Reward.named("dcg").earned(click) == pytest.approx([1.5, 0])
    assert Reward.named("any-click").earned(click).tolist() == [1, 0]
    assert str(Reward.named("any-click@3")) == "any-click@3"
    words, _, _ = Vocabulary.of([0, 0], [0, 1])
    model = PBM(words, pair_table(np.array([0.5, 0.8]), unseen=0.1), np.array([1.0, 0.5]))
    lists = Rankings(words, np.array([0]), np.array([[1, 0]]))
    assert Reward.named("clicks").expected(model, lists) == pytest.approx([0.8 + 0.25])
    assert Reward.named("any-click").expected(model, lists) == pytest.approx([1 - 0.2 * 0.75])


@pytest.mark.parametrize("text", ["click", "dcg@0", "clicks@-1", "dcg@", "", "ndcg"])
def test_unknown_rewards_are_refused(text: str) -> None:
    with raises_code("unknown-name", SpecError, value=text):
        Reward.named(text)


@pytest.mark.parametrize("weights", [(), (0.0, 0.0), (1.0, -1.0), (float("nan"),), (float("inf"),)])
def test_weights_of_ranks_are_numbers_from_0(weights: tuple[float, ...]) -> None:
    with raises_code("bad-option", SpecError):
        Reward(weights=weights)


@pytest.mark.parametrize("users", [False, True])
def test_rows_that_are_merged_while_an_encoded_log_is_read_keep_the_estimates(
    users: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few rows wait at a time, so that merged rows are merged again; draws of the bootstrap are the same."""
    rng, rows = np.random.default_rng(2), 3000
    pair = np.array([rng.permutation(3) for _ in range(rows)])
    words = Vocabulary.of([0, 0, 0, 1, 1, 1], [7, 8, 9] * 2)[0]
    query = rng.integers(2, size=rows).astype(np.int32)
    lists = Rankings(words, query, (pair + 3 * query[:, None]).astype(np.int32), log_prob=np.log(1 / 6 + 0.1 * query))
    time = np.datetime64("2026-01-01T00:00") + rng.integers(3000, size=rows).astype("timedelta64[m]")
    log = Sessions(lists, rng.random((rows, 3)) < 0.3, np.ones(rows, int), time, rng.integers(40, size=rows))
    write_log(log, tmp_path / "log.parquet")
    encoded = open_log(tmp_path / "log.parquet", in_memory=False, output=tmp_path / "encoded")
    assert isinstance(encoded, EncodedLog)
    monkeypatch.setattr("clickshift.ope.compact_sessions._WAITING_ROWS", 100)
    monkeypatch.setattr(EncodedLog, "chunks", lambda self: (log[k : k + 150] for k in range(0, rows, 150)))
    merged = compact_sessions(encoded, Reward(), users=users)
    assert merged.total == rows
    assert len(merged) == len(
        {
            (*p, *c, str(t)[:10], *([u] if users else []))
            for p, c, t, u in zip(lists.pair.tolist(), log.click.tolist(), time, log.user, strict=True)
        }
    )
    target = Rankings(words, np.array([0, 1], np.int32), np.array([[0, 1, 2], [5, 4, 3]], np.int32))
    cluster = "user" if users else "session"
    one, two = (
        evaluate_target(GroupedLog.of(each, cluster=cluster), target, ["List", "IP"], interval=Bootstrap(20))
        for each in (log, merged)
    )
    for a, b in zip(one, two, strict=True):
        assert a.replicates is not None
        assert b.replicates == pytest.approx(a.replicates)
        assert b.estimates[0].value == pytest.approx(a.estimates[0].value)
