"""EM: maximum likelihood for models with hidden events, on sufficient counts (PBM, UBM, DBN, SDBN, DCM, CCM, CM)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from clickshift.core.newton import CascadeParameters, NewtonResult
from clickshift.core.rng import generator
from clickshift.core.spec import label
from clickshift.counts.cascade import Cascade
from clickshift.counts.cells import By, Cells
from clickshift.counts.connectivity import swap_graph
from clickshift.data.encoded_log import Log
from clickshift.errors import ClickshiftWarning, SpecError
from clickshift.learners._cascade_fit import CascadeFamily, CascadeFit
from clickshift.learners._cascade_models import CCMFamily, DBNFamily, DCMFamily
from clickshift.learners._position_models import ExaminationFit, fit_examination
from clickshift.learners._priors import SHARED_PRIOR, Beta, beta_by_likelihood
from clickshift.models.base import ClickModel, Evidence, pair_table
from clickshift.models.cascade_models import CCM, CM, DCM
from clickshift.models.dbn import DBN, SDBN
from clickshift.models.pbm import PBM
from clickshift.models.ubm import UBM

_SITUATIONS: dict[str, By] = {"PBM": "rank", "UBM": "last_click"}
_CASCADES = ("DBN", "SDBN", "DCM", "CCM", "CM")
_SHORTCUTS = ("DCM", "SDBN")


@final
@dataclass(frozen=True)
class MaximumLikelihood:
    """Exact E-steps on counts, and Newton's steps from what they tell, until one promises less than `tolerance` nats.

    `prior` are the pseudo-clicks and pseudo-examinations of every pair (MAP estimates; unseen pairs get their ratio);
    None takes those by which the documents of this log seem to vary (empirical Bayes).
    `starts` above 1 tries random starts too and keeps the best. `continuation` fixes DBN's; None learns it.
    method="shortcut" is the usual closed form for DCM and SDBN, which takes everything after the last click for
    unexamined and every last click for a satisfying one: quicker, and measurably worse.
    """

    model: str
    iterations: int = 1000
    tolerance: float = 0.1
    prior: tuple[float, float] | None = None
    starts: int = 1
    seed: int = 0
    continuation: float | None = None
    method: str = "em"

    def __post_init__(self) -> None:
        known = (*_SITUATIONS, *_CASCADES)
        if self.model not in known:
            raise SpecError(f"MaximumLikelihood does not fit {self.model!r}. It fits: {', '.join(known)}.")
        if self.iterations < 1 or self.starts < 1 or not self.tolerance > 0:
            raise SpecError("MaximumLikelihood needs iterations >= 1, starts >= 1 and tolerance > 0.")
        if self.method == "shortcut" and self.model not in _SHORTCUTS:
            raise SpecError(f"there is a shortcut for {' and '.join(_SHORTCUTS)} only: got {self.model}.")
        if self.method not in {"em", "shortcut"}:
            raise SpecError(f"method must be 'em' or 'shortcut': got {self.method!r}.")
        if self.continuation is not None and (self.model != "DBN" or not 0 < self.continuation <= 1):
            raise SpecError("continuation is for DBN, and must be above 0 and at most 1.")
        self._beta()

    @property
    def by(self) -> By | None:
        """The situations by which `Cells` are counted for this model; None where it is fitted on a `Cascade`."""
        return _SITUATIONS.get(self.model)

    def _beta(self) -> Beta | None:
        return None if self.prior is None else Beta(*self.prior)

    def fit(self, data: Log | Cells | Cascade) -> ClickModel:
        """Find the parameters from a log, or from its counts (`Cells` for PBM and UBM, `Cascade` for the others).

        Warns where the log cannot tell attractiveness from examination.
        """
        counts = self.counts(data)
        if isinstance(counts, Cells) and (doubt := swap_graph(counts).warning()):
            warnings.warn(f"{self.model}: {doubt}", ClickshiftWarning, stacklevel=2)
        return self.fit_from(counts)

    def counts(self, data: Log | Cells | Cascade, weight: np.ndarray | None = None) -> Cells | Cascade:
        """What this model looks at; `weight` replaces the sessions' counts."""
        if self.by is not None:
            if isinstance(data, Cascade):
                raise SpecError(f"{self.model} is fitted on Cells, not on Cascade.")
            return data.rolled_up(self.by) if isinstance(data, Cells) else Cells.of(data, self.by, weight=weight)
        if isinstance(data, Cells):
            raise SpecError(f"{self.model} is fitted on Cascade, not on Cells.")
        return data if isinstance(data, Cascade) else Cascade.of(data, weight=weight)

    def fit_from(
        self, counts: Cells | Cascade, *, start: ClickModel | None = None, max_steps: int | None = None
    ) -> ClickModel:
        """As `fit`, perhaps from a model of the same kind and with fewer steps: the M-step of a mixture."""
        steps = self.iterations if max_steps is None else max_steps
        if isinstance(counts, Cells):
            return self._examination(counts, start, steps)
        if self.model == "CM":
            return self._cm(counts)
        return self._shortcut(counts) if self.method == "shortcut" else self._cascade(counts, start, steps)

    def _best(
        self, run: Callable[[np.random.Generator | None], CascadeFit | ExaminationFit]
    ) -> CascadeFit | ExaminationFit:
        runs = [run(None)] + [run(generator(self.seed, "EM", k)) for k in range(1, self.starts)]
        return max(runs, key=lambda found: found.ascent.objective)

    def _examination(self, cells: Cells, start: ClickModel | None, max_steps: int) -> ClickModel:
        prior, cls = self._beta(), PBM if self.model == "PBM" else UBM
        known = None
        if isinstance(start, PBM | UBM):
            known = np.clip(np.concatenate([start.attractiveness[:-1], start.examination]), 1e-6, 1 - 1e-6)
        found = self._best(
            lambda rng: fit_examination(
                cells, prior=prior, tolerance=self.tolerance, max_steps=max_steps, start=known, rng=rng
            )
        )
        assert isinstance(found, ExaminationFit)
        errors = {"attractiveness": found.attractiveness_error, "examination": found.examination_error}
        impressions, clicks = (pair_table(counts, unseen=0.0) for counts in cells.by_pair())
        errors["relevance"] = found.attractiveness_error
        evidence = self._evidence(impressions, clicks, errors, found.ascent)
        return cls(cells.vocabulary, found.attractiveness, found.examination, evidence=evidence)

    def _cascade(self, cascade: Cascade, start: ClickModel | None, max_steps: int) -> ClickModel:
        family, known = self._family(cascade), None if start is None else _cascade_parameters(start)
        found = self._best(lambda rng: family.fit(tolerance=self.tolerance, max_steps=max_steps, start=known, rng=rng))
        assert isinstance(found, CascadeFit)
        return self._made(cascade, found.parameters, found.errors, found.ascent)

    def _family(self, cascade: Cascade) -> CascadeFamily:
        prior = self._beta()
        if self.model == "DCM":
            return DCMFamily(cascade, prior)
        if self.model == "CCM":
            return CCMFamily(cascade, prior)
        return DBNFamily(cascade, prior, 1.0 if self.model == "SDBN" else self.continuation)

    def _shortcut(self, cascade: Cascade) -> ClickModel:
        examined, last = np.maximum(cascade.first_examined, cascade.examined), cascade.clicks - cascade.followed
        prior = self._beta() or beta_by_likelihood(examined[:-1], cascade.clicks[:-1])
        a, s = prior.mode(cascade.clicks, examined), SHARED_PRIOR.mode(last, cascade.clicks)
        followed, last = cascade.followed_at_rank, cascade.open_last_at_rank
        shared = SHARED_PRIOR.mode(followed, followed + last) if self.model == "DCM" else np.empty(0)
        return self._made(cascade, CascadeParameters(a, s, shared), None, None)

    def _cm(self, cascade: Cascade) -> ClickModel:
        prior = self._beta() or beta_by_likelihood(cascade.first_examined[:-1], cascade.first_clicks[:-1])
        a = prior.mode(cascade.first_clicks, cascade.first_examined)
        error = 1 / np.sqrt((cascade.first_examined + prior.total) * a * (1 - a))
        found = CascadeParameters(a, np.zeros_like(a), np.empty(0))
        return self._made(cascade, found, CascadeParameters(error, np.zeros_like(a), np.empty(0)), None)

    def _made(
        self, cascade: Cascade, found: CascadeParameters, errors: CascadeParameters | None, ascent: NewtonResult | None
    ) -> ClickModel:
        a, s, shared = found
        logit_error = {} if errors is None else _named_errors(self.model, found, errors)
        evidence = self._evidence(cascade.impressions, cascade.clicks, logit_error, ascent)
        words = cascade.vocabulary
        if self.model == "CM":
            return CM(words, a, evidence=evidence)
        if self.model == "DCM":
            return DCM(words, a, shared, evidence=evidence)
        if self.model == "CCM":
            return CCM(words, a, shared, evidence=evidence)
        if self.model == "SDBN":
            return SDBN(words, a, s, evidence=evidence)
        continuation = float(shared[0]) if self.continuation is None else self.continuation
        return DBN(words, a, s, continuation, evidence=evidence)

    def _evidence(
        self, impressions: np.ndarray, clicks: np.ndarray, errors: dict[str, np.ndarray], ascent: NewtonResult | None
    ) -> Evidence:
        if ascent is None:
            return Evidence(label(self), impressions, clicks, errors)
        return Evidence(label(self), impressions, clicks, errors, ascent.objective, ascent.steps, ascent.converged)


def _named_errors(model: str, found: CascadeParameters, errors: CascadeParameters) -> dict[str, np.ndarray]:
    named = {"attractiveness": errors.attractiveness, "relevance": errors.attractiveness}
    if len(errors.shared):
        named["continuation"] = errors.shared
    if model in {"DBN", "SDBN"}:
        a, s = found.attractiveness, found.satisfaction
        named["satisfaction"] = errors.satisfaction
        # delta method: log(a s) has variance ((1 - a) error_a)^2 + ((1 - s) error_s)^2
        log_error = np.hypot((1 - a) * errors.attractiveness, (1 - s) * errors.satisfaction)
        named["relevance"] = log_error / (1 - a * s)
    return named


def _cascade_parameters(model: ClickModel) -> CascadeParameters | None:
    """The parameters of a fitted cascade, to go on from."""
    if isinstance(model, DBN | SDBN):
        shared = np.array([model.continuation]) if isinstance(model, DBN) else np.empty(0)
        return CascadeParameters(model.attractiveness, model.satisfaction, shared)
    if isinstance(model, DCM | CCM):
        return CascadeParameters(model.attractiveness, np.zeros_like(model.attractiveness), model.continuation)
    return None
