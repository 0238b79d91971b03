"""The design page names the packages, layers and files that there are, and every public object shows an example."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import clickshift

ROOT = Path(clickshift.__file__).parent
REPOSITORY = Path(__file__).parents[1]
PAGE = (REPOSITORY / "docs" / "design.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text of a section of the page."""
    (text,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, flags=re.DOTALL | re.MULTILINE)
    return str(text)


def layers() -> list[set[str]]:
    """The layers that import-linter checks, highest first."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (c for c in settings["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    assert contract["exhaustive"]
    return [set(re.split(r"\s*[|:]\s*", layer)) for layer in contract["layers"]]


def test_the_table_of_layers_is_the_contract() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", section("Packages and import layers"), flags=re.MULTILINE)
    assert [set(re.findall(r"`(\w+)`", packages)) for _, packages in rows] == layers()
    assert [int(number) for number, _ in rows] == list(range(len(rows), 0, -1))
    assert len(rows) <= 10


def test_the_contract_names_every_module_of_the_top_level() -> None:
    there = {path.stem for path in ROOT.glob("*.py")} - {"__init__", "__main__"}
    there |= {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert set().union(*layers()) == there


def test_the_files_of_the_page_exist() -> None:
    first = re.findall(r"^\d\. `(\S+)`", section("Five files to read first"), flags=re.MULTILINE)
    assert len(first) == 5
    named = {path for path in re.findall(r"[\w/]+/(?:\w+\.py)?", PAGE) if path.split("/")[0] in set().union(*layers())}
    assert set(first) < named
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_walk_of_fit_is_that_of_the_page(tmp_path: Path) -> None:
    """In the order of first calls; a line names a function, or files alone."""
    cs = clickshift
    corpus = cs.builtin_corpus(queries=5)
    cs.write_log(cs.simulate(corpus, cs.BM25(), cs.users.PBM(), 300, rng=0), tmp_path / "log.parquet")
    calls = calls_of(["-q", "fit", "UBM", str(tmp_path / "log.parquet"), "-o", str(tmp_path / "model")])
    lines = re.findall(r"^ ?\d+ +(\S+/)(\w+\.py)(?:, (\S+\.py))? +(\S+)", section("The walk of a command"), flags=re.M)
    assert len(lines) == 15
    stops = []
    for folder, file, other, word in lines:
        name = word if re.search(rf"\b(def|class) {word.split('.')[-1]}\b", (ROOT / folder / file).read_text()) else ""
        stops.append(f"{folder}{file}:{name}")
        if other:
            stops.append(other if "/" in other else folder + other)
    first = [next((k for k, call in enumerate(calls) if call.startswith(stop)), -1) for stop in stops]
    assert -1 not in first, [stop for stop, k in zip(stops, first, strict=True) if k < 0]
    assert first == sorted(first), [*zip(first, stops, strict=True)]


def calls_of(arguments: list[str]) -> list[str]:
    """File and name of the package's functions that a command calls, in the order of first calls."""
    code = """
import json, sys
from clickshift.cli import main
calls = {}
def note(frame, event, _):
    if event == "call" and frame.f_code.co_flags & 1:  # not the bodies of modules and classes
        calls.setdefault((frame.f_code.co_filename, frame.f_code.co_qualname))
sys.setprofile(note)
try:
    main(sys.argv[1:])
except SystemExit:
    sys.setprofile(None)
print(json.dumps(list(calls)), file=sys.stderr)
"""
    ran = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    root = f"{ROOT}/"
    calls = json.loads(ran.stderr.splitlines()[-1])
    return [f"{file.removeprefix(root)}:{name}" for file, name in calls if file.startswith(root)]


@pytest.mark.parametrize("path", sorted((REPOSITORY / "benchmarks").glob("*.py")), ids=lambda path: path.stem)
def test_benchmarks_import_names_that_there_are(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "clickshift":
            module = importlib.import_module(str(node.module))
            for name in node.names:
                if not hasattr(module, name.name):
                    importlib.import_module(f"{node.module}.{name.name}")


PUBLIC = [
    name
    for name in clickshift.__all__
    if inspect.isclass(getattr(clickshift, name)) or inspect.isfunction(getattr(clickshift, name))
]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_object_has_an_example(name: str) -> None:
    """Doctest runs the examples with the module that defines the object."""
    docstring = inspect.getdoc(getattr(clickshift, name)) or ""
    assert re.search(r"^Examples\n-{8}\n.*^>>> ", docstring, flags=re.DOTALL | re.MULTILINE)
    assert "+SKIP" not in docstring, "an example runs"
