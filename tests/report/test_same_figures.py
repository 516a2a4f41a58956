"""One thing has one figure: what stands in several reports is the same, or says what it is.

Times of a measured step are of three sorts: timed without the profiler, the median of profiled
steps, and one profiled step. In this sample each of them is another.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

import pytest
import sample_analysis
from made_up_steps import texts
from sample_analysis import published
from simulated_steps import towers_graph

from placement_advisor.analysis.advice.recommend import recommend
from placement_advisor.report.analysis.analysis_report import full_text, render_markdown
from placement_advisor.report.analysis.screen import screen
from placement_advisor.report.pictures.bars import busy_ns, steps_of
from placement_advisor.report.pictures.comparison_plot import draw_comparison
from placement_advisor.report.pictures.layer_map import layer_map
from placement_advisor.report.pictures.timeline_plot import draw_timeline
from placement_advisor.report.tensorboard.tab import Details, Overview
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from placement_advisor.analysis.analysis_result import Analysis, Candidate
    from placement_advisor.measurement.measurement import StepProfile

W0 = "worker:0"


@pytest.fixture
def told() -> Analysis:
    """The sample, whose profiled steps compute longer in the median than the one that is drawn."""
    plain = sample_analysis.sample()
    single, towers, other = plain.candidates
    candidates = (_longer(single), _longer(towers), other)
    answer = recommend(candidates, plain.testbed, plain.as_is, plain.bound)
    return replace(plain, candidates=candidates, recommendation=answer)


def _longer(candidate: Candidate) -> Candidate:
    assert candidate.measured is not None
    profile = candidate.measured.profile
    assert profile is not None
    compute_ns = {device: round(time * 1.05) for device, time in profile.compute_ns.items()}
    exposed = {device: round(time * 1.2) for device, time in profile.exposed_by_device.items()}
    longer = replace(profile, compute_ns=compute_ns, exposed_by_device=exposed)
    return replace(candidate, measured=replace(candidate.measured, profile=longer))


def _profile(candidate: Candidate) -> StepProfile:
    assert candidate.profile is not None
    return candidate.profile


def _on_screen(analysis: Analysis, folder: Path) -> str:
    return "\n".join(line.text for line in screen(published(analysis), folder, 100))


def _in_tab(analysis: Analysis) -> tuple[tuple[str, str], ...]:
    """Return the figures of the towers there, predicted and measured."""
    return Overview.of(analysis, layer_map(towers_graph())).candidates[1].figures


def _words(figure: Figure) -> list[str]:
    return [word for word, _ in texts(figure)]


def test_the_three_sorts_of_time_are_three_in_this_sample(told: Analysis) -> None:
    towers = told.candidates[1]
    assert towers.measured is not None
    drawn = steps_of(towers)[1].computing(W0)
    profile = _profile(towers)
    scale = median(towers.measured.step_ns) / median(profile.step_ns)
    times = (busy_ns(drawn), profile.compute_ns[W0], profile.compute_ns[W0] * scale)
    assert len({format_ns(time) for time in times}) == len(times)


def test_what_a_device_computes_is_the_median_of_profiled_steps_in_all_text(
    told: Analysis, tmp_path: Path
) -> None:
    towers = told.candidates[1]
    computes = format_ns(_profile(towers).compute_ns[W0])
    (says,) = [text for text in told.recommendation.deciding if f"{W0} computes" in text]
    assert f"computes for {computes} a step" in says
    assert says.endswith("(profiled)")
    assert says in " ".join(_on_screen(told, tmp_path).split())
    for text in (full_text(told), render_markdown(told)):
        assert f"compute: {computes} on {W0}" in " ".join(text.split())
    content = sample_analysis.as_json(told)["candidates"][1]["measured"]
    assert format_ns(content["compute_ns"][W0]) == computes


def test_what_waits_for_copies_is_the_same_everywhere(told: Analysis, tmp_path: Path) -> None:
    waits = format_ns(_profile(told.candidates[1]).exposed_ns)
    assert f" {waits}\n" in _on_screen(told, tmp_path)  # The table's last column.
    assert f"waits {waits} for copies" in _on_screen(told, tmp_path)
    assert f"{waits} exposed" in " ".join(full_text(told).split())
    assert f"{waits} exposed" in render_markdown(told)
    assert _in_tab(told)[2][1] == waits
    assert (
        format_ns(sample_analysis.as_json(told)["candidates"][1]["measured"]["exposed_ns"]) == waits
    )


def test_a_measured_step_is_the_timed_one_everywhere_but_where_it_says_profiled(
    told: Analysis, tmp_path: Path
) -> None:
    towers = told.candidates[1]
    assert towers.measured is not None
    timed = format_ns(median(towers.measured.step_ns))
    profiled = format_ns(median(_profile(towers).step_ns))
    for text in (_on_screen(told, tmp_path), full_text(told), render_markdown(told)):
        assert timed in text
    assert _in_tab(told)[0][1] == timed
    compared = _words(draw_comparison(told))
    assert timed in compared
    assert any("timed (95 % interval), cut by the shares of profiled steps" in t for t in compared)
    # The timeline draws one step, and says so, in the picture as in the tab.
    heading = f"measured, one profiled step, of median length: {profiled}"
    assert heading in _words(draw_timeline(told, [towers]))
    devices = told.testbed.cluster.device_names()
    details = Details.of(towers, towers_graph(), layer_map(towers_graph()), devices)
    assert details.timelines[1].heading == heading


def test_what_stands_beside_a_row_of_the_timeline_is_what_is_drawn_in_it(told: Analysis) -> None:
    towers = told.candidates[1]
    words = _words(draw_timeline(told, [towers]))
    for step in steps_of(towers):
        for device in told.testbed.cluster.device_names():
            assert format_ns(busy_ns(step.computing(device))) in words
    assert towers.predicted is not None
    simulated = steps_of(towers)[0]
    for device, time_ns in towers.predicted.compute_ns.items():
        assert busy_ns(simulated.computing(device)) == time_ns


def test_a_speed_up_is_the_same_everywhere(told: Analysis, tmp_path: Path) -> None:
    comparison = told.candidates[1].comparison
    assert comparison is not None
    speedup = f"{comparison.speedup.median:.2f}×"
    every = [_on_screen(told, tmp_path), full_text(told), render_markdown(told)]
    every.append(" ".join(_words(draw_comparison(told))))
    every.append(" ".join(_words(draw_timeline(told, told.candidates[:2]))))
    assert all(speedup in text for text in every)
    assert _in_tab(told)[3][1].startswith(speedup)
