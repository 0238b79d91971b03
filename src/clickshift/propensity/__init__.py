"""Position-bias estimation: examination propensities by rank, from swaps, several rankers, features or click models."""

from clickshift.propensity.estimate import METHODS as METHODS
from clickshift.propensity.estimate import propensities as propensities
from clickshift.propensity.files import parse_examination as parse_examination
from clickshift.propensity.files import read_propensities as read_propensities
from clickshift.propensity.files import read_trust as read_trust
from clickshift.propensity.result import Propensities as Propensities

__all__ = [
    "METHODS",
    "Propensities",
    "parse_examination",
    "propensities",
    "read_propensities",
    "read_trust",
]
