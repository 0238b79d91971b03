"""The result of the policy-shift protocol: verdicts, tables and figures from tidy rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from clickshift.display.document import Document, Section
from clickshift.display.tables import Row, Rows
from clickshift.experiments.experiment import ExperimentResult
from clickshift.experiments.policy_shift._report_derived import policy_figures
from clickshift.experiments.policy_shift._report_excess import (
    excess_figure,
    excess_perplexity,
    excess_table,
    recommendation,
)
from clickshift.experiments.policy_shift._report_robustness import LogName, oracle_gap_figure, rows_by_log, rows_of_kind
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
    impossible_models,
    shift_summary,
    shift_verdicts,
    without_impossible_models,
)
from clickshift.experiments.policy_shift.published import published_sections
from clickshift.simulation.search_engine import BUILTIN

TITLE = "Policy shift: are click models robust when the ranker changes?"
_TERMINAL_LOGS = 3
"""Number of logs whose tables are shown on a terminal; the page has all."""
_TERMINAL_NOTE = f"A terminal shows the first {_TERMINAL_LOGS} logs."

_HOW_VERDICTS = """Each click model learned from a log that one policy ranked, and predicted clicks on lists of other
policies. A model is more robust than its peers if its normalised perplexity on another policy's lists (ood nPPL) is
below that on its own policy's lists (ind nPPL)."""
_HOW_EXCESS = """Perplexity above that of the user's own model, which no model can beat except by chance. Models are
sorted by their mean, the best first. A row of the chart is a change of policy, from the training log in the heading to
the lists of the policy after the arrow. White is as good as the user's own model."""
_CAPTION_EXCESS = "Lower is better; ± is the 95 % interval over seeds."
_HOW_SPIDERS = """One spoke per change of policy: the outer circle of labels names the policy that ranked the training
log, the inner circle the policy that ranked the test log, and the background colour the user who clicked. The centre is
the best click model on a log, the edge the worst (nPPL, eq. 16 of the policy-shift paper). Where the solid line (ood)
is inside the dashed line (ind), the model is more robust than its peers. Shaded: 95 % confidence intervals over
seeds."""
_HOW_ROBUSTNESS = """Number of shifts in which ood nPPL is below ind nPPL ("more robust") or above it ("less robust"),
and how many of these differences are significant over seeds (95 %, paired). A difference below 0 is good. A model that
is the best on both logs has no difference."""
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

    Notes
    -----
    Facts (`to_dict`, `--json`):

    - `conclusion`: the model to use with its expected loss under a new ranker, and the models by verdict.
    - `verdicts`: one per click model: `model`, `verdict` (a few words) and `text` (up to four lines). A model that
      predicts better than is possible is not compared with the others.
    - `rows`: tidy rows with `user`, `training`, `model`, `role` and `kind`. Rows of kind "clicks" have `testing`,
      `shift` ("ind" or "ood"), `seed`, `perplexity`, `marginal_perplexity`, `auroc`, `log_likelihood` and the metrics
      by rank; rows of kind "ranking" have nDCG, Recall and the like by judged documents; rows of kind "policy" have
      `policy`, `expected_clicks`, `predicted_clicks` and `curse`; rows of kind "check" have `peeks` and `above_oracle`.
    - `failures`: messages of the tasks that failed.
    """

    @cached_property
    def verdicts(self) -> list[dict[str, str]]:
        """Verdict of each click model, candidates first: `model`, `verdict` and `text`."""
        return shift_verdicts(self.task_rows)

    def _answer(self) -> str:
        warning = " ".join(f"Warning: {why}" for why in impossible_models(self.task_rows).values())
        compared = without_impossible_models(self.task_rows)
        sentences = warning, recommendation(excess_perplexity(compared)), shift_summary(self.verdicts)
        return " ".join(filter(None, sentences))

    def facts(self) -> Mapping[str, Any]:
        """Return the conclusion, verdicts, rows and failures."""
        return {**super().facts(), "verdicts": self.verdicts}

    def _document(self) -> Document:
        compared = without_impossible_models(self.task_rows)
        sections = published_sections(compared, self.settings.get("corpus", BUILTIN))
        return Document(TITLE, self.conclusion, sections + shift_sections(compared, self.verdicts), self.settings)


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
        Text, tables and figures.
    """
    robustness, nppl = robustness_table(rows), nppl_table(rows)
    perplexity, policies = perplexity_tables(rows), policy_tables(rows)
    charts = spider_figures(rows)
    spiders = [Section(name, figure=f, name=f"robustness {name}") for name, f in charts.items()]
    sheet = spider_sheet(charts)
    other = [
        section
        for metric in ("marginal_perplexity", "auroc")
        for section in _table_sections(metric.replace("_", " "), perplexity_tables(rows, metric), titled=True)
    ]
    ranking = _table_sections("ranking", ranking_tables(rows), ranking_notes(rows))
    excess = excess_perplexity(rows)
    sections = [
        Section(
            "Perplexity above the user's own model",
            table=excess_table(excess, verdicts),
            figure=partial(excess_figure, excess) if excess else None,
            caption=_CAPTION_EXCESS,
            name="excess",
            explanation=_HOW_EXCESS,
        ),
        Section("Verdicts", parts=_verdict_sections(verdicts), explanation=_HOW_VERDICTS, page_only=True, folded=True),
        Section("Robustness of predictions", parts=spiders, explanation=_HOW_SPIDERS, page_only=True),
        Section("Figure 1 on one sheet", figure=sheet, name="figure 1", file_only=True),
        Section(
            "Robustness in numbers",
            table=robustness,
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
        ),
        Section(
            "Clicks of derived policies",
            _TERMINAL_NOTE if not excess and len(policies) > _TERMINAL_LOGS else "",
            parts=_table_sections("policies", policies),
            explanation=_HOW_GAINS,
            page_only=bool(excess),
        ),
        Section("Relevance", parts=ranking, explanation=_HOW_RANKING, page_only=True),
        Section(
            "Perplexity",
            _TERMINAL_NOTE if not excess and len(perplexity) > _TERMINAL_LOGS else "",
            parts=_table_sections("perplexity", perplexity),
            explanation=_HOW_PERPLEXITY,
            page_only=bool(excess) and len(perplexity) > 1,
        ),
        Section(
            "Normalised perplexity",
            table=nppl if robustness else (),
            name="nppl",
            explanation=_HOW_NPPL,
            page_only=True,
        ),
        Section("Other metrics of click prediction", parts=other, explanation=_HOW_OTHER, page_only=True),
    ]
    return [section for section in sections if section.parts or section.table or section.figure is not None]


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
