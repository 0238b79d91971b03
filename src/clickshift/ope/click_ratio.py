"""Click-based weights: how likely a document is clicked under the target and in the log, if a click model is right.

CIPS and, with a model of rewards, CDR (Tanaka et al., ICLR 2026). The randomness of clicks takes the place of that of
the logging policy, so that a log of one ranker can be enough. With a PBM, relevance cancels, and what is left are the
PBM weights of Li et al. (2018) with the model's examination instead of 1 / rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from clickshift.data.vocabulary import UNSEEN
from clickshift.errors import CapabilityError
from clickshift.models.base import ClickModel
from clickshift.ope.grouped_log import Logged, added
from clickshift.ope.target_policy import Aim, Target, cut_to, lists_of
from clickshift.ope.weights import Logging, Strata


@final
@dataclass(frozen=True, eq=False)
class CIPS:
    """P(click on a | target) / P(click on a | log) by a click model.

    A factor of each document cancels. So it is taken to be clicked for certain where the model thinks that likeliest,
    which matters only for what lost mass could earn.
    """

    model: ClickModel
    assumption: ClassVar[str] = "the click model is right, but for a factor of each document"
    needs_linear: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.model.predicts_clicks or self.model.peeks:
            raise CapabilityError(f"{type(self.model).__name__} cannot predict the clicks of a list. Choose another.")

    def strata(self, logged: Logged, aim: Aim, logging: Logging, target: Target | None = None) -> Strata:
        if logging != "frequencies":
            raise CapabilityError("CIPS weighs by the lists that were shown. Leave the logging policy out.")
        if target is None:
            raise CapabilityError("CIPS asks its model about the target's lists: give the target.")
        words, (lists, weight) = logged.vocabulary, lists_of(logged, target)
        lists = cut_to(lists, logged.n_ranks)
        shown_there, shown_here = self.model.click_prob(lists), self.model.click_prob(logged.lists)
        there = lists.vocabulary
        pair_here = words.pairs_of(there)
        top, top_there = np.zeros(words.n_pairs + 1), np.zeros(there.n_pairs + 1)  # the last place is UNSEEN's
        np.maximum.at(top, logged.lists.pair, shown_here)
        np.maximum.at(top_there, lists.pair, shown_there)
        np.maximum.at(top, pair_here, top_there[:-1])
        scale = np.append(np.where(pair_here == UNSEEN, top_there[:-1], top[pair_here]), 1.0)
        expected = np.where(lists.shown, shown_there / np.maximum(scale[lists.pair], 1e-300), 0.0)
        expected = expected * logged.theta * weight[:, None]
        pair = np.where(lists.shown, np.append(pair_here, UNSEEN)[lists.pair], UNSEEN)
        aimed = added(pair.ravel().astype(np.int64), expected.reshape(-1, 1), words.n_pairs)[:, 0]
        query = words.queries_of(there)[lists.query].astype(np.int64)
        mass = added(query, expected.sum(axis=1, keepdims=True), logged.n_queries)
        top[-1] = 1.0
        exposure = np.where(
            logged.lists.shown, shown_here / np.maximum(top[logged.lists.pair], 1e-300) * logged.theta, 0.0
        )
        return Strata(
            logged.by_entry(logged.lists.pair),
            logged.by_entry(exposure),
            words.pair_query,
            np.zeros(words.n_pairs, np.int64),
            aimed,
            None,
            mass,
            np.ones(1),
        )
