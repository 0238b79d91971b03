"""clickshift corpus: describe learning-to-rank data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from clickshift.cli._console import show, warnings_shown
from clickshift.cli._options import JSON

if TYPE_CHECKING:
    from clickshift.data.corpus import Corpus

app = typer.Typer(help="Describe learning-to-rank data.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Describe learning-to-rank data."""


@app.command()
def info(
    corpus: str = typer.Argument("builtin", help="Corpus: 'builtin', or a LETOR file or folder."),
    queries: int = typer.Option(1000, min=1, help="Number of queries of the built-in corpus."),
    seed: int = typer.Option(0, help="Random seed for the built-in corpus."),
    json: bool = JSON,
) -> None:
    """Summarise the queries, candidate documents, labels and features of a corpus."""
    import numpy as np

    with warnings_shown():
        data = open_corpus(corpus, queries if corpus == "builtin" else None, seed)
    size = data.n_candidates
    labels = np.bincount(data.label.astype(np.int64), minlength=data.max_label + 1) / data.n_pairs
    facts = {
        "queries": data.n_queries,
        "candidates": data.n_pairs,
        "candidates_per_query": {
            "mean": float(size.mean()),
            "min": int(size.min()),
            "median": float(np.median(size)),
            "max": int(size.max()),
        },
        "label_shares": labels.tolist(),
        "features": 0 if data.features is None else data.features.shape[1],
        "usable_queries": int(data.usable_queries().sum()),
        "fingerprint": data.vocabulary.fingerprint,
    }
    show(facts, json=json, title=f"Corpus {corpus}")


def open_corpus(name: str, queries: int | None, seed: int) -> Corpus:
    """Return the built-in corpus or that of a file, with a sample of `queries` queries."""
    from clickshift.core.rng import generator
    from clickshift.data.builtin_corpus import builtin_corpus
    from clickshift.io.datasets.letor import read_corpus

    if name == "builtin":
        return builtin_corpus(queries or 1000, seed=seed)
    corpus = read_corpus(name)
    return corpus if queries is None else corpus.sample_queries(queries, rng=generator(seed, "queries"))
