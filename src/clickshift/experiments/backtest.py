"""Backtest of off-policy evaluation (Li et al. 2018, section 6): which estimator was right about past days?

Each day in turn is treated as the day of a new policy: its lists are the target, its mean reward is the truth, and all
other days are the log. With list frequencies as both policies, everything is computed from counts, and the counts of
the other days are those of all days minus one. Where a log has no time, parts of it take the place of days.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.parallel import in_threads
from clickshift.core.progress import Progress, silent
from clickshift.core.rng import generator
from clickshift.counts.open_log import LogLike, open_log
from clickshift.counts.open_public_log import open_public_log
from clickshift.data.days import MAX_DAYS, days_of
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN
from clickshift.errors import DataError, SpecError
from clickshift.experiments._backtest_report import DAYS, IN_ORDER, RANDOM, Residuals
from clickshift.experiments._backtest_report import BacktestResult as BacktestResult
from clickshift.experiments.log_files import TABLE
from clickshift.io.datasets.registry import YANDEX_LOGS
from clickshift.io.read_log import log_files
from clickshift.io.read_report import OnBadLine
from clickshift.ope.bound_estimator import BoundEstimator
from clickshift.ope.daily_residuals import leave_one_out
from clickshift.ope.estimate import PAPER_ESTIMATORS
from clickshift.ope.estimators import Estimator, checked_clip
from clickshift.ope.grouped_log import GroupedLog
from clickshift.ope.rewards import Reward
from clickshift.simulation.drifting_log import DriftingLog

TASKS = ("clicks@2", "clicks@3", "dcg", "clicks")
"""Rewards of the paper."""
CLIPPING_CONSTANTS = (1.0, 2.0, 3.0, 5.0, 9.0, 10.0, 20.0, 30.0, 40.0, 50.0, 100.0, 200.0, 500.0, 1000.0, math.inf)
"""All clipping constants that the paper quotes, and some between them."""


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
        for name, least, most in (("queries", 1, 1 << 62), ("parts", 2, MAX_DAYS)):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise SpecError(
                    f"{name} must be from {least} to {most}: got {value}.", code="bad-option", option=name, value=value
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

    def on(self, whole: Log, *, progress: Progress = silent) -> BacktestResult:
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
        by_task = in_threads(
            lambda k: self._task_residuals(self.tasks[k], log, day, len(names), progress), len(self.tasks)
        )
        groups = self._group_queries(log, by_frequency, *counts[:2])
        return BacktestResult(
            log, names, self.split, groups, *counts, tuple(chain(*by_task)), self.seed, {"backtest": str(self)}
        )

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
        progress: Progress,
    ) -> list[Residuals]:
        """Estimate the reward of each day from the other days, by each estimator."""
        logged, limits = GroupedLog.of(log, task), checked_clip(self.clip)
        shape = logged.n_queries, days
        actual = np.full(shape, np.nan)
        estimates = {name: np.full((*shape, len(limits)), np.nan) for name in self.estimators}
        for d, (today, others, target) in enumerate(leave_one_out(logged, day, days)):
            sessions_today, sessions_others = (part.sessions[:, 0] for part in (today, others))
            both = (sessions_today > 0) & (sessions_others > 0)
            actual[both, d] = logged.per_query(today.earned)[both, 0] / sessions_today[both]
            for name, estimated in estimates.items():
                bound = BoundEstimator.of(Estimator.named(name), logged, target)
                estimated[both, d] = bound.per_query(others, limits)[both]
            progress(1, total=days * len(self.tasks))
        residuals = []
        for name, estimated in estimates.items():
            no_overlap = np.isnan(estimated).all(axis=2) & ~np.isnan(actual)
            # the sum over the log is empty, and so the paper's estimate is 0
            estimated[no_overlap] = 0.0
            residuals.append(Residuals(task, name, self.clip, actual, estimated, no_overlap))
        return residuals

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


def backtest(
    log: LogLike | None = None,
    *,
    simulated: bool = False,
    parts: int | None = None,
    in_order: bool = False,
    rewards: Sequence[str] = TASKS,
    estimators: Sequence[str] = PAPER_ESTIMATORS,
    clip: Sequence[float] = CLIPPING_CONSTANTS,
    queries: int = 100,
    query: str | None = None,
    format: str = TABLE,
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> BacktestResult:
    """Hold out one day after the other and measure which estimator predicts its reward best from the other days.

    Parameters
    ----------
    log
        Anything that `open_log` opens, with days; only the sessions of frequent queries must fit in memory.
    simulated
        Whether to use a simulated log, whose ranker changes by day, instead of `log`.
    parts
        Number of parts of each query's sessions, instead of days, for a log without times.
    in_order
        Whether to form parts in the order of the log, not at random.
    rewards
        Rewards: "clicks", "dcg" or "any-click", with @K for the first K ranks. By default, the paper's four.
    estimators
        List, IP, PBM, Item or RCTR, self-normalised with the prefix SN-.
    clip
        Clipping constants M, ascending.
    queries
        Number of most frequent queries in the head group; the next ones, up to the 1000th, form the tail.
    query
        Query with a chart of its own; by default, one whose click rate changed between days.
    format
        Format of the log: "table", or a public one such as "yandex-kaggle".
    seed
        Random seed for random parts, intervals and the simulated log.
    columns
        Names of the log's columns, by the names that `read_log` expects.
    on_bad_line
        "error", or "skip" to leave out bad sessions of the log.
    progress
        Called with 1 for every finished day of a reward, and with texts.

    Returns
    -------
    BacktestResult
        Errors of the estimators by reward, group of queries and clipping constant, and the chosen ones.

    Raises
    ------
    SpecError
        If there is no log, or both a log and `simulated` ("bad-option"), and as `Backtest`.
    DataError
        As `Backtest.on`.

    References
    ----------
    Li, S. et al. (2018). Offline evaluation of ranking policies with click models. KDD.

    Examples
    --------
    >>> import clickshift as cs
    >>> corpus = cs.builtin_corpus(queries=5)
    >>> log = cs.simulate(corpus, cs.PlackettLuce(cs.Oracle(), temperature=0.5), cs.users.PBM(), 1000, rng=1)
    >>> result = backtest(log, parts=3, rewards=["clicks@2"], estimators=["IP", "RCTR"])
    >>> result.choice("clicks@2")["estimator"]
    'RCTR'
    """
    if simulated == (log is not None):
        raise SpecError(
            "a backtest needs either a log or a simulated one. Pass `log`, or `simulated`, and not both.",
            code="bad-option",
        )
    protocol = Backtest(
        tuple(dict.fromkeys(rewards)),
        tuple(dict.fromkeys(estimators)),
        tuple(float(limit) for limit in clip),
        queries=queries,
        query=query,
        parts=parts,
        in_order=in_order,
        seed=seed,
    )
    simulation = DriftingLog(seed=seed)
    if log is None:
        progress("simulating")
        sessions: Log = simulation.draw()
    elif format == TABLE:
        sessions = open_log(log, columns=columns, on_bad_line=on_bad_line, progress=progress)
    else:
        files: Any = log
        sessions = open_public_log(
            log_files(files),
            format=format,
            # the log may be far larger than memory: only the queries of the two groups are kept while it is read
            most_frequent=max(protocol.queries, protocol.down_to) if format in YANDEX_LOGS else None,
            queries=None if query is None or format not in YANDEX_LOGS else [query],
            on_bad_line=on_bad_line,
            progress=progress,
        )
    source = str(simulation) if log is None else str(log) if isinstance(log, str | Path) else "the log"
    result = protocol.on(sessions, progress=progress)
    kind = {} if format == TABLE or log is None else {"format": format}
    return replace(result, settings={"log": source, **kind, **result.settings})


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
