"""Propensities that a log carries: of whole lists, and by position, of which there are four kinds.

A log says with which probability the logging policy showed a document at its rank. What that probability is given
decides which estimators it serves:

- *marginal*: P(a_k at rank k). It serves estimators of single results (IP, PBM, Item). The product over ranks is not
  the probability of a prefix, because a list shows a document once.
- *conditional*: P(a_k at rank k | a_1..a_{k-1}), what a sampler without replacement such as Plackett-Luce records. The
  product down to rank k is the probability of the prefix, which RIPS needs, and down to the last rank that of the list.
- *cascade*: P(a_1..a_k), that product itself (`pscore_cascade` of the Open Bandit Pipeline).
- *independent*: P(a_k at rank k) of a policy that fills every position by itself. Marginal and conditional propensities
  are the same then, and serve all estimators (Vlassis et al. 2021 on factored policies).

A hole has no propensity, and counts as certain in products: where holes are must not depend on chance.

References
----------
McInerney, J. et al. (2020). Counterfactual evaluation of slate recommendations with sequential reward interactions.
KDD.

Saito, Y. et al. (2020). Open Bandit Dataset and Pipeline: towards realistic and reproducible off-policy evaluation.
arXiv:2008.07146.

Vlassis, N. et al. (2021). Control variates for slate off-policy evaluation. NeurIPS.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final, get_args

import numpy as np
from jaxtyping import Bool, Float

from clickshift.errors import CapabilityError, DataError, SpecError

PropensityKind = Literal["marginal", "conditional", "cascade", "independent"]
"""What the propensities by position of a log are the probabilities of."""
_KINDS: tuple[PropensityKind, ...] = get_args(PropensityKind)
_ROUNDING = 1e-6
"""Relative rise of cascade propensities between ranks that may be due to rounding."""
_MAX_RATIO = 1.05
"""Largest ratio of the product of propensities by position to the propensity of the list, or of its inverse."""


def checked_kind(kind: str) -> PropensityKind:
    """Return a kind of propensities by position, or raise: "bad-option"."""
    for known in _KINDS:
        if kind == known:
            return known
    raise SpecError(
        f"propensity_kind must be {', '.join(_KINDS[:-1])} or {_KINDS[-1]}: got {kind!r}.",
        code="bad-option",
        option="propensity_kind",
        value=kind,
        known=list(_KINDS),
    )


@final
@dataclass(frozen=True, eq=False)
class LoggedPropensities:
    """Propensities of the entries of a grouped log.

    Parameters
    ----------
    kind
        What the propensities by position are the probabilities of.
    of_lists
        Propensity of each list; None where the log has none, or where they belong to longer lists.
    by_rank
        Propensities by position, at most 1; None where the log has none.
    shown
        Where a document is shown.
    was_cut
        Whether lists are shorter here than in the log.
    """

    kind: PropensityKind
    of_lists: Float[np.ndarray, " entry"] | None
    by_rank: Float[np.ndarray, "entry rank"] | None
    shown: Bool[np.ndarray, "entry rank"]
    was_cut: bool

    def __post_init__(self) -> None:
        if self.by_rank is None or self._single:
            return
        if self.kind == "cascade":
            above = np.minimum.accumulate(np.where(self.shown, self.by_rank, 1.0), axis=1)[:, :-1]
            rising = (self.shown[:, 1:] & (self.by_rank[:, 1:] > above * (1 + _ROUNDING))).any(axis=1)
            if rising.any():
                raise DataError(
                    "cascade propensities are those of prefixes of a list, and must not rise from rank to rank: they "
                    f"do in {rising.sum():,} distinct lists. If they are those of documents given the documents above, "
                    'pass propensity_kind="conditional".',
                    code="rising-propensities",
                    count=int(rising.sum()),
                )
        if self.kind != "marginal" and self.of_lists is not None:
            self._require_agreement(self.of_lists)

    def _require_agreement(self, of_lists: Float[np.ndarray, " entry"]) -> None:
        """Raise if the product of propensities by position is not the propensity of the list."""
        product = self._products[:, -1]
        disagree = (product > of_lists * _MAX_RATIO) | (product * _MAX_RATIO < of_lists)
        if disagree.any():
            raise DataError(
                f"{self.kind} propensities by position determine the propensity of a list: they disagree with the "
                f"column propensity in {disagree.sum():,} of {len(of_lists):,} distinct lists. Pass the right "
                "propensity_kind, or remove one of the columns.",
                code="propensities-disagree",
                count=int(disagree.sum()),
                kind=self.kind,
            )

    @property
    def _single(self) -> bool:
        """Whether lists have one rank, so that all kinds are the same."""
        return bool(self.shown.shape[1] == 1)

    @property
    def gives_ranks(self) -> bool:
        """Whether P(document at rank) is known."""
        if self.by_rank is None:
            return self._single and self.of_lists is not None
        return self._single or self.kind in {"marginal", "independent"}

    @property
    def gives_prefixes(self) -> bool:
        """Whether the probabilities of list prefixes are known."""
        if self.by_rank is None:
            return self._single and self.of_lists is not None
        return self._single or self.kind != "marginal"

    @property
    def gives_lists(self) -> bool:
        """Whether the probabilities of lists are known."""
        return self.of_lists is not None or self.gives_prefixes

    @property
    def independent(self) -> bool:
        """Whether positions are filled independently of each other."""
        return self.kind == "independent" and self.by_rank is not None

    def lists(self) -> Float[np.ndarray, " entry"]:
        """Return the propensity of each list.

        Raises
        ------
        DataError
            If it is not known ("missing-propensities").
        """
        if self.of_lists is not None:
            return self.of_lists
        if self.gives_prefixes:
            return self._products[:, -1]
        problem = "it has none"
        if self.by_rank is not None:
            problem = f"it has propensities by position, and their product is not that of a list. {_OTHER_KINDS}"
        elif self.was_cut:
            problem = "those that it has are of longer lists than the reward counts"
        raise DataError(
            f'the log must carry the propensities of its lists: {problem}. Pass the logging policy, or logging="'
            'frequencies".',
            code="missing-propensities",
            was_cut=self.was_cut,
        )

    def prefixes(self, estimator: str) -> Float[np.ndarray, "entry rank"]:
        """Return the probability of each prefix, down to each rank.

        Raises
        ------
        CapabilityError
            If it is not known ("no-prefix-propensities").
        """
        if self.gives_prefixes:
            return self._products
        problem = "propensities of whole lists do not give it"
        if self.by_rank is not None:
            problem = f"the product of marginal propensities does not give it. {_OTHER_KINDS}"
        raise CapabilityError(
            f"{estimator} needs the probability of each prefix of a list under the logging policy: {problem}. "
            "Otherwise choose IP, or pass the logging policy.",
            code="no-prefix-propensities",
            estimator=estimator,
            n_ranks=self.shown.shape[1],
        )

    def ranks(self, estimator: str) -> Float[np.ndarray, "entry rank"]:
        """Return the probability of each document at its rank; 0 where nothing is shown.

        Raises
        ------
        CapabilityError
            If the log carries propensities of lists only ("list-propensities-only"), or propensities by position that
            do not give it ("no-rank-propensities").
        DataError
            If it carries none ("missing-propensities").
        """
        if self.gives_ranks:
            return np.where(self.shown, self._given, 0.0)
        if self.by_rank is not None:
            raise CapabilityError(
                f"{estimator} needs the probability of each document at its rank, whatever is above it: {self.kind} "
                "propensities do not give it. Choose RIPS or List; if the propensities of the log are marginal, pass "
                'propensity_kind="marginal".',
                code="no-rank-propensities",
                estimator=estimator,
                kind=self.kind,
            )
        if self.of_lists is not None:
            raise CapabilityError(
                f"{estimator} needs the probability of each document at its rank under the logging policy, which "
                "propensities of whole lists do not give. Add a column propensity_at_rank, pass the logging policy, or "
                'logging="frequencies".',
                code="list-propensities-only",
                estimator=estimator,
            )
        raise DataError(
            "the log must carry the propensities of its documents by position (column propensity_at_rank): it has "
            'none. Pass the logging policy, or logging="frequencies".',
            code="missing-propensities",
            was_cut=False,
        )

    @property
    def _given(self) -> Float[np.ndarray, "entry rank"]:
        """Propensities by position; of lists of one document, those of the lists."""
        return self.lists()[:, None] if self.by_rank is None else self.by_rank

    @cached_property
    def _products(self) -> Float[np.ndarray, "entry rank"]:
        """Probability of the prefix down to each rank; 1 above the first document."""
        given = np.where(self.shown, self._given, 1.0)
        return np.minimum.accumulate(given, axis=1) if self.kind == "cascade" else np.cumprod(given, axis=1)


_OTHER_KINDS = (
    'If they are conditional on the documents above, pass propensity_kind="conditional"; if they are those of '
    'prefixes, propensity_kind="cascade"; if every position is filled by itself, propensity_kind="independent"'
)
"""Advice where marginal propensities are not enough."""
