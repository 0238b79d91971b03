"""Simulate a click log into a file, with the policy and the user given by name, and the ground truth beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

from clickshift.core.progress import Progress, silent
from clickshift.core.rng import generator
from clickshift.core.spec import parse
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Sessions
from clickshift.display.result import Summary
from clickshift.errors import SpecError
from clickshift.io.datasets.letor import CorpusLike, open_corpus
from clickshift.io.events.ubi_writer import check_ubi_output, write_ubi
from clickshift.io.read_log import check_output, write_log
from clickshift.io.table_writer import table_ending, write_table
from clickshift.models.base import ClickModel
from clickshift.policies import POLICIES
from clickshift.policies.base import Policy, ScoredPolicy
from clickshift.simulation.simulate import PowerLaw, UniformQueries, simulate
from clickshift.simulation.users import USERS, User

_QUERY_LAWS: dict[str, PowerLaw | UniformQueries] = {"power-law": PowerLaw(), "uniform": UniformQueries()}


@final
@dataclass(frozen=True, repr=False, eq=False)
class SimulatedLog(Summary):
    """A simulated log, and where it was written.

    Parameters
    ----------
    log
        The log.
    output
        File with the log; None if it was not written.

    Notes
    -----
    Facts, as `to_dict` returns them: conclusion; output, the file or None; sessions, a number; clicks_per_session, a
    mean; ctr_by_rank, the click-through rate of each rank.
    """

    title: ClassVar[str] = "Simulated log"

    log: Sessions
    output: Path | None = None

    @property
    def conclusion(self) -> str:
        """Number of sessions and clicks, and the file."""
        clicks = float(self.log.click.sum() / self.log.total)
        written = "" if self.output is None else f" and written to {self.output}"
        return f"{self.log.total:,} sessions with {clicks:.2f} clicks each were simulated{written}."

    def values(self) -> dict[str, Any]:
        """Return the facts that the notes of the class list."""
        return {
            "output": None if self.output is None else str(self.output),
            "sessions": self.log.total,
            "clicks_per_session": float(self.log.click.sum() / self.log.total),
            "ctr_by_rank": self.log.ctr_by_rank().tolist(),
        }


def simulate_log(
    output: str | Path | None = None,
    *,
    sessions: int = 100_000,
    corpus: CorpusLike = "builtin",
    queries: int = 1000,
    documents: int | None = None,
    policy: str | Policy = "PlackettLuce(NoisyOracle, temperature=0.1, scores='log')",
    user: str | User | ClickModel = "DBN",
    query_law: str = "power-law",
    ranks: int = 10,
    layout: str = "wide",
    truth: str | Path | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> SimulatedLog:
    """Simulate a click log: queries arrive, a policy ranks documents, a user clicks.

    `simulate` does the same with the corpus, the policy and the user as objects.

    Parameters
    ----------
    output
        File for the log: .parquet, .csv or .jsonl; None to keep it in memory only.
    sessions
        Number of sessions.
    corpus
        A `Corpus`, "builtin", a LETOR file or folder, or a data frame of features.
    queries
        Number of queries: of the built-in corpus, or of a sample of those of a file.
    documents
        Number of documents per query, in a sample stratified by grade; queries with fewer are dropped.
    policy
        Logging policy, or its text.
    user
        Simulated user, or its text, or a click model that draws the clicks.
    query_law
        Distribution of the queries: "power-law" (exponent 1.12) or "uniform".
    ranks
        Length of the lists.
    layout
        Layout of the file: "wide" (one row per session), "long" (one row per result), or "ubi" (OpenSearch UBI events,
        .ndjson, which `read_events` makes a log of).
    truth
        File for the ground truth: a table of query, doc, label, and the policy's score where it has one.
    seed
        Random seed for the whole simulation.
    progress
        Called with the number of newly simulated sessions.

    Returns
    -------
    SimulatedLog
        The log and its file.

    Raises
    ------
    SpecError
        "bad-option" for an unknown distribution of queries, "unknown-name" for an unknown policy or user.
    DataError
        "bad-option" for another layout.
    FileError
        "unknown-format" or "is-a-folder" for a file that cannot be written.

    Examples
    --------
    >>> import clickshift as cs
    >>> cs.simulate_log(sessions=100, queries=5, seed=1).log.total
    100
    """
    if query_law not in _QUERY_LAWS:
        raise SpecError(
            f"query_law must be one of {', '.join(_QUERY_LAWS)}: got {query_law!r}.",
            code="bad-option",
            option="query_law",
            value=query_law,
            known=list(_QUERY_LAWS),
        )
    logging_policy: Policy = parse(policy, POLICIES) if isinstance(policy, str) else policy
    simulated_user: User | ClickModel = parse(user, USERS) if isinstance(user, str) else user
    if output is not None:
        check_ubi_output(output) if layout == "ubi" else check_output(output, layout)
    if truth is not None:
        table_ending(truth)
    candidates = open_corpus(corpus, queries=queries, seed=seed)
    if not isinstance(corpus, Corpus) and not (isinstance(corpus, str) and corpus == "builtin"):
        candidates = candidates.sample_queries(queries, rng=generator(seed, "queries"))
    if documents is not None:
        candidates = candidates.stratified(documents, rng=generator(seed, "documents"))
        candidates = candidates.with_queries(candidates.n_candidates == documents)
    log = simulate(
        candidates,
        logging_policy,
        simulated_user,
        sessions,
        queries=_QUERY_LAWS[query_law],
        ranks=ranks,
        rng=generator(seed, "simulate"),
        progress=progress,
    )
    if output is not None and layout == "ubi":
        write_ubi(log, output)
    elif output is not None:
        write_log(log, output, layout=layout)  # type: ignore[arg-type]
    if truth is not None:
        _write_truth(candidates, logging_policy, truth)
    return SimulatedLog(log, None if output is None else Path(output))


def _write_truth(corpus: Corpus, policy: Policy, path: str | Path) -> None:
    """Write the labels of all (query, document) pairs, and the policy's scores where it has them."""
    import pyarrow as pa

    vocabulary = corpus.vocabulary
    ids = {"query": vocabulary.query_ids[vocabulary.pair_query], "doc": vocabulary.doc_ids[vocabulary.pair_doc]}
    table = pa.table({name: pa.array(column.tolist()) for name, column in ids.items()} | {"label": corpus.label})
    while hasattr(policy, "policy"):  # policies that randomise scores wrap the policy that has them
        policy = policy.policy
    if isinstance(policy, ScoredPolicy):
        table = table.append_column("score", pa.array(policy.scores(corpus)))
    write_table(table, path)
