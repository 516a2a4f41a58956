"""All rules together, and their pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from finding_evidence import evidence_of, graph_of, on, op, two_devices

from placement_advisor.analysis.findings.rules import RULES, find_all, finding_page
from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op import Role

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "placement_advisor" / "analysis" / "findings" / "pages"


def test_what_does_not_fit_comes_first_then_what_saves_most():
    graph = graph_of(
        [op("left", 8), op("right", 200), op("meet", 1)], ("left", "meet"), ("right", "meet")
    )
    split = on(graph, "halves", {"right": "b"})
    evidence = evidence_of(
        graph,
        {"left": 100, "right": 60, "meet": 10},
        split,
        cluster=two_devices(memory_bytes=5, launch_overhead_ns=20),
        requested_device_of={"left": "GPU:0"},
        recommended="halves",
    )
    codes = [finding.code for finding in find_all(evidence)]
    # Neither fits anywhere; joining right with meet saves most, then launches.
    assert codes[:3] == ["PA401"] * 3
    savings = [
        finding.saving.saving_ns if finding.saving else 0 for finding in find_all(evidence)[3:]
    ]
    assert len(savings) >= 2
    assert savings == sorted(savings, reverse=True)


def _hand_split(**more):
    """A tape's split of a chain beside one whose gradients follow, which is faster."""
    graph = graph_of(
        [op("first", 100), op("second", 400), op("second/grad", 8, Role.BACKWARD, layer="second")],
        ("first", "second"),
        ("second", "second/grad"),
    )
    by_hand = on(graph, "by hand", {"second": "b"}, "towers-forward-only")
    following = on(graph, "towers", {"second": "b", "second/grad": "b"}, "towers")
    costs = {"first": 50, "second": 60, "second/grad": 120}
    return evidence_of(graph, costs, following, by_hand, **more)


def test_what_is_found_in_a_split_that_nobody_makes_has_no_rank_and_no_saving():
    findings = find_all(_hand_split())
    hypothetical = [finding.is_hypothetical for finding in findings]
    assert hypothetical == sorted(hypothetical)
    by_code = {finding.code: finding for finding in findings}
    # No tf.device anywhere, and no split that is recommended.
    assert by_code["PA101"].is_hypothetical
    assert by_code["PA201"].is_hypothetical
    assert all(f.saving is None for f in findings if f.is_hypothetical)


def test_what_is_found_in_a_recommended_split_is_ranked_with_its_saving():
    by_code = {f.code: f for f in find_all(_hand_split(recommended="by hand"))}
    assert not by_code["PA101"].is_hypothetical
    assert by_code["PA101"].saving.saving_ns == 410
    # With gradients beside their forward ops no join is left that would make it faster.
    assert "PA201" not in by_code
    # Of another one, what a tape would make of this model stays a supposition.
    by_code = {f.code: f for f in find_all(_hand_split(recommended="towers"))}
    assert by_code["PA101"].is_hypothetical


def test_what_is_found_in_the_users_own_scopes_is_ranked_with_its_saving():
    asked = {"first": "GPU:0", "second": "GPU:1"}
    own = [f for f in find_all(_hand_split(requested_device_of=asked)) if not f.is_hypothetical]
    # 50, to b 110, 60, back 410, 120, in place of 50 + 60 + 120.
    assert [(finding.code, finding.saving.saving_ns) for finding in own] == [("PA101", 750 - 230)]
    assert own[0].action.startswith(
        "give your own split up: it takes 750 ns for a step, and 340 ns with all that helps here, "
        "one device 230 ns (simulated); if you keep it, compute gradients with tf.gradients("
    )


def test_a_variable_read_across_is_hypothetical_in_a_rejected_split():
    read = op("read", 5_000, kind="ReadVariableOp", variable="w", layer="low")
    graph = graph_of(
        [op("w", kind="VarHandleOp", role=Role.VARIABLE, variable="w", layer="low"), read,
         op("high", 1), op("rest")],
        ("w", "read"), ("read", "high"),
    )  # fmt: skip
    split = on(graph, "towers", {"high": "b", "rest": "b"})
    costs = {"read": 1, "high": 10, "rest": 1}
    (found,) = [f for f in find_all(evidence_of(graph, costs, split)) if f.code == "PA103"]
    assert (found.is_hypothetical, found.saving) == (True, None)
    told = evidence_of(graph, costs, split, recommended="towers")
    (found,) = [f for f in find_all(told) if f.code == "PA103"]
    assert not found.is_hypothetical
    assert found.saving


def test_a_recommended_split_of_the_batch_leaves_no_split_of_the_graph_to_judge():
    judged = _hand_split(recommended="batch").splits
    assert judged == ()


def test_a_graph_without_ops_has_no_findings():
    assert find_all(evidence_of(graph_of([]), {})) == ()


def test_codes_are_unique_and_in_order():
    codes = [rule.code for rule in RULES]
    assert codes == sorted(set(codes))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_finding_has_a_page_with_what_when_and_cure(rule):
    text = finding_page(rule.code)
    assert text.startswith(f"# {rule.code} {rule.name}\n\n")
    assert "\n## When it is found\n" in text
    assert "\n## What to do\n" in text
    assert finding_page(rule.code.lower()) == text


@pytest.mark.parametrize("code", ["PA302", "PA305", "PA306", "PA307", "PA308"])
def test_what_to_do_before_a_split_says_when_it_does_not_hold_and_how_that_was_checked(code):
    headings = re.findall(r"^## (.*)$", finding_page(code), re.MULTILINE)
    wanted = ["What it would save", "When it does not hold", "How it was checked"]
    assert headings[-3:] == wanted


def test_links_between_pages_lead_somewhere_and_are_codes_in_a_terminal():
    files = {path.name for path in PAGES.glob("*.md")}
    assert files == {f"{rule.code}.md" for rule in RULES}
    for name in files:
        text = (PAGES / name).read_text(encoding="utf-8")
        assert set(re.findall(r"\]\(([^)\s]+)\)", text)) <= files
        assert "](" not in finding_page(name.removesuffix(".md"))


def test_the_documentation_lists_every_finding_with_its_page():
    page = ROOT / "docs" / "reference" / "findings.md"
    text = page.read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(PA\d+)\]\((\S+)\) \| (\S+) \|", text, re.MULTILINE)
    assert [(code, name) for code, _, name in rows] == [(rule.code, rule.name) for rule in RULES]
    assert all((page.parent / path).is_file() for _, path, _ in rows)


def test_an_unknown_code_is_answered_with_the_known_ones():
    with pytest.raises(AdvisorError, match="no finding is called 'PA999'; there are PA101, PA102"):
        finding_page("PA999")
