"""Stacking: a mixture of separately fitted click models, weighted by how well they predict held-out sessions."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from jaxtyping import Float

from clickshift.core.spec import check_options, label
from clickshift.counts.cells import Cells
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import ClickshiftWarning, SpecError
from clickshift.learners.base import learner_for
from clickshift.models.base import ClickModel, Evidence, PairTable, pair_table
from clickshift.models.mixture import KNOWN_WEIGHT, Mixture, first_rank
from clickshift.models.perturb import with_pairs

__all__ = ["Stacking", "stacking_weights"]

_LEAST_WEIGHT = 1e-3
"""Members with a smaller weight are dropped."""
_FAMILIES = ("dCTR", "drCTR", "PBM", "UBM", "SDBN", "DBN", "CCM", "DCM")
_WEAK_PRIOR = {name: f"MaximumLikelihood({name!r}, prior=(0.1, 1.0))" for name in ("PBM", "UBM", "DBN", "CCM")}
"""The four general families again, with the prior that says least of a document. The prior that is learned from the log
describes documents as its ranker shows them: rare ones are taken for average, also where the ranker hides bad ones."""
_LARGEST_SHARE = 0.25
"""Largest share of the weak prior in the weight of its family. Held-out sessions are of the old ranker: they show that
most of the documents that it hides are bad, but a new ranker may show just those that are good."""


@final
@dataclass(frozen=True)
class Stacking:
    """Learner of a stacked mixture: members are fitted one by one, and weighted by how well they predict.

    No member knows which browsing model is right, and under another ranker it matters: the mixture follows the members
    that the clicks of a session support. A part of the sessions is held out; members are fitted on the rest. The
    weights maximise the likelihood of the held-out sessions under the mixture, which is a convex problem with one
    solution. Members without weight are dropped, and the others are fitted again on the whole log.

    Parameters
    ----------
    members
        Models or learners as text, e.g. ["PBM", "UBM", "Gradient('NCM')"]. By default dCTR, drCTR, PBM, UBM, SDBN, DBN,
        CCM and DCM, and PBM, UBM, DBN and CCM once more with a weak prior, which has at most a quarter of the weight of
        its family.
    held_out
        Share of the sessions that is held out to find the weights.
    seed
        Random seed of the split.

    Raises
    ------
    SpecError
        If there are fewer than two members ("too-few-components"), one of them cannot be used ("bad-component",
        "unknown-name"), or the share is not between 0 and 1 ("bad-option").

    References
    ----------
    Wolpert, D. H. (1992). Stacked generalization. Neural Networks.

    Yao, Y. et al. (2018). Using stacking to average Bayesian predictive distributions. Bayesian Analysis.

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(5), cs.Uniform(), cs.users.PBM(), 2000, rng=0)
    >>> model = cs.fit(Stacking(["PBM", "DBN", "rCTR"]), log)
    >>> type(model).__name__, round(float(model.weights.sum()), 6)
    ('Mixture', 1.0)
    """

    members: tuple[str, ...] | list[str] = (*_FAMILIES, *_WEAK_PRIOR.values())
    held_out: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        check_options(self)
        if len(self.members) < 2:
            raise SpecError(
                f"a stacked mixture needs at least two members: got {list(self.members)}.",
                code="too-few-components",
                value=list(self.members),
            )
        if not 0 < self.held_out < 1:
            raise SpecError(
                f"the held-out share must be between 0 and 1: got {self.held_out}.",
                code="bad-option",
                option="held_out",
                value=self.held_out,
            )
        for name in self.members:
            if name == "CM":
                raise SpecError(
                    "CM cannot be a member: it gives probability 0 to a second click. Use DCM.",
                    code="bad-component",
                    value=name,
                )
            learner_for(name)

    def fit(self, data: Log, *, fitted: Mapping[str, ClickModel] | None = None) -> Mixture:
        """Fit the members and find their weights.

        Parameters
        ----------
        data
            The training log.
        fitted
            Members that were fitted on this log before, by the texts of `members`: they are not fitted on it again.

        Returns
        -------
        Mixture
            The members with weight, fitted on all sessions, the largest weight first.
        """
        data = data.merged() if isinstance(data, Sessions) else data
        rest, held_out = data.split(1 - self.held_out, rng=self.seed)
        with warnings.catch_warnings():  # members are fitted again on the whole log, and warn then
            warnings.simplefilter("ignore", ClickshiftWarning)
            first = [_with_vocabulary(learner_for(name).fit(rest), data.vocabulary) for name in self.members]
        weights = stacking_weights(first, held_out, units=_units(self.members))
        order = [m for m in np.argsort(-weights, kind="stable") if weights[m] >= _LEAST_WEIGHT]
        kept = weights[order] / weights[order].sum()
        known = fitted or {}
        names = [self.members[m] for m in order]
        whole = [known[name] if name in known else learner_for(name).fit(data) for name in names]
        components = tuple(_with_vocabulary(component, data.vocabulary) for component in whole)
        mixture = Mixture(data.vocabulary, components, kept)
        held_out_loss = _held_out_loss(Mixture(data.vocabulary, tuple(first), weights), held_out)
        return replace(mixture, evidence=_evidence(label(self), mixture, data, held_out_loss))


def _units(members: Sequence[str]) -> Float[np.ndarray, "unit model"]:
    """Return what is weighted: each member, but a weak prior only together with the learned prior of its family."""
    units = np.eye(len(members))
    for family, weak in _WEAK_PRIOR.items():
        if family in members and weak in members:
            unit = list(members).index(weak)
            units[unit, unit], units[unit, list(members).index(family)] = _LARGEST_SHARE, 1 - _LARGEST_SHARE
    return units


def stacking_weights(
    models: list[ClickModel], log: Log, *, units: Float[np.ndarray, "unit model"] | None = None
) -> Float[np.ndarray, " model"]:
    """Find the weights of a mixture of fitted models that maximise the likelihood of a log.

    The likelihood is concave in the weights. With the sum of the weights subtracted from its mean logarithm, the
    maximum over all weights from 0 on has the sum 1, so that bounds are the only constraint.

    Parameters
    ----------
    models
        Fitted click models that predict clicks.
    log
        Sessions that the models were not fitted on.
    units
        Mixtures of the models that are weighted, which limits the weights; by default, each model by itself.

    Returns
    -------
    numpy.ndarray
        One weight per model; they sum to 1.
    """
    from scipy.optimize import minimize

    rows = [np.stack([model.log_likelihood(part) for model in models]) for part in log.chunks()]
    count = np.concatenate([part.count for part in log.chunks()]).astype(np.float64)
    joint = np.concatenate(rows, axis=1)
    best = joint.max(axis=0)
    possible = np.isfinite(best)  # sessions that no model allows say nothing of the weights
    units = np.eye(len(models)) if units is None else units
    likelihood, share = units @ np.exp(joint[:, possible] - best[possible]), count[possible] / count[possible].sum()

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        mixed = weights @ likelihood
        return float(weights.sum() - share @ np.log(mixed)), 1 - likelihood @ (share / mixed)

    start = np.full(len(units), 1 / len(units))
    found = minimize(loss, start, jac=True, method="SLSQP", bounds=[(1e-12, 1)] * len(units), tol=1e-12)
    weights: np.ndarray = found.x @ units / found.x.sum()
    return weights


def _with_vocabulary(model: ClickModel, vocabulary: Vocabulary) -> ClickModel:
    """Return a model with the vocabulary of the log: models by gradient know only the pairs that their log shows."""
    if model.vocabulary.same_as(vocabulary):
        return model
    return with_pairs(model, vocabulary, np.append(model.vocabulary.pairs_of(vocabulary), np.int32(UNSEEN)))


def _held_out_loss(mixture: Mixture, held_out: Log) -> float:
    """Return the cross-entropy of held-out sessions under the members that were not fitted on them, in nats."""
    return -sum(float(part.count @ mixture.log_likelihood(part)) for part in held_out.chunks()) / held_out.total


def _evidence(learner: str, mixture: Mixture, data: Log, held_out_loss: float) -> Evidence:
    """Return the counts of the log and standard errors of relevance."""
    impressions, clicks = (pair_table(counts, unseen=0.0) for counts in Cells.of(data).by_pair())
    error = _relevance_error(mixture)
    log_likelihood = sum(float(part.count @ mixture.log_likelihood(part)) for part in data.chunks())
    errors = {} if error is None else {"relevance": error}
    return Evidence(learner, impressions, clicks, errors, log_likelihood, 0, held_out_loss=held_out_loss)


def _relevance_error(mixture: Mixture) -> PairTable | None:
    """Return the standard error of the logit of relevance, None if a component with weight has no standard errors.

    The standard error of a weighted mean is at most the weighted mean of the standard errors, however the errors of
    the components depend on each other. Weights and examination of the first rank count as known.
    """
    lists, total, known = first_rank(mixture.vocabulary), np.zeros(mixture.vocabulary.n_pairs + 1), 0.0
    for weight, component in zip(mixture.weights, mixture.components, strict=True):
        errors = {} if component.evidence is None else component.evidence.logit_error
        error = errors.get("attractiveness", errors.get("relevance"))
        if error is not None:
            prob = component.click_prob(lists)[:, 0]
            total, known = total + weight * error * prob * (1 - prob), known + weight
    if known < KNOWN_WEIGHT:
        return None
    relevance = mixture._relevance()
    with np.errstate(divide="ignore", invalid="ignore"):
        logit_error: PairTable = total / known / (relevance * (1 - relevance))
    return logit_error
