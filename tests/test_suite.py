"""The suite's own rules: see tests/suite.py."""

from __future__ import annotations

import gc
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import clickshift
from tests.suite import COSTS, _Costs, by_cost, file_of, has_doctests


def test_files_that_cost_most_come_first_and_stay_together() -> None:
    names = ["a.py::one", "b.py::one", "b.py::two[x::y]", "c.py::one", "d.py::one", "a.py::two"]
    ordered = by_cost([SimpleNamespace(nodeid=name) for name in names], {"c.py": 2.5, "d.py": 7.0})
    assert [item.nodeid for item in ordered] == [
        "d.py::one", "c.py::one", "a.py::one", "a.py::two", "b.py::one", "b.py::two[x::y]",
    ]  # fmt: skip
    assert file_of("b.py::two[x::y]") == "b.py"


def test_known_costs_are_those_of_files_that_are_there() -> None:
    costs = json.loads(COSTS.read_text(encoding="utf-8"))
    assert costs
    missing = [name for name in costs if not (COSTS.parents[1] / name).exists()]
    assert missing == [], "write them again: pytest -n auto --dist loadfile --write-costs"


def test_doctests_are_those_of_the_package_and_tests_have_none() -> None:
    assert has_doctests(Path(clickshift.__file__))
    tests = sorted(COSTS.parent.rglob("*.py"))
    assert not any(map(has_doctests, tests))
    assert [str(file) for file in tests if re.search(r"^ *>>> ", file.read_text(encoding="utf-8"), re.MULTILINE)] == []


def test_garbage_of_tests_is_collected() -> None:
    assert gc.isenabled()
    assert gc.get_freeze_count() > 100_000, "modules are there for the whole run"


def test_a_test_that_is_too_expensive_may_pass_when_it_runs_again_by_itself(pytestconfig: pytest.Config) -> None:
    costs = _Costs(pytestconfig)
    costs._limit = 10
    assert costs._passes_alone(f"{Path(__file__)}::{test_files_that_cost_most_come_first_and_stay_together.__name__}")
