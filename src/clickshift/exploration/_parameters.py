"""Parameters of a click model as a page needs them: to show examination, and to predict clicks without Python."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from jaxtyping import Float

from clickshift.data.sessions import Sessions
from clickshift.models import model_name
from clickshift.models.base import ClickModel
from clickshift.models.perturb import is_pair_table, logit_errors

__all__ = ["document_parameters", "examination_of", "predicts_offline", "shared_parameters"]

_FACTORED = {"PBM", "UBM", "CM", "DCM", "CCM", "SDBN", "DBN"}
"""Models of the form P(click | clicks above) = P(examined | clicks above) x attractiveness, read from the top.

`assets/models.js` computes their marginal click probabilities."""


def predicts_offline(model: ClickModel) -> bool:
    """Return whether the page itself can predict clicks by a model.

    Parameters
    ----------
    model
        The click model.

    Returns
    -------
    bool
        True for models whose recursion `assets/models.js` has.
    """
    return model_name(model) in _FACTORED and not getattr(model, "bottom_up", False)


def examination_of(model: ClickModel, sessions: Sessions) -> Float[np.ndarray, "session rank"] | None:
    """Return the probability that each result was examined, given the clicks above it.

    Parameters
    ----------
    model
        The click model.
    sessions
        Sessions in the model's vocabulary.

    Returns
    -------
    numpy.ndarray or None
        P(E_r = 1 | C_1..C_{r-1}), 0 where nothing is shown, NaN where attractiveness is 0; None for a model without
        examination.
    """
    if not predicts_offline(model):
        return None
    attractiveness = np.asarray(model.attractiveness)[sessions.rankings.pair]  # type: ignore[attr-defined]
    prob = model.click_prob_given_history(sessions)
    examined: np.ndarray = np.divide(prob, attractiveness, out=np.full_like(prob, np.nan), where=attractiveness > 0)
    return np.where(sessions.rankings.shown, examined, 0.0)


def document_parameters(model: ClickModel, pair: int) -> dict[str, list[float]]:
    """Return the parameters of a pair, each with the standard error of its logit (NaN if it has none).

    Parameters
    ----------
    model
        The click model.
    pair
        Number of the pair in the model's vocabulary, or `UNSEEN`.

    Returns
    -------
    dict
        Value and error by the name of the parameter; empty for a model that the page cannot compute.
    """
    if not predicts_offline(model):
        return {}
    errors = logit_errors(model)
    return {
        f.name: [float(getattr(model, f.name)[pair]), float(errors[f.name][pair]) if f.name in errors else np.nan]
        for f in fields(model)
        if is_pair_table(f)
    }


def shared_parameters(model: ClickModel) -> dict[str, Any] | None:
    """Return what the page needs to predict clicks by a model, beside the parameters of the documents.

    Parameters
    ----------
    model
        The click model.

    Returns
    -------
    dict or None
        Name of the model; whether it has standard errors; names of the tables over pairs that have them; and the
        parameters that all lists share, each as values and standard errors of their logits. None for a model that the
        page cannot compute.
    """
    if not predicts_offline(model):
        return None
    errors = logit_errors(model)
    tables = [f.name for f in fields(model) if is_pair_table(f)]
    shared = [f.name for f in fields(model) if f.name in {"examination", "continuation"}]
    return {
        "name": model_name(model),
        "has_errors": bool(errors),
        "tables": [name for name in tables if name in errors],
        "shared": {
            name: {
                "value": np.atleast_1d(getattr(model, name)).tolist(),
                "error": np.atleast_1d(errors[name]).tolist() if name in errors else None,
            }
            for name in shared
        },
    }
