"""What a fitted model keeps of its training log, on every way in and through its folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import clickshift as cs
from clickshift.counts.daily import DayCounts
from clickshift.data.sessions import Sessions


@pytest.fixture
def dated() -> Sessions:
    """A log of three days."""
    log = cs.simulate(cs.builtin_corpus(queries=5), cs.Uniform(), cs.users.PBM(), 90, rng=1)
    day = np.datetime64("2026-03-01") + np.arange(len(log)) % 3
    return Sessions(log.rankings, log.click, log.count, day.astype("M8[us]"))


def test_a_model_keeps_the_days_of_its_log(dated: Sessions, tmp_path: Path) -> None:
    cs.write_log(dated, tmp_path / "log.parquet")
    encoded = cs.encode_log(tmp_path / "log.parquet", tmp_path / "encoded").log
    for log in (dated, tmp_path / "log.parquet", encoded, DayCounts.of(dated)):
        cs.fit("dCTR", log).summary().write(tmp_path / "model")
        facts = cs.load_model(tmp_path / "model").summary().to_dict()
        assert (facts["first_time"][:10], facts["last_time"][:10]) == ("2026-03-01", "2026-03-03")
        assert facts["version"] == cs.__version__
        assert facts["fitted_at"] > "2026"
        assert len(facts["fingerprint"]) == 32


def test_a_log_without_times_has_no_days(dated: Sessions) -> None:
    model = cs.fit("dCTR", Sessions(dated.rankings, dated.click))
    assert model.evidence is not None
    assert model.evidence.first_time == model.evidence.last_time == ""
    assert "first_time" not in model.summary().to_dict()
