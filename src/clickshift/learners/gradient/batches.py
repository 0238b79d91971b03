"""Batches: sessions dealt once into equal heaps, each counted once, so that a step computes nothing twice.

A batch knows its distinct pairs: a tower is computed once for each of them, not once for each result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from tempfile import TemporaryFile

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.grouping import distinct_rows
from clickshift.models.differentiable import ByExamination, Differentiable, Recurrent
from clickshift.models.histories import Histories
from clickshift.sessions import Sessions
from clickshift.statistics import situation_of

ENOUGH, LEAST = 64, 32
"""A small log gets smaller batches, so that an epoch has 64 of them; but not smaller than 32 sessions."""
RESIDENT = 1 << 30
"""Bytes of batches that are kept in memory; more are kept in a file, and streamed from it."""

Batch = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Log:
    """A log as the learner sees it: numbers of learned pairs, situations by number."""

    pair: Int[np.ndarray, "session rank"]
    """One more than the last number where a pair is not learned."""
    shown: Bool[np.ndarray, "session rank"]
    click: Bool[np.ndarray, "session rank"]
    count: Float[np.ndarray, " session"]
    situation: Int[np.ndarray, "session rank"] | None = None
    """For models that are learned from counts, the number of each result's situation."""
    as_tree: bool = False
    """For recurrent models: lists that begin alike are put together."""

    @property
    def total(self) -> float:
        return float(self.count.sum())

    def __getitem__(self, rows: slice | np.ndarray) -> Log:
        situation = None if self.situation is None else self.situation[rows]
        return Log(self.pair[rows], self.shown[rows], self.click[rows], self.count[rows], situation, self.as_tree)


def as_log(sessions: Sessions, model: type[Differentiable]) -> tuple[Log, Histories]:
    """With the situations that a model looks at, and the distinct histories, by which "prefix" numbers them."""
    by = model.situations if issubclass(model, ByExamination) else None
    pair = np.where(sessions.rankings.pair < 0, sessions.vocabulary.n_pairs, sessions.rankings.pair)
    click = sessions.click if by == "prefix" else np.zeros((1, sessions.n_ranks), bool)
    histories, where = Histories.of(click)
    situation = None if by is None else where if by == "prefix" else situation_of(by, sessions)
    count = sessions.count.astype(np.float64)
    as_tree = issubclass(model, Recurrent)
    return Log(pair, sessions.rankings.shown, sessions.click, count, situation, as_tree), histories


def dealt(log: Log, size: int, *, rng: np.random.Generator) -> list[np.ndarray]:
    """The rows of each batch, about `size` of them.

    A small log gets smaller batches: it must not be learned by heart before held-out sessions are looked at.
    """
    rows = len(log.count)
    size = min(size, max(rows // ENOUGH, LEAST))
    return np.array_split(rng.permutation(rows), -(-rows // size))


def training_batches(log: Log, heaps: list[np.ndarray], tables: Mapping[str, Int[np.ndarray, " pair"]]) -> Batch:
    """Each heap with its distinct pairs numbered from 0, and what a tower needs for them.

    `tables` say, for every table of the tower, in which row each pair stands. "row.<table>" are the distinct rows of a
    batch, "place.<table>" says for each distinct pair where its row stands among them.
    """

    def batch(k: int) -> Batch:
        heap = log[heaps[k]]
        pairs, place = np.unique(heap.pair[heap.shown], return_inverse=True)
        made = _counted(heap, place)
        for name, row_of_pair in tables.items():
            made[f"row.{name}"], made[f"place.{name}"] = np.unique(row_of_pair[pairs], return_inverse=True)
        return made

    return _stacked(batch, len(heaps), {f"row.{name}": int(rows.max()) + 1 for name, rows in tables.items()})


def held_out_batches(log: Log, size: int) -> Batch:
    """Slices of a log with pairs by their own numbers: the outputs of all pairs are at hand when it is judged."""

    def batch(k: int) -> Batch:
        part = log[k * size : (k + 1) * size]
        return _counted(part, part.pair[part.shown])

    return _stacked(batch, -(-len(log.count) // size), {})


def _counted(log: Log, place: Int[np.ndarray, " result"]) -> Batch:
    """What a loss is computed from, with `place` the number of the pair of each result that is shown.

    From counts, one entry per pair and situation: "cell.pair", "cell.situation", "impressions", "clicks".
    As a tree, for every rank one entry per branch: see `_tree`. Else one per result: "pair", "click", and "weight",
    which is 0 where nothing is shown.
    """
    if log.as_tree:
        return _tree(log, place)
    weight = np.broadcast_to(log.count[:, None], log.shown.shape)
    if log.situation is None:
        pair = np.zeros(log.shown.shape, np.int64)
        pair[log.shown] = place
        return {"pair": pair, "click": log.click, "weight": np.where(log.shown, weight, 0.0)}
    n_situations = int(log.situation.max()) + 1
    key, cell = np.unique(place * n_situations + log.situation[log.shown], return_inverse=True)
    pair, situation = np.divmod(key, n_situations)
    times = weight[log.shown]
    return {
        "cell.pair": pair,
        "cell.situation": situation,
        "impressions": np.bincount(cell, times, len(key)),
        "clicks": np.bincount(cell, times * log.click[log.shown], len(key)),
    }


def _tree(log: Log, place: Int[np.ndarray, " result"]) -> Batch:
    """For every rank r the distinct beginnings of lists: "pair.r", "above.r" (was the result above clicked), "parent.r"
    (the beginning without this result), "impressions.r" and "clicks.r"."""
    pair = np.full(log.shown.shape, -1, np.int64)
    pair[log.shown] = place
    branch = np.zeros(len(pair), np.int64)
    out: Batch = {}
    for rank in range(log.shown.shape[1]):
        rows = np.flatnonzero(log.shown[:, rank])
        above = log.click[rows, rank - 1].astype(np.int64) if rank else np.zeros(len(rows), np.int64)
        group, first = distinct_rows(np.stack([branch[rows], pair[rows, rank], above], axis=1))
        out[f"pair.{rank}"], out[f"above.{rank}"] = pair[rows[first], rank], above[first].astype(np.float64)
        out[f"parent.{rank}"] = branch[rows[first]]
        times = log.count[rows]
        out[f"impressions.{rank}"] = np.bincount(group, times, len(first))
        out[f"clicks.{rank}"] = np.bincount(group, times * log.click[rows, rank], len(first))
        branch[rows] = group
    return out


def _stacked(batch: Callable[[int], Batch], n: int, beyond: Mapping[str, int]) -> Batch:
    """Batches of different sizes as one array each, filled up with zeros, hence weight 0; but rows of tables with rows
    beyond the table's end, all different, so that every row is written once.

    What would take much memory is made twice, to know how wide it is, and kept in a file without a name.
    """
    first = batch(0)
    large = n * sum(array.nbytes for array in first.values()) > 2 * RESIDENT  # integers are halved below
    made = batch if large else [batch(k) for k in range(n)].__getitem__
    widest = dict.fromkeys(first, 0)
    for k in range(n):
        for name, array in made(k).items():
            widest[name] = max(widest[name], len(array))
    out: Batch = {}
    for name, array in first.items():
        kind = {"f": np.float32, "b": np.bool_}.get(array.dtype.kind, np.int32)
        shape: tuple[int, ...] = (n, widest[name], *array.shape[1:])
        out[name] = _in_a_file(shape, kind) if large else np.zeros(shape, kind)
        if name in beyond:
            out[name][:] = beyond[name] + np.arange(widest[name])
    for k in range(n):
        for name, array in made(k).items():
            out[name][k, : len(array)] = array
    return out


def _in_a_file(shape: tuple[int, ...], kind: type) -> np.ndarray:
    """Zeros in a file that has no name, and is gone when the array is."""
    with TemporaryFile() as file:  # the mapping holds on to it
        return np.memmap(file, kind, shape=shape)
