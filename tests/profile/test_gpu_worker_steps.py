"""Steps of worker processes with a GPU each, on profiles built by hand: none has run on a GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from recorded_profiles import EPOCH_NS, copied, crossing, event, gpu, host, write

from placement_advisor.errors import AdvisorError
from placement_advisor.machine.clock_range import ClockRange
from placement_advisor.profile.worker_steps import ONE_CLOCK, HostClocks, read_worker_steps
from placement_advisor.profile.xplane import Event, Line, Plane, set_back

if TYPE_CHECKING:
    from pathlib import Path


CLIENT, A, B = "client", "a:0", "b:0"
ACROSS = crossing("a", A, B)
SKEW_NS = 7_000_000


def clocks(*, below_ns=0, above_ns=0):
    """Return what pings told: b is ahead by the skew, or by so much less or more."""
    ahead = ClockRange(low_ns=SKEW_NS - below_ns, high_ns=SKEW_NS + above_ns)
    return HostClocks(
        host_of={A: "a", B: "b"}, ranges={"a": ClockRange(low_ns=0, high_ns=0), "b": ahead}
    )


@dataclass
class Profiles:
    """Profiles under construction: threads of hosts, and one stream for each GPU."""

    folder: Path
    # How far the clock of the machine on which a process ran is ahead.
    skews_ns: dict[str, int] = field(default_factory=dict)
    on_host: dict[str, list[Event]] = field(default_factory=dict)
    on_gpu: dict[str, list[Event]] = field(default_factory=dict)

    def add_host(self, process, *when):
        self.on_host.setdefault(process, []).extend(when)

    def add_gpu(self, process, *when):
        self.on_gpu.setdefault(process, []).extend(when)

    def read(self, *crossings, clocks=ONE_CLOCK):
        for process in (CLIENT, A, B):
            planes = [
                host(self.on_host.get(process, [])),
                Plane(name="Task Environment", stats={"profile_start_time": EPOCH_NS - 300}),
            ]
            if process in self.on_gpu:
                stream = Line(name="Stream #13", id=13, events=tuple(self.on_gpu[process]))
                # XProf derives lines from the stream's; they hold the same work again.
                derived = Line(name="TensorFlow Ops", id=0xDEADBEF0, events=stream.events)
                planes.append(gpu(0, stream, derived))
            skewed = set_back(tuple(planes), -self.skews_ns.get(process, 0))
            write(self._file(process), *skewed)
        return read_worker_steps(
            {device: self._file(device) for device in (A, B)},
            self._file(CLIENT),
            crossings,
            clocks=clocks,
            on_gpus=True,
        )

    def _file(self, process):
        return self.folder / f"{process.replace(':', '')}.xplane.pb"


def arrival(node, at_ns):
    what = "ExecutorState::ProcessAsync::Done"
    return event(what, at_ns, at_ns + 1, name=node, kernel_type="_Recv")


@pytest.fixture
def profiles(tmp_path):
    """A step from 0 to 1000 in which a:0 makes a tensor that b:0 waits for."""
    made = Profiles(tmp_path)
    made.add_host(CLIENT, event("train", 0, 1_000, step_num=0))
    # The op is launched, and its tensor sent, before its kernels run.
    made.add_host(A, event("a:MatMul", 20, 30), event("a_send:_Send", 40, 45))
    made.add_gpu(
        A,
        event("gemm_part", 100, 200, tf_op="a:MatMul"),
        event("gemm_rest", 200, 300, tf_op="a:MatMul"),
        event("MemcpyD2H", 300, 350, memcpy_details="size:64 dest:0 async:1"),
    )
    made.add_host(B, arrival("a_recv", 600))
    made.add_gpu(
        B,
        event("gemm", 400, 450, tf_op="c:MatMul"),
        event("MemcpyH2D", 500, 600, memcpy_details="size:64 dest:0 async:1"),
        event("gemm", 600, 800, tf_op="d:MatMul"),
    )
    return made


def test_a_tensor_from_gpu_to_gpu_is_one_copy_from_its_last_kernel_to_its_arrival(profiles):
    profile = profiles.read(ACROSS)
    assert profile.compute_ns == {A: 200, B: 50 + 200}
    assert profile.op_ns == {"a": 200, "c": 50, "d": 200}
    # b:0 computes from 400 to 450 while it is under way.
    assert profile.transfers == (copied(A, B, 64, 600 - 300, 300 - 50),)
    # Its parts are no copies of their own.
    assert [row.name for row in profile.activities if row.is_copy] == ["[gRPC memcpy PtoP]"]
    assert profile.step_memory_bytes == {}
    assert profile.broken_laws == ()


def test_gpus_of_two_machines_are_on_one_timeline(profiles):
    together = profiles.read(ACROSS)
    profiles.skews_ns[B] = SKEW_NS
    apart = profiles.read(ACROSS, clocks=clocks())
    assert apart.clock_contradiction_ns == 0
    assert (apart.timeline, apart.transfers) == (together.timeline, together.transfers)
    # What pings leave open of a clock, the copies between GPUs narrow: it took 300, and were the
    # clock ahead by more than 300 more, it would have come before it left.
    found = profiles.read(ACROSS, clocks=clocks(below_ns=100, above_ns=900)).clocks[B]
    assert found.high_ns - SKEW_NS == pytest.approx(300, abs=2)
    assert found.low_ns - SKEW_NS == pytest.approx(-100, abs=2)


def test_a_tensor_that_no_kernel_makes_starts_where_it_was_sent_and_copies_in_a_card_are_work(
    profiles,
):
    profiles.add_gpu(A, event("MemcpyD2D", 700, 720, memcpy_details="size:64 dest:0 async:1"))
    assert profiles.read(ACROSS).compute_ns[A] == 200 + 20
    profiles.on_gpu[A] = [event("gemm", 100, 200, tf_op="other:MatMul")]
    (total,) = profiles.read(ACROSS).transfers
    assert total.time_ns == 600 - 40


def test_ops_on_hosts_are_no_work_of_gpus_that_were_not_profiled(profiles):
    """As where the driver lets only administrators profile."""
    profiles.on_gpu.clear()
    with pytest.raises(AdvisorError, match="no device was profiled at work"):
        profiles.read(ACROSS)
