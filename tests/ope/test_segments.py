"""Click models with a curve per segment: predictions of logged and of target lists follow the label of each session."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from clickshift import Rankings, Segment, Sessions, Vocabulary, encode_log, evaluate_policy
from clickshift.models import PBM
from clickshift.models.base import pair_table
from clickshift.models.segmented import Segmented
from clickshift.ope import Estimator, GroupedLog, WeightedLists
from clickshift.ope.bound_estimator import BoundEstimator
from clickshift.ope.target_policy import TargetProbabilities

DOCS, RANKS = 4, 3
VOCABULARY = Vocabulary.of(["a"] * DOCS + ["b"] * DOCS, list(range(DOCS)) * 2)[0]
ATTRACTIVENESS = np.array([0.9, 0.5, 0.3, 0.15, 0.2, 0.8, 0.4, 0.3])
CURVES = np.array([[1, 0.8, 0.6], [0.9, 0.3, 0.1]])
POOLED = PBM(VOCABULARY, pair_table(ATTRACTIVENESS, unseen=0.3), np.array([0.95, 0.5, 0.3]))
MODEL = Segmented(VOCABULARY, (POOLED,), "device", ("desktop", "phone"), CURVES)
TARGET = WeightedLists(
    Rankings(VOCABULARY, np.array([0, 1], np.int32), np.array([[2, 0, 1], [5, 7, 6]], np.int32)), np.ones(2)
)
PHONES = {0: 0.8, 1: 0.25}
"""Share of phones, by query: users of the two devices ask different things."""


def log_of(sessions: int = 20_000, *, seed: int = 0) -> Sessions:
    """Users of phones see other lists than users of desktops, and examine less."""
    rng = np.random.default_rng(seed)
    query = rng.integers(0, 2, sessions)
    phone = rng.random(sessions) < np.array([PHONES[0], PHONES[1]])[query]
    score = rng.gumbel(size=(sessions, DOCS)) + np.where(phone[:, None], 1.5, -1.5) * np.arange(DOCS)
    pair = (query[:, None] * DOCS + np.argsort(-score, axis=1)[:, :RANKS]).astype(np.int32)
    click = rng.random(pair.shape) < ATTRACTIVENESS[pair] * CURVES[phone.astype(int)]
    segments = {"device": Segment(("desktop", "phone"), phone.astype(np.int32))}
    return Sessions(Rankings(VOCABULARY, query.astype(np.int32), pair, segments=segments), click)


def truth(log: Sessions) -> float:
    """Clicks per session of the target, for the queries and devices of the log."""
    phone = log.segments["device"].code
    shown = TARGET.lists.pair[log.rankings.query]
    return float((ATTRACTIVENESS[shown] * CURVES[phone]).sum(axis=1).mean())


def values(log: Sessions | Path, model: PBM | Segmented, names: list[str]) -> dict[str, float]:
    found = evaluate_policy(log, TARGET, estimators=names, model=model, clip=[np.inf], replicates=20)
    return {row["estimator"]: row["value"] for row in found.rows()}


def test_the_direct_method_follows_the_devices_of_a_query() -> None:
    log = log_of()
    assert values(log, MODEL, ["DM"])["DM"] == pytest.approx(truth(log), rel=1e-12)


@pytest.mark.parametrize("name", ["CIPS", "DR-CIPS"])
def test_weights_follow_the_devices_of_the_logged_lists(name: str) -> None:
    log = log_of()
    (expected, of_device), of_all = (values(log, MODEL, ["DM", name]).values()), values(log, POOLED, [name])[name]
    assert of_device == pytest.approx(expected, rel=0.015)
    assert abs(of_device - expected) < abs(of_all - expected) / 3


@pytest.mark.parametrize(("name", "slots"), [("DR-IP", RANKS), ("DR-List", 1)])
def test_doubly_robust_baselines_are_those_of_the_logged_devices(name: str, slots: int) -> None:
    logged = GroupedLog.of(log_of(3000), segment="device")
    probabilities = TargetProbabilities.at(logged, TARGET)
    baseline = BoundEstimator.of(Estimator.named(name, MODEL), logged, probabilities, target=TARGET).baseline
    pair = logged.by_entry(logged.lists.pair)
    clicks = ATTRACTIVENESS[pair] * CURVES[logged.segments["device"].code]
    assert baseline == pytest.approx(clicks if slots > 1 else clicks.sum(axis=1, keepdims=True), rel=1e-12)


def test_an_encoded_log_keeps_the_devices_apart(tmp_path: Path) -> None:
    log = log_of(3000)
    encode_log(log, tmp_path / "log.encoded")
    names = ["DM", "CIPS", "DR-IP", "List", "IP"]
    in_memory, on_disk = values(log, MODEL, names), values(tmp_path / "log.encoded", MODEL, names)
    assert on_disk == pytest.approx(in_memory, rel=1e-9)


def test_estimators_without_a_model_do_not_depend_on_the_segment() -> None:
    log, names = log_of(3000), ["List", "IP", "Item", "PI", "RIPS"]
    assert values(log, MODEL, names) == pytest.approx(values(log, POOLED, names), rel=1e-9)


def test_the_answer_compares_the_given_model_on_the_sessions_of_each_device() -> None:
    log = log_of()
    found = evaluate_policy(log, TARGET, model=MODEL, clip=[np.inf], replicates=20)
    (answer,) = found.answers.values()
    (given,) = (row for row in answer.families if row.name == "given PBM by device")
    assert given.kept, given.reason
    assert answer.today + given.difference == pytest.approx(truth(log), rel=0.02)


def test_a_model_with_another_vocabulary_is_translated() -> None:
    log = log_of(4000)
    vocabulary = Vocabulary.of(["a"] * DOCS + ["b"] * DOCS + ["c"], [*list(range(DOCS)) * 2, 9])[0]
    pooled = PBM(vocabulary, pair_table(np.append(ATTRACTIVENESS, 0.6), unseen=0.3), POOLED.examination)
    other = Segmented(vocabulary, (pooled,), "device", ("desktop", "phone"), CURVES)
    found = [evaluate_policy(log, TARGET, model=model, clip=[np.inf], replicates=20) for model in (MODEL, other)]
    first, second = (next(iter(one.answers.values())).families[-1] for one in found)
    assert second.difference == pytest.approx(first.difference, rel=1e-9)
