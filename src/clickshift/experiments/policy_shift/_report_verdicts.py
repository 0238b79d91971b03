"""Numbers -> sentences that a reader can act on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from clickshift.display.tables import Row
from clickshift.display.values import Measured
from clickshift.experiments.policy_shift._report_derived import MAX_REWARD, PolicyClicks, policy_clicks
from clickshift.experiments.policy_shift._report_robustness import LogName, Shift, mean_difference, peers, policy_shifts
from clickshift.metrics.click_prediction import PROBABILITY_FLOOR

_BASELINES = ("gCTR", "rCTR", "dCTR", "drCTR")
_MORE, _LESS, _MIXED = "more robust than peers", "less robust than peers", "mixed"
_BEST, _WORST = "the best throughout", "the worst throughout"
_ALONE, _UNKNOWN = "not compared", "not tested elsewhere"
_VERDICTS = (_BEST, _MORE, _MIXED, _LESS, _WORST, _ALONE, _UNKNOWN)
_MOST = 2 / 3
"""The share of shifts that makes a verdict."""


def comparison_verdict(rows: Sequence[Row]) -> str:
    """Which model predicts best, what that gains over the best baseline, and what failed."""
    value = {row["model"]: row["conditional_perplexity"] for row in rows if row["conditional_perplexity"] is not None}
    sentences = []
    if value:
        best = min(value, key=value.__getitem__)
        level = [name for name in value if round(value[name], 3) == round(value[best], 3) and name != best]
        beside = f", level with {' and '.join(level)}" if level else ""
        sentences.append(f"{best} predicts these clicks best: conditional perplexity {value[best]:.4f}{beside}.")
        baseline = min((name for name in value if name in _BASELINES), key=value.__getitem__, default=None)
        if baseline is not None and baseline != best and value[baseline] > 1:
            gain = (value[baseline] - value[best]) / (value[baseline] - 1)
            sentences.append(
                f"That is {gain:.1%} nearer to certainty than {baseline}, the best baseline ({value[baseline]:.4f})."
            )
    failed = [row["model"] for row in rows if row["error"]]
    if failed:
        sentences.append(f"Not compared: {', '.join(failed)}.")
    impossible = [row["model"] for row in rows if row["log_likelihood"] == -math.inf]
    if impossible:
        sentences.append(
            f"{', '.join(impossible)} gave probability 0 to clicks that happened: the floor "
            f"{PROBABILITY_FLOOR:g} decides what that costs."
        )
    return " ".join(sentences)


def shift_verdicts(rows: Sequence[Row]) -> list[dict[str, str]]:
    """One per click model, candidates first: is it more robust than peers when the ranker changes, is it far from
    the oracle, does its Max-Reward policy earn more than Top-Down, and what would change this. A line each."""
    found = policy_shifts(rows)
    earned = [(log, model) for log, models in policy_clicks(rows).items() for model in models]
    verdicts = []
    for name in peers(rows):
        of_model = [shift for shift in found if shift.model == name]
        of_policies = [(log, model) for log, model in earned if model.model == name]
        verdict = _robustness(of_model)
        lines = [
            _where_robust(of_model, verdict),
            _oracle_words(of_model),
            _policy_words(of_policies),
            _what_would_change(of_model, of_policies, verdict),
        ]
        verdicts.append({"model": name, "verdict": verdict, "text": "\n".join(filter(None, lines))})
    return verdicts


def shift_summary(verdicts: Sequence[Mapping[str, str]]) -> str:
    """The verdicts in one breath.

    >>> shift_summary([{"model": "PBM", "verdict": "mixed"}, {"model": "UBM", "verdict": "mixed"}])
    'Mixed: PBM and UBM.'
    """
    by_verdict: dict[str, list[str]] = {}
    for found in verdicts:
        by_verdict.setdefault(found["verdict"], []).append(found["model"])
    said = {verdict: by_verdict[verdict] for verdict in _VERDICTS if verdict in by_verdict}
    return " ".join(f"{verdict.capitalize()}: {_listed(models)}." for verdict, models in said.items())


def _robustness(found: Sequence[Shift]) -> str:
    """By the paper's criterion, ood nPPL below ind nPPL; but the best on both logs can do no better, and the worst on
    both no worse."""
    known = [shift for shift in found if not math.isnan(shift.difference)]
    if not known:
        return _ALONE if found else _UNKNOWN
    need = _MOST * len(known)
    if sum(shift.stays_worst for shift in known) >= need:
        return _WORST
    if sum(shift.stays_best for shift in known) >= need:
        return _BEST
    if sum(shift.difference < 0 or shift.stays_best for shift in known) >= need:
        return _MORE
    return _LESS if sum(shift.difference > 0 for shift in known) >= need else _MIXED


def _where_robust(found: Sequence[Shift], verdict: str) -> str:
    if verdict == _UNKNOWN:
        return "It was not tested on lists of other policies."
    if verdict == _ALONE:
        return "There is no other click model to compare its robustness with."
    known = [shift for shift in found if not math.isnan(shift.difference)]
    below = sum(shift.difference < 0 for shift in known)
    best = sum(shift.stays_best for shift in known)
    mean = mean_difference(known)
    start = {
        _MORE: "It keeps or improves its place among the click models when the ranker changes",
        _LESS: "It falls behind the other click models when the ranker changes",
        _MIXED: "Whether it falls behind the other click models depends on the change of ranker",
        _BEST: "It is the best click model before and after the ranker changes",
        _WORST: "It is the worst click model before and after the ranker changes",
    }[verdict]
    words = f"{start}: ood nPPL is below ind nPPL in {below} of {_count(len(known), 'shift')}"
    words += f", and it is the best on both logs in {best}" if best else ""
    words += f"; the mean difference is {_with_spread(mean)}."
    first, last = (choose(known, key=lambda shift: shift.difference) for choose in (min, max))
    if first.difference == last.difference:
        return words
    return (
        f"{words} It does best with {first.place} ({first.difference:+.3f}), "
        f"and worst with {last.place} ({last.difference:+.3f})."
    )


def _oracle_words(found: Sequence[Shift]) -> str:
    """In perplexity, for what is best among peers may still be far from what can be known."""
    known = [(shift, *shift.oracle) for shift in found if shift.oracle is not None]
    if not known:
        return ""
    homes = {shift.place[:2]: shift.ind.perplexity.mean - oracle for shift, oracle, _ in known}
    ind = sum(homes.values()) / len(homes)
    ood = sum(shift.ood.perplexity.mean - oracle for shift, _, oracle in known) / len(known)
    share = ood / (sum(oracle - 1 for _, _, oracle in known) / len(known))
    far = "near" if share < 0.05 else "some way from" if share < 0.2 else "far from"
    worst = max(known, key=lambda one: one[0].ood.perplexity.mean - one[2])
    gap = worst[0].ood.perplexity.mean - worst[2]
    words = (
        f"On other policies' lists it is {far} the oracle: {ood:.4f} above its perplexity ({share:.0%} of what the "
        f"oracle leaves open), against {ind:.4f} where it was trained"
    )
    return words + (f"; at worst {gap:.4f}, with {worst[0].place}." if len(known) > 1 else ".")


def _policy_words(found: Sequence[tuple[LogName, PolicyClicks]]) -> str:
    """Max-Reward below Top-Down is the paper's sign of a poorly robust model."""
    known = [(model.gain, model.curse(MAX_REWARD)) for _, model in found if not math.isnan(model.gain.mean)]
    if not known:
        return ""
    below = sum(gain.mean < 0 for gain, _ in known)
    gain = sum(gain.mean for gain, _ in known) / len(known)
    if len(known) == 1:
        more = "more" if gain > 0 else "fewer" if gain < 0 else "no more"
        words = f"Its Max-Reward policy earns {more} clicks than Top-Down: {_with_spread(known[0][0])} per list"
    else:
        words = (
            f"Its Max-Reward policy earns more clicks than Top-Down on {sum(gain.mean > 0 for gain, _ in known)} of "
            f"{len(known)} logs, {gain:+.4f} per list on average"
        )
    words += ", a sign of poor robustness" if below > len(known) / 2 else ""
    curses = [curse.mean for _, curse in known if not math.isnan(curse.mean)]
    if not curses:
        return f"{words}."
    curse = sum(curses) / len(curses)
    broken = "more than that (the optimiser's curse)" if curse > 0 else "less than that"
    return f"{words}; the model promised {abs(curse):.4f} {broken}."


def _what_would_change(found: Sequence[Shift], policies: Sequence[tuple[LogName, PolicyClicks]], verdict: str) -> str:
    known = [shift for shift in found if not math.isnan(shift.difference)]
    reasons = []
    if not known:
        reasons.append("other click models on the same logs" if found else "test logs of other policies")
    if known and all(shift.sure is None for shift in known):
        reasons.append("more seeds, for one does not tell what is noise")
    noisy = [shift for shift in known if shift.sure is False and not (shift.stays_best or shift.stays_worst)]
    if noisy:
        reasons.append(
            f"{_count(len(noisy), 'shift')} within noise ({_places(noisy)})"
            + ("" if _could_flip(known, verdict) else ", which cannot change it alone")
        )
    reasons += _other_readings(known, verdict)
    gains = [(log, model.gain) for log, model in policies if not math.isnan(model.gain.half)]
    doubtful = [log for log, gain in gains if gain.half >= abs(gain.mean)]
    if doubtful:
        reasons.append(
            f"the gain of Max-Reward, which is within noise on {len(doubtful)} of {_count(len(gains), 'log')}"
        )
    if not reasons:
        return (
            "What would change this verdict: nothing among these users, policies and seeds; a new user or corpus may."
        )
    return f"What would change this verdict: {'; '.join(reasons)}."


def _could_flip(known: Sequence[Shift], verdict: str) -> bool:
    """Whether the verdict would be another one if all that is within noise went the other way."""
    sure = [shift for shift in known if shift.sure is not False or shift.stays_best]
    below = sum(shift.difference < 0 or shift.stays_best for shift in sure)
    above = sum(shift.difference > 0 for shift in sure)
    need = _MOST * len(known)
    return {_MORE: below < need, _LESS: above < need}.get(verdict, True)


def _other_readings(known: Sequence[Shift], verdict: str) -> list[str]:
    """Users and policies that say something else when they are read alone."""
    readings = []
    for position, form in enumerate(("{} users", "training on {}", "testing on {}")):
        names = list(dict.fromkeys(shift.place[position] for shift in known))
        others: dict[str, list[str]] = {}
        for name in names:
            alone = _robustness([shift for shift in known if shift.place[position] == name])
            if len(names) > 1 and alone != verdict:
                others.setdefault(alone, []).append(name)
        readings += [f"{form.format(_listed(group))} alone ({alone})" for alone, group in others.items()]
    return readings


def _places(found: Sequence[Shift], longest: int = 3) -> str:
    shown = [str(shift.place) for shift in found[:longest]]
    return "; ".join(shown) + (f"; and {len(found) - longest} more" if len(found) > longest else "")


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _with_spread(value: Measured) -> str:
    return f"{value.number} {value.spread}".rstrip()
