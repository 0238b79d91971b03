"""Progress: what long work calls to report how far it is."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

__all__ = ["Progress", "silent"]


@runtime_checkable
class Progress(Protocol):
    """A function that long work calls with the number of newly completed steps, or with a text on its state."""

    def __call__(self, step: int | str, /, *, total: int | None = None) -> None:
        """Report progress.

        Parameters
        ----------
        step
            Number of newly completed steps, or a text such as "round 3, loss 0.21". A text that ends with a line break
            is a result, which stays.
        total
            Number of steps in all, where it has become known.
        """


def silent(step: int | str, /, *, total: int | None = None) -> None:
    """Report nothing: the default of every function that takes a `progress`.

    Parameters
    ----------
    step, total
        As in `Progress`.
    """
