"""Metrics of click models: click prediction, calibration, ranking quality, robustness and significance tests."""

from clickshift.metrics.calibration import calibration as calibration
from clickshift.metrics.calibration import calibration_of as calibration_of
from clickshift.metrics.click_prediction import AUROC as AUROC
from clickshift.metrics.click_prediction import Perplexity as Perplexity
from clickshift.metrics.click_prediction import auroc as auroc
from clickshift.metrics.click_prediction import auroc_of as auroc_of
from clickshift.metrics.click_prediction import click_bits as click_bits
from clickshift.metrics.click_prediction import evaluation as evaluation
from clickshift.metrics.click_prediction import log_likelihood_per_session as log_likelihood_per_session
from clickshift.metrics.click_prediction import perplexity as perplexity
from clickshift.metrics.click_prediction import perplexity_of as perplexity_of
from clickshift.metrics.click_prediction import unseen_pair_share as unseen_pair_share
from clickshift.metrics.model_evaluation import ClickPrediction as ClickPrediction
from clickshift.metrics.model_evaluation import evaluate as evaluate
from clickshift.metrics.predictions import Predictions as Predictions
from clickshift.metrics.ranking import CUTOFFS as CUTOFFS
from clickshift.metrics.ranking import JudgedPairs as JudgedPairs
from clickshift.metrics.ranking import RankingQuality as RankingQuality
from clickshift.metrics.ranking import head_queries as head_queries
from clickshift.metrics.ranking import ranking_quality as ranking_quality
from clickshift.metrics.robustness import normalised_perplexity as normalised_perplexity
from clickshift.metrics.significance import bootstrap_interval as bootstrap_interval
from clickshift.metrics.significance import corrected_p_values as corrected_p_values
from clickshift.metrics.significance import not_worse_than as not_worse_than
from clickshift.metrics.significance import not_worse_than_best as not_worse_than_best
from clickshift.metrics.significance import paired_t_test as paired_t_test
from clickshift.metrics.significance import welch as welch

__all__ = [
    "AUROC",
    "CUTOFFS",
    "ClickPrediction",
    "JudgedPairs",
    "Perplexity",
    "Predictions",
    "RankingQuality",
    "auroc",
    "auroc_of",
    "bootstrap_interval",
    "calibration",
    "calibration_of",
    "click_bits",
    "corrected_p_values",
    "evaluate",
    "evaluation",
    "head_queries",
    "log_likelihood_per_session",
    "normalised_perplexity",
    "not_worse_than",
    "not_worse_than_best",
    "paired_t_test",
    "perplexity",
    "perplexity_of",
    "ranking_quality",
    "unseen_pair_share",
    "welch",
]
