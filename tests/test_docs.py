"""The how-to pages and tutorials are true: their commands run, in order, and print what the pages show.

Words must be equal. Numbers must agree: whole numbers to 1 %, others to 2 units of the last digit that the page shows
or to 2 %, whichever is more, because compilers and numeric libraries change last digits. Seconds may differ.

Trees of LightGBM differ between processors (two machines gave an nDCG of .6047 and .6280 from the same log). Blocks
whose numbers come from such trees are marked on the page, and their decimals must agree to .06 or to 15 %.
"""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clickshift.cli import main
from clickshift.models import MODELS
from tests.cli.shell import cells_here

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page
    for folder in ("how-to", "tutorials")
    for page in (ROOT / "docs" / folder).glob("*.md")
    if page.name != "index.md"
)


TREES = "<!-- the numbers depend on the processor -->\n"
"""Mark of a block whose numbers come from trees of LightGBM."""


def commands(page: str) -> Iterator[tuple[str, list[str], bool]]:
    """Each command of the page's ```console blocks, with the output shown below it and whether trees made it."""
    for mark, block in re.findall(rf"^({TREES})?```console\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            yield command, [line for line in shown if line.strip()], bool(mark)


def run(command: str, capfd: pytest.CaptureFixture[str]) -> str:
    """What a command prints. clickshift is this interpreter's, whatever is installed elsewhere."""
    program, *arguments = shlex.split(command)
    capfd.readouterr()
    if program == "clickshift":
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        code = stop.value.code
    elif program == "python":
        known = dict(MODELS)
        runpy.run_path(arguments[0], run_name="__main__")  # here, where all is imported
        for name in MODELS.keys() - known.keys():
            del MODELS[name]
        code = 0
    else:
        code = subprocess.run([program, *arguments], timeout=300).returncode
    out, err = capfd.readouterr()
    assert code == 0, f"{command}: {err}"
    return out


NUMBER = re.compile(r"(?:(?<![\w.,])[-+−])?(?:\d[\d,]*\.?\d*|\.\d+)")
FREE = re.compile(r"(\d[\d.,]*)(?= ?(?:s|ms|MB|GB)\b)|(?<=seconds )[\d.,]+|(?:\d+:)?\d\d:\d\d")
"""Numbers that are never the same twice: times of day, seconds, and sizes of files."""


def shape(text: str) -> str:
    """Text without its numbers and the room that they take."""
    return re.sub(r"\s+", " ", NUMBER.sub("#", FREE.sub("#", text))).strip()


def numbers(text: str) -> list[str]:
    """Numbers of a text in their order, without those that are free to differ."""
    return NUMBER.findall(FREE.sub("", text))


def agree(shown: str, printed: str, *, trees: bool = False) -> bool:
    """Whether a printed number is the one that a page shows, within its tolerance."""
    page, real = (float(text.replace(",", "").replace("−", "-")) for text in (shown, printed))
    decimals = len(shown.partition(".")[2])
    if not decimals:
        return abs(page - real) <= abs(page) * 0.01
    absolute, relative = (0.06, 0.15) if trees else (2 * 10.0**-decimals, 0.02)
    return abs(page - real) <= max(absolute, abs(page) * relative)


def differences(shown: str, printed: str, *, trees: bool = False) -> list[str] | None:
    """Numbers of a shown line that no printed line of the same words has; None if no line has the words.

    The printed line whose numbers agree best counts, as tables have many lines of the same words.
    """
    lines = [line for line in [*printed.splitlines(), printed] if shape(shown) in shape(line)]
    best: list[str] | None = None
    for line in lines:
        for start in range(len(numbers(line)) - len(numbers(shown)) + 1):
            pairs = zip(numbers(shown), numbers(line)[start:], strict=False)
            wrong = [f"{page} (printed: {real})" for page, real in pairs if not agree(page, real, trees=trees)]
            best = wrong if best is None or len(wrong) < len(best) else best
    return best


def test_there_are_pages() -> None:
    assert {"from-clicks-to-judgments.md", "add-a-click-model.md"} <= {page.name for page in PAGES}


def test_the_benchmarks_in_the_readme_are_those_of_the_results() -> None:
    program = ROOT / "benchmarks" / "summary.py"
    assert subprocess.run([sys.executable, program, "--check"], timeout=60).returncode == 0


def test_a_click_model_takes_less_than_forty_lines() -> None:
    page = (ROOT / "docs" / "how-to" / "add-a-click-model.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    assert len(program.splitlines()) < 40


@pytest.mark.page
@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_commands_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    if page.stem != "run-on-a-cluster":  # whose run is in processes, as a user's is
        cells_here(monkeypatch)
    text = page.read_text(encoding="utf-8")
    for name, program in re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        (tmp_path / name).write_text(program)
    found = list(commands(text))
    assert found, "a how-to without commands is a story"
    for command, shown, trees in found:
        printed = run(command, capfd)
        for line in shown:
            wrong = differences(line, printed, trees=trees)
            assert wrong is not None, f"{command} does not print {line!r}"
            assert not wrong, f"{command} prints other numbers than {line!r}: {', '.join(wrong)}"


def test_a_page_that_is_wrong_is_caught() -> None:
    page = "```console\n$ clickshift models\n│ XYZ 12 │\n$ clickshift nothing\n```\n```python\n$ no\n```\n"
    assert list(commands(page)) == [("clickshift models", ["│ XYZ 12 │"], False), ("clickshift nothing", [], False)]
    assert list(commands(f"{TREES}```console\n$ clickshift models\n```\n")) == [("clickshift models", [], True)]
    assert shape("│ cut points │ 0.05  1,234.5 │") == "│ cut points │ # # │"
    table = "│ PBM │ 0.0311 [0.0171, 0.0451] │ 12 s │\n│ DBN │ 0.1749 [0.1335, 0.2164] │ 9 s │\n"
    assert differences("│ PBM │ 0.0312 [0.0170, 0.0451] │ 30 s │", table) == []
    assert differences("│ PBM │ 0.0121 [0.0171, 0.0451] │ 12 s │", table) == ["0.0121 (printed: 0.0311)"]
    assert differences("│ UBM │ 0.0311 [0.0171, 0.0451] │ 12 s │", table) is None
    assert differences("-0.5", "0.5") == ["-0.5 (printed: 0.5)"]
    assert agree("1,200", "1,211")
    assert not agree("1,200", "1,230")
    assert agree("0.6047", "0.6280", trees=True)
    assert not agree("0.6047", "0.6280")
    assert not agree("0.3073", "0.3700", trees=True)
    assert not agree("97", "90", trees=True)
