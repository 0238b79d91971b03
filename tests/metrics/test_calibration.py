"""A user's own model is calibrated, a shifted one is not; groups and intervals by hand and by scipy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from clickshift import builtin_corpus, models, simulate
from clickshift.core.intervals import wilson_interval
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import CapabilityError, DataError
from clickshift.metrics.calibration import calibration
from clickshift.models.base import pair_table
from clickshift.policies.basic import Uniform
from clickshift.simulation import users
from tests.codes import raises_code
from tests.models.random_models import random_neural


def covered(rows: list[dict[str, Any]]) -> list[bool]:
    return [row["observed_low"] <= row["expected_ctr"] <= row["observed_high"] for row in rows]


@pytest.fixture(scope="module")
def world() -> tuple[Corpus, Sessions]:
    corpus = builtin_corpus(queries=50)
    return corpus, simulate(corpus, Uniform(), users.DBN(), 20_000, rng=11)


@pytest.mark.parametrize("kind", ["conditional", "marginal"])
def test_a_users_own_model_is_calibrated(world: tuple[Corpus, Sessions], kind: Any) -> None:
    corpus, log = world
    rows = calibration(users.DBN().on(corpus), log, kind=kind)
    inside = covered(rows)
    assert len(inside) >= 15
    assert sum(inside) >= 0.8 * len(inside), "95 % are expected"


def test_a_shifted_model_is_not(world: tuple[Corpus, Sessions]) -> None:
    corpus, log = world
    constant = models.GCTR(corpus.vocabulary, float(log.ctr_by_rank().mean()) + 0.05)
    rows = calibration(constant, log)
    assert [row["by"] for row in rows] == ["rank"] * 10 + ["decile"]
    assert not any(covered(rows))
    shifted = models.RCTR(corpus.vocabulary, log.ctr_by_rank() * 1.2)
    assert sum(covered(calibration(shifted, log))) <= 4


def test_rows_by_hand() -> None:
    words = Vocabulary.of([1, 1, 2], [1, 2, 3])[0]
    log = Sessions(
        Rankings(words, np.array([0, 1, 0]), np.array([[0, 1], [2, UNSEEN], [1, 0]])),
        np.array([[1, 0], [0, 0], [1, 1]]),
        np.array([2, 1, 1]),
    )
    model = models.DCTR(words, pair_table(np.array([0.5, 0.25, 0.1]), unseen=0.0))
    first, second, *deciles = calibration(model, log)
    # rank 1: pair 0 twice, pair 2 and pair 1 once each; rank 2: pair 1 twice, pair 0 once
    assert (first["by"], first["number"], first["impressions"]) == ("rank", 1, 4)
    assert first["expected_ctr"] == pytest.approx((2 * 0.5 + 0.1 + 0.25) / 4)
    assert first["observed_ctr"] == 3 / 4
    assert (first["prediction_low"], first["prediction_high"]) == (0.1, 0.5)
    assert (second["number"], second["impressions"], second["observed_ctr"]) == (2, 3, 1 / 3)
    assert second["expected_ctr"] == pytest.approx((2 * 0.25 + 0.5) / 3)
    # .1 is the first of 7 impressions, .25 the next 3, .5 the last 3: their middles are at .5/7, 2.5/7 and 5.5/7
    assert [(row["by"], row["number"], row["impressions"]) for row in deciles] == [
        ("decile", 1, 1),
        ("decile", 4, 3),
        ("decile", 8, 3),
    ]
    assert [row["prediction_low"] for row in deciles] == [0.1, 0.25, 0.5]
    assert [row["prediction_high"] for row in deciles] == [0.1, 0.25, 0.5]
    assert [row["expected_ctr"] for row in deciles] == pytest.approx([0.1, 0.25, 0.5])
    assert [row["observed_ctr"] for row in deciles] == pytest.approx([0, 1 / 3, 1])
    assert all(list(row) == list(first) for row in (second, *deciles))


def test_deciles_hold_a_tenth_of_the_impressions(world: tuple[Corpus, Sessions]) -> None:
    """As nearly as equal predictions, which stay together, allow."""
    corpus, log = world
    spread = np.random.default_rng(3).random(corpus.n_pairs)
    once = Sessions(log.rankings[:100], log.click[:100])
    model = models.DCTR(corpus.vocabulary, pair_table(spread, unseen=0.0))
    prob = np.sort(model.click_prob(once.rankings)[once.rankings.shown])
    rows = [row for row in calibration(model, once) if row["by"] == "decile"]
    assert [row["number"] for row in rows] == list(range(1, 11))
    for row in rows:
        assert row["impressions"] == pytest.approx(len(prob) / 10, abs=10)
        held = prob[(prob >= row["prediction_low"]) & (prob <= row["prediction_high"])]
        assert len(held) == row["impressions"], "no decile reaches into another"
        assert held.mean() == pytest.approx(row["expected_ctr"])


def test_counts_weigh_like_repeated_rows(world: tuple[Corpus, Sessions]) -> None:
    corpus, log = world
    count = np.random.default_rng(5).integers(1, 5, 200)
    merged = Sessions(log.rankings[:200], log.click[:200], count)
    apart = merged[np.repeat(np.arange(200), count)]
    apart = Sessions(apart.rankings, apart.click)
    model = users.DBN().on(corpus)
    for one, other in zip(calibration(model, merged), calibration(model, apart), strict=True):
        assert one == pytest.approx(other)


@pytest.mark.parametrize("level", [0.95, 0.5])
def test_wilson_interval_is_that_of_scipy(level: float) -> None:
    cases = [(0, 10), (10, 10), (3, 10), (1, 1), (120, 10_000), (9_999, 10_000)]
    low, high = wilson_interval(np.array([k for k, _ in cases], float), np.array([n for _, n in cases], float), level)
    for (k, n), *bounds in zip(cases, low, high, strict=True):
        expected = stats.binomtest(k, n).proportion_ci(level, method="wilson")
        assert bounds == pytest.approx([expected.low, expected.high], abs=1e-12)


def test_what_cannot_be_calibrated_is_refused(corpus: Corpus, log: Sessions) -> None:
    with raises_code("model-peeks", CapabilityError):
        calibration(random_neural("ARM_NC", corpus.vocabulary), log)
    with raises_code("level-out-of-range", DataError, value=95):
        calibration(users.DBN().on(corpus), log, level=95)
