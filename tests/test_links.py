"""Links of the documentation lead to files and headings that there are; the reference has every public name."""

from __future__ import annotations

import importlib
import re
import unicodedata
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import clickshift
from tests.scripts import script

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / ".github").rglob("*.md")])
MADE = {DOCS / "commands.md"}
"""Pages whose headings the site makes."""
CODE = re.compile(r"^(`{3,}|~{3,}).*?^\1`*\s*$", flags=re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]\(([^()\s]+)\)")


def hooks() -> ModuleType:
    """The site's own additions."""
    return script("docs/site/hooks.py")


def links(text: str) -> list[str]:
    """Targets of the links and pictures of a page, outside of code."""
    return LINK.findall(re.sub(r"`[^`\n]*`", "code", CODE.sub("", text)))


def anchors(text: str) -> set[str]:
    """Ids of the headings of a page, as Markdown makes them."""
    found: set[str] = set()
    for title in re.findall(r"^#{1,6} +(.*?)(?: +#+)? *$", CODE.sub("", text), flags=re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        plain = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
        slug = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
        while slug in found:
            slug = f"{slug}_1"
        found.add(slug)
    return found


def broken(page: Path) -> list[str]:
    """Links of a page that lead nowhere."""
    wrong = []
    for target in links(page.read_text(encoding="utf-8")):
        if re.match(r"https?:|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        full = (page.parent / path).resolve() if path else page
        known = full.exists() and (full in MADE or not anchor or anchor in anchors(full.read_text(encoding="utf-8")))
        if not known:
            wrong.append(target)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    (tmp_path / "other.md").write_text("# A title, with `code`\n\n```\n# no title\n```\n")
    page.write_text(
        "# Here\n[a](other.md) [b](other.md#a-title-with-code) [c](#here) `[d](nowhere)` ![e](picture.svg)\n"
        "[f](other.md#no-title) [g](none.md)\n```\n[h](none.md)\n```\n[two\nlines](none/x.md)\n"
    )
    assert broken(page) == ["picture.svg", "other.md#no-title", "none.md", "none/x.md"]


def test_every_page_is_in_the_menu() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    menu = hooks().expanded(yaml.safe_load(text)["nav"])

    def pages(entry: object) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        values = entry.values() if isinstance(entry, dict) else entry
        return [page for value in values for page in pages(value)]  # type: ignore[attr-defined]

    found = pages(menu)
    assert len(set(found)) == len(found)
    assert set(found) == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}


def documented() -> list[str]:
    """Full names of the objects of the reference."""
    pages = [page.read_text(encoding="utf-8") for page in sorted((DOCS / "api").glob("*.md"))]
    return [name for page in pages for name in re.findall(r"^::: (\S+)$", page, flags=re.MULTILINE)]


def listed(path: Path, package: str) -> dict[str, str]:
    """Full name of each name that a file imports for its users."""
    found = {}
    for module, name in re.findall(r"^from (\S+) import (\w+) as \2$", path.read_text(encoding="utf-8"), re.MULTILINE):
        found[name] = (
            f"{package}.{name}" if module == "." else f"{package + module if module[0] == '.' else module}.{name}"
        )
    return found


def test_the_reference_has_every_public_name() -> None:
    top = listed(Path(clickshift.__file__).with_name("__init__.pyi"), "clickshift")
    modules = {name for name in top if isinstance(getattr(clickshift, name), ModuleType)}
    public = {full for name, full in top.items() if name not in modules | {"__version__"}}
    for name in modules - {"users", "policies"}:  # whose names are modules
        package = importlib.import_module(f"clickshift.{name}")
        public |= {full for key, full in listed(Path(package.__file__ or ""), package.__name__).items()}
    found = documented()
    assert sorted(public - set(found)) == []
    assert len(set(found)) == len(found)
    start = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    assert [name for name in modules | {"__version__"} if f"`cs.{name}`" not in start] == []


def test_the_names_of_the_reference_exist() -> None:
    for full in documented():
        module, name = full.rsplit(".", 1)
        assert hasattr(importlib.import_module(module), name), full


def test_the_page_of_commands_has_every_command_and_option() -> None:
    from tests.cli.shell import commands

    text = hooks().command_pages()
    for name, command in commands():
        if command.hidden:
            continue
        (part,) = re.findall(rf"^## clickshift {name}\n(.*?)(?=^## |\Z)", text, flags=re.DOTALL | re.MULTILINE)
        for option in command.params:
            if option.name != "help" and not getattr(option, "hidden", False):
                assert f"`{option.opts[0] if option.param_type_name == 'option' else hooks().name_of(option)}`" in part


def test_pictures_of_the_tutorials_are_made_by_their_commands() -> None:
    shown = set()
    for page in sorted((DOCS / "tutorials").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        made = re.findall(r"^<!-- from: (\S+) -->\n!\[[^\]]*\]\(\.\./pictures/(\S+?)\)", text, flags=re.MULTILINE)
        assert len(made) == text.count("![")
        for exported, name in made:
            assert f"--output {exported.split('/')[0]}" in text
            shown.add(name)
    pictures = list((DOCS / "pictures").iterdir())
    assert {path.name for path in pictures} == shown
    assert sum(path.stat().st_size for path in pictures) < 300_000
    assert not any(re.search(r"(href|src)=\"https?:", path.read_text(encoding="utf-8")) for path in pictures)
