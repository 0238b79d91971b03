"""Robustness of click models to policy shift (Deffayet et al. 2022)."""
