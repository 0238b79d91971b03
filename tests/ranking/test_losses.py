"""Losses against plain formulas in higher precision, their slopes, and where they are least."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_softmax

from clickshift.ranking import _losses as losses

jax = pytest.importorskip("jax")
Wide = np.longdouble
SCORES = np.array([-1e3, -200.0, -40.0, -3.0, -0.5, 0.0, 1e-4, 2.0, 17.0, 60.0, 1e3])
EXAMINED = (1.0, 0.999999, 0.5, 0.02, 1e-6)


def sigmoid(x):
    return 1 / (1 + np.exp(-Wide(x)))


def exact_click(score, examined, clicks, impressions):
    """-[c log(y o) + (n - c) log(1 - y o)], in 80 bits and with complements kept apart."""
    y, no = sigmoid(score), sigmoid(-Wide(score))
    log_skip = np.log((1 - Wide(examined)) + Wide(examined) * no)
    return -(Wide(clicks) * np.log(y * Wide(examined)) + (Wide(impressions) - Wide(clicks)) * log_skip)


def exact_slope(score, examined, clicks, impressions):
    """Its derivative: -c (1 - y) + (n - c) o y (1 - y) / (1 - o y)."""
    y, no, o = sigmoid(score), sigmoid(-Wide(score)), Wide(examined)
    return -Wide(clicks) * no + (Wide(impressions) - Wide(clicks)) * o * y * no / ((1 - o) + o * no)


@pytest.mark.parametrize("examined", EXAMINED)
@pytest.mark.parametrize(("clicks", "impressions"), [(0.0, 1.0), (1.0, 1.0), (3.0, 700.0)])
def test_the_click_loss_at_any_logit(examined, clicks, impressions) -> None:
    o = losses.log_examination(np.full(len(SCORES), examined))
    found = losses.click(SCORES, o, clicks, impressions)
    exact = exact_click(SCORES, examined, clicks, impressions).astype(float)
    np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-15 * impressions)


@pytest.mark.parametrize("examined", EXAMINED)
@pytest.mark.parametrize(("clicks", "impressions"), [(0.0, 1.0), (1.0, 1.0), (3.0, 700.0)])
def test_slopes_are_right_in_single_precision(examined, clicks, impressions) -> None:
    def total(score):
        o = losses.log_examination(jax.numpy.full(len(SCORES), examined, "float32"))
        return losses.click(score, o, clicks, impressions).sum()

    slope = np.asarray(jax.grad(total)(jax.numpy.asarray(SCORES, "float32")))
    exact = exact_slope(SCORES.astype(np.float32), np.float32(examined), clicks, impressions).astype(float)
    assert np.isfinite(slope).all()
    np.testing.assert_allclose(slope, exact, rtol=2e-5, atol=1e-6 * impressions * examined)


def test_learned_examination() -> None:
    logits = np.array([-900.0, -30.0, -1.0, 0.0, 2.5, 36.0, 900.0])
    found = losses.log_examination_from_logit(logits)
    np.testing.assert_allclose(found.yes[1:], -np.log1p(np.exp(-Wide(logits[1:]))).astype(float), rtol=1e-12)
    np.testing.assert_allclose(found.no[:-1], -np.log1p(np.exp(Wide(logits[:-1]))).astype(float), rtol=1e-12)
    assert found.yes[0] == -900
    assert found.no[-1] == -900

    def total(pair):
        return losses.click(pair[0], losses.log_examination_from_logit(pair[1]), 1.0, 3.0).sum()

    both = np.array(np.meshgrid(logits, logits), np.float32).reshape(2, -1)
    assert np.isfinite(np.asarray(jax.grad(total)(jax.numpy.asarray(both)))).all()


def test_pointwise_losses() -> None:
    y = sigmoid(SCORES[2:-2])
    exact = -(Wide(2.5) * np.log(y) + (4 - Wide(2.5)) * np.log(sigmoid(-SCORES[2:-2])))
    np.testing.assert_allclose(losses.pointwise(SCORES[2:-2], 2.5, 4.0), exact.astype(float), rtol=1e-12)
    slope = jax.grad(lambda s: losses.pointwise(s, 2.5, 4.0).sum())(jax.numpy.asarray(SCORES, "float32"))
    np.testing.assert_allclose(slope, (4 * sigmoid(SCORES) - 2.5).astype(float), rtol=1e-5, atol=1e-6)


def test_a_label_above_one_has_no_bound() -> None:
    assert losses.pointwise(np.array([1e2, 1e4, 1e6]), 10.0, 1.0).tolist() == [-900, -90_000, -9_000_000]
    assert (losses.click(SCORES, losses.log_examination(np.full(11, 0.1)), 1.0, 1.0) >= 0).all()


def test_naive_losses_are_the_same_to_the_last_bit() -> None:
    clicks = jax.numpy.asarray([0.0, 1.0, 0.25], "float32")[:, None]
    scores = jax.numpy.asarray(np.concatenate([SCORES, np.random.default_rng(1).normal(size=500) * 9]), "float32")
    everyone = losses.log_examination(jax.numpy.ones_like(scores))

    def total(loss):
        return jax.value_and_grad(lambda s: loss(s).sum())(scores)

    pbm = total(lambda s: losses.click(s, everyone, clicks, 1.0))
    ips = total(lambda s: losses.pointwise(s, clicks, 1.0))
    assert pbm[0] == ips[0]
    assert (pbm[1] == ips[1]).all()


@pytest.mark.parametrize("examined", [1.0, 0.5, 0.1])
def test_the_click_loss_is_least_at_the_click_rate_over_examination(examined) -> None:
    o = losses.log_examination(np.array([examined]))
    least = minimize_scalar(lambda s: losses.click(np.array([s]), o, 4.0 * examined, 10.0)[0], bracket=(-3, 3))
    assert float(sigmoid(least.x)) == pytest.approx(0.4, abs=1e-5)


def test_two_documents_with_the_same_features() -> None:
    """Figure 2 of the IPS paper: relevance .1 seen by all, .9 seen by a tenth."""
    y, o = np.array([0.1, 0.9]), np.array([1.0, 0.1])
    examined = losses.log_examination(o)
    pbm = minimize_scalar(lambda s: losses.click(np.full(2, s), examined, o * y, 1.0).sum(), bracket=(-3, 3))
    ips = minimize_scalar(lambda s: losses.pointwise(np.full(2, s), y, 1.0).sum(), bracket=(-3, 3))
    root = brentq(lambda r: (o * y / r - (1 - o * y) * o / (1 - o * r)).sum(), 1e-6, 1 - 1e-6)
    assert float(sigmoid(pbm.x)) == pytest.approx(root, abs=1e-5)
    assert float(sigmoid(pbm.x)) == pytest.approx(0.1627, abs=5e-5)
    assert float(sigmoid(ips.x)) == pytest.approx(0.5, abs=1e-5)


def test_listwise() -> None:
    score, positive = np.array([3.0, -1.0, 500.0, 2.0]), np.array([1.0, 0.0, 2.5, 0.5])
    normaliser = np.full(4, np.log(np.exp(score - 500).sum()) + 500)
    np.testing.assert_allclose(losses.listwise(score, normaliser, positive), -positive * log_softmax(score))
