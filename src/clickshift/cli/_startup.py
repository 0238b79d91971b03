"""The process of a command: what it prints while it compiles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

_own_process = False


def prepare_process() -> None:
    """Prepare a process that runs one command and ends."""
    global _own_process
    _own_process = True


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
