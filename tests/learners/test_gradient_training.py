"""Training by gradient: it finds what EM finds, seeds do not touch each other, nothing that was learned is lost."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clickshift.corpus import Corpus
from clickshift.errors import ClickshiftWarning, DataError
from clickshift.learners.em import EM
from clickshift.learners.gradient import Gradient, batches, training
from clickshift.learners.gradient.training import Course
from clickshift.learners.gradient.views import View
from clickshift.metrics.clicks import perplexity
from clickshift.sessions import Sessions
from clickshift.testing import check_click_model
from tests.learners.gradient_cases import arrays, ready, small


def interrupting(after: int):  # type: ignore[no-untyped-def]
    def hear(said: str) -> None:
        if said.startswith(f"round {after},"):
            raise KeyboardInterrupt

    return hear


def test_an_interrupt_keeps_the_best_and_a_checkpoint_goes_on(
    log: Sessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "SAVE_EVERY", -1.0)
    learner, said = small("ARM", rounds=6), list[str]()
    whole = learner.fit(log)
    file = tmp_path / "checkpoint.npz"
    with pytest.warns(ClickshiftWarning, match="interrupted: these are the best parameters so far"):
        part = learner.fit(log, progress=interrupting(3), checkpoint=file)
    check_click_model(part)
    assert file.exists()
    resumed = learner.fit(log, progress=said.append, checkpoint=file)
    assert said[0] == "going on after round 3"
    assert all((a == b).all() for a, b in zip(arrays(whole), arrays(resumed), strict=True))
    assert not file.exists()


def test_a_checkpoint_of_something_else_is_not_used(
    log: Sessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "SAVE_EVERY", -1.0)
    file, said = tmp_path / "checkpoint.npz", list[str]()
    with pytest.warns(ClickshiftWarning, match="interrupted"):
        small("ARM", rounds=6).fit(log, progress=interrupting(2), checkpoint=file)
    small("ARM", rounds=2).fit(log[:400], progress=said.append, checkpoint=file)
    assert said[0].startswith("round 1,")


def test_an_interrupt_before_anything_was_learned_is_an_interrupt(
    log: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "_check", stop)
    with pytest.raises(KeyboardInterrupt):
        small("ARM").fit(log)


def test_a_loss_that_is_not_a_number_stops_with_advice(log: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "keep_better", lambda *a: pytest.fail("must stop before"))
    with pytest.raises(DataError, match=r"loss of seed 0 is not a number after \d+ steps. Try a lower learning_rate"):
        small("DBN", learning_rate=1e38).fit(log)


def test_the_rate_is_halved_after_two_bad_rounds_and_a_seed_stops_after_three() -> None:
    course = Course(np.array([1.0, 1.0]), np.full(2, np.inf), np.zeros(2, int), np.zeros(2, bool), steps=np.zeros(2))
    for losses, rate, done in [
        ([5.0, 5.0], [1.0, 1.0], [False, False]),
        ([6.0, 4.0], [1.0, 1.0], [False, False]),
        ([6.0, 3.0], [0.5, 1.0], [False, False]),
        ([4.0, 2.0], [0.5, 1.0], [False, False]),
        ([4.5, 2.5], [0.5, 1.0], [False, False]),
        ([4.5, 2.5], [0.25, 0.5], [False, False]),
        ([4.5, 1.0], [0.25, 0.5], [True, False]),
        ([0.1, 0.5], [0.25, 0.5], [True, False]),
    ]:
        course.heard(np.array(losses), 10)
        assert course.rate.tolist() == rate
        assert course.done.tolist() == done
    assert course.best.tolist() == [4.0, 0.5]
    assert course.steps.tolist() == [70, 80]


@pytest.mark.parametrize("name", ["UBM", "NCM"])
def test_seeds_together_follow_seeds_alone(name: str, world: tuple[Corpus, Sessions]) -> None:
    log, held_out = world[1][:1600], world[1][1600:2600]
    learner = small(name, rounds=1)
    work = ready(learner, log)
    assert len(next(iter(work.batches.values()))) in range(40, 60)  # steps
    together = learner.fit_seeds(log, 3, held_out=held_out)
    for seed in (0, 2):
        (alone,) = learner.fit_seeds(log, [seed], held_out=held_out)
        for one, other in zip(arrays(together[seed]), arrays(alone), strict=True):
            assert np.abs(one - other).max() < 1e-5
    assert np.abs(arrays(together[0])[0] - arrays(together[1])[0]).max() > 1e-3
    long = small(name, rounds=12)
    together, alone = long.fit_seeds(log, 3, held_out=held_out), long.fit_seeds(log, [1], held_out=held_out)
    assert together[1].evidence is not None
    assert alone[0].evidence is not None
    assert together[1].evidence.held_out_loss == pytest.approx(alone[0].evidence.held_out_loss, abs=1e-4)


@pytest.mark.parametrize("name", ["ARM", "DBN", "NCM"])
def test_the_same_seed_gives_the_same_bits(name: str, log: Sessions) -> None:
    one, other = (small(name, seed=7).fit(log) for _ in range(2))
    assert all((a == b).all() for a, b in zip(arrays(one), arrays(other), strict=True))


def test_large_batches_stream_from_a_file(log: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = small("NCM")
    usual = ready(learner, log).batches
    for module in (batches, training):
        monkeypatch.setattr(module, "RESIDENT", 20_000)
    streamed = ready(learner, log).batches
    assert all(isinstance(array, np.memmap) for array in streamed.values())
    assert all((streamed[name] == array).all() for name, array in usual.items())
    assert training._Source.of(streamed).chunk < len(next(iter(streamed.values())))
    check_click_model(learner.fit(log))


@pytest.mark.parametrize("name", ["PBM", "UBM", "DBN"])
def test_free_towers_reach_the_solution_of_em(name: str, world: tuple[Corpus, Sessions]) -> None:
    log = world[1]
    by_em = EM(name, prior=(0.001, 0.01)).fit(log)
    by_gradient = Gradient(name, tower="free", learning_rate=0.01).fit(log, held_out=log)
    assert perplexity(by_gradient, log).average == pytest.approx(perplexity(by_em, log).average, abs=1e-4)


@pytest.mark.parametrize("name", ["CACM_minus", "DBN", "NCM"])
def test_merging_equal_sessions_does_not_change_the_loss(name: str, log: Sessions) -> None:
    learner = small(name)
    program = ready(learner, log).program
    found = jax.tree.map(lambda array: array[0], program.found(program.start([0]), {}))
    twice = Sessions.concat([log, log])
    losses = []
    for sessions in (twice, twice.merged()):
        known = sessions.in_vocabulary(ready(learner, log).vocabulary)
        seen = View.of(learner._class(), [known]).see(known)
        whole = batches.held_out_batches(seen, len(seen))
        one = {name: jnp.asarray(array[0]) for name, array in whole.items()}
        losses.append(float(program.cross_entropy(found["by_pair"], found["shared"], one)))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert len(twice.merged()) <= len(log)
