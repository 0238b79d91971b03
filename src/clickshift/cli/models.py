"""clickshift models: which click models there are."""

from __future__ import annotations

from typing import Any

from clickshift.cli.console import Json, show_json, show_table


def models(json: bool = Json) -> None:
    """Every click model, what it can do, and how it is learned."""
    rows = models_table()
    if json:
        show_json({"models": rows})
        return
    show_table([{name.replace("_", " "): value for name, value in row.items()} for row in rows], title="Click models")


def models_table() -> list[dict[str, Any]]:
    """Every click model with what it can do and the learner that `fit` uses; None where none is usual."""
    from clickshift.core.spec import resolve
    from clickshift.learners import DEFAULT
    from clickshift.models import MODELS
    from clickshift.models._differentiable import Differentiable

    models = {name: resolve(name, MODELS) for name in MODELS}
    return [
        {
            "model": name,
            "predicts_clicks": model.predicts_clicks,
            "uses_history": model.uses_history,
            "ranks_documents": model.ranks_documents,
            "peeks": model.peeks,
            "learner": DEFAULT.get(name),
            "by_gradient": issubclass(model, Differentiable),
        }
        for name, model in models.items()
    ]
