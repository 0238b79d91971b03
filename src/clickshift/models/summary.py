"""What a fitted model shows of itself: what was learned from how much, and the curve that describes browsing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

from typing_extensions import override

from clickshift.core.text import join_words
from clickshift.display.document import Document, Section
from clickshift.display.export import Written
from clickshift.display.figures import curve_figure
from clickshift.display.result import Result
from clickshift.display.tables import Row, Rows, curve_table, facts_table
from clickshift.errors import CapabilityError
from clickshift.models import model_name
from clickshift.models.base import ClickModel, Evidence
from clickshift.models.storage import ModelLike, best_seed, open_model, save_seeds

__all__ = ["Examination", "ModelSummary", "examination"]

_PAGE = {".html", ".htm"}


@final
@dataclass(frozen=True, repr=False, eq=False)
class ModelSummary(Result):
    """What was learned, from how much, and the examination or continuation curve: how a click model displays itself.

    Parameters
    ----------
    models
        The model, or models that differ by seed.

    Notes
    -----
    Keys of `to_dict`, which `clickshift fit --json` prints:

    - model, learner: names of the model and of the learner with its options; learner is None for a model that was
      made by hand;
    - sessions, pairs: size of the training log (sessions is 0 if it is not known);
    - iterations, converged: how the learner ended; over all seeds, the largest number and whether all converged;
    - seeds: number of models, if there are several;
    - source, fitted_at, version, fingerprint: training log, time, version of clickshift, and digest of the log;
    - first_time, last_time: time of its first and of its last session, if it has times;
    - curve: rows of `examination`, if the model has such a parameter;
    - conclusion.
    """

    models: tuple[ClickModel, ...]

    @property
    def model(self) -> ClickModel:
        """The model; of several seeds, the one with the smallest held-out loss."""
        return best_seed(self.models)

    @property
    def _evidence(self) -> list[Evidence]:
        """Evidence of all models that have one."""
        return [model.evidence for model in self.models if model.evidence is not None]

    @property
    def headline(self) -> str:
        """One line without a full stop, e.g. "UBM: fitted by MaximumLikelihood on 50,000 sessions, 2,000 pairs"."""
        name, pairs = model_name(self.model), f"{self.model.vocabulary.n_pairs:,} pairs"
        if not self._evidence:
            return f"{name}: {pairs}, not fitted on a log"
        first, iterations = self._evidence[0], max(one.iterations for one in self._evidence)
        sessions = f"on {first.sessions:,} sessions, " if first.sessions else "on "
        converged = "converged" if all(one.converged for one in self._evidence) else "not converged"
        ended = f", {converged} after {iterations:,} iterations" if iterations else ""
        seeds = f", {len(self.models)} seeds" if len(self.models) > 1 else ""
        return f"{name}: fitted by {first.learner.partition('(')[0]} {sessions}{pairs}{ended}{seeds}"

    @property
    @override
    def conclusion(self) -> str:
        return f"{self.headline}. {_curve_sentence(self._curve())}".rstrip()

    def _curve(self) -> Rows:
        """Return the rows of the browsing parameter; none if the model has no such parameter."""
        try:
            return self.model.examination_table()
        except CapabilityError:
            return []

    @override
    def rows(self) -> Rows:
        """Return a row per seed: how its fit ended, with its log-likelihood and held-out loss."""
        return [
            {
                "model": model_name(self.model),
                "seed": seed,
                "learner": one.learner,
                "iterations": one.iterations,
                "converged": one.converged,
                "log_likelihood": one.log_likelihood,
                "held_out_loss": one.held_out_loss,
            }
            for seed, one in enumerate(self._evidence)
        ]

    def _facts(self) -> dict[str, Any]:
        """Return the facts of the fit, without conclusion and curve."""
        facts: dict[str, Any] = {
            "model": model_name(self.model),
            "learner": None,
            "sessions": 0,
            "pairs": self.model.vocabulary.n_pairs,
        }
        if not self._evidence:
            return facts
        first = self._evidence[0]
        return facts | {
            "learner": first.learner,
            "sessions": first.sessions,
            "iterations": max(one.iterations for one in self._evidence),
            "converged": all(one.converged for one in self._evidence),
            **({"seeds": len(self.models)} if len(self.models) > 1 else {}),
            "source": first.source,
            **({"first_time": first.first_time, "last_time": first.last_time} if first.first_time else {}),
            "fitted_at": first.fitted_at,
            "version": first.version,
            "fingerprint": first.fingerprint,
        }

    @override
    def facts(self) -> Mapping[str, Any]:
        curve = self._curve()
        return self._facts() | ({"curve": curve} if curve else {}) | {"conclusion": self.conclusion}

    @override
    def _document(self) -> Document:
        curve = self._curve()
        fitted = Section(
            "Fitted model", table=facts_table(self._facts()), figure=partial(curve_figure, curve) if curve else None
        )
        details = Section(_curve_title(curve), table=curve_table(curve), page_only=True) if curve else None
        return Document(model_name(self.model), self.conclusion, [fitted, *([details] if details else [])])

    @override
    @classmethod
    def check_output(cls, path: str | Path) -> None:
        if Path(path).suffix.lower() in _PAGE:
            super().check_output(path)

    @override
    def write(self, path: str | Path) -> Written:
        """Save the model to a folder, which `load_model` loads, or write its page.

        Parameters
        ----------
        path
            A folder for the model, with one subfolder per seed if there are several, or a page (.html).

        Returns
        -------
        Written
            Paths of what was written.
        """
        if Path(path).suffix.lower() in _PAGE:
            return super().write(path)
        save_seeds(self.models, path)
        return Written(files=(Path(path),))


@final
@dataclass(frozen=True, repr=False, eq=False)
class Examination(Result):
    """Examination or continuation curve of a click model, with 95 % intervals.

    Parameters
    ----------
    model
        The model.
    curve
        Rows of `ClickModel.examination_table`.

    Notes
    -----
    Keys of `to_dict`, which `clickshift examine --json` prints:

    - model: name of the model;
    - curve: one row per entry of the parameter: its label (rank, last_click or after), parameter, estimate, low, high,
      support;
    - conclusion.
    """

    model: ClickModel
    curve: Sequence[Row]

    @property
    @override
    def conclusion(self) -> str:
        return _curve_sentence(self.curve)

    @override
    def rows(self) -> Rows:
        """Return a row per entry of the parameter: its label, parameter, estimate, low, high and support."""
        return [dict(row) for row in self.curve]

    @override
    def facts(self) -> Mapping[str, Any]:
        return {"model": model_name(self.model), "curve": self.rows(), "conclusion": self.conclusion}

    @override
    def _document(self) -> Document:
        name = model_name(self.model)
        section = Section(
            f"{name}: {_curve_title(self.curve)}",
            table=curve_table(self.curve),
            figure=partial(curve_figure, self.curve),
            name=str(self.curve[0]["parameter"]),
        )
        return Document(
            f"{name}: how users move through the list",
            self.conclusion,
            [section],
            settings=ModelSummary((self.model,))._facts(),
        )


def examination(model: ModelLike) -> Examination:
    """Return the examination or continuation curve of a fitted model, with 95 % intervals.

    Parameters
    ----------
    model
        Folder of a saved model, or a click model.

    Returns
    -------
    Examination
        The curve as rows, a table and a figure.

    Raises
    ------
    CapabilityError
        If the model has no such parameter ("no-examination").
    FileError
        If the folder is not a model ("not-a-model") or is damaged.

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(queries=5), cs.Uniform(), cs.users.PBM(), 2000, rng=1)
    >>> curve = cs.examination(cs.fit("PBM", log))
    >>> [row["rank"] for row in curve.rows()][:3]
    [1, 2, 3]
    """
    opened = open_model(model)
    return Examination(opened, opened.examination_table())


def _curve_title(curve: Sequence[Row]) -> str:
    """Return the heading of a curve."""
    return f"{curve[0]['parameter']} with 95 % intervals"


def _curve_sentence(curve: Sequence[Row]) -> str:
    """Describe a curve by its first and last value over ranks, or by its values.

    >>> _curve_sentence([{"rank": r, "parameter": "examination", "estimate": 1 / r} for r in (1, 2, 4)])
    'Examination is 1.00 at rank 1 and 0.25 at rank 4.'
    >>> _curve_sentence([{"after": "a skip", "parameter": "continuation", "estimate": 0.9}])
    'Continuation is 0.90 after a skip.'
    """
    if not curve:
        return ""
    line, condition = [row for row in curve if row.get("last_click") is None], ""
    if len(line) < len(curve):
        condition = " if there is no click above"
    shown = [line[0], line[-1]] if "rank" in line[0] and len(line) > 1 else line
    values = [
        f"{row['estimate']:.2f} " + (f"at rank {row['rank']}" if "rank" in row else f"after {row['after']}")
        for row in shown
    ]
    name = str(curve[0]["parameter"]).capitalize()
    return f"{'Click-through rate' if name == 'Ctr' else name} is {join_words(values)}{condition}."
