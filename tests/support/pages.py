"""Dagster's pages in headless Chromium: started as `make ui` starts them, looked at and clicked as
a person does.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.daemons import WORKSPACE
from tests.support.free_ports import free_port

CHROMIUM = "/usr/bin/chromium"
PATIENCE = 180.0  # s; Dagster starts five processes
SHOWN_WITHIN = 45.0  # s; of what a page of a running Dagster shows
# names a folder that gets what the tests saw, one file per page
SCREENSHOTS = "TIDEGATE_SCREENSHOTS"


@contextlib.contextmanager
def web_page(module: str, folder: Path, workspace: str | Path = WORKSPACE) -> Iterator[str]:
    """The address of Dagster's page while the body runs: `python -m module` in the folder, ended by
    Ctrl-C.
    """
    shutil.copy(workspace, folder / "workspace.yaml")
    ports = {f"TIDEGATE_{name}_PORT": str(free_port()) for name in ("UI", "REPORTS", "WEATHER")}
    with (folder / "ui.log").open("wb") as log:
        page = subprocess.Popen(
            [sys.executable, "-m", module],
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


def answers(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
        return True
    return False


@contextlib.contextmanager
def browser_page(address: str, name: str):
    """A page of a browser of its own; what it showed last is kept under the name."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": 1500, "height": 1100}, base_url=address)
        page.set_default_timeout(SHOWN_WITHIN * 1e3)
        try:
            yield page
        finally:
            keep(page, name)
            chromium.close()


def keep(page, name: str) -> None:
    if folder := os.environ.get(SCREENSHOTS):
        page.screenshot(path=Path(folder, f"{name}.png"))


def shows(page, *texts: str) -> None:
    for text in texts:
        page.get_by_text(text).first.wait_for()


def materialize(page, days: str, mode: str = "", op: str = "flights_enriched") -> None:
    """Press the button of the page, that of an asset or of a job, and ask for days, as 2013-01-10
    or [first...last].

    mode: chosen in the config of the step op.
    """
    page.get_by_role("button", name="Materialize").first.click()
    field = page.get_by_placeholder(re.compile("^ex: |^No matching partitions"))
    field.fill(days)
    field.press("Tab")
    if mode:
        page.get_by_text("Config", exact=True).last.click()
        page.get_by_role("button", name="Add config").click()
        page.locator(".CodeMirror.cm-s-config-editor").click()
        page.keyboard.insert_text(f"ops: {{{op}: {{config: {{mode: {mode}}}}}}}")
        shows(page, "No errors")
        keep(page, "config")
        page.get_by_role("button", name="Save config").click()
    keep(page, "materialize")
    page.get_by_role("button", name="Launch").last.click()
    field.wait_for(state="detached")


def wait_for(condition: Callable[[], object], within: float = 10 * PATIENCE) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
