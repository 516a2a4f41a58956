import gzip
import json
import re
import urllib.request
from itertools import pairwise

import pytest
from command_runs import wait_until
from playwright.sync_api import expect
from recorded_profiles import read_planes

from placement_advisor.files.output import MEASURED, profile_run

RAN = ("single", "towers", "batch")
RUNS = {f"runs/{name}/{kind}" for name in RAN for kind in ("measured", "simulated", "both")}
XPROF_ASKS = {
    "https://www.gstatic.com/charts/loader.js",
    "https://www.gstatic.cn/charts/loader.js",
    "https://fonts.googleapis.com/css2",
}


@pytest.fixture(scope="module")
def tab(open_tab, demo):
    return open_tab(demo.parent)


@pytest.fixture
def profile(open_tab, demo):
    """TensorBoard in a page of its own, where XProf alone complains."""
    board = open_tab(demo.parent)
    yield board
    expected = ("/data/plugin/profile/", "(https://www.gstatic.", "(https://fonts.googleapis.")
    assert [text for text in board.complaints if not any(map(text.__contains__, expected))] == []
    assert {url.split("?")[0] for url in board.outside} <= XPROF_ASKS


def read(tab, route):
    with urllib.request.urlopen(f"{tab.address}data/{route}") as answer:
        content = answer.read()
    return json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)


def trace_of(tab, query):
    """Open XProf's trace viewer, which is a frame in its frame, and wait until it has lanes."""
    tab.page.goto(f"{tab.address}{query}#profile", wait_until="domcontentloaded")
    frame = tab.page.frame_locator('iframe[src*="name=profile"]')
    expect(frame.get_by_role("combobox")).to_have_count(3)
    trace = frame.frame_locator('iframe[src*="trace_viewer"]')
    lanes(trace).first.wait_for()
    return trace


def lanes(trace):
    """Return the heads of its lanes; each of them is also in a menu that is closed."""
    return trace.get_by_text("(pid ").locator("visible=true")


def test_the_tab_shows_what_the_analysis_found_also_in_the_dark(tab, demo):
    tab.open()
    analysis = json.loads((demo.parent / "analysis.json").read_text())
    frame = tab.frame
    verdict = analysis["recommendation"]["verdict"].replace("-", " ")
    expect(frame.locator(".headline")).to_contain_text(verdict)
    expect(frame.locator(".candidates tbody tr")).to_have_count(len(analysis["candidates"]))
    label = tab.page.get_by_label("towers", exact=True)
    expect(frame.locator(".comparison tbody tr").filter(has=label)).to_contain_text("ms")
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
    light = tab.run("() => getComputedStyle(document.body).backgroundColor")
    tab.page.evaluate("document.body.classList.add('dark-mode')")
    tab.frame.locator(":root.dark").wait_for(state="attached")
    assert tab.run("() => getComputedStyle(document.body).backgroundColor") != light
    tab.picture("placement-tab-dark")
    assert tab.complaints == []


def test_the_other_tabs_have_scalars_text_and_pictures(tab):
    # TensorBoard reads event files in the background.
    runs = {f"runs/{name}" for name in RAN}
    assert wait_until(lambda: runs <= set(read(tab, "plugin/scalars/tags")))
    scalars = read(tab, "plugin/scalars/tags")
    assert [list(scalars[run]) for run in sorted(runs)] == [["step_ms"]] * len(runs)
    curve = read(tab, "plugin/scalars/scalars?run=runs/towers&tag=step_ms")
    assert [number for _, number, _ in curve] == list(range(len(curve)))
    report = "runs/report"
    assert read(tab, "plugin/text/tags") == {report: ["report"]}
    assert {"timeline", "comparison"} <= set(read(tab, "plugin/images/tags")[report])
    (text,) = read(tab, f"plugin/text/text?run={report}&tag=report")
    assert "<h1>" in text["text"]


def test_xprof_has_every_run_and_finds_measured_and_simulated_steps(tab, demo):
    assert set(read(tab, "plugin/profile/runs")) == RUNS
    hosts = read(tab, "plugin/profile/hosts?run=runs/towers/measured&tag=trace_viewer@")
    assert {host["hostname"] for host in hosts} == {"client", "worker-0", "worker-1"}
    query = "run=runs/towers/measured&tag=trace_viewer&host=worker-1"
    measured = read(tab, f"plugin/profile/data?{query}")
    assert any("Conv2D" in event.get("name", "") for event in measured["traceEvents"])
    for candidate in RAN:
        folder = demo.parent / profile_run(candidate, MEASURED)
        marked_ms = [
            event.duration_ns / 1e6
            for plane in read_planes(folder / "client.xplane.pb")
            for line in plane.lines
            for event in line.events
            if event.name == "train"
        ]
        overview = read(tab, f"plugin/profile/data?run=runs/{candidate}/measured&tag=overview_page")
        assert "No step marker" not in json.dumps(overview)
        found = [row["c"][-1]["v"] for row in step_table(overview)["rows"]]
        # It leaves out the first and the last one, which may be recorded in part.
        assert found == pytest.approx(marked_ms[1:-1]), candidate
    predicted = json.loads((demo.parent / "predictions" / "towers.json").read_text())
    query = "run=runs/towers/simulated&tag=overview_page&host=simulated"
    table = step_table(read(tab, f"plugin/profile/data?{query}"))
    found_ms = float(table["p"]["steptime_ms_average"])
    assert found_ms == pytest.approx(predicted["step_ns"] / 1e6, abs=0.06)


def step_table(overview):
    return next(t for t in overview if t["cols"] and t["cols"][0]["label"] == "Step number")


def test_profile_shows_the_trace_of_a_measured_worker_and_both_steps_lane_by_lane(profile):
    trace = trace_of(profile, "?run=runs/towers/measured&tag=trace_viewer@&hosts=worker-1")
    expect(lanes(trace)).to_contain_text(["worker-1 /host:CPU"])
    profile.picture("profile-measured", height=900)
    trace = trace_of(profile, "?run=runs/towers/both&tag=trace_viewer@")
    names = re.findall(r"/device:CUSTOM:(.*) \(pid", trace.locator("body").inner_text())
    for lane in ("worker:0", "worker:1", "worker:0 → worker:1"):
        assert (f"simulated {lane}", f"measured {lane}") in pairwise(names)
    profile.picture("profile-both", height=1_300)
