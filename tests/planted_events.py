"""Impressions and clicks of a log without defects, and one defect of tracking at a time, planted in the events."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from tests.planted_logs import Log

Planted = tuple[pd.DataFrame, float]
"""Events with a defect, and the true rate of the check that finds it."""


def clean_events(log: Log) -> pd.DataFrame:
    """The events of a log: impressions when a list is shown, and clicks seconds later."""
    row, rank = np.nonzero(log.shown)
    shown = pd.DataFrame(
        {
            "search_id": row,
            "query": log.texts[log.query[row]].astype(str),
            "doc": [f"d{doc}" for doc in log.doc[row, rank]],
            "rank": pd.array(rank + 1, dtype="Int64"),
            "seconds": log.time[row],
            "user": log.user[row],
            "arm": np.array(["new", "old"])[log.arm[row]],
            "event": "impression",
        }
    )
    clicked = shown[log.click[row, rank]].assign(event="click")
    clicked["seconds"] += 2.0 + 3.0 * clicked["rank"].to_numpy(float)
    return pd.concat([shown, clicked], ignore_index=True)


def timed(events: pd.DataFrame) -> pd.DataFrame:
    """Events in order of time, as a tracker stores them."""
    time = pd.Timestamp("2026-03-02") + pd.to_timedelta(events["seconds"].round(3), unit="s")
    return events.drop(columns="seconds").assign(time=time).sort_values("time", kind="stable")


def _chosen(events: pd.DataFrame, share: float, rng: np.random.Generator, kind: str | None = None) -> np.ndarray:
    """Index of a share of the events, of one kind or of all."""
    among = events.index if kind is None else events.index[events["event"] == kind]
    return rng.choice(among, round(share * len(among)), replace=False)


def ties(events: pd.DataFrame, share: float, rng: np.random.Generator) -> Planted:
    """Another document is shown at the rank of a share of the results, a second later; the rate is that of results."""
    others = events.loc[_chosen(events, share, rng, "impression")]
    others = others.assign(doc="other" + others["doc"], seconds=others["seconds"] + 1)
    results = int((events["event"] == "impression").sum()) + len(others)
    return pd.concat([events, others], ignore_index=True), len(others) / results


def repeated_events(events: pd.DataFrame, share: float, rng: np.random.Generator) -> Planted:
    """A share of the events are sent again within a minute."""
    copies = events.loc[_chosen(events, share, rng)]
    copies = copies.assign(seconds=copies["seconds"] + 60 * rng.random(len(copies)))
    repeated = pd.concat([events, copies], ignore_index=True)
    return repeated, len(copies) / len(repeated)


def clicks_without_impressions(events: pd.DataFrame, share: float, rng: np.random.Generator) -> Planted:
    """The impressions of a share of the clicked results are lost; half of the clicks have no rank, either."""
    lost = events.loc[_chosen(events, share, rng, "click")]
    events = events.copy()
    events.loc[lost.index[::2], "rank"] = pd.NA
    keys = pd.MultiIndex.from_frame(events[["search_id", "doc"]])
    gone = keys.isin(pd.MultiIndex.from_frame(lost[["search_id", "doc"]])) & (events["event"] == "impression")
    return events[~gone], len(lost) / int((events["event"] == "click").sum())


def clicks_before_impressions(events: pd.DataFrame, share: float, rng: np.random.Generator) -> Planted:
    """A share of the clicks are dated before their lists, by a clock that is slow."""
    return _delayed(events, share, rng, -120 - 60 * rng.random(len(events)))


def late_clicks(events: pd.DataFrame, share: float, rng: np.random.Generator) -> Planted:
    """A share of the clicks come hours later, on an old page."""
    return _delayed(events, share, rng, 3600 * (1 + 20 * rng.random(len(events))))


def _delayed(events: pd.DataFrame, share: float, rng: np.random.Generator, seconds: np.ndarray) -> Planted:
    rows = _chosen(events, share, rng, "click")
    events = events.copy()
    events.loc[rows, "seconds"] += seconds[rows]
    return events, len(rows) / int((events["event"] == "click").sum())


def left_out_events(events: pd.DataFrame, share: float, rng: np.random.Generator) -> Planted:
    """A share of the impressions of results that were not clicked have no rank; the rate is that of all events."""
    clicks = events.loc[events["event"] == "click", ["search_id", "doc"]]
    clicked = pd.MultiIndex.from_frame(events[["search_id", "doc"]]).isin(pd.MultiIndex.from_frame(clicks))
    rows = rng.choice(events.index[~clicked], round(share * len(events)), replace=False)
    events = events.copy()
    events.loc[rows, "rank"] = pd.NA
    return events, len(rows) / len(events)


EVENT_DEFECTS: dict[str, Callable[[pd.DataFrame, float, np.random.Generator], Planted]] = {
    "ties": ties,
    "repeated-events": repeated_events,
    "clicks-without-impressions": clicks_without_impressions,
    "clicks-before-impressions": clicks_before_impressions,
    "late-clicks": late_clicks,
    "left-out-events": left_out_events,
}
"""Defects of a share of the events, by the name of the check that finds them."""
