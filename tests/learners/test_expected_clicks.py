"""COEC: clicks over expected clicks, against a loop and SQL that follow its definition."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from scipy.stats import beta, kendalltau

import clickshift as cs
from clickshift.counts.cells import Cells
from clickshift.errors import SpecError
from clickshift.learners import learner_for
from clickshift.learners.expected_clicks import ExpectedClicks
from clickshift.models import COEC
from tests.codes import raises_code
from tests.holes import log_with_holes

USER = cs.users.PBM()


@pytest.fixture(scope="module")
def log() -> cs.Sessions:
    corpus = cs.builtin_corpus(queries=8)
    made = cs.simulate(corpus, cs.PlackettLuce(cs.Oracle(), temperature=0.3), USER, 3000, rng=3)
    return log_with_holes(made, np.random.default_rng(1), share=0.1)


def coec_by_a_loop(log: cs.Sessions, *, best_rank: bool) -> dict[int, tuple[float, float]]:
    """Clicks and expected clicks by pair."""
    shown: Counter = Counter()
    clicked: Counter = Counter()
    cells: Counter = Counter()
    clicks: Counter = Counter()
    for row in range(len(log)):
        for rank in range(log.n_ranks):
            if log.rankings.shown[row, rank]:
                pair, count = int(log.rankings.pair[row, rank]), int(log.count[row])
                shown[rank] += count
                cells[pair, rank] += count
                clicked[rank] += count * int(log.click[row, rank])
                clicks[pair] += count * int(log.click[row, rank])
    expected: dict[int, tuple[float, float]] = {}
    for pair in {pair for pair, _ in cells}:
        ranks = {rank: n for (other, rank), n in cells.items() if other == pair}
        if best_rank:
            total = sum(ranks.values()) * clicked[min(ranks)] / shown[min(ranks)]
        else:
            total = sum(n * clicked[rank] / shown[rank] for rank, n in ranks.items())
        expected[pair] = (clicks[pair], total)
    return expected


@pytest.mark.parametrize("reference", ["impressions", "best-rank"])
@pytest.mark.parametrize("strength", [0, 1, 2.5])
def test_coec_is_what_a_loop_counts(reference: str, strength: float, log: cs.Sessions) -> None:
    model = cs.fit(ExpectedClicks("COEC", reference, strength), log)
    assert isinstance(model, COEC)
    for pair, (clicks, expected) in coec_by_a_loop(log, best_rank=reference == "best-rank").items():
        assert model.expected[pair] == pytest.approx(expected)
        assert model.coec[pair] == pytest.approx((clicks + strength) / (expected + strength))


def test_best_rank_gives_the_numbers_of_opensearch(log: cs.Sessions) -> None:
    table = log.to_arrow("long")
    with duckdb.connect() as connection:
        connection.register("results", table)
        rows = connection.sql(
            """WITH rates AS (SELECT rank, sum(click) / count(*) AS rate FROM results GROUP BY rank),
            pairs AS (SELECT query, doc, sum(click) AS clicks, count(*) AS impressions, min(rank) AS best
                FROM results GROUP BY ALL)
            SELECT query, doc, clicks / (impressions * rate) FROM pairs JOIN rates ON best = rank"""
        ).fetchall()
    found = cs.fit("COEC(reference='best-rank')", log).relevance_table().to_pylist()
    assert {(row["query"], row["doc"]): row["relevance"] for row in found if row["impressions"]} == {
        (query, doc): pytest.approx(value) for query, doc, value in rows
    }


def test_counts_are_enough_and_give_the_same_model(log: cs.Sessions, tmp_path: Path) -> None:
    model, counted = cs.fit("COEC", log), learner_for("COEC").fit(Cells.of(log))
    assert model.coec.tolist() == counted.coec.tolist()
    cs.save_model(model, tmp_path / "model")
    loaded: Any = cs.load_model(tmp_path / "model")
    for name in ("coec", "ctr", "expected"):
        assert getattr(loaded, name).tolist() == getattr(model, name).tolist()
    assert [bound.tolist() for bound in loaded.intervals("relevance")] == [
        bound.tolist() for bound in model.intervals("relevance")
    ]


def test_intervals_are_those_of_the_click_rate_over_the_expected_one(log: cs.Sessions) -> None:
    model = cs.fit("COEC(strength=0)", log)
    intervals = model.intervals("relevance")
    pair = int(np.argmax(model.evidence.clicks))
    clicks, impressions = model.evidence.clicks[pair], model.evidence.impressions[pair]
    assert clicks > 20
    bounds = beta.ppf([0.025, 0.975], clicks + 0.5, impressions - clicks + 0.5) * impressions / model.expected[pair]
    assert [intervals.low[pair], intervals.high[pair]] == pytest.approx(bounds)
    assert (intervals.low[:-1] <= model.coec[:-1] + 1e-12).all()
    assert (intervals.high[:-1] >= model.coec[:-1] - 1e-12).all()


def test_intervals_hold_the_limit_of_coec() -> None:
    corpus = cs.builtin_corpus(queries=20)
    limit = cs.fit("COEC", cs.simulate(corpus, cs.Uniform(), USER, 1_000_000, rng=0)).coec[:-1]
    held = total = 0
    for seed in range(1, 4):
        model = cs.fit("COEC", cs.simulate(corpus, cs.Uniform(), USER, 30_000, rng=seed))
        low, high, _ = (bound[:-1] for bound in model.intervals("relevance"))
        known = model.expected[:-1] >= 5
        held += int(((low <= limit) & (limit <= high))[known].sum())
        total += int(known.sum())
    assert total > 500
    assert 0.92 <= held / total <= 0.99


def test_probabilities_are_rates_times_coec_and_at_most_one(log: cs.Sessions) -> None:
    vocabulary, query, pair = cs.Vocabulary.of(["q", "q"], ["a", "b"])
    model = COEC(vocabulary, np.array([4.0, 0.5, 1.0]), np.array([0.3, 0.2]), np.array([1.0, 1.0, 0.0]))
    lists = cs.Rankings(vocabulary, query[:1], pair[None])
    assert model.click_prob(lists).tolist() == [[1.0, pytest.approx(0.1)]]
    fitted = cs.fit("COEC", log)
    assert np.isfinite(fitted.log_likelihood(log)).all()


def test_judgments_have_cut_points_of_their_own(log: cs.Sessions, recwarn: pytest.WarningsRecorder) -> None:
    graded = cs.judgments(cs.fit("COEC", log))
    assert graded.to_dict()["cut_points"] == [0.25, 0.75, 1.5, 3.0]
    assert not [warning for warning in recwarn if "probability" in str(warning.message)]
    table = graded.to_pandas()
    assert ((table.weight > 0) & (table.weight < 1)).all()
    unclicked = table[table.clicks == 0]
    assert (unclicked.grade == 0).all(), "no grade above the lowest one without a click"
    assert cs.judgments(cs.fit("COEC", log), grades="1").to_dict()["cut_points"] == [1.0]


def test_coec_takes_the_quality_of_a_ranker_for_position_bias() -> None:
    """Where good documents are always first, expected clicks contain their quality; PBM compares the same documents."""
    corpus = cs.builtin_corpus(queries=50)
    log = cs.simulate(corpus, cs.PlackettLuce(cs.Oracle(), temperature=0.1), USER, 40_000, rng=0)
    truth, query = USER.on(corpus).relevance(), corpus.vocabulary.pair_query
    agreement = {}
    for name in ("COEC", "PBM"):
        model = cs.fit(name, log)
        found = np.where(model.evidence.impressions[:-1] >= 20, model.relevance(), np.nan)
        taus = [kendalltau(found[query == q], truth[query == q], nan_policy="omit").statistic for q in range(50)]
        agreement[name] = np.nanmean(taus)
    assert agreement["PBM"] > agreement["COEC"] + 0.05


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("ExpectedClicks('PBM')", "unknown-name"),
        ("COEC(reference='worst-rank')", "bad-option"),
        ("COEC(strength=-1)", "bad-option"),
        ("COEC(strength='much')", "bad-option"),
        ("COEC(smoothing=1)", "bad-option"),
    ],
)
def test_wrong_options_are_refused(text: str, code: str) -> None:
    with raises_code(code, SpecError):
        learner_for(text)


def test_a_model_may_have_options_of_its_default_learner() -> None:
    assert learner_for("COEC(strength=2)") == ExpectedClicks("COEC", strength=2)
    assert learner_for("dCTR(smoothing='fitted')") == learner_for("Counting('dCTR', smoothing='fitted')")
    assert learner_for("PBM()") == learner_for("PBM")
