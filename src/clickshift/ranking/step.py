"""The compiled program: a round of training over all batches, and the loss on held-out clicks.

Everything here is traced by JAX. Runs whose program is equal may be stacked along a new first dimension and trained
side by side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from clickshift.ranking import losses

Tree = Any
"""Nested dictionaries of arrays."""
_OPTIMISERS = {
    "adam": optax.scale_by_adam,
    "adagrad": lambda: optax.scale_by_rss(initial_accumulator_value=0.0, eps=1e-10),
    "sgd": optax.identity,
}


@dataclass(frozen=True)
class RankingProgram:
    """What is traced. Equal programs on arrays of equal shapes are compiled once."""

    loss: str
    """"pointwise", "click" or "listwise"."""
    tower: str
    dropout: tuple[float, ...]
    optimiser: str
    learns_examination: bool
    by_cell: bool
    """Whether a document may have several terms of the loss."""

    def start(self, weights: Mapping[str, np.ndarray]) -> Tree:
        """The state before the first round."""
        there = {name: jnp.asarray(array, jnp.float32) for name, array in weights.items()}
        optimiser = _OPTIMISERS[self.optimiser]().init(there)
        best = jax.tree.map(jnp.zeros_like, there)  # until the first round
        return {"weights": there, "optimiser": optimiser, "best": best, "best_loss": jnp.float32(jnp.inf)}

    def scores(self, weights: Tree, features: Any, pair: Any, key: Any) -> Any:
        """Of the documents of a batch; without a key, nothing is dropped."""
        if self.tower == "one-hot":
            return weights["table"][features.at[pair].get(mode="clip")] + weights["intercept"]
        values = features.at[pair].get(mode="clip")
        for layer, share in enumerate(self.dropout):
            values = _elu(values @ weights[f"{layer}"] + weights[f"{layer}.bias"])
            if share > 0 and key is not None:
                kept = _kept(jax.random.fold_in(key, layer), share, values.shape)
                values = jnp.where(kept, values / (1 - share), 0.0)
        last = len(self.dropout)
        return (values @ weights[f"{last}"] + weights[f"{last}.bias"])[:, 0]

    def batch_loss(self, weights: Tree, data: Tree, batch: Tree, key: Any) -> Any:
        """Summed over the documents of each query, averaged over the queries of the batch."""
        score = self.scores(weights, data["features"], batch["pair"], key)
        if self.loss == "listwise":
            normaliser = _log_sums(score, batch["query"])
        at = batch["term" if self.by_cell else "pair"]
        terms = {name: column[at] for name, column in data.items() if name != "features"}
        if self.by_cell:
            score = score[batch["place"]]
        if self.loss == "listwise":
            entries = losses.listwise(score, normaliser, terms["positive"])
        elif self.loss == "pointwise":
            entries = losses.pointwise(score, terms["positive"], terms["total"])
        else:
            if self.learns_examination:
                examined = losses.log_examination_of(weights["examination"][terms["rank"]])
            else:
                examined = losses.LogExamination(terms["examined"], terms["unexamined"])
            entries = losses.click(score, examined, terms["positive"], terms["total"])
        return jnp.sum(entries) / jnp.maximum(batch["queries"], 1.0)

    def round(self, state: Tree, train: Tree, judge: Tree, seed: Any, rate: Any, active: Any) -> tuple[Tree, Any, Any]:
        """One pass over the batches, then the loss on held-out clicks; weights that do best are kept.

        Gives the state, the mean loss of the batches while they were learned from, and the held-out loss.
        """
        optimiser = _OPTIMISERS[self.optimiser]()
        n = train["batches"]["queries"].shape[0]
        key = jax.random.key(seed)

        def step(now: Tree, at: Any) -> tuple[Tree, Any]:
            number, batch = at
            weights, moments = now
            loss, slope = jax.value_and_grad(self.batch_loss)(
                weights, train["data"], batch, jax.random.fold_in(key, number)
            )
            change, moments = optimiser.update(slope, moments)
            return (jax.tree.map(lambda value, move: value - rate * move, weights, change), moments), loss

        now = state["weights"], state["optimiser"]
        (weights, moments), lost = jax.lax.scan(step, now, (jnp.arange(n), train["batches"]))

        def judged(batch: Tree) -> Any:
            return self.batch_loss(weights, judge["data"], batch, None) * batch["queries"]

        held_out = jnp.sum(jax.lax.map(judged, judge["batches"])) / jnp.sum(judge["batches"]["queries"])
        better = active & (held_out < state["best_loss"])
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), weights, state["best"])
        best_loss = jnp.where(better, held_out, state["best_loss"])
        after = {"weights": weights, "optimiser": moments, "best": best, "best_loss": best_loss}
        return after, jnp.mean(lost), held_out


@jax.custom_vjp
def _elu(x: Any) -> Any:
    """Its slope is told from its value: nothing is computed twice."""
    return jnp.where(x > 0, x, jnp.exp(jnp.minimum(x, 0.0)) - 1)


def _elu_slope(value: Any, slope: Any) -> tuple[Any]:
    return (slope * jnp.where(value > 0, 1.0, value + 1),)


_elu.defvjp(lambda x: (_elu(x),) * 2, _elu_slope)


def _kept(key: Any, share: float, shape: tuple[int, ...]) -> Any:
    """True but for a share. A hash of the place (Wellons' lowbias32): JAX's own bits take longer than the layer."""
    bits = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape) + jax.random.bits(key, (), jnp.uint32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        bits = (bits ^ (bits >> shift)) * jnp.uint32(factor)
    return bits ^ (bits >> 16) >= jnp.uint32(round(share * 2**32))


@lru_cache(maxsize=64)
def compiled(program: RankingProgram, side_by_side: bool) -> Any:
    """`Program.round`, or that of several runs at once: all arguments then have a first dimension of runs."""
    one = program.round
    return jax.jit(jax.vmap(one) if side_by_side else one, donate_argnums=0)


def on_device(trees: Sequence[Tree], side_by_side: bool) -> Tree:
    """One run's arrays, or those of several stacked. Where they differ in length zeros fill them up, which is right for
    terms and for batches without a query."""
    if not side_by_side:
        return jax.tree.map(jnp.asarray, trees[0])
    return jax.tree.map(lambda *arrays: jnp.asarray(_stacked([np.asarray(array) for array in arrays])), *trees)


def per_run(tree: Tree, n: int, side_by_side: bool) -> list[Tree]:
    """Back again, as numpy arrays."""
    arrays = jax.tree.map(np.array, tree)
    return [jax.tree.map(lambda array, k=k: array[k], arrays) for k in range(n)] if side_by_side else [arrays]


def _stacked(arrays: list[np.ndarray]) -> np.ndarray:
    shape = [max(sizes) for sizes in zip(*(array.shape for array in arrays), strict=True)]
    short = [[(0, most - size) for most, size in zip(shape, array.shape, strict=True)] for array in arrays]
    return np.stack([np.pad(array, missing) if shape else array for array, missing in zip(arrays, short, strict=True)])


def _log_sums(score: Any, query: Any) -> Any:
    """For every document the log of the sum of exp(score) over its query; what fills a batch up is a query of its
    own."""
    n = score.shape[0] + 1
    most = jax.ops.segment_max(jax.lax.stop_gradient(score), query, n, indices_are_sorted=True)[query]
    total = jax.ops.segment_sum(jnp.exp(score - most), query, n, indices_are_sorted=True)[query]
    return most + jnp.log(total)
