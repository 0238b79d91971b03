"""A ranker for other programs: ONNX, which serving systems read, or LightGBM's text of its trees."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.core.files import write_atomically
from clickshift.errors import CapabilityError, SpecError
from clickshift.ranking.lambdamart import Trees
from clickshift.ranking.ranker import Ranker

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
