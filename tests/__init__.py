"""Tests, arranged as the package is. Type checks are installed before any test imports the package."""

import tests.runtime_types  # noqa: F401
