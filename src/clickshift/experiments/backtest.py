"""Backtest of off-policy evaluation (Li et al. 2018, section 6): which estimator was right about past days?

Each day in turn is treated as the day of a new policy: its lists are the target, its mean reward is the truth, and all
other days are the log. With list frequencies as both policies, everything is computed from counts, and the counts of
the other days are those of all days minus one. Where a log has no time, parts of it take the place of days.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.core.rng import generator
from clickshift.data.days import days_of
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN
from clickshift.display.tables import Rows
from clickshift.errors import DataError, SpecError
from clickshift.ope.bound_estimator import BoundEstimator
from clickshift.ope.daily_residuals import leave_one_out
from clickshift.ope.estimate import PAPER_ESTIMATORS
from clickshift.ope.estimators import Estimator, checked_clip
from clickshift.ope.grouped_log import GroupedLog
from clickshift.ope.rewards import Reward

TASKS = ("clicks@2", "clicks@3", "dcg", "clicks")
"""Rewards of the paper."""
CLIPPING_CONSTANTS = (1.0, 2.0, 3.0, 5.0, 9.0, 10.0, 20.0, 30.0, 40.0, 50.0, 100.0, 200.0, 500.0, 1000.0, math.inf)
"""All clipping constants that the paper quotes, and some between them."""
DAYS, RANDOM, IN_ORDER = "days", "random parts", "parts in order"
_MIN_QUERIES = 10
"""Smallest number of queries for a bootstrap interval over queries."""


@final
@dataclass(frozen=True)
class Backtest:
    """Backtest of off-policy estimators on the days of a log.

    Parameters
    ----------
    tasks
        Names of rewards. The log and its lists are truncated to the ranks that a reward counts.
    estimators
        Names of estimators.
    clip
        Clipping constants M.
    queries
        Number of most frequent queries in the first group. The next ones, up to frequency rank `down_to`, are a group
        of their own.
    down_to
        Frequency rank of the last query of the second group.
    query
        Id of a query that is shown alone; by default the query of the first group whose click-through rate at the first
        rank varies most significantly between days.
    parts
        Number of parts of each query's sessions that take the place of days, for logs without time.
    in_order
        Whether parts are consecutive in the log, instead of random.
    seed
        Random seed for random parts and for intervals.

    Raises
    ------
    SpecError
        If an option is not valid ("bad-option", "bad-clip", "unknown-name"), or an estimator cannot be backtested
        ("missing-prefixes").

    References
    ----------
    Li, S. et al. (2018). Offline evaluation of ranking policies with click models. KDD.

    Examples
    --------
    >>> Backtest(("clicks@2",), ("IP", "RCTR"), parts=27).split
    'random parts'
    """

    tasks: tuple[str, ...] = TASKS
    estimators: tuple[str, ...] = PAPER_ESTIMATORS
    clip: tuple[float, ...] = CLIPPING_CONSTANTS
    queries: int = 100
    down_to: int = 1000
    query: str | None = None
    parts: int | None = None
    in_order: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        checked_clip(self.clip)
        for name, least in (("queries", 1), ("parts", 2)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise SpecError(
                    f"{name} must be {least} or more: got {value}.", code="bad-option", option=name, value=value
                )
        if not self.tasks or not self.estimators:
            raise SpecError("there must be at least one reward and one estimator: got none.", code="bad-option")
        for task in self.tasks:
            Reward.named(task)
        for name in self.estimators:
            if Estimator.named(name).needs_prefixes:
                raise SpecError(
                    f"{name} cannot be backtested: it needs the probabilities of the first ranks of a list. Remove it.",
                    code="missing-prefixes",
                    estimator=name,
                )

    def on(self, whole: Log, *, progress: Callable[[int], None] | None = None) -> BacktestResult:
        """Run the backtest on a log, of which only the sessions of frequent queries must fit in memory.

        Parameters
        ----------
        whole
            The log.
        progress
            Called with 1 for every finished day of a task.

        Returns
        -------
        BacktestResult
            Estimates and truth by task, estimator, query and day.

        Raises
        ------
        DataError
            If the log has no time and there are no `parts` ("missing-time"), has too few or too many days ("bad-days"),
            lacks query ids ("unseen-id"), or does not contain the single query ("unknown-query").
        """
        log, by_frequency = self._select_queries(whole)
        log, day, names = self._assign_days(log)
        counts = _session_and_click_counts(log, day, len(names))
        residuals = [r for task in self.tasks for r in self._task_residuals(task, log, day, len(names), progress)]
        groups = self._group_queries(log, by_frequency, *counts[:2])
        return BacktestResult(self, log, names, self.split, groups, *counts, tuple(residuals))

    @property
    def split(self) -> str:
        """How the log is divided: `DAYS`, `RANDOM` or `IN_ORDER` parts."""
        return DAYS if self.parts is None else IN_ORDER if self.in_order else RANDOM

    def _select_queries(self, whole: Log) -> tuple[Sessions, list[str]]:
        """Return the sessions of the compared queries, without propensities, and the ids of these queries.

        The most frequent query is first; the single query is last if it is not one of the others.
        """
        vocabulary = whole.vocabulary
        frequency = np.zeros(vocabulary.n_queries)
        for chunk in whole.chunks():
            if (chunk.rankings.query == UNSEEN).any():
                raise DataError(
                    "every query of the log must have an id. Pass the log in its own vocabulary.", code="unseen-id"
                )
            frequency += np.bincount(chunk.rankings.query, chunk.count, vocabulary.n_queries)
        order = np.argsort(-frequency, kind="stable")[: max(self.queries, self.down_to)]
        chosen = order[frequency[order] > 0]
        if self.query is not None:
            single = int(vocabulary.query_numbers([self.query])[0])
            if single == UNSEEN or not frequency[single]:
                raise DataError(
                    f"the single query must be in the log: {self.query!r} is not. Choose another one.",
                    code="unknown-query",
                    query=self.query,
                )
            chosen = chosen if single in chosen else np.append(chosen, single)
        wanted = np.zeros(vocabulary.n_queries, bool)
        wanted[chosen] = True
        kept = whole[wanted[whole.rankings.query]] if isinstance(whole, Sessions) else whole.sessions(wanted)
        shown = kept.rankings.pair[kept.rankings.shown & (kept.rankings.pair != UNSEEN)]
        # a smaller vocabulary keeps tables by query and by pair as small as the compared queries need
        lists = kept.rankings.in_vocabulary(vocabulary.with_pairs(shown))
        lists = Rankings(lists.vocabulary, lists.query, lists.pair, lists.shown)
        log = Sessions(lists, kept.click, kept.count, kept.time)
        return log, [str(vocabulary.query_ids[q]) for q in chosen]

    def _assign_days(self, log: Sessions) -> tuple[Sessions, Int[np.ndarray, " row"], tuple[str, ...]]:
        """Return the log, the day or part of each of its rows, and their names. Merged rows may be divided."""
        if self.parts is None:
            if log.time is None:
                raise DataError(
                    "a backtest leaves out one day after the other: this log has no time. Add a 'day' or 'time' "
                    "column, or choose a number of parts instead, e.g. parts=27.",
                    code="missing-time",
                )
            day, names = days_of(log.time)
            return log, day, names
        sessions = np.repeat(np.arange(len(log)), log.count)
        order = sessions
        if not self.in_order:
            order = generator(self.seed, "backtest", "parts").permutation(sessions)
        query = log.rankings.query[order]
        by_query = np.argsort(query, kind="stable")
        total = np.bincount(query, minlength=log.vocabulary.n_queries)
        within_query = np.arange(len(order)) - np.repeat(np.cumsum(total) - total, total)
        part = within_query * self.parts // np.repeat(total, total)
        key, count = np.unique(order[by_query] * self.parts + part, return_counts=True)
        row, day = np.divmod(key, self.parts)
        return Sessions(log.rankings[row], log.click[row], count), day, tuple(map(str, range(1, self.parts + 1)))

    def _task_residuals(
        self,
        task: str,
        log: Sessions,
        day: Int[np.ndarray, " row"],
        days: int,
        progress: Callable[[int], None] | None,
    ) -> Iterator[Residuals]:
        """Estimate the reward of each day from the other days, by each estimator."""
        logged, limits = GroupedLog.of(log, task), checked_clip(self.clip)
        shape = logged.n_queries, days
        actual = np.full(shape, np.nan)
        estimates = {name: np.full((*shape, len(limits)), np.nan) for name in self.estimators}
        for d, (today, others, target) in enumerate(leave_one_out(logged, day, days)):
            sessions_today, sessions_others = (logged.per_query(part.shown)[:, 0] for part in (today, others))
            both = (sessions_today > 0) & (sessions_others > 0)
            actual[both, d] = logged.per_query(today.earned)[both, 0] / sessions_today[both]
            for name, estimated in estimates.items():
                bound = BoundEstimator.of(Estimator.named(name), logged, target)
                estimated[both, d] = bound.per_query(others, limits)[both]
            if progress is not None:
                progress(1)
        for name, estimated in estimates.items():
            no_overlap = np.isnan(estimated).all(axis=2) & ~np.isnan(actual)
            # the sum over the log is empty, and so the paper's estimate is 0
            estimated[no_overlap] = 0.0
            yield Residuals(task, name, self.clip, actual, estimated, no_overlap)

    def _group_queries(
        self,
        log: Sessions,
        by_frequency: Sequence[str],
        sessions: Float[np.ndarray, "query day"],
        first_clicks: Float[np.ndarray, "query day"],
    ) -> dict[str, Int[np.ndarray, " _"]]:
        """Return the numbers of the queries of each group, the most frequent first, by the name of the group."""
        ids = {str(raw): number for number, raw in enumerate(log.vocabulary.query_ids.tolist())}
        ranked = np.array([ids[name] for name in by_frequency])[: max(self.queries, self.down_to)]
        first, rest = ranked[: self.queries], ranked[self.queries :]
        groups = {f"the {len(first)} most frequent" if len(first) > 1 else "the most frequent": first}
        if len(rest):
            groups[f"ranks {self.queries + 1}–{self.queries + len(rest)}"] = rest
        if self.query is None:
            single = first[_most_variable_query(sessions[first], first_clicks[first])]
        else:
            single = ids[self.query]
        return groups | {f"query {log.vocabulary.query_ids[single]}": np.array([single])}


@final
@dataclass(frozen=True, eq=False)
class Residuals:
    """Truth and estimates of one estimator on one task.

    Parameters
    ----------
    task
        Name of the reward.
    estimator
        Name of the estimator.
    clip
        Clipping constants.
    actual
        Mean reward of each day; NaN where the day, or all other days, have no session of the query.
    estimated
        The same, estimated from the other days.
    no_overlap
        Where no list of the day was logged on other days, so that the estimate is 0.
    """

    task: str
    estimator: str
    clip: tuple[float, ...]
    actual: Float[np.ndarray, "query day"]
    estimated: Float[np.ndarray, "query day clip"]
    no_overlap: Bool[np.ndarray, "query day"]

    @property
    def used(self) -> Bool[np.ndarray, "query day"]:
        """Pairs of a query and a day that can be compared."""
        used: np.ndarray = ~np.isnan(self.actual)
        return used

    def squared(self, queries: Int[np.ndarray, " chosen"]) -> Float[np.ndarray, "chosen clip"]:
        """Return the sum over days of the squared errors of each query."""
        error = self.estimated[queries] - self.actual[queries][:, :, None]
        squared: np.ndarray = np.nansum(error**2, axis=1)
        return squared

    def rmse(self, queries: Int[np.ndarray, " chosen"]) -> Float[np.ndarray, " clip"]:
        """Return the root mean square error over all usable pairs of a query and a day, unweighted by traffic."""
        pairs = int(self.used[queries].sum())
        total: np.ndarray = self.squared(queries).sum(axis=0)
        return np.sqrt(total / pairs) if pairs else np.full(len(self.clip), np.nan)


@final
@dataclass(frozen=True, eq=False)
class BacktestResult:
    """Result of a backtest.

    Parameters
    ----------
    protocol
        Settings of the backtest.
    log
        Sessions of the compared queries.
    days
        Names of the days or parts.
    split
        How the log was divided: `DAYS`, `RANDOM` or `IN_ORDER` parts.
    groups
        Numbers of the queries of each group, by name: the most frequent ones, possibly the next ones, and the single
        one.
    sessions
        Number of sessions.
    first_clicks
        Clicks at the first rank per session; NaN on days without sessions.
    all_clicks
        Clicks at all ranks per session; NaN on days without sessions.
    residuals
        Truth and estimates, by task, then by estimator.
    """

    protocol: Backtest
    log: Sessions
    days: tuple[str, ...]
    split: str
    groups: Mapping[str, Int[np.ndarray, " _"]]
    sessions: Float[np.ndarray, "query day"]
    first_clicks: Float[np.ndarray, "query day"]
    all_clicks: Float[np.ndarray, "query day"]
    residuals: tuple[Residuals, ...]

    @cached_property
    def rows(self) -> Rows:
        """Pooled errors: one row per task, group, estimator and clipping constant."""
        rows = []
        for r in self.residuals:
            for group, queries in self.groups.items():
                used = int(r.used[queries].sum())
                counts = {
                    "queries": len(queries),
                    "pairs": used,
                    "pairs_dropped": len(queries) * len(self.days) - used,
                    "pairs_without_overlap": int(r.no_overlap[queries].sum()),
                    "split": self.split,
                }
                setting = {"task": r.task, "group": group, "estimator": r.estimator}
                for clip, rmse in zip(r.clip, r.rmse(queries).tolist(), strict=True):
                    rows.append({**setting, "M": clip, "rmse": rmse, **counts})
        return rows

    @property
    def query_rows(self) -> Rows:
        """Errors of single queries: one row per task, query, estimator and clipping constant."""
        names = self.log.vocabulary.query_ids.tolist()
        sessions = self.sessions.sum(axis=1).astype(int).tolist()
        rows = []
        for r in self.residuals:
            pairs = r.used.sum(axis=1)
            with np.errstate(invalid="ignore", divide="ignore"):
                rmse = np.sqrt(r.squared(np.arange(len(names))) / pairs[:, None])
            for q, (errors, used) in enumerate(zip(rmse.tolist(), pairs.tolist(), strict=True)):
                setting = {"task": r.task, "query": str(names[q]), "estimator": r.estimator}
                counts = {"sessions": sessions[q], "pairs": used, "pairs_dropped": len(self.days) - used}
                rows += [
                    {**setting, "M": clip, "rmse": error, **counts} for clip, error in zip(r.clip, errors, strict=True)
                ]
        return rows

    @property
    def day_rows(self) -> Rows:
        """Truth and estimates by day: means over a group's queries, each estimator with its best clipping constant."""
        rows = []
        for r in self.residuals:
            for group, queries in self.groups.items():
                best, used = _argmin(r.rmse(queries)), r.used[queries]
                pairs = used.sum(axis=0)
                with np.errstate(invalid="ignore", divide="ignore"):
                    means = [
                        np.nansum(x, axis=0) / pairs for x in (r.actual[queries], r.estimated[queries][:, :, best])
                    ]
                setting = {"task": r.task, "group": group, "estimator": r.estimator, "M": r.clip[best]}
                for d in np.flatnonzero(pairs):
                    actual, estimated = (float(x[d]) for x in means)
                    values = {"actual": actual, "estimated": estimated, "residual": estimated - actual}
                    rows.append({**setting, "day": self.days[d], **values, "pairs": int(pairs[d])})
        return rows

    def choice(self, task: str, group: str | None = None) -> dict[str, Any]:
        """Return the row of the estimator and clipping constant with the smallest pooled error; the first of equals.

        Parameters
        ----------
        task
            Name of the reward.
        group
            Name of the group; by default that of the most frequent queries.

        Raises
        ------
        SpecError
            If the backtest does not have this task or group ("unknown-name").
        DataError
            If no query of the group has sessions on two days ("no-overlap").
        """
        group = next(iter(self.groups)) if group is None else group
        rows = [row for row in self.rows if row["task"] == task and row["group"] == group]
        if not rows:
            raise SpecError(
                f"the backtest must have the task and the group: got {task!r} and {group!r}. Choose a task of "
                f"{', '.join(self.protocol.tasks)} and a group of {', '.join(self.groups)}.",
                code="unknown-name",
                task=task,
                group=group,
            )
        if all(math.isnan(row["rmse"]) for row in rows):
            raise DataError(
                f"nothing of {group} can be compared: no query has sessions on two {self.split}.",
                code="no-overlap",
                group=group,
            )
        return min(rows, key=lambda row: row["rmse"])

    def gain(
        self, task: str, group: str, estimator: str, baseline: str, *, replicates: int = 2000
    ) -> tuple[float, float, float]:
        """Return the relative error reduction of an estimator over a baseline, each with its best clipping constant.

        Parameters
        ----------
        task
            Name of the reward.
        group
            Name of the group of queries.
        estimator, baseline
            Names of estimators.
        replicates
            Number of bootstrap replicates.

        Returns
        -------
        tuple of float
            The reduction as a share of the baseline's error, and a 95 % bootstrap interval over queries; the interval
            is NaN for fewer than 10 queries.
        """
        queries = self.groups[group]
        squares = []
        for r in (self.residuals_for(task, estimator), self.residuals_for(task, baseline)):
            squares.append(r.squared(queries)[:, _argmin(r.rmse(queries))])
        with np.errstate(invalid="ignore", divide="ignore"):
            value = float(1 - np.sqrt(squares[0].sum() / squares[1].sum()))
            if len(queries) < _MIN_QUERIES:
                return value, math.nan, math.nan
            rng = generator(self.protocol.seed, "backtest", "gain")
            resampled = rng.multinomial(len(queries), np.full(len(queries), 1 / len(queries)), replicates)
            low, high = np.quantile(1 - np.sqrt(resampled @ squares[0] / (resampled @ squares[1])), [0.025, 0.975])
        return value, float(low), float(high)

    def residuals_for(self, task: str, estimator: str) -> Residuals:
        """Return truth and estimates of one estimator on one task; raise a SpecError ("unknown-name") for others."""
        for r in self.residuals:
            if (r.task, r.estimator) == (task, estimator):
                return r
        raise SpecError(
            f"the backtest must have the task and the estimator: got {task!r} and {estimator!r}. Choose a task of "
            f"{', '.join(self.protocol.tasks)} and an estimator of {', '.join(self.protocol.estimators)}.",
            code="unknown-name",
            task=task,
            estimator=estimator,
        )


def _argmin(values: Float[np.ndarray, " clip"]) -> int:
    """Return the index of the smallest value, the first of equals; 0 if all are NaN."""
    return 0 if np.isnan(values).all() else int(np.nanargmin(values))


def _most_variable_query(sessions: Float[np.ndarray, "query day"], ctr: Float[np.ndarray, "query day"]) -> int:
    """Return the query with the largest Pearson chi-square statistic of clicks against days."""
    total, rate = sessions.sum(axis=1), np.nan_to_num(ctr)
    mean = (sessions * rate).sum(axis=1) / np.maximum(total, 1)
    squares = (sessions * (rate - mean[:, None]) ** 2).sum(axis=1)
    return int(np.argmax(squares / np.maximum(mean * (1 - mean), 1e-9)))


def _session_and_click_counts(
    log: Sessions, day: Int[np.ndarray, " row"], days: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return sessions, and clicks per session at the first rank and at all ranks, by query and day."""
    shape = log.vocabulary.n_queries, days
    cell = log.rankings.query.astype(np.int64) * days + day
    weights = (log.count, log.count * log.click[:, 0], log.count * log.click.sum(axis=1))
    sessions, first, every = (np.bincount(cell, w, shape[0] * days).reshape(shape) for w in weights)
    with np.errstate(invalid="ignore", divide="ignore"):
        return sessions, first / sessions, every / sessions
