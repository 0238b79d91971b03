"""Where a click model's loss under a new ranker comes from: examination, attractiveness, or the structure of the model.

The simulated users' own parameters are known. A fitted model keeps its structure, and its fitted parts are exchanged
for true ones: attractiveness alone, examination alone, and both. What is left with both is the loss of the structure.
The loss of each part is what its exchange saves, as a mean over the two orders of exchange (Shapley value), so that the
three parts sum to the perplexity above the users' own model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from clickshift.core.progress import Progress, silent
from clickshift.core.text import join_words
from clickshift.display.document import Document, Section
from clickshift.display.result import Result
from clickshift.display.tables import Rows
from clickshift.errors import SpecError
from clickshift.experiments.policy_shift._loss_parts import sources_of_loss
from clickshift.experiments.policy_shift._report_loss import loss_figure, loss_sentence, loss_table, mean_losses
from clickshift.experiments.policy_shift.protocol import SCALES, PolicyShift
from clickshift.learners import fit
from clickshift.models import DBN, PBM, UBM
from clickshift.simulation.search_engine import IND

__all__ = ["LossSources", "loss_sources", "sources_of_loss"]


@dataclass(frozen=True, repr=False)
class LossSources(Result):
    """Perplexity above the simulated users' own model, split into its sources.

    Parameters
    ----------
    losses
        One row per users, training policy, test policy and model.

    Notes
    -----
    Facts (`to_dict`, `--json`): `conclusion`; `rows`, with `user`, `training`, `testing`, `model`, `excess` and its
    parts `examination`, `attractiveness` and `structure`, which sum to it; `means`, the same by users and model.
    """

    losses: Rows

    @property
    def conclusion(self) -> str:
        """The largest source of each model's loss."""
        return loss_sentence(self.losses)

    def rows(self) -> Rows:
        """Return one row per shift and model."""
        return self.losses

    @property
    def means(self) -> Rows:
        """Means over other policies' lists, by users and model."""
        return mean_losses(self.losses)

    def facts(self) -> Mapping[str, Any]:
        """Return the conclusion, the rows and their means."""
        return {**super().facts(), "means": self.means}

    def _document(self) -> Document:
        means = self.means
        title = "Where the loss under a new ranker comes from"
        headline = Section(
            "Means over other policies' lists", "", loss_table(means), partial(loss_figure, means), name="loss sources"
        )
        return Document(title, self.conclusion, data=self._data, headline=headline)

    @property
    def _data(self) -> str:
        """Users, training policies and test policies in one line."""
        named = {
            name: join_words(list(dict.fromkeys(str(row[name]) for row in self.losses if row[name] != IND)))
            for name in ("user", "training", "testing")
        }
        return (
            f"Simulated clicks of {named['user']} users; trained on lists of {named['training']}, tested on those of "
            f"{named['testing']}."
        )


def loss_sources(
    models: Sequence[str] = ("PBM", "UBM", "DBN"), *, scale: str = "quick", progress: Progress = silent
) -> LossSources:
    """Split the loss of classical click models under policy shift into examination, attractiveness and structure.

    Parameters
    ----------
    models
        Models to fit by maximum likelihood: PBM, UBM or DBN. DBN is fitted for DBN users only: the parameters of other
        users would give probability 0 to clicks that they make.
    scale
        Scale of the policy-shift protocol: "quick" or "paper".
    progress
        Called with a step for each training log.

    Returns
    -------
    LossSources
        The parts of each model's loss on each test policy's lists.

    Raises
    ------
    SpecError
        "unknown-name" for another scale or model.

    Examples
    --------
    >>> import clickshift as cs
    >>> try:
    ...     cs.loss_sources(["NCM"])
    ... except SpecError as error:
    ...     error.code
    'unknown-name'
    """
    known = {"PBM": PBM, "UBM": UBM, "DBN": DBN}
    for value, names in ((scale, list(SCALES)), *((model, list(known)) for model in models)):
        if value not in names:
            raise SpecError(
                f"must be one of {', '.join(names)}: got {value!r}.", code="unknown-name", value=value, known=names
            )
    protocol = PolicyShift(**SCALES[scale])
    rows: Rows = []
    progress(0, total=len(protocol.users) * len(protocol.training))
    for user, user_text in protocol.users:
        for training, training_text in protocol.training:
            logs = protocol.world.logs(user_text, training_text)
            for name in models:
                if known[name] is DBN and not isinstance(logs.user, DBN):
                    continue
                for testing, parts in sources_of_loss(fit(name, logs.train), logs).items():
                    rows.append({"user": user, "training": training, "testing": testing, "model": name, **parts})
            progress(1)
    return LossSources(rows)
