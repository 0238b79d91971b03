"""Propensities by segment: a curve for each label, in files and figures, from any method."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from clickshift.counts.cells import Cells
from clickshift.data.sessions import Sessions
from clickshift.learners.fit import fit
from clickshift.models.storage import save_model
from clickshift.propensity.estimate import Propensities, propensities, read_propensities
from tests.codes import raises_code
from tests.learners.segmented_log import FLAT, STEEP, segmented_log

pytestmark = pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")


@pytest.fixture(scope="module")
def log() -> Sessions:
    return segmented_log(sessions=12_000)[0]


@pytest.fixture(scope="module")
def curves(log: Sessions) -> Propensities:
    return propensities(log, by="device", replicates=20)


def test_each_label_has_the_curve_of_its_sessions(log: Sessions, curves: Propensities) -> None:
    code = log.segments["device"].code
    for k, (label, truth) in enumerate((("desktop", FLAT), ("phone", STEEP / STEEP[0]))):
        own = curves.segments[label]
        np.testing.assert_allclose(own.estimate, truth, atol=0.1)
        np.testing.assert_allclose(own.estimate, propensities(log[np.flatnonzero(code == k)], replicates=20).estimate)
    np.testing.assert_allclose(curves.estimate, propensities(log, replicates=20).estimate)
    assert curves.by == "device"
    assert curves.p_value < 1e-9
    assert "desktop: By harvesting" in curves.conclusion
    assert [row["segment"] for row in curves.rows()] == ["desktop"] * 6 + ["phone"] * 6


def test_the_figure_has_a_line_for_each_label(curves: Propensities) -> None:
    from clickshift.propensity.result import _curve_figure

    names = [trace.name for trace in _curve_figure(curves).data if trace.name]
    assert {"desktop", "phone"} <= set(names)


def test_files_keep_segments(curves: Propensities, tmp_path: Path) -> None:
    curves.write(tmp_path / "curve.json")
    again = read_propensities(tmp_path / "curve.json")
    assert again.facts() == curves.facts()
    curves.write(tmp_path / "curve.csv")
    assert (tmp_path / "curve.csv").read_text().startswith('"segment","rank","examination"')


@pytest.mark.parametrize("method", ["PBM", "folder"])
def test_click_models_follow_the_segment(log: Sessions, method: str, tmp_path: Path) -> None:
    if method == "folder":
        save_model(fit("PBM", log, by="device"), tmp_path)
        found = propensities(log, tmp_path)
    else:
        found = propensities(log, "PBM", by="device")
    for own, truth in zip(found.segments.values(), (FLAT, STEEP / STEEP[0]), strict=True):
        np.testing.assert_allclose(own.estimate, truth, atol=0.06)
        assert (own.low[1:] < own.estimate[1:]).all()
        assert (own.high[1:] > own.estimate[1:]).all()


def test_counts_have_no_segments(log: Sessions) -> None:
    with raises_code("needs-sessions"):
        propensities(Cells.of(log), by="device")
    with raises_code("no-segment", known=["device"]):
        propensities(log, by="country")
