"""Small results of many kinds, whose pages are looked at in a real browser: see test_pages.py.

Add a page by adding a function that returns a result or a document to `PAGES`; each is made once per session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

import clickshift as cs
from clickshift.display.document import Document
from clickshift.display.result import Result
from clickshift.experiments.click_vs_ips._report import ClickVsIpsResult
from clickshift.experiments.model_selection._outcomes import METRIC_COLUMNS
from clickshift.experiments.model_selection._report import ModelSelectionResult
from clickshift.experiments.off_policy_paper import OffPolicyFigure
from clickshift.experiments.policy_shift._report import PolicyShiftResult
from tests.display.question_pages import EVIL, QUESTION_PAGES
from tests.experiments.click_vs_ips.test_report import rows_of as click_vs_ips_rows
from tests.experiments.model_selection.rows import rows_of_log
from tests.experiments.policy_shift.rows import TRAINING, USERS, shift_rows
from tests.experiments.test_off_policy_paper import SMALL


@cache
def _log() -> Any:
    """PBM users on five queries; the ranker varies its lists."""
    corpus = cs.builtin_corpus(5)
    return cs.simulate(corpus, cs.PlackettLuce(cs.Oracle(), temperature=0.5), cs.users.PBM(), 4000, rng=1)


@cache
def _days() -> pd.DataFrame:
    """A log of eight days, whose ids are hostile."""
    rng = np.random.default_rng(1)
    docs = np.array([rng.permutation([f"{EVIL}{k}" for k in range(4)]) for _ in range(3000)])
    chance = {f"{EVIL}{k}": 0.15 + 0.15 * k for k in range(4)}
    attractive = np.vectorize(chance.get)(docs)
    clicks = rng.random(docs.shape) < attractive / np.arange(1, 5)
    return pd.DataFrame(
        {
            "query": [f"{EVIL}q{k % 3}" for k in range(3000)],
            "docs": docs.tolist(),
            "clicks": clicks.astype(int).tolist(),
            "time": [f"2026-01-{1 + k % 8:02}" for k in range(3000)],
        }
    )


def _target(order: list[int]) -> pd.DataFrame:
    return pd.DataFrame({"query": [f"{EVIL}q{k}" for k in range(3)], "docs": [[f"{EVIL}{k}" for k in order]] * 3})


def evaluation() -> Result:
    """Off-policy evaluation of a better ranker."""
    return cs.evaluate_policy(_log(), cs.Oracle().on(cs.builtin_corpus(5)), clip=(2, 10, 100), replicates=20)


def hostile_evaluation() -> Result:
    """Two rankers, days, and ids that must stay text."""
    better, worse = _target([3, 2, 1, 0]), _target([0, 1, 2, 3])
    return cs.evaluate_policy(_days(), worse, compare=better, clip=(2, 10), replicates=20)


def decision() -> Result:
    """Two candidates."""
    return cs.decide(_days(), [_target([3, 2, 1, 0]), _target([0, 1, 2, 3])], replicates=20)


def backtest() -> Result:
    """Estimators on eight days."""
    return cs.backtest(_days(), rewards=["clicks", "dcg"])


def optimised_policy() -> Result:
    """A policy chosen from the log."""
    return cs.optimise_policy(_log(), estimator="PBM", replicates=20)


def policy_shift() -> Result:
    """The grid of the policy-shift protocol."""
    protocol = (
        "PolicyShift(queries=100, users=(('DBN', 'DBN(satisfaction=0.5)'),), seeds=10, sessions=100000, ranks=10)"
    )
    return PolicyShiftResult(shift_rows(USERS[:2], TRAINING[:2], seeds=2), {"seeds": 2, "protocol": protocol})


def hostile_policy_shift() -> Document:
    """Names of models and logs that must stay text."""
    rows = shift_rows([EVIL], [f"PL-{EVIL}"], seeds=2, models=["PBM", "NCM"])
    for row in rows:
        row["model"] = f"{row['model']}{EVIL}"
    return replace(PolicyShiftResult(rows, {EVIL: EVIL}).document, title=EVIL)


def comparison() -> Result:
    """Click models on one log."""
    return cs.compare(_log(), models=["gCTR", "dCTR", "PBM", "UBM"])


def real_logs() -> Result:
    """Logs of two rankers."""
    other = cs.simulate(cs.builtin_corpus(5), cs.Uniform(), cs.users.PBM(), 2000, rng=2)
    models = ["dCTR", "EM('PBM')", "EM('UBM')"]
    return cs.compare_logs({"old": _log()}, {"new": other}, models=models, held_out=0.2, workers=0)


def debiasedness() -> Result:
    """Two models against random traffic."""
    random_log = cs.simulate(cs.builtin_corpus(5), cs.Uniform(), cs.users.PBM(), 4000, rng=3)
    models = {name: cs.fit(name, _log()) for name in ("dCTR", "PBM")}
    return cs.audit(models, _log(), random_log=random_log, permutations=19, subsamples=9)


def figure_1() -> Result:
    """All spiders of the policy-shift paper on one page."""
    return PolicyShiftResult(shift_rows(USERS[:2], TRAINING[:2], seeds=2), {}, shows="figure1")


def model_selection() -> Result:
    """What choosing a model before deployment costs, on two users and two logs."""
    rng, models = np.random.default_rng(0), ("dCTR", "PBM", "UBM")
    rows: list[dict[str, Any]] = []
    for user in ("PBM", "DBN"):
        for training in ("NoisyOracle", "LambdaMART"):
            for seed in range(3):
                metrics = {name: dict(zip(METRIC_COLUMNS.values(), rng.random(20), strict=False)) for name in models}
                known = {name: found | {"ood.Uniform": 1.2 + rng.random() / 50} for name, found in metrics.items()}
                rows += rows_of_log(known, user=user, training=training, seed=seed)
    return ModelSelectionResult(rows, {}, repeats=5)


def click_models_against_ips() -> Result:
    """A table of the paper on click models and IPS."""
    return ClickVsIpsResult(click_vs_ips_rows(), {"protocol": "made up"})


def off_policy_figures() -> Result:
    """A figure of the off-policy paper, on a small log."""
    with TemporaryDirectory() as folder:
        return OffPolicyFigure(1, **SMALL).run(folder, workers=0)  # type: ignore[arg-type]


def printed_table() -> Result:
    """A table as the paper printed it."""
    return cs.reproduce("table2")


PAGES: dict[str, Callable[[], Result | Document]] = {
    function.__name__: function
    for function in (
        evaluation, hostile_evaluation, decision, backtest, optimised_policy, policy_shift, hostile_policy_shift,
        comparison, real_logs, debiasedness, figure_1, model_selection,
        click_models_against_ips, off_policy_figures, printed_table,
    )
} | QUESTION_PAGES  # fmt: skip
"""Functions that make a result or a document, by name."""


def document_of(made: Result | Document) -> Document:
    """The document of what a function of `PAGES` returned."""
    return made if isinstance(made, Document) else made.document
