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
from drawn_pictures import words
from sample_analysis import published
from simulated_steps import towers_graph

from placement_advisor.analysis.recommendation import recommend
from placement_advisor.report.analysis_report import full_text, render_markdown
from placement_advisor.report.pictures.layer_layout import layer_map
from placement_advisor.report.pictures.result_plots import draw_comparison
from placement_advisor.report.pictures.timeline_plot import busy_ns, draw_timeline, steps_of
from placement_advisor.report.screen import screen
from placement_advisor.report.tensorboard.tab import Details, Overview
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.analysis.analysis_result import Analysis, Candidate
    from placement_advisor.measurement.measurement import StepProfile

W0 = "worker:0"
MAP = layer_map(towers_graph())


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


def test_figures_of_a_step_are_the_same_everywhere(told: Analysis, tmp_path: Path) -> None:
    towers = told.candidates[1]
    assert towers.measured is not None
    assert towers.comparison is not None
    computes = format_ns(_profile(towers).compute_ns[W0])
    waits = format_ns(_profile(towers).exposed_ns)
    timed = format_ns(median(towers.measured.step_ns))
    speedup = f"{towers.comparison.speedup.median:.2f}×"
    (says,) = [text for text in told.recommendation.deciding if f"{W0} computes" in text]
    assert f"computes for {computes} a step" in says
    assert says.endswith("(profiled)")
    on_screen = "\n".join(line.text for line in screen(published(told), tmp_path, 100))
    assert f" {waits}\n" in on_screen  # The table's last column.
    assert f"waits {waits} for copies" in on_screen
    for text in (full_text(told), render_markdown(told)):
        assert f"compute: {computes} on {W0}" in " ".join(text.split())
        assert f"{waits} exposed" in " ".join(text.split())
    for text in (on_screen, full_text(told), render_markdown(told)):
        assert timed in text
        assert speedup in text
    content = sample_analysis.as_json(told)["candidates"][1]["measured"]
    assert format_ns(content["compute_ns"][W0]) == computes
    assert format_ns(content["exposed_ns"]) == waits
    shown = next(each for each in Overview.of(told, MAP).candidates if each.name == "towers")
    tab = [measured for _, measured in shown.figures]
    assert (tab[0], tab[2], tab[3].split()[0]) == (timed, waits, speedup)
    compared = words(draw_comparison(told))
    assert timed in compared
    assert speedup in " ".join(compared)
    assert any("timed (95 % interval), cut by the shares of profiled steps" in t for t in compared)
    assert speedup in " ".join(words(draw_timeline(told, told.candidates[:2])))


def test_the_timeline_draws_one_step_and_says_so_in_the_picture_as_in_the_tab(
    told: Analysis,
) -> None:
    towers = told.candidates[1]
    profiled = format_ns(median(_profile(towers).step_ns))
    heading = f"measured, one profiled step, of median length: {profiled}"
    assert heading in words(draw_timeline(told, [towers]))
    details = Details.of(towers, towers_graph(), MAP, told.testbed.cluster.device_names())
    assert details.timelines[1].heading == heading


def test_what_stands_beside_a_row_of_the_timeline_is_what_is_drawn_in_it(told: Analysis) -> None:
    towers = told.candidates[1]
    shown = words(draw_timeline(told, [towers]))
    for step in steps_of(towers):
        for device in told.testbed.cluster.device_names():
            assert format_ns(busy_ns(step.computing(device))) in shown
    assert towers.predicted is not None
    simulated = steps_of(towers)[0]
    for device, time_ns in towers.predicted.compute_ns.items():
        assert busy_ns(simulated.computing(device)) == time_ns
