"""What `analyze()` returns, on a small analysis that was written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import sample_analysis
from matplotlib import pyplot

from placement_advisor.errors import AdvisorError
from placement_advisor.report.python_report import Report


@pytest.fixture
def report() -> Report:
    return Report(sample_analysis.sample(), Path("out"))


def test_the_answer_takes_a_few_lines(report: Report) -> None:
    text = repr(report)
    assert text.startswith(f"{report.analysis.recommendation.headline}\n")
    assert len(text.splitlines()) <= 5
    assert len(repr(report.analysis)) < 1_000
    assert report.verdict == report.analysis.recommendation.verdict


def test_candidates_are_rows_of_plain_values_with_the_same_columns(report: Report) -> None:
    rows = report.candidates
    assert [row["candidate"] for row in rows] == [c.name for c in report.analysis.candidates]
    assert len({tuple(row) for row in rows}) == 1
    plain = (str, int, float, type(None))
    assert all(type(value) in plain for row in rows for value in row.values())
    ran = next(row for row in rows if row["speedup_basis"] == "measured")
    assert ran["speedup_low"] <= ran["speedup"] <= ran["speedup_high"]
    assert (rows[0]["speedup"], rows[0]["speedup_basis"]) == (1, "baseline")


def test_what_was_not_measured_says_so() -> None:
    rows = Report(sample_analysis.unmeasured(), Path("out")).candidates
    assert {row["measured_step_ns"] for row in rows} == {None}
    assert {row["speedup_basis"] for row in rows} <= {"baseline", "simulated", None}


def test_a_notebook_shows_answer_table_and_picture_and_no_markup_of_models() -> None:
    html = Report(sample_analysis.hostile(), Path("out"))._repr_html_()
    assert html.count("<table>") == 1
    assert "data:image/png;base64,iVBOR" in html
    assert "<script" not in html


def test_pictures_are_axes_that_pyplot_knows(report: Report) -> None:
    axes = [report.plot_timeline(), report.plot_timeline("single"), report.plot_comparison()]
    assert all(pyplot.fignum_exists(ax.figure.number) for ax in axes)
    pyplot.close("all")
    with pytest.raises(AdvisorError, match="no candidate 'none'; there are single, "):
        report.plot_timeline("none")


def test_without_a_sweep_there_is_no_picture_of_one() -> None:
    with pytest.raises(AdvisorError, match="there is no break-even"):
        Report(sample_analysis.unmeasured(), Path("out")).plot_break_even()
