"""list_models: every click model with its capabilities and its default learner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from typing_extensions import override

from clickshift.core.spec import resolve
from clickshift.display.document import Document, Section
from clickshift.display.result import Result
from clickshift.display.tables import Rows
from clickshift.learners.base import DEFAULT
from clickshift.models import MODELS
from clickshift.models._differentiable import Differentiable

__all__ = ["ModelList", "list_models"]


@final
@dataclass(frozen=True, repr=False)
class ModelList(Result):
    """Click models by name, with what each can do.

    Parameters
    ----------
    models
        One row per model.

    Notes
    -----
    Keys of `to_dict`, which `clickshift models --json` prints:

    - models: one row per model: model (its name), predicts_clicks, uses_history (whether clicks above a result change
      its click probability), ranks_documents, peeks (whether it sees the clicks that it predicts), learner (the one
      that `fit` uses, None if there is no default), by_gradient (whether `Gradient` fits it);
    - conclusion.
    """

    models: Rows

    @property
    @override
    def conclusion(self) -> str:
        fitted = sum(row["learner"] is not None for row in self.models)
        return f"There are {len(self.models)} click models, {fitted} of them with a default learner."

    @override
    def rows(self) -> Rows:
        """Return a row per model."""
        return self.models

    @override
    def facts(self) -> Mapping[str, Any]:
        return {"models": self.models, "conclusion": self.conclusion}

    @override
    def _document(self) -> Document:
        table = [{name.replace("_", " "): value for name, value in row.items()} for row in self.models]
        return Document("Click models", self.conclusion, [Section("Click models", table=table)])


def list_models() -> ModelList:
    """List every click model with its capabilities and its default learner.

    Returns
    -------
    ModelList
        One row per registered model.

    Examples
    --------
    >>> import clickshift as cs
    >>> [row["model"] for row in cs.list_models().rows() if not row["predicts_clicks"]]
    ['TopPop', 'TopPopObs', 'RankTopObs']
    """
    models = {name: resolve(name, MODELS) for name in MODELS}
    return ModelList(
        [
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
    )
