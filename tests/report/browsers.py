"""A real browser, and how long its pages compute."""

import contextlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest
from playwright.sync_api import Page, expect, sync_playwright

SCREENSHOTS = Path(__file__).parents[2] / "screenshots"
# Only what never comes takes longer, also where other work runs beside.
SHOWN_WITHIN_MS = 120_000
# Set where a browser has to be there, as in CI.
_NEEDED = "ADVISOR_TEST_BROWSER"
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_HOW = "no browser for this test: apt-get install -y --no-install-recommends chromium"
# As on a machine without a network, whatever this one has.
_OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


@dataclass
class Opened:
    """A page, with all that its browser complains of and asks for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    height: ClassVar = 900

    def section(self, name):
        return self.page.locator(f'section[aria-label="{name}"]')

    def choose(self, candidate):
        self.page.get_by_label(candidate, exact=True).check()
        expect(self.page.get_by_text(f"{candidate}: ").first).to_be_visible()

    def text(self):
        """Return all that the browser's search would look through."""
        return self.page.evaluate("() => document.querySelector('main').textContent")

    def picture(self, name, *, width=1_280, height=None):
        SCREENSHOTS.mkdir(exist_ok=True)
        self.page.set_viewport_size({"width": width, "height": height or self.height})
        for frame in self.page.frames:
            frame.evaluate("() => window.scrollTo(0, 0)")
        self.page.wait_for_timeout(300)  # Canvases are drawn anew in the next frame.
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


def new_page(browser, kind, *, dark=False, errors_alone=False):
    """Open a page that keeps what its browser says of it: all, or errors alone."""
    viewport = {"width": 1_280, "height": 900}
    page = browser.new_page(viewport=viewport, color_scheme="dark" if dark else "light")
    page.set_default_timeout(SHOWN_WITHIN_MS)
    opened = kind(page)

    def keep(said):
        if said.type == "error" or not errors_alone:
            opened.complaints.append(f"{said.text} ({said.location['url']})")

    page.on("console", keep)
    page.on("pageerror", lambda error: opened.complaints.append(str(error)))
    page.on("dialog", lambda dialog: opened.complaints.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: opened.asked.append(request.url))
    return opened


@contextlib.contextmanager
def open_browser():
    """Give a browser; without one, the test is skipped or fails."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None and os.environ.get(_NEEDED):
        pytest.fail(_HOW)
    if program is None:
        pytest.skip(_HOW)
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--no-proxy-server", _OFFLINE]
        opened = playwright.chromium.launch(executable_path=program, args=options)
        expect.set_options(timeout=SHOWN_WITHIN_MS)
        yield opened
        opened.close()


def open_report(page, file):
    """Open a ``report.html``; return when all of it is drawn."""
    page.goto(file.as_uri())
    page.locator('section[aria-label="Copies"] .copies > *').first.wait_for(state="attached")
    page.evaluate("() => new Promise((d) => requestAnimationFrame(() => setTimeout(d)))")


def computed_ms(page, act):
    """Do something; return for how long the page's main thread then computed."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def so_far_s():
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(each["value"] for each in metrics if each["name"] == "TaskDuration")

    begin_s = so_far_s()
    act()
    computed_s = so_far_s() - begin_s
    session.detach()
    return computed_s * 1_000
