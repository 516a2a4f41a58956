"""A check as Markdown: golden, cut to size, and read by a parser with any names in it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import sample_check
from hypothesis import given
from markdown_it import MarkdownIt
from sample_check import check, failed, passed

from placement_advisor.check.difference import difference
from placement_advisor.check.record import Cut
from placement_advisor.report.check.check_markdown import (
    MAX_BYTES,
    check_as_markdown,
    difference_as_mermaid,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from markdown_it.token import Token

GOLDEN = Path(__file__).parent / "golden"


def test_the_page_is_the_golden_one() -> None:
    expected = (GOLDEN / "check_sample.md").read_text(encoding="utf-8")
    assert check_as_markdown(sample_check.sample()) == expected


def test_a_page_that_grows_too_long_keeps_the_verdict_and_says_that_it_was_cut() -> None:
    many = check(*(failed(model=f"models/{number}.py") for number in range(2_000)))
    page = check_as_markdown(many)
    assert MAX_BYTES * 0.95 < len(page.encode()) <= MAX_BYTES
    assert page.startswith("## advisor check: 2000 models: 2000 failed\n")
    assert page.count("<details>") == page.count("</details>") > 10
    assert page.endswith(
        "\n**Cut here**: the page may have 65000 bytes. `advisor check --verbose` tells the rest.\n"
    )


def test_a_page_fits_into_a_comment_on_github() -> None:
    assert MAX_BYTES < 65_536


def test_what_is_not_folded_is_the_verdict_the_causes_and_the_picture() -> None:
    page = check_as_markdown(sample_check.sample())
    shown, _, _ = page.partition("<details>")
    assert "1. **FAILED** models/ranker.py:train_step: **PA101**: the backward pass" in shown
    assert "2. **COULD NOT RUN** models/gone.py: " in shown
    assert "To accept: advisor check --update, and commit placements.lock.json" in shown
    assert shown.count("```mermaid") == page.count("```mermaid") == 1
    assert len(shown.splitlines()) <= 20


def test_of_many_models_that_failed_the_first_few_are_shown() -> None:
    shown, _, _ = check_as_markdown(check(*[failed()] * 20)).partition("<details>")
    assert "\n8. **FAILED**" in shown
    assert "9. **FAILED**" not in shown
    assert "\n12 more are told below.\n" in shown


def test_a_check_that_passed_is_a_line_and_a_folded_table() -> None:
    shown, _, folded = check_as_markdown(check(passed())).partition("<details>")
    assert shown == "## advisor check: 1 model: 1 passed\n\n"
    assert "| PASSED | models/deepconn.py | towers |" in folded


def test_the_picture_has_what_crosses_before_and_now_and_what_moved() -> None:
    assert difference_as_mermaid(sample_check.DIFFERENCE) == "\n".join(
        [
            "flowchart LR",
            '  d0["GPU:0, peak 2.90 GB"]',
            '  d1["GPU:1, peak 1.00 GB"]',
            '  d0 -->|"2 tensors, 1.11 MB -> 3 tensors, 3.15 MB"| d1',
            '  d1 -.->|"moved: dense_2"| d0',
            "  linkStyle 0 stroke:#d1242f,stroke-width:3px",
        ]
    )


def test_a_step_on_one_device_has_no_picture() -> None:
    alone = replace(sample_check.BEFORE, cuts=())
    assert difference_as_mermaid(difference(alone, alone, [])) is None


def test_arrows_that_nobody_follows_are_left_out() -> None:
    cuts = tuple(
        Cut(tensor="t", source=f"GPU:{a}", target=f"GPU:{b}", size_bytes=a * 8 + b)
        for a in range(8)
        for b in range(8)
        if a != b
    )
    every = difference(sample_check.BEFORE, replace(sample_check.BEFORE, cuts=cuts), [])
    assert (difference_as_mermaid(every) or "").count(" -->|") == 8


@given(sample_check.hostile_names)
def test_no_name_ends_a_label_of_the_picture(name: str) -> None:
    bad = sample_check.hostile(name).results[0].difference
    assert bad is not None
    for line in (difference_as_mermaid(bad) or "").splitlines()[1:-1]:
        assert re.fullmatch(r'  d\d(\[".*"\]| -\.?->\|".*"\| d\d)', line)
        assert line.count('"') == 2
        assert not re.search(r"[%{}`<\\]", line)


def test_one_part_too_long_is_left_out_whole() -> None:
    long = check(failed(model="ä" * MAX_BYTES))
    assert check_as_markdown(long, max_bytes=500).splitlines() == [
        "## advisor check: 1 model: 1 failed",
        "",
        "**Cut here**: the page may have 500 bytes. `advisor check --verbose` tells the rest.",
    ]


def test_a_page_of_just_the_size_is_not_cut() -> None:
    whole = check_as_markdown(check(passed()))
    assert check_as_markdown(check(passed()), max_bytes=len(whole.encode())) == whole


def test_names_mention_nobody() -> None:
    page = check_as_markdown(check(passed("@team/model.py", ["see @you"])))
    assert page.count("@") == page.count("@&#8203;") == 3


def shape(tokens: Iterable[Token]) -> Iterator[tuple[str, str]]:
    """Return what a page is made of, without the text in it."""
    for token in tokens:
        if token.type not in ("text", "fence"):
            yield token.type, token.content if "html" in token.type else ""
        yield from shape(token.children or ())


@given(sample_check.hostile_names)
def test_no_name_changes_what_the_page_is_made_of(name: str) -> None:
    parser = MarkdownIt("commonmark").enable("table")
    # A name of some hundred signs, each of several bytes, would leave parts out.
    page, tame = (
        check_as_markdown(sample_check.hostile(each), max_bytes=1 << 24) for each in (name, "x")
    )
    assert list(shape(parser.parse(page))) == list(shape(parser.parse(tame)))
    lines = page.split("\n")
    assert len(lines) == len(tame.split("\n"))
    assert all(line.isprintable() and "##[" not in line for line in lines)
