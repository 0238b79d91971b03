"""The derived-policies protocol: what do users give a ranker that trusts a click model? (policy-shift paper, 6.3)

Each model's Top-Down and Max-Reward lists are shown to the true user. Where Max-Reward earns less than Top-Down, or
less than the model promised, the model does not hold where optimising it leads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from clickshift.core.rng import as_generator, generator, stream_key
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings
from clickshift.errors import DataError, SpecError
from clickshift.models.base import ClickModel
from clickshift.policies.derived import SEARCHES, DerivedLists, FairLists, fair, max_reward, top_down
from clickshift.policies.derived.fair import disparity
from clickshift.policies.derived.model_scores import examination, relevance_in


@dataclass(frozen=True)
class DerivedPolicies:
    """Which policies are derived from each model, and how. `search`, `starts` and `samples` are Max-Reward's."""

    search: str = "local"
    starts: int = 3
    samples: int = 40_320
    sessions: int = 100_000
    """Simulated lists of each policy, for `clicks` and `ctr`; `expected_clicks` needs none."""
    penalties: tuple[float, ...] = ()
    """Also Max-Reward of all seeds together, less so many standard deviations between them."""
    fair: bool = False
    """Also exposure in proportion to relevance; and of every policy, how far the true user's exposure is from that."""
    ranks: int = 10

    def __post_init__(self) -> None:
        if self.search not in SEARCHES:
            raise SpecError(f"search must be one of {', '.join(SEARCHES)}: got {self.search!r}.")
        if min(self.starts, self.samples, self.sessions, self.ranks) < 1:
            raise SpecError("DerivedPolicies needs starts, samples, sessions and ranks of at least 1.")

    def rows(
        self,
        models: Sequence[ClickModel],
        seen: Corpus,
        user: ClickModel,
        frequency: Float[np.ndarray, " query"],
        *,
        rng: int | np.random.Generator,
    ) -> Iterator[dict[str, Any]]:
        """One row per model, which is a seed, and policy. Queries count by their `frequency`.

        `clicks` and `ctr`: clicks per simulated list and per result. `expected_clicks`: per list, exact under the user.
        `predicted_clicks`: the model's promise. `curse`: what is promised and not expected. `disparity`, with `fair`:
        how far the exposure that the user gives is from a share in proportion to the user's relevance, at worst over a
        query's documents, on average over queries. A penalised policy rests on all seeds: it has one row, of seed 0,
        and none where there is one model only.
        """
        if frequency.shape != (seen.n_queries,) or not frequency.sum() > 0:
            raise DataError(
                f"there must be a frequency for each of {seen.n_queries} queries, not all of them 0: "
                f"got shape {frequency.shape}."
            )
        share = frequency / frequency.sum()
        key = stream_key(as_generator(rng))
        for policy, seed, derive in self._policies(models, seen):
            start = time.perf_counter()
            derived = derive(rng=generator(key, policy, seed))
            row: dict[str, Any] = {"kind": "policy", "seed": seed, "policy": policy}
            row["seconds"] = time.perf_counter() - start
            lists, weight = _lottery(derived)
            # policies of one seed meet the same users, so that their difference is not that of chance
            row |= self._earned(user, lists, share[lists.query] * weight, generator(key, "sessions", seed))
            row["predicted_clicks"] = float(share @ derived.predicted)
            row["curse"] = row["predicted_clicks"] - row["expected_clicks"]
            if self.fair:
                row["disparity"] = float(share @ _disparity(user, seen, lists, weight, share))
            yield row

    def _policies(
        self, models: Sequence[ClickModel], seen: Corpus
    ) -> Iterator[tuple[str, int, Callable[..., DerivedLists | FairLists]]]:
        searching: dict[str, Any] = {
            "ranks": self.ranks,
            "search": self.search,
            "starts": self.starts,
            "samples": self.samples,
        }
        for seed, model in enumerate(models):
            yield "Top-Down", seed, partial(top_down, model, seen, ranks=self.ranks)
            yield "Max-Reward", seed, partial(max_reward, model, seen, **searching)
            if self.fair:
                yield "Fair", seed, partial(fair, model, seen, ranks=self.ranks)
        if len(models) > 1:
            for penalty in self.penalties:
                yield f"Max-Reward - {penalty:g} sd", 0, partial(max_reward, models, seen, penalty=penalty, **searching)

    def _earned(
        self, user: ClickModel, lists: Rankings, prob: Float[np.ndarray, " session"], rng: np.random.Generator
    ) -> dict[str, float]:
        """What the user gives to lists that are shown with these probabilities."""
        shown = lists[np.repeat(np.arange(len(lists)), rng.multinomial(self.sessions, prob / prob.sum()))]
        clicks = user.sample(shown, rng=rng).click.sum()
        return {
            "clicks": float(clicks / self.sessions),
            "ctr": float(clicks / shown.length.sum()),
            "expected_clicks": float(prob @ user.expected_clicks(lists)),
        }


def _lottery(derived: DerivedLists | FairLists) -> tuple[Rankings, Float[np.ndarray, " session"]]:
    """Lists, and how likely each is for its query."""
    if isinstance(derived, FairLists):
        return derived.lists, derived.weight
    return derived.rankings, np.ones(len(derived.rankings))


def _disparity(
    user: ClickModel, seen: Corpus, lists: Rankings, weight: np.ndarray, share: np.ndarray
) -> Float[np.ndarray, " query"]:
    exposure = examination(user, lists, weight=share[lists.query] * weight)
    return disparity(lists, weight, relevance_in([user], seen), exposure)
