"""What a curve per segment costs: CPU seconds of a fit with `by`, as a multiple of the same fit with one curve.

    python benchmarks/segments.py

Sessions are lists of ten results on two devices. "fit" is `cs.fit`, which also looks whether segments differ; "without
segments" is the same fit on the same log without its segment. "from a file" includes reading a Parquet file. Fits that
are compared take turns, so that other work on the machine slows all of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import clickshift as cs
from clickshift.core.files import write_atomically
from clickshift.errors import ClickshiftWarning

HERE = Path(__file__).resolve().parent
MODELS = ("PBM", "UBM", "DBN", "DCM", "CCM")
RANKS, DOCS = 10, 20


def make_log(sessions: int, queries: int, *, seed: int = 0) -> tuple[cs.Sessions, cs.Sessions]:
    """A log of position-based users on two devices, and the same without its segment."""
    rng = np.random.default_rng(seed)
    vocabulary, _, _ = cs.Vocabulary.of(np.repeat(np.arange(queries), DOCS), np.tile(np.arange(DOCS), queries))
    attractiveness, rank = rng.beta(1.5, 3, (queries, DOCS)), np.arange(1, RANKS + 1)
    curves = np.stack([1 / rank**0.4, 0.95 / rank**1.2])
    query = (queries * rng.random(sessions) ** 2).astype(np.int32)  # some are more frequent
    device = rng.choice(2, sessions, p=[0.4, 0.6])
    doc = np.empty((sessions, RANKS), np.int32)
    for start in range(0, sessions, 100_000):
        rows = slice(start, start + 100_000)
        score = np.log(attractiveness)[query[rows]] + rng.gumbel(size=(len(query[rows]), DOCS))
        doc[rows] = np.argsort(-score, axis=1)[:, :RANKS]
    click = rng.random(doc.shape) < attractiveness[query[:, None], doc] * curves[device]
    pair = query[:, None] * np.int32(DOCS) + doc
    segments = {"device": cs.Segment(("desktop", "phone"), device.astype(np.int32))}
    with_segment = cs.Rankings(vocabulary, query, pair, segments=segments)
    return cs.Sessions(with_segment, click), cs.Sessions(cs.Rankings(vocabulary, query, pair), click)


def seconds(works: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median CPU seconds of calls that take turns."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            start = time.process_time()
            work()
            taken[name].append(time.process_time() - start)
    return {name: statistics.median(times) for name, times in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "segments.json")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ClickshiftWarning)
    log, plain = make_log(options.sessions, options.queries)
    small, small_plain = make_log(2000, 20)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "log.parquet"
        cs.write_log(log, file)
        for model in MODELS:
            cs.fit(model, small, by="device")  # compiles
            cs.fit(model, small_plain)
            works = {
                "without segments": partial(cs.fit, model, plain),
                "fit": partial(cs.fit, model, log),
                "by": partial(cs.fit, model, log, by="device"),
                "fit from a file": partial(cs.fit, model, file),
                "by from a file": partial(cs.fit, model, file, by="device"),
            }
            row = {"model": model, "sessions": options.sessions, "pairs": log.vocabulary.n_pairs}
            row |= seconds(works, options.repeats)
            row["by / fit"] = row["by"] / row["fit"]
            row["by / fit, from a file"] = row["by from a file"] / row["fit from a file"]
            row["fit / without"] = row["fit"] / row["without segments"]
            rows.append(row)
            print({name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()})
    with write_atomically(options.output) as temporary:
        temporary.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
