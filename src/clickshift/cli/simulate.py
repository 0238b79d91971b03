"""clickshift simulate: draw a log from a corpus, a policy and a user."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clickshift.cli._console import Json, progress, show, warnings_shown

if TYPE_CHECKING:
    from clickshift.data.corpus import Corpus
    from clickshift.policies.base import Policy


def simulate(
    output: Path = typer.Option(..., "--output", "-o", help="Where the log goes: .parquet, .csv or .jsonl."),
    sessions: int = typer.Option(100_000, min=1, help="How many sessions."),
    corpus: str = typer.Option("builtin", help="'builtin', or a LETOR file or folder."),
    queries: int = typer.Option(1000, min=1, help="How many queries of the corpus."),
    documents: int | None = typer.Option(
        None, min=1, help="So many documents per query, each grade with its share; queries with fewer are dropped."
    ),
    policy: str = typer.Option("PlackettLuce(NoisyOracle, temperature=0.1, scores='log')", help="Who ranks."),
    user: str = typer.Option("DBN", help="Who clicks."),
    query_law: str = typer.Option("power-law", help="How queries arrive: 'power-law' (exponent 1.12) or 'uniform'."),
    ranks: int = typer.Option(10, min=1, help="Length of the lists."),
    layout: str = typer.Option("wide", help="'wide': a row per session; 'long': a row per result."),
    truth: Path | None = typer.Option(
        None, help="Also a table of what the log hides: query, doc, label, and the score that the policy ranks by."
    ),
    seed: int = typer.Option(0, help="The same seed gives the same log."),
    json: bool = Json,
) -> None:
    """Draw a log: queries arrive, a policy ranks, a user clicks."""
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
        raise SpecError(f"--query-law must be one of {', '.join(laws)}: got {query_law!r}.")
    who_ranks, who_clicks = parse(policy, POLICIES), parse(user, USERS)
    check_output(output, layout)
    if truth is not None:
        table_ending(truth)
    with warnings_shown(), progress("simulating", sessions) as advance:
        searched = open_corpus(corpus, queries, seed)
        if documents is not None:
            searched = searched.stratified(documents, rng=generator(seed, "documents"))
            searched = searched.with_queries(searched.n_candidates == documents)
        rng = generator(seed, "simulate")
        log = draw(
            searched,
            who_ranks,
            who_clicks,
            sessions,
            queries=laws[query_law],
            ranks=ranks,
            rng=rng,
            progress=advance,
        )
        write_log(log, output, layout=layout)  # type: ignore[arg-type]
        if truth is not None:
            _write_truth(searched, who_ranks, truth)
    facts = {"output": str(output), "sessions": log.total, "clicks_per_session": float(log.click.sum() / log.total)}
    show({**facts, "ctr_by_rank": log.ctr_by_rank().tolist()}, json=json, title="Simulated log")


def _write_truth(corpus: Corpus, policy: Policy, path: Path) -> None:
    import pyarrow as pa

    from clickshift.io.table_writer import write_table
    from clickshift.policies.base import ScoredPolicy

    words = corpus.vocabulary
    ids = {"query": words.query_ids[words.pair_query], "doc": words.doc_ids[words.pair_doc]}
    table = pa.table({name: pa.array(column.tolist()) for name, column in ids.items()} | {"label": corpus.label})
    while hasattr(policy, "policy"):  # what adds chance to scores has them within
        policy = policy.policy
    if isinstance(policy, ScoredPolicy):
        table = table.append_column("score", pa.array(policy.scores(corpus)))
    write_table(table, path)
