"""Boosted trees: labels that LightGBM can read, files that it reads as we mean them, and a baseline that learns."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import lightgbm
import numpy as np
import pyarrow.parquet as pq
import pytest

from clickshift.core.spec import label, parse
from clickshift.counts.cells import Cells
from clickshift.data.corpus import Corpus
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError, FileError, SpecError
from clickshift.ranking import RANKERS, BoostedRanker, TreeRanker, Trust, load_ranker, save_ranker
from clickshift.ranking.lambdamart import BoostingData, _grade_relevance, boosting_data
from clickshift.ranking.lightgbm_files import write_boosting_data
from clickshift.ranking.storage import export_ranker
from tests.codes import raises_code

EXAMINATION = 1 / np.arange(1.0, 9)


def world(rng, queries: int = 120, *, shuffle: bool = True) -> tuple[Corpus, Cells]:
    """Relevance by the first feature. A ranker that likes the second one decided what is seen."""
    features = rng.random((8 * queries, 3)).astype(np.float32)
    words = Vocabulary.of(np.repeat(np.arange(queries), 8), np.arange(8 * queries))[0]
    y = 0.1 + 0.8 * features[:, 0] ** 2
    corpus = Corpus(words, np.rint(4 * features[:, 0]), features)
    rank = np.argsort(np.argsort(-features[:, 1].reshape(queries, 8)), axis=1).ravel()
    visits = np.repeat(rng.integers(50, 200, queries), 8).astype(float)
    clicks = rng.binomial(visits.astype(int), y * EXAMINATION[rank]).astype(float)
    return corpus, Cells(words, 8, "rank", np.arange(len(y)), rank, visits, clicks)


def test_grades() -> None:
    values = np.array([0.3, 0.0, 7.5, 0.3])
    grade, gain = _grade_relevance(values)
    np.testing.assert_array_equal(gain[grade], values)
    many = np.random.default_rng(0).gamma(0.3, size=5000)
    many[:2000] = 0
    grade, gain = _grade_relevance(many)
    assert len(gain) <= 256
    assert (np.diff(gain) > 0).all()
    assert gain[0] == 0
    assert (np.diff(grade[np.argsort(many, kind="stable")]) >= 0).all()
    assert gain[grade].mean() == pytest.approx(many.mean())
    assert np.corrcoef(gain[grade], many)[0, 1] > 0.99


def test_data(rng) -> None:
    words = Vocabulary.of([0, 0, 0, 1, 1], [0, 1, 2, 3, 4])[0]
    corpus = Corpus(words, np.zeros(5), np.arange(10).reshape(5, 2))
    pair, rank = np.array([0, 0, 1, 1, 3]), np.array([0, 1, 0, 1, 0])
    cells = Cells(words, 2, "rank", pair, rank, np.array([3.0, 7, 7, 3, 30]), np.array([3.0, 1, 0, 3, 30]))
    data = boosting_data(corpus, cells, examination=np.array([1.0, 0.5]))
    assert data.pair.tolist() == [0, 1, 3]
    np.testing.assert_allclose(data.relevance, [(3 + 1 / 0.5) / 10, (3 / 0.5) / 10, 1])
    np.testing.assert_array_equal(data.gain[data.grade], data.relevance)
    assert data.position.tolist() == [1, 0, 0]
    np.testing.assert_allclose(data.weight, [0.5, 0.5, 1.5])
    assert data.group.tolist() == [2, 1]
    below = boosting_data(corpus, cells, "affine", trust=Trust(np.array([0.5, 0.5]), np.array([0.3, 0.4])))
    assert below.relevance.min() == 0


def test_it_learns_what_examination_hides(rng) -> None:
    corpus, cells = world(rng)
    fresh, _ = world(np.random.default_rng(5), 40)
    options = {"trees": 60, "leaves": 8}
    given = BoostedRanker(**options).fit(corpus, cells, examination=EXAMINATION)
    naive = BoostedRanker(bias="naive", **options).fit(corpus, cells)
    estimated = BoostedRanker(bias="estimated", **options).fit(corpus, cells)

    def within(ranker: TreeRanker, feature: int) -> float:
        """Mean over queries of the correlation with a feature."""
        score, values = ranker.scores(fresh).reshape(-1, 8), fresh.features[:, feature].reshape(-1, 8)
        return float(np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(score, values, strict=True)]))

    assert within(given, 0) > 0.85
    assert abs(within(given, 1)) < 0.2
    assert within(naive, 1) > 0.6  # it takes a good place for a good document
    assert within(estimated, 1) < within(naive, 1) - 0.2


def test_runs_are_the_same_again(rng) -> None:
    corpus, cells = world(rng, 30)
    a, b = (BoostedRanker(trees=5).fit(corpus, cells, examination=EXAMINATION) for _ in range(2))
    assert a.text == b.text


def test_files_bring_trees_back(rng, tmp_path) -> None:
    corpus, cells = world(rng, 30)
    trees = BoostedRanker(trees=5, leaves=4).fit(corpus, cells, examination=EXAMINATION)
    save_ranker(trees, tmp_path / "r")
    again = load_ranker(tmp_path / "r")
    assert isinstance(again, TreeRanker)
    assert (again.text, again.n_features, again.learner) == (trees.text, 3, "BoostedRanker(trees=5, leaves=4)")
    export_ranker(trees, tmp_path / "trees.txt")
    predicted = lightgbm.Booster(model_file=tmp_path / "trees.txt").predict(corpus.features)
    np.testing.assert_array_equal(predicted, again.scores(corpus))
    with raises_code("wrong-feature-count", DataError, expected=3, count=2):
        trees.scores(Corpus(corpus.vocabulary, corpus.label, corpus.features[:, :2]))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("split_feature", 3), ("split_feature", -1), ("left_child", 7), ("right_child", -9), ("left_child", 0)),
        *(("leaf_value", "nan"), ("num_leaves", 99), ("num_cat", 1)),
    ],
)
def test_trees_that_refer_to_nothing_are_refused(rng, tmp_path, field: str, value: object) -> None:
    trees = BoostedRanker(trees=2, leaves=4).fit(*world(rng, 30), examination=EXAMINATION)
    line = re.search(rf"\n{field}=(\S+)(.*)", trees.text)
    assert line is not None
    save_ranker(replace(trees, text=trees.text.replace(line[0], f"\n{field}={value}{line[2]}", 1)), tmp_path)
    with raises_code("damaged-file", FileError, path=tmp_path, cause="ValueError"):
        load_ranker(tmp_path)


@pytest.fixture
def data(rng) -> BoostingData:
    return boosting_data(*world(rng, 25), examination=EXAMINATION)


def test_lightgbm_reads_its_text_as_we_mean_it(data, tmp_path) -> None:
    files = write_boosting_data(data, tmp_path / "clicks.txt")
    names = ["clicks.txt", *(f"clicks.txt.{end}" for end in ("query", "weight", "position", "conf"))]
    assert [file.name for file in files] == names
    known = lightgbm.Dataset(str(files[0]), params={"verbosity": -1, "min_data_in_leaf": 1}).construct()
    np.testing.assert_array_equal(known.get_label(), data.grade)
    np.testing.assert_array_equal(known.get_group(), data.group)
    np.testing.assert_allclose(known.get_weight(), data.weight, rtol=1e-6)
    ids = dict(zip(known.get_position().tolist(), data.position.tolist(), strict=True))
    assert [ids[position] for position in known.get_position().tolist()] == data.position.tolist()
    settings = dict(line.split(" = ") for line in files[-1].read_text().splitlines())
    assert settings["objective"] == "lambdarank"
    np.testing.assert_allclose([float(gain) for gain in settings["label_gain"].split(",")], data.gain, rtol=1e-8)
    rows = np.loadtxt(files[0], converters=lambda text: float(text.split(":")[-1]), encoding="ascii")
    np.testing.assert_array_equal(rows[:, 1:].astype(np.float32), data.corpus.features[data.pair])


def test_tables(data, tmp_path) -> None:
    [path] = write_boosting_data(data, tmp_path / "clicks.parquet", notes={"loss": "ips"})
    table = pq.read_table(path)
    assert table.column_names[:6] == ["query", "doc", "relevance", "grade", "weight", "position"]
    assert table.column_names[-3:] == ["f1", "f2", "f3"]
    notes = json.loads(table.schema.metadata[b"clickshift"])
    assert notes["loss"] == "ips"
    np.testing.assert_allclose(np.array(notes["label_gain"])[table["grade"].to_numpy()], table["relevance"].to_numpy())
    assert table["position"].to_numpy().min() == 1
    ranker = lightgbm.LGBMRanker(n_estimators=3, min_child_samples=1, label_gain=notes["label_gain"], verbosity=-1)
    features = np.stack([table[f"f{k}"].to_numpy() for k in (1, 2, 3)], axis=1)
    sizes = np.unique(table["query"].to_numpy(), return_counts=True)[1]
    ranker.fit(features, table["grade"].to_numpy(), group=sizes, sample_weight=table["weight"].to_numpy())


def test_bad_input(rng, tmp_path: Path) -> None:
    corpus, cells = world(rng, 4)
    with raises_code("bad-option", SpecError, loss="pbm", bias="given"):
        BoostedRanker("pbm")
    with raises_code("bad-option", SpecError, leaves=1):
        BoostedRanker(leaves=1)
    with raises_code("missing-examination", SpecError):
        BoostedRanker().fit(corpus, cells)
    with raises_code("unknown-format", FileError, known=[".parquet", ".csv", ".jsonl", ".txt", ".train"]):
        write_boosting_data(boosting_data(corpus, cells), tmp_path / "clicks.svm")
    learner = BoostedRanker("affine", trees=7)
    assert parse(label(learner), RANKERS) == learner
