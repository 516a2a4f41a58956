"""Steps of worker processes, on profiles small enough to add up by hand."""

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest
from recorded_profiles import EPOCH_NS, activity, copied, crossing, event, gpu, host

from placement_advisor.errors import AdvisorError
from placement_advisor.machine.clock_range import ClockRange
from placement_advisor.measurement.measurement import Invariant, Span
from placement_advisor.profile.worker_steps import ONE_CLOCK, HostClocks, read_worker_steps
from placement_advisor.profile.xplane import Event, Line, Plane, write_planes

CLIENT, WORKER_0, WORKER_1 = "client", "worker:0", "worker:1"


def planned(name, source=WORKER_0, **more):
    return crossing(name, source, WORKER_1, **more)


@dataclass
class Profiles:
    """Profiles under construction; times count from one moment that all processes share."""

    folder: Path
    starts_ns: dict[str, int] = field(
        # Each process began to profile at a moment of its own.
        default_factory=lambda: {CLIENT: -40, WORKER_0: -300, WORKER_1: -100}
    )
    stops_ns: dict[str, int] = field(default_factory=dict)
    # How far the clock of the machine on which a process ran is ahead.
    skews_ns: dict[str, int] = field(default_factory=dict)
    events: dict[tuple[str, str], list[Event]] = field(default_factory=dict)
    # What the GPU of a worker did, if it has one.
    on_gpu: dict[str, list[Event]] = field(default_factory=dict)

    def add(self, process, name, start_ns, end_ns, *, thread="tf_Compute/1", stats=None):
        found = event(name, start_ns, end_ns, **(stats or {}))
        self.events.setdefault((process, thread), []).append(found)

    def step(self, start_ns, end_ns, *, of=CLIENT):
        self.add(of, "train", start_ns, end_ns, thread="python", stats={"step_num": 7})

    def arrival(self, process, node, at_ns, *, kernel="_Recv"):
        name = "ExecutorState::ProcessAsync::Done"
        thread = "tf_GrpcWorkerEnvQueues/1"
        # Its duration holds the ops that were waiting: it must not matter.
        stats = {"name": node, "kernel_type": kernel}
        self.add(process, name, at_ns, at_ns + 10_000, thread=thread, stats=stats)

    def copy(self, name, sent_ns, arrived_ns):
        self.add(WORKER_0, f"{name}_send:_Send", sent_ns, sent_ns + 1)
        self.arrival(WORKER_1, f"{name}_recv", arrived_ns)

    def collective(self, process, node, start_ns, end_ns):
        """From when the executor starts it until it goes on; the op's own event ends later."""
        stats = {"name": node, "kernel_type": "CollectiveReduceV2"}
        start, done = (f"ExecutorState::ProcessAsync::{which}" for which in ("Start", "Done"))
        self.add(process, start, start_ns, start_ns + 1, stats=stats)
        thread = "collective_ops/1"
        self.add(process, f"{node}:CollectiveReduceV2", start_ns + 1, end_ns + 500, thread=thread)
        self.add(process, done, end_ns, end_ns + 500, thread=thread, stats=stats)

    def read(self, *crossings, exchanged=None, clocks=ONE_CLOCK, on_gpus=False):
        self.write(CLIENT, WORKER_0, WORKER_1)
        return read_worker_steps(
            {worker: self.file(worker) for worker in (WORKER_0, WORKER_1)},
            self.file(CLIENT),
            crossings,
            exchanged or {},
            clocks,
            on_gpus=on_gpus,
        )

    def write(self, *processes):
        for process in processes:
            skew_ns = self.skews_ns.get(process, 0)

            def skewed(events, skew_ns=skew_ns):
                return tuple(replace(event, start_ns=event.start_ns + skew_ns) for event in events)

            lines = (
                Line(name=thread, events=skewed(events))
                for (owner, thread), events in self.events.items()
                if owner == process
            )
            task = {"profile_start_time": EPOCH_NS + self.starts_ns.get(process, -300) + skew_ns}
            if process in self.stops_ns:
                task["profile_stop_time"] = EPOCH_NS + self.stops_ns[process] + skew_ns
            planes = host(*lines), Plane(name="Task Environment", stats=task)
            if process in self.on_gpu:
                stream = Line(name="Stream #13", id=13, events=skewed(self.on_gpu[process]))
                # XProf derives lines from the stream's; they hold the same work again.
                planes += (gpu(0, stream, replace(stream, name="TensorFlow Ops", id=0xDEADBEF0)),)
            write_planes(self.file(process), planes)

    def file(self, process):
        return self.folder / f"{process.replace(':', '')}.xplane.pb"


@pytest.fixture
def profiles(tmp_path):
    return Profiles(tmp_path)


def one_step(profiles, start_ns, end_ns):
    """A step in which worker 1 computes during a part of the copy that it waits for."""
    profiles.step(start_ns, end_ns)
    profiles.add(WORKER_0, "a:MatMul", start_ns + 100, start_ns + 300)
    profiles.add(WORKER_0, "b:Relu", start_ns + 300, start_ns + 400)
    profiles.add(WORKER_0, "a_send:_Send", start_ns + 400, start_ns + 410)
    profiles.add(WORKER_1, "c:MatMul", start_ns + 500, start_ns + 550)
    profiles.arrival(WORKER_1, "a_recv", start_ns + 600)
    profiles.add(WORKER_1, "d:MatMul", start_ns + 600, start_ns + 800)


def test_one_step_of_two_workers_by_hand(profiles):
    one_step(profiles, 0, 1_000)
    profile = profiles.read(planned("a"))
    assert profile.step_ns == (1_000,)
    # Worker 0: 200 + 100; worker 1: 50 + 200. The send is no compute.
    assert profile.compute_ns == {WORKER_0: 300, WORKER_1: 250}
    assert profile.transfers == (copied(WORKER_0, WORKER_1, 64, 600 - 400, 200 - 50),)
    assert profile.op_ns == {"a": 200, "b": 100, "c": 50, "d": 200}
    assert profile.activities == (
        activity("MatMul", 200, 50, 200),
        activity("[gRPC memcpy PtoP]", 200, is_copy=True),
        activity("Relu", 100),
    )
    assert profile.timeline == (
        Span(lane=WORKER_0, name="a", start_ns=100, end_ns=300, is_copy=False),
        Span(lane=WORKER_0, name="b", start_ns=300, end_ns=400, is_copy=False),
        Span(lane="worker:0 → worker:1", name="a:0", start_ns=400, end_ns=600, is_copy=True),
        Span(lane=WORKER_1, name="c", start_ns=500, end_ns=550, is_copy=False),
        Span(lane=WORKER_1, name="d", start_ns=600, end_ns=800, is_copy=False),
    )


def test_figures_per_step_are_medians_and_the_timeline_shows_the_median_step(profiles):
    # In each step two runs of the op, which add up.
    for start_ns, length_ns, op_ns in ((0, 900, 10), (1_000, 5_000, 30), (10_000, 1_000, 90)):
        profiles.step(start_ns, start_ns + length_ns)
        profiles.add(WORKER_0, "a:MatMul", start_ns + 5, start_ns + 5 + op_ns)
        profiles.add(WORKER_0, "a:MatMul", start_ns + 400, start_ns + 401)
    profile = profiles.read()
    assert profile.step_ns == (900, 5_000, 1_000)
    assert profile.compute_ns == {WORKER_0: 31, WORKER_1: 0}
    assert profile.op_ns == {"a": 31}
    assert (profile.activities[0].calls, profile.activities[0].total_ns) == (6, 10 + 30 + 90 + 3)
    # The step of 1000 ns is the median one; its op takes 90.
    assert profile.timeline == (
        Span(lane=WORKER_0, name="a", start_ns=5, end_ns=95, is_copy=False),
        Span(lane=WORKER_0, name="a", start_ns=400, end_ns=401, is_copy=False),
    )


def test_ops_that_run_at_once_or_inline_count_once(profiles):
    profiles.step(0, 1_000)
    profiles.add(WORKER_0, "inner:Relu", 200, 250)
    profiles.add(WORKER_0, "innermost:Mul", 210, 220)
    profiles.add(WORKER_0, "outer:Call", 100, 400)
    profiles.add(WORKER_0, "after:Add", 400, 410)
    profiles.add(WORKER_0, "beside:Mul", 350, 500, thread="tf_GrpcWorkerEnvQueues/2")
    profile = profiles.read()
    assert profile.compute_ns[WORKER_0] == 500 - 100
    assert profile.op_ns == {
        # From 350 to 400 outer shares the core with beside, from 400 to 410 after does.
        "outer": 300 - 50 - 25,
        "inner": 50 - 10,
        "innermost": 10,
        "after": 10 - 5,
        "beside": 150 - 25 - 5,
    }


def test_receives_and_what_runs_outside_of_steps_or_is_no_op_count_as_no_compute(profiles):
    profiles.step(0, 1_000)
    profiles.step(2_000, 3_000)
    for start_ns in (-50, 0, 999, 1_000, 1_500, 2_000, 3_000):
        profiles.add(WORKER_0, "a:MatMul", start_ns, start_ns + 1)
    for name in ("RunStep/Server:108", "ThreadpoolListener::Record", "RunGraph", "b_S4:_Recv"):
        profiles.add(WORKER_0, name, 100, 900)
    profile = profiles.read()
    assert profile.activities == (activity("MatMul", 1, 1, 1),)


@pytest.mark.parametrize(
    ("start_ns", "stop_ns", "expected"),
    [
        (5, 9_000, (1_200, 1_100)),  # It starts late.
        (-5, 2_500, (1_000, 1_200)),  # It stops early.
        (0, 4_100, (1_000, 1_200, 1_100)),  # It begins and ends with the steps.
    ],
)
def test_steps_without_a_whole_profile_or_without_work_are_skipped(
    profiles, start_ns, stop_ns, expected
):
    one_step(profiles, 0, 1_000)
    one_step(profiles, 1_000, 2_200)
    one_step(profiles, 3_000, 4_100)
    profiles.step(2_300, 2_400)
    profiles.starts_ns[WORKER_1] = start_ns
    profiles.stops_ns[WORKER_1] = stop_ns
    assert profiles.read(planned("a")).step_ns == expected


def test_a_profile_without_steps_or_work_or_planned_copies_is_refused(profiles):
    profiles.add(CLIENT, "train", 0, 1_000)  # No step_num: somebody else's event.
    with pytest.raises(AdvisorError, match=r"client\.xplane\.pb holds no step"):
        profiles.read()
    profiles.step(0, 1_000)
    profiles.add(WORKER_0, "a:MatMul", 1_500, 1_600)
    with pytest.raises(AdvisorError, match=r"no step of .*client\.xplane\.pb is complete"):
        profiles.read()
    profiles.add(WORKER_0, "a:MatMul", 100, 200)
    with pytest.raises(AdvisorError, match="none of the 1 planned copies"):
        profiles.read(planned("a"))


@pytest.fixture
def computing(profiles):
    """One step of 1000 ns in which worker 1 computes from 300 to 400."""
    profiles.step(0, 1_000)
    profiles.add(WORKER_1, "z:MatMul", 300, 400)
    return profiles


def test_a_copy_that_seems_to_arrive_before_it_was_sent_takes_no_time(computing):
    computing.copy("x", 200, 190)
    # No receive: this is no arrival.
    computing.arrival(WORKER_1, "x_recv", 150, kernel="If")
    (total,) = computing.read(planned("x")).transfers
    assert (total.count, total.time_ns, total.exposed_ns) == (1, 0, 0)


def test_an_unknown_size_leaves_the_sum_unknown_and_a_control_edge_has_no_bytes(
    computing,
):
    computing.copy("x", 100, 200)
    computing.copy("y", 100, 200)
    (unknown,) = computing.read(planned("x"), planned("y", size_bytes=None)).transfers
    assert unknown.size_bytes is None
    profile = computing.read(planned("x", port=-1, size_bytes=None))
    assert (profile.transfers[0].count, profile.transfers[0].size_bytes) == (1, 0)
    assert profile.timeline[0].name == "^x"


def test_a_copy_whose_send_was_too_cheap_to_be_seen_starts_where_its_tensor_was_made(
    computing,
):
    computing.add(WORKER_0, "x:MatMul", 40, 100)
    computing.arrival(WORKER_1, "x_recv", 250)
    computing.arrival(WORKER_1, "y_recv", 500)
    (total,) = computing.read(planned("x"), planned("y")).transfers
    # What made y was not seen either: the copy counts, but takes no time.
    assert (total.count, total.size_bytes, total.time_ns) == (2, 128, 250 - 100)


def test_repeated_sends_meet_their_arrivals_in_order(computing):
    for thread, sent_ns, arrived_ns in (("one", 500, 530), ("two", 100, 120)):
        computing.add(WORKER_0, "x_send:_Send", sent_ns, sent_ns + 1, thread=thread)
        computing.arrival(WORKER_1, "x_recv", arrived_ns)
    (total,) = computing.read(planned("x")).transfers
    assert (total.count, total.time_ns) == (2, 30 + 20)


def test_a_collective_is_a_copy_from_the_device_before_it_in_the_ring(profiles):
    profiles.step(0, 1_000)
    for worker, start_ns in ((WORKER_0, 200), (WORKER_1, 250)):
        profiles.add(worker, "gradient:MatMul", start_ns - 100, start_ns)
        profiles.collective(worker, "sum", start_ns, 600)
        profiles.add(worker, "update:AssignSub", 600, 700)
    # Under way in another thread, an op hides a part of it.
    profiles.add(WORKER_0, "other:MatMul", 300, 350, thread="tf_Compute/2")
    profile = profiles.read(exchanged={"sum": 48})
    assert profile.transfers == (
        copied(WORKER_0, WORKER_1, 48, 350, 350),
        copied(WORKER_1, WORKER_0, 48, 400, 350),
    )
    assert profile.compute_ns == {WORKER_0: 250, WORKER_1: 200}
    assert "sum" not in profile.op_ns
    # It is no work: what runs meanwhile has the core to itself.
    assert profile.op_ns["other"] == 50
    row = next(row for row in profile.activities if row.is_copy)
    assert (row.name, row.calls) == ("[gRPC ring collective]", 2)


@pytest.mark.parametrize(("collects", "count", "size_bytes"), [(True, 1, None), (False, 0, 0)])
def test_a_collective_of_unknown_size_leaves_the_bytes_open_and_none_copies_nothing(
    profiles, collects, count, size_bytes
):
    profiles.step(0, 1_000)
    if collects:
        profiles.collective(WORKER_0, "rows", 100, 200)
    profiles.add(WORKER_0, "update:AssignSub", 200, 300)
    profile = profiles.read()
    assert (profile.transfer_count, profile.transfer_bytes) == (count, size_bytes)


def copies_of_a_model(profiles, late_ns):
    """Three steps of two processes, of which the second goes through each of them later."""
    for start_ns in (0, 1_000, 2_000):
        begins = {CLIENT: start_ns, WORKER_0: start_ns, WORKER_1: start_ns + late_ns}
        for process, begin_ns in begins.items():
            profiles.step(begin_ns, begin_ns + 1_000, of=process)
            if process != CLIENT:
                profiles.add(process, "a:MatMul", begin_ns + 5, begin_ns + 505)
                profiles.collective(process, "sum", begin_ns + 505, begin_ns + 900)
                profiles.add(process, "b:MatMul", begin_ns + 900, begin_ns + 990)


def test_copies_of_a_model_go_through_steps_at_times_of_their_own(profiles):
    copies_of_a_model(profiles, late_ns=200)
    profile = profiles.read()

    # From the begin of the first to the end of the second; each does its work within its own.
    assert profile.step_ns == (1_200,) * 3
    assert profile.compute_ns == {WORKER_0: 590, WORKER_1: 590}
    assert {total.exposed_ns for total in profile.transfers} == {395}
    assert [span.end_ns for span in profile.timeline if span.name == "b"] == [990, 1_190]
    # A step that one of them profiled in part is skipped.
    profiles.stops_ns[WORKER_1] = 3_100
    assert profiles.read().step_ns == (1_200,) * 2
    profiles.step(4_000, 5_000, of=WORKER_1)
    with pytest.raises(AdvisorError, match=r"worker1\.xplane\.pb holds 4 steps, that of the first"):
        profiles.read()


def test_copies_that_steps_make_and_no_step_shows_are_unknown_not_none(profiles):
    one_step(profiles, 0, 1_000)
    profiles.collective(WORKER_0, "sum", 700, 900)
    seen = profiles.read(planned("a"))
    assert (seen.unseen_copies, seen.transfer_count) == ((), 2)
    profile = profiles.read(planned("a"), planned("x"), exchanged={"sum": 48})
    assert profile.unseen_copies == ("x:0 to worker:1", "sum to worker:1")
    assert (profile.transfer_count, profile.transfer_bytes) == (None, None)


def test_waits_for_copies_from_several_devices_count_once(profiles):
    three = {f"worker:{i}": profiles.file(f"worker:{i}") for i in range(3)}
    profiles.step(0, 1_000)
    profiles.add(WORKER_0, "x:MatMul", 10, 100)
    profiles.add(WORKER_0, "x_send:_Send", 100, 101)
    profiles.add("worker:2", "y:MatMul", 10, 100)
    profiles.add("worker:2", "y_send:_Send", 200, 201)
    profiles.arrival(WORKER_1, "x_recv", 600)
    profiles.arrival(WORKER_1, "y_recv", 700)
    profiles.write(CLIENT, *three)
    other = planned("y", source="worker:2")
    profile = read_worker_steps(three, profiles.file(CLIENT), (planned("x"), other))
    assert [total.exposed_ns for total in profile.transfers] == [500, 500]
    assert profile.exposed_by_device == {WORKER_0: 0, WORKER_1: 600, "worker:2": 0}
    assert profile.exposed_ns == 600
    assert profile.broken_laws == ()


def test_a_step_in_which_a_device_does_more_than_fits_is_named(profiles):
    profiles.step(0, 1_000)
    profiles.add(WORKER_0, "a:MatMul", 100, 1_200)
    (broken,) = profiles.read().broken_laws
    assert broken.law is Invariant.DEVICE_WITHIN_STEP


def test_a_collective_that_was_under_way_when_profiling_began_is_no_end_of_the_next(profiles):
    profiles.step(0, 1_000)
    profiles.add(WORKER_0, "a:MatMul", 10, 20)
    stats = {"name": "sum", "kernel_type": "CollectiveReduceV2"}
    profiles.add(WORKER_0, "ExecutorState::ProcessAsync::Done", 5, 6, stats=stats)
    profiles.collective(WORKER_0, "sum", 100, 300)
    (total,) = profiles.read(exchanged={"sum": 8}).transfers
    assert (total.count, total.time_ns) == (1, 200)


SKEW_NS = 123_456_789


def known_to(**hosts):
    """Return ranges of hosts, each as far below and above the true skew as pings left open."""
    return {
        host: ClockRange(low_ns=SKEW_NS - below_ns, high_ns=SKEW_NS + above_ns)
        for host, (below_ns, above_ns) in hosts.items()
    }


def test_steps_of_two_machines_are_as_if_they_had_one_clock(profiles):
    for start_ns in (0, 2_000, 5_000):
        one_step(profiles, start_ns, start_ns + 1_000)
    profiles.stops_ns = {WORKER_0: 9_000, WORKER_1: 9_000}
    together = profiles.read(planned("a"))
    profiles.skews_ns[WORKER_1] = SKEW_NS
    # From pings the second machine seems to be ahead by 400 more than it is: copies would arrive
    # 200 before they were sent. They take 200, so it cannot be more than 200 ahead.
    clocks = HostClocks(host_of={WORKER_1: "b"}, ranges=known_to(b=(201, 1_000)))
    apart = profiles.read(planned("a"), clocks=clocks)
    (found,) = apart.clocks.values()
    # Drift within some microseconds counts as 1, for copies and for the profile.
    assert (found.low_ns, found.high_ns) == (SKEW_NS - 202, SKEW_NS + 202)
    assert replace(apart, clocks={}) == together
    assert apart.clock_uncertainty_ns == 202
    assert (together.clocks, together.clock_uncertainty_ns) == ({}, None)


def test_devices_of_one_machine_share_what_is_learned_of_its_clock(profiles):
    one_step(profiles, 0, 1_000)
    profiles.skews_ns = {WORKER_0: SKEW_NS, WORKER_1: SKEW_NS}
    clocks = HostClocks(host_of={WORKER_0: "b", WORKER_1: "b"}, ranges=known_to(b=(50, 50)))
    profile = profiles.read(planned("a"), clocks=clocks)
    assert set(profile.clocks) == {WORKER_0, WORKER_1}
    assert profile.clocks[WORKER_0] == profile.clocks[WORKER_1]
    # A copy within the machine tells nothing, and takes what it took. Drift counts as 1.
    assert profile.clock_uncertainty_ns == 51
    assert profile.transfers[0].time_ns == 200


def test_sends_that_the_profile_lacks_say_nothing_of_clocks(profiles):
    profiles.step(0, 5_000)
    for sent_ns, arrived_ns in ((100, 300), (2_000, 2_200)):
        profiles.copy("x", sent_ns, arrived_ns)
    # The event of this one's send is missing: the first arrival must not be taken for the first
    # send's, which was later.
    profiles.arrival(WORKER_1, "x_recv", 50)
    profiles.skews_ns[WORKER_1] = SKEW_NS
    clocks = HostClocks(host_of={WORKER_1: "b"}, ranges=known_to(b=(50, 50)))
    profiles.add(WORKER_0, "z:MatMul", 10, 20)
    profile = profiles.read(planned("x"), clocks=clocks)
    assert profile.clock_contradiction_ns == 0
    assert profile.clocks[WORKER_1] == clocks.ranges["b"]


def test_a_clock_that_was_set_while_steps_were_profiled_is_told(profiles):
    one_step(profiles, 0, 1_000)
    # Pings were right, and then the clock was set back by 350: a copy that took 200 seems to have
    # arrived 150 before it was sent, and pings leave 100 open.
    profiles.skews_ns[WORKER_1] = SKEW_NS - 350
    clocks = HostClocks(host_of={WORKER_1: "b"}, ranges=known_to(b=(100, 100)))
    profile = profiles.read(planned("a"), clocks=clocks)
    # Copies and pings share the rest; drift counts as 1 or 2.
    assert profile.clock_contradiction_ns == (150 - 100) // 2
    (copy,) = (span for span in profile.timeline if span.is_copy)
    assert copy.end_ns == copy.start_ns
    assert 25 <= profile.clock_uncertainty_ns <= 25 + 2


def test_copies_of_a_model_on_two_machines_are_aligned_by_what_they_exchange(profiles):
    copies_of_a_model(profiles, late_ns=200)
    profiles.stops_ns = {WORKER_0: 9_000, WORKER_1: 9_000}
    together = profiles.read()
    # The first copy asks for the steps, on a clock of another machine than the command's.
    profiles.skews_ns = {CLIENT: SKEW_NS, WORKER_0: SKEW_NS, WORKER_1: -SKEW_NS}
    ranges = {
        "a": ClockRange(low_ns=SKEW_NS - 10, high_ns=SKEW_NS + 10),
        "b": ClockRange(low_ns=-SKEW_NS - 600, high_ns=-SKEW_NS + 700),
    }
    clocks = HostClocks(host_of={WORKER_0: "a", WORKER_1: "b"}, ranges=ranges, client=WORKER_0)
    apart = profiles.read(clocks=clocks)

    # The second copy joins at 705 what the first leaves at 900; 505 and 1100 the other way around.
    found = apart.clocks[WORKER_1]
    assert -210 <= found.low_ns + SKEW_NS <= -200
    assert 600 <= found.high_ns + SKEW_NS <= 610
    assert apart.clock_contradiction_ns == 0
    assert len(apart.step_ns) == len(together.step_ns)
    # The steps last longer or shorter by what is not known of the clocks.
    longer_ns = apart.step_ns[0] - together.step_ns[0]
    assert abs(longer_ns) <= sum(clock.uncertainty_ns for clock in apart.clocks.values())


@pytest.fixture
def of_gpus(profiles):
    """A step from 0 to 1000 in which the GPU of a worker makes a tensor that another waits for."""
    profiles.step(0, 1_000)
    # The op is launched, and its tensor sent, before its kernels run.
    profiles.add(WORKER_0, "a:MatMul", 20, 30)
    profiles.add(WORKER_0, "a_send:_Send", 40, 45)
    profiles.on_gpu[WORKER_0] = [
        event("gemm_part", 100, 200, tf_op="a:MatMul"),
        event("gemm_rest", 200, 300, tf_op="a:MatMul"),
        event("MemcpyD2H", 300, 350, memcpy_details="size:64 dest:0 async:1"),
    ]
    profiles.arrival(WORKER_1, "a_recv", 600)
    profiles.on_gpu[WORKER_1] = [
        event("gemm", 400, 450, tf_op="c:MatMul"),
        event("MemcpyH2D", 500, 600, memcpy_details="size:64 dest:0 async:1"),
        event("gemm", 600, 800, tf_op="d:MatMul"),
    ]
    return partial(profiles.read, planned("a"), on_gpus=True)


def test_a_tensor_from_gpu_to_gpu_is_one_copy_from_its_last_kernel_to_its_arrival(of_gpus):
    profile = of_gpus()
    assert profile.compute_ns == {WORKER_0: 200, WORKER_1: 50 + 200}
    assert profile.op_ns == {"a": 200, "c": 50, "d": 200}
    # The second GPU computes from 400 to 450 while it is under way.
    assert profile.transfers == (copied(WORKER_0, WORKER_1, 64, 600 - 300, 300 - 50),)
    # Its parts are no copies of their own.
    assert [row.name for row in profile.activities if row.is_copy] == ["[gRPC memcpy PtoP]"]
    assert (profile.step_memory_bytes, profile.broken_laws) == ({}, ())


def test_gpus_of_two_machines_are_on_one_timeline(profiles, of_gpus):
    def apart(**pings):
        ranges = {"a": ClockRange(low_ns=0, high_ns=0), **known_to(**pings)}
        hosts = {WORKER_0: "a", WORKER_1: "b"}
        return of_gpus(clocks=HostClocks(host_of=hosts, ranges=ranges))

    together = of_gpus()
    profiles.skews_ns[WORKER_1] = SKEW_NS
    found = apart(b=(0, 0))
    assert found.clock_contradiction_ns == 0
    assert (found.timeline, found.transfers) == (together.timeline, together.transfers)
    # What pings leave open of a clock, the copies between GPUs narrow: it took 300, and were the
    # clock ahead by more than 300 more, it would have come before it left.
    clock = apart(b=(100, 900)).clocks[WORKER_1]
    assert clock.high_ns - SKEW_NS == pytest.approx(300, abs=2)
    assert clock.low_ns - SKEW_NS == pytest.approx(-100, abs=2)


def test_what_a_gpu_does_by_itself_or_did_not_tell_is_no_copy_of_others(profiles, of_gpus):
    within = event("MemcpyD2D", 700, 720, memcpy_details="size:64 dest:0 async:1")
    profiles.on_gpu[WORKER_0].append(within)
    assert of_gpus().compute_ns[WORKER_0] == 200 + 20
    # A tensor that no kernel makes starts where it was sent.
    profiles.on_gpu[WORKER_0] = [event("gemm", 100, 200, tf_op="other:MatMul")]
    assert of_gpus().transfers[0].time_ns == 600 - 40
    # As where the driver lets only administrators profile: ops on hosts are no work of GPUs.
    profiles.on_gpu.clear()
    with pytest.raises(AdvisorError, match="no device was profiled at work"):
        of_gpus()
