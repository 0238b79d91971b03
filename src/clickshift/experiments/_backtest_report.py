"""The report of a backtest: which estimator would have been right about past days, in words, numbers and pictures."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.display.document import Section, write_report
from clickshift.display.export import Written, write_exports
from clickshift.display.figures import COLOURS
from clickshift.display.tables import Row
from clickshift.experiments.backtest import DAYS, IN_ORDER, RANDOM, BacktestResult
from clickshift.io.table_writer import write_rows

_TITLE = "Backtest: would off-policy evaluation have been right about past days?"
_STRUCTURED = ("IP", "PBM", "Item")
_BASELINES = ("List", "RCTR")
_PUBLISHED = {"clicks@2": (0.1790, 0.1318), "clicks@3": (0.4624, 0.1250), "dcg": (0.8196, 0.1065)}
"""By how much the error of IP is below those of List and RCTR, at any M of 100 or more, for the 100 most frequent
queries of the Yandex log (Li et al. 2018, section 6.3)."""
_LARGE = 100.0
_HOW = """Each day in turn is taken for the day of a new policy: how often its lists were shown is the target, its mean
reward the truth, and the estimators see all other days. The error is the root mean square over queries and days, each
pair counted once whatever its traffic (Li et al. 2018, section 6). The choice of an estimator and its clipping constant
M was made on the same days: on days to come it will do a little worse than here."""
_HOW_GAINS = """The structured estimator (IP, PBM or Item) with the least error, beside List, which assumes nothing of
clicks, and RCTR, which takes all policies to earn the same; each with its best M. With 95 % intervals over queries,
where there are at least 10."""
_HOW_ERRORS = """Error against the clipping constant M. A line that is far above the others is beyond the chart; the
legend says so."""
_HOW_DAYS = """What an estimator made of each day less what the day earned, on average over queries; each estimator with
its best M. An estimator that is off on a few days has not seen what those days showed; one that is always off on the
same side is biased."""
_HOW_QUERY = """One query day by day. Where clicks at the first rank move and clicks at all ranks do not, users have
found the good results elsewhere in the list, and RCTR is hard to beat for clicks at all ranks (section 6.5)."""
_HOW_PUBLISHED = """By how much the error of IP is below those of the two baselines at the same M, at any M of 100 or
more, beside what was found for the 100 most frequent queries of the Yandex log (section 6.3)."""


def write_backtest_report(folder: Path, found: BacktestResult, settings: Mapping[str, Any]) -> Written:
    """Write report.html, rows.parquet, queries.parquet, days.parquet, and tables and charts in the folder exports."""
    rows, days = found.rows, found.day_rows
    write_rows(rows, folder / "rows.parquet")
    write_rows(found.query_rows, folder / "queries.parquet")
    write_rows(days, folder / "days.parquet")
    words, gains, published = backtest_conclusion(found), gain_table(found), _published_table(found)
    errors, lines = _error_figures(rows), _day_figures(found, days)
    single = _query_figures(found, days)
    sections = [
        Section("What was found", f"{words}\n\n{_HOW}"),
        Section("Structured estimators against the baselines", _HOW_GAINS, gains),
        Section("Beside the published numbers", _HOW_PUBLISHED, published),
        Section("Errors", _HOW_ERRORS, parts=_parts(errors)),
        Section("Day by day", _HOW_DAYS, parts=_parts(lines)),
        Section("A single query", _HOW_QUERY, parts=_parts(single)),
        Section("Errors in numbers", table=error_table(found)),
    ]
    sections = [section for section in sections if section.table or section.parts or section.title == "What was found"]
    write_report(folder / "report.html", title=_TITLE, sections=sections, settings=settings)
    tables = {"gains": gains, "published": published, "errors": error_table(found)}
    exports = write_exports(folder / "exports", {k: t for k, t in tables.items() if t}, errors | lines | single)
    notes = [exports.note] if exports.note else []
    return Written(folder / "report.html", folder / "rows.parquet", exports.files, [], {"Backtest": gains}, notes)


def backtest_conclusion(found: BacktestResult) -> str:
    """What was compared, what was found for the most frequent queries, and what to choose."""
    group = next(iter(found.groups))
    tasks = list(dict.fromkeys(r.task for r in found.residuals))
    first = next(row for row in found.rows if row["group"] == group)
    about = f"{_many(first['queries'], 'query', 'queries')} on {len(found.days)} {_DAY_WORDS[found.split][0]}"
    dropped = (
        f", {first['pairs_dropped']:,} dropped because the query has no session in that "
        f"{_DAY_WORDS[found.split][1]}, or in no other"
        if first["pairs_dropped"]
        else ""
    )
    paragraphs = [f"Compared: {about}, {first['pairs']:,} pairs{dropped}."]
    if found.split != DAYS:
        paragraphs.append(_ABOUT_PARTS + (_ABOUT_RANDOM if found.split == RANDOM else ""))
    for baseline in _BASELINES:
        said = [text for task in tasks if (text := _against(found, task, group, baseline))]
        if said:
            paragraphs.append(f"Structured estimators against {baseline}: {'; '.join(said)}.")
    chosen = [found.choice(task, group) for task in tasks]
    listed = "; ".join(f"{row['task']}: {_with_clip(row)}, error {row['rmse']:.4f}" for row in chosen)
    return "\n\n".join([*paragraphs, f"Least error: {listed}."])


_DAY_WORDS = {DAYS: ("days", "day"), RANDOM: ("random parts", "part"), IN_ORDER: ("parts in order", "part")}
_ABOUT_PARTS = "Parts of each query's sessions stand for days."
_ABOUT_RANDOM = (
    " Nothing drifts between random parts, so that the target is the policy of the log but for chance: RCTR is right "
    "here by design, and the test says how much chance an estimator lets in, not how it bears a new ranker."
)


def _against(found: BacktestResult, task: str, group: str, baseline: str) -> str:
    best = _best_structured(found, task, group)
    if best is None or baseline not in found.protocol.estimators:
        return ""
    value, low, high = found.gain(task, group, best["estimator"], baseline)
    if math.isnan(value):
        return ""
    unclear = ", which may be chance" if low <= 0 <= high else ""
    side = "below" if value >= 0 else "above"
    value, low, high = (value, low, high) if value >= 0 else (-value, -high, -low)
    interval = "" if math.isnan(low) else f" ({_percents(low, high)})"
    return f"{task}, {best['estimator']} is {100 * value:.0f} % {side}{interval}{unclear}"


def _best_structured(found: BacktestResult, task: str, group: str) -> dict[str, Any] | None:
    rows = [row for row in found.rows if (row["task"], row["group"]) == (task, group)]
    rows = [row for row in rows if row["estimator"] in _STRUCTURED and not math.isnan(row["rmse"])]
    return min(rows, key=lambda row: float(row["rmse"]), default=None)


def gain_table(found: BacktestResult) -> list[dict[str, Any]]:
    """By group and task: the best structured estimator, the baselines, and how far it is below them."""
    table = []
    baselines = [name for name in _BASELINES if name in found.protocol.estimators]
    for group, queries in found.groups.items():
        for task in found.protocol.tasks:
            best = _best_structured(found, task, group)
            if best is None:
                continue
            line: dict[str, Any] = {"queries": group, "reward": task, "best structured": _with_clip(best)}
            line["its error"] = best["rmse"]
            for baseline in baselines:
                value, low, high = found.gain(task, group, best["estimator"], baseline)
                line[f"error of {baseline}"] = float(found.of(task, baseline).rmse(queries).min())
                line[f"below {baseline}"] = f"{100 * value:.1f} %" + (
                    "" if math.isnan(low) else f" ({_percents(low, high)})"
                )
            line |= {"pairs": best["pairs"], "dropped": best["pairs_dropped"]}
            table.append(line)
    return table


def _published_table(found: BacktestResult) -> list[dict[str, Any]]:
    """IP against the baselines as the paper compares them; empty where the backtest has not what that takes."""
    large = np.array(found.protocol.clip) >= _LARGE
    if not {"IP", *_BASELINES} <= set(found.protocol.estimators) or not large.any():
        return []
    queries, table = next(iter(found.groups.values())), []
    for task in (task for task in found.protocol.tasks if task in _PUBLISHED):
        error = {name: found.of(task, name).rmse(queries)[large] for name in ("IP", *_BASELINES)}
        line: dict[str, Any] = {"reward": task}
        for baseline, published in zip(_BASELINES, _PUBLISHED[task], strict=True):
            line[f"IP below {baseline}"] = f"{100 * (1 - error['IP'] / error[baseline]).min():.1f} %"
            line[f"published, {baseline}"] = f"{100 * published:.1f} %"
        table.append(line)
    return table


def error_table(found: BacktestResult) -> list[dict[str, Any]]:
    """By group, task and estimator: the least error, that without clipping, and pairs without overlap."""
    table = []
    for group, queries in found.groups.items():
        for r in found.residuals:
            error = r.rmse(queries)
            best = 0 if np.isnan(error).all() else int(np.nanargmin(error))
            table.append(
                {
                    "queries": group,
                    "reward": r.task,
                    "estimator": r.estimator,
                    "best M": _clip_text(r.clip[best]),
                    "error": float(error[best]),
                    f"at M = {_clip_text(r.clip[-1])}": float(error[-1]),
                    "pairs": int(r.used[queries].sum()),
                    "without overlap": int(r.lost[queries].sum()),
                }
            )
    return table


def _error_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Error against M, a line per estimator, by task and group: figures 1 to 4 of the paper."""
    figures = {}
    for task, group in dict.fromkeys((row["task"], row["group"]) for row in rows):
        here = [row for row in rows if (row["task"], row["group"]) == (task, group)]
        lines = {
            name: ([_clip_text(row["M"]) for row in mine], [row["rmse"] for row in mine])
            for name in dict.fromkeys(row["estimator"] for row in here)
            if (mine := [row for row in here if row["estimator"] == name])
        }
        axes = {"xaxis": {"title": "clipping constant M", "type": "category"}, "yaxis": {"title": "error (RMSE)"}}
        figures[f"{task}, {group}"] = _figure(f"{task}, {group}", lines, axes, _error_range(lines))
    return figures


def _day_figures(found: BacktestResult, days: Sequence[Row]) -> dict[str, Any]:
    """Residuals day by day, on average over the most frequent queries."""
    group, figures = next(iter(found.groups)), {}
    for task in found.protocol.tasks:
        title, lines = f"{task}, {group}: estimate less truth", _by_day(days, task, group, "residual")
        axes = {"xaxis": {"title": _DAY_WORDS[found.split][1]}, "yaxis": {"title": "residual", "zeroline": True}}
        figures[title] = _figure(title, lines, axes, _range(lines))
    return figures


def _query_figures(found: BacktestResult, days: Sequence[Row]) -> dict[str, Any]:
    """Of the single query: clicks at the first rank and at all, and what estimators made of each day (figure 5)."""
    group = list(found.groups)[-1]
    query = int(found.groups[group][0])
    axes = {"xaxis": {"title": _DAY_WORDS[found.split][1]}, "yaxis": {"title": "per session"}}
    clicks = {
        name: (list(found.days), [None if math.isnan(v) else v for v in values[query].tolist()])
        for name, values in (("clicks at rank 1", found.first_clicks), ("clicks at all ranks", found.all_clicks))
    }
    highest = max(value for _, values in clicks.values() for value in values if value is not None)
    title = f"{group}: clicks by rank"
    figures = {title: _figure(title, clicks, axes, (0.0, 1.06 * highest + 1e-6))}
    for task in found.protocol.tasks:
        mine = [row for row in days if (row["task"], row["group"]) == (task, group)]
        first = [row for row in mine if row["estimator"] == found.protocol.estimators[0]]
        truth: Lines = {"truth": ([row["day"] for row in first], [row["actual"] for row in first])}
        lines, title = truth | _by_day(days, task, group, "estimated"), f"{group}: {task}"
        figures[title] = _figure(title, lines, axes | {"yaxis": {"title": f"{task} per session"}}, _range(lines))
    return figures


Lines = dict[str, tuple[list[str], list[Any]]]


def _by_day(days: Sequence[Row], task: str, group: str, column: str) -> Lines:
    here = [row for row in days if (row["task"], row["group"]) == (task, group)]
    lines: Lines = {}
    for row in here:
        x, y = lines.setdefault(row["estimator"], ([], []))
        x.append(row["day"])
        y.append(row[column])
    return lines


_STYLES = {
    "List": (COLOURS[1], "diamond", "solid"),
    "IP": (COLOURS[0], "circle", "solid"),
    "PBM": (COLOURS[2], "square", "solid"),
    "Item": (COLOURS[4], "triangle-up", "solid"),
    "RCTR": (COLOURS[6], "x", "dash"),
    "truth": ("#222222", "circle-open", "solid"),
}
"""An estimator looks the same in all charts."""


def _figure(title: str, lines: Lines, axes: Mapping[str, Any], reach: tuple[float, float]) -> Any:
    import plotly.graph_objects as go

    figure, (low, high) = go.Figure(), reach
    for i, (name, (x, y)) in enumerate(lines.items()):
        colour, symbol, dash = _STYLES.get(name, (COLOURS[i % len(COLOURS)], "circle", "solid"))
        known = [value for value in y if value is not None and not math.isnan(value)]
        outside = bool(known) and (min(known) > high or max(known) < low)
        nearest = min(known, key=abs) if outside else math.nan
        figure.add_scatter(
            name=html.escape(f"{name} (beyond: {nearest:.3g})" if outside else name),
            x=x,
            y=[None if value is None or math.isnan(value) else value for value in y],
            mode="lines+markers",
            line={"color": colour, "width": 2, "dash": dash},
            marker={"size": 6, "symbol": symbol},
            hovertemplate="%{x}: %{y:.4f}<extra>%{fullData.name}</extra>",
        )
    figure.update_layout(
        title={"text": html.escape(title), "x": 0.5, "y": 0.97, "yanchor": "top", "font": {"size": 14}},
        template="plotly_white",
        width=480,
        height=430,
        legend={"orientation": "h", "x": 0.5, "xanchor": "center", "yref": "container", "y": 0.0, "yanchor": "bottom"},
        margin={"l": 62, "r": 32, "t": 58, "b": 120},
        **axes,
    )
    figure.update_xaxes(type="category")
    figure.update_yaxes(range=[low, high])
    return figure


def _error_range(lines: Lines) -> tuple[float, float]:
    """From 0 to well above the errors that estimators other than List have at their best."""
    least = {name: min((v for v in y if not math.isnan(v)), default=0.0) for name, (_, y) in lines.items()}
    others = [value for name, value in least.items() if name != "List"] or list(least.values())
    return 0.0, 2.5 * max(others) + 1e-6


def _range(lines: Lines) -> tuple[float, float]:
    """Of all lines, but List only as far as three times the range of the others: it would flatten them."""
    known = {name: [v for v in y if v is not None and not math.isnan(v)] for name, (_, y) in lines.items()}
    others = [v for name, values in known.items() if name != "List" for v in values]
    others = others or [v for values in known.values() for v in values] or [0.0, 1.0]
    low, high = min(others), max(others)
    reach = max(high - low, 0.5 * max(abs(low), abs(high)), 1e-6)
    own = known.get("List", []) or others
    low, high = max(min(own + others), low - reach), min(max(own + others), high + reach)
    margin = 0.06 * (high - low) or 0.05
    return low - margin, high + margin


def _parts(figures: Mapping[str, Any]) -> list[Section]:
    return [Section(name, figure=figure) for name, figure in figures.items()]


def _with_clip(row: Row) -> str:
    return str(row["estimator"]) if row["estimator"] == "RCTR" else f"{row['estimator']}, M = {_clip_text(row['M'])}"


def _clip_text(clip: float) -> str:
    return "∞" if math.isinf(clip) else f"{clip:g}"


def _percents(low: float, high: float) -> str:
    return f"{round(100 * low)} to {round(100 * high)} %"


def _many(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
