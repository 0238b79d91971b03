"""A gated recurrent unit over a tree of lists, with a backward pass of its own.

Lists that begin with the same documents and clicks share a branch, and its states are computed once. Left to itself,
XLA differentiates the unrolled recurrence into long chains of small operations, and spends most of a step there.
Written by hand, the chain holds one matrix product per rank, and what pairs add to the gates is never laid out per
result.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from clickshift.models._formulas import Gru

Array = Any


class TreeLevel(NamedTuple):
    """The branches at one rank."""

    pair: Array
    """The document, as a row of the table of inputs."""
    above: Array
    """1 where the result above was clicked, else 0."""
    parent: Array
    """The branch of the rank above."""


@jax.custom_vjp
def tree_states(inputs: Array, clicked: Array, unit: Gru, levels: list[TreeLevel]) -> list[Array]:
    """States after each rank (`branch state`), from what each pair (`pair 3*state`) and a click above add to the
    gates."""
    return _forward(inputs, clicked, unit, levels)[0]


def _forward(inputs: Array, clicked: Array, unit: Gru, levels: list[TreeLevel]) -> tuple[list[Array], Any]:
    """Each step is `formulas.gru_step`, with what the backward pass needs kept."""
    size = unit.weight.shape[0]
    state, states, kept = jnp.zeros((1, size), inputs.dtype), [], []
    for level in levels:
        before = state[level.parent]
        gates, recurrent = inputs[level.pair] + level.above[:, None] * clicked, before @ unit.weight + unit.bias
        open_ = jax.nn.sigmoid(gates[:, : 2 * size] + recurrent[:, : 2 * size])
        new = jnp.tanh(gates[:, 2 * size :] + open_[:, :size] * recurrent[:, 2 * size :])
        state = new + open_[:, size:] * (before - new)
        states.append(state)
        kept.append((before, open_, new, recurrent[:, 2 * size :]))
    return states, (inputs, unit, levels, kept)


def _backward(saved: Any, slopes: list[Array]) -> tuple[Array, Array, Gru, None]:
    """From the last rank up; `slopes` are d loss / d states."""
    inputs, unit, levels, kept = saved
    size = unit.weight.shape[0]
    of_inputs, of_clicked = jnp.zeros_like(inputs), jnp.zeros_like(unit.bias)
    of_weight, of_bias = jnp.zeros_like(unit.weight), jnp.zeros_like(unit.bias)
    from_below = jnp.zeros_like(slopes[-1])
    for rank in reversed(range(len(levels))):
        level, (before, open_, new, candidate) = levels[rank], kept[rank]
        reset, update = open_[:, :size], open_[:, size:]
        total = slopes[rank] + from_below
        of_new = total * (1 - update) * (1 - new * new)
        of_open = jnp.concatenate([of_new * candidate, total * (before - new)], axis=1) * open_ * (1 - open_)
        of_gates = jnp.concatenate([of_open, of_new], axis=1)
        of_recurrent = jnp.concatenate([of_open, of_new * reset], axis=1)
        of_inputs = of_inputs.at[level.pair].add(of_gates)
        of_clicked += level.above @ of_gates
        of_weight += before.T @ of_recurrent
        of_bias += of_recurrent.sum(axis=0)
        if rank > 0:
            of_before = total * update + of_recurrent @ unit.weight.T
            from_below = jnp.zeros_like(slopes[rank - 1]).at[level.parent].add(of_before)
    return of_inputs, of_clicked, Gru(of_weight, of_bias), None


tree_states.defvjp(_forward, _backward)
