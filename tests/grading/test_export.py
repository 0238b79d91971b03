"""Files of judgments, read back by readers of others and held against the schemas that the tools publish."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import clickshift as cs
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError, FileError
from clickshift.grading.export import JUDGMENT_FORMATS
from clickshift.io.qrels import read_qrels
from clickshift.models import DCTR
from clickshift.models.base import Evidence
from tests.codes import raises_code, warns_code

Grades = dict[tuple[str, str], int]
AWKWARD = {  # texts of queries and ids of documents with everything that a separator or a quote may be
    ('red "shoes", new', "B07-1"): 4,
    ('red "shoes", new', "B07|2"): 2,
    ("= SUM(A1:A9)", "日本"): 1,
    ("grüße {x}: #1", "a,b"): 0,
    ("plain", "B07-1"): 3,
}
RELEVANCE = [0.01, 0.07, 0.15, 0.3, 0.5]


def graded(grades: Grades | None = None) -> Any:
    """Judgments with these grades, by a model made by hand."""
    grades = AWKWARD if grades is None else grades
    vocabulary, _, pair = Vocabulary.of([query for query, _ in grades], [doc for _, doc in grades])
    ctr, shown = np.zeros(vocabulary.n_pairs + 1), np.zeros(vocabulary.n_pairs + 1)
    ctr[pair], shown[pair] = [RELEVANCE[grade] for grade in grades.values()], 100.0
    evidence = Evidence("by hand", shown, shown / 4, {"relevance": np.ones(len(ctr))})
    return cs.judgments(DCTR(vocabulary, ctr, evidence=evidence))


def written(path: Path, format: str, grades: Grades | None = None) -> str:
    assert graded(grades).write(path, format=format).files[0] == path
    return path.read_text(encoding="utf-8")


def test_opensearch_ratings_are_texts(tmp_path: Path) -> None:
    """Schema of PUT _plugins/_search_relevance/judgments: ratings as JSON strings that are numbers, no empty docId."""
    body = json.loads(written(tmp_path / "mine.json", "opensearch"))
    assert list(body) == ["name", "description", "type", "judgmentRatings"]
    assert (body["name"], body["type"]) == ("mine", "IMPORT_JUDGMENT")
    assert "model dCTR" in body["description"]
    found = {}
    for entry in body["judgmentRatings"]:
        assert list(entry) == ["query", "ratings"]
        for rating in entry["ratings"]:
            assert list(rating) == ["docId", "rating"]
            assert isinstance(rating["rating"], str)
            found[entry["query"], rating["docId"]] = float(rating["rating"])
    assert found == AWKWARD
    assert len({entry["query"] for entry in body["judgmentRatings"]}) == len(body["judgmentRatings"]) == 4


def test_quepid_reads_a_csv_of_ratings(tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(written(tmp_path / "q.csv", "quepid"), newline="")))
    assert list(rows[0]) == ["query", "docid", "rating"]
    assert {(row["query"], row["docid"]): int(row["rating"]) for row in rows} == AWKWARD
    frame = pd.read_csv(tmp_path / "q.csv")
    assert dict(zip(zip(frame["query"], frame["docid"], strict=True), frame["rating"], strict=True)) == AWKWARD


def test_rre_takes_documents_from_groups_of_queries(tmp_path: Path) -> None:
    """Its engine reads index and id_field, the groups, their documents, and the template and text of each query."""
    body = json.loads(written(tmp_path / "shop.json", "rre"))
    assert list(body) == ["id_field", "index", "query_groups"]
    assert (body["id_field"], body["index"]) == ("id", "shop")
    found = {}
    for group in body["query_groups"]:
        assert list(group) == ["name", "queries", "relevant_documents"]
        (query,) = group["queries"]
        assert query["template"] == "template.json"
        assert query["placeholders"] == {"$query": group["name"]}
        found |= {(group["name"], doc): gain["gain"] for doc, gain in group["relevant_documents"].items()}
    assert found == {pair: grade for pair, grade in AWKWARD.items() if grade}, "grade 0 is not relevant"


def test_quepid_imports_ratings_of_rre_by_gain(tmp_path: Path) -> None:
    body = json.loads(written(tmp_path / "shop.json", "quepid-rre"))
    assert list(body) == ["id_field", "index", "queries"]
    found = {
        (query["placeholders"]["$query"], doc): int(gain)
        for query in body["queries"]
        for gain, docs in query["relevant_documents"].items()
        for doc in docs
    }
    assert found == AWKWARD


def test_ranx_is_a_dictionary_of_dictionaries(tmp_path: Path) -> None:
    found = json.loads(written(tmp_path / "ranx.json", "ranx"))
    assert {(query, doc): grade for query, docs in found.items() for doc, grade in docs.items()} == AWKWARD


def test_qrels_keep_ids_without_white_space(tmp_path: Path) -> None:
    text = written(tmp_path / "out.qrels", "trec", {("<dogs>", "a"): 3, ("<dogs>", "d"): 1, ("cats", "[c]"): 4})
    assert text == "<dogs> 0 a 3\n<dogs> 0 d 1\ncats 0 [c] 4\n"
    assert len(read_qrels(tmp_path / "out.qrels")) == 3
    assert [file.name for file in tmp_path.iterdir()] == ["out.qrels"]


@pytest.mark.parametrize("blank", ["red shoes", "tab\there", " x", "line\n", "\u2003", "\x1c", 'a "quoted" one'])
def test_qrels_number_ids_with_white_space(blank: str, tmp_path: Path) -> None:
    """All queries are numbered if one has to be; the file beside it gives each number its text back."""
    grades = {(blank, "a"): 3, ("hats", "a"): 1, ("hats", "b c"): 0}
    files = graded(grades).write(tmp_path / "out.qrels", format="trec").files
    assert [file.name for file in files] == ["out.qrels", "out.qrels.queries.csv", "out.qrels.docs.csv"]
    keys = []
    for file, name in zip(files[1:], ("query", "doc"), strict=True):
        with file.open(encoding="utf-8", newline="") as lines:
            keys.append({row["number"]: row[name] for row in csv.DictReader(lines)})
    rows = pd.read_csv(files[0], sep=" ", header=None, dtype=str).to_numpy().tolist()
    assert {(keys[0][query], keys[1][doc]): int(grade) for query, _, doc, grade in rows} == grades
    assert {iteration for _, iteration, *_ in rows} == {"0"}


def test_ltr_lines_are_those_of_svmlight(tmp_path: Path) -> None:
    """Scikit-learn reads the grade and the number of the query; document and query follow as a comment."""
    from sklearn.datasets import load_svmlight_file

    docs = {pair: grade for pair, grade in AWKWARD.items() if "#" not in pair[0]}
    lines = written(tmp_path / "ratings.txt", "ltr", docs).splitlines()
    # one feature for the reader, which must find columns
    text = "".join(f"{head}1:0 #{tail}\n" for head, _, tail in (line.partition("#") for line in lines))
    _, grades, qid = load_svmlight_file(io.BytesIO(text.encode()), query_id=True)
    comments = [line.partition(" # ")[2].partition(" ") for line in lines]
    assert {(query, doc): int(g) for (doc, _, query), g in zip(comments, grades, strict=True)} == docs
    assert (np.diff(qid) >= 0).all()
    assert dict(zip((query for _, _, query in comments), qid.tolist(), strict=True)) == {
        query: number for number, query in enumerate(sorted({query for query, _ in docs}), start=1)
    }


def test_xgboost_gets_sorted_query_numbers(tmp_path: Path) -> None:
    graded().write(tmp_path / "train.parquet", format="xgboost")
    frame = pq.read_table(tmp_path / "train.parquet").to_pandas()
    assert list(frame) == ["qid", "query", "doc", "grade"]
    assert frame["qid"].is_monotonic_increasing
    assert frame.groupby("qid")["query"].nunique().tolist() == [1, 1, 1, 1]
    assert dict(zip(zip(frame["query"], frame["doc"], strict=True), frame["grade"], strict=True)) == AWKWARD


@pytest.mark.parametrize(
    ("format", "pair"),
    [
        ("opensearch", ("shoes", "")),
        ("ltr", ("two\nlines", "a")),
        ("ltr", ("shoes", "a b")),
        ("rre", ("two", " ")),
    ],
)
def test_ids_that_a_format_cannot_hold_are_refused(format: str, pair: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("before")
    with raises_code("bad-id", DataError, count=1):
        graded({pair: 3, ("hats", "b"): 1}).write(path, format=format)
    assert path.read_text() == "before"


@pytest.mark.parametrize("format", ["opensearch", "quepid", "quepid-rre", "rre", "ltr"])
def test_queries_without_a_text_are_left_out(format: str, tmp_path: Path) -> None:
    grades = {("shoes", "a"): 3, ("hats", "b"): 1}
    expected = written(tmp_path / "out.json", format, grades)
    with warns_code("empty-query", count=3):
        found = written(tmp_path / "out.json", format, grades | {("", "a"): 2, ("", "b"): 1, (" ", "b"): 4})
    assert found == expected
    with raises_code("bad-id", DataError, count=2):  # nothing is left
        graded({("", "a"): 2, (" ", "b"): 1}).write(tmp_path / "out.json", format=format)
    assert (tmp_path / "out.json").read_text() == expected


@pytest.mark.parametrize("format", JUDGMENT_FORMATS)
def test_a_failed_write_leaves_the_old_file(format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / ("out.parquet" if format in {"parquet", "lightgbm", "xgboost"} else "out.csv")
    grades = {("shoes", "a"): 3, ("hats", "b"): 1}
    graded(grades).write(path, format=format)
    before = path.read_bytes()

    def full_disk(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full_disk)
    with pytest.raises((FileError, OSError)):
        graded({("shoes", "a"): 1}).write(path, format=format)
    assert path.read_bytes() == before
    assert not [file for file in tmp_path.iterdir() if "tmp" in file.name]


def numbered() -> DCTR:
    """A model whose queries are numbers."""
    vocabulary, _, _ = Vocabulary.of([7, 8], ["a", "b"])
    shown = np.full(3, 50.0)
    return DCTR(vocabulary, np.array([0.5, 0.15, 0.1]), evidence=Evidence("by hand", shown, shown / 2))


def test_texts_of_queries_come_from_a_table(tmp_path: Path) -> None:
    with warns_code("queries-without-texts", value="7"):
        cs.judgments(numbered()).write(tmp_path / "ids.json", format="opensearch")
    texts = pd.DataFrame({"query": ["8", "7", "9"], "text": ["red shoes", "hats", "gloves"]})
    texts.to_csv(tmp_path / "texts.csv", index=False)
    for source in (texts, texts.astype({"query": int}), tmp_path / "texts.csv"):
        found = cs.judgments(numbered(), query_text=source)
        rows = found.to_pandas()
        assert list(zip(rows["query"], rows["doc"], rows["grade"], strict=True)) == [
            ("hats", "a", 4),
            ("red shoes", "b", 2),
        ]
    found.write(tmp_path / "texts.json", format="opensearch")
    assert [entry["query"] for entry in json.loads((tmp_path / "texts.json").read_text())["judgmentRatings"]] == [
        "hats",
        "red shoes",
    ]


def test_every_query_needs_a_text_of_its_own(tmp_path: Path) -> None:
    with raises_code("missing-query-text", DataError, query="8", count=1):
        cs.judgments(numbered(), query_text=pd.DataFrame({"query": [7], "text": ["hats"]}))
    with raises_code("repeated-query-text", DataError, value="hats", count=2):
        cs.judgments(numbered(), query_text=pd.DataFrame({"query": [7, 8], "text": ["hats", "hats"]}))
    with raises_code("missing-column", FileError, columns=["text"]):
        cs.judgments(numbered(), query_text=pd.DataFrame({"query": [7, 8]}))
    (tmp_path / "texts.csv").write_text("query,text\n7,hats\n8,\n")
    with raises_code("missing-value", FileError, column="text", row=2):
        cs.judgments(numbered(), query_text=tmp_path / "texts.csv")
