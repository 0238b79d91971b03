"""The checks of types and shapes that run with the tests find what they are there for."""

from __future__ import annotations

from collections.abc import Callable

import beartype
import numpy as np
import pytest
from jaxtyping import Float

from clickshift.core.text import join_words
from tests.runtime_types import checked

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
