"""Figures 2 and 3 and the gradients of the IPS paper, against the paper's numbers and plain differences."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift.experiments.click_vs_ips.data import PointwiseData
from clickshift.experiments.click_vs_ips.losses import (
    CLICK_LOSS,
    IPS_LOSS,
    GradientByRank,
    LossByRank,
    SharedFeatures,
    click_loss,
    ips_loss,
)
from tests.golden import golden

GOLDEN = golden("pointwise")


def test_figure_2() -> None:
    case, rows = GOLDEN["figure2"], SharedFeatures().rows()
    least = {(row["model"], row["document"]): row for row in rows if row["kind"] == "least"}
    assert least[CLICK_LOSS, 0]["relevance"] == pytest.approx(case["pbm"], abs=case["tolerance"])
    assert least[IPS_LOSS, 0]["relevance"] == pytest.approx(case["ips"], abs=case["tolerance"])
    assert least[CLICK_LOSS, 0]["loss"] == pytest.approx(case["pbm_loss"], abs=0.0005)
    assert least[IPS_LOSS, 0]["loss"] == pytest.approx(case["ips_loss"], abs=0.0005)
    for model in (CLICK_LOSS, IPS_LOSS):
        for document, relevance in enumerate(case["relevance"], 1):
            assert least[model, document]["relevance"] == pytest.approx(relevance)
            curve = [row for row in rows if (row["model"], row["document"], row["kind"]) == (model, document, "loss")]
            assert min(curve, key=lambda row: row["loss"])["relevance"] == pytest.approx(relevance), "on the grid too"


def test_figure_3() -> None:
    case, rows = GOLDEN["figure3"], LossByRank().rows()
    for model, expected in ((CLICK_LOSS, case["pbm"]), (IPS_LOSS, [case["ips"]] * 10)):
        least = [row for row in rows if row["kind"] == "least" and row["model"] == model]
        assert [row["rank"] for row in least] == list(range(1, 11))
        assert [row["loss"] for row in least] == pytest.approx(expected, abs=case["tolerance"])
        assert [row["relevance"] for row in least] == pytest.approx([case["relevance"]] * 10)


def test_losses_at_the_ends_are_finite_where_they_may_be() -> None:
    y, o = np.array([0.0, 1.0]), np.array([0.5, 1.0])
    assert click_loss(y, o, y).tolist() == [0.0, 0.0]
    assert ips_loss(y, o, y).tolist() == [0.0, 0.0]
    assert click_loss(np.array([0.5]), np.array([0.5]), np.array([0.0]))[0] == np.inf


def test_gradients_are_those_of_the_losses() -> None:
    """Unlimited clicks: the slope of the expected losses at logit 0, by differences, averaged over ranks."""
    data = PointwiseData(documents=2500)
    rows, step = GradientByRank(data, (None,)).rows(), 1e-5
    engine = data.engine(0)
    y, rank = 0.1 + 0.9 * engine.parts.train.gain, engine.train.rank
    o = 1 / (rank + 1.0)
    for model, loss in ((CLICK_LOSS, click_loss), (IPS_LOSS, ips_loss)):
        high, low = (loss(y, o, np.full_like(y, 1 / (1 + np.exp(-s)))) for s in (step, -step))
        slope = np.abs(high - low) / (2 * step)
        expected = [slope[rank == k].mean() for k in range(25)]
        assert [row["gradient"] for row in rows if row["model"] == model] == pytest.approx(expected, abs=1e-6)


def test_the_click_loss_hardly_hears_of_low_ranks_and_ips_hears_noise() -> None:
    rows = GradientByRank(sessions_per_query=(None, 10)).rows()

    def at(model: str, sessions: int | None, rank: int) -> float:
        return next(
            row["gradient"]
            for row in rows
            if (row["model"], row["sessions_per_query"], row["rank"]) == (model, sessions, rank)
        )

    assert at(CLICK_LOSS, None, 25) < at(CLICK_LOSS, None, 1) / 30
    assert at(IPS_LOSS, None, 25) == pytest.approx(at(IPS_LOSS, None, 1), rel=0.15)
    assert at(IPS_LOSS, 10, 25) > 2 * at(IPS_LOSS, None, 25)
