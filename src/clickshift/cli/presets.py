"""From the command line's words to a protocol: a scale, and what is changed of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from clickshift.core.files import content_key
from clickshift.errors import SpecError
from clickshift.experiments.model_selection.protocol import ModelSelection
from clickshift.experiments.models import candidate_model, compared_model
from clickshift.experiments.papers import SCALES, SELECTION_SCALES
from clickshift.experiments.policy_shift.protocol import PolicyShift
from clickshift.io.datasets.letor import corpus_files
from clickshift.simulation.search_engine import BUILTIN, Named, World
from clickshift.simulation.selection_search_engine import SelectionWorld


def policy_shift_protocol(
    scale: str,
    *,
    candidates: Sequence[str] = (),
    corpus: str = BUILTIN,
    users: Sequence[str] = (),
    training: Sequence[str] = (),
    testing: Sequence[str] = (),
    models: Sequence[str] = (),
    seeds: int | None = None,
    derived: bool = True,
    search: str | None = None,
    penalties: Sequence[float] = (),
    fair: bool = False,
    **numbers: int | None,
) -> PolicyShift:
    """What is not given stays as the scale has it."""
    if scale not in SCALES:
        raise SpecError(f"a scale must be one of {', '.join(SCALES)}: got {scale!r}.")
    protocol = SCALES[scale]()
    known = PolicyShift()
    contenders = protocol.contenders
    if models:
        others = tuple(c for c in contenders if c.role != "click model")
        contenders = tuple(dict.fromkeys((*others, *map(compared_model, models))))
    contenders += tuple(map(candidate_model, candidates))
    changes: dict[str, Any] = {
        "users": _named(users, known.users),
        "training": _named(training, known.training),
        "seeds": seeds,
    }
    policies = protocol.derived if derived else None
    if policies is not None:
        policies = replace(policies, search=search or policies.search, penalties=tuple(penalties), fair=fair)
    if users:
        changes["derived_users"] = tuple(users)
    world = _given({**numbers, "testing": _named(testing, known.world.testing)})
    return replace(
        protocol,
        contenders=contenders,
        world=on_corpus(replace(protocol.world, **world), corpus),
        derived=policies,
        **_given(changes),
    )


def selection_protocol(
    scale: str,
    *,
    corpus: str = BUILTIN,
    queries: int | None = None,
    sessions: int | None = None,
    seeds: int | None = None,
    models: Sequence[str] = (),
) -> ModelSelection:
    """The same for the choice of a model; held-out and test logs are a fifth of the training log."""
    if scale not in SELECTION_SCALES:
        raise SpecError(f"a scale must be one of {', '.join(SELECTION_SCALES)}: got {scale!r}.")
    protocol = SELECTION_SCALES[scale]()
    others = None if sessions is None else max(sessions // 5, 1)
    sizes = {"queries": queries, "sessions": sessions, "held_out_sessions": others, "test_sessions": others}
    known = {contender.name: contender for contender in protocol.contenders}
    contenders = tuple(known.get(text) or compared_model(text) for text in dict.fromkeys(models)) or None
    world = on_corpus(replace(protocol.world, **_given(sizes)), corpus)
    return replace(protocol, world=world, **_given({"seeds": seeds, "contenders": contenders}))


AnyWorld = TypeVar("AnyWorld", World, SelectionWorld)


def on_corpus(world: AnyWorld, corpus: str) -> AnyWorld:
    """The same world with the user's own documents."""
    if corpus == BUILTIN:
        return world
    return replace(world, corpus=corpus, content=content_key(corpus_files(corpus)))


def _named(texts: Sequence[str], known: Named) -> Named | None:
    """The protocol's own, by their names, or texts; several may be joined, as policies of one log are."""
    by_name = dict(known)
    return tuple((text, " + ".join(by_name.get(part, part) for part in text.split(" + "))) for text in texts) or None


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
