"""A real browser, and how long its pages compute."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
SCREENSHOTS = ROOT / "screenshots"
# Only what never comes takes longer, also where other work runs beside.
SHOWN_WITHIN_MS = 120_000
# Set where a browser has to be there, as in CI.
_NEEDED = "ADVISOR_TEST_BROWSER"
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_HOW = "no browser for this test: apt-get install -y --no-install-recommends chromium"
# As on a machine without a network, whatever this one has.
_OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
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


def open_report(page: Page, file: Path) -> None:
    """Open a ``report.html``; return when all of it is drawn."""
    page.goto(file.as_uri())
    page.locator('section[aria-label="Copies"] > div > *').first.wait_for()
    page.evaluate("() => new Promise((d) => requestAnimationFrame(() => setTimeout(d)))")


def computed_ms(page: Page, act: Callable[[], object]) -> float:
    """Do something; return for how long the page's main thread then computed."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def so_far_s() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(each["value"] for each in metrics if each["name"] == "TaskDuration")

    begin_s = so_far_s()
    act()
    computed_s = so_far_s() - begin_s
    session.detach()
    return computed_s * 1_000
