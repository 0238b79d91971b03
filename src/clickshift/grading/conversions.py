"""conversions: what follows a click, P(signal | click) and the mean value per click of each document."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
from typing_extensions import override

from clickshift.core.progress import Progress, silent
from clickshift.core.text import join_words
from clickshift.counts.column_totals import ColumnTotals
from clickshift.counts.conversion_counts import ConversionCounts
from clickshift.counts.open_log import LogLike, open_log
from clickshift.counts.segment_conversions import SegmentConversions
from clickshift.data.days import time_range
from clickshift.data.description import describe_log, log_source
from clickshift.data.encoded_log import EncodedLog, Log
from clickshift.data.sessions import Sessions
from clickshift.data.signal_values import SignalValue, signal_columns
from clickshift.data.vocabulary import Vocabulary
from clickshift.display.document import Document, Section
from clickshift.display.figures import dot_plot
from clickshift.display.result import Result
from clickshift.display.tables import Rows, facts_table
from clickshift.errors import ClickshiftWarning, DataError, SpecError
from clickshift.grading._segment_rates import RATE_LEVEL, SegmentRates, as_count
from clickshift.io.read_report import OnBadLine
from clickshift.io.tables.extra_columns import columns_with
from clickshift.learners.conversion_rates import ConversionRates, conversion_rates, rank_dependence

__all__ = ["Conversions", "conversions", "open_log_with_signals"]

_DOCUMENTS_SHOWN = 15


@final
@dataclass(frozen=True, repr=False, eq=False)
class Conversions(Result):
    """What follows a click: conversion rates and values per click of (query, document) pairs, with intervals.

    Parameters
    ----------
    values
        The signals, or weighted sums of them.
    counts
        Clicks and conversions of each.
    rates
        Estimates for each.
    without_click
        "drop" or "keep": what became of conversions without a click.
    level
        Confidence level of the intervals.
    segments
        Conversions by segment: for each value, those of each segment of the log.
    data
        The log, in one line.

    Notes
    -----
    Keys of `to_dict`, which `clickshift conversions --json` prints:

    - signals: for each signal its name, clicks, conversions and value (sum over conversions), clicks_with_unknown_value
      (left out), conversions_without_click and without_click ("drop" or "keep"), rate (conversions per click),
      value_per_click, strength (pseudo-clicks at the rate of the query that a document gets), rank_slope (relative
      change of the rate per rank, for the same documents), rank_p_value, and by_rank: rank, clicks, conversions, and
      expected conversions if documents converted alike at all ranks;
    - by_segment, of a log with segments: for each segment and signal its name, p_value of the test that the same
      documents convert alike on all labels, rank_slope and rank_p_value within labels, and labels: label, sessions,
      impressions, click_through_rate, relative_clicks (clicks divided by what they were if the same documents were
      clicked alike at the same ranks), clicks, conversions, rate with rate_low and rate_high, relative_conversions, and
      value per click with low and high;
    - queries, pairs: numbers of queries and of pairs with clicks;
    - conclusion.
    """

    values: tuple[SignalValue, ...]
    counts: tuple[ConversionCounts, ...]
    rates: tuple[ConversionRates, ...]
    without_click: str
    level: float
    segments: tuple[SegmentRates, ...] = ()
    data: str = ""

    @property
    def vocabulary(self) -> Vocabulary:
        """Vocabulary of the pairs."""
        return self.counts[0].vocabulary

    @property
    @override
    def conclusion(self) -> str:
        sentences = []
        for facts in self._signals():
            text = f"{facts['rate']:.1%} of {facts['clicks']:,.0f} clicks are followed by {facts['signal']}"
            if not _is_rate(facts):
                text += f", worth {facts['value_per_click']:.4g} per click"
            if facts["rank_p_value"] < RATE_LEVEL and not self._explanation(facts["signal"]):
                text += f"; the same documents convert {facts['rank_slope']:+.1%} per rank"
            sentences.append(f"{text}.")
            if n := facts["conversions_without_click"]:
                treatment = "left out" if self.without_click == "drop" else "counted as clicked"
                sentences.append(f"{as_count(n):,} results with {facts['signal']} but without a click are {treatment}.")
        return " ".join([*sentences, *(text for own in self.segments if (text := own.sentence()))])

    def _explanation(self, signal: str) -> str:
        """Name a segment within which conversions do not depend on the rank, and which differ by it; "" if none."""
        for own in self.segments:
            if str(own.value) == signal and own.differs and own.rank_trend[1] >= RATE_LEVEL:
                return own.name
        return ""

    def _signals(self) -> Rows:
        """Return the facts of each signal."""
        rows: Rows = []
        for value, counts in zip(self.values, self.counts, strict=True):
            clicks, conversions, total, _ = counts.by_rank()
            n = clicks.sum()
            slope, p_value = rank_dependence(counts)
            rates = self.rates[len(rows)]
            by_rank = [
                {"rank": r + 1, "clicks": float(c), "conversions": float(k), "expected": float(e)}
                for r, (c, k, e) in enumerate(zip(clicks, conversions, counts.expected_by_rank(), strict=True))
            ]
            rows.append(
                {
                    "signal": str(value),
                    "clicks": float(n),
                    "conversions": float(conversions.sum()),
                    "value": float(total.sum()),
                    "clicks_with_unknown_value": counts.unknown,
                    "conversions_without_click": counts.without_click,
                    "without_click": self.without_click,
                    "rate": float(conversions.sum() / n) if n else math.nan,
                    "value_per_click": float(total.sum() / n) + value.click if n else math.nan,
                    "strength": rates.strength,
                    "rank_slope": slope,
                    "rank_p_value": p_value,
                    "by_rank": by_rank,
                }
            )
        return rows

    @override
    def rows(self) -> Rows:
        """Return a row per clicked pair and signal.

        Its columns are query, doc, signal, clicks, conversions, rate (shrunk), value per click, low, high and support.
        """
        table = self.to_arrow()
        rows: Rows = table.to_pylist()
        return rows

    @override
    def to_arrow(self) -> Any:
        import pyarrow as pa

        vocabulary, tables = self.vocabulary, []
        for value, rates in zip(self.values, self.rates, strict=True):
            pair = np.flatnonzero(rates.clicks > 0)
            columns = {
                "query": vocabulary.query_ids[vocabulary.pair_query[pair]],
                "doc": vocabulary.doc_ids[vocabulary.pair_doc[pair]],
                "signal": np.full(len(pair), str(value), object),
                "clicks": _whole(rates.clicks[pair]),
                "conversions": _whole(rates.conversions[pair]),
                "rate": rates.rate[pair],
                "value": rates.value[pair] + value.click,
                "low": rates.low[pair] + value.click,
                "high": rates.high[pair] + value.click,
                "support": rates.support[pair],
            }
            tables.append(pa.table({name: pa.array(column.tolist()) for name, column in columns.items()}))
        return pa.concat_tables(tables, promote_options="permissive")

    @override
    def facts(self) -> Mapping[str, Any]:
        clicked = self.rates[0].clicks > 0
        return {
            "signals": self._signals(),
            **({"by_segment": [own.facts() for own in self.segments]} if self.segments else {}),
            "queries": len(np.unique(self.vocabulary.pair_query[clicked])),
            "pairs": int(clicked.sum()),
            "conclusion": self.conclusion,
        }

    @override
    def _document(self) -> Document:
        facts, signals = dict(self.facts()), self._signals()
        sections = [
            Section(
                f"{own['signal']} by rank of the click",
                table=[
                    {
                        "rank": row["rank"],
                        "clicks": as_count(row["clicks"]),
                        "conversions": as_count(row["conversions"]),
                        "expected": round(row["expected"], 1),
                    }
                    for row in own["by_rank"]
                ],
                caption="Expected: if every document converted alike at all ranks.",
                page_only=True,
            )
            for own in signals
        ]
        others = [
            {name: as_count(v) if name in _COUNTS else v for name, v in own.items() if name != "by_rank"}
            for own in signals
        ]
        details = [Section(f"{own['signal']}: counts", table=facts_table(own), page_only=True) for own in others]
        tops = [self._top(k) for k in range(len(self.values))]
        return Document(
            "Conversions",
            self.conclusion,
            [*(own.section() for own in self.segments), *tops[1:], *sections, *details],
            settings={"without click": self.without_click, "level": self.level},
            data="; ".join(filter(None, (self.data, f"{facts['pairs']:,} clicked documents", *self._remarks(signals)))),
            headline=tops[0],
        )

    def _remarks(self, signals: Rows) -> Iterator[str]:
        """Count, by signal, conversions without a click and clicks of unknown value."""
        kept = "counted as clicked" if self.without_click == "keep" else "left out"
        for fact, text, treatment in (
            ("conversions_without_click", "conversions without a click", kept),
            ("clicks_with_unknown_value", "clicks of unknown value", "left out"),
        ):
            if found := [f"{own[fact]:,.0f} of {own['signal']}" for own in signals if own[fact]]:
                yield f"{text}, {treatment}: {', '.join(found)}"

    def _top(self, number: int) -> Section:
        """Show the documents with the most clicks."""
        import pyarrow.compute as pc

        table, name = self.to_arrow(), str(self.values[number])
        own = table.filter(pc.equal(table["signal"], name)).sort_by([("clicks", "descending")])
        rows = own.slice(0, _DOCUMENTS_SHOWN).to_pylist()
        shown = [
            {name: row[name] for name in ("query", "doc", "clicks", "conversions", "value", "low", "high")}
            for row in rows
        ]
        dots = [{"label": f"{r['query']}: {r['doc']}"[:_LABEL], **r} for r in rows]
        return Section(
            f"{name}: the most clicked documents",
            table=shown,
            figure=partial(dot_plot, dots, axis=f"{name} per click, with {self.level:.0%} intervals") if dots else None,
            name=name,
        )


_COUNTS = frozenset({"clicks", "conversions", "clicks_with_unknown_value", "conversions_without_click"})
"""Facts of a signal that are counts."""
_LABEL = 30
"""Most characters of a label in a chart."""


def conversions(
    log: LogLike,
    signals: str | Sequence[str],
    *,
    without_click: str = "drop",
    level: float = 0.95,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> Conversions:
    """Estimate what follows a click: P(signal | click), or the mean value per click, of each (query, document) pair.

    Estimates are conditional on the click: they rest on clicked results only, and are shrunk towards the rate of the
    query and of all queries as far as documents are alike. Position bias enters P(signal) through the click alone, if
    the rate of a document does not depend on the rank of the click. That is tested.

    Warns ("conversion-depends-on-rank") if it does beyond chance, and ("all-zero-signal") if no click was followed by
    a signal.

    Parameters
    ----------
    log
        Anything that `open_log` opens.
    signals
        Signals of the log such as "purchase", or weighted sums such as "click + 3*cart + 10*purchase". Of a file or a
        data frame, columns of these names are read.
    without_click
        What becomes of conversions of results that were not clicked: "drop" leaves them out, "keep" counts them as
        clicked. Their number is reported.
    level
        Confidence level of the intervals.
    columns
        The log's names of our columns; "signal:cart" is our name of the column of the signal cart.
    on_bad_line
        "error", or "skip" to leave out bad sessions of the log.
    progress
        Called with a text on the state of the work.

    Returns
    -------
    Conversions
        Rates and values per click with intervals.

    Raises
    ------
    SpecError
        If a text is no signal and no sum of signals ("bad-value"), the log has no such signal ("unknown-signal"), or
        `without_click` is not valid ("bad-option").
    DataError
        If no click has a known value ("no-known-clicks").
    FileError
        If the log cannot be read; see `read_log`.

    Examples
    --------
    >>> import pandas as pd
    >>> log = pd.DataFrame({"query": ["tv"] * 4, "docs": [["a", "b"]] * 4, "clicks": [[1, 0]] * 4,
    ...                     "purchase": [[1, 0], [0, 0], [0, 0], [0, 0]]})
    >>> [(row["doc"], row["clicks"], row["conversions"]) for row in conversions(log, "purchase").rows()]
    [('a', 4, 1)]
    """
    texts = [signals] if isinstance(signals, str) else list(signals)
    values = tuple(SignalValue.parse(text) for text in texts)
    if not values:
        raise SpecError("there must be at least one signal.", code="bad-value", value=texts)
    if without_click not in {"drop", "keep"}:
        raise SpecError(
            f"without_click must be 'drop' or 'keep': got {without_click!r}.",
            code="bad-option",
            option="without_click",
            value=without_click,
        )
    opened = open_log_with_signals(log, values, columns=columns, on_bad_line=on_bad_line, progress=progress)
    counts = ConversionCounts.of(opened, values, keep_without_click=without_click == "keep", progress=progress)
    for value, own in zip(values, counts, strict=True):
        if not own.clicks.any():
            raise DataError(
                f"there must be a click with a known value of {value}: the log has none, and {own.unknown:,.0f} clicks "
                "of unknown value. Check the column.",
                code="no-known-clicks",
                signal=str(value),
                unknown=own.unknown,
            )
    by_segment = SegmentConversions.of(opened, values, keep_without_click=without_click == "keep")
    result = Conversions(
        values,
        tuple(counts),
        tuple(conversion_rates(own, level=level) for own in counts),
        without_click,
        level,
        tuple(SegmentRates(own, k, value, level) for k, value in enumerate(values) for own in by_segment),
        _describe(opened, log),
    )
    _warn(result)
    return result


def _describe(opened: Log, log: Any) -> str:
    """Describe a log in one line, with its holes, signals and segments."""
    first, last = time_range(opened.time)
    columns = ColumnTotals.sum([ColumnTotals.of(part) for part in opened.chunks()])
    queries = opened.vocabulary.n_queries
    described = describe_log(opened.total, queries, source=log_source(log), first=first, last=last)
    return "; ".join(filter(None, (described, columns.describe())))


def open_log_with_signals(
    log: LogLike,
    values: Sequence[SignalValue],
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> Log:
    """Open a log with the columns of some signals.

    Parameters
    ----------
    log
        Anything that `open_log` opens.
    values
        The values whose signals are read.
    columns, on_bad_line, progress
        As in `open_log`.

    Returns
    -------
    Sessions or EncodedLog
        The log.
    """
    if isinstance(log, Sessions | EncodedLog):
        return log
    chosen = columns_with(columns, signals=signal_columns(values))
    return open_log(log, columns=chosen, on_bad_line=on_bad_line, progress=progress)


def _warn(result: Conversions) -> None:
    """Warn of signals that nothing carries, and of rates that depend on the rank of the click."""
    signals = result._signals()
    if zero := [facts["signal"] for facts in signals if not facts["conversions"]]:
        warnings.warn(
            ClickshiftWarning(
                f"no click was followed by {join_words(zero)}: all rates are next to 0. Check the column, and whether "
                "conversions are on results that were clicked (without_click).",
                code="all-zero-signal",
                signals=zero,
            ),
            stacklevel=3,
        )
    for facts in signals:
        if facts["rank_p_value"] < RATE_LEVEL and not result._explanation(facts["signal"]):
            warnings.warn(
                ClickshiftWarning(
                    f"{facts['signal']}: the same documents convert {facts['rank_slope']:+.1%} per rank of the click "
                    f"(p = {facts['rank_p_value']:.1g}), so a conversion rate is not that of the document alone. "
                    "Compare documents that were clicked at similar ranks.",
                    code="conversion-depends-on-rank",
                    signal=facts["signal"],
                    slope=facts["rank_slope"],
                    p_value=facts["rank_p_value"],
                ),
                stacklevel=3,
            )


def _whole(counts: np.ndarray) -> np.ndarray:
    """Return counts as integers, unless some of them are fractions, because sessions had weights."""
    return counts if (counts % 1).any() else counts.astype(np.int64)


def _is_rate(facts: Mapping[str, Any]) -> bool:
    """Return whether a signal is 0 or 1, so that its value is its rate."""
    return math.isclose(facts["value_per_click"], facts["rate"])
