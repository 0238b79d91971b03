"""The result of an off-policy evaluation: estimated rewards of target policies, and whether the log has overlap."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, final

from clickshift.display.document import Document, Section
from clickshift.display.result import Result
from clickshift.display.tables import Rows
from clickshift.display.values import with_interval
from clickshift.ope._answer_report import answer_sentences, difference_verdict, families_table, parts_table
from clickshift.ope._estimate_figures import (
    clipping_figure,
    clipping_matters,
    estimates_figure,
    residual_figure,
    with_clip,
)
from clickshift.ope.answer import Answer
from clickshift.ope.daily_residuals import DayResidual, ResidualDrift
from clickshift.ope.estimate import Difference, Estimate, Evaluation
from clickshift.ope.estimators import clip_text
from clickshift.ope.signal_reward import SignalTreatment
from clickshift.ope.slope import best_clip

_TITLE = "Off-policy evaluation: what would the new ranker earn?"
_HOW = """Every estimator multiplies logged rewards by importance weights: how many times as likely the target shows
something as the logging policy. What must match is a whole list (List), a document at its rank (IP), a document by its
exposure (PBM, Item) or nothing (RCTR). The less must match, the more of the log is used, and the more is assumed of
clicks. The value is the reward per session, with a confidence interval for the expectation of the estimator. The
estimator counts whatever was never logged, or is removed by clipping, as earning nothing: the range covers everything
that this lost mass could earn."""
_HOW_FAMILIES = """A click model is rejected if it predicts held-out clicks worse than the best one by more than chance,
or if it does not reproduce in which sessions documents are clicked. The answer covers all that are not rejected."""
_HOW_TABLE = """M: the clipping constant, i.e. the largest importance weight. Logged: the share of what the target shows
that is in the log; the rest was never logged. Clipped: the share that clipping removes. Effective: the effective sample
size of the weights, in sessions. Mean weight, under a known logging policy: the mean importance weight with its
standard error, 1 in expectation where propensities are right and the logging policy may show all that the target shows.
Range: from lost mass that earns nothing to lost mass that is all clicked, widened by sampling error."""
_HOW_CLIPPING = """Estimates that change with the clipping constant M, the largest importance weight: a small M is
biased downwards, a large one is noisy. The estimates above are those at the M that SLOPE chooses."""
_HOW_DAYS = """Each day in turn is the target, and all other days are the log: a point is the estimated reward of the
day minus the reward that the day earned. The grey band is the sampling error of a day (two standard errors of its
mean). Residuals that leave the band, or that drift, show that more than the lists has changed: estimates of a target
may be off by as much."""
_HOW_DIFFERENCES = """Both targets are evaluated on the same sessions, those of queries that both rank, and in the same
resampled logs, so that sampling error that affects both cancels."""


@final
@dataclass(frozen=True, repr=False)
class PolicyEvaluation(Result):
    """Off-policy evaluation of one target policy, or of two that are compared.

    Parameters
    ----------
    evaluations
        One evaluation per estimator, by the name of the target.
    answers
        What each target earns more than the log, by its name; empty unless "auto" was among the estimators.
    answer_compare
        What the second target earns more than the first; None without a second target or "auto".
    differences
        Paired differences of two targets, second minus first, by estimator.
    residuals
        Daily residuals, for a log with days.
    notes
        Remarks on each target.
    settings
        Arguments of the evaluation.
    treatment
        Of a reward by a signal, what was done to heavy tails and unknown values; None for clicks.

    Notes
    -----
    `to_dict` holds:

    - conclusion: the answer in words.
    - rows: one per target, estimator and clipping constant; the fields of `Estimate` with verdict and explanation.
      An infinite clipping constant is None.
    - answer: the answer for the first target, with verdict ("usable", "weak" or "not identified"), estimator, value,
      low, high, today (reward of the log on the same sessions), difference, difference_low, difference_high (value
      minus today, paired), level, lost (share of the target's exposure that is lost), effective (sample size), reasons,
      parts (half-widths that add up: sampling, model, lost mass, choice of model), and families (one for each
      click-model family: name, kept, reason, deficit, z, p_value, lost, value, difference, low, high). Numbers are None
      where they are not identified. None without "auto".
    - answer_compare: the same for the second target, with the first one in the place of today; None without it.
    - differences: estimator, clip, first, second, difference, error, low, high, and words.
    - days: estimator, day, sessions, earned, estimated, error and residual.
    - notes: remarks, by target.
    - reward_treatment: of a reward by a signal, what was done to heavy tails and unknown values: quantile, limit,
      cut_sessions, cut_share, unknown_sessions, without_click and without_click_share. None for clicks.
    """

    evaluations: Mapping[str, tuple[Evaluation, ...]]
    answers: Mapping[str, Answer]
    answer_compare: Answer | None
    differences: tuple[Mapping[str, Any], ...]
    residuals: tuple[DayResidual, ...]
    notes: Mapping[str, tuple[str, ...]]
    settings: Mapping[str, Any]
    treatment: SignalTreatment | None = None

    @property
    def answer(self) -> Answer | None:
        """The answer for the first target; None unless "auto" was among the estimators."""
        return next(iter(self.answers.values()), None)

    @property
    def conclusion(self) -> str:
        """The answer for each target, and for their difference; or all estimates."""
        if not self.answers:
            results = next(iter(self.evaluations.values()))
            values = (f"{with_clip(e)} {_value_text(e)} ({e.verdict})" for e in map(best_clip, results))
            sentences = [f"Reward per session: {', '.join(values)}."]
            return " ".join([*sentences, *(f"{d['estimator']}: {d['words']}" for d in self.differences)])
        reward = self.settings["reward"]
        said = [answer_sentences(answer, name, reward) for name, answer in self.answers.items()]
        if self.answer_compare is not None:
            one, other = self.answers
            said.insert(0, answer_sentences(self.answer_compare, other, reward, one))
        return "\n\n".join(sentence for both in said for sentence in both)

    @property
    def verdict(self) -> str:
        """Verdict of the answer for the first target; empty without one."""
        return "" if self.answer is None else self.answer.verdict

    def rows(self) -> Rows:
        """Return one row per target, estimator and clipping constant."""
        return [
            {"target": name, **_estimate_facts(estimate)}
            for name, results in self.evaluations.items()
            for evaluation in results
            for estimate in evaluation.estimates
        ]

    def facts(self) -> Mapping[str, Any]:
        """Return the conclusion, answers, rows, differences, daily residuals and notes."""
        return {
            "conclusion": self.conclusion,
            "answer": None if self.answer is None else self.answer.to_dict(),
            "answer_compare": None if self.answer_compare is None else self.answer_compare.to_dict(),
            "rows": self.rows(),
            "differences": self.differences,
            "days": [asdict(r) | {"residual": r.residual} for r in self.residuals],
            "notes": self.notes,
            "reward_treatment": None if self.treatment is None else self.treatment.to_dict(),
        }

    def _document(self) -> Document:
        target, *others = self.evaluations
        e = self.evaluations[target][0].estimates[0]
        title = f"Estimates of {{}} one by one, {e.reward} per session ({e.interval})"
        estimates = [self._estimates(target, title.format(target), "estimates")]
        sections = []
        for name in others:
            sentences = "\n\n".join(f"{d['estimator']}: {d['words']}" for d in self.differences)
            table = _difference_table(self.differences)
            sections.append(Section(f"{name} against {target}", sentences, table, name="differences"))
            estimates.append(self._estimates(name, title.format(name), "estimates compared"))
        sections += [*self._answer_sections(), *estimates]
        if self.residuals:
            text = "\n\n".join(_drift_sentences(self.residuals))
            figure = partial(residual_figure, self.residuals)
            sections.append(Section("Daily residuals", text, figure=figure, name="by day", explanation=_HOW_DAYS))
        if clipped := clipping_matters([e for results in self.evaluations.values() for e in results]):
            figure = partial(clipping_figure, clipped)
            title = "Estimates by clipping constant"
            sections.append(
                Section(title, _HOW_CLIPPING, figure=figure, name="by clipping constant", page_only=True, folded=True)
            )
        explanations = [_HOW, _HOW_TABLE, *([_HOW_DIFFERENCES] if others else [])]
        sections.append(Section("How to read this", "\n\n".join(explanations), page_only=True, folded=True))
        main = self.answer_compare or self.answer
        verdict = "" if main is None else difference_verdict(main.verdict, main.difference_low, main.difference_high)
        return Document(
            _TITLE,
            self.conclusion,
            sections,
            self.settings,
            verdict,
            _data_line(e, self.settings, self.treatment),
            self._headline(),
        )

    def _headline(self) -> Section:
        """Return the chart of the answer and of all estimators that identify a value, beside today's reward."""
        shown = {
            name: [e for e in map(best_clip, results) if e.verdict != "not identified"]
            for name, results in self.evaluations.items()
        }
        left_out = dict.fromkeys(
            e.estimator
            for results in self.evaluations.values()
            for e in map(best_clip, results)
            if e.verdict == "not identified"
        )
        caption = "Bars are confidence intervals. Answers cover sampling, estimated click models and lost mass; single "
        caption += "estimators cover sampling alone."
        if left_out:
            caption += f" Not identified, and not shown: {', '.join(left_out)}."
        figure = partial(estimates_figure, self.answers, shown, self.settings["reward"])
        return Section("Answer and estimates", figure=figure, caption=caption, name="answer", page_only=True)

    def _answer_sections(self) -> list[Section]:
        """Return the sections on the answer: the parts of its interval, and the families."""
        if self.answer is None:
            return []
        found = self.answer_compare or self.answer
        sections = []
        if parts := parts_table(found):
            caption = "Half of the interval of the difference, by what the log does not tell."
            sections.append(
                Section("Parts of the interval", table=parts, caption=caption, name="parts of the interval")
            )
        sections.append(Section("Click models", _HOW_FAMILIES, families_table(found), name="click models"))
        return sections

    def _estimates(self, name: str, title: str, file_name: str) -> Section:
        """Return the section of one target: the table of estimates, verdicts and notes."""
        results = self.evaluations[name]
        text = "\n\n".join([*_verdicts(results), *(f"Note: {note}" for note in self.notes[name])])
        return Section(title, text, _estimate_table(results), name=file_name, folded=True)


def _data_line(e: Estimate, settings: Mapping[str, Any], treatment: SignalTreatment | None) -> str:
    """Say in one line what the data were."""
    skipped = f"; {e.sessions_skipped:,} sessions of other queries are skipped" if e.sessions_skipped else ""
    queries = f"{e.queries:,} {'query' if e.queries == 1 else 'queries'}"
    cut = ""
    if treatment is not None and treatment.cut_sessions:
        cut = f", at most {treatment.limit:,.4g} (cuts {treatment.cut_share:.2%} of the log's reward)"
    log = f"{e.sessions:,} sessions of {queries} in {settings['log']}{skipped}"
    return f"Data: {log}. Reward: {e.reward} per session{cut}."


def _value_text(estimate: Estimate) -> str:
    """Format the value of an estimate with its interval."""
    return with_interval(estimate.value, estimate.low, estimate.high)


def _estimate_facts(estimate: Estimate) -> dict[str, Any]:
    """Flatten an estimate, with its verdict and explanation, into a row."""
    facts = asdict(estimate)
    facts["notes"] = " ".join(estimate.notes)
    return facts | {"verdict": estimate.verdict, "explanation": estimate.explanation}


def _mean_weight_text(e: Estimate) -> str:
    """Format the mean importance weight with its standard error; a dash where weights are not fixed."""
    return "–" if math.isnan(e.mean_weight) else f"{e.mean_weight:.3f} ± {e.mean_weight_error:.3f}"


def _estimate_table(evaluations: Sequence[Evaluation]) -> list[dict[str, Any]]:
    """Make a table of estimates; of clipping constants that change nothing, only the largest one is kept."""
    known = any(not math.isnan(evaluation.estimates[0].mean_weight) for evaluation in evaluations)
    return [
        {
            "estimator": e.estimator,
            "M": clip_text(e.clip),
            "value": _value_text(e),
            "logged": f"{e.coverage:.1%}",
            "never logged": f"{e.never_logged:.1%}",
            "clipped": f"{e.clipped:.1%}",
            "effective": f"{e.effective:,.0f}",
            **({"mean weight": _mean_weight_text(e)} if known else {}),
            "largest weight": f"{e.largest_weight:.4g}",
            "range": "–" if math.isnan(e.floor_low) else f"{e.floor_low:.3g} to {e.ceiling_high:.3g}",
            "verdict": e.verdict,
        }
        for evaluation in evaluations
        for e in evaluation.estimates
        if e is evaluation.estimates[-1] or (e.clip < e.largest_weight and e.value != evaluation.estimates[-1].value)
    ]


def _verdicts(evaluations: Sequence[Evaluation]) -> list[str]:
    """Explain the verdict of each estimator, at the clipping constant that SLOPE chooses."""
    best = [best_clip(evaluation) for evaluation in evaluations]
    return [f"{with_clip(e)}: {e.verdict}. {e.explanation}" for e in best]


def notes_of(evaluations: Sequence[Evaluation]) -> list[str]:
    """Collect remarks on skipped sessions and missing overlap, each once."""
    notes = []
    for evaluation in evaluations:
        e = evaluation.estimates[-1]
        if e.sessions_skipped:
            notes.append(
                f"{e.sessions_skipped:,} sessions of {e.queries_skipped:,} queries are skipped: the target does not "
                "rank those queries."
            )
        if e.queries_without_overlap:
            notes.append(
                f"{e.estimator}: for {e.queries_without_overlap:,} of {e.queries:,} queries, nothing that the target "
                "shows was logged; they count as earning nothing."
            )
        notes += e.notes
    return list(dict.fromkeys(notes))


def difference_facts(
    first: Estimate, second: Estimate, difference: Difference, names: tuple[str, str]
) -> dict[str, Any]:
    """Describe how much more the second target earns than the first, in numbers and in a sentence."""
    both = first, second
    unidentified = [name for name, e in zip(names, both, strict=True) if e.verdict == "not identified"]
    interval = f"[{difference.low:+.4f}, {difference.high:+.4f}]"
    if unidentified:
        sentence = f"the reward of {' and '.join(unidentified)} is not identified from this log."
    elif difference.low <= 0 <= difference.high:
        sentence = f"no significant difference: {names[1]} earns {difference.value:+.4f} per session {interval}."
    else:
        size = f"{abs(difference.value):.4f} {'more' if difference.value > 0 else 'less'}"
        sentence = f"{names[1]} earns {size} per session than {names[0]} {interval}."
        if not _decided(*(both if difference.value > 0 else both[::-1])):
            sentence += " Lost mass could reverse this: treat it as indicative only."
    return {
        "estimator": second.estimator,
        "clip": second.clip,
        "first": first.value,
        "second": second.value,
        "difference": difference.value,
        "error": difference.error,
        "low": difference.low,
        "high": difference.high,
        "words": sentence,
    }


def _decided(worse: Estimate, better: Estimate) -> bool:
    """Whether one target is better whatever lost mass earns. The direct method has no lost mass."""
    return math.isnan(worse.ceiling) or math.isnan(better.floor) or worse.ceiling <= better.floor


def _difference_table(differences: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Make a table of paired differences."""
    return [
        {
            "estimator": d["estimator"],
            "M": clip_text(d["clip"]),
            "first": d["first"],
            "second": d["second"],
            "difference": with_interval(d["difference"], d["low"], d["high"], signed=True),
        }
        for d in differences
    ]


def _drift_sentences(residuals: Sequence[DayResidual]) -> list[str]:
    """Summarise the daily residuals of each estimator in a sentence."""
    return [
        f"Daily residuals of {d.estimator}: mean {d.mean:+.4f} per session, root mean square {d.rms:.4f}; sampling "
        f"error alone explains a root mean square of {d.sampling_rms:.4f}."
        for d in ResidualDrift.of(residuals)
    ]
