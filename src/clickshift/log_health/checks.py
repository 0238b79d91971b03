"""The registry of all checks."""

from __future__ import annotations

from collections.abc import Mapping

from clickshift.log_health import events, list_ends, ranks, repeats, traffic
from clickshift.log_health.finding import Check

CHECKS: Mapping[str, Check] = {
    check.name: check for module in (ranks, events, repeats, list_ends, traffic) for check in module.CHECKS
}
"""All checks, by name."""
