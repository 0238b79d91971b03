"""A real browser for tests: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from clickshift.display._chrome import find_browser

SECONDS = 60
"""Time limit of one step in the browser."""


@cache
def running_browser() -> Any:
    """The browser, started once per process, as Playwright asks for; skip where there is none."""
    path = find_browser()
    if path is None:
        pytest.skip("no Chromium or Chrome on the path: install one, e.g. Debian's package chromium")
    from playwright.sync_api import sync_playwright

    play = sync_playwright().start()
    options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
    return play.chromium.launch(executable_path=path, args=options)


class Shown:
    """A page in a window, with everything that went wrong on it.

    Parameters
    ----------
    page
        Playwright's page.
    """

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("console", self._heard)
        page.on("request", self._asked)

    def _heard(self, message: Any) -> None:
        """Keep what the page says on its console."""
        self.complaints.append(f"console: {message.text}")

    def _asked(self, request: Any) -> None:
        """Keep what the page loads: it must load nothing."""
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.complaints.append(f"request: {request.url}")


@contextmanager
def window(path: Path, *, width: int, height: int, scheme: str = "light") -> Iterator[Shown]:
    """Show a page in a window of its own, and wait until its charts are drawn.

    Parameters
    ----------
    path
        The page.
    width, height
        Size of the window.
    scheme
        "light" or "dark".
    """
    context = running_browser().new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        permissions=["clipboard-read", "clipboard-write"],
    )
    try:
        context.set_default_timeout(1000 * SECONDS)
        shown = Shown(context.new_page())
        shown.page.goto(path.as_uri())
        shown.page.wait_for_function(
            """() => [...document.querySelectorAll(".clickshift")].every(
              (one) => !one.querySelector("figure[data-chart]") || one.dataset.charts === "drawn")"""
        )
        yield shown
    finally:
        context.close()


def look_inside(
    page: Path, folder: Path, *, widths: tuple[int, ...], measure: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """What a script finds in the page at each width, and all that was said on the console. The script returns `width`.

    Parameters
    ----------
    page
        The page.
    folder
        Not used.
    widths
        Widths of the windows.
    measure
        Body of a function.
    """
    found, complaints = [], []
    for width in sorted(widths):
        with window(page, width=width, height=3000) as shown:
            found.append(shown.page.evaluate(f"async () => {{ {measure} }}"))
            complaints += shown.complaints
    return found, complaints
