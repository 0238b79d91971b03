"""Sharing of the attractiveness of documents between the queries of a group, with a strength that the log decides.

The attractiveness of a document for a query has a prior that knows what the log says of the document for the other
queries of the group: t = s N / (s + N) pseudo-trials at their rate Y / N, beside the prior of the model. N and Y are
the effective trials and successes of the others. s, the most trials that others may be worth, is the spread between
queries of a group in trials: it maximises the product of the beta-binomial likelihoods of each pair's counts given
those of the others. Where variants have nothing in common it is 0, and nothing changes: it is 0, too, unless the
likelihood clearly gains.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from clickshift.core.newton import MAX_PROBABILITY
from clickshift.core.rng import generator
from clickshift.core.unique_rows import distinct_sorted
from clickshift.counts.query_groups import QueryGroups, read_query_groups
from clickshift.errors import CapabilityError
from clickshift.models import model_name
from clickshift.models.base import ClickModel
from clickshift.models.intervals import product_counts

__all__ = ["share_attractiveness"]

_MAX_SAMPLE = 200_000
"""Number of pairs that determine the strength well enough."""
_STRENGTHS = np.r_[0.0, np.geomspace(0.1, 10_000.0, 41)]
"""Candidate strengths, in trials."""
_LEAST_GAIN = 1.92
"""Gain of log-likelihood, in nats, below which nothing is shared: half the 95 % quantile of chi-square."""


def share_attractiveness(model: ClickModel, groups: QueryGroups | str | Path | Any) -> ClickModel:
    """Share the attractiveness of each document between the queries of a group.

    The estimate of a pair moves towards the rate of its document for the other queries of its group, as far as the log
    shows that such rates agree (`evidence.sharing`, in trials). Parameters that are not attractiveness stay, and so do
    pairs that no other query of their group shows. Effective counts include what the others add, intervals and
    judgments with them.

    Parameters
    ----------
    model
        A fitted model with attractiveness and its standard errors (PBM, UBM, DBN, SDBN, DCM, CCM), or dCTR.
    groups
        Groups of queries, or a table of them with the columns query and group.

    Returns
    -------
    ClickModel
        The model with shared attractiveness.

    Raises
    ------
    CapabilityError
        If the model has no attractiveness with standard errors ("no-attractiveness").
    FileError, DataError
        If groups cannot be read; see `read_query_groups`.

    Examples
    --------
    >>> import pandas as pd
    >>> log = pd.DataFrame({"query": ["Shoes"] * 9 + ["shoes"], "docs": [["a", "b"]] * 10, "clicks": [[1, 0]] * 10})
    >>> import clickshift as cs
    >>> model = cs.fit("dCTR", log)
    >>> shared = share_attractiveness(model, cs.group_queries(log))
    >>> bool(shared.evidence.sharing > 0), bool((shared.relevance() != model.relevance()).all())
    (True, True)
    """
    name, table = ("ctr", "relevance") if model_name(model) == "dCTR" else ("attractiveness", "attractiveness")
    evidence = model.evidence
    if (
        evidence is None
        or table not in evidence.effective_counts
        or not isinstance(getattr(model, name, None), np.ndarray)
    ):
        raise CapabilityError(
            f"{model_name(model)} has no attractiveness with standard errors to share. Choose PBM, UBM, DBN, SDBN, "
            "DCM, CCM or dCTR, fitted on a log.",
            code="no-attractiveness",
            model=model_name(model),
        )
    groups, vocabulary = read_query_groups(groups, model.vocabulary), model.vocabulary
    key = groups.numbers_in(vocabulary)[vocabulary.pair_query] * vocabulary.n_docs + vocabulary.pair_doc
    distinct, cluster = distinct_sorted(key)
    estimate = np.asarray(getattr(model, name))[:-1]
    successes, trials = (np.nan_to_num(counts[:-1]) for counts in evidence.effective_counts[table])
    others = [np.bincount(cluster, values, len(distinct))[cluster] - values for values in (successes, trials)]
    others = [np.where(others[1] > 1e-6, np.maximum(values, 0.0), 0.0) for values in others]
    prior = _prior_counts(estimate, evidence.logit_error[name][:-1], successes, trials)
    strength = _strength(successes, trials, others[0], others[1], *prior)
    added_yes, added = _added(strength, others[0], others[1])
    total = trials + prior[1] + added
    moved = added > 0
    shared = np.where(
        moved, np.clip((successes + prior[0] + added_yes) / np.maximum(total, 1e-12), 0, MAX_PROBABILITY), estimate
    )
    error = evidence.logit_error[name].copy()
    with np.errstate(divide="ignore", invalid="ignore"):
        error[:-1] = np.where(moved, 1 / np.sqrt(total * shared * (1 - shared)), error[:-1])
    counts = np.stack([np.append(successes + added_yes, 0.0), np.append(trials + added, 0.0)])
    errors, effective = {**evidence.logit_error, name: error}, {**evidence.effective_counts, table: counts}
    values = np.append(shared, getattr(model, name)[-1])
    errors["relevance"], effective["relevance"] = error, counts
    if hasattr(model, "satisfaction"):
        s = model.satisfaction
        log_error = np.hypot((1 - values) * error, (1 - s) * errors["satisfaction"])
        errors["relevance"] = log_error / (1 - values * s)
        effective["relevance"] = product_counts(counts, effective["satisfaction"])
    changed = replace(evidence, logit_error=errors, effective_counts=effective, sharing=strength)
    parameters: dict[str, Any] = {name: values}
    return replace(model, evidence=changed, **parameters)


def _prior_counts(
    estimate: Float[np.ndarray, " pair"],
    error: Float[np.ndarray, " pair"],
    successes: Float[np.ndarray, " pair"],
    trials: Float[np.ndarray, " pair"],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pseudo-successes and pseudo-trials of each pair's prior: what its estimate has beyond the log."""
    inside = np.clip(estimate, 1e-9, 1 - 1e-9)
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.where(error > 0, 1 / error**2, 0.0)
    total = np.maximum(information / (inside * (1 - inside)) - trials, 1e-3)
    yes = np.clip(inside * (trials + total) - successes, 1e-3 * total, (1 - 1e-3) * total)
    return yes, total


def _added(
    strength: float, successes: Float[np.ndarray, " pair"], trials: Float[np.ndarray, " pair"]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pseudo-successes and pseudo-trials that the other queries of the group add."""
    if strength <= 0:
        return np.zeros_like(trials), np.zeros_like(trials)
    weight = strength / (strength + trials)
    return weight * successes, weight * trials


def _strength(
    successes: np.ndarray,
    trials: np.ndarray,
    other_successes: np.ndarray,
    other_trials: np.ndarray,
    prior_yes: np.ndarray,
    prior_total: np.ndarray,
) -> float:
    """Return the strength with the largest beta-binomial likelihood of each pair's counts given the others'."""
    from scipy.special import betaln

    use = np.flatnonzero((other_trials > 0) & (trials > 0))
    if len(use) > _MAX_SAMPLE:
        use = generator(0, "sharing").choice(use, _MAX_SAMPLE, replace=False)
    if not len(use):
        return 0.0
    y, n, yes, total = successes[use], trials[use], prior_yes[use], prior_total[use]

    def log_likelihood(strength: float) -> float:
        added_yes, added = _added(strength, other_successes[use], other_trials[use])
        a, b = yes + added_yes, total - yes + added - added_yes
        return float((betaln(a + y, b + n - y) - betaln(a, b)).sum())

    found = np.array([log_likelihood(strength) for strength in _STRENGTHS])
    best = int(np.argmax(found))
    return float(_STRENGTHS[best]) if found[best] - found[0] > _LEAST_GAIN else 0.0
