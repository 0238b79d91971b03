"""Debiasedness of click models: CMIP, mean dependence, and sources of relevance labels."""
