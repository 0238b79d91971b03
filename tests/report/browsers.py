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

from clickshift.report.browser import find_browser

_INSIDE = """
<script>
const measure = async () => { MEASURE };
addEventListener("load", () => setTimeout(async () => {
  let found;
  try { found = await measure(); } catch (error) { found = { error: String(error) }; }
  parent.postMessage(JSON.stringify(found), "*");
}, 1000));
</script></body>"""
_AROUND = """<!doctype html><body style="margin:0"><pre id="found"></pre>
<script>addEventListener("message", (event) => { document.getElementById("found").textContent = event.data; });</script>
<iframe src="inside.html" style="border:0;width:WIDTHpx;height:3000px"></iframe></body>"""


def look_inside(page: Path, folder: Path, *, width: int, measure: str) -> tuple[dict[str, Any], list[str]]:
    """What a script finds in a copy of the page, which stands in a frame, for windows cannot be as narrow as a phone;
    and all that was said on the console."""
    browser = find_browser()
    if browser is None:
        pytest.skip("no Chromium or Chrome on the path: install one, e.g. Debian's package chromium")
    folder.mkdir(parents=True)
    inside = page.read_text(encoding="utf-8").replace("</body>", _INSIDE.replace("MEASURE", measure))
    (folder / "inside.html").write_text(inside, encoding="utf-8")
    (folder / "around.html").write_text(_AROUND.replace("WIDTH", str(width)), encoding="utf-8")
    command = [browser, "--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    command += ["--no-sandbox"] * (os.geteuid() == 0)
    command += [f"--user-data-dir={folder / 'profile'}", "--window-size=1400,3000", "--virtual-time-budget=10000"]
    command += ["--enable-logging=stderr", "--v=0", "--dump-dom", (folder / "around.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<pre id="found">(.+?)</pre>', done.stdout, re.DOTALL)
    assert found, f"the page told nothing: {done.stderr[-2000:]}"
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(found.group(1))), console
