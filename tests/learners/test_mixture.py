"""Mixtures: what was planted is found, and two kinds of users explain more than one."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift import models
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import SpecError
from clickshift.learners import fit
from clickshift.learners.likelihood import MaximumLikelihood
from clickshift.learners.mixture import MixtureEM
from clickshift.metrics.click_prediction import perplexity
from clickshift.models.base import pair_table
from clickshift.policies.basic import Uniform
from clickshift.simulation.simulate import simulate
from clickshift.testing import check_click_model
from tests.codes import raises_code


@pytest.fixture(scope="module")
def world() -> tuple[models.Mixture, Sessions, Sessions]:
    """Patient users, who look everywhere, and hasty ones, who look at the top: documents please both alike."""
    rng = np.random.default_rng(0)
    words = Vocabulary.of(np.repeat(np.arange(5), 6), np.arange(30))[0]
    a = pair_table(rng.uniform(0.2, 0.8, 30), unseen=0.2)
    hasty = models.PBM(words, a, 0.25 ** np.arange(6))
    patient = models.PBM(words, a, np.ones(6))
    truth = models.Mixture(words, (hasty, patient), np.array([0.6, 0.4]))
    corpus = Corpus(words, np.zeros(30, np.float32))
    train, test = (simulate(corpus, Uniform(), truth, n, ranks=6, rng=n) for n in (30_000, 20_000))
    return truth, train, test


def test_a_mixture_comes_close_to_the_oracle_and_beats_one_component(
    world: tuple[models.Mixture, Sessions, Sessions],
) -> None:
    truth, train, test = world
    mixed = MixtureEM(("PBM", "PBM"), iterations=200, tolerance=0.5).fit(train)
    single = fit("PBM", train)
    oracle = perplexity(truth, test).average
    assert perplexity(mixed, test).average < oracle + 0.004
    assert perplexity(single, test).average > oracle + 0.02
    deepest = [float(c.examination[-1]) for c in mixed.components]  # type: ignore[attr-defined]
    assert mixed.weights[int(np.argmin(deepest))] == pytest.approx(0.6, abs=0.08)
    check_click_model(mixed)


def test_the_likelihood_rises_with_more_steps(world: tuple[models.Mixture, Sessions, Sessions]) -> None:
    _, train, _ = world
    values = []
    for iterations in (1, 3, 9, 27):
        model = MixtureEM(("PBM", "DBN"), iterations=iterations, tolerance=1e-9).fit(train[:5000])
        assert model.evidence is not None
        values.append(model.evidence.log_likelihood)
    assert (np.diff(values) > 0).all()


def test_merging_changes_nothing(world: tuple[models.Mixture, Sessions, Sessions]) -> None:
    _, train, _ = world
    part = train[:3000].merged()
    a, b = (MixtureEM(("UBM", "DCM"), iterations=5).fit(log) for log in (part, part.merged()))
    assert a.weights == pytest.approx(b.weights, abs=1e-9)


@pytest.mark.parametrize(
    ("components", "code", "value"),
    [
        (("PBM",), "too-few-components", ["PBM"]),
        (("PBM", "CM"), "bad-component", "CM"),
        (("PBM", "XYZ"), "unknown-name", "XYZ"),
    ],
)
def test_bad_components_are_explained(components: tuple[str, ...], code: str, value: object) -> None:
    with raises_code(code, SpecError, value=value):
        MixtureEM(components)


def test_by_text(world: tuple[models.Mixture, Sessions, Sessions]) -> None:
    _, train, _ = world
    model = fit("MixtureEM(('PBM', 'UBM'), iterations=2)", train[:2000])
    assert isinstance(model, models.Mixture)
    assert isinstance(MaximumLikelihood("PBM").fit(train), models.PBM)
