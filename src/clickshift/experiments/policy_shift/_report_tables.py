"""Tidy rows of the policy-shift protocol -> its tables, the same for pages, terminals and files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, cast

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
"""In the order of a table: what is compared, then what it is compared with."""
_HIGHER_IS_BETTER = ("auroc", "log_likelihood")
_LOWER_IS_BETTER_RANKING = ("ARP",)
_COUNTS = ("judged_queries", "never_shown", "equal_queries")


def perplexity_tables(rows: Sequence[Row], metric: str = "perplexity") -> dict[LogName, Rows]:
    """Models x test logs. The best is starred, "=" is not significantly worse (Welch, 95 %); neither the oracle nor a
    model that peeks at the click is compared, and what the latter has is in brackets."""
    logs: dict[LogName, dict[str, dict[str, Measured]]] = {}
    order: dict[LogName, list[Row]] = {}
    for place, there in rows_by_setting(rows).items():
        log = LogName(place.user, place.training)
        column = IND if place.testing == IND else f"ood: {place.testing}"
        found = _column(there, metric, lower_is_better=metric.partition("@")[0] not in _HIGHER_IS_BETTER)
        if found:
            logs.setdefault(log, {})[column] = found
            order.setdefault(log, []).extend(there)
    return {log: _crossed(order[log], columns) for log, columns in logs.items()}


def nppl_table(rows: Sequence[Row]) -> Rows:
    """Test logs x models: normalised perplexity, from .2 (best) to .893 (worst). Starred where a model is more robust
    than its peers: ood below ind."""
    known, models = normalised_perplexities(rows), peers(rows)
    table = []
    for place, there in known.items():
        if place.testing != IND and is_same_policy(place):
            continue
        home = known.get(place._replace(testing=IND), {})
        line: dict[str, Any] = dict(zip(("users", "training", "testing"), place, strict=True))
        for model in models:
            line[model] = None
            if model in there:
                level = there[model]
                better = place.testing != IND and model in home and level.value < home[model].value
                half = (level.high - level.low) / 2
                line[model] = Measured(level.value, half, "best" if better else "", digits=3)
        table.append(line)
    return table


def robustness_table(rows: Sequence[Row]) -> Rows:
    """Per model: under how many changes of policy it is more robust than its peers, by how much, and where least."""
    table = []
    for model, of_model in groupby(policy_shifts(rows), key=lambda shift: shift.model):
        known = [shift for shift in of_model if not math.isnan(shift.difference)]
        if not known:
            continue
        more = [shift for shift in known if shift.difference < 0]
        less = [shift for shift in known if shift.difference > 0]
        worst = max(known, key=lambda shift: shift.difference)
        table.append(
            {
                "model": model,
                "shifts": len(known),
                "more robust": len(more),
                "more robust (sure)": _sure(more),
                "less robust": len(less),
                "less robust (sure)": _sure(less),
                "best on both": sum(shift.stays_best for shift in known),
                "mean difference": mean_difference(known),
                "worst shift": str(worst.place),
                "difference there": Measured(worst.difference, digits=3, signed=True),
            }
        )
    return table


def ranking_tables(rows: Sequence[Row]) -> dict[LogName, Rows]:
    """Models x measures of ranking. Marks as for perplexity; a dagger: not significantly worse than the model that
    peeks. The oracle and the logging policy are not compared."""
    tables = {}
    for log, there in rows_by_log(rows_of_kind(rows, "ranking")).items():
        names = dict.fromkeys(name for row in there for name in row if _is_ranking_measure(name, row[name]))
        columns = {name: _ranking_column(there, name) for name in names}
        tables[log] = _crossed(there, {name: column for name, column in columns.items() if column})
    return tables


def ranking_notes(rows: Sequence[Row]) -> dict[LogName, str]:
    """What the measures of ranking are about, by log; nothing where rows do not say."""
    notes = {}
    for log, there in rows_by_log(rows_of_kind(rows, "ranking")).items():
        said = [row for row in there if all(name in row for name in _COUNTS)]
        if said:
            queries, never_shown, equal = (f"{int(said[0][name]):,}" for name in _COUNTS)
            notes[log] = (
                f"Over {queries} judged queries. Left out: {never_shown} documents that were never shown, "
                f"{equal} queries whose labels are all equal."
            )
    return notes


def policy_tables(rows: Sequence[Row]) -> dict[LogName, Rows]:
    """Expected clicks per list of the policies that a model derives; what Max-Reward gains over Top-Down, and the
    optimiser's curse: what the model promised of Max-Reward and the user does not give."""
    names = policy_names(rows)
    tables = {}
    for log, models in policy_clicks(rows).items():
        models = sorted(models, key=lambda model: _rank(model.role))
        columns = {name: _policy_column(models, name) for name in names}
        tables[log] = [
            {"model": model.model}
            | {name: column.get(model.model) for name, column in columns.items()}
            | {"gain of Max-Reward": _or_none(model.gain), "curse of Max-Reward": _or_none(model.curse(MAX_REWARD))}
            for model in models
        ]
    return tables


def _column(rows: Sequence[Row], metric: str, *, lower_is_better: bool) -> dict[str, Measured]:
    roles = {text_of(row, "model"): role_of(row) for row in rows}
    values = {model: list(seeds.values()) for model, seeds in metric_by_seed(rows, metric).items()}
    compared = {model: seeds for model, seeds in values.items() if roles[model] not in {"oracle", "peeking"}}
    marks = _marks(compared, lower_is_better=lower_is_better)
    return {
        model: measured(seeds, standing=marks.get(model, ""), aside=roles[model] == "peeking")
        for model, seeds in values.items()
    }


def _ranking_column(rows: Sequence[Row], metric: str) -> dict[str, Measured]:
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
    values = {model.model: list(model.expected[policy].values()) for model in models if policy in model.expected}
    compared = {model.model for model in models if model.role != "oracle"}
    marks = _marks({model: seeds for model, seeds in values.items() if model in compared}, lower_is_better=False)
    return {model: measured(seeds, standing=marks.get(model, "")) for model, seeds in values.items()}


def _marks(values: Mapping[str, Sequence[float]], *, lower_is_better: bool) -> dict[str, Standing]:
    """None where one model is all there is."""
    if len(values) < 2:
        return {}
    return cast("dict[str, Standing]", not_worse_than_best(values, lower_is_better=lower_is_better))


def _crossed(rows: Sequence[Row], columns: Mapping[str, Mapping[str, Measured]]) -> Rows:
    """One line per model, in the order of roles."""
    roles = {text_of(row, "model"): role_of(row) for row in rows}
    models = sorted(roles, key=lambda model: _rank(roles[model]))
    return [
        {"model": model, "role": roles[model]} | {name: column.get(model) for name, column in columns.items()}
        for model in models
        if any(model in column for column in columns.values())
    ]


def _rank(role: str) -> int:
    return _ROLES.index(role) if role in _ROLES else len(_ROLES)


def _is_ranking_measure(name: str, value: Any) -> bool:
    """Of the parts, head and tail, the longest lists are enough to read; rows have the others."""
    if name in _COUNTS or name == "seed" or not isinstance(value, int | float):
        return False
    return not name.startswith(("head ", "tail ")) or name.endswith("nDCG@10")


def _sure(found: Sequence[Shift]) -> int | None:
    """How many are beyond noise; None where one seed does not tell."""
    known = [shift.sure for shift in found if shift.sure is not None]
    return sum(known) if known or not found else None


def _or_none(value: Measured) -> Measured | None:
    return None if math.isnan(value.mean) else value
