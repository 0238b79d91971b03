"""Perturbed models for the delta method: one parameter moved by a small part of its standard error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, fields, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.models._formulas import LOGIT_LIMIT
from clickshift.models.base import ClickModel, PairTable

__all__ = [
    "STEP",
    "is_pair_table",
    "logit_errors",
    "one_pair_per_result",
    "perturbed_models",
    "perturbed_shared_values",
    "shift_logit",
]

STEP = 1e-5
"""Step of the finite differences in standard errors: small against the curvature, large against rounding."""


def logit_errors(model: ClickModel) -> dict[str, np.ndarray]:
    """Return the standard errors of the logits of a model's parameters.

    Parameters
    ----------
    model
        A fitted click model.

    Returns
    -------
    dict
        Errors by the name of the parameter, for tables over pairs and for parameters that all lists share; empty for
        models without standard errors.
    """
    errors = {} if model.evidence is None else model.evidence.logit_error
    names = [f.name for f in fields(model) if is_pair_table(f) or np.ndim(getattr(model, f.name)) <= 1]
    return {name: errors[name] for name in names if name in errors}


def perturbed_shared_values(model: ClickModel) -> Iterator[tuple[str, Any]]:
    """Perturb each number that all lists share and that has a standard error, one at a time.

    Parameters
    ----------
    model
        A fitted click model.

    Yields
    ------
    tuple
        The name of the parameter, and its value with one number moved by `STEP` standard errors of its logit.
    """
    tables = {f.name for f in fields(model) if is_pair_table(f)}
    for name, errors in logit_errors(model).items():
        if name in tables:
            continue
        value = getattr(model, name)
        for k in np.flatnonzero(errors > 0):  # 0: fixed by convention; NaN: the situation never occurred
            step = np.where(np.arange(len(errors)) == k, STEP * np.nan_to_num(errors), 0.0)
            shifted = shift_logit(np.atleast_1d(value), step)
            yield name, shifted if np.ndim(value) else float(shifted[0])


def perturbed_models(model: ClickModel) -> Iterator[ClickModel]:
    """Perturb a model in each number that all lists share and that has a standard error, one at a time.

    Parameters
    ----------
    model
        A fitted click model.

    Yields
    ------
    ClickModel
        The model with one number moved by `STEP` standard errors of its logit.
    """
    for name, value in perturbed_shared_values(model):
        yield replace(model, **{name: value})


def is_pair_table(field: Field[Any]) -> bool:
    """Return whether a field of a model's dataclass is a table over pairs."""
    return field.type in ("PairTable", PairTable)


def one_pair_per_result(
    model: ClickModel, rankings: Rankings, *, shown: Bool[np.ndarray, "list rank"] | None = None
) -> tuple[ClickModel, Rankings]:
    """Give every result of every list a pair of its own, with the parameters of its pair.

    Parameters
    ----------
    model
        A click model.
    rankings
        Lists in the vocabulary of the model.
    shown
        Where the new lists show a document; by default, where the lists do.

    Returns
    -------
    tuple
        The model of the new pairs, in which unseen pairs have arbitrary parameters, and the lists. The pair at rank r
        of list i has number i times the number of ranks, plus r.
    """
    shape, number = rankings.pair.shape, np.arange(rankings.pair.size)
    results = Vocabulary(np.arange(shape[0]), np.arange(shape[1]), *np.divmod(number, shape[1]))
    lists = Rankings(results, np.arange(shape[0]), number.reshape(shape), rankings.shown if shown is None else shown)
    return with_pairs(model, results, np.append(rankings.pair.ravel(), np.int32(UNSEEN))), lists


def with_pairs(model: ClickModel, vocabulary: Vocabulary, pair: Int[np.ndarray, " pair_or_unseen"]) -> ClickModel:
    """Return the model of other pairs, each of which has the parameters of one of the model's pairs.

    Parameters
    ----------
    model
        A click model.
    vocabulary
        The other pairs.
    pair
        Number in the model's vocabulary of each of them, and of unseen pairs; `UNSEEN` for the model's unseen pairs.
    """
    changes: dict[str, Any] = {}
    for field in fields(model):
        value = getattr(model, field.name)
        if is_pair_table(field):
            changes[field.name] = value[pair]
        elif field.name == "by_pair":
            changes[field.name] = {name: table[pair] for name, table in value.items()}
        elif field.name == "components":
            changes[field.name] = tuple(with_pairs(component, vocabulary, pair) for component in value)
    return replace(model, vocabulary=vocabulary, evidence=None, **changes)


def shift_logit(prob: Float[np.ndarray, "*n"], by: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
    """Move the logits of probabilities; a probability that is moved by 0 stays the same to the last bit."""
    from scipy.special import expit, logit

    shifted: np.ndarray = np.where(by == 0, prob, expit(np.clip(logit(prob), -LOGIT_LIMIT, LOGIT_LIMIT) + by))
    return shifted
