"""Testbeds: the devices on which candidates really run, seen from the command's process.

Every testbed has one client child that drives the steps. The testbeds `workers` and `hosts` have
one more process per device, which has a core or a GPU of its own and is joined to the client by
gRPC; the client waits while they work, on the first one's core if that is of this machine. The
others hold their devices in the client's own process. When any of these processes dies, the testbed
is down: the call in flight gets a `CallFailure`, as do all that follow, until `start` builds it
anew. When a host is lost there is nothing to build on.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from placement_advisor.errors import AdvisorError, TestbedError
from placement_advisor.graph.step_limit import MOST_LIMIT_S, step_limit_s
from placement_advisor.machine.testbed_plan import TestbedKind
from placement_advisor.processes.call_failure import CallFailure, FailureCause, expect
from placement_advisor.processes.children import Child, ChildError
from placement_advisor.profile.timeline.clock_alignment import ONE_CLOCK
from placement_advisor.testbed.deaths import crash, dead_among
from placement_advisor.testbed.site import START_LIMIT_S, ThisMachine
from placement_advisor.tf.calls import runner, worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.testbed_plan import TestbedPlan
    from placement_advisor.measurement.verification import Verification
    from placement_advisor.processes.callee import Callee
    from placement_advisor.profile.timeline.clock_alignment import HostClocks
    from placement_advisor.testbed.site import Pings, Site
    from placement_advisor.tf.answers import Prepared

_Arguments = TypeVarTuple("_Arguments")
_Returned = TypeVar("_Returned")

# The program that is the step as it was traced; a split of the batch is another one.
STEP = "step"
HAVE_WORKERS = frozenset({TestbedKind.WORKERS, TestbedKind.HOSTS})
# A candidate's steps are few enough to take seconds.
CALL_LIMIT_S = 300.0
# Judgement: variables are brought to their devices, which takes as long as some steps.
_PREPARING = 4


def steps_limit_s(plan: TestbedPlan, steps: int) -> float:
    """Return how long steps may take in all; more is a hang.

    Over a slow network a single one may take minutes. That hosts are alive is known otherwise.
    """
    return CALL_LIMIT_S * (steps if plan.hosts else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFiles:
    """Raw profiles of one window: the client's, and one per device where devices are processes.

    ``clocks`` says whose clocks they were taken by.
    """

    client: Path
    devices: dict[str, Path]
    clocks: HostClocks = ONE_CLOCK


class Testbed:
    """Running devices. Start it, call it, close it; after a failed call start it again."""

    __test__ = False  # The name starts with "Test"; pytest must not collect it.

    def __init__(self, plan: TestbedPlan, *, scratch: Path, site: Site | None = None) -> None:
        """Prepare a testbed on the machines of a site, None for this one.

        ``scratch`` holds profiles.
        """
        self.plan = plan
        self.site = site or ThisMachine(scratch, open_ports=plan.open_ports)
        self._scratch = scratch
        self._programs: dict[str, tuple[str, OpGraph]] = {}
        self._client: Child | None = None
        self._workers: tuple[Callee, ...] = ()
        self._core_clocks: dict[str, str] = {}

    @property
    def up(self) -> bool:
        """Whether its processes run."""
        return self._client is not None

    @property
    def lost(self) -> str | None:
        """Why it cannot be built anew any more, None if it can."""
        return self.site.lost

    @property
    def process_ids(self) -> dict[str, int]:
        """Process ids by name, of what runs now."""
        return {child.name: child.pid for child in self._children()}

    @property
    def core_clocks(self) -> dict[str, str]:
        """Tokens of `core_clock` by device, of devices that are processes on a core."""
        return dict(self._core_clocks)

    @property
    def worker_ids(self) -> dict[str, int]:
        """Process ids by device, of devices that are processes."""
        return {child.name: child.pid for child in self._workers}

    def start(self) -> None:
        """Start all processes, unless they run already.

        Raises:
            TestbedError: a process does not come up.
        """
        if self._client is not None:
            return
        self._client = Child("client")
        try:
            self._start(self._client)
        except AdvisorError:
            self.close()  # A host is gone, say, and others have begun.
            raise

    def _start(self, client: Child) -> None:
        count, kind = len(self.plan.devices), self.plan.devices[0].kind
        if self.plan.kind in HAVE_WORKERS:
            addresses = self._start_workers(client)
            tasks = [f"/job:worker/replica:0/task:{i}/device:" for i in range(count)]
            devices = [f"{task}{kind}:0" for task in tasks]
            target, host, logical = f"grpc://{addresses[0]}", f"{tasks[0]}CPU:0", 0
        else:
            local = "/job:localhost/replica:0/task:0/device:"
            devices = [f"{local}{kind}:{i}" for i in range(count)]
            target, host = "", f"{local}CPU:0"
            logical = count if kind == "CPU" else 0
        names = dict(zip((d.name for d in self.plan.devices), devices, strict=True))
        opened = client.call(
            runner.open_runner, target, names, host, logical, time_limit_s=START_LIMIT_S
        )
        expect(opened, partial(self._not_started, client))
        for name, program in self._programs.items():
            self._open(client, name, *program)

    def add_program(self, name: str, bundle: Path, graph: OpGraph) -> None:
        """Make a bundle known that candidates can run, by a name of its own.

        Raises:
            TestbedError: it cannot be loaded.
        """
        self._programs[name] = str(bundle), graph
        if self._client is not None:
            self._open(self._client, name, str(bundle), graph)

    def prepare(
        self, label: str, device_of: Mapping[str, str], program: str
    ) -> Prepared | CallFailure:
        """Make a candidate ready to run and prove where its ops ran."""
        limit_s = steps_limit_s(self.plan, _PREPARING)
        return self.call(runner.prepare, label, dict(device_of), program, time_limit_s=limit_s)

    def verify(self, label: str, steps: int) -> Verification | CallFailure | None:
        """Compare a candidate's results with those of the first one verified; None for that."""
        limit_s = steps_limit_s(self.plan, steps)
        return self.call(runner.verify, label, steps, time_limit_s=limit_s)

    def run_steps(self, label: str, batch: int, steps: int) -> list[int] | CallFailure:
        """Run steps of a candidate on one batch and return the time of each, in ns."""
        limit_s = steps_limit_s(self.plan, steps)
        return self.call(runner.run_steps, label, batch, steps, time_limit_s=limit_s)

    def call(
        self,
        function: Callable[[*_Arguments], _Returned],
        *args: *_Arguments,
        time_limit_s: float = CALL_LIMIT_S,
    ) -> _Returned | CallFailure:
        """Call a function of the runner; if a process has ended by it, the testbed is down."""
        client = self._client
        if client is None:
            return self._down()
        begun = client.start(function, *args)
        try:
            answer = begun.wait(time_limit_s=time_limit_s, watch=self._needed())
        except ChildError:
            dead = self._dead()
            if dead is None:
                raise
            answer = dead
        if isinstance(answer, CallFailure):
            if not answer.child_ended:
                answer = self._dead() or answer
            if answer.child_ended:
                self.close()
        return answer

    def profile(self, label: str, steps: int) -> ProfileFiles | CallFailure:
        """Run steps with all profilers on."""
        if self._client is None:
            return self._down()
        try:
            return self._profile(label, steps)
        except TestbedError as error:  # A host is gone, or a profiler wrote nothing.
            self.close()
            return crash(error)

    def _profile(self, label: str, steps: int) -> ProfileFiles | CallFailure:
        folder = tempfile.mkdtemp(prefix=f"profile-{label}-", dir=self._scratch)
        before = self.site.pings()
        for i, child in enumerate(self._workers):
            theirs = self.site.new_folder(i, f"profile-{label}-{child.name}")
            failed = child.call(worker.start_profiler, theirs, time_limit_s=CALL_LIMIT_S)
            if failed is not None:
                self.close()
                return failed
        limit_s = steps_limit_s(self.plan, steps)
        answer = self.call(runner.profile_steps, label, steps, folder, time_limit_s=limit_s)
        written = []
        for child in self._workers:  # Stop them also after a failed step: others will follow.
            path = child.call(worker.stop_profiler, time_limit_s=CALL_LIMIT_S)
            if isinstance(path, CallFailure):
                self.close()
                return path
            written.append(path)
        if isinstance(answer, CallFailure):
            return answer
        names = [device.name for device in self.plan.devices]
        return fetched_profiles(self.site, before, Path(answer), names, written)

    def end_if_dead(self) -> None:
        """End all processes if one of them, or what they reach each other by, has ended."""
        if self._client is not None and self._dead() is not None:
            self.close()

    def close(self) -> None:
        """End all processes."""
        for child in self._children():
            child.close()
        self._client, self._workers, self._core_clocks = None, (), {}

    def _open(self, client: Child, name: str, bundle: str, graph: OpGraph) -> None:
        # Over a slow network a step may take minutes, whatever its ops do.
        limit_s = MOST_LIMIT_S if self.plan.hosts else step_limit_s(graph)
        opened = client.call(
            runner.open_program, name, bundle, graph, limit_s, time_limit_s=START_LIMIT_S
        )
        expect(opened, partial(self._not_started, client))

    def _children(self) -> tuple[Callee, ...]:
        return (*self._workers, self._client) if self._client else self._workers

    def _needed(self) -> tuple[Callee, ...]:
        """Return the processes without which the client gets no answer."""
        return (*self._workers, *self.site.relays)

    def _dead(self) -> CallFailure | None:
        """Return how one of these died, if one did: the client only sees a broken connection."""
        return dead_among(self._needed(), self.site)

    def _down(self) -> CallFailure:
        message = self.lost or f"testbed {self.plan.kind}: its processes have ended"
        return CallFailure(cause=FailureCause.CRASHED, message=message, child_ended=True)

    def _start_workers(self, client: Child) -> tuple[str, ...]:
        """Start one server per device in a network of their own; return their addresses."""
        first = self.plan.slots[0]
        if first.is_core and (not self.plan.hosts or self.plan.hosts[0].is_here):
            # On a core that has slept, the client took up to 3 ms longer to begin and end a step.
            pinned = client.call(
                os.sched_setaffinity, 0, {first.number}, time_limit_s=START_LIMIT_S
            )
            expect(pinned, partial(self._not_started, client))
        for i, device in enumerate(self.plan.devices):
            self._workers = (*self._workers, self.site.fork(i, device.name))
        addresses = self.site.join(self._workers, client, self._not_started)
        serving = [
            child.start(worker.serve, addresses, i, slot, self.site.carriers(i))
            for i, (child, slot) in enumerate(zip(self._workers, self.plan.slots, strict=True))
        ]
        for child, begun, device in zip(self._workers, serving, self.plan.devices, strict=True):
            answer = begun.wait(time_limit_s=START_LIMIT_S)
            token = expect(answer, partial(self._not_started, child))
            if token is not None:
                self._core_clocks[device.name] = token
        return addresses

    def _not_started(self, child: Callee, failure: CallFailure) -> TestbedError:
        """End the other processes, which are of no use, and return what to say."""
        self.close()
        return TestbedError(
            f"testbed {self.plan.kind}: {child.name} did not start: {failure.message}"
            f"\n{failure.output_tail}".rstrip()
        )


def fetched_profiles(
    site: Site, before: Pings, client: Path, devices: Sequence[str], written: Sequence[str]
) -> ProfileFiles:
    """Return profiles, brought here from the machines of their devices, with these' clocks.

    The clocks were read ``before`` the steps that were profiled.

    Raises:
        TestbedError: a machine is gone.
    """
    clocks = site.clocks(before)
    files = {name: site.fetch(i, written[i]) for i, name in enumerate(devices[: len(written)])}
    return ProfileFiles(client=client, devices=files, clocks=clocks)
