"""Perturbed models for the delta method: one parameter moved by a small part of its standard error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, fields, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from clickshift.models._formulas import LOGIT_LIMIT
from clickshift.models.base import ClickModel, PairTable

__all__ = ["STEP", "is_pair_table", "logit_errors", "perturbed_models", "perturbed_shared_values", "shift_logit"]

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


def shift_logit(prob: Float[np.ndarray, "*n"], by: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
    """Move the logits of probabilities; a probability that is moved by 0 stays the same to the last bit."""
    from scipy.special import expit, logit

    shifted: np.ndarray = np.where(by == 0, prob, expit(np.clip(logit(prob), -LOGIT_LIMIT, LOGIT_LIMIT) + by))
    return shifted
