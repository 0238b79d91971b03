"""Model selection by debiasedness (Deffayet et al. 2023)."""
