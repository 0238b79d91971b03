"""The README's benchmark figure and table, made from the committed results: nothing in them is typed by hand.

python benchmarks/summary.py             # writes docs/benchmarks.svg and the README's section
python benchmarks/summary.py --check     # says whether they are up to date
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

HERE = Path(__file__).resolve().parent
README, FIGURE = HERE.parent / "README.md", HERE.parent / "docs" / "benchmarks.svg"
START, END = "<!-- benchmarks: made by benchmarks/summary.py -->", "<!-- end of benchmarks -->"
WIDTH, LEFT, BAR, GAP = 720, 210, 16, 8
COLOURS = {
    "CLAX": "#2f6db3",
    "OBP": "#b3532f",
    "CMIP": "#7a5aa6",
    "PyTorch": "#4c8c4a",
    "PyTorch, rankers": "#8a8c2f",
}


class Bar(NamedTuple):
    peer: str
    what: str
    ratio: float
    spread: tuple[float, float] | None
    """The least and most over repeats."""


def results(name: str) -> Any:
    return json.loads((HERE / "results" / f"{name}.json").read_text())


def bar(peer: str, what: str, row: Any) -> Bar:
    low, high = row.get("ratio_range", (None, None))
    return Bar(peer, what, row["ratio"], None if low is None else (low, high))


def bars() -> list[Bar]:
    clax = results("clax")["models"].items()
    cmip = results("cmip")["evaluation"]["against"]
    neural = results("neural")["models"].items()
    rankers = results("pointwise_torch")["sets"].items()
    return [
        *(bar("CLAX", name, model) for name, model in clax if model.get("reached_best_validation")),
        bar("OBP", f"slate estimators, {largest_log()['slates']:,}", largest_log()),
        *(bar("CMIP", f"{row['rows']:,} rows, truth {row['truth']:.2f}", row) for row in cmip),
        *(bar("PyTorch", name, model["best"]) for name, model in neural),
        *(
            bar("PyTorch, rankers", f"{name}, {loss}", row)
            for name, of in rankers
            for loss, row in of["losses"].items()
        ),
    ]


def largest_log() -> Any:
    return max(results("ope")["peer"]["rows"], key=lambda row: row["slates"])


def figure(found: list[Bar]) -> str:
    """Bars on a logarithmic scale, from 1 time to 1,000 times faster, with the spread over repeats as a line."""
    height = 46 + len(found) * (BAR + GAP)
    scale = (WIDTH - LEFT - 60) / 3
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"',
        ' font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for power in range(4):
        x = LEFT + power * scale
        lines.append(f'<line x1="{x:.0f}" y1="24" x2="{x:.0f}" y2="{height - 8}" stroke="#ddd"/>')
        lines.append(f'<text x="{x:.0f}" y="16" text-anchor="middle" fill="#555">{10**power:,}x</text>')
    for k, bar in enumerate(found):
        y = 30 + k * (BAR + GAP)
        width = max(math.log10(max(bar.ratio, 1.0)) * scale, 1)
        name, end = escape(f"{bar.peer}: {bar.what}"), LEFT + width
        lines.append(f'<text x="{LEFT - 6}" y="{y + 12}" text-anchor="end" fill="#222">{name}</text>')
        lines.append(f'<rect x="{LEFT}" y="{y}" width="{width:.0f}" height="{BAR}" fill="{COLOURS[bar.peer]}"/>')
        if bar.spread:
            low, high = (LEFT + math.log10(max(ratio, 1.0)) * scale for ratio in bar.spread)
            middle, end = y + BAR / 2, max(end, high)
            lines.append(f'<line x1="{low:.0f}" y1="{middle}" x2="{high:.0f}" y2="{middle}" stroke="#222"/>')
        lines.append(f'<text x="{end + 4:.0f}" y="{y + 12}" fill="#222">{_ratio(bar.ratio)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def section(found: list[Bar]) -> str:
    def spread(peer: str) -> str:
        ratios = [bar.ratio for bar in found if bar.peer == peer]
        return f"{_ratio(min(ratios))} to {_ratio(max(ratios))}" if len(ratios) > 1 else _ratio(ratios[0])

    def count(peer: str) -> int:
        return sum(bar.peer == peer for bar in found)

    slates = f"{largest_log()['slates']:,}"
    rows = [
        (f"CLAX, {count('CLAX')} click models, one million sessions, to its best perplexity", spread("CLAX")),
        (f"Open Bandit Pipeline, slate estimators with intervals, {slates} slates", spread("OBP")),
        ("cmip-metric, one evaluation, at a smaller error", spread("CMIP")),
        (
            f"PyTorch (fused Adam, best batch), {count('PyTorch')} neural models, ten seeds, to its loss",
            spread("PyTorch"),
        ),
        ("PyTorch (as published), rankers of the IPS paper, ten seeds, per round", spread("PyTorch, rankers")),
    ]
    lines = ["| faster than | ratio of time |", "|---|---|", *(f"| {what} | {ratio} |" for what, ratio in rows)]
    if (HERE / "results" / "scale.json").exists():
        row = max(results("scale")["rows"], key=lambda row: row["sessions"])
        parts = [("encoding", row["encode"]), *row["models"].items()]
        memory = max(part["own_mb"] for _, part in parts) / 1024
        seconds = ", ".join(f"{name} {part['seconds']:.0f} s" for name, part in parts)
        lines += [
            "",
            f"{row['sessions']:,} sessions of ten results from Parquet with text ids, on two cores: {seconds}; "
            f"at most {memory:.1f} GB of memory. Only reading them takes {row['read']['seconds']:.0f} s.",
        ]
    picture = "![How many times faster than CLAX, Open Bandit Pipeline, cmip-metric and PyTorch](docs/benchmarks.svg)"
    return "\n".join([START, "", *lines, "", picture, "", END])


def _ratio(ratio: float) -> str:
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.1f}x"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where something is out of date")
    args = parser.parse_args()
    found, text = bars(), README.read_text(encoding="utf-8")
    before, rest = text.split(START)
    wanted = {README: before + section(found) + rest.split(END)[1], FIGURE: figure(found)}
    old = [path for path, content in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != content]
    if args.check:
        sys.exit(f"out of date: {', '.join(path.name for path in old)}. Run benchmarks/summary.py." if old else 0)
    for path in old:
        path.write_text(wanted[path], encoding="utf-8")


if __name__ == "__main__":
    main()
