"""Render Plotly figures as SVG and PNG with a headless Chromium or Chrome: the same charts as on the HTML page."""

from __future__ import annotations

import base64
import html
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from clickshift.core.interrupts import temporary_folder

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
_MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
SECONDS = 180
"""Time limit for all figures together; then the browser is stopped."""
_WIDTH, _HEIGHT = 900, 500  # of a figure without a size of its own
_SCALE = 2  # pixels of the PNG per pixel of the page
_DRAW = """
(async () => {
  for (const spec of document.querySelectorAll("script[type='application/json']")) {
    const figure = JSON.parse(spec.textContent), [width, height] = [+spec.dataset.width, +spec.dataset.height];
    const size = { ...figure.layout, width, height, autosize: false };
    for (const [format, scale] of [["svg", 1], ["png", SCALE]]) {
      const picture = await Plotly.toImage({ data: figure.data, layout: size }, { format, width, height, scale });
      const place = document.createElement("pre");
      place.id = `${spec.id}-${format}`;
      place.textContent = picture;
      document.body.append(place);
    }
  }
})();
""".replace("SCALE", str(_SCALE))


class RenderedFigure(NamedTuple):
    """A figure as the bytes of an SVG and of a PNG file."""

    svg: bytes
    png: bytes


class BrowserError(Exception):
    """No browser is installed, or it does not render; the message says which and what to do."""


class NoBrowserError(BrowserError):
    """No browser is installed."""


def find_browser() -> str | None:
    """Return the first Chromium or Chrome on the path, or None."""
    path = next((path for path in map(shutil.which, _NAMES) if path), None)
    return path or (_MAC if Path(_MAC).exists() else None)


def draw(figures: Mapping[str, Any]) -> dict[str, RenderedFigure]:
    """Render figures, all with one start of the browser, which takes longer than drawing.

    Parameters
    ----------
    figures
        Plotly figures by name.

    Returns
    -------
    dict
        The rendered figures by name.

    Raises
    ------
    BrowserError
        If no browser is installed (`NoBrowserError`), or it fails.
    """
    browser = find_browser()
    if browser is None:
        raise NoBrowserError("no Chromium or Chrome was found: install one, e.g. Debian's package chromium")
    with temporary_folder() as folder:
        page = folder / "figures.html"
        page.write_text(_page(figures), encoding="utf-8")
        content = _dump_page(browser, page, folder / "profile")
    rendered = {}
    for number, name in enumerate(figures):
        svg, png = _extract_image(content, f"figure-{number}-svg"), _extract_image(content, f"figure-{number}-png")
        if svg is None or png is None:
            raise BrowserError(f"{Path(browser).name} did not draw {name!r}: look at the chart on the page instead")
        rendered[name] = RenderedFigure(svg, png)
    return rendered


def _page(figures: Mapping[str, Any]) -> str:
    """Return an HTML page that renders the figures and writes the images into its own content."""
    from plotly.offline import get_plotlyjs

    specs = ""
    for number, figure in enumerate(figures.values()):
        size = f"data-width='{figure.layout.width or _WIDTH}' data-height='{figure.layout.height or _HEIGHT}'"
        spec = figure.to_json().replace("<", "\\u003c")  # so that no text of a figure ends the script
        specs += f"<script type='application/json' id='figure-{number}' {size}>{spec}</script>"
    return (
        "<!doctype html><html><head><meta charset='utf-8'>"
        f"<script>{get_plotlyjs()}</script></head><body>{specs}<script>{_DRAW}</script></body></html>"
    )


def _dump_page(browser: str, page: Path, profile: Path) -> str:
    """Return the content of a page after its scripts have run."""
    command = [
        browser,
        "--headless=new",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-extensions",
        "--disable-background-networking",
        "--no-first-run",
        "--no-default-browser-check",
        f"--user-data-dir={profile}",
        "--virtual-time-budget=60000",
        "--dump-dom",
        page.as_uri(),
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # Chromium's sandbox does not work for root; the page is our own
        command.insert(1, "--no-sandbox")
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise BrowserError(f"{Path(browser).name} took more than {SECONDS:g} seconds") from None
    except OSError as error:
        raise BrowserError(f"{Path(browser).name} cannot be started ({error.strerror})") from None
    if done.returncode != 0:
        raise BrowserError(f"{Path(browser).name} ended with exit code {done.returncode}")
    return done.stdout.decode("utf-8", errors="replace")


def _extract_image(content: str, name: str) -> bytes | None:
    """Decode the image that a page wrote under a name; None if there is none."""
    match = re.search(rf'<pre id="{name}">data:image/[^,]*,([^<]*)</pre>', content)
    if match is None:
        return None
    text = html.unescape(match.group(1))
    return base64.b64decode(text) if name.endswith("png") else unquote_to_bytes(text)
