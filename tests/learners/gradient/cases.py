"""What the tests of the gradient learner share."""

from __future__ import annotations

from collections import Counter

import numpy as np

from clickshift.data.sessions import Rankings, Sessions
from clickshift.learners.gradient import Gradient
from clickshift.learners.gradient._batches import Batch
from clickshift.learners.gradient._prepare import TrainingData, prepare
from clickshift.models._differentiable import Differentiable, HistoryBased, Recurrent
from clickshift.models._histories import Histories
from clickshift.models.base import ClickModel


def small(name: str, **options: object) -> Gradient:
    """A learner whose networks take little time."""
    return Gradient(name, **{"embedding": 8, "hidden": (8,), "state": 4, "rounds": 2, **options})  # type: ignore[arg-type]


def first_ranks(log: Sessions, ranks: int) -> Sessions:
    """The sessions whose lists are not longer, in arrays that are not wider."""
    lists = log.rankings
    few = lists.length <= ranks
    cut = Rankings(lists.vocabulary, lists.query[few], lists.pair[few, :ranks], lists.shown[few, :ranks])
    return Sessions(cut, log.click[few, :ranks], log.count[few])


def ready(learner: Gradient, log: Sessions) -> TrainingData:
    return prepare(learner, learner._class(), log, log, None)


def arrays(model: ClickModel) -> list[np.ndarray]:
    parts = [model.relevance()] + [getattr(model, name, {}) for name in ("shared", "by_pair")]
    return [np.asarray(a) for part in parts for a in (part.values() if isinstance(part, dict) else [part])]


def contents(batches: Batch, histories: Histories) -> Counter[tuple[int, ...]]:
    """What all batches count, whatever the order: impressions and clicks (the last number) of each pair in each
    history, of each beginning of a list, or of each list with its clicks.

    Pairs have the numbers of the vocabulary: those of training batches are looked up in their table "pair".
    """
    found: Counter[tuple[int, ...]] = Counter()
    for k in range(len(next(iter(batches.values())))):
        batch = {name: array[k] for name, array in batches.items()}
        number = batch["row.pair"][batch["place.pair"]] if "row.pair" in batch else None
        for name in [name for name in batch if name.split(".")[0] == "pair" or name == "cell.pair"]:
            batch[name] = batch[name] if number is None else number[batch[name]]
        if "cell.pair" in batch:
            seen = np.column_stack([batch["cell.pair"], *histories.click[batch["cell.situation"]].T])
            seen = np.column_stack([seen, histories.rank[batch["cell.situation"]]])
            _count(found, seen, batch["impressions"], batch["clicks"])
        elif "pair.0" in batch:
            path = np.zeros((1, 0), int)
            for r in range(histories.n_ranks):
                path = np.column_stack([path[batch[f"parent.{r}"]], batch[f"pair.{r}"], batch[f"above.{r}"]])
                _count(found, path, batch[f"impressions.{r}"], batch[f"clicks.{r}"])
        else:
            shown = batch["weight"] > 0
            pair, click = np.where(shown, batch["pair"], -1), batch["click"] & shown
            times = batch["weight"].max(axis=1)
            _count(found, np.column_stack([pair, click]), times, times * click.any(axis=1))
    return found


def counted(log: Sessions, model: type[Differentiable], ranks: int) -> Counter[tuple[int, ...]]:
    """What `contents` should find in batches of lists of so many ranks, session by session."""
    found: Counter[tuple[int, ...]] = Counter()
    unseen = log.vocabulary.n_pairs
    for pairs, shown, clicks, count in zip(
        log.rankings.pair.tolist(), log.rankings.shown.tolist(), log.click.tolist(), log.count.tolist(), strict=True
    ):
        pair = [p if p >= 0 else unseen for p, seen in zip(pairs, shown, strict=True) if seen]
        click = [int(c) for c in clicks[: len(pair)]]
        rest = ranks - len(pair)
        if issubclass(model, HistoryBased) and not issubclass(model, Recurrent):
            found[*pair, *[-1] * rest, *click, *[0] * rest, 0] += count
            found[*pair, *[-1] * rest, *click, *[0] * rest, 1] += count * any(click)
            continue
        for r in range(len(pair)):
            if issubclass(model, Recurrent):
                key = [number for k in range(r + 1) for number in (pair[k], click[k - 1] if k else 0)]
            else:
                key = [pair[r], *click[:r], *[0] * (ranks - r), r]
            found[*key, 0] += count
            found[*key, 1] += count * click[r]
    return found


def _count(found: Counter[tuple[int, ...]], rows: np.ndarray, impressions: np.ndarray, clicks: np.ndarray) -> None:
    for row, shown, clicked in zip(rows.astype(int).tolist(), impressions.tolist(), clicks.tolist(), strict=True):
        if shown > 0:
            found[*row, 0] += round(shown)
            found[*row, 1] += round(clicked)
