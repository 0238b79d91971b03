"""What a fitted model shows of itself: what was learned from how much, and the curve that describes browsing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
from typing_extensions import override

from clickshift.core.text import join_words
from clickshift.data.description import describe_log
from clickshift.data.segments import largest_segments
from clickshift.display.document import Document, Section
from clickshift.display.export import Written
from clickshift.display.figures import COLOURS, by_segment, curve_figure
from clickshift.display.result import Result
from clickshift.display.tables import Row, Rows
from clickshift.errors import CapabilityError
from clickshift.models import model_title
from clickshift.models.base import ClickModel, Evidence
from clickshift.models.mixture import Mixture
from clickshift.models.observed_views import views_facts, views_sentence
from clickshift.models.segmented import Segmented
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
    - of a log with views: known_views, clicks_without_a_view and largest_difference, as in `examination`;
    - by, labels, p_value, statistic, degrees_of_freedom: segment of a model with a curve per segment, its labels, and
      the test that all of them browse alike;
    - curve: rows of `examination`, if the model has such a parameter;
    - members: of a mixture, its members, each with its name (member) and weight;
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
        name, pairs = model_title(self.model), f"{self.model.vocabulary.n_pairs:,} pairs"
        if not self._evidence:
            return f"{name}: {pairs}, not fitted on a log"
        first, iterations = self._evidence[0], max(one.iterations for one in self._evidence)
        sessions = f"on {first.sessions:,} sessions, " if first.sessions else "on "
        converged = "converged" if all(one.converged for one in self._evidence) else "not converged"
        ended = f", {converged} after {iterations:,} iteration{'s' * (iterations > 1)}" if iterations else ""
        seeds = f", {len(self.models)} seeds" if len(self.models) > 1 else ""
        return f"{name}: fitted by {first.learner.partition('(')[0]} {sessions}{pairs}{ended}{seeds}"

    @property
    @override
    def conclusion(self) -> str:
        sentences = (
            _curve_sentence(self._curve(), _sizes(self.model)),
            segments_sentence(self.model),
            views_sentence(self.model),
        )
        return " ".join(filter(None, (f"{self.headline}.", _members_sentence(self._members()), *sentences)))

    def _members(self) -> Rows:
        """Return the members of a mixture with their weights, the largest first; none of another model."""
        if not isinstance(self.model, Mixture):
            return []
        weights, titles = self.model.weights, self.model.component_titles
        return [{"member": titles[m], "weight": float(weights[m])} for m in np.argsort(-weights, kind="stable")]

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
                "model": model_title(self.model),
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
            "model": model_title(self.model),
            "learner": None,
            "sessions": 0,
            "pairs": self.model.vocabulary.n_pairs,
            **_segment_facts(self.model),
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
            **views_facts(self.model),
        }

    @override
    def facts(self) -> Mapping[str, Any]:
        curve, members = self._curve(), self._members()
        known = {name: rows for name, rows in (("curve", curve), ("members", members)) if rows}
        return self._facts() | known | {"conclusion": self.conclusion}

    @override
    def _document(self) -> Document:
        curve, relevance = self._curve(), _relevance_section(self.model)
        headline = _curve_section(curve) if curve else None
        sections = [relevance] if relevance is not None else []
        if headline is None and sections:
            headline = sections.pop()
        if members := self._members():
            caption = "Weight: share of sessions."
            sections.insert(0, Section("Members of the mixture", table=members, caption=caption, name="members"))
        return Document(
            f"Fitted model: {model_title(self.model)}",
            self.conclusion,
            sections,
            settings=self._facts(),
            verdict=_curve_verdict(curve) or ("" if all(one.converged for one in self._evidence) else "not converged"),
            data=self.data,
            headline=headline,
        )

    @property
    def data(self) -> str:
        """The training log in one line; empty if it is not known."""
        if not self._evidence:
            return ""
        first = self._evidence[0]
        queries = self.model.vocabulary.n_queries
        ends = {"first": first.first_time, "last": first.last_time}
        return describe_log(first.sessions, queries, source=first.source, **ends)

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
    - curve: one row per entry of the parameter: its label (rank, last_click or after; segment, if there are several
      curves), parameter, estimate, low, high, support; of a log with views also observed (its rate) and from_clicks
      (what clicks alone would suggest);
    - of a log with views: known_views, the number of results whose view is known; clicks_without_a_view; and
      largest_difference of the two curves, with rank (segment, if there are several curves), from_clicks, observed,
      difference, p_value and beyond_chance;
    - conclusion.
    """

    model: ClickModel
    curve: Sequence[Row]

    @property
    @override
    def conclusion(self) -> str:
        sentences = (
            _curve_sentence(self.curve, _sizes(self.model)),
            segments_sentence(self.model),
            views_sentence(self.model),
        )
        return " ".join(filter(None, sentences))

    @override
    def rows(self) -> Rows:
        """Return a row per entry of the parameter: its label, parameter, estimate, low, high and support."""
        return [dict(row) for row in self.curve]

    @override
    def facts(self) -> Mapping[str, Any]:
        facts = {"model": model_title(self.model), "curve": self.rows()}
        return facts | views_facts(self.model) | {"conclusion": self.conclusion}

    @override
    def _document(self) -> Document:
        name, summary = model_title(self.model), ModelSummary((self.model,))
        return Document(
            f"{name}: how users move through the list",
            self.conclusion,
            settings=summary._facts(),
            verdict=_curve_verdict(self.curve),
            data=summary.data,
            headline=_curve_section(self.curve, name),
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


def _curve_section(curve: Sequence[Row], model: str = "") -> Section:
    """Return the section of a curve; of a long one, the terminal shows no table."""
    name = str(curve[0]["parameter"])
    title = f"{_parameter_text(name)} with 95 % intervals"
    captions = ["Hollow: not identified by the log, a value of the prior."] if _unidentified(curve) else []
    if "observed" in curve[0]:
        captions.append("Crosses: rates of observed views. Dotted: inferred from clicks alone.")
    if "segment" in curve[0]:
        captions.append("Lines: segments" + (", without a click above." if "last_click" in curve[0] else "."))
    elif "last_click" in curve[0]:
        captions.append("Lines: rank of the last click above; the band is that of lists without a click above.")
    return Section(
        f"{model}: {title[0].lower()}{title[1:]}" if model else title,
        table=_curve_rows(curve),
        figure=partial(curve_figure, curve),
        caption=" ".join(captions),
        name=name,
        page_only=len(curve) > _ROWS_SHOWN,
    )


_ROWS_SHOWN = 30
"""Most rows of a curve that a terminal shows."""


def _curve_rows(curve: Sequence[Row]) -> Rows:
    """Tabulate a curve: the estimate under the name of its parameter, and what it rests on where that is not the log.

    >>> _curve_rows([{"rank": 1, "last_click": None, "parameter": "examination", "estimate": 0.5, "low": 2e-308,
    ...               "high": 0.9, "support": "log"}])
    [{'rank': 1, 'last click': 'none', 'examination': 0.5, 'low': 0.0, 'high': 0.9}]
    """
    all_from_log = all(row.get("support", "") in {"log", ""} for row in curve)
    table = []
    for row in curve:
        shown: dict[str, Any] = {}
        for name, value in row.items():
            if name == "last_click":
                shown["last click"] = value or "none"
            elif name == "estimate":
                shown[_parameter_text(str(row["parameter"])).lower()] = value
            elif name == "low":
                shown[name] = 0.0 if value < _ROUNDED_TO_ZERO else value
            elif name == "support":
                shown |= {} if all_from_log else {"rests on": value}
            elif name == "from_clicks":
                shown["from clicks alone"] = value
            elif name != "parameter":
                shown[name] = value
        table.append(shown)
    return table


_ROUNDED_TO_ZERO = 5e-5
"""A lower bound below this is shown as 0."""


def _parameter_text(name: str) -> str:
    """Return the name of a parameter in words."""
    return "Click-through rate" if name == "ctr" else name.capitalize()


def _unidentified(curve: Sequence[Row]) -> list[Row]:
    """Return the entries that the log does not identify, without the continuation after the last rank."""
    unidentified = []
    for line in by_segment(curve).values():
        own = [row for row in line if row.get("support") == "not identified"]
        if own and own[-1] is line[-1] and line[0]["parameter"] == "continuation":
            own.pop()
        unidentified += own
    return unidentified


def _curve_verdict(curve: Sequence[Row]) -> str:
    """Return whether the log identifies a curve; empty if that is not known, or it does.

    >>> rows = [{"rank": 1, "parameter": "examination", "support": "convention"}]
    >>> [_curve_verdict([*rows, rows[0] | {"rank": 2, "support": s}]) for s in ("log", "prior", "not identified")]
    ['', 'weakly identified', 'not identified']
    """
    main = [row for row in curve if row.get("last_click") is None]
    if _unidentified(main):
        return "not identified"
    return "weakly identified" if sum(row.get("support") == "prior" for row in main) > len(main) / 3 else ""


def _members_sentence(members: Rows) -> str:
    """Name the members of a mixture with their weights; empty without members."""
    named = [f"{row['weight']:.3f} {row['member'].replace(', ', ' with ', 1)}" for row in members]
    return f"Each session follows one of its members, by weight: {join_words(named)}." if named else ""


def _relevance_section(model: ClickModel) -> Section | None:
    """Return how relevance is distributed over documents, by how often they were shown; None if it is constant."""
    if not model.ranks_documents:
        return None
    relevance, evidence = model.relevance(), model.evidence
    impressions = np.full(len(relevance), np.inf) if evidence is None else evidence.impressions[:-1]
    table: Rows = []
    for least, below, name in (
        (100, np.inf, "100 or more"),
        (20, 100, "20 to 99"),
        (5, 20, "5 to 19"),
        (0, 5, "0 to 4"),
    ):
        group = relevance[(impressions >= least) & ((impressions < below) | (below == np.inf))]
        if len(group):
            low, middle, high = np.quantile(group, [0.1, 0.5, 0.9]).tolist()
            name = "any" if evidence is None else name
            shares = {"lowest tenth below": low, "median relevance": middle, "highest tenth above": high}
            table.append({"impressions": name, "documents": len(group), **shares})
    return Section(
        "Relevance of the documents",
        table=table,
        figure=partial(_relevance_figure, relevance, impressions),
        caption="A document is one of a query. Relevance of documents that were rarely shown rests on the prior.",
        name="relevance",
        page_only=True,
    )


def _relevance_figure(relevance: np.ndarray, impressions: np.ndarray) -> Any:
    """Plot the distribution of relevance, of documents with and without much evidence."""
    import plotly.graph_objects as go

    ends = np.linspace(min(0.0, relevance.min()), max(relevance.max(), 1e-9), 41)
    figure, often = go.Figure(), impressions >= _OFTEN
    for name, group, colour in (
        (f"shown {_OFTEN} times or more", relevance[often], COLOURS[0]),
        ("shown less often", relevance[~often], COLOURS[3]),
    ):
        if len(group):
            figure.add_bar(
                name=name,
                x=(ends[1:] + ends[:-1]) / 2,
                y=np.histogram(group, ends)[0],
                marker={"color": colour},
                hovertemplate="%{x:.2f}: %{y:,} documents<extra>%{fullData.name}</extra>",
            )
    return figure.update_layout(
        template="plotly_white",
        barmode="stack",
        bargap=0.05,
        xaxis={"title": "relevance"},
        yaxis={"title": "documents"},
        showlegend=len(figure.data) > 1,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        margin={"l": 60, "r": 20, "t": 40, "b": 50},
        height=320,
    )


_OFTEN = 20
"""Impressions from which on the relevance of a document rests on the log rather than on the prior."""


def _segment_facts(model: ClickModel) -> dict[str, Any]:
    """Return the facts of a model with a curve per segment; none for other models."""
    if not isinstance(model, Segmented):
        return {}
    return {
        "by": model.segment,
        "labels": list(model.labels),
        "p_value": model.p_value,
        "statistic": model.statistic,
        "degrees_of_freedom": model.degrees_of_freedom,
    }


def segments_sentence(model: ClickModel) -> str:
    """Say whether the segments of a model differ; empty for a model without segments.

    Parameters
    ----------
    model
        A click model.
    """
    if not isinstance(model, Segmented):
        return ""
    if not model.degrees_of_freedom:
        return f"The log does not tell whether the labels of {model.segment} differ."
    p = "below 0.001" if model.p_value < _SMALL_P_VALUE else f"{model.p_value:.2g}"
    verb = "differ" if model.p_value < _DIFFER_P_VALUE else "do not differ significantly"
    return f"The labels of {model.segment} {verb} (p-value {p})."


_SMALL_P_VALUE, _DIFFER_P_VALUE = 0.001, 0.05


def _sizes(model: ClickModel) -> Mapping[str, float]:
    """Return the sessions of each label of a model by segment; empty where they are not known."""
    return dict(zip(model.labels, model.label_sessions, strict=False)) if isinstance(model, Segmented) else {}


def _curve_sentence(curve: Sequence[Row], sizes: Mapping[str, float]) -> str:
    """Describe a curve by its first and last identified value over ranks, or by its values.

    Of several segments, those with the largest sizes are described.

    >>> _curve_sentence([{"rank": r, "parameter": "examination", "estimate": 1 / r} for r in (1, 2, 4)], {})
    'Examination is 1.00 at rank 1 and 0.25 at rank 4.'
    >>> _curve_sentence([{"after": "a skip", "parameter": "continuation", "estimate": 0.9}], {})
    'Continuation is 0.90 after a skip.'
    """
    if not curve:
        return ""
    lines = by_segment(curve)
    if len(lines) > 1:
        return largest_segments({label: _curve_sentence(own, {}) for label, own in lines.items()}, sizes)
    line, condition = [row for row in curve if row.get("last_click") is None], ""
    if len(line) < len(curve):
        condition = " if there is no click above"
    unidentified = _unidentified(line)
    line = [row for row in line if row.get("support") != "not identified"] or line
    shown = [line[0], line[-1]] if "rank" in line[0] and len(line) > 1 else line
    values = [
        f"{row['estimate']:.2f} " + (f"at rank {row['rank']}" if "rank" in row else f"after {row['after']}")
        for row in shown
    ]
    text = f"{_parameter_text(str(curve[0]['parameter']))} is {join_words(values)}{condition}."
    if unidentified:
        labels = [str(row.get("rank", row.get("after"))) for row in unidentified]
        where = f"{'rank' if 'rank' in unidentified[0] else 'after'}{'s' * (len(labels) > 1 and 'rank' in line[0])}"
        text += f" The log does not identify it at {where} {join_words(labels)}: these values rest on the prior."
    return text
