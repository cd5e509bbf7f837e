"""Looks at pages in headless Chromium, wide, on a telephone and dark, as axe does."""

from pathlib import Path

FORMS = ((1280, "light"), (390, "light"), (1280, "dark"))


def assert_readable(*pages: Path) -> None:
    """No page is wider than the window, and axe finds nothing serious."""
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        for page in pages:
            for width, scheme in FORMS:
                shown = browser.new_page(
                    viewport={"width": width, "height": 900}, color_scheme=scheme
                )
                shown.goto(page.absolute().as_uri())
                assert shown.evaluate("document.documentElement.scrollWidth") == width, page
                found = Axe().run(shown).response["violations"]
                serious = [one for one in found if one["impact"] in ("serious", "critical")]
                assert serious == [], (page, width, scheme)
                shown.close()
        browser.close()
