import random
import re
from pathlib import Path

import pytest
from finding_evidence import evidence_of, graph_of, growing_of, measured_as, on, op, two_devices

from placement_advisor.analysis.analysis_result import Saving
from placement_advisor.analysis.findings import evidence
from placement_advisor.analysis.findings.rules import RULES, find_all, finding_page
from placement_advisor.cost.batch import Throughput
from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op import Role
from placement_advisor.measurement.measurement import InputTiming, LoopTiming
from placement_advisor.simulator.sensitivity import CostUncertainty, PredictedRatio

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "placement_advisor" / "analysis" / "findings" / "pages"


def test_what_does_not_fit_comes_first_then_what_saves_most():
    graph = graph_of(
        [op("left", 8), op("right", 200), op("meet", 1)], ("left", "meet"), ("right", "meet")
    )
    split = on(graph, "halves", {"right": "b"})
    known = evidence_of(
        graph,
        {"left": 100, "right": 60, "meet": 10},
        split,
        cluster=two_devices(memory_bytes=5, launch_overhead_ns=20),
        requested_device_of={"left": "GPU:0"},
        recommended="halves",
    )
    found = find_all(known)
    # Neither fits anywhere; joining right with meet saves most, then launches.
    assert [each.code for each in found[:3]] == ["PA401"] * 3
    savings = [each.saving.saving_ns if each.saving else 0 for each in found[3:]]
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


def test_what_is_found_in_a_split_is_ranked_only_where_it_is_recommended_or_the_users():
    findings = find_all(_hand_split())
    hypothetical = [finding.is_hypothetical for finding in findings]
    assert hypothetical == sorted(hypothetical)
    by_code = {finding.code: finding for finding in findings}
    # No tf.device anywhere, and no split that is recommended.
    assert by_code["PA101"].is_hypothetical
    assert by_code["PA201"].is_hypothetical
    assert all(f.saving is None for f in findings if f.is_hypothetical)
    by_code = {f.code: f for f in find_all(_hand_split(recommended="by hand"))}
    assert not by_code["PA101"].is_hypothetical
    assert by_code["PA101"].saving.saving_ns == 410
    # With gradients beside their forward ops no join is left that would make it faster.
    assert "PA201" not in by_code
    # Of another one, what a tape would make of this model stays a supposition.
    by_code = {f.code: f for f in find_all(_hand_split(recommended="towers"))}
    assert by_code["PA101"].is_hypothetical
    asked = {"first": "GPU:0", "second": "GPU:1"}
    own = [f for f in find_all(_hand_split(requested_device_of=asked)) if not f.is_hypothetical]
    # 50, to b 110, 60, back 410, 120, in place of 50 + 60 + 120.
    assert [(finding.code, finding.saving.saving_ns) for finding in own] == [("PA101", 750 - 230)]
    assert own[0].action.startswith(
        "give your own split up: it takes 750 ns for a step, and 340 ns with all that helps here, "
        "one device 230 ns (simulated); if you keep it, compute gradients with tf.gradients("
    )
    assert _hand_split(recommended="batch").splits == ()


def test_codes_are_in_order_listed_in_the_documentation_and_an_unknown_one_is_answered():
    codes = [rule.code for rule in RULES]
    assert codes == sorted(set(codes))
    text = (ROOT / "docs" / "reference" / "findings.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(PA\d+)\]\((\S+)\) \| (\S+) \|", text, re.MULTILINE)
    assert [(code, name) for code, _, name in rows] == [(rule.code, rule.name) for rule in RULES]
    assert all((ROOT / "docs" / "reference" / path).is_file() for _, path, _ in rows)
    with pytest.raises(AdvisorError, match="no finding is called 'PA999'; there are PA101, PA102"):
        finding_page("PA999")
    files = {path.name for path in PAGES.glob("*.md")}
    assert files == {f"{rule.code}.md" for rule in RULES}
    for name in files:
        text = (PAGES / name).read_text(encoding="utf-8")
        assert set(re.findall(r"\]\(([^)\s]+)\)", text)) <= files
        assert "](" not in finding_page(name.removesuffix(".md"))


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


DOUBT = CostUncertainty(copies=1.5, launches=1.5, ops=1.1)


@pytest.mark.parametrize(("low_ns", "high_ns"), [(0, 9), (-3, 9), (6, 9), (1, 4), (1, 11)])
def test_a_saving_lies_within_its_ends_and_is_surely_one(low_ns, high_ns):
    with pytest.raises(ValueError, match="is no saving"):
        Saving(step_ns=10, saving_ns=5, low_ns=low_ns, high_ns=high_ns)


def of_step(step_ns, saving_ns, low_ns, high_ns):
    """Return a saving that was simulated."""
    return Saving(step_ns=step_ns, saving_ns=saving_ns, low_ns=low_ns, high_ns=high_ns)


def test_savings_are_sure_by_ratio_by_run_and_by_ops():
    assert evidence.certain_saving(99, 50, [1, 90]) == of_step(99, 50, 1, 90)
    assert evidence.certain_saving(99, 50, [0.4, 90]) is None
    assert evidence.certain_saving(99, 50, [-10, 90]) is None
    ratio = PredictedRatio(ratio=0.5, low=0.4, high=0.7, doubt=DOUBT)
    assert evidence.saving_by_ratio(100, ratio) == of_step(100, 50, 30, 60)
    doubtful = PredictedRatio(ratio=0.9, low=0.8, high=1.01, doubt=DOUBT)
    assert evidence.saving_by_ratio(100, doubtful) is None
    alike = evidence.saving_by_run(1_000, 500, (500, 500))
    assert alike.basis == "measured"
    # In another run some hundredths of the step more or less are saved.
    assert (alike.step_ns, alike.low_ns, alike.high_ns) == (1_000, 460, 540)
    turns = evidence.saving_by_run(1_000, 500, (400, 700))
    assert 390 < turns.low_ns < 395
    assert 702 < turns.high_ns < 710
    # A step saves no more than it takes.
    assert evidence.saving_by_run(1_000, 980, (970, 990)).high_ns == 1_000
    # Nor is a saving sure that another run may turn around.
    assert evidence.saving_by_run(1_000, 30, (29, 31)) is None
    assert evidence.saving_by_ops(100, 60, within=2.0) == of_step(100, 40, 20, 80)
    assert evidence.saving_by_ops(100, 20, within=2.0) == of_step(100, 80, 40, 100)


def _drawn(seed):
    """Return the evidence of a random step with splits, runs, loops, input and batches."""
    draw = random.Random(seed)
    names = [f"op{i}" for i in range(draw.randint(2, 9))]
    sizes = [draw.choice([1, 50, 900]) for _ in names]
    edges = {
        (names[draw.randrange(i)], names[i])
        for i in range(1, len(names))
        for _ in range(draw.randint(0, 2))
    }

    def at(samples):
        return graph_of(
            [
                op(name, size * samples // 32, flops=100 * samples, bytes_accessed=0)
                for name, size in zip(names, sizes, strict=True)
            ],
            *sorted(edges),
        )

    graph, costs_ns = at(32), {name: draw.randint(0, 500) for name in names}
    splits = [on(graph, label, {n: draw.choice("ab") for n in names}) for label in ("one", "two")]
    ran = {label: measured_as(draw.randint(1, 3_000)) for label in ("single", "one")}
    fixed_ns = draw.randint(0, 2_000)
    batches = tuple(
        Throughput(
            batch=size,
            samples_per_s=size * 1e9 / (fixed_ns + 10 * size * draw.uniform(0.95, 1.05)),
            within=draw.uniform(1, 2),
        )
        for size in draw.choice([(32, 16, 8), (32, 16, 8, 64), (32, 16)])
    )
    return evidence_of(
        graph,
        costs_ns,
        *splits,
        growing=growing_of(at, 32, costs_ns),
        cluster=two_devices(launch_overhead_ns=draw.choice([0, 20])),
        measured=draw.choice([{}, ran]),
        recommended=draw.choice([None, "one", "two"]),
        requested_device_of=draw.choice([{}, {n: f"GPU:{draw.randint(0, 1)}" for n in names}]),
        batch_size=32,
        batch_points=draw.choice([(), batches]),
        loop_timing=LoopTiming(
            steps_per_call=10,
            one_ns=tuple(draw.randint(500, 900) for _ in range(5)),
            several_ns=tuple(draw.randint(300, 600) for _ in range(5)),
        ),
        input_timing=InputTiming(
            batch_ns=tuple(draw.randint(1, 2_000) for _ in range(12)), transformations=("Map",)
        ),
    )


def test_whatever_is_found_saves_something_for_sure_or_says_no_saving():
    said = set()
    for seed in range(300):
        for finding in find_all(_drawn(seed)):
            if finding.saving is not None:
                said.add(finding.code)
                assert 0 < finding.saving.low_ns <= finding.saving.saving_ns
                assert finding.saving.saving_ns <= finding.saving.high_ns
    # Else this would have held for nothing.
    assert said >= {"PA201", "PA202", "PA203", "PA301", "PA302", "PA308"}
