"""NCM: the neural click model of Borisov et al. (2016), with a GRU as in Deffayet et al. (2022)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.data.sessions import Rankings
from clickshift.models._differentiable import Arrays, Recurrent, uniform
from clickshift.models._formulas import Array, Gru, Prob, gru, gru_step, sigmoid
from clickshift.models._histories import MAX_ENUMERATED, sum_over_histories
from clickshift.models.gru_clicks import expected_clicks
from clickshift.models.neural import NeuralModel

_LONGEST = 1e-4  # ten thousand histories of a list are the most that are kept


@final
@dataclass(frozen=True, eq=False)
class NCM(Recurrent, NeuralModel):
    """A recurrent network reads the list from the top: query, document and whether the result above was clicked.

    h_r = GRU(h_{r-1}, [query, document_r, C_{r-1}]), P(C_r = 1 | C_<r) = sigmoid(readout h_r + bias), C_0 = 0

    The output `input` is what query and document add to the unit's gates. Relevance is the click probability of the
    document placed first, computed exactly as in training. It makes no examination hypothesis.
    """

    @override
    @classmethod
    def start(cls, n_ranks: int, state: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {
            "clicked": uniform(rng, 3 * state, inputs=state),
            "weight": uniform(rng, state, 3 * state, inputs=state),
            "bias": uniform(rng, 3 * state, inputs=state),
            "readout": uniform(rng, state, inputs=state),
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
    def _enumerated(self, outputs: Mapping[str, np.ndarray]) -> Float[np.ndarray, "session rank"]:
        """The state after each history is computed once, from that of the history without its last result."""
        shared, inputs = self._shared(), outputs["input"]
        (unit, clicked), (n, ranks, width) = self.unit(shared), inputs.shape
        states = np.zeros((n, 1, width // 3))

        def given(rank: int) -> np.ndarray:
            nonlocal states
            gates = np.broadcast_to(inputs[:, rank, None], (n, states.shape[1], width))
            if rank > 0:  # every history so far, once with a skip of the result above and once with a click on it
                states = np.concatenate([states, states], axis=1)
                gates = np.concatenate([gates, gates + clicked], axis=1)
            states = gru_step(gates, states, unit)
            prob: np.ndarray = self.readout(shared, states).yes
            return prob

        return sum_over_histories(given, n, ranks)

    @override
    def _expected_clicks(self, rankings: Rankings, tolerance: float) -> Float[np.ndarray, " session"]:
        """With a tolerance, in single precision. Lists too long for every history take at least `_LONGEST`."""
        if tolerance <= 0:
            return super()._expected_clicks(rankings, tolerance)
        if rankings.n_ranks > MAX_ENUMERATED:
            tolerance = max(tolerance, _LONGEST)
        inputs, clicked, weight, bias, readout = (
            np.ascontiguousarray(array, np.float32)
            for array in (self.by_pair["input"], *(self.shared[k] for k in ("clicked", "weight", "bias", "readout")))
        )
        readout_bias, out = self.shared["readout_bias"].item(), np.empty(len(rankings))
        network = (inputs, clicked, weight, bias, readout, readout_bias)
        expected_clicks(rankings.pair, rankings.length, *network, float(tolerance), out)
        return out
