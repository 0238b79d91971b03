"""Versions of installed libraries."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata


def library_versions(libraries: Iterable[str]) -> dict[str, str]:
    """Return the version of each library that is installed; others are left out.

    Parameters
    ----------
    libraries
        Names of distributions.

    Examples
    --------
    >>> list(library_versions(["numpy", "no-such-library"]))
    ['numpy']
    """
    versions = {}
    for library in libraries:
        try:
            versions[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return versions
