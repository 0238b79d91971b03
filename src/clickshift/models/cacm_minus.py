"""CACM_minus: the context-aware click model (Chen et al. 2020) without session context, of Deffayet et al. (2022)."""

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
"""Size of the embeddings of a rank and of the click above it."""


@final
@dataclass(frozen=True, eq=False)
class CACM_minus(PrefixModel):
    """Context-aware click model (Chen et al. 2020) without session context: examination by a recurrent network.

    h_r = GRU(h_{r-1}, [position_r, click_{r-1}]), P(E_r = 1 | C_<r) = sigmoid(readout h_r + bias)

    Ranks beyond the last known one are treated like it.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    attractiveness
        P(click | examined) by pair, unseen pairs last.
    shared
        Weights of the examination network, by name.
    evidence
        How the parameters were estimated.

    References
    ----------
    Chen, J., Mao, J., Liu, Y., Zhang, M. and Ma, S. (2020). A context-aware click model for web search. WSDM.
    Deffayet, R., Renders, J.-M. and de Rijke, M. (2022). Evaluating the robustness of click models to policy
    distributional shift. ACM TOIS.
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
        """Compute each history's state from that of its parent, one rank above."""
        xp = shared["weight"].__array_namespace__()
        position, click = shared["position"], shared["click"]
        known_rank = np.minimum(np.arange(histories.n_ranks), position.shape[0] - 1)
        by_rank = position[known_rank] @ shared["input"][:_EMBEDDING_SIZE] + shared["input_bias"]
        by_click = click @ shared["input"][_EMBEDDING_SIZE:]
        unit = Gru(shared["weight"], shared["bias"])
        states: list[Array] = []
        first = 0
        for rank in range(histories.n_ranks):
            rows = np.flatnonzero(histories.rank == rank)
            gates = by_rank[rank] + by_click[histories.last[rows]]
            if rank == 0:
                above = xp.zeros_like(gates[:, : unit.weight.shape[0]])
            else:
                above = states[-1][histories.parent[rows] - first]
                first = int(rows[0])
            states.append(gru_step(gates, above, unit))
        return xp.concat(states, axis=0) @ shared["readout"] + shared["readout_bias"]
