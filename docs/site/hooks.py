"""What the site adds to the pages of docs/: files of the repository, the command line, and folders in the menu."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
INCLUDED = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md", "security.md": "SECURITY.md"}
"""Pages that hold a file of the repository's top folder."""
LINK = re.compile(r"(?<!!)\[([^\[\]]*)\]\(([^()\s]+)\)")
_CODE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", flags=re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Let a folder in the navigation stand for its pages, so that a new page needs no entry."""
    for entry in config.nav:
        for name, pages in list(entry.items()):
            entry[name] = expanded(pages)
    return config


def expanded(pages: Any) -> Any:
    """Replace folders by their pages."""
    if isinstance(pages, str):
        return files_of(pages) if pages.endswith("/") else pages
    return [{k: expanded(v) for k, v in page.items()} if isinstance(page, dict) else page for page in pages]


def files_of(folder: str) -> list[str]:
    """List the pages of a folder of docs/ by name."""
    return [f"{folder}{path.name}" for path in sorted((ROOT / "docs" / folder).glob("*.md"))]


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Include files and commands, and make links to files outside of docs/ plain text."""
    uri = page.file.src_uri
    if uri in INCLUDED:
        markdown = (ROOT / INCLUDED[uri]).read_text(encoding="utf-8")
        return without_code(markdown, lambda text: LINK.sub(from_the_top, text))
    if uri == "commands.md":
        markdown = markdown.replace("<!-- commands -->", command_pages())
    here = (ROOT / "docs" / uri).parent
    return without_code(markdown, lambda text: LINK.sub(lambda link: inside(link, here), text))


def without_code(markdown: str, change: Any) -> str:
    """Change the text outside of code blocks."""
    parts, end = [], 0
    for block in _CODE.finditer(markdown):
        parts += [change(markdown[end : block.start()]), block.group()]
        end = block.end()
    return "".join([*parts, change(markdown[end:])])


def from_the_top(link: re.Match[str]) -> str:
    """A link of a file of the top folder, as a page of docs/ has it."""
    text, target = link.groups()
    if re.match(r"[a-z]+:|#", target):
        return link.group()
    path, _, anchor = target.partition("#")
    pages = {name: page for page, name in INCLUDED.items()} | {"README.md": "index.md"}
    inner = pages.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
    if inner is None or not inner.endswith(".md"):
        return text
    return f"[{text}]({inner}{'#' + anchor if anchor else ''})"


def inside(link: re.Match[str], here: Path) -> str:
    """A link that may leave docs/: to the page that includes the file, or as text."""
    text, target = link.groups()
    if re.match(r"[a-z]+:|#|/", target):
        return link.group()
    path, _, anchor = target.partition("#")
    full = (here / path).resolve()
    if full.is_dir():
        pages = sorted(full.glob("*.md"))
        return f"[{text}]({path.rstrip('/')}/{pages[0].name})" if pages else text
    if full.is_relative_to(ROOT / "docs"):
        return link.group()
    for page, name in INCLUDED.items():
        if full == ROOT / name:
            up = "../" * (len(here.relative_to(ROOT / "docs").parts))
            return f"[{text}]({up}{page}{'#' + anchor if anchor else ''})"
    return text


def command_pages() -> str:
    """Describe every command of the command line, from the application itself."""
    import typer.main

    from clickshift.cli import app

    parts: list[str] = []
    describe(typer.main.get_command(app), "clickshift", parts)
    return "\n\n".join(parts)


def describe(command: Any, name: str, parts: list[str]) -> None:
    """Describe a command, its options and the commands below it."""
    inner = getattr(command, "commands", None)
    if inner:
        for key, one in inner.items():
            if not one.hidden:
                describe(one, f"{name} {key}", parts)
    if inner and not getattr(command, "invoke_without_command", False):
        return
    parts.append(f"## {name}")
    parts.append(paragraphs(command.help or ""))
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([name, *(f"{name_of(p)}{'...' if p.nargs != 1 else ''}" for p in arguments)])
    parts.append(f"```\n{usage} [OPTIONS]\n```")
    rows = []
    for option in command.params:
        if option.name == "help" or getattr(option, "hidden", False):
            continue
        names = option.opts + option.secondary_opts if option.param_type_name == "option" else [name_of(option)]
        text = cell(getattr(option, "help", None) or "")
        note = " Required." if option.required and option.param_type_name == "option" else ""
        default = getattr(option, "default", None)
        if isinstance(default, str | int | float) and not isinstance(default, bool) and default != "":
            note += f" Default: `{default}`."
        rows.append(f"| {', '.join(f'`{one}`' for one in names)} | {text}{note} |")
    if rows:
        parts.append("\n".join(["| option | meaning |", "|---|---|", *rows]))


def name_of(argument: Any) -> str:
    """The name of an argument in the usage line."""
    return str(getattr(argument, "metavar", None) or argument.name.upper())


def paragraphs(text: str) -> str:
    """The help text of a command as paragraphs."""
    return "\n\n".join(escape(" ".join(part.split())) for part in text.replace("\b", "").split("\n\n"))


def cell(text: str) -> str:
    """A help text in a cell of a table."""
    return escape(" ".join(text.split())).replace("|", "&#124;")


def escape(text: str) -> str:
    """Text without the marks of the terminal and of Markdown."""
    text = re.sub(r"\[/?(bold|dim|italic|green|red|yellow|cyan|blue)\]", "", text)
    return re.sub(r"([<>*_\[\]])", r"\\\1", text.replace("\\[", "["))
