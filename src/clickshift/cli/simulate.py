"""clickshift simulate: draw a log from a corpus, a policy and a user."""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli.console import Json, progress, show, warnings_shown


def simulate(
    output: Path = typer.Option(..., "--output", "-o", help="Where the log goes: .parquet, .csv or .jsonl."),
    sessions: int = typer.Option(100_000, min=1, help="How many sessions."),
    corpus: str = typer.Option("builtin", help="'builtin', or a LETOR file or folder."),
    queries: int = typer.Option(1000, min=1, help="How many queries of the corpus."),
    policy: str = typer.Option("PlackettLuce(NoisyOracle, temperature=0.1, scores='log')", help="Who ranks."),
    user: str = typer.Option("DBN", help="Who clicks."),
    query_law: str = typer.Option("power-law", help="How queries arrive: 'power-law' (exponent 1.12) or 'uniform'."),
    ranks: int = typer.Option(10, min=1, help="Length of the lists."),
    layout: str = typer.Option("wide", help="'wide': a row per session; 'long': a row per result."),
    seed: int = typer.Option(0, help="The same seed gives the same log."),
    json: bool = Json,
) -> None:
    """Draw a log: queries arrive, a policy ranks, a user clicks."""
    from clickshift.cli.corpus import open_corpus
    from clickshift.errors import SpecError
    from clickshift.policies import POLICIES
    from clickshift.readers.tabular import check_output, write_log
    from clickshift.seeds import generator
    from clickshift.simulation import PowerLaw, Uniform
    from clickshift.simulation import simulate as draw
    from clickshift.spec import parse
    from clickshift.users import USERS

    laws: dict[str, PowerLaw | Uniform] = {"power-law": PowerLaw(), "uniform": Uniform()}
    if query_law not in laws:
        raise SpecError(f"--query-law must be one of {', '.join(laws)}: got {query_law!r}.")
    who_ranks, who_clicks = parse(policy, POLICIES), parse(user, USERS)
    check_output(output, layout)
    with warnings_shown(), progress("simulating", sessions) as advance:
        documents = open_corpus(corpus, queries, seed)
        rng = generator(seed, "simulate")
        log = draw(
            documents,
            who_ranks,
            who_clicks,
            sessions,
            queries=laws[query_law],
            ranks=ranks,
            rng=rng,
            progress=advance,
        )
        write_log(log, output, layout=layout)  # type: ignore[arg-type]
    facts = {"output": str(output), "sessions": log.total, "clicks_per_session": float(log.click.sum() / log.total)}
    show({**facts, "ctr_by_rank": log.ctr_by_rank().tolist()}, json=json, title="Simulated log")
