"""The report of a replay in a real browser: it fetches nothing, runs nothing, and can be read anywhere."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from replay import reports

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.real,
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium"),
]
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
READABLE = 4.5
"""Contrast of text, as accessibility guidelines ask for it."""

CONTRAST = """([text, behind]) => {
  const style = getComputedStyle(document.documentElement);
  const light = name => {
    const hex = style.getPropertyValue(name).trim().slice(1);
    const parts = [0, 2, 4].map(i => parseInt(hex.slice(i, i + 2), 16) / 255);
    const [r, g, b] = parts.map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [a, b] = [light(text), light(behind)];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reports.written(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def browser(report: Path) -> Iterator[Browser]:
    """After the report was made: the browser's driver has an event loop of its own in this thread."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser, report: Path) -> Iterator[Page]:
    opened = browser.new_page(viewport={"width": 1_200, "height": 900})
    opened.goto(report.as_uri())
    yield opened
    opened.close()


def test_it_asks_the_network_for_nothing_and_the_browser_has_nothing_to_complain_of(
    browser: Browser, report: Path
) -> None:
    asked, said = list[str](), list[str]()
    opened = browser.new_page()
    opened.on("request", lambda request: asked.append(request.url))
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.goto(report.as_uri(), wait_until="networkidle")

    assert asked == [report.as_uri()]
    assert said == []
    opened.close()


def test_a_hostile_title_is_shown_as_text_and_does_nothing(page: Page) -> None:
    assert page.title() == "Sevenfold replay"
    assert page.locator("script").count() == 0
    assert page.locator("img").count() == 0
    assert page.get_by_text("</title><script>", exact=False).first.is_visible()


def test_drawings_can_be_found_by_name_and_have_words_for_those_who_do_not_see_them(page: Page) -> None:
    assert page.get_by_role("img", name="Context of 1").is_visible()
    assert page.get_by_role("img", name="Cost by layer under balanced").is_visible()
    told = page.locator("svg[role=img] > desc").all_text_contents()
    assert len(told) == page.locator("svg[role=img]").count()
    assert all(len(text) > 20 for text in told)


def test_tables_have_names_and_every_row_a_head(page: Page) -> None:
    assert page.get_by_role("table", name="Each session, under balanced").is_visible()
    rows = page.locator("tbody tr").count()
    assert rows == page.locator("tbody tr > th[scope=row]").count()


def test_a_session_in_the_table_leads_to_its_drawing(page: Page) -> None:
    page.get_by_role("link", name="1", exact=True).click()

    assert page.url.endswith("#s1")
    assert page.locator("#s1 svg").first.is_visible()


def test_what_is_drawn_stays_inside_its_drawing(page: Page) -> None:
    outside = page.evaluate(
        """() => [...document.querySelectorAll('svg[role=img]')].flatMap(svg => {
          const box = svg.getBoundingClientRect();
          return [...svg.querySelectorAll('rect, text, circle')].filter(one => {
            const own = one.getBoundingClientRect();
            return own.left < box.left - 1 || own.right > box.right + 1
              || own.top < box.top - 1 || own.bottom > box.bottom + 1;
          }).map(one => one.outerHTML);
        })"""
    )
    assert outside == []


@pytest.mark.parametrize("width", [360, 800, 1_600])
def test_it_fits_screens_of_any_width(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})

    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_table_of_policies_needs_no_scrolling_on_a_laptop(page: Page) -> None:
    page.set_viewport_size({"width": 1_100, "height": 800})

    region = page.get_by_role("region", name="All sessions together, by policy")
    name = region.locator("tbody th").last
    name.evaluate("one => { one.textContent = 'balanced without aggregate_budget, notes' }")
    assert region.evaluate("one => one.scrollWidth - one.clientWidth") <= 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_in_light_and_dark(page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")

    behind = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert behind == ("rgb(20, 23, 26)" if scheme == "dark" else "rgb(255, 255, 255)")
    for text in ("--ink", "--soft", "--main"):
        assert page.evaluate(CONTRAST, [text, "--paper"]) >= READABLE, text


def test_paper_is_white_even_when_the_screen_is_dark(page: Page) -> None:
    page.emulate_media(media="print", color_scheme="dark")

    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    printed = page.pdf(format="A4")
    assert printed.startswith(b"%PDF")
    widest = page.evaluate(
        "Math.max(...[...document.querySelectorAll('table')].map(t => t.scrollWidth - t.clientWidth))"
    )
    assert widest <= 0


def test_the_keyboard_reaches_the_figures_first(page: Page) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the figures"


def test_words_in_drawings_can_be_read_on_a_telephone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 800})

    heights = page.evaluate(
        """() => [...document.querySelectorAll('figure svg[role=img] text')]
          .map(one => one.getBoundingClientRect().height)"""
    )
    assert min(heights) >= 9
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
