"""Every command warns of a log that is severely wrong, at a cost that nobody notices."""

from __future__ import annotations

import numpy as np
import pytest

import clickshift as cs
from clickshift.counts.severe_defects import severe_defects, warn_of_severe_defects
from tests.codes import warns_code
from tests.planted_logs import DEFECTS, WHOLE, Log, clean_log


@pytest.fixture(scope="module")
def clean() -> Log:
    return clean_log(np.random.default_rng(5), 12_000)


@pytest.mark.parametrize(
    ("defect", "share"), [("rank-base", 1.0), ("clicks-everything", 0.05), ("dominant-query", 0.6)]
)
def test_what_is_found_is_severe_for_the_doctor(clean: Log, defect: str, share: float) -> None:
    log = (DEFECTS | WHOLE)[defect](clean, share, np.random.default_rng(1))[0].sessions()
    assert list(severe_defects(log)) == [defect]
    assert [finding.check for finding in cs.check_log(log, effects=False).at_least("severe")] == [defect]
    with warns_code("log-health", checks=[defect]):
        warn_of_severe_defects(log)


def test_clean_and_small_logs_pass(clean: Log) -> None:
    assert severe_defects(clean.sessions()) == {}
    bots = DEFECTS["clicks-everything"](clean, 0.05, np.random.default_rng(1))[0]
    assert severe_defects(bots.rows(np.arange(9_000)).sessions()) == {}


def test_commands_warn(clean: Log) -> None:
    bots = DEFECTS["clicks-everything"](clean, 0.05, np.random.default_rng(1))[0].sessions()
    with warns_code("log-health"):
        cs.fit("PBM", bots)
    with warns_code("log-health"):
        cs.propensities(bots, replicates=20)
