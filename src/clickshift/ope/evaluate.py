"""Off-policy evaluation of one or two target policies, from any log to a result."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

from clickshift.core.progress import Progress, silent
from clickshift.counts.cells import signal_names
from clickshift.counts.open_log import LogLike, open_log
from clickshift.counts.severe_defects import warn_of_severe_defects
from clickshift.data.corpus import Corpus
from clickshift.data.days import days_of
from clickshift.data.encoded_log import EncodedLog, Log
from clickshift.data.sessions import Sessions
from clickshift.data.weighted_lists import WeightedLists
from clickshift.errors import ClickshiftError, ClickshiftWarning, DataError, SpecError
from clickshift.io.read_report import OnBadLine
from clickshift.io.tables.extra_columns import columns_with
from clickshift.models.base import MARGINAL_ERROR, ClickModel
from clickshift.models.segmented import Segmented, columns_for
from clickshift.models.storage import load_model
from clickshift.ope._answer_targets import LogModels, share_of_holes
from clickshift.ope._examination import fitted_examination, read_examination
from clickshift.ope._report import PolicyEvaluation, difference_facts, notes_of
from clickshift.ope.answer import MIN_SESSIONS, Answer, too_few_sessions
from clickshift.ope.compact_sessions import compact_sessions
from clickshift.ope.daily_residuals import DayResidual, day_residuals
from clickshift.ope.estimate import (
    PAPER_ESTIMATORS,
    Evaluation,
    evaluate_target,
    logging_probabilities,
    paired_difference,
)
from clickshift.ope.estimators import Estimator, checked_clip
from clickshift.ope.grouped_log import GroupedLog
from clickshift.ope.intervals import Bootstrap
from clickshift.ope.logged_propensities import checked_kind
from clickshift.ope.rewards import Reward
from clickshift.ope.signal_reward import check_quantile, with_outcomes, with_values
from clickshift.ope.slope import best_clip
from clickshift.ope.target_policy import (
    Target,
    TargetLike,
    TargetProbabilities,
    as_target,
    longest_list,
    ranked_queries,
)
from clickshift.ope.weights import PBMWeights
from clickshift.policies.derived import DerivedLists, max_reward, top_down

__all__ = ["evaluate_policy"]

_DERIVE: Mapping[str, Callable[..., DerivedLists]] = {"top-down": top_down, "max-reward": max_reward}
"""Functions that derive a policy from a click model, by name."""


def evaluate_policy(
    log: LogLike,
    target: TargetLike | None = None,
    *,
    model: str | Path | ClickModel | None = None,
    derive: str = "top-down",
    compare: TargetLike | None = None,
    estimators: Sequence[str] = ("auto",),
    reward: str | Reward = "clicks",
    clip: Sequence[float] = (10, 100, math.inf),
    logging: str | Path | TargetLike = "frequencies",
    propensity_kind: str = "marginal",
    examination: str | Path | Sequence[float] | np.ndarray | None = None,
    cluster: str = "session",
    level: float = 0.95,
    replicates: int = 200,
    seed: int = 0,
    exact: bool = False,
    winsorise: float = 0.999,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> PolicyEvaluation:
    """Estimate what a target policy would earn per session, from the log of another policy.

    Parameters
    ----------
    log
        Anything that `open_log` opens. Of an encoded log, only the sessions of queries that the targets rank are read,
        and equal sessions are merged.
    target
        The target policy: a table of query and docs, optionally with weight, or of query, doc and score, as a file or
        a data frame; `Rankings` with one list per query; or a policy. Without it, the policy that is derived from
        `model`.
    model
        Fitted click model, or its folder, for DM, DR and CIPS. It joins the click-model families of the answer.
    derive
        Method to derive the target policy from the model: "top-down" or "max-reward".
    compare
        Second target policy; both are evaluated on the sessions of queries that both rank.
    estimators
        List, IP, PBM, Item, RCTR, RIPS, PI, CIPS or DM, with the prefix SN- (self-normalised) or DR- (doubly robust);
        "auto" computes all that apply, and the answer.
    reward
        Reward of a session: "clicks", "dcg" or "any-click", with @K for the first K ranks, weights of the ranks such as
        "1,0.5,0.25", or a `Reward`. Or a signal of the log such as "purchase" or "revenue@10", or a weighted sum such
        as "3*cart + 10*purchase": then click models assume that the value of a click depends on the document alone,
        and DM and DR are left out.
    clip
        Clipping constants M, the largest importance weights; inf for no clipping.
    logging
        Logging policy: list "frequencies" of the log, the "propensities" that it carries (of whole lists, or by
        position), or the policy itself, as a table of query, docs and weight or anything else that `target` may be.
        Contexts that occur once can be evaluated with propensities.
    propensity_kind
        What propensities by position are: "marginal", P(document at this rank), for IP, PBM, Item and DR-IP;
        "conditional", P(document at this rank, given those above), what a sampler such as Plackett-Luce records, or
        "cascade", the product of these down to the rank, for RIPS, DR-RIPS and List; "independent", of a policy that
        fills every position by itself, for all of them and PI. The target's probabilities of the same kind are computed
        from its lists, scores or policy.
    examination
        Examination by rank, for PBM: numbers, "1/rank" (that of the paper), "1/rank^0.5", "1,0.6,0.4", or a file of
        `clickshift propensities`. By default, that of a PBM that is fitted on the log.
    cluster
        Independent unit of the bootstrap: "session" or "user".
    level
        Confidence level of the intervals.
    replicates
        Number of bootstrap replicates.
    seed
        Random seed for the bootstrap and tie-breaking.
    exact
        Whether the click probabilities of a model that sums over click histories (NCM) are exact. By default, they may
        have an error of 0.001, which is much faster.
    winsorise
        Quantile, among sessions that earned anything, above which the rewards of a signal are cut; 1 cuts nothing. What
        was cut is reported. Signals that are 0 or 1 are never cut.
    columns
        Names of the log's columns, by the names that `read_log` expects.
    on_bad_line
        "error", or "skip" to leave out bad sessions of the log.
    progress
        Called with a text on the state of the work.

    Returns
    -------
    PolicyEvaluation
        The answer, all estimates with intervals and verdicts, paired differences and daily residuals.

    Raises
    ------
    SpecError
        If there is no target ("missing-target"), the same one twice ("same-target"), or an option is not valid
        ("bad-option", "bad-clip", "bad-examination", "unknown-name", "missing-model").
    CapabilityError
        If an estimator cannot be used with this reward or logging policy ("signal-reward" for DM and DR).
    DataError
        If nothing earned the reward ("all-zero-reward"), two targets rank no query of the log in common
        ("no-common-queries"), the log carries no propensities ("missing-propensities"), or it breaks a rule.
    FileError
        If a file cannot be read, or is no target.

    Warns
    -----
    ClickshiftWarning
        If the importance weights by logged propensities do not average to 1 ("mean-weight-not-one").

    References
    ----------
    Li, S. et al. (2018). Offline evaluation of ranking policies with click models. KDD.

    Hansen, P. R., Lunde, A. & Nason, J. M. (2011). The model confidence set. Econometrica.

    Examples
    --------
    >>> import clickshift as cs
    >>> corpus = cs.builtin_corpus(queries=5)
    >>> log = cs.simulate(corpus, cs.PlackettLuce(cs.Oracle(), temperature=0.5), cs.users.PBM(), 2000, rng=1)
    >>> evaluation = cs.evaluate_policy(log, cs.Oracle().on(corpus), estimators=["IP", "RCTR"], clip=[math.inf])
    >>> [row["verdict"] for row in evaluation.rows()]
    ['usable', 'baseline']
    """
    reward = Reward.parse(reward) if isinstance(reward, str) else reward
    check_quantile(winsorise)
    limits = [float(limit) for limit in checked_clip(sorted({float(limit) for limit in clip}))]
    interval = Bootstrap(replicates, level, seed)
    click_model = load_model(model) if isinstance(model, str | Path) else model
    logging_policy = _logging_policy(logging)
    checked_kind(propensity_kind)

    def named(texts: Sequence[str]) -> list[Estimator]:
        return [Estimator.named(text, click_model, max_error=0.0 if exact else MARGINAL_ERROR) for text in texts]

    named([text for text in estimators if text != "auto"])  # wrong names are refused before the log is read
    if target is None and derive not in _DERIVE:
        raise SpecError(
            f"`derive` must be {' or '.join(_DERIVE)}: got {derive!r}.",
            code="bad-option",
            option="derive",
            value=derive,
        )
    curve = None if examination is None else read_examination(examination)
    columns = columns_for(click_model, columns)
    opened = _open_with_signals(log, reward, columns, on_bad_line, progress)
    warn_of_severe_defects(opened)
    segment = click_model.segment if isinstance(click_model, Segmented) else None
    if isinstance(click_model, Segmented):
        click_model.warn_of_unknown_labels(opened.chunks())
    targets = _targets(target, compare, click_model, derive, opened, seed)
    cuttable = logging_policy != "propensities" or propensity_kind != "marginal" or not _has_list_propensities(opened)
    reward, cut = _shown_ranks(reward, opened, list(targets.values()), cuttable=cuttable)
    by_position = logging_policy == "propensities"
    sessions, left_out = _shared_sessions(
        opened, list(targets.values()), reward, cluster, propensities=by_position, segment=segment
    )
    sessions, reward, treatment = with_outcomes(sessions, reward, quantile=winsorise)
    logged = GroupedLog.of(sessions, reward, cluster=cluster, propensity_kind=propensity_kind, segment=segment)
    names = _estimator_names(
        estimators, logged, logging_policy, with_model=click_model is not None and target is not None
    )
    chosen = named(names)
    known = None if curve is None else curve(sessions.n_ranks)
    models = None
    ranked = [ranked_queries(policy, sessions.vocabulary)[sessions.rankings.query] for policy in targets.values()]
    n_sessions = [int(sessions.count @ own) for own in ranked]
    if "auto" in estimators and min(n_sessions) >= MIN_SESSIONS:
        models = LogModels.of(
            sessions, logged, list(targets.values()), model=click_model if target is not None else None,
            examination=known, seed=seed, progress=progress,
        )  # fmt: skip
    chosen, curve_note = _with_examination(chosen, known, models, sessions)
    evaluations = {}
    for name, policy in targets.items():
        progress(f"estimating the reward of {name}")
        evaluations[name] = tuple(
            evaluate_target(logged, policy, chosen, clip=limits, logging=logging_policy, interval=interval)
        )
    answers, answer_compare = _answers(models, logged, targets, logging_policy, level, progress)
    if "auto" in estimators and models is None:
        answers = {
            name: too_few_sessions(own, _mean_reward(sessions, rows, reward), level)
            for name, own, rows in zip(targets, n_sessions, ranked, strict=True)
        }
    residuals = _day_residuals(logged, sessions, chosen, limits[-1])
    first = next(iter(evaluations))
    notes = {name: notes_of(results) for name, results in evaluations.items()}
    notes[first] += (
        (treatment.notes() if treatment else [])
        + left_out
        + cut
        + curve_note
        + _hole_notes(sessions, len(logged.theta), list(targets.values()))
        + (_shorter_notes(models) if models else [])
    )
    if logging_policy == "propensities":
        _warn_of_weights(evaluations)
    if target is None:
        notes[first].append("If the model was fitted on this log, the value of its ranking is too optimistic.")
    return PolicyEvaluation(
        evaluations,
        answers,
        answer_compare,
        tuple(_differences(evaluations, interval)),
        tuple(residuals),
        {name: tuple(lines) for name, lines in notes.items()},
        {
            "log": _name(log, "the log"),
            "targets": list(targets),
            "estimators": names,
            "reward": str(reward),
            "clip": limits,
            "logging": logging if isinstance(logging, str) else _name(logging, "a known policy"),
            **({"propensity_kind": propensity_kind} if logging_policy == "propensities" else {}),
            "examination": None if examination is None else _name(examination, "given"),
            "cluster": cluster,
            "level": level,
            "replicates": replicates,
            "seed": seed,
            "exact": exact,
            **({} if treatment is None else {"winsorise": winsorise}),
        },
        treatment,
    )


def _open_with_signals(
    log: LogLike, reward: Reward, columns: Mapping[str, str] | None, on_bad_line: OnBadLine, progress: Progress
) -> Log:
    """Open a log with the signals of the reward."""
    if reward.signal is None:
        return open_log(log, columns=columns, on_bad_line=on_bad_line, progress=progress)
    if not isinstance(log, Sessions | EncodedLog):
        columns = columns_with(columns, signals=reward.signal.names)
    try:
        opened = open_log(log, columns=columns, on_bad_line=on_bad_line, progress=progress)
    except ClickshiftError as error:
        if error.code != "unknown-column" or error.facts.get("column") not in reward.signal.names:
            raise
        raise SpecError(
            f"a reward must be clicks, dcg, any-click, weights of ranks, or a signal of the log: got {str(reward)!r}. "
            f"{error}",
            code="unknown-name",
            value=str(reward),
        ) from error
    reward.signal.check(signal_names(opened))
    return opened


_LOGGING_NAMES = ("frequencies", "propensities")


def _logging_policy(given: str | Path | TargetLike) -> Target | str:
    """Resolve the `logging` argument: a name, or a policy in one of the forms of a target."""
    if isinstance(given, str) and given in _LOGGING_NAMES:
        return given
    if isinstance(given, str) and not Path(given).suffix:
        raise SpecError(
            f"logging must be 'frequencies', 'propensities' or a file with the logging policy: got {given!r}.",
            code="bad-option",
            option="logging",
            value=given,
        )
    return as_target(given)


def _mean_reward(sessions: Sessions, rows: np.ndarray, reward: Reward) -> float:
    """Mean logged reward of some rows; NaN where there are none."""
    if not rows.any():
        return math.nan
    ranks = len(reward.theta(sessions.n_ranks))
    return float(np.average(reward.earned(reward.outcome(sessions)[rows, :ranks]), weights=sessions.count[rows]))


def _answers(
    models: LogModels | None,
    log: GroupedLog,
    targets: Mapping[str, Target],
    logging: Target | str,
    level: float,
    progress: Progress,
) -> tuple[dict[str, Answer], Answer | None]:
    """Answer what each target earns more than the log, and the second one more than the first."""
    if models is None:
        return {}, None
    policy = logging_probabilities(log, logging)
    prefixes = logging == "propensities" and log.propensities.gives_prefixes
    values = [
        models.values(k, TargetProbabilities.at(log, target, prefixes=prefixes), policy, progress)
        for k, target in enumerate(targets.values())
    ]
    answers = {name: models.answer(k, values, level) for k, name in enumerate(targets)}
    return answers, models.answer(1, values, level, against=0) if len(targets) > 1 else None


def _with_examination(
    estimators: Sequence[Estimator], known: np.ndarray | None, models: LogModels | None, sessions: Sessions
) -> tuple[list[Estimator], list[str]]:
    """Give PBM the known examination, or that of a PBM that is fitted on the log; and a remark on it."""
    if not any(isinstance(e.weights, PBMWeights) for e in estimators):
        return list(estimators), []
    source = "as given"
    if known is None:
        known, source = (models.examination if models else fitted_examination(sessions)), "fitted on this log"
    curve = tuple(float(e) for e in np.maximum(known, _SMALLEST_EXAMINATION))
    note = (
        f"PBM: examination is {source}: {', '.join(f'{e:.3g}' for e in curve[:5])}{', ...' if len(curve) > 5 else ''}."
    )
    weights = PBMWeights(curve)
    changed = [replace(e, weights=weights) if isinstance(e.weights, PBMWeights) else e for e in estimators]
    return changed, [note]


SHORTER_TARGETS = "The targets show"
"""Begin of the notes on targets with shorter lists than the log."""
_SMALLEST_EXAMINATION = 1e-6
"""Examination below which weights of PBM would have no meaning."""


def _has_list_propensities(log: Log) -> bool:
    """Return whether a log carries propensities of whole lists."""
    return log.rankings.log_prob is not None if isinstance(log, Sessions) else "log_prob" in log.kinds


def _shown_ranks(reward: Reward, log: Log, targets: Sequence[Target], *, cuttable: bool) -> tuple[Reward, list[str]]:
    """Cut the reward to the ranks that the targets show, and remark on it; propensities of longer lists forbid it."""
    longest, ranks = max(longest_list(target, log.vocabulary) for target in targets), len(reward.theta(log.n_ranks))
    explicit = any(isinstance(target, WeightedLists) for target in targets)
    if longest > log.n_ranks and ranks == log.n_ranks and explicit:
        return reward, [f"The targets' lists are longer than the log's {log.n_ranks} ranks: the others do not count."]
    if not 0 < longest < ranks or not cuttable:
        return reward, []
    return reward.cut(longest), [
        f"{SHORTER_TARGETS} at most {longest} results, and the log up to {log.n_ranks}: both are compared over the "
        f"first {longest} ranks."
    ]


def _estimator_names(texts: Sequence[str], log: GroupedLog, logging: Target | str, *, with_model: bool) -> list[str]:
    """Replace `auto` by all estimators that apply.

    Only those of whole lists apply if the reward is no sum over ranks. Propensities serve the
    estimators whose probabilities they give.

    Raises
    ------
    DataError
        If the log lacks the propensities that are asked for ("missing-propensities").
    """
    linear = log.reward.is_linear
    by_list, by_rank, by_prefix = True, linear, False
    if logging == "propensities":
        carried = log.propensities
        by_list, by_rank = carried.gives_lists, linear and carried.gives_ranks
        by_prefix = linear and carried.gives_prefixes and not by_rank
        if not by_list and not by_rank:
            _ = carried.ranks("auto") if linear and not log.was_cut else carried.lists()
    auto = [name for name in PAPER_ESTIMATORS if {"List": by_list, "RCTR": True}.get(name, by_rank)]
    auto += ["RIPS"] if by_prefix else []
    if with_model and log.reward.signal is not None:  # a click model does not predict it
        auto += ["CIPS"] if logging == "frequencies" else []
    elif with_model:
        auto += ["CIPS"] if linear and logging == "frequencies" else []
        auto += ["DM", "DR-IP" if by_rank else "DR-RIPS" if by_prefix else "DR-List"]
    return list(dict.fromkeys(name for text in texts for name in (auto if text == "auto" else [text])))


def _targets(
    target: TargetLike | None,
    compare: TargetLike | None,
    model: ClickModel | None,
    derive: str,
    log: Log,
    seed: int,
) -> dict[str, Target]:
    """Return the target policies by the names that reports show: of their files, or of the derived policy."""
    if target is not None:
        targets = {_name(target, "target"): as_target(target)}
    elif model is not None:
        corpus = Corpus(log.vocabulary, np.zeros(log.vocabulary.n_pairs))
        targets = {derive: as_target(_DERIVE[derive](model, corpus, ranks=log.n_ranks, rng=seed).rankings)}
    else:
        raise SpecError(
            "there must be a target policy. Pass `target`, or `model` for the ranking of a click model.",
            code="missing-target",
        )
    if compare is None:
        return targets
    name = _name(compare, "compared target")
    if name in targets:
        raise SpecError(f"a target must be compared with another one: got {name} twice.", code="same-target", path=name)
    return targets | {name: as_target(compare)}


def _name(source: Any, otherwise: str) -> str:
    """Return the path of a file, or another name for anything else."""
    return str(source) if isinstance(source, str | Path) else otherwise


def _shared_sessions(
    log: Log, targets: Sequence[Target], reward: Reward, cluster: str, *, propensities: bool, segment: str | None
) -> tuple[Sessions, list[str]]:
    """Return the sessions to evaluate the targets on, in memory, and remarks on those that are left out.

    Two targets are evaluated on queries that both rank. An encoded log may not fit into memory: only sessions of
    queries that the targets rank are read, as those of other queries do not enter the estimates.
    """
    ranked = [ranked_queries(target, log.vocabulary) for target in targets]
    shared: Bool[np.ndarray, " query"] = np.logical_and.reduce(ranked)
    kept = shared[log.rankings.query] if isinstance(log, Sessions) else shared
    if len(targets) > 1 and not kept.any():
        raise DataError(
            "two targets can be compared on queries that both rank: there is none in the log.",
            code="no-common-queries",
        )
    if isinstance(log, Sessions):
        sessions = with_values(log if len(targets) == 1 else log[kept], reward)
    else:
        users = cluster == "user"
        sessions = compact_sessions(
            log, reward, queries=shared, users=users, propensities=propensities, segment=segment
        )
    if not (left_out := log.total - sessions.total):
        return sessions, []
    if len(targets) > 1:
        return sessions, [f"{left_out:,} sessions are left out: one of the targets does not rank their query."]
    return sessions, [f"{left_out:,} sessions of queries that the target does not rank were not read."]


def _hole_notes(sessions: Sessions, ranks: int, targets: Sequence[Target]) -> list[str]:
    """Remark on holes of the log, where a target may show documents."""
    share = share_of_holes(sessions.rankings, sessions.count, ranks)
    if not share or any(isinstance(target, WeightedLists) and target.lists.has_holes for target in targets):
        return []
    return [
        f"{share:.1%} of the ranks of the log's lists are holes, where nothing was recorded. The target's lists have "
        "none: a document of the target counts at the rank that it has there. If advertisements stay where they are, "
        "leave their ranks out of the target's lists, too (a missing document in docs)."
    ]


def _shorter_notes(models: LogModels) -> list[str]:
    """Remark on queries for which a target shows fewer results than the log."""
    shown, ranks = models.sessions.rankings, len(models.log.theta)
    longest = np.zeros(models.log.n_queries, np.int64)
    np.maximum.at(longest, shown.query, np.minimum(shown.length, ranks))
    ranked = np.logical_and.reduce([target.ranked for target in models.targets]) & (longest > 0)
    shorter = np.logical_or.reduce([np.minimum(target.length, ranks) < longest for target in models.targets]) & ranked
    if not shorter.any():
        return []
    return [
        f"{SHORTER_TARGETS} fewer results than the log for {shorter.sum():,} of {ranked.sum():,} queries: there, the "
        "log's reward is that of as many ranks as the target shows."
    ]


_MAX_Z = 4.0
"""Standard errors by which the mean importance weight may differ from 1 by chance."""


def _warn_of_weights(evaluations: Mapping[str, Sequence[Evaluation]]) -> None:
    """Warn of the first estimator of each target whose weights do not average to 1."""
    for target, results in evaluations.items():
        for evaluation in results:
            found = evaluation.estimates[0]
            mean, error = found.mean_weight, found.mean_weight_error
            if found.sessions < MIN_SESSIONS or not abs(mean - 1) > _MAX_Z * error + _SMALLEST_EXAMINATION:
                continue
            reason = (
                "Propensities are too low"
                if mean > 1
                else "Propensities are too high, or the logging policy may not show all that the target shows"
            )
            warnings.warn(
                ClickshiftWarning(
                    f"the importance weights of {found.estimator} for {target} must average to 1 under right "
                    f"propensities: they average to {mean:.3g} (standard error {error:.2g}). {reason}. Check how they "
                    "were logged.",
                    code="mean-weight-not-one",
                    target=target,
                    estimator=found.estimator,
                    mean=mean,
                    error=error,
                ),
                stacklevel=3,
            )
            break


def _day_residuals(
    logged: GroupedLog, sessions: Sessions, estimators: Sequence[Estimator], clip: float
) -> list[DayResidual]:
    """Return the daily residuals; none where the log has no days: no times, times that are no days, or one day."""
    if sessions.time is None:
        return []
    try:
        day, names = days_of(sessions.time)
    except DataError:
        return []
    return day_residuals(logged, day, names, estimators, clip=clip)


def _differences(evaluations: Mapping[str, Sequence[Evaluation]], interval: Bootstrap) -> list[dict[str, Any]]:
    """Compare two targets by each estimator, at the larger of the clipping constants that suit the two targets.

    RCTR does not depend on the target, and is left out.
    """
    if len(evaluations) < 2:
        return []
    (one, first), (other, second) = evaluations.items()
    differences = []
    for a, b in zip(first, second, strict=True):
        if a.estimates[0].estimator.endswith("RCTR"):
            continue
        clips = [e.clip for e in a.estimates]
        at = clips.index(max(best_clip(a).clip, best_clip(b).clip))
        difference = paired_difference(a, b, interval, clip=at)
        differences.append(difference_facts(a.estimates[at], b.estimates[at], difference, (one, other)))
    return differences
