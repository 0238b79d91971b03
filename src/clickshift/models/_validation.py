"""Check of the values of a model that was read from a file: shapes, types and ranges.

Shapes and types follow from the annotations of the model's fields, so that models of other packages are checked too.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np

from clickshift.models._differentiable import Differentiable
from clickshift.models.base import ClickModel, Evidence

_PROBABILITIES = frozenset(
    {
        "attractiveness",
        "continuation",
        "ctr",
        "curves",
        "examination",
        "false_positive",
        "row_examination",
        "satisfaction",
        "true_positive",
        "weights",
    }
)
"""Fields of click models that are probabilities."""
_ARRAY = re.compile(r"Float\[(?:np\.)?ndarray, ['\"]?([^'\"\]]*)")
_ROUNDING = 1e-9


def check_values(model: ClickModel) -> None:
    """Raise ValueError unless the values of a model, and of its evidence, are those of a click model.

    Parameters
    ----------
    model
        Model that was read from a file; the components of a mixture are checked one by one.
    """
    sizes = {"pair_or_unseen": model.vocabulary.n_pairs + 1}
    for field in dataclasses.fields(model):
        value, kind = getattr(model, field.name), str(field.type)
        if isinstance(value, np.ndarray):
            _check_shape(field.name, value, "pair_or_unseen" if "PairTable" in kind else _dimensions(kind), sizes)
            _check_numbers(field.name, value)
        elif kind in {"float", "<class 'float'>"}:
            if type(value) not in (float, int):
                raise ValueError(f"{field.name} must be a number: got {value!r}")
            _check_numbers(field.name, np.array(float(value)))
        elif kind in {"int", "<class 'int'>"}:
            if type(value) is not int or value < 1:
                raise ValueError(f"{field.name} must be an integer of 1 or more: got {value!r}")
        elif kind in {"bool", "<class 'bool'>"} and type(value) is not bool:
            raise ValueError(f"{field.name} must be true or false: got {value!r}")
        elif kind == "PairTable" or kind.startswith("Float["):
            raise ValueError(f"{field.name} must be an array: got {value!r}")
    for name in ("by_pair", "shared"):
        for key, array in getattr(model, name, {}).items():
            _check_numbers(f"{name}.{key}", array)
            if name == "by_pair" and array.shape[:1] != (sizes["pair_or_unseen"],):
                raise ValueError(f"{name}.{key} must have a row for each pair, and one for unseen pairs")
    of_this_package = type(model).__module__.startswith("clickshift.")
    if of_this_package and isinstance(model, Differentiable) and hasattr(model, "shared"):
        _check_network(model)
    if model.evidence is not None:
        _check_evidence(model, model.evidence)


def _dimensions(kind: str) -> str:
    """Return the names of the dimensions of an annotated array; "..." if they are not declared."""
    match = _ARRAY.search(kind)
    return match[1].strip() if match else "..."


def _check_shape(name: str, array: np.ndarray, dimensions: str, sizes: dict[str, int]) -> None:
    """Check the shape of an array; dimensions of the same name must have the same size in all arrays of a model."""
    if dimensions == "...":
        return
    names = dimensions.split()
    if array.ndim != len(names) or 0 in array.shape:
        raise ValueError(f"{name} must have the shape ({dimensions}): got {array.shape}")
    for size, dimension in zip(array.shape, names, strict=True):
        expected = int(dimension) if dimension.isdecimal() else sizes.setdefault(dimension, size)
        if size != expected:
            raise ValueError(f"{name} must have {expected} values by {dimension}: got {size}")
        if dimension == "situation" and size != (ranks := int(np.sqrt(2 * size))) * (ranks + 1) // 2:
            raise ValueError(f"{name} must have n (n + 1) / 2 values: got {size}")


def _check_numbers(name: str, array: np.ndarray) -> None:
    """Check that an array has finite numbers, which are probabilities if its name says so."""
    if array.dtype.kind != "f" or not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite numbers")
    if name in _PROBABILITIES and not ((array >= -_ROUNDING) & (array <= 1 + _ROUNDING)).all():
        raise ValueError(f"{name} must be probabilities: got {array.min():.6g} to {array.max():.6g}")


def _check_network(model: Any) -> None:
    """Check the shapes of the weights of a network of this package, whose kernels index them without checks."""
    state, shared = len(model.shared.get("readout", [0])), model.shared
    if 3 * state * state > sum(array.size for array in shared.values()) + 3:
        raise ValueError("the weights are too few for the size of the state")
    n_ranks = getattr(model, "known_ranks", 1)
    expected = {name: array.shape for name, array in model.start(n_ranks, state, np.random.default_rng(0)).items()}
    if n_ranks < 1 or {name: array.shape for name, array in shared.items()} != expected:
        raise ValueError(f"the shared weights must have the shapes {expected}")
    rows = model.vocabulary.n_pairs + 1
    widths = {name: (rows,) if width == 1 else (rows, width) for name, width in model.outputs(state).items()}
    if hasattr(model, "by_pair") and {name: array.shape for name, array in model.by_pair.items()} != widths:
        raise ValueError(f"the outputs of the tower must have the shapes {widths}")


def _check_evidence(model: ClickModel, evidence: Evidence) -> None:
    """Check counts, standard errors, and the texts and numbers that are kept with them."""
    for name in ("impressions", "clicks"):
        counts = getattr(evidence, name)
        if counts.shape != (model.vocabulary.n_pairs + 1,) or counts.dtype.kind != "f":
            raise ValueError(f"evidence.{name} must have a number for each pair, and one for unseen pairs")
        if not ((counts >= 0) & np.isfinite(counts)).all():
            raise ValueError(f"evidence.{name} must be finite numbers of 0 or more")
    if not (evidence.clicks <= evidence.impressions * (1 + _ROUNDING) + _ROUNDING).all():
        raise ValueError("there must not be more clicks than impressions")
    ranks = evidence.mean_rank
    if ranks is not None and (ranks.shape != evidence.clicks.shape or ranks.dtype.kind != "f" or (ranks < 1).any()):
        raise ValueError("evidence.mean_rank must have a rank from 1 for each pair")  # NaN where it was not shown
    for name, error in evidence.logit_error.items():
        if error.dtype.kind != "f" or (error < 0).any():  # NaN where there is none
            raise ValueError(f"the standard errors of {name} must not be negative")
        values = evidence.clicks if name == "relevance" else getattr(model, name, None)
        if isinstance(values, np.ndarray | float | int) and error.shape != np.atleast_1d(values).shape:
            raise ValueError(f"{name} must have as many standard errors as values")
    for name, counts in evidence.effective_counts.items():
        size = len(evidence.logit_error.get(name, ()))
        if counts.dtype.kind != "f" or counts.shape != (2, size):
            raise ValueError(f"{name} must have effective successes and trials for each standard error")
        if ((counts < 0) | (counts[0] > counts[1])).any():  # NaN where there are none
            raise ValueError(f"the effective counts of {name} must have 0 <= successes <= trials")
    for name in ("learner", "fingerprint", "source", "fitted_at", "version", "first_time", "last_time"):
        if not isinstance(text := getattr(evidence, name), str):
            raise ValueError(f"evidence.{name} must be a text: got {text!r}")
    if type(evidence.sessions) is not int or evidence.sessions < 0:
        raise ValueError(f"evidence.sessions must be an integer of 0 or more: got {evidence.sessions!r}")
