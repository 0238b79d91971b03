"""Attack the command line with generated input, and report every answer that is not one of its promises.

    python -m tests.fuzz --count 2000 --seconds 120 [--seed 0] [--family folder] [--case 17]

A promise: a command exits with 0, 1, 2 or 3, says why in one line if it did not succeed, prints no traceback, does not
crash, and ends within 30 seconds; where a second reader or the undamaged input is at hand, success means its numbers.
Cases are determined by seed, family and number. Worker processes run them, so that a crash is seen and survived.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

HANG = 30.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="number of cases")
    parser.add_argument("--seconds", type=float, default=300, help="time after which no case is started")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--family", action="append", help="only these families")
    parser.add_argument("--case", type=int, help="run one case of one family here, and show it")
    parser.add_argument("--inputs", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inputs is not None and options.case is None:
        serve(options.inputs, options.seed)
        return
    with tempfile.TemporaryDirectory(prefix="clickshift-fuzz-") as name:
        inputs = options.inputs or Path(name)
        if options.inputs is None:
            prepare(inputs)
        if options.case is not None:
            print(json.dumps(run_case(options.family[0], options.case, options.seed, inputs, show=True), indent=1))
            return
        attack(options, inputs)


def prepare(inputs: Path) -> None:
    """Write the valid inputs, quietly."""
    from tests.fuzz.cases import write_expected
    from tests.fuzz.inputs import write_inputs

    print("preparing inputs", flush=True)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        write_inputs(inputs)
        write_expected(inputs)


def attack(options: argparse.Namespace, inputs: Path) -> None:
    """Share the cases among workers and report what is wrong; exit with 1 if anything is."""
    from tests.fuzz.cases import FAMILIES

    families = options.family or sorted(FAMILIES)
    todo: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
    for k in range(options.count):
        todo.put((families[k % len(families)], k // len(families)))
    outcomes: Counter[str] = Counter()
    wrong: list[dict[str, Any]] = []
    start = time.monotonic()

    def work() -> None:
        worker = Worker(inputs, options.seed)
        while time.monotonic() - start < options.seconds:
            try:
                family, number = todo.get_nowait()
            except queue.Empty:
                break
            outcome = worker.run(family, number)
            outcomes[f"{family}: exit {outcome.get('code')}"] += 1
            if outcome["problem"]:
                wrong.append(outcome)
                print(f"{family} {number}: {outcome['problem']}\n    {outcome.get('arguments')}", flush=True)
        worker.close()

    threads = [threading.Thread(target=work) for _ in range(options.workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, number in sorted(outcomes.items()):
        print(f"{number:7,}  {name}")
    total = outcomes.total()
    print(f"{total:,} cases in {time.monotonic() - start:.0f} s with seed {options.seed}")
    print(f"{total - len(wrong)} passed, {len(wrong)} failed")
    sys.exit(1 if wrong else 0)


class Worker:
    """A process that runs cases; it is replaced when it crashes or hangs."""

    def __init__(self, inputs: Path, seed: int) -> None:
        self._inputs, self._seed = inputs, seed
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "tests.fuzz", "--inputs", str(self._inputs), "--seed", str(self._seed)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        process, answers = self._process, self._answers

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                answers.put(line)
            answers.put("")

        threading.Thread(target=read, daemon=True).start()

    def run(self, family: str, number: int) -> dict[str, Any]:
        """The outcome of a case, a crash or a hang included."""
        case = {"family": family, "number": number}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        try:
            line = self._answers.get(timeout=HANG + 30)
        except queue.Empty:
            self._process.kill()
            problem = f"no answer within {HANG + 30:.0f} s"
        else:
            if line:
                return {**case, **json.loads(line)}
            problem = f"the process crashed with {self._process.wait()}"
        self._start()
        return {**case, "problem": problem}

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def serve(inputs: Path, seed: int) -> None:
    """Run the cases whose names come on standard input."""
    for line in sys.stdin:
        case = json.loads(line)
        print(json.dumps(run_case(case["family"], case["number"], seed, inputs)), flush=True)


def run_case(family: str, number: int, seed: int, inputs: Path, *, show: bool = False) -> dict[str, Any]:
    """Run one case in a new folder; what it answered, and what is wrong with that."""
    from clickshift.cli import main as clickshift
    from tests.fuzz.cases import ALLOWED_CODES, make_case

    folder, before = Path(tempfile.mkdtemp(prefix="case-", dir=inputs)), Path.cwd()
    out, err = io.StringIO(), io.StringIO()
    problem, code, seconds = "", None, 0.0
    case = make_case(family, number, seed, inputs, folder)
    try:
        os.chdir(folder)
        os.environ["CLICKSHIFT_CACHE"] = str(folder / "cache")
        start = time.monotonic()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                clickshift(case.arguments)
            except SystemExit as stop:
                code = stop.code
            except BaseException as error:
                problem = f"{type(error).__name__}: {error}"
        seconds = time.monotonic() - start
        problem = problem or judge(code, out.getvalue(), err.getvalue(), seconds, ALLOWED_CODES)
        if not problem and code == 0 and case.check is not None and "--json" in case.arguments:
            problem = check(case, out.getvalue())
        if not problem and code not in {0, 1}:
            left = [path.name for path in folder.iterdir() if path.name.startswith(".") or path.name == "out"]
            problem = f"left behind: {left}" if left else ""
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)
    shown = {"out": out.getvalue()[-2000:], "err": err.getvalue()[-2000:]} if show else {}
    return {"code": code, "problem": problem[:500], "arguments": case.arguments, "seconds": round(seconds, 2), **shown}


def judge(code: Any, out: str, err: str, seconds: float, allowed: set[int]) -> str:
    """What is wrong with an answer, whatever was asked."""
    if "Traceback" in err or "internal error" in err:
        return f"traceback: {err.strip()[-300:]}"
    if code not in allowed:
        return f"exit code {code}: {err.strip()[-300:]}"
    if seconds > HANG:
        return f"took {seconds:.0f} s"
    reasons = [line for line in err.splitlines() if line.startswith("clickshift: ")]
    if code in {2, 3} and len(reasons) != 1 and "Usage:" not in err:
        return f"{len(reasons)} lines say why: {err.strip()[-300:]}"
    if code in {2, 3} and out.strip():
        return f"failed, but printed {out.strip()[:100]}"
    return ""


def check(case: Any, out: str) -> str:
    """Compare the facts with the second opinion of the case."""
    try:
        facts = json.loads(out, parse_constant=lambda name: name)
        return str(case.check(facts))
    except Exception as error:
        return f"the second reader refuses what was accepted: {type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
