"""Models come back from their folder as they were; a folder that is no model, or is damaged, is one clear error."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from clickshift import models
from clickshift.core.spec import parse, resolve
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import FileError
from clickshift.learners import DEFAULT, fit
from clickshift.models import MODELS
from clickshift.models.base import ClickModel
from clickshift.models.storage import FORMAT, load_model, load_seeds, read_header, save_model, save_seeds
from clickshift.simulation.users import USERS
from tests.codes import raises_code
from tests.folders import arrays_file, craft
from tests.models.random_models import random_neural


def with_text_ids(log: Sessions) -> Sessions:
    """The same log with ids that are text, some of them strange."""
    words = log.vocabulary
    query = np.array([f"<q>&ü {i}" for i in range(words.n_queries)], np.dtypes.StringDType())
    doc = np.array([f"[bold]{i:03}\n" for i in range(words.n_docs)], np.dtypes.StringDType())
    renamed = Vocabulary(query, doc, words.pair_query, words.pair_doc)
    return Sessions(Rankings(renamed, log.rankings.query, log.rankings.pair, log.rankings.shown), log.click)


def made(name: str, log: Sessions) -> ClickModel:
    """A model of every kind: fitted where there is a learner for it, otherwise with parameters at random."""
    if DEFAULT.get(name) == "Gradient":
        return random_neural(name, log.vocabulary)
    if name in DEFAULT:
        return fit(name, log)
    rng, n_pairs = np.random.default_rng(5), log.vocabulary.n_pairs
    if name == "Mixture":
        parts = tuple(fit(part, log) for part in ("UBM", "DBN", "rCTR"))
        inner = models.Mixture(log.vocabulary, parts[:2], np.array([0.25, 0.75]))
        return models.Mixture(log.vocabulary, (inner, parts[2]), np.array([0.6, 0.4]))
    if name == "Segmented":
        pooled, labels = fit("UBM", log), ("desktop", "phone")
        curves = rng.uniform(0.2, 0.8, (2, len(pooled.examination)))
        return models.Segmented(log.vocabulary, (pooled,), "device", labels, curves, 8.0, 2.0, 0.018)
    cls, values = resolve(name, MODELS), {}
    for field in dataclasses.fields(cls):
        kind = str(field.type)
        if field.name in {"vocabulary", "evidence", "bottom_up", "reference_code"}:
            continue
        size = n_pairs + 1 if kind == "PairTable" else 5 if "ndarray" in kind else None
        values[field.name] = 2 if kind == "int" else rng.uniform(0.2, 0.8, size)
    if name in {"ComplexBrowsing", "ExpectedComplexBrowsing"}:
        values["bottom_up"] = True
    if name == "ComplexBrowsing":
        values["reference_code"] = True
    return cls(log.vocabulary, **values)


def same(one: object, other: object) -> bool:
    """Equal in every field, to the last bit; the vocabulary by its fingerprint."""
    if isinstance(one, Vocabulary):
        return isinstance(other, Vocabulary) and one.fingerprint == other.fingerprint
    if dataclasses.is_dataclass(one):
        assert type(one) is type(other)
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other, equal_nan=True)
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, tuple):
        return isinstance(other, tuple) and len(one) == len(other) and all(map(same, one, other))
    return one == other or (one != one and other != other)


@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
@pytest.mark.parametrize(
    ("name", "ids"),
    [*((name, "integers") for name in MODELS), *((name, "text") for name in ("dCTR", "DBN", "NCM", "Mixture"))],
)
def test_a_model_comes_back_as_it_was(name: str, ids: str, log: Sessions, tmp_path: Path) -> None:
    log = log if ids == "integers" else with_text_ids(log)
    model = made(name, log)
    save_model(model, tmp_path / "model", notes={"log": "clicks.parquet"})
    back = load_model(tmp_path / "model")
    assert same(model, back)
    if model.predicts_clicks:
        assert np.array_equal(back.click_prob_given_history(log), model.click_prob_given_history(log))
    if model.ranks_documents:
        assert str(back.relevance_table().to_pydict()) == str(model.relevance_table().to_pydict())
    assert read_header(tmp_path / "model")["notes"] == {"log": "clicks.parquet"}
    assert not any(path.suffix in {".pkl", ".pickle"} for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("user", USERS)
def test_a_simulated_user_comes_back_as_it_was(user: str, corpus: Corpus, log: Sessions, tmp_path: Path) -> None:
    model = parse(user, USERS).on(corpus)
    save_model(model, tmp_path)
    assert np.array_equal(load_model(tmp_path).click_prob(log.rankings), model.click_prob(log.rankings))


def test_an_old_model_is_replaced(log: Sessions, tmp_path: Path) -> None:
    save_model(fit("DBN", log), tmp_path)
    save_model(fit("dCTR", log), tmp_path)
    assert isinstance(load_model(tmp_path), models.DCTR)
    assert sorted(path.name for path in tmp_path.iterdir()) == [arrays_file(tmp_path).name, "model.json"]


@pytest.fixture
def folder(log: Sessions, tmp_path: Path) -> Path:
    save_model(fit("dCTR", log), tmp_path / "model")
    return tmp_path / "model"


def edit(folder: Path, **changes: object) -> None:
    header = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(header | changes))


def truncate(path: Path, share: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


def without_a_field(folder: Path) -> None:
    header = json.loads((folder / "model.json").read_text())
    del header["model"]["name"]
    (folder / "model.json").write_text(json.dumps(header))


HEADER: dict[str, Any] = {"file": "model.json"}
ARRAYS: dict[str, Any] = {"file": "arrays"}
DAMAGE: dict[str, tuple[Callable[[Path], object], str, dict[str, Any]]] = {
    "no folder": (shutil.rmtree, "not-a-model", {}),
    "no header": (lambda folder: (folder / "model.json").unlink(), "not-a-model", {}),
    "no arrays": (lambda folder: arrays_file(folder).unlink(), "file-not-found", ARRAYS),
    "an empty header": (lambda folder: (folder / "model.json").write_text(""), "damaged-file", HEADER),
    "a header cut short": (lambda folder: truncate(folder / "model.json", 0.5), "damaged-file", HEADER),
    "a header that is no text": (
        lambda folder: (folder / "model.json").write_bytes(b"\xff\xfe\0"),
        "damaged-file",
        HEADER,
    ),
    "a header that is a list": (lambda folder: (folder / "model.json").write_text("[1]"), "damaged-file", HEADER),
    "a foreign header": (lambda folder: (folder / "model.json").write_text('{"a": 1}'), "damaged-file", HEADER),
    "a header without the model's name": (without_a_field, "damaged-file", {"cause": "KeyError"}),
    "a header without the vocabulary": (
        lambda folder: edit(folder, vocabulary={}),
        "damaged-file",
        {"cause": "KeyError"},
    ),
    "a newer format": (
        lambda folder: edit(folder, format=FORMAT + 1),
        "newer-format",
        HEADER | {"format": FORMAT + 1, "supported": FORMAT},
    ),
    "an unknown model": (
        lambda folder: edit(folder, model={"name": "Xyz", "fields": {}}),
        "damaged-file",
        {"cause": "SpecError"},
    ),
    "empty arrays": (lambda folder: truncate(arrays_file(folder), 0), "damaged-file", ARRAYS),
    "arrays cut short": (lambda folder: truncate(arrays_file(folder), 0.9), "damaged-file", ARRAYS),
    "arrays that are none": (
        lambda folder: arrays_file(folder).write_bytes(b"PK\3\4" * 99),
        "damaged-file",
        ARRAYS,
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_is_one_clear_error(damage: str, folder: Path) -> None:
    harm, code, facts = DAMAGE[damage]
    path = arrays_file(folder) if facts.get("file") == "arrays" else folder / facts.get("file", "")
    harm(folder)
    with raises_code(code, FileError, path=path, **{name: facts[name] for name in facts if name != "file"}) as caught:
        load_model(folder)
    said = str(caught.value)
    assert str(folder) in said
    assert "\n" not in said


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with raises_code("not-a-model", FileError, path=tmp_path / "file"):
        load_model(tmp_path / "file")


def test_arrays_of_another_log_are_refused(folder: Path, log: Sessions, tmp_path: Path) -> None:
    save_model(fit("dCTR", with_text_ids(log)), tmp_path / "other")
    shutil.copy(arrays_file(tmp_path / "other"), arrays_file(folder))
    with raises_code("damaged-file", FileError, cause="arrays-changed"):
        load_model(folder)


@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
@pytest.mark.parametrize("other", ["rCTR", "PBM", "drCTR"])
def test_arrays_of_another_model_are_refused(other: str, folder: Path, log: Sessions, tmp_path: Path) -> None:
    save_model(fit(other, log), tmp_path / "other")
    shutil.copy(arrays_file(tmp_path / "other"), arrays_file(folder))
    with raises_code("damaged-file", FileError, cause="arrays-changed"):
        load_model(folder)


@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
def test_arrays_of_another_fit_are_refused(log: Sessions, tmp_path: Path) -> None:
    """PBM and UBM have parameters of the same names."""
    for name in ("PBM", "UBM"):
        save_model(fit(name, log), tmp_path / name)
    shutil.copy(arrays_file(tmp_path / "PBM"), arrays_file(tmp_path / "UBM"))
    with raises_code("damaged-file", FileError, cause="arrays-changed"):
        load_model(tmp_path / "UBM")


def test_a_flipped_bit_is_noticed(folder: Path) -> None:
    path = arrays_file(folder)
    data = bytearray(path.read_bytes())
    data[-3] ^= 0x40
    path.write_bytes(bytes(data))
    with raises_code("damaged-file", FileError, cause="arrays-changed"):
        load_model(folder)


def test_a_folder_that_cannot_be_written_is_one_error(log: Sessions, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with raises_code("not-writable", FileError, path=tmp_path / "file" / "model"):
        save_model(fit("dCTR", log), tmp_path / "file" / "model")


def put(array: np.ndarray, value: float) -> np.ndarray:
    changed = array.copy()
    changed.flat[0] = value
    return changed


CRAFTED: dict[str, tuple[str, str, Callable[[np.ndarray], np.ndarray]]] = {
    "attractiveness above 1": ("UBM", "attractiveness", lambda array: put(array, 5.0)),
    "attractiveness below 0": ("DBN", "attractiveness", lambda array: put(array, -0.1)),
    "attractiveness that is no number": ("PBM", "attractiveness", lambda array: put(array, np.nan)),
    "examination without end": ("PBM", "examination", lambda array: put(array, np.inf)),
    "a pair too few": ("PBM", "attractiveness", lambda array: array[:-1]),
    "a pair too many": ("dCTR", "ctr", lambda array: np.append(array, 0.5)),
    "a table instead of a column": ("dCTR", "ctr", lambda array: array[:, None]),
    "a situation too few": ("UBM", "examination", lambda array: array[:-1]),
    "no rank at all": ("PBM", "examination", lambda array: array[:0]),
    "two of CCM's parameters": ("CCM", "continuation", lambda array: array[:2]),
    "click-through rates above 1": ("drCTR", "ctr", lambda array: array + 1),
    "integers": ("dCTR", "ctr", lambda array: array.astype(np.int64)),
    "scores that are no numbers": ("TopPop", "score", lambda array: put(array, np.nan)),
    "negative impressions": ("dCTR", "evidence.impressions", lambda array: -1 - array),
    "more clicks than impressions": ("dCTR", "evidence.clicks", lambda array: array + 1e6),
    "impressions of other pairs": ("dCTR", "evidence.impressions", lambda array: array[1:]),
    "negative standard errors": ("dCTR", "evidence.logit_error.ctr", lambda array: put(array, -1.0)),
    "standard errors of other pairs": ("dCTR", "evidence.logit_error.ctr", lambda array: array[1:]),
    "standard errors of one number": (
        "DBN",
        "evidence.logit_error.continuation",
        lambda array: np.repeat(array, 2),
    ),
    "a table of standard errors": ("DBN", "evidence.logit_error.continuation", lambda array: array[None]),
    "standard errors of the relevance of other pairs": (
        "DBN",
        "evidence.logit_error.relevance",
        lambda array: array[1:],
    ),
    "weights that are no numbers": ("NCM", "shared.weight", lambda array: put(array, np.nan)),
    "weights of another size": ("NCM", "shared.clicked", lambda array: array[:1]),
    "a readout of another size": ("NCM", "shared.readout", lambda array: np.zeros(10**5, np.float32)),
    "an input of another size": ("NCM", "by_pair.input", lambda array: array[:, :2]),
    "positions of another size": ("CACM_minus", "shared.position", lambda array: array[:0]),
    "a weight of a mixture above 1": ("Mixture", "weights", lambda array: np.array([2.0, -1.0])),
    "a component out of range": (
        "Mixture",
        "components.0.components.0.attractiveness",
        lambda array: array + 1,
    ),
}


@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
@pytest.mark.parametrize("crafted", CRAFTED)
def test_values_that_no_model_has_are_refused(crafted: str, log: Sessions, tmp_path: Path) -> None:
    name, array, change = CRAFTED[crafted]
    save_model(made(name, log), tmp_path)
    craft(tmp_path, "model.json", {array: np.ascontiguousarray(change(load_file(arrays_file(tmp_path))[array]))})
    with raises_code("damaged-file", FileError, path=tmp_path):
        load_model(tmp_path)


NO_DIRECTIONS = ({}, 1, "no", None)
NO_PROBABILITIES = (5, -0.5, float("nan"), "high", True, None, [0.5])


@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
@pytest.mark.parametrize(
    ("field", "value"),
    [*(("bottom_up", value) for value in NO_DIRECTIONS), *(("continuation", value) for value in NO_PROBABILITIES)],
)
def test_a_direction_or_a_continuation_that_is_none_is_refused(
    field: str, value: object, log: Sessions, tmp_path: Path
) -> None:
    save_model(fit("DBN", log), tmp_path)
    header = json.loads((tmp_path / "model.json").read_text())
    header["model"]["fields"][field] = value
    (tmp_path / "model.json").write_text(json.dumps(header))
    with raises_code("damaged-file", FileError, path=tmp_path):
        load_model(tmp_path)


@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
def test_seeds_are_replaced_together(log: Sessions, tmp_path: Path) -> None:
    first, second = fit("dCTR", log), fit("rCTR", log)
    save_seeds([first] * 3, tmp_path)
    assert [type(model) for model in load_seeds(tmp_path)] == [models.DCTR] * 3
    assert isinstance(load_model(tmp_path / "seed-2"), models.DCTR)
    save_seeds([second] * 2, tmp_path)
    assert [type(model) for model in load_seeds(tmp_path)] == [models.RCTR] * 2
    assert not (tmp_path / "seed-2").exists()
    save_seeds([first], tmp_path)
    assert len(load_seeds(tmp_path)) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [arrays_file(tmp_path).name, "model.json"]
