"""An independent second writing of browsing: every latent path of a walk, enumerated in plain Python.

Slow and obvious; the compiled messages are held to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

Pattern = tuple[bool, ...]


def walk_patterns(
    order: list[int],
    click: Callable[[int, bool], float],
    follow: Callable[[int, str], float],
) -> dict[Pattern, float]:
    """Probability of each click pattern. `click(rank, previous clicked)`; `follow(rank, "click" | "skip" |
    "unseen")`."""
    found: dict[Pattern, float] = defaultdict(float)

    def step(place: int, examined: bool, previous: bool, clicks: dict[int, bool], prob: float) -> None:
        if prob == 0:
            return
        if place == len(order):
            found[tuple(clicks[r] for r in range(len(order)))] += prob
            return
        rank = order[place]
        outcomes = [("unseen", False, 1.0)]
        if examined:
            p = click(rank, previous)
            outcomes = [("click", True, p), ("skip", False, 1 - p)]
        for what, clicked, chance in outcomes:
            on = follow(rank, what)
            for next_examined, moved in ((True, on), (False, 1 - on)):
                if place + 1 == len(order):  # beyond the list there is nothing to examine
                    if next_examined:
                        step(place + 1, False, clicked, {**clicks, rank: clicked}, prob * chance)
                    continue
                step(place + 1, next_examined, clicked, {**clicks, rank: clicked}, prob * chance * moved)

    step(0, True, False, {}, 1.0)
    return dict(found)


def mix(parts: list[tuple[float, dict[Pattern, float]]]) -> dict[Pattern, float]:
    total: dict[Pattern, float] = defaultdict(float)
    for weight, part in parts:
        for pattern, prob in part.items():
            total[pattern] += weight * prob
    return dict(total)


def independent(probs: list[float]) -> dict[Pattern, float]:
    found: dict[Pattern, float] = {(): 1.0}
    for p in probs:
        found = {(*pattern, c): q * (p if c else 1 - p) for pattern, q in found.items() for c in (True, False)}
    return found
