"""Sufficient statistics of logs: count tables, cascade counts, daily counts; and `open_log` for logs of any size.

The modules are imported one by one, so that importing the package costs nothing.
"""

__all__ = [  # noqa: F822 (modules)
    "cascade",
    "cells",
    "connectivity",
    "count_log",
    "daily",
    "log_summary",
    "open_log",
    "prepare_log",
    "tail_e_step",
    "tails",
    "warehouse",
]
