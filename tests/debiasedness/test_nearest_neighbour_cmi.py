"""KSG against all pairs counted, closed forms and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import digamma

from clickshift.debiasedness.nearest_neighbour_cmi import KSG, _count_closer, _mutual_information
from clickshift.debiasedness.scored_pairs import ScoredPairs
from clickshift.errors import DataError
from tests.codes import raises_code


def counted(x: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """How many points are closer than the k-th neighbour in x and in y, from all distances."""
    dx, dy = abs(x[:, None] - x), abs(y[:, None] - y)
    distance = np.maximum(dx, dy)
    np.fill_diagonal(distance, np.inf)
    radius = np.sort(distance, axis=1)[:, k - 1, None]
    return np.stack([(dx < radius).sum(1) - 1, (dy < radius).sum(1) - 1], axis=1)


@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("slope", [0.0, 1.0, -5.0])
def test_counts_are_those_of_all_pairs(k: int, slope: float) -> None:
    rng = np.random.default_rng(k)
    n = 150
    u = rng.standard_normal(n)
    order = np.argsort(np.argsort(slope * u + rng.standard_normal(n)))
    x = np.arange(n) + rng.random(n)
    y = order[np.argsort(u)] + rng.random(n)
    closer = np.empty((n, 2), np.int64)
    _count_closer(0, n, x, y, np.sort(y), k, closer)
    np.testing.assert_array_equal(closer, counted(x, y, k))


@pytest.mark.parametrize(("correlation", "n", "off"), [(0.0, 200, 0.008), (0.3, 1000, 0.008), (0.7, 1000, 0.02)])
def test_nearly_unbiased_for_normal_scores(correlation: float, n: int, off: float) -> None:
    rng = np.random.default_rng(0)
    truth = -0.5 * np.log(1 - correlation**2)
    found = []
    for _ in range(100):
        x = rng.standard_normal(n)
        y = correlation * x + np.sqrt(1 - correlation**2) * rng.standard_normal(n)
        found.append(_mutual_information(np.exp(x), -y, 5, rng))  # a rank does not know the scale
    assert abs(np.mean(found) - truth) < off


def test_whole_ranks_would_be_biased() -> None:
    """Why ranks are moved at random: on whole numbers the same formula finds dependence where there is none."""
    rng = np.random.default_rng(0)
    n, k, whole, moved = 200, 5, [], []
    for _ in range(50):
        x, y = rng.permutation(n).astype(float), rng.permutation(n).astype(float)
        whole.append(digamma(k) + digamma(n) - digamma(counted(x, y, k) + 1).sum() / n)
        moved.append(_mutual_information(x, y, k, rng))
    assert np.mean(whole) > 0.03
    assert abs(np.mean(moved)) < 0.015


def test_agrees_with_scikit_learn_on_its_own_scale() -> None:
    from sklearn.feature_selection import mutual_info_regression

    rng = np.random.default_rng(3)
    x = rng.random(2000)
    y = (x + 0.3 * rng.random(2000)) % 1  # uniform margins: ranks hardly differ from values
    theirs = mutual_info_regression(x[:, None], y, n_neighbors=5, random_state=0)[0]
    assert _mutual_information(x, y, 5, rng) == pytest.approx(theirs, abs=0.05)


def test_ties_hold_no_dependence() -> None:
    rng = np.random.default_rng(4)
    found = [_mutual_information(np.zeros(300), np.arange(300.0), 5, rng) for _ in range(40)]
    assert abs(np.mean(found)) < 0.02


def test_labels_are_weighted_by_their_rows_and_rare_ones_left_out() -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal(3000)
    noise = rng.standard_normal(3000)
    label = np.repeat([0.0, 1.0], [2000, 1000])
    logging = np.where(label == 1, 0.7 * x + np.sqrt(0.51) * noise, noise)
    rare = ScoredPairs.of(
        np.arange(3004),
        estimate=np.r_[x, [0, 1, 2, 3]],
        logging=np.r_[logging, [0, 1, 2, 3]],
        label=np.r_[label, [2] * 4],
    )
    assert KSG()(rare, rng) == pytest.approx(-0.5 * np.log(0.51) / 3, abs=0.03)
    assert KSG().skipped(rare) == 4


def test_too_few_rows_say_what_to_do() -> None:
    rows = ScoredPairs.of([1, 1, 2], estimate=[1, 2, 3], logging=[1, 2, 3], label=[0.1, 0.2, 0.3])
    with raises_code("too-few-rows", DataError, count=1):
        KSG()(rows, np.random.default_rng(0))
