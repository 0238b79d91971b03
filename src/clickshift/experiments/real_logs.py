"""The real-log protocol: the policy-shift comparison on logs of a real search engine, without a simulator.

One log with judgments gives the tables of the policy-shift paper's section 4: click prediction on held-out sessions,
and ranking of judged documents. Several logs of one engine under different rankers give in-distribution (ind) and
out-of-distribution (ood) perplexity: models learn from one log and predict the others. Test logs are resampled by
session, so that a difference between two logs is known with its sampling error.

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
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from clickshift.core.interrupts import temporary_folder
from clickshift.core.progress import Progress, silent
from clickshift.core.rng import generator
from clickshift.counts.cells import Cells
from clickshift.counts.connectivity import swap_graph
from clickshift.counts.open_log import LogLike
from clickshift.data.encoded_log import Log
from clickshift.data.splits import SPLITS
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.display.tables import Rows
from clickshift.errors import ClickshiftWarning, DataError
from clickshift.experiments._real_logs_report import RealLogsResult
from clickshift.experiments._rows import click_rows, ranking_row, ranking_rows, resample_rows
from clickshift.experiments.experiment import Experiment
from clickshift.experiments.log_files import TABLE, JudgmentFile, LogFile, named_logs
from clickshift.experiments.models import (
    BASELINES,
    CLICK_MODELS,
    LOGGING,
    PEEKING,
    Contender,
    by_likelihood,
    candidate_model,
    compared_model,
)
from clickshift.experiments.runner import RunFolder, clickshift_warnings
from clickshift.io.datasets.filters import compact
from clickshift.io.datasets.registry import JUDGMENTS
from clickshift.io.qrels import Judgments
from clickshift.io.read_report import OnBadLine
from clickshift.metrics.log_comparison import MeanRanks, log_difference
from clickshift.metrics.ranking import JudgedPairs, head_queries
from clickshift.simulation.search_engine import IND

PAPER_MODELS = (*CLICK_MODELS, *BASELINES, PEEKING)
"""The models in the tables of the policy-shift paper."""
_REAL_USERS = "real"
"""User name in the rows of real logs; rows of simulated logs have the name of the user's click model."""
AUTO = "auto"
"""Split by time if the log has times, else at random."""
YANDEX_SIZE = {"queries": 4_991, "documents": 255_467}
"""Size of the Yandex relevance log after the policy-shift paper's preparation (section 4): annotated queries, SERPs
with clicks, regions merged."""
VERSION = 5
"""Version of the rows: raised when a change of the code changes numbers, so that old rows are not reused."""


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
    merge_regions
        Name queries of the Yandex relevance log by QueryID alone, as in the paper.

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
    merge_regions: bool = False

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

    def parts(self, log: Log) -> tuple[Log, Log, Log]:
        """Split a log into sessions for training, for early stopping and for the ind perplexity.

        By time, the last sessions are those for the ind perplexity.
        """
        stopping, testing = self.fractions
        train, rest = self._split(log, 1 - stopping - testing, "first")
        return train, *self._split(rest, stopping / (stopping + testing), "rest")

    def _split(self, log: Log, fraction: float, name: str) -> tuple[Log, Log]:
        """Split off the first fraction; `name` keeps the random streams of the two splits apart."""
        split = self.split if self.split != AUTO else "random" if log.time is None else "time"
        if split == "random":
            return log.split(fraction, rng=generator(self.seed, "real logs", name))
        return SPLITS[split](log, fraction, self.seed)


class _PreparedLogs(NamedTuple):
    """The data of a task: logs for training and testing, and judgments."""

    train: Log
    held_out: Log
    test: dict[str, Log]
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
        """Compute the rows: one per test log ("log"), the log's size ("size"), one of ranking metrics, and notes."""
        logs = _read_logs(self.training, self.testing, self.preparation)
        common = {"user": _REAL_USERS, "training": self.training.name, "model": LOGGING, "role": "baseline"}
        return [common | row for row in self._rows(logs)]

    def _rows(self, logs: _PreparedLogs) -> Iterator[dict[str, Any]]:
        for name, test in logs.test.items():
            shift = "ind" if name == IND else "ood"
            yield {"kind": "log", "testing": name, "shift": shift, **log_difference(logs.train, test)}
        yield {"kind": "size", **self._size(logs.train)}
        if logs.judged is not None:
            mean_rank = MeanRanks.of(logs.train.in_vocabulary(logs.judged.vocabulary)).mean
            head = head_queries(logs.impressions)
            yield {"seed": 0, **ranking_row(-np.nan_to_num(mean_rank), logs.judged, head, 0)}
        warning = swap_graph(Cells.of(logs.train)).warning()
        for note in (*logs.notes, *([] if warning is None else [f"{self.training.name}: {warning}"])):
            yield {"kind": "note", "text": note}

    def _size(self, log: Log) -> dict[str, int]:
        """Count queries and documents of the prepared log, beside those of the paper if its preparation is the same."""
        found = {"queries": log.vocabulary.n_queries, "documents": log.vocabulary.n_docs}
        how = self.preparation
        if self.training.format == "yandex-wscd" and how.annotated and how.with_clicks:
            return found | {f"published_{name}": count for name, count in YANDEX_SIZE.items()}
        return found


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

    def rows(self, progress: Progress = silent) -> list[dict[str, Any]]:
        """Fit and evaluate the model: rows of click prediction and ranking, and warnings as notes (kind "note")."""
        logs = _read_logs(self.training, self.testing, self.preparation)
        common = {"user": _REAL_USERS, "training": self.training.name}
        common |= {"model": self.contender.name, "role": self.contender.role}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ClickshiftWarning)
            rows = list(self._rows(logs, progress))
        rows += [{"kind": "note", "text": f"{self.name}: {text}"} for text in clickshift_warnings(caught)]
        return [common | row for row in rows]

    def _rows(self, logs: _PreparedLogs, progress: Progress) -> Iterator[dict[str, Any]]:
        progress("fitting")
        start = time.perf_counter()
        models = self.contender.fit(logs.train, logs.held_out, self.seeds, progress=progress)
        fit_seconds = {"fit_seconds": time.perf_counter() - start}
        progress("predicting the test logs")
        for row in click_rows(models, logs.test):
            yield row | fit_seconds
        yield from resample_rows(models, logs.test, seed=self.preparation.seed)
        if logs.judged is not None:
            # the paper's seeds shuffle documents for models without a seed, too: ties are broken in several orders
            shuffled = models if len(models) == self.seeds else models * self.seeds
            yield from ranking_rows(shuffled, logs.judged, logs.impressions)


@dataclass(frozen=True)
class RealLogs(Experiment[RealLogsResult]):
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
        Number of seeds: of models fitted by gradient descent, and of the order of documents that a model ties.

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

    def check_models(self) -> None:
        """Check that every model exists."""
        for contender in self.contenders:
            contender.make()

    @property
    def logs(self) -> tuple[LogFile, ...]:
        """All logs, the training logs first."""
        return (*self.training, *self.testing)

    def facts(self) -> list[LogFacts]:
        """Tasks that describe each training log and compare it with the other logs."""
        return [LogFacts(log, self._others(log), self.preparation) for log in self.training]

    def tasks(self) -> list[LogCell]:
        """Tasks that fit models. Tasks of one training log follow each other, so that a process reads it once."""
        return [
            LogCell(log, self._others(log), self.preparation, contender, self.seeds)
            for log in self.training
            for contender in self.contenders
        ]

    def prepare(self, folder: RunFolder, progress: Progress) -> None:
        """Read every log before the long work, so that unreadable ones stop it here."""
        super().prepare(folder, progress)
        clear_log_cache()  # worker processes read the logs themselves

    def result(self, rows: Rows, settings: Mapping[str, Any], failures: tuple[str, ...] = ()) -> RealLogsResult:
        """Make the result of the rows of finished tasks."""
        return RealLogsResult(rows, settings, failures)

    def sources(self) -> dict[str, Any]:
        """Return the paths of the logs and of the judgments."""
        judgments = self.preparation.judgments
        paths = {log.name: ", ".join(log.files) for log in self.logs}
        return {"logs": paths, "judgments": None if judgments is None else judgments.file}

    def _others(self, log: LogFile) -> tuple[LogFile, ...]:
        return tuple(other for other in self.logs if other != log)


def compare_logs(
    train: LogLike | Mapping[str, LogLike],
    test: LogLike | Mapping[str, LogLike] = (),
    *,
    judgments: str | Path | None = None,
    models: Sequence[str] = (),
    candidates: Sequence[str] = (),
    gradient: bool = False,
    seeds: int = 10,
    split: str = AUTO,
    held_out: float = 1 / 30,
    annotated: bool = False,
    with_clicks: bool = False,
    merge_regions: bool = False,
    format: str = TABLE,
    judgments_format: str | None = None,
    seed: int = 0,
    output: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    workers: int | None = None,
    cluster: str | None = None,
    progress: Progress = silent,
) -> RealLogsResult:
    """Compare click models on real logs: on held-out clicks (ind), other rankers' logs (ood), and judged documents.

    Parameters
    ----------
    train
        Log to learn from: anything that `open_log` opens. Several, in a list or by name, are used in turn.
    test
        Log of another ranker, or several, used only for testing.
    judgments
        Relevance labels for ranking metrics: qrels, or the labels of a public log's own format.
    models
        Models of the policy-shift paper, e.g. "PBM", or learners, e.g. "EM('PBM')". By default, the paper's six, the
        baselines and ARM NC.
    candidates
        Own models, as "package.module:Class" or as learners.
    gradient
        Whether PBM, UBM and DBN are fitted by gradient with embeddings and a network, as in the paper, which takes
        hundreds of times as long as maximum likelihood, the default.
    seeds
        Number of random seeds: for models fitted by gradient, and for the order of documents that a model ties.
    split
        Method to split a training log: "time", "order", "random" or "within-query"; "auto" is "time" if the log has
        times.
    held_out
        Share of a training log that is held out for early stopping, and the same share for the ind test set.
    annotated
        Whether to keep only queries with judgments, as in the paper.
    with_clicks
        Whether to drop sessions without clicks, as in the paper; this inflates click rates.
    merge_regions
        Whether to name queries of the Yandex relevance log by QueryID alone, as in the paper.
    format
        Format of the logs: "table", or a public format such as "trec".
    judgments_format
        Format of the judgments: "qrels", or a public format; by default, that of the logs.
    seed
        Random seed for the train/test split.
    output
        Folder that keeps the rows of finished tasks: after an interruption, call again, and only the missing ones run.
        By default, a temporary folder.
    columns
        Names of the logs' columns, by the names that `open_log` expects.
    on_bad_line
        "error", or "skip" to leave out bad sessions.
    workers
        Number of worker processes; by default, one per core. With 0, the tasks run in this process.
    cluster
        Address of a Dask cluster to run on instead of this machine, e.g. "tcp://host:8786".
    progress
        Called with a line and a step for each finished task, and with texts on how far running tasks are.

    Returns
    -------
    RealLogsResult
        Rows, facts about the logs, warnings, verdicts, tables and figures. A task that fails is among its `failures`.

    Raises
    ------
    DataError
        If the logs or the options cannot be used, before any model is fitted.
    SpecError
        If a model does not exist.
    RunError
        "failed-tasks" if no task could be finished.

    References
    ----------
    Deffayet, R., Renders, J.-M. & de Rijke, M. (2022). Evaluating the robustness of click models to policy
    distributional shift. ACM Transactions on Information Systems.

    Examples
    --------
    >>> import clickshift as cs
    >>> old = cs.simulate_log(sessions=5000, queries=20, documents=10).log
    >>> new = cs.simulate_log(sessions=1000, queries=20, documents=10, policy="BM25").log
    >>> result = cs.compare_logs({"old": old}, {"new": new}, models=["EM('UBM')"], held_out=0.2, workers=0)
    >>> result.verdicts[0]["model"]
    "EM('UBM')"
    """
    default_format = format if format in JUDGMENTS else "qrels"
    judged = None if judgments is None else JudgmentFile.at(judgments, format=judgments_format or default_format)
    options = {"format": format, "columns": columns, "on_bad_line": on_bad_line}
    with temporary_folder("clickshift-logs-") as temporary:
        folder = Path(temporary if output is None else output) / "logs"
        training, testing = _by_name(train), _by_name(test)
        names, logs = zip(*training, *testing, strict=True)
        files = named_logs(logs, folder, names=names, **options)
        contenders = [*(map(compared_model, dict.fromkeys(models)) if models else PAPER_MODELS)]
        if not gradient:
            contenders = [one if one.learner in models else by_likelihood(one) for one in contenders]
        protocol = RealLogs(
            tuple(files[: len(training)]),
            tuple(files[len(training) :]),
            (*contenders, *map(candidate_model, candidates)),
            Preparation(judged, annotated, with_clicks, split, (held_out, held_out), seed, merge_regions),
            seeds,
        )
        result = protocol.run(output, workers=workers, cluster=cluster, progress=progress)
    for text in result.warnings:
        warnings.warn(text, ClickshiftWarning, stacklevel=2)
    return result


def _by_name(logs: LogLike | Mapping[str, LogLike]) -> list[tuple[str | None, LogLike]]:
    """Return one or several logs with the names that were given for them."""
    if isinstance(logs, Mapping):
        return list(logs.items())
    return [(None, log) for log in (logs if isinstance(logs, list | tuple) else [logs])]


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
        judgments, notes = _read_judgments(preparation.judgments, preparation.merge_regions)
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
def _read_prepared(log: LogFile, preparation: Preparation) -> tuple[Log, tuple[str, ...]]:
    """Read and filter a log; with the messages of warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ClickshiftWarning)
        judged = None
        if preparation.annotated and preparation.judgments is not None:
            judged, _ = _read_judgments(preparation.judgments, preparation.merge_regions)
        clicks, merged = preparation.with_clicks, preparation.merge_regions
        sessions: Any = log.read(judged, with_clicks=clicks, merge_regions=merged)
    return compact(sessions), clickshift_warnings(caught)


@lru_cache(maxsize=1)
def _read_judgments(file: JudgmentFile, merge_regions: bool) -> tuple[Judgments, tuple[str, ...]]:
    """Read judgments; with the messages of warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ClickshiftWarning)
        judgments = file.read(merge_regions=merge_regions)
    return judgments, clickshift_warnings(caught)


def _judged_pairs(judgments: Judgments, train: Log) -> tuple[JudgedPairs, Float[np.ndarray, " query"]]:
    """Select the judged documents that the training log shows, and count the sessions of each judged query."""
    vocabulary = Vocabulary.of(judgments.query, judgments.doc)[0]
    shown, impressions = np.zeros(vocabulary.n_pairs + 1, bool), np.zeros(vocabulary.n_queries)
    for part in train.in_vocabulary(vocabulary).chunks():
        lists = part.rankings
        shown[lists.pair] = True  # UNSEEN is the last
        is_judged = lists.query != UNSEEN
        impressions += np.bincount(lists.query[is_judged], part.count[is_judged], vocabulary.n_queries)
    # TREC's -2 is spam, which is as useful as 0: a negative gain would take nDCG out of [0, 1]
    labels = np.maximum(judgments.labels_for(vocabulary), 0.0)
    return JudgedPairs.of(vocabulary, labels, shown=shown[:-1]), impressions
