"""Off-policy evaluation of rankings: what a policy would earn, told from the log of another one."""

from clickshift.ope.estimators import WEIGHTS as WEIGHTS
from clickshift.ope.estimators import Estimator as Estimator
from clickshift.ope.evaluate import PAPER_ESTIMATORS as PAPER_ESTIMATORS
from clickshift.ope.evaluate import Difference as Difference
from clickshift.ope.evaluate import Evaluation as Evaluation
from clickshift.ope.evaluate import evaluate_target as evaluate_target
from clickshift.ope.evaluate import paired_difference as paired_difference
from clickshift.ope.grouped_log import GroupedLog as GroupedLog
from clickshift.ope.intervals import Bernstein as Bernstein
from clickshift.ope.intervals import Bootstrap as Bootstrap
from clickshift.ope.intervals import Hoeffding as Hoeffding
from clickshift.ope.result import Estimate as Estimate
from clickshift.ope.rewards import Reward as Reward
from clickshift.ope.target_policy import WeightedLists as WeightedLists
from clickshift.ope.target_policy import policy_from_scores as policy_from_scores
