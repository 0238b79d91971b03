"""One log with everything that a log may have goes through every command that takes a log, and back to files.

It has holes, views, two signals, a segment, experiment arms, users, times, counts and propensities of lists and by
position. A command works, or refuses in one line with a code that is listed here, with the reason.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickshift.counts.open_log import open_log
from clickshift.data.sessions import Rankings, Sessions
from clickshift.errors import ClickshiftError
from clickshift.io.read_log import read_log, write_log
from tests.cli.shell import Shell, call, commands, pictures_without_a_browser
from tests.full_logs import SEGMENTS, SIGNALS, content, full_log

FEW = ("--replicates", 20)
PROPENSITIES = ("--logging", "propensities")
KIND, ESTIMATED = ("--propensity-kind",), ("--estimator", "RIPS", "--estimator", "PI", "--estimator", "List")
CURVES = ("--propensities", "CURVES", "--clip", 0.1)
WITHOUT_LISTS = ("--column", "propensity=")
"""The log's propensities of lists are random, and no products of those by position."""
EXTRA_COLUMNS = {"signal:cart": "cart", "signal:revenue": "revenue", "segment:device": "device"}
EVENT_COLUMNS = tuple(
    word for name, column in {"list": "session", **EXTRA_COLUMNS}.items() for word in ("--column", f"{name}={column}")
)
"""Of a table with a row per result, which `import` takes as impressions with what followed them."""
CALLS: dict[str, list[tuple[object, ...]]] = {
    "fit": [(model, "LOG", "-o", "OUT", *by) for model in ("PBM", "DBN") for by in ((), ("--by", "device"))],
    "evaluate": [("MODEL", "LOG"), ("BY_DEVICE", "LOG")],
    "examine": [("MODEL",), ("BY_DEVICE", "-o", "OUT.html")],
    "compare": [("LOG", "--model", "PBM", "--model", "dCTR")],
    "conversions": [("LOG", "--signal", "cart"), ("ENCODED", "--signal", "cart", "--signal", "revenue")],
    "judgments": [("MODEL", "--log", "LOG", "--value", "click + revenue", "-o", "OUT.csv")],
    "audit": [("MODEL", "LOG", "--labels", "TRUTH", "--permutations", 19, "--subsamples", 0)],
    "doctor": [("LOG", "--fail-on", "never", "--no-effects")],
    "decide": [
        ("LOG", "--candidate", "TARGET", *FEW),
        ("LOG", "--candidate", "TARGET", *PROPENSITIES, *KIND, "conditional", *WITHOUT_LISTS, *FEW),
    ],
    "explore": [("LOG", "--model", "MODEL", "-o", "OUT.html")],
    "import": [("EVENTS", "-o", "OUT.parquet", *EVENT_COLUMNS)],
    "predict": [("MODEL", "LOG", "-o", "OUT.parquet"), ("BY_DEVICE", "LOG", "-o", "OUT.parquet")],
    "propensities": [
        *(("LOG", "--method", method, *FEW) for method in ("PBM", "swaps", "harvesting")),
        ("LOG", "--by", "device", "-o", "OUT.json", *FEW),
    ],
    "log info": [("LOG",), ("ENCODED",)],
    "log encode": [("LOG", "-o", "OUT")],
    "log split": [("LOG", "--train", "OUT.parquet", "--test", "OUT-2.parquet", "--split", "time")],
    "log count": [("LOG", "-o", "OUT")],
    "log group": [("LOG", "-o", "OUT.csv")],
    "log merge": [("COUNTS", "LATER_COUNTS", "-o", "OUT")],
    "log drift": [("COUNTS", "LATER_COUNTS")],
    "shift logs": [("--train", "LOG", "--test", "LATER", "--model", "dCTR", "--seeds", 1, "--workers", 0, "-o", "OUT")],
    "ope evaluate": [
        ("LOG", "--target", "TARGET", "--estimator", "IP", "--estimator", "RIPS", *FEW),
        ("LOG", "--target", "TARGET", *PROPENSITIES, "--model", "MODEL", *FEW),
        ("LOG", "--target", "TARGET", *PROPENSITIES, "--estimator", "RIPS", *FEW),
        ("LOG", "--target", "TARGET", *PROPENSITIES, *KIND, "conditional", "--model", "MODEL", *WITHOUT_LISTS, *FEW),
        ("LOG", "--target", "TARGET", *PROPENSITIES, *KIND, "independent", *ESTIMATED, *WITHOUT_LISTS, *FEW),
        ("LOG", "--target", "TARGET", *PROPENSITIES, *KIND, "conditional", *FEW),
        ("LOG", "--target", "TARGET", *PROPENSITIES, "--reward", "revenue", "--estimator", "IP", *FEW),
        ("LOG", "--target", "TARGET", "--reward", "revenue", *FEW),
        ("ENCODED", "--target", "TARGET", "--reward", "10*cart@3", *FEW),
    ],
    "ope optimise": [
        ("LOG", "-o", "OUT.jsonl", "--estimator", "List", *FEW),
        ("LOG", "-o", "OUT.jsonl", "--estimator", "IP", *FEW),
    ],
    "ope backtest": [("LOG", "--parts", 2, "--queries", 2, "--reward", "clicks@3", "-o", "OUT")],
    "rank train": [
        ("CORPUS", "--clicks", "LOG", "-o", "OUT", "--loss", "lambdamart", "--examination", "1/rank", *PROPENSITIES),
        ("CORPUS", "--clicks", "LOG", "-o", "OUT", "--loss", "lambdamart", *CURVES),
        ("CORPUS", "--clicks", "LOG", "-o", "OUT", "--loss", "lambdamart", *CURVES, *PROPENSITIES),
        ("CORPUS", "--clicks", "LOG", "-o", "OUT", "--loss", "lambdamart", "--model", "BY_DEVICE"),
    ],
    "rank evaluate": [("RANKER", "CORPUS", "--clicks", "LOG", "--include-training")],
    "rank export": [("RANKER", "OUT.txt")],
    "rank score": [("RANKER", "CORPUS", "-o", "OUT.csv")],
    "rank labels": [
        ("CORPUS", "--clicks", "LOG", "-o", "OUT.parquet", "--examination", "1/rank"),
        ("CORPUS", "--clicks", "LOG", "-o", "OUT.parquet", *CURVES),
        ("CORPUS", "--clicks", "LOG", "-o", "OUT.txt", "--examination", "1/rank", *PROPENSITIES),
    ],
}
"""Calls of commands that take a log, where the log alone is not enough. Names in capitals are files."""

REFUSED = {
    # marginal propensities by position are not those of prefixes: documents at two ranks are not independent
    ("ope evaluate", "RIPS"): "no-prefix-propensities",
    # conditional ones determine those of lists, and the log's are others
    ("ope evaluate", "conditional"): "propensities-disagree",
    # a best placement fills ranks, and nobody knows whether a document may be shown where a hole is
    ("ope optimise", "IP"): "lists-with-holes",
}
"""Code of what is refused, by command and option."""

WITHOUT_A_LOG = {
    "simulate": "it writes a log",
    "models": "it lists models",
    "relevance": "it is another name of judgments",
    "corpus info": "it describes features",
    "log convert": "it reads public logs in formats of their own",
    **dict.fromkeys(("reproduce", "shift run", "shift figure1", "shift figure2", "shift table3"), "they simulate"),
    **dict.fromkeys(("shift table4", "shift export", "selection run"), "they simulate"),
    **dict.fromkeys(("shift status", "shift report", "selection status", "selection report"), "they show a run"),
    "shift score": "it takes predictions for exported lists",
}
"""Commands that take no log of clicks, nor what another command made of one, and why."""

TAKES_A_LOG = {"log", "clicks", "days"}
"""Parameters of commands that are logs of clicks, or counts of one; `import` has events of the same name."""

EXTRAS: dict[str, Any] = {"signals": SIGNALS, "segments": SEGMENTS}
COLUMNS = tuple(word for name, column in EXTRA_COLUMNS.items() for word in ("--column", f"{name}={column}"))
LOG_COMMANDS = {name for name, command in commands() if TAKES_A_LOG & {param.name for param in command.params}}
LOG_COMMANDS -= {"import", "relevance"}
CASES = [(name, one) for name in sorted({*CALLS} | LOG_COMMANDS) for one in CALLS.get(name, [("LOG",)])]


@pytest.fixture(scope="module")
def log() -> Sessions:
    return full_log(120)


@pytest.fixture(scope="module")
def files(log: Sessions, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The log, another one, and what commands need besides: a model, counts, targets, labels, features, a ranker."""
    folder = tmp_path_factory.mktemp("full")
    names = {"LOG": "log.parquet", "LATER": "later.parquet", "TARGET": "target.parquet", "TRUTH": "truth.parquet"}
    found = {name: folder / file for name, file in names.items()} | {"CORPUS": folder / "corpus.parquet"}
    folders = ("MODEL", "BY_DEVICE", "COUNTS", "LATER_COUNTS", "ENCODED", "RANKER")
    found |= {name: folder / name.lower() for name in folders}
    found |= {"EVENTS": folder / "events.csv", "CURVES": folder / "curves.json"}
    write_log(log, found["LOG"])
    write_log(full_log(60, seed=1), found["LATER"], layout="long")
    write_log(full_log(60, counts=False), found["EVENTS"], layout="long")
    words, rng = log.vocabulary, np.random.default_rng(0)
    pairs = {"query": words.query_ids[words.pair_query].tolist(), "doc": words.doc_ids[words.pair_doc].tolist()}
    number, label = rng.random((3, words.n_pairs)), rng.integers(0, 3, words.n_pairs)
    for name, columns in {
        "TARGET": {"score": number[0]},
        "TRUTH": {"label": label},
        "CORPUS": {"label": label, "a": number[1], "b": number[2]},
    }.items():
        pq.write_table(pa.table(pairs | columns), found[name])
    train = ("CORPUS", "--clicks", "LOG", "-o", "RANKER", "--loss", "lambdamart", "--examination", "1/rank")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for command in (
            ("fit", "PBM", "LOG", "-o", "MODEL"),
            ("fit", "PBM", "LOG", "--by", "device", "-o", "BY_DEVICE", *COLUMNS),
            ("propensities", "LOG", "--by", "device", "-o", "CURVES", *FEW, *COLUMNS),
            ("log", "count", "LOG", "-o", "COUNTS"),
            ("log", "count", "LATER", "-o", "LATER_COUNTS"),
            ("log", "encode", "LOG", "-o", "ENCODED", *COLUMNS),
            ("rank", "train", *train),
        ):
            assert call(*(found.get(word, word) for word in command)) == 0
    return found


def test_calls_are_of_commands_that_exist() -> None:
    assert {*CALLS} <= {name for name, _ in commands()}
    others = {"predict", "shift logs", "import", "examine", "rank export", "rank score"}
    assert {*CALLS} - LOG_COMMANDS == others, "they take lists, events, models, or options that are logs"
    assert {"fit", "ope evaluate", "log count", "rank train"} <= LOG_COMMANDS
    assert {*CALLS} | LOG_COMMANDS | {*WITHOUT_A_LOG} == {name for name, _ in commands()}
    assert not ({*CALLS} | LOG_COMMANDS) & {*WITHOUT_A_LOG}


@pytest.mark.parametrize(("name", "arguments"), CASES, ids=[f"{name} {k}" for k, (name, _) in enumerate(CASES)])
def test_a_command_takes_the_log_or_says_why_not(
    name: str,
    arguments: tuple[object, ...],
    files: dict[str, Path],
    shell: Shell,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pictures_without_a_browser(monkeypatch)
    given = [_argument(word, files, tmp_path) for word in arguments]
    if "LOG" in arguments and name not in {"predict", "shift logs"}:
        given += COLUMNS
    refused = next((code for (command, word), code in REFUSED.items() if command == name and word in arguments), None)
    if name == "ope evaluate" and ("propensities" not in arguments or {*WITHOUT_LISTS} <= {*arguments}):
        refused = None
    raised: list[ClickshiftError] = []
    monkeypatch.setattr(ClickshiftError, "__init__", _remembering(raised))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code, out, err = shell.run(*name.split(), *given)
    if refused is None:
        assert code in ({0, 1} if name == "decide" else {0}), err
        return
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert raised[-1].code == refused


def _argument(word: object, files: dict[str, Path], folder: Path) -> object:
    """The file that a name in capitals stands for."""
    if isinstance(word, str) and word.startswith("OUT"):
        return folder / word.lower()
    return files.get(word, word) if isinstance(word, str) else word


def _remembering(raised: list[ClickshiftError]) -> Any:
    """Errors as they are made, so that a test sees the code of what the command says."""
    make = ClickshiftError.__init__

    def remember(self: ClickshiftError, *arguments: Any, **facts: Any) -> None:
        make(self, *arguments, **facts)
        raised.append(self)

    return remember


def test_the_log_goes_through_all_forms_without_loss(log: Sessions, files: dict[str, Path], tmp_path: Path) -> None:
    """Written in every layout and format, one after the other, and encoded."""
    current = log
    for layout, ending in (
        ("wide", "parquet"),
        ("long", "csv"),
        ("wide", "jsonl"),
        ("long", "parquet"),
        ("wide", "csv"),
    ):
        write_log(current, tmp_path / f"log.{ending}", layout=layout)  # type: ignore[arg-type]
        current = read_log(tmp_path / f"log.{ending}", **EXTRAS)
    assert content(current) == content(log)
    encoded = open_log(files["ENCODED"])
    assert content(encoded) == content(log)
    write_log(encoded, tmp_path / "decoded.jsonl", layout="long")
    assert content(read_log(tmp_path / "decoded.jsonl", **EXTRAS)) == content(log)


def test_the_parts_of_a_split_are_the_log(log: Sessions, files: dict[str, Path], shell: Shell, tmp_path: Path) -> None:
    parts = tmp_path / "train.parquet", tmp_path / "test.csv"
    options = ("--train", parts[0], "--test", parts[1], "--split", "order", "--fraction", 0.4)
    shell.text("log", "split", files["LOG"], *options, *COLUMNS)
    both = Sessions.concat([read_log(part, **EXTRAS) for part in parts])
    assert both.total == log.total
    assert content(both.merged()) == content(log.merged())


def test_imported_results_are_the_log_but_for_amounts_and_propensities(
    files: dict[str, Path], shell: Shell, tmp_path: Path
) -> None:
    """Holes, clicks, views, signals, segments, arms, times and users come back; what does not is counted by reason."""
    log = full_log(60, counts=False)
    facts = shell.json("import", files["EVENTS"], "-o", tmp_path / "log.parquet", *EVENT_COLUMNS)
    revenue, viewed = np.nan_to_num(log.signals["revenue"]), np.nan_to_num(log.signals["viewed"]) > 0
    (amounts,) = (row for row in facts["rows"] if row["reason"] == "signal-amount")
    assert amounts["count"] == ((revenue > 0) & (revenue != 1)).sum()
    lists = log.rankings
    plain = Rankings(lists.vocabulary, lists.query, lists.pair, lists.shown, segments=lists.segments)
    tracked = viewed.any(axis=1)  # a list of which nothing was seen was not tracked
    signals = {"cart": log.signals["cart"], "revenue": revenue > 0}
    signals["viewed"] = np.where(tracked[:, None] | ~lists.shown, viewed, np.nan)
    expected = Sessions(plain, log.click, log.count, log.time, log.user, signals)
    found = read_log(tmp_path / "log.parquet", **EXTRAS)
    assert sorted(map(str, content(found))) == sorted(map(str, content(expected)))
