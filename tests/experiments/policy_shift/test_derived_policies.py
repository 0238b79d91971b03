"""Rows about derived policies: what the user gives, what the model promised."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift import models
from clickshift.core.spec import key, parse
from clickshift.data.corpus import Corpus
from clickshift.errors import DataError, SpecError
from clickshift.experiments.policy_shift.derived_policies import DerivedPolicies
from clickshift.models.base import ClickModel
from clickshift.policies.derived import max_reward, top_down
from clickshift.simulation import users
from tests.codes import raises_code


@pytest.fixture
def frequency(corpus: Corpus) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 50, corpus.n_queries).astype(float)


@pytest.fixture
def fits(corpus: Corpus) -> list[ClickModel]:
    """Three UBMs that have the user's attractiveness wrong, each in its own way."""
    rng, words = np.random.default_rng(2), corpus.vocabulary
    truth = np.append(corpus.gain, 0.0)
    wrong = [0.1 + 0.6 * truth + 0.3 * rng.random(len(truth)) for _ in range(3)]
    return [models.UBM(words, attractiveness, rng.uniform(0.2, 1, 55)) for attractiveness in wrong]


def test_rows_say_what_the_user_gives(corpus: Corpus, frequency: np.ndarray, fits: list[ClickModel]) -> None:
    user = users.CoCM_mismatch().on(corpus)
    share = frequency / frequency.sum()
    rows = list(DerivedPolicies(sessions=20_000, ranks=5).rows(fits, corpus, user, frequency, rng=3))
    assert [(row["seed"], row["policy"]) for row in rows] == [
        (seed, policy) for seed in range(3) for policy in ("Top-Down", "Max-Reward")
    ]
    for row in rows:
        derive = top_down if row["policy"] == "Top-Down" else max_reward
        lists = derive(fits[row["seed"]], corpus, ranks=5, rng=0).rankings  # no ties, so the seed does not matter
        assert row["kind"] == "policy"
        assert row["seconds"] > 0
        assert row["expected_clicks"] == pytest.approx(share @ user.click_prob(lists).sum(axis=1), abs=1e-9)
        promised = share @ fits[row["seed"]].click_prob(lists).sum(axis=1)
        assert row["predicted_clicks"] == pytest.approx(promised, abs=1e-9)
        assert row["curse"] == pytest.approx(promised - row["expected_clicks"])
        assert row["clicks"] == pytest.approx(row["expected_clicks"], abs=5 * np.sqrt(1 / 20_000))
        assert row["ctr"] == pytest.approx(row["clicks"] / (share @ lists.length), rel=0.02)
        assert "disparity" not in row


def test_who_knows_the_user_is_not_cursed(corpus: Corpus, frequency: np.ndarray) -> None:
    user = users.CoCM_mismatch().on(corpus)
    down, best = DerivedPolicies(sessions=1000).rows([user], corpus, user, frequency, rng=0)
    assert down["curse"] == pytest.approx(0, abs=1e-9)
    assert best["curse"] == pytest.approx(0, abs=1e-9)
    assert best["expected_clicks"] > down["expected_clicks"] + 0.01


def test_documents_that_training_has_not_shown_are_not_ranked(corpus: Corpus, frequency: np.ndarray) -> None:
    user = users.DBN().on(corpus)
    seen = corpus.with_pairs(np.arange(0, corpus.n_pairs, 2))
    rows = list(DerivedPolicies(sessions=1000).rows([user], seen, user, frequency[: seen.n_queries], rng=0))
    whole = list(DerivedPolicies(sessions=1000).rows([user], corpus, user, frequency, rng=0))
    assert rows[0]["expected_clicks"] < whole[0]["expected_clicks"]
    lists = max_reward(user, seen, rng=0).rankings
    share = frequency[: seen.n_queries] / frequency[: seen.n_queries].sum()
    assert rows[1]["expected_clicks"] == pytest.approx(share @ user.click_prob(lists).sum(axis=1))


def test_penalties_rest_on_all_seeds(corpus: Corpus, frequency: np.ndarray, fits: list[ClickModel]) -> None:
    user = users.CoCM().on(corpus)
    protocol = DerivedPolicies(sessions=1000, penalties=(0.5, 2.0), ranks=3)
    rows = list(protocol.rows(fits, corpus, user, frequency, rng=0))
    assert [row["policy"] for row in rows[-2:]] == ["Max-Reward - 0.5 sd", "Max-Reward - 2 sd"]
    assert [row["seed"] for row in rows[-2:]] == [0, 0]
    lists = max_reward(fits, corpus, ranks=3, penalty=2.0, rng=0)
    assert rows[-1]["predicted_clicks"] == pytest.approx(frequency / frequency.sum() @ lists.predicted, abs=1e-4)
    assert len(list(protocol.rows(fits[:1], corpus, user, frequency, rng=0))) == 2, "one seed has no spread"


def test_fairness_is_judged_by_the_user(corpus: Corpus, frequency: np.ndarray) -> None:
    user = users.PBM().on(corpus)
    rows = {
        row["policy"]: row
        for row in DerivedPolicies(sessions=1000, fair=True).rows([user], corpus, user, frequency, rng=0)
    }
    assert set(rows) == {"Top-Down", "Max-Reward", "Fair"}
    assert rows["Fair"]["disparity"] < rows["Top-Down"]["disparity"] - 0.05
    assert rows["Fair"]["expected_clicks"] < rows["Top-Down"]["expected_clicks"]
    assert rows["Fair"]["clicks"] == pytest.approx(rows["Fair"]["expected_clicks"], abs=0.15)


def test_the_same_seed_gives_the_same_rows(corpus: Corpus, frequency: np.ndarray, fits: list[ClickModel]) -> None:
    user = users.CoCM().on(corpus)
    first, again, other = (
        [
            {k: v for k, v in row.items() if k != "seconds"}
            for row in protocol.rows(fits, corpus, user, frequency, rng=seed)
        ]
        for protocol, seed in (
            (DerivedPolicies(sessions=2000), 1),
            (DerivedPolicies(sessions=2000), 1),
            (DerivedPolicies(sessions=2000), 2),
        )
    )
    assert first == again
    assert [row["clicks"] for row in first] != [row["clicks"] for row in other]


def test_settings(corpus: Corpus, fits: list[ClickModel]) -> None:
    where = {"DerivedPolicies": "clickshift.experiments.policy_shift.derived_policies:DerivedPolicies"}
    protocol = DerivedPolicies(search="sampled", penalties=(1.0,), fair=True)
    assert parse(key(protocol), where) == protocol
    with raises_code("unknown-name", SpecError, name="best"):
        DerivedPolicies(search="best")
    with raises_code("bad-option", SpecError, option="sessions", value=0):
        DerivedPolicies(sessions=0)
    with raises_code("bad-weights", DataError, count=30, shape=(7,)):
        next(DerivedPolicies().rows(fits, corpus, users.DBN().on(corpus), np.ones(7), rng=0))
