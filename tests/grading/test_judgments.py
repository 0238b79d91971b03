"""Grades from relevance, with worked cut points, and the files that they go to."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

import clickshift as cs
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import CapabilityError, DataError, FileError, SpecError
from clickshift.grading._evidence import reliability_weight
from clickshift.grading.export import JUDGMENT_FORMATS, judgments_format
from clickshift.grading.graded_judgments import (
    _assign_grades,
    _quantile_cuts,
    judgments,
    parse_grades,
)
from clickshift.learners import fit
from clickshift.models import DCTR, GCTR
from clickshift.models.base import Evidence
from tests.codes import raises_code, warns_code

QUERY, DOC = ["cats", "cats", "cats", "<dogs>", "<dogs>"], ["a", "b", "[c]", "a", "d"]
RELEVANCE = [0.30, 0.02, 0.45, 0.20, 0.07]
IMPRESSIONS = [40.0, 2.0, 10.0, 100.0, 5.0]
ERROR = [0.1, 2.0, 0.5, 0.05, 1.0]


def model(query: list[str] = QUERY, doc: list[str] = DOC, *, errors: bool = True) -> DCTR:
    words, _, pair = Vocabulary.of(query, doc)

    def table(values: list[float]) -> np.ndarray:
        out = np.zeros(words.n_pairs + 1)
        out[pair] = values
        return out

    seen = table(IMPRESSIONS)
    evidence = Evidence("by hand", seen, seen / 4, {"relevance": table(ERROR)} if errors else {})
    return DCTR(words, table(RELEVANCE), evidence=evidence)


def read_csv(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_a_grade_counts_the_cut_points_that_are_reached() -> None:
    assert _assign_grades(np.array([0.0, 0.049, 0.05, 0.1, 0.4, 1.0]), (0.05, 0.1, 0.2, 0.4)).tolist() == [
        0,
        0,
        1,
        2,
        4,
        4,
    ]
    rows = judgments(model()).table.to_pylist()
    assert {(row["query"], row["doc"]): row["grade"] for row in rows} == {
        ("<dogs>", "a"): 3,
        ("<dogs>", "d"): 1,
        ("cats", "[c]"): 4,
        ("cats", "a"): 3,
        ("cats", "b"): 0,
    }
    assert [row["relevance"] for row in rows] == [0.20, 0.07, 0.45, 0.30, 0.02], "the best of each query first"


def test_intervals_stay_beside_their_pair() -> None:
    for row in judgments(model()).table.to_pylist():
        pair = [QUERY[i] == row["query"] and DOC[i] == row["doc"] for i in range(5)].index(True)
        p = row["relevance"]
        trials = 1 / (ERROR[pair] ** 2 * p * (1 - p))
        assert [row["low"], row["high"]] == pytest.approx(beta.ppf([0.025, 0.975], trials * p, trials * (1 - p)))
        assert row["impressions"] == IMPRESSIONS[pair]


def test_how_sure_the_grades_are() -> None:
    assert judgments(model(), grades="0.1").certain_share == 3 / 5, "two intervals lie on both sides of 0.1"
    assert np.isnan(judgments(model(errors=False)).certain_share)


def test_quantiles_make_grades_of_equal_size() -> None:
    found = judgments(model(), grades="quantile:5")
    assert found.cuts == (0.07, 0.20, 0.30, 0.45)
    assert found.counts.tolist() == [1, 1, 1, 1, 1]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.integers(2, 6))
@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
def test_no_quantile_grade_is_empty(values: list[int], grades: int) -> None:
    relevance = np.array(values, float)
    cuts = _quantile_cuts(relevance, grades)
    counts = np.bincount(_assign_grades(relevance, cuts), minlength=len(cuts) + 1)
    assert len(counts) <= grades
    assert (counts > 0).all()


def test_many_equal_pairs_make_fewer_grades() -> None:
    with warns_code("fewer-grades", count=2, expected=5):
        assert _quantile_cuts(np.array([0.1] * 8 + [0.3, 0.4]), 5) == (0.3,)


@pytest.mark.parametrize(
    "text",
    ["", "a", "0.1,0.1", "0.2,0.1", "nan", "inf", "quantile", "quantile:1", "quantile:x", "quantile:32", "deciles:5"],
)
def test_bad_grades_are_refused(text: str) -> None:
    with raises_code("bad-grades", SpecError, value=text):
        parse_grades(text)


def test_few_impressions_are_left_out() -> None:
    found = judgments(model(), min_impressions=10)
    assert found.left_out == 2
    assert found.table["doc"].to_pylist() == ["a", "[c]", "a"]
    with raises_code("too-few-impressions", DataError, value=100, minimum=101):
        judgments(model(), min_impressions=101)


def test_doubtful_gradings_warn() -> None:
    with warns_code("single-grade", grade=0, count=5, low=0.02, high=0.45):
        judgments(model(), grades="0.5,0.9")


def test_scores_are_no_probabilities(log: Sessions) -> None:
    with warns_code("relevance-not-a-probability", value=7):
        judgments(fit("TopPop", log))


def test_the_page_shows_the_most_frequent_queries_with_their_evidence() -> None:
    """<dogs> has 105 impressions, cats 52; every result was clicked at a quarter of its impressions."""
    document = judgments(model()).document
    assert document.headline is not None
    assert document.headline.title == "Query <dogs>: its most relevant documents"
    assert [(row["document"], row["grade"], row["impressions"], row["clicks"]) for row in document.headline.table] == [
        ("a", 3, 100, 25),
        ("d", 1, 5, 1.25),
    ]
    assert {row["clicks per impression"] for row in document.headline.table} == {"25.0%"}
    (others,) = [section for section in document.sections if section.parts]
    assert [part.name for part in others.parts] == ["query cats"]
    looks = {
        (trace.name, trace.marker.color, trace.marker.symbol)
        for name in ("query <dogs>", "query cats")
        for trace in document.figures[name].data
    }
    assert len(looks) == len({name for name, *_ in looks}) == 4, "a grade looks the same for all queries"
    unknown = judgments(DCTR(model().vocabulary, np.array([*RELEVANCE, 0.0]))).document.headline
    assert unknown is not None
    assert {row["impressions"] for row in unknown.table} == {None}


def test_a_model_without_documents_or_counts_says_so(log: Sessions) -> None:
    with raises_code("cannot-rank-documents", CapabilityError, model="GCTR"):
        judgments(GCTR(log.vocabulary, 0.1))
    with raises_code("no-evidence", CapabilityError, model="DCTR"):
        judgments(DCTR(log.vocabulary, np.full(log.vocabulary.n_pairs + 1, 0.1)), min_impressions=1)


def test_weights_fall_with_the_error() -> None:
    relevance = np.array([0.2, 0.5, 0.8])
    spread = np.var(np.log(relevance / (1 - relevance)))
    weight = reliability_weight(relevance, np.array([0.0, np.sqrt(spread), np.inf]))
    assert weight == pytest.approx([1.0, 0.5, 0.0])
    assert reliability_weight(np.full(3, 0.2), np.ones(3)).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_lightgbm_files_belong_together(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"train.{ending}"
    files = list(judgments(model()).write(path, format="lightgbm").files)
    assert files == [path, tmp_path / f"train.{ending}.query"]
    assert files[1].read_text() == "2\n3\n"
    rows = pq.read_table(path).to_pylist() if ending == "parquet" else read_csv(path)
    assert [row["query"] for row in rows] == ["<dogs>"] * 2 + ["cats"] * 3
    assert list(rows[0]) == ["query", "doc", "grade", "weight"]
    weights = {(row["query"], row["doc"]): float(row["weight"]) for row in rows}
    assert sorted(weights, key=weights.__getitem__) == sorted(
        weights, key=lambda pair: -ERROR[list(zip(QUERY, DOC, strict=True)).index(pair)]
    )


def test_lightgbm_trains_on_them(tmp_path: Path) -> None:
    """The files are what a LightGBM ranker takes: labels, weights, groups."""
    import lightgbm

    path = tmp_path / "train.csv"
    judgments(model()).write(path, format="lightgbm")
    rows = read_csv(path)
    label, weight = ([float(row[name]) for row in rows] for name in ("grade", "weight"))
    group = np.loadtxt(tmp_path / "train.csv.query", dtype=int)
    data = lightgbm.Dataset(np.arange(5.0)[:, None], label=label, weight=weight, group=group, params={"verbose": -1})
    options = {"objective": "lambdarank", "verbose": -1, "min_data_in_leaf": 1, "num_threads": 1}
    assert lightgbm.train(options, data, num_boost_round=2).num_trees() == 2


def test_weights_without_errors_are_one_and_said_so(tmp_path: Path) -> None:
    with warns_code("no-standard-errors"):
        judgments(model(errors=False)).write(tmp_path / "train.parquet", format="lightgbm")
    assert pq.read_table(tmp_path / "train.parquet")["weight"].to_pylist() == [1.0] * 5


def test_tables_say_their_cut_points(tmp_path: Path) -> None:
    judgments(model()).write(tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    told = json.loads(table.schema.metadata[b"clickshift"])
    assert told == {"cut_points": [0.05, 0.1, 0.2, 0.4], "model": "dCTR"}
    columns = ["query", "doc", "relevance", "low", "high", "support", "impressions", "clicks", "ctr", "mean_rank"]
    columns += ["grade", "grade_from"]
    assert table.column_names == columns
    judgments(model(errors=False)).write(tmp_path / "out.csv", format="csv")
    rows = read_csv(tmp_path / "out.csv")
    assert list(rows[0]) == columns
    assert rows[0]["low"] == "", "what is not known is left empty"
    assert rows[2]["doc"] == "[c]"


def test_the_format_is_told_or_told_by_the_ending(tmp_path: Path) -> None:
    assert judgments_format("a.parquet") == "parquet"
    assert judgments_format("a.qrels") == judgments_format("a.txt", "qrels") == judgments_format("a", "trec") == "trec"
    assert judgments_format("a.csv", "lightgbm") == "lightgbm"
    formats = list(JUDGMENT_FORMATS)
    with raises_code("unknown-format", SpecError, value=None, known=formats):
        judgments_format("a.txt")
    with raises_code("unknown-format", SpecError, value="xlsx", known=formats):
        judgments_format("a.txt", "xlsx")
    with raises_code("wrong-ending", FileError, path=Path("a.txt"), value=".txt"):
        judgments_format("a.txt", "csv")
    with raises_code("unknown-format", FileError, path=Path("a.txt"), known=[".csv", ".parquet"]):
        judgments_format("a.txt", "lightgbm")
    (tmp_path / "a.qrels").mkdir()
    with raises_code("is-a-folder", FileError, path=tmp_path / "a.qrels"):
        judgments_format(tmp_path / "a.qrels")


def counted(shown: list[float], clicked: list[float], *, prior: float = 4.0) -> DCTR:
    """A model of one query whose documents have a prior of a fifth, with its strength, besides these counts."""
    words, _, _ = Vocabulary.of(["cats"] * len(shown), [f"d{k}" for k in range(len(shown))])
    n, yes = np.append(shown, 0.0), np.append(clicked, 0.0)
    ctr = (yes + prior / 5) / (n + prior)
    errors = {"relevance": 1 / np.sqrt((n + prior) * ctr * (1 - ctr))}
    evidence = Evidence("by hand", n, yes, errors, effective_counts={"relevance": np.stack([yes, n])})
    return DCTR(words, ctr, evidence=evidence)


def test_grades_of_the_prior_are_left_out() -> None:
    """Prior 0.8 of 4. Never clicked: 13 impressions leave 0.047, grade 0; 3 leave 0.114, and 12 leave exactly 0.05."""
    shown = [0.0, 3.0, 12.0, 13.0, 1.0, 0.5, 40.0]
    clicked = [0.0, 0.0, 0.0, 0.0, 1.0, 0.4, 20.0]
    found = judgments(counted(shown, clicked))
    assert sorted(found.table["doc"].to_pylist()) == ["d3", "d4", "d6"]
    assert (found.left_to_prior, found.left_out) == (4, 0)
    assert "4 others are left out" in found.conclusion
    kept = judgments(counted(shown, clicked), keep_prior=True)
    rows = {row["doc"]: (row["grade"], row["grade_from"]) for row in kept.rows()}
    assert rows == {
        "d0": (3, "prior"),  # never shown
        "d1": (2, "prior"),  # hardly shown
        "d2": (1, "prior"),  # a grade above the lowest one without a click
        "d3": (0, "log"),
        "d4": (3, "log"),  # a click is evidence
        "d5": (3, "prior"),  # less than one effective observation
        "d6": (4, "log"),
    }
    assert (kept.kept_from_prior, kept.left_to_prior) == (4, 0)
    assert {name: kept.to_dict()[name] for name in ("pairs_graded_by_prior", "pairs_left_to_prior")} == {
        "pairs_graded_by_prior": 4,
        "pairs_left_to_prior": 0,
    }


def test_no_click_in_few_impressions_is_no_evidence_of_irrelevance() -> None:
    """Prior 2 of 10 is as much information as 10 impressions; 11 without a click leave a rate of 0.095."""
    with warns_code("single-grade"):
        found = judgments(counted([9.0, 11.0], [0.0, 0.0], prior=10.0), grades="0.15", keep_prior=True)
    assert {row["doc"]: (row["grade"], row["grade_from"]) for row in found.rows()} == {
        "d0": (0, "prior"),
        "d1": (0, "log"),
    }
    with raises_code("graded-by-prior", DataError, count=2):
        judgments(counted([9.0, 3.0], [0.0, 0.0], prior=10.0), grades="0.15")


def test_a_model_without_effective_counts_needs_five_impressions() -> None:
    hand = model()
    assert hand.evidence is not None
    seen = np.array([*sorted(IMPRESSIONS), 0.0])
    unclicked = DCTR(hand.vocabulary, np.full(6, 0.01), evidence=Evidence("by hand", seen, np.zeros(6)))
    with warns_code("single-grade"):
        found = judgments(unclicked)
    assert (found.table.num_rows, found.left_to_prior) == (4, 1)


@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
def test_no_unclicked_document_has_a_high_grade_in_a_fitted_log() -> None:
    log = cs.simulate(cs.builtin_corpus(20), cs.BM25(), cs.users.PBM(), 4000, rng=3)
    unclicked = 0
    for name in ("PBM", "UBM", "DBN", "dCTR"):
        fitted = fit(name, log)
        found = judgments(fitted).to_pandas()
        assert (found.loc[found["clicks"] == 0, "grade"] == 0).all(), name
        unclicked += (found["clicks"] == 0).sum()
        assert set(found["grade_from"]) == {"log"}
        everything = judgments(fitted, keep_prior=True).to_pandas()
        assert len(everything) == fitted.vocabulary.n_pairs
        kept = everything[everything["grade_from"] == "log"].drop(columns="weight").reset_index(drop=True)
        assert kept.equals(found.drop(columns="weight"))
    assert unclicked > 0, "some documents are shown to be irrelevant"


@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
def test_evidence_is_that_of_the_log(log: Sessions) -> None:
    """Impressions, clicks, raw rate and mean rank against a loop over the sessions, for both ways of counting them."""
    counts: dict[tuple[object, object], list[float]] = {}
    words, lists = log.vocabulary, log.rankings
    for i in range(len(log)):
        for r in range(log.n_ranks):
            if lists.shown[i, r]:
                pair = int(lists.pair[i, r])
                key = words.query_ids[words.pair_query[pair]], words.doc_ids[words.pair_doc[pair]]
                total = counts.setdefault(key, [0.0, 0.0, 0.0])
                for k, value in enumerate((1.0, float(log.click[i, r]), r + 1.0)):
                    total[k] += value * log.count[i]
    for name in ("PBM", "DBN"):
        for row in judgments(fit(name, log), keep_prior=True).rows():
            shown, clicked, ranks = counts[row["query"], row["doc"]]
            assert [row["impressions"], row["clicks"]] == [shown, clicked]
            assert [row["ctr"], row["mean_rank"]] == pytest.approx([clicked / shown, ranks / shown])
