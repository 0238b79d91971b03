"""CACM_minus: the context-aware click model (Chen et al. 2020) without context, of Deffayet et al. (2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from typing_extensions import override

from clickshift.models._differentiable import Arrays, uniform_weights
from clickshift.models._formulas import Array, Gru, gru_step
from clickshift.models._histories import Histories
from clickshift.models._prefix import PrefixModel

_EMBEDDING_SIZE = 4
"""Numbers that stand for a rank, and for the click above it."""


@final
@dataclass(frozen=True, eq=False)
class CACM_minus(PrefixModel):
    """Examination is what a recurrent network makes of the ranks and clicks above.

    h_r = GRU(h_{r-1}, [position_r, click_{r-1}]), P(E_r = 1 | C_<r) = sigmoid(readout h_r + bias)

    Ranks beyond the known ones are taken for the last known one.
    """

    network: ClassVar[bool] = True

    @override
    @classmethod
    def start(cls, n_ranks: int, state: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {
            "position": rng.normal(size=(n_ranks, _EMBEDDING_SIZE)),
            "click": rng.normal(size=(3, _EMBEDDING_SIZE)),  # skipped, clicked, nothing above
            "input": uniform_weights(rng, 2 * _EMBEDDING_SIZE, 3 * state, inputs=state),
            "input_bias": uniform_weights(rng, 3 * state, inputs=state),
            "weight": uniform_weights(rng, state, 3 * state, inputs=state),
            "bias": uniform_weights(rng, 3 * state, inputs=state),
            "readout": uniform_weights(rng, state, inputs=state),
            "readout_bias": np.zeros(()),
        }

    @property
    @override
    def known_ranks(self) -> int:
        return len(self.shared["position"])

    @override
    @classmethod
    def examination_logits(cls, shared: Arrays, histories: Histories) -> Array:
        """Each history's state comes from its parent's, which stands one rank above."""
        xp = shared["weight"].__array_namespace__()
        position, click = shared["position"], shared["click"]
        known = np.minimum(np.arange(histories.n_ranks), position.shape[0] - 1)
        at_rank = position[known] @ shared["input"][:_EMBEDDING_SIZE] + shared["input_bias"]
        after = click @ shared["input"][_EMBEDDING_SIZE:]
        unit = Gru(shared["weight"], shared["bias"])
        states: list[Array] = []
        first = 0
        for rank in range(histories.n_ranks):
            here = np.flatnonzero(histories.rank == rank)
            gates = at_rank[rank] + after[histories.last[here]]
            if rank == 0:
                above = xp.zeros_like(gates[:, : unit.weight.shape[0]])
            else:
                above = states[-1][histories.parent[here] - first]
                first = int(here[0])
            states.append(gru_step(gates, above, unit))
        return xp.concat(states, axis=0) @ shared["readout"] + shared["readout_bias"]
