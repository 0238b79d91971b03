"""Off-policy evaluation of rankings: what a policy would earn, told from the log of another one."""

from clickshift.ope.estimate import Estimate as Estimate
from clickshift.ope.estimators import WEIGHTS as WEIGHTS
from clickshift.ope.estimators import Estimator as Estimator
from clickshift.ope.evaluation import PAPER as PAPER
from clickshift.ope.evaluation import Difference as Difference
from clickshift.ope.evaluation import Evaluation as Evaluation
from clickshift.ope.evaluation import difference as difference
from clickshift.ope.evaluation import evaluate as evaluate
from clickshift.ope.intervals import Bernstein as Bernstein
from clickshift.ope.intervals import Bootstrap as Bootstrap
from clickshift.ope.intervals import Hoeffding as Hoeffding
from clickshift.ope.logged import Logged as Logged
from clickshift.ope.rewards import Reward as Reward
from clickshift.ope.targets import WeightedLists as WeightedLists
from clickshift.ope.targets import by_score as by_score
