"""Whatever is wrong is said in one line, without a traceback, and leaves what was there before as it was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from clickshift import learners
from clickshift.cli._console import printable
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


BAD = [
    # commands, options and arguments
    ("fot", "No such command 'fot'"),
    ("fit", "Missing argument"),
    ("fit PBM clicks.parquet", "Missing option"),
    ("models --loud", "No such option"),
    ("simulate -o before.parquet --sessions none", "--sessions"),
    ("simulate -o before.parquet --sessions 0", "--sessions"),
    ("relevance models/PBM -o before.csv --min-impressions -1", "--min-impressions"),
    ("log info clicks.parquet --column query", "--column takes OURS=THEIRS"),
    ("log info clicks.parquet --column docs=nothing", "there is no column nothing"),
    # names of models, users, policies, formats, splits
    ("fit PMB clicks.parquet -o models/PBM", "'PMB' is neither a model nor a learner"),
    ("fit EM('XYZ') clicks.parquet -o models/PBM", "EM does not fit 'XYZ'"),
    ("fit EM(__import__('os')) clicks.parquet -o models/PBM", "is not known"),
    ("simulate -o before.parquet --user Nobody", "'Nobody' is not known"),
    ("simulate -o before.parquet --policy Nothing()", "'Nothing' is not known"),
    ("simulate -o before.parquet --query-law never", "--query-law must be one of"),
    ("simulate -o before.parquet --layout tall", "layout must be"),
    ("simulate -o before.txt", "the ending of a log file must be one of"),
    ("log convert names.csv --format excel -o before.parquet", "'excel' is not known"),
    ("compare clicks.parquet --split weekly -o out", "a split must be one of random, time, order, within-query"),
    ("compare clicks.parquet --fraction 1.5 -o out", "both parts of a split must get a session"),
    ("compare clicks.parquet --fraction nan -o out", "both parts of a split must get a session"),
    ("compare clicks.parquet --split time -o out", "a chronological split needs a time"),
    ("compare clicks.parquet --model PMB -o out", "'PMB' is neither a model nor a learner"),
    ("shift run -o out --user Nobody", "'Nobody' is not known"),
    # logs
    ("log info nothing.parquet", "nothing.parquet: there is no such file"),
    ("log info empty.parquet", "empty.parquet: is empty"),
    ("log info text.parquet", "cannot be read as Parquet"),
    ("log info half.parquet", "cannot be read as Parquet"),
    ("log info names.csv", "a log must have the columns"),
    ("log info bad.jsonl", "clicks must be 0 or 1 each: got [2]"),
    ("log info before.txt", "the ending of a log file must be one of"),
    ("log info *.nothing", "no file has a name of this pattern"),
    ("fit PBM nothing.parquet -o models/PBM", "there is no such file"),
    ("compare nothing.parquet -o out", "there is no such file"),
    ("compare clicks.parquet --test nothing.parquet -o out", "there is no such file"),
    ("evaluate models/PBM nothing.parquet", "there is no such file"),
    ("log convert nothing.gz --format yandex-sample -o before.parquet", "there is no such file"),
    ("log convert clicks.parquet --format yandex-sample -o before.parquet", "clicks.parquet"),
    ("corpus info nothing.txt", "nothing.txt"),
    # lists
    ("predict models/PBM nothing.parquet -o before.parquet", "there is no such file"),
    ("predict models/PBM names.csv -o before.parquet", "must have the columns query and docs"),
    ("predict models/PBM twice.jsonl -o before.parquet", "a document must stand once in a list"),
    ("predict models/PBM clicks.parquet -o before.txt", "one of .parquet, .csv, .jsonl"),
    # models that cannot
    ("evaluate models/TopPop clicks.parquet", "TopPop cannot predict clicks"),
    ("predict models/TopPop clicks.parquet -o before.parquet", "TopPop cannot predict clicks"),
    ("examine models/TopPop -o before.html", "has no examination or continuation"),
    ("relevance models/rCTR -o before.csv", "cannot rank documents"),
    # outputs
    ("relevance models/PBM -o before.txt", "does not tell"),
    ("relevance models/PBM -o before.txt --format csv", "the ending of a csv file must be .csv"),
    ("relevance models/PBM -o before.txt --format lightgbm", "one of .csv, .parquet"),
    ("relevance models/PBM -o before.csv --format docx", "got 'docx'"),
    ("relevance models/PBM -o before.csv --grades high,low", "grades must be ascending cut points"),
    ("relevance models/PBM -o before.csv --min-impressions 99999", "Ask for fewer impressions"),
    ("relevance models/PBM -o models", "does not tell"),
    ("relevance models/PBM -o before.txt/new.csv", "cannot be written"),
    ("examine models/PBM -o before.txt", "the ending of a page must be .html"),
    ("examine models/PBM -o before.txt/new.html", "cannot be written"),
    ("compare clicks.parquet --model rCTR -o before.txt", "cannot be written"),
    ("fit rCTR clicks.parquet -o before.txt", "before.txt"),
]


@pytest.mark.parametrize(("command", "message"), BAD, ids=[command for command, _ in BAD])
def test_bad_input_is_one_line_and_harms_nothing(
    command: str, message: str, shell: Shell, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    before = contents(place)
    assert message in shell.error(*command.split(" "))
    assert contents(place) == before


def corrupt(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def foreign(folder: Path) -> None:
    """A folder that holds another program's files."""
    for path in folder.iterdir():
        path.unlink()
    (folder / "config.json").write_text("{}")


FOLDERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing": (shutil.rmtree, "is not a model: it has no model.json"),
    "foreign": (foreign, "is not a model: it has no model.json"),
    "corrupt": (corrupt("model.json", lambda data: data[:-20]), "is not a model's header"),
    "truncated": (corrupt("model.safetensors", lambda data: data[:-20]), "is damaged or of another kind"),
    "newer": (corrupt("model.json", lambda data: data.replace(b'"format": 1', b'"format": 9')), "has format 9"),
}


@pytest.mark.parametrize(
    "command", ["evaluate {} clicks.parquet", "relevance {} -o new.csv", "predict {} clicks.parquet", "examine {}"]
)
@pytest.mark.parametrize("damage", FOLDERS)
def test_a_bad_model_folder(
    damage: str, command: str, shell: Shell, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    harm, message = FOLDERS[damage]
    harm(place / "models" / "PBM")
    said = shell.error(*command.format("models/PBM").split(" "))
    assert message in said
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
    assert "[bold]<b>clicks.jsonl" in shell.text("log", "info", strange.name)
    assert folder in shell.text("fit", "PBM", strange.name, "-o", folder)
    text = shell.text("predict", folder, strange.name)
    assert EVIL in text
    assert MARKUP in text
    assert "\x1b" not in text
    shell.text("examine", folder, "-o", "plot.html")
    shell.text("compare", strange.name, "--model", "PBM", "--model", "rCTR", "-o", "out")
    for page in (tmp_path / "plot.html", tmp_path / "out" / "report.html"):
        body = page.read_text(encoding="utf-8").partition("<body>")[2]
        assert "<img" not in body
        assert "<b>" not in body
        assert "&lt;b&gt;clicks.jsonl" in body, "the log's name is among the settings"
    shell.text("relevance", folder, "-o", "judgments.csv")
    assert EVIL in (tmp_path / "judgments.csv").read_text(encoding="utf-8")


def test_an_id_with_white_space_stops_qrels_alone(shell: Shell, strange: Path, tmp_path: Path) -> None:
    shell.text("fit", "dCTR", strange.name, "-o", "model")
    said = shell.error("relevance", "model", "-o", "judgments.qrels")
    assert f"the query id '{MARKUP}'" in said
    assert "or write parquet or csv" in said
    assert not (tmp_path / "judgments.qrels").exists()


def test_an_interrupt_is_one_line(shell: Shell, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(place)
    monkeypatch.setattr(learners, "fit_seeds", stop)
    before = contents(place)
    code, _, err = shell.run("fit", "rCTR", "clicks.parquet", "-o", "models/PBM")
    assert (code, err) == (130, "clickshift: interrupted; nothing half-written was left behind.\n")
    assert contents(place) == before


def test_too_little_memory_is_one_line(shell: Shell, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*arguments: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr(learners, "fit_seeds", fill)
    assert "out of memory" in shell.error("fit", "rCTR", place / "clicks.parquet", "-o", place / "models" / "PBM")


def test_our_own_faults_keep_their_traceback(shell: Shell, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learners, "fit_seeds", lambda *arguments, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        shell.run("fit", "rCTR", place / "clicks.parquet", "-o", place / "models" / "PBM")


def test_printable() -> None:
    assert printable("ü [b] <i> 漢") == "ü [b] <i> 漢"
    assert printable("a\nb\x1b[31m\u202e") == "a\\nb\\x1b[31m\\u202e"
