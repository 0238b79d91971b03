"""Rankers as files: a folder with a JSON header and a safetensors file. Opening one never runs code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from clickshift.core.artifacts import ArrayFolder
from clickshift.ranking.lambdamart import Trees
from clickshift.ranking.ranker import Ranker

FOLDER = ArrayFolder("ranker", 1, "train the ranker again", "clickshift rank train")
_EXAMINATION, _TREES = "examination", "trees"


def save_ranker(ranker: Ranker | Trees, folder: str | Path, *, notes: dict[str, Any] | None = None) -> None:
    """Write a ranker. The header comes last: a folder without it is none, so a killed write leaves none behind.

    `notes` is anything of JSON's that should be kept with it, e.g. which log it was trained on.
    """
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
    FOLDER.write(folder, {"ranker": facts, "notes": notes or {}}, arrays)


def load_ranker(folder: str | Path) -> Ranker | Trees:
    """Read what `save_ranker` wrote. A file of another kind, damaged or from a newer version is refused."""
    header, arrays = FOLDER.read(folder)
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
        raise FOLDER.damaged(folder, error) from None


def _check_shapes(ranker: Ranker) -> None:
    """Weights that fit together score a document of zeros."""
    if ranker.tower == "network":
        if ranker.score(np.zeros((1, ranker.n_features), np.float32)).shape != (1,):
            raise ValueError("the last layer must give one number")
    elif ranker.weights["table"].ndim != 1 or ranker.weights["intercept"].shape != (1,):
        raise ValueError("the table must have one logit per value")
