"""Formulas of click models, written once for numpy and JAX.

Every function takes arrays of any library with the array API and gets the namespace from them: the gradient learner
traces the same functions that the classical models call. A probability is kept with its complement: nothing here is
computed as 1 - x, which would lose the digits that a logarithm needs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = [
    "LOGIT_LIMIT",
    "Array",
    "Chain",
    "Gru",
    "Prob",
    "both",
    "chain_click_given_history",
    "examined_after_skip",
    "gru",
    "gru_step",
    "sigmoid",
    "total_probability",
    "where",
]

Array = Any  # numpy.ndarray or jax.Array

LOGIT_LIMIT = 30.0
"""Largest absolute value of a logit: sigmoid(30) differs from 1 by 1e-13, and gradients stay finite."""
_TINY = 1e-300


class Prob(NamedTuple):
    """A probability and its complement."""

    yes: Array
    no: Array


def sigmoid(logit: Array) -> Prob:
    """Return 1 / (1 + exp(-x)) and its complement 1 / (1 + exp(x))."""
    xp = logit.__array_namespace__()
    clipped = xp.clip(logit, -LOGIT_LIMIT, LOGIT_LIMIT)
    return Prob(1 / (1 + xp.exp(-clipped)), 1 / (1 + xp.exp(clipped)))


def both(a: Prob, b: Prob) -> Prob:
    """Return the probability that two independent events happen.

    This is the examination hypothesis: click = examined and attractive.
    """
    return Prob(a.yes * b.yes, a.no + a.yes * b.no)


def total_probability(condition: Prob, then: Prob, otherwise: Prob) -> Prob:
    """Return the probability of an event that depends on whether another one (`condition`) happened."""
    return Prob(
        condition.yes * then.yes + condition.no * otherwise.yes,
        condition.yes * then.no + condition.no * otherwise.no,
    )


def where(condition: Array, then: Prob, otherwise: Prob) -> Prob:
    """Choose between two probabilities, elementwise."""
    xp = condition.__array_namespace__()
    return Prob(xp.where(condition, then.yes, otherwise.yes), xp.where(condition, then.no, otherwise.no))


def examined_after_skip(examined: Prob, click: Prob) -> Prob:
    """Return P(examined | not clicked) = e (1 - a) / (1 - e a), with `click` = a = P(click | examined)."""
    xp = examined.yes.__array_namespace__()
    skipped = xp.clip(examined.no + examined.yes * click.no, _TINY, None)
    return Prob(examined.yes * click.no / skipped, examined.no / skipped)


class Chain(NamedTuple):
    """Browsing chain: the probabilities by which a user reads a list, per session and rank (shape `session rank`).

    Each field is a `Prob` for the functions below, and a plain array or number for the compiled kernels. The first
    visited result is examined.

    Parameters
    ----------
    click
        P(click | examined), if the previously visited result was not clicked.
    click_after_click
        P(click | examined), if the previously visited result was clicked; the same as `click` in most models.
    follow_click
        P(the next result is examined | this one was clicked).
    follow_skip
        P(the next result is examined | this one was examined and not clicked).
    follow_unseen
        P(the next result is examined | this one was not examined): 0 in a cascade, above 0 where a new row begins.
    """

    click: Any
    click_after_click: Any
    follow_click: Any
    follow_skip: Any
    follow_unseen: Any


def _at_rank(p: Prob, rank: int) -> Prob:
    """Return one column of a probability of shape `session rank`."""
    return Prob(p.yes[:, rank], p.no[:, rank])


def chain_click_given_history(chain: Chain, click: Array) -> Prob:
    """Return P(C_r = 1 | C_1..C_{r-1}) of top-down browsing, by filtering examination on the clicks so far."""
    xp = chain.click.yes.__array_namespace__()
    first = chain.click.yes[:, 0]
    examined = Prob(xp.ones_like(first), xp.zeros_like(first))
    columns = []
    for rank in range(chain.click.yes.shape[1]):
        if_examined = _at_rank(chain.click, rank)
        if rank > 0:
            if_examined = where(click[:, rank - 1], _at_rank(chain.click_after_click, rank), if_examined)
        columns.append(both(examined, if_examined))
        skipped = total_probability(
            examined_after_skip(examined, if_examined),
            _at_rank(chain.follow_skip, rank),
            _at_rank(chain.follow_unseen, rank),
        )
        examined = where(click[:, rank], _at_rank(chain.follow_click, rank), skipped)
    return Prob(xp.stack([c.yes for c in columns], axis=1), xp.stack([c.no for c in columns], axis=1))


class Gru(NamedTuple):
    """Weights of a gated recurrent unit: the contribution of its state to the reset, update and candidate gates.

    The contribution of the input to the gates comes with the input.

    Parameters
    ----------
    weight
        Weights of the three gates side by side, of shape `state 3*state`.
    bias
        Biases of the three gates, of shape `3*state`.
    """

    weight: Array
    bias: Array


def gru_step(gates: Array, state: Array, unit: Gru) -> Array:
    """Compute one step of the unit, from the contribution of the input to the gates (`... 3*state`).

    With the reset gate r, the update gate z and the candidate n:

    r, z = sigmoid(x + h W + b);  n = tanh(x_n + r (h W_n + b_n));  h' = (1 - z) n + z h
    """
    xp, size = gates.__array_namespace__(), state.shape[-1]
    recurrent = state @ unit.weight + unit.bias
    gate = 1 / (1 + xp.exp(-(gates[..., : 2 * size] + recurrent[..., : 2 * size])))
    reset, update = gate[..., :size], gate[..., size:]
    new = xp.tanh(gates[..., 2 * size :] + reset * recurrent[..., 2 * size :])
    return (1 - update) * new + update * state


def gru(gates: Array, unit: Gru) -> Array:
    """Return the states after each rank, from gates of shape `session rank 3*state`; the initial state is 0."""
    xp = gates.__array_namespace__()
    state = xp.zeros_like(gates[:, 0, : gates.shape[-1] // 3])
    states = []
    for rank in range(gates.shape[1]):
        state = gru_step(gates[:, rank], state, unit)
        states.append(state)
    return xp.stack(states, axis=1)
