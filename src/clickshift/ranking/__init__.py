"""Learning to rank from clicks: rankers trained on click counts with a correction for position bias.

`ClickRanker` trains a network or a one-hot table with one of six losses, `BoostedRanker` trains LambdaMART on corrected
labels. `corrected_labels` computes those labels alone, for other learners.
"""

from clickshift.propensity.files import Trust as Trust
from clickshift.ranking.click_ranker import ClickRanker as ClickRanker
from clickshift.ranking.click_ranker import Run as Run
from clickshift.ranking.click_ranker import fit_runs as fit_runs
from clickshift.ranking.evaluate import RankerEvaluation as RankerEvaluation
from clickshift.ranking.evaluate import ScoredDocuments as ScoredDocuments
from clickshift.ranking.evaluate import evaluate_ranker as evaluate_ranker
from clickshift.ranking.evaluate import score as score
from clickshift.ranking.labels import Labels as Labels
from clickshift.ranking.labels import corrected_labels as corrected_labels
from clickshift.ranking.lambdamart import BoostedRanker as BoostedRanker
from clickshift.ranking.lambdamart import TreeRanker as TreeRanker
from clickshift.ranking.lightgbm_files import RankingLabels as RankingLabels
from clickshift.ranking.lightgbm_files import ranking_labels as ranking_labels
from clickshift.ranking.ranker import Ranker as Ranker
from clickshift.ranking.storage import RankerExport as RankerExport
from clickshift.ranking.storage import export_ranker as export_ranker
from clickshift.ranking.storage import load_ranker as load_ranker
from clickshift.ranking.storage import save_ranker as save_ranker
from clickshift.ranking.train import RANKERS as RANKERS
from clickshift.ranking.train import RankerTraining as RankerTraining
from clickshift.ranking.train import train_ranker as train_ranker

__all__ = [
    "RANKERS",
    "BoostedRanker",
    "ClickRanker",
    "Labels",
    "Ranker",
    "RankerEvaluation",
    "RankerExport",
    "RankerTraining",
    "RankingLabels",
    "Run",
    "ScoredDocuments",
    "TreeRanker",
    "Trust",
    "corrected_labels",
    "evaluate_ranker",
    "export_ranker",
    "fit_runs",
    "load_ranker",
    "ranking_labels",
    "save_ranker",
    "score",
    "train_ranker",
]
