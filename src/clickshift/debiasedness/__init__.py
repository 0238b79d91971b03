"""Debiasedness of click models: CMIP, mean dependence, and sources of relevance labels.

A click model is debiased if, given the true relevance, its relevance estimate does not depend on the logging policy.
"""

from clickshift.debiasedness.agreement import IndependenceTest as IndependenceTest
from clickshift.debiasedness.agreement import agreement_ratio as agreement_ratio
from clickshift.debiasedness.agreement import conditional_independence_test as conditional_independence_test
from clickshift.debiasedness.classifier_cmi import BoostedTrees as BoostedTrees
from clickshift.debiasedness.classifier_cmi import Classifier as Classifier
from clickshift.debiasedness.classifier_cmi import Logistic as Logistic
from clickshift.debiasedness.label_grades import coarse_label_warning as coarse_label_warning
from clickshift.debiasedness.label_grades import grades as grades
from clickshift.debiasedness.metrics import CMIP as CMIP
from clickshift.debiasedness.metrics import Dependence as Dependence
from clickshift.debiasedness.metrics import DependenceEstimator as DependenceEstimator
from clickshift.debiasedness.metrics import MeanDependence as MeanDependence
from clickshift.debiasedness.nearest_neighbour_cmi import KSG as KSG
from clickshift.debiasedness.relevance_from_preferences import relevance_from_orderings as relevance_from_orderings
from clickshift.debiasedness.relevance_from_random_traffic import RandomisationTest as RandomisationTest
from clickshift.debiasedness.relevance_from_random_traffic import randomisation_test as randomisation_test
from clickshift.debiasedness.relevance_from_random_traffic import relevance_from_random_log as relevance_from_random_log
from clickshift.debiasedness.scored_pairs import ScoredPairs as ScoredPairs

__all__ = [
    "CMIP",
    "KSG",
    "BoostedTrees",
    "Classifier",
    "Dependence",
    "DependenceEstimator",
    "IndependenceTest",
    "Logistic",
    "MeanDependence",
    "RandomisationTest",
    "ScoredPairs",
    "agreement_ratio",
    "coarse_label_warning",
    "conditional_independence_test",
    "grades",
    "randomisation_test",
    "relevance_from_orderings",
    "relevance_from_random_log",
]
