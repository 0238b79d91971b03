"""Make the pictures of the tutorials: run each page's own commands, and keep the figures that it shows.

    .venv/bin/python docs/site/pictures.py [PAGE ...]

A page names the exported file above a picture: ``<!-- from: FOLDER/exports/FIGURE.svg -->``. This needs Chromium or
Chrome, as the export of figures does.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).parents[1]
PICTURE = re.compile(r"^<!-- from: (\S+) -->\n!\[[^\]]*\]\((\S+?)\)", flags=re.MULTILINE)
COMMAND = re.compile(r"^\$ clickshift (.*)$", flags=re.MULTILINE)


def make(page: Path) -> None:
    """Run the commands of a page in an empty folder, and copy the figures that it names."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for command in COMMAND.findall(text):
            program = [sys.executable, "-c", "from clickshift.cli import main; main()", *shlex.split(command)]
            subprocess.run(program, cwd=folder, check=True, capture_output=True)
        for exported, shown in PICTURE.findall(text):
            picture = (Path(folder) / exported).read_text(encoding="utf-8")
            (page.parent / shown).resolve().write_text(smaller(picture), encoding="utf-8")
            print(f"{page.name}: {shown}")


def smaller(svg: str) -> str:
    """Round coordinates to two digits: more are not seen."""
    return re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number.group()):.2f}", svg)


if __name__ == "__main__":
    pages = [Path(argument) for argument in sys.argv[1:]]
    for page in pages or sorted((DOCS / "tutorials").glob("*.md")):
        make(page)
