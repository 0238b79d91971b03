"""Rankers as files: a folder of clickshift, or a file for other programs.

`save_ranker` writes a folder with a JSON header and a safetensors file; loading it never runs code. `export_ranker`
writes ONNX, which serving systems read, or LightGBM's text of its trees.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from clickshift.core.artifacts import ArtifactFormat
from clickshift.core.files import write_atomically
from clickshift.display.document import Document
from clickshift.display.result import Result, plain
from clickshift.display.tables import Rows
from clickshift.errors import CapabilityError, SpecError
from clickshift.ranking._tree_text import checked_tree_text
from clickshift.ranking.lambdamart import TreeRanker
from clickshift.ranking.ranker import Ranker

_FORMAT = ArtifactFormat("ranker", 3, "train the ranker again", "clickshift rank train")
_EXAMINATION, _TREES, _TRAINING_QUERIES = "examination", "trees", "training_queries"
_OPSET = 17
"""ONNX operator set of 2022: old enough for the runtimes in use."""


def save_ranker(ranker: Ranker | TreeRanker, folder: str | Path, *, notes: dict[str, Any] | None = None) -> None:
    """Write a ranker to a folder.

    A ranker that is already in the folder is replaced at once: readers see the old one or the new one, and a killed
    write or a full disk leaves the old one.

    Parameters
    ----------
    ranker
        The ranker.
    folder
        Folder to write to; it is created if needed.
    notes
        Values that JSON can represent, to be stored with the ranker, e.g. the log that it was trained on.

    Raises
    ------
    FileError
        If the folder cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> ranker = Ranker("network", {"0": np.ones((2, 1), np.float32), "0.bias": np.zeros(1, np.float32)}, "ClickRanker")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_ranker(ranker, folder)
    ...     load_ranker(folder).n_features
    2
    """
    arrays: dict[str, np.ndarray]
    facts: dict[str, Any] = {"learner": ranker.learner}
    if isinstance(ranker, TreeRanker):
        facts |= {"kind": _TREES, "features": ranker.n_features}
        arrays = {_TREES: np.frombuffer(ranker.text.encode(), np.uint8)}
    else:
        loss = ranker.held_out_loss
        facts |= {"kind": ranker.tower, "held_out_loss": loss if np.isfinite(loss) else None}
        facts |= {"rounds": ranker.rounds, "converged": ranker.converged, "losses": plain(ranker.losses)}
        arrays = dict(ranker.weights)
        if ranker.examination is not None:
            arrays[_EXAMINATION] = ranker.examination
    if ranker.training_queries is not None:
        arrays[_TRAINING_QUERIES] = ranker.training_queries
    _FORMAT.write(folder, {"ranker": facts, "notes": notes or {}}, arrays)


def load_ranker(folder: str | Path) -> Ranker | TreeRanker:
    """Read a ranker that `save_ranker` wrote.

    Parameters
    ----------
    folder
        Folder of the ranker.

    Returns
    -------
    Ranker or TreeRanker
        The ranker.

    Raises
    ------
    FileError
        If the folder is not a ranker, is damaged, or was written by a newer version.

    Examples
    --------
    >>> import tempfile
    >>> ranker = Ranker("network", {"0": np.ones((2, 1), np.float32), "0.bias": np.zeros(1, np.float32)}, "ClickRanker")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_ranker(ranker, folder)
    ...     load_ranker(folder).score(np.zeros((1, 2), np.float32)).tolist()
    [0.0]
    """
    header, arrays = _FORMAT.read(folder)
    with _FORMAT.checking(folder):
        facts = header["ranker"]
        kind, learner = facts["kind"], str(facts["learner"])
        queries = arrays.pop(_TRAINING_QUERIES, None)
        if queries is not None and (queries.dtype != np.int64 or queries.ndim != 2 or queries.shape[1] < 2):
            raise ValueError("training queries must be rows of hashes")
        if kind == _TREES:
            text, n_features = arrays[_TREES].tobytes().decode(), int(facts["features"])
            return TreeRanker(checked_tree_text(text, n_features), n_features, learner, queries)
        if kind not in {"network", "one-hot"}:
            raise ValueError(f"the kind {kind!r} is not known")
        for name, array in arrays.items():
            if array.dtype.kind != "f" or not np.isfinite(array).all():
                raise ValueError(f"{name} must be finite numbers")
        loss, examination = facts["held_out_loss"], arrays.pop(_EXAMINATION, None)
        if examination is not None and (examination.ndim != 1 or (examination < 0).any()):
            raise ValueError("examination must be a column of numbers of 0 or more")
        loss = float("nan") if loss is None else float(loss)
        rounds, converged = int(facts["rounds"]), bool(facts["converged"])
        losses = tuple(float("nan") if value is None else float(value) for value in facts.get("losses", ()))
        ranker = Ranker(kind, arrays, learner, examination, loss, rounds, converged, losses, queries)
        _check_shapes(ranker)
        return ranker


def _check_shapes(ranker: Ranker) -> None:
    """Check that the weights have matching shapes, by scoring a document of zeros."""
    if ranker.tower == "network":
        if ranker.score(np.zeros((1, ranker.n_features), np.float32)).shape != (1,):
            raise ValueError("the last layer must give one number")
    elif ranker.weights["table"].ndim != 1 or ranker.weights["intercept"].shape != (1,):
        raise ValueError("the table must have one logit per value")


@dataclass(frozen=True, repr=False)
class RankerExport(Result):
    """A ranker that was written for other programs: returned by `export_ranker`.

    Parameters
    ----------
    learner
        Spec text of the ranker's learner.
    features
        Number of features that a document must have.
    output
        The file.

    Notes
    -----
    Facts (`to_dict`): `conclusion`; `learner`; `features`; `output`.
    """

    learner: str
    features: int
    output: str

    @property
    @override
    def conclusion(self) -> str:
        return f"Wrote {self.output}: {self.features:,} features of a document in, its score out."

    @override
    def rows(self) -> Rows:
        return [{"learner": self.learner, "features": self.features, "output": self.output}]

    @override
    def facts(self) -> Mapping[str, Any]:
        return {
            "conclusion": self.conclusion,
            "learner": self.learner,
            "features": self.features,
            "output": self.output,
        }

    @override
    def _document(self) -> Document:
        return Document("Exported ranker", self.conclusion, settings={"learner": self.learner})


def export_ranker(ranker: str | Path | Ranker | TreeRanker, path: str | Path) -> RankerExport:
    """Write a ranker for other programs: a network as ONNX (.onnx), trees as LightGBM's model text (.txt).

    The ONNX model has the input "features" (`document feature`, as they are in the file) and the output "score". The
    features are log-scaled inside the model, so that the serving program need not do it.

    Parameters
    ----------
    ranker
        A network or trees, or the folder of one.
    path
        File to write; its ending must match the kind of ranker.

    Returns
    -------
    RankerExport
        What was written.

    Raises
    ------
    CapabilityError
        If the ranker cannot be written to a file with this ending ("cannot-export").
    SpecError
        If the onnx package is not installed ("missing-dependency").

    Examples
    --------
    >>> import clickshift as cs, tempfile
    >>> corpus = cs.builtin_corpus(queries=10)
    >>> log = cs.simulate(corpus, cs.BM25(), cs.users.PBM(), 500, rng=0)
    >>> ranker = cs.train_ranker(corpus, log, loss="lambdamart", examination="1/rank").ranker
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_ranker(ranker, Path(folder) / "trees.txt").features == corpus.features.shape[1]
    True
    """
    ranker = load_ranker(ranker) if isinstance(ranker, str | Path) else ranker
    ending = Path(path).suffix.lower()
    if isinstance(ranker, TreeRanker) and ending == ".txt":
        with write_atomically(path) as temporary:
            temporary.write_text(ranker.text, encoding="utf-8")
    elif isinstance(ranker, Ranker) and ranker.tower == "network" and ending == ".onnx":
        _export_onnx(ranker, path)
    else:
        kind = "trees" if isinstance(ranker, TreeRanker) else f"a {ranker.tower} ranker"
        raise CapabilityError(
            "networks are exported as .onnx, trees as .txt, which LightGBM reads: "
            f"got {kind} and the ending {ending!r}. Choose the ending of its kind; one-hot rankers cannot be exported, "
            "use their `scores`.",
            code="cannot-export",
            kind=kind,
            ending=ending,
        )
    return RankerExport(ranker.learner, ranker.n_features, str(path))


def _export_onnx(ranker: Ranker, path: str | Path) -> None:
    """Write a network as ONNX, with the log-scaling of features inside."""
    if importlib.util.find_spec("onnx") is None:
        raise SpecError(
            "ONNX files need the onnx library. Install it: pip install 'clickshift[onnx]'.",
            code="missing-dependency",
            packages=["onnx"],
        )
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
    constants: dict[str, Any] = {"one": one, "last_axis": np.array([1], np.int64)}
    for layer in range(layers):
        constants |= {f"weight_{layer}": ranker.weights[f"{layer}"], f"bias_{layer}": ranker.weights[f"{layer}.bias"]}
    graph = helper.make_graph(
        nodes,
        "ranker",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["document", ranker.n_features])],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, ["document"])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], producer_name="clickshift")
    model.ir_version = 8  # of the same year as the operator set; the library would write its newest
    helper.set_model_props(model, {"learner": ranker.learner})
    onnx.checker.check_model(model)
    with write_atomically(path) as temporary:
        temporary.write_bytes(model.SerializeToString())
