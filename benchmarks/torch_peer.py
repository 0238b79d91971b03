"""Train one neural click model of Deffayet et al. (2022) in plain eager PyTorch, and say how long every check took.

    python torch_peer.py DATA.npz --model PBM --batch 512 --rate 0.001 --threads 2 --seed 0 --target 1.75 -o OUT.json

Runs in an environment of its own (requirements-torch.txt), which has no clickshift. DATA.npz holds query [N], pair
[N, R] and click [N, R], each with the prefix train_, validation_ or test_.

The recipe is that of the authors' code, which trains one seed at a time: dense Adam over all parameters, embeddings
included; mini-batches in a new random order every epoch; ReduceLROnPlateau and early stopping on the validation loss.
What its framework costs on top is left out: sessions are rows of tensors in memory, and nothing is written on the way.

Losses are in nats per session: binary cross-entropy of the clicks given those above, summed over the ranks. The clock
counts training and validation, and the check of a run that is out of time. It does not count imports, reading, building
the model, nor what PyTorch does at first calls, which a throw-away copy of the model has made before.

On a CPU most of a step is Adam's: it goes over all embeddings, several times. `--fused` makes the same updates in one
pass, which PyTorch offers and the authors' code does not ask for.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import platform
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import ReduceLROnPlateau

CLIP = 1e-7
"""About as close to 1 as a click probability gets in single precision."""
EMBEDDING, HIDDEN, STATE, SMALL = 64, (64, 16), 64, 4
CONTINUATION = 2.2
"""DBN's continuation starts at .9: the logit."""
PATIENCE, PLATEAU, FACTOR = 3, 2, 0.5
OFTEN, EVERY = 256, 2000
"""Batches smaller than this are checked every so many steps, the default of the authors' code; others every epoch."""
CHUNK = 4096
SETTINGS = ("model", "batch", "rate", "threads", "seed", "fused", "epochs", "target")
Row = dict[str, Any]


class Log(NamedTuple):
    query: Tensor
    pair: Tensor
    click: Tensor

    @property
    def sessions(self) -> int:
        return len(self.query)

    def rows(self, rows: Tensor | slice) -> Log:
        return Log(self.query[rows], self.pair[rows], self.click[rows])


def read(file: Path, part: str) -> Log:
    with np.load(file) as data:
        query, pair, click = (data[f"{part}_{name}"] for name in Log._fields)
    return Log(*(torch.from_numpy(ids.astype(np.int64)) for ids in (query, pair)), torch.from_numpy(click).float())


def mlp() -> nn.Sequential:
    first, second = HIDDEN
    layers = nn.Linear(2 * EMBEDDING, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU(), nn.Linear(second, 1)
    return nn.Sequential(*layers)


def above(values: Tensor, first: float) -> Tensor:
    """Each rank's value becomes that of the rank above."""
    return F.pad(values[:, :-1], (1, 0), value=first)


class ClickModel(nn.Module):
    """Probabilities of a click at every rank, given the clicks above it."""

    def __init__(self, queries: int, pairs: int) -> None:
        super().__init__()
        self.query, self.document = nn.Embedding(queries, EMBEDDING), nn.Embedding(pairs, EMBEDDING)

    def features(self, log: Log) -> Tensor:
        document = self.document(log.pair)
        query = self.query(log.query)[:, None].expand(-1, document.shape[1], -1)
        return torch.cat([query, document], dim=2)


class Examination(ClickModel):
    """Attractiveness times examination, which depends on ranks and clicks alone."""

    def __init__(self, queries: int, pairs: int, ranks: int) -> None:
        super().__init__(queries, pairs)
        self.attractiveness = mlp()
        self.build(ranks)

    def build(self, ranks: int) -> None:
        raise NotImplementedError

    def examined(self, click: Tensor) -> Tensor:
        """Logits: [R] or [N, R]."""
        raise NotImplementedError

    def forward(self, log: Log) -> Tensor:
        attractive = torch.sigmoid(self.attractiveness(self.features(log))[..., 0])
        return attractive * torch.sigmoid(self.examined(log.click))


class PBM(Examination):
    def build(self, ranks: int) -> None:
        self.table = nn.Embedding(ranks, 1)

    def examined(self, click: Tensor) -> Tensor:
        return self.table.weight[:, 0]


class UBM(Examination):
    """The table's row is the rank, its column that of the last click above; 0 is none."""

    def build(self, ranks: int) -> None:
        self.table = nn.Embedding(ranks * ranks, 1)

    def examined(self, click: Tensor) -> Tensor:
        ranks = torch.arange(click.shape[1])
        last = above(torch.cummax(click.long() * (ranks + 1), dim=1).values, 0)
        return self.table(ranks * len(ranks) + last)[..., 0]


class ARM(Examination):
    """The first entry of the table is the intercept, the others weigh the clicks on ranks 1 to R - 1."""

    def build(self, ranks: int) -> None:
        self.table = nn.Embedding(ranks, 1)

    def examined(self, click: Tensor) -> Tensor:
        return torch.cumsum(self.table.weight[:, 0] * above(click, 1), dim=1)


class CACM_minus(Examination):
    """CACM without the contexts that a single page does not have."""

    def build(self, ranks: int) -> None:
        self.position, self.previous = nn.Embedding(ranks, SMALL), nn.Embedding(3, SMALL)
        self.gru, self.head = nn.GRU(2 * SMALL, STATE, batch_first=True), nn.Linear(STATE, 1)

    def examined(self, click: Tensor) -> Tensor:
        previous = self.previous(above(click.long() + 1, 0))  # 0 at the first rank, 1 a skip, 2 a click
        position = self.position.weight.expand(len(click), -1, -1)
        return self.head(self.gru(torch.cat([position, previous], dim=2))[0])[..., 0]


class DBN(ClickModel):
    def __init__(self, queries: int, pairs: int, ranks: int) -> None:
        super().__init__(queries, pairs)
        self.attractiveness, self.satisfaction = mlp(), mlp()
        self.continuation = nn.Parameter(torch.tensor(CONTINUATION))

    def forward(self, log: Log) -> Tensor:
        features, go_on = self.features(log), torch.sigmoid(self.continuation)
        attractive = torch.sigmoid(self.attractiveness(features)[..., 0])
        clicked = go_on * (1 - torch.sigmoid(self.satisfaction(features)[..., 0]))
        examined, probs = torch.ones(log.sessions), []
        for rank, click in enumerate(log.click.bool().unbind(1)):
            prob = (examined * attractive[:, rank]).clamp(max=1 - CLIP)
            skipped = go_on * examined * (1 - attractive[:, rank]) / (1 - prob)
            examined = torch.where(click, clicked[:, rank], skipped)
            probs.append(prob)
        return torch.stack(probs, dim=1)


class NCM(ClickModel):
    def __init__(self, queries: int, pairs: int, ranks: int) -> None:
        super().__init__(queries, pairs)
        self.gru, self.head = nn.GRU(2 * EMBEDDING + 1, STATE, batch_first=True), nn.Linear(STATE, 1)

    def forward(self, log: Log) -> Tensor:
        inputs = torch.cat([self.features(log), above(log.click, 0)[..., None]], dim=2)
        return torch.sigmoid(self.head(self.gru(inputs)[0])[..., 0])


MODELS = {model.__name__: model for model in (PBM, UBM, DBN, ARM, CACM_minus, NCM)}


def loss_of(model: nn.Module, log: Log) -> Tensor:
    prob = model(log).clamp(CLIP, 1 - CLIP)
    return F.binary_cross_entropy(prob, log.click, reduction="sum") / log.sessions


@torch.no_grad()
def evaluate(model: nn.Module, log: Log) -> float:
    starts = range(0, log.sessions, CHUNK)
    chunks = (log.rows(slice(start, start + CHUNK)) for start in starts)
    return sum(loss_of(model, chunk).item() * chunk.sessions for chunk in chunks) / log.sessions


def step(model: nn.Module, optimizer: torch.optim.Optimizer, log: Log) -> float:
    optimizer.zero_grad()
    loss = loss_of(model, log)
    loss.backward()
    optimizer.step()
    return loss.item()


def adam(model: nn.Module, args: argparse.Namespace) -> torch.optim.Adam:
    return torch.optim.Adam(model.parameters(), lr=args.rate, fused=True if args.fused else None)


def warm_up(model: nn.Module, log: Log, args: argparse.Namespace) -> None:
    """Make the first calls with a copy of the model."""
    other = copy.deepcopy(model)
    optimizer = adam(other, args)
    for _ in range(3):
        step(other, optimizer, log.rows(slice(args.batch)))
    evaluate(other, log.rows(slice(CHUNK)))


def batches(sessions: int, batch: int, epochs: int, seed: int) -> Iterator[tuple[int, Tensor]]:
    """The number of the epoch, and rows."""
    order = torch.Generator().manual_seed(seed)
    for epoch in range(1, epochs + 1):
        for rows in torch.randperm(sessions, generator=order).split(batch):
            yield epoch, rows


class Checks:
    """What the validations found, the best state so far, and whether there is a reason to stop."""

    def __init__(self, target: float | None) -> None:
        self.target, self.rows, self.best, self.state = target, list[Row](), math.inf, dict[str, Tensor]()
        self.waited, self.stop = 0, ""

    def add(self, model: nn.Module, row: Row) -> None:
        self.rows.append(row)
        if row["validation"] < self.best:
            self.best, self.waited = row["validation"], 0
            self.state = {name: value.clone() for name, value in model.state_dict().items()}
        else:
            self.waited += 1
        if self.target is not None and self.best <= self.target:
            self.stop = "target"
        elif self.waited >= PATIENCE:
            self.stop = "patience"

    def seconds_to_target(self) -> float | None:
        return self.rows[-1]["seconds"] if self.stop == "target" else None


def train(model: nn.Module, log: Log, validation: Log, checks: Checks, args: argparse.Namespace) -> None:
    per_epoch = math.ceil(log.sessions / args.batch)
    every, last = per_epoch if args.batch >= OFTEN else EVERY, per_epoch * args.epochs
    optimizer = adam(model, args)
    plateau = ReduceLROnPlateau(optimizer, factor=FACTOR, patience=PLATEAU)
    total, seen, start = 0.0, 0, time.perf_counter()
    for steps, (epoch, rows) in enumerate(batches(log.sessions, args.batch, args.epochs, args.seed), start=1):
        total, seen = total + step(model, optimizer, log.rows(rows)) * len(rows), seen + len(rows)
        late = time.perf_counter() - start >= args.seconds
        if not (late or steps == last or steps % every == 0):
            continue
        row = {"steps": steps, "epoch": epoch, "train": total / seen, "validation": evaluate(model, validation)}
        if not math.isfinite(row["validation"]):
            raise SystemExit(f"{args.model} diverged: the validation loss is {row['validation']} after {steps} steps")
        checks.add(model, {"seconds": time.perf_counter() - start, **row})
        plateau.step(row["validation"])
        rate = optimizer.param_groups[0]["lr"]
        shown = " ".join(f"{name} {value:.5g}" for name, value in checks.rows[-1].items())
        print(f"{args.model} {shown} rate {rate:.3g}", file=sys.stderr)
        checks.stop = checks.stop or ("seconds" if late else "")
        if checks.stop:
            return
        total, seen = 0.0, 0
    checks.stop = "epochs"


def peak_mb() -> float:
    """The highest resident memory of this process so far."""
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def run(args: argparse.Namespace) -> Row:
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    log, validation, test = parts = [read(args.data, part) for part in ("train", "validation", "test")]
    queries, pairs = (max(int(ids.max()) for ids in column) + 1 for column in list(zip(*parts, strict=True))[:2])
    model = MODELS[args.model](queries, pairs, log.click.shape[1])
    loaded = peak_mb()
    warm_up(model, log, args)
    checks, wall, cpu = Checks(args.target), time.perf_counter(), time.process_time()
    train(model, log, validation, checks, args)
    wall, cpu, peak = time.perf_counter() - wall, time.process_time() - cpu, peak_mb()
    model.load_state_dict(checks.state)
    return {
        **{name: getattr(args, name) for name in SETTINGS},
        "queries": queries,
        "pairs": pairs,
        "checks": checks.rows,
        "stopped_by": checks.stop,
        "best_validation": checks.best,
        "test": evaluate(model, test),
        "seconds_to_target": checks.seconds_to_target(),
        "seconds": wall,
        "cpu_seconds": cpu,
        "peak_mb": peak,
        "peak_mb_before_training": loaded,
        "versions": {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()},
    }


def target(text: str) -> float | None:
    return None if text == "none" else float(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="npz file with the training, validation and test sessions")
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rate", type=float, default=0.001)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fused", action="store_true", help="Adam in one pass")
    parser.add_argument("--epochs", type=int, default=20, help="at most so many")
    parser.add_argument("--seconds", type=float, default=600.0, help="at most so long")
    parser.add_argument(
        "--target", type=target, default=None, help="stop at this validation loss; none: until it stops improving"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="JSON file to write")
    args = parser.parse_args()
    args.output.write_text(json.dumps(run(args), indent=1))


if __name__ == "__main__":
    main()
