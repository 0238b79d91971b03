"""Estimation of position bias: how likely each rank is examined."""
