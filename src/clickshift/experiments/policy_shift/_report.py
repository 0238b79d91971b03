"""The result of the policy-shift protocol: verdicts, tables and figures from tidy rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from clickshift.display.document import Document, Section
from clickshift.display.tables import Row, Rows
from clickshift.experiments._protocol_settings import few_seeds_note, shown_settings, simulated_data_line
from clickshift.experiments.experiment import ExperimentResult
from clickshift.experiments.policy_shift._claims import Claim
from clickshift.experiments.policy_shift._report_claims import (
    claims_conclusion,
    claims_sections,
    claims_title,
    claims_verdict,
    clicks_sentence,
    figure_claims,
)
from clickshift.experiments.policy_shift._report_derived import policy_figures
from clickshift.experiments.policy_shift._report_excess import (
    excess_figure,
    excess_perplexity,
    excess_table,
    recommendation,
)
from clickshift.experiments.policy_shift._report_loss import loss_figure, loss_table, mean_losses
from clickshift.experiments.policy_shift._report_robustness import (
    LogName,
    oracle_gap_figure,
    rows_by_log,
    rows_of_kind,
)
from clickshift.experiments.policy_shift._report_spider import spider_figures, spider_sheet
from clickshift.experiments.policy_shift._report_tables import (
    nppl_table,
    perplexity_tables,
    policy_tables,
    ranking_notes,
    ranking_tables,
    robustness_table,
)
from clickshift.experiments.policy_shift._report_verdicts import (
    difference_figure,
    impossible_models,
    shift_summary,
    shift_verdicts,
    verdict_table,
    without_impossible_models,
)
from clickshift.experiments.policy_shift.published import published_conclusion, published_sections, published_verdict
from clickshift.simulation.search_engine import BUILTIN

TITLE = "Policy shift: are click models robust when the ranker changes?"
_TERMINAL_LOGS = 3
"""Number of logs whose tables are shown on a terminal; the page has all."""
_TERMINAL_NOTE = f"A terminal shows the first {_TERMINAL_LOGS} logs."

_HOW_VERDICTS = """Each click model learned from a log that one ranker ordered, and predicted clicks on lists of other
rankers. Its standing is its normalised perplexity (nPPL): .2 for the best of the click models on a log, .893 for the
worst. The change is the mean of nPPL on the new ranker's lists (ood) minus that on lists of the old one (ind): below 0,
the model is more robust than its peers. A change within its 95 % interval is no change beyond chance."""
_HOW_EVIDENCE = """What the verdict of each model rests on, how far the model is from the best possible, what its own
ranking would earn, and what would change the verdict."""
_HOW_EXCESS = """The heat map has a column for each model, the best first, and for the best of the baselines, and a row
for each change of ranker, from that of the training log in the heading to the one after the arrow. White is as good as
the user's own model."""
_CAPTION_EXCESS = """Perplexity above that of the user's own model, which no model can beat except by chance. Lower is
better; ± is the 95 % interval over seeds."""
_HOW_SPIDERS = """One spoke per change of ranker: the outer labels name the ranker of the training log, the inner labels
that of the test log, and the background colour the users who clicked. The centre is the best click model on a log, the
edge the worst. Where the solid line (new ranker) is inside the dashed line (same ranker), the model is more robust than
its peers. Shaded: 95 % confidence intervals over seeds."""
_HOW_ROBUSTNESS = """Number of changes of ranker in which ood nPPL is below ind nPPL ("more robust") or above it ("less
robust"), and how many of these differences are significant over seeds (95 %, paired). A difference below 0 is good. A
model that is the best on both logs has no difference."""
_HOW_LOSS = """For PBM and UBM, and for DBN with DBN users, the simulated users' own parameters are known: fitted
examination and attractiveness are exchanged for the true ones, and what an exchange saves is the loss of that part.
What is left with both is the loss of the model's structure: no amount of data reduces it. Means over the lists of other
rankers, first seed."""
_HOW_ORACLE = """Perplexity above that of the user's own model, which no model can beat except by chance. Lower is
better. nPPL ranks the models; this chart shows how large the differences are."""
_HOW_POLICIES = """Top-Down ranks documents by the model's relevance. Max-Reward is the ranking with the most clicks
according to the model. Above: expected clicks per list under the user, on an axis that does not start at 0, so that
differences between the policies are seen. Below: clicks that the model predicted beyond these, the optimiser's curse. A
Max-Reward below Top-Down is a sign of a poorly robust model. The paper's figure 2 has clicks per document, from .066 to
.092: ours divided by ten."""
_HOW_GAINS = """Expected clicks per list, with 95 % confidence intervals over seeds. Gain: Max-Reward minus Top-Down.
Curse: clicks that the model predicted for Max-Reward minus expected clicks under the user. Bold: the best. "=": not
significantly worse."""
_HOW_RANKING = """Bold: the best. "=": not significantly worse than the best (Welch's t-test, 95 %, not corrected for
multiple comparisons). "†": a click model not significantly worse than the model that peeks at clicks. Higher is better,
except for ARP, the average rank of relevant documents. The oracle and the logging policy are not compared."""
_HOW_PERPLEXITY = """Conditional perplexity with 95 % confidence intervals over seeds; lower is better. Bold: the best.
"=": not significantly worse than the best (Welch's t-test, 95 %). In brackets: a model that peeks at the click it
predicts, not compared. The oracle, the user's own model, is a lower bound except for chance."""
_HOW_OTHER = """Perplexity of single clicks, not conditional on the clicks above (marginal), and AUROC: the probability
that a clicked result has a higher predicted click probability than one without a click."""
_HOW_NPPL = """From .2, the best click model on a log, to .893, the worst. Bold: ood below ind of the same users and
training policy."""


@dataclass(frozen=True, repr=False)
class PolicyShiftResult(ExperimentResult):
    """How well click models predict clicks when the ranker changes.

    Parameters
    ----------
    task_rows
        Tidy rows of the finished tasks.
    settings
        Settings of the run, which end the page.
    failures
        Messages of the tasks that failed; the other tasks are in the rows.
    shows
        Name of the paper's figure that comes first on the page, e.g. "figure1"; by default the heat map.

    Notes
    -----
    Facts (`to_dict`, `--json`):

    - `conclusion`: the model to use with its expected loss under a new ranker, and the next best; without an oracle,
      the models by verdict. For a table or figure of the paper, how much of it agrees comes first.
    - `verdicts`: one per click model: `model`, `verdict` (a few words), `sentence` (its reason) and `text` (up to four
      lines). A model that predicts better than is possible is not compared with the others.
    - `rows`: tidy rows with `user`, `training`, `model`, `role` and `kind`. Rows of kind "clicks" have `testing`,
      `shift` ("ind" or "ood"), `seed`, `perplexity`, `marginal_perplexity`, `auroc`, `log_likelihood` and the metrics
      by rank; rows of kind "ranking" have nDCG, Recall and the like by judged documents; rows of kind "policy" have
      `policy`, `expected_clicks`, `predicted_clicks` and `curse`; rows of kind "check" have `peeks` and `above_oracle`;
      rows of kind "loss" have `testing`, and split the perplexity above the users' own model (`excess`) into
      `examination`, `attractiveness` and `structure`, for the models and users that allow it.
    - `failures`: messages of the tasks that failed.
    """

    shows: str = ""

    @cached_property
    def verdicts(self) -> list[dict[str, str]]:
        """Verdict of each click model, candidates first: `model`, `verdict`, `sentence` and `text`."""
        return shift_verdicts(self.task_rows)

    def _answer(self) -> str:
        warning = " ".join(f"Warning: {why}" for why in impossible_models(self.task_rows).values())
        best = recommendation(excess_perplexity(self._compared)) or shift_summary(self.verdicts)
        answer = published_conclusion(self._compared, self.settings.get("corpus", BUILTIN)) or best
        if self._claims:
            detail = clicks_sentence(self._compared) if self.shows == "figure2" else best
            answer = f"{claims_conclusion(self._claims, self.shows)}\n\n{detail}"
        seeds = {row.get("seed", 0) for row in rows_of_kind(self.task_rows, "clicks")}
        return "\n\n".join(filter(None, (warning, answer, few_seeds_note(len(seeds)))))

    @cached_property
    def _compared(self) -> list[Row]:
        """Rows in which models that predict better than is possible are not compared."""
        return without_impossible_models(self.task_rows)

    @cached_property
    def _claims(self) -> list[Claim]:
        """Statements of the paper on the figure that was asked for; none if the rows lack a part of it."""
        return figure_claims(self._compared, self.shows)

    def facts(self) -> Mapping[str, Any]:
        """Return the conclusion, verdicts, rows and failures."""
        return {**super().facts(), "verdicts": self.verdicts}

    def _document(self) -> Document:
        rows, corpus = self._compared, self.settings.get("corpus", BUILTIN)
        published = published_sections(rows, corpus)
        sections = published + shift_sections(rows, self.verdicts)
        named = {section.name: section for section in sections if section.figure is not None or section.parts}
        first = next((named[name] for name in (_HEADLINES.get(self.shows), *_FIRST) if name in named), None)
        headline = first if first is not None and first.figure is not None else None
        if first is not None and headline is None:  # several charts are a section
            statements = claims_sections(rows, self._claims, self.shows)
            sections = [first, *statements, *(section for section in sections if section is not first)]
        title = TITLE if not published else f"{published[0].title}: ind and ood perplexity"
        return Document(
            claims_title(self.shows) if self._claims else title,
            self.conclusion,
            [section for section in sections if section is not headline],
            shown_settings(self.settings),
            verdict=published_verdict(rows, corpus) or claims_verdict(self._claims) or self._verdict,
            data=simulated_data_line(rows_of_kind(rows, "clicks"), self.settings),
            headline=None if headline is None else replace(headline, page_only=False),
        )

    @property
    def _verdict(self) -> str:
        """Whether a click model can be recommended without reservation; empty without an oracle."""
        excess = excess_perplexity(self._compared)
        if not recommendation(excess):
            return ""
        return "weak" if impossible_models(self.task_rows) or excess[0].role == "baseline" else "usable"


_HEADLINES = {"figure1": "spiders", "figure2": "policies"}
"""Name of the section that comes first for a figure of the paper."""
_FIRST = ("table3", "table4", "excess", "robustness")
"""Names of the sections of which the first one that there is comes first."""


def shift_sections(rows: Sequence[Row], verdicts: Sequence[Mapping[str, str]]) -> list[Section]:
    """Make the sections of the report; sections without content are left out.

    With an oracle, the distance from it comes first, as a heat map and as the table that a terminal shows.

    Parameters
    ----------
    rows
        Rows of the finished tasks.
    verdicts
        What `shift_verdicts` returns.

    Returns
    -------
    list of Section
        Figures, tables and text.
    """
    robustness, nppl = robustness_table(rows), nppl_table(rows)
    perplexity, policies = perplexity_tables(rows), policy_tables(rows)
    charts = spider_figures(rows)
    spiders = [Section(name, figure=f, name=f"robustness {name}") for name, f in charts.items()]
    excess, losses = excess_perplexity(rows), mean_losses(rows_of_kind(rows, "loss"))
    other = [
        section
        for metric in ("marginal_perplexity", "auroc")
        for section in _table_sections(metric.replace("_", " "), perplexity_tables(rows, metric), titled=True)
    ]
    sections = [
        Section(
            "Perplexity above the user's own model",
            table=excess_table(excess, verdicts),
            figure=partial(excess_figure, excess) if excess else None,
            explanation=_HOW_EXCESS,
            caption=" ".join(_CAPTION_EXCESS.split()),
            name="excess",
        ),
        Section(
            "Verdicts",
            table=verdict_table(rows, verdicts),
            explanation=_HOW_VERDICTS,
            page_only=bool(excess),
            name="verdicts",
        ),
        Section("Robustness of predictions", parts=spiders, explanation=_HOW_SPIDERS, page_only=True, name="spiders"),
        Section("Figure 1 on one sheet", figure=spider_sheet(charts), name="figure 1", file_only=True),
        Section(
            "Where the loss comes from",
            table=loss_table(losses),
            figure=partial(loss_figure, losses) if losses else None,
            explanation=_HOW_LOSS,
            page_only=True,
            name="loss sources",
        ),
        Section("Evidence for the verdicts", parts=_verdict_sections(verdicts), explanation=_HOW_EVIDENCE, **_ASIDE),
        Section(
            "Robustness in numbers",
            table=robustness,
            figure=partial(difference_figure, rows) if robustness else None,
            name="robustness",
            explanation=_HOW_ROBUSTNESS,
            page_only=bool(excess),
        ),
        Section(
            "Distance from the oracle",
            parts=_figure_sections("oracle", _oracle_figures(rows)),
            explanation=_HOW_ORACLE,
            page_only=True,
        ),
        Section(
            "Derived policies",
            parts=_figure_sections("policies", policy_figures(rows)),
            explanation=_HOW_POLICIES,
            page_only=True,
            name="policies",
        ),
        Section(
            "Clicks of derived policies",
            _TERMINAL_NOTE if not excess and len(policies) > _TERMINAL_LOGS else "",
            parts=_table_sections("policies", policies),
            explanation=_HOW_GAINS,
            page_only=bool(excess),
            folded=True,
        ),
        Section("Relevance", parts=_ranking_sections(rows), explanation=_HOW_RANKING, **_ASIDE),
        Section(
            "Perplexity",
            _TERMINAL_NOTE if not excess and len(perplexity) > _TERMINAL_LOGS else "",
            parts=_table_sections("perplexity", perplexity),
            explanation=_HOW_PERPLEXITY,
            page_only=bool(excess) and len(perplexity) > 1,
            folded=bool(excess),
        ),
        Section(
            "Normalised perplexity", table=nppl if robustness else (), name="nppl", explanation=_HOW_NPPL, **_ASIDE
        ),
        Section("Other metrics of click prediction", parts=other, explanation=_HOW_OTHER, **_ASIDE),
    ]
    return [section for section in sections if section.parts or section.table or section.figure is not None]


_ASIDE: Mapping[str, Any] = {"page_only": True, "folded": True}
"""Sections that a page folds and a terminal leaves out."""


def _ranking_sections(rows: Sequence[Row]) -> list[Section]:
    """One section per training log, with the ranking metrics."""
    return _table_sections("ranking", ranking_tables(rows), ranking_notes(rows))


def _verdict_sections(verdicts: Sequence[Mapping[str, str]]) -> list[Section]:
    """One section per model, with its verdict."""
    return [
        Section(f"{verdict['model']}: {verdict['verdict']}", verdict["text"].replace("\n", "\n\n"))
        for verdict in verdicts
    ]


def _figure_sections(kind: str, figures: Mapping[LogName, Any]) -> list[Section]:
    """One section per training log, with its figure."""
    return [Section(str(log), figure=figure, name=_file_name(kind, log)) for log, figure in figures.items()]


def _table_sections(
    kind: str, tables: Mapping[LogName, Rows], notes: Mapping[LogName, str] | None = None, *, titled: bool = False
) -> list[Section]:
    """One section per training log, with its table and note; a terminal shows the first ones."""
    return [
        Section(
            f"{kind.capitalize()}: {log}" if titled else str(log),
            (notes or {}).get(log, ""),
            table,
            name=_file_name(kind, log),
            page_only=number >= _TERMINAL_LOGS,
        )
        for number, (log, table) in enumerate(tables.items())
        if table
    ]


def _oracle_figures(rows: Sequence[Row]) -> dict[LogName, Any]:
    """Charts of the distance from the oracle, by training log."""
    figures = {log: oracle_gap_figure(group) for log, group in rows_by_log(rows_of_kind(rows, "clicks")).items()}
    return {log: figure for log, figure in figures.items() if figure is not None}


def _file_name(kind: str, log: LogName) -> str:
    """Return the name of the file of a table or figure of one training log."""
    return " ".join(filter(None, (kind, *log)))
