"""NCM: the neural click model (Borisov et al. 2016), with a GRU as in Deffayet et al. (2022).

A marginal click probability is a sum over all click histories above a result. The compiled kernel below makes it cheap,
for a search over many similar lists and for the marginal perplexity of a log, in three ways:

- A list shares its states with the list before it as far as both begin with the same documents.
- The contribution of a state to the next gates is one product, whatever document comes next and whether the result
  above was clicked; the products of many lists are one matrix product.
- Click histories less likely than `tolerance` get no state of their own: the skip and the click of a result continue
  as one state, whose input is a click as large as its probability. To first order nothing is lost. On a model of 80,000
  sessions whose lists get 1 click, the error is .004 (root mean square) at a tolerance of .05, a tenth of the error of
  replacing both outcomes by the likelier one, and .03 at a tolerance of 1, where each list has one state per rank.

The kernel uses single precision, and computes tanh by Lambert's continued fraction, cut at its ninth step: the error
is at most 7e-6. `click_prob` with a `max_error` measures the error of a tolerance on 64 of the lists, against the sum
over all histories, and takes the largest tolerance whose error there is a tenth of what is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final, no_type_check

import numpy as np
from jaxtyping import Float
from numba import njit
from typing_extensions import override

from clickshift.data.sessions import Rankings
from clickshift.models._differentiable import Arrays, Recurrent, uniform_weights
from clickshift.models._formulas import Array, Gru, Prob, gru, gru_step, sigmoid
from clickshift.models._histories import MAX_ENUMERATED, MIN_TOLERANCE_LONG_LISTS, sum_over_histories
from clickshift.models.neural import NeuralModel


@final
@dataclass(frozen=True, eq=False)
class NCM(Recurrent, NeuralModel):
    """Neural click model (Borisov et al. 2016): a recurrent network reads the list and the clicks above each result.

    h_r = GRU(h_{r-1}, [query, document_r, C_{r-1}]), P(C_r = 1 | C_<r) = sigmoid(readout h_r + bias), C_0 = 0

    The output "input" is the contribution of query and document to the gates of the unit. Relevance is the click
    probability of the document at the first rank, computed exactly as in training. The model makes no examination
    hypothesis.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    by_pair
        Output "input" of the tower, of shape `pair_or_unseen 3*state`.
    shared
        Weights of the recurrent unit and of its readout, by name.
    evidence
        How the parameters were estimated.

    References
    ----------
    Borisov, A., Markov, I., de Rijke, M. and Serdyukov, P. (2016). A neural click model for web search. WWW.
    Deffayet, R., Renders, J.-M. and de Rijke, M. (2022). Evaluating the robustness of click models to policy
    distributional shift. ACM TOIS.
    """

    @override
    @classmethod
    def start(cls, n_ranks: int, state: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {
            "clicked": uniform_weights(rng, 3 * state, inputs=state),
            "weight": uniform_weights(rng, state, 3 * state, inputs=state),
            "bias": uniform_weights(rng, 3 * state, inputs=state),
            "readout": uniform_weights(rng, state, inputs=state),
            "readout_bias": np.zeros(()),
        }

    @override
    @classmethod
    def unit(cls, shared: Arrays) -> tuple[Gru, Array]:
        return Gru(shared["weight"], shared["bias"]), shared["clicked"]

    @override
    @classmethod
    def readout(cls, shared: Arrays, state: Array) -> Prob:
        return sigmoid(state @ shared["readout"] + shared["readout_bias"])

    @override
    @classmethod
    def click_given_history(cls, by_pair: Arrays, shared: Arrays, click: Array) -> Prob:
        xp, (unit, clicked) = click.__array_namespace__(), cls.unit(shared)
        above = xp.concat([xp.zeros_like(click[:, :1]), click[:, :-1]], axis=1)
        return cls.readout(shared, gru(by_pair["input"] + above[:, :, None] * clicked, unit))

    @override
    def _sum_over_all_histories(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        """Sum over all histories; each state is computed once, from that of the history without its last result."""
        shared, inputs = self._shared_parameters(), self._outputs_of(rankings)["input"]
        (unit, clicked), (n, ranks, width) = self.unit(shared), inputs.shape
        states = np.zeros((n, 1, width // 3))

        def prob_given_histories(rank: int) -> np.ndarray:
            nonlocal states
            gates = np.broadcast_to(inputs[:, rank, None], (n, states.shape[1], width))
            if rank > 0:  # every history so far: with a skip of the result above, and with a click on it
                states = np.concatenate([states, states], axis=1)
                gates = np.concatenate([gates, gates + clicked], axis=1)
            states = gru_step(gates, states, unit)
            prob: np.ndarray = self.readout(shared, states).yes
            return np.where(rankings.shown[:, rank, None], prob, 0.0) if rankings.has_holes else prob

        return sum_over_histories(prob_given_histories, n, ranks)

    @override
    def _sum_over_likely_histories(self, rankings: Rankings, tolerance: float) -> Float[np.ndarray, "session rank"]:
        """Run the compiled kernel; for lists too long to enumerate, the tolerance has a minimum."""
        if rankings.n_ranks > MAX_ENUMERATED:
            tolerance = max(tolerance, MIN_TOLERANCE_LONG_LISTS)
        inputs, clicked, weight, bias, readout = (
            np.ascontiguousarray(array, np.float32)
            for array in (self.by_pair["input"], *(self.shared[k] for k in ("clicked", "weight", "bias", "readout")))
        )
        readout_bias, out = self.shared["readout_bias"].item(), np.empty(rankings.pair.shape)
        pair, hole = rankings.pair, len(inputs)
        if rankings.has_holes:  # the input of a hole is a last row of zeros, after that of unseen pairs
            pair = np.where(rankings.shown, pair % np.int32(hole), np.int32(hole))
            inputs = np.concatenate([inputs, np.zeros_like(inputs[:1])])
        network = (inputs, clicked, weight, bias, readout, readout_bias)
        _click_prob_kernel(pair, rankings.length, hole, *network, float(tolerance), out)
        return out


_STATES_PER_BLOCK = 2048
"""States per rank that are computed at a time (at least those of one list): they and their products fit the cache."""
_MAX_LISTS_PER_BLOCK = 64
"""Lists that are computed at a time, at most."""
_ROWS_PER_PRODUCT = 16
"""Rows of one matrix product: few enough that the linear algebra library does not start threads beside ours."""


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
@no_type_check
def _click_prob_kernel(pair, length, hole, inputs, clicked, weight, bias, readout, readout_bias, tolerance, out):
    """Write the click probabilities of each list into `out`; a list is the first `length` of its pair numbers.

    The pair number `hole` is never clicked.
    """
    n, ranks = pair.shape
    size = len(readout)
    max_states = min(1 << min(ranks - 1, 30), int(1 / tolerance) + 1)  # histories of a list are at least that likely
    block = min(max(_STATES_PER_BLOCK // max_states, 1), _MAX_LISTS_PER_BLOCK)
    # of the rank above and of the current rank, in turn: states, P(history), and P(click | history)
    state = np.empty((2, block * max_states, size), np.float32)
    prob, click_prob = np.empty((2, block * max_states)), np.empty((2, block * max_states))
    begin, end = np.empty((2, block), np.int64), np.empty((2, block), np.int64)  # range of the states of each list
    product = np.empty((block * max_states, 3 * size), np.float32)  # of the states of the rank above
    work = np.empty((3, size), np.float32)
    shared = np.empty(block, np.bool_)
    for start in range(0, n, block):
        lists = min(block, n - start)
        shared[:] = True
        # before the first rank all lists share one state, and nothing was clicked
        above, current = 0, 1
        state[above, 0], product[0], prob[above, 0], click_prob[above, 0] = np.float32(0), bias, 1.0, 0.0
        begin[above], end[above] = 0, 1
        for rank in range(ranks):
            m = 0
            for i in range(lists):
                row = start + i
                shared[i] = (
                    shared[i]
                    and i > 0
                    and rank < min(length[row], length[row - 1])
                    and pair[row, rank] == pair[row - 1, rank]
                )
                if shared[i]:
                    begin[current, i], end[current, i] = begin[current, i - 1], end[current, i - 1]
                    out[row, rank] = out[row - 1, rank]
                    continue
                begin[current, i], clicks = m, 0.0
                if rank < length[row]:
                    gates = inputs[pair[row, rank]]
                    for parent in range(begin[above, i], end[above, i]):
                        p, yes = prob[above, parent], click_prob[above, parent]
                        split = p * min(yes, 1 - yes) >= tolerance
                        for outcome in range(2 if split else 1):
                            click = np.float32(outcome) if split else np.float32(yes)
                            new = state[current, m]
                            _gru_step(gates, clicked, click, product[parent], state[above, parent], work, new)
                            prob[current, m] = p * (yes if outcome else 1 - yes) if split else p
                            click_prob[current, m] = 0.0
                            if pair[row, rank] != hole:
                                click_prob[current, m] = 1 / (1 + np.exp(-(readout_bias + _dot(readout, new))))
                            clicks += prob[current, m] * click_prob[current, m]
                            m += 1
                end[current, i] = m
                out[row, rank] = clicks
            if rank + 1 < ranks:
                _recurrent_products(state[current, :m], weight, bias, product)
            above, current = current, above


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
@no_type_check
def _gru_step(gates, clicked, click, product, state, work, out):
    """One step of `_formulas.gru_step`; only short loops over few arrays are vectorised by the compiler."""
    size = len(state)
    half = np.float32(0.5)
    reset, update, new = work[0], work[1], work[2]
    _add_gates(gates[:size], clicked[:size], click, product[:size], reset)
    _add_gates(gates[size : 2 * size], clicked[size : 2 * size], click, product[size : 2 * size], update)
    for k in range(size):
        reset[k] = half + half * _tanh(half * reset[k])
    for k in range(size):
        update[k] = half + half * _tanh(half * update[k])
    last = product[2 * size :]
    for k in range(size):
        reset[k] *= last[k]
    _add_gates(gates[2 * size :], clicked[2 * size :], click, reset, new)
    for k in range(size):
        new[k] = _tanh(new[k])
    for k in range(size):
        out[k] = new[k] + update[k] * (state[k] - new[k])


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
@no_type_check
def _add_gates(gates, clicked, click, product, out):
    """Write gates + click * clicked + product into `out`."""
    for k in range(len(out)):
        out[k] = gates[k] + click * clicked[k] + product[k]


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
@no_type_check
def _dot(a, b):
    """Dot product in single precision."""
    total = np.float32(0)
    for k in range(len(a)):
        total += a[k] * b[k]
    return total


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
@no_type_check
def _tanh(x):
    """Hyperbolic tangent by Lambert's continued fraction, as a quotient of polynomials in x^2."""
    limit = np.float32(7)
    x = min(max(x, -limit), limit)
    s = x * x
    numerator = np.float32(34459425) + s * (np.float32(4729725) + s * (np.float32(135135) + s * (np.float32(990) + s)))
    denominator = np.float32(34459425) + s * (
        np.float32(16216200) + s * (np.float32(945945) + s * (np.float32(13860) + s * np.float32(45)))
    )
    return min(max(x * numerator / denominator, -np.float32(1)), np.float32(1))


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
@no_type_check
def _recurrent_products(state, weight, bias, out):
    """Write state @ weight + bias into `out`."""
    for i in range(0, len(state), _ROWS_PER_PRODUCT):
        rows = slice(i, min(i + _ROWS_PER_PRODUCT, len(state)))
        np.dot(state[rows], weight, out[rows])
    for i in range(len(state)):
        row = out[i]
        for j in range(len(bias)):
            row[j] += bias[j]
