"""Comparison of neural click models with pointwise IPS rankers (Hager et al. 2022).

`protocol` has the main experiment, `losses` the figures that need no training, `tuning` the search for optimisers and
learning rates, `checks` two checks of the set-up, and `data` the data sets and the published numbers.
"""

__all__ = ["checks", "data", "losses", "protocol", "tuning"]  # noqa: F822 (modules)
