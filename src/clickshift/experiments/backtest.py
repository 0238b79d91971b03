"""The backtest of off-policy evaluation (Li et al. 2018, section 6): what would the estimators have said of past days?

Each day in turn is the day of a new policy: its lists are the target, its mean reward the truth, and all other days are
the log. With the lists' frequencies as both policies, everything is counts, and the other days are all days less one.
A log without time is parted into parts instead of days.
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
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN
from clickshift.display.tables import Rows
from clickshift.errors import DataError, SpecError
from clickshift.ope.bound_estimator import BoundEstimator
from clickshift.ope.daily_residuals import days_of, leave_one_out
from clickshift.ope.estimators import Estimator, checked_clip
from clickshift.ope.evaluate import PAPER
from clickshift.ope.grouped_log import GroupedLog
from clickshift.ope.rewards import Reward

TASKS = ("clicks@2", "clicks@3", "dcg", "clicks")
CLIPPING_CONSTANTS = (1.0, 2.0, 3.0, 5.0, 9.0, 10.0, 20.0, 30.0, 40.0, 50.0, 100.0, 200.0, 500.0, 1000.0, math.inf)
"""All values that the paper quotes, and some between them."""
DAYS, RANDOM, IN_ORDER = "days", "random parts", "parts in order"


@final
@dataclass(frozen=True)
class Backtest:
    """Which days, queries, rewards and estimators are compared."""

    tasks: tuple[str, ...] = TASKS
    """Rewards. The log and the lists are cut to the ranks that a reward counts."""
    estimators: tuple[str, ...] = PAPER
    clip: tuple[float, ...] = CLIPPING_CONSTANTS
    queries: int = 100
    """The group of the most frequent ones. The next ones, down to rank `down_to`, are a group of their own."""
    down_to: int = 1000
    query: str | None = None
    """The single query; by default that of the first group whose clicks at the first rank moved most surely by day."""
    parts: int | None = None
    """So many parts of each query's sessions stand for days: where the log has no time."""
    in_order: bool = False
    """Parts as the log stands, not random ones."""
    seed: int = 0
    """Of random parts."""

    def __post_init__(self) -> None:
        checked_clip(self.clip)
        for name, least in (("queries", 1), ("parts", 2)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise SpecError(f"{name} must be {least} or more: got {value}.")
        if not self.tasks or not self.estimators:
            raise SpecError("there must be at least one reward and one estimator: got none.")
        for task in self.tasks:
            Reward.named(task)
        for name in self.estimators:
            if Estimator.named(name).needs_prefixes:
                raise SpecError(
                    f"{name} cannot take part in a backtest: it needs how likely lists begin. Leave it out."
                )

    def on(self, whole: Log, *, progress: Callable[[int], None] | None = None) -> BacktestResult:
        """Test on a log, of which only the sessions of frequent queries need fit in memory. `progress` is called with 1
        for every finished day of a task."""
        log, by_frequency = self._chosen(whole)
        log, day, names = self._parted(log)
        counted = _count(log, day, len(names))
        residuals = [found for task in self.tasks for found in self._task(task, log, day, len(names), progress)]
        groups = self._groups(log, by_frequency, *counted[:2])
        return BacktestResult(self, log, names, self.split, groups, *counted, tuple(residuals))

    @property
    def split(self) -> str:
        """What stands for days."""
        return DAYS if self.parts is None else IN_ORDER if self.in_order else RANDOM

    def _chosen(self, whole: Log) -> tuple[Sessions, list[str]]:
        """The sessions of the queries that are compared, without propensities, and these queries' ids, the most
        frequent first; the single query is the last one where it is none of them."""
        words = whole.vocabulary
        frequency = np.zeros(words.n_queries)
        for part in whole.chunks():
            if (part.rankings.query == UNSEEN).any():
                raise DataError("every query of the log must have an id. Give the log in its own vocabulary.")
            frequency += np.bincount(part.rankings.query, part.count, words.n_queries)
        order = np.argsort(-frequency, kind="stable")[: max(self.queries, self.down_to)]
        chosen = order[frequency[order] > 0]
        if self.query is not None:
            single = int(words.query_numbers([self.query])[0])
            if single == UNSEEN or not frequency[single]:
                raise DataError(f"the single query must be in the log: {self.query!r} is not. Name another one.")
            chosen = chosen if single in chosen else np.append(chosen, single)
        wanted = np.zeros(words.n_queries, bool)
        wanted[chosen] = True
        kept = whole[wanted[whole.rankings.query]] if isinstance(whole, Sessions) else whole.sessions(wanted)
        shown = kept.rankings.pair[kept.rankings.shown & (kept.rankings.pair != UNSEEN)]
        # tables by query and by pair follow the queries that are compared, not the whole log
        lists = kept.rankings.in_vocabulary(words.with_pairs(shown))
        lists = Rankings(lists.vocabulary, lists.query, lists.pair, lists.shown)
        log = Sessions(lists, kept.click, kept.count, kept.time)
        return log, [str(words.query_ids[q]) for q in chosen]

    def _parted(self, log: Sessions) -> tuple[Sessions, Int[np.ndarray, " row"], tuple[str, ...]]:
        """The log, the day of each of its rows, and the days' names. Merged rows may part."""
        if self.parts is None:
            if log.time is None:
                raise DataError(
                    "a backtest leaves out one day after the other: this log has no time. Give it a 'day' or 'time' "
                    "column, or take parts instead, such as 27."
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
        place = np.arange(len(order)) - np.repeat(np.cumsum(total) - total, total)
        part = place * self.parts // np.repeat(total, total)
        key, times = np.unique(order[by_query] * self.parts + part, return_counts=True)
        row, day = np.divmod(key, self.parts)
        return Sessions(log.rankings[row], log.click[row], times), day, tuple(map(str, range(1, self.parts + 1)))

    def _task(
        self,
        task: str,
        log: Sessions,
        day: Int[np.ndarray, " row"],
        days: int,
        progress: Callable[[int], None] | None,
    ) -> Iterator[Residuals]:
        logged, limits = GroupedLog.of(log, task), checked_clip(self.clip)
        shape = logged.n_queries, days
        actual = np.full(shape, np.nan)
        estimated = {name: np.full((*shape, len(limits)), np.nan) for name in self.estimators}
        for d, (today, others, aim) in enumerate(leave_one_out(logged, day, days)):
            here, there = (logged.per_query(part.shown)[:, 0] for part in (today, others))
            both = (here > 0) & (there > 0)
            actual[both, d] = logged.per_query(today.earned)[both, 0] / here[both]
            for name, found in estimated.items():
                prepared = BoundEstimator.of(Estimator.named(name), logged, aim)
                found[both, d] = prepared.per_query(others, limits)[both]
            if progress is not None:
                progress(1)
        for name, found in estimated.items():
            lost = np.isnan(found).all(axis=2) & ~np.isnan(actual)
            # the sum over the log is empty, and so the paper's estimate is 0
            found[lost] = 0.0
            yield Residuals(task, name, self.clip, actual, found, lost)

    def _groups(
        self,
        log: Sessions,
        by_frequency: Sequence[str],
        sessions: Float[np.ndarray, "query day"],
        first_clicks: Float[np.ndarray, "query day"],
    ) -> dict[str, Int[np.ndarray, " _"]]:
        """By the names of the groups, the numbers of their queries, the most frequent first."""
        ids = {str(raw): number for number, raw in enumerate(log.vocabulary.query_ids.tolist())}
        ranked = np.array([ids[name] for name in by_frequency])[: max(self.queries, self.down_to)]
        first, rest = ranked[: self.queries], ranked[self.queries :]
        groups = {f"the {len(first)} most frequent" if len(first) > 1 else "the most frequent": first}
        if len(rest):
            groups[f"ranks {self.queries + 1}–{self.queries + len(rest)}"] = rest
        single = first[_most_moving(sessions[first], first_clicks[first])] if self.query is None else ids[self.query]
        return groups | {f"query {log.vocabulary.query_ids[single]}": np.array([single])}


@final
@dataclass(frozen=True, eq=False)
class Residuals:
    """One estimator on one task: what each day earned, and what the other days made of it."""

    task: str
    estimator: str
    clip: tuple[float, ...]
    actual: Float[np.ndarray, "query day"]
    """Mean reward; NaN where the day, or all other days, have no session of the query."""
    estimated: Float[np.ndarray, "query day clip"]
    lost: Bool[np.ndarray, "query day"]
    """Where nothing of the day's lists was logged on other days, and the estimate is 0."""

    @property
    def used(self) -> Bool[np.ndarray, "query day"]:
        used: np.ndarray = ~np.isnan(self.actual)
        return used

    def squared(self, queries: Int[np.ndarray, " chosen"]) -> Float[np.ndarray, "chosen clip"]:
        """Squared errors, added up over the days of each query."""
        error = self.estimated[queries] - self.actual[queries][:, :, None]
        squared: np.ndarray = np.nansum(error**2, axis=1)
        return squared

    def rmse(self, queries: Int[np.ndarray, " chosen"]) -> Float[np.ndarray, " clip"]:
        """Over all pairs of a query and a day that can be used, whatever their traffic."""
        pairs = int(self.used[queries].sum())
        total: np.ndarray = self.squared(queries).sum(axis=0)
        return np.sqrt(total / pairs) if pairs else np.full(len(self.clip), np.nan)


@final
@dataclass(frozen=True, eq=False)
class BacktestResult:
    """What a backtest found."""

    protocol: Backtest
    log: Sessions
    """The sessions of the queries that were compared."""
    days: tuple[str, ...]
    split: str
    """What stands for days: `DAYS`, `RANDOM` or `IN_ORDER` parts."""
    groups: Mapping[str, Int[np.ndarray, " _"]]
    """The most frequent queries, perhaps the next ones, and the single one, by the names of the groups."""
    sessions: Float[np.ndarray, "query day"]
    first_clicks: Float[np.ndarray, "query day"]
    """Clicks at the first rank per session; NaN on days without one."""
    all_clicks: Float[np.ndarray, "query day"]
    residuals: tuple[Residuals, ...]
    """By task, then by estimator."""

    @cached_property
    def rows(self) -> Rows:
        """Pooled errors: one row per task, group, estimator and clipping constant."""
        found = []
        for r in self.residuals:
            for group, queries in self.groups.items():
                used = int(r.used[queries].sum())
                about = {
                    "queries": len(queries),
                    "pairs": used,
                    "pairs_dropped": len(queries) * len(self.days) - used,
                    "pairs_without_overlap": int(r.lost[queries].sum()),
                    "split": self.split,
                }
                where = {"task": r.task, "group": group, "estimator": r.estimator}
                for clip, rmse in zip(r.clip, r.rmse(queries).tolist(), strict=True):
                    found.append({**where, "M": clip, "rmse": rmse, **about})
        return found

    @property
    def query_rows(self) -> Rows:
        """The same for each query alone."""
        names = self.log.vocabulary.query_ids.tolist()
        sessions = self.sessions.sum(axis=1).astype(int).tolist()
        found = []
        for r in self.residuals:
            pairs = r.used.sum(axis=1)
            with np.errstate(invalid="ignore", divide="ignore"):
                rmse = np.sqrt(r.squared(np.arange(len(names))) / pairs[:, None])
            for q, (errors, used) in enumerate(zip(rmse.tolist(), pairs.tolist(), strict=True)):
                where = {"task": r.task, "query": str(names[q]), "estimator": r.estimator}
                about = {"sessions": sessions[q], "pairs": used, "pairs_dropped": len(self.days) - used}
                found += [
                    {**where, "M": clip, "rmse": error, **about} for clip, error in zip(r.clip, errors, strict=True)
                ]
        return found

    @property
    def day_rows(self) -> Rows:
        """Day by day: the mean over a group's queries of what they earned and of what each estimator, with its best
        clipping constant, made of it."""
        found = []
        for r in self.residuals:
            for group, queries in self.groups.items():
                best, used = _first_least(r.rmse(queries)), r.used[queries]
                pairs = used.sum(axis=0)
                with np.errstate(invalid="ignore", divide="ignore"):
                    means = [
                        np.nansum(x, axis=0) / pairs for x in (r.actual[queries], r.estimated[queries][:, :, best])
                    ]
                where = {"task": r.task, "group": group, "estimator": r.estimator, "M": r.clip[best]}
                for d in np.flatnonzero(pairs):
                    actual, estimated = (float(x[d]) for x in means)
                    line = {"actual": actual, "estimated": estimated, "residual": estimated - actual}
                    found.append({**where, "day": self.days[d], **line, "pairs": int(pairs[d])})
        return found

    def choice(self, task: str, group: str | None = None) -> dict[str, Any]:
        """The row of the estimator and clipping constant with the least pooled error; of equal ones the first.

        The group is that of the most frequent queries by default.
        """
        group = next(iter(self.groups)) if group is None else group
        rows = [row for row in self.rows if row["task"] == task and row["group"] == group]
        if not rows:
            raise SpecError(f"the backtest must have the task and the group: got {task!r} and {group!r}.")
        if all(math.isnan(row["rmse"]) for row in rows):
            raise DataError(f"nothing of {group} can be compared: no query has sessions on two {self.split}.")
        return min(rows, key=lambda row: row["rmse"])

    def gain(
        self, task: str, group: str, estimator: str, baseline: str, *, replicates: int = 2000
    ) -> tuple[float, float, float]:
        """By which share the error of an estimator is below that of a baseline, each with its best clipping constant,
        and a 95 % interval: queries are drawn again. NaN for fewer than 10 queries."""
        queries, ours, theirs = self.groups[group], self.of(task, estimator), self.of(task, baseline)
        squares = []
        for r in (ours, theirs):
            squares.append(r.squared(queries)[:, _first_least(r.rmse(queries))])
        with np.errstate(invalid="ignore", divide="ignore"):
            value = float(1 - np.sqrt(squares[0].sum() / squares[1].sum()))
            if len(queries) < 10:
                return value, math.nan, math.nan
            rng = generator(self.protocol.seed, "backtest", "gain")
            drawn = rng.multinomial(len(queries), np.full(len(queries), 1 / len(queries)), replicates)
            low, high = np.quantile(1 - np.sqrt(drawn @ squares[0] / (drawn @ squares[1])), [0.025, 0.975])
        return value, float(low), float(high)

    def of(self, task: str, estimator: str) -> Residuals:
        for r in self.residuals:
            if (r.task, r.estimator) == (task, estimator):
                return r
        raise SpecError(f"the backtest must have the task and the estimator: got {task!r} and {estimator!r}.")


def _first_least(values: Float[np.ndarray, " clip"]) -> int:
    return 0 if np.isnan(values).all() else int(np.nanargmin(values))


def _most_moving(sessions: Float[np.ndarray, "query day"], ctr: Float[np.ndarray, "query day"]) -> int:
    """By Pearson's chi-square of clicks against days."""
    total, rate = sessions.sum(axis=1), np.nan_to_num(ctr)
    mean = (sessions * rate).sum(axis=1) / np.maximum(total, 1)
    spread = (sessions * (rate - mean[:, None]) ** 2).sum(axis=1)
    return int(np.argmax(spread / np.maximum(mean * (1 - mean), 1e-9)))


def _count(log: Sessions, day: Int[np.ndarray, " row"], days: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sessions, and clicks per session at the first rank and at all, by query and day."""
    shape = log.vocabulary.n_queries, days
    place = log.rankings.query.astype(np.int64) * days + day
    weights = (log.count, log.count * log.click[:, 0], log.count * log.click.sum(axis=1))
    sessions, first, every = (np.bincount(place, w, shape[0] * days).reshape(shape) for w in weights)
    with np.errstate(invalid="ignore", divide="ignore"):
        return sessions, first / sessions, every / sessions
