"""Looks at pages in headless Chromium as axe does: wide, on a telephone, dark, and on paper."""

import os
from pathlib import Path

from tests.support.pages import CHROMIUM, PATIENCE, SCREENSHOTS

PAPER = 794  # px, the width of A4
FORMS = (("wide", 1280), ("telephone", 390), ("dark", 1280), ("print", PAPER))


def assert_readable(*pages: Path) -> None:
    """No page is wider than the window, and axe finds nothing serious.

    The pictures of a page are kept under the names of its folder and file.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for page in pages:
            for form, width in FORMS:
                context = browser.new_context(  # a page may remember light or dark
                    viewport={"width": width, "height": 900},
                    color_scheme="dark" if form == "dark" else "light",
                )
                context.set_default_timeout(PATIENCE * 1e3)
                shown = context.new_page()
                _open(shown, page, form, width)
                _assert_readable(shown, page, form)
                context.close()
        browser.close()


def _open(shown, page: Path, form: str, width: int) -> None:
    shown.goto(page.absolute().as_uri())
    if shown.locator(".chart").count():
        shown.locator(".chart .main-svg").last.wait_for(state="attached")
    if form == "print":
        shown.evaluate("dispatchEvent(new Event('beforeprint'))")
        shown.emulate_media(media="print")
    # what scripts draw follows the window a moment later
    shown.wait_for_function(f"document.documentElement.scrollWidth === {width}")


def _assert_readable(shown, page: Path, form: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    if folder := os.environ.get(SCREENSHOTS):
        name = f"{page.parent.name}-{page.stem}-{form}.png"
        shown.screenshot(path=Path(folder, name), full_page=True)
    found = Axe().run(shown).response["violations"]
    serious = [violation for violation in found if violation["impact"] in ("serious", "critical")]
    assert serious == [], (page.name, form)
