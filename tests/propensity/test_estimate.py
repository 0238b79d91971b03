"""Propensities: planted curves are found, doubts are said, values become files and come back."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import clickshift as cs
from clickshift.counts.cells import Cells
from clickshift.data.sessions import Sessions
from clickshift.errors import ClickshiftError, ClickshiftWarning, DataError, FileError, SpecError
from clickshift.policies.basic import Uniform
from clickshift.policies.derived.model_scores import examination
from clickshift.propensity.estimate import METHODS, Propensities, propensities, read_propensities
from clickshift.simulation.simulate import simulate
from tests.codes import raises_code, warns_code
from tests.full_logs import full_log
from tests.propensity.worlds import PLANTED, RANKS, clicks, expected, swapped_clicks, users, world
from tests.suite import Study


def covers(found: Propensities) -> np.ndarray:
    inside: np.ndarray = (found.low <= PLANTED) & (found.high >= np.array(PLANTED))
    return inside


@pytest.mark.parametrize("method", ["harvesting", "swaps"])
@pytest.mark.parametrize("reference", [0, 2])
def test_expected_clicks_give_the_planted_curve(method: str, reference: int) -> None:
    """Exactly, whatever the rankers and however often each document was shown where."""
    corpus = world(40, 0)
    cells = expected(corpus, clicks(corpus, 3000, 1))
    found = propensities(cells, method, reference_rank=reference, replicates=0)
    assert found.estimate == pytest.approx(np.array(PLANTED) / PLANTED[reference], rel=1e-6)
    assert found.examination == pytest.approx(PLANTED, rel=1e-6)
    assert found.estimate[reference] == found.low[reference] == found.high[reference] == 1


@pytest.mark.parametrize("method", ["harvesting", "swaps", "PBM", "UBM"])
def test_intervals_have_the_planted_curve(method: str) -> None:
    replicates = 8 if method == "UBM" else None
    found = propensities(clicks(world(120, 3), 30_000, 4), method, level=0.99, replicates=replicates)
    assert found.method == method
    assert found.warnings == ()
    assert covers(found).all(), found.table()
    assert (found.error[1:] < 0.1 * found.estimate[1:]).all(), "and say something"


@pytest.mark.parametrize("method", ["regression-em", "dual-learning"])
def test_features_find_what_one_ranker_hides(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted curve is within intervals, where that of clicks is far off."""
    monkeypatch.setattr("clickshift.propensity._rank_model._REPEATS", 1)
    corpus = world(100, 5)
    log = clicks(corpus, 30_000, 6, rankers=[3])
    with warns_code("weakly-connected-ranks", method=method, ranks=(2, 3, 4)):
        found = propensities(log, method, corpus=corpus, level=0.99)
    naive = np.abs(np.log(log.ctr_by_rank() / log.ctr_by_rank()[0] / PLANTED))[1:]
    assert naive.min() > 0.2
    assert covers(found).all(), found.table()
    assert (found.error[1:] < naive / 5 * found.estimate[1:]).all(), "and say something"


@pytest.mark.parametrize("method", ["regression-em", "dual-learning"])
def test_features_and_several_rankers(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clickshift.propensity._rank_model._REPEATS", 2)
    corpus = world(40, 7)
    found = propensities(clicks(corpus, 6000, 8), method, corpus=corpus, replicates=50, level=0.99)
    assert "50 replicates" in found.interval
    assert covers(found).all(), found.table()
    assert (found.error[1:] < 0.1 * found.estimate[1:]).all()


def test_swaps_are_told_by_their_marks() -> None:
    log, rank = swapped_clicks(world(100, 5), 40_000, 6)
    found = propensities(log, "swaps", swapped=rank)
    assert covers(found).all(), found.table()
    assert propensities(log, "swaps", swapped=np.where(rank == 0, -1, rank)).estimate == pytest.approx(found.estimate)


def test_random_order_is_a_swap_of_everything() -> None:
    corpus = world(30, 7)
    log = simulate(corpus, Uniform(), users(corpus), 40_000, ranks=RANKS, rng=8)
    assert covers(propensities(log, "swaps")).all()


def curves(method: str, logs: int, *, queries: int, sessions: int, replicates: int) -> list[Propensities]:
    """The curve of each of several logs of their own corpora, at level .8."""
    found = []
    for seed in range(logs):
        corpus, options = world(queries, seed), {"level": 0.8, "replicates": replicates, "seed": seed}
        if method == "swaps":
            log, rank = swapped_clicks(corpus, sessions, seed)
            found.append(propensities(log, method, swapped=rank, **options))
        else:
            found.append(propensities(clicks(corpus, sessions, seed), method, **options))
    return found


@pytest.mark.parametrize("method", ["harvesting", "swaps", "PBM"])
def test_errors_are_the_spread_of_curves_over_logs(method: str) -> None:
    """The spread of 25 logs is known to 14 % at each of three ranks: errors that are half off would be found."""
    found = curves(method, 25, queries=25, sessions=1500, replicates=20)
    estimate, error = (np.array([getattr(f, name)[1:] for f in found]) for name in ("estimate", "error"))
    assert np.mean(error.mean(axis=0) / estimate.std(axis=0, ddof=1)) == pytest.approx(1, abs=0.3)
    high = np.array([f.high[1:] for f in found])
    assert ((estimate < high) & (high < estimate + 3 * error)).all()


@pytest.mark.study
@pytest.mark.parametrize("method", ["harvesting", "swaps", "PBM"])
def test_intervals_cover_as_often_as_they_say(study: Study, method: str) -> None:
    """Of 40 logs x 3 ranks, at level .8: fewer than .68 or more than .92 would be a chance of one in a thousand."""
    logs = study.choose(smallest=3, full=40)
    found = curves(method, logs, queries=40, sessions=6000, replicates=60)
    assert all((f.low[1:] < f.estimate[1:]).all() and (f.estimate[1:] < f.high[1:]).all() for f in found)
    covered = float(np.mean([covers(f)[1:] for f in found]))
    study.record(f"intervals of examination by {method}", coverage=covered, level=0.8, logs=logs)
    assert 0.68 < covered < 0.92 or not study.full


def test_harvesting_looks_at_counts_alone() -> None:
    corpus = world(20, 9)
    log = clicks(corpus, 3000, 10)
    found = propensities(log)
    shuffled = log[np.random.default_rng(0).permutation(len(log))]
    for other in (log.merged(), shuffled, Cells.of(log)):
        again = propensities(other)
        assert again.estimate == pytest.approx(found.estimate, rel=1e-9)
        assert again.low == pytest.approx(found.low, rel=1e-9)


@pytest.mark.parametrize("method", [*METHODS, "PBM", "DBN"])
def test_a_fixed_order_is_warned_of(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every document keeps its rank, a good place and a good document look the same, to every method."""
    monkeypatch.setattr("clickshift.propensity._rank_model._REPEATS", 1)
    corpus = world(40, 11)
    log = clicks(corpus, 4000, 12, rankers=[2])
    by_features = method in {"regression-em", "dual-learning"}
    with pytest.warns(ClickshiftWarning) as caught:
        found = propensities(log, method, corpus=corpus if by_features else None, replicates=0)
    (warning,) = (w.message for w in caught)
    assert isinstance(warning, ClickshiftWarning)
    assert warning.code == "weakly-connected-ranks"
    assert warning.facts == {"method": method, "ranks": (2, 3, 4)}
    assert found.warnings == (str(warning),)
    assert ("rests on the features alone" in found.warnings[0]) == by_features
    if method in {"swaps", "harvesting"}:
        assert np.isnan(found.estimate[1:]).all()
        with raises_code("bad-examination", DataError, method=method, rank=2, count=3) as caught:
            found.examination  # noqa: B018
        assert np.isnan(caught.value.facts["value"])


def test_marked_swaps_of_a_fixed_order_are_enough() -> None:
    """Swaps with rank 1 alone; a rank that was never swapped stays unknown."""
    log, rank = swapped_clicks(world(50, 13), 8000, 14)
    some = log[np.flatnonzero(rank != 2)]
    with warns_code("weakly-connected-ranks", method="swaps", ranks=(3,)):
        found = propensities(some, "swaps", swapped=rank[rank != 2])
    assert np.isnan(found.estimate).tolist() == [False, False, True, False]


def test_few_queries_make_rough_intervals() -> None:
    corpus = world(3, 15)
    with warns_code("few-queries", method="harvesting"):
        propensities(clicks(corpus, 3000, 16))


def test_a_rank_without_clicks_has_examination_0() -> None:
    corpus = world(30, 17)
    log = clicks(corpus, 3000, 18)
    click = log.click.copy()
    click[:, 3] = False
    for method in ("harvesting", "swaps"):
        with warns_code("rank-without-clicks", method=method, ranks=(4,)):
            found = propensities(Sessions(log.rankings, click), method)
        assert found.estimate[3] == 0
        with raises_code("bad-examination", DataError, method=method, rank=4, value=0.0):
            found.examination  # noqa: B018


def test_of_a_fitted_model() -> None:
    """PBM brings its intervals, whoever fitted it; of others it is the mean over the log's lists."""
    corpus = world(40, 19)
    log = clicks(corpus, 9000, 20)
    pbm = cs.fit("PBM", log)
    found = propensities(log, pbm, level=0.9)
    rows = pbm.examination_table(level=0.9)
    assert found.low[1:].tolist() == [row["low"] for row in rows[1:]]
    assert "information" in found.interval
    dbn = cs.fit("DBN", log)
    found = propensities(log, dbn)
    assert found.estimate == pytest.approx(examination(dbn, log.rankings))
    assert found.interval == "none"
    assert np.isnan(found.low[1:]).all()
    named = propensities(log, "DBN", replicates=5)
    assert named.estimate == pytest.approx(found.estimate)
    assert (named.low[1:] < named.estimate[1:]).all()
    truth = propensities(log, users(corpus))
    assert truth.estimate == pytest.approx(PLANTED)


def test_documents_outside_the_corpus_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clickshift.propensity._nuisance_trees._ROUNDS", 20)
    monkeypatch.setattr("clickshift.propensity._rank_model._REPEATS", 1)
    corpus = world(24, 21)
    log = clicks(corpus, 3000, 22)
    half = corpus.with_queries(np.arange(12))
    for method in ("regression-em", "dual-learning"):
        with warns_code("outside-corpus", method=method):
            found = propensities(log, method, corpus=half, replicates=0)
        inside = log[np.flatnonzero(log.rankings.query < 12)]
        again = propensities(inside.in_vocabulary(half.vocabulary), method, corpus=half, replicates=0)
        assert found.estimate == pytest.approx(again.estimate)
    other = world(3, 0, docs=4)
    renamed = cs.Vocabulary.of(np.array(["x"] * 12), np.arange(12))[0]
    with raises_code("no-common-documents", DataError):
        propensities(log, "regression-em", corpus=cs.Corpus(renamed, other.label, other.features))


def test_what_cannot_be_asked() -> None:
    corpus = world(10, 23)
    log = clicks(corpus, 900, 24)
    swapped = np.zeros(len(log), int)
    cases = [
        (dict(method="nothing"), SpecError, "unknown-name", dict(value="nothing")),
        (dict(method="regression-em"), DataError, "no-features", dict(method="regression-em")),
        (
            dict(method="dual-learning", corpus=cs.Corpus(corpus.vocabulary, corpus.label)),
            DataError,
            "no-features",
            dict(method="dual-learning"),
        ),
        (dict(corpus=corpus), SpecError, "bad-option", dict(option="corpus", method="harvesting")),
        (dict(swapped=swapped), SpecError, "bad-option", dict(option="swapped", method="harvesting")),
        (dict(method="swaps", swapped=swapped[1:]), DataError, "wrong-shape", dict(shape=(899,), expected=(900,))),
        (
            dict(method="swaps", swapped=swapped + RANKS),
            DataError,
            "rank-out-of-range",
            dict(row=1, value=5, n_ranks=4),
        ),
        (dict(reference_rank=RANKS), DataError, "rank-out-of-range", dict(value=5, n_ranks=4)),
        (dict(level=1.0), DataError, "bad-level", dict(value=1.0)),
        (dict(replicates=2), SpecError, "too-few-replicates", dict(value=2)),
        (dict(replicates=10**29), SpecError, "too-many-replicates", dict(value=10**29)),
        (dict(method="TopPop"), ClickshiftError, "cannot-predict-clicks", dict(model="TopPop")),
    ]
    for options, error, code, facts in cases:
        with raises_code(code, error, **facts):
            propensities(log, **options)  # type: ignore[arg-type]
    for method in ("dual-learning", "PBM"):
        with raises_code("needs-sessions", DataError, method=method):
            propensities(Cells.of(log), method, corpus=corpus if method == "dual-learning" else None)
    with raises_code("needs-sessions", DataError):
        propensities(Cells.of(log), "swaps", swapped=swapped)


@pytest.mark.parametrize("ending", ["json", "csv", "parquet", "jsonl"])
def test_files_come_back(tmp_path: Path, ending: str) -> None:
    corpus = world(30, 25)
    log = clicks(corpus, 2000, 26, rankers=[2, 3])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickshiftWarning)
        found = propensities(log, reference_rank=1, level=0.9)
    path = tmp_path / f"curve.{ending}"
    found.write(path)
    again = read_propensities(path)
    assert again.rows() == found.rows()
    assert again.reference_rank == 1
    assert again.examination == pytest.approx(found.examination)
    if ending == "json":
        for name in ("method", "level", "interval", "warnings"):
            assert getattr(again, name) == getattr(found, name)


def test_an_unknown_rank_comes_back_unknown(tmp_path: Path) -> None:
    nothing = np.array([np.nan, np.nan])
    found = Propensities("harvesting", np.array([1.0, np.nan]), nothing, nothing, nothing)
    for ending in ("json", "csv"):
        found.write(tmp_path / f"curve.{ending}")
        assert np.isnan(read_propensities(tmp_path / f"curve.{ending}").estimate[1])


def test_ones_own_table(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("rank,examination\n2,0.5\n1,1\n3,0.25\n")
    assert read_propensities(path).examination.tolist() == [1, 0.5, 0.25]


@pytest.mark.parametrize(
    ("name", "text", "code", "facts"),
    [
        ("a.csv", "rank,prob\n1,1\n", "missing-column", {"column": "examination", "known": ["rank", "prob"]}),
        ("a.csv", "rank,examination\n1,1\n3,0.5\n", "bad-ranks", {"value": [1, 3]}),
        ("a.csv", "rank,examination\n1,1\n2,-0.5\n", "bad-examination", {"rank": 2, "value": -0.5}),
        ("a.csv", "rank,examination\n", "empty-file", {}),
        ("a.json", "{", "damaged-file", {}),
        ("a.json", "[1]", "not-propensities", {}),
        (
            "a.json",
            json.dumps({"kind": "propensities", "ranks": [{"rank": "x", "examination": 1}]}),
            "not-a-number",
            {},
        ),
        ("a.json", json.dumps({"kind": "propensities", "ranks": [{"rank": 1}], "level": "x"}), "damaged-file", {}),
        ("a.txt", "", "unknown-format", {"known": [".json", ".parquet", ".csv", ".jsonl"]}),
    ],
)
def test_bad_files(tmp_path: Path, name: str, text: str, code: str, facts: dict[str, object]) -> None:
    (tmp_path / name).write_text(text)
    with raises_code(code, FileError, path=tmp_path / name, **facts):
        read_propensities(tmp_path / name)


def test_a_missing_file(tmp_path: Path) -> None:
    for name in ("a.json", "a.csv"):
        with raises_code("file-not-found", FileError, path=tmp_path / name):
            read_propensities(tmp_path / name)


def test_an_interval_without_an_end_identifies_nothing() -> None:
    """Rank 3 has a bound of a million times the reference, rank 4 no click, rank 5 no comparison."""
    nan = float("nan")
    estimate, low = np.array([1, 0.5, 0.4, 0, nan]), np.array([1, 0.4, 0, 0, nan])
    high = np.array([1, 0.6, 1e6, nan, nan])
    curve = Propensities("by hand", estimate, low, high, np.full(5, nan), interval="bootstrap")
    assert curve.identified.tolist() == [True, True, False, False, False]
    assert curve.verdict == curve.document.verdict == "not identified"
    assert "rank 2 is examined 0.50 times" in curve.conclusion
    assert "ranks 3, 4, 5." in curve.conclusion
    assert [row["high"] for row in curve.document.tables["examination"]][2] == np.inf
    band, line, _ = curve.figure().data
    assert (list(line.x), list(band.x)) == ([1, 2], [1, 2, 2, 1])


def test_sessions_with_a_hole_at_the_first_rank_count() -> None:
    log = full_log(300)
    assert not log.rankings.shown[:, 0].all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert propensities(log, "harvesting", replicates=0).data.startswith(f"{log.total} sessions")


@pytest.mark.parametrize("method", ["swaps", "harvesting"])
def test_methods_that_compare_all_ranks_refuse_very_long_lists(method: str) -> None:
    """Their memory grows with the square of the number of ranks: lists of 5,000 took more than 9 GB."""
    log = pd.DataFrame({"query": ["q"] * 2, "docs": [[1, 2], list(range(2001))], "clicks": [[1, 0], [0] * 2001]})
    with raises_code("lists-too-long", DataError, ranks=2001, limit=2000):
        cs.propensities(log, method=method)
