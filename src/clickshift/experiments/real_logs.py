"""The real-log protocol: the policy-shift comparison on logs of a real search engine, without a simulator.

One log with judgments gives the tables of the policy-shift paper's section 4: click prediction on held-out sessions,
and ranking of judged documents. Several logs of one engine under different rankers give in-distribution (ind) and
out-of-distribution (ood) perplexity: models learn from one log and predict the others.

The click probabilities of real users are unknown, so there is no oracle. Perplexities of two logs also differ because
their lists and users do: compare models on the same log, by their order and their differences.

References
----------
Deffayet, R., Renders, J.-M. & de Rijke, M. (2022). Evaluating the robustness of click models to policy distributional
shift. ACM Transactions on Information Systems.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from clickshift.core.rng import generator
from clickshift.counts.cells import Cells
from clickshift.counts.connectivity import swap_graph
from clickshift.data.sessions import Sessions
from clickshift.data.splits import SPLITS
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import ClickshiftWarning, DataError
from clickshift.experiments._rows import click_rows, ranking_row, ranking_rows
from clickshift.experiments.log_files import JudgmentFile, LogFile
from clickshift.experiments.models import BASELINES, CLICK_MODELS, LOGGING, PEEKING, Contender
from clickshift.experiments.runner import clickshift_warnings
from clickshift.io.datasets.filters import compact, drop_without_clicks
from clickshift.io.qrels import Judgments
from clickshift.metrics.log_comparison import MeanRanks, log_difference
from clickshift.metrics.ranking import JudgedPairs, head_queries
from clickshift.simulation.search_engine import IND

PAPER_MODELS = (*CLICK_MODELS, *BASELINES, PEEKING)
"""The models in the tables of the policy-shift paper."""
_REAL_USERS = "real"
"""User name in the rows of real logs; rows of simulated logs have the name of the user's click model."""
AUTO = "auto"
"""Split by time if the log has times, else at random."""
VERSION = 2
"""Version of the rows: raised when a change of the code changes numbers, so that old rows are not reused."""
_MANY_UNSEEN = 0.2
"""From this share of unseen results on, a comparison reflects the models' priors more than what they learned."""
_SAME_RANKER = 0.2
"""Rankers count as the same below this rank displacement, if unseen results are hardly more than in held-out data."""
_FEW_SESSIONS = 1000
"""Below this number of sessions, the sampling noise of a test log exceeds the differences between models. Intervals
over seeds do not include that noise."""


@dataclass(frozen=True)
class Preparation:
    """How every log is filtered and split before models see it; part of every task's digest.

    Parameters
    ----------
    judgments
        File of relevance judgments; None to skip ranking metrics.
    annotated
        Keep only queries with judgments, as in the paper.
    with_clicks
        Drop sessions without clicks, as in the paper. Not the default: every click rate in the remaining sessions is
        too high, and so are perplexities, which then cannot be compared with those of other logs.
    split
        How a training log is split: "auto" (by time if the log has times, else at random), or one of
        `clickshift.data.splits.SPLITS`.
    fractions
        Fractions of a training log that are held out: for early stopping, and for the ind perplexity. The default is
        the paper's for Yandex.
    seed
        Random seed for a random split.

    Raises
    ------
    DataError
        If the split is unknown ("unknown-name"), the fractions leave nothing to learn from ("bad-option"), or
        `annotated` is set without judgments ("missing-judgments").
    """

    judgments: JudgmentFile | None = None
    annotated: bool = False
    with_clicks: bool = False
    split: str = AUTO
    fractions: tuple[float, float] = (1 / 30, 1 / 30)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.split != AUTO and self.split not in SPLITS:
            raise DataError(
                f"a split must be one of {', '.join((AUTO, *SPLITS))}: got {self.split!r}.",
                code="unknown-name",
                name=self.split,
                known=[AUTO, *SPLITS],
            )
        if min(self.fractions) <= 0 or sum(self.fractions) >= 1:
            raise DataError(
                f"held-out fractions must be above 0 and together below 1: got {self.fractions}.",
                code="bad-option",
                option="fractions",
                value=self.fractions,
            )
        if self.annotated and self.judgments is None:
            raise DataError(
                "judgments are needed to select the judged queries, and none were given. Pass a file of judgments, or "
                "use all queries.",
                code="missing-judgments",
            )

    def parts(self, log: Sessions) -> tuple[Sessions, Sessions, Sessions]:
        """Split a log into sessions for training, for early stopping and for the ind perplexity.

        By time, the last sessions are those for the ind perplexity.
        """
        stopping, testing = self.fractions
        train, rest = self._split(log, 1 - stopping - testing, "first")
        return train, *self._split(rest, stopping / (stopping + testing), "rest")

    def _split(self, log: Sessions, fraction: float, name: str) -> tuple[Sessions, Sessions]:
        """Split off the first fraction; `name` keeps the random streams of the two splits apart."""
        split = self.split if self.split != AUTO else "random" if log.time is None else "time"
        if split == "random":
            return log.split(fraction, rng=generator(self.seed, "real logs", name))
        return SPLITS[split](log, fraction, self.seed)


class _PreparedLogs(NamedTuple):
    """The data of a task: sessions for training and testing, and judgments."""

    train: Sessions
    held_out: Sessions
    test: dict[str, Sessions]
    """Test logs by name: `IND` is the held-out part of the training log."""
    judged: JudgedPairs | None
    """None without judgments, or if rankings cannot differ on any judged query."""
    impressions: Float[np.ndarray, " query"]
    """Training sessions of each judged query."""
    notes: tuple[str, ...]
    """Messages of the warnings that reading the files issued."""


@dataclass(frozen=True)
class LogFacts:
    """Task: how a training log differs from its test logs, and the ranking quality of the policy that ranked it.

    No model is fitted.

    Parameters
    ----------
    training
        Log to learn from.
    testing
        Logs of other rankers.
    preparation
        How logs are filtered and split.
    version
        Version of the rows.
    """

    training: LogFile
    testing: tuple[LogFile, ...]
    preparation: Preparation
    version: int = VERSION

    @property
    def name(self) -> str:
        """Name of the task in progress messages."""
        return f"{self.training.name} log"

    def rows(self) -> list[dict[str, Any]]:
        """Compute the rows: one per test log (kind "log"), one of ranking metrics, and notes (kind "note")."""
        logs = _read_logs(self.training, self.testing, self.preparation)
        common = {"user": _REAL_USERS, "training": self.training.name, "model": LOGGING, "role": "baseline"}
        return [common | row for row in self._rows(logs)]

    def _rows(self, logs: _PreparedLogs) -> Iterator[dict[str, Any]]:
        for name, test in logs.test.items():
            shift = "ind" if name == IND else "ood"
            yield {"kind": "log", "testing": name, "shift": shift, **log_difference(logs.train, test)}
        if logs.judged is not None:
            mean_rank = MeanRanks.of(logs.train.in_vocabulary(logs.judged.vocabulary)).mean
            head = head_queries(logs.impressions)
            yield {"seed": 0, **ranking_row(-np.nan_to_num(mean_rank), logs.judged, head, 0)}
        warning = swap_graph(Cells.of(logs.train)).warning()
        for note in (*logs.notes, *([] if warning is None else [f"{self.training.name}: {warning}"])):
            yield {"kind": "note", "text": note}


@dataclass(frozen=True)
class LogCell:
    """Task: one model on one training log, with all its seeds and test logs.

    Parameters
    ----------
    training
        Log to learn from.
    testing
        Logs of other rankers.
    preparation
        How logs are filtered and split.
    contender
        Model under comparison.
    seeds
        Number of seeds.
    version
        Version of the rows.
    """

    training: LogFile
    testing: tuple[LogFile, ...]
    preparation: Preparation
    contender: Contender
    seeds: int
    version: int = VERSION

    @property
    def log(self) -> str:
        """Name of the training log in tables of progress."""
        return f"{self.training.name} log"

    @property
    def name(self) -> str:
        """Name of the task in progress messages."""
        return f"{self.contender.name}, {self.log}"

    def rows(self) -> list[dict[str, Any]]:
        """Fit and evaluate the model: rows of click prediction and ranking, and warnings as notes (kind "note")."""
        logs = _read_logs(self.training, self.testing, self.preparation)
        common = {"user": _REAL_USERS, "training": self.training.name}
        common |= {"model": self.contender.name, "role": self.contender.role}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ClickshiftWarning)
            rows = list(self._rows(logs))
        rows += [{"kind": "note", "text": f"{self.name}: {text}"} for text in clickshift_warnings(caught)]
        return [common | row for row in rows]

    def _rows(self, logs: _PreparedLogs) -> Iterator[dict[str, Any]]:
        start = time.perf_counter()
        models = self.contender.fit(logs.train, logs.held_out, self.seeds)
        fit_seconds = {"fit_seconds": time.perf_counter() - start}
        for row in click_rows(models, logs.test):
            yield row | fit_seconds
        if logs.judged is not None:
            yield from ranking_rows(models, logs.judged, logs.impressions)


def rows_of(task: LogFacts | LogCell) -> list[dict[str, Any]]:
    """Compute the rows of a task; a top-level function, as `clickshift.experiments.runner.run_tasks` needs.

    Parameters
    ----------
    task
        The task.

    Returns
    -------
    list of dict
        Its tidy rows.
    """
    return task.rows()


@dataclass(frozen=True)
class RealLogs:
    """The real-log protocol: every model is trained on each training log and tested on all other logs.

    Parameters
    ----------
    training
        Logs to learn from, each in turn.
    testing
        Logs that are only predicted.
    contenders
        Models under comparison; by default those of the policy-shift paper.
    preparation
        How logs are filtered and split.
    seeds
        Number of seeds of models fitted by gradient descent.

    Raises
    ------
    DataError
        If there is no training log ("no-logs"), no seed ("bad-option"), a log named "ind" ("reserved-name"), or the
        same log twice ("duplicate-log").
    SpecError
        If a model under comparison does not exist.
    """

    training: tuple[LogFile, ...]
    testing: tuple[LogFile, ...] = ()
    contenders: tuple[Contender, ...] = PAPER_MODELS
    preparation: Preparation = Preparation()
    seeds: int = 10

    def __post_init__(self) -> None:
        if not self.training:
            raise DataError("there must be at least one log to learn from: got none.", code="no-logs")
        if self.seeds < 1:
            raise DataError(
                f"there must be at least one seed: got {self.seeds}.",
                code="bad-option",
                option="seeds",
                value=self.seeds,
            )
        names = [log.name for log in self.logs]
        if IND in names:
            raise DataError(
                f"no log may be named {IND}, which is the held-out part of the training log. Rename it.",
                code="reserved-name",
                name=IND,
            )
        for property_name, values in (("name", names), ("content", [log.content for log in self.logs])):
            for log, value in zip(self.logs, values, strict=True):
                if values.count(value) > 1:
                    raise DataError(
                        f"logs must differ: {log.name} has the same {property_name} as another log. Pass each log "
                        "once.",
                        code="duplicate-log",
                        log=log.name,
                        property=property_name,
                    )
        for contender in self.contenders:
            contender.make()

    @property
    def logs(self) -> tuple[LogFile, ...]:
        """All logs, the training logs first."""
        return (*self.training, *self.testing)

    def facts(self) -> list[LogFacts]:
        """Tasks that describe each training log and compare it with the other logs."""
        return [LogFacts(log, self._others(log), self.preparation) for log in self.training]

    def cells(self) -> list[LogCell]:
        """Tasks that fit models. Tasks of one training log follow each other, so that a process reads it once."""
        return [
            LogCell(log, self._others(log), self.preparation, contender, self.seeds)
            for log in self.training
            for contender in self.contenders
        ]

    def _others(self, log: LogFile) -> tuple[LogFile, ...]:
        return tuple(other for other in self.logs if other != log)


def log_warnings(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Collect the warnings that apply to the rows of a run, as sentences.

    Parameters
    ----------
    rows
        Rows of `LogFacts`, and of `LogCell` tasks that are finished.

    Returns
    -------
    list of str
        Warnings about unseen results, small logs and rankers that hardly differ; then the notes of the tasks.
    """
    messages = []
    facts = [row for row in rows if row["kind"] == "log"]
    ind_facts = {row["training"]: row for row in facts if row["shift"] == "ind"}
    for row in facts:
        ind = row["shift"] == "ind"
        log = f"the held-out part of {row['training']}" if ind else row["testing"]
        if row["unseen_pair_share"] >= _MANY_UNSEEN:
            messages.append(
                f"{row['unseen_pair_share']:.0%} of the results of {log} were never shown in {row['training']}. "
                "A model predicts documents that it never saw from its prior: on these results, priors are compared."
            )
        if row["sessions"] < _FEW_SESSIONS:
            messages.append(
                f"Only {row['sessions']:,} sessions are in {log}: small differences are noise, even if all seeds "
                f"agree.{' Hold out more sessions.' if ind else ''}"
            )
        extra_unseen = row["unseen_pair_share"] - ind_facts[row["training"]]["unseen_pair_share"]
        if not ind and row["displacement"] < _SAME_RANKER and extra_unseen < _SAME_RANKER:
            messages.append(
                f"The rankers of {row['training']} and {row['testing']} hardly differ: the mean rank of a result "
                f"changes by {row['displacement']:.2f}. These two logs hardly test a policy shift."
            )
    notes = dict.fromkeys(row["text"] for row in rows if row["kind"] == "note")
    # a note about a log is not repeated for every model that was trained on it
    log_notes = [note.partition(": ")[2] for note in notes if note.partition(": ")[0] in ind_facts]
    return messages + [
        note for note in notes if note.partition(": ")[0] in ind_facts or not note.endswith(tuple(log_notes))
    ]


def clear_log_cache() -> None:
    """Free the memory of the logs that were read last."""
    _read_logs.cache_clear()
    _read_prepared.cache_clear()


@lru_cache(maxsize=1)
def _read_logs(training: LogFile, testing: tuple[LogFile, ...], preparation: Preparation) -> _PreparedLogs:
    """Read, filter and split the logs of a task."""
    log, notes = _read_prepared(training, preparation)
    train, held_out, ind = preparation.parts(log)
    test, all_notes = {IND: ind}, list(notes)
    for other in testing:
        test[other.name], notes = _read_prepared(other, preparation)
        all_notes += notes
    judged, impressions = None, np.zeros(0)
    if preparation.judgments is not None:
        judgments, notes = _read_judgments(preparation.judgments)
        judged, impressions = _judged_pairs(judgments, train)
        all_notes += notes
        if judged.queries == 0:
            all_notes.append(
                f"{training.name} shows no query with documents of different labels: models are not compared by "
                "ranking. Check that the ids of the log and of the judgments are the same."
            )
            judged = None
    return _PreparedLogs(train, held_out, test, judged, impressions, tuple(dict.fromkeys(all_notes)))


@lru_cache(maxsize=16)  # all logs of a protocol, as each is a test log of the others
def _read_prepared(log: LogFile, preparation: Preparation) -> tuple[Sessions, tuple[str, ...]]:
    """Read and filter a log; with the messages of warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ClickshiftWarning)
        judged = None
        if preparation.annotated and preparation.judgments is not None:
            judged, _ = _read_judgments(preparation.judgments)
        sessions = log.read(judged)
        if preparation.with_clicks:
            sessions = drop_without_clicks(sessions)
    return compact(sessions), clickshift_warnings(caught)


@lru_cache(maxsize=1)
def _read_judgments(file: JudgmentFile) -> tuple[Judgments, tuple[str, ...]]:
    """Read judgments; with the messages of warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ClickshiftWarning)
        judgments = file.read()
    return judgments, clickshift_warnings(caught)


def _judged_pairs(judgments: Judgments, train: Sessions) -> tuple[JudgedPairs, Float[np.ndarray, " query"]]:
    """Select the judged documents that the training log shows, and count the sessions of each judged query."""
    vocabulary = Vocabulary.of(judgments.query, judgments.doc)[0]
    lists = train.in_vocabulary(vocabulary).rankings
    shown = np.bincount(lists.pair[lists.pair != UNSEEN], minlength=vocabulary.n_pairs) > 0
    # TREC's -2 is spam, which is as useful as 0: a negative gain would take nDCG out of [0, 1]
    judged = JudgedPairs.of(vocabulary, np.maximum(judgments.labels_for(vocabulary), 0.0), shown=shown)
    is_judged = lists.query != UNSEEN
    impressions = np.bincount(lists.query[is_judged], train.count[is_judged], vocabulary.n_queries)
    return judged, impressions.astype(np.float64)
