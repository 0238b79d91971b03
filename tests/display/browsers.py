"""A real browser for tests: what a page looks like from inside, at a given width."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from clickshift.display._chrome import find_browser

_INSIDE = """
<script>
const measure = async () => { MEASURE };
addEventListener("load", () => setTimeout(async () => {
  let found;
  try { found = await measure(); } catch (error) { found = { error: String(error) }; }
  parent.postMessage(JSON.stringify(found), "*");
}, 1000));
</script></body>"""
_AROUND = """<!doctype html><body style="margin:0;white-space:nowrap">
<script>addEventListener("message", (event) => {
  const place = document.createElement("pre");
  place.className = "found";
  place.textContent = event.data;
  document.body.append(place);
});</script>FRAMES</body>"""
_FRAME = """<iframe src="inside.html" style="border:0;width:WIDTHpx;height:3000px"></iframe>"""


def look_inside(
    page: Path, folder: Path, *, widths: tuple[int, ...], measure: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """What a script finds in copies of the page, each in a frame of its width, for windows cannot be as narrow as a
    phone; and all that was said on the console. One browser shows all frames, side by side: most of the cost is its
    start. The script must return `width`."""
    browser = find_browser()
    if browser is None:
        pytest.skip("no Chromium or Chrome on the path: install one, e.g. Debian's package chromium")
    folder.mkdir(parents=True)
    inside = page.read_text(encoding="utf-8").replace("</body>", _INSIDE.replace("MEASURE", measure))
    (folder / "inside.html").write_text(inside, encoding="utf-8")
    frames = "".join(_FRAME.replace("WIDTH", str(width)) for width in widths)
    (folder / "around.html").write_text(_AROUND.replace("FRAMES", frames), encoding="utf-8")
    command = [browser, "--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    command += ["--no-sandbox"] * (os.geteuid() == 0)
    command += [
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={sum(widths) + 100},3000",
        "--virtual-time-budget=10000",
    ]
    command += ["--enable-logging=stderr", "--v=0", "--dump-dom", (folder / "around.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    told = re.findall(r'<pre class="found">(.+?)</pre>', done.stdout, re.DOTALL)
    found = sorted((json.loads(html.unescape(text)) for text in told), key=lambda one: one.get("width", 0))
    assert not [one for one in found if "error" in one], found
    assert [one["width"] for one in found] == sorted(widths), f"a page told nothing: {done.stderr[-2000:]}"
    return found, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
