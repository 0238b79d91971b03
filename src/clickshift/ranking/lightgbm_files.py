"""Corrected labels as files for LightGBM and XGBoost: a table, or LightGBM's own text with its side files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.core.files import write_atomically
from clickshift.core.progress import Progress, silent
from clickshift.counts.open_log import LogLike, open_log_or_counts
from clickshift.display.document import Document, Section
from clickshift.display.export import Written
from clickshift.display.result import Result
from clickshift.display.tables import Rows
from clickshift.errors import FileError
from clickshift.io.datasets.letor import CorpusLike, open_corpus
from clickshift.io.read_report import OnBadLine
from clickshift.io.table_writer import ENDINGS, table_ending, write_table
from clickshift.io.tables.extra_columns import columns_with
from clickshift.models.base import ClickModel
from clickshift.propensity.files import Trust
from clickshift.propensity.result import Propensities
from clickshift.ranking._inputs import BiasSource, source_name
from clickshift.ranking.labels import check_position_bias, check_propensity_kind, count_by_rank
from clickshift.ranking.lambdamart import BoostedRanker, BoostingData, boosting_data
from clickshift.ranking.ranker import checked_features

__all__ = ["RankingLabels", "boosting_ending", "ranking_labels", "write_boosting_data"]

_TEXT_ENDINGS = (".txt", ".train")
_CHUNK = 20_000
"""Number of rows that are written at once."""


@dataclass(frozen=True, repr=False, eq=False)
class RankingLabels(Result):
    """Training data for LightGBM and XGBoost with corrected labels: returned by `ranking_labels`.

    Parameters
    ----------
    data
        Documents with labels, grades, weights and positions.
    notes
        Where the corpus and the clicks came from, and the correction.

    Notes
    -----
    Facts (`to_dict`): `conclusion`; `queries`; `documents`; `grades`, their number; `mean_relevance` and
    `largest_relevance`, the corrected labels; `label_gain`, the relevance that each grade stands for. The labels are
    the rows. `write` writes them to a .parquet, .csv or .jsonl file, or to LightGBM's own files (.txt), see
    `write_boosting_data`.
    """

    data: BoostingData
    notes: Mapping[str, str]

    @property
    @override
    def conclusion(self) -> str:
        data = self.data
        return (
            f"{len(data.pair):,} documents of {len(data.group):,} queries have corrected labels: "
            f"{data.relevance.mean():.4f} on average and at most {data.relevance.max():.4f}."
        )

    @override
    def rows(self) -> Rows:
        rows: Rows = self.data.table().to_pylist()
        return rows

    @override
    def to_arrow(self) -> Any:
        return self.data.table()

    @override
    def facts(self) -> Mapping[str, Any]:
        return {"conclusion": self.conclusion} | self._numbers() | {"label_gain": self.data.gain}

    def _numbers(self) -> dict[str, Any]:
        """Return the facts that are numbers."""
        data = self.data
        return {
            "queries": len(data.group),
            "documents": len(data.pair),
            "grades": len(data.gain),
            "mean_relevance": float(data.relevance.mean()),
            "largest_relevance": float(data.relevance.max()),
        }

    @override
    def _document(self) -> Document:
        table = [{"": name.replace("_", " "), " ": value} for name, value in self._numbers().items()]
        return Document("Corrected labels", self.conclusion, [Section("Corrected labels", table=table)], self.notes)

    @classmethod
    @override
    def check_output(cls, path: str | Path) -> None:
        boosting_ending(path)

    @override
    def write(self, path: str | Path) -> Written:
        return Written(files=tuple(write_boosting_data(self.data, path, notes=dict(self.notes))))


def ranking_labels(
    corpus: CorpusLike,
    clicks: LogLike,
    *,
    loss: str = "ips",
    naive: bool = False,
    propensities: str | Path | Propensities | None = None,
    examination: str | Float[np.ndarray, " rank"] | None = None,
    model: str | Path | ClickModel | None = None,
    trust: str | Path | Trust | None = None,
    clip: float | None = None,
    logging: str = "frequencies",
    propensity_kind: str = "marginal",
    queries: int | None = None,
    max_label: int | None = None,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> RankingLabels:
    """Compute corrected labels, weights and positions for LightGBM and XGBoost.

    Pass the column `grade` to LightGBM's rankers, with the fact `label_gain`, and `relevance` to XGBoost's, with
    ndcg_exp_gain=False.

    Parameters
    ----------
    corpus
        Documents with their features: a `Corpus`, LETOR files, a data frame (see `read_corpus`), or "builtin".
    clicks
        Click log of any size: anything that `open_log` opens.
    loss
        Correction of the clicks: "ips", "policy-aware" or "affine".
    naive
        Whether to use uncorrected clicks, for LightGBM's own estimate of position bias.
    propensities, examination, model, trust
        Position bias, one of the four; see `train_ranker`.
    clip
        Smallest propensity to divide by.
    logging
        "frequencies", or "propensities" to weight impressions by inverse propensities by position, see `train_ranker`.
    propensity_kind
        What these are: "marginal" or "independent", see `train_ranker`.
    queries
        Number of queries of the built-in corpus.
    max_label
        Highest grade of the label scale; by default, 1, 2 or 4.
    columns, on_bad_line
        As for `open_log`.
    progress
        Called while the log is read.

    Returns
    -------
    RankingLabels
        The labels.

    Raises
    ------
    SpecError
        If options are not valid ("bad-option"), or position bias is missing or not used ("missing-examination",
        "missing-trust", "unused-examination", "unused-trust").
    DataError
        If no document of the corpus was shown ("no-common-documents"), or examination is not valid ("bad-examination",
        "zero-propensity"), or the log lacks the propensities that are asked for ("missing-propensities").

    Examples
    --------
    >>> import clickshift as cs
    >>> corpus = cs.builtin_corpus(queries=10)
    >>> log = cs.simulate(corpus, cs.BM25(), cs.users.PBM(), 500, rng=0)
    >>> ranking_labels(corpus, log, examination="1/rank").to_arrow().column_names[:4]
    ['query', 'doc', 'relevance', 'grade']
    """
    learner = BoostedRanker(loss, "naive" if naive else "given", clip=clip)
    source = BiasSource(propensities, examination, model, trust)
    check_propensity_kind(propensity_kind)
    source.check(learner.bias)
    source = source.loaded()
    columns = columns_with(columns, segments=[source.segment]) if source.segment else columns
    documents = open_corpus(corpus, queries=queries, max_label=max_label)
    log = open_log_or_counts(clicks, columns=columns, on_bad_line=on_bad_line, progress=progress)
    segments = source.segments(log)
    given = source.read(log, segments)
    check_position_bias(learner.loss, learner.bias, **given)
    counts = count_by_rank(documents, log, logging=logging, clip=clip, segments=segments)
    data = boosting_data(documents, counts, learner.loss, clip=clip, **given)
    return RankingLabels(data, {"corpus": source_name(corpus), "clicks": source_name(clicks), "loss": loss})


def boosting_ending(path: str | Path) -> str:
    """Return the ending of a file that `write_boosting_data` can write; raise a FileError for any other.

    Call it before the computation whose result is to be written.
    """
    return table_ending(path, (*ENDINGS, *_TEXT_ENDINGS))


def write_boosting_data(data: BoostingData, path: str | Path, *, notes: dict[str, Any] | None = None) -> list[Path]:
    """Write training data for gradient boosting.

    A .parquet, .csv or .jsonl file holds `BoostingData.table`, with LightGBM's `label_gain` in the metadata of Parquet.
    A .txt or .train file holds lines of grade and features, which LightGBM reads along with PATH.query (rows of each
    query), PATH.weight, PATH.position, and PATH.conf with `label_gain`. The named file is written last: without it, the
    others are of no use.

    Parameters
    ----------
    data
        The training data.
    path
        File to write.
    notes
        Further metadata of a table.

    Returns
    -------
    list of Path
        The files that were written, the named one first.

    Raises
    ------
    FileError
        If the file cannot have this ending, or has no name before it ("bad-file-name").
    """
    path = Path(path)
    metadata = {"label_gain": data.gain.tolist(), **(notes or {})}
    if boosting_ending(path) not in _TEXT_ENDINGS:
        write_table(data.table(), path, notes=metadata)
        return [path]
    if path.suffix == path.name:
        raise FileError(path, "must have a name before its ending. Choose one.", code="bad-file-name")
    path.unlink(missing_ok=True)
    gains = ",".join(f"{gain:.9g}" for gain in data.gain.tolist())
    side_files = {
        "query": _lines(data.group),
        "weight": _lines(data.weight),
        "position": _lines(data.position + 1),
        "conf": f"objective = lambdarank\nlabel_gain = {gains}\n",
    }
    files = []
    for name, text in side_files.items():
        files.append(path.with_name(f"{path.name}.{name}"))
        with write_atomically(files[-1]) as temporary:
            temporary.write_text(text, encoding="ascii")
    with write_atomically(path) as temporary, temporary.open("w", encoding="ascii") as file:
        for first in range(0, len(data.pair), _CHUNK):
            file.write(_svmlight_text(data, slice(first, first + _CHUNK)))
    return [path, *files]


def _lines(values: np.ndarray) -> str:
    """Return one number per line."""
    return "".join(f"{value:.9g}\n" for value in values.tolist())


def _svmlight_text(data: BoostingData, rows: slice) -> str:
    """Return lines such as "3 1:0.5 2:0": every feature is written, numbered from 1."""
    import pyarrow as pa
    import pyarrow.compute as pc

    features = checked_features(data.corpus)[data.pair[rows]]
    columns: list[Any] = [pa.array(data.grade[rows]).cast(pa.string())]
    for k in range(features.shape[1]):
        columns.append(pc.binary_join_element_wise(f"{k + 1}", pa.array(features[:, k]).cast(pa.string()), ":"))
    lines = pc.binary_join_element_wise(*columns, " ").to_pylist()
    return "".join(f"{line}\n" for line in lines)
