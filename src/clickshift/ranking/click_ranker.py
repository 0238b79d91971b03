"""ClickRanker: a ranker learned from clicks by gradient descent; its options, and training of one or many runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float

from clickshift.core.parallel import for_each
from clickshift.core.progress import Progress, silent
from clickshift.counts.cells import Cells
from clickshift.data.corpus import Corpus
from clickshift.data.encoded_log import Log
from clickshift.errors import SpecError
from clickshift.propensity.files import Trust
from clickshift.ranking._prepare import FeatureCache, PreparedRun, prepare_run, with_held_out
from clickshift.ranking.labels import check_position_bias, count_by_rank
from clickshift.ranking.ranker import Ranker, warn_constant_features

_LOSSES = ("ips", "pbm", "additive", "policy-aware", "affine", "doubly-robust", "listwise")
_CLICK_LOSSES = ("pbm", "additive")
"""Losses that predict clicks; all others predict relevance."""
_BIASES = ("given", "naive", "estimated")
_TOWERS = ("network", "one-hot")
_OPTIMISERS = ("adam", "adagrad", "sgd")
_ROUNDS = ("best", "last")
_RUNS_AT_ONCE = 32
"""Number of one-hot runs trained in one program: enough to keep a core busy, few enough to finish at similar times."""
Regression = Callable[[Corpus], np.ndarray]
"""Function from a corpus to the relevance of its pairs, from 0 to 1; e.g. `ranker.relevance`."""


@final
@dataclass(frozen=True)
class ClickRanker:
    """Pointwise or listwise ranker on features, trained on click counts with early stopping.

    A round is one pass over all training queries in random batches. Training stops after `patience` rounds without
    progress on held-out clicks, and by default the weights of the best round are kept. The losses of corrected labels
    have no lower bound where a label is above 1, see `clickshift.ranking.labels`.

    Parameters
    ----------
    loss
        "pbm" predicts clicks as sigmoid(score) x examination (a neural PBM), "additive" as sigmoid(score + logit of the
        rank) (two towers), which needs bias "estimated". All other losses predict relevance from corrected labels:
        "ips" divides clicks by examination, "policy-aware" by a document's mean examination over all sessions of its
        query, "affine" also removes trust bias, "doubly-robust" corrects a regression where there are clicks to do so,
        and "listwise" is a softmax over the documents of each query, with the labels of "ips" or "affine".
    bias
        Position bias: "given" to `fit`, "naive" (every rank counts as examined), or "estimated" along with relevance,
        which needs loss "pbm" or "additive".
    tower
        "network": fully connected layers on log-scaled features. "one-hot": one logit for each value of the first
        feature, which must number them from 0.
    hidden
        Number of units of each hidden ELU layer of the network.
    dropout
        Dropout rate after each hidden layer.
    optimiser
        "adam", "adagrad" or "sgd".
    learning_rate
        Learning rate; None for a default: .001 for networks (.0005 for "pbm" with given bias), .1 for one-hot.
    batch
        Largest number of queries in a batch.
    rounds
        Largest number of rounds.
    patience
        Number of rounds without progress on held-out clicks after which training stops.
    clip
        Smallest propensity to divide by; None for no clipping.
    by_traffic
        Whether a query is weighted by its number of sessions; otherwise every query has weight 1, as published.
    keep
        Round whose weights are kept: the "best" by held-out loss, or the "last" before training stopped, as published.
    seed
        Random seed for the initial weights, the order of queries, and dropout.

    Raises
    ------
    SpecError
        If an option is not valid ("bad-option", "bad-clip") or two of them exclude each other ("incompatible-options").

    References
    ----------
    Hager, P., de Rijke, M., Zoeter, O. (2022). Are neural click models pointwise IPS rankers? CONSEQUENCES+REVEAL
    workshop at RecSys. (Later: Contrasting neural click models and pointwise IPS rankers. ECIR 2023.)
    Joachims, T., Swaminathan, A., Schnabel, T. (2017). Unbiased learning-to-rank with biased feedback. WSDM.
    Oosterhuis, H., de Rijke, M. (2020). Policy-aware unbiased learning to rank for top-k rankings. SIGIR.
    Vardasbi, A., Oosterhuis, H., de Rijke, M. (2020). When inverse propensity scoring does not work: affine corrections
    for unbiased learning to rank. CIKM.
    Yan, L., Qin, Z., Zhuang, H., Wang, X., Bendersky, M., Najork, M. (2022). Revisiting two-tower models for unbiased
    learning to rank. SIGIR.
    Oosterhuis, H. (2023). Doubly robust estimation for correcting position bias in click feedback for unbiased learning
    to rank. ACM TOIS.

    Examples
    --------
    >>> ClickRanker("pbm", bias="estimated").rate
    0.001
    """

    loss: str = "ips"
    bias: str = "given"
    tower: str = "network"
    hidden: tuple[int, ...] = (512, 256, 128)
    dropout: tuple[float, ...] = (0.0, 0.1, 0.1)
    optimiser: str = "adam"
    learning_rate: float | None = None
    batch: int = 50
    rounds: int = 200
    patience: int = 5
    clip: float | None = None
    by_traffic: bool = True
    keep: str = "best"
    seed: int = 0

    def __post_init__(self) -> None:
        choices = (
            ("loss", _LOSSES),
            ("bias", _BIASES),
            ("tower", _TOWERS),
            ("optimiser", _OPTIMISERS),
            ("keep", _ROUNDS),
        )
        for name, known in choices:
            value = getattr(self, name)
            if value not in known:
                raise SpecError(
                    f"{name} must be one of {', '.join(known)}: got {value!r}.",
                    code="bad-option",
                    option=name,
                    value=value,
                    known=list(known),
                )
        if (self.bias == "estimated" and self.loss not in _CLICK_LOSSES) or (
            self.bias != "estimated" and self.loss == "additive"
        ):
            raise SpecError(
                "bias='estimated' needs loss='pbm' or loss='additive', and loss='additive' needs bias='estimated': got "
                f"bias={self.bias!r} and loss={self.loss!r}.",
                code="incompatible-options",
                bias=self.bias,
                loss=self.loss,
            )
        if len(self.dropout) != len(self.hidden) or not all(0 <= share < 1 for share in self.dropout):
            raise SpecError(
                f"there must be a dropout from 0 to below 1 for each of {len(self.hidden)} hidden layers: "
                f"got {self.dropout}.",
                code="bad-option",
                option="dropout",
                value=self.dropout,
            )
        if min(self.batch, self.rounds, self.patience, *self.hidden, 1) < 1:
            raise SpecError(
                "ClickRanker needs batch, rounds, patience and hidden sizes of 1 or more: got "
                f"batch={self.batch}, rounds={self.rounds}, patience={self.patience}, hidden={self.hidden}.",
                code="bad-option",
                batch=self.batch,
                rounds=self.rounds,
                patience=self.patience,
                hidden=self.hidden,
            )
        if self.learning_rate is not None and not self.learning_rate > 0:
            raise SpecError(
                f"a learning rate must be above 0: got {self.learning_rate}.",
                code="bad-option",
                option="learning_rate",
                value=self.learning_rate,
            )
        if self.clip is not None and (self.loss in _CLICK_LOSSES or not 0 < self.clip <= 1):
            raise SpecError(
                "clip must be a propensity above 0, up to 1, and needs a loss that divides by propensities, which "
                f"'pbm' and 'additive' do not: got clip={self.clip} and loss={self.loss!r}.",
                code="bad-clip",
                clip=self.clip,
                loss=self.loss,
            )

    @property
    def rate(self) -> float:
        """The learning rate: as chosen, or the default for the tower, loss and bias."""
        if self.learning_rate is not None:
            return self.learning_rate
        if self.tower == "one-hot":
            return 0.1
        return 5e-4 if self.loss == "pbm" and self.bias == "given" else 1e-3

    def fit(
        self,
        corpus: Corpus,
        clicks: Cells | Log,
        *,
        examination: Float[np.ndarray, " rank"] | None = None,
        trust: Trust | None = None,
        regression: Regression | None = None,
        held_out: tuple[Corpus, Cells | Log] | None = None,
        progress: Progress = silent,
        checkpoint: str | Path | None = None,
    ) -> Ranker:
        """Train a ranker on a log, or on its counts by rank.

        Parameters
        ----------
        corpus
            Documents with their features.
        clicks
            A log, or its counts in the vocabulary of the corpus.
        examination
            Examination by rank, for bias "given".
        trust
            Trust bias by rank, instead of `examination`.
        regression
            Relevance model that loss "doubly-robust" corrects; by default a "policy-aware" ranker on the same clicks.
        held_out
            Clicks on other queries, possibly of another corpus, for early stopping; by default the clicks on a tenth of
            the queries, which are then not trained on.
        progress
            Called with a text after every round.
        checkpoint
            File in which training is saved from time to time; if it exists, training is resumed from it.

        Returns
        -------
        Ranker
            The ranker of the round with the smallest held-out loss, or of the last round.

        Raises
        ------
        SpecError
            If JAX is not installed ("missing-dependency"), position bias is missing or not used ("missing-examination",
            "missing-trust", "unused-examination", "unused-trust"), or a one-hot tower has no held-out clicks
            ("missing-held-out").
        DataError
            If clicks, features or examination are not valid ("no-common-documents", "too-few-queries", "no-features",
            "not-finite", "wrong-feature-count", "bad-one-hot-feature", "bad-examination", "zero-propensity",
            "not-a-probability"), or if the loss is not finite after the first round ("training-diverged").
        VocabularyError
            If counts are not in the vocabulary of the corpus ("different-vocabulary").
        """
        held_out_counts = None if held_out is None else (held_out[0], count_by_rank(*held_out))
        if self.tower == "network":
            warn_constant_features(corpus)
        run = Run(self, corpus, count_by_rank(corpus, clicks), held_out_counts, examination, trust, regression)
        return _train([_prepare(run, {}, progress)], progress, checkpoint)[0]


@final
@dataclass(frozen=True, eq=False)
class Run:
    """One training run: a learner and the arguments of its `fit`, with counts instead of logs.

    Parameters
    ----------
    learner
        The learner.
    corpus
        Documents with their features.
    clicks
        Counts by rank in the vocabulary of the corpus.
    held_out
        Corpus and counts for early stopping; None for a tenth of the queries.
    examination
        Examination by rank, for bias "given".
    trust
        Trust bias by rank, instead of `examination`.
    regression
        Relevance model for loss "doubly-robust".
    """

    learner: ClickRanker
    corpus: Corpus
    clicks: Cells
    held_out: tuple[Corpus, Cells] | None = None
    examination: Float[np.ndarray, " rank"] | None = None
    trust: Trust | None = None
    regression: Regression | None = None


def fit_runs(runs: Sequence[Run], *, progress: Progress = silent) -> list[Ranker]:
    """Train several rankers in parallel; each is the same as `ClickRanker.fit` returns, up to rounding.

    Networks train in one thread each. One-hot runs with equal options and sizes train side by side in one program.

    Parameters
    ----------
    runs
        The runs to train.
    progress
        Called with the number of newly finished runs.

    Returns
    -------
    list of Ranker
        One ranker per run, in the order of the runs.
    """
    fitted: dict[int, Ranker] = {}
    cache: FeatureCache = {}

    def train_group(numbers: Sequence[int], prepared: Sequence[PreparedRun]) -> None:
        fitted.update(zip(numbers, _train(prepared), strict=True))
        progress(len(numbers))

    networks = [k for k, run in enumerate(runs) if run.learner.tower == "network"]
    for_each(lambda k: train_group([networks[k]], [_prepare(runs[networks[k]], cache)]), len(networks))
    groups: dict[Any, list[tuple[int, PreparedRun]]] = {}
    for k, run in enumerate(runs):
        if run.learner.tower == "one-hot":
            prepared = _prepare(run, cache)
            groups.setdefault(prepared.group, []).append((k, prepared))
    chunks = [group[k : k + _RUNS_AT_ONCE] for group in groups.values() for k in range(0, len(group), _RUNS_AT_ONCE)]
    for_each(lambda k: train_group(*zip(*chunks[k], strict=True)), len(chunks))
    return [fitted[k] for k in range(len(runs))]


def _prepare(run: Run, cache: FeatureCache, progress: Progress = silent) -> PreparedRun:
    """Prepare a run for training: check its position bias, hold queries out, and fit a regression if it needs one."""
    check_position_bias(run.learner.loss, run.learner.bias, run.examination, run.trust)
    run = with_held_out(run)
    if run.learner.loss == "doubly-robust" and run.regression is None:
        progress("fitting the regression")
        first = replace(run, learner=replace(run.learner, loss="policy-aware"))
        regression = _train([prepare_run(first, cache)])[0]
        run = replace(run, regression=regression.relevance)
    return prepare_run(run, cache)


def _train(
    runs: Sequence[PreparedRun], progress: Progress = silent, checkpoint: str | Path | None = None
) -> list[Ranker]:
    """Train prepared runs; JAX, which was found when they were prepared, is imported here."""
    from clickshift.ranking._trainer import train_runs

    return train_runs(runs, progress, checkpoint)
