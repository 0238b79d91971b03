"""Click histories as a tree, and the two ways to sum them out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import ClickshiftWarning, DataError
from clickshift.metrics.click_prediction import evaluation
from clickshift.models import _histories
from clickshift.models._formulas import both, sigmoid
from clickshift.models._histories import Histories, sum_over_histories
from clickshift.models.base import MARGINAL_ERROR
from clickshift.models.forecast import predict
from clickshift.models.neural import NeuralModel
from clickshift.ope import evaluate_policy
from tests.codes import raises_code
from tests.models.random_models import random_neural


@pytest.mark.parametrize("ranks", [1, 2, 7])
def test_every_result_finds_its_own_history(ranks: int, rng: np.random.Generator) -> None:
    click = rng.random((40, ranks)) < 0.4
    found, where = Histories.of(click)
    for i in range(40):
        for rank in range(ranks):
            expected = np.where(np.arange(ranks) < rank, click[i], False)
            assert (found.click[where[i, rank]] == expected).all()
            assert found.rank[where[i, rank]] == rank
    distinct = {(int(r), tuple(c)) for r, c in zip(found.rank, found.click.tolist(), strict=True)}
    assert len(distinct) == len(found)


@pytest.mark.parametrize("tree", [Histories.all(5), Histories.of(np.random.default_rng(0).random((30, 5)) < 0.5)[0]])
def test_a_parent_is_the_history_without_its_last_result(tree: Histories) -> None:
    for k in range(1, len(tree)):
        above, rank = tree.parent[k], int(tree.rank[k])
        assert tree.rank[above] == rank - 1
        assert (tree.click[above][: rank - 1] == tree.click[k][: rank - 1]).all()
        assert tree.last[k] == tree.click[k][rank - 1]
    assert tree.last[0] == 2


def test_all_histories_are_where_they_are_looked_up() -> None:
    tree = Histories.all(4)
    for rank in range(4):
        for h in range(1 << rank):
            bits = tree.click[(1 << rank) - 1 + h]
            assert (bits[:rank] == ((h >> np.arange(rank)) % 2 == 1)).all()


def test_too_long_lists_are_refused() -> None:
    with raises_code("lists-too-long", DataError, value=63, limit=62):
        Histories.of(np.zeros((1, 63), bool))


@dataclass(frozen=True, eq=False)
class Tired(NeuralModel):
    """The model of docs/how-to/add-a-click-model.md, with fatigue by clicks above."""

    @classmethod
    def start(cls, n_ranks: int, state: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {}

    @classmethod
    def click_given_history(cls, by_pair: Any, shared: Any, click: Any) -> Any:
        above = np.cumulative_sum(click, axis=1) - click
        return both(sigmoid(by_pair["attractiveness"]), sigmoid(shared["examination"] - shared["fatigue"] * above))


def tired(n_docs: int, n_ranks: int) -> tuple[Tired, Rankings]:
    """A model of fatigue with attractive documents, and every document at some rank of one of 40 lists."""
    words, rng = Vocabulary.of(np.zeros(n_docs, int), np.arange(n_docs))[0], np.random.default_rng(1)
    shared = {"examination": rng.normal(size=n_ranks), "fatigue": np.array(1.5)}
    model = Tired(words, {"attractiveness": rng.normal(size=n_docs + 1)}, shared)
    pair = np.stack([rng.permutation(n_docs)[:n_ranks] for _ in range(40)])
    pair[:3, n_ranks - 2 :] = UNSEEN  # shorter lists
    return model, Rankings(words, np.zeros(40, int), pair)


def test_marginals_of_any_neural_model_are_the_sum_over_all_click_patterns() -> None:
    """Against an enumeration of whole click patterns, weighted by their likelihood."""
    model, lists = tired(7, 5)
    patterns = np.array(list(product([False, True], repeat=5)))
    for row in range(len(lists)):
        allowed = patterns[~(patterns & ~lists.shown[row]).any(axis=1)]
        sessions = Sessions(lists[np.full(len(allowed), row)], allowed)
        expected = np.exp(model.log_likelihood(sessions)) @ allowed
        assert model.click_prob(lists)[row] == pytest.approx(expected, abs=1e-12)
        assert model.expected_clicks(lists, tolerance=1e-12)[row] == pytest.approx(expected.sum(), abs=1e-9)


def test_fewer_histories_of_any_neural_model_are_cheaper_and_nearly_as_good() -> None:
    """The error falls with the tolerance, and a search evaluates a small part of the 512 histories of a list."""
    model, lists = tired(12, 10)
    exact, evaluated = model.expected_clicks(lists), []

    def count(self: Any, by_pair: Any, shared: Any, click: Any) -> Any:
        evaluated[-1] += len(click)
        return Tired.click_given_history(by_pair, shared, click)

    counting = type("Counting", (Tired,), {"click_given_history": count})
    counted = counting(model.vocabulary, model.by_pair, model.shared)
    errors = []
    for tolerance in (1.0, 0.03, 1e-3, 1e-6):
        evaluated.append(0)
        errors.append(np.abs(counted.expected_clicks(lists, tolerance=tolerance) - exact).mean())
    assert evaluated[0] == len(lists) < evaluated[1] < 15 * len(lists) < evaluated[2] < evaluated[3]
    assert errors[0] > 3 * errors[1] > 9 * errors[2] > 27 * errors[3]
    assert np.abs(model.click_prob(lists, max_error=1e-3) - model.click_prob(lists)).max() < 1e-3


@pytest.mark.parametrize("max_error", [1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("clicks", [0.1, 0.4])
def test_likely_histories_keep_the_stated_error(clicks: float, max_error: float) -> None:
    """Networks with large weights, whose clicks depend on the clicks above more than those of fitted ones."""
    words = Vocabulary.of(np.zeros(10, int), np.arange(10))[0]
    model = random_neural("NCM", words, ranks=9)
    shared = {name: 3 * array for name, array in model.shared.items()}
    shared["readout_bias"] = np.array(np.log(clicks / (1 - clicks)))
    model = replace(model, shared=shared)
    rng = np.random.default_rng(0)
    pair = np.stack([rng.permutation(10)[:9] for _ in range(300)])
    pair[np.arange(9) >= rng.integers(1, 10, 300)[:, None]] = UNSEEN  # lists of different lengths
    lists = Rankings(words, np.zeros(305, int), np.concatenate([pair, pair[:5]]))
    exact = model.click_prob(lists)
    close = model.click_prob(lists, max_error=max_error)
    assert np.abs(close - exact).max() <= max_error
    assert close[:5] == pytest.approx(close[-5:], abs=1e-6)
    assert (close[~lists.shown] == 0).all()
    assert np.abs(np.diff(exact, axis=1)).max() > 0.05, "the lists are not trivial"


def test_metrics_state_the_error_of_marginals() -> None:
    words = Vocabulary.of(np.zeros(10, int), np.arange(10))[0]
    model = random_neural("NCM", words, ranks=8)
    lists = Rankings(words, np.zeros(100, int), np.stack([np.random.default_rng(k).permutation(8) for k in range(100)]))
    sessions = model.sample(lists, rng=0)
    close, exact = evaluation(model, sessions), evaluation(model, sessions, exact=True)
    assert (close["marginal_error"], exact["marginal_error"]) == (1e-3, 0.0)
    assert close["marginal_perplexity"] != exact["marginal_perplexity"]
    assert close["marginal_perplexity"] == pytest.approx(exact["marginal_perplexity"], abs=2e-3)
    assert close["conditional_perplexity"] == exact["conditional_perplexity"]


@pytest.mark.parametrize("name", ["ARM", "CACM_minus"])
def test_the_kernel_sums_over_all_histories(name: str) -> None:
    words = Vocabulary.of(np.zeros(7, int), np.arange(7))[0]
    model: Any = random_neural(name, words, ranks=7)
    lists = Rankings(words, np.zeros(3, int), np.stack([np.random.default_rng(k).permutation(7) for k in range(3)]))
    attractiveness, examination = model.attractiveness[lists.pair], model._examination_after_all(7)

    def given(rank: int) -> np.ndarray:
        return attractiveness[:, rank, None] * examination[(1 << rank) - 1 : (2 << rank) - 1]

    assert model.click_prob(lists) == pytest.approx(sum_over_histories(given, 3, 7), abs=1e-12)


@pytest.mark.parametrize("name", ["NCM", "ARM", "CACM_minus"])
def test_long_lists_are_sampled_with_a_stated_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = Vocabulary.of(np.zeros(13, int), np.arange(13))[0]
    model = random_neural(name, words, ranks=13)
    lists = Rankings(words, np.zeros(3, int), np.stack([np.random.default_rng(k).permutation(13) for k in range(3)]))
    with pytest.warns(ClickshiftWarning) as caught:
        sampled = model.click_prob(lists)
    (warning,) = (one.message for one in caught)
    assert isinstance(warning, ClickshiftWarning)
    assert warning.code == "simulated-marginals"
    assert warning.facts["draws"] == 256
    error = warning.facts["error"]
    assert 0 < error < 0.1
    assert f"{error:.2g}" in str(warning)
    for module in ("neural", "_prefix"):
        monkeypatch.setattr(f"clickshift.models.{module}.MAX_ENUMERATED", 13)
    exact = model.click_prob(lists)
    assert np.abs(sampled - exact).max() < 5 * error
    assert np.abs(sampled - exact).max() > 0
    assert _histories.MAX_ENUMERATED == 12


def test_forecasts_and_policy_evaluations_state_the_error_of_marginals() -> None:
    """And compute exact ones on request."""
    words = Vocabulary.of(np.zeros(8, int), np.arange(8))[0]
    model = random_neural("NCM", words, ranks=8)
    model = replace(model, shared={name: 3 * array for name, array in model.shared.items()})
    rng = np.random.default_rng(0)
    lists = Rankings(words, np.zeros(200, int), np.stack([rng.permutation(8) for _ in range(200)]))
    quick, exact = (predict(model, lists, exact=exact) for exact in (False, True))
    assert (quick.to_dict()["marginal_error"], exact.to_dict()["marginal_error"]) == (MARGINAL_ERROR, 0.0)
    assert (exact.click_prob == model.click_prob(lists)).all()
    assert 0 < np.abs(quick.click_prob - exact.click_prob).max() <= MARGINAL_ERROR

    log, target = model.sample(lists, rng=1), lists[:1]
    names, options = ("DM", "DR-IP", "DR-List", "CIPS"), {"clip": [10.0], "replicates": 20}
    values = {
        exact: {
            row["estimator"]: row["value"]
            for row in evaluate_policy(log, target, model=model, estimators=names, exact=exact, **options).rows()
        }
        for exact in (False, True)
    }
    assert values[True]["DM"] == pytest.approx(model.click_prob(target).sum(), rel=1e-12)
    for name in names:
        assert 0 < abs(values[True][name] - values[False][name]) < 8 * 10 * MARGINAL_ERROR
    notes = {
        exact: evaluate_policy(log, target, model=model, estimators=["DM"], exact=exact, **options).notes["target"]
        for exact in (False, True)
    }
    assert [sum(f"{MARGINAL_ERROR:g}" in note for note in notes[exact]) for exact in (False, True)] == [1, 0]
