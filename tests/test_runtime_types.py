"""The checks of types and shapes that run with the tests find what they are there for."""

from __future__ import annotations

from collections.abc import Callable

import beartype
import jaxtyping
import numpy as np
import pytest
from beartype.roar import BeartypeException
from jaxtyping import Float

from clickshift.core.text import join_words
from tests.runtime_types import checked

WRONG = (jaxtyping.TypeCheckError, BeartypeException)


def test_the_package_is_checked() -> None:
    with pytest.raises(WRONG):
        join_words(3)  # type: ignore[arg-type]


def test_arrays_that_share_a_dimension_must_have_it_in_common() -> None:
    def add(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return a + b[: len(a)]

    add = checked(add, typechecker=beartype.beartype)
    assert add(np.ones(2), np.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(WRONG):
        add(np.ones(2), np.ones(3))


def test_results_are_checked_where_no_array_is_named() -> None:
    def length(text: str) -> int:
        return text  # type: ignore[return-value]

    with pytest.raises(WRONG):
        checked(length, typechecker=beartype.beartype)("abc")


def test_a_function_inside_another_one_is_checked_the_first_time() -> None:
    def make() -> Callable[[int], int]:
        def twice(n: int) -> int:
            return 2 * n

        return checked(twice, typechecker=beartype.beartype)

    first, second = make(), make()
    with pytest.raises(WRONG):
        first("a")  # type: ignore[arg-type]
    assert second("a") == "aa"  # type: ignore[arg-type]
