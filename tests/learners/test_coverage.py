"""Intervals hold the truth about as often as they say; `benchmarks/interval_coverage.py` measures it at length."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


def benchmark() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "interval_coverage.py"
    spec = importlib.util.spec_from_file_location("interval_coverage", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", benchmark().NAMES)
def test_intervals_cover_at_their_nominal_rate(name: str) -> None:
    for parameter, hits in benchmark().coverage(name, repeats=15, sessions=4000).items():
        share = float(np.mean(hits))
        if parameter in {"attractiveness", "satisfaction", "relevance"}:
            assert 0.92 < share < 0.985, parameter
        else:  # few shared parameters: fifteen draws only show that the errors are not absurd
            assert share > 0.75, parameter
