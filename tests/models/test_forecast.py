"""Forecasts: the delta method against worked arithmetic and against the truth of simulated users."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from scipy.stats import beta

from clickshift.counts.count_log import count_log
from clickshift.counts.open_log import open_log
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import CapabilityError, DataError, FileError, SpecError
from clickshift.io.read_log import write_log
from clickshift.learners import DEFAULT, fit
from clickshift.models import DBN, PBM, RCTR
from clickshift.models.base import Evidence
from clickshift.models.forecast import predict
from clickshift.testing import random_rankings
from tests.codes import raises_code, warns_code
from tests.models.random_models import random_neural

WORDS = Vocabulary.of([1, 1, 1], [10, 20, 30])[0]


def pbm(error: float) -> PBM:
    seen = np.array([9.0, 9.0, 0.0, 0.0])
    errors = {"attractiveness": np.array([error, 2 * error, error, 3 * error]), "examination": np.array([0.0, 0.1])}
    evidence = Evidence("by hand", seen, seen, errors)
    return PBM(WORDS, np.array([0.5, 0.2, 0.9, 0.1]), np.array([1.0, 0.4]), evidence=evidence)


def test_the_delta_method_by_hand() -> None:
    """p = e a, so dp = p (1 - a) dlogit(a) + p (1 - e) dlogit(e); here e_1 = 1 by convention, without error."""
    lists = Rankings(WORDS, np.array([0]), np.array([[1, 0]]))
    found = predict(pbm(0.3), lists)
    assert found.click_prob[0].tolist() == pytest.approx([0.2, 0.4 * 0.5])
    terms = [0.2 * 0.8 * 0.6, 0.2 * 0.5 * 0.3, 0.2 * 0.6 * 0.1]
    assert found.error[0] == pytest.approx([terms[0], np.hypot(terms[1], terms[2])], rel=1e-4)
    assert found.total_error[0] == pytest.approx(np.linalg.norm(terms), rel=1e-4)
    low, high = found.intervals(level=0.95)
    trials = 1 / (0.6**2 * 0.2 * 0.8)
    assert [low[0, 0], high[0, 0]] == pytest.approx(beta.ppf([0.025, 0.975], trials * 0.2, trials * 0.8), rel=1e-5)


def test_what_all_lists_share_moves_all_ranks() -> None:
    errors = {"continuation": np.array([0.5]), "attractiveness": np.zeros(4)}
    evidence = Evidence("by hand", np.ones(4), np.ones(4), errors)
    model = DBN(WORDS, np.array([0.5, 0.2, 0.9, 0.1]), np.zeros(4), 0.9, evidence=evidence)
    found = predict(model, Rankings(WORDS, np.array([0]), np.array([[0, 1, 2]])))
    # P(C_r) = continuation^(r - 1) a_r, and dcontinuation = continuation (1 - continuation) dlogit
    slopes = np.array([0.0, 0.2, 2 * 0.9 * 0.9]) * 0.9 * 0.1 * 0.5
    assert found.error[0] == pytest.approx(slopes, rel=1e-4)
    assert found.total_error[0] == pytest.approx(slopes.sum(), rel=1e-4)


def test_clicks_above_are_a_source_of_error_too() -> None:
    """In a cascade the second result's clicks depend on how attractive and satisfying the first one is."""
    evidence = Evidence("by hand", np.ones(4), np.ones(4), {"attractiveness": np.array([0.2, 0.0, 0.0, 0.0])})
    model = DBN(WORDS, np.array([0.5, 0.2, 0.9, 0.1]), np.array([0.6, 0.6, 0.6, 0.6]), 0.9, evidence=evidence)
    found = predict(model, Rankings(WORDS, np.array([0]), np.array([[0, 1]])))
    # P(C_2) = continuation (1 - a_1 s_1) a_2
    first, second = 0.25 * 0.2, -0.9 * 0.2 * 0.6 * 0.25 * 0.2
    assert found.error[0] == pytest.approx([first, abs(second)], rel=1e-4)
    assert found.total_error[0] == pytest.approx(first + second, rel=1e-4), "one parameter moves both, and not alike"


def test_unseen_pairs_have_the_prior_and_its_error() -> None:
    other = Vocabulary.of([1, 1, 2], [10, 99, 10])[0]
    lists = Rankings(other, np.array([0, 1]), np.array([[1, 0], [2, -1]]))
    found = predict(pbm(0.3), lists)
    assert found.unseen.tolist() == [[True, False], [True, False]]
    assert found.unseen_share == pytest.approx(2 / 3)
    assert found.click_prob[0, 0] == pytest.approx(0.1)
    assert found.error[0, 0] == pytest.approx(0.1 * 0.9 * 0.9, rel=1e-4)
    assert found.click_prob[1, 1] == found.error[1, 1] == 0.0, "nothing is shown there"


def test_the_table_says_everything_once() -> None:
    other = Vocabulary.of(["<q>", "<q>", "r"], ["x", "[b]", "x"])[0]
    table = predict(pbm(0.3), Rankings(other, np.array([1, 0]), np.array([[2, -1], [1, 0]]))).to_arrow()
    rows = table.to_pylist()
    assert [row["query"] for row in rows] == ["r", "<q>"]
    assert [row["docs"] for row in rows] == [["x"], ["x", "[b]"]]
    assert [len(row["click_prob"]) for row in rows] == [1, 2]
    for row in rows:
        assert row["expected_clicks"] == pytest.approx(sum(row["click_prob"]))
        assert row["expected_clicks_low"] < row["expected_clicks"] < row["expected_clicks_high"]
        assert row["unseen_share"] == 1.0


def test_without_errors_there_are_no_intervals() -> None:
    lists = Rankings(WORDS, np.array([0]), np.array([[0, 1]]))
    row = predict(RCTR(WORDS, np.array([0.3, 0.2])), lists).to_arrow().to_pylist()[0]
    assert row["click_prob"] == [0.3, 0.2]
    assert row["low"] == row["high"] == [None, None]
    assert row["expected_clicks_low"] is row["expected_clicks_high"] is None


@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
@pytest.mark.parametrize("name", DEFAULT)
def test_every_model_forecasts_or_says_that_it_cannot(name: str, log: Sessions) -> None:
    model = random_neural(name, log.vocabulary) if DEFAULT[name] == "Gradient" else fit(name, log)
    if not model.predicts_clicks or model.peeks:
        code = "no-marginal-prediction" if model.peeks else "cannot-predict-clicks"
        with raises_code(code, CapabilityError, model=type(model).__name__):
            predict(model, log.rankings)
        return
    found = predict(model, log.rankings, exact=True)
    assert np.array_equal(found.click_prob, model.click_prob(log.rankings))
    known = ~np.isnan(found.error)
    assert known.all() or not known.any()
    if known.any():
        low, high = found.intervals()
        shown = log.rankings.shown
        assert (low[shown] < found.click_prob[shown]).all()
        assert (high[shown] > found.click_prob[shown]).all()
    assert found.to_arrow().num_rows == len(log)


def test_blocks_do_not_show(log: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fit("dCTR", log)
    model = dataclasses.replace(
        model,
        evidence=dataclasses.replace(model.evidence, logit_error={"ctr": np.full(log.vocabulary.n_pairs + 1, 0.2)}),
    )
    whole = predict(model, log.rankings)
    monkeypatch.setattr("clickshift.models.forecast._LISTS_PER_BLOCK", 101)
    parts = predict(model, log.rankings)
    assert np.array_equal(whole.error, parts.error)
    assert np.array_equal(whole.total_error, parts.total_error)


@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
@pytest.mark.parametrize("name", ["PBM", "DBN"])
def test_intervals_cover_the_truth_of_lists_never_shown(name: str, corpus: Corpus, rng: np.random.Generator) -> None:
    """95 % intervals hold the true click probabilities of new lists at about that rate."""
    words = corpus.vocabulary
    attractiveness, satisfaction = rng.uniform(0.05, 0.8, (2, words.n_pairs + 1))
    users = {
        "PBM": PBM(words, attractiveness, np.array([1.0, 0.6, 0.4, 0.3, 0.2])),
        "DBN": DBN(words, attractiveness, satisfaction, 0.9),
    }
    truth = users[name]
    inside, total_inside, places = 0.0, 0.0, 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        log = truth.sample(random_rankings(corpus.vocabulary, 20_000, 5, rng=rng), rng=rng)
        lists = random_rankings(corpus.vocabulary, 500, 5, rng=rng)
        found, prob = predict(fit(name, log), lists), truth.click_prob(lists)
        (low, high), (total_low, total_high) = found.intervals(), found.total_intervals()
        inside += ((low <= prob) & (prob <= high))[lists.shown].sum()
        places += lists.shown.sum()
        total_inside += ((total_low <= prob.sum(axis=1)) & (prob.sum(axis=1) <= total_high)).mean() / 4
    assert 0.93 < inside / places < 0.97
    assert 0.93 < total_inside < 0.97


def test_lists_must_come_with_their_ids(log: Sessions) -> None:
    part = log.in_vocabulary(log.vocabulary.with_pairs(np.arange(10)))
    with raises_code("unseen-id", DataError):
        predict(fit("rCTR", log), part.rankings)


def database(folder: Path, columns: str, *, layout: str = "wide") -> str:
    """A table of a database with columns of a log."""
    with duckdb.connect(str(folder / "new.duckdb")) as connection:
        connection.execute(f"CREATE TABLE lists AS SELECT {columns} FROM '{folder / layout}.parquet'")
    return f"{folder / 'new.duckdb'}::lists"


SOURCES: dict[str, Callable[[Path], Any]] = {
    "path": lambda folder: folder / "wide.parquet",
    "text": lambda folder: str(folder / "long.csv"),
    "folder": lambda folder: folder / "parts",
    "glob": lambda folder: str(folder / "parts" / "*.parquet"),
    "files": lambda folder: [folder / "parts" / "a.parquet", folder / "parts" / "b.parquet"],
    "database": lambda folder: database(folder, "*"),
    "database, without clicks": lambda folder: database(folder, "query, docs"),
    "database, long, without clicks": lambda folder: database(folder, "* EXCLUDE (click)", layout="long"),
    "pandas": lambda folder: pq.read_table(folder / "wide.parquet").to_pandas(),
    "Polars, long": lambda folder: pl.read_parquet(folder / "long.parquet"),
    "Arrow, without clicks": lambda folder: pq.read_table(folder / "wide.parquet", columns=["docs", "query"]),
    "Polars, long, without clicks, last rank first": lambda folder: (
        pl.scan_parquet(folder / "long.parquet").drop("click").sort("session", "rank", descending=[False, True])
    ),
    "Polars, common names": lambda folder: pl.read_parquet(folder / "wide.parquet").rename({"docs": "Results"}),
    "Sessions": lambda folder: open_log(folder / "wide.parquet"),
    "Rankings": lambda folder: open_log(folder / "wide.parquet").rankings,
    "EncodedLog": lambda folder: open_log(folder / "wide.parquet", in_memory=False, output=folder / "encoded"),
    "encoded folder": lambda folder: open_log(folder / "long.csv", in_memory=False, output=folder / "encoded").folder,
}


@pytest.fixture
def folder(log: Sessions, tmp_path: Path) -> Path:
    """Ninety lists, in files of both layouts, and in two parts."""
    folder, part = tmp_path / "lists", log[:90]
    (folder / "parts").mkdir(parents=True)
    write_log(part, folder / "wide.parquet")
    write_log(part, folder / "long.parquet", layout="long")
    write_log(part, folder / "long.csv", layout="long")
    write_log(part[:40], folder / "parts" / "a.parquet")
    write_log(part[40:], folder / "parts" / "b.parquet")
    return folder


@pytest.mark.parametrize("source", SOURCES)
def test_the_same_forecast_from_every_way_in(source: str, log: Sessions, folder: Path) -> None:
    model = PBM(log.vocabulary, np.linspace(0.1, 0.9, log.vocabulary.n_pairs + 1), np.linspace(1.0, 0.2, 5))
    assert predict(model, SOURCES[source](folder)).rows() == predict(model, log[:90].rankings).rows()


def test_columns_and_bad_lists_are_those_of_a_log(log: Sessions, folder: Path, tmp_path: Path) -> None:
    model, frame = fit("rCTR", log), pl.read_parquet(folder / "wide.parquet")
    expected = predict(model, frame).rows()
    renamed = frame.rename({"docs": "shown by", "query": "asked"})
    columns = {"docs": "shown by", "query": "asked"}
    assert predict(model, renamed, columns=columns).rows() == expected
    with raises_code("missing-column", FileError, columns=["docs"], known=["query", "time"]):
        predict(model, pl.DataFrame({"query": [1], "time": [2]}))
    bad = pl.concat(
        [frame.select("query", "docs"), pl.DataFrame({"query": [1], "docs": [[7, 7]]}, strict=False)],
        how="vertical_relaxed",
    )
    bad.write_parquet(tmp_path / "bad.parquet")
    for lists in (bad, str(tmp_path / "*.parquet")):
        with raises_code("duplicate-document", FileError):
            predict(model, lists)
        with warns_code("skipped-sessions", count=1):
            assert predict(model, lists, on_bad_line="skip").rows() == expected


def test_what_is_no_list_is_refused(log: Sessions, tmp_path: Path) -> None:
    model = fit("rCTR", log)
    count_log(log, tmp_path / "counts")
    for lists, code, kind in [
        (tmp_path / "counts", "needs-sessions", SpecError),
        (tmp_path / "*.parquet", "no-files", FileError),
        (f"{tmp_path / 'no.duckdb'}::lists", "file-not-found", FileError),
        (42, "not-a-log", DataError),
    ]:
        with raises_code(code, kind):
            predict(model, lists)
