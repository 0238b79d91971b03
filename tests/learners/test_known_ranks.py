"""DCM on long lists: ranks below the last known one have its continuation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import clickshift as cs
from clickshift.learners import _cascade_models
from clickshift.models.cascade_models import DCM
from clickshift.models.segmented import Segmented


@pytest.fixture
def log() -> cs.Sessions:
    corpus = cs.builtin_corpus(20)
    attractiveness = np.random.default_rng(0).uniform(0.2, 0.7, corpus.vocabulary.n_pairs + 1)
    user = DCM(corpus.vocabulary, attractiveness, np.linspace(0.9, 0.5, 6))
    return cs.simulate(corpus, cs.Uniform(), user, 6000, ranks=6, rng=1)


def test_distant_ranks_share_the_best_continuation(log: cs.Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cascade_models, "_KNOWN_RANKS", 3)
    model = cs.fit("DCM", log)
    assert isinstance(model, DCM)
    assert model.continuation.shape == (3,)
    assert model.evidence is not None
    assert model.evidence.converged
    best = log.count @ model.log_likelihood(log)
    for step in (-0.02, 0.02):
        other = replace(model, continuation=model.continuation + np.array([0, 0, step]))
        assert log.count @ other.log_likelihood(log) < best


def test_limits_below_which_no_list_ends_change_nothing(log: cs.Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    model = cs.fit("DCM", log)
    monkeypatch.setattr(_cascade_models, "_KNOWN_RANKS", log.n_ranks)
    other = cs.fit("DCM", log)
    assert isinstance(model, DCM)
    assert isinstance(other, DCM)
    np.testing.assert_array_equal(model.continuation, other.continuation)


def test_a_curve_by_segment_has_the_known_ranks(log: cs.Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cascade_models, "_KNOWN_RANKS", 3)
    device = cs.Segment.of(np.where(np.arange(len(log)) % 2, "phone", "desktop"))
    labelled = replace(log, rankings=replace(log.rankings, segments={"device": device}))
    model = cs.fit("DCM", labelled, by="device")
    assert isinstance(model, Segmented)
    assert model.curves.shape == (2, 3)
    assert model.click_prob(labelled.rankings).shape == log.click.shape
