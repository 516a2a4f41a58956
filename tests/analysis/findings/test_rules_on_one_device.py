from dataclasses import replace
from types import MappingProxyType

import pytest
from finding_evidence import evidence_of, graph_of, growing_of, measured_as, op, told, two_devices
from sample_break_even import FOUND, THROUGHOUT, swept

from placement_advisor.analysis.findings import step_rules
from placement_advisor.analysis.findings.rules import find_all
from placement_advisor.cost.batch import Throughput
from placement_advisor.cost.table import CostSource
from placement_advisor.graph.op import Role
from placement_advisor.measurement.measurement import InputTiming, LoopTiming
from placement_advisor.tf.answers import LeftOut

MS = 1_000_000
STEP = graph_of([op("forward", 8), op("update", 8, Role.UPDATE)], ("forward", "update"))
GOOD_INPUT = "TensorSlice ParallelMap Cache Prefetch"


def _evidence(costs_ns=(60, 30), launch_ns=0, **more):
    return evidence_of(
        STEP,
        {"forward": costs_ns[0], "update": costs_ns[1]},
        cluster=two_devices(launch_overhead_ns=launch_ns),
        **more,
    )


def _waits(**more):
    return told(step_rules.find_device_waits_for_host, _evidence(**more))


def _input(batch_ns, transformations=GOOD_INPUT):
    names = tuple(f"{each}Dataset" for each in transformations.split())
    return InputTiming(batch_ns=(batch_ns,) * 3, transformations=names)


def test_a_device_that_mostly_launches_is_told_what_it_can_do():
    (finding,) = _waits(launch_ns=15)
    assert "a computes for 75 % of a step (90 ns of 120 ns, simulated)" in finding.finding
    assert "steps_per_execution" in finding.action
    # What launches take is more than any of the advice saves.
    assert finding.saving is None
    (finding,) = _waits(launch_ns=15, python_call="PyFunc")
    assert "jit_compile" not in finding.action
    (finding,) = _waits(launch_ns=15, left_out=LeftOut(steps_per_call=4))
    assert finding.action.endswith("jit_compile=True on one device")


@pytest.mark.parametrize(
    "step",
    [
        {"launch_ns": 5},
        # What launches cost in a program that XLA compiles is not known.
        {"launch_ns": 15, "left_out": LeftOut(jit_compile=True)},
        {"launch_ns": 15, "left_out": LeftOut(settings=("tf.config.optimizer.set_jit",))},
        # Input that keeps up.
        {"measured": {"single": measured_as(20 * MS)}, "input_timing": _input(21 * MS)},
    ],
)
def test_a_device_that_mostly_computes_does_not_wait(step):
    assert _waits(**step) == ()


@pytest.mark.parametrize(
    ("transformations", "advised"),
    [
        ("", "parallel map, prefetch, cache, larger reads"),
        ("Map Batch", "parallel map, prefetch, cache, larger reads"),
        ("Batch Prefetch Repeat", "cache, larger reads"),
        ("ParallelMap Batch", "prefetch, cache, larger reads"),
        (GOOD_INPUT, "larger reads"),
    ],
)
def test_what_the_input_has_is_not_advised(transformations, advised):
    (finding,) = _waits(input_timing=_input(900, transformations))
    assert finding.action == f"make the input faster first: {advised}, less work per sample"


def test_input_slower_than_the_step_saves_as_measured_or_as_simulated():
    run = {"single": measured_as(20 * MS)}
    (finding,) = _waits(measured=run, input_timing=_input(50 * MS), batch_size=32)
    # 32 samples in 50 ms are 640 in a second; the device works for 20 of 50 ms.
    assert "a batch takes 50.0 ms (640 samples/s) to load (measured, alone)" in finding.finding
    assert "busy for at most 40 % of the time" in finding.finding
    assert (finding.saving.saving_ns, finding.saving.basis) == (30 * MS, "measured")
    (finding,) = _waits(input_timing=_input(900))
    assert (finding.saving.saving_ns, finding.saving.basis) == (900 - 90, "simulated")


def _updating(name, size_bytes, flops):
    first = op(name, size_bytes, flops=flops, bytes_accessed=0)
    update = op("update", 8, Role.UPDATE, flops=7, bytes_accessed=0)
    return graph_of([first, update], (name, "update"))


def _even(samples):
    """A step whose forward pass grows with the batch, and whose update does not."""
    return _updating("forward", 8 * samples, 100 * samples)


def _of_pairs(samples):
    """A step that scores all pairs of its samples."""
    return _updating("pairs", 4 * samples**2, samples**2)


def _points(*steps):
    return tuple(Throughput(batch=n, samples_per_s=n / step_ns * 1e9) for n, step_ns in steps)


def _of_batch(*steps, at=_even, costs_ns=MappingProxyType({"forward": 60, "update": 30}), **more):
    """Return the evidence of a step of 10 samples, measured at some batches."""
    return evidence_of(
        at(10),
        costs_ns,
        batch_size=10,
        growing=growing_of(at, 10, costs_ns),
        **{"batch_points": _points(*steps), **more},
    )


def _small(*steps, **more):
    return told(step_rules.find_batch_too_small, _of_batch(*steps, **more))


def test_of_a_batch_that_is_too_small_it_is_told_by_hand_which_one_to_take():
    # t(n) = 400 + 10 n: at 10 samples 500, of which 100 go to samples. 9 · 400 / 10 = 360.
    (finding,) = _small((10, 500), (5, 450), (2, 420))
    assert "at batch 10 a step reaches 20 % of the best rate" in finding.finding
    assert "20,000,000 of 100,000,000 samples/s (measured, your step as it is" in finding.finding
    assert finding.action.startswith("take a batch of 360, for 90 % of the best rate")
    assert finding.batch_size == 360
    # 360 samples take 4,000 then, 10 of them a 36th of that.
    saving = finding.saving
    assert (saving.saving_ns, saving.basis) == (round(500 - 4_000 / 36), "extrapolated")
    # Of a batch that ran too, the measurement counts.
    (finding,) = _small((10, 500), (5, 450), (360, 6_000))
    assert finding.finding.startswith(
        "a step makes 20,000,000 samples/s at batch 10 and 60,000,000 at batch 360 (measured"
    )
    assert finding.action.startswith("take a batch of 360, if it fits")
    assert (finding.saving.saving_ns, finding.saving.basis) == (round(500 - 6_000 / 36), "measured")


def test_a_batch_that_ran_saves_what_its_turns_and_another_run_leave_in_doubt():
    def ends(points):
        (finding,) = _small(batch_points=points)
        return finding.saving.low_ns, finding.saving.high_ns

    then_ns = 6_000 / 36
    points = (*_points((10, 500), (5, 450)), replace(*_points((360, 6_000)), within=1.2))
    low_ns, high_ns = ends(points)
    again_ns = 0.04 * 500
    assert 500 - 1.2 * then_ns - again_ns < low_ns < 500 - 1.2 * then_ns
    assert 500 - then_ns / 1.2 < high_ns < 500 - then_ns / 1.2 + again_ns
    # What turns of the own batch leave in doubt is independent of that.
    points = (replace(points[0], within=1.2), *points[1:])
    wider_ns, higher_ns = ends(points)
    assert 500 - 1.2**2 * then_ns < wider_ns < low_ns
    assert high_ns < higher_ns < 500 - then_ns / 1.2**2 + again_ns


def test_a_batch_that_did_not_run_saves_what_all_lines_agree_on():
    (finding,) = _small((10, 500), (5, 450), (2, 425))
    assert finding.saving.low_ns < finding.saving.saving_ns < finding.saving.high_ns
    # Through 5 and 2 samples 408 + 8.3 n: of 360, 10 take 94; through 10 and 5 400 + 10 n: 111.
    assert finding.saving.high_ns == pytest.approx(500 - 94, abs=2)
    # Whether two lie on a line nobody knows.
    (finding,) = _small((10, 500), (5, 450))
    assert finding.saving is None


def test_of_pairs_of_samples_the_best_batch_is_where_the_rate_is_highest_by_hand():
    # t(n) = 400 + n²: of multiples of 8 the rate n / t(n) is highest at 24, where it is 24 / 976.
    # A line through the first and the last point, 350 + 15 n, would promise 1 / 15 without end.
    costs_ns = {"pairs": 100, "update": 400}
    (finding,) = _small((10, 500), (8, 464), (5, 425), at=_of_pairs, costs_ns=costs_ns)
    assert "at batch 10 a step reaches 81 % of the best rate" in finding.finding
    assert "beyond about 24 samples the rate falls again: for 'pairs'" in finding.finding
    # 16 samples take 656, a rate of 0.992 of the best; 8 are less than it has.
    assert finding.batch_size == 16
    assert (finding.saving.saving_ns, finding.saving.basis) == (500 - 410, "extrapolated")


def test_no_batch_is_named_that_is_far_off_not_known_or_not_taken():
    # 9 · 1000 / 1 = 9000 is 900 times the batch.
    (finding,) = _small((10, 1_010), (5, 1_005))
    assert "more than 64 times as large" in finding.action
    assert "9000" not in finding.action
    assert (finding.saving, finding.batch_size) == (None, None)
    assert told(step_rules.find_batch_too_small, _evidence(batch_size=10)) == ()
    (finding,) = _small((10, 500), (5, 450), takes_batch_size=False)
    assert finding.batch_size is None
    # 9 · 150 / 10 = 135.
    (finding,) = _small((10, 250), (5, 200))
    assert finding.batch_size == 136


@pytest.mark.parametrize(
    ("steps", "more"),
    [
        # It is large enough.
        (((10, 100), (5, 55)), {}),
        # A larger one ran and is no faster.
        (((10, 500), (5, 450), (360, 17_000)), {}),
        # Of pairs of samples it is beyond the best one.
        (
            ((10, 130), (8, 94), (5, 55)),
            {"at": _of_pairs, "costs_ns": {"pairs": 100, "update": 30}},
        ),
        # Measurements make no line.
        (((10, 500),), {}),
        (((10, 600), (5, 1_500), (2, 500)), {}),
    ],
)
def test_where_no_larger_batch_is_surely_better_none_is_advised(steps, more):
    assert _small(*steps, **more) == ()


@pytest.mark.parametrize(
    ("source", "basis"), [("assumed", "simulated"), ("measured", "extrapolated")]
)
def test_a_step_that_did_not_run_is_simulated_at_each_batch(source, basis):
    # forward goes with the batch, 60 / 10; the other 30 do not. 9 · 30 / 6 = 45.
    (finding,) = _small(source=CostSource(source))
    assert finding.batch_size == 48
    assert "(simulated)" in finding.finding
    # 48 samples take 318.
    assert (finding.saving.saving_ns, finding.saving.basis) == (round(90 - 318 / 4.8), basis)


@pytest.mark.parametrize(
    ("ratios", "recommended", "said"),
    [
        ((1.2, 1.1, 0.8, 0.7), None, ". At 360 samples a split (towers) would win (simulated)"),
        ((0.7, 0.8, 1.1, 1.2), "towers", ". At 360 samples no split would win (simulated)"),
        ((0.7, 0.8, 0.8, 0.9), "towers", ""),
        ((1.2, 1.1, 1.1, 1.2), None, ""),
        # Between 320 and 640 it changes; where is not known well.
        ((1.2, 1.1, 1.1, 0.7), None, ""),
    ],
)
def test_a_batch_that_changes_the_verdict_says_so(ratios, recommended, said):
    values = zip((1, 10, 320, 640), ratios, strict=True)
    points = tuple(swept(n, ratio) for n, ratio in values)
    found = replace(FOUND, batch=replace(THROUGHOUT, here=points[1], points=points))
    evidence = _of_batch((10, 500), (5, 450), break_even=found, recommended=recommended)
    (finding,) = told(step_rules.find_batch_too_small, evidence)
    assert finding.action.endswith(f"before splitting{said}")


def test_what_is_extrapolated_never_leads():
    # Launches take 30 of 120. What they save nobody knows; it comes first all the same.
    cluster = two_devices(launch_overhead_ns=15)
    found = find_all(_of_batch((10, 500), (5, 450), (2, 420), cluster=cluster))
    codes = [finding.code for finding in found if not finding.is_hypothetical]
    assert codes.index("PA301") < codes.index("PA302")
    assert {finding.code for finding in found if finding.saving is not None} == {"PA302"}


@pytest.mark.parametrize(
    ("transformations", "missing"),
    [
        ("TensorSlice Batch", "prefetch"),
        ("Map Cache Batch", "prefetch and no parallel map"),
        ("ParallelMap Prefetch Batch", "prefetch at its end and no cache"),
        ("Map Batch", "prefetch and no parallel map and no cache"),
    ],
)
def test_what_the_input_lacks_is_named(transformations, missing):
    evidence = _evidence(input_timing=_input(45, transformations))
    (finding,) = told(step_rules.find_input_without_overlap, evidence)
    assert finding.finding.startswith(f"the input pipeline has no {missing}, and a batch")
    assert "45 ns (measured, alone), 50 % of a step's 90 ns (simulated)" in finding.finding
    assert finding.saving is None


@pytest.mark.parametrize(
    "timing",
    [
        # It ends in a prefetch, and so overlaps.
        _input(45, "TensorSlice Prefetch"),
        _input(45, "Map Batch Prefetch"),
        _input(45, "ParallelMap PaddedBatch Prefetch Options"),
        _input(45, "Batch Prefetch Repeat Take"),
        # It has everything, or next to no work.
        _input(45),
        _input(8, "Map"),
        None,
        # It does not tell how it is made.
        _input(45, ""),
    ],
)
def test_a_pipeline_that_overlaps_or_has_little_to_hide_is_left_alone(timing):
    assert told(step_rules.find_input_without_overlap, _evidence(input_timing=timing)) == ()


def _loop(one_ms, several_ms):
    one_ns, several_ns = (tuple(ms * MS for ms in times) for times in (one_ms, several_ms))
    return LoopTiming(steps_per_call=10, one_ns=one_ns, several_ns=several_ns)


def test_a_loop_whose_calls_cost_more_than_its_steps_by_hand():
    evidence = _evidence(loop_timing=_loop((5, 6, 9), (2, 2, 3)))
    (finding,) = told(step_rules.find_one_step_per_call, evidence)
    assert "a step takes 6.00 ms, or 2.00 ms with 10 steps a call" in finding.finding
    # 3, 4 and 6 in each round.
    assert (finding.saving.saving_ns, finding.saving.basis) == (4 * MS, "measured")
    assert "steps_per_execution=10" in finding.action


@pytest.mark.parametrize(
    "timing",
    [
        None,
        _loop((50, 50, 50), (47, 47, 47)),  # A sixteenth.
        _loop((5, 6, 2), (2, 2, 3)),  # One round says otherwise.
    ],
)
def test_a_loop_that_costs_little_or_surely_nothing_is_left_alone(timing):
    assert told(step_rules.find_one_step_per_call, _evidence(loop_timing=timing)) == ()
