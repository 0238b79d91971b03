"""Sources of loss: the parts sum to the whole, and each planted fault is found in its part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickshift import models
from clickshift.errors import SpecError
from clickshift.experiments.policy_shift._loss_parts import PARTS, _maximum, _scaled
from clickshift.experiments.policy_shift.loss_sources import LossSources, loss_sources, sources_of_loss
from clickshift.learners import fit
from clickshift.simulation.search_engine import SimulatedLogs, World
from tests.codes import raises_code

WORLD = World(testing=(("random", "Uniform"),), queries=12, sessions=20_000, test_sessions=10_000)
LOGGING = "PlackettLuce(NoisyOracle, temperature=0.5, scores='log')"


@pytest.fixture(scope="module")
def logs() -> SimulatedLogs:
    return WORLD.logs("PBM", LOGGING)


@pytest.fixture(scope="module")
def truth(logs: SimulatedLogs) -> models.PBM:
    """The users' own PBM, as if it were fitted."""
    assert isinstance(logs.user, models.PBM)
    return replace(logs.user, examination=logs.user.examination[:10])


def test_the_users_own_model_loses_nothing(truth: models.PBM, logs: SimulatedLogs) -> None:
    parts = sources_of_loss(truth, logs)["random"]
    assert parts["excess"] == pytest.approx(0, abs=1e-12)
    assert [parts[name] for name in PARTS] == pytest.approx([0, 0, 0], abs=5e-4)


def test_a_planted_fault_is_found_in_its_part(truth: models.PBM, logs: SimulatedLogs) -> None:
    wrong_examination = replace(truth, examination=truth.examination[::-1].copy())
    rng = np.random.default_rng(0)
    wrong_attractiveness = replace(truth, attractiveness=rng.permutation(truth.attractiveness))
    for model, part in ((wrong_examination, "examination"), (wrong_attractiveness, "attractiveness")):
        found = sources_of_loss(_scaled(model, logs.train), logs)["random"]  # as many clicks as logged, like a fit
        assert sum(found[name] for name in PARTS) == pytest.approx(found["excess"], abs=1e-12)
        assert found[part] == pytest.approx(found["excess"], rel=0.15)
        assert found["excess"] > 0.02


def test_other_users_are_a_fault_of_the_structure() -> None:
    """PBM cannot express that users leave; DBN's own users lose nothing by its structure."""
    logs = WORLD.logs("DBN", LOGGING)
    for name, least, most in (("PBM", 0.001, 0.01), ("DBN", -1e-9, 1e-9)):
        parts = sources_of_loss(fit(name, logs.train), logs)["random"]
        assert least < parts["structure"] < most, parts
        assert sum(parts[part] for part in PARTS) == pytest.approx(parts["excess"], abs=1e-12)


def test_the_factor_is_the_maximum_of_the_likelihood() -> None:
    rng = np.random.default_rng(0)
    prob, group = rng.uniform(0.05, 0.6, 4000), np.repeat([0, 2], 2000)
    click = rng.random(4000) < prob * np.where(group == 0, 0.5, 1.2)
    found = _maximum(prob, click, np.ones(4000), group, 3)
    assert np.isnan(found[1])
    for k in (0, 2):
        own, clicked = prob[group == k], click[group == k]

        def likelihood(factor: float, own: np.ndarray = own, clicked: np.ndarray = clicked) -> float:
            return float(np.log(np.where(clicked, factor * own, 1 - factor * own)).sum())

        assert likelihood(found[k]) >= max(likelihood(found[k] * f) for f in (0.999, 1.001))


def test_the_result_names_the_largest_source() -> None:
    row = {"user": "DBN", "training": "PL-oracle", "testing": "random", "model": "PBM", "excess": 0.03}
    result = LossSources([row | {"examination": 0.02, "attractiveness": 0.007, "structure": 0.003}])
    assert result.conclusion.endswith("PBM loses 0.0300, most by examination (0.0200).")
    assert list(result.figure().data[0].y) == ["PBM, DBN users"]
    assert result.to_dict()["means"][0]["structure"] == 0.003


def test_other_models_are_refused() -> None:
    with raises_code("unknown-name", SpecError, value="NCM"):
        loss_sources(["NCM"])
    with raises_code("unknown-name", SpecError, value="huge"):
        loss_sources(scale="huge")
