"""Estimators: importance weights, optionally self-normalised or combined with a click model, or the model alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
from jaxtyping import Float

from clickshift.errors import CapabilityError, SpecError
from clickshift.models.base import MARGINAL_ERROR, ClickModel
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
"""Every kind of importance weights by its name."""
_ALIASES = {"Cascade-DR": "DR-RIPS", "CDR": "DR-CIPS"}
"""Names in the literature."""


@final
@dataclass(frozen=True)
class Estimator:
    """An off-policy estimator: importance weights, optionally self-normalised or doubly robust, or the direct method.

    - Plain: 1/n sum of reward x importance weight.
    - Self-normalised (SN): divided by the mean weight, rank by rank where weights belong to ranks.
    - Doubly robust (DR): the reward of the target policy that a click model predicts, plus the weighted residuals of
      the logged rewards.
    - Direct method (DM): the click model's prediction alone, without weights.

    DR-RIPS is Cascade-DR: with Q_k = theta_k P(click at k) + E_target[Q_{k+1}] from one click model, all but the first
    of its baselines cancel between ranks k and k + 1.

    Parameters
    ----------
    weights
        Kind of importance weights; None for the direct method.
    self_normalised
        Whether to divide by the mean weight.
    model
        Click model of the doubly robust estimator or of the direct method.
    max_error
        Largest accepted error of the model's marginal click probabilities; 0 for exact ones. It matters only for
        models that sum over click histories (NCM).

    Raises
    ------
    SpecError
        If the options contradict each other ("bad-option").
    CapabilityError
        If the click model cannot predict the clicks of a list ("cannot-predict-clicks").

    References
    ----------
    Dudík, M., Langford, J. & Li, L. (2011). Doubly robust policy evaluation and learning. ICML.

    Swaminathan, A. & Joachims, T. (2015). The self-normalized estimator for counterfactual learning. NeurIPS.

    Kallus, N. & Uehara, M. (2019). Intrinsically efficient, stable, and bounded off-policy evaluation for reinforcement
    learning. NeurIPS.

    Kiyohara, H. et al. (2022). Doubly robust off-policy evaluation for ranking policies under the cascade behavior
    model. WSDM.

    Examples
    --------
    >>> Estimator(IPWeights(), self_normalised=True).name
    'SN-IP'
    """

    weights: Weights | None
    self_normalised: bool = False
    model: ClickModel | None = None
    max_error: float = field(default=MARGINAL_ERROR, repr=False)

    def __post_init__(self) -> None:
        if self.weights is None and self.model is None:
            raise SpecError("an estimator needs weights or a click model: got neither.", code="bad-option")
        if self.weights is None and self.self_normalised:
            raise SpecError(
                "the direct method has no weights to normalise. Leave self_normalised out.", code="bad-option"
            )
        if isinstance(self.weights, PIWeights) and self.self_normalised:
            raise SpecError(
                "PI weights may be negative, so they cannot be self-normalised. Leave self_normalised out.",
                code="bad-option",
            )
        if self.model is not None and (not self.model.predicts_clicks or self.model.peeks):
            name = type(self.model).__name__
            raise CapabilityError(
                f"{name} cannot predict the clicks of a list. Choose another model.",
                code="cannot-predict-clicks",
                model=name,
            )

    @classmethod
    def named(cls, text: str, model: ClickModel | None = None, *, max_error: float = MARGINAL_ERROR) -> Estimator:
        """Make the estimator that a text names, e.g. IP, SN-IP, DR-List, DR-SN-IP or DM.

        Parameters
        ----------
        text
            One of `WEIGHTS` with SN- or DR- before it, DM, or the aliases Cascade-DR (DR-RIPS) and CDR (DR-CIPS).
        model
            Fitted click model, which DM, DR and CIPS need.
        max_error
            Largest accepted error of the model's marginal click probabilities; 0 for exact ones.

        Raises
        ------
        SpecError
            If the name is unknown ("unknown-name") or needs a click model ("missing-model").

        Examples
        --------
        >>> Estimator.named("SN-IP")
        Estimator(weights=IPWeights(), self_normalised=True, model=None)
        """
        *options, name = _ALIASES.get(text.strip(), text.strip()).split("-")
        valid_options = options == [o for o in ("DR", "SN") if o in options]
        if not valid_options or (name not in WEIGHTS and (options or name != "DM")):
            raise SpecError(
                f"an estimator must be DM or one of {', '.join(WEIGHTS)}, with SN- or DR- before it: got {text!r}.",
                code="unknown-name",
                value=text,
                known=["DM", *WEIGHTS],
            )
        if model is None and (name in {"DM", "CIPS"} or "DR" in options):
            raise SpecError(
                f"{text} needs a click model. Fit one and pass it: model=...", code="missing-model", value=text
            )
        own_model = model if name == "DM" or "DR" in options else None
        weights: Weights | None
        if name == "CIPS" and model is not None:
            weights = CIPSWeights(model, max_error)
        else:
            weights = None if name == "DM" else WEIGHTS[name]()
        return cls(weights, "SN" in options, own_model, max_error)

    @property
    def name(self) -> str:
        """Name that `named` reads, e.g. DR-SN-IP."""
        if self.weights is None:
            return "DM"
        return ("DR-" if self.model else "") + ("SN-" if self.self_normalised else "") + self.weights.name

    @property
    def needs_prefixes(self) -> bool:
        """Whether the weights need the probabilities of list prefixes."""
        return isinstance(self.weights, RIPSWeights)


def checked_clip(clip: Sequence[float]) -> Float[np.ndarray, " clip"]:
    """Validate clipping constants and return them as an array.

    Parameters
    ----------
    clip
        Clipping constants above 0, ascending; the last one may be infinite.

    Raises
    ------
    SpecError
        If they are not ("bad-clip").
    """
    limits = np.atleast_1d(np.asarray(clip, np.float64))
    if limits.ndim != 1 or not len(limits) or not (limits > 0).all() or (np.diff(limits) <= 0).any():
        raise SpecError(
            f"clipping constants must be above 0 and ascending, inf allowed: got {list(clip)}.",
            code="bad-clip",
            value=list(clip),
        )
    return limits


def clip_text(clip: float) -> str:
    """Format a clipping constant.

    >>> clip_text(10.0), clip_text(float("inf"))
    ('10', '∞')
    """
    return "∞" if np.isinf(clip) else f"{clip:g}"
