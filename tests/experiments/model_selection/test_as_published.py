"""The protocol as in the authors' code: what changes, and that no rows of another training are reused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import clickshift as cs
from clickshift import models
from clickshift.core.spec import parse
from clickshift.errors import SpecError
from clickshift.experiments.model_selection._report import ModelSelectionResult
from clickshift.experiments.model_selection.as_published import as_published
from clickshift.experiments.model_selection.protocol import ModelSelection
from clickshift.experiments.models import Contender
from clickshift.experiments.papers import reproduce
from clickshift.experiments.runner import digest
from clickshift.learners.gradient import Gradient
from clickshift.policies.by_exposure import Placed
from clickshift.simulation.search_engine import SelectionWorld
from clickshift.simulation.users import USERS
from tests.codes import raises_code

SMALL = SelectionWorld(queries=30, sessions=3000, held_out_sessions=500, test_sessions=500)


def test_users_and_training_are_those_of_the_code() -> None:
    changed = as_published(ModelSelection())
    soft = parse(dict(changed.users)["DBN"], USERS).on(cs.builtin_corpus(5))
    assert type(soft) is models.SoftDBN
    learners = {contender.name: contender.make() for contender in changed.contenders}
    by_gradient = {name: learner for name, learner in learners.items() if isinstance(learner, Gradient)}
    assert set(by_gradient) == {"PBM", "UBM", "DBN", "CACM-minus", "NCM"}
    for learner in by_gradient.values():
        assert (learner.learning_rate, learner.batch, learner.rounds, learner.tower) == (0.001, 256, 10, "free")
    assert as_published(changed) == changed
    own = Contender("PBM", "EM('PBM', prior=(1, 9))", "candidate")
    assert as_published(ModelSelection(contenders=(own,))).contenders == (own,)


def test_no_task_reuses_rows_of_the_default_protocol() -> None:
    assert not {digest(task) for task in ModelSelection(seeds=1).tasks()} & {
        digest(task) for task in as_published(ModelSelection(seeds=1)).tasks()
    }


def test_lists_of_users_who_read_bottom_up_are_placed_by_the_permutation_instead_of_its_inverse() -> None:
    """Each document's probability by rank, from the world and from the policy itself."""
    text, user = "NoisyOracle(sd=0.5, scale='label')", "MixtureDBN"
    world = replace(SMALL, testing=(("NoisyOracle", text),))
    exposure = tuple(parse(user, USERS).exposure(10).tolist())
    placements = {}
    for published in (False, True):
        engine = replace(world, as_published=published)
        logs = engine.logs(user, f"PlackettLuce({text}, temperature=0.1)", 0)
        policy = Placed(engine.policy(text), exposure, as_published=published)
        expected = policy.on(engine.candidates()).placement(ranks=10)
        np.testing.assert_allclose(logs.target_placement["NoisyOracle"], expected)
        placements[published] = expected
    assert np.abs(placements[True] - placements[False]).max() == pytest.approx(1)


@pytest.mark.parametrize("table", ["cmip-table1", "cmip-table2"])
def test_it_is_an_option_of_reproduce(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[ModelSelection] = []

    def run(self: ModelSelection, output: object, **options: object) -> ModelSelectionResult:
        ran.append(self)
        return ModelSelectionResult([])

    monkeypatch.setattr(ModelSelection, "run", run)
    cs.reproduce(table, as_published=True, queries=50, seeds=2)
    cs.reproduce(table, queries=50, seeds=2)
    assert ran == [as_published(ran[1]), ran[1]]


def test_tables_of_a_paper_without_models_refuse_it() -> None:
    with raises_code("bad-option", SpecError, option="as_published"):
        reproduce("ope-figure1", as_published=True)
