"""The formulas of click models, once, for numpy and for JAX.

Every function takes arrays of any library with the array API and finds its namespace from them; the gradient learner
traces the very functions that the classical models call. A probability travels with its complement: nothing here is
computed as 1 - x, which would lose the digits that a logarithm needs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Array = Any  # numpy.ndarray or jax.Array

LOGIT_LIMIT = 30.0
"""Logits are clipped here: sigmoid(30) differs from 1 by 1e-13, and its gradients stay finite."""
_TINY = 1e-300


class Prob(NamedTuple):
    """A probability and its complement."""

    yes: Array
    no: Array


def with_complement(yes: Array) -> Prob:
    """For a table of probabilities, where the complement has not been kept."""
    return Prob(yes, 1 - yes)


def sigmoid(logit: Array) -> Prob:
    """1 / (1 + exp(-x)) and 1 / (1 + exp(x))."""
    xp = logit.__array_namespace__()
    clipped = xp.clip(logit, -LOGIT_LIMIT, LOGIT_LIMIT)
    return Prob(1 / (1 + xp.exp(-clipped)), 1 / (1 + xp.exp(clipped)))


def both(a: Prob, b: Prob) -> Prob:
    """Two independent events happen: the examination hypothesis, click = examined and attractive."""
    return Prob(a.yes * b.yes, a.no + a.yes * b.no)


def total_probability(condition: Prob, then: Prob, otherwise: Prob) -> Prob:
    """An event whose probability depends on whether another one happened."""
    return Prob(
        condition.yes * then.yes + condition.no * otherwise.yes,
        condition.yes * then.no + condition.no * otherwise.no,
    )


def where(condition: Array, then: Prob, otherwise: Prob) -> Prob:
    xp = condition.__array_namespace__()
    return Prob(xp.where(condition, then.yes, otherwise.yes), xp.where(condition, then.no, otherwise.no))


def examined_after_skip(examined: Prob, click: Prob) -> Prob:
    """P(examined | not clicked) = e (1 - a) / (1 - e a), with `click` the probability a of a click if examined."""
    xp = examined.yes.__array_namespace__()
    skipped = xp.clip(examined.no + examined.yes * click.no, _TINY, None)
    return Prob(examined.yes * click.no / skipped, examined.no / skipped)


class Chain(NamedTuple):
    """One way to walk through a list, as probabilities per session and rank (shape `session rank`).

    Each field is a `Prob` for the functions below, and a plain array or number for the compiled kernels. The first
    result visited is examined. `follow_*` says whether the next one is examined, given what happened here.
    """

    click: Any
    """Clicked, if examined and the result visited before was not clicked."""
    click_after_click: Any
    """Clicked, if examined and the result visited before was clicked; in most models the same."""
    follow_click: Any
    follow_skip: Any
    follow_unseen: Any
    """The next result is examined though this one was not: 0 in a cascade, above 0 where a new row begins."""


def _at_rank(p: Prob, rank: int) -> Prob:
    return Prob(p.yes[:, rank], p.no[:, rank])


def chain_click_given_history(chain: Chain, click: Array) -> Prob:
    """P(C_r = 1 | C_1..C_{r-1}) of a top-down walk, by filtering: what the clicks so far say of examination."""
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


def chain_click_prob(chain: Chain) -> Prob:
    """P(C_r = 1) of a top-down walk: clicks above summed out."""
    xp = chain.click.yes.__array_namespace__()
    first = chain.click.yes[:, 0]
    # where the user is: examining after a click, examining after anything else, or not looking
    after_click, examining, unseen = xp.zeros_like(first), xp.ones_like(first), xp.zeros_like(first)
    columns = []
    for rank in range(chain.click.yes.shape[1]):
        click, again = _at_rank(chain.click, rank), _at_rank(chain.click_after_click, rank)
        clicked = examining * click.yes + after_click * again.yes
        skipped = examining * click.no + after_click * again.no
        columns.append(Prob(clicked, skipped + unseen))
        to_click, to_skip, to_unseen = (
            _at_rank(chain.follow_click, rank),
            _at_rank(chain.follow_skip, rank),
            _at_rank(chain.follow_unseen, rank),
        )
        after_click = clicked * to_click.yes
        examining = skipped * to_skip.yes + unseen * to_unseen.yes
        unseen = clicked * to_click.no + skipped * to_skip.no + unseen * to_unseen.no
    return Prob(xp.stack([c.yes for c in columns], axis=1), xp.stack([c.no for c in columns], axis=1))


class Gru(NamedTuple):
    """The weights of a gated recurrent unit: what its state adds to the reset, update and candidate gates, side by
    side. What the input adds comes with the input."""

    weight: Array
    """Shape `state 3*state`."""
    bias: Array


def gru_step(gates: Array, state: Array, unit: Gru) -> Array:
    """One step: gates (`... 3*state`) are what the input adds; r and z open and close, n is new.

    r, z = sigmoid(x + h W + b);  n = tanh(x_n + r (h W_n + b_n));  h' = (1 - z) n + z h
    """
    xp, size = gates.__array_namespace__(), state.shape[-1]
    recurrent = state @ unit.weight + unit.bias
    open_ = 1 / (1 + xp.exp(-(gates[..., : 2 * size] + recurrent[..., : 2 * size])))
    reset, update = open_[..., :size], open_[..., size:]
    new = xp.tanh(gates[..., 2 * size :] + reset * recurrent[..., 2 * size :])
    return (1 - update) * new + update * state


def gru(gates: Array, unit: Gru) -> Array:
    """States after each rank, from gates of shape `session rank 3*state`; the first state is 0."""
    xp = gates.__array_namespace__()
    state = xp.zeros_like(gates[:, 0, : gates.shape[-1] // 3])
    states = []
    for rank in range(gates.shape[1]):
        state = gru_step(gates[:, rank], state, unit)
        states.append(state)
    return xp.stack(states, axis=1)
