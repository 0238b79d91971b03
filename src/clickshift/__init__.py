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
    from clickshift import testing as testing
    from clickshift import ultr as ultr
    from clickshift import users as users
    from clickshift.corpus import Corpus as Corpus
    from clickshift.counts import DayCounts as DayCounts
    from clickshift.encoded import EncodedLog as EncodedLog
    from clickshift.fitting import fit as fit
    from clickshift.learners.base import fit_seeds as fit_seeds
    from clickshift.learners.counting import Counting as Counting
    from clickshift.learners.em import EM as EM
    from clickshift.learners.gradient import Gradient as Gradient
    from clickshift.learners.mixed import MixtureEM as MixtureEM
    from clickshift.metrics.calibration import calibration as calibration
    from clickshift.metrics.clicks import auroc as auroc
    from clickshift.metrics.clicks import evaluation as evaluation
    from clickshift.metrics.clicks import perplexity as perplexity
    from clickshift.metrics.debiasedness import CMIP as CMIP
    from clickshift.metrics.debiasedness import MeanDependence as MeanDependence
    from clickshift.metrics.logs import log_summary as log_summary
    from clickshift.metrics.ranking import JudgedPairs as JudgedPairs
    from clickshift.metrics.ranking import ranking_quality as ranking_quality
    from clickshift.metrics.scored_pairs import ScoredPairs as ScoredPairs
    from clickshift.models import register as register
    from clickshift.models.base import ClickModel as ClickModel
    from clickshift.models.neural import NeuralModel as NeuralModel
    from clickshift.models.storage import load_model as load_model
    from clickshift.models.storage import save_model as save_model
    from clickshift.policies.derived import max_reward as max_reward
    from clickshift.policies.derived import top_down as top_down
    from clickshift.policies.fair import fair as fair
    from clickshift.policies.lambdamart import LambdaMART as LambdaMART
    from clickshift.policies.placed import Placed as Placed
    from clickshift.policies.plackett_luce import PlackettLuce as PlackettLuce
    from clickshift.policies.scored import BM25 as BM25
    from clickshift.policies.scored import Feature as Feature
    from clickshift.policies.scored import NoisyOracle as NoisyOracle
    from clickshift.policies.scored import Oracle as Oracle
    from clickshift.policies.scored import Reversed as Reversed
    from clickshift.policies.scored import Scores as Scores
    from clickshift.policies.scored import Uniform as Uniform
    from clickshift.protocols.audit import Audit as Audit
    from clickshift.protocols.model_selection import ModelSelection as ModelSelection
    from clickshift.protocols.policy_shift import PolicyShift as PolicyShift
    from clickshift.readers.letor import read_corpus as read_corpus
    from clickshift.readers.opening import open_log as open_log
    from clickshift.readers.tabular import read_log as read_log
    from clickshift.readers.tabular import write_log as write_log
    from clickshift.sessions import Rankings as Rankings
    from clickshift.sessions import Sessions as Sessions
    from clickshift.simulation import PowerLaw as PowerLaw
    from clickshift.simulation import simulate as simulate
    from clickshift.synthetic import builtin_corpus as builtin_corpus
    from clickshift.ultr.propensities import propensities as propensities
    from clickshift.ultr.training import ClickRanker as ClickRanker
    from clickshift.vocabulary import Vocabulary as Vocabulary

_HOME = {
    "auroc": "metrics.clicks",
    "calibration": "metrics.calibration",
    "JudgedPairs": "metrics.ranking",
    "ranking_quality": "metrics.ranking",
    "ClickRanker": "ultr.training",
    "propensities": "ultr.propensities",
    "CMIP": "metrics.debiasedness",
    "MeanDependence": "metrics.debiasedness",
    "ScoredPairs": "metrics.scored_pairs",
    "Audit": "protocols.audit",
    "ModelSelection": "protocols.model_selection",
    "fair": "policies.fair",
    "max_reward": "policies.derived",
    "top_down": "policies.derived",
    "PolicyShift": "protocols.policy_shift",
    "Corpus": "corpus",
    "DayCounts": "counts",
    "EncodedLog": "encoded",
    "fit": "fitting",
    "fit_seeds": "learners.base",
    "Counting": "learners.counting",
    "EM": "learners.em",
    "Gradient": "learners.gradient",
    "MixtureEM": "learners.mixed",
    "NeuralModel": "models.neural",
    "register": "models",
    "evaluation": "metrics.clicks",
    "perplexity": "metrics.clicks",
    "log_summary": "metrics.logs",
    "ClickModel": "models.base",
    "load_model": "models.storage",
    "save_model": "models.storage",
    "LambdaMART": "policies.lambdamart",
    "Placed": "policies.placed",
    "PlackettLuce": "policies.plackett_luce",
    "BM25": "policies.scored",
    "Feature": "policies.scored",
    "NoisyOracle": "policies.scored",
    "Oracle": "policies.scored",
    "Reversed": "policies.scored",
    "Scores": "policies.scored",
    "Uniform": "policies.scored",
    "read_corpus": "readers.letor",
    "open_log": "readers.opening",
    "read_log": "readers.tabular",
    "write_log": "readers.tabular",
    "Rankings": "sessions",
    "Sessions": "sessions",
    "PowerLaw": "simulation",
    "simulate": "simulation",
    "builtin_corpus": "synthetic",
    "Vocabulary": "vocabulary",
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
