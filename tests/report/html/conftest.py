from dataclasses import replace

import pytest
from browsers import Opened, new_page
from report_samples import towers_graph
from sample_analysis import with_batch
from sample_break_even import FOUND, TIMING

from placement_advisor.files.output import LOG_FOLDER
from placement_advisor.report.html_file import report_html
from placement_advisor.report.tensorboard.tab_data import Tab

UNFOLD = """() => {
  for (const each of document.querySelectorAll('details:has(> summary > h2)')) each.open = true;
}"""


@pytest.fixture
def show(browser, tmp_path):
    """Opens the report of an analysis folder; it may ask for nothing and complain of nothing."""
    file = tmp_path / "report.html"
    shown = []

    def show_folder(folder=tmp_path, *, dark=False, unfolded=True):
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
def full():
    """An analysis with something in every section."""
    return replace(with_batch(), break_even=FOUND, input_timing=TIMING)


@pytest.fixture
def report(show, tmp_path):
    def of(analysis, *, dark=False, unfolded=True):
        Tab(tmp_path / LOG_FOLDER, towers_graph()).show(analysis)
        return show(dark=dark, unfolded=unfolded)

    return of


@pytest.fixture
def page(report, full):
    return report(full)
