"""What the page shows of one query: its lists, its documents, and what a click model makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.unique_rows import distinct_rows
from clickshift.counts.cells import signal_names
from clickshift.counts.conversion_counts import ConversionCounts
from clickshift.data._columns import VIEWED
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Sessions
from clickshift.data.signal_values import SignalValue
from clickshift.exploration._log_index import LogIndex
from clickshift.exploration._parameters import document_parameters, examination_of
from clickshift.learners.conversion_rates import ConversionRates, conversion_rates
from clickshift.models.base import ClickModel

__all__ = ["LISTS_SHOWN", "ExploredLog", "conversions_of"]

LISTS_SHOWN, DOCUMENTS_SHOWN = 20, 100
"""Lists and documents of a query that a page shows: the most frequent ones, and every document of these lists."""


@final
@dataclass(frozen=True, eq=False)
class ExploredLog:
    """A log grouped by query, and the click model that corrects its clicks.

    Parameters
    ----------
    index
        The grouped log.
    model
        The click model.
    conversions
        What follows the clicks on each document, by signal.
    """

    index: LogIndex
    model: ClickModel
    conversions: Mapping[str, ConversionRates] = field(default_factory=dict)

    @cached_property
    def _sessions(self) -> Sessions:
        """Rows of the index in the vocabulary of the model."""
        return self.index.sessions.in_vocabulary(self.model.vocabulary)

    @cached_property
    def _relevance(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
        """Relevance of all pairs of the model, unseen ones last, with bounds and support; None if it has none."""
        if not self.model.ranks_documents:
            return None
        table = np.append(self.model.relevance(), self.model.relevance(np.array([-1])))
        return table, *self.model.intervals("relevance")

    def examination_by_rank(self) -> Float[np.ndarray, " rank"] | None:
        """Return the mean probability of examination given the clicks above, by rank; None if the model has none."""
        sessions = self._sessions
        examined, shown = np.zeros(sessions.n_ranks), np.zeros(sessions.n_ranks)
        for start in range(0, len(sessions), _ROWS_AT_ONCE):
            part = sessions[start : start + _ROWS_AT_ONCE]
            probability = examination_of(self.model, part)
            if probability is None:
                return None
            examined += part.count @ np.nan_to_num(probability)
            shown += part.count @ part.rankings.shown
        mean: np.ndarray = examined / np.maximum(shown, 1)
        return mean

    def query(self, query: int) -> dict[str, Any]:
        """Return what is known of a query.

        Parameters
        ----------
        query
            Number of the query in the vocabulary of the log.

        Returns
        -------
        dict
            Query, number, sessions, clicks, n_lists, n_documents; `lists`, the most frequent ones, with their documents
            (as positions in `documents`), sessions, clicks on each document and, of a list with holes, the ranks of its
            documents; `documents`, those shown most often first, with
            impressions and clicks in all and by rank, mean rank, expected number of examinations, relevance with its
            interval and support, the parameters of the model with the standard errors of their logits, and the
            `conversions` of each signal of the log: signal, clicks, conversions, value per click, low and high.
        """
        rows, vocabulary = self.index.rows(query), self.index.sessions.vocabulary
        sessions, translated = self.index.sessions[rows], self._sessions[rows]
        first, end = vocabulary.query_offsets[query : query + 2]
        shown = _placements(sessions, int(first), int(end - first))
        lists = _lists(sessions)
        order = np.argsort(-shown.impressions.sum(axis=1), kind="stable")
        order = order[shown.impressions[order].sum(axis=1) > 0]
        listed = np.unique(lists.pair[:LISTS_SHOWN][lists.pair[:LISTS_SHOWN] >= 0]) - first
        kept = order[(np.arange(len(order)) < DOCUMENTS_SHOWN) | np.isin(order, listed)]
        position = np.full(end - first, -1)
        position[kept] = np.arange(len(kept))
        examined = self._examined(sessions, translated, int(first), int(end - first))
        return {
            "query": str(vocabulary.query_ids[query]),
            "number": int(query),
            "sessions": int(sessions.count.sum()),
            "clicks": int(shown.clicks.sum()),
            "n_lists": len(lists.sessions),
            "n_documents": len(order),
            "lists": [
                _list_facts(position, pairs, int(first), int(n), clicks)
                for pairs, n, clicks in zip(lists.pair[:LISTS_SHOWN], lists.sessions, lists.clicks, strict=False)
            ],
            "documents": [
                self._document(
                    int(first + k),
                    shown.impressions[k],
                    shown.clicks[k],
                    None if examined is None else examined[k],
                )
                for k in kept.tolist()
            ],
        }

    @cached_property
    def _model_pair(self) -> Int[np.ndarray, " pair"]:
        """Number of each pair of the log in the model's vocabulary."""
        return self.model.vocabulary.pairs_of(self.index.sessions.vocabulary)

    def _examined(self, sessions: Sessions, translated: Sessions, first: int, size: int) -> list[float] | None:
        """Return the expected number of examinations of each document of a query; None if the model has none."""
        probability = examination_of(self.model, translated)
        if probability is None:
            return None
        row, rank = np.nonzero(sessions.rankings.shown)
        weight = sessions.count[row] * probability[row, rank]
        total: list[float] = np.bincount(sessions.rankings.pair[row, rank] - first, weight, size).tolist()
        return total

    def _document(
        self, pair: int, impressions: np.ndarray, clicks: np.ndarray, examined: float | None
    ) -> dict[str, Any]:
        """Return what is known of a document, shown and clicked so often at each rank."""
        vocabulary, number = self.index.sessions.vocabulary, int(self._model_pair[pair])
        ranks, total = np.flatnonzero(impressions), int(impressions.sum())
        facts: dict[str, Any] = {
            "doc": str(vocabulary.doc_ids[vocabulary.pair_doc[pair]]),
            "pair": pair,
            "impressions": total,
            "clicks": int(clicks.sum()),
            "ctr": float(clicks.sum() / total),
            "mean_rank": float((ranks + 1) @ impressions[ranks] / total),
            "by_rank": [[int(r) + 1, int(impressions[r]), int(clicks[r])] for r in ranks],
            "examined": examined,
            "relevance": None,
            "low": None,
            "high": None,
            "support": "",
        }
        if self._relevance is not None:
            relevance, low, high, support = (values[number] for values in self._relevance)
            facts |= {"relevance": float(relevance), "low": float(low), "high": float(high), "support": str(support)}
        if self.conversions:
            facts["conversions"] = [
                {
                    "signal": name,
                    "clicks": float(rates.clicks[pair]),
                    "conversions": float(rates.conversions[pair]),
                    "value": float(rates.value[pair]),
                    "low": float(rates.low[pair]),
                    "high": float(rates.high[pair]),
                }
                for name, rates in self.conversions.items()
            ]
        return facts | {"parameters": document_parameters(self.model, number)}


_ROWS_AT_ONCE = 1 << 18


def conversions_of(log: Log) -> dict[str, ConversionRates]:
    """Return what follows the clicks of a log, by signal; empty if it has no signals but views.

    Parameters
    ----------
    log
        The log.
    """
    values = [SignalValue(name, 0.0, ((name, 1.0),)) for name in signal_names(log) if name != VIEWED]
    counts = ConversionCounts.of(log, values) if values else []
    return {str(value): conversion_rates(own) for value, own in zip(values, counts, strict=True)}


@dataclass(frozen=True, eq=False)
class _Placements:
    """Impressions and clicks of the documents of a query at each rank."""

    impressions: Int[np.ndarray, "document rank"]
    clicks: Int[np.ndarray, "document rank"]


def _placements(sessions: Sessions, first: int, size: int) -> _Placements:
    """Count how often each pair from `first` was shown and clicked at each rank."""
    ranks = sessions.n_ranks
    row, rank = np.nonzero(sessions.rankings.shown)
    cell, count = (sessions.rankings.pair[row, rank] - first).astype(np.int64) * ranks + rank, sessions.count[row]
    clicked = np.where(sessions.click[row, rank], count, 0)
    return _Placements(*(_totals(cell, weight, size * ranks).reshape(size, ranks) for weight in (count, clicked)))


def _totals(index: Int[np.ndarray, " n"], count: Int[np.ndarray, " n"], size: int) -> Int[np.ndarray, " size"]:
    """Add up counts by index, exactly below 2^53."""
    return np.rint(np.bincount(index, count, size)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Lists:
    """Distinct lists of a query, the most frequent first, with their sessions and clicks by rank."""

    pair: Int[np.ndarray, "list rank"]
    sessions: Int[np.ndarray, " list"]
    clicks: Int[np.ndarray, "list rank"]


def _list_facts(
    position: Int[np.ndarray, " document"],
    pair: Int[np.ndarray, " rank"],
    first: int,
    sessions: int,
    clicks: Int[np.ndarray, " rank"],
) -> dict[str, Any]:
    """Describe a list; the ranks of its documents where it has holes."""
    ranks = np.flatnonzero(pair >= 0)
    facts = {
        "documents": position[pair[ranks] - first].tolist(),
        "sessions": sessions,
        "clicks": clicks[ranks].tolist(),
    }
    return facts if ranks[-1] == len(ranks) - 1 else facts | {"ranks": (ranks + 1).tolist()}


def _lists(sessions: Sessions) -> _Lists:
    """Group the rows of a query by list."""
    pair, count = sessions.rankings.pair, sessions.count
    group, first = distinct_rows(pair)
    row, rank = np.nonzero(sessions.click)
    n = _totals(group, count, len(first))
    clicks = _totals(group[row] * sessions.n_ranks + rank, count[row], len(first) * sessions.n_ranks)
    order = np.argsort(-n, kind="stable")
    return _Lists(pair[first[order]], n[order], clicks.reshape(len(first), -1)[order])
