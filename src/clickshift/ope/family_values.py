"""Values of targets under every click-model family of a log, with a jackknife over groups of sessions.

Every estimate without a group of sessions fits the models again, so that its variation includes that of the estimated
examination, continuation and attractiveness. Large logs are sampled for it: the standard error of the whole log is that
of the sample, times the square root of the sample's share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.parallel import in_threads
from clickshift.core.progress import Progress, silent
from clickshift.core.rng import generator
from clickshift.data.sessions import Sessions
from clickshift.learners.likelihood import MaximumLikelihood
from clickshift.models.base import ClickModel
from clickshift.ope.model_confidence_set import FamilyFit
from clickshift.ope.model_value import (
    CalibratedModel,
    LostMass,
    TargetLists,
    Valuation,
    lost_mass,
    sums_by_pair,
    value_target,
)
from clickshift.ope.rewards import Reward
from clickshift.ope.session_groups import divide_sessions, sample_sessions, with_counts

N_GROUPS = 16
"""Groups of the jackknife: intervals use Student's t distribution with 15 degrees of freedom."""
_MAX_ROWS = 15_000
"""Distinct sessions that a jackknife uses, at most: larger logs are sampled for it."""
_MAX_STEPS = 4
"""Evaluations of the likelihood in a fit that starts from the one of the whole log."""


@final
@dataclass(frozen=True, eq=False)
class FamilyValue:
    """Value of one target under one click-model family.

    Parameters
    ----------
    full
        Value, floor, ceiling and the log's reward.
    refitted
        The same without each group of sessions, with the model fitted again.
    fixed
        The same without each group of sessions, with the model of the whole log.
    lost
        What the log does not tell about the target.
    """

    full: Valuation
    refitted: Float[np.ndarray, "group field"]
    fixed: Float[np.ndarray, "group field"]
    lost: LostMass


@final
@dataclass(frozen=True, eq=False)
class FamilyJackknife:
    """A log without each of several groups of its sessions.

    Parameters
    ----------
    sessions
        The whole log.
    sample
        The log, or a sample of it.
    left
        Sessions of each row of the sample that are left, without each group.
    reward
        The reward.
    """

    sessions: Sessions
    sample: Sessions
    left: Int[np.ndarray, "group row"]
    reward: Reward
    _calibrated: dict[tuple[str, bool], list[CalibratedModel]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, sessions: Sessions, reward: Reward, *, cluster: Int[np.ndarray, " row"] | None = None, seed: int = 0
    ) -> FamilyJackknife:
        """Divide a log, or a sample of it, into groups.

        Parameters
        ----------
        sessions
            The log.
        reward
            The reward.
        cluster
            Number of the cluster of each row, from 0; None if sessions are independent.
        seed
            Random seed of the sample and of the groups.
        """
        rng = generator(seed, "jackknife")
        sample, own = sample_sessions(sessions, _MAX_ROWS, rng, cluster)
        left = sample.count[:, None] - divide_sessions(sample.count, N_GROUPS, rng, own)
        return cls(sessions, sample, np.ascontiguousarray(left.T), reward)

    @property
    def share(self) -> float:
        """Share of the log's sessions in the sample."""
        return self.sample.total / self.sessions.total

    def value(
        self,
        fit: FamilyFit,
        target: TargetLists,
        clip: float,
        *,
        replicates: bool = True,
        progress: Progress = silent,
    ) -> FamilyValue:
        """Compute the value of a target under a family, with and without each group.

        Parameters
        ----------
        fit
            The family.
        target
            The target's lists.
        clip
            Largest weight of a document.
        replicates
            Whether to compute the values without each group, which are NaN otherwise.
        progress
            Called with a text on the state of the work.
        """
        queries = self.sessions.vocabulary.n_queries
        by_query = np.bincount(self.sessions.rankings.query, self.sessions.count, queries)
        lost = lost_mass(fit.calibrated, target, by_query, self.reward, clip)
        used = target.ranked[self.sessions.rankings.query]
        earned = float((target.earned(self.sessions, self.reward) * self.sessions.count)[used].sum())
        full = value_target(fit.calibrated, target, by_query, earned, self.reward, lost)
        if not replicates:
            nothing = np.full((N_GROUPS, len(full)), np.nan)
            return FamilyValue(full, nothing, nothing, lost)
        query = self.sample.rankings.query
        used = target.ranked[query]
        left = [np.bincount(query, own, queries) for own in self.left]
        earned_left = self.left @ np.where(used, target.earned(self.sample, self.reward), 0.0)

        def values(calibrated: Sequence[CalibratedModel]) -> Float[np.ndarray, "group field"]:
            return np.array(
                in_threads(
                    lambda g: value_target(calibrated[g], target, left[g], float(earned_left[g]), self.reward, lost),
                    N_GROUPS,
                )
            )

        fixed = values(self._models(fit, refit=False, progress=progress))
        refitted = fixed if fit.learner is None else values(self._models(fit, refit=True, progress=progress))
        return FamilyValue(full, refitted, fixed, lost)

    def _models(self, fit: FamilyFit, refit: bool, progress: Progress) -> list[CalibratedModel]:
        """Calibrated models without each group, fitted again or not; computed once."""
        key = fit.name, refit
        if key not in self._calibrated:
            if fit.learner is None or not refit:
                self._calibrated[key] = self._recalibrated(fit.model)
            else:
                progress(f"fitting {fit.name} without each of {N_GROUPS} groups of sessions")
                self._calibrated[key] = self._refitted(fit.learner, fit.model)
        return self._calibrated[key]

    def _recalibrated(self, model: ClickModel) -> list[CalibratedModel]:
        """Calibrate a model on the sessions without each group: the sums of all other groups."""
        prob = model.click_prob_given_history(self.sample)
        groups = self.sample.count - self.left
        sums = np.array([sums_by_pair(with_counts(self.sample, own), prob[own > 0]) for own in groups])
        above, below = np.zeros_like(sums), np.zeros_like(sums)  # no differences, so that 0 stays 0
        np.cumsum(sums[:-1], axis=0, out=above[1:])
        np.cumsum(sums[:0:-1], axis=0, out=below[-2::-1])
        return [CalibratedModel.from_sums(model, *left) for left in above + below]

    def _refitted(self, learner: MaximumLikelihood, model: ClickModel) -> list[CalibratedModel]:
        """Fit a family without each group, and calibrate."""
        start = model
        if self.sample is not self.sessions:
            start = learner.fit_from(learner.counts(self.sample), start=model, errors=False)

        def fit_without(group: int) -> CalibratedModel:
            part = with_counts(self.sample, self.left[group])
            fitted = learner.fit_from(learner.counts(part), start=start, max_steps=_MAX_STEPS, errors=False)
            return CalibratedModel.of(fitted, part, fitted.click_prob_given_history(part))

        return in_threads(fit_without, N_GROUPS)
