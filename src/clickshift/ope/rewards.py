"""Rewards of a list: clicks weighted by rank, 1 for any click, or the sum of a signal such as revenue."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal, final

import numpy as np
from jaxtyping import Bool, Float

from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.signal_values import SignalValue
from clickshift.errors import CapabilityError, DataError, SpecError
from clickshift.models.base import ClickModel

_REWARDS = ("clicks", "dcg", "any-click")
_WEIGHTS = re.compile(r"[-+.\d][^,]*(,[^,]*)+")
Outcome = Bool[np.ndarray, "session rank"] | Float[np.ndarray, "session rank"]
"""What the results of sessions earn: clicks, or shares of the largest value of a signal."""
OUTCOME = "outcome"
"""Signal of sessions whose results earn the values of a signal (`signal_reward.with_outcomes`)."""
_AT = re.compile(r"(.*?)(?:@([1-9]\d*))?", re.DOTALL)
_TEXT = re.compile(r"(clicks|dcg|any-click)(?:@([1-9]\d*))?")


@final
@dataclass(frozen=True)
class Reward:
    """Reward of a list A with clicks w: f(A, w) = sum over ranks r of theta_r w(a_r, r), or 1 if anything is clicked.

    Lists are truncated to the ranks that count, so that lists with equal prefixes become equal.

    Parameters
    ----------
    kind
        "clicks" has theta = 1, "dcg" has theta = 1 / log2(1 + rank) with ranks from 1, "any-click" is 1 if anything is
        clicked.
    first
        Number of top ranks that count; None for all.
    weights
        Custom theta by rank, instead of `kind` and `first`: finite, none below 0 and at least one above 0.
    signal
        Value of a result in place of its click; only with kind "clicks".
    unit
        Largest value of one result, which theta is multiplied by.

    Raises
    ------
    SpecError
        If the kind is unknown ("unknown-name") or an option is out of range ("bad-option").

    References
    ----------
    Li, S. et al. (2018). Offline evaluation of ranking policies with click models. KDD. Section 5.

    Examples
    --------
    >>> Reward.named("dcg@3").theta(10).round(3).tolist()
    [1.0, 0.631, 0.5]
    """

    kind: Literal["clicks", "dcg", "any-click"] = "clicks"
    first: int | None = None
    weights: tuple[float, ...] | None = None
    signal: SignalValue | None = None
    unit: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in _REWARDS:
            raise SpecError(
                f"a reward must be one of {', '.join(_REWARDS)}: got {self.kind!r}.",
                code="unknown-name",
                value=self.kind,
                known=list(_REWARDS),
            )
        if self.first is not None and self.first < 1:
            raise SpecError(
                f"a reward must count at least one rank: got first = {self.first}.", code="bad-option", value=self.first
            )
        if self.weights is not None:
            theta = np.asarray(self.weights, np.float64)
            if theta.ndim != 1 or not len(theta) or not (np.isfinite(theta) & (theta >= 0)).all() or not theta.any():
                raise SpecError(
                    f"weights of ranks must be numbers, none below 0 and at least one above 0: got {self.weights}. "
                    "Evaluate a loss as a reward with the opposite sign.",
                    code="bad-option",
                    value=self.weights,
                )
            if self.kind != "clicks" or self.first is not None:
                raise SpecError(
                    "weights of ranks cannot be combined with kind or first: leave those out.", code="bad-option"
                )

    @classmethod
    def named(cls, text: str) -> Reward:
        """Make the reward that a text names: clicks, clicks@3, dcg, any-click@5, or weights of ranks as 1,0.5,0.25.

        Raises
        ------
        SpecError
            If the text names no reward ("unknown-name"), or weights are out of range ("bad-option").
        """
        if _WEIGHTS.fullmatch(text.strip()):
            try:
                return cls(weights=tuple(float(part) for part in text.split(",")))
            except ValueError:
                raise SpecError(
                    f"weights of ranks must be numbers separated by commas, such as 1,0.5,0.25: got {text!r}.",
                    code="bad-option",
                    value=text,
                ) from None
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise SpecError(
                f"a reward must be {', '.join(_REWARDS)}, with @K for the first K ranks, or weights of ranks such as "
                f"1,0.5,0.25: got {text!r}.",
                code="unknown-name",
                value=text,
                known=list(_REWARDS),
            )
        return cls(match[1], None if match[2] is None else int(match[2]))  # type: ignore[arg-type]

    @classmethod
    def parse(cls, text: str) -> Reward:
        """Make the reward that a text names: one of `named`, or a signal such as revenue, purchase@3 or 3*cart+buy.

        Raises
        ------
        SpecError
            If the text names neither ("unknown-name"), or weights are out of range ("bad-option").
        """
        try:
            return cls.named(text)
        except SpecError as error:
            if error.code != "unknown-name":
                raise
            match = _AT.fullmatch(text.strip())
            assert match is not None, "any text"
            try:
                value = SignalValue.parse(match[1])
            except SpecError:
                raise error from None
        return cls(first=None if match[2] is None else int(match[2]), signal=value)

    @property
    def is_linear(self) -> bool:
        """Whether the reward is a sum over clicks, or over the values of results."""
        return self.kind != "any-click"

    def theta(self, n_ranks: int) -> Float[np.ndarray, " rank"]:
        """Weight theta of each rank that counts, in lists of `n_ranks`; ends at the last rank with a weight above 0.

        Raises
        ------
        DataError
            If all ranks of the log have weight 0 ("no-weighted-rank").
        """
        if self.weights is not None:
            theta = np.asarray(self.weights, np.float64)
            theta = theta[: min(n_ranks, int(np.flatnonzero(theta)[-1]) + 1)]
            if not theta.any():
                raise DataError(
                    f"the reward must give a weight above 0 to a rank of the log: all of its {n_ranks} ranks have "
                    "weight 0.",
                    code="no-weighted-rank",
                    n_ranks=n_ranks,
                )
            return theta
        ranks = min(n_ranks, n_ranks if self.first is None else self.first)
        return 1 / np.log2(np.arange(2.0, ranks + 2)) if self.kind == "dcg" else np.full(ranks, self.unit)

    def cut(self, ranks: int) -> Reward:
        """Return the reward of the first ranks only.

        >>> str(Reward("dcg").cut(3)), Reward(weights=(1.0, 0.5, 0.2)).cut(2).weights
        ('dcg@3', (1.0, 0.5))
        """
        if self.weights is not None:
            return Reward(weights=self.weights[:ranks])
        return replace(self, first=ranks if self.first is None else min(ranks, self.first))

    def largest(self, n_ranks: int) -> float:
        """Largest reward of one list of `n_ranks`."""
        return float(self.theta(n_ranks).sum()) if self.is_linear else 1.0

    def outcome(self, sessions: Sessions) -> Outcome:
        """Clicks of sessions; of a signal, its values as shares of the largest one."""
        return sessions.click if self.signal is None else sessions.signals[OUTCOME]

    def earned(self, outcome: Outcome) -> Float[np.ndarray, " session"]:
        """Reward of each session; lists are already truncated to the ranks that count."""
        theta = self.theta(outcome.shape[1])
        earned: np.ndarray = outcome @ theta if self.is_linear else outcome.any(axis=1).astype(float)
        return earned

    def expected(self, model: ClickModel, lists: Rankings, *, max_error: float = 0.0) -> Float[np.ndarray, " session"]:
        """Expected reward of each list under a click model; lists are already truncated to the ranks that count.

        `max_error` is that of `ClickModel.click_prob`.
        """
        if self.is_linear:
            expected: np.ndarray = model.click_prob(lists, max_error=max_error) @ self.theta(lists.n_ranks)
            return expected
        without_clicks = Sessions(lists, np.zeros(lists.pair.shape, bool))
        any_click: np.ndarray = -np.expm1(model.log_likelihood(without_clicks))
        return any_click

    def require_clicks(self, estimator: str) -> None:
        """Raise a `CapabilityError` if the reward is a signal, which click models do not predict ("signal-reward")."""
        if self.signal is not None:
            raise CapabilityError(
                f"{estimator} predicts clicks, and the reward is {self}. Choose an estimator that weights what was "
                "logged: List, IP, PBM, Item, RCTR, RIPS, PI or CIPS.",
                code="signal-reward",
                estimator=estimator,
                reward=str(self),
            )

    def __str__(self) -> str:
        if self.weights is not None:
            return f"clicks weighted {', '.join(f'{w:g}' for w in self.weights)}"
        kind = self.kind if self.signal is None else str(self.signal)
        return kind if self.first is None else f"{kind}@{self.first}"
