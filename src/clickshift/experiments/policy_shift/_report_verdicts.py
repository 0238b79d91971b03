"""Verdicts in sentences: which model predicts best, and how robust each model is to a change of policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from clickshift.core.text import join_words
from clickshift.display.figures import dot_plot
from clickshift.display.tables import Row, Rows
from clickshift.display.values import Measured
from clickshift.experiments.policy_shift._report_derived import MAX_REWARD, PolicyClicks, policy_clicks
from clickshift.experiments.policy_shift._report_robustness import (
    IMPOSSIBLE,
    LogName,
    Shift,
    mean_difference,
    peers,
    policy_shifts,
    rows_of_kind,
    text_of,
)

_MORE, _LESS, _MIXED = "more robust than peers", "less robust than peers", "mixed"
_BEST, _WORST = "the best throughout", "the worst throughout"
_CHANCE, _NOT_COMPARED, _NOT_TESTED = "no change beyond chance", "not compared", "not tested elsewhere"
_ABOVE_ORACLE = 4.0
"""Number of standard errors above the user's own model that chance does not explain, on any of several logs."""
_VERDICTS = (IMPOSSIBLE, _BEST, _MORE, _MIXED, _CHANCE, _LESS, _WORST, _NOT_COMPARED, _NOT_TESTED)
_MAJORITY = 2 / 3
"""Share of shifts that decides a verdict."""


def shift_verdicts(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Conclude the policy-shift protocol for each click model, candidates first.

    Parameters
    ----------
    rows
        Rows of the protocol.

    Returns
    -------
    list of dict
        For each `model` a `verdict` in a few words, a `sentence` with its reason, and a `text` of up to four lines:
        whether it is more robust than its peers when the policy changes, how far it is from the oracle, whether its
        Max-Reward policy gets more clicks than Top-Down, and what would change the verdict.
    """
    impossible = impossible_models(rows)
    rows = without_impossible_models(rows)
    shifts = policy_shifts(rows)
    clicks = [(log, model) for log, models in policy_clicks(rows).items() for model in models]
    verdicts = [
        {"model": name, "verdict": IMPOSSIBLE, "sentence": why, "text": why} for name, why in impossible.items()
    ]
    for name in peers(rows):
        own_shifts = [shift for shift in shifts if shift.model == name]
        own_clicks = [(log, model) for log, model in clicks if model.model == name]
        verdict = _verdict(own_shifts)
        lines = [
            _robustness_sentence(own_shifts, verdict),
            _oracle_sentence(own_shifts),
            _policy_sentence(own_clicks),
            _sensitivity_sentence(own_shifts, own_clicks, verdict),
        ]
        text = "\n".join(filter(None, lines))
        verdicts.append(
            {"model": name, "verdict": verdict, "sentence": _short_sentence(own_shifts, verdict), "text": text}
        )
    return verdicts


def verdict_table(rows: Sequence[Row], verdicts: Sequence[Mapping[str, str]]) -> Rows:
    """Tabulate the verdicts: one line per model with its mean difference of nPPL and a sentence.

    Parameters
    ----------
    rows
        Rows of the protocol, those of impossible models without a role that is compared.
    verdicts
        What `shift_verdicts` returns.

    Returns
    -------
    list of dict
        Lines of `model`, `verdict`, `change of nPPL` and `why`.
    """
    differences = _mean_differences(rows)
    return [
        {
            "model": one["model"],
            "verdict": one["verdict"],
            "change of nPPL": differences.get(one["model"]),
            "why": one["sentence"],
        }
        for one in verdicts
    ]


def difference_figure(rows: Sequence[Row]) -> Any:
    """Plot the mean difference of nPPL of each model with its interval, the most robust model first; None without.

    Parameters
    ----------
    rows
        Rows of the protocol.
    """
    differences = sorted(_mean_differences(rows).items(), key=lambda item: item[1].mean)
    if not differences:
        return None
    dots: Rows = [{"label": model, "value": one.mean, "low": None, "high": None} for model, one in differences]
    for dot, (_, one) in zip(dots, differences, strict=True):
        if not math.isnan(one.half):
            dot |= {"low": one.mean - one.half, "high": one.mean + one.half}
    return dot_plot(dots, axis="change of nPPL", reference=0.0, reference_name="no change")


def _mean_differences(rows: Sequence[Row]) -> dict[str, Measured]:
    """Mean difference of nPPL over the changes of policy, by model."""
    by_model: dict[str, list[Shift]] = {}
    for shift in policy_shifts(rows):
        if not math.isnan(shift.difference):
            by_model.setdefault(shift.model, []).append(shift)
    return {model: mean_difference(shifts) for model, shifts in by_model.items()}


def impossible_models(rows: Sequence[Row]) -> dict[str, str]:
    """Find models that predict clicks better than is possible, and explain how they are known.

    Parameters
    ----------
    rows
        Rows of the protocol; those of kind "check" are read.

    Returns
    -------
    dict
        A sentence for each model that uses the click it predicts, or that is better than the user's own model beyond
        chance.
    """
    found: dict[str, str] = {}
    for row in rows_of_kind(rows, "check"):
        name, above = text_of(row, "model"), float(row.get("above_oracle") or 0.0)
        if row.get("peeks"):
            found[name] = (
                f"{name} uses clicks that it must not know: its probability of a click changes with that click or with "
                "clicks below it. `clickshift.testing.check_click_model` shows where."
            )
        elif above > _ABOVE_ORACLE:
            found.setdefault(
                name,
                f"{name} predicts clicks better than the user's own model, by {above:.0f} standard errors. No model "
                "can: it was fitted on the test log, or knows the clicks that it predicts.",
            )
    return found


def without_impossible_models(rows: Sequence[Row]) -> list[Row]:
    """Give models that predict better than is possible the role "peeking": they are shown, but not compared.

    Parameters
    ----------
    rows
        Rows of the protocol.
    """
    impossible = impossible_models(rows)
    return [{**row, "role": "peeking"} if text_of(row, "model") in impossible else row for row in rows]


def shift_summary(verdicts: Sequence[Mapping[str, str]]) -> str:
    """Summarise the verdicts of all models.

    Parameters
    ----------
    verdicts
        What `shift_verdicts` returns.

    Returns
    -------
    str
        One short sentence per verdict, with its models.

    Examples
    --------
    >>> shift_summary([{"model": "PBM", "verdict": "mixed"}, {"model": "UBM", "verdict": "mixed"}])
    'Mixed: PBM and UBM.'
    """
    by_verdict: dict[str, list[str]] = {}
    for verdict in verdicts:
        by_verdict.setdefault(verdict["verdict"], []).append(verdict["model"])
    ordered = {verdict: by_verdict[verdict] for verdict in _VERDICTS if verdict in by_verdict}
    return " ".join(f"{verdict.capitalize()}: {join_words(models)}." for verdict, models in ordered.items())


def _verdict(shifts: Sequence[Shift]) -> str:
    """Verdict by the paper's criterion, ood nPPL below ind nPPL.

    A model that is the best on both logs cannot improve, and one that is the worst on both cannot get worse: these are
    judged apart. Where test logs were resampled, a difference within their sampling error counts for neither side.
    """
    compared = [shift for shift in shifts if not math.isnan(shift.difference)]
    if not compared:
        return _NOT_COMPARED if shifts else _NOT_TESTED
    required = _MAJORITY * len(compared)
    if all(shift.has_resamples for shift in compared):
        beyond_chance = [shift for shift in compared if shift.significant]
        if sum(shift.difference < 0 for shift in beyond_chance) >= required:
            return _MORE
        if sum(shift.difference > 0 for shift in beyond_chance) >= required:
            return _LESS
        return _MIXED if beyond_chance else _CHANCE
    if sum(shift.stays_worst for shift in compared) >= required:
        return _WORST
    if sum(shift.stays_best for shift in compared) >= required:
        return _BEST
    mean = mean_difference(compared)
    if abs(mean.mean) <= mean.half:
        return _CHANCE
    if sum(shift.difference < 0 or shift.stays_best for shift in compared) >= required:
        return _MORE
    return _LESS if sum(shift.difference > 0 for shift in compared) >= required else _MIXED


def _short_sentence(shifts: Sequence[Shift], verdict: str) -> str:
    """Reason of a verdict in one sentence."""
    if verdict in {_NOT_TESTED, _NOT_COMPARED}:
        return _robustness_sentence(shifts, verdict)
    compared = [shift for shift in shifts if not math.isnan(shift.difference)]
    below = sum(shift.difference < 0 for shift in compared)
    best = sum(shift.stays_best for shift in compared)
    highest = max(compared, key=lambda shift: shift.difference)
    if len(compared) == 1:
        (shift,) = compared
        better = "Better" if shift.difference < 0 else "Worse" if shift.difference > 0 else "The same"
        sentence = f"{better} standing among the models on the new ranker's lists than on the old one's"
        return sentence + (", the best on both." if best else ".")
    sentence = f"Better standing on the new ranker's lists in {below} of {_count(len(compared), 'change')} of ranker"
    sentence += f", the best on both lists in {best}" if best else ""
    return sentence + (f"; worst: {highest.setting} ({highest.difference:+.3f})." if highest.difference > 0 else ".")


def _robustness_sentence(shifts: Sequence[Shift], verdict: str) -> str:
    """Under how many shifts the model is more robust than its peers, and under which it does best and worst."""
    if verdict == _NOT_TESTED:
        return "It was not tested on lists of other policies."
    if verdict == _NOT_COMPARED:
        return "There is no other click model to compare its robustness with."
    compared = [shift for shift in shifts if not math.isnan(shift.difference)]
    below = sum(shift.difference < 0 for shift in compared)
    best = sum(shift.stays_best for shift in compared)
    mean = mean_difference(compared)
    start = {
        _MORE: "It keeps or improves its standing among the click models when the policy changes",
        _LESS: "It falls behind the other click models when the policy changes",
        _CHANCE: "Its standing among the click models changes with the policy by no more than chance explains",
        _MIXED: "Whether it falls behind the other click models depends on the change of policy",
        _BEST: "It is the best click model before and after the change of policy",
        _WORST: "It is the worst click model before and after the change of policy",
    }[verdict]
    sentence = f"{start}: ood nPPL is below ind nPPL in {below} of {_count(len(compared), 'shift')}"
    sentence += f", and it is the best on both logs in {best}" if best else ""
    sentence += f"; the mean difference is {_with_interval(mean)}."
    lowest, highest = (choose(compared, key=lambda shift: shift.difference) for choose in (min, max))
    if lowest.difference == highest.difference:
        return sentence
    return (
        f"{sentence} It does best with {lowest.setting} ({lowest.difference:+.3f}), "
        f"and worst with {highest.setting} ({highest.difference:+.3f})."
    )


def _oracle_sentence(shifts: Sequence[Shift]) -> str:
    """Distance from the oracle in perplexity: the best of its peers may still be far from the best possible."""
    with_oracle = [(shift, *shift.oracle) for shift in shifts if shift.oracle is not None]
    if not with_oracle:
        return ""
    ind_by_log = {shift.setting[:2]: shift.ind.perplexity.mean - oracle for shift, oracle, _ in with_oracle}
    ind = sum(ind_by_log.values()) / len(ind_by_log)
    ood = sum(shift.ood.perplexity.mean - oracle for shift, _, oracle in with_oracle) / len(with_oracle)
    share = ood / (sum(oracle - 1 for _, _, oracle in with_oracle) / len(with_oracle))
    distance = "near" if share < 0.05 else "some way from" if share < 0.2 else "far from"
    worst, _, worst_oracle = max(with_oracle, key=lambda entry: entry[0].ood.perplexity.mean - entry[2])
    gap = worst.ood.perplexity.mean - worst_oracle
    sentence = (
        f"On other policies' lists it is {distance} the oracle: {ood:.4f} above its perplexity ({share:.0%} of the "
        f"oracle's perplexity above 1), against {ind:.4f} on lists of the policy it was trained on"
    )
    return sentence + (f"; at worst {gap:.4f}, with {worst.setting}." if len(with_oracle) > 1 else ".")


def _policy_sentence(clicks: Sequence[tuple[LogName, PolicyClicks]]) -> str:
    """Clicks of Max-Reward against Top-Down: fewer are the paper's sign of a poorly robust model."""
    evaluated = [(model.gain, model.curse(MAX_REWARD)) for _, model in clicks if not math.isnan(model.gain.mean)]
    if not evaluated:
        return ""
    below = sum(gain.mean < 0 for gain, _ in evaluated)
    mean_gain = sum(gain.mean for gain, _ in evaluated) / len(evaluated)
    if len(evaluated) == 1:
        more = "more" if mean_gain > 0 else "fewer" if mean_gain < 0 else "no more"
        sentence = f"Its Max-Reward policy gets {more} clicks than Top-Down: {_with_interval(evaluated[0][0])} per list"
    else:
        above = sum(gain.mean > 0 for gain, _ in evaluated)
        sentence = (
            f"Its Max-Reward policy gets more clicks than Top-Down on {above} of {len(evaluated)} logs, "
            f"{mean_gain:+.4f} per list on average"
        )
    sentence += ", a sign of poor robustness" if below > len(evaluated) / 2 else ""
    curses = [curse.mean for _, curse in evaluated if not math.isnan(curse.mean)]
    if not curses:
        return f"{sentence}."
    curse = sum(curses) / len(curses)
    more, note = ("more", " (the optimiser's curse)") if curse > 0 else ("fewer", "")
    return f"{sentence}; the model predicted {abs(curse):.4f} {more} clicks per list than Max-Reward gets{note}."


def _sensitivity_sentence(shifts: Sequence[Shift], clicks: Sequence[tuple[LogName, PolicyClicks]], verdict: str) -> str:
    """What would change the verdict: more data, shifts within noise, or single users and policies."""
    compared = [shift for shift in shifts if not math.isnan(shift.difference)]
    reasons = []
    if not compared:
        reasons.append("other click models on the same logs" if shifts else "test logs of other policies")
    if compared and all(shift.significant is None for shift in compared):
        reasons.append("more seeds, because the noise of a single seed is unknown")
    noisy = [shift for shift in compared if shift.significant is False and not (shift.stays_best or shift.stays_worst)]
    if verdict == _CHANCE:
        resampled = all(shift.has_resamples for shift in compared)
        reasons.append("more sessions in the held-out part and in the test logs" if resampled else "more seeds")
    elif noisy:
        reasons.append(
            f"{_count(len(noisy), 'shift')} within noise ({_settings(noisy)})"
            + ("" if _could_flip(compared, verdict) else ", which cannot change it alone")
        )
    reasons += _other_verdicts(compared, verdict)
    gains = [(log, model.gain) for log, model in clicks if not math.isnan(model.gain.half)]
    within_noise = [log for log, gain in gains if gain.half >= abs(gain.mean)]
    if within_noise:
        reasons.append(
            f"the gain of Max-Reward, which is within noise on {len(within_noise)} of {_count(len(gains), 'log')}"
        )
    if not reasons:
        return (
            "What would change this verdict: nothing among these users, policies and seeds; a new user or corpus may."
        )
    return f"What would change this verdict: {'; '.join(reasons)}."


def _could_flip(shifts: Sequence[Shift], verdict: str) -> bool:
    """Whether the verdict would change if all shifts within noise had the opposite sign."""
    reliable = [shift for shift in shifts if shift.significant is not False or shift.stays_best]
    below = sum(shift.difference < 0 or shift.stays_best for shift in reliable)
    above = sum(shift.difference > 0 for shift in reliable)
    required = _MAJORITY * len(shifts)
    return {_MORE: below < required, _LESS: above < required, _CHANCE: False}.get(verdict, True)


def _other_verdicts(shifts: Sequence[Shift], verdict: str) -> list[str]:
    """Users and policies whose shifts alone give another verdict."""
    phrases = []
    for position, form in enumerate(("{} users", "training on {}", "testing on {}")):
        names = list(dict.fromkeys(shift.setting[position] for shift in shifts))
        by_verdict: dict[str, list[str]] = {}
        for name in names:
            alone = _verdict([shift for shift in shifts if shift.setting[position] == name])
            if len(names) > 1 and alone != verdict:
                by_verdict.setdefault(alone, []).append(name)
        phrases += [f"{form.format(join_words(group))} alone ({alone})" for alone, group in by_verdict.items()]
    return phrases


def _settings(shifts: Sequence[Shift], longest: int = 3) -> str:
    """The first settings, and the number of the others."""
    shown = [str(shift.setting) for shift in shifts[:longest]]
    return "; ".join(shown) + (f"; and {len(shifts) - longest} more" if len(shifts) > longest else "")


def _count(number: int, noun: str) -> str:
    """A number with its noun, in the plural where needed."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _with_interval(value: Measured) -> str:
    """A value with its interval, without marks."""
    return f"{value.number} {value.spread}".rstrip()
