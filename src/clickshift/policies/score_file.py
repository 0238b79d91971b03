"""Policies that rank by scores in a file, such as those of a production ranker, known by a digest of the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.data.corpus import Corpus
from clickshift.errors import DataError, FileError
from clickshift.io.pair_values import read_pair_values
from clickshift.policies.basic import Scored, Scores, min_max_scaled

__all__ = ["SCORE_FILES", "ScoreFile", "located"]

SCORE_FILES = {"ScoreFile": "clickshift.policies.score_file:ScoreFile"}
"""Registry of policies of files, for `parse`: the texts of a protocol name a file by the digest of its content."""


@final
@dataclass(frozen=True)
class ScoreFile(Scored):
    """Policy that ranks by the scores of a table with the columns query, doc and score.

    Parameters
    ----------
    content
        Digest of the file, which identifies the policy.
    rescale
        Whether to map the scores to [0, 1] within each query, as those of BM25 and LambdaMART are.
    path
        Path of the file; not part of the policy's text.

    Raises
    ------
    FileError
        When the scores are needed: those of `read_pair_values`, "missing-score" if a candidate of the corpus has none,
        "not-finite" for an infinite one, and "no-such-file" for a policy without a path.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import clickshift as cs
    >>> vocabulary, _, _ = cs.Vocabulary.of(["shoes"] * 3, ["a", "b", "c"])
    >>> corpus = cs.Corpus(vocabulary, np.array([0, 2, 1]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "scores.csv"
    ...     _ = file.write_text("query,doc,score\\nshoes,a,3\\nshoes,b,-1\\nshoes,c,1\\n")
    ...     ScoreFile("", path=str(file)).scores(corpus).tolist()
    [1.0, 0.0, 0.5]
    """

    content: str
    rescale: bool = True
    path: str = field(default="", repr=False, compare=False)

    @override
    def scores(self, corpus: Corpus) -> Float[np.ndarray, " pair"]:
        if not self.path:
            raise FileError(self.content, "is a file of scores whose path is not known.", code="no-such-file")
        given = read_pair_values(self.path)
        try:
            score = Scores(given.vocabulary, given.value).scores(corpus)
        except DataError as error:
            raise FileError(self.path, str(error), code=error.code, **error.facts) from None
        bad = ~np.isfinite(score)
        if bad.any():
            first, vocabulary = int(bad.argmax()), corpus.vocabulary
            query = vocabulary.query_ids[vocabulary.pair_query[first]]
            doc = vocabulary.doc_ids[vocabulary.pair_doc[first]]
            raise FileError(
                self.path,
                f"a score must be a finite number: document {doc} of query {query} has {score[first]} "
                f"({bad.sum():,} such scores). Fix them.",
                code="not-finite",
                query=query,
                document=doc,
                count=int(bad.sum()),
            )
        return min_max_scaled(corpus, score) if self.rescale else score


def located(policy: Any, paths: Mapping[str, str]) -> Any:
    """Return a policy whose files of scores, also those inside other policies, have their paths.

    Parameters
    ----------
    policy
        A policy, as `parse` builds it.
    paths
        Path of each file, by the digest of its content.
    """
    if isinstance(policy, ScoreFile):
        return replace(policy, path=paths.get(policy.content, ""))
    inner = getattr(policy, "policy", None)
    if is_dataclass(policy) and inner is not None:
        return replace(policy, policy=located(inner, paths))  # type: ignore[type-var]
    return policy
