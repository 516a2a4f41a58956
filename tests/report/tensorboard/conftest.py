"""A real browser before a real TensorBoard."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from browsers import SCREENSHOTS, SHOWN_WITHIN_MS, computed_ms

from placement_advisor.report.tensorboard.process import tensorboard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, ConsoleMessage, FrameLocator, Page

_FRAME = 'iframe[src*="name=placement"]'
# What is shown last of an analysis.
_AWAIT_COPIES = """() => {
  window.copiesShown = new Promise((shown) => new MutationObserver(() => shown()).observe(
    document.querySelector('section[aria-label=Copies] > div'), { childList: true }));
}"""


@dataclass
class Tab:
    """The tab Placement of one TensorBoard, with all that the browser complains of.

    ``outside`` are the addresses that were asked for elsewhere, all of them in vain.
    """

    page: Page
    address: str
    complaints: list[str] = field(default_factory=list)
    outside: set[str] = field(default_factory=set)

    @property
    def frame(self) -> FrameLocator:
        return self.page.frame_locator(_FRAME)

    def open(self) -> None:
        self.page.goto(f"{self.address}#placement", wait_until="domcontentloaded")
        self.frame.locator("section[aria-label=Copies] > div > *").first.wait_for()

    def run(self, script: str, argument: object = None) -> object:
        """Run a script inside the tab's frame."""
        frame = self.page.query_selector(_FRAME)
        assert frame is not None
        content = frame.content_frame()
        assert content is not None
        return content.evaluate(script, argument)

    def computed_ms(self, act: Callable[[], object]) -> float:
        """Do something; return for how long the page's main thread then computed."""
        return computed_ms(self.page, act)

    def choose_run(self, name: str) -> None:
        """Open an analysis, unless it is open, and wait until all of it is there."""
        select = self.frame.get_by_label("Analysis")
        if select.input_value() != name:
            self.run(_AWAIT_COPIES)
            select.select_option(name)
            self.run("() => window.copiesShown")

    def picture(self, name: str, *, width: int = 1_280, height: int = 2_300) -> None:
        """Keep a picture of the page, tall enough for the frame not to scroll."""
        SCREENSHOTS.mkdir(exist_ok=True)
        self.page.set_viewport_size({"width": width, "height": height})
        for frame in self.page.frames:
            frame.evaluate("() => window.scrollTo(0, 0)")
        self.page.wait_for_timeout(300)  # Canvases are drawn anew in the next frame.
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")


@pytest.fixture(scope="module")
def open_tab(browser: Browser) -> Iterator[Callable[[Path], Tab]]:
    """Serves a log directory, once however often it is asked for, and opens it in a new page."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def served(logdir: Path) -> str:
            address, _ = stack.enter_context(tensorboard(logdir, "127.0.0.1", 0))
            return address

        def opened(logdir: Path) -> Tab:
            address = served(logdir)
            page = browser.new_page(viewport={"width": 1_280, "height": 900})
            page.set_default_timeout(SHOWN_WITHIN_MS)
            stack.callback(page.close)
            tab = Tab(page=page, address=address)
            page.on("console", lambda said: _keep(tab, said))
            page.on("pageerror", lambda error: tab.complaints.append(str(error)))
            page.on("dialog", lambda dialog: tab.complaints.append(f"dialog: {dialog.message}"))
            page.on("request", lambda request: _keep_outside(tab, request.url))
            return tab

        yield opened


def _keep(tab: Tab, said: ConsoleMessage) -> None:
    if said.type == "error":
        tab.complaints.append(f"{said.text} ({said.location['url']})")


def _keep_outside(tab: Tab, url: str) -> None:
    if not url.startswith((tab.address, "data:", "blob:")):
        tab.outside.add(url)
