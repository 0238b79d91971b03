"""Protocols: experiments as frozen values that yield tidy rows, one file per experiment."""
