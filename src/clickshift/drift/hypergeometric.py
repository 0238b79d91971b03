"""Chance, if sessions were dealt to two days at random: the hypergeometric law, also of counts that are not whole."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def mean_deviation(
    marked: Float[np.ndarray, " n"], n: Float[np.ndarray, " n"], m: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """E|X - E X| of the number X of marked sessions among n, if `marked` of n + m were dealt at random.

    As De Moivre's for the binomial: 2 k (m - marked + k) P(X = k) / (n + m), k the first number above the mean.

    >>> mean_deviation(np.array([2.0]), np.array([2.0]), np.array([2.0])).round(6).tolist()  # 0, 1, 2: 1/6, 4/6, 1/6
    [0.333333]
    """
    total = n + m
    k = np.floor(marked * n / total + 1e-12) + 1
    log_prob = _log_choose(marked, k) + _log_choose(total - marked, n - k) - _log_choose(total, n)
    deviation: np.ndarray = 2 * k * np.maximum(m - marked + k, 0) / total * np.exp(log_prob)
    return deviation


def prob_none(
    marked: Float[np.ndarray, " n"], n: Float[np.ndarray, " n"], m: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """P(X = 0), as above: none of the marked sessions is among the n.

    >>> prob_none(np.array([1.0, 2.0, 3.0]), np.full(3, 2.0), np.full(3, 2.0)).round(6).tolist()
    [0.5, 0.166667, 0.0]
    """
    prob: np.ndarray = np.exp(_log_choose(m, marked) - _log_choose(n + m, marked))
    return prob


def _log_choose(n: np.ndarray, k: np.ndarray) -> np.ndarray:
    """-inf where there is no way to choose. Weighted counts need not be whole."""
    from scipy.special import gammaln

    inside = (k > -1) & (n - k > -1) & (n > -1)
    k = np.where(inside, k, 0)
    chosen: np.ndarray = np.where(
        inside, gammaln(n + 1) - gammaln(k + 1) - gammaln(np.where(inside, n - k, 0) + 1), -np.inf
    )
    return chosen
