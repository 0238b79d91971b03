"""Cases: a number determines a damaged input and a command, and what the command may answer."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from clickshift.data.encoded_files import CHECKSUMS
from tests.cli.shell import commands
from tests.folders import arrays_file, craft
from tests.fuzz import mutations

ALLOWED_CODES = {0, 1, 2, 3}
"""Done, a gate failed, input that cannot be used, resources."""


@dataclass
class Case:
    """A command to run in a folder of its own, and an independent check of its answer if it succeeds."""

    arguments: list[str]
    check: Callable[[Any], str] | None = field(default=None, repr=False)
    """Given the facts that --json printed, what is wrong with them, or an empty text."""


def make_case(family: str, number: int, seed: int, inputs: Path, folder: Path) -> Case:
    """Write the input of a case into an empty folder, and return its command."""
    return FAMILIES[family](random.Random(f"{seed} {family} {number}"), inputs, folder)


LOGS = (
    *("wide.parquet", "wide.csv", "wide.jsonl", "wide.csv.gz"),
    *("long.parquet", "long.csv", "long.jsonl", "long.jsonl.gz"),
)


def _log(rng: random.Random, inputs: Path, folder: Path) -> Case:
    """A damaged log, in any layout; counts are compared with those of a second reader where the text is simple."""
    name = rng.choice(LOGS)
    shutil.copy(inputs / name, folder)
    mutations.file(folder / name, rng)
    if rng.random() < 0.75:
        check = {"wide.jsonl": _count_wide_lines, "long.csv": _count_long_csv}.get(name)
        compare = None if check is None else lambda facts: check(folder / name, facts)
        return Case(["log", "info", name, "--json"], compare)
    more = rng.choice(
        (
            ["log", "encode", name, "-o", "out"],
            ["log", "info", name, "--skip-bad", "--json"],
            ["doctor", name, "--json"],
            ["fit", rng.choice(("dCTR", "PBM", "DBN")), name, "-o", "out"],
            ["log", "count", name, "-o", "out"],
            ["log", "split", name, "--train", "a.parquet", "--test", "b.parquet"],
        )
    )
    return Case(more)


def _public(rng: random.Random, inputs: Path, folder: Path) -> Case:
    """A damaged file in a published format, a target, labels, features or propensities."""
    log = str(inputs / "wide.parquet")
    labels = ["rank", "labels", str(inputs / "corpus.txt"), "--clicks", log]
    name, arguments = rng.choice(
        (
            ("yandex.gz", ["log", "convert", "yandex.gz", "--format", "yandex-sample", "-o", "out.parquet"]),
            ("trec.gz", ["log", "convert", "trec.gz", "--format", "trec", "-o", "out.parquet"]),
            ("men.csv.gz", ["log", "convert", "men.csv.gz", "--format", "open-bandit", "-o", "out.parquet"]),
            ("corpus.txt", ["corpus", "info", "corpus.txt", "--json"]),
            ("target.jsonl", ["ope", log, "--target", "target.jsonl", "--estimator", "IP", "--json"]),
            ("target.parquet", ["ope", log, "--target", "target.parquet", "--estimator", "IP", "--json"]),
            ("scores.csv", ["ope", log, "--target", "scores.csv", "--estimator", "IP", "--json"]),
            ("target.jsonl", ["predict", str(inputs / "pbm"), "target.jsonl", "--json"]),
            ("examination.json", [*labels, "--propensities", "examination.json", "-o", "labels.csv"]),
        )
    )
    shutil.copy(inputs / name, folder)
    if name == "men.csv.gz":
        shutil.copy(inputs / "item_context.csv.gz", folder)
    mutations.file(folder / name, rng)
    return Case(arguments)


def _events(rng: random.Random, inputs: Path, folder: Path) -> Case:
    """Damaged events of any format, imported with or without bad ones, and what comes of groups and pages of a log."""
    if rng.random() < 0.15:
        name = rng.choice(("wide.jsonl", "long.csv", "wide.parquet"))
        shutil.copy(inputs / name, folder)
        mutations.file(folder / name, rng)
        return Case(
            rng.choice(
                (
                    ["explore", name, "--sample", "0", "-o", "out.html"],
                    ["explore", name, "--sample", "0", "--json", "--skip-bad"],
                    ["log", "group", name, "--by", "results", "-o", "out.csv"],
                )
            )
        )
    source = rng.choice(sorted(path for path in (inputs / "events").rglob("*") if path.is_file()))
    shutil.copy(source, folder)
    mutations.file(folder / source.name, rng)
    options = rng.choice(
        (
            [],
            ["--skip-bad"],
            ["--skip-bad", "--gaps", rng.choice(("keep", "truncate", "close", "drop"))],
            ["--window", "10min", "--impression", "last", "--skip-bad"],
            ["--normalise", "lower,strip"],
        )
    )
    output = rng.choice(("out.parquet", "out.csv", "out.jsonl"))
    return Case(
        ["import", source.name, "-o", output, "--json", *options], lambda facts: _imported(folder / output, facts)
    )


def _imported(path: Path, facts: Any) -> str:
    """Compare the numbers of an import with the log that it wrote."""
    import clickshift as cs

    if facts["format"] in {"quepid", "aggregated"}:
        return ""
    columns = {f"signal:{name}": name for name in facts["signals"] if name != "viewed"}
    log = cs.read_log(path, columns=columns | {f"segment:{name}": name for name in facts["segments"] if name != "arm"})
    found = (log.total, int(log.rankings.shown.sum()), int(log.click.sum()))
    said = (facts["lists_written"], facts["results_written"], facts["clicks_written"])
    return "" if found == said else f"the log has {found}, and the import said {said}"


FOLDERS = {
    "pbm": ("examine pbm --json", "predict pbm TARGET --json", "evaluate pbm LOG --json"),
    "dbn": ("examine dbn --json", "predict dbn TARGET --json", "evaluate dbn LOG --json"),
    "encoded": (
        *("log info encoded --json", "doctor encoded --json --fail-on never", "fit PBM encoded -o out"),
        "fit DBN encoded -o out",
    ),
    "counts": ("fit PBM counts -o out", "fit DBN counts -o out", "log merge counts -o out"),
    "ranker": ("rank score ranker CORPUS -o scores.csv", "rank evaluate ranker CORPUS --json"),
    "stack": ("predict stack TARGET --json", "evaluate stack LOG --json"),
    "run": ("shift status -o run --json", "shift report -o run --json"),
    "grid": ("selection status -o grid --json", "selection report -o grid --json"),
}
"""Commands on each kind of folder."""
RUNS = {"run", "grid"}
"""Folders of runs."""


def _folder(rng: random.Random, inputs: Path, folder: Path) -> Case:
    """A folder with one damaged file. A command that succeeds all the same must give the facts of the whole folder."""
    kind = rng.choice(sorted(FOLDERS))
    shutil.copytree(inputs / kind, folder / kind)
    files = sorted(path for path in (folder / kind).rglob("*") if path.is_file())
    target = rng.choice(files)
    if rng.random() < 0.1:
        target.unlink()
    else:
        mutations.file(target, rng)
    arguments = _with_inputs(rng.choice(FOLDERS[kind]).split(), inputs)
    expected = inputs / "expected.json"
    if "--json" not in arguments or kind in RUNS or target.suffix == ".json":
        return Case(arguments)  # a header may name another source or time
    whole = json.loads(expected.read_text())[" ".join(_plain(arguments))]
    return Case(arguments, lambda facts: "" if facts == whole else "accepted with other numbers")


def _crafted(rng: random.Random, inputs: Path, folder: Path) -> Case:
    """A folder with one wrong number or header entry, whose digests are right: the work of somebody who means harm."""
    kind = rng.choice(sorted(FOLDERS))
    shutil.copytree(inputs / kind, folder / kind)
    if kind == "encoded" and rng.random() < 0.5:
        _craft_column(folder / kind, rng)
        return Case(_with_inputs(rng.choice(FOLDERS[kind]).split(), inputs), _sane)
    arrays = load_file(arrays_file(folder / kind)) if list((folder / kind).glob("*.safetensors")) else {}
    header = folder / kind / "run.json" if kind in RUNS else next((folder / kind).glob("*.json"))
    if arrays and rng.random() < 0.8:
        name = rng.choice(sorted(arrays))
        craft(folder / kind, header.name, {name: mutations.array(arrays[name], rng)})
    else:
        header.write_text(json.dumps(mutations.value(json.loads(header.read_text()), rng)))
    return Case(_with_inputs(rng.choice(FOLDERS[kind]).split(), inputs), _sane)


def _craft_column(folder: Path, rng: random.Random) -> None:
    """Damage a number of a file of an encoded log of one block, and write the right checksum."""
    header = json.loads((folder / "log.json").read_text())
    name = rng.choice(sorted(header["checksums"]))
    path = folder / header["files"][name]
    dtype = {"pair": "<i4", "click": "u1"}.get(name) or header["kinds"][name]
    numbers = np.fromfile(path, dtype.replace("M8[us]", "i8"))
    changed = mutations.array(numbers, rng).astype(numbers.dtype).reshape(-1)
    changed.tofile(path)
    header["checksums"][name] = [CHECKSUMS[header["checksum"]](changed.view(np.uint8))]
    (folder / "log.json").write_text(json.dumps(header))


BASES: tuple[list[str], ...] = (
    ["log", "info", "LOG"],
    ["doctor", "LOG", "--fail-on", "never"],
    ["log", "encode", "LOG", "-o", "out"],
    ["log", "count", "LOG", "-o", "out"],
    ["log", "split", "LOG", "--train", "a.parquet", "--test", "b.parquet"],
    ["log", "convert", "YANDEX", "--format", "yandex-sample", "-o", "out.parquet"],
    ["simulate", "-o", "out.parquet", "--sessions", "50", "--queries", "3", "--documents", "5", "--ranks", "3"],
    ["import", "EVENTS", "-o", "out.parquet"],
    ["explore", "LOG", "--sample", "0"],
    ["log", "group", "LOG", "--by", "results"],
    ["fit", "PBM", "LOG", "-o", "out"],
    ["fit", "DBN", "LOG", "-o", "out"],
    ["evaluate", "MODEL", "LOG"],
    ["compare", "LOG", "--model", "dCTR", "--model", "PBM"],
    ["examine", "MODEL"],
    ["judgments", "MODEL", "-o", "out.csv"],
    ["predict", "MODEL", "TARGET"],
    ["propensities", "LOG", "--replicates", "2"],
    ["corpus", "info", "CORPUS"],
    ["ope", "LOG", "--target", "TARGET", "--estimator", "IP"],
    ["ope", "LOG", "--target", "TARGET", "--model", "PBM"],
    ["ope", "LOG", "--target", "TARGET", "--estimator", "IP", "--logging", "TARGET"],
    ["ope", "optimise", "LOG", "-o", "out.parquet"],
    ["ope", "backtest", "DAYS", "--parts", "3", "--estimator", "IP"],
    ["decide", "LOG", "--candidate", "TARGET"],
    ["audit", "MODEL", "LOG", "--labels", "LABELS", "--permutations", "2", "--subsamples", "2"],
    ["log", "merge", "COUNTS", "-o", "out"],
    ["log", "drift", "COUNTS", "COUNTS"],
    ["models"],
    ["rank", "labels", "CORPUS", "--clicks", "LOG", "--examination", "1/rank", "-o", "out.csv"],
    ["rank", "score", "RANKER", "CORPUS", "-o", "out.csv"],
    ["rank", "evaluate", "RANKER", "CORPUS"],
    ["rank", "export", "RANKER", "out.txt"],
    ["shift", "status", "-o", "RUN"],
    ["shift", "logs", "--train", "LOG", "--test", "LOG", "--model", "dCTR", "--workers", "0", "-o", "out"],
    ["selection", "status", "-o", "SELECTION"],
    ["reproduce", "--list"],
)
"""Commands that succeed, to which a strange option is added. None of them writes into the inputs, which cases share."""
STRANGE = (
    *("nan", "inf", "-inf", "-1", "0", "1", "2", "0.5", "1.5", "1e400", "", " ", "x", "x\x00y", "é", "9" * 30, "-5GB"),
    *(
        "4GB",
        "a=b",
        "a=",
        "=b",
        "doc=nothing",
        "None",
        "True",
        "[]",
        "()",
        "../x",
        "out",
        ".",
        "/proc",
        "out.parquet",
        "b.csv",
    ),
)
SPECS = (
    *(
        "PBM",
        "UBM",
        "DBN(satisfaction=5)",
        "DBN(satisfaction='x')",
        "EM('PBM', starts=1.5)",
        "EM('PBM', tolerance=nan)",
    ),
    *("EM('PBM', iterations=-1)", "EM()", "EM('XYZ')", "EM(EM('PBM'))", "PBM(1)", "PBM(", "PBM)", "__import__('os')"),
    *("Counting('dCTR', smoothing='x')", "Counting('dCTR', smoothing=-1)", "dCTR", "CM", "Mixture(['PBM', 'DBN'])"),
    *("PlackettLuce(Oracle(), temperature=-1)", "PlackettLuce(Oracle(), temperature=nan)", "Oracle", "BM25", "Uniform"),
    *("Stacking", "Stacking()", "Stacking(['PBM'])", "Stacking(('PBM', 'DBN'))", "Stacking([])", "Stacking('x')"),
    *("Stacking(('Stacking', 'DBN'))", "Stacking(('PBM', 'PBM'), held_out=0)", "dcg", "1,0.5", "1/rank", "logged"),
    *("EM('PBM', prior=(0, 0))", "EM('PBM', prior=(nan, 1))", "EM('PBM', prior=1)", "a.b.c:D", "os:system", "(" * 300),
)
NEVER = {"--cluster", "--workers", "--help", "--version", "--serve", "--candidate", "--cores", "--neural", "--seeds"}
"""Options that start other programs, wait for a network, or take minutes with valid values."""


@cache
def _commands() -> dict[str, Any]:
    """All commands by their words."""
    return dict(commands())


def _option(rng: random.Random, inputs: Path, folder: Path) -> Case:
    """A valid command with a strange value of one of its options, or a strange argument."""
    base = rng.choice(BASES)
    arguments = _with_inputs(base, inputs)
    called = _commands()
    words = " ".join(base[:2]) if " ".join(base[:2]) in called else base[0]
    words = "ope evaluate" if words == "ope" else words
    options = [option for option in called[words].params if option.opts[0].startswith("--")]
    options = [option for option in options if option.opts[0] not in NEVER]
    if rng.random() < 0.2:
        place = rng.randrange(len(arguments))
        return Case([*arguments[:place], rng.choice((*STRANGE, *SPECS)), *arguments[place + 1 :]])
    for option in rng.sample(options, min(len(options), rng.choice((1, 1, 2)))):
        arguments.append(option.opts[0])
        if not option.is_flag:
            arguments.append(rng.choice((*STRANGE, *SPECS) if rng.random() < 0.3 else STRANGE))
    return Case(arguments)


def _spec(rng: random.Random, inputs: Path, folder: Path) -> Case:
    """A strange or damaged text of a learner, user or policy."""
    text = rng.choice(SPECS)
    if rng.random() < 0.5:
        text = mutations.text(text.encode(), rng).decode(errors="replace")
    text = text.replace("\x00", "\\0") if rng.random() < 0.9 else text
    small = ["simulate", "-o", "out.parquet", "--sessions", "50", "--queries", "3", "--documents", "5", "--ranks", "3"]
    ope = ["ope", str(inputs / "wide.parquet"), "--target", str(inputs / "target.parquet")]
    return Case(
        rng.choice(
            (
                ["fit", text, str(inputs / "wide.parquet"), "-o", "out"],
                [*small, "--user", text],
                [*small, "--policy", text],
                ["compare", str(inputs / "wide.parquet"), "--model", text],
                [*ope, "--estimator", text],
                [*ope, "--estimator", "IP", rng.choice(("--examination", "--reward", "--logging", "--clip")), text],
                [*ope, "--model", text],
                ["decide", *ope[1:2], "--candidate", ope[3], rng.choice(("--reward", "--logging", "--level")), text],
            )
        )
    )


FAMILIES: dict[str, Callable[[random.Random, Path, Path], Case]] = {
    "log": _log,
    "public": _public,
    "events": _events,
    "folder": _folder,
    "crafted": _crafted,
    "option": _option,
    "spec": _spec,
}


def _with_inputs(arguments: list[str], inputs: Path) -> list[str]:
    names = {"LOG": "wide.parquet", "TARGET": "target.parquet", "CORPUS": "corpus.txt", "MODEL": "pbm"}
    names |= {"RANKER": "ranker", "RUN": "run", "YANDEX": "yandex.gz", "SELECTION": "grid", "COUNTS": "counts"}
    names |= {"EVENTS": "events/metarank/metarank.json"}
    names |= {"LABELS": "labels.qrels", "DAYS": "days.jsonl"}
    return [str(inputs / names[word]) if word in names else word for word in arguments]


def _plain(arguments: list[str]) -> list[str]:
    return [Path(word).name if "/" in word else word for word in arguments]


def write_expected(inputs: Path) -> None:
    """Keep the facts that the commands on whole folders print."""
    from tests.cli.shell import call

    expected = {}
    for several in FOLDERS.values():
        for template in several:
            words = template.split()
            arguments = _with_inputs([str(inputs / word) if word in FOLDERS else word for word in words], inputs)
            if "--json" in words:
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    assert call(*arguments) == 0, arguments
                expected[" ".join(_plain(_with_inputs(words, inputs)))] = json.loads(out.getvalue())
    (inputs / "expected.json").write_text(json.dumps(expected))


def _sane(facts: Any) -> str:
    """Numbers that a crafted folder must not produce: probabilities outside [0, 1], negative counts."""
    if isinstance(facts, dict) and facts.get("kind") == "loss":
        return ""  # parts of a perplexity, named after what they are due to, may be negative
    if isinstance(facts, dict):
        for name, item in facts.items():
            numbers = item if isinstance(item, list) else [item]
            for number in numbers:
                if isinstance(number, int | float) and not isinstance(number, bool):
                    if ("prob" in name or name == "examination") and not -1e-9 <= number <= 1 + 1e-9:
                        return f"{name} is {number}"
                    if name in {"sessions", "rows", "queries", "clicks", "impressions"} and number < 0:
                        return f"{name} is {number}"
            if wrong := _sane(item):
                return wrong
    if isinstance(facts, list):
        return next((wrong for item in facts if (wrong := _sane(item))), "")
    return ""


def _count_wide_lines(path: Path, facts: Any) -> str:
    """Compare with a reader of four lines: JSON objects, one a line."""
    text = path.read_bytes().decode("utf-8-sig")
    rows = [json.loads(line) for line in text.split("\n") if line.strip()]  # other line breaks are blanks in JSON
    sessions = sum(int(row.get("count", 1)) for row in rows)
    clicks = sum(int(row.get("count", 1)) * sum(map(int, row["clicks"])) for row in rows)
    return _differs(facts, sessions, clicks)


def _count_long_csv(path: Path, facts: Any) -> str:
    rows = list(csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines()))
    return _differs(facts, len({row["session"].strip() for row in rows}), sum(float(row["click"]) == 1 for row in rows))


def _differs(facts: Any, sessions: int, clicks: int) -> str:
    found = facts["sessions"], round(facts["clicks_per_session"] * facts["sessions"])
    return "" if found == (sessions, clicks) else f"read {found} sessions and clicks, the file has {(sessions, clicks)}"
