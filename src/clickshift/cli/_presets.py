"""Protocols from command-line options: the protocol of a scale, with the given settings replaced."""

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
    """Make the policy-shift protocol of a scale; whatever is empty or None stays as the scale has it.

    Parameters
    ----------
    scale
        Name in `SCALES`.
    candidates
        Own models to compare, added to the others.
    corpus
        "builtin", or a LETOR file or folder.
    users, training, testing
        Simulated users, training policies and test policies: names of the full protocol, or their texts.
    models
        Click models to compare, in place of the protocol's.
    seeds
        Number of models per task.
    derived
        Whether to evaluate the policies derived from each model.
    search, penalties, fair
        Settings of the derived policies.
    **numbers
        Settings of the simulated search engine, e.g. queries or sessions.

    Raises
    ------
    SpecError
        "unknown-name" for another scale.
    """
    _check_scale(scale, SCALES)
    protocol = SCALES[scale]()
    full = PolicyShift()
    contenders = protocol.contenders
    if models:
        others = tuple(c for c in contenders if c.role != "click model")
        contenders = tuple(dict.fromkeys((*others, *map(compared_model, models))))
    contenders += tuple(map(candidate_model, candidates))
    changes: dict[str, Any] = {
        "users": _resolve_names(users, full.users),
        "training": _resolve_names(training, full.training),
        "seeds": seeds,
    }
    policies = protocol.derived if derived else None
    if policies is not None:
        policies = replace(policies, search=search or policies.search, penalties=tuple(penalties), fair=fair)
    if users:
        changes["derived_users"] = tuple(users)
    world = _without_none({**numbers, "testing": _resolve_names(testing, full.world.testing)})
    return replace(
        protocol,
        contenders=contenders,
        world=on_corpus(replace(protocol.world, **world), corpus),
        derived=policies,
        **_without_none(changes),
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
    """Make the model-selection protocol of a scale; whatever is empty or None stays as the scale has it.

    Held-out and test logs have a fifth of the training log's `sessions`. The other parameters, and the error for an
    unknown scale, are those of `policy_shift_protocol`.
    """
    _check_scale(scale, SELECTION_SCALES)
    protocol = SELECTION_SCALES[scale]()
    others = None if sessions is None else max(sessions // 5, 1)
    sizes = {"queries": queries, "sessions": sessions, "held_out_sessions": others, "test_sessions": others}
    by_name = {contender.name: contender for contender in protocol.contenders}
    contenders = tuple(by_name.get(text) or compared_model(text) for text in dict.fromkeys(models)) or None
    world = on_corpus(replace(protocol.world, **_without_none(sizes)), corpus)
    return replace(protocol, world=world, **_without_none({"seeds": seeds, "contenders": contenders}))


AnyWorld = TypeVar("AnyWorld", World, SelectionWorld)


def on_corpus(world: AnyWorld, corpus: str) -> AnyWorld:
    """Return the same simulated search engine with the documents of another corpus."""
    if corpus == BUILTIN:
        return world
    return replace(world, corpus=corpus, content=content_key(corpus_files(corpus)))


def _check_scale(scale: str, scales: dict[str, Any]) -> None:
    """Raise an error if there is no such scale."""
    if scale not in scales:
        raise SpecError(
            f"a scale must be one of {', '.join(scales)}: got {scale!r}.",
            code="unknown-name",
            value=scale,
            known=list(scales),
        )


def _resolve_names(texts: Sequence[str], known: Named) -> Named | None:
    """Replace names by the texts that a protocol has for them; " + " joins several policies of one log."""
    by_name = dict(known)
    return tuple((text, " + ".join(by_name.get(part, part) for part in text.split(" + "))) for text in texts) or None


def _without_none(options: dict[str, Any]) -> dict[str, Any]:
    """Keep the options that were given."""
    return {name: value for name, value in options.items() if value is not None}
