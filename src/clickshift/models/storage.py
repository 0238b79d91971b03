"""Saved models: a folder with a JSON header and a safetensors file. Opening one never runs code."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.core.artifacts import ArtifactFormat, Contents
from clickshift.core.spec import resolve
from clickshift.data.vocabulary import Vocabulary, pack_vocabulary, unpack_vocabulary
from clickshift.errors import SpecError
from clickshift.models import MODELS, model_name
from clickshift.models._validation import check_values
from clickshift.models.base import ClickModel, Evidence

__all__ = [
    "FORMAT",
    "ModelLike",
    "best_seed",
    "load_model",
    "load_seeds",
    "open_model",
    "open_models",
    "read_header",
    "save_model",
    "save_seeds",
]

ModelLike = str | Path | ClickModel
"""A model as functions take it: the folder of a saved model, or the model itself."""

FORMAT = 2
"""Version of the format; increased when a reader of the old format cannot read the new one."""
_MODEL_FORMAT = ArtifactFormat("model", FORMAT, "fit the model again", "clickshift fit")
_EVIDENCE = "evidence"
_PROVENANCE = ("sessions", "fingerprint", "source", "fitted_at", "version", "first_time", "last_time")
_ARRAYS_OF = "arrays of"  # key in the header with the names of the arrays of a field


def save_model(model: ClickModel, folder: str | Path, *, notes: dict[str, Any] | None = None) -> None:
    """Save a model to a folder.

    A model that is already in the folder is replaced at once: readers see the old one or the new one, and an
    interrupted write or a full disk leaves the old one.

    Parameters
    ----------
    model
        The model to save.
    folder
        Folder to write to; it is created if it does not exist.
    notes
        JSON-serialisable facts to keep with the model, e.g. the log that it was fitted on.

    Raises
    ------
    FileError
        If the folder cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from clickshift.models.ctr import GCTR
    >>> vocabulary, _, _ = Vocabulary.of(["shoes"], ["a"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(GCTR(vocabulary, 0.25), folder)
    ...     load_model(folder).ctr
    0.25
    """
    _MODEL_FORMAT.write(folder, *_contents(model, notes))


def _contents(model: ClickModel, notes: dict[str, Any] | None) -> Contents:
    """Return the header entries and the arrays of a model."""
    arrays: dict[str, np.ndarray] = {}
    header = {
        "vocabulary": pack_vocabulary(model.vocabulary, arrays),
        "model": _pack_model(model, "", arrays),
        "notes": notes or {},
    }
    return header, arrays


def save_seeds(models: Sequence[ClickModel], folder: str | Path, *, notes: dict[str, Any] | None = None) -> None:
    """Save one model per seed, in folders seed-0, seed-1, ...

    The folder itself gets the model with the smallest held-out loss and can be used like any other saved model. Seeds
    of an earlier fit are removed. All models are replaced at once.

    Parameters
    ----------
    models
        One model per seed.
    folder
        Folder to write to.
    notes
        JSON-serialisable facts to keep with each model.
    """
    seeds = [_contents(model, notes) for model in models] if len(models) > 1 else []
    _MODEL_FORMAT.write(folder, *_contents(best_seed(models), notes), seeds=seeds)


def load_seeds(folder: str | Path) -> list[ClickModel]:
    """Load all models that `save_seeds` saved; from a folder with one model, that model.

    Parameters
    ----------
    folder
        Folder that `save_seeds` or `save_model` wrote.

    Returns
    -------
    list of ClickModel
        One model per seed.
    """
    seeds = _MODEL_FORMAT.read_seeds(folder) if (Path(folder) / _MODEL_FORMAT.header).exists() else None
    if seeds is not None:
        return [_made(Path(folder), *contents) for contents in seeds]
    return [load_model(part) for part in _seed_folders(Path(folder)) or [Path(folder)]]


def _seed_folders(folder: Path) -> list[Path]:
    """Return the folders seed-0, seed-1, ... that hold a model, by number, for a header that does not list them."""
    folders = [
        part for part in folder.glob("seed-*") if part.name[5:].isdigit() and (part / _MODEL_FORMAT.header).exists()
    ]
    return sorted(folders, key=lambda part: int(part.name[5:]))


def load_model(folder: str | Path) -> ClickModel:
    """Load a model that `save_model` saved.

    Parameters
    ----------
    folder
        Folder of the model.

    Returns
    -------
    ClickModel
        The model, with its evidence.

    Raises
    ------
    FileError
        If the folder is not a model, is damaged, or is from a newer version of clickshift.

    Examples
    --------
    >>> import tempfile
    >>> from clickshift.models.ctr import GCTR
    >>> vocabulary, _, _ = Vocabulary.of(["shoes"], ["a"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(GCTR(vocabulary, 0.25), folder)
    ...     load_model(folder).ctr
    0.25
    """
    return _made(Path(folder), *_MODEL_FORMAT.read(folder))


def _made(folder: Path, header: Mapping[str, Any], arrays: dict[str, np.ndarray]) -> ClickModel:
    """Make a model from what was read from a folder."""
    with _MODEL_FORMAT.checking(folder):
        vocabulary = unpack_vocabulary(header["vocabulary"], arrays)
        return _unpack_model(header["model"], "", arrays, vocabulary)


def open_models(model: ModelLike | Sequence[ClickModel]) -> list[ClickModel]:
    """Return the models that an argument names: a folder, with all its seeds, a model, or several.

    Parameters
    ----------
    model
        Folder of a saved model, a model, or models that differ by seed.

    Returns
    -------
    list of ClickModel
        The models; at least one.

    Raises
    ------
    FileError
        If the folder is not a model, is damaged, or is from a newer version of clickshift.
    SpecError
        If the argument is none of these ("not-a-model").
    """
    if isinstance(model, str | Path):
        return load_seeds(model)
    models = [model] if isinstance(model, ClickModel) else model
    if isinstance(models, Sequence) and models and all(isinstance(one, ClickModel) for one in models):
        return list(models)
    raise SpecError(
        "a model must be the folder of a saved model, a click model, or a list of click models: got "
        f"{type(model).__name__}.",
        code="not-a-model",
        value=type(model).__name__,
    )


def open_model(model: ModelLike | Sequence[ClickModel]) -> ClickModel:
    """Return the model that an argument names; of several seeds, the one with the smallest held-out loss.

    Parameters
    ----------
    model
        Folder of a saved model, a model, or models that differ by seed.

    Returns
    -------
    ClickModel
        The model.
    """
    return load_model(model) if isinstance(model, str | Path) else best_seed(open_models(model))


def best_seed(models: Sequence[ClickModel]) -> ClickModel:
    """Return the model with the smallest held-out loss.

    Parameters
    ----------
    models
        Models that differ by seed; at least one.

    Returns
    -------
    ClickModel
        One of them; the first where none has a held-out loss.
    """
    losses = [np.inf if model.evidence is None else model.evidence.held_out_loss for model in models]
    return models[int(np.argmin(losses))]


def read_header(folder: str | Path) -> dict[str, Any]:
    """Read the header of a saved model: the model's name, learner, version and notes.

    Parameters
    ----------
    folder
        Folder of the model.

    Returns
    -------
    dict
        The header.

    Raises
    ------
    FileError
        If the folder is not a model, or is from a newer version of clickshift.
    """
    return _MODEL_FORMAT.read_header(folder)


def _pack_model(model: ClickModel, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Put the arrays of a model into `arrays` under their dotted names, and return its other fields."""
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(model):
        value = getattr(model, field.name)
        if field.name == "vocabulary" or value is None:
            continue
        if isinstance(value, np.ndarray):
            arrays[prefix + field.name] = value
        elif isinstance(value, Evidence):
            fields[_EVIDENCE] = _pack_evidence(value, f"{prefix}{_EVIDENCE}.", arrays)
        elif isinstance(value, Mapping):
            arrays.update({f"{prefix}{field.name}.{name}": array for name, array in value.items()})
            fields[field.name] = {_ARRAYS_OF: list(value)}
        elif field.name == "components":
            fields[field.name] = [_pack_model(c, f"{prefix}components.{i}.", arrays) for i, c in enumerate(value)]
        else:
            fields[field.name] = value
    return {"name": model_name(model), "fields": fields}


def _unpack_model(
    header: dict[str, Any], prefix: str, arrays: dict[str, np.ndarray], vocabulary: Vocabulary
) -> ClickModel:
    """Make a model from its header and its arrays."""
    cls = resolve(header["name"], MODELS)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if field.name == "vocabulary":
            values["vocabulary"] = vocabulary
        elif prefix + field.name in arrays:
            values[field.name] = arrays[prefix + field.name]
        elif field.name == _EVIDENCE and _EVIDENCE in header["fields"]:
            values[_EVIDENCE] = _unpack_evidence(header["fields"][_EVIDENCE], f"{prefix}{_EVIDENCE}.", arrays)
        elif field.name == "components":
            parts = header["fields"]["components"]
            values["components"] = tuple(
                _unpack_model(part, f"{prefix}components.{i}.", arrays, vocabulary) for i, part in enumerate(parts)
            )
        elif field.name in header["fields"]:
            value = header["fields"][field.name]
            if isinstance(value, dict) and _ARRAYS_OF in value:
                value = {name: arrays[f"{prefix}{field.name}.{name}"] for name in value[_ARRAYS_OF]}
            elif isinstance(value, list):  # JSON has no tuples
                value = tuple(value)
            values[field.name] = value
    model = cls(**values)
    assert isinstance(model, ClickModel)
    check_values(model)
    return model


def _pack_evidence(evidence: Evidence, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Put the arrays of the evidence into `arrays`, and return its other fields."""
    arrays[f"{prefix}impressions"], arrays[f"{prefix}clicks"] = evidence.impressions, evidence.clicks
    if evidence.mean_rank is not None:
        arrays[f"{prefix}mean_rank"] = evidence.mean_rank
    for name, error in evidence.logit_error.items():
        arrays[f"{prefix}logit_error.{name}"] = error
    for name, counts in evidence.effective_counts.items():
        arrays[f"{prefix}effective_counts.{name}"] = counts
    for name, values in evidence.views.items():
        arrays[f"{prefix}views.{name}"] = values
    scalars = {
        "learner": evidence.learner,
        "log_likelihood": evidence.log_likelihood if np.isfinite(evidence.log_likelihood) else None,
        "iterations": evidence.iterations,
        "converged": evidence.converged,
        "held_out_loss": evidence.held_out_loss if np.isfinite(evidence.held_out_loss) else None,
        **{name: getattr(evidence, name) for name in _PROVENANCE},
    }
    if np.isfinite(evidence.sharing):
        scalars["sharing"] = evidence.sharing
    names = {"logit_error": list(evidence.logit_error), "effective_counts": list(evidence.effective_counts)}
    if evidence.views:
        names["views"] = list(evidence.views)
    return {**scalars, **names}


def _unpack_evidence(header: dict[str, Any], prefix: str, arrays: dict[str, np.ndarray]) -> Evidence:
    """Make evidence from its header and its arrays."""
    likelihood, held_out_loss = (
        float("nan") if value is None else float(value)
        for value in (header["log_likelihood"], header.get("held_out_loss"))
    )
    return Evidence(
        header["learner"],
        arrays[f"{prefix}impressions"],
        arrays[f"{prefix}clicks"],
        {name: arrays[f"{prefix}logit_error.{name}"] for name in header["logit_error"]},
        likelihood,
        int(header["iterations"]),
        bool(header["converged"]),
        held_out_loss,
        # models of earlier versions have none
        **{name: header[name] for name in _PROVENANCE if name in header},
        effective_counts={
            name: arrays[f"{prefix}effective_counts.{name}"] for name in header.get("effective_counts", [])
        },
        mean_rank=arrays.get(f"{prefix}mean_rank"),
        views={name: arrays[f"{prefix}views.{name}"] for name in header.get("views", [])},
        sharing=float(header.get("sharing", float("nan"))),
    )
