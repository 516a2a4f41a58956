"""A real browser before a `report.html` on the disk."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from browsers import Opened, new_page
from sample_analysis import with_batch
from sample_break_even import FOUND, TIMING
from simulated_steps import towers_graph

from placement_advisor.files.output import LOG_FOLDER
from placement_advisor.report.html_file import report_html
from placement_advisor.report.tensorboard.tab import Tab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from placement_advisor.analysis.analysis_result import Analysis


UNFOLD = """() => {
  for (const each of document.querySelectorAll('details:has(> summary > h2)')) each.open = true;
}"""


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Opens the report of an analysis folder; it may ask for nothing and complain of nothing."""
    file = tmp_path / "report.html"
    shown: list[Opened] = []

    def show_folder(
        folder: Path = tmp_path, *, dark: bool = False, unfolded: bool = True
    ) -> Opened:
        file.write_text(report_html(folder), encoding="utf-8")
        opened = new_page(browser, Opened, dark=dark)
        shown.append(opened)
        opened.page.goto(file.as_uri())
        opened.section("Copies").locator(".copies > *").first.wait_for(state="attached")
        assert "undefined" not in opened.text()
        if unfolded:
            opened.page.evaluate(UNFOLD)
        return opened

    yield show_folder
    for each in shown:
        each.page.close()
        assert each.complaints == []
        assert each.asked == [file.as_uri()]


@pytest.fixture
def full() -> Analysis:
    """An analysis with something in every section."""
    return replace(with_batch(), break_even=FOUND, input_timing=TIMING)


@pytest.fixture
def report(show: Callable[..., Opened], tmp_path: Path) -> Callable[..., Opened]:
    """Opens the report of an analysis."""

    def of(analysis: Analysis, *, dark: bool = False, unfolded: bool = True) -> Opened:
        Tab(tmp_path / LOG_FOLDER, towers_graph()).show(analysis)
        return show(dark=dark, unfolded=unfolded)

    return of


@pytest.fixture
def page(report: Callable[..., Opened], full: Analysis) -> Opened:
    """The report of the full analysis."""
    return report(full)
