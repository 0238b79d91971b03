"""clickshift ope: what would another ranker earn, told from the log of this one?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer
from typer.core import TyperGroup
from typing_extensions import override

from clickshift.cli.backtest import backtest
from clickshift.cli._console import (
    Json,
    LogPath,
    printable,
    progress,
    sessions_encoded,
    show_json,
    show_table,
    warnings_shown,
)
from clickshift.cli.optimise import Replicates, RewardText, SkipBad, optimise

if TYPE_CHECKING:
    from clickshift.data.encoded_log import Log
    from clickshift.data.sessions import Sessions
    from clickshift.models.base import ClickModel
    from clickshift.ope import Estimator, Evaluation, GroupedLog, Reward
    from clickshift.ope.daily_residuals import DayResidual
    from clickshift.ope.target_policy import Target


class Evaluating(TyperGroup):
    """A first word that is no command is the log of `evaluate_target`."""

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "--help"}:
            args = ["evaluate", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=Evaluating, no_args_is_help=True)


@app.callback()
def group() -> None:
    """What would another ranker earn, and can this log tell?

    `clickshift ope LOG --target FILE` is short for `clickshift ope evaluate LOG --target FILE`.
    """


app.command()(backtest)
app.command()(optimise)


@app.command()
def evaluate(
    log: str = LogPath,
    target: Path | None = typer.Option(
        None,
        help="What the ranker would show: a table of query and docs, with or without weight, or of query, doc, score.",
    ),
    model: Path | None = typer.Option(
        None, help="A fitted click model: what DM, DR and CIPS ask and, without --target, whose ranking is judged."
    ),
    derive: str = typer.Option("top-down", help="How the model ranks without --target: 'top-down' or 'max-reward'."),
    compare: Path | None = typer.Option(None, help="Another target: how much more would it earn?"),
    estimator: list[str] = typer.Option(
        ["auto"],
        help="List, IP, PBM, Item, RCTR, RIPS, PI, CIPS, DM; SN- or DR- before them; 'auto' chooses. Repeatable.",
    ),
    reward: str = RewardText,
    clip: str = typer.Option("10,100,inf", help="The largest weights allowed, each in turn; inf for no limit."),
    logging: str = typer.Option(
        "frequencies", help="The logging policy: list 'frequencies' of the log, or 'propensities' that it carries."
    ),
    cluster: str = typer.Option("session", help="What is independent of each other: 'session' or 'user'."),
    replicates: int = Replicates,
    seed: int = typer.Option(0, help="Of resampled logs and ties."),
    skip_bad: bool = SkipBad,
    output: Path | None = typer.Option(None, "--output", "-o", help="The folder for the rows and the report."),
    json: bool = Json,
) -> None:
    """What a target would earn per session, by several estimators, with intervals, verdicts and what the log lacks.

    The verdict says whether this log can tell. With --compare, the difference of two targets on the same sessions.
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

    earned, limits, interval = Reward.named(reward), _clip(clip), Bootstrap(replicates, seed=seed)
    with warnings_shown(), progress("evaluating") as hear:
        fitted = _fitted(model)
        names = _estimators(estimator, earned, logging, with_model=fitted is not None and target is not None)
        asked = [Estimator.named(name, fitted) for name in names]
        tell = sessions_encoded(hear)
        found_log = open_log(log, on_bad_line="skip" if skip_bad else "error", progress=tell)
        sessions = _of_targets(found_log, [path for path in (target, compare) if path is not None])
        targets = _targets(target, compare, fitted, derive, sessions, seed)
        shared, left_out = _shared(sessions, earned, list(targets.values()))
        logged = GroupedLog.of(shared, earned, cluster=_cluster(cluster))
        found = {
            name: evaluated(logged, given, asked, clip=limits, logging=logging, interval=interval)
            for name, given in targets.items()
        }
        residuals = _day_residuals(logged, shared, asked, limits[-1])
    name, *others = found
    first = found[name]
    choice = choose_by_slope(first, ResidualDrift.of(residuals)) if "auto" in estimator else None
    differences = _differences(found, interval) if others else []
    notes = {title: notes_of(many) for title, many in found.items()}
    if unread := found_log.total - sessions.total:
        notes[name].append(f"{unread:,} sessions of queries that no target ranks were not read.")
    if left_out:
        notes[name].append(f"{left_out:,} sessions are left out: one of the targets does not rank their query.")
    if target is None:
        notes[name].append("If the model learned from this log, its ranking looks better here than it is.")
    written = None
    if output is not None:
        from clickshift.ope._report import write_ope_report

        settings = {
            "log": log,
            "targets": list(targets),
            "estimators": names,
            "reward": str(earned),
            "clip": clip,
            "logging": logging,
            "cluster": cluster,
            "replicates": replicates,
            "seed": seed,
        }
        written = write_ope_report(output, found, notes, choice, differences, residuals, settings)
    if json:
        rows = [{"target": n, **facts_of(e)} for n, many in found.items() for one in many for e in one.estimates]
        chosen = None if choice is None else choice_facts(choice)
        report = None if written is None else str(written.page)
        days = [asdict(r) | {"residual": r.residual} for r in residuals]
        told = {"rows": rows, "chosen": chosen, "differences": differences, "days": days, "notes": notes}
        show_json(told | {"report": report})
        return
    level = first[0].estimates[0].interval
    for title, many in found.items():
        show_table(estimate_table(many), title=f"{earned} per session of {title}, told from {log} ({level})")
        for said in verdicts_of(many):
            typer.echo(f"{said['estimator']}: {said['verdict']}. {said['text']}")
        for text in notes[title]:
            typer.echo(f"Note: {printable(text)}")
    if choice is not None:
        typer.echo(f"auto: {choice_note(choice)}")
    for d in differences:
        typer.echo(f"{d['estimator']}: {printable(d['words'])}")
    for words in residual_drift_note(residuals):
        typer.echo(words)
    if written is not None:
        typer.echo(f"Report: {written.page}   Rows: {written.rows}")


def _clip(text: str) -> list[float]:
    from clickshift.errors import SpecError
    from clickshift.ope.estimators import checked_clip

    try:
        limits = sorted({float(part) for part in text.split(",")})
    except ValueError:
        raise SpecError(f"--clip takes numbers with commas between them, such as 10,100,inf: got {text!r}.") from None
    return [float(limit) for limit in checked_clip(limits)]


def _cluster(text: str) -> Literal["session", "user"]:
    from clickshift.errors import SpecError

    if text == "session":
        return "session"
    if text == "user":
        return "user"
    raise SpecError(f"--cluster must be session or user: got {text!r}.")


def _estimators(texts: list[str], reward: Reward, logging: str, *, with_model: bool) -> list[str]:
    """`auto` stands for all that can be asked: without ranks in the reward or the propensities, whole lists only."""
    from clickshift.ope import PAPER_ESTIMATORS

    whole = not reward.is_linear or logging == "propensities"
    auto = ["List", "RCTR"] if whole else list(PAPER_ESTIMATORS)
    if with_model:
        auto += ["DM", "DR-List"] if whole else ["CIPS", "DM", "DR-IP"]
    return list(dict.fromkeys(name for text in texts for name in (auto if text == "auto" else [text])))


def _fitted(model: Path | None) -> ClickModel | None:
    from clickshift.models.storage import load_model

    return None if model is None else load_model(model)


def _targets(
    target: Path | None, compare: Path | None, model: ClickModel | None, derive: str, sessions: Sessions, seed: int
) -> dict[str, Target]:
    """By the names that people read: those of files, or of the ranking that a model gives."""
    from clickshift.errors import SpecError

    if target is None and model is None:
        raise SpecError("there must be a target: give --target FILE, or --model DIR for what a click model would show.")
    found = {str(target): _read(target)} if target is not None else {derive: _derived(model, derive, sessions, seed)}
    if compare is not None and str(compare) in found:
        raise SpecError(f"a target must be compared with another one: got {compare} twice.")
    return found if compare is None else found | {str(compare): _read(compare)}


def _of_targets(log: Log, targets: list[Path]) -> Sessions:
    """In memory. Of a log that may not fit there, the sessions of queries that a target ranks: others say nothing."""
    import numpy as np

    from clickshift.data.sessions import Sessions
    from clickshift.data.vocabulary import UNSEEN, Vocabulary
    from clickshift.io.target_files import read_target

    if isinstance(log, Sessions) or not targets:
        return log if isinstance(log, Sessions) else log.sessions()
    ranked = np.zeros(log.vocabulary.n_queries, bool)
    for path in targets:
        what = read_target(path)[0]
        theirs = what if isinstance(what, Vocabulary) else what.vocabulary
        ranked |= theirs.queries_of(log.vocabulary) != UNSEEN
    return log.sessions(ranked)


def _read(path: Path) -> Target:
    from clickshift.data.sessions import Rankings
    from clickshift.errors import DataError, FileError
    from clickshift.io.target_files import read_target
    from clickshift.ope import WeightedLists, policy_from_scores

    what, numbers = read_target(path)
    try:
        if isinstance(what, Rankings):
            return WeightedLists(what) if numbers is None else WeightedLists(what, numbers)
        assert numbers is not None, "scores come with pairs"
        return policy_from_scores(what, numbers)
    except DataError as error:
        raise FileError(path, str(error)) from None


def _derived(model: ClickModel | None, how: str, sessions: Sessions, seed: int) -> Target:
    """The model ranks the documents that the log shows for each query."""
    import numpy as np

    from clickshift.data.corpus import Corpus
    from clickshift.errors import SpecError
    from clickshift.ope.target_policy import as_target
    from clickshift.policies.derived import max_reward, top_down

    assert model is not None
    corpus = Corpus(sessions.vocabulary, np.zeros(sessions.vocabulary.n_pairs))
    if how == "top-down":
        return as_target(top_down(model, corpus, ranks=sessions.n_ranks, rng=seed).rankings)
    if how == "max-reward":
        return as_target(max_reward(model, corpus, ranks=sessions.n_ranks, rng=seed).rankings)
    raise SpecError(f"--derive must be top-down or max-reward: got {how!r}.")


def _shared(sessions: Sessions, reward: Reward, targets: Sequence[Target]) -> tuple[Sessions, int]:
    """The sessions of queries that all of several targets rank, and how many others there are."""
    from clickshift.errors import DataError
    from clickshift.ope import GroupedLog
    from clickshift.ope.target_policy import TargetProbabilities

    if len(targets) < 2:
        return sessions, 0
    logged = GroupedLog.of(sessions, reward)
    first, *others = [TargetProbabilities.at(logged, target).ranked for target in targets]
    for ranked in others:
        first = first & ranked
    kept = first[sessions.rankings.query]
    if not kept.any():
        raise DataError("two targets can be compared on queries that both rank: there is none in the log.")
    return sessions[kept], sessions.total - sessions[kept].total


def _day_residuals(
    logged: GroupedLog, sessions: Sessions, estimators: list[Estimator], clip: float
) -> list[DayResidual]:
    """None where the log has no days: times that are no days, or one day only."""
    from clickshift.errors import DataError
    from clickshift.ope.daily_residuals import day_residuals, days_of

    if sessions.time is None:
        return []
    try:
        day, names = days_of(sessions.time)
    except DataError:
        return []
    return day_residuals(logged, day, names, estimators, clip=clip)


def _differences(found: dict[str, list[Evaluation]], interval: Any) -> list[dict[str, Any]]:
    """At the larger of the two clipping constants that suit each estimator. RCTR sees no target, and is left out."""
    from clickshift.ope import paired_difference
    from clickshift.ope._report import difference_facts
    from clickshift.ope.slope import best_clip

    (one, first), (other, second) = found.items()
    out = []
    for a, b in zip(first, second, strict=True):
        if a.estimates[0].estimator.endswith("RCTR"):
            continue
        constants = [e.clip for e in a.estimates]
        at = constants.index(max(best_clip(a).clip, best_clip(b).clip))
        found_ = paired_difference(a, b, interval, clip=at)
        out.append(difference_facts(a.estimates[at], b.estimates[at], found_, (one, other)))
    return out
