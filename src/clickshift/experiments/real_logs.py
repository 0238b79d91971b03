"""The real-log protocol: the policy-shift comparison on logs of a real engine, without a simulator.

One log with judgments gives the tables of the policy-shift paper's section 4: what each model predicts on held-out
sessions, and how well it ranks judged documents. Several logs of one engine under different rankers give ind and ood
perplexity: models learn from one log and predict the others.

Nobody knows the real user's click probabilities, so there is no oracle here. Perplexities of two logs differ also
because their lists and their users do: it is the order of the models, and their distances, that can be compared.
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
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import ClickshiftWarning, DataError
from clickshift.experiments._rows import click_rows, ranking_row, ranking_rows
from clickshift.experiments.comparison import SPLITS
from clickshift.experiments.log_files import JudgmentFile, LogFile
from clickshift.experiments.models import BASELINES, CLICK_MODELS, LOGGING, PEEKING, Contender
from clickshift.experiments.runner import clickshift_warnings
from clickshift.io.datasets.filters import compact, drop_without_clicks
from clickshift.io.qrels import Judgments
from clickshift.metrics.log_comparison import MeanRanks, log_difference
from clickshift.metrics.ranking import JudgedPairs, head_queries
from clickshift.simulation.search_engine import IND

PAPER_MODELS = (*CLICK_MODELS, *BASELINES, PEEKING)
"""Those of the paper's tables."""
_REAL_USERS = "real"
"""The users of these rows, where simulated ones have their model's name."""
AUTO = "auto"
"""Split by time where a log has times, else at random."""
VERSION = 2
"""Of the rows: counted up when a change of the code changes numbers."""
_MANY_UNSEEN = 0.2
"""From this share of unseen results on, a log says more about priors than about models."""
_SAME_RANKER = 0.2
"""Below this displacement, and with hardly more unseen results than held-out sessions have, rankers are much alike."""
_FEW_SESSIONS = 1000
"""Below this, the noise of a test log is larger than what tells models apart; seeds do not show it."""


@dataclass(frozen=True)
class Preparation:
    """What is done to every log before models see it: a part of every cell's key."""

    judgments: JudgmentFile | None = None
    annotated: bool = False
    """Only queries that are judged, as in the paper."""
    with_clicks: bool = False
    """Without the pages that nobody clicked, as in the paper. Not the default: every click rate in what is left is too
    high, and so are perplexities, which then cannot be compared with those of other logs."""
    split: str = AUTO
    """How the training log is parted: by time where there is one, else at random; or one of `SPLITS`."""
    fractions: tuple[float, float] = (1 / 30, 1 / 30)
    """Of a training log: to stop training by, and for the ind perplexity. The paper's for Yandex."""
    seed: int = 0
    """Of a random split."""

    def __post_init__(self) -> None:
        if self.split != AUTO and self.split not in SPLITS:
            raise DataError(f"a split must be one of {', '.join((AUTO, *SPLITS))}: got {self.split!r}.")
        if min(self.fractions) <= 0 or sum(self.fractions) >= 1:
            raise DataError(f"held-out fractions must be above 0 and together below 1: got {self.fractions}.")
        if self.annotated and self.judgments is None:
            raise DataError("judged queries can only be told from others with judgments: give a file of them.")

    def parts(self, log: Sessions) -> tuple[Sessions, Sessions, Sessions]:
        """To learn from, to stop by, and to predict; by time, the last sessions are predicted."""
        stop, last = self.fractions
        train, rest = self._split(log, 1 - stop - last, "first")
        return train, *self._split(rest, stop / (stop + last), "rest")

    def _split(self, log: Sessions, fraction: float, name: str) -> tuple[Sessions, Sessions]:
        split = self.split if self.split != AUTO else "random" if log.time is None else "time"
        if split == "random":
            return log.split(fraction, rng=generator(self.seed, "real logs", name))
        return SPLITS[split](log, fraction, self.seed)


class _PreparedLogs(NamedTuple):
    """What a cell learns from and is judged by."""

    train: Sessions
    held_out: Sessions
    test: dict[str, Sessions]
    """By name: `IND` is the held-out part of the training log."""
    judged: JudgedPairs | None
    """None without judgments, or where none is left on which rankings can differ."""
    impressions: Float[np.ndarray, " query"]
    """Training sessions of each judged query."""
    notes: tuple[str, ...]
    """What readers said."""


@dataclass(frozen=True)
class LogFacts:
    """How a training log differs from the logs that are predicted, before any model; and its ranker's own quality."""

    training: LogFile
    testing: tuple[LogFile, ...]
    preparation: Preparation
    version: int = VERSION

    @property
    def name(self) -> str:
        return f"{self.training.name} log"

    def rows(self) -> list[dict[str, Any]]:
        logs = _logs(self.training, self.testing, self.preparation)
        about = {"user": _REAL_USERS, "training": self.training.name, "model": LOGGING, "role": "baseline"}
        return [about | row for row in self._found(logs)]

    def _found(self, logs: _PreparedLogs) -> Iterator[dict[str, Any]]:
        for name, test in logs.test.items():
            shift = "ind" if name == IND else "ood"
            yield {"kind": "log", "testing": name, "shift": shift, **log_difference(logs.train, test)}
        if logs.judged is not None:
            mean_rank = MeanRanks.of(logs.train.in_vocabulary(logs.judged.vocabulary)).mean
            head = head_queries(logs.impressions)
            yield {"seed": 0, **ranking_row(-np.nan_to_num(mean_rank), logs.judged, head, 0)}
        doubt = swap_graph(Cells.of(logs.train)).warning()
        for note in (*logs.notes, *([] if doubt is None else [f"{self.training.name}: {doubt}"])):
            yield {"kind": "note", "text": note}


@dataclass(frozen=True)
class LogCell:
    """One model on one training log, with all its seeds."""

    training: LogFile
    testing: tuple[LogFile, ...]
    preparation: Preparation
    contender: Contender
    seeds: int
    version: int = VERSION

    @property
    def log(self) -> str:
        return f"{self.training.name} log"

    @property
    def name(self) -> str:
        return f"{self.contender.name}, {self.log}"

    def rows(self) -> list[dict[str, Any]]:
        logs = _logs(self.training, self.testing, self.preparation)
        about = {"user": _REAL_USERS, "training": self.training.name}
        about |= {"model": self.contender.name, "role": self.contender.role}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ClickshiftWarning)
            found = list(self._judged(logs))
        found += [{"kind": "note", "text": f"{self.name}: {text}"} for text in clickshift_warnings(caught)]
        return [about | row for row in found]

    def _judged(self, logs: _PreparedLogs) -> Iterator[dict[str, Any]]:
        start = time.perf_counter()
        models = self.contender.fit(logs.train, logs.held_out, self.seeds)
        fit_seconds = {"fit_seconds": time.perf_counter() - start}
        for row in click_rows(models, logs.test):
            yield row | fit_seconds
        if logs.judged is not None:
            yield from ranking_rows(models, logs.judged, logs.impressions)


def rows_of(cell: LogFacts | LogCell) -> list[dict[str, Any]]:
    """`rows` as a function, for processes."""
    return cell.rows()


@dataclass(frozen=True)
class RealLogs:
    """Training logs x models. Every other log is an ood test of a model that was trained on one."""

    training: tuple[LogFile, ...]
    testing: tuple[LogFile, ...] = ()
    """Logs that are only predicted."""
    contenders: tuple[Contender, ...] = PAPER_MODELS
    preparation: Preparation = Preparation()
    seeds: int = 10

    def __post_init__(self) -> None:
        if not self.training:
            raise DataError("there must be at least one log to learn from: got none.")
        if self.seeds < 1:
            raise DataError(f"there must be at least one seed: got {self.seeds}.")
        names = [log.name for log in self.logs]
        if IND in names:
            raise DataError(f"no log may be called {IND}, which is the held-out part of the training log. Rename it.")
        for what, which in (("name", names), ("content", [log.content for log in self.logs])):
            for log, value in zip(self.logs, which, strict=True):
                if which.count(value) > 1:
                    raise DataError(
                        f"logs must differ: the {what} of {log.name} is that of another. Give each log once."
                    )
        for contender in self.contenders:
            contender.make()

    @property
    def logs(self) -> tuple[LogFile, ...]:
        return (*self.training, *self.testing)

    def facts(self) -> list[LogFacts]:
        """Of each training log."""
        return [LogFacts(log, self._others(log), self.preparation) for log in self.training]

    def cells(self) -> list[LogCell]:
        """Cells of one training log stand together, so that a process reads it once."""
        return [
            LogCell(log, self._others(log), self.preparation, contender, self.seeds)
            for log in self.training
            for contender in self.contenders
        ]

    def _others(self, log: LogFile) -> tuple[LogFile, ...]:
        return tuple(other for other in self.logs if other != log)


def log_warnings(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What to know before these rows are believed, in sentences."""
    said = []
    facts = [row for row in rows if row["kind"] == "log"]
    own = {row["training"]: row for row in facts if row["shift"] == "ind"}
    for row in facts:
        ind = row["shift"] == "ind"
        log = f"the held-out part of {row['training']}" if ind else row["testing"]
        if row["unseen_pair_share"] >= _MANY_UNSEEN:
            said.append(
                f"{row['unseen_pair_share']:.0%} of the results of {log} were never shown in {row['training']}. "
                "A model cannot know a document that it never saw: there, priors are compared."
            )
        if row["sessions"] < _FEW_SESSIONS:
            said.append(
                f"Only {row['sessions']:,} sessions are in {log}: small differences are noise, also where all seeds "
                f"agree.{' Hold out more.' if ind else ''}"
            )
        new = row["unseen_pair_share"] - own[row["training"]]["unseen_pair_share"]
        if not ind and row["displacement"] < _SAME_RANKER and new < _SAME_RANKER:
            said.append(
                f"The rankers of {row['training']} and {row['testing']} hardly differ: the mean rank of a result "
                f"changes by {row['displacement']:.2f}. That is hardly a test of a shift."
            )
    notes = dict.fromkeys(row["text"] for row in rows if row["kind"] == "note")
    # what is said of a log is not repeated for every model that finds it
    of_logs = [note.partition(": ")[2] for note in notes if note.partition(": ")[0] in own]
    return said + [note for note in notes if note.partition(": ")[0] in own or not note.endswith(tuple(of_logs))]


def clear_log_cache() -> None:
    """Free the memory of the logs that were read last."""
    _logs.cache_clear()
    _prepared.cache_clear()


@lru_cache(maxsize=1)
def _logs(training: LogFile, testing: tuple[LogFile, ...], preparation: Preparation) -> _PreparedLogs:
    log, notes = _prepared(training, preparation)
    train, held_out, ind = preparation.parts(log)
    test, said = {IND: ind}, list(notes)
    for other in testing:
        test[other.name], notes = _prepared(other, preparation)
        said += notes
    judged, impressions = None, np.zeros(0)
    if preparation.judgments is not None:
        judgments, notes = _judgments(preparation.judgments)
        judged, impressions = _judged_pairs(judgments, train)
        said += notes
        if judged.queries == 0:
            said.append(
                f"{training.name} shows no query with documents of different labels: models are not compared by "
                "ranking. Are the ids of the log and of the judgments the same?"
            )
            judged = None
    return _PreparedLogs(train, held_out, test, judged, impressions, tuple(dict.fromkeys(said)))


@lru_cache(maxsize=16)  # all logs of a protocol: each is a test of the others
def _prepared(log: LogFile, preparation: Preparation) -> tuple[Sessions, tuple[str, ...]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ClickshiftWarning)
        judged = None
        if preparation.annotated and preparation.judgments is not None:
            judged, _ = _judgments(preparation.judgments)
        sessions = log.read(judged)
        if preparation.with_clicks:
            sessions = drop_without_clicks(sessions)
    return compact(sessions), clickshift_warnings(caught)


@lru_cache(maxsize=1)
def _judgments(file: JudgmentFile) -> tuple[Judgments, tuple[str, ...]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ClickshiftWarning)
        judgments = file.read()
    return judgments, clickshift_warnings(caught)


def _judged_pairs(judgments: Judgments, train: Sessions) -> tuple[JudgedPairs, Float[np.ndarray, " query"]]:
    """Judged documents that training showed, and the training sessions of each judged query."""
    words = Vocabulary.of(judgments.query, judgments.doc)[0]
    lists = train.in_vocabulary(words).rankings
    shown = np.bincount(lists.pair[lists.pair != UNSEEN], minlength=words.n_pairs) > 0
    # TREC's -2 is spam, which is as useful as 0: a gain below that of nothing would leave the scale of nDCG
    judged = JudgedPairs.of(words, np.maximum(judgments.labels_for(words), 0.0), shown=shown)
    known = lists.query != UNSEEN
    impressions = np.bincount(lists.query[known], train.count[known], words.n_queries)
    return judged, impressions.astype(np.float64)
