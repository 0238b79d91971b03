"""Learners: algorithms that estimate the parameters of click models from a log.

`Counting` fits click-through rates, `MaximumLikelihood` the classical models with hidden events, `MixtureEM` mixtures
of those, `Stacking` weighted mixtures of models that are fitted one by one, and `Gradient` any model with
differentiable formulas. `fit` chooses the default learner of a model.
"""

from clickshift.learners.base import DEFAULT as DEFAULT
from clickshift.learners.base import LEARNERS as LEARNERS
from clickshift.learners.base import Learner as Learner
from clickshift.learners.base import learner_for as learner_for
from clickshift.learners.fit import fit as fit

__all__ = ["DEFAULT", "LEARNERS", "Learner", "fit", "learner_for"]
