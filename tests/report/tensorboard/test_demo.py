"""What TensorBoard shows of a real analysis, in a real browser and over HTTP."""

from __future__ import annotations

import gzip
import json
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from command_runs import wait_until
from playwright.sync_api import expect

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Tab

RAN = ("single", "towers", "batch")


@pytest.fixture(scope="module")
def tab(open_tab: Callable[[Path], Tab], demo: Path) -> Tab:
    return open_tab(demo)


def read(tab: Tab, route: str) -> Any:
    with urllib.request.urlopen(f"{tab.address}data/{route}") as answer:
        content = answer.read()
    return json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)


def test_the_tab_is_filled_once_tensorboard_answers(tab: Tab) -> None:
    tab.open()
    rows = tab.frame.locator(".candidates tbody tr")
    rows.first.wait_for()
    tab.frame.get_by_role("table").filter(has_text="Copies from row to column").wait_for()


def test_the_tab_shows_what_the_analysis_found(tab: Tab, demo: Path) -> None:
    tab.open()
    analysis = json.loads((demo.parent / "analysis.json").read_text())
    frame = tab.frame
    verdict = analysis["recommendation"]["verdict"].replace("-", " ")
    expect(frame.locator(".headline")).to_contain_text(verdict)
    expect(frame.locator(".candidates tbody tr")).to_have_count(len(analysis["candidates"]))
    towers = frame.locator(".candidates tbody tr").filter(
        has=tab.page.get_by_label("towers", exact=True)
    )
    expect(towers).to_contain_text("ms")
    frame.get_by_label("towers", exact=True).check()
    expect(frame.get_by_text("arrows cross to another device")).to_be_visible()
    expect(frame.locator(".legend")).to_have_text("worker:0worker:1")
    expect(frame.get_by_text("Tensors that cross as predicted")).to_be_visible()
    for finding in analysis["findings"]:
        expect(frame.locator(".finding").filter(has_text=finding["code"]).first).to_be_visible()
    frame.get_by_label("Find a layer").fill("rating")
    expect(frame.locator(".told").nth(1)).to_contain_text("rating · worker:")
    frame.get_by_role("button", name="All layers").click()
    tab.picture("placement-tab")
    assert tab.complaints == []


def test_the_tab_follows_tensorboard_into_the_dark(tab: Tab) -> None:
    tab.open()
    tab.frame.get_by_label("towers", exact=True).check()
    light = tab.run("() => getComputedStyle(document.body).backgroundColor")
    tab.page.evaluate("document.body.classList.add('dark-mode')")
    tab.frame.locator(":root.dark").wait_for(state="attached")
    assert tab.run("() => getComputedStyle(document.body).backgroundColor") != light
    tab.picture("placement-tab-dark")
    assert tab.complaints == []


def test_the_other_tabs_have_scalars_text_and_pictures(tab: Tab) -> None:
    # TensorBoard reads event files in the background.
    assert wait_until(lambda: set(RAN) <= set(read(tab, "plugin/scalars/tags")))
    scalars = read(tab, "plugin/scalars/tags")
    for candidate in RAN:
        assert {"step_ms/simulated", "step_ms/measured", "step_ms/every_measured"} <= set(
            scalars[candidate]
        )
    assert read(tab, "plugin/text/tags") == {"report": ["report"]}
    assert {"timeline", "comparison"} <= set(read(tab, "plugin/images/tags")["report"])
    (text,) = read(tab, "plugin/text/text?run=report&tag=report")
    assert "<h1>" in text["text"]


def test_the_profile_tab_has_runs_measured_simulated_and_both(tab: Tab) -> None:
    runs = set(read(tab, "plugin/profile/runs"))
    assert runs >= {f"{name}{kind}" for name in RAN for kind in ("", "-simulated", "-both")}

    hosts = read(tab, "plugin/profile/hosts?run=towers&tag=trace_viewer@")
    assert {host["hostname"] for host in hosts} == {"client", "worker-0", "worker-1"}
    measured = read(tab, "plugin/profile/data?run=towers&tag=trace_viewer&host=worker-1")
    assert any("Conv2D" in event.get("name", "") for event in measured["traceEvents"])
    overview = read(tab, "plugin/profile/data?run=towers&tag=overview_page&host=client")
    assert step_table(overview)["rows"]


def test_xprof_finds_the_step_of_a_simulated_schedule(tab: Tab, demo: Path) -> None:
    predicted = json.loads((demo.parent / "predictions" / "towers.json").read_text())
    query = "run=towers-simulated&tag=overview_page&host=towers-simulated"
    table = step_table(read(tab, f"plugin/profile/data?{query}"))
    found_ms = float(table["p"]["steptime_ms_average"])
    assert found_ms == pytest.approx(predicted["step_ns"] / 1e6, abs=0.06)


def test_the_trace_viewer_has_both_steps_in_one_file(tab: Tab) -> None:
    query = "run=towers-both&tag=trace_viewer&host=towers-both"
    trace = read(tab, f"plugin/profile/data?{query}")
    names = [e["args"]["name"] for e in trace["traceEvents"] if e.get("name") == "process_name"]
    for lane in ("worker:0", "worker:1", "worker:0 → worker:1"):
        simulated = names.index(f"/device:CUSTOM:simulated {lane}")
        assert names[simulated + 1] == f"/device:CUSTOM:measured {lane}"


def step_table(overview: Any) -> Any:
    """Return the table of steps of the overview page."""
    return next(t for t in overview if t["cols"] and t["cols"][0]["label"] == "Step number")
