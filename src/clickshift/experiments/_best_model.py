"""Which model predicts the clicks of a log best, and which others are as good within chance, from rows of real logs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from clickshift.core.intervals import normal_quantile
from clickshift.core.text import join_words
from clickshift.display.tables import Row
from clickshift.display.values import measured
from clickshift.experiments._dots import grouped_dots
from clickshift.experiments.policy_shift._report_robustness import (
    IND,
    PEER_ROLES,
    Setting,
    metric_by_seed,
    role_of,
    rows_by_setting,
    text_of,
)

_ROLES = (*PEER_ROLES, "baseline")


@dataclass(frozen=True)
class ComparedLog:
    """How well models predict one test log.

    Parameters
    ----------
    setting
        Training log and test log.
    perplexity
        Mean perplexity by model, the best first.
    half
        Half the width of the 95 % interval of the difference from the best model; NaN where it is not known.
    own_half
        The same of the perplexity itself.
    baselines
        Names of the models that only count clicks.
    """

    setting: Setting
    perplexity: Mapping[str, float]
    half: Mapping[str, float]
    own_half: Mapping[str, float]
    baselines: frozenset[str]

    @property
    def best(self) -> str:
        """Name of the best model."""
        return next(iter(self.perplexity))

    @property
    def tied(self) -> list[str]:
        """Other models whose difference from the best is within chance; none where chance is not known."""
        lowest = self.perplexity[self.best]
        return [
            name for name, value in self.perplexity.items() if name != self.best and value - lowest <= self.half[name]
        ]

    @property
    def name(self) -> str:
        """Name of the test log, with that of the training log."""
        training, testing = self.setting.training, self.setting.testing
        return f"{training}, held out" if testing == IND else f"{training} → {testing}"


def compared_logs(rows: Sequence[Row]) -> list[ComparedLog]:
    """Compare the models on each test log: on other rankers' logs where there are any, and on held-out sessions.

    Parameters
    ----------
    rows
        Rows of the protocol, of kinds "clicks" and "resample".

    Returns
    -------
    list of ComparedLog
        Logs of other rankers first.
    """
    resampled = rows_by_setting(rows, "resample")
    found = []
    for setting, group in rows_by_setting(rows).items():
        compared = [row for row in group if role_of(row) in _ROLES]
        seeds = metric_by_seed(compared, "perplexity")
        if not seeds:
            continue
        mean = {name: fmean(values.values()) for name, values in seeds.items()}
        mean = dict(sorted(mean.items(), key=lambda item: item[1]))
        best = next(iter(mean))
        resamples = metric_by_seed(resampled.get(setting, []), "perplexity")
        found.append(
            ComparedLog(
                setting,
                mean,
                {name: _half(seeds[name], resamples.get(name, {}), resamples.get(best, {})) for name in mean},
                {name: _half(seeds[name], resamples.get(name, {}), None) for name in mean},
                frozenset(text_of(row, "model") for row in compared if role_of(row) == "baseline"),
            )
        )
    return sorted(found, key=lambda one: one.setting.testing == IND)


def _half(seeds: Mapping[int, float], own: Mapping[int, float], other: Mapping[int, float] | None) -> float:
    """Half the width of the interval of a perplexity, minus another one on the same resampled sessions."""
    values = [
        value - (0.0 if other is None else other[number])
        for number, value in own.items()
        if other is None or number in other
    ]
    over_seeds = measured(list(seeds.values())).half
    if len(values) < 2:
        return over_seeds
    return math.hypot(normal_quantile(0.975) * stdev(values), 0.0 if math.isnan(over_seeds) else over_seeds)


def best_models(rows: Sequence[Row]) -> str:
    """Name the best model on logs of other rankers, or on held-out sessions where there are none.

    Parameters
    ----------
    rows
        Rows of the protocol.

    Returns
    -------
    str
        One sentence per test log.
    """
    logs = compared_logs(rows)
    shown = [log for log in logs if log.setting.testing != IND] or logs
    sentences = []
    for log in shown:
        training, testing = log.setting.training, log.setting.testing
        what = f"held-out clicks of {training}" if testing == IND else f"the clicks of {testing}"
        value = measured([log.perplexity[log.best]])
        half = log.own_half[log.best]
        interval = "" if math.isnan(half) else f" ± {f'{half:.4f}'.removeprefix('0')}"
        origin = "" if testing == IND else f"trained on {training}, "
        advice = "" if log.best in log.baselines else f"Use {log.best}: {origin}"
        subject = f"{log.best}, which only counts clicks," if log.best in log.baselines else "it"
        tied = log.tied
        same = f"; {join_words(tied)} {'is' if len(tied) == 1 else 'are'} not worse beyond chance" if tied else ""
        sentences.append(
            f"{advice}{subject} predicts {what} best, with a perplexity of {value.number}{interval}{same}."
        )
    return " ".join(sentences)


def best_model_verdict(logs: Sequence[ComparedLog]) -> str:
    """Return "usable" if the best models are better than the baselines beyond chance, else "weak"; empty without logs.

    Parameters
    ----------
    logs
        What `compared_logs` returns; held-out sessions count only where there is no log of another ranker.
    """
    shown = [log for log in logs if log.setting.testing != IND] or logs
    if not shown:
        return ""
    return "weak" if any(({log.best, *log.tied} & log.baselines) for log in shown) else "usable"


def best_model_figure(logs: Sequence[ComparedLog]) -> Any:
    """Plot the perplexity of each model above that of the best one on each test log, with paired intervals.

    Parameters
    ----------
    logs
        What `compared_logs` returns; at least one.
    """
    order = list(dict.fromkeys(name for log in logs for name in log.perplexity))
    dots = []
    for log, name in ((log, name) for log in logs for name in order):
        if name in log.perplexity:
            value, half = log.perplexity[name] - log.perplexity[log.best], log.half[name]
            ends = (None, None) if math.isnan(half) or name == log.best else (value - half, value + half)
            dots.append({"label": name, "value": value, "low": ends[0], "high": ends[1], "log": log.name})
    figure = grouped_dots(dots, axis="perplexity above the best model on the log", group="log", hollow=())
    figure.update_layout(showlegend=True)
    return figure
