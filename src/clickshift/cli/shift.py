"""clickshift shift: does a click model still predict clicks when the ranker changes?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clickshift.cli._console import render, reporting, say, warnings_shown
from clickshift.cli._options import CLUSTER, COLUMN, JSON, MERGE_REGIONS, SKIP_BAD, WORKERS, parse_columns

if TYPE_CHECKING:
    from clickshift.core.progress import Progress
    from clickshift.experiments.experiment import ExperimentResult

app = typer.Typer(
    help="Test click models under policy shift: does a model hold when the ranker changes?", no_args_is_help=True
)
_OUTPUT = typer.Option(Path("out/shift"), "--output", "-o", help="Folder for the result rows and the report.")
CORPUS = typer.Option("builtin", help="Corpus: 'builtin', or a LETOR file or folder.")
_SCORES = typer.Option(
    [],
    help="Ranker by its scores: a table of query, doc and score, as FILE or NAME=FILE. NAME and PL-NAME are policies "
    "for --training and --testing; one that is named in neither ranks a further test log; repeatable.",
)
_QUERY_COUNTS = typer.Option(
    None, help="Table of query and count: how often each query is asked, instead of a power law."
)
REFERENCE = typer.Option(
    True, "--reference/--no-reference", help="Use the reference rows that come with the package, where they apply."
)


@app.callback()
def group() -> None:
    """Test click models under policy shift: does a model hold when the ranker changes?"""


@app.command()
def run(
    output: Path = _OUTPUT,
    scale: str = typer.Option(
        "quick", help="Scale: 'quick' (minutes) or 'paper' (the whole grid, ten seeds: an hour)."
    ),
    candidate: list[str] = typer.Option(
        [], help="Own model to compare, as package.module:Class or as a learner; repeatable."
    ),
    corpus: str = CORPUS,
    user: list[str] = typer.Option([], help="Simulated user, instead of those of the scale; repeatable."),
    training: list[str] = typer.Option(
        [], help="Logging policy of the training log, e.g. PL-BM25, or several joined by ' + '; repeatable."
    ),
    testing: list[str] = typer.Option([], help="Policy of a test log, e.g. random or Feature(25); repeatable."),
    model: list[str] = typer.Option([], help="Click model to compare, instead of the paper's six; repeatable."),
    scores: list[str] = _SCORES,
    query_counts: Path | None = _QUERY_COUNTS,
    queries: int | None = typer.Option(None, min=2, help="Number of queries of the corpus."),
    sessions: int | None = typer.Option(None, min=100, help="Number of sessions of each training log."),
    test_sessions: int | None = typer.Option(None, min=10, help="Number of sessions of each test log."),
    seeds: int | None = typer.Option(None, min=1, help="Number of models per task, from different random seeds."),
    derived: bool = typer.Option(True, help="Also evaluate the policies derived from each model."),
    search: str | None = typer.Option(None, help="Search for Max-Reward: local, or sampled as in the paper."),
    penalty: list[float] = typer.Option(
        [], help="Also evaluate Max-Reward penalised by this number of standard deviations across seeds; repeatable."
    ),
    fair: bool = typer.Option(False, "--fair", help="Also evaluate a policy with exposure in proportion to relevance."),
    seed: int | None = typer.Option(None, help="Random seed for the simulated search engine."),
    keep_models: bool = typer.Option(
        False, "--keep-models", help="Keep fitted models in the output folder, for later runs with other test policies."
    ),
    reference: bool = REFERENCE,
    workers: int | None = WORKERS,
    cluster: str | None = CLUSTER,
    json: bool = JSON,
) -> None:
    """Fit click models on one policy's log and evaluate them on other policies' lists, with verdicts and a report.

    Finished tasks are kept in the output folder: after an interruption, run again, and only the missing ones run.
    """
    from clickshift.experiments.policy_shift.protocol import policy_shift

    with reporting_tasks() as progress:
        result = policy_shift(
            output,
            scale=scale,
            candidates=candidate,
            corpus=corpus,
            users=user,
            training=training,
            testing=testing,
            models=model,
            scores=scores,
            query_counts=query_counts,
            queries=queries,
            sessions=sessions,
            test_sessions=test_sessions,
            seeds=seeds,
            derived=derived,
            search=search,
            penalties=penalty,
            fair=fair,
            seed=seed,
            keep_models=keep_models,
            reference=reference,
            workers=workers,
            cluster=cluster,
            progress=progress,
        )
    render_experiment(result, json=json, output=output)


@app.command()
def logs(
    train: list[str] = typer.Option(
        ..., help="Training log: .parquet, .csv or .jsonl, a folder or a glob; repeatable, models are fitted on each."
    ),
    test: list[str] = typer.Option([], help="Log of another ranker, used only for testing; repeatable."),
    judgments: Path | None = typer.Option(
        None, help="Relevance labels for ranking metrics: qrels, or the labels of a public log's own format."
    ),
    model: list[str] = typer.Option(
        [],
        help="Model of the paper, e.g. PBM, or a learner, e.g. \"EM('PBM')\"; repeatable. "
        "By default, the paper's six, the baselines and ARM NC.",
    ),
    candidate: list[str] = typer.Option([], help="Own model, as package.module:Class or as a learner; repeatable."),
    gradient: bool = typer.Option(
        False, "--gradient", help="Fit PBM, UBM and DBN by gradient, as in the paper, instead of maximum likelihood."
    ),
    seeds: int = typer.Option(
        10, min=1, help="Number of random seeds: of models fitted by gradient, and of the order of tied documents."
    ),
    split: str = typer.Option(
        "auto",
        help="Method to split a training log: time, order, random or within-query; auto is time if the log has times.",
    ),
    held_out: float = typer.Option(
        1 / 30,
        help="Share of a training log that is held out for early stopping, and the same share for the ind test set.",
        show_default="1/30",
    ),
    annotated: bool = typer.Option(False, "--annotated", help="Keep only queries with judgments, as in the paper."),
    with_clicks: bool = typer.Option(
        False, "--with-clicks", help="Drop sessions without clicks, as in the paper; this inflates click rates."
    ),
    merge_regions: bool = MERGE_REGIONS,
    format: str = typer.Option(
        "table", help="Format of the logs: table, trec, yandex-sample, yandex-wscd or yandex-kaggle."
    ),
    judgments_format: str | None = typer.Option(
        None, help="Format of the judgments: qrels, trec or yandex-wscd; by default, that of the logs."
    ),
    seed: int = typer.Option(0, help="Random seed for the train/test split."),
    output: Path = typer.Option(Path("out/logs"), "--output", "-o", help="Folder for the result rows and the report."),
    column: list[str] = COLUMN,
    skip_bad: bool = SKIP_BAD,
    workers: int | None = WORKERS,
    cluster: str | None = CLUSTER,
    json: bool = JSON,
) -> None:
    """Compare click models on real logs: on held-out clicks (ind), other rankers' logs (ood), and judged documents.

    Finished tasks are kept in the output folder: after an interruption, run again, and only the missing ones run.
    """
    from clickshift.experiments.real_logs import compare_logs

    with reporting_tasks() as progress:
        result = compare_logs(
            train,
            test,
            judgments=judgments,
            models=model,
            candidates=candidate,
            gradient=gradient,
            seeds=seeds,
            split=split,
            held_out=held_out,
            annotated=annotated,
            with_clicks=with_clicks,
            merge_regions=merge_regions,
            format=format,
            judgments_format=judgments_format,
            seed=seed,
            output=output,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            workers=workers,
            cluster=cluster,
            progress=progress,
        )
    render_experiment(result, json=json, output=output)


@app.command()
def export(
    output: Path = typer.Option(..., "--output", "-o", help="Folder for the training logs and test lists."),
    scale: str = typer.Option("quick", help="Scale: 'quick' or 'paper', as in `shift run`."),
    corpus: str = CORPUS,
    user: list[str] = typer.Option([], help="Simulated user, instead of those of the scale; repeatable."),
    training: list[str] = typer.Option([], help="Logging policy of the training log, e.g. PL-BM25; repeatable."),
    testing: list[str] = typer.Option([], help="Policy of a test log, e.g. random or Feature(25); repeatable."),
    scores: list[str] = _SCORES,
    query_counts: Path | None = _QUERY_COUNTS,
    queries: int | None = typer.Option(None, min=2, help="Number of queries of the corpus."),
    sessions: int | None = typer.Option(None, min=100, help="Number of sessions of each training log."),
    test_sessions: int | None = typer.Option(None, min=10, help="Number of sessions of each test log."),
    seed: int | None = typer.Option(None, help="Random seed for the simulated search engine."),
    json: bool = JSON,
) -> None:
    """Write training logs and test lists as Parquet, to train a model of any library on them."""
    from clickshift.experiments.policy_shift.exchange_files import export_policy_shift

    with reporting("logs") as progress:
        result = export_policy_shift(
            output,
            scale=scale,
            corpus=corpus,
            users=user,
            training=training,
            testing=testing,
            scores=scores,
            query_counts=query_counts,
            queries=queries,
            sessions=sessions,
            test_sessions=test_sessions,
            seed=seed,
            progress=progress,
        )
    render(result, json=json)


@app.command()
def score(
    predictions: list[Path] = typer.Argument(
        ..., help="Table of predictions with the columns session and click_prob; several files belong together."
    ),
    export: Path = typer.Option(..., help="Folder that `shift export` wrote."),
    name: str = typer.Option("own model", help="Name of the model in tables."),
    output: Path = typer.Option(Path("out/score"), "--output", "-o", help="Folder for the result rows and the report."),
    json: bool = JSON,
) -> None:
    """Compare the click predictions of a model from elsewhere with other click models, with verdicts and a report."""
    from clickshift.experiments.policy_shift.exchange_files import score_policy_shift

    with reporting("logs") as progress:
        result = score_policy_shift(predictions, export=export, name=name, progress=progress)
    render(result, json=json, output=output)


@app.command()
def status(output: Path = _OUTPUT, json: bool = JSON) -> None:
    """Show which tasks of a run are finished."""
    from clickshift.experiments.experiment import run_status

    render(run_status(output), json=json)


@app.command()
def report(output: Path = _OUTPUT, json: bool = JSON) -> None:
    """Write the tables, charts and verdicts of a run again, from its finished tasks."""
    from clickshift.experiments.experiment import read_run

    with warnings_shown():
        result = read_run(output)
    render(result, json=json, output=output)


@contextmanager
def reporting_tasks() -> Iterator[Progress]:
    """Show the progress of an experiment on standard error, with a line per finished task; then its warnings."""
    with reporting("tasks") as progress:

        def report(step: int | str, /, *, total: int | None = None) -> None:
            if isinstance(step, str) and step.endswith("\n"):
                say(step[:-1])
            else:
                progress(step, total=total)

        yield report


def render_experiment(result: ExperimentResult, *, json: bool, output: Path) -> None:
    """Write and print the result of the finished tasks, then raise an error if others failed."""
    render(result, json=json, output=output)
    result.check_complete()
