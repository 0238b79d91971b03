"""Gated recurrent unit over a tree of lists, with a hand-written backward pass.

Lists that begin with the same documents and clicks share a branch, and its states are computed once. Automatic
differentiation of the unrolled recurrence gives XLA long chains of small operations, which take most of a step. In the
hand-written form the chain has one matrix product per rank, and the inputs of pairs are never expanded per result.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from clickshift.models._formulas import Gru

Array = Any


class TreeLevel(NamedTuple):
    """Branches at one rank.

    Parameters
    ----------
    pair
        Pair of each branch, as a row of the table of inputs.
    above
        1 if the result above was clicked, otherwise 0.
    parent
        Branch of the rank above.
    """

    pair: Array
    above: Array
    parent: Array


@jax.custom_vjp
def tree_states(inputs: Array, clicked: Array, unit: Gru, levels: list[TreeLevel]) -> list[Array]:
    """Compute the states after each rank, of shape `branch state`.

    Parameters
    ----------
    inputs
        Contribution of each pair to the gates, of shape `pair 3*state`.
    clicked
        Contribution of a click on the result above to the gates.
    unit
        Weights of the recurrent unit.
    levels
        Branches at each rank.
    """
    return _forward(inputs, clicked, unit, levels)[0]


def _forward(inputs: Array, clicked: Array, unit: Gru, levels: list[TreeLevel]) -> tuple[list[Array], Any]:
    """Compute each step as `_formulas.gru_step` does, and keep what the backward pass needs."""
    size = unit.weight.shape[0]
    state, states, kept = jnp.zeros((1, size), inputs.dtype), [], []
    for level in levels:
        before = state[level.parent]
        gates, recurrent = inputs[level.pair] + level.above[:, None] * clicked, before @ unit.weight + unit.bias
        gate = jax.nn.sigmoid(gates[:, : 2 * size] + recurrent[:, : 2 * size])
        new = jnp.tanh(gates[:, 2 * size :] + gate[:, :size] * recurrent[:, 2 * size :])
        state = new + gate[:, size:] * (before - new)
        states.append(state)
        kept.append((before, gate, new, recurrent[:, 2 * size :]))
    return states, (inputs, unit, levels, kept)


def _backward(saved: Any, state_gradients: list[Array]) -> tuple[Array, Array, Gru, None]:
    """Propagate gradients from the last rank to the first; `state_gradients` are d loss / d states."""
    inputs, unit, levels, kept = saved
    size = unit.weight.shape[0]
    d_inputs, d_clicked = jnp.zeros_like(inputs), jnp.zeros_like(unit.bias)
    d_weight, d_bias = jnp.zeros_like(unit.weight), jnp.zeros_like(unit.bias)
    d_from_below = jnp.zeros_like(state_gradients[-1])
    for rank in reversed(range(len(levels))):
        level, (before, gate, new, candidate) = levels[rank], kept[rank]
        reset, update = gate[:, :size], gate[:, size:]
        d_state = state_gradients[rank] + d_from_below
        d_new = d_state * (1 - update) * (1 - new * new)
        d_gate = jnp.concatenate([d_new * candidate, d_state * (before - new)], axis=1) * gate * (1 - gate)
        d_gates = jnp.concatenate([d_gate, d_new], axis=1)
        d_recurrent = jnp.concatenate([d_gate, d_new * reset], axis=1)
        d_inputs = d_inputs.at[level.pair].add(d_gates)
        d_clicked += level.above @ d_gates
        d_weight += before.T @ d_recurrent
        d_bias += d_recurrent.sum(axis=0)
        if rank > 0:
            d_before = d_state * update + d_recurrent @ unit.weight.T
            d_from_below = jnp.zeros_like(state_gradients[rank - 1]).at[level.parent].add(d_before)
    return d_inputs, d_clicked, Gru(d_weight, d_bias), None


tree_states.defvjp(_forward, _backward)
