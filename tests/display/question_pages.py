"""Small results of logs, models, judgments, days and rankers, with hostile ids where they have any: see pages.py."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

import clickshift as cs
from clickshift.display.result import Result

EVIL = "<script>window.hacked=1</script><img src=x onerror='window.hacked=1'>{{7*7}}"
"""An id that must be shown as text."""


@cache
def _days() -> pd.DataFrame:
    """A log of four days: six documents for each of three queries, half of which change on the last day."""
    rng = np.random.default_rng(2)
    day = np.arange(4000) // 1000
    names = np.array([f"{EVIL}{k}" for k in range(9)])
    number = np.array([rng.permutation(6) for _ in range(4000)]) + 3 * (day == 3)[:, None]
    clicks = rng.random(number.shape) < (0.1 + 0.08 * number) / np.arange(1, 7)
    return pd.DataFrame(
        {
            "query": [f"{EVIL}q{k % 3}" for k in range(4000)],
            "docs": names[number].tolist(),
            "clicks": clicks.astype(int).tolist(),
            "time": [f"2026-05-{1 + k:02}" for k in day],
        }
    )


@cache
def _fitted(name: str) -> Any:
    return cs.fit(name, _days())


@cache
def _corpus() -> Any:
    return cs.builtin_corpus(30)


@cache
def _clicks() -> Any:
    return cs.simulate(_corpus(), cs.BM25(), cs.users.PBM(), 3000, rng=0)


@cache
def _training(loss: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cs.train_ranker(_corpus(), _clicks(), loss=loss, examination="1/rank")


def log_info() -> Result:
    """A log with days."""
    return cs.log_summary(_days())


def log_info_not_identified() -> Result:
    """A log in which documents never change ranks, with lists of 30."""
    lists = [[f"{query}-{k}" for k in range(30)] for query in range(3)]
    clicks = [[0] * k + [1] + [0] * (29 - k) for k in range(3)]
    return cs.log_summary(pd.DataFrame({"query": [0, 1, 2], "docs": lists, "clicks": clicks}))


def log_health() -> Result:
    """Findings of a log with hostile ids, in which one of eight sessions clicks everything."""
    log = _days()
    clicks = [[1] * 6 if k % 8 == 0 else clicks for k, clicks in enumerate(log["clicks"])]
    return cs.check_log(log.assign(clicks=clicks, user=[f"{EVIL}test {k % 50}" for k in range(len(log))]))


def fitted_ubm() -> Result:
    """A curve with a line per last click."""
    return _fitted("UBM").summary()  # type: ignore[no-any-return]


def fitted_dctr() -> Result:
    """A model without a curve."""
    return _fitted("dCTR").summary()  # type: ignore[no-any-return]


def examine_dbn() -> Result:
    """A parameter without ranks."""
    return cs.examination(_fitted("DBN"))


def click_prediction() -> Result:
    """Perplexity and calibration."""
    return cs.evaluate(_fitted("PBM"), _days()[:2000])


def forecast() -> Result:
    """Clicks on lists."""
    return cs.predict(_fitted("PBM"), _days()[:50])


def judgments() -> Result:
    """Documents with hostile ids."""
    return cs.judgments(_fitted("PBM"))


def propensities() -> Result:
    """A curve with its band."""
    return cs.propensities(_days(), replicates=20)


def drift() -> Result:
    """Days, the last of which has other documents."""
    return cs.drift(_days())


def trained_trees() -> Result:
    """Training curve and features."""
    return _training("BoostedRanker(trees=5)")  # type: ignore[no-any-return]


def ranker_evaluation() -> Result:
    """A ranker against the logging ranker."""
    ranker = _training("BoostedRanker(trees=5)").ranker
    return cs.evaluate_ranker(ranker, _corpus(), clicks=_clicks(), include_training=True)


def corpus() -> Result:
    """Labels."""
    return cs.corpus_summary(_corpus())


QUESTION_PAGES: dict[str, Callable[[], Result]] = {
    function.__name__: function
    for function in (
        log_info, log_info_not_identified, log_health, fitted_ubm, fitted_dctr, examine_dbn, click_prediction, forecast,
        judgments, propensities, drift, trained_trees, ranker_evaluation, corpus,
    )
}  # fmt: skip
"""Functions that make a result, by name."""
