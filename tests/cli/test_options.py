"""Options that no command can use are one error each, before any work."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

import pytest

import clickshift as cs
from clickshift.display.export import csv_text
from clickshift.errors import SpecError
from clickshift.experiments.policy_shift.derived_policies import DerivedPolicies
from clickshift.learners.base import learner_for
from clickshift.simulation import users
from tests.cli.shell import Shell, commands
from tests.codes import raises_code


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("shift", "run", "--penalty", "nan"), "penalt"),
        (("shift", "run", "--penalty", "inf"), "penalt"),
        (("shift", "run", "--search", ""), "search"),
        (("shift", "run", "--user", "DBN(satisfaction=5)"), "satisfaction"),
        (("simulate", "--user", "DBN(satisfaction=5)"), "satisfaction"),
        (("simulate", "--user", "DBN(satisfaction='x')"), "satisfaction"),
        (("simulate", "--user", "PBM(eta=-1)"), "eta"),
        (("simulate", "--user", "Carousel(columns=0)"), "columns"),
        (("simulate", "--user", "CoCM(modes=(0.5, 0.5))"), "modes"),
        (("fit", "EM('UBM', starts=1.5)", "LOG"), "starts"),
        (("fit", "EM('UBM', starts=True)", "LOG"), "starts"),
        (("fit", "MixtureEM(('PBM', 'DBN'), starts=0)", "LOG"), "starts"),
        (("fit", "Gradient('PBM', rounds=2.5)", "LOG"), "rounds"),
        (("fit", "x\0y", "LOG"), "NUL"),
        (("log", "info", "x\0y"), "NUL"),
        (("log", "encode", "LOG", "--memory", "-5GB"), "memory"),
        (("ope", "backtest", "LOG", "--parts", str(2**63)), "parts"),
        (("ope", "backtest", "LOG", "--parts", "1001"), "parts"),
    ],
)
def test_a_bad_option_is_one_error(
    command: tuple[str, ...], said: str, shell: Shell, clicks: Path, tmp_path: Path
) -> None:
    words = [str(clicks) if word == "LOG" else word for word in command]
    if command[0] in {"shift", "simulate", "fit"} or "encode" in command:
        words += ["-o", str(tmp_path / "out.parquet")]
    code, out, err = shell.run(*words)
    assert (code, out) == (2, "")
    assert err.startswith("clickshift: ")
    assert err.count("\n") == 1
    assert said in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [("-o", ""), ("--output", ""), ("--output=",)])
def test_no_command_takes_an_empty_output_for_the_current_folder(
    words: tuple[str, ...], shell: Shell, clicks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with_output = [name for name, command in commands() if any(o.name == "output" for o in command.params)]
    assert len(with_output) > 20
    for name in (["fit", "PBM", str(clicks)], ["simulate"], *map(str.split, with_output)):
        assert "must not be empty" in shell.error(*name, *words)
    assert list(tmp_path.iterdir()) == []


def test_a_column_may_still_be_left_out(shell: Shell, clicks: Path) -> None:
    assert shell.json("log", "info", clicks, "--column=time=") == shell.json("log", "info", clicks)


def test_options_are_checked_in_python_too() -> None:
    for wrong in (
        lambda: users.DBN(satisfaction=5),
        lambda: users.CoCM(modes=(0.5, 0.6, float("nan"))),
        lambda: DerivedPolicies(penalties=(float("nan"),)),
        lambda: learner_for("EM('UBM', tolerance='x')"),
    ):
        with raises_code("bad-option", SpecError):
            wrong()
    with raises_code("unknown-name", SpecError):
        cs.policy_shift(search="")
    assert learner_for("EM('UBM', tolerance=1)") == cs.MaximumLikelihood("UBM", tolerance=1)


@pytest.mark.parametrize("which", ["train = test", "train = log", "test = log", "by a link", "in a folder"])
def test_a_split_does_not_write_two_logs_to_one_file(which: str, shell: Shell, clicks: Path, tmp_path: Path) -> None:
    log = tmp_path / "log" / "clicks.parquet"
    log.parent.mkdir()
    log.write_bytes(clicks.read_bytes())
    train, test, source = tmp_path / "a.parquet", tmp_path / "b.parquet", log
    if which == "train = test":
        test = tmp_path / "log" / ".." / "a.parquet"
    elif which == "train = log":
        train = log
    elif which == "test = log":
        test = Path(os.path.relpath(log))
    elif which == "by a link":
        os.link(log, train)
    else:
        source, train = log.parent, log
    before = log.read_bytes()
    assert "same as" in shell.error("log", "split", source, "--train", train, "--test", test)
    assert log.read_bytes() == before
    assert not (tmp_path / "b.parquet").exists()


def test_tables_for_people_hold_no_formulas() -> None:
    texts = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)"]
    rows = [{"=model": text, "value": -0.5, "text": "-1.5e-3", "count": -3} for text in texts]
    head, *lines = csv.reader(io.StringIO(csv_text(rows), newline=""))
    assert head[0] == "'=model"
    assert [line[0] for line in lines] == [f"'{text}" for text in texts]
    assert list(csv.reader(io.StringIO(csv_text([{"a": "\r=1"}, {"a": "\t=1"}, {"a": "b\n=1"}]), newline=""))) == [
        ["a"],
        ["\\r=1"],
        ["\\t=1"],
        ["b\\n=1"],
    ]
    assert all(line[1:] == ["-0.5", "-1.5e-3", "-3"] for line in lines), "numbers stay numbers"


def test_ids_in_files_of_data_stay_as_they_are(tmp_path: Path) -> None:
    """Files of data are read again, and an id that changed would be another document."""
    docs = [["=1+1", "-x"], ["+y", "@z"]]
    log = cs.read_log(_frame(docs))
    cs.write_log(log, tmp_path / "log.csv")
    again = cs.read_log(tmp_path / "log.csv")
    assert again.vocabulary.fingerprint == log.vocabulary.fingerprint


def _frame(docs: list[list[str]]) -> object:
    import pandas as pd

    return pd.DataFrame({"query": ["q"] * len(docs), "docs": docs, "clicks": [[1, 0]] * len(docs)})
