"""The built site in a real browser: no horizontal scroll, no script errors, nothing fetched from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.display.browsers import running_browser

pytestmark = pytest.mark.browser
SITE = Path(__file__).parents[1] / "site"
PAGES = ["index.html", "tutorials/what-a-new-ranker-would-earn.html", "api/fit.html", "commands.html"]
WIDTHS = [1400, 390]


@pytest.fixture(scope="module")
def site() -> Path:
    if not (SITE / "index.html").exists():
        pytest.skip("the site is not built: run make docs")
    return SITE


@pytest.fixture(scope="module")
def browser() -> Any:
    return running_browser()


class Visit:
    """A page at a width, with what it asked for and what went wrong."""

    def __init__(self, browser: Any, address: str, width: int, scheme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 1000}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("requestfailed", lambda request: self.errors.append(f"failed: {request.url}"))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.page.goto(address, wait_until="load")

    @property
    def elsewhere(self) -> list[str]:
        return [url for url in self.requests if not re.match(r"(file|data|blob|about):|http://127\.0\.0\.1", url)]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", PAGES)
def test_pages_fit_and_fetch_nothing(site: Path, browser: Any, page: str, width: int) -> None:
    visit = Visit(browser, (site / page).as_uri(), width)
    visit.page.wait_for_timeout(200)
    wide = visit.page.evaluate("document.documentElement.scrollWidth - innerWidth")
    pictures = visit.page.evaluate("[...document.images].map((one) => one.complete && one.naturalWidth > 0)")
    visit.context.close()
    assert visit.errors == []
    assert visit.elsewhere == []
    assert wide <= 0
    assert all(pictures)
    assert pictures or page in {"api/fit.html", "commands.html"}


def test_dark_colours_follow_the_system(site: Path, browser: Any) -> None:
    colours = []
    for scheme in ("light", "dark"):
        visit = Visit(browser, (site / "index.html").as_uri(), 1400, scheme)
        colours.append(visit.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        visit.context.close()
    light, dark = (sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in colours)
    assert light > 700
    assert dark < 200


def test_search_works_on_pages_that_are_opened_as_files(site: Path, browser: Any) -> None:
    visit = Visit(browser, (site / "index.html").as_uri(), 1400)
    visit.page.click("input[name=query]")
    visit.page.keyboard.type("propensities")
    visit.page.wait_for_selector(".md-search-result__item a", timeout=20_000)
    found = visit.page.eval_on_selector_all(".md-search-result__item a", "(all) => all.map((one) => one.textContent)")
    visit.context.close()
    assert any("ropensities" in text for text in found)
    assert visit.errors == []
    assert visit.elsewhere == []


def test_no_page_names_a_resource_elsewhere(site: Path) -> None:
    tags = re.compile(r"<(?:script|img|iframe|link|source|audio|video)\b[^>]*\b(?:src|href)=[\"']?(https?:)?//[^>]*>")
    found = [
        (path.name, tag.group())
        for path in site.rglob("*.html")
        for tag in tags.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import )[\"']?https?:", style.read_text(encoding="utf-8"))
