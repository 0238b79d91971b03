"""Propensities: a position-bias curve as a result, with its conclusion, table, chart and files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float

from clickshift._version import __version__
from clickshift.core.files import write_atomically
from clickshift.data.segments import largest_segments
from clickshift.display.document import Document, Section
from clickshift.display.export import Written
from clickshift.display.figures import COLOURS, add_curve, rank_step
from clickshift.display.result import Result, plain
from clickshift.display.tables import Rows
from clickshift.display.values import decimals
from clickshift.errors import DataError
from clickshift.io.table_writer import ENDINGS, table_ending, write_table

KIND = "propensities"
"""Kind of a JSON file of propensities."""
_HOW = """Examination is the probability that a user looks at the result at this rank, relative to the reference rank,
whatever its relevance. Effective swaps count how often documents were shown at this rank and at another one: they are
the evidence for the comparison."""
_HEADINGS = {"error": "standard error", "swaps": "effective swaps"}
_WHOLE = ("impressions", "swaps")
"""Columns that are shown as whole numbers, where they are known."""


@final
@dataclass(frozen=True, repr=False, eq=False)
class Propensities(Result):
    """Position bias: examination by rank, relative to a reference rank, with intervals.

    Parameters
    ----------
    method
        Name of the method.
    estimate
        Examination by rank: 1 at the reference rank, NaN where it is not identified from the log.
    low, high
        Limits of the confidence interval; NaN where there is none.
    error
        Standard error of the estimate; NaN where there is none.
    reference_rank
        The rank, from 0, whose examination is 1.
    level
        Confidence level of the intervals.
    interval
        Method of the intervals.
    impressions
        Impressions by rank.
    swaps
        Effective number of swaps with all other ranks: what the comparison rests on.
    warnings
        What makes the estimate doubtful, as sentences.
    data
        What the log was, in one line.
    by
        Name of the segment whose labels have curves of their own; "" for one curve.
    segments
        Propensities of the sessions of each label, by label.
    p_value
        P-value of the test that all labels click alike on the same documents; None without segments.

    Notes
    -----
    Facts, as `to_dict` returns them:

    - conclusion: the answer, as text.
    - method, level, interval, warnings: as above.
    - reference_rank: the rank, from 1, whose examination is 1.
    - ranks: for each rank (rank, from 1) its examination, low, high, error, impressions and swaps; None where a value
      is not known.
    - by, p_value, segments: only with segments: the segment, the test that its labels click alike, and for each label
      the same facts.

    Examples
    --------
    >>> none = np.full(2, np.nan)
    >>> Propensities("by hand", np.array([0.5, 1.0]), none, none, none, reference_rank=1).examination.tolist()
    [1.0, 2.0]
    """

    method: str
    estimate: Float[np.ndarray, " rank"]
    low: Float[np.ndarray, " rank"]
    high: Float[np.ndarray, " rank"]
    error: Float[np.ndarray, " rank"]
    reference_rank: int = 0
    level: float = 0.95
    interval: str = "none"
    impressions: Float[np.ndarray, " rank"] | None = None
    swaps: Float[np.ndarray, " rank"] | None = None
    warnings: tuple[str, ...] = ()
    data: str = ""
    by: str = ""
    segments: Mapping[str, Propensities] = field(default_factory=dict)
    p_value: float | None = None

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return len(self.estimate)

    @property
    def examination(self) -> Float[np.ndarray, " rank"]:
        """Examination relative to rank 1, as rankers and estimators take it.

        Raises
        ------
        DataError
            If it is not known and above 0 at all ranks ("bad-examination").
        """
        bad = np.flatnonzero(~(self.estimate > 0) | ~np.isfinite(self.estimate))
        if len(bad):
            rank, value = int(bad[0]) + 1, float(self.estimate[bad[0]])
            raise DataError(
                f"examination must be known and above 0 at all ranks: {self.method} estimated {value:g} at rank "
                f"{rank}. Use a log in which documents change ranks, another method, or fewer ranks.",
                code="bad-examination",
                method=self.method,
                rank=rank,
                value=value,
                count=len(bad),
            )
        curve: np.ndarray = self.estimate / self.estimate[0]
        return curve

    @property
    def identified(self) -> Bool[np.ndarray, " rank"]:
        """Whether the log says anything about each rank: its examination is above 0, and its interval has an end."""
        known = np.isfinite(self.estimate) & (self.estimate > 0)
        identified: np.ndarray = known & ~(self.high > _UNBOUNDED * np.maximum(self.estimate, 1))
        return identified

    @property
    def conclusion(self) -> str:
        """Examination of the last identified rank, and the ranks that are not identified."""
        if self.segments:
            known = {label: own.impressions for label, own in self.segments.items() if own.impressions is not None}
            sizes = {label: float(impressions[0]) for label, impressions in known.items()}
            described = largest_segments({label: own.conclusion for label, own in self.segments.items()}, sizes)
            return f"{described} {self._difference_sentence()}".rstrip()
        reference, identified = self.reference_rank, np.flatnonzero(self.identified)
        others = identified[identified != reference]
        unknown = [str(rank + 1) for rank in range(self.n_ranks) if rank not in identified]
        sentences = []
        if len(others):
            rank = int(others[-1])
            value, low, high = (float(values[rank]) for values in (self.estimate, self.low, self.high))
            digits = decimals((high - low) / 2) if high > low else 3
            interval = f"{100 * self.level:g} % interval {low:.{digits}f} to {high:.{digits}f}"
            sentences.append(
                f"By {self.method}, rank {rank + 1} is examined {value:.{digits}f} times as often as rank "
                f"{reference + 1} ({interval if math.isfinite(low + high) else 'no interval'})."
            )
        if unknown:
            plural = "s" if len(unknown) > 1 else ""
            sentences.append(f"The log does not identify the examination of rank{plural} {', '.join(unknown)}.")
        return " ".join(sentences) or f"{self.method} compares no rank with another: the lists have one result."

    def _difference_sentence(self) -> str:
        """Say whether labels click alike on the same documents at the same ranks."""
        if self.p_value is None:
            return ""
        p = "below 0.001" if self.p_value < 0.001 else f"{self.p_value:.2g}"
        verb = "differ" if self.p_value < _DIFFER else "do not differ significantly"
        return f"The labels of {self.by} {verb} in clicks on the same documents at the same ranks (p-value {p})."

    @property
    def verdict(self) -> str:
        """Whether the log identifies the curve: "identified", "weakly identified" or "not identified"."""
        if not self.identified.all():
            return "not identified"
        return "weakly identified" if self.warnings else "identified"

    def rows(self) -> Rows:
        """Return one row per rank, from 1, with its examination and everything that is known about it.

        With segments, those of each label follow each other, with the label as `segment`.
        """
        if self.segments:
            return [{"segment": label, **row} for label, own in self.segments.items() for row in own.rows()]
        return self._own_rows()

    def _own_rows(self) -> Rows:
        """Return one row per rank of the curve of all sessions together."""
        unknown = np.full(self.n_ranks, np.nan)
        columns = {
            "examination": self.estimate,
            "low": self.low,
            "high": self.high,
            "error": self.error,
            "impressions": unknown if self.impressions is None else self.impressions,
            "swaps": unknown if self.swaps is None else self.swaps,
        }
        return [
            {"rank": rank + 1} | {name: float(values[rank]) for name, values in columns.items()}
            for rank in range(self.n_ranks)
        ]

    def facts(self) -> Mapping[str, Any]:
        """Return the facts that the notes of the class list."""
        facts = {"conclusion": self.conclusion, **self._settings(), "ranks": self._own_rows()}
        if self.segments:
            facts |= {"by": self.by, "p_value": self.p_value}
            facts["segments"] = {label: dict(own.facts()) for label, own in self.segments.items()}
        return facts

    def _settings(self) -> dict[str, Any]:
        """Return everything but the rows by rank."""
        return {
            "method": self.method,
            "reference_rank": self.reference_rank + 1,
            "level": self.level,
            "interval": self.interval,
            "warnings": list(self.warnings),
        }

    def _document(self) -> Document:
        """Show the curve with its table, and the warnings."""
        level = f"{100 * self.level:g} % intervals: {self.interval}" if self.interval != "none" else "no intervals"
        rows = self.rows()
        one = next(iter(self.segments.values()), self)
        columns = [name for name in rows[0] if name not in _WHOLE or getattr(one, name) is not None]
        table = [{_HEADINGS.get(name, name): _cell(name, row[name]) for name in columns} for row in rows]
        return Document(
            "Position bias",
            self.conclusion,
            [Section("How to read the curve", _HOW, page_only=True)],
            {name: value for name, value in self._settings().items() if name != "warnings"},
            self.verdict,
            self.data,
            Section(
                f"Examination relative to rank {self.reference_rank + 1}, by {self.method} ({level})",
                table=table,
                figure=lambda: _curve_figure(self),
                name="examination",
                explanation="\n\n".join(self.warnings),  # a command prints them on standard error
            ),
        )

    @classmethod
    def check_output(cls, path: str | Path) -> None:
        """Check that `write` can write to a path; call it before the work whose result is to be written.

        Parameters
        ----------
        path
            The path.

        Raises
        ------
        FileError
            "unknown-format" for another ending, "is-a-folder".
        """
        if Path(path).suffix.lower() in {"", ".html", ".htm"}:
            super().check_output(path)
        else:
            table_ending(path, (".json", *ENDINGS, ".html"))

    def write(self, path: str | Path) -> Written:
        """Write the propensities to files.

        Parameters
        ----------
        path
            A .json file, which keeps everything and which rankers read, or a table (.csv, .parquet, .jsonl) with a row
            per rank; a page (.html); or a folder for the page, the rows, and every table and figure as a file.

        Returns
        -------
        Written
            Paths of what was written.
        """
        self.check_output(path)
        ending = Path(path).suffix.lower()
        if ending in {"", ".html", ".htm"}:
            return super().write(path)
        if ending != ".json":
            import pyarrow as pa

            write_table(pa.Table.from_pylist(self.rows()), path, notes=self._settings())
        else:
            content = {"kind": KIND, "clickshift": __version__, **plain(self.facts())}
            del content["conclusion"]
            with write_atomically(path) as temporary:
                temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return Written(rows=Path(path))


def _curve_figure(propensities: Propensities) -> Any:
    """Plot the curve with its intervals, and 1 / rank for comparison."""
    import plotly.graph_objects as go

    figure = go.Figure()
    ranks = list(range(1, propensities.n_ranks + 1))
    for k, (name, one) in enumerate((propensities.segments or {propensities.method: propensities}).items()):
        rows = [row for row, known in zip(one.rows(), one.identified, strict=True) if known]
        values = ([row[column] for row in rows] for column in ("examination", "low", "high"))
        add_curve(figure, [row["rank"] for row in rows], *values, name=name, colour=COLOURS[k % (len(COLOURS) - 1)])
    figure.add_scatter(
        name="1 / rank, for comparison",
        x=ranks,
        y=[(propensities.reference_rank + 1) / rank for rank in ranks],
        mode="lines",
        line={"color": COLOURS[-1], "width": 1, "dash": "dot"},
        hoverinfo="skip",
    )
    figure.update_layout(
        template="plotly_white",
        xaxis={"title": "rank", "dtick": rank_step(propensities.n_ranks)},
        yaxis={"title": f"examination relative to rank {propensities.reference_rank + 1}", "rangemode": "tozero"},
        legend={"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.2, "yanchor": "top"},
        margin={"l": 60, "r": 20, "t": 40, "b": 80},
        height=380,
    )
    return figure


def _cell(name: str, value: Any) -> Any:
    """Return a value of the table as it is shown."""
    if name == "segment":
        return value
    return round(value) if name in _WHOLE else _shown(value)


def _shown(value: float) -> float:
    """Return a value of the table: bounds that only rounding keeps from 0 are 0, and huge ones are infinite."""
    return 0.0 if abs(value) < _ROUNDED_TO_ZERO else math.inf if value > _UNBOUNDED**2 else value


_DIFFER = 0.05
"""P-value below which segments differ significantly."""
_ROUNDED_TO_ZERO = 5e-5
_UNBOUNDED = 100.0
"""Ratio of an upper bound to the estimate, or to the reference rank, above which a rank is not identified."""
