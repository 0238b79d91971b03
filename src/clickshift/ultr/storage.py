"""Rankers as files: a folder with a JSON header and a safetensors file. Opening one never runs code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from clickshift._version import __version__
from clickshift.errors import FileError
from clickshift.files import content_key, write_atomically
from clickshift.ultr.boosting import Trees
from clickshift.ultr.rankers import Ranker

FORMAT = 1
"""Raised when a reader of the old format could no longer read the new one."""
_HEADER, _ARRAYS = "ranker.json", "ranker.safetensors"
_ADVICE = "Train the ranker again, or give the folder that `clickshift rank train` wrote."
_EXAMINATION, _TREES = "examination", "trees"


def save_ranker(ranker: Ranker | Trees, folder: str | Path, *, notes: dict[str, Any] | None = None) -> None:
    """Write a ranker. The header comes last: a folder without it is none, so a killed write leaves none behind.

    `notes` is anything of JSON's that should be kept with it, e.g. which log it was trained on.
    """
    from safetensors.numpy import save_file

    arrays: dict[str, np.ndarray]
    facts: dict[str, Any] = {"learner": ranker.learner}
    if isinstance(ranker, Trees):
        facts |= {"kind": _TREES, "features": ranker.n_features}
        arrays = {_TREES: np.frombuffer(ranker.text.encode(), np.uint8)}
    else:
        loss = ranker.held_out_loss
        facts |= {"kind": ranker.tower, "held_out_loss": loss if np.isfinite(loss) else None}
        facts |= {"rounds": ranker.rounds, "converged": ranker.converged}
        arrays = dict(ranker.weights)
        if ranker.examination is not None:
            arrays[_EXAMINATION] = ranker.examination
    header = {"format": FORMAT, "clickshift": __version__, "ranker": facts, "notes": notes or {}}
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _HEADER).unlink(missing_ok=True)
        with write_atomically(folder / _ARRAYS) as path:
            save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)
            header["arrays"] = content_key([path])
        with write_atomically(folder / _HEADER) as path:
            path.write_text(json.dumps(header, indent=1))
    except OSError as error:
        raise FileError(folder, f"cannot be written: {error.strerror}. Choose another folder.") from None


def load_ranker(folder: str | Path) -> Ranker | Trees:
    """Read what `save_ranker` wrote. A file of another kind, damaged or from a newer version is refused."""
    header, folder = read_header(folder), Path(folder)
    arrays = _read_arrays(folder / _ARRAYS)
    if content_key([folder / _ARRAYS]) != header.get("arrays"):
        raise FileError(folder, f"the header does not belong to the weights: one of them was changed. {_ADVICE}")
    try:
        facts = header["ranker"]
        kind, learner = facts["kind"], str(facts["learner"])
        if kind == _TREES:
            return Trees(arrays[_TREES].tobytes().decode(), int(facts["features"]), learner)
        if kind not in {"network", "one-hot"}:
            raise ValueError(f"the kind {kind!r} is not known")
        loss, examination = facts["held_out_loss"], arrays.pop(_EXAMINATION, None)
        loss = float("nan") if loss is None else float(loss)
        ranker = Ranker(kind, arrays, learner, examination, loss, int(facts["rounds"]), bool(facts["converged"]))
        _check_shapes(ranker)
        return ranker
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise FileError(folder, f"is damaged: {type(error).__name__} {error}. {_ADVICE}") from None


def read_header(folder: str | Path) -> dict[str, Any]:
    """The header alone: kind, learner, version and notes."""
    path = Path(folder) / _HEADER
    try:
        header = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(header, dict):
            raise ValueError("not an object")
        version = header["format"]
    except FileNotFoundError:
        raise FileError(folder, f"is not a ranker: it has no {_HEADER}. {_ADVICE}") from None
    except (OSError, ValueError, KeyError) as error:
        raise FileError(path, f"is not a ranker's header: {error}. {_ADVICE}") from None
    if version != FORMAT:
        raise FileError(
            path, f"has format {version}, this clickshift reads {FORMAT}. Upgrade clickshift, or train it again."
        )
    return header


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not path.exists():
        raise FileError(path, f"is missing. {_ADVICE}")
    try:
        return dict(load_file(path))
    except (SafetensorError, OSError, ValueError) as error:
        raise FileError(path, f"is damaged or of another kind: {error}. {_ADVICE}") from None


def _check_shapes(ranker: Ranker) -> None:
    """Weights that fit together score a document of zeros."""
    if ranker.tower == "network":
        if ranker.score(np.zeros((1, ranker.n_features), np.float32)).shape != (1,):
            raise ValueError("the last layer must give one number")
    elif ranker.weights["table"].ndim != 1 or ranker.weights["intercept"].shape != (1,):
        raise ValueError("the table must have one logit per value")
