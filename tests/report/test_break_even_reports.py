from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sample_analysis
import sample_break_even
from drawn_pictures import count, pixels, unreadable
from sample_break_even import CROSSING, FOUND, NOWHERE, THROUGHOUT, swept

from placement_advisor.report.analysis_folder import write_reports
from placement_advisor.report.analysis_report import (
    break_even_lines,
    break_even_title,
    full_text,
    render_markdown,
)
from placement_advisor.report.pictures.canvas import INK, SIGNS, save
from placement_advisor.report.pictures.result_plots import draw_break_even
from placement_advisor.report.statements import input_line
from placement_advisor.simulator.break_even import BreakEvenOutcome

if TYPE_CHECKING:
    from placement_advisor.analysis.analysis_result import Analysis

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def full() -> Analysis:
    return sample_break_even.with_break_even()


def test_the_lines_of_the_full_text_are_the_golden_ones(full):
    text = full_text(full)
    shown = text[text.index("Break-even") : text.index("\n\nCopies against compute")]
    assert shown + "\n" == (GOLDEN / "break_even.txt").read_text(encoding="utf-8")


CHANGES_AT = {"wins_from": swept(500_000, 0.96), "loses_at": swept(504_000, 0.98)}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        # A figure that is good enough today makes a split win, and not only would.
        (
            {"bandwidth": replace(CROSSING, here=swept(50_000_000_000, 0.8))},
            "bandwidth: a split (towers) wins from 38.0 GB/s on;",
        ),
        (
            {"latency": replace(NOWHERE, outcome=BreakEvenOutcome.CROSSES, **CHANGES_AT)},
            "latency: a split (towers) wins up to 500 µs per copy;",
        ),
        # What wins nowhere and throughout names the end of what was tried.
        (
            {
                "bandwidth": replace(
                    CROSSING, outcome=BreakEvenOutcome.NOWHERE, wins_from=None, changes=0
                )
            },
            "bandwidth: no split wins up to 150 GB/s (the most tried)",
        ),
        (
            {"latency": replace(NOWHERE, outcome=BreakEvenOutcome.THROUGHOUT)},
            "latency: a split wins up to 240 ms (the most tried)",
        ),
        (
            {"batch": replace(THROUGHOUT, changes=0)},
            "batch: a split wins from 1 sample (the least tried) on",
        ),
    ],
)
def test_a_line_says_where_a_split_wins(changes, says):
    bare = replace(FOUND, bandwidth=None, latency=None, batch=None)
    line, *_ = break_even_lines(replace(bare, **changes))
    assert line.startswith(says)
    assert "exceptions" not in line


def test_a_split_that_is_no_candidate_is_said_to_be_none() -> None:
    lines = [*break_even_lines(FOUND)]
    assert not any("none of the candidates" in line for line in lines)
    points = (*CROSSING.points[:-1], swept(150_000_000_000, 0.6, "searched for faster links"))
    elsewhere = replace(FOUND, bandwidth=replace(CROSSING, points=points))
    *same, last = break_even_lines(elsewhere)
    assert same == lines
    assert last.startswith("searched for faster links: none of the candidates, but a split that")


@pytest.mark.parametrize(
    ("ratio", "changes", "ends"),
    [
        (1.02, {"batch": None}, "would be 0.98× as fast as single: no link makes one win"),
        (
            0.91,  # The best here: 0.9.
            {"bandwidth": None, "latency": None},
            "1.10× as fast as single, less than here: ops that are ready earlier run in another "
            "order, which can take longer",
        ),
        (0.9, {"bandwidth": None, "latency": None}, "1.11× as fast as single"),
    ],
)
def test_copies_that_cost_nothing_are_said_to_help_or_not(ratio, changes, ends):
    free = replace(FOUND.free_copies, ratio=ratio)
    *_, line = break_even_lines(replace(FOUND, free_copies=free, **changes))
    assert line.endswith(ends)


def test_corrections_by_what_was_measured_are_said_in_title_and_line():
    found = replace(FOUND, corrections={"towers": 1.26, "alternating": 1.1})
    assert break_even_title(found) == (
        "Break-even (simulated, corrected): a split that leaves the batch whole wins above 1.03× "
        "over single"
    )
    *_, line = break_even_lines(found)
    assert line.startswith("corrected: the simulated step of a split times its measured ratio over")
    assert line.endswith("(towers 1.26)")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        # as-is: 32 samples in 29.4 ms; single: 32 in 51.0 ms
        ({}, "12,800 samples/s alone; the step (as-is) takes 1,090 samples/s"),
        ({"as_is": None}, "; the step (single) takes 627 samples/s"),
        (
            {"model": replace(sample_analysis.sample().model, batch_size=None)},
            "input: a batch every 2.50 ms alone; the step (as-is) takes 29.4 ms",
        ),
    ],
)
def test_the_input_stands_beside_the_step_as_it_is_else_beside_single(full, changes, says):
    assert says in str(input_line(replace(full, **changes)))


def test_without_break_even_and_dataset_reports_do_not_speak_of_them(analysis):
    assert input_line(analysis) is None
    for text in (full_text(analysis), render_markdown(analysis)):
        assert "reak-even" not in text
        assert "break-even.png" not in text
        assert "input:" not in text


def test_the_report_has_lines_picture_and_what_was_assumed(full, tmp_path):
    text = render_markdown(full)
    assert f"## {break_even_title(FOUND)}\n" in text
    assert all(line in text for line in break_even_lines(FOUND))
    assert "(break-even.png)" in text
    assert "Whether a batch fits into memory is not looked at." in text
    write_reports(full, tmp_path)
    assert (tmp_path / "break-even.png").stat().st_size > 10_000


@pytest.mark.parametrize("axes", [FOUND.sweeps(), (CROSSING,), (NOWHERE,), (THROUGHOUT,)])
def test_the_picture_has_a_sign_for_each_split(full, axes):
    by_axis = dict.fromkeys(("bandwidth", "latency", "batch")) | {
        sweep.axis.value: sweep for sweep in axes
    }
    figure = draw_break_even(full, replace(FOUND, **by_axis))
    assert unreadable(figure) == []
    splits = list(dict.fromkeys(point.best.split for sweep in axes for point in sweep.points))
    drawn = {line.get_marker() for ax in figure.axes for line in ax.lines} - {"None", ""}
    assert drawn == {sign for sign, _ in SIGNS[: len(splits)]}
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == splits


def test_steps_that_take_nothing_and_odd_names_do_not_warn(full, tmp_path):
    points = (swept(1, 0.0, "模型 $x$"), swept(64, 0.0, "模型 $x$"))
    nothing = replace(THROUGHOUT, here=points[0], points=points)
    found = replace(FOUND, bandwidth=None, latency=None, batch=nothing)
    save(draw_break_even(full, found), tmp_path / "picture.png")
    assert count(pixels(tmp_path / "picture.png"), INK) > 10
