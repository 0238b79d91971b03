"""Summary of a log: size, click-through rates, variation of its lists, and what can be identified from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from clickshift.core.intervals import wilson_interval
from clickshift.core.progress import Progress, silent
from clickshift.core.unique_rows import row_hashes
from clickshift.counts.cells import Cells
from clickshift.counts.column_totals import ColumnTotals
from clickshift.counts.connectivity import SwapGraph, swap_graph
from clickshift.counts.open_log import LogLike, open_log
from clickshift.data.description import describe_log, log_source
from clickshift.data.encoded_log import EncodedLog
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN
from clickshift.display.document import Document, Section
from clickshift.display.figures import COLOURS, add_curve, rank_step
from clickshift.display.result import Result, two_columns
from clickshift.display.tables import Rows
from clickshift.io.read_report import OnBadLine

_RANKS_SHOWN = 20
"""Most ranks that a table shows one by one; of longer lists, ranks from 11 on are grouped."""
_SWAP_RANKS = 100
"""Number of ranks whose swaps are facts."""
_GROUP_ENDS = (20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True, repr=False, eq=False)
class LogSummary(Result):
    """Summary of a log: size, click-through rates, variation of its lists, and identifiability of its ranks.

    Parameters
    ----------
    sessions, n_rows
        Number of sessions, and of rows, which may represent several equal sessions.
    queries, documents, pairs
        Number of queries, documents and (query, document) pairs that were shown.
    mean_list_length, clicks_per_session
        Means over sessions.
    sessions_without_click
        Share of the sessions.
    impressions, clicks
        Number of impressions and clicks of each rank.
    distinct_lists
        Number of distinct (query, list) combinations.
    pairs_seen_at_several_ranks
        Share of the pairs.
    swap_graph
        Graph of ranks, joined by the documents that were shown at both.
    propensities
        Whether the log has the logging policy's propensities.
    time
        First and last time as text, if the log has times.
    users
        Number of users, if the log has them.
    columns
        Holes, signals, segments, and whether there are propensities by position.
    source
        Where the log came from.

    Notes
    -----
    Facts, as `to_dict` returns them:

    - conclusion: the answer, as text.
    - sessions, rows, queries, documents, pairs, ranks: numbers.
    - mean_list_length, clicks_per_session: means over sessions.
    - sessions_without_click: a share.
    - ctr_by_rank: click-through rate of each rank.
    - distinct_lists: a number.
    - pairs_seen_at_several_ranks: a share.
    - rank_groups: groups of ranks, from 1, that are connected by documents shown at several ranks.
    - weakest_link: effective swaps on the weakest connection between ranks; None for a single rank.
    - effective_swaps: effective number of swaps between every two ranks; of long lists, between the first 100.
    - identifiability: "all ranks are connected", or what is not identified.
    - propensities: whether the log has propensities.
    - time: [first, last], if the log has times; users: a number, if it has users.
    - holes: number of ranks above the end of a list where nothing is shown, and hole_share, their share of these ranks,
      if there are any.
    - signals: for each signal of results the share of the results of which it is known (known), the share of those with
      a value above 0 (rate), and the sum of its values (total), if the log has signals.
    - segments: number of sessions of each label, by segment, if the log has segments.
    - propensities_by_position: true, if the log has them.
    """

    sessions: int
    n_rows: int
    queries: int
    documents: int
    pairs: int
    mean_list_length: float
    clicks_per_session: float
    sessions_without_click: float
    impressions: Float[np.ndarray, " rank"]
    clicks: Float[np.ndarray, " rank"]
    distinct_lists: int
    pairs_seen_at_several_ranks: float
    swap_graph: SwapGraph
    propensities: bool
    time: tuple[str, str] | None = None
    users: int | None = None
    columns: ColumnTotals | None = None
    source: str = ""

    @cached_property
    def ctr_by_rank(self) -> Float[np.ndarray, " rank"]:
        """Click-through rate of each rank."""
        ctr: np.ndarray = self.clicks / np.maximum(self.impressions, 1)
        return ctr

    @cached_property
    def identifiability(self) -> str:
        """What is not identified because documents do not change ranks; "all ranks are connected" otherwise."""
        return self.swap_graph.warning() or "all ranks are connected"

    @property
    def conclusion(self) -> str:
        """Size, clicks, and whether position bias is identified; if it is not, what would help."""
        ctr = self.ctr_by_rank
        answer = {
            "identified": "All ranks are connected by documents that changed ranks, so position bias can be estimated.",
            "weakly identified": "Few documents changed ranks, so position bias can hardly be estimated.",
            "not identified": "Documents did not change ranks enough to estimate position bias.",
        }[self.swap_graph.verdict]
        text = (
            f"{self.sessions:,} sessions of {self.queries:,} queries with {self.clicks_per_session:.2f} clicks each; "
            f"the click-through rate is {ctr[0]:.1%} at rank 1 and {ctr[-1]:.1%} at rank {len(ctr)}. {answer}"
        )
        warning = self.swap_graph.warning()
        return f"{text}\n\n{warning[0].upper()}{warning[1:]}" if warning else text

    def rows(self) -> Rows:
        """Return the click-through rate of each rank with its 95 % Wilson interval."""
        shown = np.maximum(self.impressions, 1.0)
        low, high = wilson_interval(self.clicks, shown)
        columns = (self.impressions, self.clicks, self.ctr_by_rank, low, high)
        names = ("rank", "impressions", "clicks", "ctr", "low", "high")
        by_rank = zip(range(1, len(shown) + 1), *(values.tolist() for values in columns), strict=True)
        return [dict(zip(names, values, strict=True)) for values in by_rank]

    def facts(self) -> Mapping[str, Any]:
        """Return the facts that the notes of the class list."""
        own, graph = vars(self), self.swap_graph
        return {
            "conclusion": self.conclusion,
            "sessions": self.sessions,
            "rows": self.n_rows,
            **{name: own[name] for name in ("queries", "documents", "pairs")},
            "ranks": len(self.clicks),
            **{name: own[name] for name in ("mean_list_length", "clicks_per_session", "sessions_without_click")},
            "ctr_by_rank": self.ctr_by_rank,
            **{name: own[name] for name in ("distinct_lists", "pairs_seen_at_several_ranks")},
            "rank_groups": graph.groups(),
            "weakest_link": graph.weakest_link,
            "effective_swaps": graph.swaps[:_SWAP_RANKS, :_SWAP_RANKS],
            "identifiability": self.identifiability,
            "propensities": self.propensities,
            **{name: own[name] for name in ("time", "users") if own[name] is not None},
            **({} if self.columns is None else self.columns.facts()),
        }

    def _document(self) -> Document:
        """Show the click-through rates as a curve above the impressions, then the sizes."""
        first, last = self.time or (None, None)
        headline = Section(
            "Click-through rate by rank",
            table=self._rank_table(),
            figure=self._figure,
            caption="95 % Wilson intervals. Swaps: effective number of documents that were shown at both ranks, which "
            "is what a comparison of the two ranks rests on.",
        )
        return Document(
            "Click log",
            self.conclusion,
            [Section("Sizes", table=two_columns(self._sizes()))],
            verdict=self.swap_graph.verdict,
            data=f"{describe_log(0, source=self.source, first=first, last=last)}: {self.documents:,} documents in "
            f"{self.distinct_lists:,} distinct lists{self._described_columns()}".removeprefix(": "),
            headline=headline,
        )

    def _described_columns(self) -> str:
        """Return holes, signals and segments in one line."""
        described = "" if self.columns is None else self.columns.describe()
        return f"; {described}" if described else ""

    def _rank_table(self) -> Rows:
        """Tabulate impressions, clicks, rates and swaps by rank; of a long list, further ranks are grouped."""
        table = []
        for start, stop in _rank_ranges(len(self.clicks)):
            impressions, clicks = (float(values[start:stop].sum()) for values in (self.impressions, self.clicks))
            low, high = wilson_interval(np.array([clicks]), np.array([max(impressions, 1.0)]))
            swaps = self.swap_graph.swaps[start, start + 1] if stop - start == 1 and stop < len(self.clicks) else None
            table.append(
                {
                    "rank": str(stop) if stop - start == 1 else f"{start + 1}–{stop}",
                    "impressions": round(impressions),
                    "clicks": round(clicks),
                    "click-through rate": f"{clicks / max(impressions, 1.0):.1%}",
                    "95 % interval": f"{low[0]:.1%} to {high[0]:.1%}",
                    "swaps with the next rank": None if swaps is None else round(swaps),
                }
            )
        return table

    def _sizes(self) -> dict[str, Any]:
        """Return the sizes of the log and of its variation, as people read them."""
        graph = self.swap_graph
        return {
            "sessions": self.sessions,
            **({} if self.n_rows == self.sessions else {"rows": self.n_rows}),
            "queries": self.queries,
            "documents": self.documents,
            "(query, document) pairs": self.pairs,
            "ranks": len(self.clicks),
            "mean list length": f"{self.mean_list_length:.2f}",
            "clicks per session": f"{self.clicks_per_session:.3f}",
            "sessions without click": f"{self.sessions_without_click:.1%}",
            "distinct lists": self.distinct_lists,
            "pairs seen at several ranks": f"{self.pairs_seen_at_several_ranks:.1%}",
            "rank groups": graph.describe_groups(),
            "weakest link": f"{graph.weakest_link:,.1f} effective swaps" if len(self.clicks) > 1 else "none",
            "identifiability": graph.verdict if graph.warning() else self.identifiability,
            "propensities of lists": "yes" if self.propensities else "none",
            **(
                {}
                if self.time is None
                else {"time": " to ".join(text.removesuffix(".000000000") for text in self.time)}
            ),
            **({} if self.users is None else {"users": self.users}),
            **({} if self.columns is None else self.columns.sizes(self.sessions)),
        }

    def _figure(self) -> Any:
        """Plot the click-through rates with their intervals, above the impressions."""
        from plotly.subplots import make_subplots

        rows = self.rows()
        ranks = [row["rank"] for row in rows]
        figure = make_subplots(2, 1, shared_xaxes=True, row_heights=[3, 1], vertical_spacing=0.08)
        values = ([row[name] for row in rows] for name in ("ctr", "low", "high"))
        add_curve(figure, ranks, *values, number=".2%", row=1, col=1)
        figure.add_bar(
            x=ranks,
            y=[row["impressions"] for row in rows],
            marker={"color": COLOURS[-1]},
            hovertemplate="%{x}: %{y:,.0f} impressions<extra></extra>",
            showlegend=False,
            row=2,
            col=1,
        )
        figure.update_xaxes(dtick=rank_step(len(rows)))
        figure.update_xaxes(title="rank", row=2, col=1)
        figure.update_yaxes(title="click-through rate", tickformat=".0%", rangemode="tozero", row=1, col=1)
        figure.update_yaxes(title="impressions", nticks=3, row=2, col=1)
        figure.update_layout(
            template="plotly_white", showlegend=False, height=430, margin={"l": 60, "r": 20, "t": 30, "b": 50}
        )
        return figure


def log_summary(
    log: LogLike,
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> LogSummary:
    """Summarise a log: what `clickshift log info` shows.

    Parameters
    ----------
    log
        Anything that :func:`open_log` opens: a path, a data frame, `Sessions`, an encoded log.
    columns
        The log's names of our columns, e.g. ``{"docs": "results"}``.
    on_bad_line
        "error" stops at the first bad session; "skip" leaves bad sessions out and warns.
    progress
        Called while a large log is encoded.

    Returns
    -------
    LogSummary
        Sizes, click-through rates by rank, variation of the lists, connectivity of the ranks, and whether the log has
        propensities, times and users.

    Raises
    ------
    FileError, DataError
        Those of :func:`open_log`.

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(queries=5), cs.Uniform(), cs.users.PBM(), 1000, rng=1)
    >>> summary = cs.log_summary(log)
    >>> summary.sessions, len(summary.ctr_by_rank)
    (1000, 10)
    """
    sessions = open_log(log, columns=columns, on_bad_line=on_bad_line, progress=progress)
    cells, vocabulary, total = Cells.of(sessions), sessions.vocabulary, sessions.total
    ranks_per_pair = np.bincount(cells.pair, minlength=vocabulary.n_pairs)
    shown = ranks_per_pair > 0
    impressions, clicks = cells.by_rank()
    by_length = isinstance(sessions, EncodedLog) and sessions.has_narrow_chunks
    parts = [_summarise_part(part, by_length=by_length) for part in sessions.chunks(narrow=True)]
    times = [part.time for part in parts if part.time is not None]
    users = [part.users for part in parts if part.users is not None]
    return LogSummary(
        sessions=total,
        n_rows=len(sessions),
        queries=len(np.unique(vocabulary.pair_query[shown])),
        documents=len(np.unique(vocabulary.pair_doc[shown])),
        pairs=int(shown.sum()),
        mean_list_length=float(sum(part.results for part in parts) / total),
        clicks_per_session=float(sum(part.clicks for part in parts) / total),
        sessions_without_click=float(sum(part.without_click for part in parts) / total),
        impressions=impressions,
        clicks=clicks,
        distinct_lists=len(np.unique(np.concatenate([part.lists for part in parts]))),
        pairs_seen_at_several_ranks=float((ranks_per_pair[shown] > 1).mean()),
        swap_graph=swap_graph(cells),
        propensities=parts[0].propensities,
        time=(str(min(first for first, _ in times)), str(max(last for _, last in times))) if times else None,
        users=len(np.unique(np.concatenate(users))) if users else None,
        columns=ColumnTotals.sum([part.columns for part in parts]),
        source=log_source(log),
    )


class _PartSummary(NamedTuple):
    """Summary of one part of a log: totals over sessions, a hash of each distinct list, times and users."""

    results: float
    clicks: float
    without_click: float
    lists: np.ndarray
    propensities: bool
    time: tuple[Any, Any] | None
    users: np.ndarray | None
    columns: ColumnTotals


def _summarise_part(part: Sessions, *, by_length: bool) -> _PartSummary:
    """Summarise one part of a log."""
    rankings = part.rankings
    return _PartSummary(
        float(part.count @ rankings.length),
        float((part.count @ part.click).sum()),
        float(part.count[~part.click.any(axis=1)].sum()),
        _list_hashes(rankings, by_length=by_length),
        rankings.log_prob is not None,
        None if part.time is None else (part.time.min(), part.time.max()),
        None if part.user is None else np.unique(part.user),
        ColumnTotals.of(part),
    )


def _list_hashes(rankings: Rankings, *, by_length: bool) -> np.ndarray:
    """Return a hash of each distinct list.

    A hash depends on the width of the matrix; `by_length` makes that depend on the list alone, so that equal lists have
    equal hashes in chunks of different widths.
    """
    if not by_length:
        return np.unique(row_hashes(np.concatenate([rankings.query[:, None], rankings.pair], axis=1)))
    length, hashes, shorter = rankings.length, [np.zeros(0, np.uint64)], 0
    while shorter < rankings.n_ranks:
        width = 2 * shorter or 1
        rows = np.flatnonzero((length > shorter) & (length <= width))
        pair = rankings.pair[rows, :width]
        pair = np.pad(pair, ((0, 0), (0, width - pair.shape[1])), constant_values=UNSEEN)
        hashes.append(row_hashes(np.concatenate([rankings.query[rows, None], pair], axis=1)))
        shorter = width
    return np.unique(np.concatenate(hashes))


def _rank_ranges(n_ranks: int) -> list[tuple[int, int]]:
    """Return the rows of a table of ranks, as ranges from 0: each rank of a short list, groups of a long one.

    >>> _rank_ranges(3), _rank_ranges(120)[9:]
    ([(0, 1), (1, 2), (2, 3)], [(9, 10), (10, 20), (20, 50), (50, 100), (100, 120)])
    """
    if n_ranks <= _RANKS_SHOWN:
        return [(rank, rank + 1) for rank in range(n_ranks)]
    ends = [*range(11), *(end for end in _GROUP_ENDS if end < n_ranks), n_ranks]
    return list(pairwise(ends))
