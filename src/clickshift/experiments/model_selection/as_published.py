"""The model-selection protocol with users and training of the authors' code, to see where differences come from.

References
----------
Deffayet, R., Hager, P., Renders, J.-M. & de Rijke, M. (2023). An offline metric for the debiasedness of click models.
SIGIR.
"""

from __future__ import annotations

from dataclasses import replace

from clickshift.experiments.model_selection.protocol import ModelSelection
from clickshift.experiments.models import Contender

__all__ = ["as_published"]

_USERS = {"DBN": "GradedDBN(as_published=True)"}
"""Users as in the authors' code, by name."""
_TRAINED = {"PBM": "PBM", "UBM": "UBM", "DBN": "DBN", "CACM-minus": "CACM_minus", "NCM": "NCM"}
"""Models that the paper trains by gradient; the default protocol fits the first three by maximum likelihood."""
_TRAINING = "tower='free', state=32, learning_rate=0.001, batch=256, rounds=10"
"""Settings of the authors' code."""


def as_published(protocol: ModelSelection) -> ModelSelection:
    """Return a protocol with the users, the placement and the training of the authors' code, as far as they can be had.

    DBN users never stop at random, and a click resets nothing. Lists of users who do not read top-down are placed by
    the permutation of ranks where its inverse is needed. PBM, UBM and DBN are trained by gradient, with a free logit
    per document, and all models with a learning rate of .001, batches of 256 and at most ten rounds.
    docs/debiasedness.md lists what is not reproduced.

    Parameters
    ----------
    protocol
        The protocol to change; models that are not the paper's stay as they are.

    Examples
    --------
    >>> as_published(ModelSelection()).users[1]
    ('DBN', 'GradedDBN(as_published=True)')
    """
    users = tuple((name, _USERS.get(name, text)) for name, text in protocol.users)
    contenders = tuple(map(_trained, protocol.contenders))
    return replace(protocol, users=users, contenders=contenders, world=replace(protocol.world, as_published=True))


def _trained(contender: Contender) -> Contender:
    """Train a model of the paper as in the authors' code; return any other as it is."""
    if contender not in ModelSelection.contenders or contender.name not in _TRAINED:
        return contender
    return replace(contender, learner=f"Gradient({_TRAINED[contender.name]!r}, {_TRAINING})")
