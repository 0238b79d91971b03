"""Searches for the order of given documents that maximises click models' expected clicks.

The search space is the order of each query's list, as places in the given list. The lists of all queries go through a
search together, so that a model evaluates thousands of them at a time.
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
"""Tolerances of `ClickModel.expected_clicks`: for finding a good list, for improving it, and for reporting its value to
six digits. Only NCM uses them."""
_MIN_GAIN = 1e-6
"""Smallest gain in expected clicks for which a list replaces another: larger than rounding errors."""
_LISTS_PER_BATCH = 1 << 16
"""Number of lists that the sampled search evaluates at a time."""
_MAX_NUMBERED = 20
"""Largest number of documents whose orders can be numbered with 64 bits."""


@final
@dataclass(frozen=True, eq=False)
class PredictedReward:
    """Reward of lists predicted by models that differ by seed: mean expected clicks less a multiple of their spread.

    Parameters
    ----------
    models
        Click models.
    lists
        One list per query: the documents to order.
    penalty
        Number of standard deviations between models that are subtracted from the mean.
    """

    models: Sequence[ClickModel]
    lists: Rankings
    penalty: float = 0.0

    @cached_property
    def _translated(self) -> list[Rankings]:
        """The lists in each model's vocabulary, cached because a search evaluates them hundreds of times."""
        return [self.lists.in_vocabulary(model.vocabulary) for model in self.models]

    def clicks(
        self, row: Int[np.ndarray, " list"], order: Int[np.ndarray, "list rank"], tolerance: float
    ) -> Float[np.ndarray, "model list"]:
        """Return each model's expected clicks of reordered lists.

        Parameters
        ----------
        row
            Index in `lists` of each list to evaluate.
        order
            Its order.
        tolerance
            Tolerance of `ClickModel.expected_clicks`.
        """
        clicks = np.empty((len(self.models), len(row)))
        for k, (model, lists) in enumerate(zip(self.models, self._translated, strict=True)):
            pair = np.take_along_axis(lists.pair[row], order, axis=1)
            reordered = Rankings(lists.vocabulary, lists.query[row], pair, lists.shown[row])
            clicks[k] = model.expected_clicks(reordered, tolerance=tolerance)
        return clicks

    def value(
        self, row: Int[np.ndarray, " list"], order: Int[np.ndarray, "list rank"], tolerance: float
    ) -> Float[np.ndarray, " list"]:
        """Return the predicted reward of reordered lists; parameters as in `clicks`."""
        clicks = self.clicks(row, order, tolerance)
        spread = clicks.std(axis=0, ddof=1) if self.penalty else 0.0
        value: np.ndarray = clicks.mean(axis=0) - self.penalty * spread
        return value


def local_search(reward: PredictedReward, starts: Sequence[Order]) -> Order:
    """Improve each starting order by local changes and return the best order found for each query.

    A step considers one rank and all ranks below it: it exchanges the documents of the two, or moves one of them to the
    other's rank, whichever gains most. Steps go from the last rank to the first and round again, and a list is finished
    when a whole round has not changed it. Exchanges alone would be a third of the work, but on NCM one start with moves
    beats three without. With the finer tolerance, only the best list of each query is improved.

    Parameters
    ----------
    reward
        Objective function.
    starts
        Starting orders, each for all queries.
    """
    n_queries = len(reward.lists)
    row, order = np.tile(np.arange(n_queries), len(starts)), np.concatenate(starts)
    coarse = _improve(reward, row, order, COARSE)
    fine = reward.value(row, order, FINE)
    best = fine.reshape(-1, n_queries).argmax(axis=0) * n_queries + np.arange(n_queries)
    best_orders: np.ndarray = order[best]
    if not np.array_equal(coarse, fine):  # else the models ignore the tolerance, and the search is finished
        _improve(reward, row[best], best_orders, FINE)
    return best_orders


def _improve(
    reward: PredictedReward,
    row: Int[np.ndarray, " list"],
    order: Int[np.ndarray, "list rank"],
    tolerance: float,
) -> Float[np.ndarray, " list"]:
    """Improve `order` in place until no step gains, and return the values reached."""
    length, n_ranks = reward.lists.length[row], reward.lists.n_ranks
    value = reward.value(row, order, tolerance)
    steps_unchanged = np.zeros(len(row), np.int64)
    changes = [_changes(rank, n_ranks) for rank in range(n_ranks - 1)]
    rank = 0
    while (active := np.flatnonzero(steps_unchanged < length - 1)).size:
        rank = rank - 1 if rank > 0 else n_ranks - 2
        active = active[rank < length[active] - 1]  # the other lists have no document below this rank
        if not active.size:
            continue
        change, lowest = changes[rank]
        tried = order[active][:, change]
        exists = lowest < length[active][:, None]
        tried_value = np.full(exists.shape, -np.inf)
        tried_row = np.broadcast_to(row[active][:, None], exists.shape)
        tried_value[exists] = reward.value(tried_row[exists], tried[exists], tolerance)
        chosen = tried_value.argmax(axis=1)
        best = tried_value[np.arange(len(active)), chosen]
        better = best > value[active] + _MIN_GAIN
        order[active[better]] = tried[better, chosen[better]]
        value[active[better]] = best[better]
        steps_unchanged[active] = np.where(better, 0, steps_unchanged[active] + 1)
    return value


def _changes(rank: int, n_ranks: int) -> tuple[Int[np.ndarray, "change rank"], Int[np.ndarray, " change"]]:
    """Return the changes that a step tries at a rank, as places, and the lowest rank that each affects.

    They are sorted, so that neighbouring changes share their first ranks.
    """
    distinct = set()
    for below in range(rank + 1, n_ranks):
        between = list(range(rank + 1, below))
        for part in ([below, *between, rank], [below, rank, *between], [*between, below, rank]):
            distinct.add(((*range(rank), *part, *range(below + 1, n_ranks)), below))
    change, lowest = zip(*sorted(distinct), strict=True)
    return np.array(change), np.array(lowest)


def sampled_search(reward: PredictedReward, samples: int, *, rng: np.random.Generator) -> Order:
    """Return the best of `samples` random orders, the same ones for all queries with equally many documents.

    Orders are drawn without replacement; all orders are tried where there are no more than `samples`. NCM's are
    compared with the finer of the two search tolerances.

    Parameters
    ----------
    reward
        Objective function.
    samples
        Number of orders.
    rng
        Random generator.
    """
    lists = reward.lists
    order = np.tile(np.arange(lists.n_ranks), (len(lists), 1))
    for length in np.unique(lists.length).tolist():
        queries = np.flatnonzero(lists.length == length)
        drawn = _sample_orders(length, samples, rng=rng)
        tried = np.tile(np.arange(lists.n_ranks), (len(drawn), 1))
        tried[:, :length] = drawn
        best = np.full(len(queries), -np.inf)
        step = max(1, _LISTS_PER_BATCH // len(queries))
        for start in range(0, len(tried), step):
            batch = tried[start : start + step]
            row = np.repeat(queries, len(batch))
            values = reward.value(row, np.tile(batch, (len(queries), 1)), FINE).reshape(len(queries), len(batch))
            chosen = values.argmax(axis=1)
            value = values[np.arange(len(queries)), chosen]
            better = value > best
            order[queries[better]] = batch[chosen[better]]
            best[better] = value[better]
    return order


def _sample_orders(n: int, samples: int, *, rng: np.random.Generator) -> Int[np.ndarray, "order rank"]:
    """Return distinct orders of n items, `samples` at random or all of them, sorted so that neighbours share ranks."""
    if n > _MAX_NUMBERED:  # the orders are too many to enumerate, and duplicates have a negligible probability
        shuffled = rng.permuted(np.tile(np.arange(n), (samples, 1)), axis=1)
        return np.unique(shuffled, axis=0)
    total = math.factorial(n)
    number = np.arange(total) if samples >= total else np.sort(rng.choice(total, samples, replace=False, shuffle=False))
    remaining = np.tile(np.arange(n), (len(number), 1))
    orders = np.empty((len(number), n), np.int64)
    rows = np.arange(len(number))
    for rank in range(n):  # digits of the number in the factorial number system, each choosing a remaining item
        digit, number = np.divmod(number, math.factorial(n - 1 - rank))
        orders[:, rank] = remaining[rows, digit]
        keep = np.arange(n - rank - 1) + (np.arange(n - rank - 1) >= digit[:, None])
        remaining = np.take_along_axis(remaining, keep, axis=1)
    return orders
