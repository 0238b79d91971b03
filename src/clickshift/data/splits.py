"""Train/test splits of a log, by the name of the method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from clickshift.core.rng import generator
from clickshift.errors import DataError

_Log = TypeVar("_Log")

SPLITS: dict[str, Callable[[Any, float, int], tuple[Any, Any]]] = {
    "random": lambda log, fraction, seed: log.split(fraction, rng=generator(seed, "comparison", "split")),
    "time": lambda log, fraction, seed: log.split_by_time(fraction),
    "order": lambda log, fraction, seed: log.split_in_order(fraction),
    "within-query": lambda log, fraction, seed: log.split_within_queries(fraction),
}
"""Train/test splits of a log: at random, by time, in the order of its rows, or in the order of each query's rows."""


def check_split(split: str) -> None:
    """Check the name of a split.

    Parameters
    ----------
    split
        Name of the method, one of `SPLITS`.

    Raises
    ------
    DataError
        "bad-option" for another name.
    """
    if split not in SPLITS:
        raise DataError(
            f"a split must be one of {', '.join(SPLITS)}: got {split!r}.",
            code="bad-option",
            option="split",
            value=split,
            known=list(SPLITS),
        )


def split_sessions(log: _Log, split: str = "random", fraction: float = 0.8, seed: int = 0) -> tuple[_Log, _Log]:
    """Split a log into a training part and a test part.

    Parameters
    ----------
    log
        `Sessions` or an `EncodedLog`.
    split
        Name of the method, one of `SPLITS`.
    fraction
        Share of the sessions in the first part, between 0 and 1.
    seed
        Random seed for a random split.

    Returns
    -------
    tuple
        The training part and the test part, of the same type as the log.

    Raises
    ------
    DataError
        "bad-option" for an unknown method, "missing-time" for a log without times, "empty-split" if a part would be
        empty.
    """
    check_split(split)
    return SPLITS[split](log, fraction, seed)
