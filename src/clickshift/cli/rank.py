"""clickshift rank: learn rankers from clicks, evaluate them, score documents with them, and export them."""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli._console import check_report, render, reporting
from clickshift.cli._options import COLUMN, JSON, LOG_HELP, PAGE, REPORT, SKIP_BAD, parse_columns

app = typer.Typer(no_args_is_help=True, help="Train rankers on clicks, evaluate them, score documents, and export.")

_CORPUS = typer.Argument(
    ...,
    help="Documents with their features: a LETOR file, a folder of them, a table of query, doc and features "
    "(.parquet, .csv or .jsonl), or builtin.",
)
_CLICKS = typer.Option(
    ...,
    "--clicks",
    help=LOG_HELP,
)
_PROPENSITIES = typer.Option(None, help="File with the examination by rank, as `clickshift propensities` writes it.")
_EXAMINATION = typer.Option(
    None, help="Examination by rank as a text: 1/rank, 1/rank^0.5, or numbers such as 1,0.6,0.4."
)
_MODEL = typer.Option(None, help="Folder of a fitted click model, whose examination by rank is used.")
_TRUST = typer.Option(None, help="Trust bias, for the loss affine: a table with the columns rank, alpha and beta.")
_CLIP = typer.Option(None, help="Smallest propensity to divide by; by default, propensities are not clipped.")
_LOGGING = typer.Option(
    "frequencies",
    help="Weights of impressions: 'frequencies' of the log, or the inverse of the 'propensities' by position that it "
    "carries.",
)
_PROPENSITY_KIND = typer.Option(
    "marginal",
    help="What the column propensity_at_rank is with --logging propensities: 'marginal', P(document at this rank), or "
    "'independent', of a policy that fills every position by itself. Those given the documents above are refused.",
)
_MAX_LABEL = typer.Option(None, min=1, help="Highest grade of the label scale; by default, 1, 2 or 4.")
_RANKER = typer.Argument(..., help="Folder of a trained ranker, as `clickshift rank train` writes it.")
_QUERIES = typer.Option(None, min=1, help="Number of queries of the built-in corpus.")


@app.command()
def train(
    corpus: str = _CORPUS,
    clicks: str = _CLICKS,
    output: Path = typer.Option(..., "--output", "-o", help="Folder for the trained ranker."),
    loss: str = typer.Option(
        "ips",
        help="Loss: ips, pbm, policy-aware, affine, doubly-robust, listwise or lambdamart; or a learner with options, "
        "e.g. \"ClickRanker('ips', hidden=(64,), dropout=(0.1,))\".",
    ),
    bias: str | None = typer.Option(
        None,
        help="Source of the position bias: given, naive or estimated; by default given, by one of the options below.",
    ),
    propensities: Path | None = _PROPENSITIES,
    examination: str | None = _EXAMINATION,
    model: Path | None = _MODEL,
    trust: Path | None = _TRUST,
    clip: float | None = _CLIP,
    logging: str = _LOGGING,
    propensity_kind: str = _PROPENSITY_KIND,
    held_out: str | None = typer.Option(None, help="Corpus of the held-out clicks; by default, the training corpus."),
    held_out_clicks: str | None = typer.Option(
        None,
        help="Held-out log for early stopping and the comparison with the logging ranker; by default, the clicks of a "
        "tenth of the queries.",
    ),
    seed: int | None = typer.Option(
        None, help="Random seed for the initial weights, the order of queries, and dropout."
    ),
    queries: int | None = _QUERIES,
    max_label: int | None = _MAX_LABEL,
    column: list[str] = COLUMN,
    skip_bad: bool = SKIP_BAD,
    report: Path | None = PAGE,
    json: bool = JSON,
) -> None:
    """Train a ranker on clicks, corrected for position bias.

    The training of a network can be interrupted: the best weights so far are kept, and the same command resumes.
    """
    from clickshift.ranking import train_ranker

    check_report(report)
    with reporting(f"training by {loss}") as progress:
        result = train_ranker(
            corpus,
            clicks,
            loss=loss,
            bias=bias,
            propensities=propensities,
            examination=examination,
            model=model,
            trust=trust,
            clip=clip,
            logging=logging,
            propensity_kind=propensity_kind,
            held_out=held_out,
            held_out_clicks=held_out_clicks,
            seed=seed,
            queries=queries,
            max_label=max_label,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            checkpoint=output / "checkpoint.npz",
            progress=progress,
        )
    render(result, json=json, output=output, report=report)


@app.command()
def evaluate(
    ranker: Path = _RANKER,
    corpus: str = _CORPUS,
    compare: Path | None = typer.Option(None, help="Folder of another ranker: the difference is paired by query."),
    clicks: str | None = typer.Option(
        None, help="Log of the logging ranker, to compare with the documents' mean ranks in it."
    ),
    include_training: bool = typer.Option(
        False, "--include-training", help="Evaluate also on queries that a ranker was trained on."
    ),
    level: float = typer.Option(0.95, min=0.5, max=0.999, help="Confidence level of the intervals."),
    seed: int = typer.Option(0, help="Random seed for tie-breaking and the bootstrap over queries."),
    queries: int | None = _QUERIES,
    max_label: int | None = _MAX_LABEL,
    column: list[str] = COLUMN,
    skip_bad: bool = SKIP_BAD,
    output: Path | None = REPORT,
    json: bool = JSON,
) -> None:
    """Compute nDCG@5, nDCG@10 and the average rank of relevant documents, with bootstrap intervals over queries.

    Queries that a ranker was trained on are left out: it would look better there than on new ones. So are queries
    whose documents all have the same label, which cannot distinguish rankers.
    """
    from clickshift.ranking import evaluate_ranker

    check_report(output)
    with reporting("evaluating") as progress:
        result = evaluate_ranker(
            ranker,
            corpus,
            compare=compare,
            clicks=clicks,
            include_training=include_training,
            level=level,
            seed=seed,
            queries=queries,
            max_label=max_label,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            progress=progress,
        )
    render(result, json=json, output=output)


@app.command()
def score(
    ranker: Path = _RANKER,
    features: str = typer.Argument(
        ..., help="Documents to score: a LETOR file, a folder of them, or a table of query, doc and features."
    ),
    output: Path = typer.Option(..., "--output", "-o", help="File for the scores: .parquet, .csv or .jsonl."),
    sparse: bool = typer.Option(
        False, "--sparse", help="Treat features beyond the highest number in the file as 0, not as missing."
    ),
    max_label: int | None = _MAX_LABEL,
    json: bool = JSON,
) -> None:
    """Score documents with a ranker and write a table of query, doc, score and rank, each query's best first.

    `clickshift ope` takes the table as a target policy, to estimate what the ranker would earn from the log of
    another one.
    """
    from clickshift.ranking import ScoredDocuments
    from clickshift.ranking import score as score_documents

    ScoredDocuments.check_output(output)
    with reporting("scoring") as progress:
        result = score_documents(ranker, features, sparse=sparse, max_label=max_label, progress=progress)
    render(result, json=json, output=output)


@app.command()
def export(
    ranker: Path = _RANKER,
    output: Path = typer.Argument(
        ..., help="File to write: .onnx for a network, .txt for trees (LightGBM model text)."
    ),
    json: bool = JSON,
) -> None:
    """Export a ranker for other programs, as a function from features to scores."""
    from clickshift.ranking import export_ranker

    with reporting("exporting"):
        result = export_ranker(ranker, output)
    render(result, json=json)


@app.command()
def labels(
    corpus: str = _CORPUS,
    clicks: str = _CLICKS,
    output: Path = typer.Option(
        ..., "--output", "-o", help="File for the labels: .parquet, .csv or .jsonl, or .txt in LightGBM's own format."
    ),
    loss: str = typer.Option("ips", help="Correction of the clicks: ips, policy-aware or affine."),
    naive: bool = typer.Option(
        False, "--naive", help="Use uncorrected clicks, for LightGBM's own estimate of position bias."
    ),
    propensities: Path | None = _PROPENSITIES,
    examination: str | None = _EXAMINATION,
    model: Path | None = _MODEL,
    trust: Path | None = _TRUST,
    clip: float | None = _CLIP,
    logging: str = _LOGGING,
    propensity_kind: str = _PROPENSITY_KIND,
    queries: int | None = _QUERIES,
    max_label: int | None = _MAX_LABEL,
    column: list[str] = COLUMN,
    skip_bad: bool = SKIP_BAD,
    json: bool = JSON,
) -> None:
    """Write corrected labels, weights and positions for LightGBM and XGBoost.

    Pass the column `grade` to LightGBM's rankers, with the `label_gain` that is printed (--json), and `relevance` to
    XGBoost's, with ndcg_exp_gain=False. Next to a .txt file, the files .query, .weight and .position, which LightGBM
    finds, and .conf are written.
    """
    from clickshift.ranking import RankingLabels, ranking_labels

    RankingLabels.check_output(output)
    with reporting("correcting labels") as progress:
        result = ranking_labels(
            corpus,
            clicks,
            loss=loss,
            naive=naive,
            propensities=propensities,
            examination=examination,
            model=model,
            trust=trust,
            clip=clip,
            logging=logging,
            propensity_kind=propensity_kind,
            queries=queries,
            max_label=max_label,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            progress=progress,
        )
    render(result, json=json, output=output)
