"""How the report looks in a browser: wide and on a telephone, light and dark."""

import datetime as dt
import itertools
from dataclasses import replace

import pytest
from test_report import DOUBLED, PICTURE, days, record

from data_quality.report import charts
from data_quality.report.pages import render
from jobs.schema.records import Verdict

pytestmark = pytest.mark.ui
TELEPHONE, WIDE, A4 = 390, 1280, 718  # px; paper without its margins
LIGHT, DARK = "light", "dark"
LONG = Verdict(
    "weather__errors_tolerated",
    "failed",
    "error",
    "error: 30 rows. " + "upstream connect error " * 40,
    30,
    900,
)
ALSO = tuple(
    Verdict(name, "passed", "error", "as declared")
    for name in ("order_held", "plane__retries_held")
)
LOADS_WITHIN = 120_000  # ms; a page has plotly in it, and the machine may be busy


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        yield started
        started.close()


@pytest.fixture
def open_page(browser):
    """Opens a page of the report and waits until its charts are drawn."""
    opened = []

    def open_it(file, width=WIDE, scheme=LIGHT):
        page = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        ).new_page()
        opened.append(page)
        page.set_default_timeout(LOADS_WITHIN)
        page.goto(file.as_uri())
        page.wait_for_selector(".chart .main-svg")
        return page

    yield open_it
    for page in opened:
        page.context.close()


@pytest.fixture
def report(tmp_path):
    """Of three days, the last one held back by two checks; gives the index and the last
    day's page.
    """
    *good, bad = days(3)
    good = [replace(made, verdicts=(*made.verdicts, *ALSO)) for made in good]
    bad = replace(bad, verdicts=(ALSO[0], LONG, DOUBLED, *bad.verdicts[1:], ALSO[1]))
    index = render("flights_enriched", [*good, bad], tmp_path)
    return index, tmp_path / bad.facts.day / "index.html"


def boxes(page, selector):
    return [box for element in page.locator(selector).all() if (box := element.bounding_box())]


def overlap(one, other):
    return (
        one["x"] < other["x"] + other["width"]
        and other["x"] < one["x"] + one["width"]
        and one["y"] < other["y"] + other["height"]
        and other["y"] < one["y"] + one["height"]
    )


def luminance(page, selector, what):
    """Of a colour that the browser computed, from 0, black, to 1."""
    colour = page.locator(selector).first.evaluate(f"it => getComputedStyle(it).{what}")
    return sum(float(part) for part in colour.split("(")[1].rstrip(")").split(",")[:3]) / 765


def test_a_page_begins_with_a_headline_and_shortens_the_sentences_of_the_checks(report, open_page):
    page = open_page(report[1], TELEPHONE)
    headline, first, *_ = boxes(page, ".verdict .headline, .verdict li")
    assert page.locator(".verdict .headline").inner_text().startswith("Held back: ")
    assert page.locator(".verdict .headline + p").inner_text() == (
        "2 of 6 checks passed; 2 hold this day back, 1 warns, 1 did not run."
    )
    assert headline["y"] < first["y"]
    assert all(box["height"] < 80 for box in boxes(page, ".verdict li"))
    assert (
        page.locator("table.checks td", has_text="upstream").first.inner_text().count("upstream")
        == 40
    )


def test_only_passed_checks_are_folded(report, open_page):
    page = open_page(report[1])
    assert page.locator("details.passed summary").inner_text() == "2 checks passed"
    assert not page.locator(".badge.passed").first.is_visible()
    assert all(
        badge.is_visible()
        for badge in page.locator(".badge.failed, .badge.warning, .badge.not_run").all()
    )
    page.locator("details.passed summary").click()
    assert page.locator(".badge.passed").first.is_visible()


def test_checks_of_one_status_have_the_same_order_on_both_pages(report, open_page):
    whole = open_page(report[0]).locator(".calendar th.check code").all_inner_texts()
    page = open_page(report[1])
    page.locator("details.passed summary").click()
    for status in ("passed", "failed", "warning", "not_run"):
        rows = page.locator("table.checks > tbody > tr").filter(
            has=page.locator(f".badge.{status}")
        )
        of_day = rows.locator("> td > code").all_inner_texts()
        assert of_day
        assert of_day == [name for name in whole if name in of_day]


@pytest.mark.parametrize("p99", [50.0, 51.0, 60.0, 390.0], ids=str)
@pytest.mark.parametrize("p50", [11.0, 50.0], ids=str)
@pytest.mark.parametrize("width", [TELEPHONE, WIDE])
def test_the_labels_of_percentiles_overlap_neither_bars_nor_each_other(
    tmp_path, open_page, p50, p99, width
):
    made = record(dt.date(2013, 1, 1))
    lookups = tuple(
        replace(lookup, latency_p50_ms=p50, latency_p99_ms=p99) for lookup in made.figures.lookups
    )
    render(
        "flights_enriched",
        [replace(made, figures=replace(made.figures, lookups=lookups))],
        tmp_path,
    )
    page = open_page(tmp_path / "2013-01-01" / "index.html", width)
    labels = boxes(page, ".annotation-text")
    bars = boxes(page, ".chart:has(.annotation-text) .bars .point path")
    assert len(labels) == 2
    assert len(bars) == 39
    assert not any(overlap(one, other) for one, other in itertools.combinations(labels, 2))
    assert not any(overlap(label, bar) for label in labels for bar in bars)
    (chart,) = boxes(page, ".chart:has(.annotation-text)")
    assert all(
        chart["x"] <= label["x"] and label["x"] + label["width"] <= chart["x"] + chart["width"]
        for label in labels
    )


@pytest.mark.parametrize("count", [1, 7, 60])
@pytest.mark.parametrize("width", [TELEPHONE, WIDE])
def test_the_dates_under_a_chart_are_horizontal_and_do_not_overlap(
    tmp_path, open_page, count, width
):
    page = open_page(render("flights_enriched", days(count), tmp_path), width)
    for chart in page.locator(".chart").all():
        ticks = chart.locator(".xtick text").all()
        assert ticks
        assert all(
            "rotate(0" in tick.get_attribute("transform")
            or "rotate" not in tick.get_attribute("transform")
            for tick in ticks
        )
        assert not any(
            overlap(*pair)
            for pair in itertools.combinations([tick.bounding_box() for tick in ticks], 2)
        )


def test_the_bar_of_a_single_day_or_moment_is_narrow(tmp_path, open_page):
    moment = PICTURE | {"slots": PICTURE["slots"][:1]}
    made = replace(record(dt.date(2013, 1, 1)), pictures={"weather": moment})
    index = render("flights_enriched", [made], tmp_path)
    for file, selector in (
        (index, ".chart .bars .point path"),
        (tmp_path / "2013-01-01/index.html", ".x2y2 .bars path, .xy2 .bars path"),
    ):
        page = open_page(file)
        widths = [box["width"] for box in boxes(page, selector)]
        assert widths
        assert max(widths) < 100


def test_only_a_table_wider_than_the_page_says_that_it_scrolls(report, open_page):
    hint = ".more:visible"
    assert open_page(report[1], TELEPHONE).locator(hint).count() > 0
    assert open_page(report[1], WIDE).locator(hint).count() == 0
    page = open_page(report[1], TELEPHONE)
    for table in page.locator(".scroll").all():
        wider = table.evaluate("it => it.scrollWidth > it.clientWidth")
        assert table.locator("xpath=following-sibling::p[1]").is_visible() is (
            wider and table.is_visible()
        )


def test_a_cell_is_large_enough_for_a_finger(report, open_page):
    cells = boxes(open_page(report[0], TELEPHONE), ".calendar a.cell")
    assert min(min(box["width"], box["height"]) for box in cells) >= 44
    cells = boxes(open_page(report[0], WIDE), ".calendar a.cell")
    assert min(min(box["width"], box["height"]) for box in cells) >= 24


def test_in_dark_mode_cards_and_charts_are_dark_and_their_texts_are_light(report, open_page):
    for scheme, is_dark in ((LIGHT, False), (DARK, True)):
        for file in report:
            page = open_page(file, scheme=scheme)
            for selector, what, is_paper in (
                ("body", "backgroundColor", True),
                (".card", "backgroundColor", True),
                (".card", "color", False),
                (".chart .xtick text", "fill", False),
            ):
                assert (luminance(page, selector, what) < 0.5) is (is_dark is is_paper), (
                    scheme,
                    selector,
                    what,
                )


def test_charts_follow_when_the_browser_turns_dark(report, open_page):
    page = open_page(report[0], scheme=LIGHT)
    assert luminance(page, ".chart .xtick text", "fill") < 0.5
    page.emulate_media(color_scheme=DARK)
    page.wait_for_function(
        "getComputedStyle(document.querySelector('.chart .xtick text')).fill === 'rgb(228, 232, "
        "238)'"
    )


def test_a_chart_uses_only_colours_of_the_page(report, open_page):
    page = open_page(report[0])
    for outcome in (*charts.OUTCOMES, "none"):
        name = charts.colour(outcome).removeprefix("var(").removesuffix(")")
        assert (
            page.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('{name}')")
            != ""
        )


def sizes(page):
    """Width and height of each chart's place, then of what is drawn there."""
    return page.evaluate(
        "[...document.querySelectorAll('.chart')].map(it => [it, it.querySelector('.main-svg')])"
        ".map(pair => pair.map(it => it.getBoundingClientRect()).map(it => [it.width, it.height]))"
    )


def test_no_chart_is_squashed_when_the_window_turns_narrow(report, open_page):
    page = open_page(report[1])
    before = [drawn[1] for _, drawn in sizes(page)]
    page.set_viewport_size({"width": TELEPHONE, "height": 900})
    page.wait_for_function(
        "[...document.querySelectorAll('.chart .main-svg')].every(it => it.clientWidth < 390)"
    )
    assert [place[1] for place, _ in sizes(page)] == before
    assert [drawn[1] for _, drawn in sizes(page)] == before


def test_on_paper_no_chart_is_cut(report, open_page):
    for file in report:
        page = open_page(file)
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        page.set_viewport_size({"width": A4, "height": 900})
        assert all(drawn[0] <= place[0] for place, drawn in sizes(page))
