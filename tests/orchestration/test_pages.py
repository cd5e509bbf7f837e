"""`make ui`: Dagster's pages on the demo's data, in headless Chromium."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from data_quality import catalogue
from enrichments.flights import flights

pytestmark = pytest.mark.ui

CHROMIUM = "/usr/bin/chromium"
PATIENCE = 180.0  # s; Dagster starts five processes


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def processes_in(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink() == folder and (process / "stat").read_text().split()[2] != "Z":
                found.append((process / "cmdline").read_text().replace("\0", " ")[:100])
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ui")


@pytest.fixture(scope="module")
def address(folder):
    ports = {f"TIDEGATE_{name}_PORT": free_port() for name in ("UI", "REPORTS", "WEATHER")}
    with (folder / "ui.log").open("wb") as log:
        page = subprocess.Popen(
            [sys.executable, "-m", "demo.ui"],
            cwd=folder, env=os.environ | ports, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    address = f"http://127.0.0.1:{ports['TIDEGATE_UI_PORT']}"
    try:
        deadline = time.monotonic() + PATIENCE
        while not answers(f"{address}/server_info"):
            assert page.poll() is None, (folder / "ui.log").read_text()
            assert time.monotonic() < deadline, "Dagster's page did not come up"
            time.sleep(0.5)
        yield address
    finally:
        page.send_signal(signal.SIGINT)
        page.wait(PATIENCE)
    assert processes_in(folder) == []  # Ctrl-C ends everything that was started


def answers(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
        return True
    return False


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def test_the_asset_page_says_what_the_table_is_whose_it_is_and_what_is_checked(address, browser):
    page = browser.new_page(viewport={"width": 1500, "height": 1100})
    outside = []
    page.on("request", lambda request: outside.append(request.url) if "127.0.0.1" not in request.url else None)
    page.set_default_timeout(PATIENCE * 1e3)
    page.goto(f"{address}/assets/flights_enriched")
    page.get_by_text("Every flight out of New York").first.wait_for()
    page.get_by_text("data-eng").first.wait_for()
    page.get_by_text("flights_enriched_nightly").first.wait_for()
    page.goto(f"{address}/assets/flights_enriched?view=checks")
    page.get_by_text(f"Checks ({len(catalogue.checks(flights.facts()))})").wait_for()
    page.get_by_text("every_row_once").first.wait_for()
    page.goto(f"{address}/assets/flights_enriched?view=partitions")
    page.get_by_text("2013-12-31").first.wait_for()
    page.close()
    assert [url for url in outside if url.startswith("http")] == []  # nothing is loaded from elsewhere
