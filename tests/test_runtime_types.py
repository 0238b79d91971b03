"""The checks of types and shapes that run with the tests find what they are there for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import beartype
import numpy as np
import pytest
from jaxtyping import Float

from clickshift.core.text import join_words
from tests.runtime_types import CALLS, MOST, checked, start_test

CHECK = beartype.beartype(conf=beartype.BeartypeConf(violation_type=TypeError))


def test_the_package_is_checked() -> None:
    with pytest.raises(TypeError):
        join_words(3)  # type: ignore[arg-type]


def test_arrays_that_share_a_dimension_must_have_it_in_common() -> None:
    def add(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return a + b[: len(a)]

    add = checked(add, typechecker=CHECK)
    assert add(np.ones(2), np.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(TypeError):
        add(np.ones(2), np.ones(3))


def test_a_result_must_have_the_dimensions_of_the_arguments() -> None:
    def double(a: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return np.append(a, a)

    with pytest.raises(TypeError):
        checked(double, typechecker=CHECK)(np.ones(2))


def test_dimensions_of_one_call_are_not_those_of_another() -> None:
    def total(a: Float[np.ndarray, " n"]) -> float:
        return float(a.sum())

    total = checked(total, typechecker=CHECK)

    def both(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " m"]) -> Float[np.ndarray, " n"]:
        return a + total(a) + total(b)

    both = checked(both, typechecker=CHECK)
    assert both(np.ones(2), np.ones(3)).tolist() == [6.0, 6.0]
    assert both(np.ones(3), np.ones(2)).tolist() == [6.0, 6.0, 6.0]


def test_arguments_of_a_generator_are_checked_when_it_is_made() -> None:
    def pairs(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> Iterator[tuple[float, float]]:
        yield from zip(a.tolist(), b.tolist(), strict=False)

    pairs = checked(pairs, typechecker=CHECK)
    assert list(pairs(np.ones(2), np.ones(2))) == [(1.0, 1.0)] * 2
    with pytest.raises(TypeError):
        pairs(np.ones(2), np.ones(3))


def test_results_are_checked_where_no_array_is_named() -> None:
    def length(text: str) -> int:
        return text  # type: ignore[return-value]

    with pytest.raises(TypeError):
        checked(length, typechecker=CHECK)("abc")


def test_a_function_inside_another_one_is_checked_the_first_time() -> None:
    def make() -> Callable[[int], int]:
        def twice(n: int) -> int:
            return 2 * n

        return checked(twice, typechecker=CHECK)

    first, second = make(), make()
    with pytest.raises(TypeError):
        first("a")  # type: ignore[arg-type]
    assert second("a") == "aa"  # type: ignore[arg-type]


@dataclass(frozen=True)
class Curve:
    """A dataclass with an array."""

    name: str
    value: Float[np.ndarray, " n"]
    error: Float[np.ndarray, " n"]


def test_dataclasses_are_checked_when_they_are_made() -> None:
    curve = checked(Curve, typechecker=CHECK)
    assert curve("a", np.ones(2), error=np.ones(2)).error.tolist() == [1.0, 1.0]
    for arguments in ((3, np.ones(2), np.ones(2)), ("a", np.ones(2), np.ones(3)), ("a", np.ones(2), [1.0, 1.0])):
        start_test()
        with pytest.raises(TypeError):
            curve(*arguments)


def test_shapes_are_compared_in_the_first_calls_from_each_place_of_each_test() -> None:
    def total(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> float:
        return float(a.sum() + b.sum())

    add, good, bad = checked(total, typechecker=CHECK), (np.ones(2), np.ones(2)), (np.ones(2), np.ones(3))

    def calls(arguments: list[tuple[np.ndarray, np.ndarray]]) -> float:
        return sum(add(*pair) for pair in arguments)

    with pytest.raises(TypeError):
        calls([*[good] * (CALLS - 1), bad])
    assert calls([bad]) == 5.0, "the same place was checked often enough in this test"
    with pytest.raises(TypeError):
        add(*bad)  # another place
    start_test()
    with pytest.raises(TypeError):
        calls([bad])


def test_types_are_checked_in_the_first_calls_of_each_test() -> None:
    def twice(n: int) -> int:
        return 2 * n

    twice = checked(twice, typechecker=CHECK)
    for _ in range(MOST - 1):
        twice(1)
    with pytest.raises(TypeError):
        twice("a")  # type: ignore[arg-type]
    assert twice("a") == "aa"  # type: ignore[arg-type, comparison-overlap]
    start_test()
    with pytest.raises(TypeError):
        twice("a")  # type: ignore[arg-type]
