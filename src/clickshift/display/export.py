"""Tables and charts as files for papers and spreadsheets: CSV and LaTeX, PNG and SVG."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clickshift.core.files import write_atomically
from clickshift.display._chrome import BrowserError, draw
from clickshift.display.tables import Row, Rows
from clickshift.display.values import Measured, decimal

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "†": r"$\dagger$",
    "–": "--",
    "→": r"$\rightarrow$",
    "−": "$-$",
}


@dataclass(frozen=True)
class Exports:
    """What was written, and a note on what could not be."""

    files: tuple[Path, ...]
    note: str = ""


def write_exports(folder: str | Path, tables: Mapping[str, Sequence[Row]], figures: Mapping[str, Any]) -> Exports:
    """Each table as name.csv and name.tex, each Plotly figure as name.svg and name.png where a browser can draw it."""
    folder, files, note = Path(folder), [], ""
    names = _file_names([*tables, *figures])
    for name, table in tables.items():
        for ending, text in ((".csv", csv_text), (".tex", latex_text)):
            files.append(_write(folder / f"{names[name]}{ending}", text(table).encode()))
    try:
        pictures = draw(figures) if figures else {}
    except BrowserError as problem:
        pictures, note = {}, f"The charts were not written as pictures: {problem}."
    for name, picture in pictures.items():
        files.append(_write(folder / f"{names[name]}.svg", picture.svg))
        files.append(_write(folder / f"{names[name]}.png", picture.png))
    return Exports(tuple(files), note)


def csv_text(table: Sequence[Row]) -> str:
    """One column per column of the table; beside measured ones, half the width of the interval, and how it stands.

    >>> print(csv_text([{"model": "PBM", "ind": Measured(1.5, 0.25, "=")}]))
    model,ind,ind ±,ind mark
    PBM,1.5,0.25,not worse than the best
    <BLANKLINE>
    """
    import io

    text = io.StringIO()
    measured = {name: [row[name] for row in table if isinstance(row[name], Measured)] for name in _columns(table)}
    head, lines = [], [[] for _ in table]  # type: tuple[list[str], list[list[Any]]]
    for name, found in measured.items():
        head.append(name)
        for line, row in zip(lines, table, strict=True):
            line.append(_exact(row[name].mean if isinstance(row[name], Measured) else row[name]))
        if any(not math.isnan(value.half) for value in found):
            head.append(f"{name} ±")
            for line, row in zip(lines, table, strict=True):
                line.append(_exact(row[name].half) if isinstance(row[name], Measured) else None)
        if any(_mark(value) for value in found):
            head.append(f"{name} mark")
            for line, row in zip(lines, table, strict=True):
                line.append(_mark(row[name]) if isinstance(row[name], Measured) else None)
    csv.writer(text, lineterminator="\n").writerows([head, *lines])
    return text.getvalue()


def latex_text(table: Sequence[Row]) -> str:
    """A tabular in the style of the package booktabs; the best is bold."""
    names = _columns(table)
    align = "".join("r" if all(_is_number(row[name]) for row in table) else "l" for name in names)
    head = " & ".join(_escape_latex(name) for name in names)
    lines = [" & ".join(_latex(row[name]) for name in names) for row in table]
    body = "\n".join(f"{line} \\\\" for line in lines)
    return f"\\begin{{tabular}}{{{align}}}\n\\toprule\n{head} \\\\\n\\midrule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"


def _escape_latex(text: str) -> str:
    """Text that LaTeX shows as it is.

    >>> escape_latex("50 % of a_b")
    '50 \\\\% of a\\\\_b'
    """
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _latex(value: Any) -> str:
    if not isinstance(value, Measured):
        return _escape_latex("" if value is None else decimal(value) if isinstance(value, float) else str(value))
    number = f"${value.number}$" if value.number != "–" else "--"
    number = f"\\textbf{{{value.number}}}" if value.standing == "best" else number
    mark = "$^{\\dagger}$" * value.dagger + "$^{=}$" * (value.standing == "=")
    text = f"{mark}{number} {_escape_latex(value.spread)}".rstrip()
    return f"({text})" if value.aside else text


def _columns(table: Sequence[Row]) -> list[str]:
    return [str(name) for name in table[0]] if table else []


def _mark(value: Measured) -> str:
    marks = {"best": "best", "=": "not worse than the best", "": ""}[value.standing]
    dagger = "not worse than the model that peeks" if value.dagger else ""
    return "; ".join(filter(None, (marks, dagger, "not compared" if value.aside else "")))


def _exact(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, int | float | Measured)


def _file_names(names: Iterable[str]) -> dict[str, str]:
    """Safe on every system, and different for different names."""
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.").lower() or "unnamed"
        taken, number, free = set(found.values()), 1, plain
        while free in taken:
            number += 1
            free = f"{plain}-{number}"
        found.setdefault(name, free)
    return found


def _write(path: Path, content: bytes) -> Path:
    with write_atomically(path) as temporary:
        temporary.write_bytes(content)
    return path


@dataclass(frozen=True)
class Written:
    """Where a report is, and what of it a terminal shows."""

    page: Path
    rows: Path
    files: tuple[Path, ...]
    verdicts: list[dict[str, str]]
    tables: dict[str, Rows]
    notes: list[str]
