"""From a run to what the compiled program reads: terms of the loss, features, first weights, held-out clicks."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from clickshift.core.rng import generator
from clickshift.counts.cells import Cells
from clickshift.data.corpus import Corpus
from clickshift.errors import DataError, SpecError
from clickshift.ranking.examples import Examples, examples, ordered_batches
from clickshift.ranking.labels import labels_for, propensities_at
from clickshift.ranking.losses import log_examination
from clickshift.ranking.ranker import column_numbers, network_features, signed_log

if TYPE_CHECKING:
    from clickshift.ranking.click_ranker import ClickRanker, Run
    from clickshift.ranking.step import RankingProgram

HELD_OUT = 0.1
"""The share of the queries that decide when to stop, where no other clicks do."""
JUDGED_AT_ONCE = 500
"""Held-out queries."""
There = dict[tuple[int, str], Any]
"""Features that are on the device, by corpus and tower, so that runs on one corpus share them."""


@dataclass(frozen=True, eq=False)
class PreparedRun:
    """A run, made ready for the compiled program."""

    learner: ClickRanker
    program: RankingProgram
    weights: dict[str, np.ndarray]
    train: Examples
    judge: Examples
    features: tuple[Any, Any]
    """Of the corpus and of the held-out one, on the device."""

    @property
    def group(self) -> Any:
        """Runs with equal values can train side by side."""
        shapes = tuple((name, array.shape) for name, array in self.weights.items())
        return self.program, shapes, -(-self.train.n_queries // self.learner.batch)

    def terms(self, part: Examples) -> dict[str, np.ndarray]:
        """With a last entry that weighs nothing, for what fills batches up."""
        return {name: np.append(term, term.dtype.type(0)) for name, term in part.terms.items()}

    @property
    def held_out_widths(self) -> tuple[int, int]:
        return self.judge.widths(ordered_batches(self.judge.n_queries, JUDGED_AT_ONCE))

    def held_out(self, widths: tuple[int, int]) -> dict[str, Any]:
        batches = self.judge.packed(ordered_batches(self.judge.n_queries, JUDGED_AT_ONCE), widths)
        return {"data": self.terms(self.judge) | {"features": self.features[1]}, "batches": batches}


def prepare_run(run: Run, there: There) -> PreparedRun:
    """Of a run with held-out clicks."""
    if importlib.util.find_spec("jax") is None or importlib.util.find_spec("optax") is None:
        raise SpecError("ClickRanker needs JAX and optax. Install them: pip install 'clickshift[neural]'.")
    from clickshift.learners.gradient.step import keep_compiled
    from clickshift.ranking.step import RankingProgram

    keep_compiled()
    learner = run.learner
    assert run.held_out is not None
    parts = (run.corpus, run.clicks), run.held_out
    alone = all(len(np.unique(cells.pair)) == len(cells.pair) for _, cells in parts)
    by_cell = learner.loss == "pbm" and not alone
    program = RankingProgram(
        {"pbm": "click", "listwise": "listwise"}.get(learner.loss, "pointwise"),
        learner.tower,
        learner.dropout if learner.tower == "network" else (),
        learner.optimiser,
        learner.bias == "estimated",
        by_cell,
    )
    train, judge = (
        examples(cells, _terms(run, corpus, cells, by_cell), by_cell=by_cell, by_traffic=learner.by_traffic)
        for corpus, cells in parts
    )
    weights = start_weights(learner, _width(learner, [corpus for corpus, _ in parts]), max(c.n_ranks for _, c in parts))
    features = tuple(_on_device(corpus, learner.tower, there) for corpus, _ in parts)
    return PreparedRun(learner, program, weights, train, judge, (features[0], features[1]))


def _width(learner: ClickRanker, corpora: Sequence[Corpus]) -> int:
    """How many features there are, or values of the one-hot feature."""
    if learner.tower == "one-hot":
        return max(int(column_numbers(corpus).max()) + 1 for corpus in corpora)
    widths = [network_features(corpus).shape[1] for corpus in corpora]
    if len(set(widths)) > 1:
        raise DataError(f"held-out documents must have the same {widths[0]} features: got {widths[1]}.")
    return int(widths[0])


def start_weights(learner: ClickRanker, width: int, ranks: int) -> dict[str, np.ndarray]:
    """Drawn by the learner's seed as PyTorch draws them: uniform within 1 / sqrt(inputs), logits of examination normal.

    `width` is the number of features, or of values of the one-hot feature.
    """
    rng = generator(learner.seed, "ClickRanker", "start")
    weights: dict[str, np.ndarray] = {}

    def uniform(*shape: int, inputs: int) -> np.ndarray:
        drawn = rng.uniform(-1, 1, shape) / np.sqrt(inputs)
        return np.asarray(drawn, np.float32)

    if learner.tower == "one-hot":
        weights["table"], weights["intercept"] = uniform(width, inputs=width), uniform(1, inputs=width)
    else:
        for layer, (inputs, outputs) in enumerate(pairwise((width, *learner.hidden, 1))):
            weights[f"{layer}"] = uniform(inputs, outputs, inputs=inputs)
            weights[f"{layer}.bias"] = uniform(outputs, inputs=inputs)
    if learner.bias == "estimated":
        weights["examination"] = rng.normal(size=ranks).astype(np.float32)
    return weights


def with_held_out(run: Run) -> Run:
    """Where no clicks are held out, those of a tenth of the queries are."""
    if run.held_out is not None:
        return run
    if run.learner.tower == "one-hot":
        raise SpecError("tower='one-hot' needs held-out clicks: it knows nothing of documents that it did not learn.")
    words = run.corpus.vocabulary
    query = words.pair_query[run.clicks.pair]
    seen = np.unique(query)
    n = max(1, round(HELD_OUT * len(seen)))
    if n == len(seen):
        raise DataError("there must be clicks on two queries at least, one of them to decide when to stop: got one.")
    chosen = generator(0, "ClickRanker", "held out").permutation(seen)[:n]
    held = np.isin(query, chosen)
    return replace(run, clicks=_part(run.clicks, ~held), held_out=(run.corpus, _part(run.clicks, held)))


def _part(cells: Cells, keep: np.ndarray) -> Cells:
    columns = cells.pair[keep], cells.situation[keep], cells.impressions[keep], cells.clicks[keep]
    return Cells(cells.vocabulary, cells.n_ranks, cells.by, *columns)


def _terms(run: Run, corpus: Corpus, cells: Cells, by_cell: bool) -> dict[str, np.ndarray]:
    """What the loss is computed from, for every cell or every pair."""
    learner = run.learner
    if learner.loss != "pbm":
        labels = labels_for(
            cells,
            learner.loss,
            examination=run.examination,
            trust=run.trust,
            clip=learner.clip,
            regression=None if run.regression is None else run.regression(corpus),
        )
        return labels._asdict()
    terms = {"positive": cells.clicks, "total": cells.impressions}
    rank = cells.rank()
    if learner.bias == "estimated":
        terms["rank"] = rank
    else:
        prob = _examined(np.ones(cells.n_ranks) if run.examination is None else run.examination, cells)[rank]
        terms["examined"], terms["unexamined"] = log_examination(prob)
    return terms if by_cell else {name: _by_pair(cells, term) for name, term in terms.items()}


def _examined(examination: Float[np.ndarray, " known_rank"], cells: Cells) -> Float[np.ndarray, " rank"]:
    """For a click loss: probabilities."""
    shown = cells.by_rank()[0] > 0
    found = propensities_at(examination, shown)
    bad = shown & (found > 1)
    if bad.any():
        raise DataError(
            f"examination must be at most 1 for loss='pbm', which predicts clicks by it: got {found[bad][0]:g} at rank "
            f"{bad.argmax() + 1}. Divide all by the largest, or use loss='ips'."
        )
    return found


def _by_pair(cells: Cells, term: np.ndarray) -> np.ndarray:
    """Of cells that are one per pair: a row for every pair of the corpus."""
    rows = np.zeros(cells.vocabulary.n_pairs, term.dtype)
    rows[cells.pair] = term
    return rows


def _on_device(corpus: Corpus, tower: str, there: There) -> Any:
    """The features of a corpus as the program reads them. `there` keeps them, so that runs on one corpus share them."""
    import jax.numpy as jnp

    found = there.get((id(corpus), tower))
    if found is None:
        array = jnp.asarray(column_numbers(corpus) if tower == "one-hot" else signed_log(network_features(corpus)))
        found = there[id(corpus), tower] = corpus, array  # the corpus is kept, so that nothing else gets its id
    return found[1]
