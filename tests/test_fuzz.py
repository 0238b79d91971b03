"""The fuzzer itself: it finds faults that are planted, and accepts answers that are as promised."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from clickshift.learners.counting import Counting
from tests.fuzz import __main__ as fuzz
from tests.fuzz import cases
from tests.fuzz.cases import Case


@pytest.fixture
def fit(clicks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A family with one case: a fit that works."""
    arguments = ["fit", "rCTR", str(clicks), "-o", "out", "--json"]

    def check(facts: Any) -> str:
        return "" if facts["model"] == "rCTR" else "another model"

    monkeypatch.setitem(cases.FAMILIES, "fit", lambda rng, inputs, folder: Case(arguments, check))


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    path = tmp_path / "clicks.jsonl"
    path.write_text('{"query": "cats", "docs": ["a", "b"], "clicks": [1, 0]}\n' * 5)
    return path


def problem(tmp_path: Path) -> str:
    return str(fuzz.run_case("fit", 0, 0, tmp_path)["problem"])


def test_a_command_that_works_has_no_problem(fit: None, tmp_path: Path) -> None:
    assert problem(tmp_path) == ""


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (lambda *arguments, **options: 1 / 0, "traceback"),
        (lambda *arguments, **options: print("half"), "traceback"),
        (lambda *arguments, **options: os.mkdir("out") or Path("nowhere").read_text(), "left behind"),
    ],
)
def test_a_planted_fault_is_found(
    fault: Any, expected: str, fit: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counting, "fit", fault)
    assert problem(tmp_path).startswith(expected)


def test_facts_that_a_second_reader_denies_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(["models", "--json"], lambda facts: "another opinion")
    monkeypatch.setitem(cases.FAMILIES, "models", lambda rng, inputs, folder: case)
    assert fuzz.run_case("models", 0, 0, tmp_path)["problem"] == "another opinion"


@pytest.mark.parametrize(
    ("code", "out", "err", "seconds", "expected"),
    [
        (0, "", "", 1, ""),
        (2, "", "clickshift: warning: a\nclickshift: b\n", 1, ""),
        (2, "", "", 1, "0 lines say why"),
        (2, "half a table", "clickshift: b\n", 1, "failed, but printed"),
        (70, "", "clickshift: b\n", 1, "exit code 70"),
        (None, "", "", 1, "exit code None"),
        (0, "", "", 31, "took 31 s"),
        (0, "", "Traceback (most recent call last):", 1, "traceback"),
    ],
)
def test_answers_are_judged(code: Any, out: str, err: str, seconds: float, expected: str) -> None:
    judged = fuzz.judge(code, out, err, seconds, cases.ALLOWED_CODES)
    assert judged.startswith(expected)
    assert bool(judged) == bool(expected)


def test_a_crash_of_a_worker_is_an_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz.Worker, "_start", lambda worker: None)
    worker = fuzz.Worker(tmp_path, 0)

    class Crashed:
        stdin = io.StringIO()

        def wait(self) -> int:
            return -signal.SIGSEGV

    worker._process = Crashed()  # type: ignore[assignment]
    worker._answers = fuzz.queue.SimpleQueue()
    worker._answers.put("")
    assert worker.run("folder", 3)["problem"] == f"the process crashed with {-signal.SIGSEGV}"
