"""Unbiased learning to rank: rankers learned from clicks, corrected for where documents were shown."""

from clickshift.ultr.boosting import BoostedRanker as BoostedRanker
from clickshift.ultr.boosting import Trees as Trees
from clickshift.ultr.labels import Trust as Trust
from clickshift.ultr.rankers import Ranker as Ranker
from clickshift.ultr.storage import load_ranker as load_ranker
from clickshift.ultr.storage import save_ranker as save_ranker
from clickshift.ultr.training import ClickRanker as ClickRanker
from clickshift.ultr.training import Run as Run
from clickshift.ultr.training import fit_runs as fit_runs

RANKERS: dict[str, str] = {
    "ClickRanker": "clickshift.ultr.training:ClickRanker",
    "BoostedRanker": "clickshift.ultr.boosting:BoostedRanker",
}
"""Learners of rankers, by the names that specifications use."""
