"""clickshift: learn from clicks on ranked lists.

Every public name is here, and is imported from its module when it is first used: `import clickshift` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from clickshift._version import __version__ as __version__

if TYPE_CHECKING:
    from clickshift import ope as ope
    from clickshift import policies as policies
    from clickshift import ranking as ranking
    from clickshift import testing as testing
    from clickshift.counts.daily import DayCounts as DayCounts
    from clickshift.counts.open_log import open_log as open_log
    from clickshift.data.builtin_corpus import builtin_corpus as builtin_corpus
    from clickshift.data.corpus import Corpus as Corpus
    from clickshift.data.encoded_log import EncodedLog as EncodedLog
    from clickshift.data.sessions import Rankings as Rankings
    from clickshift.data.sessions import Sessions as Sessions
    from clickshift.data.vocabulary import Vocabulary as Vocabulary
    from clickshift.debiasedness.metrics import CMIP as CMIP
    from clickshift.debiasedness.metrics import MeanDependence as MeanDependence
    from clickshift.debiasedness.scored_pairs import ScoredPairs as ScoredPairs
    from clickshift.experiments.audit import Audit as Audit
    from clickshift.experiments.model_selection.protocol import ModelSelection as ModelSelection
    from clickshift.experiments.policy_shift.protocol import PolicyShift as PolicyShift
    from clickshift.io.datasets.letor import read_corpus as read_corpus
    from clickshift.io.read_log import read_log as read_log
    from clickshift.io.read_log import write_log as write_log
    from clickshift.learners.base import fit_seeds as fit_seeds
    from clickshift.learners.counting import Counting as Counting
    from clickshift.learners.fit import fit as fit
    from clickshift.learners.gradient import Gradient as Gradient
    from clickshift.learners.likelihood import EM as EM
    from clickshift.learners.mixture import MixtureEM as MixtureEM
    from clickshift.metrics.calibration import calibration as calibration
    from clickshift.metrics.click_prediction import auroc as auroc
    from clickshift.metrics.click_prediction import evaluation as evaluation
    from clickshift.metrics.click_prediction import perplexity as perplexity
    from clickshift.metrics.log_summary import log_summary as log_summary
    from clickshift.metrics.ranking import JudgedPairs as JudgedPairs
    from clickshift.metrics.ranking import ranking_quality as ranking_quality
    from clickshift.models import register as register
    from clickshift.models.base import ClickModel as ClickModel
    from clickshift.models.neural import NeuralModel as NeuralModel
    from clickshift.models.storage import load_model as load_model
    from clickshift.models.storage import save_model as save_model
    from clickshift.policies.basic import BM25 as BM25
    from clickshift.policies.basic import Feature as Feature
    from clickshift.policies.basic import NoisyOracle as NoisyOracle
    from clickshift.policies.basic import Oracle as Oracle
    from clickshift.policies.basic import Reversed as Reversed
    from clickshift.policies.basic import Scores as Scores
    from clickshift.policies.basic import Uniform as Uniform
    from clickshift.policies.by_exposure import Placed as Placed
    from clickshift.policies.derived import max_reward as max_reward
    from clickshift.policies.derived import top_down as top_down
    from clickshift.policies.derived.fair import fair as fair
    from clickshift.policies.lambdamart import LambdaMART as LambdaMART
    from clickshift.policies.plackett_luce import PlackettLuce as PlackettLuce
    from clickshift.propensity.estimate import propensities as propensities
    from clickshift.ranking.click_ranker import ClickRanker as ClickRanker
    from clickshift.simulation import users as users
    from clickshift.simulation.simulate import PowerLaw as PowerLaw
    from clickshift.simulation.simulate import simulate as simulate

_HOME = {
    "auroc": "metrics.click_prediction",
    "calibration": "metrics.calibration",
    "JudgedPairs": "metrics.ranking",
    "ranking_quality": "metrics.ranking",
    "ClickRanker": "ranking.click_ranker",
    "propensities": "propensity.estimate",
    "CMIP": "debiasedness.metrics",
    "MeanDependence": "debiasedness.metrics",
    "ScoredPairs": "debiasedness.scored_pairs",
    "Audit": "experiments.audit",
    "ModelSelection": "experiments.model_selection.protocol",
    "fair": "policies.derived.fair",
    "max_reward": "policies.derived",
    "top_down": "policies.derived",
    "PolicyShift": "experiments.policy_shift.protocol",
    "Corpus": "data.corpus",
    "DayCounts": "counts.daily",
    "EncodedLog": "data.encoded_log",
    "fit": "learners.fit",
    "fit_seeds": "learners.base",
    "Counting": "learners.counting",
    "EM": "learners.likelihood",
    "Gradient": "learners.gradient",
    "MixtureEM": "learners.mixture",
    "NeuralModel": "models.neural",
    "register": "models",
    "evaluation": "metrics.click_prediction",
    "perplexity": "metrics.click_prediction",
    "log_summary": "metrics.log_summary",
    "ClickModel": "models.base",
    "load_model": "models.storage",
    "save_model": "models.storage",
    "LambdaMART": "policies.lambdamart",
    "Placed": "policies.by_exposure",
    "PlackettLuce": "policies.plackett_luce",
    "BM25": "policies.basic",
    "Feature": "policies.basic",
    "NoisyOracle": "policies.basic",
    "Oracle": "policies.basic",
    "Reversed": "policies.basic",
    "Scores": "policies.basic",
    "Uniform": "policies.basic",
    "read_corpus": "io.datasets.letor",
    "open_log": "counts.open_log",
    "read_log": "io.read_log",
    "write_log": "io.read_log",
    "Rankings": "data.sessions",
    "Sessions": "data.sessions",
    "PowerLaw": "simulation.simulate",
    "simulate": "simulation.simulate",
    "builtin_corpus": "data.builtin_corpus",
    "Vocabulary": "data.vocabulary",
}
_MODULES = ("ope", "policies", "testing", "ultr", "users")

__all__ = ["__version__", *_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"clickshift.{name}")
    if name not in _HOME:
        raise AttributeError(f"clickshift has no {name!r}; it has {', '.join(__all__)}")
    value = getattr(importlib.import_module(f"clickshift.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
