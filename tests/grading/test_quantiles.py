"""One quantile grading, against loops over the sorted numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickshift.grading.quantiles import quantile_grades

POSITIONS = {  # the rank of a number among n, from 0, by which its share of the way up is measured
    "lowest": lambda below, equal: below,
    "middle": lambda below, equal: below + equal / 2,
    "highest": lambda below, equal: below + equal - 1e-9,  # just below the next number
}


@given(st.lists(st.integers(0, 9), min_size=1, max_size=50), st.integers(2, 7))
@pytest.mark.parametrize("by", POSITIONS)
def test_grades_are_shares_of_the_way_up(by: str, values: list[int], grades: int) -> None:
    n, raw = len(values), []
    for value in values:
        below, equal = sum(other < value for other in values), values.count(value)
        raw.append(int(POSITIONS[by](below, equal) * grades / n + 1e-12))
    numbered = {old: new for new, old in enumerate(sorted(set(raw)))}
    found = quantile_grades(np.array(values, float), grades, by=by)  # type: ignore[arg-type]
    assert found.tolist() == [numbered[old] for old in raw]
