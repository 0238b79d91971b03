"""Weighted lists: a stochastic ranking policy as lists with probabilities, whoever made them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.rng import as_generator
from clickshift.core.unique_rows import distinct_rows
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import DataError

_TOLERANCE = 1e-6
"""Tolerance of the sum of a query's weights: files contain rounded numbers."""


@final
@dataclass(frozen=True, eq=False)
class WeightedLists:
    """A stochastic ranking policy as lists with probabilities, which sum to 1 over the lists of each query.

    Parameters
    ----------
    lists
        The lists, in a vocabulary of their own.
    weight
        Probability of each list, Float[session]; by default every query has one list, with probability 1.

    Raises
    ------
    DataError
        If a query or document has no id ("missing-id"), if weights are not one probability per list
        ("unequal-lengths", "not-a-probability") or do not sum to 1 ("weights-do-not-sum-to-one"), or if a query has
        several lists without weights ("duplicate-query").

    Examples
    --------
    >>> vocabulary = Vocabulary.of(np.array([0, 0]), np.array([10, 11]))[0]
    >>> lists = Rankings(vocabulary, np.array([0, 0], np.int32), np.array([[0, 1], [1, 0]], np.int32))
    >>> WeightedLists(lists, np.array([0.25, 0.75])).weight.tolist()
    [0.25, 0.75]
    """

    lists: Rankings
    weight: np.ndarray = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        lists = self.lists
        if (lists.query == UNSEEN).any() or ((lists.pair == UNSEEN) & lists.shown).any():
            raise DataError(
                "every query and document of a target must have an id. Pass its lists in their own vocabulary, "
                "not in the log's.",
                code="missing-id",
            )
        weight = _one_list_per_query(lists) if self.weight is None else np.asarray(self.weight, np.float64)
        if weight.shape != lists.query.shape:
            raise DataError(
                f"there must be one weight per list, {len(lists)}: got shape {weight.shape}.",
                code="unequal-lengths",
                expected=len(lists),
                shape=weight.shape,
            )
        bad = ~((weight >= 0) & (weight <= 1 + _TOLERANCE))
        if bad.any():
            row = int(bad.argmax())
            raise DataError(
                f"the weight of a list must be a probability: list {row + 1} has {weight[row]} "
                f"({int(bad.sum()):,} such lists). Fix it.",
                code="not-a-probability",
                row=row + 1,
                value=float(weight[row]),
                count=int(bad.sum()),
            )
        total = np.bincount(lists.query, weight)
        off = (np.abs(total - 1) > _TOLERANCE) & (np.bincount(lists.query) > 0)
        if off.any():
            query = int(off.argmax())
            name = str(lists.vocabulary.query_ids[query])
            raise DataError(
                f"the weights of a query's lists must sum to 1: those of query {name} sum to {total[query]:.6g} "
                f"({int(off.sum()):,} such queries). Divide them by their sum.",
                code="weights-do-not-sum-to-one",
                query=name,
                value=float(total[query]),
                count=int(off.sum()),
            )
        object.__setattr__(self, "weight", weight / total[lists.query])

    @classmethod
    def frequencies(cls, sessions: Sessions) -> WeightedLists:
        """Estimate the policy of a log by its list frequencies, e.g. the policy of another log or of another day.

        Parameters
        ----------
        sessions
            The log.
        """
        rankings = sessions.rankings
        keys = np.concatenate([rankings.query[:, None], rankings.pair], axis=1)
        group, first = distinct_rows(keys)
        count = np.bincount(group, sessions.count, len(first))
        query = rankings.query[first]
        lists = Rankings(rankings.vocabulary, query, rankings.pair[first], rankings.shown[first])
        return cls(lists, count / np.bincount(query, count)[query])

    @property
    def vocabulary(self) -> Vocabulary:
        """Vocabulary of the lists."""
        return self.lists.vocabulary

    @property
    def placement(self) -> Float[np.ndarray, "pair rank"]:
        """Probability of each document at each rank."""
        out = np.zeros((self.vocabulary.n_pairs, self.lists.n_ranks))
        row, rank = np.nonzero(self.lists.shown)
        np.add.at(out, (self.lists.pair[row, rank], rank), self.weight[row])
        return out

    def sample(self, query: Int[np.ndarray, " session"], *, rng: int | np.random.Generator) -> Rankings:
        """Sample a list for each of the given query numbers, which must have lists.

        Parameters
        ----------
        query
            Query number of each session.
        rng
            Seed or random generator.

        Returns
        -------
        Rankings
            One list per session.
        """
        order = np.argsort(self.lists.query, kind="stable")
        owner = self.lists.query[order]
        first, last = (np.searchsorted(owner, query, side=side) for side in ("left", "right"))
        upper = np.cumsum(self.weight[order])  # the weights of a query sum to 1
        below = np.append(0.0, upper)[first]
        drawn = np.searchsorted(upper, below + as_generator(rng).random(len(query)), side="right")
        return self.lists[order[np.clip(drawn, first, last - 1)]]


def _one_list_per_query(lists: Rankings) -> Float[np.ndarray, " session"]:
    """Check that no query has two lists, and give each list the weight 1."""
    times = np.bincount(lists.query)
    if (times > 1).any():
        name = str(lists.vocabulary.query_ids[times.argmax()])
        raise DataError(
            f"a ranking must have one list per query: query {name} has {times.max()}. Keep one, or give the lists "
            "weights that sum to 1.",
            code="duplicate-query",
            query=name,
            count=int(times.max()),
        )
    return np.ones(len(lists))
