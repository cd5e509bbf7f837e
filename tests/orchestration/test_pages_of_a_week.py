"""A week backfilled from the page: what it shows of seven days of which one is bad, and a day
completed at a click.
"""

import contextlib
import datetime as dt
import sqlite3
from pathlib import Path

import pytest
from deltalake import DeltaTable

from demo import data
from tests.orchestration.test_backfill import BAD, FOUND, PLANE, WEEK, ended_runs
from tests.orchestration.test_pages_of_runs import finished
from tests.support.pages import keep, materialize, shows, wait_for, web_page

pytestmark = pytest.mark.ui

TABLE = "data/published/flights_enriched"
DEAD, FAILING = "2013-01-11", "N292JB"  # a plane that flies on that day only, three times
GOOD = [day for day in WEEK if day != BAD]


def seats_of_the_dead(seats: str) -> None:
    """What the database computes for the seats of that plane from now on; where it cannot, the
    query fails.
    """
    with contextlib.closing(sqlite3.connect("data/demo/planes.db")) as planes, planes:
        if planes.execute("SELECT type FROM sqlite_master WHERE name = 'planes'").fetchone() == (
            "table",
        ):
            planes.execute("ALTER TABLE planes RENAME TO all_planes")
        planes.execute("DROP VIEW IF EXISTS planes")
        planes.execute(
            "CREATE VIEW planes AS SELECT tailnum, manufacturer, model, "
            f"CASE tailnum WHEN '{FAILING}' THEN {seats} ELSE seats END AS seats FROM all_planes"
        )


@pytest.fixture(scope="module")
def week(dagster_project):
    """Of its planes one has more seats than the declaration allows; the database fails for
    another.
    """
    data.prepare(Path("data"), [dt.date.fromisoformat(day) for day in WEEK])
    with contextlib.closing(sqlite3.connect("data/demo/planes.db")) as planes, planes:
        planes.execute("UPDATE planes SET seats = 9999 WHERE tailnum = ?", [PLANE])
    seats_of_the_dead("abs(-9223372036854775807 - 1)")
    return dagster_project


@pytest.fixture(scope="module")
def address(week):
    with web_page("orchestration.dagster.web.ui", week.root) as address:
        yield address


def rows_of(day: str) -> list[dict]:
    return (
        DeltaTable(TABLE)
        .to_pyarrow_table(filters=[("date", "=", dt.date.fromisoformat(day))])
        .to_pylist()
    )


def test_a_backfill_page_counts_the_published_days_and_the_bad_day(page, week):
    page.goto("/locations/tidegate/jobs/flights_enriched_nightly")
    materialize(page, f"[{WEEK[0]}...{WEEK[-1]}]")
    wait_for(lambda: ended_runs(week))
    assert sorted(partition["date"] for partition in DeltaTable(TABLE).partitions()) == GOOD
    (backfill,) = week.instance.get_backfills()
    page.goto(f"/runs/b/{backfill.backfill_id}")
    shows(page, "7 partitions", "Failed")
    keep(page, "a_week")
    page.goto("/assets/flights_enriched?view=partitions")
    shows(page, "Failed (1)", "Materialized (6)")


def test_the_run_of_the_bad_day_says_which_rows_and_values_are_bad_and_what_to_do(page, week):
    (red,) = (run for run in ended_runs(week) if not run.is_success)
    page.goto(f"/runs/{red.run_id}")
    shows(page, "Failure", f"6 of 7 days published. Not published: {BAD}: ", FOUND, "seats 9999")
    shows(page, "Fix the cause that the Events name")


def test_the_checks_tab_shows_what_a_check_found_on_each_day(page, week):
    page.goto("/assets/flights_enriched?view=checks&checkDetail=plane__answers_in_range")
    shows(page, "This is a blocking asset check", "are in range", "unexpected_count")
    keep(page, "a_check")
    page.get_by_text("Execution history").click()
    shows(
        page,
        BAD,
        "3 rows with an answer out of range (seats 1 .. 900)",
        GOOD[0],
        "all answers of 932 rows as declared",
    )


def test_the_numbers_of_the_days_are_plotted(page, week):
    page.goto("/assets/flights_enriched")
    page.get_by_role("button", name="Plots").click()
    # under Partitions Dagster looks for the 120 days before today
    page.get_by_role("button", name="Events").click()
    shows(
        page,
        "dead_letters",
        "rows_in",
        "weather/rows_ok",
        "weather/latency_p99_ms",
        "plane/answers_from_ledger",
    )
    page.get_by_text("weather/latency_p99_ms").first.scroll_into_view_if_needed()
    assert page.locator("canvas").count() > 20


def test_a_replay_job_calls_dead_letters_again_after_their_cause_is_mended(page, week):
    letters = f"/assets/flights_enriched__dead_letters?view=partitions&partition={DEAD}"
    page.goto(letters)
    shows(page, "Materialized", "dagster/row_count")
    assert [row["plane_status"] for row in rows_of(DEAD) if row["tail_number"] == FAILING] == [
        "error"
    ] * 3
    seats_of_the_dead("55")
    calls = len(week.service.calls())
    page.goto("/locations/tidegate/jobs/flights_enriched_nightly")
    materialize(page, DEAD, "replay")
    wait_for(lambda: finished(week, "replay"))
    assert [run.status.value for run in finished(week, "replay")] == ["SUCCESS"]
    assert len(week.service.calls()) == calls  # the weather was there
    asked_again = [row for row in rows_of(DEAD) if row["tail_number"] == FAILING]
    assert [(row["plane_status"], row["seats"]) for row in asked_again] == [("ok", 55)] * 3
    page.goto(letters)
    shows(page, "Materialized", "View all historical events (2)")
    page.get_by_text("0", exact=True).first.wait_for()
