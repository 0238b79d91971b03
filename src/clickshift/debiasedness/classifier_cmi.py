"""Conditional mutual information by classification, the published estimator of CMIP.

Half of the rows are the joint sample P. The sample Q is the same half with the logging score of each row resampled from
rows of the other half with the same label: given the label, estimate and logging score are independent in Q.
I(estimate; logging | label) is the divergence KL(P || Q). A classifier of P against Q, fitted on halves of both, gives
the odds r = p / (1 - p) on the other halves, and the Donsker-Varadhan bound of the divergence is

    mean of ln r over P  -  ln of the mean of r over Q

An overfitted classifier is overconfident on held-out rows: the estimate is far below the truth where rows are few, and
below 0 without any dependence. Compare such values only between models on the same rows.

References
----------
Sen, R., Suresh, A. T., Shanmugam, K., Dimakis, A. G., Shakkottai, S. (2017). Model-powered conditional independence
test. NeurIPS.
Mukherjee, S., Asnani, H., Kannan, S. (2019). CCMI: classifier based conditional mutual information estimation. UAI.
(algorithm 1)
Deffayet, R., Hager, P., Renders, J.-M., de Rijke, M. (2023). An offline metric for the debiasedness of click models.
SIGIR.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations_with_replacement
from typing import final

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.core.boosting import check_trees, lightgbm_settings
from clickshift.core.newton import halved_steps, maximise
from clickshift.core.parallel import for_each
from clickshift.core.rng import generator, stream_key
from clickshift.debiasedness.scored_pairs import ScoredPairs
from clickshift.errors import DataError, SpecError

FEWEST_ROWS = 100
"""Smallest number of rows: a quarter of them is fitted, and trees have at least 20 rows per leaf."""
_MAX_NEWTON_STEPS = 100
_NEWTON_TOLERANCE = 1e-6
"""Newton decrement, in nats over the whole sample, below which the fit has converged."""


@final
@dataclass(frozen=True)
class BoostedTrees:
    """Boosted trees with LightGBM's defaults for classification, as in the published code.

    Parameters
    ----------
    trees
        Number of trees.
    leaves
        Number of leaves per tree.
    rate
        Learning rate.

    Raises
    ------
    SpecError
        "bad-option" if an option is out of range.
    """

    trees: int = 100
    leaves: int = 31
    rate: float = 0.1

    def __post_init__(self) -> None:
        check_trees("BoostedTrees", trees=self.trees, leaves=self.leaves, rate=self.rate)

    def prob(
        self,
        train: Float[np.ndarray, "train feature"],
        is_real: Bool[np.ndarray, " train"],
        test: Float[np.ndarray, "test feature"],
    ) -> Float[np.ndarray, " test"]:
        """Fit the classifier and return the probability that each test row is a real one.

        Parameters
        ----------
        train
            Features of the training rows.
        is_real
            Whether each training row is real, not resampled.
        test
            Features of the test rows.
        """
        import lightgbm

        # one thread, because several fits run in parallel: a fit this small spends its time waiting for its own threads
        settings = lightgbm_settings("binary", leaves=self.leaves, rate=self.rate, threads=1)
        data = lightgbm.Dataset(train, is_real.astype(np.float32))
        fitted = lightgbm.train(settings, data, num_boost_round=self.trees)
        return np.asarray(fitted.predict(test))


@final
@dataclass(frozen=True)
class Logistic:
    """Logistic regression on all products of up to `degree` features, penalised by |weights|^2 / 2.

    Scores that are Gaussian within labels have a log density ratio of degree 2: there it is well specified, which trees
    never are.

    Parameters
    ----------
    degree
        Largest degree of the products.

    Raises
    ------
    SpecError
        "bad-option" if the degree is below 1.
    """

    degree: int = 2

    def __post_init__(self) -> None:
        if self.degree < 1:
            raise SpecError(
                f"the degree must be at least 1: got {self.degree}.",
                code="bad-option",
                option="degree",
                value=self.degree,
            )

    def prob(
        self,
        train: Float[np.ndarray, "train feature"],
        is_real: Bool[np.ndarray, " train"],
        test: Float[np.ndarray, "test feature"],
    ) -> Float[np.ndarray, " test"]:
        """Fit the classifier and return the probability that each test row is a real one.

        Parameters
        ----------
        train
            Features of the training rows.
        is_real
            Whether each training row is real, not resampled.
        test
            Features of the test rows.
        """
        from scipy.special import expit

        spread = train.std(axis=0)
        centre, scale = train.mean(axis=0), np.where(spread > 0, spread, 1.0)
        weight = _logistic_regression(self._products((train - centre) / scale), is_real)
        prob: np.ndarray = expit(self._products((test - centre) / scale) @ weight)
        return prob

    def _products(self, x: np.ndarray) -> np.ndarray:
        """Return all products of up to `degree` features, the constant first."""
        chosen = (
            c for degree in range(self.degree + 1) for c in combinations_with_replacement(range(x.shape[1]), degree)
        )
        return np.column_stack([x[:, list(columns)].prod(axis=1) for columns in chosen])


@final
@dataclass(frozen=True)
class Classifier:
    """Estimator of conditional mutual information by classification, in nats.

    The defaults are the paper's; `as_library` gives those of the authors' package. Relevance that is not graded needs
    `neighbours`.

    Parameters
    ----------
    splits
        Number of random splits of the rows into two halves.
    fits
        Number of classifiers per split.
    clip
        Distance from 0 and 1 to which probabilities are clipped.
    neighbours
        If set, a logging score is resampled from this many rows of the other half with the nearest labels, including
        all equally near ones. On grades it matters only for a grade with fewer rows there. None resamples from rows of
        equal label.
    by
        Classifier.
    same_split
        Whether to split the rows the same way every time: the variance between splits is then not averaged out.
    keep_unmatched
        Whether to keep a row unchanged if no row of the other half has its label; its dependence is then not measured.
        Otherwise such a row is an error.

    Raises
    ------
    SpecError
        "bad-option" if an option is out of range.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> label = rng.integers(5, size=4000)
    >>> logging = label + rng.normal(size=4000)
    >>> rows = ScoredPairs.of(np.arange(4000), estimate=logging, logging=logging, label=label)
    >>> Classifier(splits=1, fits=1)(rows, rng) > 1
    True
    """

    splits: int = 3
    fits: int = 5
    clip: float = 0.01
    neighbours: int | None = None
    by: BoostedTrees | Logistic = BoostedTrees()
    same_split: bool = False
    keep_unmatched: bool = False

    def __post_init__(self) -> None:
        if self.splits < 1 or self.fits < 1:
            raise SpecError(
                f"splits and fits must be at least 1: got {self.splits} and {self.fits}.",
                code="bad-option",
                splits=self.splits,
                fits=self.fits,
            )
        if not 0 < self.clip < 0.5:
            raise SpecError(
                f"clip must be between 0 and 0.5: got {self.clip}.", code="bad-option", option="clip", value=self.clip
            )
        if self.neighbours is not None and self.neighbours < 1:
            raise SpecError(
                f"neighbours must be at least 1, or None for equal labels: got {self.neighbours}.",
                code="bad-option",
                option="neighbours",
                value=self.neighbours,
            )

    @classmethod
    def as_library(cls) -> Classifier:
        """Return the estimator of the authors' package cmip-metric 0.1.2, but for its unseeded random numbers."""
        return cls(splits=5, fits=5, clip=1e-8, same_split=True, keep_unmatched=True)

    def __call__(self, rows: ScoredPairs, rng: np.random.Generator) -> float:
        """Estimate I(estimate; logging | label).

        Parameters
        ----------
        rows
            Judged pairs with estimates and logging scores.
        rng
            Random generator of the splits and of the resampling.

        Raises
        ------
        DataError
            "too-few-rows" for fewer than 100 rows; "unmatched-label" if a label occurs in only one half.
        """
        check_row_count(rows)
        key = stream_key(rng)
        samples = [self._samples(rows, key, split) for split in range(self.splits)]
        values = np.empty((self.splits, self.fits))

        def work(k: int) -> None:
            split, fit = divmod(k, self.fits)
            values[split, fit] = self._divergence(*samples[split], generator(key, "fit", split, fit))

        for_each(work, values.size)
        return float(values.mean())

    def _samples(self, rows: ScoredPairs, key: int, split: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the samples P and Q of one split."""
        order = generator(key, "split", 0 if self.same_split else split).permutation(len(rows))
        real, others = (rows[half] for half in np.array_split(order, 2))
        resampled = sample_conditionally(
            real,
            others,
            rng=generator(key, "mimic", split),
            neighbours=self.neighbours,
            keep_unmatched=self.keep_unmatched,
        )
        return feature_matrix(real), feature_matrix(resampled)

    def _divergence(self, real: np.ndarray, resampled: np.ndarray, rng: np.random.Generator) -> float:
        """Return the Donsker-Varadhan bound of one classifier.

        P and Q are split independently: a row may be a training row in one and a test row in the other, as in the
        paper.
        """
        real_train, real_test = _random_halves(real, rng)
        resampled_train, resampled_test = _random_halves(resampled, rng)
        is_real = np.arange(len(real_train) + len(resampled_train)) < len(real_train)
        prob = self.by.prob(
            np.concatenate((real_train, resampled_train)), is_real, np.concatenate((real_test, resampled_test))
        ).clip(self.clip, 1 - self.clip)
        odds = prob / (1 - prob)
        return float(np.log(odds[: len(real_test)]).mean() - np.log(odds[len(real_test) :].mean()))


def check_row_count(rows: ScoredPairs) -> None:
    """Check that there are enough rows for a classifier.

    Raises
    ------
    DataError
        "too-few-rows" for fewer than 100 rows.
    """
    if len(rows) < FEWEST_ROWS:
        raise DataError(
            f"a classifier needs at least {FEWEST_ROWS} judged pairs: got {len(rows)}. Judge more, or use "
            "KSG, which needs fewer.",
            code="too-few-rows",
            count=len(rows),
        )


def feature_matrix(rows: ScoredPairs) -> Float[np.ndarray, "row feature"]:
    """Return the classifier's features: estimate, logging score and label, unscaled."""
    return np.column_stack((rows.estimate, rows.logging, rows.label))


def sample_conditionally(
    rows: ScoredPairs,
    others: ScoredPairs,
    *,
    rng: np.random.Generator,
    neighbours: int | None = None,
    keep_unmatched: bool = False,
) -> ScoredPairs:
    """Replace the logging score of each row by that of another row drawn from those of equal or nearest label.

    Parameters
    ----------
    rows
        Rows to resample.
    others
        Rows whose logging scores are drawn.
    rng
        Random generator.
    neighbours, keep_unmatched
        As in `Classifier`.

    Raises
    ------
    DataError
        "unmatched-label" if a label does not occur among the others; "too-few-rows" if `neighbours` exceeds their
        number.
    """
    order = np.argsort(others.label, kind="stable")
    other_label, logging = others.label[order], others.logging[order]
    if neighbours is None:
        begin = np.searchsorted(other_label, rows.label, "left")
        end = np.searchsorted(other_label, rows.label, "right")
    else:
        begin, end = _nearest_labels(other_label, rows.label, neighbours)
    matched = begin < end
    if not matched.all() and not keep_unmatched:
        raise DataError(
            "every label must occur in both of two random parts of the rows: "
            f"{rows.label[~matched][0]:g} is missing in one of them ({(~matched).sum():,} of {len(rows):,} rows have "
            "no match). Merge rare labels; if relevance is not graded, pass neighbours=1 or more.",
            code="unmatched-label",
            value=float(rows.label[~matched][0]),
            count=int((~matched).sum()),
        )
    drawn = rng.integers(begin[matched], end[matched])
    resampled = rows.logging.copy()
    resampled[matched] = logging[drawn]
    return rows.with_logging(resampled)


def _nearest_labels(
    sorted_labels: Float[np.ndarray, " sorted"], label: Float[np.ndarray, " row"], k: int
) -> tuple[Int[np.ndarray, " row"], Int[np.ndarray, " row"]]:
    """Return the range of the k sorted labels nearest to each label, extended to all that are as near as the last.

    >>> begin, end = _nearest_labels(np.array([0.0, 1.0, 1.0, 4.0]), np.array([0.9, 3.0]), 1)
    >>> begin.tolist(), end.tolist()
    ([1, 3], [3, 4])
    """
    n = len(sorted_labels)
    if k > n:
        raise DataError(
            f"neighbours must be at most the {n:,} rows to choose from: got {k:,}. A few are enough: more of them blur "
            "the label.",
            code="too-few-rows",
            count=n,
            neighbours=k,
        )
    at = np.searchsorted(sorted_labels, label)
    low, high = np.maximum(at - k, 0), np.minimum(at, n - k)
    for _ in range(k.bit_length()):  # bisection for the start of the window of k labels
        middle = (low + high) // 2
        beyond = sorted_labels[np.minimum(middle + k, n - 1)]
        later = (low < high) & (label - sorted_labels[middle] > beyond - label)
        low, high = np.where(later, middle + 1, low), np.where(later, high, middle)
    first, last = sorted_labels[low], sorted_labels[low + k - 1]
    radius = np.maximum(label - first, last - label)
    before, after = sorted_labels[np.maximum(low - 1, 0)], sorted_labels[np.minimum(low + k, n - 1)]
    first = np.where(label - before <= radius, before, first)
    last = np.where(after - label <= radius, after, last)
    return np.searchsorted(sorted_labels, first, "left"), np.searchsorted(sorted_labels, last, "right")


def _random_halves(sample: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Split a sample into two random halves."""
    return np.array_split(rng.permutation(sample), 2)


def _logistic_regression(terms: np.ndarray, is_real: np.ndarray) -> np.ndarray:
    """Fit the weights by Newton's method; the first term is the constant, which is not penalised."""
    start = np.zeros(terms.shape[1])
    look = partial(_LogisticLikelihood, terms, is_real)
    return maximise(look, start, tolerance=_NEWTON_TOLERANCE / 2, max_steps=_MAX_NEWTON_STEPS)[0].weight


class _LogisticLikelihood:
    """Penalised logistic likelihood at one point: a `core.newton.LocalModel`."""

    def __init__(self, terms: np.ndarray, is_real: np.ndarray, weight: np.ndarray) -> None:
        from scipy.special import expit

        self.weight, logit, penalty = weight, terms @ weight, np.r_[0.0, np.ones(terms.shape[1] - 1)]
        self.objective = -float(np.logaddexp(0, np.where(is_real, -logit, logit)).sum() + penalty @ weight**2 / 2)
        prob = expit(logit)
        self._gradient = terms.T @ (is_real - prob) - penalty * weight
        self._step = np.linalg.solve((terms.T * (prob * (1 - prob))) @ terms + np.diag(penalty), self._gradient)

    def expected_gain(self) -> float:
        """Return the expected gain of the Newton step."""
        return float(self._gradient @ self._step) / 2

    def candidates(self) -> Iterator[np.ndarray]:
        """Yield the Newton step, then half of it, and so on, while a gain is expected."""
        for step in halved_steps(self._step, longest=np.inf, times=_MAX_NEWTON_STEPS):
            if self._gradient @ step < _NEWTON_TOLERANCE:
                return
            yield self.weight + step
