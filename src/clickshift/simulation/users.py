"""Simulated users: click models whose parameters are computed from relevance labels as in the papers.

A user is a frozen value; `on(corpus)` returns the click model, which draws clicks. Its exact conditional probabilities
make it the oracle: no model predicts its clicks better. A document without a label counts as irrelevant (label 0). In
formulas g = (2^label - 1) / (2^max_label - 1).

References
----------
Policy-shift paper: Deffayet, R., Renders, J.-M., de Rijke, M. (2022). Evaluating the robustness of click models to
policy distributional shift. ACM TOIS.
CMIP paper: Deffayet, R., Hager, P., Renders, J.-M., de Rijke, M. (2023). An offline metric for the debiasedness of
click models. SIGIR.
IPS paper: Hager, P., de Rijke, M., Zoeter, O. (2022). Are neural click models pointwise IPS rankers?
CONSEQUENCES+REVEAL workshop at RecSys. (Later: Contrasting neural click models and pointwise IPS rankers. ECIR 2023.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from clickshift import models
from clickshift.core.spec import check_options
from clickshift.data.corpus import Corpus
from clickshift.errors import SpecError
from clickshift.models.base import ClickModel, pair_table

USERS = {
    "DBN": "clickshift.simulation.users:DBN",
    "CoCM": "clickshift.simulation.users:CoCM",
    "CoCM_mismatch": "clickshift.simulation.users:CoCM_mismatch",
    "PBM": "clickshift.simulation.users:PBM",
    "GradedDBN": "clickshift.simulation.users:GradedDBN",
    "MixtureDBN": "clickshift.simulation.users:MixtureDBN",
    "Carousel": "clickshift.simulation.users:Carousel",
    "TrustBias": "clickshift.simulation.users:TrustBias",
}
"""Registry of the users that can be named in a specification."""

READINGS: dict[str, Callable[..., ClickModel]] = {
    "latent-stop": models.ComplexBrowsing,
    "equation-17": models.ExpectedComplexBrowsing,
    "reference-code": partial(models.ComplexBrowsing, reference_code=True),
}
"""Readings of CoCM: the model of one browsing mode, by name."""
_CAROUSEL_ROWS = 64  # more rows than any result page has


@runtime_checkable
class User(Protocol):
    """Interface of simulated users."""

    def on(self, corpus: Corpus) -> ClickModel:
        """Return the user's click model for the documents of a corpus."""

    def exposure(self, ranks: int) -> Float[np.ndarray, " rank"]:
        """Return the examination of each rank while nothing is clicked: the order in which ranks should be filled."""


@dataclass(frozen=True)
class DBN:
    """DBN user of the policy-shift paper, section 5.2.4: attractiveness .95 g, satisfaction .9 g.

    The published section 6.1 seems to use satisfaction=.5 (see docs/decisions).

    Parameters
    ----------
    attractiveness
        Attractiveness of the best grade.
    satisfaction
        Satisfaction of the best grade.
    continuation
        Probability of continuing without satisfaction.
    floor
        Smallest attractiveness; it is in the authors' code, not in the paper.
    """

    attractiveness: float = 0.95
    satisfaction: float = 0.9
    continuation: float = 0.9
    floor: float = 0.02

    def __post_init__(self) -> None:
        _check(self)

    def on(self, corpus: Corpus) -> ClickModel:
        """Return the user's click model for the documents of a corpus."""
        return models.DBN(
            corpus.vocabulary,
            _by_pair(np.maximum(self.attractiveness * corpus.gain, self.floor), label_0=self.floor),
            _by_pair(self.satisfaction * corpus.gain, label_0=0.0),
            self.continuation,
        )

    def exposure(self, ranks: int) -> Float[np.ndarray, " rank"]:
        """Return the examination of each rank while nothing is clicked."""
        return _top_down_exposure(self.continuation, ranks)


@dataclass(frozen=True)
class CoCM:
    """Complex user of the policy-shift paper, appendix B: top-down, bottom-up, or clicking without looking.

    Attractiveness is g, at least `floor`. How browsing ends is read in three ways (docs/decisions/0004):

    - "latent-stop": the user leaves at some result, after a click (satisfaction) or without one (continuation), and
      clicks tell when;
    - "equation-17": the formula of the paper as printed, in which examination is an expected value;
    - "reference-code": the authors' code, in which leaving after a click is drawn and continuation is a factor, with
      its special first and last results.

    Parameters
    ----------
    modes
        Shares of top-down, bottom-up and no-look sessions.
    satisfaction
        Probability of stopping after a click.
    continuation
        Probability of continuing without satisfaction.
    no_look
        Click probability of the first rank in a no-look session.
    no_look_decay
        Decay of that probability: rank r, from 0, is clicked with probability `no_look` x `no_look_decay`^r.
    floor
        Smallest attractiveness; it is in the authors' code, not in the paper.
    reading
        How browsing ends: "latent-stop", "equation-17" or "reference-code".

    Raises
    ------
    SpecError
        If there is no such reading, or a probability is not from 0 to 1 ("bad-option").

    Examples
    --------
    >>> CoCM(reading="equation-17").satisfaction
    0.7
    """

    modes: tuple[float, float, float] = (0.6, 0.3, 0.1)
    satisfaction: float = 0.7
    continuation: float = 0.9
    no_look: float = 0.2
    no_look_decay: float = 0.9
    floor: float = 0.02
    reading: str = "latent-stop"

    def __post_init__(self) -> None:
        if self.reading not in READINGS:
            raise SpecError(
                f"reading of CoCM must be one of {', '.join(READINGS)}: got {self.reading!r}.",
                code="bad-option",
                option="reading",
                value=self.reading,
                known=list(READINGS),
            )
        _check(self)

    def on(self, corpus: Corpus) -> ClickModel:
        """Return the user's click model for the documents of a corpus."""
        attractiveness = _by_pair(np.maximum(corpus.gain, self.floor), label_0=self.floor)
        parameters = (corpus.vocabulary, attractiveness, self.satisfaction, self.continuation)
        no_look = models.RCTR(corpus.vocabulary, self.no_look * self.no_look_decay ** np.arange(256))
        browsing = READINGS[self.reading]
        components = (browsing(*parameters), browsing(*parameters, bottom_up=True), no_look)
        return models.Mixture(corpus.vocabulary, components, np.array(self.modes))

    def exposure(self, ranks: int) -> Float[np.ndarray, " rank"]:
        """Return the examination of each rank while nothing is clicked."""
        down = _top_down_exposure(self.continuation, ranks)
        return self.modes[0] * down + self.modes[1] * down[::-1]


def CoCM_mismatch(**changes: Any) -> CoCM:
    """Return a CoCM user with modes (.2, .7, .1), mostly bottom-up.

    The paper prints (.2, .7, .3), which does not sum to 1; its code has .1.

    Parameters
    ----------
    **changes
        Other options of `CoCM`.
    """
    return CoCM(modes=(0.2, 0.7, 0.1), **changes)


@dataclass(frozen=True)
class PBM:
    """Position-based user of the IPS paper and, with the same parameters, of the CMIP paper.

    Attractiveness is noise + (1 - noise) g, examination is (1 / rank)^eta.

    Parameters
    ----------
    eta
        Strength of the position bias.
    noise
        Attractiveness of an irrelevant document.
    """

    eta: float = 1.0
    noise: float = 0.1

    def __post_init__(self) -> None:
        _check(self)

    def on(self, corpus: Corpus) -> ClickModel:
        """Return the user's click model for the documents of a corpus."""
        attractiveness = _by_pair(self.noise + (1 - self.noise) * corpus.gain, label_0=self.noise)
        return models.PBM(corpus.vocabulary, attractiveness, self.exposure(256))

    def exposure(self, ranks: int) -> Float[np.ndarray, " rank"]:
        """Return the examination of each rank."""
        return (1.0 / np.arange(1, ranks + 1)) ** self.eta


@dataclass(frozen=True)
class GradedDBN:
    """DBN user of the CMIP paper: attractiveness label / max_label, satisfaction half of that.

    Parameters
    ----------
    satisfaction
        Satisfaction of the best grade.
    continuation
        Probability of continuing without satisfaction.
    floor
        Smallest attractiveness.
    as_published
        Whether to use the recursion of the paper's code, in which stopping is never sampled (`models.SoftDBN`).
    """

    satisfaction: float = 0.5
    continuation: float = 0.8
    floor: float = 0.1
    as_published: bool = False

    def __post_init__(self) -> None:
        _check(self)

    def on(self, corpus: Corpus) -> ClickModel:
        """Return the user's click model for the documents of a corpus."""
        grade = corpus.label.astype(np.float64) / corpus.max_label
        attractiveness = _by_pair(np.maximum(grade, self.floor), label_0=self.floor)
        satisfaction = _by_pair(self.satisfaction * grade, label_0=0.0)
        model = models.SoftDBN if self.as_published else models.DBN
        return model(corpus.vocabulary, attractiveness, satisfaction, self.continuation)

    def exposure(self, ranks: int) -> Float[np.ndarray, " rank"]:
        """Return the examination of each rank while nothing is clicked."""
        return _top_down_exposure(self.continuation, ranks)


@dataclass(frozen=True)
class MixtureDBN:
    """DBN user of the CMIP paper who reads some sessions top-down and the others bottom-up.

    Attractiveness is clip(g + noise N(0, 1), floor, 1), drawn independently at every impression; satisfaction is g.

    Parameters
    ----------
    top_down
        Share of top-down sessions.
    continuation
        Probability of continuing without satisfaction.
    noise
        Standard deviation of the attractiveness.
    floor
        Smallest attractiveness.
    """

    top_down: float = 0.7
    continuation: float = 0.7
    noise: float = 0.1
    floor: float = 0.1

    def __post_init__(self) -> None:
        _check(self)

    def on(self, corpus: Corpus) -> ClickModel:
        """Return the user's click model for the documents of a corpus."""
        attractiveness = _by_pair(
            _clipped_normal(corpus.gain, self.noise, self.floor)[0],
            label_0=_clipped_normal(np.zeros(1), self.noise, self.floor)[0][0],
        )
        parameters = (corpus.vocabulary, attractiveness, _by_pair(corpus.gain, label_0=0.0), self.continuation)
        components = (models.DBN(*parameters), models.DBN(*parameters, bottom_up=True))
        return models.Mixture(corpus.vocabulary, components, np.array([self.top_down, 1 - self.top_down]))

    def exposure(self, ranks: int) -> Float[np.ndarray, " rank"]:
        """Return the examination of each rank while nothing is clicked."""
        down = _top_down_exposure(self.continuation, ranks)
        return self.top_down * down + (1 - self.top_down) * down[::-1]


@dataclass(frozen=True)
class Carousel:
    """User of a carousel in the CMIP paper: rows are examined with probability (1 / row)^row_decay and read as by DBN.

    Attractiveness is that of MixtureDBN, and is also the satisfaction. The same draw a determines both, so a click is
    evidence of a large a: P(satisfied | clicked) = E[a^2] / E[a], not E[a]. The published code multiplies sampled
    clicks by the row's examination, which gives clicks of 0.7071; here the examination is sampled, and clicks are 0 or
    1.

    Parameters
    ----------
    columns
        Number of results per row.
    continuation
        Probability of continuing within a row without satisfaction.
    row_decay
        Exponent of the examination of rows.
    noise
        Standard deviation of the attractiveness.
    floor
        Smallest attractiveness.
    """

    columns: int = 5
    continuation: float = 0.75
    row_decay: float = 0.5
    noise: float = 0.1
    floor: float = 0.1

    def __post_init__(self) -> None:
        _check(self)

    def on(self, corpus: Corpus) -> ClickModel:
        """Return the user's click model for the documents of a corpus."""
        mean, square = _clipped_normal(np.append(corpus.gain, 0.0), self.noise, self.floor)
        row_examination = (1.0 / np.arange(1, _CAROUSEL_ROWS + 1)) ** self.row_decay
        return models.Carousel(corpus.vocabulary, mean, square / mean, self.continuation, row_examination, self.columns)

    def exposure(self, ranks: int) -> Float[np.ndarray, " rank"]:
        """Return the examination of each rank while nothing is clicked."""
        row, column = np.divmod(np.arange(ranks), self.columns)
        exposure: np.ndarray = (1.0 / (row + 1)) ** self.row_decay * self.continuation**column
        return exposure


@dataclass(frozen=True)
class TrustBias:
    """User with trust bias from the CMIP paper's code.

    P(C_k = 1) = (1/k)^eta [ g (1 - (min(k, 20) + 1) / 100) + (1 - g) .65 / min(k, 10) ], with eta = 1.

    Parameters
    ----------
    eta
        Strength of the position bias.
    """

    eta: float = 1.0

    def __post_init__(self) -> None:
        _check(self)

    def on(self, corpus: Corpus) -> ClickModel:
        """Return the user's click model for the documents of a corpus."""
        k = np.arange(1, 257)
        return models.TrustPBM(
            corpus.vocabulary,
            _by_pair(corpus.gain, label_0=0.0),
            self.exposure(len(k)),
            true_positive=1 - (np.minimum(k, 20) + 1) / 100,
            false_positive=0.65 / np.minimum(k, 10),
        )

    def exposure(self, ranks: int) -> Float[np.ndarray, " rank"]:
        """Return the examination of each rank."""
        return (1.0 / np.arange(1, ranks + 1)) ** self.eta


def _by_pair(values: np.ndarray, *, label_0: float) -> np.ndarray:
    """Return a parameter table whose value for unseen pairs is that of label 0."""
    return pair_table(values, unseen=label_0)


_NOT_PROBABILITIES = {"eta": math.inf, "columns": 1 << 20}
"""Largest value of the options that are not probabilities."""


def _check(user: Any) -> None:
    """Check that the options of a user have the right types, and that probabilities are from 0 to 1."""
    check_options(user)
    for field in (field for field in fields(user) if field.name != "reading"):
        values, most = getattr(user, field.name), _NOT_PROBABILITIES.get(field.name, 1)
        least = 1 if field.name == "columns" else 0
        for value in values if isinstance(values, tuple) else (values,):
            if not least <= value <= most or math.isinf(value):
                raise SpecError(
                    f"{field.name} of {type(user).__name__} must be from {least} to {most}: got {value}.",
                    code="bad-option",
                    option=field.name,
                    value=value,
                )


def _top_down_exposure(continuation: float, ranks: int) -> np.ndarray:
    """Return the examination of a top-down user who never clicks."""
    exposure: np.ndarray = continuation ** np.arange(ranks)
    return exposure


def _clipped_normal(mean: np.ndarray, sd: float, low: float, high: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return E[a] and E[a^2] of a = clip(mean + sd N(0, 1), low, high)."""
    if sd == 0:
        a = np.clip(mean, low, high)
        return a, a * a
    alpha, beta = (low - mean) / sd, (high - mean) / sd
    inside = ndtr(beta) - ndtr(alpha)
    density_a, density_b = (np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi) for x in (alpha, beta))
    first = low * ndtr(alpha) + high * ndtr(-beta) + mean * inside + sd * (density_a - density_b)
    second = (
        low**2 * ndtr(alpha)
        + high**2 * ndtr(-beta)
        + (mean**2 + sd**2) * inside
        + 2 * mean * sd * (density_a - density_b)
        + sd**2 * (alpha * density_a - beta * density_b)
    )
    return first, second
