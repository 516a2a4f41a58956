import re
from dataclasses import replace

import sample_analysis
from hypothesis import given
from hypothesis import strategies as st
from report_samples import made_up, towers
from sample_values import step_profile

from placement_advisor.measurement.measurement import Activity
from placement_advisor.report.document import (
    NOTHING,
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
    text_lines,
)
from placement_advisor.report.statements import (
    activity_rows,
    fastest_first,
    figure_lines,
    in_own_timelines,
)

TABLE = Table(("copies", "time\n(measured)"), [["up", "1 ms"], ["down\x1b", ["22 ms", "| b"]]])
PARTS = (
    "A paragraph of words.",
    Section("Figures", [TABLE, Section("Details", [Bullets(["one", "two"])], page_only=True)]),
    Section("Empty", [Section("", []), Bullets([]), Table(("no", "rows"), [])]),
    Section("Look", [Picture("Steps over time", "timeline.png"), Code("a = 1\n")]),
    Facts([("next", "advisor view"), ("", "in this folder")], label_width=6),
)


def test_a_document_is_the_same_in_text_markdown_and_html():
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
    html = as_html(Table(("a",), [["<img onerror=x>"], [["1", "2"]]]))
    assert "<td>&lt;img onerror=x&gt;</td>" in html
    assert "<td>1<br>2</td>" in html


def test_what_is_too_wide_wraps_names_and_words_and_never_figures_or_fences():
    rows = [["towers-forward-only", "1,234,567 bytes", "worker:0 and worker:1"]]
    assert text_lines(Table(("", "", ""), rows, names=(0, -1)), width=46) == [
        "towers-        1,234,567 bytes  worker:0 and",
        "forward-only                    worker:1",
    ]
    assert text_lines(Table(("", "", ""), rows, label_most=15))[1] == "only"
    path = "a/path/that-is-there/to-be-copied"
    assert as_text([Facts([("in", f"the file {path}")], label_width=4)], width=20) == (
        f"in  the file\n    {path}\n"
    )
    assert code_block("```\nx\n```", "") == "````\n```\nx\n```\n````"


@given(st.text())
def test_any_name_becomes_one_line_without_html_or_open_cells(name):
    text = escape(name)
    assert len(text.splitlines()) <= 1
    assert "<" not in text
    assert not re.search(r"(?<!\\)[|`\[\]*]", text)


@given(st.text(), st.integers(min_value=8, max_value=40))
def test_any_text_is_lines_that_drive_no_terminal(name, width):
    parts = (name, Table((name, "b"), [[name, name]]), Section(name, [Bullets([name])]))
    text = as_text([*parts, Facts([(name, name)])], width)
    assert all(line.isprintable() for line in text.split("\n"))


def test_activities_are_the_costliest_and_figures_claim_no_more_than_is_known():
    activities = [
        Activity(name=name, calls=2, total_ns=ns, min_ns=1, max_ns=ns, is_copy="copy" in name)
        for name, ns in (("MatMul", 600), ("small copy", 10), ("Relu", 100), ("Conv2D", 290))
    ]
    rows = activity_rows(tuple(activities), top=2)
    assert [row.cells[-1] for row in rows] == ["MatMul", "Conv2D", "small copy"]
    assert [row.is_copy for row in rows] == [False, False, True]
    assert rows[0].cells == ("60.00%", "600 ns", "2", "300 ns", "1 ns", "600 ns", "MatMul")
    schedule = towers()
    assert figure_lines(1_000, schedule) == ["1.00 µs", "4 copies, ≥ 3.20 kB", "41.6 µs exposed"]
    unknown = [copy for copy in schedule.transfers if copy.size_bytes is None]
    assert figure_lines(1_000, replace(schedule, transfers=tuple(unknown)))[1] == "1 copy, ?"
    assert figure_lines(1_000, None) == ["1.00 µs", "no profile to rely on"]
    assert figure_lines(None, None) == [NOTHING]
    unseen = step_profile(100, compute_ns={"a": 1}, unseen_copies=("sum to a",))
    assert figure_lines(1_000, unseen) == ["1.00 µs", "copies not all seen", "0 ns exposed"]
    assert (unseen.transfer_count, unseen.transfer_bytes) == (None, None)


def test_single_comes_first_then_the_fastest_and_what_failed_is_not_beside_what_ran():
    analysis = made_up(candidates=4)
    single, first, second, third = analysis.candidates
    unsure = replace(first, comparison=None)
    shuffled = replace(analysis, candidates=(third, unsure, single, second))
    assert fastest_first(shuffled) == (single, second, third, unsure)
    analysis = sample_analysis.sample()
    single, towers, crashed = analysis.candidates
    late = replace(towers, name="late", failure=crashed.failure)
    shown = replace(analysis, candidates=(single, towers, crashed, late))
    assert [c.name for c in fastest_first(shown)] == ["single", "towers"]
    assert [c.name for c in in_own_timelines(analysis)] == ["alternating"]
    # Where nothing ran, the best predictions are shown.
    unmeasured = fastest_first(sample_analysis.unmeasured())
    assert [c.name for c in unmeasured] == ["single", "towers", "alternating"]
