"""Comparison of click models on one log: how well do they predict held-out clicks?

Models are fitted on one part of the log and evaluated on the other, or on a second log.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from clickshift.core.progress import Progress, silent
from clickshift.core.spec import resolve
from clickshift.counts.open_log import LogLike, open_log
from clickshift.counts.severe_defects import warn_of_severe_defects
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Sessions
from clickshift.data.splits import check_split, split_sessions
from clickshift.display.document import Document
from clickshift.display.result import Result
from clickshift.display.tables import Rows, write_rows
from clickshift.errors import ClickshiftError
from clickshift.experiments._comparison_report import (
    BASELINES,
    STACKING,
    best_first,
    comparison_conclusion,
    comparison_document,
    is_stacked,
    recommended,
)
from clickshift.io.read_report import OnBadLine
from clickshift.learners.base import DEFAULT, Learner, learner_for
from clickshift.learners.stacking import Stacking
from clickshift.metrics.click_prediction import PROBABILITY_FLOOR, click_bits, evaluation
from clickshift.models import MODELS
from clickshift.models.base import ClickModel

__all__ = ["Comparison", "click_predicting_models", "compare"]


@dataclass(frozen=True, repr=False)
class Comparison(Result):
    """Comparison of click models on one log.

    Parameters
    ----------
    results
        One row per model, in the order in which they were fitted.
    settings
        Settings of the comparison, by name.

    Notes
    -----
    Keys of `to_dict`:

    - ``conclusion``: the model to use, its improvement over the best baseline, and the models that failed.
    - ``recommended``: the model to use, null if all failed: the best one, but a stacked mixture only if it is better
      than the best other model beyond chance.
    - ``rows``: one dict per model, the best first and failed models last: ``model``; ``train_sessions`` and
      ``test_sessions``; ``conditional_perplexity`` and its standard error over test sessions,
      ``conditional_perplexity_error``; ``marginal_perplexity`` and the accepted error of a marginal probability,
      ``marginal_error`` (0 if exact); ``log_likelihood`` in nats per session; ``fit_seconds``; ``seconds``, the whole
      time of the model, evaluation included; ``unseen_pair_share``; ``difference_error``, the standard error of the
      difference in conditional perplexity from the recommended model on the same sessions, for the best other models
      and the best baseline; ``conditional_perplexity@1`` and so on by rank; ``error``, the message of a failed model.
    - ``split``, ``fraction``, ``seed``: how the log was split; null with a test log.
    - ``clip``: distance from 0 and 1 to which probabilities are clipped.

    Examples
    --------
    >>> row = {"model": "PBM", "conditional_perplexity": 1.2, "marginal_perplexity": 1.3, "error": None}
    >>> Comparison((row,), {}).rows()[0]["model"]
    'PBM'
    """

    results: tuple[Mapping[str, Any], ...]
    settings: Mapping[str, Any]

    @property
    @override
    def conclusion(self) -> str:
        return comparison_conclusion(self.results)

    @override
    def rows(self) -> Rows:
        return best_first(self.results)

    @override
    def facts(self) -> Mapping[str, Any]:
        split = {name: self.settings[name] for name in ("split", "fraction", "seed")}
        return {**super().facts(), "recommended": recommended(self.results), **split, "clip": PROBABILITY_FLOOR}

    @override
    def _document(self) -> Document:
        return comparison_document(self.rows(), self.conclusion, self.settings)


def compare(
    log: LogLike,
    *,
    test: LogLike | None = None,
    models: Sequence[str] = (),
    neural: bool = False,
    exact: bool = False,
    split: str = "random",
    fraction: float = 0.8,
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    output: str | Path | None = None,
    progress: Progress = silent,
) -> Comparison:
    """Fit click models on a log and compare how well they predict held-out clicks.

    If a model fails, its row has the error, and the comparison continues.

    Parameters
    ----------
    log
        Anything that :func:`open_log` opens: a path, a data frame, `Sessions`, an encoded log.
    test
        Another log to predict; by default, the first one is split.
    models
        Names of models, each fitted by its default learner, or texts of learners with options. By default, all
        classical models that predict clicks, and their stacked mixture if the log is in memory: it takes longer
        than all of them, and is the only one whose members are all kept.
    neural
        Whether to compare all models that are fitted by gradient as well.
    exact
        Whether marginal probabilities of models that sum over click histories (NCM) are exact, which takes a
        thousand times as long. By default, their error is at most 0.001.
    split
        Train/test split: "random", "time", "order" or "within-query".
    fraction
        Share of the sessions in the training part.
    seed
        Random seed for a random split.
    columns
        Names of the log's columns, by the names that `read_log` expects.
    on_bad_line
        "error", or "skip" to leave out bad sessions.
    output
        Folder that receives the rows after every model, so that an interrupted comparison keeps the finished ones;
        `Comparison.write` writes the report.
    progress
        Called after every model, with a line of its result and with 1.

    Returns
    -------
    Comparison
        The conclusion, and one row per model, the best first.

    Raises
    ------
    DataError
        If the split is not one of the above ("bad-option").
    SpecError
        If a model or learner does not exist ("unknown-name").

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(queries=20), cs.Uniform(), cs.users.PBM(), 20_000, rng=0)
    >>> comparison = cs.compare(log, models=["rCTR", "PBM"])
    >>> [row["model"] for row in comparison.rows()]
    ['PBM', 'rCTR']
    """
    check_split(split)
    chosen = [*(models or click_predicting_models("classical")), *(click_predicting_models("neural") if neural else ())]
    learners = {name: learner_for(name) for name in chosen}
    train = open_log(log, columns=columns, on_bad_line=on_bad_line, progress=progress)
    warn_of_severe_defects(train)
    if test is None:
        train, held_out = split_sessions(train, split, fraction, seed)
    else:
        held_out = open_log(test, columns=columns, on_bad_line=on_bad_line, progress=progress)
    if not models and isinstance(train, Sessions):
        learners[STACKING] = learner_for(STACKING)
    members = {name for learner in learners.values() if isinstance(learner, Stacking) for name in learner.members}
    rows: list[dict[str, Any]] = []
    leading: dict[str, ClickModel] = {}
    fitted: dict[str, ClickModel] = {}
    progress(0, total=len(learners))
    for name, learner in learners.items():
        model, row = _row(name, learner, train, held_out, exact=exact, fitted=fitted)
        rows.append(row)
        if model is not None:
            leading = {one: each for one, each in [*leading.items(), (name, model)] if one in _leading(rows)}
            fitted |= {name: model} if name in members else {}
        progress(_line(row))
        progress(1)
        if output is not None and not Path(output).suffix:
            write_rows(rows, Path(output) / "rows.parquet")
    _add_difference_errors(rows, leading, held_out)
    if output is not None and not Path(output).suffix:
        write_rows(rows, Path(output) / "rows.parquet")
    how = {"split": split, "fraction": fraction, "seed": seed} if test is None else dict.fromkeys(_SPLIT_OPTIONS)
    logs = {"log": _name(log), "test": None if test is None else _name(test)}
    return Comparison(tuple(rows), {**logs, "models": list(learners), "exact": exact, **how})


_SPLIT_OPTIONS = ("split", "fraction", "seed")
_RESULTS = (
    "conditional_perplexity",
    "conditional_perplexity_error",
    "marginal_perplexity",
    "marginal_error",
    "log_likelihood",
    "unseen_pair_share",
)
"""Columns that an evaluation yields and that do not depend on the number of ranks."""


def click_predicting_models(kind: str = "all") -> list[str]:
    """Return the names of models that have a default learner and predict clicks without seeing them.

    Parameters
    ----------
    kind
        "classical" for models that are counted or fitted by maximum likelihood, "neural" for those fitted by gradient,
        or "all".

    Returns
    -------
    list of str
        Names of models.
    """
    classical = {"Counting", "MaximumLikelihood"}  # without COEC, a PBM whose examination is not estimated
    learners = {"classical": classical, "neural": {"Gradient"}}.get(kind, classical | {"Gradient"})
    named = [name for name, learner in DEFAULT.items() if learner in learners]
    return [name for name in named if (model := resolve(name, MODELS)).predicts_clicks and not model.peeks]


def _leading(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the models that are tested against each other: the two best, the best one that is no stacked
    mixture and the one after it, and the best baseline.

    Only they are kept in memory, and members of a stacked mixture: on a large log, every model takes gigabytes.
    """
    names = [row["model"] for row in best_first(rows) if row["conditional_perplexity"] is not None]
    single = [name for name in names if not is_stacked(name)]
    return list(dict.fromkeys([*names[:2], *single[:2], *[name for name in names if name in BASELINES][:1]]))


def _add_difference_errors(rows: Sequence[dict[str, Any]], models: Mapping[str, ClickModel], log: Log) -> None:
    """Add the standard error of the difference from the recommended model to the rows of the others that were kept."""
    by_model = {row["model"]: row for row in rows}
    names = [name for name in _leading(rows) if name in models]
    leader = names[0] if names else ""
    single = next((name for name in names if not is_stacked(name)), leader)
    if leader != single:
        _add_error(by_model, models, single, leader, log)
        if recommended(rows) == single:
            by_model[single]["difference_error"] = None
            leader = single
    for name in names:
        if name != leader and by_model[name]["difference_error"] is None:
            _add_error(by_model, models, name, leader, log)


def _add_error(
    rows: Mapping[str, dict[str, Any]], models: Mapping[str, ClickModel], name: str, leader: str, log: Log
) -> None:
    """Add the standard error of the difference from a leading model to the row of another one."""
    rows[name]["difference_error"] = _difference_error((models[name], models[leader]), (rows[name], rows[leader]), log)


def _difference_error(
    models: tuple[ClickModel, ClickModel], rows: tuple[Mapping[str, Any], Mapping[str, Any]], log: Log
) -> float:
    """Return the standard error of the difference in conditional perplexity of two models on the same sessions.

    By the delta method: a session changes the perplexity of rank r by ln 2 * PPL_r * (bits_r - log2 PPL_r) divided by
    the impressions of the rank, where the session has that rank, and the perplexity is the mean over ranks.
    """
    log = log.in_vocabulary(models[0].vocabulary)
    shown: np.ndarray = np.asarray(sum(part.impressions_by_rank() for part in log.chunks()), np.float64)
    ranks, variance = np.flatnonzero(shown > 0), 0.0
    for part in log.chunks():
        influence = np.zeros(len(part))
        for model, row, sign in zip(models, rows, (1, -1), strict=True):
            perplexity = np.array([row[f"conditional_perplexity@{rank + 1}"] for rank in ranks])
            excess = click_bits(model, part)[:, ranks] - part.rankings.shown[:, ranks] * np.log2(perplexity)
            influence += sign * excess @ (np.log(2) * perplexity / shown[ranks] / len(ranks))
        variance += float(part.count @ influence**2)
    return math.sqrt(variance)


def _row(
    name: str, learner: Learner, train: Log, test: Log, *, exact: bool, fitted: Mapping[str, ClickModel]
) -> tuple[ClickModel | None, dict[str, Any]]:
    """Fit and evaluate one model, and return it with its row; None if it failed. Fitted members are used again."""
    by_rank = [f"conditional_perplexity@{rank + 1}" for rank in range(test.n_ranks)]
    row: dict[str, Any] = {"model": name, "train_sessions": train.total, "test_sessions": test.total}
    row |= dict.fromkeys((*_RESULTS, "fit_seconds", "seconds", "difference_error", *by_rank, "error"))
    start, model = time.perf_counter(), None
    try:
        model = learner.fit(train, fitted=fitted) if isinstance(learner, Stacking) else learner.fit(train)
        row["fit_seconds"] = time.perf_counter() - start
        facts = evaluation(model, test, exact=exact)
        row |= {key: facts[key] for key in _RESULTS}
        row |= zip(by_rank, facts["conditional_perplexity_at_rank"], strict=True)
    except ClickshiftError as error:
        row["error"] = str(error)
    except Exception as error:  # the failure of one model must not lose the results of the others
        row["error"] = f"{type(error).__name__}: {error}"
    row["seconds"] = time.perf_counter() - start
    return (None if row["error"] else model), row


def _line(row: Mapping[str, Any]) -> str:
    """Return the result of one model as a line of progress."""
    result = row["error"] or f"perplexity {row['conditional_perplexity']:.4f}"
    return f"{row['model']}: {result} ({row['seconds']:.1f} s)\n"


def _name(log: LogLike) -> str:
    """Return what the settings call a log: its path, or the type of the object."""
    return str(log) if isinstance(log, str | Path) else type(log).__name__
