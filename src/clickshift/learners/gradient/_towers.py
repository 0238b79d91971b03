"""Towers: networks that map a (query, document) pair to the numbers that a click model needs.

A tower has tables, of which a step changes only the rows of its batch, and weights, which every step changes. An output
is one number, computed by the tower's network, or several, linear in its representation of the pair. A tower is called
with the table rows that some pairs need and, for each pair, the index of its row among them (`place`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from clickshift.data.corpus import signed_log
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import SpecError
from clickshift.models._differentiable import uniform_weights

Arrays = dict[str, Any]
Levels = Mapping[str, float]
"""Initial logits of outputs of width 1, by name; those of other outputs are near 0, or -1 in the free tower."""


@runtime_checkable
class Tower(Protocol):
    """Interface of towers."""

    @property
    def learning_rate(self) -> float:
        """Default learning rate."""

    @property
    def tables(self) -> dict[str, Int[np.ndarray, " pair"]]:
        """Row of each pair, for every table."""

    @property
    def frozen(self) -> dict[str, np.ndarray]:
        """Tables that are not learned, by name."""

    def start_tables(self, outputs: Mapping[str, int], levels: Levels, rng: np.random.Generator) -> Arrays:
        """Return the initial values of the learned tables, by name."""

    def start(self, outputs: Mapping[str, int], levels: Levels, rng: np.random.Generator) -> Arrays:
        """Return the initial values of the weights, by name."""

    def __call__(self, outputs: Mapping[str, int], weights: Arrays, rows: Arrays, place: Arrays) -> Arrays:
        """Return the outputs of some pairs, by name.

        Parameters
        ----------
        outputs
            Names and widths of the outputs.
        weights
            Weights of the network, by name.
        rows
            Rows of the tables, by name.
        place
            Index of each pair's row among `rows`, by table.
        """


@dataclass(frozen=True, eq=False)
class EmbeddingTower:
    """Tower of the policy-shift paper: query and document embeddings, and a ReLU network on top of both.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs.
    size
        Size of the embeddings.
    hidden
        Units of the hidden layers.
    """

    vocabulary: Vocabulary
    size: int
    hidden: tuple[int, ...]
    tables: dict[str, np.ndarray] = field(init=False)
    frozen: dict[str, np.ndarray] = field(init=False, default_factory=dict)
    learning_rate: ClassVar[float] = 0.005

    def __post_init__(self) -> None:
        tables = {"query": self.vocabulary.pair_query, "doc": self.vocabulary.pair_doc}
        object.__setattr__(self, "tables", tables)

    def start_tables(self, outputs: Mapping[str, int], levels: Levels, rng: np.random.Generator) -> Arrays:
        """Return random embeddings of queries and documents."""
        sizes = {"query": self.vocabulary.n_queries, "doc": self.vocabulary.n_docs}
        return {name: rng.normal(size=(rows, self.size)) for name, rows in sizes.items()}

    def start(self, outputs: Mapping[str, int], levels: Levels, rng: np.random.Generator) -> Arrays:
        """Return the initial weights of the networks of all outputs."""
        weights: dict[str, np.ndarray] = {}
        for name, width in outputs.items():
            sizes = [2 * self.size, *(self.hidden if width == 1 else ()), width]
            weights |= _start_network(name, sizes, rng, levels.get(name, 0.0))
        return weights

    def __call__(self, outputs: Mapping[str, int], weights: Arrays, rows: Arrays, place: Arrays) -> Arrays:
        """Compute the outputs; the first layer is applied to table rows: once per query, not once per document."""

        def first(name: str) -> Any:
            parts = {"query": weights[f"{name}.0"][: self.size], "doc": weights[f"{name}.0"][self.size :]}
            return sum((rows[table] @ part)[place[table]] for table, part in parts.items()) + weights[f"{name}.0.bias"]

        return {name: _apply_layers(first(name), name, weights, width) for name, width in outputs.items()}


@dataclass(frozen=True, eq=False)
class FreeTower:
    """Tower of the CMIP paper: one free logit per pair. Wider outputs are linear in a free vector per pair.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs.
    size
        Size of the free vectors.
    """

    vocabulary: Vocabulary
    size: int
    tables: dict[str, np.ndarray] = field(init=False)
    frozen: dict[str, np.ndarray] = field(init=False, default_factory=dict)
    learning_rate: ClassVar[float] = 0.005

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", {"pair": np.arange(self.vocabulary.n_pairs)})

    def start_tables(self, outputs: Mapping[str, int], levels: Levels, rng: np.random.Generator) -> Arrays:
        """Return the given logits, or -1, near a typical click-through rate, and random vectors."""
        single = [levels.get(name, -1.0) for name, width in outputs.items() if width == 1]
        pairs = self.vocabulary.n_pairs
        vector = rng.normal(size=(pairs, self.size if len(single) < len(outputs) else 0))
        return {"pair": np.concatenate([np.tile(single, (pairs, 1)), vector], axis=1)}

    def start(self, outputs: Mapping[str, int], levels: Levels, rng: np.random.Generator) -> Arrays:
        """Return the initial weights of the networks of all outputs."""
        weights: dict[str, np.ndarray] = {}
        for name, width in outputs.items():
            if width > 1:
                weights |= _start_network(name, [self.size, width], rng)
        return weights

    def __call__(self, outputs: Mapping[str, int], weights: Arrays, rows: Arrays, place: Arrays) -> Arrays:
        table = rows["pair"][place["pair"]]
        single = [name for name, width in outputs.items() if width == 1]
        narrow = {name: table[:, column] for column, name in enumerate(single)}
        vector = table[:, len(single) :]
        wide = outputs.keys() - narrow.keys()
        return narrow | {name: vector @ weights[f"{name}.0"] + weights[f"{name}.0.bias"] for name in wide}


@dataclass(frozen=True, eq=False)
class FeatureTower:
    """Tower on the features of documents: it also has outputs for documents that were never shown.

    Parameters
    ----------
    features
        Standardised features of each pair.
    hidden
        Units of the hidden layers.
    """

    features: Float[np.ndarray, "pair feature"]
    hidden: tuple[int, ...]
    tables: dict[str, np.ndarray] = field(init=False)
    frozen: dict[str, np.ndarray] = field(init=False)
    learning_rate: ClassVar[float] = 0.003

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", {"features": np.arange(len(self.features))})
        object.__setattr__(self, "frozen", {"features": self.features})

    def start_tables(self, outputs: Mapping[str, int], levels: Levels, rng: np.random.Generator) -> Arrays:
        """Return no tables: the features are not learned."""
        return {}

    def start(self, outputs: Mapping[str, int], levels: Levels, rng: np.random.Generator) -> Arrays:
        """Return the initial weights of the networks of all outputs."""
        weights: dict[str, np.ndarray] = {}
        for name, width in outputs.items():
            sizes = [self.features.shape[1], *self.hidden, width]
            weights |= _start_network(name, sizes, rng, levels.get(name, 0.0))
        return weights

    def __call__(self, outputs: Mapping[str, int], weights: Arrays, rows: Arrays, place: Arrays) -> Arrays:
        features = rows["features"][place["features"]]

        def first(name: str) -> Any:
            return features @ weights[f"{name}.0"] + weights[f"{name}.0.bias"]

        return {name: _apply_layers(first(name), name, weights, width) for name, width in outputs.items()}


def tower_for(
    name: str, vocabulary: Vocabulary, features: np.ndarray | None, *, size: int, hidden: tuple[int, ...]
) -> Tower:
    """Make the tower that a name stands for.

    Parameters
    ----------
    name
        "embedding", "free" or "features".
    vocabulary
        Queries, documents and pairs that are learned.
    features
        Features of each pair, for "features".
    size
        Size of embeddings and free vectors.
    hidden
        Units of the hidden layers.

    Returns
    -------
    Tower
        The tower.

    Raises
    ------
    SpecError
        If the tower needs features and there are none ("no-features").
    """
    if name == "features":
        if features is None:
            raise SpecError(
                "tower='features' needs a corpus with features. Pass it: fit(log, corpus=corpus).", code="no-features"
            )
        return FeatureTower(_standardise_logs(features), hidden)
    return FreeTower(vocabulary, size) if name == "free" else EmbeddingTower(vocabulary, size, hidden)


def _standardise_logs(features: Float[np.ndarray, "pair feature"]) -> Float[np.ndarray, "pair feature"]:
    """Return standard scores of sign(x) log(1 + |x|): features of learning to rank span many magnitudes."""
    logs = signed_log(features.astype(np.float64))
    spread = logs.std(axis=0)
    scaled: np.ndarray = (logs - logs.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return scaled


def _start_network(name: str, sizes: list[int], rng: np.random.Generator, level: float = 0.0) -> dict[str, np.ndarray]:
    """Return the initial weights and biases of a network with layers of these sizes; its output is near `level`."""
    weights = {}
    for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
        weights[f"{name}.{layer}"] = uniform_weights(rng, inputs, outputs, inputs=inputs)
        weights[f"{name}.{layer}.bias"] = uniform_weights(rng, outputs, inputs=inputs)
    weights[f"{name}.{len(sizes) - 2}.bias"] += level
    return weights


def _apply_layers(first: Any, name: str, weights: Arrays, width: int) -> Any:
    """Apply the layers after the first one; outputs of width 1 lose their last dimension."""
    xp, values, layer = first.__array_namespace__(), first, 1
    while f"{name}.{layer}" in weights:
        values = xp.maximum(values, 0) @ weights[f"{name}.{layer}"] + weights[f"{name}.{layer}.bias"]
        layer += 1
    return values[..., 0] if width == 1 else values
