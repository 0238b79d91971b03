"""Rankers: policies, files that come back the same or not at all, and ONNX that gives the same scores."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from clickshift.core.files import content_key
from clickshift.data.corpus import Corpus
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import CapabilityError, DataError, FileError
from clickshift.policies.base import ScoredPolicy
from clickshift.ranking import Ranker, TreeRanker, load_ranker, save_ranker
from clickshift.ranking.ranker import warn_constant_features
from clickshift.ranking.storage import export_ranker
from clickshift.testing import check_policy
from tests.codes import raises_code, warns_code
from tests.folders import arrays_file, craft


@pytest.fixture
def documents(rng) -> Corpus:
    words = Vocabulary.of(np.repeat(np.arange(10), 4), np.arange(40))[0]
    return Corpus(words, np.zeros(40), (rng.normal(size=(40, 3)) * np.array([1, 100, 1e6])).astype(np.float32))


@pytest.fixture
def network(rng) -> Ranker:
    sizes = [(3, 6), (6, 4), (4, 1)]
    weights = {f"{k}": rng.normal(size=shape).astype(np.float32) for k, shape in enumerate(sizes)}
    weights |= {f"{k}.bias": rng.normal(size=shape[1]).astype(np.float32) for k, shape in enumerate(sizes)}
    return Ranker("network", weights, "ClickRanker(hidden=(6, 4))", None, 1.25, 7, True)


@pytest.fixture
def table() -> Ranker:
    weights = {"table": np.array([0.5, -1.0, 2.0], np.float32), "intercept": np.array([0.25], np.float32)}
    return Ranker("one-hot", weights, "ClickRanker(tower='one-hot')", np.array([1.0, 0.5]))


def test_scores_document_by_document(network, documents) -> None:
    scores = network.scores(documents)
    for row, score in zip(documents.features.astype(float), scores, strict=True):
        values = [np.sign(x) * np.log(1 + abs(x)) for x in row]
        for layer in range(3):
            weight, bias = network.weights[f"{layer}"].astype(float), network.weights[f"{layer}.bias"]
            values = [sum(v * w for v, w in zip(values, weight[:, j], strict=True)) + bias[j] for j in range(len(bias))]
            if layer < 2:
                values = [v if v > 0 else np.exp(v) - 1 for v in values]
        assert score == pytest.approx(values[0], rel=1e-4, abs=1e-4)
    np.testing.assert_allclose(network.relevance(documents), 1 / (1 + np.exp(-scores)), rtol=1e-6, atol=1e-12)


def test_one_hot_scores(table) -> None:
    corpus = Corpus(Vocabulary.of([1, 1, 1], [1, 2, 3])[0], np.zeros(3), np.array([[2], [0], [2]], np.float32))
    np.testing.assert_allclose(table.scores(corpus), [2.25, 0.75, 2.25])
    with raises_code("feature-out-of-range", DataError, value=3, largest=2):
        table.scores(Corpus(corpus.vocabulary, np.zeros(3), np.array([[2], [0], [3]], np.float32)))


def test_a_ranker_is_a_policy(network, documents) -> None:
    assert isinstance(network, ScoredPolicy)
    check_policy(network, documents)
    placed = network.on(documents).placement(ranks=1)[:, 0].reshape(10, 4)
    assert (placed.argmax(axis=1) == network.scores(documents).reshape(10, 4).argmax(axis=1)).all()


def test_other_features(network, documents) -> None:
    fewer = Corpus(documents.vocabulary, documents.label, documents.features[:, :2])
    with raises_code("wrong-feature-count", DataError, expected=3, count=2):
        network.scores(fewer)
    broken = documents.features.copy()
    broken[6, 1] = np.inf
    with raises_code("not-finite", DataError, feature=2, document="6", query="1"):
        network.scores(Corpus(documents.vocabulary, documents.label, broken))


def test_features_as_large_as_files_may_have(network, documents) -> None:
    largest = np.full_like(documents.features, np.finfo(np.float32).max)
    assert np.isfinite(network.scores(Corpus(documents.vocabulary, documents.label, largest))).all()


def test_constant_features_are_told(documents) -> None:
    features = np.zeros((40, 9), np.float32)
    features[:, :2] = documents.features[:, :2]
    with warns_code("constant-features", features=[3, 4, 5, 6, 7, 8, 9], count=7):
        warn_constant_features(Corpus(documents.vocabulary, documents.label, features))
    warn_constant_features(documents)


def same(a: Ranker | TreeRanker, b: Ranker | TreeRanker) -> None:
    assert type(a) is type(b)
    for name, value in vars(a).items():
        other = getattr(b, name)
        if isinstance(value, dict):
            assert value.keys() == other.keys()
            for part in value:
                np.testing.assert_array_equal(value[part], other[part])
        else:
            np.testing.assert_array_equal(value, other)


@pytest.mark.parametrize("kind", ["network", "table"])
def test_files_bring_back_what_was_saved(request, tmp_path, kind) -> None:
    ranker = request.getfixturevalue(kind)
    save_ranker(ranker, tmp_path / "r", notes={"log": "clicks.parquet"})
    same(ranker, load_ranker(tmp_path / "r"))
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == [arrays_file(tmp_path / "r").name, "ranker.json"]
    assert json.loads((tmp_path / "r" / "ranker.json").read_text())["notes"] == {"log": "clicks.parquet"}


def test_files_that_are_no_ranker(network, tmp_path) -> None:
    folder = tmp_path / "r"
    with raises_code("not-a-ranker", FileError, path=tmp_path):
        load_ranker(tmp_path)
    save_ranker(network, folder)
    header, arrays = folder / "ranker.json", arrays_file(folder)
    good, weights = header.read_text(), arrays.read_bytes()

    arrays.write_bytes(weights[:-8] + b"\0" * 8)
    with raises_code("damaged-file", FileError, path=folder):
        load_ranker(folder)
    arrays.write_bytes(pickle.dumps({"weights": 1}))
    with raises_code("damaged-file", FileError, path=arrays):
        load_ranker(folder)
    arrays.unlink()
    with raises_code("file-not-found", FileError, path=arrays):
        load_ranker(folder)
    arrays.write_bytes(weights)

    header.write_text(good.replace('"format": 3', '"format": 4'))
    with raises_code("newer-format", FileError, path=header, format=4, supported=3):
        load_ranker(folder)
    for bad in ("[]", "{", good[:40]):
        header.write_text(bad)
        with raises_code("damaged-file", FileError, path=header):
            load_ranker(folder)
    header.write_text(good.replace('"kind": "network"', '"kind": "oracle"'))
    with raises_code(
        "damaged-file", FileError, path=folder, cause="ValueError", detail="the kind 'oracle' is not known"
    ):
        load_ranker(folder)
    header.write_text(good.replace('"rounds"', '"turns"'))
    with raises_code("damaged-file", FileError, path=folder, cause="KeyError", detail="'rounds'"):
        load_ranker(folder)

    parts = load_file(arrays)
    save_file(parts | {"1": parts["1"][:5].copy()}, arrays)
    header.write_text(json.dumps(json.loads(good) | {"arrays": content_key([arrays])}))
    with raises_code("damaged-file", FileError, path=folder, cause="ValueError"):
        load_ranker(folder)


@pytest.mark.parametrize("name", ["network", "table"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_refused(request, name, value, tmp_path) -> None:
    save_ranker(request.getfixturevalue(name), tmp_path)
    weight = next(key for key, array in load_file(arrays_file(tmp_path)).items() if array.size > 1)
    craft(tmp_path, "ranker.json", {weight: np.full_like(load_file(arrays_file(tmp_path))[weight], value)})
    with raises_code("damaged-file", FileError, path=tmp_path, cause="ValueError"):
        load_ranker(tmp_path)


def test_onnx_gives_the_same_scores(network, documents, tmp_path) -> None:
    pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    export_ranker(network, tmp_path / "ranker.onnx")
    [scores] = ReferenceEvaluator(str(tmp_path / "ranker.onnx")).run(None, {"features": documents.features})
    np.testing.assert_allclose(scores, network.scores(documents), rtol=1e-5, atol=1e-5)


def test_what_cannot_be_exported(network, table, tmp_path: Path) -> None:
    for ranker, kind, ending in ((table, "a one-hot ranker", ".onnx"), (network, "a network ranker", ".txt")):
        with raises_code("cannot-export", CapabilityError) as caught:
            export_ranker(ranker, tmp_path / f"ranker{ending}")
        assert caught.value.facts == {"kind": kind, "ending": ending}
    assert not list(tmp_path.iterdir())
