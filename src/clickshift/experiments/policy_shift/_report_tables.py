"""The tables of the policy-shift report, from tidy rows; the same for pages, terminals and files."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from statistics import stdev
from typing import Any, cast

from clickshift.core.intervals import normal_quantile
from clickshift.display.tables import Row, Rows
from clickshift.display.values import Measured, Standing, measured
from clickshift.experiments.models import LOGGING
from clickshift.experiments.policy_shift._report_derived import MAX_REWARD, PolicyClicks, policy_clicks, policy_names
from clickshift.experiments.policy_shift._report_robustness import (
    IND,
    PEER_ROLES,
    LogName,
    Shift,
    is_same_policy,
    mean_difference,
    metric_by_seed,
    normalised_perplexities,
    peers,
    policy_shifts,
    role_of,
    rows_by_log,
    rows_by_setting,
    rows_of_kind,
    text_of,
)
from clickshift.metrics.significance import not_worse_than, not_worse_than_best

_ROLES = (*PEER_ROLES, "baseline", "peeking", "oracle")
"""Roles in the order of a table: models that are compared first, then the reference models."""
_HIGHER_IS_BETTER = ("auroc", "log_likelihood")
_LOWER_IS_BETTER_RANKING = ("ARP",)
_COUNTS = ("judged_queries", "never_shown", "equal_queries")


def perplexity_tables(rows: Sequence[Row], metric: str = "perplexity") -> dict[LogName, Rows]:
    """Tables of a click metric by training log: one line per model, one column per test log.

    The best is starred; "=" marks values that are not significantly worse (Welch's t-test, 95 %). Neither the oracle
    nor a model that peeks at the click is compared; the latter's values are in brackets. Where test logs were
    resampled, intervals and marks of the perplexity include their sampling error.
    """
    columns_by_log: dict[LogName, dict[str, dict[str, Measured]]] = {}
    rows_by_table: dict[LogName, list[Row]] = {}
    resampled = rows_by_setting(rows, "resample") if metric == "perplexity" else {}
    for setting, group in rows_by_setting(rows).items():
        log = LogName(setting.user, setting.training)
        name = IND if setting.testing == IND else f"ood: {setting.testing}"
        lower = metric.partition("@")[0] not in _HIGHER_IS_BETTER
        column = _column(group, metric, resampled.get(setting, []), lower_is_better=lower)
        if column:
            columns_by_log.setdefault(log, {})[name] = column
            rows_by_table.setdefault(log, []).extend(group)
    return {log: _join_columns(rows_by_table[log], columns) for log, columns in columns_by_log.items()}


def nppl_table(rows: Sequence[Row]) -> Rows:
    """Table of normalised perplexity, from .2 (best) to .893 (worst): one line per test log, one column per model.

    Starred where a model is more robust than its peers: ood below ind.
    """
    by_setting, models = normalised_perplexities(rows), peers(rows)
    table = []
    for setting, by_model in by_setting.items():
        if setting.testing != IND and is_same_policy(setting):
            continue
        ind = by_setting.get(setting._replace(testing=IND), {})
        line: dict[str, Any] = dict(zip(("users", "training", "testing"), setting, strict=True))
        for model in models:
            line[model] = None
            if model in by_model:
                nppl = by_model[model]
                more_robust = setting.testing != IND and model in ind and nppl.value < ind[model].value
                half = (nppl.high - nppl.low) / 2
                line[model] = Measured(nppl.value, half, "best" if more_robust else "", digits=3)
        table.append(line)
    return table


def robustness_table(rows: Sequence[Row]) -> Rows:
    """Table of robustness by model: number of shifts with ood below and above ind nPPL, mean and worst difference."""
    table = []
    for model, of_model in groupby(policy_shifts(rows), key=lambda shift: shift.model):
        shifts = [shift for shift in of_model if not math.isnan(shift.difference)]
        if not shifts:
            continue
        more = [shift for shift in shifts if shift.difference < 0]
        less = [shift for shift in shifts if shift.difference > 0]
        worst = max(shifts, key=lambda shift: shift.difference)
        table.append(
            {
                "model": model,
                "shifts": len(shifts),
                "more robust": len(more),
                "more robust (significant)": _n_significant(more),
                "less robust": len(less),
                "less robust (significant)": _n_significant(less),
                "best on both": sum(shift.stays_best for shift in shifts),
                "mean difference": mean_difference(shifts),
                "worst shift": str(worst.setting),
                "worst difference": Measured(worst.difference, digits=3, signed=True),
            }
        )
    return table


def ranking_tables(rows: Sequence[Row]) -> dict[LogName, Rows]:
    """Tables of ranking metrics by training log: one line per model, one column per metric.

    Marks as for perplexity; a dagger marks values that are not significantly worse than those of the model that peeks.
    The oracle and the logging policy are not compared.
    """
    tables = {}
    for log, group in rows_by_log(rows_of_kind(rows, "ranking")).items():
        names = dict.fromkeys(name for row in group for name in row if _is_ranking_metric(name, row[name]))
        columns = {name: _ranking_column(group, name) for name in names}
        tables[log] = _join_columns(group, {name: column for name, column in columns.items() if column})
    return tables


def ranking_notes(rows: Sequence[Row]) -> dict[LogName, str]:
    """Number of judged queries, and of documents and queries left out, by training log, where rows have them."""
    notes = {}
    for log, group in rows_by_log(rows_of_kind(rows, "ranking")).items():
        counted = [row for row in group if all(name in row for name in _COUNTS)]
        if counted:
            queries, never_shown, equal = (f"{int(counted[0][name]):,}" for name in _COUNTS)
            notes[log] = (
                f"Over {queries} judged queries. Left out: {never_shown} documents that were never shown, "
                f"{equal} queries whose labels are all equal."
            )
    return notes


def policy_tables(rows: Sequence[Row]) -> dict[LogName, Rows]:
    """Tables of expected clicks per list of derived policies, by training log: one line per model.

    With the gain of Max-Reward over Top-Down, and the optimiser's curse: clicks that the model predicted for Max-Reward
    minus expected clicks under the user.
    """
    names = policy_names(rows)
    tables = {}
    for log, models in policy_clicks(rows).items():
        models = sorted(models, key=lambda model: _role_order(model.role))
        columns = {name: _policy_column(models, name) for name in names}
        tables[log] = [
            {"model": model.model}
            | {name: column.get(model.model) for name, column in columns.items()}
            | {
                "gain of Max-Reward": _none_if_nan(model.gain),
                "curse of Max-Reward": _none_if_nan(model.curse(MAX_REWARD)),
            }
            for model in models
        ]
    return tables


def _column(
    rows: Sequence[Row], metric: str, resampled: Sequence[Row] = (), *, lower_is_better: bool
) -> dict[str, Measured]:
    """A click metric by model, with marks."""
    roles = {text_of(row, "model"): role_of(row) for row in rows}
    values = {model: list(seeds.values()) for model, seeds in metric_by_seed(rows, metric).items()}
    compared = {model: seeds for model, seeds in values.items() if roles[model] not in {"oracle", "peeking"}}
    resamples = metric_by_seed(resampled, metric)
    if compared and all(model in resamples for model in compared):
        return _resampled_column(values, resamples, compared, {m for m, role in roles.items() if role == "peeking"})
    marks = _marks(compared, lower_is_better=lower_is_better)
    return {
        model: measured(seeds, standing=marks.get(model, ""), aside=roles[model] == "peeking")
        for model, seeds in values.items()
    }


def _resampled_column(
    values: Mapping[str, Sequence[float]],
    resamples: Mapping[str, Mapping[int, float]],
    compared: Collection[str],
    peeking: Collection[str],
) -> dict[str, Measured]:
    """Perplexity by model, with the sampling error of the test log; "=" by the paired difference from the best."""
    cells = {model: measured(seeds) for model, seeds in values.items()}
    best = min(compared, key=lambda model: cells[model].mean)

    def half(model: str, other: Mapping[int, float]) -> float:
        spread = stdev([value - other.get(number, 0.0) for number, value in resamples[model].items()])
        return math.hypot(normal_quantile(0.975) * spread, *(() if math.isnan(h := cells[model].half) else (h,)))

    column = {}
    for model, cell in cells.items():
        standing: Standing = ""
        if model in compared and len(compared) > 1:
            distance = cell.mean - cells[best].mean
            standing = "best" if model == best else "=" if distance <= half(model, resamples[best]) else ""
        spread = half(model, {}) if model in resamples else cell.half
        column[model] = replace(cell, half=spread, standing=standing, aside=model in peeking)
    return column


def _ranking_column(rows: Sequence[Row], metric: str) -> dict[str, Measured]:
    """A ranking metric by model, with marks and daggers."""
    roles = {text_of(row, "model"): role_of(row) for row in rows}
    values = {model: list(seeds.values()) for model, seeds in metric_by_seed(rows, metric).items()}
    lower = metric in _LOWER_IS_BETTER_RANKING
    compared = {model: seeds for model, seeds in values.items() if roles[model] != "oracle" and model != LOGGING}
    marks = _marks(compared, lower_is_better=lower)
    peeking = next((model for model in compared if roles[model] == "peeking"), None)
    daggers = {} if peeking is None else not_worse_than(compared, peeking, lower_is_better=lower)
    return {
        model: measured(
            seeds, standing=marks.get(model, ""), dagger=roles[model] in PEER_ROLES and daggers.get(model, "") != ""
        )
        for model, seeds in values.items()
    }


def _policy_column(models: Sequence[PolicyClicks], policy: str) -> dict[str, Measured]:
    """Expected clicks of a policy by model, with marks."""
    values = {model.model: list(model.expected[policy].values()) for model in models if policy in model.expected}
    compared = {model.model for model in models if model.role != "oracle"}
    marks = _marks({model: seeds for model, seeds in values.items() if model in compared}, lower_is_better=False)
    return {model: measured(seeds, standing=marks.get(model, "")) for model, seeds in values.items()}


def _marks(values: Mapping[str, Sequence[float]], *, lower_is_better: bool) -> dict[str, Standing]:
    """Marks of the best values and those not significantly worse; none for a single model."""
    if len(values) < 2:
        return {}
    return cast("dict[str, Standing]", not_worse_than_best(values, lower_is_better=lower_is_better))


def _join_columns(rows: Sequence[Row], columns: Mapping[str, Mapping[str, Measured]]) -> Rows:
    """Join columns of values by model into a table with one line per model, in the order of roles."""
    roles = {text_of(row, "model"): role_of(row) for row in rows}
    models = sorted(roles, key=lambda model: _role_order(roles[model]))
    return [
        {"model": model, "role": roles[model]} | {name: column.get(model) for name, column in columns.items()}
        for model in models
        if any(model in column for column in columns.values())
    ]


def _role_order(role: str) -> int:
    """Position of a role in tables; unknown roles come last."""
    return _ROLES.index(role) if role in _ROLES else len(_ROLES)


def _is_ranking_metric(name: str, value: Any) -> bool:
    """Whether a column is a metric for the table, which shows only nDCG@10 of head and tail queries."""
    if name in _COUNTS or name == "seed" or not isinstance(value, int | float):
        return False
    if name.startswith("task_") or name.endswith("_seconds"):  # costs
        return False
    return not name.startswith(("head ", "tail ")) or name.endswith("nDCG@10")


def _n_significant(shifts: Sequence[Shift]) -> int | None:
    """Number of shifts with a significant difference; None if that is unknown for lack of seeds."""
    tested = [shift.significant for shift in shifts if shift.significant is not None]
    return sum(tested) if tested or not shifts else None


def _none_if_nan(value: Measured) -> Measured | None:
    """A value for a table; None where there is none."""
    return None if math.isnan(value.mean) else value
