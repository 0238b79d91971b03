"""Models a small step away: one parameter moved by a part of its standard error, for the delta method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, fields, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from clickshift.models.base import ClickModel, PairTable

STEP = 1e-5
"""Of a standard error: small against the curvature, large against rounding."""
_LOGIT_LIMIT = 30.0  # logits, as in `models.formulas`


def logit_errors(model: ClickModel) -> dict[str, np.ndarray]:
    """The errors of the parameters' logits by name: of tables over pairs, and of what all lists share."""
    errors = {} if model.evidence is None else model.evidence.logit_error
    names = [f.name for f in fields(model) if is_pair_table(f) or np.ndim(getattr(model, f.name)) <= 1]
    return {name: errors[name] for name in names if name in errors}


def perturbed_shared_values(model: ClickModel) -> Iterator[tuple[str, Any]]:
    """For each uncertain number that all lists share, the name of its parameter, and its value with that one moved."""
    tables = {f.name for f in fields(model) if is_pair_table(f)}
    for name, errors in logit_errors(model).items():
        if name in tables:
            continue
        value = getattr(model, name)
        for k in np.flatnonzero(errors > 0):  # an error is 0 by convention, NaN where the situation never occurred
            step = np.where(np.arange(len(errors)) == k, STEP * np.nan_to_num(errors), 0.0)
            there = shift_logit(np.atleast_1d(value), step)
            yield name, there if np.ndim(value) else float(there[0])


def perturbed_models(model: ClickModel) -> Iterator[ClickModel]:
    """The model with each uncertain number that all lists share moved in turn."""
    for name, value in perturbed_shared_values(model):
        yield replace(model, **{name: value})


def is_pair_table(field: Field[Any]) -> bool:
    return field.type in ("PairTable", PairTable)


def shift_logit(prob: Float[np.ndarray, "*n"], by: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
    """With the logit moved; what stays is the same to the last bit."""
    from scipy.special import expit, logit

    there: np.ndarray = np.where(by == 0, prob, expit(np.clip(logit(prob), -_LOGIT_LIMIT, _LOGIT_LIMIT) + by))
    return there
