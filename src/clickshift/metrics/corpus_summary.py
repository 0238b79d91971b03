"""Summary of learning-to-rank data: queries, candidate documents, labels and features."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, final

import numpy as np

from clickshift.data.corpus import Corpus
from clickshift.display.document import Document, Section
from clickshift.display.figures import counts_figure
from clickshift.display.result import Summary
from clickshift.display.tables import facts_table
from clickshift.io.datasets.letor import CorpusLike, open_corpus


@final
@dataclass(frozen=True, repr=False, eq=False)
class CorpusSummary(Summary):
    """Summary of a corpus.

    Parameters
    ----------
    corpus
        The corpus.

    Notes
    -----
    Facts, as `to_dict` returns them:

    - conclusion: the sizes, as text.
    - queries, candidates, features: numbers of queries, of (query, document) pairs and of features.
    - candidates_per_query: mean, min, median, 90th percentile (p90) and max.
    - label_shares: share of the candidates with label 0, 1, ...
    - usable_queries: number of queries whose candidates do not all have the same label.
    - fingerprint: digest of the ids.
    """

    title: ClassVar[str] = "Corpus"

    corpus: Corpus

    @property
    def conclusion(self) -> str:
        """Number of queries, candidates and features."""
        values = self.values()
        return (
            f"{values['queries']:,} queries with {values['candidates']:,} candidate documents and "
            f"{values['features']:,} features; {values['usable_queries']:,} queries have documents of different labels."
        )

    def values(self) -> dict[str, Any]:
        """Return the facts that the notes of the class list."""
        corpus = self.corpus
        size = corpus.n_candidates
        labels = np.bincount(corpus.label.astype(np.int64), minlength=corpus.max_label + 1) / corpus.n_pairs
        return {
            "queries": corpus.n_queries,
            "candidates": corpus.n_pairs,
            "candidates_per_query": {
                "mean": float(size.mean()),
                "min": int(size.min()),
                "median": float(np.median(size)),
                "p90": float(np.percentile(size, 90)),
                "max": int(size.max()),
            },
            "label_shares": labels.tolist(),
            "features": 0 if corpus.features is None else corpus.features.shape[1],
            "usable_queries": int(corpus.usable_queries(min_docs=2).sum()),
            "fingerprint": corpus.vocabulary.fingerprint,
        }

    def _document(self) -> Document:
        """Show the labels as a chart, then the sizes."""
        values = self.values()
        shares = values.pop("label_shares")
        sizes = values.pop("candidates_per_query")
        values["candidates_per_query"] = (
            f"{sizes['mean']:,.1f} on average ({sizes['min']:,} to {sizes['max']:,}, median {sizes['median']:,.0f}, "
            f"90th percentile {sizes['p90']:,.0f})"
        )
        documents = np.bincount(self.corpus.label.astype(np.int64), minlength=self.corpus.max_label + 1).tolist()
        labels = Section(
            "Labels",
            table=[
                {"label": label, "documents": number, "share": share}
                for label, (number, share) in enumerate(zip(documents, shares, strict=True))
            ],
            figure=partial(counts_figure, documents, axis="label"),
        )
        return Document(
            self.title,
            self.conclusion,
            [Section("Sizes", table=facts_table(values))],
            data=f"{values['queries']:,} queries, {values['candidates']:,} documents",
            headline=labels,
        )


def corpus_summary(corpus: CorpusLike = "builtin", *, queries: int = 1000, seed: int = 0) -> CorpusSummary:
    """Summarise the queries, candidate documents, labels and features of a corpus.

    Parameters
    ----------
    corpus
        A `Corpus`, "builtin", a LETOR file or folder, or a data frame of features.
    queries
        Number of queries of the built-in corpus.
    seed
        Random seed for the built-in corpus.

    Returns
    -------
    CorpusSummary
        Sizes, shares of the labels, and the number of usable queries.

    Raises
    ------
    FileError
        For a file that cannot be read.

    Examples
    --------
    >>> import clickshift as cs
    >>> cs.corpus_summary("builtin", queries=5).to_dict()["queries"]
    5
    """
    return CorpusSummary(open_corpus(corpus, queries=queries, seed=seed))
