"""How well a model predicts clicks: log-likelihood and perplexity, per rank and on average.

Values first, averages last: `click_bits` gives the loss of every result, and everything else is an aggregate of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.metrics.significance import mean_interval
from clickshift.models.base import ClickModel
from clickshift.sessions import Sessions
from clickshift.vocabulary import UNSEEN

CLIP = 1e-10
"""Probabilities are kept this far from 0 and 1, as in the papers' code: a model that rules out what happens pays 33
bits."""

Kind = Literal["conditional", "marginal"]


@dataclass(frozen=True, eq=False)
class Perplexity:
    """2 to the mean number of bits that a result's click costs: 1 is certainty, 2 is a coin."""

    at_rank: Float[np.ndarray, " rank"]
    """Perplexity of each rank over all sessions that show it; NaN where none does."""

    @property
    def average(self) -> float:
        """Unweighted mean over ranks (the policy-shift paper's eq. 1, with the minus sign that it lacks)."""
        return float(self.at_rank[~np.isnan(self.at_rank)].mean()) if not np.isnan(self.at_rank).all() else float("nan")

    def __float__(self) -> float:
        return self.average

    def __repr__(self) -> str:
        return f"Perplexity({self.average:.4f})"


def click_bits(
    model: ClickModel, sessions: Sessions, *, kind: Kind = "conditional", clip: float = CLIP
) -> Float[np.ndarray, "session rank"]:
    """-log2 of the probability that the model gave to what happened; 0 where nothing is shown.

    "conditional" uses the clicks above a result, "marginal" does not.
    """
    conditional = kind == "conditional"
    prob = model.click_prob_given_history(sessions) if conditional else model.click_prob(sessions.rankings)
    np.clip(prob, clip, 1 - clip, out=prob)
    bits = -np.log2(np.where(sessions.click, prob, 1 - prob))
    bits[~sessions.rankings.shown] = 0.0
    return bits


def perplexity_of(
    bits: Float[np.ndarray, "session rank"], shown: Bool[np.ndarray, "session rank"], count: Int[np.ndarray, " session"]
) -> Perplexity:
    """PPL@r = 2^(mean bits at rank r over the whole set); sessions that do not show rank r do not count there."""
    impressions = count @ shown
    with np.errstate(invalid="ignore"):
        return Perplexity(np.exp2((count @ bits) / np.where(impressions > 0, impressions, np.nan)))


def perplexity(model: ClickModel, sessions: Sessions, *, kind: Kind = "conditional", clip: float = CLIP) -> Perplexity:
    """Perplexity of a model on a log; see `click_bits` for the options."""
    return perplexity_of(click_bits(model, sessions, kind=kind, clip=clip), sessions.rankings.shown, sessions.count)


def log_likelihood_per_session(model: ClickModel, sessions: Sessions) -> float:
    """Mean natural log-likelihood of a session, unclipped."""
    return float(np.average(model.log_likelihood(sessions), weights=sessions.count))


def unseen_pair_share(model: ClickModel, sessions: Sessions) -> float:
    """Share of the impressions whose (query, document) pair the model knows nothing of."""
    pair = sessions.in_vocabulary(model.vocabulary).rankings.pair
    unseen = pair == UNSEEN if model.evidence is None else model.evidence.impressions[pair] == 0
    return float((sessions.count @ (unseen & sessions.rankings.shown)).sum() / sessions.impressions_by_rank().sum())


def evaluation_of_seeds(models: Sequence[ClickModel], sessions: Sessions) -> dict[str, Any]:
    """Means of `evaluation` over models of one kind, with the 95 % Student-t interval of each single number."""
    each = [evaluation(model, sessions) for model in models]
    if len(each) == 1:
        return each[0]
    facts: dict[str, Any] = {"sessions": sessions.total, "seeds": len(each)}
    for name in (name for name in each[0] if name != "sessions"):
        values = np.array([one[name] for one in each])
        facts[name] = values.mean(axis=0).tolist()
        if values.ndim == 1:
            facts[f"{name}_interval"] = mean_interval(values)[1:]
    return facts


def evaluation(model: ClickModel, sessions: Sessions) -> dict[str, Any]:
    """Everything that a model's click predictions on a log are judged by, as plain values."""
    conditional = perplexity(model, sessions)
    marginal = Perplexity(conditional.at_rank * np.nan) if model.peeks else perplexity(model, sessions, kind="marginal")
    return {
        "sessions": sessions.total,
        "log_likelihood": log_likelihood_per_session(model, sessions),
        "conditional_perplexity": conditional.average,
        "conditional_perplexity_at_rank": conditional.at_rank.tolist(),
        "marginal_perplexity": marginal.average,
        "marginal_perplexity_at_rank": marginal.at_rank.tolist(),
        "unseen_pair_share": unseen_pair_share(model, sessions),
    }
