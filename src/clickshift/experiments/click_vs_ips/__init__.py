"""Neural click models and pointwise IPS rankers (Hager et al. 2022)."""
