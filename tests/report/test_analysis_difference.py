import json
from dataclasses import replace

import jsonschema
import pytest
import sample_analysis
from layer_models import model
from sample_analysis import published

from placement_advisor.analysis.analysis_result import AdviceVerdict
from placement_advisor.files.contract import plain
from placement_advisor.report.terminal import render_difference
from placement_advisor.results.candidate import RatioInterval
from placement_advisor.results.contracts import load_schema
from placement_advisor.results.difference import difference

MS = 1_000_000


@pytest.fixture
def before():
    return published(sample_analysis.sample())


def with_towers(of, low, median, high, *, copies_ms=0):
    """The analysis with another ratio of `towers`, which waits so much longer for copies."""
    single, towers, *others = of.candidates
    step = towers.measured
    more_ns = round(copies_ms * MS)
    longer_ns = step.step_ns.median + more_ns
    profiled_ns = step.step_ns.median * step.profiler_overhead + more_ns
    slower = replace(
        step,
        step_ns=replace(step.step_ns, median=longer_ns),
        ratio_to_single=RatioInterval(median=median, ci95=(low, high)),
        exposed_by_device_ns={
            device: wait_ns + more_ns for device, wait_ns in step.exposed_by_device_ns.items()
        },
        profiler_overhead=profiled_ns / longer_ns,
    )
    return replace(of, candidates=(single, replace(towers, measured=slower), *others))


def staying(of):
    changes = {"verdict": AdviceVerdict.STAY_SINGLE, "answer": "stay single: so be it"}
    return replace(of, recommendation=replace(of.recommendation, **changes))


def test_an_analysis_does_not_differ_from_itself_and_the_same_verdict_needs_no_reason(before):
    found = difference(before, before, None)
    assert (found.changes, found.why, found.layers) == ((), (), None)
    assert [each.moved for each in found.candidates] == [False, False]
    text = render_difference(found)
    assert "Changed\n  nothing that an analysis records\n" in text
    assert "not beyond their intervals: towers" in text
    assert difference(before, with_towers(before, 0.1, 0.2, 0.3), None).why == ()


def test_a_candidate_moved_only_where_its_intervals_do_not_overlap(before):
    low = with_towers(before, 0.58, 0.59, 0.61)
    near = with_towers(before, 0.60, 0.62, 0.64)
    far = with_towers(before, 0.62, 0.63, 0.64)
    for then, now, moved in ((low, near, False), (low, far, True), (far, low, True)):
        towers = difference(then, now, None).candidates[1]
        assert towers.moved is moved


def test_the_part_that_changed_most_is_named_and_so_is_why(before):
    now = staying(with_towers(before, 1.04, 1.05, 1.06, copies_ms=20))
    found = difference(before, now, None)
    assert found.candidates[1].moved_most == "copies"
    assert found.why == (
        "the speed-up of towers moved beyond its interval; of its step copies changed most",
        "nothing that an analysis records has changed: what else ran on the machine may have",
    )
    text = render_difference(found)
    assert text.startswith("then  split: towers, 1.69×")
    assert "\nnow   stay single: so be it\n" in text
    assert "towers, then  30.5 ms  1.69× (1.64–1.72)  29.1 ms  1.56 ms" in text
    assert "towers, now   50.5 ms  0.95× (0.94–0.96)  29.1 ms  21.6 ms" in text
    assert "\nchanged most: towers copies\n" in text


def test_without_figures_that_compare_or_an_interval_that_moved_the_reason_says_so(before):
    now = staying(with_towers(before, 0.57, 0.60, 0.99))
    first, *_ = difference(before, now, None).why
    assert first.startswith("no speed-up that a verdict is about moved beyond its interval")
    simulated = published(sample_analysis.unmeasured())
    found = difference(simulated, before, None)
    assert found.basis is None
    assert found.candidates == ()
    assert found.why == ("then simulated, now measured: figures of the two do not compare",)
    assert "then measured" not in render_difference(found).splitlines()[-1]
    single, _, alternating = before.candidates
    now = staying(replace(before, candidates=(single, alternating)))
    found = difference(before, now, None)
    assert found.why[0] == "towers has no result now"
    assert found.candidates[1].moved is None
    assert "with a speed-up in only one of the two analyses: towers" in render_difference(found)


def test_what_changed_is_told_by_area(before):
    there, back = before.testbed.links
    # The other one is as far off as a new calibration may be.
    links = (replace(there, latency_ns=300_000), replace(back, latency_ns=250_000))
    now = replace(
        before,
        tensorflow_version="2.22.0",
        options=replace(before.options, rounds=40),
        model=replace(before.model, batch_size=64, graph_fingerprint="f"),
        testbed=replace(before.testbed, links=links),
    )
    latency = ("worker:0 → worker:1", "1.50 GB/s, 240 µs", "1.50 GB/s, 300 µs")
    changes = difference(before, now, None).changes
    assert [(each.area, each.name, each.before, each.after) for each in changes] == [
        ("graph", "batch", "32", "64"),
        ("graph", "fingerprint", "0123456789abcdef", "f"),
        ("hardware", *latency),
        ("versions", "TensorFlow", "2.21.0", "2.22.0"),
        ("options", "rounds", "not given", "40"),
    ]


@pytest.mark.parametrize(
    ("then", "layers", "says"),
    [
        (["in -> a", "a -> b", "b -> c"], ("c",), "1 with other ops: c"),
        (["in -> a", "in -> b"], (), "none with other ops: names, or what reads what, differ"),
    ],
)
def test_layers_whose_ops_differ_are_named(before, then, layers, says):
    found = difference(before, before, (model(*then), model("in -> a", "a -> b")))
    assert found.layers == layers
    assert f"layers    {says}\n" in render_difference(found)


@pytest.mark.parametrize("ratio", [(0.58, 0.59, 0.61), (1.04, 1.05, 1.06)])
def test_the_json_keeps_its_contract(before, ratio):
    found = difference(before, staying(with_towers(before, *ratio)), None)
    content = plain(found)
    jsonschema.validate(json.loads(json.dumps(content, allow_nan=False)), load_schema("difference"))
    single, towers = content["candidates"]
    assert single["before"] == single["after"]
    assert towers["moved"] is (ratio[0] > 1)
    assert towers["after"]["speedup"]["estimate"] == pytest.approx(1 / ratio[1])


def test_names_cannot_drive_a_terminal_nor_break_a_line(before):
    evil = "a\x1b[2J\n::error::b"
    answer = replace(before.recommendation, answer=evil)
    now = replace(before, recommendation=answer, options=replace(before.options, hardware=evil))
    text = render_difference(difference(before, now, None))
    assert "\x1b" not in text
    assert not any(line.startswith("::") for line in text.splitlines())
