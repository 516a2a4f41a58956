"""The file in a real browser, opened from the disk."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from browsers import SCREENSHOTS, SHOWN_WITHIN_MS, computed_ms
from playwright.sync_api import Page, expect
from sample_analysis import record
from sample_break_even import FOUND
from sample_scaling import with_batch
from simulated_steps import towers_graph
from tab_samples import write_sample

from placement_advisor.analysis.assemble import review_of
from placement_advisor.cli.show import shown
from placement_advisor.files.log_files import DETAILS, LOG_FOLDER, OVERVIEW
from placement_advisor.report.analysis.screen import screen
from placement_advisor.report.html.report_file import report_html
from placement_advisor.report.tensorboard.tab import Tab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Locator

    from placement_advisor.analysis.analysis_result import Analysis

DEMO_LIMIT_MS = 1_000
LARGE_LIMIT_MS = 3_000
MARKUP = "</script><img src=x onerror=\"window.pwned='img'\"><svg onload=window.pwned='svg'>"
QUOTES = "'\"`\\${window.pwned='template'}&amp;--><!--"
REORDERED = "abc\u202edef\u2066ghi\u2069"
LONG = "long_" + "0123456789" * 1_000
HOSTILE = [MARKUP, QUOTES, REORDERED, LONG, "javascript:window.pwned='link'", "plain"]


@dataclass
class Opened:
    """A page, with all that its browser complains of and asks for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def section(self, name: str) -> Locator:
        return self.page.locator(f'section[aria-label="{name}"]')

    def choose(self, candidate: str) -> None:
        self.page.get_by_label(candidate, exact=True).check()
        expect(self.page.get_by_text(f"{candidate}: ").first).to_be_visible()

    def text(self) -> str:
        """Return all that the browser's search would look through."""
        text: str = self.page.evaluate("() => document.body.textContent")
        return text

    def picture(self, name: str, width: int) -> None:
        SCREENSHOTS.mkdir(exist_ok=True)
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.wait_for_timeout(300)  # Canvases are drawn anew in the next frame.
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Opened]]:
    pages: list[Page] = []

    def open_page(dark: bool = False) -> Opened:
        page = browser.new_page(
            viewport={"width": 1_280, "height": 900}, color_scheme="dark" if dark else "light"
        )
        pages.append(page)
        page.set_default_timeout(SHOWN_WITHIN_MS)
        opened = Opened(page)
        page.on("console", lambda said: opened.complaints.append(said.text))
        page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        page.on("dialog", lambda dialog: opened.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: opened.asked.append(request.url))
        return opened

    yield open_page
    for page in pages:
        page.close()


@pytest.fixture
def show(opened: Callable[..., Opened], tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Opens the report of an analysis folder; it may ask for nothing and complain of nothing."""
    file = tmp_path / "report.html"
    shown: list[Opened] = []

    def show_folder(folder: Path, dark: bool = False) -> Opened:
        file.write_text(report_html(folder), encoding="utf-8")
        page = opened(dark)
        page.page.goto(file.as_uri())
        page.section("Copies").locator("> div > *").first.wait_for()
        shown.append(page)
        return page

    yield show_folder
    for each in shown:
        assert each.complaints == []
        assert each.asked == [file.as_uri()]


def full() -> Analysis:
    """Return an analysis with something in every section."""
    return replace(with_batch(), break_even=FOUND)


def write(analysis: Analysis, folder: Path) -> Path:
    Tab(folder / LOG_FOLDER, towers_graph()).show(review_of(analysis))
    return folder


def test_all_sections_of_an_analysis_are_there(show: Callable[..., Opened], tmp_path: Path) -> None:
    page = show(write(full(), tmp_path))
    expect(page.page).to_have_title("deepconn: placement report")
    names = [
        *("Candidates", "Timeline", "Layers", "Copies", "Findings"),
        *("How to split", "Break-even", "Scaling"),
    ]
    expect(page.page.locator("section h2")).to_have_text(names)
    expect(page.page.locator(".headline")).to_contain_text("split: towers, 1.69×")
    expect(page.page.get_by_label("Analysis")).to_be_hidden()
    scaling = page.section("Scaling").locator("tbody tr")
    # 64 samples in 80 ms, where one device takes 51.0 ms for 32.
    expect(scaling.last).to_contain_text("weak scaling")
    expect(scaling.last).to_contain_text("80.0 ms, 800 samples/s, 1.27×")
    page.section("Break-even").get_by_text("All that was tried: bandwidth").click()
    points = page.section("Break-even").locator("details[open] tbody tr")
    expect(points.nth(2)).to_have_text("1.50 GB/stowers0.77×here")
    expect(points.nth(3)).to_have_text("150 GB/stowers1.67×wins")


def test_what_the_terminal_names_is_found(show: Callable[..., Opened], tmp_path: Path) -> None:
    analysis = full()
    told = shown(screen(record(analysis), tmp_path, 400), color=False)
    page = show(write(analysis, tmp_path))
    searched = " ".join(page.text().split())
    layers = {name for each in analysis.candidates for name in each.by_layer or ()}
    tensors = {copy.tensor for c in analysis.candidates for copy in c.predicted.transfers}
    candidates = {each.name for each in analysis.candidates}
    named = {name for name in layers | tensors | candidates if name in told}
    assert named & candidates
    for name in named - layers:
        assert name in searched, name
    find = page.page.get_by_label("Find a layer")
    for name in named & {layer.layer for layer in towers_graph().ops}:
        find.fill(name)
        expect(page.section("Layers").locator(".told")).to_contain_text(name)
    for reason in (*analysis.recommendation.reasons, *analysis.warnings):
        assert reason in searched


def test_tensors_of_each_candidate_are_found(show: Callable[..., Opened], tmp_path: Path) -> None:
    analysis = full()
    page = show(write(analysis, tmp_path))
    for candidate in analysis.candidates:
        page.choose(candidate.name)
        for copy in candidate.predicted.transfers if candidate.predicted else ():
            cell = page.section("Copies").get_by_text(copy.tensor, exact=True)
            expect(cell.first).to_be_visible()


def test_code_is_copied_by_its_button(show: Callable[..., Opened], tmp_path: Path) -> None:
    analysis = full()
    page = show(write(analysis, tmp_path))
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    how = page.section("How to split")
    how.get_by_role("button", name="Copy").first.click()
    expect(how.get_by_text("Copied.")).to_be_visible()
    assert analysis.how is not None
    assert page.page.evaluate("navigator.clipboard.readText()") == analysis.how.call
    how.get_by_text("The same by hand").click()
    expect(how.locator("pre").last).to_have_text((analysis.how.listing or "").strip())


def test_where_no_page_may_copy_the_code_is_chosen(
    show: Callable[..., Opened], tmp_path: Path
) -> None:
    page = show(write(full(), tmp_path))
    page.page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(Error()); }")
    how = page.section("How to split")
    how.get_by_role("button", name="Copy").first.click()
    expect(how.get_by_text("Chosen: Ctrl+C copies it.")).to_be_visible()
    assert "placement_advisor.place" in page.page.evaluate("getSelection().toString()")


def test_hostile_names_are_shown_whole_and_do_nothing(
    show: Callable[..., Opened], tmp_path: Path
) -> None:
    write_sample(tmp_path / LOG_FOLDER, HOSTILE, name=MARKUP)
    page = show(tmp_path)
    expect(page.page.locator(".headline")).to_have_text(f"stay single: {MARKUP}")
    expect(page.page.get_by_text(f"join {MARKUP}")).to_be_visible()
    told = page.section("Layers").locator(".told")
    canvas = page.page.get_by_role("application", name="Layers by device")
    seen = set()
    for _ in HOSTILE:
        canvas.press("n")
        seen.add(told.inner_text().split(" · ")[0])
    assert seen == {*HOSTILE, "abc�def�ghi�"} - {REORDERED}
    assert page.page.evaluate("() => window.pwned ?? null") is None
    expect(page.page.locator("main img, main svg, main script, main a")).to_have_count(0)
    page.page.get_by_label("Find a layer").fill("long_")
    for width in (1_280, 390):
        page.picture(f"report-hostile-{width}", width)
        wide = "() => document.documentElement.scrollWidth <= window.innerWidth"
        assert page.page.evaluate(wide)
        box, inner = told.bounding_box(), page.page.evaluate("() => window.innerWidth")
        assert box is not None
        assert box["x"] + box["width"] <= inner


def test_a_name_in_the_report_of_a_stranger_cannot_hide_signs(
    show: Callable[..., Opened], tmp_path: Path
) -> None:
    analysis = full()
    finding = replace(analysis.findings[0], action=f"join {REORDERED}", where={"layer": REORDERED})
    page = show(write(replace(analysis, findings=(finding,)), tmp_path))
    expect(page.section("Findings")).to_contain_text("join abc�def�ghi�")
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", page.text())


def test_candidates_of_a_stranger_are_found_under_any_name(
    show: Callable[..., Opened], tmp_path: Path
) -> None:
    write_sample(tmp_path / LOG_FOLDER, ["a", "b"])
    name = f"__proto__ {REORDERED} <b>"
    overview = tmp_path / LOG_FOLDER / OVERVIEW
    document = json.loads(overview.read_text())
    document["candidates"][0]["name"] = name
    overview.write_text(json.dumps(document))
    single = tmp_path / LOG_FOLDER / DETAILS / "single.json"
    single.rename(single.with_name(f"{name}.json"))
    page = show(tmp_path)
    page.choose("__proto__ abc�def�ghi� <b>")
    expect(page.section("Layers").get_by_text("No forward tensor crosses")).to_be_visible()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_is_light_or_dark_as_the_system_and_never_scrolls_sideways(
    show: Callable[..., Opened], tmp_path: Path, dark: bool
) -> None:
    page = show(write(full(), tmp_path), dark)
    color = page.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert color == ("rgb(32, 33, 36)" if dark else "rgb(255, 255, 255)")
    for width in (1_280, 390):
        page.picture(f"report-{'dark' if dark else 'light'}-{width}", width)
        assert page.page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    page.page.emulate_media(color_scheme="light" if dark else "dark")
    expect(page.page.locator("html")).to_have_class("" if dark else "dark")


def test_on_paper_it_is_light_and_unfolded_and_afterwards_as_before(
    show: Callable[..., Opened], tmp_path: Path
) -> None:
    page = show(write(full(), tmp_path), True)
    root, folded = page.page.locator("html"), page.page.locator("details:not([open])")
    expect(root).to_have_class("dark")
    count = folded.count()
    assert count > 3
    page.page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    expect(root).to_have_class("paper")
    expect(folded).to_have_count(0)
    page.page.emulate_media(media="print", color_scheme="dark")
    page.picture("report-paper", 720)
    assert page.page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    expect(page.page.get_by_role("button")).to_have_count(0)
    page.page.emulate_media(media="screen", color_scheme="dark")
    page.page.evaluate("() => dispatchEvent(new Event('afterprint'))")
    expect(root).to_have_class("dark")
    expect(folded).to_have_count(count)


def test_a_candidate_that_was_left_out_says_so(
    show: Callable[..., Opened], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("placement_advisor.report.html.report_file._MOST_PACKED_CHARS", 8_000)
    write_sample(tmp_path / LOG_FOLDER, [f"layer_{i}" for i in range(50)])
    page = show(tmp_path)
    page.choose("single")
    expect(
        page.section("Timeline").get_by_text("Left out, to keep this file small")
    ).to_be_visible()
    expect(page.page.locator(".legend")).to_have_text("worker:0")


def test_a_thousand_layers_are_drawn_in_time(
    show: Callable[..., Opened], opened: Callable[..., Opened], tmp_path: Path
) -> None:
    layers = [f"encoder/block_{i // 10}/dense_{i}" for i in range(1_000)]
    write_sample(tmp_path / LOG_FOLDER, layers, splits=11)
    assert drawn_ms(opened, tmp_path) <= LARGE_LIMIT_MS
    page = show(tmp_path)
    page.page.get_by_label("Find a layer").fill("dense_777")
    expect(page.section("Layers").locator(".told")).to_contain_text("encoder/block_77/dense_777")
    page.picture("report-thousand-layers", 1_280)


@pytest.mark.slow
def test_the_report_of_the_demo_is_drawn_in_time(opened: Callable[..., Opened], demo: Path) -> None:
    folder = demo.parent
    assert (folder / "report.html").read_text(encoding="utf-8") == report_html(folder)
    assert drawn_ms(opened, folder) <= DEMO_LIMIT_MS


def drawn_ms(opened: Callable[..., Opened], folder: Path) -> float:
    """Return for how long the page of a report computes until all of it is drawn."""
    file = folder / "report.html"
    file.write_text(report_html(folder), encoding="utf-8")
    page = opened()

    def open_it() -> None:
        page.page.goto(file.as_uri())
        page.section("Copies").locator("> div > *").first.wait_for()
        page.page.evaluate("() => new Promise((d) => requestAnimationFrame(() => setTimeout(d)))")

    times = [computed_ms(page.page, open_it) for _ in range(3)]
    print(f"{folder.name}: {json.dumps(times)} ms, {file.stat().st_size:,} bytes")
    return sorted(times)[1]
