"""Preparation of a run for the compiled program: loss terms, features, initial weights and held-out clicks."""

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
from clickshift.data.corpus import Corpus, signed_log
from clickshift.errors import DataError, SpecError
from clickshift.ranking._examples import Examples, build_examples, ordered_batches
from clickshift.ranking._losses import log_examination
from clickshift.ranking.labels import labels_for, propensities_at_shown_ranks
from clickshift.ranking.ranker import checked_features, one_hot_columns

if TYPE_CHECKING:
    from clickshift.ranking._step import RankingProgram
    from clickshift.ranking.click_ranker import ClickRanker, Run

_HELD_OUT_SHARE = 0.1
"""Share of the queries that is held out for early stopping where no held-out clicks are given."""
_HELD_OUT_BATCH = 500
"""Number of held-out queries that are evaluated at once."""
FeatureCache = dict[tuple[int, str], Any]
"""Features on the device by id of the corpus and tower, so that runs on one corpus share them."""


@dataclass(frozen=True, eq=False)
class PreparedRun:
    """A run that is ready for the compiled program.

    Parameters
    ----------
    learner
        The learner with its options.
    program
        The program that is traced and compiled.
    weights
        Initial weights.
    train
        Training examples.
    held_out
        Held-out examples.
    features
        Features of the training corpus and of the held-out corpus, on the device.
    """

    learner: ClickRanker
    program: RankingProgram
    weights: dict[str, np.ndarray]
    train: Examples
    held_out: Examples
    features: tuple[Any, Any]

    @property
    def group(self) -> Any:
        """Key of runs that can train side by side: those with equal keys."""
        shapes = tuple((name, array.shape) for name, array in self.weights.items())
        return self.program, shapes, -(-self.train.n_queries // self.learner.batch)

    def padded_terms(self, examples: Examples) -> dict[str, np.ndarray]:
        """Return the loss terms with a last entry of weight 0, which the padding of batches points to."""
        return {name: np.append(term, term.dtype.type(0)) for name, term in examples.terms.items()}

    @property
    def held_out_widths(self) -> tuple[int, int]:
        """Largest number of documents and of terms in a held-out batch."""
        return self.held_out.widths(ordered_batches(self.held_out.n_queries, _HELD_OUT_BATCH))

    def held_out_data(self, widths: tuple[int, int]) -> dict[str, Any]:
        """Return the held-out terms, features and batches, padded to these widths."""
        batches = self.held_out.packed(ordered_batches(self.held_out.n_queries, _HELD_OUT_BATCH), widths)
        return {"data": self.padded_terms(self.held_out) | {"features": self.features[1]}, "batches": batches}


def prepare_run(run: Run, cache: FeatureCache) -> PreparedRun:
    """Prepare a run that has held-out clicks for the compiled program.

    Raises
    ------
    SpecError
        If JAX or optax is not installed ("missing-dependency").
    """
    if importlib.util.find_spec("jax") is None or importlib.util.find_spec("optax") is None:
        raise SpecError(
            "ClickRanker needs JAX and optax. Install them: pip install 'clickshift[neural]'.",
            code="missing-dependency",
            packages=["jax", "optax"],
        )
    from clickshift.learners.training import keep_compiled
    from clickshift.ranking._step import RankingProgram

    keep_compiled()
    learner = run.learner
    assert run.held_out is not None
    parts = (run.corpus, run.clicks), run.held_out
    one_cell_per_pair = all(len(np.unique(cells.pair)) == len(cells.pair) for _, cells in parts)
    by_cell = learner.loss in {"pbm", "additive"} and not one_cell_per_pair
    program = RankingProgram(
        {"pbm": "click", "additive": "additive", "listwise": "listwise"}.get(learner.loss, "pointwise"),
        learner.tower,
        learner.dropout if learner.tower == "network" else (),
        learner.optimiser,
        learner.bias == "estimated",
        by_cell,
    )
    train, held_out = (
        build_examples(cells, _loss_terms(run, corpus, cells, by_cell), by_cell=by_cell, by_traffic=learner.by_traffic)
        for corpus, cells in parts
    )
    width = _input_width(learner, [corpus for corpus, _ in parts])
    weights = initial_weights(learner, width, max(cells.n_ranks for _, cells in parts))
    features = tuple(_features_on_device(corpus, learner.tower, cache) for corpus, _ in parts)
    return PreparedRun(learner, program, weights, train, held_out, (features[0], features[1]))


def _input_width(learner: ClickRanker, corpora: Sequence[Corpus]) -> int:
    """Return the number of features, or of values of the one-hot feature."""
    if learner.tower == "one-hot":
        return max(int(one_hot_columns(corpus).max()) + 1 for corpus in corpora)
    widths = [checked_features(corpus).shape[1] for corpus in corpora]
    if len(set(widths)) > 1:
        raise DataError(
            f"held-out documents must have the same {widths[0]} features: got {widths[1]}. Pass a corpus with the same "
            "features.",
            code="wrong-feature-count",
            expected=widths[0],
            count=widths[1],
        )
    return int(widths[0])


def initial_weights(learner: ClickRanker, width: int, ranks: int) -> dict[str, np.ndarray]:
    """Draw initial weights from the learner's seed as PyTorch does: uniform within 1 / sqrt(inputs).

    The logits of examination are standard normal.

    Parameters
    ----------
    learner
        The learner with its options.
    width
        Number of features, or of values of the one-hot feature.
    ranks
        Number of ranks, for estimated examination.

    Returns
    -------
    dict of arrays
        Weights by name, see `Ranker`.
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
    """Return the run with held-out clicks: where it has none, those of a tenth of the queries are held out.

    Raises
    ------
    SpecError
        If a one-hot tower has no held-out clicks ("missing-held-out").
    DataError
        If there is only one query ("too-few-queries").
    """
    if run.held_out is not None:
        return run
    if run.learner.tower == "one-hot":
        raise SpecError(
            "tower='one-hot' needs held-out clicks: it has no scores for documents that it was not trained on. "
            "Pass `held_out`.",
            code="missing-held-out",
        )
    clicks, held_out = hold_out_queries(run.corpus, run.clicks)
    return replace(run, clicks=clicks, held_out=(run.corpus, held_out))


def hold_out_queries(corpus: Corpus, clicks: Cells) -> tuple[Cells, Cells]:
    """Split counts into those of nine tenths of the queries, and those of the others, which are held out.

    Raises
    ------
    DataError
        If there is only one query ("too-few-queries").
    """
    query = corpus.vocabulary.pair_query[clicks.pair]
    queries = np.unique(query)
    n_held_out = max(1, round(_HELD_OUT_SHARE * len(queries)))
    if n_held_out == len(queries):
        raise DataError(
            f"there must be clicks on at least two queries, one of them held out: got {len(queries)}.",
            code="too-few-queries",
            count=len(queries),
        )
    chosen = generator(0, "ClickRanker", "held out").permutation(queries)[:n_held_out]
    is_held_out = np.isin(query, chosen)
    return _select_cells(clicks, ~is_held_out), _select_cells(clicks, is_held_out)


def _select_cells(cells: Cells, keep: np.ndarray) -> Cells:
    """Return some of the cells."""
    columns = cells.pair[keep], cells.situation[keep], cells.impressions[keep], cells.clicks[keep]
    return Cells(cells.vocabulary, cells.n_ranks, cells.by, *columns, n_segments=cells.n_segments)


def _loss_terms(run: Run, corpus: Corpus, cells: Cells, by_cell: bool) -> dict[str, np.ndarray]:
    """Return the columns that the loss is computed from, with a row for every cell or every pair."""
    learner = run.learner
    if learner.loss not in {"pbm", "additive"}:
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
    rank = cells.situation
    if learner.bias == "estimated":
        terms["rank"] = rank
    else:
        examination = np.ones(cells.n_situations) if run.examination is None else run.examination
        prob = _examination_probabilities(examination, cells)[rank]
        terms["examined"], terms["unexamined"] = log_examination(prob)
    return terms if by_cell else {name: _by_pair(cells, term) for name, term in terms.items()}


def _examination_probabilities(
    examination: Float[np.ndarray, " known_rank"], cells: Cells
) -> Float[np.ndarray, " rank"]:
    """Return examination for the click loss, checked to be probabilities."""
    shown = cells.by_situation()[0] > 0
    prob = propensities_at_shown_ranks(examination, shown, n_ranks=cells.n_ranks)
    bad = shown & (prob > 1)
    if bad.any():
        rank = int(bad.argmax())
        raise DataError(
            f"examination must be at most 1 for loss='pbm', which predicts clicks by it: got {prob[rank]:g} at rank "
            f"{rank % cells.n_ranks + 1}. Divide all by the largest, or use loss='ips'.",
            code="not-a-probability",
            rank=rank % cells.n_ranks + 1,
            value=float(prob[rank]),
        )
    return prob


def _by_pair(cells: Cells, term: np.ndarray) -> np.ndarray:
    """Scatter a column of cells, of which there is one per pair, to all pairs of the corpus."""
    rows = np.zeros(cells.vocabulary.n_pairs, term.dtype)
    rows[cells.pair] = term
    return rows


def _features_on_device(corpus: Corpus, tower: str, cache: FeatureCache) -> Any:
    """Return the features of a corpus as the program reads them, from the cache where it has them."""
    import jax.numpy as jnp

    entry = cache.get((id(corpus), tower))
    if entry is None:
        array = jnp.asarray(one_hot_columns(corpus) if tower == "one-hot" else signed_log(checked_features(corpus)))
        entry = cache[id(corpus), tower] = corpus, array  # the corpus is kept, so that no other object gets its id
    return entry[1]
