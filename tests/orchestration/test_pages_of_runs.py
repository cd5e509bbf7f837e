"""What the person on call sees of a published day, a day held back and a day that failed, and a
replay at a click.
"""

import urllib.request

import pytest
from deltalake import DeltaTable

from tests.orchestration.test_nightly_run import ROW_DOUBLED, house_definitions, with_fault
from tests.support.pages import keep, materialize, shows, wait_for, web_page

pytestmark = pytest.mark.ui

PUBLISHED, HELD_BACK, FAILED = "2013-01-10", "2013-01-11", "2013-02-01"
TABLE = "data/published/flights_enriched"


@pytest.fixture(scope="module")
def nights(dagster_project):
    """A day that went well, one that its checks hold back, one whose input is not there."""
    assert dagster_project.run(house_definitions(), PUBLISHED).success
    assert not dagster_project.run(
        with_fault(dagster_project.root, "row_doubled", ROW_DOUBLED), HELD_BACK
    ).success
    assert not dagster_project.run(house_definitions(), FAILED).success
    return dagster_project


@pytest.fixture(scope="module")
def address(nights):
    with web_page("orchestration.dagster.web.ui", nights.root) as address:
        yield address


def test_the_asset_page_shows_the_last_run_and_the_columns(page):
    page.goto("/assets/flights_enriched")
    shows(page, "Failed in", "Row count", "932", "Reports of all days")
    shows(page, "temp_c", "weather_api, through the lookup weather.", "flights_enriched_nightly")


def test_a_held_back_day_says_why_what_to_do_and_what_readers_see(page):
    page.goto(f"/assets/flights_enriched?view=partitions&partition={HELD_BACK}")
    shows(page, "failed, and did not materialize this asset")
    page.goto("/assets/flights_enriched?view=events")
    page.get_by_text(HELD_BACK).first.click()
    shows(page, "Not published (held back): every_row_once: 0 rows lost, 1 duplicated")
    shows(page, "Fix the cause, then run the day again")
    shows(page, f"nothing of {HELD_BACK}; newest day {PUBLISHED}, version 0, complete")


def test_a_day_without_input_says_so_in_one_sentence(page):
    page.goto("/assets/flights_enriched?view=events")
    page.get_by_text(FAILED).first.click()
    shows(page, f"there is no data/raw/flights/date={FAILED}")


def test_the_metadata_of_published_days_is_plotted(page):
    page.goto(f"/assets/flights_enriched?view=partitions&partition={PUBLISHED}")
    shows(page, "weather/rows_ok", "weather/latency_p99_ms", "published_version")


def test_the_checks_tab_shows_each_result_and_never_passed_for_a_check_that_did_not_run(
    page,
):
    page.goto("/assets/flights_enriched?view=checks&checkDetail=every_row_once")
    shows(page, "Every row of the input is in the files exactly once", "0 rows lost, 1 duplicated")
    page.get_by_text("Execution history").click()
    shows(page, HELD_BACK, PUBLISHED)
    page.get_by_role("tab", name="Partitions").last.click()
    shows(page, "Passed (1)", "Execution Failed (0)")
    page.get_by_text("Failed (1)", exact=True).wait_for()  # and none of the day that has no input
    keep(page, "checks_by_day")


def test_a_replay_job_of_a_day_without_dead_letters_keeps_the_day(page, nights):
    version = DeltaTable(TABLE).version()
    page.goto("/locations/tidegate/jobs/flights_enriched_nightly")
    shows(page, "asks again for the dead letters of the day")
    materialize(page, PUBLISHED, "replay")
    wait_for(lambda: finished(nights, "replay"))
    ended = finished(nights, "replay")
    assert [run.status.value for run in ended] == ["SUCCESS"]
    assert DeltaTable(TABLE).version() == version
    assert nights.observed(ended[0].run_id)[-1]["reason"] == (
        f"{PUBLISHED} has no dead letters: nothing was called."
    )
    page.goto(f"/runs/{ended[0].run_id}")
    shows(page, "Success", "flights_enriched_nightly")


def finished(project, mode: str) -> list:
    from dagster import RunsFilter

    return [
        run
        for run in project.instance.get_runs(RunsFilter(tags={"tidegate/mode": mode}))
        if run.is_finished
    ]


def test_the_links_to_report_and_log_open(address, nights):
    """Of a run that the page's own daemon made: it knows the port of the reports."""
    (run,) = finished(nights, "replay")
    reported = nights.observed(run.run_id)[-1]
    with urllib.request.urlopen(reported["report"], timeout=30) as report:
        assert PUBLISHED in report.read().decode()
