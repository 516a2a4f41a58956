"""What a browser that reaches no network shows of a real analysis in TensorBoard's own tabs."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import FrameLocator, Locator, expect

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Tab

XPROF = 'iframe[src*="name=profile"]'
RAN = ("single", "towers", "batch")


@pytest.fixture
def tab(open_tab: Callable[[Path], Tab], demo: Path) -> Tab:
    return open_tab(demo)


def go_to(tab: Tab, place: str) -> None:
    tab.page.goto(f"{tab.address}{place}", wait_until="domcontentloaded")


def xprof(tab: Tab, query: str = "") -> FrameLocator:
    """Open the tab Profile; without a query it chooses itself what it shows."""
    go_to(tab, f"{query}#profile")
    frame = tab.page.frame_locator(XPROF)
    expect(frame.get_by_role("combobox")).to_have_count(3)
    return frame


def trace_of(tab: Tab, query: str) -> FrameLocator:
    """Open XProf's trace viewer, which is a frame in its frame, and wait until it has lanes."""
    trace = xprof(tab, query).frame_locator('iframe[src*="trace_viewer"]')
    lanes(trace).first.wait_for()
    return trace


def lanes(trace: FrameLocator) -> Locator:
    """Return the heads of its lanes; each of them is also in a menu that is closed."""
    return trace.get_by_text("(pid ").locator("visible=true")


def assert_all_is_well_but_xprof(tab: Tab) -> None:
    """Only XProf may complain, and ask for something elsewhere, which it does not get."""
    expected = ("/data/plugin/profile/", "(https://www.gstatic.", "(https://fonts.googleapis.")
    assert [text for text in tab.complaints if not any(map(text.__contains__, expected))] == []
    assert {url.split("?")[0] for url in tab.outside} <= {
        "https://www.gstatic.com/charts/loader.js",
        "https://www.gstatic.cn/charts/loader.js",
        "https://fonts.googleapis.com/css2",
    }


def test_profile_lists_the_measured_simulated_and_combined_runs(tab: Tab) -> None:
    frame = xprof(tab)
    frame.get_by_role("combobox").first.click()
    for name in RAN:
        for kind in ("", "-simulated", "-both"):
            expect(frame.get_by_role("option", name=f"{name}{kind}", exact=True)).to_be_visible()
    tab.picture("profile-runs", height=1_000)
    assert_all_is_well_but_xprof(tab)


def test_profile_shows_the_trace_of_a_measured_worker(tab: Tab) -> None:
    trace = trace_of(tab, "?run=towers&tag=trace_viewer@&hosts=worker-1")
    expect(lanes(trace)).to_contain_text(["worker-1 /host:CPU"])
    tab.picture("profile-measured", height=900)
    assert_all_is_well_but_xprof(tab)


def test_profile_shows_the_figures_of_a_simulated_step(tab: Tab) -> None:
    frame = xprof(tab, "?run=towers-simulated&tag=overview_page")
    expect(frame.get_by_text("Performance Summary")).to_be_visible()
    expect(frame.get_by_text("Device to Device Time")).to_be_visible()
    tab.picture("profile-simulated", height=1_300)
    assert_all_is_well_but_xprof(tab)


def test_profile_shows_both_steps_lane_by_lane(tab: Tab) -> None:
    trace = trace_of(tab, "?run=towers-both&tag=trace_viewer@")
    names = re.findall(r"/device:CUSTOM:(.*) \(pid", trace.locator("body").inner_text())
    assert ("simulated worker:0", "measured worker:0") in pairwise(names)
    assert ("simulated worker:1", "measured worker:1") in pairwise(names)
    tab.picture("profile-both", height=1_300)
    assert_all_is_well_but_xprof(tab)


def test_scalars_plot_the_figures_of_every_candidate(tab: Tab) -> None:
    go_to(tab, "#scalars")
    page = tab.page
    page.get_by_role("button").filter(has_text="step_ms").click()
    for tag in ("step_ms/simulated", "step_ms/measured", "step_ms/every_measured"):
        expect(page.get_by_text(f"tag: {tag}", exact=True)).to_be_visible()
    for name in RAN:
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    page.locator("tf-scalar-card svg .render-area path").first.wait_for(state="attached")
    tab.picture("scalars", height=1_300)
    assert tab.complaints == []
    assert tab.outside == set()


def test_text_is_the_report_with_no_picture_missing(tab: Tab) -> None:
    go_to(tab, "#text")
    page = tab.page
    expect(page.get_by_role("heading", name="deepconn: placement report")).to_be_visible()
    expect(page.get_by_text("see timeline in the tab Images")).to_be_attached()
    expect(page.locator("tf-text-loader img")).to_have_count(0)
    tab.picture("text", height=1_000)
    assert tab.complaints == []
    assert tab.outside == set()


def test_images_are_those_of_the_report(tab: Tab) -> None:
    go_to(tab, "#images")
    page = tab.page
    for tag in ("break-even", "comparison", "timeline"):
        pane = page.locator("tf-category-paginated-view").filter(has_text=tag)
        heading = pane.locator("button.heading")
        heading.wait_for()
        if heading.get_attribute("open-button") is None:  # TensorBoard opens the first few.
            heading.click()
        picture = pane.locator("img")
        picture.wait_for()
        assert picture.evaluate("async (img) => { await img.decode(); return img.naturalWidth; }")
    tab.picture("images", height=1_300)
    assert tab.complaints == []
    assert tab.outside == set()
