"""Unbiased learning to rank: rankers learned from clicks, corrected for where documents were shown."""

from clickshift.ranking.click_ranker import ClickRanker as ClickRanker
from clickshift.ranking.click_ranker import Run as Run
from clickshift.ranking.click_ranker import fit_runs as fit_runs
from clickshift.ranking.labels import Trust as Trust
from clickshift.ranking.lambdamart import BoostedRanker as BoostedRanker
from clickshift.ranking.lambdamart import Trees as Trees
from clickshift.ranking.ranker import Ranker as Ranker
from clickshift.ranking.storage import load_ranker as load_ranker
from clickshift.ranking.storage import save_ranker as save_ranker

RANKERS: dict[str, str] = {
    "ClickRanker": "clickshift.ranking.click_ranker:ClickRanker",
    "BoostedRanker": "clickshift.ranking.lambdamart:BoostedRanker",
}
"""Learners of rankers, by the names that specifications use."""
