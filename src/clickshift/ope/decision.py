"""Decide whether to ship a new ranker: checks of the log, the off-policy answer, and what would change it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from clickshift.core.intervals import normal_quantile
from clickshift.core.progress import Progress, silent
from clickshift.counts.cells import Cells
from clickshift.counts.connectivity import swap_graph
from clickshift.counts.daily import DayCounts
from clickshift.counts.open_log import LogLike, open_log
from clickshift.data.days import days_of
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Sessions
from clickshift.day_drift.compare import compare_days
from clickshift.day_drift.document_drift import DocumentDrift, document_drift
from clickshift.errors import DataError, SpecError
from clickshift.io.read_report import OnBadLine
from clickshift.ope._decision_report import VERDICTS, CandidateDecision, Check, Decision, TurningPoint, Verdict
from clickshift.ope._examination import fitted_examination
from clickshift.ope.answer import Answer
from clickshift.ope.compact_sessions import compact_sessions
from clickshift.ope.daily_residuals import DayResidual, ResidualDrift
from clickshift.ope.evaluate import SHORTER_TARGETS, evaluate_policy
from clickshift.ope.grouped_log import GroupedLog
from clickshift.ope.logged_propensities import checked_kind
from clickshift.ope.rewards import Reward
from clickshift.ope.target_policy import Target, TargetLike, TargetProbabilities, as_target, ranked_queries

__all__ = ["decide"]

_MIN_CLICKS = 30
"""Least number of sessions with a reward: below it, no decision is possible."""
_MIN_RANKED = 0.5
"""Least share of the sessions whose query the candidate ranks."""
_TEST_LEVEL, _TEST_POWER = 0.05, 0.8
"""Two-sided level and power of the A/B test whose size is stated."""
_POWERS = np.exp(np.linspace(math.log(0.1), math.log(10), 81))
"""Powers of the examination curve among which the turning point is searched; 1 is the estimated curve."""
_RISKS = {
    "sampling": "chance: more sessions of the same kind would narrow the interval most",
    "model": "the estimated examination and attractiveness: more variation of the logged lists would narrow it most",
    "lost mass": "what the candidate shows and the log does not: logging it now and then would narrow it most",
    "choice of model": "how users browse: several click models fit the log and disagree about the candidate",
}


def decide(
    log: LogLike,
    candidates: TargetLike | Sequence[TargetLike],
    *,
    reward: str | Reward = "clicks",
    logging: str | Path | TargetLike = "frequencies",
    propensity_kind: str = "marginal",
    cluster: str = "session",
    level: float = 0.95,
    replicates: int = 200,
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> Decision:
    """Decide from the log of the current ranker whether to ship a new one.

    "ship": the lower end of the gain is above zero, whatever earns what the log does not show. "keep": its upper end is
    below zero. "unclear": the gain is not identified, the log has a severe defect, or documents drift over its days.
    "test": otherwise.

    Parameters
    ----------
    log
        Anything that `open_log` opens.
    candidates
        The new ranker, or a list of several: a table of query and docs, optionally with weight, or of query, doc and
        score, as a file or a data frame; `Rankings` with one list per query; or a policy.
    reward
        Reward of a session: "clicks", "dcg" or "any-click", with @K for the first K ranks, or a `Reward`.
    logging
        Logging policy: list "frequencies" of the log, the "propensities" that it carries, or the policy itself, as a
        target.
    propensity_kind
        What propensities by position are: "marginal", "conditional", "cascade" or "independent"; see `evaluate_policy`.
    cluster
        Independent unit of the bootstrap: "session" or "user".
    level
        Confidence level of the intervals, for all candidates together (Bonferroni).
    replicates
        Number of bootstrap replicates.
    seed
        Random seed.
    columns
        Names of the log's columns, by the names that `read_log` expects.
    on_bad_line
        "error", or "skip" to leave out bad sessions of the log.
    progress
        Called with a text on the state of the work.

    Returns
    -------
    Decision
        The decision with the gain and its interval, the largest risk, turning points, checks of the log, and the
        sessions that an A/B test needs.

    Raises
    ------
    SpecError
        If there is no candidate ("missing-target"), the same one twice ("same-target"), or an option is not valid
        ("bad-option", "unknown-name").
    DataError
        If a candidate ranks no query of the log ("no-common-queries"), or the log breaks a rule.
    FileError
        If a file cannot be read, or is no target.

    Examples
    --------
    >>> import clickshift as cs
    >>> corpus = cs.builtin_corpus(queries=5)
    >>> log = cs.simulate(corpus, cs.Uniform(), cs.users.PBM(), 20_000, ranks=4, rng=1)
    >>> cs.decide(log, cs.Oracle().on(corpus)).decision
    'ship'
    """
    reward = Reward.named(reward) if isinstance(reward, str) else reward
    if not 0 < level < 1:
        raise SpecError(f"level must be between 0 and 1: got {level}.", code="bad-option", option="level", value=level)
    checked_kind(propensity_kind)
    targets = _named_targets(candidates)
    opened = open_log(log, columns=columns, on_bad_line=on_bad_line, progress=progress)
    sessions = _in_memory(opened, targets, reward, cluster, propensities=logging == "propensities")
    each_level = 1 - (1 - level) / len(targets)
    progress("checking the log")
    checks, drift = _check_log(sessions, reward)
    decisions, residuals, of_candidates, compared = [], [], [], set()
    for name, target in targets.items():
        progress(f"evaluating {name}")
        evaluation = evaluate_policy(
            sessions,
            target,
            reward=reward,
            logging=logging,
            propensity_kind=propensity_kind,
            cluster=cluster,
            level=each_level,
            replicates=replicates,
            seed=seed,
        )
        assert evaluation.answer is not None  # "auto" is the default

        residuals = list(evaluation.residuals)
        compared.add(evaluation.settings["reward"])  # over as many ranks as the candidate shows
        own = [_check_queries(opened, target, name), *_check_length(evaluation.notes, name)]
        of_candidates += own
        decisions.append(_decide_one(name, target, evaluation.answer, [*checks, *own], drift, sessions, reward))
    checks += [*of_candidates, *_check_backtest(residuals)]
    order = sorted(decisions, key=lambda d: (VERDICTS.index(d.decision), -np.nan_to_num(d.answer.difference, nan=-9e9)))
    return Decision(
        tuple(order),
        tuple(checks),
        drift,
        {
            "log": str(log) if isinstance(log, str | Path) else "the log",
            "sessions": sessions.total,
            "candidates": list(targets),
            "reward": compared.pop() if len(compared) == 1 else str(reward),
            "logging": str(logging) if isinstance(logging, str | Path) else "a known policy",
            **({"propensity_kind": propensity_kind} if logging == "propensities" else {}),
            "cluster": cluster,
            "level": level,
            "replicates": replicates,
            "seed": seed,
        },
    )


def _named_targets(candidates: Any) -> dict[str, Target]:
    """Return the candidates by the names that reports show: of their files, or numbers."""
    given = list(candidates) if isinstance(candidates, list | tuple) else [candidates]
    if not given:
        raise SpecError("there must be at least one candidate: got none. Pass a target.", code="missing-target")
    targets: dict[str, Target] = {}
    for number, candidate in enumerate(given, 1):
        otherwise = "the candidate" if len(given) == 1 else f"candidate {number}"
        name = str(candidate) if isinstance(candidate, str | Path) else otherwise
        if name in targets:
            raise SpecError(f"candidates must differ: got {name} twice. Remove one.", code="same-target", path=name)
        targets[name] = as_target(candidate)
    return targets


def _in_memory(
    log: Log, targets: Mapping[str, Target], reward: Reward, cluster: str, *, propensities: bool
) -> Sessions:
    """Return the sessions of queries that a candidate ranks; equal ones of an encoded log are merged."""
    ranked = {name: ranked_queries(target, log.vocabulary) for name, target in targets.items()}
    seen = np.zeros(log.vocabulary.n_queries, bool)
    for chunk in log.chunks():
        seen[chunk.rankings.query] = True
    for name, queries in ranked.items():
        if not (queries & seen).any():
            raise DataError(
                f"{name} must rank queries of the log: it ranks none. Check that query ids have the same form.",
                code="no-common-queries",
                candidate=name,
            )
    if isinstance(log, Sessions):
        return log
    return compact_sessions(
        log,
        reward,
        queries=np.logical_or.reduce(list(ranked.values())),
        users=cluster == "user",
        propensities=propensities,
    )


def _check_log(sessions: Sessions, reward: Reward) -> tuple[list[Check], DocumentDrift | None]:
    """Check clicks, ranks and days of the log."""
    earned = reward.earned(sessions.click[:, : len(reward.theta(sessions.click.shape[1]))])
    with_reward = int(sessions.count[earned > 0].sum())
    few = with_reward < _MIN_CLICKS
    checks = [
        Check(
            "clicks",
            "severe" if few else "ok",
            f"{with_reward:,} of {sessions.total:,} sessions have a reward"
            + (f": at least {_MIN_CLICKS} are needed." if few else "."),
        )
    ]
    weak = swap_graph(Cells.of(sessions)).warning()
    found = "Documents were shown at several ranks, which connects all ranks." if weak is None else _sentence(weak)
    checks.append(Check("ranks", "ok" if weak is None else "caution", found))
    try:
        day, names = days_of(sessions.time) if sessions.time is not None else (None, ())
    except DataError:
        day, names = None, ()
    if day is None:
        checks.append(Check("days", "caution", "The log has no days: drift cannot be seen."))
        return checks, None
    drift = document_drift(sessions, day)
    checks.append(_check_drift(drift, len(names)))
    checks.append(_check_halves(sessions, day, len(names)))
    return checks, drift


def _check_drift(drift: DocumentDrift, n_days: int) -> Check:
    """Describe the trend of the clicks on documents."""
    if not drift.degrees:
        return Check("drift of documents", "caution", "Too few sessions share a list: drift cannot be seen.")
    if not drift.significant:
        found = f"Clicks on the same lists show no trend over {n_days} days (p = {drift.p_value:.2g})."
        return Check("drift of documents", "ok", found)
    found = (
        f"Clicks on the same lists change over {n_days} days (p = {drift.p_value:.1g}): by {drift.change:.2f} in "
        "log-odds from the first day to the last, root mean square over documents."
    )
    return Check("drift of documents", "severe" if drift.severe else "caution", found)


def _check_halves(sessions: Sessions, day: np.ndarray, n_days: int) -> Check:
    """Compare the earlier half of the days with the later one."""
    later = day >= n_days // 2
    (change,) = compare_days([DayCounts.of(sessions[~later]), DayCounts.of(sessions[later])], ["1", "2"]).steps
    if not change.reasons:
        return Check("halves of the days", "ok", "Rankings and clicks of the two halves agree, or differ little.")
    found = "Between the earlier and the later half of the days, " + "; ".join(change.reasons) + "."
    return Check("halves of the days", "caution", found)


def _check_queries(log: Log, target: Target, name: str) -> Check:
    """Check which share of the sessions the candidate ranks."""
    ranked = ranked_queries(target, log.vocabulary)
    total = sum(float(chunk.count[ranked[chunk.rankings.query]].sum()) for chunk in log.chunks())
    share = total / log.total
    if share == 1:
        return Check(f"queries of {name}", "ok", "The candidate ranks every query of the log.")
    found = f"The candidate ranks the queries of {share:.1%} of the sessions; the decision is about those alone."
    return Check(f"queries of {name}", "severe" if share < _MIN_RANKED else "caution", found)


def _check_length(notes: Mapping[str, Sequence[str]], name: str) -> list[Check]:
    """Warn of a candidate that shows fewer results than the log: it is compared over as many ranks as it shows."""
    shorter = [note for lines in notes.values() for note in lines if note.startswith(SHORTER_TARGETS)]
    return [Check(f"length of {name}", "caution", note) for note in shorter]


def _check_backtest(residuals: Sequence[DayResidual]) -> list[Check]:
    """Describe how well each day of the log was predicted from the others."""
    drifts = [d for d in ResidualDrift.of(residuals) if d.estimator in {"List", "IP"}]
    return [
        Check(
            f"backtest of {d.estimator}",
            "ok" if d.rms < 3 * d.sampling_rms else "caution",
            f"Each day predicted from the others: off by {d.rms:.4f} per session (root mean square), where chance "
            f"explains {d.sampling_rms:.4f}.",
        )
        for d in drifts
    ]


def _decide_one(
    name: str,
    target: Target,
    answer: Answer,
    checks: Sequence[Check],
    drift: DocumentDrift | None,
    sessions: Sessions,
    reward: Reward,
) -> CandidateDecision:
    """Decide about one candidate."""
    decision, cause, reasons = _verdict(answer, checks, drift)
    points = sorted(_turning_points(decision, answer, target, sessions, reward), key=_distance)
    parts = {part: value for part, value in answer.parts.items() if math.isfinite(value)}
    risk = _RISKS.get(max(parts, key=lambda part: parts[part]), "") if parts and max(parts.values()) > 0 else ""
    return CandidateDecision(
        name, decision, cause, answer, reasons, risk, tuple(points), _test_sessions(answer, sessions, reward)
    )


def _verdict(
    answer: Answer, checks: Sequence[Check], drift: DocumentDrift | None
) -> tuple[Verdict, str, tuple[str, ...]]:
    """Return the decision, what decides, and the reasons."""
    cautions = tuple(check.found for check in checks if check.status == "caution" and check.name != "days")
    severe = tuple(check.found for check in checks if check.status == "severe")
    details = (*answer.reasons, *cautions)
    if answer.verdict == "not identified" or math.isnan(answer.difference_low):
        return "unclear", "not identified", (*answer.reasons, *severe, *cautions)
    if severe:
        only_drift = drift is not None and drift.severe and len(severe) == 1
        return "unclear", "drift" if only_drift else "defect", (*severe, *details)
    if answer.difference_low > 0:
        return "ship", "gain", ("The whole interval of the gain is above zero, lost mass at its worst.", *details)
    if answer.difference_high < 0:
        return "keep", "loss", ("The whole interval of the gain is below zero, lost mass at its best.", *details)
    return "test", "interval", ("The interval of the gain holds zero.", *details)


def _turning_points(
    decision: Verdict, answer: Answer, target: Target, sessions: Sessions, reward: Reward
) -> Iterator[TurningPoint]:
    """Find how far each assumption may be wrong before the decisive end of the gain's interval is zero."""
    if decision == "test" and (width := 2 * answer.parts.get("lost mass", 0.0)) > 0:
        needed = -answer.difference_low / width
        if 0 < needed < 1:
            words = f"the lower end is zero if unlogged documents earn {needed:.0%} of the most that they could."
            yield TurningPoint("lost documents", needed, words)
    if decision not in {"ship", "keep"}:
        return
    end = answer.difference_low if decision == "ship" else answer.difference_high
    word = "lower" if decision == "ship" else "upper"
    others = []
    for family in answer.families:
        limit = family.low if decision == "ship" else family.high
        other = family.difference if math.isnan(limit) else limit  # a rejected family has no interval
        if other * end < 0:
            others.append((end / (end - other), family.name))
    if others:
        share, name = min(others)
        yield TurningPoint("users", share, f"the {word} end is zero if {share:.0%} of the users browse as {name}.")
    if reward.is_linear:
        yield from _examination_turning_point(end, word, target, sessions, reward)


def _examination_turning_point(
    end: float, word: str, target: Target, sessions: Sessions, reward: Reward
) -> Iterator[TurningPoint]:
    """Find the power of the estimated examination curve at which the end of the interval is zero.

    With examination e_k^g at rank k, attractiveness is clicks over the sum of e_k^g of a document's impressions, and
    the candidate earns the sum of e_k^g times attractiveness: the end moves as much as that value does.
    """
    curve = fitted_examination(sessions)
    moved = end + _value_by_power(curve, target, sessions, reward, np.append(_POWERS, 1.0))
    moved = moved[:-1] - (moved[-1] - end)
    crossing = np.flatnonzero(np.diff(np.sign(moved)))
    if not len(crossing):
        return
    powers = []
    for k in crossing:
        share = moved[k] / (moved[k] - moved[k + 1])
        powers.append(float(_POWERS[k] * (_POWERS[k + 1] / _POWERS[k]) ** share))
    power = min(powers, key=lambda g: abs(math.log(g)))
    steeper = "steeper" if power > 1 else "flatter"
    words = f"the {word} end is zero if examination is {steeper} than estimated: its power {power:.2f}."
    yield TurningPoint("examination", power, words)


def _value_by_power(
    curve: Float[np.ndarray, " rank"],
    target: Target,
    sessions: Sessions,
    reward: Reward,
    powers: Float[np.ndarray, " power"],
) -> Float[np.ndarray, " power"]:
    """Predict what the candidate earns per session if examination is a power of the estimated curve."""
    logged = GroupedLog.of(sessions, reward)
    placed, theta = TargetProbabilities.at(logged, target), reward.theta(sessions.rankings.n_ranks)
    traffic = np.bincount(sessions.rankings.query, sessions.count, logged.n_queries) * placed.ranked
    traffic = traffic / traffic.sum()
    cells = Cells.of(sessions)
    n_pairs, ranks = sessions.vocabulary.n_pairs, cells.n_ranks
    shown = np.bincount(cells.pair * ranks + cells.situation, cells.impressions, n_pairs * ranks).reshape(-1, ranks)
    clicks = np.bincount(cells.pair, cells.clicks, n_pairs)
    values = []
    for power in powers:
        examined = np.clip(curve, 1e-6, 1) ** power
        attractive = np.minimum(clicks / np.maximum(shown @ examined, 1e-12), 1.0)
        earned = attractive * (placed.placement @ (theta * examined[: len(theta)]))
        values.append(float(traffic[sessions.vocabulary.pair_query] @ earned))
    return np.array(values)


def _distance(point: TurningPoint) -> float:
    """Order turning points: how far the assumption is from what is estimated."""
    return abs(math.log(point.value)) if point.assumption == "examination" else point.value


def _test_sessions(answer: Answer, sessions: Sessions, reward: Reward) -> float:
    """Return the sessions of a two-sided A/B test, both arms together, that detects the estimated gain."""
    if not answer.difference:
        return math.nan
    earned = reward.earned(sessions.click[:, : len(reward.theta(sessions.click.shape[1]))])
    share = sessions.count / sessions.total
    variance = float(share @ earned**2 - (share @ earned) ** 2)
    z = normal_quantile(1 - _TEST_LEVEL / 2) + normal_quantile(_TEST_POWER)
    arm = 2 * variance * (z / answer.difference) ** 2
    return math.nan if math.isnan(arm) else float(2 * math.ceil(min(arm, 1e15)))


def _sentence(text: str) -> str:
    """Begin a text with a capital letter."""
    return text[:1].upper() + text[1:]
