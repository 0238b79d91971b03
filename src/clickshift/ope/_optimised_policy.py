"""The result of policy optimisation: an optimised policy with in-sample and cross-fitted values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from clickshift.data.weighted_lists import WeightedLists
from clickshift.display.document import Document, Section
from clickshift.display.export import Written
from clickshift.display.figures import dot_plot
from clickshift.display.result import Result
from clickshift.display.tables import Rows
from clickshift.display.values import with_interval
from clickshift.io.table_writer import ENDINGS, table_ending
from clickshift.io.target_files import write_target
from clickshift.ope._answer_report import difference_verdict, gain_text
from clickshift.ope.estimate import Estimate

_LOST_TO_MENTION = 0.005
"""Share of lost mass from which the conclusion mentions it."""


class PooledValue(NamedTuple):
    """Mean over both halves, weighted by sessions, with a 95 % interval."""

    value: float
    low: float
    high: float


class PooledAnswer(NamedTuple):
    """Answers of both halves together: gain of the policies that the other half chose, per session.

    Parameters
    ----------
    verdict
        The worse of the two verdicts: "usable", "weak" or "not identified".
    estimator
        What the answers rest on.
    difference, low, high
        Mean over both halves, weighted by sessions. The ends of the interval are means of the ends: wider than needed,
        because the halves are independent. NaN where a half has no answer.
    reasons
        Reasons of the verdicts.
    """

    verdict: str
    estimator: str
    difference: float
    low: float
    high: float
    reasons: tuple[str, ...]


@final
@dataclass(frozen=True, eq=False, repr=False)
class OptimisedPolicy(Result):
    """A policy that maximises an estimator, with in-sample and cross-fitted values.

    Parameters
    ----------
    policy
        The best policy according to the whole log.
    logging
        Reward of the log itself.
    in_sample
        Estimated reward of the policy on the log that chose it: biased upwards.
    cross_fitted
        Estimated reward on each half of the policy that the other half chose. Its interval is that of the estimator: it
        has the sampling error only, and misses the true reward where users do not click as the estimator assumes.
    gain
        The same, minus the reward of the half itself.
    lower
        95 % lower confidence bound of the cross-fitted reward: that of Li et al. (2018), theorems 4.5 and 4.6, with the
        range that clipped weights have, for a policy chosen on other sessions. It holds under the click assumption.
    largest_weight
        Clipping constant of the lower bound: M or, for M = inf, the largest weight that the half which chose the policy
        allows.
    answer
        Gain of each half's policy on the other half over the click models that the log does not reject, as
        `evaluate_policy` answers; None for a reward that is not a sum over clicks.
    lost
        Share of the cross-fitted policies that the evaluating half never shows or clips, which counts as earning
        nothing.
    halves
        How the log was split: "by time" or "at random".
    settings
        Arguments of the optimisation.

    Notes
    -----
    `to_dict` holds:

    - conclusion: the gain over click models that the log does not reject, the lower bound, what it assumes, and the
      estimator's own cross-fitted gain, in words.
    - answer: gain of each half's policy on the other half, as in `PolicyEvaluation`: verdict, estimator, difference,
      low, high and reasons; empty for a reward that is not a sum over clicks.
    - estimator, clip, reward: what was maximised.
    - assumption: what the estimator assumes of clicks; empty for List.
    - logging, in_sample: reward per session of the log, and of the policy on the log that chose it.
    - cross_fitted_lower_bound, cross_fitted_lower_bound_clip: lower bound of the reward per session of policies chosen
      on the other half, and its clipping constant.
    - cross_fitted, cross_fitted_low, cross_fitted_high, cross_fitted_lost: the estimator's value of those policies, its
      interval by sampling error alone, and lost mass.
    - gain, gain_low, gain_high: cross-fitted reward minus that of the log, with the same interval.
    - halves, lists, queries: how the log was split, and the size of the policy.

    References
    ----------
    Li, S. et al. (2018). Offline evaluation of ranking policies with click models. KDD.
    """

    policy: WeightedLists
    logging: Estimate
    in_sample: Estimate
    cross_fitted: PooledValue
    gain: PooledValue
    lower: float
    largest_weight: float
    answer: PooledAnswer | None
    lost: float
    halves: str
    settings: Mapping[str, Any]

    @property
    def conclusion(self) -> str:
        """The gain over click models, the lower bound with its assumption, and the estimator's own estimate."""
        in_sample, name = self.in_sample.value - self.logging.value, self.in_sample.estimator
        condition = f", if {self.in_sample.assumption}" if self.in_sample.assumption else ""
        bound = f"The optimised policy earns at least {self.lower:.4f} per session (95 % lower bound{condition})"
        if self.lower > self.logging.value:
            text = f"{bound}, {self.lower - self.logging.value:.4f} more than the log ({self.logging.value:.4f})."
        else:
            text = f"{bound}. This does not show that it is better than the log, which earned {self.logging.value:.4f}."
        text = f"{self._answer_sentence()}{text}"
        text += f"\n\n{name} itself estimates a cross-fitted gain of {with_interval(*self.gain, signed=True)}"
        text += f" (in-sample {in_sample:+.4f}); "
        if condition:
            text += "this interval has sampling error only, and misses the truth where users click otherwise."
        else:
            text += "this interval has sampling error only."
        if self.lost >= _LOST_TO_MENTION:
            text += f" Lost mass, {self.lost:.1%} of the policy, is counted there as earning nothing."
        if math.isinf(self.in_sample.clip):
            text += (
                f" Without a clipping constant, the bound uses the largest weight that the other half allows, "
                f"{self.largest_weight:.4g}, and is loose: choose a finite M for a better one."
            )
        return text

    def _answer_sentence(self) -> str:
        """The gain over the click models that the log does not reject, as a paragraph; empty where there is none."""
        if self.answer is None:
            return ""
        if self.answer.verdict == "not identified":
            return "This log cannot tell what the optimised policy earns.\n\n"
        a = self.answer
        claim = "Policies chosen on one half of the log earn "
        claim += "more" if a.low > 0 else "less" if a.high < 0 else "neither clearly more nor clearly less"
        gain = gain_text(self.logging.value, a.difference, a.low, a.high, level=0.95, reward=self.in_sample.reward)
        return (
            f"{claim} than the log on the other half: {gain}.\n\nVerdict: {a.verdict}, whichever click model is right "
            "that the log does not reject. "
        )

    def _values(self) -> list[dict[str, Any]]:
        """Everything that is known about the reward of the policy: name, value, low, high, lost and kind."""
        e, nan = self.in_sample, math.nan
        rows: list[dict[str, Any]] = []
        if self.answer is not None and self.answer.verdict != "not identified":
            base, a = self.logging.value, self.answer
            name = "optimised policy, over click models that the log does not reject"
            rows.append(_value(name, base + a.difference, base + a.low, base + a.high, nan, "answer"))
        rows.append(_value("optimised policy, 95 % lower bound", self.lower, nan, nan, nan, "lower bound"))
        name = f"estimate by {e.estimator}, cross-fitted (halves {self.halves}), with its sampling error"
        rows.append(_value(name, *self.cross_fitted, self.lost, "single estimator"))
        rows.append(_value(f"estimate by {e.estimator}, in-sample", e.value, nan, nan, e.lost, "in-sample (too high)"))
        return rows

    def _figure(self) -> Any:
        """Plot the values of the policy beside the reward of the log."""
        return dot_plot(
            [{**row, **({"low": None, "high": None} if math.isnan(row["low"]) else {})} for row in self._values()],
            axis=f"{self.in_sample.reward} per session",
            label="name",
            group="kind",
            reference=self.logging.value,
            reference_name=f"log {self.logging.value:.4g}",
        )

    def rows(self) -> Rows:
        """Return one row per list of the policy: query, docs and weight."""
        lists, vocabulary = self.policy.lists, self.policy.vocabulary
        ids = np.array([*vocabulary.doc_ids[vocabulary.pair_doc].tolist(), None], object)  # a hole is None
        docs = [ids[pair[:length]].tolist() for pair, length in zip(lists.pair, lists.length.tolist(), strict=True)]
        query = vocabulary.query_ids[lists.query].tolist()
        return [
            {"query": q, "docs": d, "weight": w}
            for q, d, w in zip(query, docs, self.policy.weight.tolist(), strict=True)
        ]

    def facts(self) -> Mapping[str, Any]:
        """Return the conclusion, the values, and the size of the policy."""
        return {
            "conclusion": self.conclusion,
            "estimator": self.in_sample.estimator,
            "clip": self.in_sample.clip,
            "reward": self.in_sample.reward,
            "assumption": self.in_sample.assumption,
            "logging": self.logging.value,
            "in_sample": self.in_sample.value,
            "answer": {} if self.answer is None else self.answer._asdict(),
            "cross_fitted": self.cross_fitted.value,
            "cross_fitted_low": self.cross_fitted.low,
            "cross_fitted_high": self.cross_fitted.high,
            "cross_fitted_lower_bound": self.lower,
            "cross_fitted_lower_bound_clip": self.largest_weight,
            "cross_fitted_lost": self.lost,
            "gain": self.gain.value,
            "gain_low": self.gain.low,
            "gain_high": self.gain.high,
            "halves": self.halves,
            "lists": len(self.policy.weight),
            "queries": self.in_sample.queries,
        }

    def _document(self) -> Document:
        e = self.in_sample
        table = [{"": "logging policy", "value": f"{self.logging.value:.4f}", "lost mass": ""}]
        table += [
            {
                "": row["name"],
                "value": with_interval(row["value"], row["low"], row["high"]),
                "lost mass": "" if math.isnan(row["lost"]) else f"{row['lost']:.1%}",
            }
            for row in self._values()
        ]
        text = f"The policy has {len(self.policy.weight):,} lists of {e.queries:,} queries."
        if e.assumption:
            text += f" The lower bound and the estimates by {e.estimator} assume that {e.assumption}."
        title = f"{e.reward} per session, by {e.estimator} with M = {e.clip:g}"
        headline = Section(title, text, table, self._figure, name="values")
        data = f"Data: {e.sessions:,} sessions of {e.queries:,} queries, halves {self.halves}. Maximised: {title}."
        return Document(
            "The policy that the log values most", self.conclusion, [], self.settings, self._verdict(), data, headline
        )

    def _verdict(self) -> str:
        """Return the verdict of the page: whether the policy earns more than the log."""
        if self.answer is None:
            return "earns more" if self.lower > self.logging.value else "no clear difference"
        return difference_verdict(self.answer.verdict, self.answer.low, self.answer.high)

    @classmethod
    def check_output(cls, path: str | Path) -> None:
        """Check that `write` can write to a path: a table, an HTML page or a folder.

        Parameters
        ----------
        path
            The path.

        Raises
        ------
        FileError
            "unknown-format" for another ending.
        """
        if Path(path).suffix and Path(path).suffix.lower() not in {".html", ".htm"}:
            table_ending(path)

    def write(self, path: str | Path) -> Written:
        """Write the lists and their weights to a table, or the result to a page or a folder.

        Parameters
        ----------
        path
            A table that `evaluate_policy` reads as a target (.parquet, .csv or .jsonl); else as in `Result.write`.

        Returns
        -------
        Written
            Paths of what was written.
        """
        path = Path(path)
        self.check_output(path)
        if path.suffix.lower() not in ENDINGS:
            return super().write(path)
        write_target(path, self.policy)
        return Written(files=(path,))


def _value(name: str, value: float, low: float, high: float, lost: float, kind: str) -> dict[str, Any]:
    """Return one value of a policy; NaN where there is no interval or no lost mass."""
    return {"name": name, "value": value, "low": low, "high": high, "lost": lost, "kind": kind}
