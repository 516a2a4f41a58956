"""What the terminal names is found in `report.html` by the browser's search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect
from sample_analysis import (
    elsewhere,
    four_devices,
    hostile,
    not_applicable,
    published,
    sample,
    unmeasured,
)
from sample_break_even import with_break_even

from placement_advisor.analysis.analysis_result import GRAPH
from placement_advisor.cli.results import shown
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.report.document import one_line
from placement_advisor.report.find_analysis import read_analysis
from placement_advisor.report.screen import screen
from placement_advisor.results.analysis import ANALYSIS

if TYPE_CHECKING:
    from collections.abc import Callable

    from browsers import Opened
    from command_runs import Ran

    from placement_advisor.analysis.analysis_result import Analysis

WIDTHS = (80, 120)
MADE_UP = (sample, unmeasured, elsewhere, hostile, four_devices, not_applicable, with_break_even)


def assert_found(page: Opened, told: str, names: set[str]) -> None:
    """Check that the browser finds those of the names that a text has."""
    on_screen, searched = (" ".join(text.split()) for text in (told, page.text()))
    named = {name for name in map(one_line, names) if name in on_screen}
    assert named
    assert {name for name in named if name not in searched} == set()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("made_up", MADE_UP)
def test_every_name_of_an_analysis_that_is_on_the_terminal(
    report: Callable[..., Opened], tmp_path: Path, made_up: Callable[[], Analysis], width: int
) -> None:
    analysis = made_up()
    predicted = [each.predicted for each in analysis.candidates if each.predicted]
    names = {
        *(each.name for each in analysis.candidates),
        *(layer for each in analysis.candidates for layer in each.by_layer or ()),
        *(copy.tensor for step in predicted for copy in step.transfers),
        *(run.op for step in predicted for run in step.runs),
        *analysis.testbed.cluster.place_names(),
    }
    told = shown(screen(published(analysis), tmp_path, width), color=False)
    assert_found(report(analysis), told, names)


def assert_real_names_found(page: Opened, folder: Path) -> None:
    """Check the names of a real analysis: those of its graph, and of its candidates."""
    analysis = json.loads((folder / ANALYSIS).read_text())
    graph = OpGraph.load(folder / GRAPH)
    names = {
        *(each["name"] for each in analysis["candidates"]),
        *(device["name"] for device in analysis["testbed"]["devices"]),
        *(op.layer for op in graph.ops if op.layer),
        *(op.name for op in graph.ops),
    }
    for width in WIDTHS:
        told = shown(screen(read_analysis(folder / ANALYSIS), folder, width), color=False)
        assert_found(page, told, names)


@pytest.mark.slow
def test_every_name_of_the_demo(show: Callable[..., Opened], demo: Path) -> None:
    assert_real_names_found(show(demo.parent), demo.parent)


@pytest.mark.slow
def test_every_name_where_one_device_is_too_small(
    show: Callable[..., Opened], advisor: Callable[..., Ran], tmp_path: Path
) -> None:
    model = str(Path(__file__).parents[3] / "sample_models" / "deepconn.py")
    folder, cluster = tmp_path / "out", tmp_path / "small.toml"
    # On one device the step holds 25 MB, of the towers none holds more than 20 MB.
    device = 'preset = "V100"\nmemory_bytes = 22_000_000\n'
    cluster.write_text(
        "".join(f'[[devices]]\nname = "{name}"\n{device}' for name in ("a", "b"))
        + '[[links]]\nbetween = ["a", "b"]\npreset = "PCIe3"\n'
    )
    words = ("--hardware", str(cluster), "--quiet", "--effort", "0.05")
    ran = advisor("analyze", model, "-o", str(folder), *words)
    assert ran.code == 0, ran.err
    page = show(folder)
    assert_real_names_found(page, folder)
    expect(page.page.locator(".headline")).to_contain_text("cannot fit")
    failed = page.page.locator(".candidates .failure").first
    expect(failed).to_contain_text("on a the step holds")
    page.picture("report-cannot-fit")
