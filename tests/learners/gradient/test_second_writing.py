"""The six models of the policy-shift paper at given weights, written a second time: plain loops over its equations.

The weights are those of the towers and models at the start of training, with noise, so that no parameter is special.
What the learner makes of them must give the click probabilities that the equations give.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from clickshift.data.sessions import Sessions
from clickshift.models.base import Evidence
from tests.learners.gradient.cases import ready, small

Weights = dict[str, Any]
State = dict[str, Any]


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def vector_product(vector: list[float], matrix: np.ndarray) -> list[float]:
    return [sum(vector[i] * float(matrix[i, j]) for i in range(len(vector))) for j in range(matrix.shape[1])]


def network(weights: Weights, name: str, inputs: list[float]) -> list[float]:
    """A multi-layer perceptron: affine layers with ReLU between them."""
    values, layer = inputs, 0
    while f"{name}.{layer}" in weights:
        if layer > 0:
            values = [max(value, 0.0) for value in values]
        products = vector_product(values, weights[f"{name}.{layer}"])
        values = [x + float(b) for x, b in zip(products, weights[f"{name}.{layer}.bias"], strict=True)]
        layer += 1
    return values


def gru_unit(inputs: list[float], state: list[float], weight: np.ndarray, bias: np.ndarray) -> list[float]:
    """Cho et al. (2014) as PyTorch has it: gates reset, update, new; `inputs` is what the input adds to the gates."""
    n = len(state)
    recurrent = [x + float(b) for x, b in zip(vector_product(state, weight), bias, strict=True)]
    new_state = []
    for i in range(n):
        reset = logistic(inputs[i] + recurrent[i])
        update = logistic(inputs[n + i] + recurrent[n + i])
        new = math.tanh(inputs[2 * n + i] + reset * recurrent[2 * n + i])
        new_state.append((1 - update) * new + update * state[i])
    return new_state


def added(*parts: Any) -> list[float]:
    return [sum(float(x) for x in column) for column in zip(*parts, strict=True)]


class Page:
    """One list with its clicks, the embeddings of its pairs, and the weights."""

    def __init__(self, state: State, query: int, docs: list[int], clicks: list[bool]) -> None:
        self.tower, self.shared = state["weights"]["tower"], state["weights"]["shared"]
        embeddings = {name: table["rows"] for name, table in state["tables"].items()}
        self.embedding = [[*map(float, embeddings["query"][query]), *map(float, embeddings["doc"][d])] for d in docs]
        self.clicks, self.ranks = clicks, range(len(docs))

    def probability(self, name: str, rank: int) -> float:
        """Attractiveness or satisfaction: the embeddings of query and document through the MLP, and a sigmoid."""
        return logistic(network(self.tower, name, self.embedding[rank])[0])


def pbm(page: Page) -> list[float]:
    """Equations 7 and 8."""
    gamma = [logistic(float(x)) for x in page.shared["examination"]]
    gamma[int(np.argmax(page.shared["reference"]))] = 1.0
    return [page.probability("attractiveness", r) * gamma[r] for r in page.ranks]


def ubm(page: Page) -> list[float]:
    """Equation 9: gamma by rank and latest click; rank 1 has one entry, rank 2 two, and so on."""
    gamma = [logistic(float(x)) for x in page.shared["examination"]]
    gamma[int(np.argmax(page.shared["reference"]))] = 1.0
    found = []
    for r in page.ranks:
        latest = max((j + 1 for j in range(r) if page.clicks[j]), default=0)
        found.append(page.probability("attractiveness", r) * gamma[sum(range(r + 1)) + latest])
    return found


def dbn(page: Page) -> list[float]:
    """Equation 10, by the definition of conditional probability: the sum over the latent ends of browsing."""
    gamma = logistic(float(page.shared["continuation"]))
    alpha, sigma = ([page.probability(name, r) for r in page.ranks] for name in ("attractiveness", "satisfaction"))

    def joint(n: int, next_click: bool) -> float:
        """P(the first n clicks, and a click at rank n if `next_click`), over the number of examined results."""
        total = 0.0
        for examined in range(1, n + 2):  # the results up to this one are examined, and none below
            prob = 1.0
            for r in range(n + next_click):
                if r >= examined:
                    prob *= 0.0 if (r == n or page.clicks[r]) else 1.0
                    continue
                clicked = True if r == n else page.clicks[r]
                prob *= alpha[r] if clicked else 1 - alpha[r]
                if r + 1 < examined:
                    prob *= gamma * (1 - sigma[r] if clicked else 1.0)
                elif r < n:
                    prob *= 1 - gamma * (1 - sigma[r] if clicked else 1.0)
            total += prob
        return total

    return [joint(r, True) / joint(r, False) for r in page.ranks]


def ncm(page: Page) -> list[float]:
    """Equation 12: a GRU reads query, document and the click above; the first click above is 0."""
    shared, state, found = page.shared, [0.0] * len(page.shared["readout"]), []
    for r in page.ranks:
        inputs = network(page.tower, "input", page.embedding[r])
        if r > 0 and page.clicks[r - 1]:
            inputs = added(inputs, shared["clicked"])
        state = gru_unit(inputs, state, shared["weight"], shared["bias"])
        out = sum(h * float(w) for h, w in zip(state, shared["readout"], strict=True))
        found.append(logistic(out + float(shared["readout_bias"])))
    return found


def cacm_minus(page: Page) -> list[float]:
    """Equation 14: examination by a GRU over the embeddings of position and previous click."""
    shared, state, found = page.shared, [0.0] * len(page.shared["readout"]), []
    for r in page.ranks:
        previous = 2 if r == 0 else int(page.clicks[r - 1])
        embedded = [*map(float, shared["position"][r]), *map(float, shared["click"][previous])]
        inputs = added(vector_product(embedded, shared["input"]), shared["input_bias"])
        state = gru_unit(inputs, state, shared["weight"], shared["bias"])
        out = sum(h * float(w) for h, w in zip(state, shared["readout"], strict=True))
        examined = logistic(out + float(shared["readout_bias"]))
        found.append(page.probability("attractiveness", r) * examined)
    return found


def arm(page: Page) -> list[float]:
    """Equation 15, with the sigmoid that it lacks."""
    found = []
    for r in page.ranks:
        score = float(page.shared["bias"]) + sum(float(page.shared["weight"][j]) for j in range(r) if page.clicks[j])
        found.append(page.probability("attractiveness", r) * logistic(score))
    return found


EQUATIONS: dict[str, Callable[[Page], list[float]]] = {
    "PBM": pbm,
    "UBM": ubm,
    "DBN": dbn,
    "NCM": ncm,
    "CACM_minus": cacm_minus,
    "ARM": arm,
}


@pytest.mark.parametrize("name", EQUATIONS)
def test_a_model_at_given_weights_equals_its_equations(name: str, short_lists: Sessions) -> None:
    work = ready(small(name), short_lists)
    rng = np.random.default_rng(11)
    states = jax.tree.map(np.asarray, work.program.start([0]))
    states = jax.tree.map(lambda a: (a + rng.normal(scale=0.3, size=a.shape)).astype(np.float32), states)
    parameters = jax.tree.map(lambda a: np.asarray(a)[0], work.program.parameters(states, {}))
    n = np.ones(work.vocabulary.n_pairs + 1)
    model = work.program.model.from_parameters(
        work.vocabulary, parameters["by_pair"], parameters["shared"], Evidence(name, n, n)
    )
    log = short_lists[short_lists.rankings.length == 3][:40].in_vocabulary(work.vocabulary)
    assert log.click.any(axis=0).all()
    found = model.click_prob_given_history(log)
    state = jax.tree.map(lambda a: a[0], {k: states[k] for k in ("weights", "tables")})
    words = work.vocabulary
    for k in range(len(log)):
        docs = words.pair_doc[log.rankings.pair[k]].tolist()
        page = Page(state, int(log.rankings.query[k]), docs, log.click[k].tolist())
        assert found[k] == pytest.approx(EQUATIONS[name](page), abs=2e-6)
