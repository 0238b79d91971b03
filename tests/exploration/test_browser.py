"""The page in a real browser: search, explanations, what if, hostile ids, phones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import betaincinv

import clickshift as cs
from clickshift.exploration import Exploration
from tests.display.browsers import running_browser
from tests.exploration.conftest import running

pytestmark = pytest.mark.browser

WIDE, NARROW = {"width": 1400, "height": 1000}, {"width": 390, "height": 844}
OFFLINE = ("PBM", "UBM", "CM", "DCM", "CCM", "SDBN", "DBN")


@pytest.fixture(scope="module")
def browser() -> Any:
    return running_browser()


class Seen:
    """An open page, and everything that went wrong on it."""

    def __init__(self, browser: Any, address: str, size: dict[str, int]) -> None:
        self.problems: list[str] = []
        self.page = browser.new_page(viewport=size)
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self._check(request.url, address))
        self.page.goto(address)
        self.page.wait_for_selector(".predicted:not(:empty), #what-if + p")

    def _check(self, url: str, address: str) -> None:
        if not url.startswith(address.split("#")[0]):
            self.problems.append(f"loads {url}")

    def texts(self, what: str) -> list[str]:
        found: list[str] = self.page.locator(what).all_inner_texts()
        return found

    def order(self) -> list[str]:
        return [text.strip() for text in self.texts(".order .doc")]


@pytest.fixture(scope="module")
def written(exploration: Exploration, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "page.html"
    exploration.write(path)
    return path.as_uri()


@pytest.fixture(scope="module")
def served(exploration: Exploration) -> Iterator[str]:
    with running(exploration) as server:
        yield server.address


@pytest.fixture(params=["written", "served"])
def address(request: pytest.FixtureRequest, written: str, served: str) -> str:
    return {"written": written, "served": served}[request.param]


def forecast_of(exploration: Exploration, log: cs.Sessions, query: str, documents: list[str]) -> cs.Result:
    """What `predict` says of a list."""
    pairs = log.vocabulary.pair_numbers([int(query)] * len(documents), [int(one) for one in documents])
    number = log.vocabulary.query_numbers([int(query)])
    return cs.predict(exploration.model, cs.Rankings(log.vocabulary, number, pairs[None]))


def check_prediction(seen: Seen, exploration: Exploration, log: cs.Sessions) -> None:
    """The numbers of the shown order are those of `predict`."""
    shown = seen.page.evaluate(
        "() => [...document.querySelectorAll('.order li')].map(({ dataset: { probability, low, high } }) =>"
        " [probability, low, high].map(Number))"
    )
    expected = float(seen.page.locator(".totals").get_attribute("data-expected"))
    forecast: Any = forecast_of(exploration, log, seen.texts("#query h3")[0], seen.order())
    low, high = forecast.intervals()
    np.testing.assert_allclose([one[0] for one in shown], forecast.click_prob[0], rtol=0, atol=1e-9)
    np.testing.assert_allclose([one[1] for one in shown], low[0], atol=1e-6)
    np.testing.assert_allclose([one[2] for one in shown], high[0], atol=1e-6)
    assert expected == pytest.approx(forecast.expected_clicks[0], abs=1e-9)


def wait_for_order(seen: Seen, order: list[str]) -> None:
    """Wait until an order is shown with its predictions."""
    seen.page.wait_for_function(
        "(order) => [...document.querySelectorAll('.order .doc')].every((one, i) => one.textContent === order[i])"
        " && document.querySelectorAll('.order .doc').length === order.length"
        " && [...document.querySelectorAll('.predicted')].every((one) => one.textContent)",
        arg=order,
    )


def test_a_query_is_found_and_opened_by_keyboard(browser: Any, address: str, exploration: Exploration) -> None:
    seen = Seen(browser, address, WIDE)
    box = seen.page.locator("#search")
    numbers, total = exploration.explored.index.search("1", 50)
    ids = [str(exploration.explored.index.sessions.vocabulary.query_ids[n]) for n in numbers]
    box.fill("1")
    seen.page.wait_for_function("(n) => document.querySelectorAll('#found li').length === n", arg=total)
    assert [text.split("\n")[0] for text in seen.texts("#found li")] == ids
    box.press("ArrowDown")
    box.press("Enter")
    seen.page.wait_for_function("(id) => document.querySelector('#query h3').textContent === id", arg=ids[1])
    facts = exploration.query(ids[1])
    rows = seen.texts("#query .scroll >> nth=0 >> tbody tr")
    assert len(rows) == len(facts["documents"])
    most = max(
        (one for one in facts["documents"] if one["support"] != "not identified"), key=lambda one: one["relevance"]
    )
    assert rows[0].startswith(most["doc"])
    box.fill("nothing like it")
    seen.page.wait_for_function("() => document.querySelectorAll('#found li').length === 0")
    assert seen.problems == []
    seen.page.close()


def test_an_explanation_has_the_numbers_of_both_documents(browser: Any, address: str, exploration: Exploration) -> None:
    seen = Seen(browser, address, WIDE)
    facts = exploration.query(seen.texts("#query h3")[0])
    x, y = sorted(facts["documents"][:2], key=lambda one: -one["relevance"])
    for label, one in (("First document", y), ("Second document", x)):
        seen.page.get_by_label(label).select_option(value=str(facts["documents"].index(one)))
    text = " ".join(seen.texts(".explanation"))
    assert f"PBM prefers “{x['doc']}” to “{y['doc']}”" in text
    for one in (x, y):
        assert f"{100 * one['ctr']:.1f} % ({one['clicks']:,} of {one['impressions']:,})" in text
        assert f"{one['relevance']:.3f} [{one['low']:.3f}, {one['high']:.3f}]" in text
        assert f"at rank {one['mean_rank']:.1f} on average and was examined about {one['examined']:,.0f} times" in text
    overlap = x["low"] <= y["high"]
    assert ("intervals overlap" in text) == overlap
    assert ("do not overlap" in text) != overlap
    seen.page.get_by_label("First document").select_option(value=str(facts["documents"].index(x)))
    assert seen.texts(".explanation") == ["Choose two different documents."]
    seen.page.close()


def test_the_check_at_the_same_ranks_weights_them_alike(browser: Any, written: str) -> None:
    seen = Seen(browser, written, WIDE)
    x, y = {"by_rank": [[1, 10, 5], [2, 30, 6], [5, 7, 7]]}, {"by_rank": [[1, 30, 3], [2, 10, 1], [3, 9, 9]]}
    left, right, swaps, error = seen.page.evaluate("([x, y]) => atSameRanks(x, y)", [x, y])
    weight = 10 * 30 / 40
    assert (swaps, left, right) == pytest.approx((2 * weight, (0.5 + 0.2) / 2, 0.1))
    spread = sum(p * (1 - p) / n for p, n in ((5.5 / 11, 10), (6.5 / 31, 30), (3.5 / 31, 30), (1.5 / 11, 10)))
    assert error == pytest.approx(weight * spread**0.5 / (2 * weight))
    seen.page.close()


def test_other_orders_are_predicted_as_predict_does(
    browser: Any, address: str, exploration: Exploration, simulated: cs.Sessions
) -> None:
    seen = Seen(browser, address, WIDE)
    order = seen.order()
    check_prediction(seen, exploration, simulated)
    seen.page.locator(".order li >> nth=0 >> .down").click()  # by button
    order[0], order[1] = order[1], order[0]
    wait_for_order(seen, order)
    check_prediction(seen, exploration, simulated)
    assert seen.page.evaluate("() => document.activeElement.className") == "down"
    seen.page.locator(".order li >> nth=3 >> .handle").focus()  # by keyboard
    seen.page.keyboard.press("ArrowUp")
    order[2], order[3] = order[3], order[2]
    wait_for_order(seen, order)
    boxes = [seen.page.locator(f".order li >> nth={rank} >> .handle").bounding_box() for rank in (5, 1)]
    (x, y), (to_x, to_y) = ((box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for box in boxes)
    seen.page.mouse.move(x, y)  # by pointer
    seen.page.mouse.down()
    seen.page.mouse.move(x, (y + to_y) / 2, steps=3)
    seen.page.mouse.move(to_x, to_y - 8, steps=3)
    seen.page.mouse.up()
    order.insert(1, order.pop(5))
    wait_for_order(seen, order)
    check_prediction(seen, exploration, simulated)
    assert "is at rank 2" in seen.page.locator(".what-if [aria-live]").inner_text()
    other = seen.page.get_by_label("Document for the last rank")
    new = other.locator("option").nth(1).inner_text()
    other.select_option(index=1)
    order[-1] = new
    wait_for_order(seen, order)
    check_prediction(seen, exploration, simulated)
    seen.page.get_by_text("Logged order", exact=True).click()
    wait_for_order(seen, seen.texts(".ranked >> nth=0 >> .doc"))
    assert seen.problems == []
    seen.page.close()


@pytest.mark.parametrize("name", OFFLINE)
def test_every_recursion_of_the_page_is_that_of_its_model(
    browser: Any, simulated: cs.Sessions, tmp_path: Path, name: str
) -> None:
    explored = cs.explore(simulated, cs.fit(name, simulated), queries=1, sample=0)  # type: ignore[arg-type]
    explored.write(tmp_path / "page.html")
    seen = Seen(browser, (tmp_path / "page.html").as_uri(), WIDE)
    check_prediction(seen, explored, simulated)
    # lists longer than those of the log, in the page's own functions
    facts = explored.query(explored.rows()[0]["query"])
    order = list(range(9))
    found = seen.page.evaluate(
        "(order) => predictList(data.model.offline, order.map((k) => data.queries[0].documents[k]))", order
    )
    forecast: Any = forecast_of(explored, simulated, facts["query"], [facts["documents"][k]["doc"] for k in order])
    np.testing.assert_allclose(found["click_prob"], forecast.click_prob[0], rtol=0, atol=1e-9)
    low, high = forecast.intervals()
    np.testing.assert_allclose([found["low"], found["high"]], [low[0], high[0]], atol=1e-6)
    total = forecast.total_intervals()
    assert (found["expected_low"], found["expected_high"]) == pytest.approx((total[0][0], total[1][0]), abs=1e-6)
    assert seen.problems == []
    seen.page.close()


def test_quantiles_of_the_beta_distribution_are_those_of_scipy(browser: Any, written: str) -> None:
    seen = Seen(browser, written, WIDE)
    for a, b in ((0.01, 3.0), (0.5, 0.5), (2.0, 900.0), (30.0, 4.0), (1.0, 1.0), (4e4, 7e5), (3e6, 2e7), (5e9, 5e9)):
        found = seen.page.evaluate("([a, b]) => [0.025, 0.975].map((q) => betaQuantile(q, a, b))", [a, b])
        assert found == pytest.approx(betaincinv(a, b, [0.025, 0.975]), abs=1e-7), (a, b)
    seen.page.close()


def test_another_model_answers_what_if_only_when_served(browser: Any, simulated: cs.Sessions, tmp_path: Path) -> None:
    explored = cs.explore(simulated, cs.fit("drCTR", simulated), sample=0)  # type: ignore[arg-type]
    explored.write(tmp_path / "page.html")
    seen = Seen(browser, (tmp_path / "page.html").as_uri(), WIDE)
    assert "--serve" in seen.page.locator("#what-if + p").inner_text()
    assert seen.problems == []
    seen.page.close()
    with running(explored) as server:
        seen = Seen(browser, server.address, WIDE)
        shown = seen.page.locator(".order li >> nth=0").get_attribute("data-probability")
        forecast: Any = forecast_of(explored, simulated, seen.texts("#query h3")[0], seen.order())
        assert float(shown) == pytest.approx(forecast.click_prob[0, 0], abs=1e-9)
        assert seen.problems == []
        seen.page.close()


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_page_fits_and_the_first_screen_has_the_answer(browser: Any, written: str, size: dict[str, int]) -> None:
    seen = Seen(browser, written, size)
    assert seen.page.evaluate("() => document.documentElement.scrollWidth") == size["width"]
    for what in (".lead", ".data", "#chart-ctr svg"):
        box = seen.page.locator(what).bounding_box()
        assert box["y"] + box["height"] <= size["height"], what
        assert box["x"] >= 0, what
        assert box["x"] + box["width"] <= size["width"], what
    outside = seen.page.evaluate(
        "() => [...document.querySelectorAll('svg text')].filter((text) => {"
        " const [a, b] = [text.getBoundingClientRect(), text.closest('svg').getBoundingClientRect()];"
        " return a.left < b.left - 1 || a.right > b.right + 1 || a.bottom > b.bottom + 1; })"
        ".map((one) => one.textContent)"
    )
    assert outside == []
    overlapping = seen.page.evaluate(
        "() => [...document.querySelectorAll('.order li')].filter((item) => {"
        " const boxes = [...item.children].map((one) => one.getBoundingClientRect()).filter((box) => box.width);"
        " return boxes.some((box, i) => i && box.left < boxes[i - 1].right - 1); }).length"
    )
    assert overlapping == 0
    assert seen.problems == []
    seen.page.close()


def test_tables_sort_by_a_click_on_their_header(browser: Any, written: str) -> None:
    seen = Seen(browser, written, WIDE)
    seen.page.get_by_role("button", name="shown").first.click()
    counts = [int(text.replace(",", "")) for text in seen.texts("#query .scroll >> nth=0 >> tbody tr td:nth-child(6)")]
    assert len(counts) > 5
    assert counts == sorted(counts, reverse=True)
    seen.page.close()


@pytest.mark.parametrize("how", ["written", "served"])
def test_hostile_ids_are_shown_and_do_not_run(browser: Any, hostile: cs.Sessions, tmp_path: Path, how: str) -> None:
    explored = cs.explore(hostile, sample=0)
    explored.write(tmp_path / "page.html")
    with running(explored) as server:
        seen = Seen(browser, server.address if how == "served" else (tmp_path / "page.html").as_uri(), WIDE)
        for number in range(5):
            seen.page.locator(f"#found li >> nth={number}").click()
            seen.page.wait_for_function(
                "(k) => document.querySelectorAll('#found li')[k].ariaSelected === 'true'", arg=number
            )
        assert "<img src=x onerror=window.hacked=1>" in seen.order()
        assert "</script>" in " ".join(seen.texts(".explanation, .order"))
        assert seen.page.evaluate("() => [typeof window.hacked, document.querySelectorAll('main img').length]") == [
            "undefined",
            0,
        ]
        assert seen.problems == []
        seen.page.close()
