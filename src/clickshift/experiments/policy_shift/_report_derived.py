"""Tidy rows -> what policies derived from models earn, and what the models had promised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clickshift.display.tables import Row
from clickshift.display.values import Measured, measured
from clickshift.experiments.policy_shift._report_robustness import (
    Log,
    Seeds,
    by_log,
    by_seed,
    name_of,
    of_kind,
    role_of,
)

TOP_DOWN, MAX_REWARD = "Top-Down", "Max-Reward"


@dataclass(frozen=True)
class Earned:
    """One model's policies on one log's user. Maps go from policies to seeds."""

    model: str
    role: str
    expected: Mapping[str, Seeds]
    """Clicks per list that the user would give."""
    predicted: Mapping[str, Seeds]
    """Clicks per list that the model promised."""

    @property
    def gain(self) -> Measured:
        """What Max-Reward earns beyond Top-Down; below 0 the model is poorly robust (section 5.1.2)."""
        return self._difference(self.expected.get(MAX_REWARD, {}), self.expected.get(TOP_DOWN, {}))

    def curse(self, policy: str) -> Measured:
        """What was promised and not earned: the optimiser's curse."""
        return self._difference(self.predicted.get(policy, {}), self.expected.get(policy, {}))

    @staticmethod
    def _difference(first: Seeds, second: Seeds) -> Measured:
        """Paired: both sides come from the same model."""
        return measured([first[seed] - second[seed] for seed in first if seed in second], signed=True)


def earnings(rows: Sequence[Row]) -> dict[Log, list[Earned]]:
    """By user and training policy, models in order of appearance."""
    return {log: _earned(there) for log, there in by_log(of_kind(rows, "policy")).items()}


def policies(rows: Sequence[Row]) -> list[str]:
    """Top-Down and Max-Reward first."""
    found = dict.fromkeys(name_of(row, "policy") for row in of_kind(rows, "policy"))
    return [name for name in (TOP_DOWN, MAX_REWARD) if name in found] + [
        name for name in found if name not in {TOP_DOWN, MAX_REWARD}
    ]


def _earned(rows: Sequence[Row]) -> list[Earned]:
    roles = {name_of(row, "model"): role_of(row) for row in rows}
    by_policy = {name: [row for row in rows if name_of(row, "policy") == name] for name in policies(rows)}
    expected = {
        name: by_seed(there, "expected_clicks") or by_seed(there, "clicks") for name, there in by_policy.items()
    }
    predicted = {name: by_seed(there, "predicted_clicks") for name, there in by_policy.items()}
    return [
        Earned(
            model,
            role,
            {name: values[model] for name, values in expected.items() if model in values},
            {name: values[model] for name, values in predicted.items() if model in values},
        )
        for model, role in roles.items()
    ]
