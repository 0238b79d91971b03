"""Kill commands that write, at random moments, and look at what is left.

    python -m tests.fuzz.kills --kills 100 [--seed 0] [--command fit] [--keep out/kills]

Each command replaces an existing output. After SIGKILL the old output or the new one must load with the right facts,
and the same command once more must give what an undisturbed one gives, and remove what the killed one left. Half of the
kills come at any moment, half within milliseconds of the first change on the disk. Commands run in forks of a process
that has imported everything, so that most of their time is their own work. Of a failure, the folder as the kill left
it, the folder after the next run and all that was said are kept.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RUN = ("--queries 6 --sessions 200 --test-sessions 30 --testing oracle --testing random --user DBN "
       "--training PL-oracle --workers 0 --model EM('PBM')")  # fmt: skip
SELECTION = "--queries 20 --sessions 500 --user DBN --training Oracle --model PBM --model UBM --workers 0 --repeats 5"
SIMULATE = "--queries 40 --documents 10 --ranks 5 --user DBN"


@dataclass(frozen=True)
class Command:
    """A command that writes: the words of an older call, and of the call that is killed."""

    old: str
    new: str
    outputs: tuple[str, ...]
    facts: Callable[[Path], Any]
    """Facts of an output, which the old and the new one differ in; it fails if the output cannot be loaded."""
    in_parts: bool = False
    """Whether what is finished is kept one by one, so that a kill may leave something between old and new."""


def artifact(folder: Path) -> str:
    """The digest of the arrays of a model, ranker or count table, which its loader has accepted."""
    import clickshift as cs
    from clickshift.counts.daily import DayCounts

    (header,) = folder.glob("*.json")
    {"model": cs.load_model, "ranker": cs.load_ranker}.get(header.stem, DayCounts.load)(folder)
    return str(json.loads(header.read_text())["arrays"])


def encoded(folder: Path) -> Any:
    """The facts of an encoded log."""
    return answer("log", "info", str(folder), "--json")


def log(path: Path) -> Any:
    """The rows of a log."""
    import pyarrow.parquet as pq

    return hashlib.sha256(repr(pq.read_table(path).to_pydict()).encode()).hexdigest()


def text(path: Path) -> str:
    """The content of a text."""
    return path.read_text()


def values(path: Path) -> Any:
    """The numbers of estimated propensities."""
    facts = json.loads(path.read_text())
    return {name: facts[name] for name in sorted(facts) if name not in {"created", "time", "seconds"}}


def run(folder: Path) -> Any:
    """The tasks of a run that are finished, with their rows."""
    from clickshift.experiments.experiment import open_run

    protocol, files, _ = open_run(folder)
    rows = [
        {k: v for k, v in row.items() if not k.endswith(("seconds", "megabytes"))}
        for row in files.rows(protocol.tasks())
    ]
    return repr(rows)


COMMANDS = {
    "fit": Command("fit PBM a.parquet -o OUT", "fit DBN b.parquet -o OUT", ("out",), artifact),
    "encode": Command("log encode a.parquet -o OUT", "log encode b.parquet -o OUT", ("out",), encoded),
    "count": Command("log count a.parquet -o OUT", "log count b.parquet -o OUT", ("out",), artifact),
    "merge": Command("log merge ca -o OUT", "log merge ca cb -o OUT", ("out",), artifact),
    "split": Command(
        "log split a.parquet --train out.parquet --test test.parquet",
        "log split b.parquet --train out.parquet --test test.parquet",
        ("out.parquet", "test.parquet"),
        log,
    ),
    "convert": Command(
        "log convert ya.gz --format yandex-sample -o out.parquet",
        "log convert yb.gz --format yandex-sample -o out.parquet",
        ("out.parquet",),
        log,
    ),
    "judgments": Command("judgments ma -o out.qrels", "judgments mb -o out.qrels", ("out.qrels",), text),
    "rank train": Command(
        "rank train corpus.txt --clicks a.parquet --loss lambdamart --examination 1/rank -o OUT",
        "rank train corpus.txt --clicks a.parquet --loss lambdamart --examination 1,0.8,0.6,0.5,0.4 -o OUT",
        ("out",),
        artifact,
    ),
    "shift run": Command(f"shift run {RUN} -o OUT", f"shift run {RUN} --model UBM -o OUT", ("out",), run, True),
    "selection run": Command(
        f"selection run {SELECTION} --seeds 1 -o OUT",
        f"selection run {SELECTION} --seeds 2 -o OUT",
        ("out",),
        run,
        True,
    ),
    "propensities": Command(
        "propensities a.parquet --replicates 5 -o out.json",
        "propensities b.parquet --replicates 5 -o out.json",
        ("out.json",),
        values,
    ),
}


def answer(*words: str) -> Any:
    """The facts that a command prints."""
    from clickshift.cli import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main(list(words))
    return json.loads(out.getvalue())


def call(words: str) -> str:
    """Run a command; return what it says if it fails."""
    from clickshift.cli import main

    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            main(words.replace("OUT", "out").split(" "))
        except SystemExit as stop:
            return f"exit code {stop.code}: {said.getvalue()}" if stop.code else ""
    return ""


def fork(work: Callable[[], Any], folder: Path) -> tuple[int, int]:
    """Start a function in a process of its own and in a folder; its number, and a pipe with what it returns."""
    reader, writer = os.pipe()
    number = os.fork()
    if number:
        os.close(writer)
        return number, reader
    try:
        os.chdir(folder)
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")
        os.environ["CLICKSHIFT_CACHE"] = str(folder / "cache")
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        try:
            result = json.dumps({"result": work()})
        except BaseException:
            result = json.dumps({"error": traceback.format_exc()})
        with os.fdopen(writer, "w") as pipe:
            pipe.write(result)
    finally:
        os._exit(0)


def done(work: Callable[[], Any], folder: Path) -> Any:
    """What a function returns in a process of its own."""
    number, reader = fork(work, folder)
    with os.fdopen(reader) as pipe:
        result = pipe.read()
    os.waitpid(number, 0)
    facts = json.loads(result or '{"error": "the process crashed"}')
    if "error" in facts:
        raise RuntimeError(facts["error"])
    return facts["result"]


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """All files below a folder, with size and time."""
    found = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            state = path.stat()
            found[str(path.relative_to(folder))] = (state.st_size, state.st_mtime_ns)
    return found


def names(folder: Path) -> Counter[str]:
    """Names of the files below a folder, without digests; the cache may have more."""
    return Counter(re.sub("-[0-9a-f]{16}", "", path) for path in files(folder) if not path.startswith("cache"))


def kill(command: Command, folder: Path, rng: random.Random, seconds: float) -> bool:
    """Start a command and kill it at a random moment; return whether it was still running."""
    before, start = files(folder), time.monotonic()
    number, reader = fork(lambda: call(command.new), folder)
    os.close(reader)
    if rng.random() < 0.5:
        end = start + rng.uniform(0, seconds)
        while time.monotonic() < end and not os.waitid(os.P_PID, number, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            time.sleep(0.001)
    else:
        while files(folder) == before:
            if os.waitid(os.P_PID, number, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
        time.sleep(rng.choice((0, 0.001, 0.005, 0.02, 0.1)) * rng.random())
    os.kill(number, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(number, 0)[1])


def attempt(name: str, work: Path, rng: random.Random, known: dict[str, Any]) -> tuple[str, str]:
    """Kill a command once; return which output was found ("ended" if it was too late to kill), and what is wrong."""
    folder, killed = work / "attempt", work / "killed"
    for path in (folder, killed):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(work / f"old {name}", folder)
    in_time = kill(COMMANDS[name], folder, rng, known["seconds"])
    shutil.copytree(folder, killed)
    try:
        kind, problem = judge(COMMANDS[name], folder, known)
    except RuntimeError as error:  # in a process that looked at the outputs
        kind, problem = "other", f"an output cannot be read: {error}"
    return kind if in_time or problem else "ended", problem  # a failure counts, killed or not


def judge(command: Command, folder: Path, known: dict[str, Any]) -> tuple[str, str]:
    """Look at what a kill left, and run the command once more; return which output was found, and what is wrong."""
    left = [path for path in files(folder) if Path(path).name.startswith(".") or path.startswith("tmp/")]
    kinds = set()
    for output in command.outputs:
        facts = done(lambda output=output: command.facts(folder / output), folder)  # type: ignore[misc]
        if facts in (known["old"][output], known["new"][output]):
            kinds.add("new" if facts == known["new"][output] else "old")
        elif command.in_parts:
            kinds.add("part")
        else:
            return "other", f"{output} is neither the old nor the new one"
    if said := done(lambda: call(f"--verbose {command.new}"), folder):
        return "other", f"the next run failed with {said}"
    for output in command.outputs:
        if done(lambda output=output: command.facts(folder / output), folder) != known["new"][output]:  # type: ignore[misc]
            return "other", f"the next run gave another {output}"
    if (found := names(folder)) != known["names"]:
        return "other", f"not the files of an undisturbed run: {found - known['names']}, {known['names'] - found}"
    return " and ".join(sorted(kinds)) + (", leftovers removed" if left else ""), ""


def keep(work: Path, folder: Path, problem: str) -> None:
    """Keep the folders of a failed attempt, as the kill left it and after the next run, and what was said."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("killed", "attempt"):
        shutil.copytree(work / name, folder / name)
    (folder / "problem.txt").write_text(problem, encoding="utf-8")


def prepare(work: Path, chosen: list[str]) -> dict[str, dict[str, Any]]:
    """Write inputs, old outputs, and the facts of old and new ones."""
    from tests.fuzz.inputs import _write_letor
    from tests.standins import write_standins

    def shown(path: Path) -> Any:
        import pyarrow.parquet as pq

        rows = pq.read_table(path, columns=["query", "docs"]).to_pylist()
        return sorted({(row["query"], doc, 0) for row in rows for doc in row["docs"]})

    base = work / "base"
    (base / "tmp").mkdir(parents=True)
    for words in (
        f"simulate -o a.parquet --sessions 20000 {SIMULATE}",
        f"simulate -o b.parquet --sessions 30000 --seed 1 {SIMULATE}",
        *(
            "log count a.parquet -o ca",
            "log count b.parquet -o cb",
            "fit PBM a.parquet -o ma",
            "fit UBM b.parquet -o mb",
        ),
    ):
        assert done(lambda words=words: call(words), base) == "", words  # type: ignore[misc]
    done(lambda: _write_letor(base / "corpus.txt", shown(base / "a.parquet")), base)
    done(lambda: write_standins(base / "public") and None, base)
    sample = base / "public" / "yandex_wscd" / "trainSample.gz"
    shutil.copy(sample, base / "yb.gz")
    shutil.copy(sample, base / "ya.gz")
    done(lambda: _halve(base / "ya.gz"), base)
    shutil.rmtree(base / "public")
    known = {}
    for name in chosen:
        command = COMMANDS[name]
        old, new = work / f"old {name}", work / f"new {name}"
        shutil.copytree(base, old)
        assert done(lambda command=command: call(command.old), old) == "", command.old  # type: ignore[misc]
        shutil.copytree(old, new)
        start = time.monotonic()
        assert done(lambda command=command: call(command.new), new) == "", command.new  # type: ignore[misc]
        facts: dict[str, Any] = {"seconds": time.monotonic() - start}
        for kind, folder in (("old", old), ("new", new)):
            facts[kind] = {
                output: done(lambda c=command, p=folder / output: c.facts(p), folder)  # type: ignore[misc]
                for output in command.outputs
            }
        assert facts["old"] != facts["new"], name
        facts["names"] = names(new)
        known[name] = facts
    return known


def _halve(path: Path) -> None:
    """Keep the first half of the lines of a gzip file."""
    import gzip

    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(lines[: len(lines) // 2])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--kills", type=int, default=100, help="number of commands to kill; those that end before are not counted"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--command", action="append", choices=sorted(COMMANDS), help="only these commands")
    parser.add_argument("--keep", type=Path, default=Path("out/kills"), help="folder for what failures left")
    options = parser.parse_args()
    import numba  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    import clickshift.cli  # noqa: F401
    from tests.fuzz.__main__ import without_a_browser

    without_a_browser()
    chosen = options.command or list(COMMANDS)
    found: Counter[str] = Counter()
    attempts, killed, wrong, start = 0, 0, 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="clickshift-kills-") as folder:
        known = prepare(Path(folder), chosen)
        while killed < options.kills:
            name = chosen[attempts % len(chosen)]
            kind, problem = attempt(name, Path(folder), random.Random(f"{options.seed} {attempts}"), known[name])
            found[f"{name}: {kind}"] += 1
            killed += kind != "ended"
            print(f"[{killed}/{options.kills}, {time.monotonic() - start:.0f} s] {name}: {kind}", flush=True)
            if problem:
                wrong += 1
                kept = options.keep / f"seed {options.seed}, {attempts} {name}"
                keep(Path(folder), kept, problem)
                print(f"    {problem}\n    kept in {kept}", flush=True)
            attempts += 1
    for line, number in sorted(found.items()):
        print(f"{number:5}  {line}")
    print(f"{attempts} attempts with seed {options.seed} in {time.monotonic() - start:.0f} s")
    print(f"{killed} commands were killed: {killed - wrong} lost nothing, {wrong} failed")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
