"""Rankers as files: a folder with a JSON header and a safetensors file. Opening one never runs code."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.core.artifacts import ArtifactFormat
from clickshift.core.files import write_atomically
from clickshift.errors import CapabilityError, SpecError
from clickshift.ranking.lambdamart import Trees
from clickshift.ranking.ranker import Ranker

FOLDER = ArtifactFormat("ranker", 1, "train the ranker again", "clickshift rank train")
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


OPSET = 17
"""Of 2022: old enough for the runtimes in use."""


def export_ranker(ranker: Ranker | Trees, path: str | Path) -> None:
    """Write a network as .onnx, trees as .txt."""
    kind = Path(path).suffix.lower()
    if isinstance(ranker, Trees) and kind == ".txt":
        with write_atomically(path) as temporary:
            temporary.write_text(ranker.text, encoding="utf-8")
    elif isinstance(ranker, Ranker) and ranker.tower == "network" and kind == ".onnx":
        export_onnx(ranker, path)
    else:
        what = "trees" if isinstance(ranker, Trees) else f"a {ranker.tower} ranker"
        raise CapabilityError(
            f"networks are exported as .onnx, trees as .txt, which LightGBM reads: got {what} and the ending {kind!r}. "
            "`clickshift rank score` uses rankers of all kinds."
        )


def export_onnx(ranker: Ranker, path: str | Path) -> None:
    """Write a network as ONNX: input "features" `document feature`, as they are in the file; output "score".

    The features are log-scaled inside, so that the program that scores need not know of it.
    """
    if importlib.util.find_spec("onnx") is None:
        raise SpecError("ONNX files need the onnx library. Install it: pip install 'clickshift[onnx]'.")
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    layers = len(ranker.weights) // 2
    one = np.ones(1, np.float32)
    nodes = [
        helper.make_node("Abs", ["features"], ["size"]),
        helper.make_node("Add", ["size", "one"], ["size_1"]),
        helper.make_node("Log", ["size_1"], ["log"]),
        helper.make_node("Sign", ["features"], ["sign"]),
        helper.make_node("Mul", ["sign", "log"], ["values_0"]),
    ]
    for layer in range(layers):
        last = layer == layers - 1
        product = "scores" if last else f"product_{layer}"
        names = [f"values_{layer}", f"weight_{layer}", f"bias_{layer}"]
        nodes.append(helper.make_node("Gemm", names, [product]))
        if not last:
            nodes.append(helper.make_node("Elu", [product], [f"values_{layer + 1}"], alpha=1.0))
    nodes.append(helper.make_node("Squeeze", ["scores", "last_axis"], ["score"]))
    known: dict[str, Any] = {"one": one, "last_axis": np.array([1], np.int64)}
    for layer in range(layers):
        known |= {f"weight_{layer}": ranker.weights[f"{layer}"], f"bias_{layer}": ranker.weights[f"{layer}.bias"]}
    graph = helper.make_graph(
        nodes,
        "ranker",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["document", ranker.n_features])],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, ["document"])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in known.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="clickshift")
    model.ir_version = 8  # of the same time; the library would write its newest
    helper.set_model_props(model, {"learner": ranker.learner})
    onnx.checker.check_model(model)
    with write_atomically(path) as temporary:
        temporary.write_bytes(model.SerializeToString())
