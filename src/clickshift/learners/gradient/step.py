"""Compiled training program: many steps of Adam for many seeds in one call, and the loss on held-out sessions.

Everything here is traced by JAX. The state of a seed is a tree of arrays; seeds are stacked along a new first dimension
and trained side by side.
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
from jaxtyping import Float

from clickshift.core.rng import generator
from clickshift.errors import DataError
from clickshift.learners.gradient._towers import Tower
from clickshift.learners.gradient._tree_gru import TreeLevel, tree_states
from clickshift.learners.training import PyTree
from clickshift.models._differentiable import (
    Differentiable,
    ExaminationBased,
    HistoryBased,
    Recurrent,
    start_examination,
)
from clickshift.models._formulas import Prob, both, sigmoid
from clickshift.models._histories import Histories

_ADAM = optax.scale_by_adam()
_ROW_STEP_FACTOR = (1 - 0.999) ** -0.5
"""Step factor of table rows: the limit of Adam for a row that only some batches contain. Adam's second moments decay by
1 / 1000 per step, so a gradient g moves the row by rate x 31.6 x g / sqrt(sum of all its g^2), spread over some steps;
here the move is made at once (docs/decisions/0006)."""
_PROBABILITY_RATE_FACTOR = 5.0
"""Factor of the learning rate of examination and continuation that start anywhere: every session informs about them, so
they take larger steps than the weights of a network. Examination that starts at maximum likelihood does not: larger
steps would carry it away before attractiveness has been learned (docs/decisions/0006)."""


@dataclass(frozen=True, eq=False)
class TrainingProgram:
    """Training program of a click model on top of a tower.

    Parameters
    ----------
    model
        Class of the model.
    tower
        The tower.
    outputs
        Names and widths of the tower's outputs.
    histories
        Distinct click histories of the log.
    state
        Size of recurrent states.
    typical
        Weight of each pair in the outputs of unseen pairs; sums to 1.
    scale
        Divisor of the loss of a batch: the mean number of sessions in a batch.
    levels
        Initial logits of outputs, by name, where they are known.
    examination
        Initial examination by situation, in models with a table of it. The largest one, which is 1, is not learned.
    has_holes
        Whether the log has holes that the model sees.
    """

    model: type[Differentiable]
    tower: Tower
    outputs: Mapping[str, int]
    histories: Histories
    state: int
    typical: np.ndarray
    scale: float
    levels: Mapping[str, float]
    examination: Float[np.ndarray, " situation"] | None
    has_holes: bool = False

    def start(self, seeds: Sequence[int]) -> PyTree:
        """Return the states of the seeds before the first step; each depends on its seed alone."""

        def drawn(seed: int) -> PyTree:
            rng = generator(seed, "Gradient", "start")
            shared = self.model.start(self.histories.n_ranks, self.state, rng)
            if self.examination is not None:
                shared |= start_examination(self.examination, len(shared["examination"]))
            weights = {"shared": shared, "tower": self.tower.start(self.outputs, self.levels, rng)}
            tables = self.tower.start_tables(self.outputs, self.levels, rng)
            return jax.tree.map(lambda array: np.asarray(array, np.float32), (weights, tables))

        def state(weights: PyTree, tables: PyTree) -> PyTree:
            by_row = {name: {"rows": rows, "squares": jnp.zeros_like(rows)} for name, rows in tables.items()}
            return {"weights": weights, "adam": _ADAM.init(weights), "tables": by_row}

        stacked = jax.tree.map(lambda *arrays: np.stack(arrays), *map(drawn, seeds))
        return jax.jit(jax.vmap(state))(*stacked)

    def loss(self, weights: PyTree, rows: PyTree, batch: PyTree) -> Any:
        """Return the cross-entropy of a batch's clicks, divided by `scale`."""
        place = {name.removeprefix("place."): at for name, at in batch.items() if name.startswith("place.")}
        by_pair = self.tower(self.outputs, weights["tower"], rows, place)
        return self.cross_entropy(by_pair, weights["shared"], batch) / self.scale

    def cross_entropy(self, by_pair: PyTree, shared: PyTree, batch: PyTree) -> Any:
        """Return the cross-entropy of a batch in nats, summed, from the outputs of its pairs."""
        if issubclass(self.model, ExaminationBased):
            attractive = _at_index(sigmoid(by_pair["attractiveness"]), batch["cell.pair"])
            logits = self.model.examination_logits(shared, self.histories)
            click_logits = logits + self.model.own_click_logit(shared, self.histories)
            clicked = both(attractive, _at_index(sigmoid(click_logits), batch["cell.situation"])).yes
            skipped = both(attractive, _at_index(sigmoid(logits), batch["cell.situation"])).no
            return _cross_entropy_of_counts(Prob(clicked, skipped), batch["impressions"], batch["clicks"])
        if issubclass(self.model, Recurrent):
            levels = [
                TreeLevel(*(batch[f"{part}.{r}"] for part in TreeLevel._fields)) for r in range(self.histories.n_ranks)
            ]
            (unit, clicked), inputs = self.model.unit(shared), by_pair["input"]
            if self.has_holes:  # pair -1
                inputs = jnp.concatenate([inputs, jnp.full_like(inputs[:1], self.model.output_at_hole("input"))])
            states = tree_states(inputs, clicked, unit, levels)
            at_rank = enumerate(self.model.readout(shared, state) for state in states)
            return sum(
                _cross_entropy_of_counts(click, batch[f"impressions.{r}"], batch[f"clicks.{r}"]) for r, click in at_rank
            )
        assert issubclass(self.model, HistoryBased)
        at_results = {name: output[batch["pair"]] for name, output in by_pair.items()}
        if self.has_holes:
            at_results = {name: self._without_holes(name, output, batch["hole"]) for name, output in at_results.items()}
        given = self.model.click_given_history(at_results, shared, batch["click"])
        _check_formula(self.model, given, batch["click"].shape)
        return -jnp.sum(batch["weight"] * jnp.log(jnp.where(batch["click"], given.yes, given.no)))

    def _without_holes(self, name: str, output: Any, hole: Any) -> Any:
        """Return an output of results with the value of holes where they are."""
        wide = hole.reshape(hole.shape + (1,) * (output.ndim - hole.ndim))
        return jnp.where(wide, self.model.output_at_hole(name), output)

    def step(self, frozen: PyTree, state: PyTree, batch: PyTree, rate: Any) -> tuple[PyTree, Any]:
        """Take one step of Adam, or of its limit for table rows; rows that the batch does not contain cost nothing."""
        index = {name: batch[f"row.{name}"] for name in self.tower.tables}
        rows = {name: _get_rows(table["rows"], index[name]) for name, table in state["tables"].items()}
        fixed = {name: _get_rows(table, index[name]) for name, table in frozen.items()}
        loss, (gradients, row_gradients) = jax.value_and_grad(
            lambda weights, learned: self.loss(weights, learned | fixed, batch), argnums=(0, 1)
        )(state["weights"], rows)
        change, adam = _ADAM.update(gradients, state["adam"])
        tables = {}
        for name, table in state["tables"].items():
            gradient = row_gradients[name]
            squares = _get_rows(table["squares"], index[name]) + gradient * gradient
            step = rate * _ROW_STEP_FACTOR * gradient / (jnp.sqrt(squares) + 1e-12)
            moved = {"rows": rows[name] - step, "squares": squares}
            tables[name] = jax.tree.map(partial(_set_rows, index=index[name]), table, moved)
        starts_anywhere = not self.model.network and self.examination is None
        rates = {"shared": rate * (_PROBABILITY_RATE_FACTOR if starts_anywhere else 1.0), "tower": rate}
        weights = {
            part: jax.tree.map(lambda value, move, by=rates[part]: value - by * move, old, change[part])
            for part, old in state["weights"].items()
        }
        return {"weights": weights, "adam": adam, "tables": tables}, loss

    @cached_property
    def steps(self) -> Any:
        """Compiled steps: (states, frozen, batches, order `seed step`, rate `seed`) -> (states, losses `step seed`)."""

        def run(states: PyTree, frozen: PyTree, batches: PyTree, order: Any, rate: Any) -> tuple[PyTree, Any]:
            def one_seed(state: PyTree, index: Any, seed_rate: Any) -> tuple[PyTree, Any]:
                return self.step(frozen, state, jax.tree.map(lambda array: array[index], batches), seed_rate)

            result: tuple[PyTree, Any] = jax.lax.scan(
                lambda current, index: jax.vmap(one_seed)(current, index, rate), states, order.T
            )
            return result

        return jax.jit(run, donate_argnums=0)

    @cached_property
    def parameters(self) -> Any:
        """Compiled function (states, frozen) -> outputs of all pairs, unseen ones last, and shared parameters."""

        def of_one_seed(frozen: PyTree, state: PyTree) -> PyTree:
            rows = {name: table["rows"] for name, table in state["tables"].items()} | frozen
            by_pair = self.tower(self.outputs, state["weights"]["tower"], rows, self.tower.tables)
            by_pair = {name: jnp.concatenate([output, self._unseen(output)[None]]) for name, output in by_pair.items()}
            return {"by_pair": by_pair, "shared": state["weights"]["shared"]}

        # one seed after the other, since all pairs of all seeds at once would need much memory
        return jax.jit(lambda states, frozen: jax.lax.map(partial(of_one_seed, frozen), states))

    def _unseen(self, output: Any) -> Any:
        """Return the output of unseen pairs: the weighted mean, of probabilities if the output is one logit."""
        if output.ndim > 1:
            return self.typical.astype(np.float32) @ output
        mean = self.typical.astype(np.float32) @ sigmoid(output).yes
        return jnp.log(mean) - jnp.log1p(-mean)

    @cached_property
    def held_out(self) -> Any:
        """Compiled function (parameters, batches) -> cross-entropy per seed in nats, summed."""

        def of_one_seed(batches: PyTree, parameters: PyTree) -> Any:
            losses = jax.lax.map(partial(self.cross_entropy, parameters["by_pair"], parameters["shared"]), batches)
            return jnp.sum(losses)

        return jax.jit(lambda parameters, batches: jax.lax.map(partial(of_one_seed, batches), parameters))


def _at_index(p: Prob, index: Any) -> Prob:
    """Return the entries of a probability at an index."""
    return Prob(p.yes[index], p.no[index])


def _check_formula(model: type[Differentiable], given: Any, shape: tuple[int, ...]) -> None:
    """Check that a model's formula returned a probability with its complement, for every session and rank."""
    shapes = [tuple(getattr(part, "shape", ())) for part in given] if isinstance(given, tuple) else []
    try:
        fits = len(shapes) == 2 and np.broadcast_shapes(*shapes, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        got = " and ".join(map(str, shapes)) if shapes else type(given).__name__
        raise DataError(
            f"click_given_history of {model.__name__} must return a probability and its complement, each of shape "
            f"(session, rank), here {shape}: got {got}.",
            code="wrong-shape",
            model=model.__name__,
            expected=shape,
            shapes=shapes,
        )


def _cross_entropy_of_counts(click: Prob, impressions: Any, clicks: Any) -> Any:
    """Return the cross-entropy of clicks among impressions, in nats."""
    return -jnp.sum(clicks * jnp.log(click.yes) + (impressions - clicks) * jnp.log(click.no))


def _get_rows(table: Any, index: Any) -> Any:
    """Return rows of a table; padding rows beyond the end give an arbitrary row that is not used."""
    return table.at[index].get(mode="clip", unique_indices=True)


def _set_rows(table: Any, rows: Any, index: Any) -> Any:
    """Return a table with some rows replaced; padding rows beyond the end are dropped."""
    return table.at[index].set(rows, mode="drop", unique_indices=True)
