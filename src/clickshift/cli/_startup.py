"""The process of a command: what it prints while it compiles, and what it does not import."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder

import typer

_own_process = False
_ADDRESS_SPACE, _ADDRESS_SPACE_PER_CORE = 2 << 30, 1 << 27
"""Bytes of address space: with less, numerical libraries may abort or hang while they start their threads."""


def prepare_process() -> None:
    """Prepare a process that runs one command and ends."""
    global _own_process
    _own_process = True
    gc.disable()  # modules are not garbage: looking for it takes a sixth of the time of a small command


def modules_are_loaded() -> None:
    """Collect garbage from now on, but not among the modules that the command has imported."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def lack_of_address_space() -> str:
    """Return what is wrong if the process may not use the memory that numerical libraries reserve (`ulimit -v`)."""
    try:
        import resource
    except ImportError:  # Windows
        return ""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    needed = _ADDRESS_SPACE + _ADDRESS_SPACE_PER_CORE * (os.cpu_count() or 1)
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return ""
    return (
        f"out of memory: the limit of address space (ulimit -v) is {limit >> 20:,} MB, and numerical libraries "
        f"reserve {needed >> 20:,} MB on this machine. Raise the limit."
    )


def leave_out_pandas() -> None:
    """Keep pyarrow from importing pandas, which takes half a second, for arrays that are no pandas arrays.

    pyarrow looks for pandas when it makes its first array, and remembers whether it found it. What needs pandas, such
    as `Table.to_pandas`, still imports it.
    """
    if not _own_process or "pandas" in sys.modules:
        return
    import pyarrow as pa

    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(_NoPandas)


class _NoPandas(MetaPathFinder):
    """Finder of modules that says of pandas that it is not installed."""

    @classmethod
    def find_spec(cls, name: str, *_: object) -> None:
        """Refuse pandas, and leave other modules to the next finder."""
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


@contextmanager
def compilation_announced() -> Iterator[None]:
    """Print one line on standard error if the block compiles kernels, as the first run after installation does."""
    if not _own_process:
        yield
        return
    from numba.core import event

    class Announcement(event.Listener):  # type: ignore[misc]
        said = False

        def on_start(self, compilation: object) -> None:
            if not self.said:
                typer.echo("clickshift: compiling kernels, once after installation…", err=True)
            self.said = True

        def on_end(self, compilation: object) -> None:
            pass

    with event.install_listener("numba:compile", Announcement()):
        yield
