"""Logs at the edges of what is possible: every classical learner gives finite probabilities, or one clear error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import clickshift as cs
from clickshift.counts.daily import DayCounts
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import ClickshiftError, DataError
from clickshift.learners.base import DEFAULT
from tests.codes import raises_code

LEARNERS = [
    *(name for name, learner in DEFAULT.items() if learner == "Counting"),
    *(f"EM('{name}', iterations=30)" for name, learner in DEFAULT.items() if learner == "MaximumLikelihood"),
    "MixtureEM(('PBM', 'DBN'), iterations=5)",
]
"""A few steps: where all sessions are equal, the estimates approach 0 and 1 without end."""
RNG = np.random.default_rng(0)
ORDER = np.array([RNG.permutation(6)[:4] for _ in range(40)])
CLICKS = RNG.random(ORDER.shape) < 0.3
ODD = np.arange(40) % 2 == 1


def log_of(click: object, count: object = 1, docs: np.ndarray | None = None, queries: int = 1) -> Sessions:
    clicks = np.asarray(click, bool)
    rows, ranks = clicks.shape
    query = np.arange(rows) % queries
    shown = np.tile(np.arange(ranks), (rows, 1)) if docs is None else docs
    vocabulary, _, pair = Vocabulary.of(np.repeat(query, ranks), shown.ravel())
    rankings = Rankings(vocabulary, query.astype(np.int32), pair.reshape(rows, ranks))
    return Sessions(rankings, clicks, np.broadcast_to(np.asarray(count, np.int64), rows).copy())


def logs() -> dict[str, Sessions]:
    found = {}
    for size in (10**12, 10**15, 10**17):
        found[f"equal counts of {size:.0e}"] = log_of(CLICKS, size, ORDER)
        found[f"counts of 1 and {size:.0e}"] = log_of(CLICKS, np.where(ODD, size, 1), ORDER)
        found[f"all clicked {size:.0e} times"] = log_of(np.ones((4, 3)), size)
        found[f"none clicked {size:.0e} times"] = log_of(np.zeros((4, 3)), size)
        found[f"one session {size:.0e} times"] = log_of([[1, 0]], size)
    found["two lists, one of them 1e15 times"] = log_of([[1, 1], [0, 1]], [10**15, 1], np.array([[0, 1], [1, 0]]))
    everything = np.concatenate([np.ones((1, 4), bool), CLICKS])
    found["all clicked 1e15 times, and others"] = log_of(
        everything, [10**15, *[1] * 40], np.concatenate([ORDER[:1], ORDER])
    )
    found["close to 2^62"] = log_of(CLICKS, ((1 << 62) - 1) // 41, ORDER)
    found["one result, clicked"], found["one result, not clicked"] = log_of([[1]]), log_of([[0]])
    found["always the same order"] = log_of(CLICKS)
    found["clicks on the first result only"] = log_of(np.eye(4)[np.zeros(30, int)])
    found["clicks on the last result only"] = log_of(np.eye(4)[np.full(30, 3)])
    found["every query once"] = log_of(CLICKS, 1, ORDER, 40)
    found["long lists"] = log_of(RNG.random((5, 40)) < 0.1)
    return found


LOGS = logs()


@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
@pytest.mark.parametrize("name", LOGS)
def test_every_learner_gives_probabilities(name: str) -> None:
    log = LOGS[name]
    for learner in LEARNERS:
        model = cs.fit(learner, log)
        if model.predicts_clicks:
            for prob in (model.click_prob(log.rankings), model.click_prob_given_history(log)):
                assert np.isfinite(prob).all(), learner
                assert prob.min() >= 0, learner
                assert prob.max() <= 1, learner


@pytest.mark.parametrize("model", [name for name, learner in DEFAULT.items() if learner == "MaximumLikelihood"])
def test_counts_that_hide_the_tolerance_in_rounding_give_the_estimates_of_smaller_ones(model: str) -> None:
    """Multiplied counts have the same maximum, because the prior does not count any more."""
    few, many = (cs.fit(model, log_of(CLICKS, size, ORDER)) for size in (10**7, 10**15))
    assert few.evidence is not None
    assert many.evidence is not None
    assert many.evidence.converged
    assert many.evidence.iterations < 200  # of 1,000
    rankings = log_of(CLICKS, 1, ORDER).rankings
    np.testing.assert_allclose(many.click_prob(rankings), few.click_prob(rankings), atol=1e-4)


@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
@pytest.mark.parametrize("clicks", [[1, 0, 0], [0, 1, 0], [0, 0, 0]])
@pytest.mark.parametrize("model", ["DBN", "SDBN", "CCM"])
def test_one_session_repeated_without_end_takes_few_steps(model: str, clicks: list[int]) -> None:
    """All probabilities are 0 or 1 and the likelihood is near 0: its rounding error is that of the counts."""
    log = log_of([clicks], 10**12, np.arange(3)[None])
    fitted = cs.fit(model, log)
    assert fitted.evidence is not None
    assert fitted.evidence.converged
    assert fitted.evidence.iterations < 100  # of 1,000
    np.testing.assert_allclose(fitted.click_prob(log.rankings)[0], clicks, atol=1e-5)


def test_counts_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    half = log_of(CLICKS[:2], 1 << 60, ORDER[:2])
    assert half.total == 1 << 61
    with raises_code("too-many-sessions", DataError, limit=1 << 62):
        log_of(CLICKS[:4], 1 << 60, ORDER[:4])
    with raises_code("too-many-sessions", DataError):
        Sessions.concat([half, half])
    with raises_code("too-many-sessions", DataError):
        DayCounts.merged([DayCounts.of(half)] * 2)
    lines = [f'{{"query": 1, "docs": [{k}], "clicks": [0], "count": {1 << 61}}}' for k in range(6)]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    for options in ({}, {"in_memory": False}):
        with pytest.raises(ClickshiftError) as caught:
            cs.open_log(tmp_path / "log.jsonl", **options)  # type: ignore[arg-type]
        assert caught.value.code == "too-many-sessions"
