"""The tables that the policy-shift paper printed, and ours beside tables 3 and 4.

References
----------
Deffayet, R., Renders, J.-M. & de Rijke, M. (2022). Evaluating the robustness of click models to policy distributional
shift. ACM Transactions on Information Systems.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from itertools import combinations
from typing import Any, NamedTuple, cast

from clickshift.display.document import Document, Section
from clickshift.display.figures import dot_plot
from clickshift.display.tables import Row, Rows
from clickshift.display.values import Measured, Standing, measured
from clickshift.errors import SpecError
from clickshift.experiments._dots import PUBLISHED, grouped_dots
from clickshift.experiments.experiment import ExperimentResult
from clickshift.experiments.policy_shift._report_robustness import metric_by_seed, rows_of_kind, text_of
from clickshift.simulation.search_engine import BUILTIN

ORACLE = "user (oracle)"
"""Name of the user's own model in the tables."""
IND_PPL, NDCG_3, OOD_PPL = "ind PPL", "nDCG@3", "ood PPL"
SECTION_6_1 = "PL-relevance"
"""Name of the logging policy of section 6.1, whose rows are compared with tables 3 and 4."""
_TABLE_OF_USER = {"DBN": "table3", "CoCM": "table4"}
_COUNTED = ("dCTR",)
"""Models that are counted, not trained."""
_CLOSE = 0.005
"""Difference in perplexity beyond that of the oracle that is not reported."""
_CELL = re.compile(r"(?P<open>\()?(?P<dagger>†)?(?P<standing>[*=])?(?P<mean>[\d.]+)(?:±(?P<half>[\d.]+))?\)?")
_STANDINGS = {"*": "best", "=": "=", None: ""}
_HOW = """Published: on MSLR-WEB10K, ten seeds. A number agrees if the 95 % intervals over seeds leave no difference.
The perplexity of the oracle, the user's own model, depends on the corpus and the user only. Where it differs, all
models differ, so a difference is split: that of the oracle, and what is beyond it. The latter comes from training
(rarely touched rows of embedding tables learn faster here, docs/decisions/0006-adam-by-row.md), or again from the
corpus: dCTR only counts clicks, so training cannot explain its difference."""


class Slip(NamedTuple):
    """A printed cell that cannot be right, or that two tables print differently."""

    table: str
    model: str
    column: str
    why: str


@cache
def _published() -> dict[str, Any]:
    """Return the published tables."""
    path = files("clickshift.experiments") / "published" / "policy_shift.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def published_table(name: str) -> dict[str, dict[str, Measured | None]]:
    """Return a table as the paper printed it.

    Parameters
    ----------
    name
        "table1" to "table8".

    Returns
    -------
    dict
        Cells by model and column, with the printed intervals and marks; None where the paper has a dash.

    Raises
    ------
    SpecError
        If the paper has no such table ("unknown-name").

    Examples
    --------
    >>> str(published_table("table3")["UBM"]["ood PPL"])
    '*1.3413 ± .0011'
    """
    tables = [key for key in _published() if key != "slips"]
    if name not in tables:
        raise SpecError(
            f"{name!r} is not a table of the policy-shift paper. Choose one of: {', '.join(tables)}.",
            code="unknown-name",
            name=name,
            known=tables,
        )
    table = _published()[name]
    return {
        model: dict(zip(table["columns"], map(_cell, cells), strict=True)) for model, cells in table["rows"].items()
    }


def published_slips(name: str) -> list[Slip]:
    """Return the typing errors of a published table.

    Parameters
    ----------
    name
        "table1" to "table8".

    Returns
    -------
    list of Slip
        The cells, with the reason.

    Examples
    --------
    >>> [slip.model for slip in published_slips("table1")]
    ['TopPopObs', 'TopPop', 'drCTR', 'PBM', 'NCM']
    """
    return [Slip(**slip) for slip in _published()["slips"] if slip["table"] == name]


def _cell(text: str) -> Measured | None:
    """Read a printed cell, such as "=1.3414±0.0010"; None for an empty one."""
    if not text:
        return None
    match = _CELL.fullmatch(text)
    assert match is not None, text
    standing = cast("Standing", _STANDINGS[match["standing"]])
    half = math.nan if match["half"] is None else float(match["half"])
    return Measured(float(match["mean"]), half, standing, match["dagger"] is not None, match["open"] is not None)


@dataclass(frozen=True, repr=False)
class PublishedTable(ExperimentResult):
    """A published table whose data are not part of the package, and how to compute it from a log of one's own.

    Parameters
    ----------
    task_rows
        One row per printed number.
    settings, failures
        None.
    name
        Name of the table, e.g. "table2".
    shows
        What the table shows.
    command
        Command that computes it from the log.
    needs
        What is needed for it: paragraphs, separated by empty lines.

    Notes
    -----
    Facts (`to_dict`, `--json`): `conclusion`; `command`; `rows`, one per printed number: `model`, `metric`,
    `published`, `half` (half the width of the 95 % interval), `mark` ("best", "=" for not significantly worse, or ""),
    `dagger` (not significantly worse than ARM NC) and `slip`, the reason why the number cannot be right, if it cannot;
    `failures`, which is empty.
    """

    name: str = ""
    shows: str = ""
    command: str = ""
    needs: str = ""

    @classmethod
    def of(cls, name: str, *, shows: str, command: str, needs: str) -> PublishedTable:
        """Return the table of a name, "table1" to "table8"."""
        slips = {(slip.model, slip.column): slip.why for slip in published_slips(name)}
        rows: Rows = [
            {
                "model": model,
                "metric": column,
                "published": cell.mean,
                "half": None if math.isnan(cell.half) else cell.half,
                "mark": cell.standing,
                "dagger": cell.dagger,
                "slip": slips.get((model, column)),
            }
            for model, cells in published_table(name).items()
            for column, cell in cells.items()
            if cell is not None
        ]
        return cls(rows, name=name, shows=shows, command=command, needs=needs)

    def _answer(self) -> str:
        number = self.name.removeprefix("table")
        return (
            f"Table {number} of the policy-shift paper as printed ({self.shows}). The log is not part of the package."
            f"\n\nOn your log: {self.command}"
        )

    def facts(self) -> Mapping[str, Any]:
        """Return the conclusion, the command, the rows and no failures."""
        return {**super().facts(), "command": self.command}

    def _document(self) -> Document:
        table = [{"model": model, **cells} for model, cells in published_table(self.name).items()]
        slips = [{"model": slip.model, "metric": slip.column, "why": slip.why} for slip in published_slips(self.name)]
        title = f"Table {self.name.removeprefix('table')} of the policy-shift paper"
        marks = "* the best, = not significantly worse, † a click model not significantly worse than ARM NC"
        headline = Section(title, table=table, figure=self._figure, caption=marks)
        sections = [Section("What it needs", self.needs)]
        if slips:
            sections.insert(0, Section("Printed numbers that cannot be right", table=slips))
        data = "Numbers as the paper printed them, with 95 % intervals over ten seeds where it has them."
        return Document(title, self.conclusion, sections, data=data, headline=headline)

    def _figure(self) -> Any:
        """Plot the first column of the table, the best model first."""
        column = _published()[self.name]["columns"][0]
        lower = "PPL" in column or "perplexity" in column.lower()
        own = [row for row in self.task_rows if row["metric"] == column]
        dots = [
            {"label": row["model"], "value": row["published"]}
            | {"low": None if row["half"] is None else row["published"] - row["half"]}
            | {"high": None if row["half"] is None else row["published"] + row["half"]}
            for row in sorted(own, key=lambda row: row["published"], reverse=not lower)
        ]
        return dot_plot(dots, axis=f"{column}, {'lower' if lower else 'higher'} is better")


class Difference(NamedTuple):
    """One number of tables 3 and 4, published and ours."""

    model: str
    metric: str
    published: Measured
    ours: Measured
    verdict: str

    @property
    def agrees(self) -> bool:
        """Whether the intervals leave no difference."""
        return self.verdict == "agrees"


def published_differences(rows: Sequence[Row], user: str, *, corpus: str = BUILTIN) -> list[Difference]:
    """Compare rows of section 6.1 with the paper's table 3 (DBN users) or 4 (CoCM users).

    Parameters
    ----------
    rows
        Rows of the policy-shift protocol.
    user
        "DBN" or "CoCM".
    corpus
        Name or path of the corpus of the rows.

    Returns
    -------
    list of Difference
        One per printed number that the rows have, with "agrees", or "differs because" and the reason.
    """
    table = published_table(_TABLE_OF_USER[user])
    ours = _our_table(rows, user)
    if ORACLE not in ours:
        return []
    return [
        Difference(model, column, cell, ours[model][column], _verdict(table, ours, model, column, corpus))
        for model, cells in table.items()
        for column, cell in cells.items()
        if cell is not None and column in ours.get(model, {})
    ]


def _our_table(rows: Sequence[Row], user: str) -> dict[str, dict[str, Measured]]:
    """Return our means over seeds of the columns of tables 3 and 4, by model; without an ood log, nothing."""
    own = [row for row in rows if (row.get("user"), row.get("training")) == (user, SECTION_6_1)]
    clicks = rows_of_kind(own, "clicks")
    peeking = {text_of(row, "model") for row in own if row.get("role") == "peeking"}
    columns = {
        IND_PPL: metric_by_seed([row for row in clicks if row.get("shift") == "ind"], "perplexity"),
        NDCG_3: metric_by_seed(rows_of_kind(own, "ranking"), NDCG_3),
        OOD_PPL: metric_by_seed([row for row in clicks if row.get("shift") != "ind"], "perplexity"),
    }
    found: dict[str, dict[str, Measured]] = {}
    for column, by_model in columns.items():
        for model, seeds in by_model.items():
            aside = model in peeking and column != NDCG_3
            found.setdefault(model, {})[column] = measured(list(seeds.values()), aside=aside)
    return {model: cells for model, cells in found.items() if OOD_PPL in cells}


def _half(value: Measured) -> float:
    """Return half the width of an interval; 0 where it is not known."""
    return 0.0 if math.isnan(value.half) else value.half


def _verdict(
    table: Mapping[str, Mapping[str, Measured | None]],
    ours: Mapping[str, Mapping[str, Measured]],
    model: str,
    column: str,
    corpus: str,
) -> str:
    """Say whether a number agrees with the published one, and where a difference comes from."""
    published, own = table[model][column], ours[model][column]
    assert published is not None
    if abs(own.mean - published.mean) <= math.hypot(_half(own), _half(published)) + 5e-5:
        return "agrees"
    where = "of the corpus" if corpus == BUILTIN else "of the queries"
    where += " or the reading of CoCM" if table == published_table("table4") else ""
    if column == NDCG_3:
        return f"differs because {where}" + ("" if model in _COUNTED else " or of training")
    oracle = table[ORACLE][column]
    assert oracle is not None
    of_oracle = ours[ORACLE][column].mean - oracle.mean
    beyond = own.mean - published.mean - of_oracle
    text = f"differs because {where} (oracle {of_oracle:+.4f})"
    return text if model == ORACLE or abs(beyond) <= _CLOSE else f"{text}; beyond the oracle {beyond:+.4f}"


def published_sections(rows: Sequence[Row], corpus: str) -> list[Section]:
    """Make a section that puts each of tables 3 and 4 beside ours, where the rows have them."""
    sections = []
    for name, differences in _by_table(rows, corpus).items():
        by_model: dict[str, dict[str, Any]] = {}
        for one in differences:
            line = by_model.setdefault(one.model, {"model": one.model})
            line |= {one.metric: one.ours, f"{one.metric} published": one.published}
        columns = dict.fromkeys(column for line in by_model.values() for column in line)
        table = [{column: line.get(column) for column in columns} for line in by_model.values()]
        lines = [
            {
                "model": one.model,
                "metric": one.metric,
                "published": one.published,
                "ours": one.ours,
                "difference": Measured(one.ours.mean - one.published.mean, signed=True),
                "verdict": one.verdict,
            }
            for one in differences
        ]
        title = f"Table {name.removeprefix('table')} of the paper, and ours"
        parts = [
            Section(f"Differences from {name.replace('table', 'table ')}", table=lines, name=f"{name} differences")
        ]
        slips = [{"model": s.model, "metric": s.column, "why": s.why} for s in published_slips(name)]
        if slips:
            parts.append(Section("Printed numbers that cannot be right", table=slips, name=f"{name} slips"))
        figure = partial(published_figure, differences)
        caption = f"Perplexity on lists of other rankers (ood); lower is better. {' '.join(_HOW.split())}"
        sections.append(Section(title, "", table, figure, parts=parts, caption=caption, name=name))
    return sections


def published_conclusion(rows: Sequence[Row], corpus: str) -> str:
    """Say how many numbers of tables 3 and 4 agree and whether the order of models does; empty without the rows."""
    texts = []
    for name, differences in _by_table(rows, corpus).items():
        agreeing = sum(one.agrees for one in differences)
        number = name.removeprefix("table")
        texts.append(
            f"{order_sentence(differences)}\n\n{agreeing} of {len(differences)} numbers of table {number} agree within "
            f"their intervals. {_oracle_sentence(differences)}".rstrip()
        )
    return "\n\n".join(texts)


def published_verdict(rows: Sequence[Row], corpus: str) -> str:
    """Return "agrees" if all numbers of tables 3 and 4 that the rows have agree, else "differs"; empty without them."""
    found = [one for differences in _by_table(rows, corpus).values() for one in differences]
    return "" if not found else "agrees" if all(one.agrees for one in found) else "differs"


def _by_table(rows: Sequence[Row], corpus: str) -> dict[str, list[Difference]]:
    """Return the differences by table, where the rows have it."""
    found = {name: published_differences(rows, user, corpus=corpus) for user, name in _TABLE_OF_USER.items()}
    return {name: differences for name, differences in found.items() if differences}


def _oracle_sentence(differences: Sequence[Difference]) -> str:
    """Say that all models differ where the user's own model does; empty where it agrees."""
    oracle = next((one for one in differences if (one.model, one.metric) == (ORACLE, OOD_PPL)), None)
    if oracle is None or oracle.agrees:
        return ""
    return (
        "All models differ because the queries do: the ood perplexity of the user's own model, which nothing can beat, "
        f"differs by {oracle.ours.mean - oracle.published.mean:+.3f}. What differs beyond that is in the table."
    )


def published_figure(differences: Sequence[Difference]) -> Any:
    """Plot ood perplexity of each model, published and ours, the best published model first."""
    ood = sorted((one for one in differences if one.metric == OOD_PPL), key=lambda one: one.published.mean)
    dots = []
    for source in ("ours", PUBLISHED):
        for one in ood:
            value = one.ours if source == "ours" else one.published
            half = _half(value)
            dots.append(
                {"label": one.model, "value": value.mean, "from": source}
                | {"low": value.mean - half, "high": value.mean + half}
            )
    return grouped_dots(dots, axis="ood perplexity", group="from")


def order_sentence(differences: Sequence[Difference]) -> str:
    """Say for how many pairs of models the published order by ood perplexity is ours, where the paper's is certain.

    Parameters
    ----------
    differences
        What `published_differences` returns.

    Returns
    -------
    str
        A sentence, with the pairs whose order is reversed.
    """
    ood = {one.model: one for one in differences if one.metric == OOD_PPL and one.model != ORACLE}
    kept, reversed_pairs = 0, []
    for a, b in combinations(ood.values(), 2):
        low, high = sorted((a, b), key=lambda one: one.published.mean)
        if high.published.mean - low.published.mean <= math.hypot(_half(high.published), _half(low.published)):
            continue
        if low.ours.mean < high.ours.mean:
            kept += 1
        else:
            reversed_pairs.append(f"{low.model} < {high.model}")
    total = kept + len(reversed_pairs)
    reverse = f" Reversed: {', '.join(reversed_pairs)}." if reversed_pairs else ""
    return f"The published order by ood perplexity holds for {kept} of {total} pairs of models.{reverse}"
