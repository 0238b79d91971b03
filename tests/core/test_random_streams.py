from __future__ import annotations

import numpy as np
import pytest

from clickshift.core.parallel import for_ranges, n_threads
from clickshift.core.random_streams import _TO_UNIT, next_uniform, uniforms
from clickshift.core.rng import generator


def draw(key: int, first: int, rows: int, columns: int = 4) -> np.ndarray:
    out = np.empty((rows, columns))
    uniforms(key, first, out)
    return out


def test_a_stream_depends_on_key_and_number_alone() -> None:
    whole = draw(7, 0, 100)
    assert (draw(7, 40, 10) == whole[40:50]).all()
    assert (draw(8, 0, 100) != whole).all()


def test_streams_are_uniform_and_independent() -> None:
    numbers = draw(1, 0, 200_000)
    counts = np.histogram(numbers, bins=50, range=(0, 1))[0]
    assert (
        (counts - numbers.size / 50) ** 2 / (numbers.size / 50)
    ).sum() < 100  # chi-square with 49 degrees of freedom
    assert np.abs(np.corrcoef(numbers.T) - np.eye(4)).max() < 0.015
    assert abs(np.corrcoef(numbers[:-1, 0], numbers[1:, 0])[0, 1]) < 0.015, "neighbouring sessions"


def test_the_largest_and_smallest_numbers_are_inside() -> None:
    state = np.zeros(4, np.uint64)
    assert next_uniform(state) == 0.5 * _TO_UNIT > 0
    state[0], state[3] = 2**64 - 1, 1  # their sum wraps to 0: the result is state[0]
    assert 1 - 2**-52 < next_uniform(state) < 1


def test_generators_are_derived_from_names() -> None:
    assert generator(1, "a", "b").random() == generator(1, "a", "b").random()
    names = [(1, "a", "b"), (1, "b", "a"), (2, "a", "b"), (1, "ab"), (1, "a"), (1,)]
    assert len({generator(*name).random() for name in names}) == len(names)


@pytest.mark.parametrize("threads", ["1", "3"])
def test_ranges_cover_all_rows_once(threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLICKSHIFT_THREADS", threads)
    assert n_threads() == int(threads)
    seen = np.zeros(1003, int)

    def work(rows: slice) -> None:
        seen[rows] += 1

    for_ranges(work, 1003, chunk=100)
    assert (seen == 1).all()


def test_an_error_in_a_thread_is_raised() -> None:
    def work(rows: slice) -> None:
        raise ValueError("from a thread")

    with pytest.raises(ValueError, match="from a thread"):
        for_ranges(work, 10, chunk=1)
