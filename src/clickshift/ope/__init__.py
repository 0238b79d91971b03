"""Off-policy evaluation: estimate, and optimise, the reward of a target policy from the log of another policy."""

from clickshift.data.weighted_lists import WeightedLists as WeightedLists
from clickshift.ope._decision_report import CandidateDecision as CandidateDecision
from clickshift.ope._decision_report import Check as Check
from clickshift.ope._decision_report import Decision as Decision
from clickshift.ope._decision_report import TurningPoint as TurningPoint
from clickshift.ope._pseudo_inverse import PIWeights as PIWeights
from clickshift.ope._report import PolicyEvaluation as PolicyEvaluation
from clickshift.ope.answer import Answer as Answer
from clickshift.ope.answer import Family as Family
from clickshift.ope.cross_fitting import OptimisedPolicy as OptimisedPolicy
from clickshift.ope.cross_fitting import best_policy as best_policy
from clickshift.ope.cross_fitting import optimise_policy as optimise_policy
from clickshift.ope.daily_residuals import DayResidual as DayResidual
from clickshift.ope.daily_residuals import ResidualDrift as ResidualDrift
from clickshift.ope.daily_residuals import day_residuals as day_residuals
from clickshift.ope.decision import decide as decide
from clickshift.ope.estimate import PAPER_ESTIMATORS as PAPER_ESTIMATORS
from clickshift.ope.estimate import Difference as Difference
from clickshift.ope.estimate import Estimate as Estimate
from clickshift.ope.estimate import Evaluation as Evaluation
from clickshift.ope.estimate import Verdict as Verdict
from clickshift.ope.estimate import evaluate_target as evaluate_target
from clickshift.ope.estimate import paired_difference as paired_difference
from clickshift.ope.estimators import WEIGHTS as WEIGHTS
from clickshift.ope.estimators import Estimator as Estimator
from clickshift.ope.evaluate import evaluate_policy as evaluate_policy
from clickshift.ope.grouped_log import GroupedLog as GroupedLog
from clickshift.ope.intervals import Bernstein as Bernstein
from clickshift.ope.intervals import Bootstrap as Bootstrap
from clickshift.ope.intervals import Hoeffding as Hoeffding
from clickshift.ope.rewards import Reward as Reward
from clickshift.ope.slope import best_clip as best_clip
from clickshift.ope.target_policy import policy_from_scores as policy_from_scores
from clickshift.ope.weights import CIPSWeights as CIPSWeights
from clickshift.ope.weights import IPWeights as IPWeights
from clickshift.ope.weights import ItemWeights as ItemWeights
from clickshift.ope.weights import ListWeights as ListWeights
from clickshift.ope.weights import PBMWeights as PBMWeights
from clickshift.ope.weights import RCTRWeights as RCTRWeights
from clickshift.ope.weights import RIPSWeights as RIPSWeights
from clickshift.ope.weights import Weights as Weights

__all__ = [
    "PAPER_ESTIMATORS",
    "WEIGHTS",
    "Answer",
    "Bernstein",
    "Bootstrap",
    "CIPSWeights",
    "CandidateDecision",
    "Check",
    "DayResidual",
    "Decision",
    "Difference",
    "Estimate",
    "Estimator",
    "Evaluation",
    "Family",
    "GroupedLog",
    "Hoeffding",
    "IPWeights",
    "ItemWeights",
    "ListWeights",
    "OptimisedPolicy",
    "PBMWeights",
    "PIWeights",
    "PolicyEvaluation",
    "RCTRWeights",
    "RIPSWeights",
    "ResidualDrift",
    "Reward",
    "TurningPoint",
    "Verdict",
    "WeightedLists",
    "Weights",
    "best_clip",
    "best_policy",
    "day_residuals",
    "decide",
    "evaluate_policy",
    "evaluate_target",
    "optimise_policy",
    "paired_difference",
    "policy_from_scores",
]
