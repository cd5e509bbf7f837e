"""`make ui`: Dagster's pages on the demo's data, in headless Chromium."""

import contextlib
from pathlib import Path

import pytest

from data_quality import catalogue
from enrichments.flights import flights
from tests.support.pages import shows, web_page

pytestmark = pytest.mark.ui


def processes_in(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink() == folder and (process / "stat").read_text().split()[
                2
            ] != "Z":
                found.append((process / "cmdline").read_text().replace("\0", " ")[:100])
    return found


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ui")
    with web_page("demo.ui", folder) as address:
        yield address
    assert processes_in(folder) == []  # Ctrl-C ends everything that was started


def test_the_asset_page_shows_description_owner_and_checks_of_the_table(page):
    outside = []
    page.on(
        "request",
        lambda request: outside.append(request.url) if "127.0.0.1" not in request.url else None,
    )
    page.goto("/assets/flights_enriched")
    shows(page, "Every flight out of New York", "data-eng", "flights_enriched_nightly")
    page.goto("/assets/flights_enriched?view=checks")
    checks = len(catalogue.checks(flights.facts())) + 1  # published_in_time
    shows(page, f"Checks ({checks})", "every_row_once", "published_in_time")
    page.goto("/assets/flights_enriched?view=partitions")
    shows(page, "2013-12-31")
    # nothing is loaded from elsewhere
    assert [url for url in outside if url.startswith("http")] == []
