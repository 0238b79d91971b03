"""Stacking: weights solve their convex problem, the right family is found, and no member predicts better."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from clickshift import models
from clickshift.core.spec import label
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import CapabilityError, ClickshiftWarning, SpecError
from clickshift.io.read_log import read_log
from clickshift.learners import fit, learner_for
from clickshift.learners.stacking import Stacking, stacking_weights
from clickshift.metrics.click_prediction import perplexity
from clickshift.models.base import pair_table
from clickshift.models.forecast import predict
from clickshift.models.storage import load_model, save_model
from clickshift.policies.basic import Uniform
from clickshift.simulation.simulate import simulate
from clickshift.testing import check_click_model
from tests.codes import raises_code

WORDS = Vocabulary.of(np.repeat(np.arange(5), 6), np.arange(30))[0]
ATTRACTIVENESS = pair_table(np.random.default_rng(0).uniform(0.2, 0.8, 30), unseen=0.2)
SCANNING = models.PBM(WORDS, ATTRACTIVENESS, 0.6 ** np.arange(6))
READING = models.DBN(WORDS, ATTRACTIVENESS, pair_table(np.full(30, 0.9), unseen=0.9), 0.95)


def log_of(truth: models.ClickModel, sessions: int, seed: int) -> Sessions:
    return simulate(Corpus(WORDS, np.zeros(30, np.float32)), Uniform(), truth, sessions, ranks=6, rng=seed)


@pytest.fixture(scope="module")
def stacked() -> tuple[models.Mixture, Sessions, Sessions]:
    """Half of the users scan, half read from the top until they are satisfied."""
    truth = models.Mixture(WORDS, (SCANNING, READING), np.array([0.5, 0.5]))
    train, test = log_of(truth, 20_000, 1), log_of(truth, 20_000, 2)
    model = fit("Stacking(('PBM', 'DBN', 'rCTR'))", train)
    assert isinstance(model, models.Mixture)
    return model, train, test


def test_weights_maximise_the_likelihood() -> None:
    log = log_of(models.Mixture(WORDS, (SCANNING, READING), np.array([0.3, 0.7])), 20_000, 3)
    members = [SCANNING, READING, models.RCTR(WORDS, np.full(6, 0.3))]
    weights = stacking_weights(members, log)
    assert weights == pytest.approx([0.3, 0.7, 0.0], abs=0.03)
    # at the maximum over a simplex, no member's likelihood ratio to the mixture exceeds 1 in the mean
    likelihood = np.exp([member.log_likelihood(log) for member in members])
    ratio = likelihood @ (log.count / (weights @ likelihood)) / log.total
    assert ratio[:2] == pytest.approx(1, abs=1e-5)
    assert ratio[2] < 1


@pytest.mark.parametrize(("truth", "name"), [(SCANNING, "PBM"), (READING, "DBN")])
def test_the_family_of_the_users_gets_the_weight(truth: models.ClickModel, name: str) -> None:
    model = fit("Stacking(('PBM', 'DBN', 'rCTR'))", log_of(truth, 20_000, 4))
    assert isinstance(model, models.Mixture)
    assert type(model.components[0]).__name__ == name
    assert model.weights[0] > 0.9


def test_a_stacked_mixture_predicts_better_than_its_members(
    stacked: tuple[models.Mixture, Sessions, Sessions],
) -> None:
    model, train, test = stacked
    members = min(perplexity(fit(name, train), test).average for name in ("PBM", "DBN", "rCTR"))
    assert perplexity(model, test).average < members - 0.002
    check_click_model(model)


def test_relevance_is_the_click_probability_on_the_first_rank_with_an_interval(
    stacked: tuple[models.Mixture, Sessions, Sessions], tmp_path: Path
) -> None:
    model = stacked[0]
    alone = Rankings(WORDS, WORDS.pair_query, np.arange(30, dtype=np.int32)[:, None])
    assert model.relevance() == pytest.approx(model.click_prob(alone)[:, 0])
    save_model(model, tmp_path / "model")
    assert load_model(tmp_path / "model").relevance() == pytest.approx(model.relevance())
    of_one_family = fit("Stacking(('PBM', 'DBN', 'rCTR'))", log_of(SCANNING, 20_000, 5))
    table = of_one_family.relevance_table().to_pandas().sort_values(["query", "doc"])
    truth = ATTRACTIVENESS[:-1]
    assert ((table.low.to_numpy() <= truth) & (truth <= table.high.to_numpy())).mean() >= 0.85


def test_a_stacked_mixture_forecasts_with_intervals(stacked: tuple[models.Mixture, Sessions, Sessions]) -> None:
    """The standard error of a weighted mean lies between those of independent and of equal errors."""
    model, _, test = stacked
    lists = test.rankings[:20]
    found = predict(model, lists)
    assert found.click_prob == pytest.approx(model.click_prob(lists))
    assert model.expected_clicks(lists) == pytest.approx(model.click_prob(lists).sum(axis=1))
    members = np.stack(
        [weight * predict(c, lists).error for weight, c in zip(model.weights, model.components, strict=True)]
    )
    assert found.error == pytest.approx(members.sum(axis=0))
    assert (found.error >= np.sqrt((members**2).sum(axis=0))).all()
    unknown = replace(model.components[0], evidence=None)
    assert np.isnan(predict(replace(model, components=(unknown, *model.components[1:])), lists).error).all()


def test_a_mixture_says_where_its_curves_are(stacked: tuple[models.Mixture, Sessions, Sessions]) -> None:
    with raises_code("no-examination", CapabilityError, model="Mixture"):
        stacked[0].examination_table()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"members": ("PBM",)}, "too-few-components"),
        ({"members": ("PBM", "CM")}, "bad-component"),
        ({"members": ("PBM", "XYZ")}, "unknown-name"),
        ({"held_out": 0.0}, "bad-option"),
        ({"held_out": float("nan")}, "bad-option"),
    ],
)
def test_bad_options_are_explained(options: dict, code: str) -> None:
    with raises_code(code, SpecError):
        Stacking(**options)


def test_a_stacked_mixture_displays_its_members_with_their_weights(
    stacked: tuple[models.Mixture, Sessions, Sessions],
) -> None:
    model, _, _ = stacked
    facts = model.to_dict()
    assert [row["member"] for row in facts["members"]] == [type(one).__name__ for one in model.components]
    assert [row["weight"] for row in facts["members"]] == sorted(model.weights, reverse=True)
    for row in facts["members"]:
        assert f"{row['weight']:.3f} {row['member']}" in facts["conclusion"]
    assert "iteration" not in facts["conclusion"], "weights solve a convex problem"
    assert model.summary().document.sections[0].table == facts["members"]


def test_members_of_one_family_are_told_apart_by_their_options() -> None:
    weak = "MaximumLikelihood('PBM', prior=(0.1, 1.0))"
    log = log_of(SCANNING, 2000, 1)
    components = fit("PBM", log), fit(weak, log), fit("drCTR", log)
    mixture = models.Mixture(WORDS, components, np.array([0.5, 0.3, 0.2]))
    assert mixture.component_titles == ["PBM", "PBM, prior=(0.1, 1.0)", "drCTR"]
    assert "0.500 PBM, 0.300 PBM with prior=(0.1, 1.0) and 0.200 drCTR" in mixture.summary().conclusion


def test_a_weak_prior_has_at_most_a_quarter_of_its_family() -> None:
    weak = "MaximumLikelihood('PBM', prior=(0.1, 1.0))"
    model = fit(Stacking(["PBM", weak, "drCTR"]), log_of(SCANNING, 3000, 1))
    weight = dict(zip(model.component_titles, model.weights, strict=True))
    family = [share for name, share in weight.items() if name.startswith("PBM")]
    assert weight.get("PBM, prior=(0.1, 1.0)", 0.0) <= 0.25 * sum(family) + 1e-9


def test_a_member_warns_once() -> None:
    """Every list is shown in the same order, so that ranks cannot be told from documents."""
    clicks = (np.random.default_rng(0).random((400, 4)) < [0.5, 0.4, 0.3, 0.2]).tolist()
    fixed = read_log(pa.table({"query": [1] * 400, "docs": [[1, 2, 3, 4]] * 400, "clicks": clicks}))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fit(Stacking(["PBM", "DBN"]), fixed)
    codes = [warning.message.code for warning in caught if isinstance(warning.message, ClickshiftWarning)]
    assert len(codes) == len(set(codes)) > 0
    assert any(isinstance(one, models.PBM) for one in model.components)


def test_members_may_be_a_list_in_python_and_in_a_text() -> None:
    wanted = Stacking(("PBM", "DBN"))
    for given in (Stacking(["PBM", "DBN"]), learner_for("Stacking(['PBM', 'DBN'])"), Stacking(members=["PBM", "DBN"])):
        assert given == wanted
        assert (hash(given), label(given)) == (hash(wanted), "Stacking(members=('PBM', 'DBN'))")


def test_members_by_gradient_know_the_pairs_that_their_part_of_the_log_does_not_show(tmp_path: Path) -> None:
    """They have the vocabulary of the sessions that they were fitted on; a mixture has that of the log."""
    log = log_of(SCANNING, 1000, 5)
    part = log[np.flatnonzero(log.rankings.query < 4)]
    neural = "Gradient('PBM', tower='free', rounds=5)"
    model = Stacking((neural, "gCTR")).fit(part)
    alone = learner_for(neural).fit(part.merged())
    assert alone.vocabulary.n_pairs < part.vocabulary.n_pairs
    assert model.vocabulary.same_as(part.vocabulary)
    kept = {type(component).__name__: component for component in model.components}
    assert kept["PBM"].click_prob(part.rankings) == pytest.approx(alone.click_prob(part.rankings), abs=1e-6)
    everything = log_of(SCANNING, 60, 6)  # with pairs that no training session shows
    total = sum(
        weight * component.click_prob(everything.rankings)
        for weight, component in zip(model.weights, model.components, strict=True)
    )
    assert model.click_prob(everything.rankings) == pytest.approx(total)
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.click_prob(everything.rankings) == pytest.approx(total, abs=1e-5)
