import datetime as dt
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from honest_day import Day, declare

from data_quality.report.charts import FEWEST_BARS, LABELLED_DAYS, chart_all_days
from data_quality.report.days import list_days
from data_quality.report.pages import PLOTLY, render
from jobs.schema.columns import OUTCOMES
from jobs.schema.records import (
    Billed,
    DayMetrics,
    DayRecord,
    LookupMetrics,
    UnwrittenRun,
    Verdict,
)  # fmt: skip
from tests.support.readable import assert_readable

PICTURE = {
    "width_s": 5,
    "slots": [
        {
            "start_s": 1_357_863_300 + 5 * n,
            "outcomes": {"ok": 90 + n, "timeout": 2},
            "p50_ms": 50.0,
            "p99_ms": 200.0 + n,
        }
        for n in range(40)
    ],
    "latency": [
        {"from_ms": 10.0 * n, "to_ms": 10.0 * (n + 1), "outcome": "ok", "rows": 1000 // n}
        for n in range(1, 40)
    ],
}
DOUBLED = Verdict(
    "every_row_once",
    "failed",
    "error",
    "0 rows lost, 1 duplicated; first: flight 17",
    1,
    900,
    "each row once",
    ({"flight": 17, "times_in_files": 2, "note": "<script>alert(1)</script>"},),
)


def record(day: dt.date, *, red: bool = False) -> DayRecord:
    lookups = tuple(
        LookupMetrics(lookup.name, dict.fromkeys(OUTCOMES, 0) | {"ok": 800, "miss": 90, "timeout": 10}, 910, 10, 12.5,
                      11.0, 50.0, 210.0)
        for lookup in declare().lookups
    )  # fmt: skip
    facts = Day(Path("/nowhere"), declare(), {}, {}, ()).facts()
    verdicts = (
        DOUBLED
        if red
        else Verdict("every_row_once", "passed", "error", "900 rows in, 900 rows out"),
        Verdict("input_day_complete", "not_run", "warn", "not run: no earlier days"),
        Verdict("weather__miss_share_usual", "failed", "warn", "20 % misses; 10 % usual"),
    )
    return DayRecord(
        replace(facts, day=day.isoformat()),
        DayMetrics(900, 900, 60, lookups, 14.0),
        verdicts,
        {"weather": PICTURE},
        state="held back" if red else "published",
        published_version=None if red else day.toordinal(),
    )


def days(count: int) -> list[DayRecord]:
    first = dt.date(2013, 1, 1)
    return [
        record(first + dt.timedelta(days=n), red=n in (count // 2, count - 1)) for n in range(count)
    ]


def test_the_page_of_a_held_back_day_says_why_and_what_readers_see(tmp_path):
    render("flights_enriched", days(2), tmp_path)
    page = (tmp_path / "2013-01-02" / "index.html").read_text()
    assert "not published: held back" in page
    assert "every_row_once: 0 rows lost, 1 duplicated" in page
    assert "Readers see: nothing of 2013-01-02; the last published day is 2013-01-01." in page


def test_the_page_of_a_published_or_held_back_day_counts_its_dead_letters(tmp_path):
    made = record(dt.date(2013, 1, 1), red=True)
    declared = made.facts.declared
    lookups = tuple(
        replace(lookup, dead_letters=("timeout", "error")) for lookup in declared.lookups
    )
    made = replace(made, facts=replace(made.facts, declared=replace(declared, lookups=lookups)))
    render("flights_enriched", [made], tmp_path)
    page = (tmp_path / "2013-01-01" / "index.html").read_text()
    assert f"<b>{10 * len(lookups)}</b><span>dead letters</span>" in page


def test_the_page_of_a_day_says_which_answers_cost_no_call(tmp_path):
    made = record(dt.date(2013, 1, 1))
    outcomes = {"ok": 11_110}
    lookups = tuple(
        replace(lookup, outcomes=outcomes, from_ledger=4321, shared=1234)
        for lookup in made.figures.lookups
    )
    figures = replace(made.figures, lookups=lookups, job_s=2.0)
    render("flights_enriched", [replace(made, figures=figures)], tmp_path)
    page = (tmp_path / "2013-01-01" / "index.html").read_text()
    for label, value in (
        ("from ledger", "4,321"),
        ("shared", "1,234"),
        ("known", "50.0%"),
        ("ledger rows/s", "2,160"),
    ):
        assert f'<td data-label="{label}" class="number">{value}</td>' in page


def run_again(made: DayRecord, hour: int, **changes) -> DayRecord:
    facts = replace(
        made.facts, run_id=f"run-{hour}", started_at=f"2013-01-11T{hour:02}:00:00+00:00"
    )
    return replace(made, facts=facts, **changes)


def test_the_page_names_the_last_published_version_after_later_failed_runs(tmp_path):
    day = dt.date(2013, 1, 1)
    first, second = (run_again(record(day), hour, published_version=hour) for hour in (1, 2))
    held = run_again(record(day, red=True), 3)
    failed = replace(ended_without_files("2013-01-01"), started_at="2013-01-12T00:00:00+00:00")
    for records, unwritten, expected in (
        ([first], [], "2013-01-01, version 1, complete"),
        (
            [first, second, held],
            [],
            "2013-01-01, version 2, of the run that started 2013-01-11 02:00 UTC",
        ),
        ([first], [failed], "2013-01-01, version 1"),
        ([held], [], "nothing of 2013-01-01"),
        ([], [failed], "nothing of 2013-01-01"),
    ):
        render("flights_enriched", records, tmp_path, unwritten)
        assert f"Readers see: {expected}" in (tmp_path / "2013-01-01" / "index.html").read_text()


def test_a_day_run_again_keeps_the_figures_of_each_run_and_the_trace_of_a_crash(tmp_path):
    crashed = replace(
        ended_without_files("2013-01-01"), run_id="killed", state="crashed", reason="it was killed."
    )
    crashed = replace(
        crashed, started_at="2013-01-11T00:30:00+00:00", ended_at="2013-01-11T00:40:00+00:00"
    )
    made = record(dt.date(2013, 1, 1))
    free = replace(
        made.figures, lookups=tuple(replace(lookup, calls=0) for lookup in made.figures.lookups)
    )
    runs = [
        run_again(made, 1, published_version=1),
        run_again(made, 2, published_version=2, figures=free),
    ]
    render("flights_enriched", runs, tmp_path, [crashed])
    page = (tmp_path / "2013-01-01" / "index.html").read_text()
    lines = page.partition("Runs of this day")[2].split("<tr>")[2:]
    assert [line.split("<code>")[1][:6].strip("</") for line in lines] == [
        "run-2",
        "run-1",
        "killed",
    ]
    calls = sum(lookup.calls for lookup in made.figures.lookups)
    assert 'data-label="dead letters" class="number">0</td>' in lines[0]
    assert f'data-label="calls" class="number">{calls:,}</td>' in lines[1]
    assert f'data-label="calls" class="number">{calls:,}</td>' not in lines[0]
    assert "it was killed." in lines[2]


def billed(made: DayRecord, calls: int, cost: str) -> DayRecord:
    first, *others = made.figures.lookups
    first = replace(first, calls=calls, billed=Billed(calls, 0, "item", cost, "USD"))
    others = [replace(other, calls=0) for other in others]
    return replace(made, figures=replace(made.figures, lookups=(first, *others)))


def test_the_headline_has_rows_calls_and_cost_of_the_run_and_of_the_whole_day(tmp_path):
    made = record(dt.date(2013, 1, 1))
    first, again = (
        run_again(billed(made, calls, cost), hour)
        for calls, cost, hour in ((777, "3.1080", 1), (0, "0.0000", 2))
    )
    crash = replace(ended_without_files("2013-01-01"), cost="0.50 USD", calls=125)
    crash = replace(crash, started_at="2013-01-01T00:00:00+00:00")
    crash = replace(crash, ended_at="2013-01-11T00:40:00+00:00")
    for records, unwritten, line in (
        ([first], [], "Published: 900 rows, 777 calls, 3.11 USD"),
        (
            [first, again],
            [crash],
            "Published: 900 rows, 0 calls, 0.00 USD; its 3 runs together: 902 calls, 3.61 USD",
        ),
        ([replace(first, state="held back")], [], "Held back: 900 rows, 777 calls, 3.11 USD"),
    ):
        render("flights_enriched", records, tmp_path, unwritten)
        page = (tmp_path / "2013-01-01" / "index.html").read_text()
        assert f'<p class="headline">{line}</p>' in page
        assert ("0.50 USD</td>" in page) == bool(unwritten)
        assert "<p>1 of 3 checks passed; 1 warns, 1 did not run.</p>" in page


def test_the_key_of_a_chart_has_the_texts_of_answers_as_they_are(tmp_path):
    sketch = {"type": "STRING", "texts": {"in_progress": 0.6, "in progress": 0.4}, "null": 0.0}
    made = record(dt.date(2013, 1, 1))
    made = replace(made, pictures={"weather": PICTURE | {"answers": {"state": sketch}}})
    page = render("flights_enriched", [made], tmp_path).read_text()
    assert page.count("</i>in_progress</li>") == page.count("</i>in progress</li>") == 1


def test_a_command_in_a_sentence_is_shown_as_code_without_backticks(tmp_path):
    render("flights_enriched", days(2), tmp_path, [ended_without_files("2013-01-09")])
    for day in ("2013-01-02", "2013-01-09"):
        assert "`" not in (tmp_path / day / "index.html").read_text().partition("<script")[0]
    page = (tmp_path / "2013-01-02" / "index.html").read_text()
    assert "<code>tidegate run flights_enriched --day 2013-01-02</code>" in page


@pytest.mark.parametrize("count", [1, 3, 5, 12, 60])
def test_dates_do_not_overlap_and_bars_are_at_most_as_wide_as_in_twelve_days(count):
    (figures, *_) = chart_all_days(days(count)).values()
    axis, bars = figures["outcomes"]["layout"]["xaxis"], figures["outcomes"]["data"]
    low, high = axis["range"]
    apart = (high - low) / len(axis["tickvals"])
    assert apart >= (high - low) / LABELLED_DAYS
    assert {round(bar["width"] / (high - low), 9) for bar in bars} == {
        round(0.85 / max(count, FEWEST_BARS), 9)
    }


def test_the_page_is_written_with_a_name_that_is_not_utf_8(tmp_path):
    made = record(dt.date(2013, 1, 1), red=True)
    verdict = replace(DOUBLED, evidence=({"file": os.fsdecode(b"part-\xff.parquet")},))
    render("flights_enriched", [replace(made, verdicts=(verdict,))], tmp_path)
    assert "part-?.parquet" in (tmp_path / "2013-01-01" / "index.html").read_text()


def test_a_check_that_did_not_run_is_not_shown_as_passed(tmp_path):
    render("flights_enriched", [record(dt.date(2013, 1, 1))], tmp_path)
    page = (tmp_path / "2013-01-01" / "index.html").read_text()
    assert 'badge not_run">– not run' in page
    assert "<li><span>weather__miss_share_usual: 20 % misses" in page


def test_values_from_the_data_are_shown_as_text_and_never_as_markup(tmp_path):
    render("flights_enriched", days(1), tmp_path)
    assert "<script>alert(1)" not in (tmp_path / "2013-01-01" / "index.html").read_text()


def test_a_written_day_with_a_red_error_check_reads_as_held_back(tmp_path):
    written = replace(record(dt.date(2013, 1, 1), red=True), state="written")
    render("flights_enriched", [written], tmp_path)
    assert "held back" in (tmp_path / "index.html").read_text()


def test_rendering_after_a_rerun_replaces_the_day(tmp_path):
    red = record(dt.date(2013, 1, 1), red=True)
    green = record(dt.date(2013, 1, 1))
    green = replace(
        green, facts=replace(green.facts, run_id="r2", started_at="2013-01-12T00:15:00Z")
    )
    render("flights_enriched", [red], tmp_path)
    render("flights_enriched", [green, red], tmp_path)
    assert "not published: held back" not in (tmp_path / "2013-01-01" / "index.html").read_text()


def test_the_page_of_all_days_names_the_newest_day_and_when_it_was_checked(tmp_path):
    page = render("flights_enriched", days(3), tmp_path).read_text()
    assert "Newest day here: <b>2013-01-03<span></span></b>, checked 2013-01-11 00:21 UTC" in page


def test_a_partition_with_a_name_has_no_age_and_no_weekday(tmp_path):
    made = record(dt.date(2013, 1, 1))
    made = replace(made, facts=replace(made.facts, day="shop-1"))  # 2001-01-01 to a browser
    assert 'data-day=""' in render("flights_enriched", [made], tmp_path).read_text()
    assert "<small>shop-1</small>" in (tmp_path / "shop-1" / "index.html").read_text()


def test_the_age_of_an_hour_is_that_of_its_date(tmp_path):
    made = record(dt.date(2013, 1, 1))
    made = replace(made, facts=replace(made.facts, day="2013-01-01T05Z"))  # no date to a browser
    assert 'data-day="2013-01-01"' in render("flights_enriched", [made], tmp_path).read_text()


def test_the_page_of_all_days_names_the_last_published_day_however_old_it_is(tmp_path):
    first = dt.date(2013, 1, 1)
    lost = [ended_without_files(f"{first + dt.timedelta(days=n)}") for n in range(1, 100)]
    page = render("flights_enriched", [record(first)], tmp_path, lost).read_text()
    assert "Readers see: 2013-01-01, version 734869, complete." in page
    assert "<small>the last 60 of 100 days</small>" in page


@pytest.mark.parametrize(
    ("count", "rest"), [(5, "."), (6, " and 1 earlier day."), (7, " and 2 earlier days.")]
)
def test_the_page_of_all_days_names_five_days_and_counts_the_earlier_ones(tmp_path, count, rest):
    lost = [ended_without_files(f"2013-01-0{n}") for n in range(1, count + 1)]
    page = render("flights_enriched", [], tmp_path, lost).read_text()
    assert f"{count} of {count} days not published: " in page
    assert f">2013-01-0{count}</a>{rest}" in page


def test_the_records_of_many_days_are_read_a_few_times_and_not_once_for_each_day():
    reads = []

    class Counted(list):
        def __iter__(self):
            reads.append(1)
            return super().__iter__()

    assert len(list_days(Counted(days(30)), [])) == 30
    assert len(reads) < 10


def ended_without_files(day: str, state: str = "failed") -> UnwrittenRun:
    at = "2013-01-12T02:15:00+00:00"
    return UnwrittenRun(
        "flights_enriched",
        day,
        f"run of {day}",
        state,
        f"there is no folder of {day}.",
        "Deliver it.",
        at,
        at,
    )


def test_a_red_day_that_wrote_no_files_is_on_every_page_with_its_reason_and_next_step(tmp_path):
    red = [ended_without_files("2013-01-04"), ended_without_files("2013-01-06", "stopped: service")]
    log = tmp_path / "runs" / "flights_enriched" / red[0].day / f"{red[0].run_id}.log"
    log.parent.mkdir(parents=True)
    log.touch()
    reports = tmp_path / "reports" / "flights_enriched"
    reports.parent.mkdir()
    index = render("flights_enriched", days(3), reports, red).read_text()
    assert "5 days" in index
    assert "latest day not published: stopped: service" in index
    for run in red:
        assert index.count(f'href="{run.day}/index.html"') >= 3  # headline, calendar, table
        assert (
            f'class="cell failed" href="{run.day}/index.html" title="{run.day}: {run.state}.'
            in index
        )
        page = (reports / run.day / "index.html").read_text()
        for text in (f"not published: {run.state}", run.reason, run.next_step, "../index.html"):
            assert text in page
        assert f"/assets/flights_enriched?view=partitions&amp;partition={run.day}" in page
    link = f"../../../runs/flights_enriched/{red[0].day}/{red[0].run_id}.log"
    assert link in (reports / red[0].day / "index.html").read_text()
    # it ended before Spark
    assert ".log" not in (reports / red[1].day / "index.html").read_text()
    assert "2013-01-04/index.html" in (reports / "2013-01-03" / "index.html").read_text()


def test_the_page_of_a_published_day_reports_that_its_last_run_failed(tmp_path):
    (made,) = days(1)[:1]
    made = replace(
        record(dt.date(2013, 1, 1)),
        facts=replace(made.facts, started_at="2013-01-11T02:15:00+00:00"),
    )
    index = render(
        "flights_enriched", [made], tmp_path, [ended_without_files("2013-01-01")]
    ).read_text()
    page = (tmp_path / "2013-01-01" / "index.html").read_text()
    for text in (
        "not published: failed",
        "there is no folder of 2013-01-01.",
        "2013-01-01, version",
        "every_row_once",
    ):
        assert text in page
    assert "Readers see: 2013-01-01, version" in index
    assert "days not published" not in index
    assert "readers see an earlier run: the last was not published" in index
    render(
        "flights_enriched",
        [made],
        tmp_path,
        # it began before the run that wrote, and ended after it
        [replace(ended_without_files("2013-01-01"), started_at="2013-01-10T02:15:00Z")],
    )
    assert "not published" not in (tmp_path / "2013-01-01" / "index.html").read_text()


def test_the_page_of_a_day_reports_that_the_run_failed_after_it_had_written(tmp_path):
    made = days(1)[0]
    day, run_id, at = made.facts.day, made.facts.run_id, made.facts.started_at
    end = replace(ended_without_files(day), run_id=run_id, started_at=at)
    render("flights_enriched", [made], tmp_path, [end])
    assert "not published: failed" in (tmp_path / day / "index.html").read_text()


def test_days_of_which_none_wrote_files_have_a_page(tmp_path):
    index = render(
        "flights_enriched", [], tmp_path, [ended_without_files("2013-01-01")]
    ).read_text()
    assert "there is no folder of 2013-01-01." in index


def test_the_page_of_a_held_back_day_says_what_to_do_and_links_to_dagster(tmp_path, monkeypatch):
    monkeypatch.setenv("TIDEGATE_UI_URL", "https://dagster.example/")
    render("flights_enriched", days(2), tmp_path)
    page = (tmp_path / "2013-01-02" / "index.html").read_text()
    assert (
        "<b>Next:</b> Fix the cause, then run the day again: <code>tidegate run flights_enriched "
        "--day 2013-01-02</code>, the job flights_enriched_nightly in Dagster"
    ) in page
    assert (
        'href="https://dagster.example/assets/flights_enriched?view=partitions&amp;partition=2013-01-02"'
        in page
    )


def test_a_table_without_a_day_has_a_page_that_says_that_no_day_has_run(tmp_path):
    assert "No day has run yet" in render("flights_enriched", [], tmp_path).read_text()


@pytest.mark.ui
@pytest.mark.parametrize("count", [1, 60])
def test_pages_are_drawn_offline_without_any_request(tmp_path, count):
    from playwright.sync_api import sync_playwright

    index = render("flights_enriched", days(count), tmp_path)
    last = index.parent / days(count)[-1].facts.day / "index.html"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        for page_file, charts in ((index, 6), (last, 3)):
            page = browser.new_context(offline=True).new_page()
            asked, problems = [], []
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.on("console", lambda message, problems=problems: problems.append(message.text))
            page.on("pageerror", lambda error, problems=problems: problems.append(str(error)))
            page.goto(page_file.as_uri())
            page.wait_for_selector(".chart .main-svg")
            outside = [url for url in asked if not url.startswith(("file:", "data:"))]
            assert outside == []
            assert problems == []
            assert {url for url in asked if url.startswith("file:")} == {
                page_file.as_uri(),
                (tmp_path / PLOTLY).as_uri(),
            }
            assert page.locator(".chart").count() == charts
            assert page.locator(".chart .plot-container").count() == charts
        browser.close()


@pytest.mark.ui
@pytest.mark.parametrize(
    ("days_old", "message", "is_green"),
    [
        (1, "yesterday, checked 2026-11-20 02:20 UTC, 4 hours ago", True),
        (
            2,
            (
                "2 days ago, checked 2026-11-20 02:20 UTC, 28 hours ago. No run has written a "
                "later day."
            ),
            False,
        ),
        (
            9,
            (
                "9 days ago, checked 2026-11-20 02:20 UTC, 8 days ago. No run has written a later "
                "day."
            ),
            False,
        ),
    ],
)
def test_the_page_of_all_days_shows_how_old_the_newest_day_is(
    tmp_path, days_old, message, is_green
):
    from playwright.sync_api import sync_playwright

    made = record(dt.date(2026, 11, 19))
    made = replace(made, facts=replace(made.facts, finished_at="2026-11-20T02:20:00.000+00:00"))
    index = render("flights_enriched", [made], tmp_path)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page()
        page.clock.set_fixed_time(
            dt.datetime(2026, 11, 19, 7, tzinfo=dt.UTC) + dt.timedelta(days=days_old)
        )
        page.goto(index.as_uri())
        assert f"Newest day here: 2026-11-19, {message}" in page.locator(".newest").inner_text()
        colour = page.locator("b.state").evaluate("it => getComputedStyle(it).color")
        assert (colour == "rgb(42, 127, 98)") is is_green
        browser.close()


@pytest.mark.ui
def test_pages_with_long_names_need_no_sideways_scrolling_on_a_telephone(tmp_path):
    from playwright.sync_api import sync_playwright

    long = "rating_of_the_customer_in_the_european_union_with_fallbacks"
    made = record(dt.date(2013, 1, 1), red=True)
    lookups = tuple(
        replace(lookup, name=long) if lookup.name == "weather" else lookup
        for lookup in made.figures.lookups
    )
    verdicts = (
        replace(DOUBLED, check=f"{long}__errors_tolerated", sentence=f"as it says {'x' * 500}"),
        *made.verdicts,
    )
    made = replace(
        made,
        figures=replace(made.figures, lookups=lookups),
        verdicts=verdicts,
        pictures={long: PICTURE},
    )
    made = replace(made, facts=replace(made.facts, folder=f"/data/published/runs/{'0f' * 40}"))
    index = render("a_table_with_a_name_that_goes_on_and_on_in_its_heading", [made], tmp_path)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 390, "height": 800})
        for page_file in (index, tmp_path / "2013-01-01" / "index.html"):
            page.goto(page_file.as_uri())
            page.wait_for_selector(".chart .main-svg")
            assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert (
            page.get_by_text("0 rows lost, 1 duplicated").last.bounding_box()["width"] > 300
        )  # not a letter to a line
        page.goto(index.as_uri())
        name, cell = page.locator(".calendar th.check").last, page.locator(".calendar a.cell").last
        # not on top of it
        assert name.bounding_box()["x"] + name.bounding_box()["width"] <= cell.bounding_box()["x"]
        browser.close()


@pytest.mark.ui
def test_axe_finds_nothing_serious_on_the_pages_of_days_in_any_form(tmp_path):
    published, held_back, waited, failed, written, stopped = (f"2013-01-0{n}" for n in range(1, 7))
    made = [
        run_again(record(dt.date(2013, 1, 1)), 1),
        run_again(record(dt.date(2013, 1, 1)), 2, published_version=7),
        record(dt.date(2013, 1, 2), red=True),
        record(dt.date(2013, 1, 4)),
        replace(record(dt.date(2013, 1, 5)), state="written"),
    ]
    ended = [
        ended_without_files(waited, "waiting"),
        ended_without_files(failed),
        ended_without_files(stopped, "stopped: service"),
    ]
    index = render("flights_enriched", made, tmp_path / "six_days", ended)
    waits = render("flights_enriched", made[:3], tmp_path / "last_day_waits", ended[:1])
    days = (published, held_back, waited, failed, written, stopped)
    assert_readable(index, waits, *(index.parent / day / "index.html" for day in days))


@pytest.mark.process
def test_the_report_needs_neither_spark_nor_great_expectations():
    import subprocess

    script = (
        "import sys, data_quality.report, data_quality.catalogue, data_quality.verdict_store\n"
        "print([name for name in ('pyspark', 'great_expectations', 'pandas', 'plotly') if name in "
        "sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
