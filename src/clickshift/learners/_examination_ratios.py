"""Maximum likelihood of ratios of examination, which chance may put above 1.

Only products of attractiveness and examination are identified, so that examination is relative to that of a reference
situation. The maximum under the limit of 1 is no basis for intervals: situations that are examined nearly as often as
the reference are estimated above it by chance, the limit moves them down, and with them all ranks that are connected
with the reference only through them, by about one standard error of their level. Without it, clicks have the
probability a e (a log-binomial model): the likelihood is concave in the logarithms, and these are about normal with the
covariance of its curvature. Estimates of examination are the likeliest values below the limit, given that distribution.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from typing_extensions import override

from clickshift.core.newton import covariance, halved_steps
from clickshift.learners._examination_shrinkage import conditional_information
from clickshift.learners._position_models import EXAMINATION_PRIOR, ExaminationProblem, ProfileLikelihood, at_least

_LEAST, _MOST = 1e-7, 1e3
"""Range of ratios of examination."""
_LEVEL = 0.05
"""Level of the test that another situation is examined more than the reference."""
_PRIOR_YES, _PRIOR_NO = EXAMINATION_PRIOR.yes, EXAMINATION_PRIOR.total - EXAMINATION_PRIOR.yes
_RIDGE = 1e-9
"""Part of each variance that is added to it, so that a covariance can be decomposed."""


@dataclass(frozen=True, eq=False)
class _RatioLikelihood(ProfileLikelihood):
    """Profile likelihood, with the gradient and the information by the logarithms of examination."""

    @override
    def candidates(self) -> Iterator[Float[np.ndarray, " situation"]]:
        """Yield the ratios after the Newton step, then after half of it, and so on."""
        for step in halved_steps(self._step):
            e = self.examination.copy()
            e[self.free] = np.clip(e[self.free] * np.exp(step), _LEAST, _MOST)
            yield e


class RatioProblem(ExaminationProblem):
    """Counts of one log without views, and the profile likelihood of ratios of examination."""

    @override
    def profile(self, e: Float[np.ndarray, " situation"], free: Int[np.ndarray, " free"]) -> _RatioLikelihood:
        """Compute the profile likelihood with its gradient and curvature by the logarithms of examination.

        The prior, which only keeps ratios in range, is a gamma distribution with its mode at 1.
        """
        objective, gradient, curvature = self.skips_by_logs(e)
        clicks = self.clicks + _PRIOR_YES
        value = objective + float((clicks * np.log(e) - _PRIOR_NO * e).sum())
        by_logs, information = gradient + clicks - _PRIOR_NO * e, curvature + np.diag(_PRIOR_NO * e)
        return _RatioLikelihood(e, free, self._attractiveness, value, by_logs, information)

    def ratios(self, fitted: ProfileLikelihood, *, conditional: bool) -> LogRatios:
        """Return the logarithms of examination with their covariance, without the prior.

        Variances are not below those of the conditional likelihood if `conditional`.
        """
        e, free, n = fitted.examination, fitted.free, len(fitted.examination)
        cov = np.zeros((n, n))
        if len(free):
            own = np.ix_(free, free)
            found = covariance((fitted.information - np.diag(_PRIOR_NO * e))[own])
            if conditional:
                found = at_least(found, covariance(conditional_information(self.unknown, e)[own]))
            cov[own] = found
        return LogRatios(np.log(e), cov)


@dataclass(frozen=True, eq=False)
class LogRatios:
    """Logarithms of ratios of examination, about normal.

    Parameters
    ----------
    mean
        Estimates.
    covariance
        Their covariance; 0 for values that are fixed.
    """

    mean: Float[np.ndarray, " value"]
    covariance: Float[np.ndarray, "value value"]

    def relative_to(self, reference: int) -> LogRatios:
        """Return the ratios to another situation.

        Parameters
        ----------
        reference
            Its number.
        """
        cov, row = self.covariance, self.covariance[reference]
        return LogRatios(self.mean - self.mean[reference], cov - row - row[:, None] + row[reference])

    def below_one(self) -> Float[np.ndarray, " value"]:
        """Return the likeliest logarithms that are at most 0.

        They are mean - covariance x with multipliers x >= 0 of the limits that bind: a problem of non-negative least
        squares.
        """
        from scipy.optimize import nnls

        if not (self.mean > 0).any():
            return self.mean
        free = np.flatnonzero(np.diag(self.covariance) > 0)
        cov = self.covariance[np.ix_(free, free)]
        root = np.linalg.cholesky(cov + np.diag(_RIDGE * np.diag(cov)))
        multipliers, _ = nnls(root.T, np.linalg.solve(root, self.mean[free]))
        below: np.ndarray = np.minimum(self.mean, 0.0)
        below[free] = np.minimum(self.mean[free] - cov @ multipliers, 0.0)
        return below

    def better_reference(self, reference: int, candidate: int) -> int:
        """Return the candidate if it is clearly examined more than the reference.

        Of many situations, the estimates of some are above 1 by chance: the level of the test is divided by their
        number. How well all of them together keep below 1 is no test: they do best relative to the one that is
        estimated too high by most.

        Parameters
        ----------
        reference
            Situation that values are relative to.
        candidate
            Another one.
        """
        from scipy.special import ndtri

        error = np.sqrt(max(self.covariance[candidate, candidate], 0.0))
        return candidate if self.mean[candidate] > -ndtri(_LEVEL / 2 / len(self.mean)) * error else reference
