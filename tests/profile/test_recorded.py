"""Profiles recorded elsewhere, built by hand: nothing here was recorded on a GPU."""

import pytest
from recorded_profiles import copy, event, gpu, host, kernel, mark, write

from placement_advisor.errors import AdvisorError
from placement_advisor.profile.recorded_ops import read_recorded
from placement_advisor.profile.xplane import Line, Plane
from placement_advisor.profile.xplane_schema import PROFILE_START, TASK_PLANE

MARKS = [mark(0, 0, 1_000), mark(1, 1_000, 2_000), mark(2, 2_000, 3_000), mark(3, 3_000, 4_000)]


def read(tmp_path, *planes):
    return read_recorded(write(tmp_path / "vm.xplane.pb", *planes))


def read_gpu(tmp_path, *events, planes=()):
    """Read a profile of one step, with what a GPU did."""
    return read(tmp_path, host(MARKS[:1]), gpu(0, list(events)), *planes)


def times(recorded):
    return {f"{op.name}:{op.kind}": op.step_ns for op in recorded.ops if op.on_device}


def test_three_steps_on_a_gpu_after_a_warm_up_by_hand(tmp_path):
    recorded = read(
        tmp_path,
        host(MARKS),
        gpu(
            0,
            [
                kernel("dense/MatMul:MatMul", 100, 900),
                kernel("dense/MatMul:MatMul", 1_100, 1_200),
                kernel("dense/MatMul:MatMul", 2_100, 2_210),
                kernel("dense/MatMul:MatMul", 3_100, 3_140),
                event("a kernel of no op", 3_140, 3_147),
            ],
            # A second kernel of the op in each of the last two steps, on another stream.
            [kernel("dense/MatMul:MatMul", 2_100, 2_130)],
            [kernel("dense/MatMul:MatMul", 3_100, 3_110)],
        ),
    )
    (op,) = recorded.ops
    assert (op.name, op.kind, op.on_device) == ("dense/MatMul", "MatMul", True)
    assert sorted(op.step_ns) == [40 + 10, 100, 110 + 30]
    assert op.median_ns == 100
    assert recorded.anonymous_ns == 7


def test_a_kernel_belongs_to_the_step_that_launched_it_however_late_it_runs(tmp_path):
    launches = [event("cuLaunchKernel", 1_100 * i, 1_100 * i + 5, correlation_id=i) for i in (1, 2)]
    # Launched at 1100 and 2200, in the steps 1 and 2.
    late = [
        kernel("a:MatMul", 2_500, 2_510, correlation_id=1),
        kernel("a:MatMul", 9_000, 9_030, correlation_id=2),
    ]
    recorded = read(tmp_path, host(MARKS[:3], launches), gpu(0, late))
    assert times(recorded) == {"a:MatMul": (10, 30)}


def test_without_marks_the_steps_that_xprof_derived_count_for_each_gpu(tmp_path):
    def steps(*spans):
        events = [event(str(i), *span, group_id=i) for i, span in enumerate(spans)]
        return Line(name="Steps", id=0xDEADBEEF + 1, events=tuple(events))

    first = [kernel("a:MatMul", 0, 900), kernel("a:MatMul", 1_000, 1_010)]
    second = [kernel("a:MatMul", 500, 990), kernel("a:MatMul", 1_500, 1_530)]
    recorded = read(
        tmp_path,
        gpu(0, first, steps((0, 1_000), (1_000, 2_000))),
        gpu(1, second, steps((500, 1_500), (1_500, 2_500))),
    )
    assert times(recorded) == {"a:MatMul": (10, 30)}


@pytest.mark.parametrize(
    "stats",
    [
        {"tf_op": "tower/MatMul:MatMul"},
        {"level 0": "tower/MatMul:MatMul"},
        {"annotation": "tower/MatMul:MatMul#shape=(float[2,2];float[2,2])#"},
        {"annotation": "call:PartitionedCall#id=3#::tower/MatMul:MatMul#shape=()#::#edge_name=e#"},
        {"annotation": "replica_4/tower/MatMul:MatMul"},
        {"annotation": "no op at all", "tf_op": "tower/MatMul:MatMul"},
    ],
)
def test_the_op_of_a_kernel_is_found_in_whatever_tells_it(tmp_path, stats):
    recorded = read_gpu(tmp_path, event("gemm", 10, 20, **stats))
    assert times(recorded) == {"tower/MatMul:MatMul": (10,)}


def test_replicas_are_samples_of_one_op_and_marks_within_marks_make_no_steps(tmp_path):
    op = "gradient_tape/{}a/MatMul:MatMul"
    inner = [event("train", 200, 400, step_num=7), event("train", 500, 600, step_num=8)]
    recorded = read(
        tmp_path,
        host(MARKS[:1], inner),
        gpu(0, [kernel(op.format(""), 810, 820)]),
        gpu(1, [kernel(op.format("replica_1/"), 10, 40)]),
    )
    assert times(recorded) == {"gradient_tape/a/MatMul:MatMul": (10, 30)}


def test_copies_have_their_ends_and_are_no_work_but_within_the_card(tmp_path):
    recorded = read_gpu(
        tmp_path,
        kernel("a:MatMul", 10, 20),
        copy("MemcpyP2P", 4_096, 100, 5, dest=3),
        copy("MemcpyP2P", 4_096, 110, 6, dest=7),
        copy("MemcpyH2D", 8, 120, 7),
        copy("MemcpyD2H", 16, 130, 8),
        event("MemcpyD2D", 140, 149, memcpy_details="size:32 dest:0", tf_op="b:Identity"),
        copy("CopyDeviceToDevice", 64, 150, 10, dest=3),
        # Outside of every step, which does not matter to a link.
        copy("MemcpyH2D", 128, 5_000, 11),
        planes=(gpu(3),),
    )
    assert recorded.copies == {
        ("CPU:0", "GPU:0"): ((8, 7), (128, 11)),
        ("GPU:0", "CPU:0"): ((16, 8),),
        ("GPU:0", "GPU:1"): ((4_096, 5), (64, 10)),
        ("GPU:0", "unknown"): ((4_096, 6),),
    }
    assert times(recorded) == {"a:MatMul": (10,), "b:Identity": (9,)}


def test_the_host_of_a_gpu_launches_kernels_and_computes_what_has_none(tmp_path):
    recorded = read(
        tmp_path,
        host(MARKS[:1], [event("a:MatMul", 0, 90), event("table:LookupTableFindV2", 200, 260)]),
        gpu(0, [kernel("a:MatMul", 10, 20)]),
    )
    found = [(op.name, op.on_device, op.step_ns) for op in recorded.ops]
    assert found == [("a", True, (10,)), ("table", False, (60,))]


def test_a_profile_without_gpus_has_the_own_times_of_ops_on_their_threads(tmp_path):
    recorded = read(
        tmp_path,
        host(
            MARKS[:1],
            [
                event("outer:MatMul", 100, 200),
                event("inner:Relu", 110, 140),
                event("arg:_Arg", 140, 150),
                event("x:_Recv", 150, 160),
            ],
            [event("inner:Relu", 100, 105)],
            Line(name="tf_data_private/1", events=(event("parse:ParseExample", 100, 500),)),
        ),
        Plane(name="/device:GPU:0"),
    )

    # 100, less what other ops take within: 30, 10 and 10.
    assert times(recorded) == {"inner:Relu": (35,), "outer:MatMul": (50,)}


def test_workers_have_the_steps_of_their_client_and_one_core_each(tmp_path):
    write(tmp_path / "client.xplane.pb", host(MARKS[:2]))
    write(
        tmp_path / "worker-0.xplane.pb",
        # From 1120 to 1140 two threads have the core, and half of it each.
        host([event("a:MatMul", 1_100, 1_140)], [event("b:Relu", 1_120, 1_150)]),
    )
    write(tmp_path / "worker-1.xplane.pb", host([event("c:Relu", 1_100, 1_120)]))
    recorded = read_recorded(tmp_path)
    assert times(recorded) == {"a:MatMul": (30,), "b:Relu": (20,), "c:Relu": (20,)}


def test_gpus_of_several_hosts_are_counted_on(tmp_path):
    for name in ("a", "b"):
        write(
            tmp_path / f"{name}.xplane.pb",
            host(MARKS[:1]),
            gpu(0, [kernel("a:MatMul", 10, 20), copy("MemcpyH2D", 8, 20, 1)]),
            gpu(1, [copy("MemcpyP2P", 8, 20, 1)]),
        )
    ends = set(read_recorded(tmp_path).copies)
    assert ends == {("CPU:0", "GPU:0"), ("GPU:1", "GPU:0"), ("CPU:1", "GPU:2"), ("GPU:3", "GPU:2")}


def test_a_step_that_the_profile_covers_in_part_is_left_out(tmp_path):
    write(tmp_path / "client.xplane.pb", host(MARKS[:3]))
    start_ns = MARKS[0].start_ns + 500
    write(
        tmp_path / "worker-0.xplane.pb",
        Plane(name=TASK_PLANE, stats={PROFILE_START: start_ns}),
        host([event("a:MatMul", at, at + 1 + at // 1_000) for at in (600, 1_600, 2_600)]),
    )
    recorded = read_recorded(tmp_path)
    assert times(recorded) == {"a:MatMul": (3,)}


@pytest.mark.parametrize(
    "planes",
    [
        [host(MARKS)],
        [host([]), gpu(0, [kernel("a:MatMul", 10, 20)])],
        [host(MARKS), gpu(0, [kernel("a:MatMul", 9_000, 9_010)])],
        [host(MARKS), gpu(0, [event("of no op", 10, 20)])],
    ],
)
def test_a_profile_without_ops_in_steps_is_refused_with_the_way_to_record_one(tmp_path, planes):
    with pytest.raises(AdvisorError, match=r"vm\.xplane\.pb shows no op within a step") as caught:
        read(tmp_path, *planes)
    assert "step_num" in (caught.value.hint or "")
