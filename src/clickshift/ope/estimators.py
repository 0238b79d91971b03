"""Estimators: weights with options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from clickshift.errors import CapabilityError, SpecError
from clickshift.models.base import ClickModel
from clickshift.ope._pseudo_inverse import PIWeights
from clickshift.ope.weights import (
    CIPSWeights,
    IPWeights,
    ItemWeights,
    ListWeights,
    PBMWeights,
    RCTRWeights,
    RIPSWeights,
    Weights,
)

WEIGHTS: dict[str, type[Weights]] = {
    kind.name: kind
    for kind in (ListWeights, IPWeights, PBMWeights, ItemWeights, RCTRWeights, RIPSWeights, PIWeights, CIPSWeights)
}
_ALSO = {"Cascade-DR": "DR-RIPS", "CDR": "DR-CIPS"}
"""Names in the literature."""


@final
@dataclass(frozen=True)
class Estimator:
    """Weights, perhaps self-normalised, perhaps doubly robust by a click model; or the model alone.

    Plain: 1/n sum of reward x weight. Self-normalised (SN): divided by the mean weight, of each rank where weights
    belong to ranks (Swaminathan & Joachims 2015; Kallus & Uehara 2019). Doubly robust (DR): what the model expects of
    the target, plus the weighted rewards beyond what it expects of the log (Dudík et al. 2011). Without weights: the
    direct method (DM).

    DR-RIPS is Cascade-DR (Kiyohara et al. 2022): with Q_k = theta_k P(click at k) + E_target[Q_{k+1}] from one click
    model, all but the first of its baselines cancel between ranks k and k + 1.
    """

    weights: Weights | None
    self_normalised: bool = False
    model: ClickModel | None = None

    def __post_init__(self) -> None:
        if self.weights is None and self.model is None:
            raise SpecError("an estimator needs weights or a click model: got neither.")
        if self.weights is None and self.self_normalised:
            raise SpecError("the direct method has no weights to normalise. Leave self_normalised out.")
        if isinstance(self.weights, PIWeights) and self.self_normalised:
            raise SpecError("the weights of PI may be negative: their mean is no share. Leave self_normalised out.")
        if self.model is not None and (not self.model.predicts_clicks or self.model.peeks):
            raise CapabilityError(f"{type(self.model).__name__} cannot predict the clicks of a list. Choose another.")

    @classmethod
    def named(cls, text: str, model: ClickModel | None = None) -> Estimator:
        """From a text such as IP, SN-IP, DR-List, DR-SN-IP or DM; DM, DR and CIPS ask the model.

        >>> Estimator.named("SN-IP")
        Estimator(weights=IPWeights(), self_normalised=True, model=None)
        """
        *options, name = _ALSO.get(text.strip(), text.strip()).split("-")
        known = options == [o for o in ("DR", "SN") if o in options]
        if not known or (name not in WEIGHTS and (options or name != "DM")):
            raise SpecError(
                f"an estimator must be DM or one of {', '.join(WEIGHTS)}, with SN- or DR- before it: got {text!r}."
            )
        if model is None and (name in {"DM", "CIPS"} or "DR" in options):
            raise SpecError(f"{text} needs a click model. Fit one and give it, to a command as --model DIR.")
        asked = model if name == "DM" or "DR" in options else None
        weights = (
            None if name == "DM" else CIPSWeights(model) if name == "CIPS" and model is not None else WEIGHTS[name]()
        )
        return cls(weights, "SN" in options, asked)

    @property
    def name(self) -> str:
        if self.weights is None:
            return "DM"
        return ("DR-" if self.model else "") + ("SN-" if self.self_normalised else "") + self.weights.name

    @property
    def needs_prefixes(self) -> bool:
        return isinstance(self.weights, RIPSWeights)


def checked_clip(clip: Sequence[float]) -> Float[np.ndarray, " clip"]:
    """Clipping constants as kernels take them."""
    limits = np.atleast_1d(np.asarray(clip, np.float64))
    if limits.ndim != 1 or not len(limits) or not (limits > 0).all() or (np.diff(limits) <= 0).any():
        raise SpecError(f"clipping constants must be above 0 and ascending, inf allowed: got {list(clip)}.")
    return limits
