"""The compiled program: many steps of Adam for many seeds in one call, and the loss on held-out sessions.

Everything here is traced by JAX. A seed's state is a tree of arrays; seeds are stacked along a new first dimension and
trained side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from clickshift.core.files import cache_folder
from clickshift.core.rng import generator
from clickshift.learners.gradient._towers import Tower
from clickshift.learners.gradient._tree_gru import TreeLevel, tree_states
from clickshift.models._differentiable import Differentiable, ExaminationBased, HistoryBased, Recurrent
from clickshift.models._formulas import Prob, both, sigmoid
from clickshift.models._histories import Histories

PyTree = Any
"""Nested dictionaries of arrays."""
_ADAM = optax.scale_by_adam()
_ROW_STEP_FACTOR = (1 - 0.999) ** -0.5
"""What Adam makes of a row that is touched now and then: its second moments forget 1 / 1000 per step, so a touch moves
the row by rate x 31.6 x g / sqrt(sum of all its g^2), spread over some steps; here, at once (docs/decisions/0006)."""
_PROBABILITY_RATE_FACTOR = 5.0
"""Examination and continuation, of which every session tells something, take larger steps than a network's weights."""


@dataclass(frozen=True, eq=False)
class TrainingProgram:
    """What is trained: the structure of a click model on top of a tower."""

    model: type[Differentiable]
    tower: Tower
    outputs: Mapping[str, int]
    histories: Histories
    state: int
    typical: np.ndarray
    """How far each pair counts for what is believed of an unseen one; sums to 1."""
    scale: float
    """What the loss of a batch is divided by: the sessions of a batch on average."""

    def start(self, seeds: Sequence[int]) -> PyTree:
        """The states of the seeds before the first step; each is a function of its seed alone."""

        def drawn(seed: int) -> PyTree:
            rng = generator(seed, "Gradient", "start")
            shared = self.model.start(self.histories.n_ranks, self.state, rng)
            weights = {"shared": shared, "tower": self.tower.start(self.outputs, rng)}
            tables = self.tower.start_tables(self.outputs, rng)
            return jax.tree.map(lambda array: np.asarray(array, np.float32), (weights, tables))

        def state(weights: PyTree, tables: PyTree) -> PyTree:
            by_row = {name: {"rows": rows, "squares": jnp.zeros_like(rows)} for name, rows in tables.items()}
            return {"weights": weights, "adam": _ADAM.init(weights), "tables": by_row}

        stacked = jax.tree.map(lambda *arrays: np.stack(arrays), *map(drawn, seeds))
        return jax.jit(jax.vmap(state))(*stacked)

    def loss(self, weights: PyTree, rows: PyTree, batch: PyTree) -> Any:
        """Cross-entropy of a batch's clicks."""
        place = {name.removeprefix("place."): at for name, at in batch.items() if name.startswith("place.")}
        by_pair = self.tower(self.outputs, weights["tower"], rows, place)
        return self.cross_entropy(by_pair, weights["shared"], batch) / self.scale

    def cross_entropy(self, by_pair: PyTree, shared: PyTree, batch: PyTree) -> Any:
        """Nats, summed over what the batch counts, from the outputs of its pairs."""
        if issubclass(self.model, ExaminationBased):
            attracted = _at_index(sigmoid(by_pair["attractiveness"]), batch["cell.pair"])
            logits = self.model.examination_logits(shared, self.histories)
            peeked = logits + self.model.own_click_logit(shared, self.histories)
            clicked = both(attracted, _at_index(sigmoid(peeked), batch["cell.situation"])).yes
            skipped = both(attracted, _at_index(sigmoid(logits), batch["cell.situation"])).no
            return _cross_entropy_of_counts(Prob(clicked, skipped), batch["impressions"], batch["clicks"])
        if issubclass(self.model, Recurrent):
            levels = [
                TreeLevel(*(batch[f"{part}.{r}"] for part in TreeLevel._fields)) for r in range(self.histories.n_ranks)
            ]
            unit, clicked = self.model.unit(shared)
            states = tree_states(by_pair["input"], clicked, unit, levels)
            at_rank = enumerate(self.model.readout(shared, state) for state in states)
            return sum(
                _cross_entropy_of_counts(click, batch[f"impressions.{r}"], batch[f"clicks.{r}"]) for r, click in at_rank
            )
        assert issubclass(self.model, HistoryBased)
        at_results = {name: output[batch["pair"]] for name, output in by_pair.items()}
        given = self.model.click_given_history(at_results, shared, batch["click"])
        return -jnp.sum(batch["weight"] * jnp.log(jnp.where(batch["click"], given.yes, given.no)))

    def step(self, frozen: PyTree, state: PyTree, batch: PyTree, rate: Any) -> tuple[PyTree, Any]:
        """One step of Adam, or of its limit for rows of tables: a row that the batch does not touch costs nothing."""
        index = {name: batch[f"row.{name}"] for name in self.tower.tables}
        rows = {name: _get_rows(table["rows"], index[name]) for name, table in state["tables"].items()}
        fixed = {name: _get_rows(table, index[name]) for name, table in frozen.items()}
        loss, (slopes, row_slopes) = jax.value_and_grad(
            lambda weights, learned: self.loss(weights, learned | fixed, batch), argnums=(0, 1)
        )(state["weights"], rows)
        change, adam = _ADAM.update(slopes, state["adam"])
        tables = {}
        for name, table in state["tables"].items():
            slope = row_slopes[name]
            squares = _get_rows(table["squares"], index[name]) + slope * slope
            step = rate * _ROW_STEP_FACTOR * slope / (jnp.sqrt(squares) + 1e-12)
            moved = {"rows": rows[name] - step, "squares": squares}
            tables[name] = jax.tree.map(partial(_set_rows, index=index[name]), table, moved)
        rates = {"shared": rate * (1.0 if self.model.network else _PROBABILITY_RATE_FACTOR), "tower": rate}
        weights = {
            part: jax.tree.map(lambda value, move, by=rates[part]: value - by * move, old, change[part])
            for part, old in state["weights"].items()
        }
        return {"weights": weights, "adam": adam, "tables": tables}, loss

    @cached_property
    def steps(self) -> Any:
        """(states, frozen, batches, order `seed step`, rate per seed) -> states after the steps, losses `step seed`."""

        def run(states: PyTree, frozen: PyTree, batches: PyTree, order: Any, rate: Any) -> tuple[PyTree, Any]:
            def one(state: PyTree, at: Any, its_rate: Any) -> tuple[PyTree, Any]:
                return self.step(frozen, state, jax.tree.map(lambda array: array[at], batches), its_rate)

            return jax.lax.scan(lambda now, at: jax.vmap(one)(now, at, rate), states, order.T)

        return jax.jit(run, donate_argnums=0)

    @cached_property
    def found(self) -> Any:
        """(states, frozen) -> what a model is made of: outputs of all pairs, unseen ones last, and what is shared."""

        def of_one(frozen: PyTree, state: PyTree) -> PyTree:
            rows = {name: table["rows"] for name, table in state["tables"].items()} | frozen
            by_pair = self.tower(self.outputs, state["weights"]["tower"], rows, self.tower.tables)
            by_pair = {name: jnp.concatenate([output, self._unseen(output)[None]]) for name, output in by_pair.items()}
            return {"by_pair": by_pair, "shared": state["weights"]["shared"]}

        # one seed after the other: all pairs of all seeds at once would need much memory
        return jax.jit(lambda states, frozen: jax.lax.map(partial(of_one, frozen), states))

    def _unseen(self, output: Any) -> Any:
        """The mean, of probabilities where the output is one logit."""
        if output.ndim > 1:
            return self.typical.astype(np.float32) @ output
        mean = self.typical.astype(np.float32) @ sigmoid(output).yes
        return jnp.log(mean) - jnp.log1p(-mean)

    @cached_property
    def held_out(self) -> Any:
        """(found, batches) -> nats per seed, summed."""

        def of_one(batches: PyTree, found: PyTree) -> Any:
            losses = jax.lax.map(partial(self.cross_entropy, found["by_pair"], found["shared"]), batches)
            return jnp.sum(losses)

        return jax.jit(lambda found, batches: jax.lax.map(partial(of_one, batches), found))


def keep_compiled() -> None:
    """Compiling takes longer than training a small log: what was compiled is kept in the cache folder, unless JAX was
    told where to keep it."""
    settings: Any = jax.config
    if settings.jax_compilation_cache_dir is None:
        settings.update("jax_compilation_cache_dir", str(cache_folder() / "compiled"))
        settings.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def _at_index(p: Prob, index: Any) -> Prob:
    return Prob(p.yes[index], p.no[index])


def _cross_entropy_of_counts(click: Prob, impressions: Any, clicks: Any) -> Any:
    """Cross-entropy of counts."""
    return -jnp.sum(clicks * jnp.log(click.yes) + (impressions - clicks) * jnp.log(click.no))


def _get_rows(table: Any, index: Any) -> Any:
    """Rows beyond the end, which fill a batch up, are any row: nothing is done with them."""
    return table.at[index].get(mode="clip", unique_indices=True)


def _set_rows(table: Any, rows: Any, index: Any) -> Any:
    return table.at[index].set(rows, mode="drop", unique_indices=True)


@jax.jit
def keep_better(better: Any, new: PyTree, old: PyTree) -> PyTree:
    """Seed by seed, the new tree where it is better."""
    return jax.tree.map(lambda a, b: jnp.where(better.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, old)
