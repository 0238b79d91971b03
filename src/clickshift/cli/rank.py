"""clickshift rank: learn a ranker from clicks, judge it, use it, hand it on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from clickshift.cli.console import Json, progress, show, show_json, show_table, warnings_shown

if TYPE_CHECKING:
    from clickshift.data.corpus import Corpus
    from clickshift.data.sessions import Sessions
    from clickshift.ranking import BoostedRanker, ClickRanker

app = typer.Typer(no_args_is_help=True, help="Rankers learned from clicks: train, evaluate, score, export.")

_RESAMPLED = 5_000_000  # values at once, when queries are resampled
_FEWEST, _MOST = 200, 10_000  # resamples

_Corpus = typer.Argument(..., help="The documents with their features: a LETOR file, a folder of them, or builtin.")
_Clicks = typer.Option(..., "--clicks", help="The log: a .parquet, .csv or .jsonl file, a folder or a glob.")
_Propensities = typer.Option(None, help="Examination by rank: the file that `clickshift propensities` wrote.")
_Examination = typer.Option(
    None, help="Examination by rank, in words: 1/rank, 1/rank^0.5, or numbers such as 1,0.6,0.4."
)
_Model = typer.Option(None, help="Examination by rank: that of the click model that `clickshift fit` wrote.")
_Trust = typer.Option(None, help="Trust bias, for loss affine: a table with the columns rank, alpha and beta.")
_MaxLabel = typer.Option(None, min=1, help="The best grade of the labels' scale; by default, 1, 2 or 4.")
_Ranker = typer.Argument(..., help="The folder that `clickshift rank train` wrote.")
_Queries = typer.Option(None, min=1, help="For builtin: how many queries the corpus has.")


@app.command()
def train(
    corpus: str = _Corpus,
    clicks: str = _Clicks,
    output: Path = typer.Option(..., "--output", "-o", help="The folder for the ranker."),
    loss: str = typer.Option(
        "ips",
        help="ips, pbm, policy-aware, affine, doubly-robust, listwise, lambdamart; or a learner with options, e.g. "
        "\"ClickRanker('ips', hidden=(64,), dropout=(0.1,))\".",
    ),
    bias: str | None = typer.Option(
        None, help="given, naive or estimated; by default, given, for which examination must be told."
    ),
    propensities: Path | None = _Propensities,
    examination: str | None = _Examination,
    model: Path | None = _Model,
    trust: Path | None = _Trust,
    clip: float | None = typer.Option(None, help="The smallest propensity to divide by; by default, none."),
    held_out: str | None = typer.Option(None, help="Another corpus, whose clicks decide when to stop."),
    held_out_clicks: str | None = typer.Option(
        None, help="The log that decides when to stop; by default, that of a tenth of the queries."
    ),
    seed: int | None = typer.Option(None, help="Of the first weights, the order of queries, and dropout."),
    queries: int | None = _Queries,
    max_label: int | None = _MaxLabel,
    json: bool = Json,
) -> None:
    """Learn to rank from clicks, corrected for where documents were shown."""
    from clickshift.core.spec import label
    from clickshift.errors import SpecError
    from clickshift.io.read_log import read_log
    from clickshift.ranking import BoostedRanker, Ranker, save_ranker

    learner = _learner(loss, bias, clip, seed)
    if held_out is not None and held_out_clicks is None:
        raise SpecError("--held-out needs the clicks on its documents. Give --held-out-clicks.")
    with warnings_shown(), progress(f"training by {loss}") as hear:
        documents, log = _read(corpus, queries, max_label), read_log(clicks)
        known = _known(propensities, examination, model, trust, log)
        if isinstance(learner, BoostedRanker):
            if held_out_clicks is not None:
                raise SpecError("lambdamart does not stop early: leave --held-out-clicks out.")
            found: Any = learner.fit(documents, log, **known)
        else:
            judge = None
            if held_out_clicks is not None:
                others = documents if held_out is None else _read(held_out, None, max_label)
                judge = others, read_log(held_out_clicks)
            found = learner.fit(documents, log, held_out=judge, progress=hear, **known)
        notes = {"corpus": corpus, "clicks": clicks, "sessions": log.total}
        save_ranker(found, output, notes=notes)
    facts: dict[str, Any] = {"learner": label(learner), "sessions": log.total, "documents": documents.n_pairs}
    if isinstance(found, Ranker):
        facts |= {"rounds": found.rounds, "held_out_loss": found.held_out_loss, "converged": found.converged}
        if found.examination is not None:
            facts["examination"] = (found.examination / found.examination[0]).tolist()
    show(facts | {"output": str(output)}, json=json, title="Trained ranker")


@app.command()
def evaluate(
    ranker: Path = _Ranker,
    corpus: str = _Corpus,
    level: float = typer.Option(0.95, min=0.5, max=0.999, help="Of the intervals."),
    seed: int = typer.Option(0, help="Of the order of equal scores, and of resampled queries."),
    queries: int | None = _Queries,
    max_label: int | None = _MaxLabel,
    json: bool = Json,
) -> None:
    """nDCG@5, nDCG@10 and the average rank of relevant documents, with intervals by resampled queries.

    Queries whose documents all have the same label tell nothing, and are left out.
    """
    from clickshift.metrics.ranking import JudgedPairs, ranking_quality
    from clickshift.metrics.significance import bootstrap_interval
    from clickshift.ranking import load_ranker

    with warnings_shown(), progress("evaluating"):
        found, documents = load_ranker(ranker), _read(corpus, queries, max_label)
        judged = JudgedPairs.of(documents.vocabulary, documents.label.astype(float))
        quality = ranking_quality(found.scores(documents), judged, cutoffs=(5, 10), rng=seed)
        rows = []
        for name in ("nDCG@5", "nDCG@10", "ARP"):
            values = quality.per_query[name]
            values = values[values == values]  # a query without a relevant document has no ARP
            resamples = min(max(_RESAMPLED // max(len(values), 1), _FEWEST), _MOST)
            mean, low, high = bootstrap_interval(values, level, resamples=resamples, seed=seed)
            rows.append({"metric": name, "mean": mean, "low": low, "high": high, "queries": len(values)})
    left_out = documents.n_queries - judged.queries
    if json:
        show_json({"learner": found.learner, "level": level, "metrics": rows, "queries_left_out": left_out})
        return
    caption = f"{level:.0%} intervals by resampled queries; {left_out:,} queries of equal labels are left out."
    show_table(rows, title=f"{found.learner} on {corpus}", caption=caption)


@app.command()
def score(
    ranker: Path = _Ranker,
    features: str = typer.Argument(..., help="The documents to be ranked: a LETOR file, or a folder of them."),
    output: Path = typer.Option(..., "--output", "-o", help="Where the scores go: .parquet, .csv or .jsonl."),
    sparse: bool = typer.Option(
        False, "--sparse", help="Features beyond the highest number in the file are 0, not missing."
    ),
    max_label: int | None = _MaxLabel,
    json: bool = Json,
) -> None:
    """Scores of documents, each query's best first: a table with query, doc, score and rank.

    `clickshift ope` takes it as a target: what the ranker would earn, told from the log of another one.
    """
    import numpy as np
    import pyarrow as pa

    from clickshift.io.datasets.letor import read_corpus
    from clickshift.io.table_writer import table_ending, write_table
    from clickshift.ranking import load_ranker

    table_ending(output)
    with warnings_shown(), progress("scoring"):
        found = load_ranker(ranker)
        documents = read_corpus(features, features=found.n_features if sparse else None, max_label=max_label)
        scores = found.scores(documents)
        words = documents.vocabulary
        order = np.lexsort((-scores, words.pair_query))
        columns = {"query": words.query_ids[words.pair_query], "doc": words.doc_ids[words.pair_doc], "score": scores}
        raw = {k: v[order].astype(object) if v.dtype.kind == "T" else v[order] for k, v in columns.items()}
        raw["rank"] = np.arange(len(order)) - documents.offsets[:-1][words.pair_query] + 1
        write_table(pa.table(raw), output, notes={"ranker": str(ranker), "features": features})
    facts = {"learner": found.learner, "queries": documents.n_queries, "documents": documents.n_pairs}
    show(facts | {"output": str(output)}, json=json, title="Scores")


@app.command()
def export(
    ranker: Path = _Ranker,
    output: Path = typer.Argument(..., help="The file: .onnx for a network, .txt for trees (LightGBM's model text)."),
    json: bool = Json,
) -> None:
    """Hand a ranker on to other programs: features in, scores out."""
    from clickshift.ranking import load_ranker
    from clickshift.ranking.storage import export_ranker

    with warnings_shown():
        found = load_ranker(ranker)
        export_ranker(found, output)
    show({"learner": found.learner, "features": found.n_features, "output": str(output)}, json=json, title="Exported")


@app.command()
def labels(
    corpus: str = _Corpus,
    clicks: str = _Clicks,
    output: Path = typer.Option(
        ..., "--output", "-o", help="The file: .parquet, .csv or .jsonl, or .txt for LightGBM's own text."
    ),
    loss: str = typer.Option("ips", help="How clicks are corrected: ips, policy-aware or affine."),
    naive: bool = typer.Option(False, "--naive", help="Take clicks as they are, for LightGBM's own position bias."),
    propensities: Path | None = _Propensities,
    examination: str | None = _Examination,
    model: Path | None = _Model,
    trust: Path | None = _Trust,
    clip: float | None = typer.Option(None, help="The smallest propensity to divide by; by default, none."),
    queries: int | None = _Queries,
    max_label: int | None = _MaxLabel,
    json: bool = Json,
) -> None:
    """Corrected labels, weights and positions for LightGBM and XGBoost.

    LightGBM's rankers take `grade`, with the `label_gain` that is told; XGBoost's take `relevance`, with
    ndcg_exp_gain=False. Beside a .txt file stand .query, .weight, .position, which LightGBM finds, and .conf.
    """
    from clickshift.io.read_log import read_log
    from clickshift.ranking.labels import check_position_bias, count_by_rank
    from clickshift.ranking.lambdamart import BoostedRanker, boosting_data
    from clickshift.ranking.lightgbm_files import boosting_ending, write_boosting_data

    boosting_ending(output)
    learner = BoostedRanker(loss, "naive" if naive else "given", clip=clip)
    with warnings_shown(), progress("correcting labels"):
        documents, log = _read(corpus, queries, max_label), read_log(clicks)
        known = _known(propensities, examination, model, trust, log)
        check_position_bias(learner.loss, learner.bias, known["examination"], known["trust"])
        data = boosting_data(documents, count_by_rank(documents, log), learner.loss, clip=clip, **known)
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


def _learner(loss: str, bias: str | None, clip: float | None, seed: int | None) -> ClickRanker | BoostedRanker:
    """A loss by name with its options, or the text of a learner, which has its own."""
    from clickshift.core.spec import parse
    from clickshift.errors import SpecError
    from clickshift.ranking import RANKERS, BoostedRanker, ClickRanker

    chosen: dict[str, Any] = {"bias": bias, "clip": clip, "seed": seed}
    given = {name: value for name, value in chosen.items() if value is not None}
    if loss.partition("(")[0].strip() in RANKERS:
        if given:
            raise SpecError(f"options of a learner go into its text: write {loss.partition('(')[0]}(..., seed=1).")
        learner: ClickRanker | BoostedRanker = parse(loss, RANKERS)
        return learner
    return BoostedRanker(**given) if loss == "lambdamart" else ClickRanker(loss, **given)


def _read(name: str, queries: int | None, max_label: int | None) -> Corpus:
    from clickshift.data.builtin_corpus import builtin_corpus
    from clickshift.io.datasets.letor import read_corpus

    return builtin_corpus(queries or 1000) if name == "builtin" else read_corpus(name, max_label=max_label)


def _known(
    propensities: Path | None, examination: str | None, model: Path | None, trust: Path | None, log: Sessions
) -> dict[str, Any]:
    """What is known of users, from the one option that tells it."""
    from clickshift.errors import SpecError
    from clickshift.models.storage import load_model
    from clickshift.policies.derived.model_scores import examination as examination_of
    from clickshift.propensity.files import parse_examination, read_propensities, read_trust

    if sum(option is not None for option in (propensities, examination, model, trust)) > 1:
        raise SpecError("give one of --propensities, --examination, --model and --trust, not several.")
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
