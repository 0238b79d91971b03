"""Conformance checks, for the tests of your own click models, policies, off-policy estimators and propensity methods.

>>> from clickshift import builtin_corpus, users
>>> check_click_model(users.PBM().on(builtin_corpus(queries=5)))
"""

from clickshift.testing.click_models import check_click_model as check_click_model
from clickshift.testing.click_models import random_rankings as random_rankings
from clickshift.testing.estimators import ClickAssumption as ClickAssumption
from clickshift.testing.estimators import check_estimator as check_estimator
from clickshift.testing.policies import check_policy as check_policy
from clickshift.testing.propensities import check_propensity_method as check_propensity_method

__all__ = [
    "ClickAssumption",
    "check_click_model",
    "check_estimator",
    "check_policy",
    "check_propensity_method",
    "random_rankings",
]
