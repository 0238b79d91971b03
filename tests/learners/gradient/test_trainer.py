"""Training by gradient: it finds what EM finds, seeds do not touch each other, nothing that was learned is lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Sessions
from clickshift.errors import DataError
from clickshift.learners import training
from clickshift.learners.gradient import Gradient, trainer
from clickshift.learners.gradient import _batches as batches
from clickshift.learners.gradient._encoding import SessionEncoder
from clickshift.learners.likelihood import MaximumLikelihood
from clickshift.learners.training import RunProgress
from clickshift.metrics.click_prediction import perplexity
from clickshift.simulation.users import DBN as DBNUser
from clickshift.testing import check_click_model
from tests.codes import raises_code, warns_code
from tests.holes import lists_with_holes
from tests.learners.gradient.cases import arrays, contents, first_ranks, ready, small


def interrupting(after: int):  # type: ignore[no-untyped-def]
    def hear(said: str) -> None:
        if said.startswith(f"round {after}:"):
            raise KeyboardInterrupt

    return hear


@pytest.fixture
def saving(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint after every round."""
    monkeypatch.setattr(training, "SAVE_EVERY", -1.0)


def test_an_interrupt_keeps_the_best_and_a_checkpoint_goes_on(
    saving: None, short_lists: Sessions, tmp_path: Path
) -> None:
    """A checkpoint of another log is not used, even if it only differs by how often sessions were seen."""
    learner, said = small("PBM", tower="free", rounds=5), list[str]()
    whole = learner.fit(short_lists)
    file = tmp_path / "checkpoint.npz"
    with warns_code("interrupted"):
        part = learner.fit(short_lists, progress=interrupting(3), checkpoint=file)
    check_click_model(part, ranks=3, draws=1000)
    saved = file.read_bytes()
    resumed = learner.fit(short_lists, progress=said.append, checkpoint=file)
    assert said[0] == "resumed after round 3"
    assert all((a == b).all() for a, b in zip(arrays(whole), arrays(resumed), strict=True))
    assert not file.exists()
    other = Sessions(short_lists.rankings, short_lists.click, 2 * short_lists.count)
    file.write_bytes(saved)
    said.clear()
    learner.fit(other, progress=said.append, checkpoint=file)
    assert said[0].startswith("round 1:")


def test_an_interrupt_before_anything_was_learned_is_an_interrupt(
    short_lists: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer.ClickModelTask, "round", stop)
    with pytest.raises(KeyboardInterrupt):
        small("PBM").fit(short_lists)


def test_a_loss_that_is_not_a_number_stops_with_advice(short_lists: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "keep_better", lambda *a: pytest.fail("must stop before"))
    with raises_code("training-diverged", DataError, round=1, learning_rate=1e38) as error:
        small("PBM", learning_rate=1e38).fit(short_lists)
    assert "learning_rate" in str(error.value)


class _ReduceOnPlateau:
    """What torch.optim.lr_scheduler.ReduceLROnPlateau (mode "min", threshold_mode "rel") does, step by step."""

    def __init__(self, rate: float, factor: float, patience: int) -> None:
        self.rate, self.factor, self.patience = rate, factor, patience
        self.threshold, self.cooldown, self.min_rate, self.eps = 1e-4, 0, 0.0, 1e-8  # its defaults
        self.best, self.cooling, self.bad_epochs = float("inf"), 0, 0

    def step(self, loss: float) -> None:
        if loss < self.best * (1.0 - self.threshold):
            self.best, self.bad_epochs = loss, 0
        else:
            self.bad_epochs += 1
        if self.cooling > 0:
            self.cooling, self.bad_epochs = self.cooling - 1, 0
        if self.bad_epochs > self.patience:
            new = max(self.rate * self.factor, self.min_rate)
            self.rate = new if self.rate - new > self.eps else self.rate
            self.cooling, self.bad_epochs = self.cooldown, 0


class _StopEarly:
    """What lightning.pytorch.callbacks.EarlyStopping (mode "min", min_delta 0) does, check by check."""

    def __init__(self, patience: int) -> None:
        self.patience, self.best, self.wait, self.stopped = patience, float("inf"), 0, False

    def step(self, loss: float) -> None:
        if loss < self.best:
            self.best, self.wait = loss, 0
        else:
            self.wait += 1
            self.stopped = self.wait >= self.patience


def test_a_plateau_of_three_rounds_halves_the_rate_and_three_rounds_without_gain_stop() -> None:
    course, rule = RunProgress.of(np.array([1.0, 1.0])), trainer.early_stopping(100)
    for losses, rate, done in [
        ([5.0, 5.0], [1.0, 1.0], [False, False]),
        ([6.0, 4.9999], [1.0, 1.0], [False, False]),  # the second still falls, but by less than a ten thousandth
        ([6.0, 4.9998], [1.0, 1.0], [False, False]),
        ([4.0, 4.9997], [1.0, 0.5], [False, False]),
        ([4.5, 4.9996], [1.0, 0.5], [False, False]),
        ([4.5, 4.9], [1.0, 0.5], [False, False]),
        ([4.5, 4.9], [0.5, 0.5], [True, False]),
        ([0.1, 0.5], [0.5, 0.5], [True, False]),
    ]:
        course.record(rule, np.array(losses), np.zeros(2, bool))
        assert course.rate.tolist() == rate
        assert course.done.tolist() == done
    assert course.best.tolist() == [4.0, 0.5]
    assert course.rounds.tolist() == [7, 8]
    assert course.converged.tolist() == [True, False]


@pytest.mark.parametrize("rate", [1.0, 1e-7])
@pytest.mark.parametrize("drift", [1e-4, 3e-4, -1e-4])
def test_the_rate_and_the_stop_are_those_of_pytorch(drift: float, rate: float, rng: np.random.Generator) -> None:
    """On random walks of the loss: one that falls by about the threshold, a faster one, and one that rises. At the
    smaller rate, the smallest change that is made matters."""
    n = 200
    losses = 2 - np.cumsum(rng.normal(drift, 3e-4, (60, n)), axis=0)
    halved, stopped = np.zeros(n, int), np.zeros(n, bool)
    for patience in (3, 100):  # the second shows what happens to the rate where training would have stopped
        course = RunProgress.of(np.full(n, rate))
        rule = replace(trainer.early_stopping(100), patience=patience)
        theirs = [(_ReduceOnPlateau(rate, 0.5, 2), _StopEarly(patience)) for _ in range(n)]
        for row in losses:
            for (plateau, stop), loss in zip(theirs, row.tolist(), strict=True):
                if not stop.stopped:
                    plateau.step(loss)
                    stop.step(loss)
            course.record(rule, row, np.zeros(n, bool))
            running = ~course.done
            assert course.done.tolist() == [stop.stopped for _, stop in theirs]
            assert course.rate[running].tolist() == [plateau.rate for plateau, stop in theirs if not stop.stopped]
        halved, stopped = halved + (course.rate < rate), stopped | course.done
    assert halved.any()
    assert stopped.any()


@pytest.mark.parametrize(
    ("name", "tower", "rounds", "company"),
    [("UBM", "free", 12, []), ("PBM", "embedding", 1, [5]), ("NCM", "free", 1, [5])],
)
def test_seeds_together_follow_seeds_alone(
    name: str, tower: str, rounds: int, company: list[int], short_lists: Sessions
) -> None:
    """A seed alone, or in another place among others, gives the same numbers after one round; other seeds give others.
    After twelve rounds, losses agree."""
    log, learner = first_ranks(short_lists, 2), small(name, tower=tower, rounds=rounds)
    together = learner.fit_seeds(log, 2, held_out=log)
    alone, *_ = learner.fit_seeds(log, [1, *company], held_out=log)
    assert together[1].evidence is not None
    assert alone.evidence is not None
    assert together[1].evidence.held_out_loss == pytest.approx(alone.evidence.held_out_loss, abs=1e-4)
    assert np.abs(arrays(together[0])[0] - arrays(together[1])[0]).max() > 1e-3
    if rounds == 1:
        for one, other in zip(arrays(together[1]), arrays(alone), strict=True):
            assert np.abs(one - other).max() < 1e-5


def test_each_seed_has_its_own_rate(short_lists: Sessions) -> None:
    """Equal seeds take equal steps; with rate 0, nothing moves."""
    work = ready(small("DBN"), short_lists)
    start = work.program.start([0, 0, 0])
    before = work.program.parameters(start, {})
    order = np.zeros((3, 2), int)
    states, _ = work.program.steps(start, {}, work.batches, order, np.array([0.01, 0.0, 0.01], np.float32))
    for old, new in zip(
        *(map(np.asarray, jax.tree.leaves(t)) for t in (before, work.program.parameters(states, {}))), strict=True
    ):
        assert (new[1] == old[1]).all()
        assert (new[0] == new[2]).all()
        assert (new[0] != old[0]).any()


def test_large_batches_stream_from_a_file(short_lists: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is learned in one round depends on the pieces; the loss of the model does not."""
    learner = small("NCM")
    usual = ready(learner, short_lists).batches
    for module in (batches, trainer):
        monkeypatch.setattr(module, "RESIDENT_BYTES", 4000)
    streamed = ready(learner, short_lists).batches
    assert all(isinstance(array, np.memmap) for array in streamed.values())
    assert all((streamed[name] == array).all() for name, array in usual.items())
    assert trainer._BatchSource.of(streamed).chunk < len(next(iter(streamed.values())))
    learner = small("PBM", rounds=1, batch=75)
    assert len(list(trainer._BatchSource.of(ready(learner, short_lists).held_out).parts())) > 1
    model = learner.fit(short_lists, held_out=short_lists)
    assert model.evidence is not None
    nats = -np.average(model.log_likelihood(short_lists), weights=short_lists.count)
    assert model.evidence.held_out_loss == pytest.approx(nats, rel=1e-5)


@pytest.mark.usefixtures("optimising_compiler")
@pytest.mark.parametrize(("name", "holes"), [("PBM", False), ("UBM", True), ("DBN", False), ("DBN", True)])
def test_free_towers_reach_the_solution_of_em(
    name: str, holes: bool, world: tuple[Corpus, Sessions], rng: np.random.Generator
) -> None:
    corpus, log = world
    if holes:
        log = DBNUser().on(corpus).sample(lists_with_holes(log.rankings, rng), rng=rng)
    by_em = MaximumLikelihood(name, prior=(0.001, 0.01)).fit(log)
    by_gradient = Gradient(name, tower="free", learning_rate=0.01).fit(log, held_out=log)
    assert perplexity(by_gradient, log).average == pytest.approx(perplexity(by_em, log).average, abs=1e-4)


@pytest.mark.parametrize("name", ["CACM_minus", "DBN", "NCM"])
def test_merging_equal_sessions_does_not_change_what_is_counted(name: str, short_lists: Sessions) -> None:
    """One model for each kind of batch; the loss is a function of what batches count."""
    model, twice = small(name)._class(), Sessions.concat([short_lists, short_lists])
    view, merged = SessionEncoder.of(model, [twice]), twice.merged()
    assert len(merged) <= len(short_lists)
    one, other = (batches.held_out_batches(view.encode(log), len(log)) for log in (twice, merged))
    assert contents(one, view.histories) == contents(other, view.histories)
