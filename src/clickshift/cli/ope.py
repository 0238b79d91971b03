"""clickshift ope: what would another ranker earn, estimated from the log of the current one?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer
from typer.core import TyperGroup
from typing_extensions import override

from clickshift.cli._console import encoding_progress, printable, progress, show_json, show_table, warnings_shown
from clickshift.cli._experiment_runner import show_paths
from clickshift.cli._options import JSON, LOG, REPLICATES, REPORT_FOLDER, REWARD, SKIP_BAD
from clickshift.cli.backtest import backtest
from clickshift.cli.optimise import optimise

if TYPE_CHECKING:
    from clickshift.data.encoded_log import Log
    from clickshift.data.sessions import Sessions
    from clickshift.models.base import ClickModel
    from clickshift.ope import Estimator, Evaluation, GroupedLog, Reward
    from clickshift.ope.daily_residuals import DayResidual
    from clickshift.ope.target_policy import Target


class _EvaluateByDefault(TyperGroup):
    """A group of commands in which a first word that is no command is the log of `evaluate`."""

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "--help"}:
            args = ["evaluate", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_EvaluateByDefault, no_args_is_help=True)


@app.callback()
def group() -> None:
    """Evaluate and optimise rankers off-policy, from the log of another ranker.

    `clickshift ope LOG --target FILE` is short for `clickshift ope evaluate LOG --target FILE`.
    """


app.command()(backtest)
app.command()(optimise)


@app.command()
def evaluate(
    log: str = LOG,
    target: Path | None = typer.Option(
        None,
        help="Target policy: a table of query and docs, optionally with weight, or a table of query, doc and score.",
    ),
    model: Path | None = typer.Option(
        None,
        help="Folder of a fitted click model, for DM, DR and CIPS; without --target, its ranking is the target policy.",
    ),
    derive: str = typer.Option(
        "top-down", help="Method to derive the target policy from the model: 'top-down' or 'max-reward'."
    ),
    compare: Path | None = typer.Option(None, help="Second target policy, to be compared with the first."),
    estimator: list[str] = typer.Option(
        ["auto"],
        help="Estimator: List, IP, PBM, Item, RCTR, RIPS, PI, CIPS or DM, with the prefix SN- (self-normalised) or DR- "
        "(doubly robust), or 'auto' to choose one; repeatable.",
    ),
    reward: str = REWARD,
    clip: str = typer.Option(
        "10,100,inf", help="Clipping constants M, the largest importance weights; inf for no clipping."
    ),
    logging: str = typer.Option(
        "frequencies", help="Logging policy: list 'frequencies' of the log, or the 'propensities' that it carries."
    ),
    cluster: str = typer.Option("session", help="Independent unit of the bootstrap: 'session' or 'user'."),
    replicates: int = REPLICATES,
    seed: int = typer.Option(0, help="Random seed for the bootstrap and tie-breaking."),
    skip_bad: bool = SKIP_BAD,
    output: Path | None = REPORT_FOLDER,
    json: bool = JSON,
) -> None:
    """Estimate what a target policy would earn per session, by several estimators, with intervals and verdicts.

    The verdict says whether the log identifies the value. With --compare, also estimates the paired difference of two
    target policies on the same sessions.
    """
    from clickshift.counts.open_log import open_log
    from clickshift.ope import Bootstrap, Estimator, GroupedLog, Reward
    from clickshift.ope import evaluate_target as evaluated
    from clickshift.ope._report import (
        choice_facts,
        choice_note,
        estimate_table,
        facts_of,
        notes_of,
        residual_drift_note,
        verdicts_of,
    )
    from clickshift.ope.daily_residuals import ResidualDrift
    from clickshift.ope.slope import choose_by_slope

    session_reward, clips, interval = Reward.named(reward), _parse_clip(clip), Bootstrap(replicates, seed=seed)
    with warnings_shown(), progress("evaluating") as report_progress:
        fitted = _load_model(model)
        names = _estimator_names(
            estimator, session_reward, logging, with_model=fitted is not None and target is not None
        )
        estimators = [Estimator.named(name, fitted) for name in names]
        on_bad_line: Literal["skip", "error"] = "skip" if skip_bad else "error"
        opened = open_log(log, on_bad_line=on_bad_line, progress=encoding_progress(report_progress))
        sessions = _sessions_of_targets(opened, [path for path in (target, compare) if path is not None])
        targets = _targets(target, compare, fitted, derive, sessions, seed)
        shared, n_left_out = _shared_sessions(sessions, session_reward, list(targets.values()))
        logged = GroupedLog.of(shared, session_reward, cluster=_parse_cluster(cluster))
        evaluations = {
            name: evaluated(logged, policy, estimators, clip=clips, logging=logging, interval=interval)
            for name, policy in targets.items()
        }
        residuals = _day_residuals(logged, shared, estimators, clips[-1])
    first_name, *others = evaluations
    first = evaluations[first_name]
    choice = choose_by_slope(first, ResidualDrift.of(residuals)) if "auto" in estimator else None
    differences = _differences(evaluations, interval) if others else []
    notes = {name: notes_of(results) for name, results in evaluations.items()}
    if n_not_read := opened.total - sessions.total:
        notes[first_name].append(f"{n_not_read:,} sessions of queries that no target ranks were not read.")
    if n_left_out:
        notes[first_name].append(f"{n_left_out:,} sessions are left out: one of the targets does not rank their query.")
    if target is None:
        notes[first_name].append("If the model was fitted on this log, the value of its ranking is too optimistic.")
    written = None
    if output is not None:
        from clickshift.ope._report import write_ope_report

        settings = {
            "log": log,
            "targets": list(targets),
            "estimators": names,
            "reward": str(session_reward),
            "clip": clip,
            "logging": logging,
            "cluster": cluster,
            "replicates": replicates,
            "seed": seed,
        }
        written = write_ope_report(output, evaluations, notes, choice, differences, residuals, settings)
    if json:
        rows = [
            {"target": name, **facts_of(estimate)}
            for name, results in evaluations.items()
            for evaluation in results
            for estimate in evaluation.estimates
        ]
        show_json(
            {
                "rows": rows,
                "chosen": None if choice is None else choice_facts(choice),
                "differences": differences,
                "days": [asdict(residual) | {"residual": residual.residual} for residual in residuals],
                "notes": notes,
                "report": None if written is None else str(written.page),
            }
        )
        return
    level = first[0].estimates[0].interval
    for name, results in evaluations.items():
        title = f"{session_reward} per session of {name}, estimated from {log} ({level})"
        show_table(estimate_table(results), title=title)
        for verdict in verdicts_of(results):
            typer.echo(f"{verdict['estimator']}: {verdict['verdict']}. {verdict['text']}")
        for note in notes[name]:
            typer.echo(f"Note: {printable(note)}")
    if choice is not None:
        typer.echo(f"auto: {choice_note(choice)}")
    for difference in differences:
        typer.echo(f"{difference['estimator']}: {printable(difference['words'])}")
    for sentence in residual_drift_note(residuals):
        typer.echo(sentence)
    if written is not None:
        show_paths(written)


def _parse_clip(text: str) -> list[float]:
    """Parse clipping constants, e.g. "10,100,inf", in ascending order."""
    from clickshift.errors import SpecError
    from clickshift.ope.estimators import checked_clip

    try:
        clips = sorted({float(part) for part in text.split(",")})
    except ValueError:
        raise SpecError(
            f"--clip takes numbers separated by commas, such as 10,100,inf: got {text!r}.",
            code="bad-option",
            option="clip",
            value=text,
        ) from None
    return [float(clip) for clip in checked_clip(clips)]


def _parse_cluster(text: str) -> Literal["session", "user"]:
    """Check the independent unit of the bootstrap."""
    from clickshift.errors import SpecError

    if text == "session":
        return "session"
    if text == "user":
        return "user"
    raise SpecError(
        f"--cluster must be session or user: got {text!r}.", code="bad-option", option="cluster", value=text
    )


def _estimator_names(texts: list[str], reward: Reward, logging: str, *, with_model: bool) -> list[str]:
    """Replace `auto` by all estimators that apply.

    Only those of whole lists apply if the reward is no sum over ranks, or if the log carries propensities, which are
    those of lists.
    """
    from clickshift.ope import PAPER_ESTIMATORS

    lists_only = not reward.is_linear or logging == "propensities"
    auto = ["List", "RCTR"] if lists_only else list(PAPER_ESTIMATORS)
    if with_model:
        auto += ["DM", "DR-List"] if lists_only else ["CIPS", "DM", "DR-IP"]
    return list(dict.fromkeys(name for text in texts for name in (auto if text == "auto" else [text])))


def _load_model(model: Path | None) -> ClickModel | None:
    """Load the click model, if one is given."""
    from clickshift.models.storage import load_model

    return None if model is None else load_model(model)


def _targets(
    target: Path | None, compare: Path | None, model: ClickModel | None, derive: str, sessions: Sessions, seed: int
) -> dict[str, Target]:
    """Return the target policies by the names that reports show: of their files, or of the derived policy."""
    from clickshift.errors import SpecError

    if target is None and model is None:
        raise SpecError(
            "there must be a target policy. Pass --target FILE, or --model FOLDER for the ranking of a click model.",
            code="missing-target",
        )
    if target is not None:
        targets = {str(target): _read_policy(target)}
    else:
        targets = {derive: _derive_policy(model, derive, sessions, seed)}
    if compare is not None and str(compare) in targets:
        raise SpecError(
            f"a target must be compared with another one: got {compare} twice.",
            code="same-target",
            path=str(compare),
        )
    return targets if compare is None else targets | {str(compare): _read_policy(compare)}


def _sessions_of_targets(log: Log, targets: list[Path]) -> Sessions:
    """Read a log into memory; of an encoded log, only the sessions of queries that a target ranks.

    An encoded log may not fit into memory, and sessions of other queries do not enter the estimates.
    """
    import numpy as np

    from clickshift.data.sessions import Sessions
    from clickshift.data.vocabulary import UNSEEN, Vocabulary
    from clickshift.io.target_files import read_target

    if isinstance(log, Sessions) or not targets:
        return log if isinstance(log, Sessions) else log.sessions()
    ranked = np.zeros(log.vocabulary.n_queries, bool)
    for path in targets:
        policy = read_target(path)[0]
        vocabulary = policy if isinstance(policy, Vocabulary) else policy.vocabulary
        ranked |= vocabulary.queries_of(log.vocabulary) != UNSEEN
    return log.sessions(ranked)


def _read_policy(path: Path) -> Target:
    """Read a target policy; errors name its file."""
    from clickshift.data.sessions import Rankings
    from clickshift.errors import DataError, FileError
    from clickshift.io.target_files import read_target
    from clickshift.ope import WeightedLists, policy_from_scores

    lists_or_pairs, numbers = read_target(path)
    try:
        if isinstance(lists_or_pairs, Rankings):
            return WeightedLists(lists_or_pairs) if numbers is None else WeightedLists(lists_or_pairs, numbers)
        assert numbers is not None, "scores come with pairs"
        return policy_from_scores(lists_or_pairs, numbers)
    except DataError as error:
        raise FileError(path, str(error), code=error.code, **error.facts) from None


def _derive_policy(model: ClickModel | None, method: str, sessions: Sessions, seed: int) -> Target:
    """Rank the documents that the log shows for each query by a click model."""
    import numpy as np

    from clickshift.data.corpus import Corpus
    from clickshift.errors import SpecError
    from clickshift.ope.target_policy import as_target
    from clickshift.policies.derived import max_reward, top_down

    assert model is not None
    corpus = Corpus(sessions.vocabulary, np.zeros(sessions.vocabulary.n_pairs))
    if method == "top-down":
        return as_target(top_down(model, corpus, ranks=sessions.n_ranks, rng=seed).rankings)
    if method == "max-reward":
        return as_target(max_reward(model, corpus, ranks=sessions.n_ranks, rng=seed).rankings)
    raise SpecError(
        f"--derive must be top-down or max-reward: got {method!r}.", code="bad-option", option="derive", value=method
    )


def _shared_sessions(sessions: Sessions, reward: Reward, targets: Sequence[Target]) -> tuple[Sessions, int]:
    """Return the sessions of queries that all targets rank, and the number of other sessions."""
    from clickshift.errors import DataError
    from clickshift.ope import GroupedLog
    from clickshift.ope.target_policy import TargetProbabilities

    if len(targets) < 2:
        return sessions, 0
    logged = GroupedLog.of(sessions, reward)
    ranked_by_all, *others = [TargetProbabilities.at(logged, target).ranked for target in targets]
    for ranked in others:
        ranked_by_all = ranked_by_all & ranked
    kept = ranked_by_all[sessions.rankings.query]
    if not kept.any():
        raise DataError(
            "two targets can be compared on queries that both rank: there is none in the log.",
            code="no-common-queries",
        )
    return sessions[kept], sessions.total - sessions[kept].total


def _day_residuals(
    logged: GroupedLog, sessions: Sessions, estimators: list[Estimator], clip: float
) -> list[DayResidual]:
    """Return the daily residuals; none where the log has no days: no times, times that are no days, or one day."""
    from clickshift.data.days import days_of
    from clickshift.errors import DataError
    from clickshift.ope.daily_residuals import day_residuals

    if sessions.time is None:
        return []
    try:
        day, names = days_of(sessions.time)
    except DataError:
        return []
    return day_residuals(logged, day, names, estimators, clip=clip)


def _differences(evaluations: dict[str, list[Evaluation]], interval: Any) -> list[dict[str, Any]]:
    """Compare two targets by each estimator, at the larger of the clipping constants that suit the two targets.

    RCTR does not depend on the target, and is left out.
    """
    from clickshift.ope import paired_difference
    from clickshift.ope._report import difference_facts
    from clickshift.ope.slope import best_clip

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
