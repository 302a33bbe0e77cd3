"""The page in a real browser: no error, no sideways scrolling, switches that switch, and all of it without scripts."""

import os
import re
import shutil

import pytest

from tests.experiments.report.pages import TROUBLED

pytestmark = pytest.mark.slow

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
DESK, PHONE = {"width": 1440, "height": 900}, {"width": 360, "height": 780}


@pytest.fixture(scope="module")
def browser():
    """A running Chromium: what $AESJAX_BROWSER names, else the first on the path; skips where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = os.environ.get("AESJAX_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no browser found: none of {', '.join(NAMES)} is on the path and AESJAX_BROWSER is not set")
    as_root = ["--no-sandbox"] if getattr(os, "geteuid", int)() == 0 else []  # Chromium refuses root otherwise
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=as_root)
        yield running
        running.close()


@pytest.fixture
def opened(browser, troubled):
    """Opens the page; every error that the browser reports fails the test in the end."""
    contexts, errors = [], []

    def open_page(size=DESK, report=troubled, **options):
        contexts.append(browser.new_context(viewport=size, **options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else 0)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(report.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []


def overflow(page):
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def scroll_through(page):
    """So that every figure is made."""
    for figure in page.query_selector_all("figure.plot:not(#profiles)"):  # which has no live chart
        figure.scroll_into_view_if_needed()
        page.wait_for_function("figure => !!figure.querySelector('canvas')", arg=figure)


@pytest.mark.parametrize(("size", "scheme"), [(DESK, "light"), (PHONE, "dark")], ids=["desk", "phone"])
def test_nothing_overflows_and_nothing_goes_wrong(opened, size, scheme):
    page = opened(size, color_scheme=scheme)
    scroll_through(page)
    assert overflow(page) == 0
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")


def test_the_answer_and_the_trouble_are_seen_without_scrolling(opened):
    for size in (DESK, PHONE):
        page = opened(size)
        for selector in ("#status", ".verdicts li"):
            box = page.query_selector(selector).bounding_box()
            assert box["y"] + box["height"] <= size["height"], selector
    text = page.inner_text("#status")
    assert "47/50 runs are valid" in text
    assert "SAC+AES, toy, abrupt, seed 2: diverged" in text
    page = opened(DESK)
    assert "SAC+AES: 4 of 5 runs count; seed 2 diverged at step 42 000" in page.inner_text("#curves_toy_abrupt")
    assert "4/5" in page.inner_text(".forest tr[data-method='SAC+AES'] td[data-pattern='abrupt']")


def test_switching_a_method_off_hides_its_lines_everywhere_and_on_again_shows_them(opened):
    page = opened()
    scroll_through(page)
    lines = "[...document.querySelectorAll('.panel')].map((panel) => panel.dataset.lines).join()"
    canvas = page.locator("#curves_toy_abrupt canvas").first
    page.wait_for_timeout(100)
    before, shown = canvas.screenshot(), page.evaluate(lines)
    assert "SAC+AES-R" in shown
    button = page.get_by_role("button", name="SAC+AES-R")
    button.click()
    page.wait_for_timeout(100)
    assert button.get_attribute("aria-pressed") == "false"
    assert canvas.screenshot() != before
    assert "SAC+AES-R" not in page.evaluate(lines)
    assert "PPO+AES" in page.evaluate(lines)
    button.press("Enter")  # the keyboard does as well
    page.wait_for_timeout(100)
    assert page.evaluate(lines) == shown


def test_a_header_sorts_its_table_within_groups_both_ways_and_back(opened):
    page = opened()
    group = "#table-returns tbody:nth-of-type(2)"
    cells = f"[...document.querySelectorAll('{group} tr:not(.group) td:nth-child(3)')]"
    values = f"{cells}.map((cell) => parseFloat(cell.textContent))"
    first = page.evaluate(values)
    assert len(first) == len(TROUBLED)
    head = page.locator("#table-returns th", has_text="final return")
    head.get_by_role("button").click()
    assert page.evaluate(values) == sorted(first)
    assert head.get_attribute("aria-sort") == "ascending"
    head.get_by_role("button").click()
    assert page.evaluate(values) == sorted(first, reverse=True)
    head.get_by_role("button").click()
    assert page.evaluate(values) == first
    assert page.query_selector(f"{group} tr").get_attribute("class") == "group"


def test_hovering_and_the_arrow_keys_read_values(opened):
    page = opened()
    page.locator("#curves_toy_abrupt").scroll_into_view_if_needed()
    panel = page.locator("#curves_toy_abrupt .panel").first
    panel.locator(".u-over").hover(position={"x": 200, "y": 60})
    tip = page.locator(".tip")
    assert re.search(r"environment steps: \d", tip.inner_text())
    assert "SAC+AES-R" in tip.inner_text()
    page.mouse.move(2, 2)
    assert not tip.is_visible()
    said = page.locator("[aria-live]")
    assert said.inner_text() == ""
    panel.press("ArrowRight")
    assert re.search(r"environment steps: \d.*SAC\+AES \d", said.inner_text())  # for who cannot see it
    first = tip.inner_text()
    panel.press("ArrowRight")
    assert tip.is_visible()
    assert tip.inner_text() != first


def test_without_scripts_pictures_and_tables_are_there_and_no_dead_switch(opened):
    page = opened(PHONE, java_script_enabled=False)
    pictures = page.query_selector_all("figure.plot img")
    assert len(pictures) == 5
    assert all(picture.is_visible() and len(picture.get_attribute("alt")) > 60 for picture in pictures)
    assert page.query_selector_all("canvas") == []
    assert not any(button.is_visible() for button in page.query_selector_all("button"))
    assert page.query_selector("#table-main").is_visible()
    assert page.query_selector(".forest .mean").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_many_methods_are_folded_behind_the_significant_ones(opened, crowded):
    page = opened(PHONE, crowded)
    scroll_through(page)
    assert overflow(page) == 0
    assert "2 of 26 comparisons with SAC in floor-corrected nAUC are significant" in page.inner_text(".conclusion")
    assert "SAC+m12[kappa=14] has the highest mean, significant under" in page.inner_text(".conclusion")
    rows = [row for row in page.query_selector_all(".forest tbody tr") if row.is_visible()]
    assert rows[0].get_attribute("data-method") == "SAC+m12[kappa=14]"
    assert len(rows) == 8
    assert not page.locator("#table-main").is_visible()
    page.locator("#main summary").click()
    assert page.locator("#table-main").is_visible()


def test_a_filter_picks_lines_and_the_tooltip_names_the_nearest_eight(opened, crowded):
    page = opened(report=crowded)
    scroll_through(page)
    lines = "document.querySelector('#curves_toy_abrupt .panel').dataset.lines.split(',')"
    panel = page.locator("#curves_toy_abrupt .panel").first
    panel.locator(".u-over").hover(position={"x": 200, "y": 60})
    assert page.inner_text(".tip").count("SAC") == 8
    assert "and 6 more" in page.inner_text(".tip")
    page.locator(".fold summary").click()
    page.fill("#filter", "M1")
    assert page.locator(".toggle:visible").count() == 4
    page.get_by_role("button", name="only").click()
    assert page.evaluate(lines) == [f"SAC+m{i}[kappa={i + 2}]" for i in (1, 10, 11, 12)]
    page.get_by_role("button", name="none").click()
    assert page.evaluate(lines) == [""]
    page.fill("#filter", "")
    page.get_by_role("button", name="all", exact=True).click()
    assert len(page.evaluate(lines)) == 14
