"""Learning to rank from clicks: rankers trained on click counts with a correction for position bias.

`ClickRanker` trains a network or a one-hot table with one of six losses, `BoostedRanker` trains LambdaMART on corrected
labels. `corrected_labels` computes those labels alone, for other learners.
"""

from clickshift.ranking.click_ranker import ClickRanker as ClickRanker
from clickshift.ranking.click_ranker import Run as Run
from clickshift.ranking.click_ranker import fit_runs as fit_runs
from clickshift.ranking.labels import Labels as Labels
from clickshift.ranking.labels import Trust as Trust
from clickshift.ranking.labels import corrected_labels as corrected_labels
from clickshift.ranking.lambdamart import BoostedRanker as BoostedRanker
from clickshift.ranking.lambdamart import TreeRanker as TreeRanker
from clickshift.ranking.ranker import Ranker as Ranker
from clickshift.ranking.storage import export_ranker as export_ranker
from clickshift.ranking.storage import load_ranker as load_ranker
from clickshift.ranking.storage import save_ranker as save_ranker

RANKERS: dict[str, str] = {
    "ClickRanker": "clickshift.ranking.click_ranker:ClickRanker",
    "BoostedRanker": "clickshift.ranking.lambdamart:BoostedRanker",
}
"""Learners of rankers by the names that spec texts use, as "module:class"."""

__all__ = [
    "RANKERS",
    "BoostedRanker",
    "ClickRanker",
    "Labels",
    "Ranker",
    "Run",
    "TreeRanker",
    "Trust",
    "corrected_labels",
    "export_ranker",
    "fit_runs",
    "load_ranker",
    "save_ranker",
]
