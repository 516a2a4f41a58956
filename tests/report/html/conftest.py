"""A real browser before a `report.html` on the disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from browsers import SCREENSHOTS, SHOWN_WITHIN_MS
from playwright.sync_api import Page, expect

from placement_advisor.report.html.report_file import report_html

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Locator


@dataclass
class Opened:
    """A page, with all that its browser complains of and asks for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def section(self, name: str) -> Locator:
        return self.page.locator(f'section[aria-label="{name}"]')

    def choose(self, candidate: str) -> None:
        self.page.get_by_label(candidate, exact=True).check()
        expect(self.page.get_by_text(f"{candidate}: ").first).to_be_visible()

    def text(self) -> str:
        """Return all that the browser's search would look through."""
        text: str = self.page.evaluate("() => document.querySelector('main').textContent")
        return text

    def picture(self, name: str, width: int) -> None:
        SCREENSHOTS.mkdir(exist_ok=True)
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.wait_for_timeout(300)  # Canvases are drawn anew in the next frame.
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Opened]]:
    pages: list[Page] = []

    def open_page(dark: bool = False) -> Opened:
        page = browser.new_page(
            viewport={"width": 1_280, "height": 900}, color_scheme="dark" if dark else "light"
        )
        pages.append(page)
        page.set_default_timeout(SHOWN_WITHIN_MS)
        opened = Opened(page)
        page.on("console", lambda said: opened.complaints.append(said.text))
        page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        page.on("dialog", lambda dialog: opened.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: opened.asked.append(request.url))
        return opened

    yield open_page
    for page in pages:
        page.close()


@pytest.fixture
def show(opened: Callable[..., Opened], tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Opens the report of an analysis folder; it may ask for nothing and complain of nothing."""
    file = tmp_path / "report.html"
    shown: list[Opened] = []

    def show_folder(folder: Path, dark: bool = False) -> Opened:
        file.write_text(report_html(folder), encoding="utf-8")
        page = opened(dark)
        page.page.goto(file.as_uri())
        page.section("Copies").locator("> div > *").first.wait_for()
        shown.append(page)
        return page

    yield show_folder
    for each in shown:
        assert each.complaints == []
        assert each.asked == [file.as_uri()]
