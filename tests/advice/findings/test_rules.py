"""All rules together, and their pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from finding_evidence import evidence_of, graph_of, on, op, two_devices

from placement_advisor.advice.findings.explanations import page
from placement_advisor.advice.findings.rules import RULES, find_all
from placement_advisor.errors import AdvisorError

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "placement_advisor" / "advice" / "findings" / "pages"


def test_what_does_not_fit_comes_first_then_what_saves_most():
    graph = graph_of(
        [op("left", 8), op("right", 200), op("meet", 1)], ("left", "meet"), ("right", "meet")
    )
    split = on(graph, "halves", {"right": "b"})
    evidence = evidence_of(
        graph,
        {"left": 100, "right": 60, "meet": 10},
        split,
        cluster=two_devices(memory_bytes=208, launch_overhead_ns=20),
        requested_device_of={"left": "GPU:0"},
    )
    codes = [finding.code for finding in find_all(evidence)]
    # Neither fits; joining right saves most, then launches. (Left's home is where it is anyway.)
    assert codes[:2] == ["PA401", "PA401"]
    savings = [finding.saving_ns or 0 for finding in find_all(evidence)[2:]]
    assert len(savings) >= 2
    assert savings == sorted(savings, reverse=True)


def test_a_graph_without_ops_has_no_findings():
    assert find_all(evidence_of(graph_of([]), {})) == ()


def test_codes_are_unique_and_in_order():
    codes = [rule.CODE for rule in RULES]
    assert codes == sorted(set(codes))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.CODE)
def test_every_finding_has_a_page_with_what_when_and_cure(rule):
    text = page(rule.CODE)
    assert text.startswith(f"# {rule.CODE} {rule.NAME}\n\n")
    assert "\n## When it is found\n" in text
    assert "\n## What to do\n" in text
    assert page(rule.CODE.lower()) == text


def test_links_between_pages_lead_somewhere_and_are_codes_in_a_terminal():
    files = {path.name for path in PAGES.glob("*.md")}
    assert files == {f"{rule.CODE}.md" for rule in RULES}
    for name in files:
        text = (PAGES / name).read_text(encoding="utf-8")
        assert set(re.findall(r"\]\(([^)\s]+)\)", text)) <= files
        assert "](" not in page(name.removesuffix(".md"))


def test_the_documentation_lists_every_finding_with_its_page():
    text = (ROOT / "docs" / "findings" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(PA\d+)\]\((\S+)\) \| (\S+) \|", text, re.MULTILINE)
    assert [(code, name) for code, _, name in rows] == [(rule.CODE, rule.NAME) for rule in RULES]
    assert all((ROOT / "docs" / "findings" / path).is_file() for _, path, _ in rows)


def test_an_unknown_code_is_answered_with_the_known_ones():
    with pytest.raises(AdvisorError, match="no finding is called 'PA999'; there are PA101, PA102"):
        page("PA999")
