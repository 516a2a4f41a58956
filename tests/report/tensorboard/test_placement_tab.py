import contextlib
import http.client
import json
import re
from functools import partial
from http import HTTPStatus
from urllib.parse import urlsplit

import pytest
from browsers import computed_ms
from playwright.sync_api import expect
from report_samples import write_sample

from placement_advisor.files.output import OVERVIEW, output_folder

MANY = 1_000
# Of the page's own computing: other work on the machine makes no answer late.
INTERACTION_LIMIT_MS = 100
HOSTILE = "<img src=x onerror=\"window.pwned='img'\">"
# `window.shown` waits for the next event of a type, then for what it loads if it does, then for the
# next frame.
WATCH = """([type, loads]) => {
  const copies = document.querySelector('section[aria-label=Copies] .copies');
  window.shown = new Promise((told) => document.addEventListener(type, async () => {
    if (loads) {
      await new Promise((loaded) =>
        new MutationObserver(loaded).observe(copies, { childList: true }));
    }
    requestAnimationFrame(() => setTimeout(told));
  }, { capture: true, once: true }));
}"""

FOCUSED = """() => {
  const { ariaLabel, type, localName } = document.activeElement;
  return ariaLabel || type || localName;
}"""
PICTURE = "(canvas) => canvas.toDataURL()"
TIMELINE, LAYERS = "Timeline of a step", "Layers by device"


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made-up") / "log"
    write_sample(folder.parent / "outside" / "tensorboard", ["secret"], name="outside")
    (folder.parent / "outside.json").write_text("secret")
    folder.mkdir()
    (folder / "link").symlink_to(folder.parent / "outside")
    return folder


@pytest.fixture(scope="module")
def tab(open_tab, logdir):
    layers = [f"encoder/block_{i // 10}/dense_{i}" for i in range(MANY)]
    write_sample(logdir / "hostile" / "tensorboard", [HOSTILE, "plain"], name=HOSTILE)
    write_sample(logdir / "large" / "tensorboard", layers, name="large")
    opened = open_tab(logdir)
    opened.open()
    return opened


@pytest.fixture(autouse=True)
def _no_complaints(tab):
    yield
    assert tab.complaints == []


def key(tab, canvas, *names):
    canvases = tab.frame.get_by_role("application", name=canvas)
    canvases.focus()
    for name in names:
        canvases.press(name)


def test_the_selector_opens_any_analysis_and_hostile_names_are_shown_and_not_run(tab):
    options = tab.frame.locator("#run option")
    expect(options).to_have_text(["hostile", "large"])
    tab.choose_run("large")
    expect(tab.frame.locator(".headline")).to_have_text("stay single: large")
    tab.choose_run("hostile")
    expect(tab.frame.locator(".headline")).to_have_text(f"stay single: {HOSTILE}")
    expect(tab.frame.get_by_text(f"join {HOSTILE}").last).to_be_visible()
    assert tab.run("() => window.pwned ?? window.parent.pwned ?? null") is None
    expect(tab.frame.locator("main img, main [onload], main script")).to_have_count(0)


def answer_ms(tab, event, act, *, loads=False):
    """Do something with mouse or keyboard; return how long the tab computed to show it."""

    def until_shown():
        tab.run(WATCH, [event, loads])
        act()
        tab.run("() => window.shown")

    return computed_ms(tab.page, until_shown)


def assert_at_once(what, times_ms):
    print(f"{what}: {json.dumps(times_ms)} ms")
    assert sorted(times_ms[1:])[1] <= INTERACTION_LIMIT_MS  # Just-in-time compiled once.


@pytest.mark.parametrize("name", [TIMELINE, LAYERS])
def test_a_thousand_layers_follow_the_mouse(tab, name):
    tab.choose_run("large")
    expect(tab.frame.locator(".headline")).to_have_text("stay single: large")
    key(tab, name, "0", "+", "+", "+")
    canvas, mouse = tab.frame.get_by_role("application", name=name), tab.page.mouse
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    pictures = [canvas.evaluate(PICTURE)]
    mouse.move(x, y)
    mouse.down()
    drags = [answer_ms(tab, "pointermove", partial(mouse.move, x - 40 * i, y)) for i in range(1, 5)]
    mouse.up()
    pictures.append(canvas.evaluate(PICTURE))
    tab.page.keyboard.down("Control")
    zooms = [answer_ms(tab, "wheel", partial(mouse.wheel, 0, -200)) for _ in range(4)]
    tab.page.keyboard.up("Control")
    pictures.append(canvas.evaluate(PICTURE))
    assert len(set(pictures)) == 3
    assert_at_once(f"{name}, drag", drags)
    assert_at_once(f"{name}, zoom", zooms)


@pytest.mark.parametrize(
    ("where", "keys", "loads"),
    [
        ("#run", ("ArrowUp", "ArrowDown"), True),
        (".comparison input:checked", ("ArrowDown", "ArrowUp"), True),
        ("input[type=search]", ("7", "Backspace"), False),
        *(
            (f"canvas[aria-label='{name}']", keys, False)
            for name in (TIMELINE, LAYERS)
            for keys in (("+", "-"), ("n", "0"), ("ArrowRight", "ArrowLeft"))
        ),
    ],
)
def test_keys_change_what_is_shown_at_once(tab, where, keys, loads):
    tab.choose_run("large")
    expect(tab.frame.locator(".headline")).to_have_text("stay single: large")
    tab.frame.get_by_label("single", exact=True).check()
    tab.frame.locator(where).focus()
    times = {name: [] for name in keys}
    for _ in range(4):
        for name in keys:
            press = partial(tab.page.keyboard.press, name)
            times[name].append(answer_ms(tab, "keydown", press, loads=loads))
    for name, each in times.items():
        assert_at_once(f"{where}, {name}", each)


def test_everything_is_reached_by_the_keyboard_and_what_crosses_has_its_bytes(tab):
    tab.choose_run("large")
    frame = tab.frame
    frame.get_by_label("Analysis").focus()
    reached = set()
    for _ in range(30):
        tab.page.keyboard.press("Tab")
        reached.add(tab.run(FOCUSED))
    assert reached >= {"radio", TIMELINE, "Zoom in", "Find a layer", LAYERS, "summary"}
    frame.locator(".comparison input").first.focus()
    tab.page.keyboard.press("ArrowDown")
    expect(frame.locator(".comparison tr:has(:checked)")).to_contain_text("alternating")
    expect(frame.locator(".comparison input:checked")).to_be_focused()
    key(tab, TIMELINE, "0", "n", "n")
    expect(frame.locator(".told").first).to_have_text(re.compile(r"simulated, worker:0: \d+/\w+, "))
    expect(frame.get_by_text("arrows cross to another device")).to_be_visible()
    frame.get_by_label("Find a layer").fill("block_0/dense_4")
    told = frame.locator(".told").nth(1)
    expect(told).to_contain_text("worker:1")
    expect(told).to_contain_text("4.10 kB cross from encoder/block_0/dense_3")
    copies = frame.get_by_role("table").filter(has_text="Copies from row to column")
    expect(copies).to_contain_text("worker:0")
    tab.picture("thousand-layers", height=2_000)


def test_a_running_analysis_is_followed_to_its_end(open_tab, logdir):
    layers = [f"layer_{i}" for i in range(8)]
    with output_folder(logdir / "mine") as staging:
        (staging / "analysis.json").write_text("{}")
        write_sample(staging / "tensorboard", layers, doing="measuring costs")
        live = open_tab(logdir)
        live.open()
        headline = live.frame.locator(".headline")
        expect(headline).to_have_text("Running: measuring costs")
        expect(live.frame.locator("#run option:checked")).to_have_text("mine (running)")
        write_sample(staging / "tensorboard", layers, doing="timing, round 3 done")
        expect(headline).to_have_text("Running: timing, round 3 done")
        write_sample(staging / "tensorboard", layers)
    expect(headline).to_have_text("stay single: stack")
    expect(live.frame.locator("#run option:checked")).to_have_text("mine")
    live.frame.get_by_label("alternating").check()
    expect(live.frame.get_by_text("arrows cross to another device")).to_be_visible()
    # Another analysis in the place of the first: the details of its candidates are new as well.
    write_sample(logdir / "mine" / "tensorboard", ["other", "layers"], name="second")
    expect(headline).to_have_text("stay single: second")
    expect(live.frame.get_by_text("No forward tensor crosses")).to_be_visible()
    assert [text for text in live.complaints if "404" not in text] == []


def test_of_an_analysis_of_another_version_it_is_said_what_to_do(open_tab, logdir):
    for name in ("before", "now"):
        write_sample(logdir / name, ["one", "two"], name=name)
    file = logdir / "before" / OVERVIEW
    file.write_text(json.dumps({"schema_version": 1, "candidates": [{}]}))
    tab = open_tab(logdir)
    tab.page.goto(f"{tab.address}#placement", wait_until="domcontentloaded")
    headline = tab.frame.locator(".headline")
    expect(headline).to_contain_text("Another version of placement-advisor wrote this analysis")
    expect(tab.frame.get_by_role("heading", name="Timeline")).to_be_hidden()
    tab.frame.get_by_label("Analysis").select_option("now")
    expect(headline).to_have_text("stay single: now")
    assert tab.complaints == []


@pytest.mark.slow
def test_what_cannot_be_loaded_is_said_and_asked_for_again(open_tab, tmp_path):
    write_sample(tmp_path / "mine" / "tensorboard", [f"layer_{i}" for i in range(8)])
    tab = open_tab(tmp_path)
    notice, headline = tab.frame.locator(".failure[role=status]"), tab.frame.locator(".headline")
    tab.page.route("**/details?*", lambda route: route.abort())
    tab.open()
    expect(notice).to_have_text("TensorBoard does not answer. What it told last stays.")
    expect(tab.frame.get_by_text("Nothing of it was simulated or measured.").first).to_be_visible()
    tab.page.unroute("**/details?*")
    expect(tab.frame.get_by_text("arrows cross to another device")).to_be_visible()
    expect(notice).to_be_hidden()

    tab.page.route("**/runs?*", lambda route: route.abort())
    expect(notice).to_be_visible()
    expect(headline).to_have_text("stay single: stack")
    tab.page.unroute("**/runs?*")
    expect(notice).to_be_hidden()

    (tmp_path / "mine").rename(tmp_path.with_name("elsewhere"))
    expect(headline).to_have_text("There is no analysis in the log directory yet.")
    expect(tab.frame.get_by_role("heading", name="Timeline")).to_be_hidden()
    assert [text for text in tab.complaints if "ERR_FAILED" not in text] == []


@pytest.mark.parametrize(
    "route",
    [
        "static/../plugin.py",
        "static/%2e%2e/plugin.py",
        "static/..%2fplugin.py",
        "overview?run=../outside",
        "details?run=large&candidate=../../../../../outside",
    ],
)
def test_nothing_beside_the_analyses_is_served(tab, route):
    server = urlsplit(tab.address)
    with contextlib.closing(http.client.HTTPConnection(server.netloc)) as connection:
        connection.request("GET", f"/data/plugin/placement/{route}")
        assert connection.getresponse().status == HTTPStatus.NOT_FOUND
