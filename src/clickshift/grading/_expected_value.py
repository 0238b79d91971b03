"""Relevance as an expected value: what a result earns if users examine it, P(click | examined) x E[value | click]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from clickshift.core.progress import Progress, silent
from clickshift.counts.open_log import LogLike
from clickshift.data.signal_values import SignalValue
from clickshift.data.vocabulary import UNSEEN
from clickshift.errors import SpecError
from clickshift.grading.conversions import Conversions, conversions
from clickshift.io.read_report import OnBadLine
from clickshift.models.base import ClickModel


def conversions_for(
    value: str,
    log: LogLike | Conversions | None,
    *,
    level: float,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> Conversions:
    """Return the conversions of one value: those that are given, or those of a log.

    Raises
    ------
    SpecError
        "missing-log" without either, "unknown-signal" if the given conversions do not have the value.
    """
    if log is None:
        raise SpecError(
            f"the value {value} needs the log with its conversions. Pass it as log (--log).", code="missing-log"
        )
    if not isinstance(log, Conversions):
        options: Any = {"columns": columns, "on_bad_line": on_bad_line, "progress": progress}
        return conversions(log, value, level=level, **options)
    text = SignalValue.parse(value).text
    for k, own in enumerate(log.values):
        if own.text == text:
            return Conversions((own,), (log.counts[k],), (log.rates[k],), log.without_click, log.level)
    known = [str(own) for own in log.values]
    raise SpecError(
        f"the conversions must be those of the value {text}: they are of {', '.join(known)}. Pass the log instead.",
        code="unknown-signal",
        value=text,
        known=known,
    )


def expected_value_table(model: ClickModel, worth: Conversions, *, level: float) -> tuple[Any, Float[np.ndarray, " p"]]:
    """Return the relevance table of a model with expected values in place of relevance, and the values by pair.

    The interval joins that of relevance and that of the value of a click on the logarithmic scale, as independent.
    Pairs that the conversions do not hold have the mean value of all clicks, and no interval.

    Parameters
    ----------
    model
        A fitted click model.
    worth
        Conversions of one value.
    level
        Confidence level of the intervals.

    Returns
    -------
    tuple
        A pyarrow table like `ClickModel.relevance_table`, with the columns click_relevance, value_per_click and
        conversions; and the expected value of each pair of the vocabulary.
    """
    import pyarrow as pa

    vocabulary, rates, click = model.vocabulary, worth.rates[0], worth.values[0].click
    number = worth.vocabulary.pairs_of(vocabulary)
    known = number != UNSEEN
    per_click = np.where(known, rates.value[number], rates.mean) + click
    low = np.where(known, rates.low[number], np.nan) + click
    high = np.where(known, rates.high[number], np.nan) + click
    order = np.lexsort((-model.relevance(), vocabulary.pair_query))
    table = model.relevance_table(level=level).take(np.argsort(order))  # by pair
    relevance = table["relevance"].to_numpy()
    value = relevance * per_click
    bounds = []
    with np.errstate(divide="ignore", invalid="ignore"):
        for side, own, other in ((-1, "low", low), (1, "high", high)):
            distances = (
                np.maximum(side * np.log(table[own].to_numpy() / relevance), 0.0),
                np.maximum(side * np.log(other / per_click), 0.0),
            )
            bounds.append(np.where(value > 0, value * np.exp(side * np.hypot(*distances)), 0.0))
    columns = {
        "relevance": value,
        "low": bounds[0],
        "high": bounds[1],
        "click_relevance": relevance,
        "value_per_click": per_click,
        "conversions": np.where(known, rates.conversions[number], 0.0),
    }
    for name, column in columns.items():
        array = pa.array(column)
        if name in table.column_names:
            table = table.set_column(table.column_names.index(name), name, array)
        else:
            table = table.append_column(name, array)
    return table.take(np.lexsort((-value, vocabulary.pair_query))), value
