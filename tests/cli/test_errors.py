"""Whatever is wrong is said in one line, without a traceback, and leaves what was there before as it was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from clickshift.core.text import printable
from clickshift.learners.counting import Counting
from tests.cli.shell import Shell

EVIL = "<script>alert('x')<script>"
MARKUP = "[bold red]loud[/bold red]"


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def place(clicks: Path, fitted: Path, tmp_path: Path) -> Path:
    """A folder with a log, models, and results of earlier commands that must survive."""
    shutil.copy(clicks, tmp_path / "clicks.parquet")
    shutil.copytree(fitted, tmp_path / "models")
    for name in ("before.parquet", "before.csv", "before.jsonl", "before.qrels", "before.html", "before.txt"):
        (tmp_path / name).write_text("earlier work")
    (tmp_path / "empty.parquet").write_text("")
    (tmp_path / "text.parquet").write_text("no Parquet")
    (tmp_path / "half.parquet").write_bytes(clicks.read_bytes()[:2000])
    (tmp_path / "names.csv").write_text("a,b\n1,2\n")
    (tmp_path / "bad.jsonl").write_text('{"query": 1, "docs": [1], "clicks": [2]}\n')
    (tmp_path / "twice.jsonl").write_text('{"query": 1, "docs": [1, 1]}\n')
    return tmp_path


# commands and what the one line of their error must name: files, options and values, not sentences
BAD: list[tuple[str, tuple[str, ...]]] = [
    # commands, options and arguments
    ("fot", ("'fot'",)),
    ("fit", ("'model'", "clickshift fit --help")),
    ("fit PBM clicks.parquet", ("--output", "-o")),
    ("models --loud", ("--loud",)),
    ("simulate -o before.parquet --sessions none", ("--sessions", "integer")),
    ("simulate -o before.parquet --sessions 0", ("--sessions", "1")),
    ("judgments models/PBM -o before.csv --min-impressions -1", ("--min-impressions", "0")),
    ("log info clicks.parquet --column query", ("--column", "'query'")),
    ("log info clicks.parquet --column docs=nothing", ("clicks.parquet", "nothing")),
    # names of models, users, policies, formats, splits
    ("fit PMB clicks.parquet -o models/PBM", ("'PMB'",)),
    ("fit MaximumLikelihood('XYZ') clicks.parquet -o models/PBM", ("MaximumLikelihood", "'XYZ'")),
    ("fit EM('XYZ') clicks.parquet -o models/PBM", ("MaximumLikelihood", "'XYZ'")),
    ("fit EM(__import__('os')) clicks.parquet -o models/PBM", ("__import__",)),
    ("simulate -o before.parquet --user Nobody", ("'Nobody'",)),
    ("simulate -o before.parquet --policy Nothing()", ("'Nothing'",)),
    ("simulate -o before.parquet --query-law never", ("--query-law", "'never'")),
    ("simulate -o before.parquet --layout tall", ("layout", "'tall'")),
    ("simulate -o before.txt", ("before.txt", ".parquet")),
    ("log convert names.csv --format excel -o before.parquet", ("'excel'",)),
    ("compare clicks.parquet --split weekly -o out", ("'weekly'", "random, time, order, within-query")),
    ("compare clicks.parquet --fraction 1.5 -o out", ("fraction 1.5", "2000 sessions")),
    ("compare clicks.parquet --fraction nan -o out", ("fraction nan", "2000 sessions")),
    ("compare clicks.parquet --split time -o out", ("'time'", "--split order")),
    ("compare clicks.parquet --model PMB -o out", ("'PMB'",)),
    ("shift run -o out --user Nobody", ("'Nobody'",)),
    # logs
    ("log info nothing.parquet", ("nothing.parquet",)),
    ("log info empty.parquet", ("empty.parquet", "empty.")),
    ("log info text.parquet", ("text.parquet", "as Parquet")),
    ("log info half.parquet", ("half.parquet", "as Parquet")),
    ("log info names.csv", ("names.csv", "query", "docs", "clicks")),
    ("log info bad.jsonl", ("bad.jsonl", "row 1", "[2]")),
    ("log info before.txt", ("before.txt", ".parquet")),
    ("log info *.nothing", ("*.nothing",)),
    ("fit PBM nothing.parquet -o models/PBM", ("nothing.parquet",)),
    ("compare nothing.parquet -o out", ("nothing.parquet",)),
    ("compare clicks.parquet --test nothing.parquet -o out", ("nothing.parquet",)),
    ("evaluate models/PBM nothing.parquet", ("nothing.parquet",)),
    ("log convert nothing.gz --format yandex-sample -o before.parquet", ("nothing.gz",)),
    ("log convert clicks.parquet --format yandex-sample -o before.parquet", ("clicks.parquet",)),
    ("corpus info nothing.txt", ("nothing.txt",)),
    # lists
    ("predict models/PBM nothing.parquet -o before.parquet", ("nothing.parquet",)),
    ("predict models/PBM names.csv -o before.parquet", ("names.csv", "query", "docs")),
    ("predict models/PBM twice.jsonl -o before.parquet", ("twice.jsonl", "row 1", "1 at rank 1 and at rank 2")),
    ("predict models/PBM clicks.parquet -o before.txt", ("before.txt", ".parquet, .csv, .jsonl")),
    # models that cannot
    ("evaluate models/TopPop clicks.parquet", ("TopPop", "clicks")),
    ("predict models/TopPop clicks.parquet -o before.parquet", ("TopPop", "clicks")),
    ("examine models/TopPop -o before.html", ("TopPop", "examination")),
    ("judgments models/rCTR -o before.csv", ("RCTR", "rank documents")),
    # outputs
    ("judgments models/PBM -o before.txt", ("before.txt", "--for")),
    ("judgments models/PBM --for trec", ("--for trec", "--output")),
    ("judgments models/PBM -o before.txt --format csv", ("before.txt", ".csv")),
    ("judgments models/PBM -o before.txt --format lightgbm", ("before.txt", ".csv, .parquet")),
    ("judgments models/PBM -o before.csv --format docx", ("'docx'",)),
    ("judgments models/PBM -o before.csv --grades high,low", ("grades", "'high,low'")),
    ("judgments models/PBM -o before.csv --min-impressions 99999", ("99,999", "--min-impressions")),
    ("judgments models/PBM -o models", ("models", "--for")),
    ("judgments models/PBM -o before.txt/new.csv", ("before.txt/new.csv",)),
    ("examine models/PBM -o before.txt", ("before.txt", ".html")),
    ("examine models/PBM -o before.txt/new.html", ("before.txt/new.html",)),
    ("compare clicks.parquet --model rCTR -o before.txt", ("before.txt",)),
    ("fit rCTR clicks.parquet -o before.txt", ("before.txt",)),
]


@pytest.mark.parametrize(("command", "facts"), BAD, ids=[command for command, _ in BAD])
def test_bad_input_is_one_line_and_harms_nothing(
    command: str, facts: tuple[str, ...], shell: Shell, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    before = contents(place)
    line = shell.error(*command.split(" "))
    assert [fact for fact in facts if fact not in line] == [], line
    assert contents(place) == before


def corrupt(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        (path,) = folder.glob(name)
        path.write_bytes(change(path.read_bytes()))

    return harm


def foreign(folder: Path) -> None:
    """A folder that holds another program's files."""
    for path in folder.iterdir():
        path.unlink()
    (folder / "config.json").write_text("{}")


# what is wrong with a folder, and what the error must name
FOLDERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing": (shutil.rmtree, "model.json"),
    "foreign": (foreign, "model.json"),
    "corrupt": (corrupt("model.json", lambda data: data[:-20]), "models/PBM/model.json"),
    "truncated": (corrupt("*.safetensors", lambda data: data[:-20]), ".safetensors"),
    "newer": (corrupt("model.json", lambda data: data.replace(b'"format": 2', b'"format": 9')), "format 9"),
}


@pytest.mark.parametrize(
    "command", ["evaluate {} clicks.parquet", "judgments {} -o new.csv", "predict {} clicks.parquet", "examine {}"]
)
@pytest.mark.parametrize("damage", FOLDERS)
def test_a_bad_model_folder(
    damage: str, command: str, shell: Shell, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    harm, fact = FOLDERS[damage]
    harm(place / "models" / "PBM")
    said = shell.error(*command.format("models/PBM").split(" "))
    assert fact in said
    assert "models/PBM" in said
    assert not (place / "new.csv").exists()


@pytest.fixture
def strange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log whose ids, and whose name, look like markup."""
    monkeypatch.chdir(tmp_path)
    docs = [EVIL, MARKUP, "\x1b[31mred"]
    rows = [
        {"query": MARKUP if i % 2 else EVIL, "docs": docs[:: 1 - i % 3 or -1], "clicks": [i % 2, 0, 0]}
        for i in range(40)
    ]
    log = tmp_path / "[bold]<b>clicks.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return log


def test_markup_is_shown_as_it_is(shell: Shell, strange: Path, tmp_path: Path) -> None:
    folder = "<img src=x onerror=alert(1)>[red]"
    shell.text("log", "info", strange.name)
    assert folder in shell.text("fit", "PBM", strange.name, "-o", folder)
    text = shell.text("predict", folder, strange.name)
    assert EVIL in text
    assert MARKUP in text
    assert "\x1b" not in text
    shell.text("examine", folder, "-o", "plot.html")
    shell.text("compare", strange.name, "--model", "PBM", "--model", "rCTR", "-o", "out")
    for page in (tmp_path / "plot.html", tmp_path / "out" / "report.html"):
        body = page.read_text(encoding="utf-8").partition("<body")[2]
        assert "<img" not in body
        assert "<b>" not in body
        assert "&lt;b&gt;clicks.jsonl" in body, "the log's name is among the settings"
    shell.text("judgments", folder, "-o", "judgments.csv")
    assert EVIL in (tmp_path / "judgments.csv").read_text(encoding="utf-8")


def test_an_id_with_white_space_is_numbered_in_qrels(shell: Shell, strange: Path, tmp_path: Path) -> None:
    shell.text("fit", "dCTR", strange.name, "-o", "model")
    shell.text("judgments", "model", "-o", "judgments.qrels", "--keep-prior")
    keys = [(tmp_path / f"judgments.qrels.{name}.csv").read_text(encoding="utf-8") for name in ("queries", "docs")]
    assert MARKUP in "".join(keys)
    assert MARKUP not in (tmp_path / "judgments.qrels").read_text(encoding="utf-8")
    said = shell.error("judgments", "model", "-o", "new.txt", "--for", "ltr", "--keep-prior")
    assert "white space" in said
    assert not (tmp_path / "new.txt").exists()


def test_an_interrupt_is_one_line(shell: Shell, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(place)
    monkeypatch.setattr(Counting, "fit", stop)
    before = contents(place)
    code, _, err = shell.run("fit", "rCTR", "clicks.parquet", "-o", "models/PBM")
    assert code == 130
    assert err.startswith("clickshift: interrupted")
    assert err.count("\n") == 1
    assert contents(place) == before


def test_too_little_memory_is_one_line(shell: Shell, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*arguments: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Counting, "fit", fill)
    assert "memory" in shell.error("fit", "rCTR", place / "clicks.parquet", "-o", place / "models" / "PBM")


def test_printable() -> None:
    assert printable("ü [b] <i> 漢") == "ü [b] <i> 漢"
    assert printable("a\nb\x1b[31m\u202e") == "a\\nb\\x1b[31m\\u202e"
