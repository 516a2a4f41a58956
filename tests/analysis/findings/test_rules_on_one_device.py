"""PA301 to PA303 and PA308, on the step on one device, its loop and its input."""

from __future__ import annotations

import pytest
from finding_evidence import evidence_of, graph_of, measured_as, op, two_devices

from placement_advisor.analysis.findings import (
    batch_too_small,
    device_waits_for_host,
    input_without_overlap,
    one_step_per_call,
)
from placement_advisor.cost.batch import Throughput
from placement_advisor.graph.op_graph import Role
from placement_advisor.measurement.input_timing import InputTiming
from placement_advisor.measurement.loop_timing import LoopTiming
from placement_advisor.tf.answers import LeftOut

MS = 1_000_000
STEP = graph_of([op("forward", 8), op("update", 8, Role.UPDATE)], ("forward", "update"))
GOOD_INPUT = ("TensorSliceDataset", "ParallelMapDataset", "CacheDataset", "PrefetchDataset")


def _evidence(costs_ns=(60, 30), launch_ns=0, **more):
    return evidence_of(
        STEP,
        {"forward": costs_ns[0], "update": costs_ns[1]},
        cluster=two_devices(launch_overhead_ns=launch_ns),
        **more,
    )


def _input(batch_ns, transformations=GOOD_INPUT):
    return InputTiming(batch_ns=(batch_ns,) * 3, transformations=tuple(transformations))


def test_a_device_that_mostly_launches_by_hand():
    (finding,) = device_waits_for_host.find(_evidence(launch_ns=15))
    assert "a computes for 75 % of a step (90 ns of 120 ns, simulated)" in finding.finding
    assert (finding.saving_ns, finding.saving_basis) == (30, "simulated")


@pytest.mark.parametrize(
    "left_out", [LeftOut(jit_compile=True), LeftOut(settings=("tf.config.optimizer.set_jit",))]
)
def test_what_launches_cost_in_a_program_that_xla_compiles_is_not_told(left_out):
    assert device_waits_for_host.find(_evidence(launch_ns=15, left_out=left_out)) == ()


def test_several_steps_for_each_call_are_not_advised_where_there_are_several():
    (finding,) = device_waits_for_host.find(_evidence(launch_ns=15))
    assert "steps_per_execution" in finding.action
    left_out = LeftOut(steps_per_call=4)
    (finding,) = device_waits_for_host.find(_evidence(launch_ns=15, left_out=left_out))
    assert finding.action.endswith("jit_compile=True on one device")


@pytest.mark.parametrize(
    ("transformations", "advised"),
    [
        ((), "parallel map, prefetch, cache, larger reads"),
        (("MapDataset", "BatchDataset"), "parallel map, prefetch, cache, larger reads"),
        (("BatchDataset", "PrefetchDataset", "RepeatDataset"), "cache, larger reads"),
        (("ParallelMapDataset", "BatchDataset"), "prefetch, cache, larger reads"),
        (GOOD_INPUT, "larger reads"),
    ],
)
def test_what_the_input_has_is_not_advised(transformations, advised):
    (finding,) = device_waits_for_host.find(_evidence(input_timing=_input(900, transformations)))
    assert finding.action == f"make the input faster first: {advised}, less work per sample"


def test_a_device_that_mostly_computes_is_not_found():
    assert device_waits_for_host.find(_evidence(launch_ns=5)) == ()


def test_input_slower_than_the_step_by_hand():
    run = {"single": measured_as(20 * MS)}
    (finding,) = device_waits_for_host.find(
        _evidence(measured=run, input_timing=_input(50 * MS), batch_size=32)
    )
    # 32 samples in 50 ms are 640 in a second; the device works for 20 of 50 ms.
    assert "a batch in 50.0 ms (640 samples/s) (measured, alone)" in finding.finding
    assert "busy for at most 40 % of the time" in finding.finding
    assert (finding.saving_ns, finding.saving_basis) == (30 * MS, "measured")


def test_a_step_that_was_only_simulated_makes_no_measured_saving():
    (finding,) = device_waits_for_host.find(_evidence(input_timing=_input(900)))
    assert (finding.saving_ns, finding.saving_basis) == (900 - 90, "simulated")


def test_input_that_keeps_up_is_not_found():
    run = {"single": measured_as(20 * MS)}
    evidence = _evidence(measured=run, input_timing=_input(21 * MS))
    assert device_waits_for_host.find(evidence) == ()


def _points(*steps):
    return tuple(Throughput(batch=n, samples_per_s=n / step_ns * 1e9) for n, step_ns in steps)


def test_a_batch_that_is_too_small_by_hand():
    # t(n) = 400 + 10 n: at 10 samples 500, of which 100 go to samples. 9 · 400 / 10 = 360.
    points = _points((10, 500), (20, 600))
    (finding,) = batch_too_small.find(_evidence(batch_size=10, batch_points=points))
    assert "at batch 10 a step reaches 20 % of the best rate" in finding.finding
    assert "400 ns of it do not depend on the batch, 10 ns go to each sample" in finding.finding
    assert finding.action.startswith("take a batch of 360 for 90 % of the best rate")
    # 10 samples take 100 / 0.9 then.
    assert (finding.saving_ns, finding.saving_basis) == (round(500 - 100 / 0.9), "measured")


def test_no_batch_is_named_far_from_where_the_line_was_fitted():
    # 9 · 1000 / 1 = 9000 is 900 times the batch.
    points = _points((10, 1_010), (5, 1_005))
    (finding,) = batch_too_small.find(_evidence(batch_size=10, batch_points=points))
    assert "more than 64 times this one" in finding.action
    assert "9000" not in finding.action
    assert finding.saving_ns is None


def test_a_batch_that_is_large_enough_is_not_found():
    points = _points((360, 4_000), (180, 2_200))
    assert batch_too_small.find(_evidence(batch_size=360, batch_points=points)) == ()


@pytest.mark.parametrize(
    "points", [(), _points((10, 500)), _points((10, 500), (20, 1_500), (40, 600))]
)
def test_without_a_measured_line_the_simulated_one_is_taken(points):
    # forward goes with the batch, 60 / 10; the other 30 do not. 9 · 30 / 6 = 45.
    (finding,) = batch_too_small.find(_evidence(batch_size=10, batch_points=points))
    assert finding.action.startswith("take a batch of at least 45")
    assert finding.saving_basis == "simulated"
    assert finding.finding.endswith("(simulated)")


def test_a_step_without_a_batch_has_none_to_enlarge():
    assert batch_too_small.find(_evidence(batch_size=None)) == ()


@pytest.mark.parametrize(
    ("transformations", "missing"),
    [
        (("TensorSliceDataset", "BatchDataset"), "prefetch"),
        (("MapDataset", "CacheDataset", "BatchDataset"), "prefetch and no parallel map"),
        (
            ("ParallelMapDataset", "PrefetchDataset", "BatchDataset"),
            "prefetch at its end and no cache",
        ),
        (("MapDataset", "BatchDataset"), "prefetch and no parallel map and no cache"),
    ],
)
def test_what_the_input_lacks_is_named(transformations, missing):
    evidence = _evidence(input_timing=_input(45, transformations))
    (finding,) = input_without_overlap.find(evidence)
    assert finding.finding.startswith(f"the input pipeline has no {missing}, and a batch")
    assert "45 ns (measured, alone), 50 % of a step's 90 ns (simulated)" in finding.finding
    assert finding.saving_ns is None


@pytest.mark.parametrize(
    "transformations",
    [
        ("TensorSliceDataset", "PrefetchDataset"),
        ("MapDataset", "BatchDataset", "PrefetchDataset"),
        ("ParallelMapDataset", "PaddedBatchDataset", "PrefetchDataset", "OptionsDataset"),
        ("BatchDataset", "PrefetchDataset", "RepeatDataset", "TakeDataset"),
    ],
)
def test_a_pipeline_that_ends_in_a_prefetch_overlaps_and_is_left_alone(transformations):
    assert input_without_overlap.find(_evidence(input_timing=_input(45, transformations))) == ()


def test_a_pipeline_with_everything_or_next_to_no_work_is_left_alone():
    assert input_without_overlap.find(_evidence(input_timing=_input(45))) == ()
    assert input_without_overlap.find(_evidence(input_timing=_input(8, ["MapDataset"]))) == ()
    assert input_without_overlap.find(_evidence()) == ()


def test_a_dataset_that_does_not_tell_how_it_is_made_is_left_alone():
    assert input_without_overlap.find(_evidence(input_timing=_input(45, ()))) == ()


def _loop(one_ms, several_ms):
    one_ns, several_ns = (tuple(ms * MS for ms in times) for times in (one_ms, several_ms))
    return LoopTiming(steps_per_call=10, one_ns=one_ns, several_ns=several_ns)


def test_a_loop_whose_calls_cost_more_than_its_steps_by_hand():
    evidence = _evidence(loop_timing=_loop((5, 6, 9), (2, 2, 3)))
    (finding,) = one_step_per_call.find(evidence)
    assert "a step takes 6.00 ms, and 2.00 ms where a call runs 10 of them" in finding.finding
    # 3, 4 and 6 in each round.
    assert (finding.saving_ns, finding.saving_basis) == (4 * MS, "measured")
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
    assert one_step_per_call.find(_evidence(loop_timing=timing)) == ()
