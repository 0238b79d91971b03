"""ClickModelEstimator: click models in scikit-learn, e.g. in `GridSearchCV` with group splits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, final

import numpy as np
from jaxtyping import Float

from clickshift.counts.open_log import open_log
from clickshift.data.encoded_log import EncodedLog, Log
from clickshift.data.sessions import Sessions
from clickshift.errors import SpecError
from clickshift.io.read_report import OnBadLine
from clickshift.learners.base import Learner, learner_for
from clickshift.learners.fit import fit
from clickshift.models.base import ClickModel

__all__ = ["ClickModelEstimator"]


@final
class ClickModelEstimator:
    """A click model with the interface of scikit-learn's estimators, for its splits and searches.

    The samples `X` are a log: a data frame with one row per session or one row per result, or any other log that
    `open_log` opens. Splits of a frame with one row per result must keep sessions whole: use `GroupKFold` with the
    session ids, or with queries or users, as groups. With `log`, samples are row numbers of that log.

    Parameters
    ----------
    model
        A model or learner by name ("UBM", "Counting('dCTR', strength=2)"), or a learner.
    log
        Log that the row numbers in `X` refer to; None if `X` is a log itself.
    columns
        Names of the log's columns, by the names that `read_log` expects.
    on_bad_line
        "error", or "skip" to leave out bad sessions.
    **options
        Options of the learner, e.g. ``strength=2.0``; they are parameters of the estimator, which a search can vary.

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(queries=5), cs.Uniform(), cs.users.PBM(), 2000, rng=1)
    >>> estimator = cs.ClickModelEstimator("dCTR", log=log, strength=2.0).fit(np.arange(1000))
    >>> estimator.model_
    <dCTR: fitted by Counting on 1,000 sessions, 612 pairs>
    >>> estimator.predict_proba(np.arange(1000, 2000)).shape
    (1000, 10)
    >>> estimator.score(np.arange(1000, 2000)) < 0
    True
    """

    model_: ClickModel
    """The fitted model."""

    def __init__(
        self,
        model: str | Learner = "PBM",
        *,
        log: Log | None = None,
        columns: Mapping[str, str] | None = None,
        on_bad_line: OnBadLine = "error",
        **options: Any,
    ) -> None:
        self.model, self.log, self.columns, self.on_bad_line, self.options = model, log, columns, on_bad_line, options

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the estimator, options of the learner included.

        Parameters
        ----------
        deep
            Ignored: there are no nested estimators.
        """
        own = {name: getattr(self, name) for name in ("model", "log", "columns", "on_bad_line")}
        return own | self.options

    def set_params(self, **params: Any) -> ClickModelEstimator:
        """Set parameters of the estimator, or options of the learner.

        Parameters
        ----------
        **params
            Values by name.
        """
        self.__init__(**(self.get_params() | params))
        return self

    def fit(self, X: Any, y: Any = None) -> ClickModelEstimator:
        """Fit the model.

        Parameters
        ----------
        X
            The training log, or row numbers of `log`.
        y
            Ignored: the clicks are in the log.
        """
        self.model_ = fit(self._learner(), self._log(X))
        return self

    def predict_proba(self, X: Any) -> Float[np.ndarray, "session rank"]:
        """Return the marginal click probability of each result: one row per session, one column per rank.

        Parameters
        ----------
        X
            A log, or row numbers of `log`; its clicks are not used.
        """
        return np.concatenate([self.model_.click_prob(part.rankings) for part in self._log(X).chunks()])

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean natural log-likelihood of a session; larger is better.

        Parameters
        ----------
        X
            A log, or row numbers of `log`.
        y
            Ignored: the clicks are in the log.
        """
        log = self._log(X)
        total = sum(float(part.count @ self.model_.log_likelihood(part)) for part in log.chunks())
        return total / log.total

    def _learner(self) -> Learner:
        """Return the learner with its options."""
        learner = learner_for(self.model) if isinstance(self.model, str) else self.model
        if not self.options:
            return learner
        known = [field.name for field in dataclasses.fields(learner)]  # type: ignore[arg-type]
        if unknown := [name for name in self.options if name not in known]:
            raise SpecError(
                f"{type(learner).__name__} has no option {unknown[0]}. It has: {', '.join(known)}.",
                code="bad-option",
                option=unknown[0],
                known=known,
            )
        changed: Learner = dataclasses.replace(learner, **self.options)  # type: ignore[type-var]
        return changed

    def _log(self, X: Any) -> Log:
        """Return the sessions of samples."""
        if self.log is None or isinstance(X, Sessions | EncodedLog):
            return open_log(X, columns=self.columns, on_bad_line=self.on_bad_line)
        sessions = self.log if isinstance(self.log, Sessions) else self.log.sessions()
        return sessions[np.asarray(X).ravel()]

    def __sklearn_clone__(self) -> ClickModelEstimator:
        """Return an unfitted estimator with the same parameters; the log is not copied."""
        return ClickModelEstimator(**self.get_params())

    def __sklearn_tags__(self) -> Any:
        """Describe the estimator to scikit-learn: it needs no target, and takes any log."""
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            no_validation=True,
            input_tags=InputTags(two_d_array=False),
        )

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"ClickModelEstimator({self.model!r}{options})"
