"""The suite's own rules: see tests/suite.py."""

from __future__ import annotations

import json
from types import SimpleNamespace

from tests.suite import COSTS, by_cost, file_of


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
