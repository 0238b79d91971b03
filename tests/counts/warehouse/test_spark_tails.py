"""What Spark's workers do, on a data frame that is none: many pieces, an empty partition, no tail at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from clickshift.counts.cascade import Cascade
from clickshift.counts.tail_e_step import TailTransitions, TransitionDerivatives
from clickshift.counts.tails import merge_tails
from clickshift.counts.warehouse import _spark_tails as spark_tails
from clickshift.counts.warehouse._results import PairNumbers
from clickshift.data.sessions import Sessions
from clickshift.errors import DataError
from tests.codes import raises_code
from tests.holes import log_with_holes


@dataclass(frozen=True)
class Frame:
    """Partitions of record batches, with as much of a data frame as is used."""

    partitions: list[list[pa.RecordBatch]]

    @property
    def sparkSession(self) -> Any:
        def broadcast(value: Any) -> Any:
            return SimpleNamespace(value=value, destroy=lambda: None)

        return SimpleNamespace(sparkContext=SimpleNamespace(broadcast=broadcast))

    def mapInArrow(self, work: Callable[[Iterator[Any]], Iterator[Any]], schema: str) -> Frame:
        return Frame([list(work(iter(batches))) for batches in self.partitions])

    def select(self, *names: str) -> Frame:
        return Frame([[batch.select(names) for batch in batches] for batches in self.partitions])

    def toArrow(self) -> pa.Table:
        return pa.Table.from_batches([batch for batches in self.partitions for batch in batches])

    def persist(self) -> Frame:
        return self

    def unpersist(self) -> None:
        pass


def hashed(log: Sessions, rng: np.random.Generator) -> tuple[Frame, PairNumbers]:
    """Batches of 20 lists in two partitions and an empty one, with hashes at random."""
    words = log.vocabulary
    hashes = np.sort(rng.choice(1 << 62, words.n_pairs, replace=False)) - (1 << 61)
    number = rng.permutation(words.n_pairs).astype(np.int32)
    of_pair = np.empty(words.n_pairs, np.int64)
    of_pair[number] = hashes
    batches = [
        pa.RecordBatch.from_pydict(
            {
                "pairs": [of_pair[pair[shown]].tolist() for pair, shown in zip(some.pair, some.shown, strict=True)],
                "clicks": [click[shown].tolist() for click, shown in zip(log.click[rows], some.shown, strict=True)],
                "times": log.count[rows].astype(float),
                "places": [(np.flatnonzero(shown) + 1).tolist() for shown in some.shown],
            },
            pa.schema(
                {"pairs": pa.list_(pa.int64()), "clicks": pa.list_(pa.bool_()), "times": pa.float64()}
                | ({"places": pa.list_(pa.int64())} if log.rankings.has_holes else {})
            ),
        )
        for rows in (slice(k, k + 20) for k in range(0, len(log), 20))
        for some in [log.rankings[rows]]
    ]
    return Frame([batches[::2], [], batches[1::2]]), PairNumbers(hashes, number)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_tails, "_LISTS_IN_A_PIECE", 50)
    monkeypatch.setenv("CLICKSHIFT_THREADS", "1")


@pytest.mark.parametrize("holes", [False, True])
def test_sums_over_pieces(log: Sessions, rng: np.random.Generator, holes: bool) -> None:
    log = Sessions(log.rankings, log.click, rng.integers(1, 4, len(log)))
    log = log_with_holes(log, rng) if holes else log
    frame, numbers = hashed(log, rng)
    found, expected = spark_tails.cascade_of(frame, log.vocabulary, numbers, log.n_ranks), Cascade.of(log)
    assert len(found.tails.pieces.table.toArrow()) > 5  # type: ignore[attr-defined]
    for name in ("impressions", "examined", "clicks", "followed", "open_last", "first_examined", "first_clicks"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    for name in ("followed_at_rank", "open_last_at_rank", "passed"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    size = len(expected.clicks)
    walk = TailTransitions(
        rng.uniform(0.1, 0.9, size), 0.8, rng.uniform(0.1, 0.9, size), rng.uniform(0.1, 0.9, log.n_ranks)
    )
    turns = TransitionDerivatives(np.array([1.0, 0.0]), rng.random((2, size)), rng.random((2, log.n_ranks)))
    one, other = found.tails.expect(walk, turns), expected.tails.expect(walk, turns)
    for name in set(vars(other)) - {"curvature"}:
        assert np.allclose(getattr(one, name), getattr(other, name), rtol=1e-12, atol=1e-12), name
    assert one.curvature is not None
    assert other.curvature is not None
    for name, here, there in zip(other.curvature._fields, one.curvature, other.curvature, strict=True):
        assert np.allclose(here, there, rtol=1e-12, atol=1e-12), name
    one, other = found.tails.pooled(), expected.tails.pooled()
    if holes:  # in another order
        other = merge_tails([one, replace(other, count=-other.count)])
        assert not other.count.any()
        assert len(other.count) == len(one.count)
        return
    for name in ("start", "length", "sessions", "pair", "count"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_a_log_without_tails(log: Sessions, rng: np.random.Generator) -> None:
    """Every list ends with a click."""
    shown = log.rankings.shown
    last = shown & ~np.pad(shown[:, 1:], ((0, 0), (0, 1)))
    log = Sessions(log.rankings, log.click | last)
    frame, numbers = hashed(log, rng)
    found, size = spark_tails.cascade_of(frame, log.vocabulary, numbers, log.n_ranks), log.vocabulary.n_pairs + 1
    sums = found.tails.expect(TailTransitions(np.full(size, 0.5), 0.5, np.full(size, 0.5), np.full(log.n_ranks, 0.5)))
    assert not sums.examined.any()
    assert (sums.log_likelihood, sums.skip_could) == (0, 0)
    assert len(found.tails.pooled().count) == 0  # type: ignore[attr-defined]


def test_a_pair_that_came_in_later(log: Sessions, rng: np.random.Generator) -> None:
    frame, numbers = hashed(log, rng)
    with raises_code("log-changed", DataError):
        spark_tails.cascade_of(frame, log.vocabulary, PairNumbers(numbers.hash[1:], numbers.number[1:]), log.n_ranks)
