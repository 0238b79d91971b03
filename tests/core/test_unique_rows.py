"""Grouping rows: against dictionaries and numpy, for few and many groups, and for rows whose hashes meet."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift.core.unique_rows import RowIndex, distinct_rows, distinct_sorted, stable_order


@pytest.mark.parametrize("largest", [1, 3, 40, 1 << 40])
@pytest.mark.parametrize("shape", [(0, 2), (1, 1), (7, 3), (5000, 1), (5000, 2), (3000, 5)])
def test_groups_are_numbered_as_they_appear(shape: tuple[int, int], largest: int, rng: np.random.Generator) -> None:
    rows = rng.integers(-largest, largest, shape)
    number: dict[tuple[int, ...], int] = {}
    expected = [number.setdefault(tuple(row), len(number)) for row in rows.tolist()]
    group, first = distinct_rows(rows)
    assert group.tolist() == expected
    assert first.tolist() == [expected.index(k) for k in range(len(number))]


def test_rows_without_columns_are_equal() -> None:
    group, first = distinct_rows(np.empty((40, 0), np.int64))
    assert group.tolist() == [0] * 40
    assert first.tolist() == [0]


def test_tables_grow() -> None:
    """Half a million groups need a table of a million places; the same rows again find all of them."""
    rows = np.arange(500_000)[:, None] * np.array([[1 << 33, 1]])
    group, first = distinct_rows(np.concatenate([rows, rows[::-1]]))
    assert np.array_equal(first, np.arange(500_000))
    assert np.array_equal(group[:500_000], group[:499_999:-1])


def test_rows_are_compared_not_their_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In plain Python, with a hash that is the same for all rows."""
    from clickshift.core import unique_rows

    monkeypatch.setattr(unique_rows, "_hash_of", lambda rows, i: np.uint64(7) << np.uint64(32))
    monkeypatch.setattr(unique_rows, "_same", lambda rows, i, others, o: bool((rows[i] == others[o]).all()))
    rows = np.array([[1, 2], [3, 4], [1, 2], [2, 1], [3, 4]])
    group, first = np.empty(5, np.int64), np.empty(5, np.int64)
    table, hashes = np.zeros(1024, np.uint64), np.empty(5, np.uint64)
    at, found, _ = unique_rows._group.py_func(rows, 0, 0, table, group, first, hashes)
    assert (at, found) == (5, 3)
    assert group.tolist() == [0, 1, 0, 2, 1]
    place = np.empty(2, np.int64)
    unique_rows._find.py_func(np.array([[2, 1], [4, 3]]), rows, table, place)
    assert place.tolist() == [3, -1]


def test_known_rows_are_found(rng: np.random.Generator) -> None:
    known = np.unique(rng.integers(0, 30, (400, 2)), axis=0)
    known = rng.permutation(known)
    rows = rng.integers(-1, 31, (3000, 2))
    where = {tuple(row): k for k, row in enumerate(known.tolist())}
    assert RowIndex.of(known).find(rows).tolist() == [where.get(tuple(row), -1) for row in rows.tolist()]
    nothing = RowIndex.of(np.empty((0, 2), np.int64))
    assert (nothing.find(rows) == -1).all()
    assert RowIndex.of(known).find(rows[:0]).shape == (0,)


def test_counting_sorts_as_numpy_does(rng: np.random.Generator) -> None:
    number = rng.integers(0, 50, 2000).astype(np.int32)
    assert np.array_equal(stable_order(number, 60), np.argsort(number, kind="stable"))
    assert stable_order(number[:0], 3).shape == (0,)
    values = rng.integers(-(1 << 60), 1 << 60, 500)[rng.integers(0, 500, 4000)]
    found, place = distinct_sorted(values)
    expected, inverse = np.unique(values, return_inverse=True)
    assert np.array_equal(found, expected)
    assert np.array_equal(place, inverse)
