"""Learners: how parameters are found."""

from clickshift.learners.base import DEFAULT as DEFAULT
from clickshift.learners.base import LEARNERS as LEARNERS
from clickshift.learners.base import Learner as Learner
from clickshift.learners.base import fit as fit
from clickshift.learners.base import fit_seeds as fit_seeds
from clickshift.learners.base import learner_for as learner_for
