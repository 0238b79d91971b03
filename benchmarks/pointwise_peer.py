"""Train the IPS paper's ranker in plain eager PyTorch, the way its authors do, and say how long every epoch took.

    python pointwise_peer.py DATA.npz --loss ips --seed 0 --threads 2 -o OUT.json

Runs in an environment of its own (requirements-torch.txt), which has no clickshift. DATA.npz holds, with the prefix
train_ or held_out_: features [D, F], already log-scaled, click_rate [D], examination [D], and length [Q], the documents
of each query.

The recipe: lists padded to the longest one, a DataLoader that shuffles queries into batches, a network of 512, 256 and
128 ELU units with dropout after the last two, losses of clipped probabilities, padding masked, summed over documents
and averaged over queries; Adam; a pass over held-out queries after every epoch, and early stopping on its loss. What
the authors' framework costs on top is left out.

With --check FILE the run follows the file: its first weights, its batches, no dropout, so that losses and scores can be
compared number by number.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

HIDDEN, DROPOUT = (512, 256, 128), (0.0, 0.1, 0.1)
CLIP = 1e-10
BATCH, HELD_OUT_BATCH, PATIENCE = 50, 500, 5
RATES = {"ips": 1e-3, "pbm": 5e-4}


def padded(data: Any, part: str) -> TensorDataset:
    """Features, click rates, examination and mask, one row per query."""
    length = data[f"{part}_length"]
    shape = len(length), int(max(data["train_length"].max(), data["held_out_length"].max()))
    mask = np.arange(shape[1]) < length[:, None]
    columns = []
    for name in ("features", "click_rate", "examination"):
        values = data[f"{part}_{name}"]
        table = np.full((*shape, *values.shape[1:]), 1.0 if name == "examination" else 0.0, np.float32)
        table[mask] = values
        columns.append(torch.from_numpy(table))
    return TensorDataset(*columns, torch.from_numpy(mask))


def network(features: int, dropout: tuple[float, ...]) -> nn.Sequential:
    layers, inputs = [], features
    for units, share in zip(HIDDEN, dropout, strict=True):
        layers += [nn.Linear(inputs, units), nn.ELU(), nn.Dropout(share)]
        inputs = units
    return nn.Sequential(*layers, nn.Linear(inputs, 1))


def batch_loss(kind: str, score: Tensor, clicks: Tensor, examination: Tensor, mask: Tensor) -> Tensor:
    relevance = torch.sigmoid(score)
    predicted = relevance * examination if kind == "pbm" else relevance
    target = clicks if kind == "pbm" else clicks / examination
    loss = -(target * torch.log(predicted.clip(min=CLIP)) + (1 - target) * torch.log((1 - predicted).clip(min=CLIP)))
    return torch.where(mask, loss, 0.0).sum(dim=1).mean()


def held_out_loss(model: nn.Module, loader: DataLoader[Any], kind: str) -> float:
    model.eval()
    total, queries = 0.0, 0
    with torch.no_grad():
        for features, clicks, examination, mask in loader:
            loss = batch_loss(kind, model(features).squeeze(-1), clicks, examination, mask)
            total, queries = total + float(loss) * len(features), queries + len(features)
    model.train()
    return total / queries


def peak_mb() -> float:
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def step(model: nn.Module, optimiser: torch.optim.Optimizer, kind: str, batch: list[Tensor]) -> float:
    features, clicks, examination, mask = batch
    optimiser.zero_grad()
    loss = batch_loss(kind, model(features).squeeze(-1), clicks, examination, mask)
    loss.backward()
    optimiser.step()
    return float(loss.detach())


def train(data: Any, kind: str, epochs: int) -> dict[str, Any]:
    before = peak_mb()
    train_set, judge = padded(data, "train"), DataLoader(padded(data, "held_out"), HELD_OUT_BATCH)
    loader = DataLoader(train_set, BATCH, shuffle=True)
    model = network(train_set.tensors[0].shape[2], DROPOUT)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATES[kind])
    start, cpu, best, since, told = time.perf_counter(), time.process_time(), float("inf"), 0, []
    for _ in range(epochs):
        for batch in loader:
            step(model, optimiser, kind, batch)
        loss = held_out_loss(model, judge, kind)
        told.append({"seconds": time.perf_counter() - start, "held_out": loss})
        best, since = (loss, 0) if loss < best else (best, since + 1)
        if since >= PATIENCE:
            break
    seconds = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
    width = train_set.tensors[0].shape[1]
    return {**seconds, "epochs": told, "best": best, "peak_mb": peak_mb(), "peak_mb_before": before, "width": width}


def follow(data: Any, kind: str, file: Path) -> dict[str, Any]:
    """The batches and first weights of the file, without dropout: losses after each epoch, and scores of the best."""
    train_set, held_out = padded(data, "train"), padded(data, "held_out")
    judge = DataLoader(held_out, HELD_OUT_BATCH)
    model = network(train_set.tensors[0].shape[2], (0.0, 0.0, 0.0))
    with np.load(file) as known:
        linear = [layer for layer in model if isinstance(layer, nn.Linear)]
        with torch.no_grad():
            for k, layer in enumerate(linear):
                layer.weight.copy_(torch.from_numpy(known[f"weight_{k}"].T.copy()))
                layer.bias.copy_(torch.from_numpy(known[f"bias_{k}"]))
        rounds = known["batches"]
    optimiser = torch.optim.Adam(model.parameters(), lr=RATES[kind])
    losses, scores = [], torch.empty(0)
    for batches in rounds:
        model.train()
        for queries in batches:
            rows = torch.from_numpy(queries[queries >= 0].astype(np.int64))
            step(model, optimiser, kind, [column[rows] for column in train_set.tensors])
        losses.append(held_out_loss(model, judge, kind))
        if losses[-1] == min(losses):
            model.eval()
            with torch.no_grad():
                scores = model(held_out.tensors[0]).squeeze(-1)[held_out.tensors[3]]
    return {"held_out": losses, "scores": scores.tolist()}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("data", type=Path)
    options.add_argument("--loss", choices=("ips", "pbm"), required=True)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--epochs", type=int, default=200)
    options.add_argument("--check", type=Path)
    options.add_argument("-o", "--output", type=Path, required=True)
    chosen = options.parse_args()
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(chosen.seed)
    with np.load(chosen.data) as file:
        data = {name: file[name] for name in file.files}
    if chosen.check is not None:
        row = follow(data, chosen.loss, chosen.check)
    else:
        train(data, chosen.loss, 1)  # first calls, which are not timed
        torch.manual_seed(chosen.seed)
        row = train(data, chosen.loss, chosen.epochs)
    row |= {"torch": torch.__version__, "python": platform.python_version(), "threads": chosen.threads}
    chosen.output.write_text(json.dumps(row))


if __name__ == "__main__":
    main()
