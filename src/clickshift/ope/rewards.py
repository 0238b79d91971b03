"""What a list earns: clicks weighted by rank, or one for any click."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from jaxtyping import Bool, Float

from clickshift.data.sessions import Rankings, Sessions
from clickshift.errors import DataError, SpecError
from clickshift.models.base import ClickModel

_REWARDS = ("clicks", "dcg", "any-click")
_TEXT = re.compile(r"(clicks|dcg|any-click)(?:@([1-9]\d*))?")


@final
@dataclass(frozen=True)
class Reward:
    """f(A, w) = sum over ranks of theta_r w(a_r, r) (Li et al. 2018, section 5), or 1 if anything is clicked.

    clicks: theta = 1; dcg: theta = 1 / log2(1 + rank), rank from 1; `first` ranks only, or all. `weights` replaces
    theta by one's own numbers. Lists are cut to the ranks that count, so that equal beginnings are equal lists.

    >>> Reward.named("dcg@3").theta(10).round(3).tolist()
    [1.0, 0.631, 0.5]
    """

    kind: Literal["clicks", "dcg", "any-click"] = "clicks"
    first: int | None = None
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.kind not in _REWARDS:
            raise SpecError(f"a reward must be one of {', '.join(_REWARDS)}: got {self.kind!r}.")
        if self.first is not None and self.first < 1:
            raise SpecError(f"a reward must count at least one rank: got first = {self.first}.")
        if self.weights is not None:
            theta = np.asarray(self.weights, np.float64)
            if theta.ndim != 1 or not len(theta) or not (np.isfinite(theta) & (theta >= 0)).all() or not theta.any():
                raise SpecError(
                    f"weights of ranks must be numbers, none below 0 and one above it: got {self.weights}. "
                    "A loss may be evaluated as a reward with its sign turned."
                )
            if self.kind != "clicks" or self.first is not None:
                raise SpecError("weights of ranks stand alone: leave kind and first out.")

    @classmethod
    def named(cls, text: str) -> Reward:
        """From a text such as clicks, clicks@3, dcg or any-click@5."""
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise SpecError(f"a reward must be {', '.join(_REWARDS)}, with @K for the first K ranks: got {text!r}.")
        return cls(match[1], None if match[2] is None else int(match[2]))  # type: ignore[arg-type]

    @property
    def is_linear(self) -> bool:
        """Whether each click adds something of its own."""
        return self.kind != "any-click"

    def theta(self, n_ranks: int) -> Float[np.ndarray, " rank"]:
        """The weight of each rank that counts; ranks below the last one with a weight do not."""
        if self.weights is not None:
            theta = np.asarray(self.weights, np.float64)
            theta = theta[: min(n_ranks, int(np.flatnonzero(theta)[-1]) + 1)]
            if not theta.any():
                raise DataError(f"a rank with a weight must be shown: the log has {n_ranks} ranks, without weight all.")
            return theta
        ranks = min(n_ranks, n_ranks if self.first is None else self.first)
        return 1 / np.log2(np.arange(2.0, ranks + 2)) if self.kind == "dcg" else np.ones(ranks)

    def largest(self, n_ranks: int) -> float:
        """The most that one list can earn."""
        return float(self.theta(n_ranks).sum()) if self.is_linear else 1.0

    def earned(self, click: Bool[np.ndarray, "session rank"]) -> Float[np.ndarray, " session"]:
        """Of each list, cut to the ranks that count."""
        earned: np.ndarray = click @ self.theta(click.shape[1]) if self.is_linear else click.any(axis=1).astype(float)
        return earned

    def expected(self, model: ClickModel, lists: Rankings) -> Float[np.ndarray, " session"]:
        """What a click model expects each list to earn, cut to the ranks that count."""
        if self.is_linear:
            expected: np.ndarray = model.click_prob(lists) @ self.theta(lists.n_ranks)
            return expected
        nothing = Sessions(lists, np.zeros(lists.pair.shape, bool))
        any_click: np.ndarray = -np.expm1(model.log_likelihood(nothing))
        return any_click

    def __str__(self) -> str:
        if self.weights is not None:
            return f"clicks weighted {', '.join(f'{w:g}' for w in self.weights)}"
        return self.kind if self.first is None else f"{self.kind}@{self.first}"
