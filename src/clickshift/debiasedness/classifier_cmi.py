"""CMIP as it was published: mimic rows without dependence, and see how well a classifier tells them from the real ones.

Half of the rows are the joint sample P. The mimicked sample Q is the same half with the logging score of each row taken
from a row of the other half that has the same label: given the label, estimate and logging score are independent there.
I(estimate; logging | label) is the divergence KL(P || Q). A classifier of P against Q, fitted on halves of both, gives
the odds r = p / (1 - p) of the other halves, and Donsker and Varadhan's bound of the divergence is

    mean of ln r over P  -  ln of the mean of r over Q

(Sen et al. 2017; Mukherjee et al. 2019, algorithm 1; Deffayet et al. 2023.) A classifier that has learned its training
rows by heart is sure of things that do not hold for others: the value is far below the truth where rows are few, and
below 0 without any dependence. Compare such values between models on the same rows only.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import final

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.core.parallel import for_each
from clickshift.core.rng import generator, stream_key
from clickshift.debiasedness.scored_pairs import ScoredPairs
from clickshift.errors import DataError, SpecError

FEWEST_ROWS = 100
"""Of fewer, a quarter of which are fitted, trees with 20 rows per leaf can hardly be made."""
_NEWTON_STEPS = 100
_CLOSE = 1e-6
"""Nats of the whole sample that another Newton step would gain at most."""


@final
@dataclass(frozen=True)
class BoostedTrees:
    """Boosted trees with LightGBM's defaults for classification, as in the published code."""

    trees: int = 100
    leaves: int = 31
    rate: float = 0.1

    def __post_init__(self) -> None:
        if self.trees < 1 or self.leaves < 2 or not self.rate > 0:
            raise SpecError(
                "Trees needs trees >= 1, leaves >= 2 and rate > 0: "
                f"got trees={self.trees}, leaves={self.leaves}, rate={self.rate}."
            )

    def prob(
        self,
        train: Float[np.ndarray, "train feature"],
        is_real: Bool[np.ndarray, " train"],
        test: Float[np.ndarray, "test feature"],
    ) -> Float[np.ndarray, " test"]:
        """The probability that each test row is a real one."""
        import lightgbm

        settings = {
            "objective": "binary",
            "num_leaves": self.leaves,
            "learning_rate": self.rate,
            # several fits run side by side instead: a fit this small spends its time waiting for its own threads
            "num_threads": 1,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }
        data = lightgbm.Dataset(train, is_real.astype(np.float32))
        fitted = lightgbm.train(settings, data, num_boost_round=self.trees)
        return np.asarray(fitted.predict(test))


@final
@dataclass(frozen=True)
class Logistic:
    """Logistic regression on all products of up to `degree` of the three numbers, penalised by |weights|^2 / 2.

    Within-label Gaussian scores have a log ratio of degree 2: there it is the right model, which trees never are.
    """

    degree: int = 2

    def __post_init__(self) -> None:
        if self.degree < 1:
            raise SpecError(f"the degree must be at least 1: got {self.degree}.")

    def prob(
        self,
        train: Float[np.ndarray, "train feature"],
        is_real: Bool[np.ndarray, " train"],
        test: Float[np.ndarray, "test feature"],
    ) -> Float[np.ndarray, " test"]:
        """The probability that each test row is a real one."""
        from scipy.special import expit

        spread = train.std(axis=0)
        centre, scale = train.mean(axis=0), np.where(spread > 0, spread, 1.0)
        weight = _logistic_regression(self._products((train - centre) / scale), is_real)
        prob: np.ndarray = expit(self._products((test - centre) / scale) @ weight)
        return prob

    def _products(self, x: np.ndarray) -> np.ndarray:
        chosen = (
            c for degree in range(self.degree + 1) for c in combinations_with_replacement(range(x.shape[1]), degree)
        )
        return np.column_stack([x[:, list(columns)].prod(axis=1) for columns in chosen])


@final
@dataclass(frozen=True)
class Classifier:
    """The published estimator, in nats. The defaults are the paper's; `as_library` gives those of its package.

    Relevance that is not graded needs `neighbours`: a logging score is then taken from one of that many rows of the
    other half whose labels are nearest, all of the equally near ones included. On grades it changes nothing but for a
    grade that has fewer rows there.

    >>> rng = np.random.default_rng(0)
    >>> label = rng.integers(5, size=4000)
    >>> logging = label + rng.normal(size=4000)
    >>> rows = ScoredPairs.of(np.arange(4000), estimate=logging, logging=logging, label=label)
    >>> Classifier(splits=1, fits=1)(rows, rng) > 1
    True
    """

    splits: int = 3
    """Times that rows are split in two and mimicked."""
    fits: int = 5
    """Classifiers per split."""
    clip: float = 0.01
    """Probabilities are kept this far from 0 and 1."""
    neighbours: int | None = None
    by: BoostedTrees | Logistic = BoostedTrees()
    same_split: bool = False
    """Split rows the same way every time: the spread between splits is then not averaged out."""
    keep_unmatched: bool = False
    """Leave a row as it is where no row of the other half has its label; its dependence then goes unseen. Else it is an
    error."""

    def __post_init__(self) -> None:
        if self.splits < 1 or self.fits < 1:
            raise SpecError(f"splits and fits must be at least 1: got {self.splits} and {self.fits}.")
        if not 0 < self.clip < 0.5:
            raise SpecError(f"the clip must be between 0 and 0.5: got {self.clip}.")
        if self.neighbours is not None and self.neighbours < 1:
            raise SpecError(f"neighbours must be at least 1, or None for equal labels: got {self.neighbours}.")

    @classmethod
    def as_library(cls) -> Classifier:
        """What the authors' package cmip-metric 0.1.2 does, but for its random numbers, which have no seed."""
        return cls(splits=5, fits=5, clip=1e-8, same_split=True, keep_unmatched=True)

    def __call__(self, rows: ScoredPairs, rng: np.random.Generator) -> float:
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
        """P and Q."""
        order = generator(key, "split", 0 if self.same_split else split).permutation(len(rows))
        real, others = (rows[half] for half in np.array_split(order, 2))
        mimicked = sample_conditionally(
            real,
            others,
            rng=generator(key, "mimic", split),
            neighbours=self.neighbours,
            keep_unmatched=self.keep_unmatched,
        )
        return feature_matrix(real), feature_matrix(mimicked)

    def _divergence(self, real: np.ndarray, mimicked: np.ndarray, rng: np.random.Generator) -> float:
        """Rows of P and Q are dealt independently: a row may be fitted and its twin be judged, as in the paper."""
        real_train, real_test = _halves(real, rng)
        mimicked_train, mimicked_test = _halves(mimicked, rng)
        is_real = np.arange(len(real_train) + len(mimicked_train)) < len(real_train)
        prob = self.by.prob(
            np.concatenate((real_train, mimicked_train)), is_real, np.concatenate((real_test, mimicked_test))
        ).clip(self.clip, 1 - self.clip)
        odds = prob / (1 - prob)
        return float(np.log(odds[: len(real_test)]).mean() - np.log(odds[len(real_test) :].mean()))


def check_row_count(rows: ScoredPairs) -> None:
    if len(rows) < FEWEST_ROWS:
        raise DataError(
            f"a classifier needs at least {FEWEST_ROWS} judged pairs: got {len(rows)}. Judge more, or use "
            "KSG, which needs fewer."
        )


def feature_matrix(rows: ScoredPairs) -> Float[np.ndarray, "row feature"]:
    """What the classifier sees, raw."""
    return np.column_stack((rows.estimate, rows.logging, rows.label))


def sample_conditionally(
    rows: ScoredPairs,
    others: ScoredPairs,
    *,
    rng: np.random.Generator,
    neighbours: int | None = None,
    keep_unmatched: bool = False,
) -> ScoredPairs:
    """The rows, each with the logging score of one of the others drawn from those of the same or of the nearest labels.

    `neighbours` and `keep_unmatched` are those of `Classifier`.
    """
    order = np.argsort(others.label, kind="stable")
    known, logging = others.label[order], others.logging[order]
    if neighbours is None:
        begin, end = np.searchsorted(known, rows.label, "left"), np.searchsorted(known, rows.label, "right")
    else:
        begin, end = _nearest_labels(known, rows.label, neighbours)
    matched = begin < end
    if not matched.all() and not keep_unmatched:
        raise DataError(
            "every label must occur in both of two random parts of the rows: "
            f"{rows.label[~matched][0]:g} is missing in one of them ({(~matched).sum():,} of {len(rows):,} rows have "
            "no match). Merge rare labels; if relevance is not graded, give neighbours=1 or more."
        )
    drawn = rng.integers(begin[matched], end[matched])
    mimicked = rows.logging.copy()
    mimicked[matched] = logging[drawn]
    return rows.with_logging(mimicked)


def _nearest_labels(
    known: Float[np.ndarray, " known"], label: Float[np.ndarray, " row"], k: int
) -> tuple[Int[np.ndarray, " row"], Int[np.ndarray, " row"]]:
    """Where, in sorted labels, the k nearest to each label begin and end, with all that are as near as the last.

    >>> begin, end = nearest(np.array([0.0, 1.0, 1.0, 4.0]), np.array([0.9, 3.0]), 1)
    >>> begin.tolist(), end.tolist()
    ([1, 3], [3, 4])
    """
    n = len(known)
    if k > n:
        raise DataError(
            f"neighbours must be at most the {n:,} rows to choose from: got {k:,}. A handful is enough: more of them "
            "blur the label."
        )
    at = np.searchsorted(known, label)
    low, high = np.maximum(at - k, 0), np.minimum(at, n - k)
    for _ in range(k.bit_length()):  # bisection of where the window of k begins
        middle = (low + high) // 2
        beyond = known[np.minimum(middle + k, n - 1)]
        later = (low < high) & (label - known[middle] > beyond - label)
        low, high = np.where(later, middle + 1, low), np.where(later, high, middle)
    first, last = known[low], known[low + k - 1]
    radius = np.maximum(label - first, last - label)
    before, after = known[np.maximum(low - 1, 0)], known[np.minimum(low + k, n - 1)]
    first = np.where(label - before <= radius, before, first)
    last = np.where(after - label <= radius, after, last)
    return np.searchsorted(known, first, "left"), np.searchsorted(known, last, "right")


def _halves(sample: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    return np.array_split(rng.permutation(sample), 2)


def _logistic_regression(terms: np.ndarray, is_real: np.ndarray) -> np.ndarray:
    """Weights of the terms by Newton's method, halving steps that do not pay; the first term is constant and free."""
    from scipy.special import expit

    penalty, sign = np.r_[0.0, np.ones(terms.shape[1] - 1)], np.where(is_real, 1.0, -1.0)

    def loss(weight: np.ndarray) -> float:
        return float(np.logaddexp(0, -sign * (terms @ weight)).sum() + penalty @ weight**2 / 2)

    weight = np.zeros(terms.shape[1])
    now = loss(weight)
    for _ in range(_NEWTON_STEPS):
        prob = expit(terms @ weight)
        slope = terms.T @ (prob - is_real) + penalty * weight
        curvature = (terms.T * (prob * (1 - prob))) @ terms + np.diag(penalty)
        step = np.linalg.solve(curvature, slope)
        if slope @ step < _CLOSE:
            break
        while (then := loss(weight - step)) > now and slope @ step >= _CLOSE:
            step = step / 2
        weight, now = weight - step, then
    return weight
