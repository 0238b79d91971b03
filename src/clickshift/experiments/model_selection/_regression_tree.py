"""Fully grown regression trees on few points, compiled because hundreds of thousands are fitted.

The CMIP paper fits 2,000 trees for each of 16 configurations and each set of metrics; with our metrics that makes
480,000. Compiled, they take seconds where scikit-learn's take minutes, and scikit-learn is not required. The splits are
those of its DecisionTreeRegressor: least squared error, thresholds half-way between values, features in single
precision that differ by more than 1e-7, and a random choice between equally good features.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from clickshift.core.random_streams import next_uniform, open_stream
from clickshift.core.rng import stream_key

_FEATURE_THRESHOLD = 1e-7
"""Values of a feature that differ by no more than this count as equal."""
_MIN_VARIANCE = 2.220446049250313e-16
"""A node with no more variance than this is not split."""


def predict_by_tree(
    x: Float[np.ndarray, "train feature"],
    y: Float[np.ndarray, " train"],
    x_new: Float[np.ndarray, "test feature"],
    *,
    rng: np.random.Generator,
) -> Float[np.ndarray, " test"]:
    """Predict new points with a tree grown on x and y; `rng` decides between equally good features."""
    state, out = np.empty(4, np.uint64), np.empty(len(x_new))
    _open(state, stream_key(rng))
    _grow(_single(x), np.asarray(y, np.float64), _single(x_new), state, out)
    return out


def two_fold_r2(
    x: Float[np.ndarray, "point feature"],
    y: Float[np.ndarray, " point"],
    order: Int[np.ndarray, "repeat point"],
    *,
    rng: np.random.Generator,
) -> Float[np.ndarray, "repeat fold"]:
    """Adjusted R2 of two-fold cross-validation: each half of the points is predicted by a tree grown on the other.

    The rows of `order` are permutations of the points; the first half of a row is the first fold. R2 is adjusted for
    the number p of features: 1 - (1 - R2) (n - 1) / (n - p - 1) with n points in the predicted half. NaN where there
    are too few points.
    """
    out = np.empty((len(order), 2))
    _two_folds(_single(x), np.asarray(y, np.float64), np.ascontiguousarray(order, np.int64), stream_key(rng), out)
    return out


def _single(x: np.ndarray) -> np.ndarray:
    """Round to single precision."""
    return np.ascontiguousarray(np.asarray(x, np.float32), np.float64)


@njit(cache=True, nogil=True)
@no_type_check
def _open(state, key):
    """Open a random stream."""
    open_stream(state, key, 0)


@njit(cache=True, nogil=True)
@no_type_check
def _two_folds(x, y, order, key, out):
    """Kernel of `two_fold_r2`."""
    n, features = x.shape
    first = n - n // 2  # with an odd number of points, the first fold has one more
    state = np.empty(4, np.uint64)
    for repeat in range(len(order)):
        open_stream(state, key, repeat)
        for fold in range(2):
            points = order[repeat]
            test, train = (points[:first], points[first:]) if fold == 0 else (points[first:], points[:first])
            predicted = np.empty(len(test))
            _grow(x[train], y[train], x[test], state, predicted)
            mean = y[test].mean()
            error, spread = 0.0, 0.0
            for i in range(len(test)):
                error += (y[test[i]] - predicted[i]) ** 2
                spread += (y[test[i]] - mean) ** 2
            freedom = len(test) - features - 1
            if freedom > 0 and spread > 0:
                out[repeat, fold] = 1 - error / spread * (len(test) - 1) / freedom
            else:
                out[repeat, fold] = np.nan


@njit(cache=True, nogil=True)
@no_type_check
def _grow(x, y, x_new, state, out):
    """Grow a tree on x and y and write the predictions of the new points to `out`.

    The points of a node are a slice of `member`, and the new points that reach it are a slice of `reached`: no tree is
    stored, and branches that no new point reaches are not grown.
    """
    n, features = x.shape
    member, reached = np.arange(n), np.arange(len(x_new))
    ordered, chosen, shuffled = np.empty(n, np.int64), np.empty(n, np.int64), np.arange(features)
    stack = np.empty((2 * n + 1, 4), np.int64)
    stack[0] = (0, n, 0, len(x_new))
    depth = 1
    while depth > 0:
        depth -= 1
        begin, end, new_begin, new_end = stack[depth]
        if new_begin == new_end:
            continue
        size, total, square = end - begin, 0.0, 0.0
        for i in range(begin, end):
            total += y[member[i]]
            square += y[member[i]] ** 2
        mean = total / size
        best, best_feature, best_left, threshold = -np.inf, -1, 0, 0.0
        if size > 1 and square / size - mean * mean > _MIN_VARIANCE:
            for k in range(features):
                swap = k + int(next_uniform(state) * (features - k))
                shuffled[k], shuffled[swap] = shuffled[swap], shuffled[k]
                f = shuffled[k]
                _sort(member, begin, end, x, f, ordered)
                left_total = 0.0
                for i in range(1, size):
                    left_total += y[ordered[i - 1]]
                    low, high = x[ordered[i - 1], f], x[ordered[i], f]
                    if high <= low + _FEATURE_THRESHOLD:
                        continue
                    gain = left_total * left_total / i + (total - left_total) ** 2 / (size - i)
                    if gain > best:
                        best, best_feature, best_left, threshold = gain, f, i, low / 2 + high / 2
                if best_feature == f:
                    chosen[:size] = ordered[:size]
        if best_feature < 0:
            for i in range(new_begin, new_end):
                out[reached[i]] = mean
            continue
        member[begin:end] = chosen[:size]
        middle = new_begin
        for i in range(new_begin, new_end):
            if x_new[reached[i], best_feature] <= threshold:
                reached[i], reached[middle] = reached[middle], reached[i]
                middle += 1
        stack[depth] = (begin, begin + best_left, new_begin, middle)
        stack[depth + 1] = (begin + best_left, end, middle, new_end)
        depth += 2


@njit(cache=True, nogil=True)
@no_type_check
def _sort(member, begin, end, x, feature, ordered):
    """Sort the members of a node by a feature: few by insertion, more than 64 by argsort."""
    size = end - begin
    if size > 64:
        values = np.empty(size)
        for i in range(size):
            values[i] = x[member[begin + i], feature]
        ordered[:size] = member[begin:end][np.argsort(values)]
        return
    for i in range(size):
        point = member[begin + i]
        value, j = x[point, feature], i
        while j > 0 and x[ordered[j - 1], feature] > value:
            ordered[j] = ordered[j - 1]
            j -= 1
        ordered[j] = point
