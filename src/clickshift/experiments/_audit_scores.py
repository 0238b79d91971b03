"""Scores from elsewhere as models to audit: any ranker or click model that gave a number to documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError, SpecError
from clickshift.io.pair_values import PairValues, read_pair_values
from clickshift.models.base import ClickModel, PairTable, pair_table

ScoresLike = str | Path | PairValues | Any  # Any: data frames
"""A table of query, doc and score: a file, or a data frame."""


@final
@dataclass(frozen=True, eq=False)
class GivenScores(ClickModel):
    """Scores of documents as relevance; they predict no clicks.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs with a score.
    score
        Score by pair, unseen pairs last.
    evidence
        None: it is not known how the scores came about.
    """

    vocabulary: Vocabulary
    score: PairTable

    predicts_clicks: ClassVar[bool] = False

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        raise AssertionError("never called: predicts_clicks is False")

    @override
    def _relevance(self) -> PairTable:
        return self.score


def read_scores(scores: ScoresLike | list[ScoresLike] | Mapping[str, ScoresLike] | None) -> dict[str, list[ClickModel]]:
    """Read scores from elsewhere.

    Parameters
    ----------
    scores
        A table of query, doc and score, several, or several by name. A file without a name is named after itself; a
        text "NAME=FILE" names it.

    Returns
    -------
    dict
        The scores by name, as models with one seed.

    Raises
    ------
    DataError
        "not-finite" if a score is infinite, "cannot-rank-documents" if the documents of every query have the same
        score, "duplicate-name" if two have the same name.
    SpecError
        "bad-option" if a text "NAME=FILE" lacks one of the two.
    FileError
        Those of `read_pair_values`.
    """
    return {
        name: [_checked(name, one if isinstance(one, PairValues) else read_pair_values(one))]
        for name, one in named_scores(scores).items()
    }


def named_scores(scores: ScoresLike | list[ScoresLike] | Mapping[str, ScoresLike] | None) -> dict[str, ScoresLike]:
    """Return tables of scores by name, unread; parameters and the error "duplicate-name" as in `read_scores`."""
    if scores is None:
        return {}
    if isinstance(scores, Mapping):
        return dict(scores)
    several = list(scores) if isinstance(scores, list | tuple) else [scores]
    tables: dict[str, ScoresLike] = {}
    for name, one in (_named(one, number) for number, one in enumerate(several, 1)):
        if name in tables:
            raise DataError(
                f"scores must have different names: two are called {name}. Name them: {name}2=FILE.",
                code="duplicate-name",
                name=name,
            )
        tables[name] = one
    return tables


def _named(one: ScoresLike, number: int) -> tuple[str, ScoresLike]:
    """Return the name of scores, and where they are."""
    if not isinstance(one, str | Path):
        return f"scores {number}", one
    name, equals, file = str(one).partition("=")
    if equals and not (name and file) and not Path(one).exists():
        raise SpecError(
            f"scores must be FILE or NAME=FILE: got {str(one)!r}. Add the {'file' if name else 'name'}.",
            code="bad-option",
            option="scores",
            value=str(one),
        )
    return (name, file) if equals and not Path(one).exists() else (Path(one).name.split(".")[0], one)


def _checked(name: str, values: PairValues) -> GivenScores:
    """Check that scores are numbers that order the documents of some query."""
    bad = ~np.isfinite(values.value)
    vocabulary = values.vocabulary
    if bad.any():
        pair = int(bad.argmax())
        raise DataError(
            f"a score must be a finite number: {name} has {values.value[pair]} for document "
            f"{vocabulary.doc_ids[vocabulary.pair_doc[pair]]} of query "
            f"{vocabulary.query_ids[vocabulary.pair_query[pair]]} ({bad.sum():,} such scores). Fix or remove it.",
            code="not-finite",
            name=name,
            count=int(bad.sum()),
        )
    same_query = np.diff(vocabulary.pair_query) == 0
    if not (same_query & (np.diff(values.value) != 0)).any():
        raise DataError(
            f"scores must differ between documents of a query: those of {name} never do. There is nothing to audit.",
            code="cannot-rank-documents",
            model=name,
        )
    return GivenScores(vocabulary, pair_table(values.value, unseen=np.nan))
