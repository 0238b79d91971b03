"""clickshift simulate: draw a click log from a corpus, a ranking policy and a simulated user."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clickshift.cli._console import progress, show, warnings_shown
from clickshift.cli._options import JSON

if TYPE_CHECKING:
    from clickshift.data.corpus import Corpus
    from clickshift.policies.base import Policy


def simulate(
    output: Path = typer.Option(..., "--output", "-o", help="File for the log: .parquet, .csv or .jsonl."),
    sessions: int = typer.Option(100_000, min=1, help="Number of sessions."),
    corpus: str = typer.Option("builtin", help="Corpus: 'builtin', or a LETOR file or folder."),
    queries: int = typer.Option(1000, min=1, help="Number of queries of the corpus."),
    documents: int | None = typer.Option(
        None,
        min=1,
        help="Number of documents per query, in a sample stratified by grade; queries with fewer are dropped.",
    ),
    policy: str = typer.Option(
        "PlackettLuce(NoisyOracle, temperature=0.1, scores='log')", help="Logging policy, which ranks the documents."
    ),
    user: str = typer.Option("DBN", help="Simulated user, who clicks."),
    query_law: str = typer.Option(
        "power-law", help="Distribution of the queries: 'power-law' (exponent 1.12) or 'uniform'."
    ),
    ranks: int = typer.Option(10, min=1, help="Length of the lists."),
    layout: str = typer.Option(
        "wide", help="Layout of the file: 'wide' (one row per session) or 'long' (one row per result)."
    ),
    truth: Path | None = typer.Option(
        None, help="File for the ground truth: a table of query, doc, label, and the policy's score where it has one."
    ),
    seed: int = typer.Option(0, help="Random seed for the whole simulation."),
    json: bool = JSON,
) -> None:
    """Simulate a click log: queries arrive, a policy ranks documents, a user clicks."""
    from clickshift.cli.corpus import open_corpus
    from clickshift.core.rng import generator
    from clickshift.core.spec import parse
    from clickshift.errors import SpecError
    from clickshift.io.read_log import check_output, write_log
    from clickshift.io.table_writer import table_ending
    from clickshift.policies import POLICIES
    from clickshift.simulation.simulate import PowerLaw, UniformQueries
    from clickshift.simulation.simulate import simulate as draw
    from clickshift.simulation.users import USERS

    laws: dict[str, PowerLaw | UniformQueries] = {"power-law": PowerLaw(), "uniform": UniformQueries()}
    if query_law not in laws:
        raise SpecError(
            f"--query-law must be one of {', '.join(laws)}: got {query_law!r}.",
            code="bad-option",
            option="query_law",
            value=query_law,
            known=list(laws),
        )
    logging_policy, simulated_user = parse(policy, POLICIES), parse(user, USERS)
    check_output(output, layout)
    if truth is not None:
        table_ending(truth)
    with warnings_shown(), progress("simulating", sessions) as advance:
        candidates = open_corpus(corpus, queries, seed)
        if documents is not None:
            candidates = candidates.stratified(documents, rng=generator(seed, "documents"))
            candidates = candidates.with_queries(candidates.n_candidates == documents)
        rng = generator(seed, "simulate")
        log = draw(
            candidates,
            logging_policy,
            simulated_user,
            sessions,
            queries=laws[query_law],
            ranks=ranks,
            rng=rng,
            progress=advance,
        )
        write_log(log, output, layout=layout)  # type: ignore[arg-type]
        if truth is not None:
            _write_truth(candidates, logging_policy, truth)
    facts = {"output": str(output), "sessions": log.total, "clicks_per_session": float(log.click.sum() / log.total)}
    show({**facts, "ctr_by_rank": log.ctr_by_rank().tolist()}, json=json, title="Simulated log")


def _write_truth(corpus: Corpus, policy: Policy, path: Path) -> None:
    """Write the labels of all (query, document) pairs, and the policy's scores where it has them."""
    import pyarrow as pa

    from clickshift.io.table_writer import write_table
    from clickshift.policies.base import ScoredPolicy

    vocabulary = corpus.vocabulary
    ids = {"query": vocabulary.query_ids[vocabulary.pair_query], "doc": vocabulary.doc_ids[vocabulary.pair_doc]}
    table = pa.table({name: pa.array(column.tolist()) for name, column in ids.items()} | {"label": corpus.label})
    while hasattr(policy, "policy"):  # policies that randomise scores wrap the policy that has them
        policy = policy.policy
    if isinstance(policy, ScoredPolicy):
        table = table.append_column("score", pa.array(policy.scores(corpus)))
    write_table(table, path)
