"""The tables and figures of the papers by name: what each shows, and the protocol or command that reproduces it.

References
----------
Deffayet, R., Renders, J.-M. & de Rijke, M. (2022). Evaluating the robustness of click models to policy distributional
shift. ACM Transactions on Information Systems.
Deffayet, R., Hager, P., Renders, J.-M. & de Rijke, M. (2023). An offline metric for the debiasedness of click models.
SIGIR.
Hager, P., de Rijke, M. & Zoeter, O. (2022). Are neural click models pointwise IPS rankers? CONSEQUENCES+REVEAL workshop
at RecSys. (Later: Contrasting neural click models and pointwise IPS rankers. ECIR 2023.)
Li, S., Abbasi-Yadkori, Y., Kveton, B., Muthukrishnan, S., Vinay, V. & Wen, Z. (2018). Offline evaluation of ranking
policies with click models. KDD.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clickshift.core.progress import Progress, silent
from clickshift.display.document import Document, Section
from clickshift.display.result import Result
from clickshift.display.tables import Rows
from clickshift.errors import ClickshiftError, FileError, SpecError
from clickshift.experiments.click_vs_ips.checks import PointwiseChecks
from clickshift.experiments.click_vs_ips.data import ONE_HOT, ONE_HOT_TWICE, PointwiseData, pointwise_data
from clickshift.experiments.click_vs_ips.losses import GradientByRank, LossByRank, SharedFeatures
from clickshift.experiments.click_vs_ips.protocol import RANKERS_COMPARED, TRUE_BIAS_RANKERS, TWO_TOWERS, Pointwise
from clickshift.experiments.click_vs_ips.published import LARGEST_LOG
from clickshift.experiments.click_vs_ips.tuning import Tuning, tuned
from clickshift.experiments.experiment import Experiment, ExperimentResult, check_report, read_run
from clickshift.experiments.model_selection.as_published import as_published as selection_as_published
from clickshift.experiments.model_selection.protocol import MODELS_FROM_COUNTS, ModelSelection
from clickshift.experiments.models import CLICK_MODELS, PEEKING, TRUTH, Contender
from clickshift.experiments.off_policy_paper import OffPolicyFigure
from clickshift.experiments.policy_shift.as_published import as_published as shift_as_published
from clickshift.experiments.policy_shift.protocol import PolicyShift
from clickshift.experiments.policy_shift.published import PublishedTable
from clickshift.experiments.runner import RunFolder
from clickshift.simulation.search_engine import BUILTIN, World

SHIFT_PAPER = "policy shift (Deffayet et al. 2022)"
CMIP_PAPER = "CMIP (Deffayet et al. 2023)"
IPS_PAPER = "click models and IPS (Hager et al. 2022)"
OPE_PAPER = "offline evaluation (Li et al. 2018)"


_DCTR = Contender("dCTR", "dCTR", "baseline")
_INCREASING_RELEVANCE = (("increasing", "Reversed(Oracle)"),)


def section_6_1() -> PolicyShift:
    """Create the protocol of tables 3 and 4 of the policy-shift paper (section 6.1).

    Ten documents per query; training lists are near-optimal, test lists are sorted by increasing relevance. The reasons
    for satisfaction .5, temperature .5 and the ladder of grades are in docs/decisions/0004.

    Returns
    -------
    PolicyShift
        The protocol with DBN and CoCM users, without derived policies.
    """
    return PolicyShift(
        users=(("DBN", "DBN(satisfaction=0.5)"), ("CoCM", "CoCM")),
        training=(("PL-relevance", "PlackettLuce(Oracle, temperature=0.5, scores='log')"),),
        contenders=(TRUTH, _DCTR, *CLICK_MODELS[:5], PEEKING),
        world=World(testing=_INCREASING_RELEVANCE, documents=10),
        derived=None,
    )


def _with_users(protocol: PolicyShift, *names: str) -> PolicyShift:
    """Keep only the users of these names."""
    return replace(protocol, users=tuple(user for user in protocol.users if user[0] in names))


def _figure_2() -> PolicyShift:
    """Figure 2 of the policy-shift paper: derived policies on CoCM users, without baselines."""
    return _with_users(PolicyShift(contenders=(TRUTH, *CLICK_MODELS)), "CoCM", "CoCM-mismatch")


TrainedProtocol = Pointwise | Tuning | PointwiseChecks
"""Protocols of the IPS paper that train rankers."""


def _ips_figure_4() -> Pointwise:
    """Figure 4 of the IPS paper: nDCG by the rate of feature collisions."""
    return Pointwise(models=TRUE_BIAS_RANKERS, sessions=(LARGEST_LOG,), collisions=tuple(k / 10 for k in range(10)))


def _ips_figure_5() -> Pointwise:
    """Figure 5 of the IPS paper: nDCG by position bias. The paper uses Istella-S: pass its folder as the corpus."""
    return Pointwise(pointwise_data(BUILTIN), TRUE_BIAS_RANKERS, sessions=(LARGEST_LOG,), eta=(0.0, 0.5, 1.0, 1.5, 2.0))


def with_changes(
    protocol: TrainedProtocol,
    *,
    corpus: str | None = None,
    queries: int | None = None,
    sessions: int | None = None,
    seeds: int | None = None,
    tuning: Sequence[Mapping[str, Any]] | None = None,
    as_published: bool = False,
) -> TrainedProtocol:
    """Change the data or the size of a protocol of the IPS paper; what is not given stays as it is.

    Parameters
    ----------
    protocol
        The protocol to change.
    corpus
        "builtin", "one-hot" (the paper's synthetic data set), or a LETOR file or folder.
    queries
        Number of queries of the corpus.
    sessions
        Number of sessions of a log. Where the protocol has several sizes, this is the largest, and smaller ones are
        kept.
    seeds
        Number of seeds.
    tuning
        Rows of a finished hyperparameter search, from which each ranker's optimiser and learning rate are taken.
    as_published
        Whether to train as the authors' code does, on the one-hot set with two copies of each document.

    Returns
    -------
    Pointwise or Tuning or PointwiseChecks
        The changed protocol.

    Raises
    ------
    SpecError
        If `tuning` is given for a protocol whose rankers cannot be tuned ("bad-option").
    """
    data: PointwiseData = protocol.data if corpus is None else pointwise_data(corpus)
    if as_published and data.content == ONE_HOT and corpus is None:
        data = replace(data, content=ONE_HOT_TWICE, corpus=ONE_HOT_TWICE)
    data = replace(data, queries=queries or data.queries, as_published=as_published)
    seeds = seeds or protocol.seeds
    if not isinstance(protocol, Pointwise):
        if tuning is not None:
            raise SpecError(
                "tuned rankers can be used only for figures 1, 4 and 5 and table 2 of the IPS paper: this is another "
                f"protocol ({type(protocol).__name__}). Leave out the tuning.",
                code="bad-option",
                option="tuning",
            )
        return replace(protocol, data=data, seeds=seeds, sessions=sessions or protocol.sessions)
    sizes = protocol.sessions
    if sessions is not None:
        sizes = (*(size for size in sizes if size < sessions), sessions) if len(sizes) > 1 else (sessions,)
    models = protocol.models if tuning is None else tuned(protocol.models, tuning, data=data.name)
    return replace(protocol, data=data, models=models, seeds=seeds, sessions=sizes)


@dataclass(frozen=True)
class TableOrFigure:
    """A table or figure of a paper, and how to reproduce it.

    Parameters
    ----------
    paper
        Short name of the paper.
    shows
        What the table or figure shows, in a few words.
    make
        Creates the protocol that reproduces it; None if that needs a log of one's own, or is not implemented.
    command
        Command that reproduces it from a log of one's own.
    needs
        What is needed for that: paragraphs, separated by empty lines.
    takes
        How long it takes: CPU time on one core, measured with the default settings, or a class.
    published
        Where the published numbers are shown: "numbers" (beside ours), "numbers, IPS sets" (only for the data sets of
        the IPS paper), "statements" (on a figure without printed numbers), "as printed" (without ours), or "" if the
        paper has none, or they are not shown.
    run
        Name of the folder of its run, where several tables have the same one; by default, its own name.
    """

    paper: str
    shows: str
    make: Callable[[], Experiment[Any]] | None = None
    command: str = ""
    needs: str = ""
    takes: str = "depends on your log"
    published: str = ""
    run: str = ""

    @property
    def state(self) -> str:
        """Whether it can be reproduced: "ready", "needs your log" or "open" (not implemented)."""
        return "ready" if self.make else "needs your log" if self.command else "open"


_YANDEX = (
    "clickshift shift logs --format yandex-wscd --train CLICKS --judgments LABELS --annotated --with-clicks "
    "--merge-regions --gradient -o out/yandex"
)
_NEEDS_YANDEX = """The log of the Yandex relevance prediction challenge (WSCD 2012), which Yandex gave out: CLICKS is
its log of queries and clicks, LABELS its file of labels. Both may be compressed.

The options are the paper's steps: --annotated keeps the queries with labels, --with-clicks drops pages without clicks,
--merge-regions ignores the region, as the authors' parser does (without it, a query is a query in a region). The split
is chronological, with 1/30 each for early stopping and for the test; ten seeds. The paper has 4,991 queries and 255,467
documents after these steps: the command prints both numbers. --gradient trains PBM, UBM and DBN as the paper does;
without it they are fitted by maximum likelihood, in minutes instead of hours."""
_CLARA = "clickshift shift logs --train LOG --judgments QRELS --annotated --with-clicks --held-out 0.05 -o out/log"
_NEEDS_CLARA = """The CLARA log of the search engine Naver is proprietary: nobody but its owner can compute this table.
The command makes the same table from any log with labels, e.g. your own, with the paper's steps for CLARA: annotated
queries, pages with clicks, and a chronological split with 1/20 each for early stopping and for the test."""


def _log_table(shows: str, command: str, needs: str) -> TableOrFigure:
    """Return a table of the policy-shift paper that needs a log of one's own."""
    return TableOrFigure(SHIFT_PAPER, shows, command=command, needs=needs, published="as printed")


_BESIDE, _IPS_SETS, _STATEMENTS = "numbers", "numbers, IPS sets", "statements"

TABLES_AND_FIGURES = {
    "table1": _log_table("CLARA: perplexity and nDCG of all models", _CLARA, _NEEDS_CLARA),
    "table2": _log_table("Yandex: perplexity and nDCG of all models", _YANDEX, _NEEDS_YANDEX),
    "table3": TableOrFigure(
        SHIFT_PAPER,
        "ind and ood perplexity, DBN users",
        lambda: _with_users(section_6_1(), "DBN"),
        takes="7 s (shipped rows)",
        published=_BESIDE,
    ),
    "table4": TableOrFigure(
        SHIFT_PAPER,
        "ind and ood perplexity, CoCM users",
        lambda: _with_users(section_6_1(), "CoCM"),
        takes="7 s (shipped rows)",
        published=_BESIDE,
    ),
    "table5": _log_table("table 1 with intervals", _CLARA, _NEEDS_CLARA),
    "table6": _log_table("table 2 with intervals", _YANDEX, _NEEDS_YANDEX),
    "table7": _log_table("CLARA: AUROC and Recall", _CLARA, _NEEDS_CLARA),
    "table8": _log_table("Yandex: AUROC and Recall", _YANDEX, _NEEDS_YANDEX),
    "figure1": TableOrFigure(
        SHIFT_PAPER,
        "spider charts of normalised perplexity",
        PolicyShift,
        takes="12 s (shipped rows)",
        published=_STATEMENTS,
    ),
    "figure2": TableOrFigure(
        SHIFT_PAPER,
        "clicks of Top-Down and Max-Reward policies",
        _figure_2,
        takes="11 s (shipped rows)",
        published=_STATEMENTS,
    ),
    "cmip-table1": TableOrFigure(
        CMIP_PAPER,
        "which metrics predict ood perplexity",
        ModelSelection,
        takes="days; cmip-counts: seconds",
        run="cmip",
    ),
    "cmip-table2": TableOrFigure(
        CMIP_PAPER,
        "regret of choosing a click model",
        ModelSelection,
        takes="days, as cmip-table1",
        published=_BESIDE,
        run="cmip",
    ),
    "cmip-counts": TableOrFigure(
        CMIP_PAPER,
        "both tables for the five models from counts, seven seeds",
        lambda: ModelSelection(contenders=MODELS_FROM_COUNTS, seeds=7),
        takes="6 s (shipped rows)",
        published=_BESIDE,
    ),
    "ips-figure1": TableOrFigure(
        IPS_PAPER, "nDCG of click models and IPS rankers by sessions", Pointwise, takes="140 s", published=_IPS_SETS
    ),
    "ips-figure2": TableOrFigure(
        IPS_PAPER, "losses of two documents with the same features", SharedFeatures, takes="6 s"
    ),
    "ips-figure3": TableOrFigure(IPS_PAPER, "losses of a document by its rank", LossByRank, takes="6 s"),
    "ips-figure4": TableOrFigure(
        IPS_PAPER, "nDCG when features collide", _ips_figure_4, takes="90 s", published=_BESIDE
    ),
    "ips-figure5": TableOrFigure(
        IPS_PAPER, "nDCG by the strength of the position bias", _ips_figure_5, takes="hours", published=_IPS_SETS
    ),
    "ips-table2": TableOrFigure(
        IPS_PAPER,
        "rankers after 100 million sessions",
        lambda: Pointwise(sessions=(LARGEST_LOG,)),
        takes="30 s",
        published=_IPS_SETS,
    ),
    "ips-two-towers": TableOrFigure(
        IPS_PAPER,
        "table 2 with an additive two-tower model (not in the paper)",
        lambda: Pointwise(models=(*RANKERS_COMPARED, TWO_TOWERS), sessions=(LARGEST_LOG,)),
        takes="40 s",
        published=_IPS_SETS,
    ),
    "ips-gradients": TableOrFigure(IPS_PAPER, "gradients by rank (section 4.2)", GradientByRank, takes="8 s"),
    "ips-tuning": TableOrFigure(
        IPS_PAPER,
        "choice of optimisers and rates (appendix C.2)",
        lambda: Tuning(pointwise_data(BUILTIN)),
        takes="hours; --corpus one-hot: 3 min",
        published=_IPS_SETS,
    ),
    "ips-checks": TableOrFigure(
        IPS_PAPER,
        "training on counts equals training on sessions; both naive rankers coincide",
        PointwiseChecks,
        takes="20 s",
    ),
    "ope-figure1": TableOrFigure(
        OPE_PAPER,
        "errors on one query by clipping constant",
        lambda: OffPolicyFigure(1),
        takes="18 s",
        published=_BESIDE,
    ),
    "ope-figure2": TableOrFigure(
        OPE_PAPER, "errors on the most frequent queries", lambda: OffPolicyFigure(2), takes="17 s", published=_BESIDE
    ),
    "ope-figure3": TableOrFigure(
        OPE_PAPER, "errors on less frequent queries", lambda: OffPolicyFigure(3), takes="18 s", published=_BESIDE
    ),
    "ope-figure4": TableOrFigure(
        OPE_PAPER, "errors for clicks at all ranks", lambda: OffPolicyFigure(4), takes="11 s", published=_BESIDE
    ),
    "ope-figure5": TableOrFigure(
        OPE_PAPER, "clicks of one query by day", lambda: OffPolicyFigure(5), takes="10 s", published=_BESIDE
    ),
}
"""Tables and figures by name."""


def table_or_figure(name: str) -> TableOrFigure:
    """Find a table or figure of the papers by name.

    Parameters
    ----------
    name
        Key of `TABLES_AND_FIGURES`, e.g. "table3".

    Returns
    -------
    TableOrFigure
        What it shows, and how to reproduce it.

    Raises
    ------
    SpecError
        If there is none of that name ("unknown-name").

    Examples
    --------
    >>> table_or_figure("table3").shows
    'ind and ood perplexity, DBN users'
    """
    if name not in TABLES_AND_FIGURES:
        raise SpecError(
            f"{name!r} is not a table or figure of the papers. Choose one of: {', '.join(TABLES_AND_FIGURES)}.",
            code="unknown-name",
            name=name,
            known=list(TABLES_AND_FIGURES),
        )
    return TABLES_AND_FIGURES[name]


@dataclass(frozen=True, repr=False)
class PaperIndex(Result):
    """The tables and figures of the papers, and how each is reproduced.

    Notes
    -----
    Facts (`to_dict`, `--json`): `conclusion`; `rows`, one per table or figure: `name`, `paper`, `shows`, `state`
    ("ready", "needs your log" or "open"), `takes` (CPU time of one core, or a class), `published` (where the published
    numbers are shown: "numbers" beside ours, "as printed", or None) and `command`, if it needs a log.
    """

    @property
    def conclusion(self) -> str:
        """How many can be made without a log of one's own."""
        ready = sum(one.state == "ready" for one in TABLES_AND_FIGURES.values())
        return f"{ready} of {len(TABLES_AND_FIGURES)} tables and figures can be made without a log of your own."

    def rows(self) -> Rows:
        """Return one row per table or figure."""
        return [
            {
                "name": name,
                "paper": one.paper,
                "shows": one.shows,
                "state": one.state,
                "takes": one.takes,
                "published": one.published or None,
                "command": one.command or None,
            }
            for name, one in TABLES_AND_FIGURES.items()
        ]

    def _document(self) -> Document:
        title = "Tables and figures of the papers"
        table = [{key: value for key, value in row.items() if key != "command"} for row in self.rows()]
        caption = "Time: CPU time on one core. What needs your log: `clickshift reproduce NAME` prints the command."
        return Document(title, self.conclusion, [Section(title, table=table, caption=caption)])


def tables_and_figures() -> PaperIndex:
    """List the tables and figures of the papers that `reproduce` can make.

    Returns
    -------
    PaperIndex
        One row per table or figure.

    Examples
    --------
    >>> tables_and_figures().rows()[0]["name"]
    'table1'
    """
    return PaperIndex()


def reproduce(
    name: str,
    output: str | Path | None = None,
    *,
    corpus: str | None = None,
    seeds: int | None = None,
    queries: int | None = None,
    sessions: int | None = None,
    tuned: str | Path | None = None,
    as_published: bool = False,
    reference: bool = True,
    workers: int | None = None,
    cluster: str | None = None,
    progress: Progress = silent,
) -> ExperimentResult:
    """Make a table or figure of the papers; what is None stays as the paper has it.

    A table that needs a log of one's own is returned as the paper printed it, with the command for one's log.

    Parameters
    ----------
    name
        Table or figure, e.g. "table3" or "figure1"; `tables_and_figures` lists all of them.
    output
        Folder that keeps the rows of finished tasks: after an interruption, call again, and only the missing ones run.
        By default, a temporary folder.
    corpus
        "builtin", "one-hot" (the IPS paper's corpus), or a LETOR file or folder.
    seeds
        Number of models per task, or of runs.
    queries
        Number of queries of the corpus.
    sessions
        Largest number of sessions of a training log.
    tuned
        Folder of an "ips-tuning" run, whose optimisers and learning rates are used for rankers of the IPS paper.
    as_published
        Whether models are trained as in the authors' code, to see where differences come from. IPS paper: every query
        has weight 1, the last round is kept instead of the best, the production ranker ranks its own training queries,
        too, and documents of the one-hot set are in two queries each. Policy-shift paper: CoCM users, examination of
        PBM and UBM, learning rate, batches and the search for Max-Reward are those of the code. CMIP paper: DBN users
        and the placement of lists are, and PBM, UBM and DBN are trained by gradient. Tables of the off-policy paper
        train no model, and show its printed bound beside the corrected one.
    reference
        Whether to use the reference rows that come with the package, where they apply.
    workers
        Number of worker processes; by default, one per core. With 0, the tasks run in this process.
    cluster
        Address of a Dask cluster to run on instead of this machine, e.g. "tcp://host:8786".
    progress
        Called with a line and a step for each finished task, and with texts on how far running tasks are.

    Returns
    -------
    PolicyShiftResult, ModelSelectionResult, ClickVsIpsResult or PublishedTable
        The result of the experiment, or the published table. A task that fails is among its `failures`.

    Raises
    ------
    SpecError
        If there is none of that name ("unknown-name"), it needs a log of one's own ("cannot-reproduce"), or an option
        is not for it ("bad-option").
    FileError
        "missing-run" if `tuned` holds no tuning run, "other-report" if the folder holds the report of something else.
    RunError
        "failed-tasks" if no task could be finished.

    Examples
    --------
    >>> reproduce("ips-figure3").conclusion
    "Both losses have their minimum at the document's relevance at every rank."
    """
    wanted = table_or_figure(name)
    options = {"corpus": corpus, "seeds": seeds, "queries": queries, "sessions": sessions, "tuned": tuned}
    given = [option for option, value in options.items() if value is not None] + ["as_published"] * as_published
    if wanted.published == "as printed":
        if given:
            raise _option_error(given[0], f"does not apply: {name} needs a log of your own, and is shown as printed")
        if output is not None and (Path(output) / "run.json").exists():
            check_report(RunFolder(Path(output)), name, PublishedTable.__name__)
        return PublishedTable.of(name, shows=wanted.shows, command=wanted.command, needs=wanted.needs)
    if wanted.make is None:
        advice = f"Run it on your log: {wanted.command}" if wanted.command else "It is not implemented yet."
        raise SpecError(
            f"{name} cannot be made by this command: {wanted.state}. {advice}",
            code="cannot-reproduce",
            name=name,
            command=wanted.command,
        )
    protocol = wanted.make()
    of_ips, with_models = isinstance(protocol, TrainedProtocol), isinstance(protocol, PolicyShift | ModelSelection)
    for option in given:
        if not (of_ips or (with_models and option != "tuned")):
            papers = "the IPS paper" if option == "tuned" else "the IPS, the CMIP and the policy-shift paper"
            raise _option_error(option, f"is for tables and figures of {papers} that train models: {name} is not")
    if isinstance(protocol, TrainedProtocol):
        tuning = None if tuned is None else _tuning_rows(Path(tuned))
        protocol = with_changes(
            protocol,
            corpus=corpus,
            queries=queries,
            sessions=sessions,
            seeds=seeds,
            tuning=tuning,
            as_published=as_published,
        )
    elif isinstance(protocol, PolicyShift | ModelSelection):
        others = None if sessions is None or isinstance(protocol, PolicyShift) else max(sessions // 5, 1)
        sizes = {"queries": queries, "sessions": sessions, "held_out_sessions": others, "test_sessions": others}
        changed: dict[str, Any] = {option: size for option, size in sizes.items() if size is not None}
        changes: dict[str, Any] = {"world": replace(protocol.world, **changed).on_corpus(corpus or BUILTIN)}
        protocol = replace(protocol, **changes, seeds=seeds or protocol.seeds)
    if as_published and isinstance(protocol, PolicyShift):
        protocol = shift_as_published(protocol)
    elif as_published and isinstance(protocol, ModelSelection):
        protocol = selection_as_published(protocol)
    shipped = reference and isinstance(protocol, PolicyShift | ModelSelection)
    return protocol.run(
        output,
        reference=shipped,
        workers=workers,
        cluster=cluster,
        progress=progress,
        table=wanted.run or name,
    )


def _option_error(option: str, why: str) -> SpecError:
    """Return the error of an option that a table or figure does not take."""
    return SpecError(f"`{option}` {why}. Remove it.", code="bad-option", option=option)


def _tuning_rows(folder: Path) -> Rows:
    """Read the rows of an ips-tuning run."""
    try:
        rows: Rows = read_run(folder).rows()
    except ClickshiftError as error:
        raise FileError(
            folder,
            f'must be the folder of a tuning run, which reproduce("ips-tuning", folder) makes. ({error})',
            code="missing-run",
        ) from None
    return rows
