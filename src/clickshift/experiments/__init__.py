"""Experiments: protocols as frozen values that yield tasks, a runner that computes tasks, and results of their rows.

`policy_shift`, `model_selection` and `click_vs_ips` hold one paper's protocol each, `papers` lists their tables and
figures by name. `real_logs`, `comparison`, `audit` and `backtest` work on a log of one's own. `experiment` runs a
protocol and makes its result, `runner` computes tasks in parallel and keeps their rows on disk, `dask` does the same on
a cluster.

The modules are imported one by one, so that importing the package costs nothing.
"""

__all__ = [  # noqa: F822 (modules)
    "audit",
    "backtest",
    "click_vs_ips",
    "comparison",
    "dask",
    "experiment",
    "log_files",
    "model_selection",
    "models",
    "papers",
    "policy_shift",
    "real_logs",
    "runner",
]
