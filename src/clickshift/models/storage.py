"""Model files: a folder with a JSON header and a safetensors file. Opening one never runs code."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.core.artifacts import ArtifactFormat
from clickshift.core.spec import resolve
from clickshift.data.vocabulary import Vocabulary, pack_vocabulary, unpack_vocabulary
from clickshift.errors import FileError
from clickshift.models import MODELS, model_name
from clickshift.models.base import ClickModel, Evidence

FORMAT = 1
"""Raised when a reader of the old format could no longer read the new one."""
_MODEL_FORMAT = ArtifactFormat("model", FORMAT, "fit the model again", "clickshift fit")
_EVIDENCE = "evidence"
_ARRAYS_OF = "arrays of"  # in the header, for a field of several arrays: their names


def save_model(model: ClickModel, folder: str | Path, *, notes: dict[str, Any] | None = None) -> None:
    """Write a model. The header comes last: a folder without it is not a model, so a killed write leaves none behind.

    `notes` is anything of JSON's that should be kept with it, e.g. which log it was fitted on.
    """
    arrays: dict[str, np.ndarray] = {}
    header = {
        "vocabulary": pack_vocabulary(model.vocabulary, arrays),
        "model": _pack_model(model, "", arrays),
        "notes": notes or {},
    }
    _MODEL_FORMAT.write(folder, header, arrays)


def save_seeds(models: Sequence[ClickModel], folder: str | Path, *, notes: dict[str, Any] | None = None) -> None:
    """Write one model per seed, in folders seed-0, seed-1, ..., and in the folder itself the one that predicted
    held-out sessions best: it can be used like any other model. Seeds of an earlier fit are removed."""
    folder = Path(folder)
    for old in _seed_folders(folder):
        for name in (_MODEL_FORMAT.header, _MODEL_FORMAT.arrays):
            (old / name).unlink(missing_ok=True)
        with suppress(OSError):  # something else is in there: it stays
            old.rmdir()
    if len(models) > 1:
        for k, model in enumerate(models):
            save_model(model, folder / f"seed-{k}", notes=notes)
    losses = [np.inf if model.evidence is None else model.evidence.held_out_loss for model in models]
    save_model(models[int(np.argmin(losses))], folder, notes=notes)


def load_seeds(folder: str | Path) -> list[ClickModel]:
    """All models that `save_seeds` wrote; of a folder with one model, that one."""
    return [load_model(part) for part in _seed_folders(Path(folder)) or [Path(folder)]]


def _seed_folders(folder: Path) -> list[Path]:
    found = [
        part for part in folder.glob("seed-*") if part.name[5:].isdigit() and (part / _MODEL_FORMAT.header).exists()
    ]
    return sorted(found, key=lambda part: int(part.name[5:]))


def load_model(folder: str | Path) -> ClickModel:
    """Read a model that `save_model` wrote. A file of another kind, damaged or from a newer version is refused."""
    header, arrays = _MODEL_FORMAT.read(folder)
    try:
        vocabulary = unpack_vocabulary(header["vocabulary"], arrays)
        return _unpack_model(header["model"], "", arrays, vocabulary)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, FileError):
            raise
        raise _MODEL_FORMAT.damaged(folder, error) from None


def read_header(folder: str | Path) -> dict[str, Any]:
    """The header alone: which model, learner, version and notes."""
    return _MODEL_FORMAT.read_header(folder)


def _pack_model(model: ClickModel, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Arrays go into `arrays` under their dotted names; what is returned is the rest."""
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
            values[field.name] = value
    model = cls(**values)
    assert isinstance(model, ClickModel)
    return model


def _pack_evidence(evidence: Evidence, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    arrays[f"{prefix}impressions"], arrays[f"{prefix}clicks"] = evidence.impressions, evidence.clicks
    for name, error in evidence.logit_error.items():
        arrays[f"{prefix}logit_error.{name}"] = error
    scalars = {
        "learner": evidence.learner,
        "log_likelihood": evidence.log_likelihood if np.isfinite(evidence.log_likelihood) else None,
        "iterations": evidence.iterations,
        "converged": evidence.converged,
        "held_out_loss": evidence.held_out_loss if np.isfinite(evidence.held_out_loss) else None,
    }
    return {**scalars, "logit_error": list(evidence.logit_error)}


def _unpack_evidence(header: dict[str, Any], prefix: str, arrays: dict[str, np.ndarray]) -> Evidence:
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
    )
