"""Documents in every medium, with texts that nobody has looked at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.report.document import (
    Bullets,
    Code,
    Facts,
    Picture,
    Section,
    Table,
    as_html,
    as_markdown,
    as_text,
    code_block,
    escape,
    one_line,
    text_lines,
)

TABLE = Table(("copies", "time\n(measured)"), [["up", "1 ms"], ["down\x1b", ["22 ms", "| b"]]])
PARTS = (
    "A paragraph of words.",
    Section("Figures", [TABLE, Section("Details", [Bullets(["one", "two"])], page_only=True)]),
    Section("Empty", [Section("", []), Bullets([]), Table(("no", "rows"), [])]),
    Section("Look", [Picture("Steps over time", "timeline.png"), Code("a = 1\n")]),
    Facts([("next", "advisor view"), ("", "in this folder")], label_width=6),
)


def test_text_has_aligned_figures_and_no_pictures_and_leaves_out_what_is_of_the_page() -> None:
    assert as_text(PARTS).split("\n\n") == [
        "A paragraph of words.",
        "Figures\n"
        "                time\n"
        "  copies  (measured)\n"
        "  ──────────────────\n"
        "  up            1 ms\n"
        "  down�        22 ms\n"
        "                 | b",
        "Look\n    a = 1",
        "next  advisor view\n      in this folder\n",
    ]


def test_markdown_has_pictures_and_all_sections_that_hold_something() -> None:
    assert as_markdown(PARTS).split("\n\n") == [
        "A paragraph of words.",
        "## Figures",
        "| copies | time (measured) |\n| --- | --- |\n| up | 1 ms |\n| down� | 22 ms<br>\\| b |",
        "**Details**",
        "- one\n- two",
        "## Look",
        "![Steps over time](timeline.png)",
        "```python\na = 1\n```",
        "- next: advisor view\n- in this folder\n",
    ]


def test_html_interprets_nothing() -> None:
    html = as_html(Table(("a",), [["<img onerror=x>"], [["1", "2"]]]))
    assert "<td>&lt;img onerror=x&gt;</td>" in html
    assert "<td>1<br>2</td>" in html


def test_a_table_that_is_too_wide_wraps_names_and_never_figures() -> None:
    rows = [["towers-forward-only", "1,234,567 bytes", "worker:0 and worker:1"]]
    assert text_lines(Table(("", "", ""), rows, names=(0, -1)), width=46) == [
        "towers-        1,234,567 bytes  worker:0 and",
        "forward-only                    worker:1",
    ]
    assert text_lines(Table(("", "", ""), rows, label_most=15))[1] == "only"


def test_text_that_has_a_width_wraps_beside_its_label_and_breaks_no_word() -> None:
    path = "a/path/that-is-there/to-be-copied"
    assert as_text([Facts([("in", f"the file {path}")], label_width=4)], width=20) == (
        f"in  the file\n    {path}\n"
    )


def test_code_that_holds_fences_stays_code() -> None:
    assert code_block("```\nx\n```", "") == "````\n```\nx\n```\n````"


@given(st.text())
def test_any_name_becomes_one_line_without_html_or_open_cells(name: str) -> None:
    text = escape(name)
    assert len(text.splitlines()) <= 1
    assert "<" not in text
    assert all(
        place > 0 and text[place - 1] == "\\" for place, c in enumerate(text) if c in "|`[]*"
    )


@given(st.text(), st.integers(min_value=8, max_value=40))
def test_any_text_is_lines_that_drive_no_terminal(name: str, width: int) -> None:
    parts = (name, Table((name, "b"), [[name, name]]), Section(name, [Bullets([name])]))
    text = as_text([*parts, Facts([(name, name)])], width)
    assert all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize("name", ["max_pooling1d_2", "worker:0 → worker:1", "a.b/c:0", "10 %"])
def test_ordinary_names_stay_as_they_are(name: str) -> None:
    assert escape(name) == one_line(name) == name
