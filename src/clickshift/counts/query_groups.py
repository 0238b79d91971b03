"""Groups of queries that mean the same: by their normalised texts, or by the overlap of their results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int
from typing_extensions import override

from clickshift.core.progress import Progress, silent
from clickshift.counts.cells import Cells
from clickshift.counts.daily import DayCounts
from clickshift.counts.open_log import LogLike, open_log_or_counts
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.display.document import Document, Section
from clickshift.display.export import Written
from clickshift.display.result import Result, two_columns
from clickshift.display.tables import Rows
from clickshift.errors import DataError, FileError, SpecError
from clickshift.io.frames import read_source
from clickshift.io.pair_values import complete_columns
from clickshift.io.read_report import OnBadLine
from clickshift.io.table_writer import ENDINGS, table_ending, write_table

__all__ = ["QueryGroups", "group_queries", "read_query_groups"]

_COMMON = 1000
"""Queries with a document among their first results, above which it makes no candidates: it tells nothing."""
_BLOCK = 2048
"""Queries whose results are compared with those of all others at once."""
_GROUPS_SHOWN = 20
_NOT_A_WORD = r"[^\p{L}\p{N}\p{M}]+"
_PLURAL = re.compile(r"\b(\w{3,}[^\W\ds])s\b")


@final
@dataclass(frozen=True, repr=False, eq=False)
class QueryGroups(Result):
    """Queries that are taken for variants of each other.

    Parameters
    ----------
    vocabulary
        The queries.
    group
        Int[query]: number of the most frequent query of the group of each query.
    impressions
        Impressions of each query in the log; NaN if they are not known.
    by
        "text", "results" or "file".

    Notes
    -----
    Keys of `to_dict`, which `clickshift log group --json` prints:

    - by: how queries were grouped;
    - queries, groups: number of queries, and of groups, those of one query included;
    - grouped_queries: number of queries in groups of two or more;
    - grouped_impressions: their share of the impressions;
    - largest: number of queries of the largest group;
    - conclusion.
    """

    vocabulary: Vocabulary
    group: Int[np.ndarray, " query"]
    impressions: Float[np.ndarray, " query"]
    by: str

    @property
    def size(self) -> Int[np.ndarray, " query"]:
        """Number of queries in the group of each query."""
        size: np.ndarray = np.bincount(self.group, minlength=len(self.group))[self.group]
        return size

    def numbers_in(self, vocabulary: Vocabulary) -> Int[np.ndarray, " query"]:
        """Return the number of the group of each query of another vocabulary; a query of no group is its own one."""
        number = vocabulary.queries_of(self.vocabulary).astype(np.int64)
        known = number != UNSEEN
        group = len(number) + np.arange(vocabulary.n_queries)
        group[number[known]] = self.group[known]
        return group

    @override
    def rows(self) -> Rows:
        """Return a row per query of a group of two or more: query, group (its most frequent query), impressions."""
        order = np.lexsort((-self.impressions, self.group))
        order = order[self.size[order] > 1]
        ids = self.vocabulary.query_ids
        return [
            {"query": _plain(ids[q]), "group": _plain(ids[self.group[q]]), "impressions": float(self.impressions[q])}
            for q in order.tolist()
        ]

    @property
    @override
    def conclusion(self) -> str:
        facts = self._numbers()
        if not facts["grouped_queries"]:
            return f"No query of {facts['queries']:,} has a variant, by {self.by}."
        share = facts["grouped_impressions"]
        return (
            f"{facts['grouped_queries']:,} of {facts['queries']:,} queries are variants of each other by {self.by}, in "
            f"{facts['groups'] - facts['queries'] + facts['grouped_queries']:,} groups of up to {facts['largest']:,}"
            f"{'' if np.isnan(share) else f', with {share:.0%} of the impressions'}."
        )

    def _numbers(self) -> dict[str, Any]:
        grouped, total = self.size > 1, self.impressions.sum()
        return {
            "by": self.by,
            "queries": len(self.group),
            "groups": len(np.unique(self.group)),
            "grouped_queries": int(grouped.sum()),
            "grouped_impressions": float(self.impressions[grouped].sum() / total) if total > 0 else float("nan"),
            "largest": int(self.size.max()),
        }

    @override
    def facts(self) -> Mapping[str, Any]:
        return {**self._numbers(), "conclusion": self.conclusion}

    @override
    def _document(self) -> Document:
        order = np.lexsort((np.arange(len(self.group)), -self.size))
        leaders = [q for q in order.tolist() if self.group[q] == q and self.size[q] > 1][:_GROUPS_SHOWN]
        table = []
        for leader in leaders:
            members = np.flatnonzero(self.group == leader)
            members = members[np.argsort(-self.impressions[members], kind="stable")]
            names = [str(self.vocabulary.query_ids[q]) for q in members[:5].tolist()]
            more = f" and {len(members) - 5:,} more" if len(members) > 5 else ""
            table.append({"queries": len(members), "members": "; ".join(names) + more})
        numbers = self._numbers()
        share = numbers["grouped_impressions"]
        numbers["grouped_impressions"] = "–" if np.isnan(share) else f"{share:.1%}"
        sections = [Section("Groups of queries", table=two_columns(numbers))]
        if table:
            sections.append(Section("Largest groups", table=table))
        return Document("Groups of queries", self.conclusion, sections)

    @override
    @classmethod
    def check_output(cls, path: str | Path) -> None:
        if Path(path).suffix.lower() in {".html", ".htm"}:
            super().check_output(path)
        else:
            table_ending(path)

    @override
    def write(self, path: str | Path) -> Written:
        """Write the groups as a table, which `fit` reads, or a page about them.

        Parameters
        ----------
        path
            A table with the columns query and group (.parquet, .csv or .jsonl), or a page (.html).
        """
        self.check_output(path)
        if Path(path).suffix.lower() not in ENDINGS:
            return super().write(path)
        import pyarrow as pa

        ids = self.vocabulary.query_ids
        raw = ids if ids.dtype.kind == "i" else ids.astype(object)
        write_table(pa.table({"query": raw, "group": raw[self.group]}), path, notes={"by": self.by})
        return Written(rows=Path(path))


def group_queries(
    log: LogLike | DayCounts,
    *,
    by: str = "text",
    ignore_word_order: bool = False,
    ignore_plurals: bool = False,
    overlap: float = 0.5,
    top: int = 10,
    max_size: int = 100,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> QueryGroups:
    """Group the queries of a log that mean the same, so that `fit` can share what it learns of their documents.

    By text, queries are equal up to case, white space, punctuation and Unicode forms (NFKC). By results, a query
    belongs to the most frequent query around it whose first results overlap with its own: groups have no chains.

    Parameters
    ----------
    log
        A log, as for `fit`, or daily counts.
    by
        "text" or "results".
    ignore_word_order, ignore_plurals
        Whether texts are also equal in another order of their words, and with or without an s at the end of words.
    overlap
        Smallest Jaccard index of the results of a query and of the query that its group is named after.
    top
        Number of results of a query that are compared: those with the most impressions.
    max_size
        Largest number of queries of a group; its rarest queries are left out of a larger one.
    columns
        The log's names of our columns.
    on_bad_line
        "error", or "skip" to leave out bad sessions.
    progress
        Called with a text on the state of the work.

    Returns
    -------
    QueryGroups
        The group of every query.

    Raises
    ------
    SpecError
        "bad-option" for another value of an option.
    DataError
        "no-query-texts" for groups by text where queries are numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> log = pd.DataFrame({"query": ["Red shoes", "red  shoes!", "hats"], "docs": [["a"]] * 3, "clicks": [[1]] * 3})
    >>> [row["query"] for row in group_queries(log).rows()]
    ['Red shoes', 'red  shoes!']
    """
    for name, value, right in (
        ("by", by, by in {"text", "results"}),
        ("overlap", overlap, 0 < overlap <= 1),
        ("top", top, 1 <= top <= 1000),
        ("max_size", max_size, max_size >= 2),
    ):
        if not right:
            rules = {"by": '"text" or "results"', "overlap": "above 0 and at most 1", "top": "from 1 to 1,000"}
            message = f"{name} must be {rules.get(name, '2 or more')}: got {value!r}."
            raise SpecError(message, code="bad-option", option=name, value=value)
    opened = open_log_or_counts(log, columns=columns, on_bad_line=on_bad_line, progress=progress)
    vocabulary = opened.cells.vocabulary if isinstance(opened, DayCounts) else opened.vocabulary
    if by == "text" and vocabulary.query_ids.dtype.kind == "i":
        raise DataError(
            "groups by text need queries that are texts: the queries of this log are numbers. Group them by results, "
            "or use the texts as queries.",
            code="no-query-texts",
        )
    progress("counting")
    shown, _ = (opened.cells if isinstance(opened, DayCounts) else Cells.of(opened)).by_pair()
    impressions = np.bincount(vocabulary.pair_query, shown, vocabulary.n_queries)
    order = np.empty(vocabulary.n_queries, np.int64)  # 0 for the most frequent query
    order[np.argsort(-impressions, kind="stable")] = np.arange(vocabulary.n_queries)
    progress("grouping")
    if by == "text":
        group = _by_text(vocabulary, order, word_order=not ignore_word_order, plurals=not ignore_plurals)
    else:
        group = _by_results(vocabulary, shown, order, overlap=overlap, top=top)
    return QueryGroups(vocabulary, _at_most(group, order, max_size), impressions, by)


def read_query_groups(source: QueryGroups | str | Path | Any, vocabulary: Vocabulary) -> QueryGroups:
    """Read groups of queries from a table with the columns query and group; `QueryGroups` are returned as they are.

    Raises
    ------
    FileError
        "missing-column", "bad-column" or "missing-value" for a table of another form.
    DataError
        "repeated-query" for a query with two groups, "no-shared-queries" if none of them is a query of the vocabulary.
    """
    if isinstance(source, QueryGroups):
        return source
    part = read_source(source, _choose_columns)
    query, named = complete_columns(part, ("query", "group"))
    number = vocabulary.query_numbers(query.ids())
    known = number != UNSEEN
    if not known.any():
        raise DataError(
            f"groups must be of the queries of the log: none of {len(number):,} in {part.path} is one of them.",
            code="no-shared-queries",
            count=len(number),
        )
    if len(np.unique(number[known])) < known.sum():
        twice = number[known][np.flatnonzero(np.bincount(number[known])[number[known]] > 1)[0]]
        raise DataError(
            f"a query must have one group: {vocabulary.query_ids[twice]} has several in {part.path}. Remove rows.",
            code="repeated-query",
            query=str(vocabulary.query_ids[twice]),
        )
    group = np.arange(vocabulary.n_queries)
    _, label = np.unique(np.array([str(name) for name in named.ids().tolist()])[known], return_inverse=True)
    first = np.full(label.max() + 1, vocabulary.n_queries)
    np.minimum.at(first, label, number[known])
    group[number[known]] = first[label]
    return QueryGroups(vocabulary, group, np.full(vocabulary.n_queries, np.nan), "file")


def normalised_texts(texts: Any, *, word_order: bool = True, plurals: bool = True) -> list[str]:
    """Return texts in lower case and Unicode form NFKC, without punctuation; an empty one stays as it was.

    Examples
    --------
    >>> normalised_texts(["Red Shoes!", "shoe  red", "?"], word_order=False, plurals=False)
    ['red shoe', 'red shoe', '?']
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = pc.utf8_lower(pc.utf8_normalize(pa.array(texts, pa.string()), form="NFKC"))
    found = pc.utf8_trim_whitespace(pc.replace_substring_regex(plain, _NOT_A_WORD, " ")).to_pylist()
    if not plurals:
        found = [_PLURAL.sub(r"\1", text) for text in found]
    if not word_order:
        found = [" ".join(sorted(text.split())) for text in found]
    return [text or raw for text, raw in zip(found, texts, strict=True)]


def _by_text(vocabulary: Vocabulary, order: np.ndarray, *, word_order: bool, plurals: bool) -> np.ndarray:
    """Group queries by their normalised texts."""
    texts = normalised_texts(vocabulary.query_ids.astype(object).tolist(), word_order=word_order, plurals=plurals)
    _, label = np.unique(np.array(texts, np.dtypes.StringDType()), return_inverse=True)
    leader = np.full(label.max() + 1, len(order))
    np.minimum.at(leader, label, order)
    by_order: np.ndarray = np.argsort(order)[leader[label]]
    return by_order


def _by_results(
    vocabulary: Vocabulary, shown: np.ndarray, order: np.ndarray, *, overlap: float, top: int
) -> np.ndarray:
    """Group queries by the overlap of their first results: each with the most similar query that leads its neighbours.

    A query leads if none of its neighbours is more frequent.
    """
    from scipy.sparse import csr_matrix

    rows = np.lexsort((-shown, vocabulary.pair_query))
    rows = rows[shown[rows] > 0]
    query = vocabulary.pair_query[rows].astype(np.int64)
    start = np.searchsorted(query, query)
    first = np.arange(len(rows)) - start < top
    query, doc = query[first], vocabulary.pair_doc[rows][first]
    size = np.bincount(query, minlength=len(order))
    telling = np.bincount(doc, minlength=vocabulary.n_docs)[doc] <= _COMMON
    matrix = csr_matrix(
        (np.ones(telling.sum(), np.int32), (query[telling], doc[telling])), (len(order), vocabulary.n_docs)
    )
    columns, parts = matrix.T.tocsr(), []
    for first_row in range(0, len(order), _BLOCK):  # all pairs of queries at once may not fit in memory
        shared = (matrix[first_row : first_row + _BLOCK] @ columns).tocoo()
        row = shared.row.astype(np.int64) + first_row
        index = shared.data / (size[row] + size[shared.col] - shared.data)
        near = (index >= overlap) & (row != shared.col)
        parts.append((row[near], shared.col[near].astype(np.int64), index[near]))
    one, other, jaccard = (np.concatenate(values) for values in zip(*parts, strict=True))
    best = order.copy()
    np.minimum.at(best, one, order[other])
    leads = best == order
    group = np.arange(len(order))
    joins = leads[other] & ~leads[one]
    one, other, jaccard = one[joins], other[joins], jaccard[joins]
    nearest = np.lexsort((order[other], -jaccard, one))
    joining, at = np.unique(one[nearest], return_index=True)
    group[joining] = other[nearest][at]
    return group


def _at_most(group: np.ndarray, order: np.ndarray, max_size: int) -> np.ndarray:
    """Leave the rarest queries out of groups that are too large."""
    by_group = np.lexsort((order, group))
    place = np.arange(len(group)) - np.searchsorted(group[by_group], group[by_group])
    out = by_group[place >= max_size]
    group = group.copy()
    group[out] = out
    return group


def _choose_columns(path: Path, names: Any) -> dict[str, str]:
    """Choose the columns of a table of groups."""
    if missing := [name for name in ("query", "group") if name not in names]:
        raise FileError(
            path,
            f"groups must have the columns query and group: {', '.join(missing)} not found; the table has "
            f"{', '.join(names)}.",
            code="missing-column",
            columns=missing,
        )
    return {"query": "query", "group": "group"}


def _plain(value: Any) -> Any:
    """Return an id as a Python value."""
    return value.item() if hasattr(value, "item") else str(value)
