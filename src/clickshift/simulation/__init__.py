"""Simulated users, search engines and logs."""

from clickshift.simulation import users as users

__all__ = [  # noqa: F822 (modules)
    "drifting_log",
    "fixed_ranking",
    "search_engine",
    "simulate",
    "users",
]
