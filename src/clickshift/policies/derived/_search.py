"""Searches for the order of given documents that click models expect most clicks from.

What is searched is the order of each query's list, as places in the list that was given. All lists of all queries go
through a search together, so that a model is asked about thousands of them at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from jaxtyping import Float, Int

from clickshift.data.sessions import Rankings
from clickshift.models.base import ClickModel
from clickshift.policies.derived._optimal_orders import Order

COARSE, FINE, PRECISE = 0.3, 0.03, 1e-9
"""Tolerances of `ClickModel.expected_clicks`: for finding a good list, for improving on it, and for stating its value,
to six digits. Only NCM takes notice of them."""
_GAIN = 1e-6
"""Clicks by which a list must be better to replace another: more than rounding gives."""
_LISTS = 1 << 16
"""Lists that are looked at in one go."""
_NUMBERED = 20
"""Orders of up to so many documents are numbered by 64 bits."""


@final
@dataclass(frozen=True, eq=False)
class PredictedReward:
    """What models that differ by seed expect of lists: the mean of their expected clicks, less `penalty` standard
    deviations."""

    models: Sequence[ClickModel]
    lists: Rankings
    """One per query: the documents whose order is sought."""
    penalty: float = 0.0

    @cached_property
    def _translated(self) -> list[Rankings]:
        """In each model's vocabulary: a search asks hundreds of times."""
        return [self.lists.in_vocabulary(model.vocabulary) for model in self.models]

    def clicks(
        self, row: Int[np.ndarray, " list"], order: Int[np.ndarray, "list rank"], tolerance: float
    ) -> Float[np.ndarray, "model list"]:
        """Expected clicks of reordered lists: `row` says of which, `order` how."""
        clicks = np.empty((len(self.models), len(row)))
        for k, (model, lists) in enumerate(zip(self.models, self._translated, strict=True)):
            pair = np.take_along_axis(lists.pair[row], order, axis=1)
            asked = Rankings(lists.vocabulary, lists.query[row], pair, lists.shown[row])
            clicks[k] = model.expected_clicks(asked, tolerance=tolerance)
        return clicks

    def value(
        self, row: Int[np.ndarray, " list"], order: Int[np.ndarray, "list rank"], tolerance: float
    ) -> Float[np.ndarray, " list"]:
        clicks = self.clicks(row, order, tolerance)
        spread = clicks.std(axis=0, ddof=1) if self.penalty else 0.0
        value: np.ndarray = clicks.mean(axis=0) - self.penalty * spread
        return value


def local_search(promise: PredictedReward, starts: Sequence[Order]) -> Order:
    """From each start, change the order while that helps; the best of what was found.

    A step looks at one rank and all ranks below it: it exchanges the documents of the two, or moves one of them to the
    other's place, whichever helps most. Steps go from the last rank to the first and round again, and a list is done
    when a whole round has not changed it. Exchanges alone would be a third of the work, but on NCM one start with moves
    beats three without. With the finer tolerance, only the best list of each query is improved.
    """
    queries = len(promise.lists)
    row, order = np.tile(np.arange(queries), len(starts)), np.concatenate(starts)
    coarse = _climb(promise, row, order, COARSE)
    fine = promise.value(row, order, FINE)
    best = fine.reshape(-1, queries).argmax(axis=0) * queries + np.arange(queries)
    found: np.ndarray = order[best]
    if not np.array_equal(coarse, fine):  # else the models are exact whatever the tolerance, and nothing is left to do
        _climb(promise, row[best], found, FINE)
    return found


def _climb(
    promise: PredictedReward,
    row: Int[np.ndarray, " list"],
    order: Int[np.ndarray, "list rank"],
    tolerance: float,
) -> Float[np.ndarray, " list"]:
    """Changes `order`, and gives the values reached."""
    length, n_ranks = promise.lists.length[row], promise.lists.n_ranks
    value = promise.value(row, order, tolerance)
    quiet = np.zeros(len(row), np.int64)  # steps since the list changed
    changes = [_changes(rank, n_ranks) for rank in range(n_ranks - 1)]
    rank = 0
    while (active := np.flatnonzero(quiet < length - 1)).size:
        rank = rank - 1 if rank > 0 else n_ranks - 2
        active = active[rank < length[active] - 1]  # the others have nothing below this rank
        if not active.size:
            continue
        change, lowest = changes[rank]
        tried = order[active][:, change]
        exists = lowest < length[active][:, None]
        found = np.full(exists.shape, -np.inf)
        asked = np.broadcast_to(row[active][:, None], exists.shape)
        found[exists] = promise.value(asked[exists], tried[exists], tolerance)
        chosen = found.argmax(axis=1)
        best = found[np.arange(len(active)), chosen]
        better = best > value[active] + _GAIN
        order[active[better]] = tried[better, chosen[better]]
        value[active[better]] = best[better]
        quiet[active] = np.where(better, 0, quiet[active] + 1)
    return value


def _changes(rank: int, n_ranks: int) -> tuple[Int[np.ndarray, "change rank"], Int[np.ndarray, " change"]]:
    """What a step tries at a rank, as places, with the lowest rank that each touches. Neighbours begin alike."""
    found = set()
    for below in range(rank + 1, n_ranks):
        between = list(range(rank + 1, below))
        for part in ([below, *between, rank], [below, rank, *between], [*between, below, rank]):
            found.add(((*range(rank), *part, *range(below + 1, n_ranks)), below))
    change, lowest = zip(*sorted(found), strict=True)
    return np.array(change), np.array(lowest)


def sampled_search(promise: PredictedReward, samples: int, *, rng: np.random.Generator) -> Order:
    """The best of so many orders, drawn without repetition, the same for all queries with as many documents; all
    orders where there are no more. NCM's are compared with the finer of the tolerances."""
    lists = promise.lists
    order = np.tile(np.arange(lists.n_ranks), (len(lists), 1))
    for length in np.unique(lists.length).tolist():
        queries = np.flatnonzero(lists.length == length)
        drawn = _sample_orders(length, samples, rng=rng)
        tried = np.tile(np.arange(lists.n_ranks), (len(drawn), 1))
        tried[:, :length] = drawn
        best = np.full(len(queries), -np.inf)
        step = max(1, _LISTS // len(queries))
        for start in range(0, len(tried), step):
            part = tried[start : start + step]
            row = np.repeat(queries, len(part))
            found = promise.value(row, np.tile(part, (len(queries), 1)), FINE).reshape(len(queries), len(part))
            chosen = found.argmax(axis=1)
            value = found[np.arange(len(queries)), chosen]
            better = value > best
            order[queries[better]] = part[chosen[better]]
            best[better] = value[better]
    return order


def _sample_orders(n: int, samples: int, *, rng: np.random.Generator) -> Int[np.ndarray, "order rank"]:
    """Different orders of n things, sorted, so that neighbours begin alike: `samples` at random, or all."""
    if n > _NUMBERED:  # nobody can try them all, and two that are equal are as good as never drawn
        shuffled = rng.permuted(np.tile(np.arange(n), (samples, 1)), axis=1)
        return np.unique(shuffled, axis=0)
    total = math.factorial(n)
    number = np.arange(total) if samples >= total else np.sort(rng.choice(total, samples, replace=False, shuffle=False))
    left = np.tile(np.arange(n), (len(number), 1))
    orders = np.empty((len(number), n), np.int64)
    rows = np.arange(len(number))
    for rank in range(n):  # the digits of the number in base n!, each choosing one of the things left
        digit, number = np.divmod(number, math.factorial(n - 1 - rank))
        orders[:, rank] = left[rows, digit]
        keep = np.arange(n - rank - 1) + (np.arange(n - rank - 1) >= digit[:, None])
        left = np.take_along_axis(left, keep, axis=1)
    return orders
