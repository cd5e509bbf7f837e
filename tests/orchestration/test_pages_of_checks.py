"""Days published by button, nightly job, range and command, and red days of each, as the pages show
them.
"""

import contextlib
import datetime as dt
import sqlite3
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from data_quality import catalogue
from demo import data
from enrichments.flights import flights
from orchestration.dagster.declared import Declared
from tests.orchestration.test_backfill import ended_runs
from tests.support.check_partitions import checks_of_days
from tests.support.pages import keep, materialize, shows, wait_for, web_page

pytestmark = pytest.mark.ui

DECLARED = Declared("enrichments.flights:flights", flights)
BUTTON, NIGHTLY = "2013-01-10", "2013-01-11"
RANGE = ("2013-01-12", "2013-01-13")  # of these two and the next the second one is red
COMMAND = ("2013-01-14", "2013-01-15")
RED = (RANGE[1], COMMAND[1])
GREEN = {BUTTON, NIGHTLY, RANGE[0], COMMAND[0]}
FOUND = "plane__answers_in_range"
NOT_RUN = "input_day_complete"  # too few earlier days to compare with
TELEPHONE, WIDE = 390, 1280


@pytest.fixture(scope="module")
def project(dagster_project):
    """One row of each red day has a plane with more seats than the declaration allows."""
    data.prepare(Path("data"), [dt.date.fromisoformat(day) for day in (*GREEN, *RED)])
    with contextlib.closing(sqlite3.connect("data/demo/planes.db")) as planes, planes:
        planes.execute(
            "INSERT INTO planes (tailnum, manufacturer, model, seats) VALUES ('N9999X', "
            "'A', 'B', 9999)"
        )
    for day in RED:
        (file,) = Path(f"data/raw/flights/date={day}").iterdir()
        rows = pq.ParquetFile(file).read()
        first = pa.array([n == 0 for n in range(rows.num_rows)])
        tails = pc.if_else(first, "N9999X", rows["tail_number"])
        pq.write_table(
            rows.set_column(rows.schema.get_field_index("tail_number"), "tail_number", tails), file
        )
    return dagster_project


@pytest.fixture(scope="module")
def address(project):
    with web_page("orchestration.dagster.web.ui", project.root) as address:
        yield address


def asked(page, project, path, days):
    """Asks for the days on this page, and waits for the run."""
    before = len(ended_runs(project))
    page.goto(path)
    materialize(page, days)
    wait_for(lambda: len(ended_runs(project)) > before)


def test_days_published_in_any_way_are_green_and_a_held_back_day_is_red(page, project):
    command = [
        sys.executable,
        "-m",
        "tidegate",
        "run",
        "enrichments.flights:flights",
        "--from",
        COMMAND[0],
    ]
    assert (
        subprocess.run([*command, "--to", COMMAND[1]], check=False, capture_output=True).returncode
        == 1
    )
    asset, job = "/assets/flights_enriched", "/locations/tidegate/jobs/flights_enriched_nightly"
    asked(page, project, asset, BUTTON)
    asked(page, project, job, NIGHTLY)
    asked(page, project, job, f"[{RANGE[0]}...{RANGE[1]}]")
    names = {check.name for check in catalogue.checks(flights.facts())} - {NOT_RUN}

    # a sensor tells of the days of a command: that they are published first, then of each check
    def lacks():
        green = checks_of_days(project.instance, DECLARED, "SUCCEEDED")
        return {
            name: GREEN - green.get(name, set()) for name in names if GREEN - green.get(name, set())
        }

    wait_for(lambda: not lacks(), within=180)
    assert project.instance.get_materialized_partitions(DECLARED.key) == GREEN
    assert checks_of_days(project.instance, DECLARED, "FAILED") == {FOUND: {RANGE[1]}}
    for name in sorted(names):
        page.goto(f"{asset}?view=checks&checkDetail={name}")
        shows(page, "Execution history")
        page.get_by_role("tab", name="Partitions").last.click()
        shows(page, "Passed (4)" if name == FOUND else "Passed (5)", "Execution Failed (0)")
        page.get_by_text(f"Failed ({int(name == FOUND)})", exact=True).wait_for()
        keep(page, f"check_{name}")


def test_red_days_are_red_on_every_page_wide_and_on_a_telephone(page, project):
    page.goto("/assets/flights_enriched?view=partitions")
    shows(page, "Failed (1)", "Materialized (4)")
    keep(page, "partitions")
    (red,) = (run for run in ended_runs(project) if not run.is_success)
    reports = project.observed(red.run_id)[-1]["report"].rsplit("/", 2)[0]
    for width in (WIDE, TELEPHONE):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"{reports}/index.html")
        for day in (*GREEN, *RED):
            published = page.locator(f'a.cell[href="{day}/index.html"]').first
            assert ("failed" in published.get_attribute("class").split()) == (day in RED)
        keep(page, f"report_index_{width}")
        for day in RED:
            page.goto(f"{reports}/{day}/index.html")
            shows(page, "1 row with an answer out of range", "Next:")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            keep(page, f"report_{day}_{width}")
        page.goto(f"{reports}/{COMMAND[0]}/index.html")
        keep(page, f"report_{COMMAND[0]}_{width}")
    for path in ("view=partitions", f"view=checks&checkDetail={FOUND}"):
        page.goto(f"/assets/flights_enriched?{path}")
        shows(page, "flights_enriched")
        keep(page, f"dagster_{path.split('&')[0]}_{TELEPHONE}")
