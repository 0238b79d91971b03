"""Public names import and are documented, options are explained, and errors have codes."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import clickshift
from tests.cli.shell import commands

ROOT = Path(clickshift.__file__).parent
PACKAGES = sorted(
    ".".join(("clickshift", *path.parent.relative_to(ROOT).parts))
    for path in ROOT.rglob("__init__.py")
    if path.parent != ROOT
)
OUR_ERRORS = {
    "ClickshiftError",
    "DataError",
    "FileError",
    "VocabularyError",
    "SpecError",
    "CapabilityError",
    "RunError",
    "ClickshiftWarning",
}
DIALECT = (
    r"\bmend(ed|s)?\b|\bthe worth of\b|\bso many (of|days|times)\b|\bparted\b|\bhears?\b|\banew\b|\btold (by|from|of)\b"
    r"|\bno number any more\b|\bwho ranked\b|\bwhat is lost\b|\btells? (of|best)\b"
)
"""Homely substitutes for terms of the field, which the language guide of this project replaced."""


def public_objects() -> dict[str, Any]:
    """Every function and class in the `__all__` of clickshift or of one of its packages, by its dotted name."""
    objects: dict[str, Any] = {}
    for package in ("clickshift", *PACKAGES):
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name) if not isinstance(module, ModuleType) or hasattr(module, name) else None
            if inspect.isclass(value) or inspect.isfunction(value):
                objects[f"{value.__module__}.{value.__qualname__}"] = value
    return objects


OBJECTS = public_objects()


@pytest.mark.parametrize("package", ["clickshift", *PACKAGES])
def test_every_public_name_imports(package: str) -> None:
    module = importlib.import_module(package)
    names = module.__all__
    assert len(set(names)) == len(names)
    for name in names:
        if not hasattr(module, name):
            importlib.import_module(f"{package}.{name}")


def parameters_of(value: Any) -> list[str]:
    """The names that a caller may pass."""
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value) if field.init and not field.name.startswith("_")]
    if inspect.isclass(value) and (getattr(value, "_is_protocol", False) or value.__init__ is object.__init__):
        return []
    try:
        signature = inspect.signature(value)
    except ValueError:
        return []
    return [
        name.strip("*") for name in signature.parameters if name not in {"self", "cls"} and not name.startswith("_")
    ]


def documented_parameters(docstring: str) -> set[str]:
    """The names in the Parameters section of a numpydoc docstring (and Attributes, for classes)."""
    names: set[str] = set()
    for title in ("Parameters", "Attributes", "Other Parameters"):
        section = re.search(rf"^{title}\n-+\n(.*?)(?=^\w[^\n]*\n---|\Z)", docstring, flags=re.DOTALL | re.MULTILINE)
        if section:
            for line in re.findall(r"^(\S.*)$", section.group(1), flags=re.MULTILINE):
                names |= {name.strip().strip("*") for name in line.split(" : ")[0].split(",")}
    return names


@pytest.mark.parametrize("name", OBJECTS)
def test_every_public_object_has_a_numpydoc_docstring_that_names_its_parameters(name: str) -> None:
    value = OBJECTS[name]
    docstring = inspect.getdoc(value)
    assert docstring, "a public object is documented"
    first = docstring.split("\n\n")[0]
    assert first[0].isupper()
    assert first.rstrip().endswith((".", ":", "?")), "the first line is a sentence"
    missing = [name for name in parameters_of(value) if name not in documented_parameters(docstring)]
    assert missing == []
    if inspect.isfunction(value) and value.__annotations__.get("return") not in {None, "None", type(None)}:
        assert re.search(r"^(Returns|Yields)\n-+$", docstring, flags=re.MULTILINE), "what it returns is described"


@pytest.mark.parametrize("command", dict(commands()))
def test_every_option_has_a_help_text_with_a_subject(command: str) -> None:
    found = dict(commands())[command]
    assert found.help[0].isupper()
    for option in found.params:
        if option.name == "help":
            continue
        text = option.help or ""
        assert len(text.split()) >= 2, f"{option.name}: {text!r}"
        assert text[0].isupper() or text[0] in "'\"", f"{option.name}: {text!r}"
        assert text.rstrip().endswith((".", ")")), f"{option.name}: {text!r}"
        assert not re.match(r"(Of|So|As|With|Or|And|For|By|How)\b", text), f"{option.name}: {text!r} has no subject"


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_error_and_warning_has_a_code(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in OUR_ERRORS:
            codes = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            assert codes, f"line {node.lineno}: {node.func.id} has no code"
            if isinstance(codes[0], ast.Constant):
                assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", codes[0].value)


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_texts_use_the_terms_of_the_field(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [match.group(0) for match in re.finditer(DIALECT, text)] == []


def test_the_top_level_holds_packages_and_two_modules() -> None:
    modules = {path.stem for path in ROOT.glob("*.py")} - {"__init__", "__main__"}
    assert modules == {"errors", "_version"}
