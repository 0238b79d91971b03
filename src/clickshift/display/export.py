"""Export of tables and figures for papers and spreadsheets: CSV and LaTeX, SVG and PNG."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clickshift.core.files import write_atomically
from clickshift.core.text import printable
from clickshift.display._chrome import BrowserError, NoBrowserError, draw
from clickshift.display.tables import Row
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
    """The files that an export wrote.

    Parameters
    ----------
    files
        Written files.
    note
        Why figures were not written; empty if they were.
    no_browser
        Whether that is because no browser is installed.
    """

    files: tuple[Path, ...]
    note: str = ""
    no_browser: bool = False


def write_exports(folder: str | Path, tables: Mapping[str, Sequence[Row]], figures: Mapping[str, Any]) -> Exports:
    """Write each table as name.csv and name.tex, and each figure as name.svg and name.png.

    Parameters
    ----------
    folder
        Folder for the files.
    tables
        Tables by name: rows with equal keys.
    figures
        Plotly figures by name; they are written only if Chromium or Chrome is installed.

    Returns
    -------
    Exports
        The written files, and a note if figures could not be written.
    """
    folder, files, note, no_browser = Path(folder), [], "", False
    names = _file_names([*tables, *figures])
    for name, table in tables.items():
        for ending, text in ((".csv", csv_text), (".tex", latex_text)):
            files.append(_write(folder / f"{names[name]}{ending}", text(table).encode()))
    try:
        rendered = draw(figures) if figures else {}
    except BrowserError as error:
        rendered, note = {}, f"The charts were not written as images: {error}."
        no_browser = isinstance(error, NoBrowserError)
    for name, image in rendered.items():
        files.append(_write(folder / f"{names[name]}.svg", image.svg))
        files.append(_write(folder / f"{names[name]}.png", image.png))
    return Exports(tuple(files), note, no_browser)


def csv_text(table: Sequence[Row]) -> str:
    """Format a table as CSV; columns of measured values are followed by the interval's half-width and the marks.

    A text that a spreadsheet would take for a formula, because it begins with = + - or @, gets an apostrophe before it;
    numbers stay numbers. Control characters are escaped.

    Parameters
    ----------
    table
        Rows with equal keys.

    Returns
    -------
    str
        The CSV text.

    Examples
    --------
    >>> print(csv_text([{"model": "PBM", "ind": Measured(1.5, 0.25, "=")}]))
    model,ind,ind ±,ind mark
    PBM,1.5,0.25,not worse than the best
    <BLANKLINE>
    """
    import io

    text = io.StringIO()
    measured = {name: [row[name] for row in table if isinstance(row[name], Measured)] for name in _columns(table)}
    head, lines = [], [[] for _ in table]  # type: tuple[list[str], list[list[Any]]]
    for name, cells in measured.items():
        head.append(name)
        for line, row in zip(lines, table, strict=True):
            line.append(_exact(row[name].mean if isinstance(row[name], Measured) else row[name]))
        if any(not math.isnan(value.half) for value in cells):
            head.append(f"{name} ±")
            for line, row in zip(lines, table, strict=True):
                line.append(_exact(row[name].half) if isinstance(row[name], Measured) else None)
        if any(_mark(value) for value in cells):
            head.append(f"{name} mark")
            for line, row in zip(lines, table, strict=True):
                line.append(_mark(row[name]) if isinstance(row[name], Measured) else None)
    safe = [[_no_formula(cell) for cell in line] for line in [head, *lines]]
    csv.writer(text, lineterminator="\n").writerows(safe)
    return text.getvalue()


def _no_formula(cell: Any) -> Any:
    """Put an apostrophe before a text that a spreadsheet would evaluate: ids of a log may be written by anyone."""
    if not isinstance(cell, str):
        return cell
    cell = printable(cell)  # the csv module does not quote a carriage return, which would begin another row
    if not cell.startswith(("=", "+", "-", "@")):
        return cell
    return cell if re.fullmatch(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?", cell) else f"'{cell}"


def latex_text(table: Sequence[Row]) -> str:
    r"""Format a table as a LaTeX tabular for the package booktabs; the best value of a column is bold.

    Parameters
    ----------
    table
        Rows with equal keys.

    Returns
    -------
    str
        The LaTeX text.

    Examples
    --------
    >>> print(latex_text([{"model": "PBM", "perplexity": Measured(1.5, standing="best")}]))
    \begin{tabular}{lr}
    \toprule
    model & perplexity \\
    \midrule
    PBM & \textbf{1.5000} \\
    \bottomrule
    \end{tabular}
    <BLANKLINE>
    """
    names = _columns(table)
    align = "".join("r" if all(_is_number(row[name]) for row in table) else "l" for name in names)
    head = " & ".join(_escape_latex(name) for name in names)
    lines = [" & ".join(_latex(row[name]) for name in names) for row in table]
    body = "\n".join(f"{line} \\\\" for line in lines)
    return f"\\begin{{tabular}}{{{align}}}\n\\toprule\n{head} \\\\\n\\midrule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"


def _escape_latex(text: str) -> str:
    """Escape the characters that LaTeX interprets.

    >>> _escape_latex("50 % of a_b")
    '50 \\\\% of a\\\\_b'
    """
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _latex(value: Any) -> str:
    """Format a value of a table for LaTeX."""
    if not isinstance(value, Measured):
        return _escape_latex("" if value is None else decimal(value) if isinstance(value, float) else str(value))
    number = f"${value.number}$" if value.number != "–" else "--"
    number = f"\\textbf{{{value.number}}}" if value.standing == "best" else number
    mark = "$^{\\dagger}$" * value.dagger + "$^{=}$" * (value.standing == "=")
    text = f"{mark}{number} {_escape_latex(value.spread)}".rstrip()
    return f"({text})" if value.aside else text


def _columns(table: Sequence[Row]) -> list[str]:
    """Return the column names of a table."""
    return [str(name) for name in table[0]] if table else []


def _mark(value: Measured) -> str:
    """Spell out the comparison marks of a value."""
    marks = {"best": "best", "=": "not worse than the best", "": ""}[value.standing]
    dagger = "not worse than the peeking model" if value.dagger else ""
    return "; ".join(filter(None, (marks, dagger, "not compared" if value.aside else "")))


def _exact(value: Any) -> Any:
    """Return a value as CSV writes it: empty for NaN."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _is_number(value: Any) -> bool:
    """Return whether a value is right-aligned."""
    return value is None or isinstance(value, int | float | Measured)


def _file_names(names: Iterable[str]) -> dict[str, str]:
    """Return file names that are valid on every system, and different for different names."""
    file_names: dict[str, str] = {}
    for name in names:
        base = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.").lower() or "unnamed"
        taken, number, candidate = set(file_names.values()), 1, base
        while candidate in taken:
            number += 1
            candidate = f"{base}-{number}"
        file_names.setdefault(name, candidate)
    return file_names


def _write(path: Path, content: bytes) -> Path:
    """Write a file, and return its path."""
    with write_atomically(path) as temporary:
        temporary.write_bytes(content)
    return path


@dataclass(frozen=True)
class Written:
    """Paths of what a result wrote.

    Parameters
    ----------
    page
        The HTML page.
    rows
        The file of tidy rows.
    files
        Other files: exported tables and figures, or the file that was asked for.
    notes
        Sentences about what was not written.
    exports
        Folder of the exported tables and figures.
    """

    page: Path | None = None
    rows: Path | None = None
    files: tuple[Path, ...] = ()
    notes: list[str] = field(default_factory=list)
    exports: Path | None = None
