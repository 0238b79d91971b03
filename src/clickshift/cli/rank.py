"""clickshift rank: learn rankers from clicks, evaluate them, score documents with them, and export them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from clickshift.cli._console import progress, show, show_json, show_table, warnings_shown
from clickshift.cli._options import JSON

if TYPE_CHECKING:
    from clickshift.data.corpus import Corpus
    from clickshift.data.sessions import Sessions
    from clickshift.ranking import BoostedRanker, ClickRanker

app = typer.Typer(no_args_is_help=True, help="Train rankers on clicks, evaluate them, score documents, and export.")

_RESAMPLED_VALUES = 5_000_000
"""Largest number of values drawn at once in the bootstrap over queries, which bounds its memory."""
_MIN_RESAMPLES, _MAX_RESAMPLES = 200, 10_000
"""Bounds of the number of bootstrap resamples."""

_CORPUS = typer.Argument(..., help="Documents with their features: a LETOR file, a folder of them, or builtin.")
_CLICKS = typer.Option(..., "--clicks", help="Click log: a .parquet, .csv or .jsonl file, a folder or a glob.")
_PROPENSITIES = typer.Option(None, help="File with the examination by rank, as `clickshift propensities` writes it.")
_EXAMINATION = typer.Option(
    None, help="Examination by rank as a text: 1/rank, 1/rank^0.5, or numbers such as 1,0.6,0.4."
)
_MODEL = typer.Option(None, help="Folder of a fitted click model, whose examination by rank is used.")
_TRUST = typer.Option(None, help="Trust bias, for the loss affine: a table with the columns rank, alpha and beta.")
_CLIP = typer.Option(None, help="Smallest propensity to divide by; by default, propensities are not clipped.")
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
    held_out: str | None = typer.Option(None, help="Corpus of the held-out clicks; by default, the training corpus."),
    held_out_clicks: str | None = typer.Option(
        None, help="Held-out log for early stopping; by default, the clicks of a tenth of the queries."
    ),
    seed: int | None = typer.Option(
        None, help="Random seed for the initial weights, the order of queries, and dropout."
    ),
    queries: int | None = _QUERIES,
    max_label: int | None = _MAX_LABEL,
    json: bool = JSON,
) -> None:
    """Train a ranker on clicks, corrected for position bias."""
    from clickshift.core.spec import label
    from clickshift.errors import SpecError
    from clickshift.io.read_log import read_log
    from clickshift.ranking import BoostedRanker, Ranker, save_ranker

    learner = _parse_learner(loss, bias, clip, seed)
    if held_out is not None and held_out_clicks is None:
        raise SpecError(
            "--held-out needs the clicks on its documents. Pass --held-out-clicks.",
            code="bad-option",
            option="held_out",
        )
    with warnings_shown(), progress(f"training by {loss}") as report:
        documents, log = _read_documents(corpus, queries, max_label), read_log(clicks)
        position_bias = _position_bias(propensities, examination, model, trust, log)
        if isinstance(learner, BoostedRanker):
            if held_out_clicks is not None:
                raise SpecError(
                    "lambdamart does not stop early. Remove --held-out-clicks.",
                    code="bad-option",
                    option="held_out_clicks",
                )
            trained: Any = learner.fit(documents, log, **position_bias)
        else:
            held_out_data = None
            if held_out_clicks is not None:
                others = documents if held_out is None else _read_documents(held_out, None, max_label)
                held_out_data = others, read_log(held_out_clicks)
            trained = learner.fit(documents, log, held_out=held_out_data, progress=report, **position_bias)
        notes = {"corpus": corpus, "clicks": clicks, "sessions": log.total}
        save_ranker(trained, output, notes=notes)
    facts: dict[str, Any] = {"learner": label(learner), "sessions": log.total, "documents": documents.n_pairs}
    if isinstance(trained, Ranker):
        facts |= {"rounds": trained.rounds, "held_out_loss": trained.held_out_loss, "converged": trained.converged}
        if trained.examination is not None:
            facts["examination"] = (trained.examination / trained.examination[0]).tolist()
    show(facts | {"output": str(output)}, json=json, title="Trained ranker")


@app.command()
def evaluate(
    ranker: Path = _RANKER,
    corpus: str = _CORPUS,
    level: float = typer.Option(0.95, min=0.5, max=0.999, help="Confidence level of the intervals."),
    seed: int = typer.Option(0, help="Random seed for tie-breaking and the bootstrap over queries."),
    queries: int | None = _QUERIES,
    max_label: int | None = _MAX_LABEL,
    json: bool = JSON,
) -> None:
    """Compute nDCG@5, nDCG@10 and the average rank of relevant documents, with bootstrap intervals over queries.

    Queries whose documents all have the same label cannot distinguish rankers, and are left out.
    """
    from clickshift.metrics.ranking import JudgedPairs, ranking_quality
    from clickshift.metrics.significance import bootstrap_interval
    from clickshift.ranking import load_ranker

    with warnings_shown(), progress("evaluating"):
        trained, documents = load_ranker(ranker), _read_documents(corpus, queries, max_label)
        judged = JudgedPairs.of(documents.vocabulary, documents.label.astype(float))
        quality = ranking_quality(trained.scores(documents), judged, cutoffs=(5, 10), rng=seed)
        rows = []
        for name in ("nDCG@5", "nDCG@10", "ARP"):
            values = quality.per_query[name]
            values = values[values == values]  # a query without a relevant document has no ARP
            resamples = min(max(_RESAMPLED_VALUES // max(len(values), 1), _MIN_RESAMPLES), _MAX_RESAMPLES)
            mean, low, high = bootstrap_interval(values, level, resamples=resamples, seed=seed)
            rows.append({"metric": name, "mean": mean, "low": low, "high": high, "queries": len(values)})
    n_left_out = documents.n_queries - judged.queries
    if json:
        show_json({"learner": trained.learner, "level": level, "metrics": rows, "queries_left_out": n_left_out})
        return
    caption = f"{level:.0%} bootstrap intervals over queries; {n_left_out:,} queries with equal labels are left out."
    show_table(rows, title=f"{trained.learner} on {corpus}", caption=caption)


@app.command()
def score(
    ranker: Path = _RANKER,
    features: str = typer.Argument(..., help="Documents to score: a LETOR file, or a folder of them."),
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
    import numpy as np
    import pyarrow as pa

    from clickshift.io.datasets.letor import read_corpus
    from clickshift.io.table_writer import table_ending, write_table
    from clickshift.ranking import load_ranker

    table_ending(output)
    with warnings_shown(), progress("scoring"):
        trained = load_ranker(ranker)
        documents = read_corpus(features, features=trained.n_features if sparse else None, max_label=max_label)
        scores = trained.scores(documents)
        vocabulary = documents.vocabulary
        query, doc = vocabulary.query_ids[vocabulary.pair_query], vocabulary.doc_ids[vocabulary.pair_doc]
        order = np.lexsort((-scores, vocabulary.pair_query))
        columns = {"query": query, "doc": doc, "score": scores}
        raw = {k: v[order].astype(object) if v.dtype.kind == "T" else v[order] for k, v in columns.items()}
        raw["rank"] = np.arange(len(order)) - documents.offsets[:-1][vocabulary.pair_query] + 1
        write_table(pa.table(raw), output, notes={"ranker": str(ranker), "features": features})
    facts = {"learner": trained.learner, "queries": documents.n_queries, "documents": documents.n_pairs}
    show(facts | {"output": str(output)}, json=json, title="Scores")


@app.command()
def export(
    ranker: Path = _RANKER,
    output: Path = typer.Argument(
        ..., help="File to write: .onnx for a network, .txt for trees (LightGBM model text)."
    ),
    json: bool = JSON,
) -> None:
    """Export a ranker for other programs, as a function from features to scores."""
    from clickshift.ranking import load_ranker
    from clickshift.ranking.storage import export_ranker

    with warnings_shown():
        trained = load_ranker(ranker)
        export_ranker(trained, output)
    facts = {"learner": trained.learner, "features": trained.n_features, "output": str(output)}
    show(facts, json=json, title="Exported ranker")


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
    queries: int | None = _QUERIES,
    max_label: int | None = _MAX_LABEL,
    json: bool = JSON,
) -> None:
    """Write corrected labels, weights and positions for LightGBM and XGBoost.

    Pass the column `grade` to LightGBM's rankers, with the `label_gain` that is printed (--json), and `relevance` to
    XGBoost's, with ndcg_exp_gain=False. Next to a .txt file, the files .query, .weight and .position, which LightGBM
    finds, and .conf are written.
    """
    from clickshift.io.read_log import read_log
    from clickshift.ranking.labels import check_position_bias, count_by_rank
    from clickshift.ranking.lambdamart import BoostedRanker, boosting_data
    from clickshift.ranking.lightgbm_files import boosting_ending, write_boosting_data

    boosting_ending(output)
    learner = BoostedRanker(loss, "naive" if naive else "given", clip=clip)
    with warnings_shown(), progress("correcting labels"):
        documents, log = _read_documents(corpus, queries, max_label), read_log(clicks)
        position_bias = _position_bias(propensities, examination, model, trust, log)
        check_position_bias(learner.loss, learner.bias, position_bias["examination"], position_bias["trust"])
        data = boosting_data(documents, count_by_rank(documents, log), learner.loss, clip=clip, **position_bias)
        files = write_boosting_data(data, output, notes={"corpus": corpus, "clicks": clicks, "loss": loss})
    facts = {
        "queries": len(data.group),
        "documents": len(data.pair),
        "grades": len(data.gain),
        "mean_relevance": float(data.relevance.mean()),
        "largest_relevance": float(data.relevance.max()),
    }
    if json:
        show_json(facts | {"label_gain": data.gain, "output": [str(file) for file in files]})
        return
    show(facts, json=False, title="Corrected labels")
    for file in files:
        typer.echo(f"Wrote {file}")


def _parse_learner(loss: str, bias: str | None, clip: float | None, seed: int | None) -> ClickRanker | BoostedRanker:
    """Make the learner of a loss with its options, or parse the text of a learner, which contains its options."""
    from clickshift.core.spec import parse
    from clickshift.errors import SpecError
    from clickshift.ranking import RANKERS, BoostedRanker, ClickRanker

    options: dict[str, Any] = {"bias": bias, "clip": clip, "seed": seed}
    given = {name: value for name, value in options.items() if value is not None}
    name = loss.partition("(")[0].strip()
    if name in RANKERS:
        if given:
            raise SpecError(
                f"options of a learner go into its text. Write {name}(..., seed=1).",
                code="bad-option",
                options=list(given),
            )
        learner: ClickRanker | BoostedRanker = parse(loss, RANKERS)
        return learner
    return BoostedRanker(**given) if loss == "lambdamart" else ClickRanker(loss, **given)


def _read_documents(name: str, queries: int | None, max_label: int | None) -> Corpus:
    """Return the built-in corpus, or read that of a file or folder."""
    from clickshift.data.builtin_corpus import builtin_corpus
    from clickshift.io.datasets.letor import read_corpus

    return builtin_corpus(queries or 1000) if name == "builtin" else read_corpus(name, max_label=max_label)


def _position_bias(
    propensities: Path | None, examination: str | None, model: Path | None, trust: Path | None, log: Sessions
) -> dict[str, Any]:
    """Return the known examination or trust bias by rank, from the one option that gives it."""
    from clickshift.errors import SpecError
    from clickshift.models.storage import load_model
    from clickshift.policies.derived.model_scores import examination as examination_of
    from clickshift.propensity.files import parse_examination, read_propensities, read_trust

    if sum(option is not None for option in (propensities, examination, model, trust)) > 1:
        raise SpecError(
            "pass one of --propensities, --examination, --model and --trust, not several.", code="bad-option"
        )
    if trust is not None:
        return {"examination": None, "trust": read_trust(trust)}
    curve = None
    if propensities is not None:
        curve = read_propensities(propensities).estimate
    elif examination is not None:
        curve = parse_examination(examination, log.n_ranks)
    elif model is not None:
        curve = examination_of(load_model(model), log.rankings, weight=log.count.astype(float))
    return {"examination": curve, "trust": None}
