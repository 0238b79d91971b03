"""Normalised perplexity of each model on its own and on other policies' lists, from tidy rows.

Spider charts, tables and verdicts of the policy-shift report share it.
"""

from __future__ import annotations

import html
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from clickshift.core.intervals import mean_interval, normal_quantile
from clickshift.display.figures import COLOURS, SYMBOLS
from clickshift.display.tables import Row
from clickshift.display.values import Measured, measured
from clickshift.metrics.robustness import BEST, normalised_perplexity

PEER_ROLES = ("candidate", "click model")
"""Roles that are compared with each other: eq. 16 ranges from the best to the worst model of these roles."""
IND = "ind"
IMPOSSIBLE = "not compared, see the warning"
"""Verdict on a model that uses the click it predicts, or that beats the user's own model beyond chance."""
WORST = BEST + math.log(2)
"""Largest value of eq. 16: the worst peer."""
_LARGEST_DIFFERENCE = WORST - BEST

SeedValues = Mapping[int, float]
"""Values by seed."""
_Names = TypeVar("_Names", bound="tuple[str, ...]")


class LogName(NamedTuple):
    """A training log: the user who clicked, and the policy that ranked it."""

    user: str
    training: str

    def __str__(self) -> str:
        """Heading, also where rows do not have both names."""
        users = f"{self.user} users" if self.user else ""
        training = f"trained on {self.training}" if self.training else ""
        return ", ".join(filter(None, (users, training))) or "One log"

    def as_chart_title(self) -> str:
        """Title in two lines of Plotly's HTML."""
        first, _, second = html.escape(str(self)).partition(", ")
        return f"<b>{first}</b>" + (f"<br><span style='font-size:12px'>{second}</span>" if second else "")


class Setting(NamedTuple):
    """A change of policy: the user who clicked, and the policies that ranked the training log and the test log.

    `testing` is `IND` for held-out sessions of the training log.
    """

    user: str
    training: str
    testing: str

    def __str__(self) -> str:
        users = f"{self.user} users" if self.user else ""
        return ", ".join(filter(None, (users, " → ".join(filter(None, self[1:])))))


@dataclass(frozen=True)
class NormalisedPerplexity:
    """Perplexity of a model in a setting, normalised by its peers.

    Parameters
    ----------
    perplexity
        Perplexity with its interval over seeds.
    value
        Normalised perplexity (eq. 16); NaN without peers to compare with.
    low, high
        Ends of the 95 % interval of the perplexity, normalised; NaN for a single seed.
    seeds
        Normalised perplexity by seed.
    resamples
        Normalised perplexity by resampled test log, with the peers on the same one; empty where rows have none.
    relative, relative_resamples
        Perplexity minus the mean of the peers, and the same by resampled test log. Normalised perplexity is not smooth
        where models are nearly equal: its resamples alone would be too narrow there.
    """

    perplexity: Measured
    value: float
    low: float
    high: float
    seeds: SeedValues
    resamples: SeedValues
    relative: float
    relative_resamples: SeedValues


@dataclass(frozen=True)
class Shift:
    """A model that learned from one policy's log and predicts clicks on another policy's lists.

    Parameters
    ----------
    model
        Name of the model.
    setting
        The change of policy.
    ind, ood
        Normalised perplexity on held-out sessions of the training log, and on the other policy's lists.
    oracle
        Perplexity of the user's own model, ind and ood; None without an oracle.
    comparisons
        Number of shifts of all models that are tested together: one false alarm in 20 is for all of them (Bonferroni).
    """

    model: str
    setting: Setting
    ind: NormalisedPerplexity
    ood: NormalisedPerplexity
    oracle: tuple[float, float] | None
    comparisons: int = 1

    @property
    def difference(self) -> float:
        """Ood minus ind nPPL; below 0, the model is more robust than its peers (section 5.1.1)."""
        return self.ood.value - self.ind.value

    @property
    def has_resamples(self) -> bool:
        """Whether the sampling error of both test logs is known."""
        return len(self.ind.resamples) > 1 and len(self.ood.resamples) > 1

    @property
    def significant(self) -> bool | None:
        """Whether the difference is beyond chance (95 %); None where chance is not known.

        With resampled test logs, chance is their sampling error and the spread over seeds together, and the level holds
        for all comparisons of the run. Without, it is the spread over seeds alone, of which there must be two; the same
        model predicts both logs, so seeds are paired. Chance never includes the uncertainty due to one training log.
        """
        if self.has_resamples and not math.isnan(self.difference):
            level = 1 - 0.05 / self.comparisons
            return abs(self.difference) > difference_error([self], level=level)
        _, low, high = mean_interval(_mean_differences([self], "seeds") or [math.nan])
        return None if math.isnan(low) else not low <= 0 <= high

    @property
    def stays_best(self) -> bool:
        """Whether the model is the best of its peers on both logs: it cannot improve, and eq. 16 has no difference."""
        return max(self.ind.value, self.ood.value) <= BEST + 1e-9

    @property
    def stays_worst(self) -> bool:
        """Whether the model is the worst of its peers on both logs."""
        return min(self.ind.value, self.ood.value) >= WORST - 1e-9


def rows_of_kind(rows: Sequence[Row], kind: str) -> list[Row]:
    """Select rows by kind; rows without a kind are about clicks."""
    return [row for row in rows if row.get("kind", "clicks") == kind]


def text_of(row: Row, key: str) -> str:
    """A column as text; empty where the row does not have it."""
    return str(row.get(key, ""))


def role_of(row: Row) -> str:
    """Role of the row's model; "click model" where the row does not have it."""
    return str(row.get("role", "click model"))


def metric_by_seed(rows: Sequence[Row], metric: str) -> dict[str, dict[int, float]]:
    """Values of a metric by model, in order of appearance, and seed; missing values are left out."""
    values: dict[str, dict[int, float]] = {}
    for row in rows:
        value = row.get(metric)
        if value is not None and not math.isnan(value):
            values.setdefault(text_of(row, "model"), {})[int(row.get("seed", 0))] = float(value)
    return values


def rows_by_log(rows: Sequence[Row]) -> dict[LogName, list[Row]]:
    """Group rows by training log: users, then training policies, in order of appearance."""
    groups: dict[LogName, list[Row]] = {}
    for row in rows:
        groups.setdefault(LogName(text_of(row, "user"), text_of(row, "training")), []).append(row)
    return {log: groups[log] for log in _in_order(groups)}


def rows_by_setting(rows: Sequence[Row], kind: str = "clicks") -> dict[Setting, list[Row]]:
    """Group rows of a kind by setting, in order of appearance: users, training policies, test logs (ind first)."""
    groups: dict[Setting, list[Row]] = {}
    for row in rows_of_kind(rows, kind):
        testing = IND if row.get("shift") == IND else text_of(row, "testing")
        groups.setdefault(Setting(text_of(row, "user"), text_of(row, "training"), testing), []).append(row)
    return {setting: groups[setting] for setting in _in_order(groups)}


def _in_order(keys: Iterable[_Names]) -> list[_Names]:
    """Sort keys by their first name, then the second, then the third, each in order of appearance; ind comes first."""
    keys = list(keys)
    orders = [
        {IND: -1} | {name: i for i, name in enumerate(names) if name != IND}
        for names in map(list, map(dict.fromkeys, zip(*keys, strict=True)))
    ]
    return sorted(keys, key=lambda key: [order[name] for order, name in zip(orders, key, strict=True)])


def is_same_policy(setting: Setting) -> bool:
    """Whether the test policy is the training policy without its randomness, as BM25 for PL-BM25: hardly a shift."""
    return setting.testing in {IND, setting.training, setting.training.removeprefix("PL-")}


def normalised_perplexities(rows: Sequence[Row]) -> dict[Setting, dict[str, NormalisedPerplexity]]:
    """Normalised perplexity of every peer in every setting."""
    resampled = rows_by_setting(rows, "resample")
    return {
        setting: _normalised_perplexities(group, resampled.get(setting, []))
        for setting, group in rows_by_setting(rows).items()
    }


def policy_shifts(rows: Sequence[Row]) -> list[Shift]:
    """Every peer under every change of policy, sorted by model."""
    by_setting = normalised_perplexities(rows)
    oracles = {setting: mean_of_role(group, "oracle") for setting, group in rows_by_setting(rows).items()}
    shifts = []
    for setting, models in by_setting.items():
        origin = setting._replace(testing=IND)
        if is_same_policy(setting) or origin not in by_setting:
            continue
        ind, ood = oracles[origin], oracles[setting]
        oracle = None if ind is None or ood is None else (ind, ood)
        shifts += [
            Shift(model, setting, by_setting[origin][model], normalised, oracle)
            for model, normalised in models.items()
            if model in by_setting[origin]
        ]
    order = {model: i for i, model in enumerate(peers(rows))}
    shifts = [replace(shift, comparisons=len(shifts)) for shift in shifts]
    return sorted(shifts, key=lambda shift: order[shift.model])


def mean_difference(shifts: Sequence[Shift]) -> Measured:
    """Mean of ood minus ind nPPL over shifts, with the interval of `difference_error`."""
    mean = sum(shift.difference for shift in shifts) / len(shifts)
    return Measured(mean, difference_error(shifts), digits=3, signed=True)


def difference_error(shifts: Sequence[Shift], *, level: float = 0.95) -> float:
    """Half-width of the interval of the mean of ood minus ind nPPL over shifts of one model.

    Parameters
    ----------
    shifts
        The shifts.
    level
        Confidence level, where test logs were resampled; 95 % otherwise.

    Returns
    -------
    float
        The spread over seeds that all shifts have (Student's t), and the sampling error of the test logs, where it is
        known; NaN if neither is. Resamples of one log are the same for all shifts that it is part of. With resamples,
        the interval leaves out 0 only if the perplexity relative to the mean of the peers changes in the same direction
        beyond its own sampling error, too.
    """
    over_seeds = measured(_mean_differences(shifts, "seeds")).half
    if not all(shift.has_resamples for shift in shifts):
        return over_seeds
    quantile = normal_quantile((1 + level) / 2)
    seeds = 0.0 if math.isnan(over_seeds) else over_seeds * quantile / normal_quantile(0.975)
    half = math.hypot(quantile * float(np.std(_mean_differences(shifts, "resamples"), ddof=1)), seeds)
    difference = sum(shift.difference for shift in shifts)
    relative = sum(shift.ood.relative - shift.ind.relative for shift in shifts) / len(shifts)
    noise = quantile * float(np.std(_mean_differences(shifts, "relative_resamples"), ddof=1))
    if not relative * difference > 0:
        return max(half, _LARGEST_DIFFERENCE)
    return max(half, min(noise / abs(relative) * abs(difference) / len(shifts), _LARGEST_DIFFERENCE))


def _mean_differences(shifts: Sequence[Shift], kind: str) -> list[float]:
    """Mean of ood minus ind over shifts, by the seeds or the resamples that all shifts have."""
    pairs = [(getattr(shift.ind, kind), getattr(shift.ood, kind)) for shift in shifts]
    common = set.intersection(*(set(ind) & set(ood) for ind, ood in pairs))
    return [sum(ood[key] - ind[key] for ind, ood in pairs) / len(pairs) for key in sorted(common)]


def peers(rows: Sequence[Row]) -> list[str]:
    """Names of the models that are compared, candidates first."""
    roles = {text_of(row, "model"): role_of(row) for row in rows if role_of(row) in PEER_ROLES}
    return sorted(roles, key=lambda model: PEER_ROLES.index(roles[model]))


def _normalised_perplexities(rows: Sequence[Row], resampled: Sequence[Row]) -> dict[str, NormalisedPerplexity]:
    """Normalised perplexity of every peer in the rows of one setting, and on resampled test logs."""
    resamples = metric_by_seed([row for row in resampled if role_of(row) in PEER_ROLES], "perplexity")
    values = metric_by_seed([row for row in rows if role_of(row) in PEER_ROLES], "perplexity")
    among = [measured(list(seeds.values())).mean for seeds in values.values()]
    by_model = {}
    for model, seeds in values.items():
        perplexity = measured(list(seeds.values()))
        low, high = perplexity.mean - perplexity.half, perplexity.mean + perplexity.half
        by_model[model] = NormalisedPerplexity(
            perplexity,
            _normalised(perplexity.mean, among),
            _normalised(low, among),
            _normalised(high, among),
            {seed: _normalised(value, among) for seed, value in seeds.items()},
            {
                number: _normalised(value, [other[number] for other in resamples.values() if number in other])
                for number, value in resamples.get(model, {}).items()
            },
            perplexity.mean - sum(among) / len(among),
            {
                number: value - statistics.fmean(other[number] for other in resamples.values() if number in other)
                for number, value in resamples.get(model, {}).items()
            },
        )
    return by_model


def _normalised(value: float, among: Sequence[float]) -> float:
    """Eq. 16; NaN for a single model, which has no peers."""
    return normalised_perplexity(value, among) if len(among) > 1 else math.nan


def mean_of_role(rows: Sequence[Row], role: str) -> float | None:
    """Mean perplexity of the models of a role; None where there are none."""
    values = [row["perplexity"] for row in rows if role_of(row) == role and row.get("perplexity") is not None]
    return sum(values) / len(values) if values else None


def oracle_gap_figure(rows: Sequence[Row]) -> Any:
    """Chart of perplexity above that of the oracle, on each test log of one training log; None without an oracle."""
    import plotly.graph_objects as go

    settings = rows_by_setting(rows)
    perplexity = {setting: metric_by_seed(group, "perplexity") for setting, group in settings.items()}
    roles = {text_of(row, "model"): role_of(row) for row in rows}
    oracles = [model for model, role in roles.items() if role == "oracle"]
    oracle = {
        setting: perplexity[setting][name] for setting in settings for name in oracles if name in perplexity[setting]
    }
    settings = {setting: group for setting, group in settings.items() if setting in oracle}
    if not settings:
        return None
    names = [IND if setting.testing == IND else f"ood<br>{html.escape(setting.testing)}" for setting in settings]
    figure = go.Figure()
    models = [model for model in peers(rows) if any(model in perplexity[setting] for setting in settings)]
    step = 0.6 / max(len(models), 1)
    for i, model in enumerate(models):
        excess = [
            measured(
                [value - next(iter(oracle[setting].values())) for value in perplexity[setting].get(model, {}).values()]
            )
            for setting in settings
        ]
        figure.add_scatter(
            name=html.escape(model),
            x=[n + step * (i - (len(models) - 1) / 2) for n in range(len(settings))],
            y=[None if math.isnan(value.mean) else value.mean for value in excess],
            error_y={"type": "data", "array": [0 if math.isnan(value.half) else value.half for value in excess]},
            mode="markers",
            marker={"color": COLOURS[i % len(COLOURS)], "size": 8, "symbol": SYMBOLS[i % len(SYMBOLS)]},
            text=[str(value) for value in excess],
            hovertemplate="%{fullData.name}: %{text}<extra></extra>",
        )
    first = next(iter(settings))
    title = LogName(first.user, first.training).as_chart_title()
    figure.update_layout(
        title={"text": title, "x": 0.5, "y": 0.97, "yanchor": "top", "font": {"size": 14}},
        template="plotly_white",
        width=480,
        height=430,
        yaxis={"title": "perplexity above the oracle's", "rangemode": "tozero"},
        xaxis={
            "tickvals": list(range(len(settings))),
            "ticktext": names,
            "range": [-0.5, len(settings) - 0.5],
            "tickfont": {"size": 10},
            "zeroline": False,
        },
        legend={"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.2, "yanchor": "top"},
        margin={"l": 62, "r": 32, "t": 58, "b": 105},
    )
    return figure
