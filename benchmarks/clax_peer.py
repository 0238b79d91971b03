"""CLAX's side of benchmarks/clax.py: train one of its models with one setting, and say how long every epoch took.

Runs in CLAX's own environment, which has no clickshift. `python -P`, or benchmarks/clax.py hides the package clax.

The trainer, the optimiser and the early stopping are CLAX's own and left alone; sessions come from arrays in memory, in
slices, which is faster than its Parquet readers. Every epoch is stamped when the next one begins, that is after its
validation loss is known. Programs are compiled beforehand, by training another such model on a few batches.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

CLIP = 1e-8
"""CLAX gives a cascade model's second click this probability, so it is the clip of both sides: 26.6 bits at most."""

Batch = dict[str, np.ndarray]
Stamp = tuple[float, float]


class Peak:
    """The highest resident memory from here on, in MB, beyond what is resident now.

    getrusage's maximum may be that of reading the log, which copies; Linux's own can be reset.
    """

    def __init__(self) -> None:
        self.before = _status("VmRSS")

    def reset(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")

    def beyond(self) -> dict[str, float]:
        highest = _status("VmHWM")
        return {"beyond_log_mb": highest - self.before, "process_mb": highest}


def _status(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def conditional_perplexity(bits: np.ndarray) -> float:
    """Mean over ranks of 2^(mean bits at the rank)."""
    return float(np.exp2(bits.mean(axis=0)).mean())


class Loader:
    """Slices of arrays; remembers when each pass began (wall clock and CPU time)."""

    def __init__(self, log: Batch, batch: int) -> None:
        self.log, self.batch, self.began = log, batch, list[Stamp]()

    def __len__(self) -> int:
        return math.ceil(len(self.log["clicks"]) / self.batch)

    def __iter__(self) -> Iterator[Batch]:
        self.began.append(now())
        for start in range(0, len(self.log["clicks"]), self.batch):
            yield {name: values[start : start + self.batch] for name, values in self.log.items()}

    def few(self) -> Loader:
        """Two whole batches and the short last one: all shapes that a pass has."""
        rows = min(2 * self.batch, len(self.log["clicks"])) + len(self.log["clicks"]) % self.batch
        return Loader({name: values[:rows] for name, values in self.log.items()}, self.batch)


def now() -> Stamp:
    return time.perf_counter(), time.process_time()


def read(file: Path) -> Batch:
    with np.load(file) as log:
        pair, click = log["pair"], log["click"]
    return {
        "query_doc_ids": pair + np.int32(1),  # 0 is padding
        "positions": np.ascontiguousarray(np.broadcast_to(np.arange(1, pair.shape[1] + 1, dtype=np.int32), pair.shape)),
        "clicks": click.astype(np.float32),
        "mask": np.ones(pair.shape, bool),
    }


def models(pairs: int, positions: int) -> dict[str, Callable[[], Any]]:
    import clax
    from flax import nnx

    def make(kind: Any, **options: Any) -> Callable[[], Any]:
        return lambda: kind(**options, rngs=nnx.Rngs(42))

    both = {"positions": positions, "query_doc_pairs": pairs}
    return {
        "rCTR": make(clax.RankCTRModel, positions=positions),
        "dCTR": make(clax.DocumentCTRModel, query_doc_pairs=pairs),
        "PBM": make(clax.PositionBasedModel, **both),
        "UBM": make(clax.UserBrowsingModel, **both),
        "CM": make(clax.CascadeModel, query_doc_pairs=pairs),
        "DCM": make(clax.DependentClickModel, **both),
        "CCM": make(clax.ClickChainModel, query_doc_pairs=pairs),
        "SDBN": make(clax.DynamicBayesianNetwork, query_doc_pairs=pairs, fix_continuation=True),
        "DBN": make(clax.DynamicBayesianNetwork, query_doc_pairs=pairs),
    }


def as_clax_predicts(model: Any, batch: Batch) -> Any:
    return model.predict_conditional_clicks(batch)


def as_cm_predicts(model: Any, batch: Batch) -> Any:
    """CM's conditional with CLAX's parameters: attractiveness where nothing was clicked above. (CLAX's own prediction
    is the marginal there; the probabilities of all click vectors of a list then do not add up to 1.)"""
    from jax import numpy as jnp

    clicks = batch["clicks"]
    clicked_above = jnp.cumsum(clicks, axis=-1) - clicks > 0
    return jnp.where(clicked_above, jnp.log(CLIP), model.predict_relevance(batch))


def judged(model: Any, loader: Loader, prediction: Callable[[Any, Batch], Any] = as_clax_predicts) -> float:
    """Conditional perplexity in double precision, with the clip; CLAX's own metric is single precision, unclipped."""
    from flax import nnx

    predict = nnx.jit(prediction)
    bits = []
    for batch in loader:
        prob = np.clip(np.exp(np.asarray(predict(model, batch), np.float64)), CLIP, 1 - CLIP)
        bits.append(-np.log2(np.where(batch["clicks"] > 0, prob, 1 - prob)))
    return conditional_perplexity(np.concatenate(bits))


def train(data: Path, name: str, *, batch: int, rate: float, pairs: int, epochs: int) -> dict[str, Any]:
    from clax import Trainer
    from optax import adamw

    train_loader, validation = (Loader(read(data / f"{part}.npz"), batch) for part in ("train", "validation"))
    make = models(pairs, train_loader.log["clicks"].shape[1])[name]
    trainer, peak = Trainer(optimizer=adamw(rate), epochs=epochs), Peak()
    trainer.train(make(), train_loader.few(), validation.few())  # compiles
    model = make()
    peak.reset()
    start = now()
    table = trainer.train(model, train_loader, validation)
    end = now()
    memory = peak.beyond()
    unseen = Loader(read(data / "test.npz"), 8192)
    return {
        "batch": batch,
        "learning_rate": rate,
        "epochs": _epochs(start, end, train_loader.began, validation.began, table["val_cond_ppl"].astype(float)),
        "seconds": end[0] - start[0],
        "cpu_seconds": end[1] - start[1],
        "validation": judged(model, Loader(validation.log, 8192)),
        "test": judged(model, unseen),
        **({"test_as_cm": judged(model, unseen, as_cm_predicts)} if name == "CM" else {}),
        **memory,
    }


def _epochs(start: Stamp, end: Stamp, began: list[Stamp], validated: list[Stamp], ppl: Any) -> list[dict[str, float]]:
    """Time from the start to the end of each epoch, and what of it was training rather than validation."""
    rows, training = [], 0.0
    for first, middle, last, value in zip([start, *began[1:]], validated, [*began[1:], end], ppl, strict=True):
        training += middle[0] - first[0]
        wall, cpu = last[0] - start[0], last[1] - start[1]
        rows.append({"seconds": wall, "training_seconds": training, "cpu_seconds": cpu, "validation": float(value)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with train.npz, validation.npz and test.npz")
    parser.add_argument("model")
    parser.add_argument("output", type=Path, help="JSON file to write")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rate", type=float, default=0.003)
    parser.add_argument("--pairs", type=int, required=True, help="number of (query, document) pairs")
    parser.add_argument("--epochs", type=int, default=50)
    args = parser.parse_args()
    result = train(args.data, args.model, batch=args.batch, rate=args.rate, pairs=args.pairs, epochs=args.epochs)
    result["versions"] = {
        name: version(name) for name in ("clax-models", "jax", "jaxlib", "flax", "optax", "torch", "numpy")
    }
    args.output.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
