"""Tidy rows -> normalised perplexity of each model where it was trained and elsewhere: what spider charts, tables and
verdicts share."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from clickshift.core.intervals import mean_interval
from clickshift.display.figures import COLOURS, SYMBOLS
from clickshift.display.tables import Row
from clickshift.display.values import Measured, measured
from clickshift.metrics.robustness import BEST, normalised_perplexity

PEER_ROLES = ("candidate", "click model")
"""Roles that are compared with each other: eq. 16 ranges from the best to the worst of these."""
IND = "ind"
WORST = BEST + math.log(2)
"""Where eq. 16 ends."""

SeedValues = Mapping[int, float]
Names = TypeVar("Names", bound="tuple[str, ...]")


class LogName(NamedTuple):
    """Who clicked, and who ranked the log that was learned from."""

    user: str
    training: str

    def __str__(self) -> str:
        """As a heading says it, also where rows do not name both."""
        users = f"{self.user} users" if self.user else ""
        learned = f"trained on {self.training}" if self.training else ""
        return ", ".join(filter(None, (users, learned))) or "One log"

    def as_chart_title(self) -> str:
        """In two lines, as Plotly reads them."""
        first, _, second = html.escape(str(self)).partition(", ")
        return f"<b>{first}</b>" + (f"<br><span style='font-size:12px'>{second}</span>" if second else "")


class Setting(NamedTuple):
    """Who clicked, who ranked the training log, and who ranked the test log (`IND`: the same)."""

    user: str
    training: str
    testing: str

    def __str__(self) -> str:
        users = f"{self.user} users" if self.user else ""
        return ", ".join(filter(None, (users, " → ".join(filter(None, self[1:])))))


@dataclass(frozen=True)
class NormalisedPerplexity:
    """A model at a place."""

    perplexity: Measured
    value: float
    """Normalised (eq. 16); NaN where there are no peers to compare with."""
    low: float
    high: float
    """What the 95 % interval of the perplexity becomes; NaN from one seed."""
    seeds: SeedValues
    """Normalised, by seed."""


@dataclass(frozen=True)
class Shift:
    """A model that learned from one policy's log and predicts clicks on another's lists."""

    model: str
    place: Setting
    ind: NormalisedPerplexity
    ood: NormalisedPerplexity
    oracle: tuple[float, float] | None
    """The perplexity of the user's own model, ind and ood."""

    @property
    def difference(self) -> float:
        """Below 0: more robust than its peers (section 5.1.1)."""
        return self.ood.value - self.ind.value

    @property
    def sure(self) -> bool | None:
        """Whether the seeds agree on the sign of the difference (95 %, paired); None from fewer than two seeds.

        The same model predicts both logs, so seeds are paired. What one corpus and one log leave open is not in it.
        """
        both = [seed for seed in self.ood.seeds if seed in self.ind.seeds]
        if len(both) < 2:
            return None
        _, low, high = mean_interval([self.ood.seeds[seed] - self.ind.seeds[seed] for seed in both])
        return not low <= 0 <= high

    @property
    def stays_best(self) -> bool:
        """The best of its peers on both logs: it cannot do better than that, and eq. 16 gives no difference."""
        return max(self.ind.value, self.ood.value) <= BEST + 1e-9

    @property
    def stays_worst(self) -> bool:
        return min(self.ind.value, self.ood.value) >= WORST - 1e-9


def rows_of_kind(rows: Sequence[Row], kind: str) -> list[Row]:
    """Rows that do not say what they are about are about clicks."""
    return [row for row in rows if row.get("kind", "clicks") == kind]


def text_of(row: Row, key: str) -> str:
    return str(row.get(key, ""))


def role_of(row: Row) -> str:
    return str(row.get("role", "click model"))


def metric_by_seed(rows: Sequence[Row], metric: str) -> dict[str, dict[int, float]]:
    """What each model's seeds gave, in order of appearance; numbers that are missing are left out."""
    values: dict[str, dict[int, float]] = {}
    for row in rows:
        value = row.get(metric)
        if value is not None and not math.isnan(value):
            values.setdefault(text_of(row, "model"), {})[int(row.get("seed", 0))] = float(value)
    return values


def rows_by_log(rows: Sequence[Row]) -> dict[LogName, list[Row]]:
    """In order of appearance of users, then of training policies."""
    found: dict[LogName, list[Row]] = {}
    for row in rows:
        found.setdefault(LogName(text_of(row, "user"), text_of(row, "training")), []).append(row)
    return {log: found[log] for log in _in_order(found)}


def rows_by_setting(rows: Sequence[Row]) -> dict[Setting, list[Row]]:
    """Rows about clicks, by place: users, then training policies, then test logs in order of appearance, ind first."""
    found: dict[Setting, list[Row]] = {}
    for row in rows_of_kind(rows, "clicks"):
        testing = IND if row.get("shift") == IND else text_of(row, "testing")
        found.setdefault(Setting(text_of(row, "user"), text_of(row, "training"), testing), []).append(row)
    return {place: found[place] for place in _in_order(found)}


def _in_order(keys: Iterable[Names]) -> list[Names]:
    """Names of the first kind in order of appearance, then those of the second, then of the third; ind before all."""
    keys = list(keys)
    orders = [
        {IND: -1} | {name: i for i, name in enumerate(names) if name != IND}
        for names in map(list, map(dict.fromkeys, zip(*keys, strict=True)))
    ]
    return sorted(keys, key=lambda key: [order[name] for order, name in zip(orders, key, strict=True)])


def is_same_policy(place: Setting) -> bool:
    """Whether the test log is the training policy's without its randomness, as BM25 is of PL-BM25: hardly a shift."""
    return place.testing in {IND, place.training, place.training.removeprefix("PL-")}


def normalised_perplexities(rows: Sequence[Row]) -> dict[Setting, dict[str, NormalisedPerplexity]]:
    """Every peer at every place, with its normalised perplexity."""
    return {place: _levels(there) for place, there in rows_by_setting(rows).items()}


def policy_shifts(rows: Sequence[Row]) -> list[Shift]:
    """Every peer under every change of policy, one model after the other."""
    known = normalised_perplexities(rows)
    truth = {place: _mean_of_role(there, "oracle") for place, there in rows_by_setting(rows).items()}
    found = []
    for place, models in known.items():
        origin = place._replace(testing=IND)
        if is_same_policy(place) or origin not in known:
            continue
        ind, ood = truth[origin], truth[place]
        oracle = None if ind is None or ood is None else (ind, ood)
        found += [
            Shift(model, place, known[origin][model], level, oracle)
            for model, level in models.items()
            if model in known[origin]
        ]
    order = {model: i for i, model in enumerate(peers(rows))}
    return sorted(found, key=lambda shift: order[shift.model])


def mean_difference(found: Sequence[Shift]) -> Measured:
    """Ood nPPL minus ind nPPL over all shifts; the interval is over seeds that all of them have."""
    seeds = set.intersection(*(set(shift.ood.seeds) & set(shift.ind.seeds) for shift in found))
    by_each = [
        sum(shift.ood.seeds[seed] - shift.ind.seeds[seed] for shift in found) / len(found) for seed in sorted(seeds)
    ]
    mean = sum(shift.difference for shift in found) / len(found)
    return Measured(mean, measured(by_each).half, digits=3, signed=True)


def peers(rows: Sequence[Row]) -> list[str]:
    """The models that are compared, candidates first."""
    found = {text_of(row, "model"): role_of(row) for row in rows if role_of(row) in PEER_ROLES}
    return sorted(found, key=lambda model: PEER_ROLES.index(found[model]))


def _levels(rows: Sequence[Row]) -> dict[str, NormalisedPerplexity]:
    values = metric_by_seed([row for row in rows if role_of(row) in PEER_ROLES], "perplexity")
    among = [measured(list(seeds.values())).mean for seeds in values.values()]
    found = {}
    for model, seeds in values.items():
        perplexity = measured(list(seeds.values()))
        low, high = perplexity.mean - perplexity.half, perplexity.mean + perplexity.half
        found[model] = NormalisedPerplexity(
            perplexity,
            _normalised(perplexity.mean, among),
            _normalised(low, among),
            _normalised(high, among),
            {seed: _normalised(value, among) for seed, value in seeds.items()},
        )
    return found


def _normalised(value: float, among: Sequence[float]) -> float:
    """Eq. 16; one model alone has nobody to be compared with."""
    return normalised_perplexity(value, among) if len(among) > 1 else math.nan


def _mean_of_role(rows: Sequence[Row], role: str) -> float | None:
    values = [row["perplexity"] for row in rows if role_of(row) == role and row.get("perplexity") is not None]
    return sum(values) / len(values) if values else None


def oracle_gap_figure(rows: Sequence[Row]) -> Any:
    """Perplexity above the oracle's on each test log of one training log: what each model loses beyond what nobody can
    know. None where there is no oracle."""
    import plotly.graph_objects as go

    logs = rows_by_setting(rows)
    found = {place: metric_by_seed(there, "perplexity") for place, there in logs.items()}
    roles = {text_of(row, "model"): role_of(row) for row in rows}
    oracles = [model for model, role in roles.items() if role == "oracle"]
    truth = {place: found[place][name] for place in logs for name in oracles if name in found[place]}
    logs = {place: there for place, there in logs.items() if place in truth}
    if not logs:
        return None
    names = [IND if place.testing == IND else f"ood<br>{html.escape(place.testing)}" for place in logs]
    figure = go.Figure()
    models = [model for model in peers(rows) if any(model in found[place] for place in logs)]
    step = 0.6 / max(len(models), 1)
    for i, model in enumerate(models):
        excess = [
            measured([value - next(iter(truth[place].values())) for value in found[place].get(model, {}).values()])
            for place in logs
        ]
        figure.add_scatter(
            name=html.escape(model),
            x=[n + step * (i - (len(models) - 1) / 2) for n in range(len(logs))],
            y=[None if math.isnan(value.mean) else value.mean for value in excess],
            error_y={"type": "data", "array": [0 if math.isnan(value.half) else value.half for value in excess]},
            mode="markers",
            marker={"color": COLOURS[i % len(COLOURS)], "size": 8, "symbol": SYMBOLS[i % len(SYMBOLS)]},
            text=[str(value) for value in excess],
            hovertemplate="%{fullData.name}: %{text}<extra></extra>",
        )
    log = next(iter(logs))
    figure.update_layout(
        title={"text": LogName(*log[:2]).as_chart_title(), "x": 0.5, "y": 0.97, "yanchor": "top", "font": {"size": 14}},
        template="plotly_white",
        width=480,
        height=430,
        yaxis={"title": "perplexity above the oracle's", "rangemode": "tozero"},
        xaxis={
            "tickvals": list(range(len(logs))),
            "ticktext": names,
            "range": [-0.5, len(logs) - 0.5],
            "tickfont": {"size": 10},
        },
        legend={"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.2, "yanchor": "top"},
        margin={"l": 62, "r": 32, "t": 58, "b": 105},
    )
    return figure
