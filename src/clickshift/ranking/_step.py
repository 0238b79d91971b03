"""The compiled training program: one round over all batches, and the loss on held-out clicks.

Everything here is traced by JAX. Runs with equal programs may be stacked along a new first dimension and trained side
by side.
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

from clickshift.ranking import _losses as losses

Tree = Any
"""A pytree: nested dictionaries of arrays."""
_OPTIMISERS = {
    "adam": optax.scale_by_adam,
    "adagrad": lambda: optax.scale_by_rss(initial_accumulator_value=0.0, eps=1e-10),
    "sgd": optax.identity,
}


@dataclass(frozen=True)
class RankingProgram:
    """The part of a run that is traced. Equal programs on arrays of equal shapes are compiled once.

    Parameters
    ----------
    loss
        "pointwise", "click", "additive" or "listwise".
    tower
        "network" or "one-hot".
    dropout
        Dropout rate after each hidden layer of a network.
    optimiser
        "adam", "adagrad" or "sgd".
    learns_examination
        Whether examination, or with loss "additive" the logits of the ranks, are estimated along with relevance.
    by_cell
        Whether a document may have several loss terms.
    """

    loss: str
    tower: str
    dropout: tuple[float, ...]
    optimiser: str
    learns_examination: bool
    by_cell: bool

    def initial_state(self, weights: Mapping[str, np.ndarray]) -> Tree:
        """Return the training state before the first round."""
        weights_on_device = {name: jnp.asarray(array, jnp.float32) for name, array in weights.items()}
        return {"weights": weights_on_device, "optimiser": _OPTIMISERS[self.optimiser]().init(weights_on_device)}

    def scores(self, weights: Tree, features: Any, pair: Any, key: Any) -> Any:
        """Return the scores of the documents of a batch, with dropout if there is a random key."""
        if self.tower == "one-hot":
            return weights["table"][features.at[pair].get(mode="clip")] + weights["intercept"]
        values = features.at[pair].get(mode="clip")
        for layer, rate in enumerate(self.dropout):
            values = _elu(values @ weights[f"{layer}"] + weights[f"{layer}.bias"])
            if rate > 0 and key is not None:
                kept = _dropout_mask(jax.random.fold_in(key, layer), rate, values.shape)
                values = jnp.where(kept, values / (1 - rate), 0.0)
        last = len(self.dropout)
        return (values @ weights[f"{last}"] + weights[f"{last}.bias"])[:, 0]

    def batch_loss(self, weights: Tree, data: Tree, batch: Tree, key: Any) -> Any:
        """Return the loss of a batch: the sum over the documents of a query, averaged over its queries."""
        score = self.scores(weights, data["features"], batch["pair"], key)
        if self.loss == "listwise":
            normaliser = _log_sum_exp_by_query(score, batch["query"])
        index = batch["term" if self.by_cell else "pair"]
        terms = {name: column[index] for name, column in data.items() if name != "features"}
        if self.by_cell:
            score = score[batch["place"]]
        if self.loss == "listwise":
            entries = losses.listwise(score, normaliser, terms["positive"])
        elif self.loss == "pointwise":
            entries = losses.pointwise(score, terms["positive"], terms["total"])
        elif self.loss == "additive":
            entries = losses.pointwise(score + weights["examination"][terms["rank"]], terms["positive"], terms["total"])
        else:
            if self.learns_examination:
                examined = losses.log_examination_from_logit(weights["examination"][terms["rank"]])
            else:
                examined = losses.LogExamination(terms["examined"], terms["unexamined"])
            entries = losses.click(score, examined, terms["positive"], terms["total"])
        return jnp.sum(entries) / jnp.maximum(batch["queries"], 1.0)

    def round(self, state: Tree, train: Tree, seed: Any, rate: Any) -> tuple[Tree, Any]:
        """Make one pass over the batches; return the state and the mean training loss of the batches."""
        optimiser = _OPTIMISERS[self.optimiser]()
        n_batches = train["batches"]["queries"].shape[0]
        key = jax.random.key(seed)

        def step(carry: Tree, numbered_batch: Any) -> tuple[Tree, Any]:
            number, batch = numbered_batch
            weights, moments = carry
            loss, gradient = jax.value_and_grad(self.batch_loss)(
                weights, train["data"], batch, jax.random.fold_in(key, number)
            )
            direction, moments = optimiser.update(gradient, moments)
            return (jax.tree.map(lambda value, change: value - rate * change, weights, direction), moments), loss

        carry = state["weights"], state["optimiser"]
        (weights, moments), train_losses = jax.lax.scan(step, carry, (jnp.arange(n_batches), train["batches"]))

        return {"weights": weights, "optimiser": moments}, jnp.mean(train_losses)

    def held_out_loss(self, weights: Tree, held_out: Tree) -> Any:
        """Return the loss on held-out clicks, averaged over queries."""

        def summed_loss(batch: Tree) -> Any:
            return self.batch_loss(weights, held_out["data"], batch, None) * batch["queries"]

        total = jnp.sum(jax.lax.map(summed_loss, held_out["batches"]))
        return total / jnp.sum(held_out["batches"]["queries"])


@jax.custom_vjp
def _elu(x: Any) -> Any:
    """Return ELU; its gradient is computed from its value, so that the exponential is not computed twice."""
    return jnp.where(x > 0, x, jnp.exp(jnp.minimum(x, 0.0)) - 1)


def _elu_gradient(value: Any, gradient: Any) -> tuple[Any]:
    """Return the gradient with respect to the input of ELU, from its value."""
    return (gradient * jnp.where(value > 0, 1.0, value + 1),)


_elu.defvjp(lambda x: (_elu(x),) * 2, _elu_gradient)


def _dropout_mask(key: Any, rate: float, shape: tuple[int, ...]) -> Any:
    """Return a mask that is False with probability `rate`.

    The random bits are a hash of the index (Wellons' lowbias32): JAX's own generator takes longer than the layer.
    """
    bits = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape) + jax.random.bits(key, (), jnp.uint32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        bits = (bits ^ (bits >> shift)) * jnp.uint32(factor)
    return bits ^ (bits >> 16) >= jnp.uint32(round(rate * 2**32))


@lru_cache(maxsize=64)
def compile_program(program: RankingProgram, side_by_side: bool) -> tuple[Any, Any]:
    """Compile `round` and `held_out_loss` of a program.

    The state and the losses always have a first dimension of runs. The other arguments have it for runs side by side
    only: one run's features are not copied to add it.
    """

    if side_by_side:
        return jax.jit(jax.vmap(program.round), donate_argnums=0), jax.jit(jax.vmap(program.held_out_loss))
    return _with_run_axis(jax.jit(program.round, donate_argnums=0)), _with_run_axis(jax.jit(program.held_out_loss))


def _with_run_axis(compiled: Any) -> Any:
    """Return a function of one run whose first argument and result have a first dimension of runs.

    The dimension is removed outside the compiled program, inside of which it would change how sums are rounded.
    """

    def of_one_run(first: Tree, *others: Tree) -> Tree:
        result = compiled(jax.tree.map(lambda array: array[0], first), *others)
        return jax.tree.map(lambda array: array[None], result)

    return of_one_run


def to_device(trees: Sequence[Tree], side_by_side: bool) -> Tree:
    """Return the arrays of one run, or those of several runs stacked, as JAX arrays.

    Arrays of different lengths are padded with zeros, which is right for loss terms and for batches without a query.
    """
    if not side_by_side:
        return jax.tree.map(jnp.asarray, trees[0])
    return jax.tree.map(lambda *arrays: jnp.asarray(_pad_and_stack([np.asarray(array) for array in arrays])), *trees)


def _pad_and_stack(arrays: list[np.ndarray]) -> np.ndarray:
    """Stack arrays along a new first dimension, padded with zeros to the largest shape."""
    shape = [max(sizes) for sizes in zip(*(array.shape for array in arrays), strict=True)]
    padding = [[(0, largest - size) for largest, size in zip(shape, array.shape, strict=True)] for array in arrays]
    return np.stack([np.pad(array, width) if shape else array for array, width in zip(arrays, padding, strict=True)])


def _log_sum_exp_by_query(score: Any, query: Any) -> Any:
    """Return for every document the log-sum-exp of the scores of its query; padding is a query of its own."""
    n = score.shape[0] + 1
    largest = jax.ops.segment_max(jax.lax.stop_gradient(score), query, n, indices_are_sorted=True)[query]
    total = jax.ops.segment_sum(jnp.exp(score - largest), query, n, indices_are_sorted=True)[query]
    return largest + jnp.log(total)
