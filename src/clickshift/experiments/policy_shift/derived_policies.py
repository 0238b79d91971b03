"""Evaluation of the policies that are derived from click models (policy-shift paper, section 6.3).

The Top-Down and Max-Reward lists of each model are shown to the simulated user. Where Max-Reward gets fewer clicks than
Top-Down, or fewer than the model predicted, the model is not robust on the lists to which optimising it leads.

References
----------
Deffayet, R., Renders, J.-M. & de Rijke, M. (2022). Evaluating the robustness of click models to policy distributional
shift. ACM Transactions on Information Systems.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from clickshift.core.progress import Progress, silent
from clickshift.core.rng import as_generator, generator, stream_key
from clickshift.core.spec import check_options
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings
from clickshift.errors import DataError, SpecError
from clickshift.models.base import ClickModel
from clickshift.policies.derived import SEARCHES, DerivedLists, FairPolicy, fair, max_reward, top_down
from clickshift.policies.derived.fair import disparity
from clickshift.policies.derived.model_scores import examination, relevance_in


@dataclass(frozen=True)
class DerivedPolicies:
    """Which policies are derived from each model, and how they are evaluated.

    Parameters
    ----------
    search
        Search of Max-Reward for the list with the most expected clicks: "local", or "sampled" as in the paper.
    starts
        Number of starts of the local search.
    samples
        Number of lists of the sampled search.
    sessions
        Simulated sessions of each policy, for the columns `clicks` and `ctr`; `expected_clicks` is exact.
    penalties
        Also evaluate Max-Reward of all seeds together, penalised by this many standard deviations across seeds.
    fair
        Also evaluate exposure proportional to relevance, and the disparity of every policy.
    ranks
        Length of the lists.

    Raises
    ------
    SpecError
        If the search is unknown ("unknown-name") or a number is below 1 ("bad-option").
    """

    search: str = "local"
    starts: int = 3
    samples: int = 40_320
    sessions: int = 100_000
    penalties: tuple[float, ...] = ()
    fair: bool = False
    ranks: int = 10

    def __post_init__(self) -> None:
        check_options(self)
        if not all(map(math.isfinite, self.penalties)):
            raise SpecError(
                f"a penalty must be a finite number of standard deviations: got {self.penalties}.",
                code="bad-option",
                option="penalties",
                value=self.penalties,
            )
        if self.search not in SEARCHES:
            raise SpecError(
                f"search must be one of {', '.join(SEARCHES)}: got {self.search!r}.",
                code="unknown-name",
                name=self.search,
                known=list(SEARCHES),
            )
        numbers = {name: getattr(self, name) for name in ("starts", "samples", "sessions", "ranks")}
        for name, value in numbers.items():
            if value < 1:
                raise SpecError(f"{name} must be at least 1: got {value}.", code="bad-option", option=name, value=value)

    def rows(
        self,
        models: Sequence[ClickModel],
        seen: Corpus,
        user: ClickModel,
        frequency: Float[np.ndarray, " query"],
        *,
        rng: int | np.random.Generator,
        progress: Progress = silent,
    ) -> Iterator[dict[str, Any]]:
        """Derive the policies of each model and evaluate them on the simulated user.

        Parameters
        ----------
        models
            The fitted models, one per seed.
        seen
            Documents that the training log has shown, which the policies rank.
        user
            Click model of the simulated user.
        frequency
            Weight of each query.
        rng
            Random generator, or seed, of searches and simulated sessions.
        progress
            Called with a text before each policy.

        Yields
        ------
        dict
            One row per seed and policy. `clicks` and `ctr`: clicks per simulated list and per result.
            `expected_clicks`: exact expected clicks per list under the user. `predicted_clicks`: the model's
            prediction. `curse`: predicted minus expected clicks, the optimiser's curse. `disparity` (with `fair`): the
            absolute difference between a document's exposure under the user and an exposure proportional to the user's
            relevance, as the maximum over a query's documents and the mean over queries. A penalised policy uses all
            seeds: it has one row, with seed 0, and none if there is a single model.

        Raises
        ------
        DataError
            If there is not one frequency per query, or all are 0 ("bad-weights").
        """
        if frequency.shape != (seen.n_queries,) or not frequency.sum() > 0:
            raise DataError(
                f"there must be a frequency for each of {seen.n_queries} queries, not all of them 0: "
                f"got shape {frequency.shape}.",
                code="bad-weights",
                count=seen.n_queries,
                shape=frequency.shape,
            )
        share = frequency / frequency.sum()
        key = stream_key(as_generator(rng))
        for policy, seed, derive in self._policies(models, seen):
            progress(f"{policy} of {seen.n_queries:,} queries, seed {seed + 1} of {len(models)}")
            start = time.process_time()
            derived = derive(rng=generator(key, policy, seed))
            row: dict[str, Any] = {"kind": "policy", "seed": seed, "policy": policy}
            row["seconds"] = time.process_time() - start
            lists, weight = _weighted_lists(derived)
            # common random numbers: policies of one seed are shown to the same users, for less noise in differences
            row |= self._clicks(user, lists, share[lists.query] * weight, generator(key, "sessions", seed))
            row["predicted_clicks"] = float(share @ derived.predicted)
            row["curse"] = row["predicted_clicks"] - row["expected_clicks"]
            if self.fair:
                row["disparity"] = float(share @ _disparity(user, seen, lists, weight, share))
            yield row

    def _policies(
        self, models: Sequence[ClickModel], seen: Corpus
    ) -> Iterator[tuple[str, int, Callable[..., DerivedLists | FairPolicy]]]:
        """Name, seed and function of each policy to derive."""
        search_options: dict[str, Any] = {
            "ranks": self.ranks,
            "search": self.search,
            "starts": self.starts,
            "samples": self.samples,
        }
        for seed, model in enumerate(models):
            yield "Top-Down", seed, partial(top_down, model, seen, ranks=self.ranks)
            yield "Max-Reward", seed, partial(max_reward, model, seen, **search_options)
            if self.fair:
                yield "Fair", seed, partial(fair, model, seen, ranks=self.ranks)
        if len(models) > 1:
            for penalty in self.penalties:
                yield (
                    f"Max-Reward - {penalty:g} sd",
                    0,
                    partial(max_reward, models, seen, penalty=penalty, **search_options),
                )

    def _clicks(
        self, user: ClickModel, lists: Rankings, prob: Float[np.ndarray, " session"], rng: np.random.Generator
    ) -> dict[str, float]:
        """Simulated and expected clicks on lists that are shown with these probabilities."""
        shown = lists[np.repeat(np.arange(len(lists)), rng.multinomial(self.sessions, prob / prob.sum()))]
        clicks = user.sample(shown, rng=rng).click.sum()
        return {
            "clicks": float(clicks / self.sessions),
            "ctr": float(clicks / shown.length.sum()),
            "expected_clicks": float(prob @ user.expected_clicks(lists)),
        }


def _weighted_lists(derived: DerivedLists | FairPolicy) -> tuple[Rankings, Float[np.ndarray, " session"]]:
    """The lists of a policy, and the probability of each for its query."""
    if isinstance(derived, FairPolicy):
        return derived.policy.lists, derived.policy.weight
    return derived.rankings, np.ones(len(derived.rankings))


def _disparity(
    user: ClickModel, seen: Corpus, lists: Rankings, weight: np.ndarray, share: np.ndarray
) -> Float[np.ndarray, " query"]:
    """Disparity of each query: how far exposure under the user is from a share proportional to relevance."""
    exposure = examination(user, lists, weight=share[lists.query] * weight)
    return disparity(lists, weight, relevance_in([user], seen), exposure)
