"""Where a click model's loss under a new ranker comes from: examination, attractiveness, or the structure of the model.

The simulated users' own parameters are known. A fitted model keeps its structure, and its fitted parts are exchanged
for true ones: attractiveness alone, examination alone, and both. What is left with both is the loss of the structure.
The loss of each part is what its exchange saves, as a mean over the two orders of exchange (Shapley value), so that the
three parts sum to the perplexity above the users' own model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.progress import Progress, silent
from clickshift.data.sessions import Sessions
from clickshift.display.document import Document, Section
from clickshift.display.figures import COLOURS
from clickshift.display.result import Result
from clickshift.display.tables import Rows
from clickshift.errors import SpecError
from clickshift.experiments.policy_shift.protocol import SCALES, PolicyShift
from clickshift.learners import fit
from clickshift.metrics.click_prediction import click_bits, perplexity_of
from clickshift.models import DBN, PBM, UBM, Mixture
from clickshift.models.base import ClickModel, PairTable
from clickshift.simulation.search_engine import IND, SimulatedLogs

__all__ = ["LossSources", "loss_sources", "sources_of_loss"]

PARTS = ("examination", "attractiveness", "structure")
_PRIOR_RESULTS = 20
"""Number of results that the fitted examination counts for where examination is estimated on a test log."""
_STEPS = 60
"""Bisection steps, each of which halves the interval of an estimate."""


@dataclass(frozen=True, repr=False)
class LossSources(Result):
    """Perplexity above the simulated users' own model, split into its sources.

    Parameters
    ----------
    losses
        One row per users, training policy, test policy and model.

    Notes
    -----
    Facts (`to_dict`, `--json`): `conclusion`; `rows`, with `user`, `training`, `testing`, `model`, `excess` and its
    parts `examination`, `attractiveness` and `structure`, which sum to it; `means`, the same by users and model.
    """

    losses: Rows

    @property
    def conclusion(self) -> str:
        """The largest source of each model's loss."""
        texts = []
        for model in dict.fromkeys(row["model"] for row in self._ood):
            own = [row for row in self._ood if row["model"] == model]
            mean = {name: float(np.mean([row[name] for row in own])) for name in ("excess", *PARTS)}
            largest = max(PARTS, key=mean.__getitem__)
            texts.append(f"{model} loses {mean['excess']:.4f}, most by {largest} ({mean[largest]:.4f})")
        return f"Mean perplexity above the users' own model, on lists of other policies: {'; '.join(texts)}."

    @property
    def _ood(self) -> Rows:
        """Rows of other policies' lists."""
        return [row for row in self.losses if row["testing"] != IND]

    def rows(self) -> Rows:
        """Return one row per shift and model."""
        return self.losses

    @property
    def means(self) -> Rows:
        """Means over other policies' lists, by users and model."""
        groups: dict[tuple[str, str], Rows] = {}
        for row in self._ood:
            groups.setdefault((row["user"], row["model"]), []).append(row)
        return [
            {"user": user, "model": model}
            | {name: float(np.mean([row[name] for row in group])) for name in ("excess", *PARTS)}
            for (user, model), group in groups.items()
        ]

    def facts(self) -> Mapping[str, Any]:
        """Return the conclusion, the rows and their means."""
        return {**super().facts(), "means": self.means}

    def _document(self) -> Document:
        table = [{k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()} for row in self.means]
        figure = partial(_figure, self.means)
        sections = [Section("Means over other policies' lists", table=table, figure=figure, name="loss sources")]
        return Document("Where the loss under a new ranker comes from", self.conclusion, sections)


def loss_sources(
    models: Sequence[str] = ("PBM", "UBM", "DBN"), *, scale: str = "quick", progress: Progress = silent
) -> LossSources:
    """Split the loss of classical click models under policy shift into examination, attractiveness and structure.

    Parameters
    ----------
    models
        Models to fit by maximum likelihood: PBM, UBM or DBN. DBN is fitted for DBN users only: the parameters of other
        users would give probability 0 to clicks that they make.
    scale
        Scale of the policy-shift protocol: "quick" or "paper".
    progress
        Called with a step for each training log.

    Returns
    -------
    LossSources
        The parts of each model's loss on each test policy's lists.

    Raises
    ------
    SpecError
        "unknown-name" for another scale or model.

    Examples
    --------
    >>> import clickshift as cs
    >>> try:
    ...     cs.loss_sources(["NCM"])
    ... except SpecError as error:
    ...     error.code
    'unknown-name'
    """
    known = {"PBM": PBM, "UBM": UBM, "DBN": DBN}
    for value, names in ((scale, list(SCALES)), *((model, list(known)) for model in models)):
        if value not in names:
            raise SpecError(
                f"must be one of {', '.join(names)}: got {value!r}.", code="unknown-name", value=value, known=names
            )
    protocol = PolicyShift(**SCALES[scale])
    rows: Rows = []
    progress(0, total=len(protocol.users) * len(protocol.training))
    for user, user_text in protocol.users:
        for training, training_text in protocol.training:
            logs = protocol.world.logs(user_text, training_text)
            for name in models:
                if known[name] is DBN and not isinstance(logs.user, DBN):
                    continue  # other users have no parameters that DBN could take
                for testing, parts in sources_of_loss(fit(name, logs.train), logs).items():
                    rows.append({"user": user, "training": training, "testing": testing, "model": name, **parts})
            progress(1)
    return LossSources(rows)


def sources_of_loss(model: ClickModel, logs: SimulatedLogs) -> dict[str, dict[str, float]]:
    """Split the loss of one fitted model on each test log.

    True attractiveness is the users' own. True examination of PBM and UBM is the one that describes the users best on
    the lists of the test log, given true attractiveness; it is estimated on the other half of the test log. True
    examination of DBN is the users' own satisfaction and continuation. The product of attractiveness and examination
    of PBM and UBM is all that a log shows, so where one part alone is exchanged, the scale of the product is estimated
    on the training log.

    Parameters
    ----------
    model
        A fitted PBM or UBM; or a fitted DBN, if the users are DBN users.
    logs
        The logs of simulated users and a training policy.

    Returns
    -------
    dict
        By test log: `excess` over the users' own model, and its parts `examination`, `attractiveness`, `structure`.
    """
    vocabulary = logs.train.vocabulary
    train = logs.train.in_vocabulary(vocabulary)
    user = logs.user.components[0] if isinstance(logs.user, Mixture) else logs.user
    attractiveness = _users_table(user, "attractiveness", model)
    found = {}
    for name, log in logs.test.items():
        variants = _exchanged(model, user, attractiveness, train, log.in_vocabulary(model.vocabulary))
        own = perplexity_of(click_bits(logs.user, log), log.rankings.shown, log.count).average
        excess = {
            key: perplexity_of(bits, log.rankings.shown, log.count).average - own for key, bits in variants.items()
        }
        fitted, true_a, true_e, both = (excess[key] for key in ("fitted", "attractiveness", "examination", "both"))
        found[name] = {
            "excess": fitted,
            "examination": ((fitted - true_e) + (true_a - both)) / 2,
            "attractiveness": ((fitted - true_a) + (true_e - both)) / 2,
            "structure": both,
        }
    return found


def _users_table(user: ClickModel, name: str, model: ClickModel) -> PairTable:
    """Return a parameter of the users for the pairs of a model."""
    values = np.asarray(getattr(user, name), np.float64)
    if values.ndim == 0:
        return np.full(model.vocabulary.n_pairs + 1, float(values))
    table: np.ndarray = np.append(values[user.vocabulary.pairs_of(model.vocabulary)], values[-1])
    return table


def _exchanged(
    model: ClickModel, user: ClickModel, attractiveness: PairTable, train: Sessions, log: Sessions
) -> dict[str, Float[np.ndarray, "session rank"]]:
    """Return the bits of a test log with each combination of fitted and true parts."""
    bits = {"fitted": click_bits(model, log)}
    if isinstance(model, DBN):
        browsing: dict[str, Any] = {
            "satisfaction": _users_table(user, "satisfaction", model),
            "continuation": float(np.mean(user.continuation)),  # type: ignore[attr-defined]
        }
        true_a = replace(model, attractiveness=attractiveness)
        bits["attractiveness"] = click_bits(true_a, log)
        bits["examination"] = click_bits(replace(model, **browsing), log)
        bits["both"] = click_bits(replace(true_a, **browsing), log)
        return bits
    assert isinstance(model, PBM | UBM)
    scaled = _scaled(replace(model, attractiveness=attractiveness), train)
    bits["attractiveness"] = click_bits(scaled, log)
    bits["examination"], bits["both"] = np.empty_like(bits["fitted"]), np.empty_like(bits["fitted"])
    half = np.arange(len(log)) % 2 == 0
    for own, other in ((half, ~half), (~half, half)):
        examination = _best_examination(scaled, log[np.flatnonzero(other)])
        rows = log[np.flatnonzero(own)]
        bits["both"][own] = click_bits(replace(model, attractiveness=attractiveness, examination=examination), rows)
        bits["examination"][own] = click_bits(_scaled(replace(model, examination=examination), train), rows)
    return bits


def _scaled(model: PBM | UBM, train: Sessions) -> PBM | UBM:
    """Multiply examination by the number that maximises the likelihood of the training log."""
    rows, ranks = np.nonzero(train.rankings.shown)
    prob = model.click_prob_given_history(train)[rows, ranks]
    scale = _maximum(
        prob, train.click[rows, ranks], train.count[rows].astype(np.float64), np.zeros(len(rows), np.int64), 1
    )
    return replace(model, examination=np.minimum(model.examination * scale[0], 1.0))


def _best_examination(model: PBM | UBM, log: Sessions) -> Float[np.ndarray, " situation"]:
    """Return the examination of each situation that maximises the likelihood of a log, given attractiveness.

    Where a situation is rare, the estimate stays near the examination of the model.
    """
    rows, ranks = np.nonzero(log.rankings.shown)
    situation, count = _situations(model, log)[rows, ranks], log.count[rows].astype(np.float64)
    prob, n_situations = model.attractiveness[log.rankings.pair[rows, ranks]], len(model.examination)
    estimate = np.minimum(_maximum(prob, log.click[rows, ranks], count, situation, n_situations), 1.0)
    results = np.bincount(situation, count, n_situations)
    weight = results / (results + _PRIOR_RESULTS)
    return np.where(weight > 0, weight * np.nan_to_num(estimate) + (1 - weight) * model.examination, model.examination)


def _situations(model: PBM | UBM, log: Sessions) -> Int[np.ndarray, "session rank"]:
    """Return the row of the examination table of each result: its rank, and for UBM the last click above."""
    ranks = np.arange(log.n_ranks)
    if isinstance(model, PBM):
        return np.broadcast_to(np.minimum(ranks, len(model.examination) - 1), log.click.shape)
    last = np.zeros(log.click.shape, np.int64)
    last[:, 1:] = np.maximum.accumulate(np.where(log.click, ranks + 1, 0), axis=1)[:, :-1]
    return ranks * (ranks + 1) // 2 + last


def _maximum(
    prob: Float[np.ndarray, " result"],
    click: np.ndarray,
    count: Float[np.ndarray, " result"],
    group: Int[np.ndarray, " result"],
    n_groups: int,
) -> Float[np.ndarray, " group"]:
    """Return the factor of each group that maximises the likelihood of clicks with probability factor x prob.

    The derivative of the log-likelihood falls with the factor, so bisection finds its root. NaN without results.
    """
    largest = np.full(n_groups, 0.0)
    np.maximum.at(largest, group, prob)
    with np.errstate(divide="ignore"):
        low, high = np.zeros(n_groups), (1 - 1e-9) / largest
    clicks = np.bincount(group, count * click, n_groups)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        factor = middle[group]
        skips = np.bincount(group, count * ~click * prob / (1 - np.minimum(factor * prob, 1 - 1e-12)), n_groups)
        with np.errstate(divide="ignore", invalid="ignore"):
            rising = clicks / middle > skips
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    return np.where(np.bincount(group, minlength=n_groups) > 0, (low + high) / 2, np.nan)


def _figure(means: Sequence[Mapping[str, Any]]) -> Any:
    """Plot the parts of each model's loss as stacked bars."""
    import plotly.graph_objects as go

    figure = go.Figure()
    models = [f"{row['model']}, {row['user']} users" for row in means]
    for part, colour in zip(PARTS, COLOURS, strict=False):
        figure.add_bar(name=part, x=[row[part] for row in means], y=models, orientation="h", marker_color=colour)
    figure.update_layout(
        barmode="relative",
        xaxis_title="excess perplexity",
        height=160 + 36 * len(models),
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
    )
    figure.update_yaxes(autorange="reversed")
    return figure
