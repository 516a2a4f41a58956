"""A testbed is a set of devices on which candidates really run; one client drives its steps.

The testbeds `workers` and `hosts` have one more process per device, with a core or a GPU of
its own, joined to the client by gRPC. The client waits while they work. The other testbeds
have their devices in the client. A `ProcessLauncher` starts these processes on this machine
or on other hosts; processes are named by the number of their device. When a process dies, the
others only see a broken connection, so its exit is looked up.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from placement_advisor.errors import AdvisorError, TestbedError
from placement_advisor.machine import testbed_plan
from placement_advisor.machine.this_machine import free_ports
from placement_advisor.processes.calls import CALL_LIMIT_S, CallFailure, FailureCause, expect
from placement_advisor.processes.children import Child, ChildError
from placement_advisor.profile import worker_steps
from placement_advisor.tf.calls import runner
from placement_advisor.tf.run import private_network
from placement_advisor.tf.step_limit import MOST_LIMIT_S, step_limit_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from placement_advisor.machine.clock_range import Ping
    from placement_advisor.processes.calls import Callee

    Pings = Mapping[str, Sequence[Ping]]

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.measurement.verification import Verification
    from placement_advisor.tf.answers import Prepared


# Starting a server takes 0.1 s; anything near this is a hang.
START_LIMIT_S = 60.0
FIRST_PORT = 20_000

_Arguments = TypeVarTuple("_Arguments")
_Returned = TypeVar("_Returned")


class NotStartedError(TestbedError):
    """A process of a testbed gave no answer while it started; ``failure`` says why."""

    def __init__(self, process: Callee, failure: CallFailure) -> None:
        super().__init__(f"{process.name} did not start: {failure.message}")
        self.failure = failure


def at_start(
    process: Callee, function: Callable[[*_Arguments], _Returned], *args: *_Arguments
) -> _Returned:
    """Return what a process answers while it starts, which takes no time.

    Raises:
        NotStartedError: it gives no answer.
    """
    answer = process.call(function, *args, time_limit_s=START_LIMIT_S)
    return expect(answer, partial(NotStartedError, process))


class ProcessLauncher:
    """Starts the processes of a testbed's devices on the machine of the command.

    Each set of processes has a network of its own, unless ``open_ports`` leaves them in the
    machine's. `RemoteLauncher` starts processes on other hosts.
    """

    def __init__(self, scratch: Path, *, open_ports: bool) -> None:
        """Put what is written into a folder."""
        self._scratch, self._open_ports = scratch, open_ports

    @property
    def lost(self) -> str | None:
        """Why nothing can run here any more, None if it can: a machine is gone for good."""
        return None

    @property
    def relays(self) -> tuple[Callee, ...]:
        """Processes that carry what others send; when one of them dies, so do their networks."""
        return ()

    def hear(self) -> None:
        """Wait until each machine has answered, or is known to be gone."""

    def fork(self, device: int, name: str) -> Callee:
        """Return a new process on the machine of a device.

        Raises:
            TestbedError: that machine is gone.
        """
        return Child(name)

    def join(self, workers: Sequence[Callee], client: Callee | None) -> tuple[str, ...]:
        """Bring processes, one for each device, into one network; return the address of each there.

        The client, if there is one, reaches them too.

        Raises:
            NotStartedError: a process fails.
            TestbedError: the system lets us make no network.
        """
        if self._open_ports:
            return tuple(f"127.0.0.1:{port}" for port in free_ports(len(workers)))
        join_private_network([*workers, *([client] if client else [])])
        return tuple(f"127.0.0.1:{FIRST_PORT + i}" for i in range(len(workers)))

    def carriers(self, device: int) -> tuple[int, ...]:
        """Return the ids of processes that carry what a device copies, on its own core."""
        return ()

    def send(self, device: int, path: Path) -> str:
        """Bring a file or a folder to the machine of a device; return where it is there.

        Raises:
            AdvisorError: it cannot be written there, or that machine is gone.
        """
        return str(path)

    def new_folder(self, device: int, name: str) -> str:
        """Make a folder on the machine of a device, for what a process there writes.

        It is a new one each time: the profile before is the candidate's if this one fails.
        """
        return tempfile.mkdtemp(prefix=f"{name}-", dir=self._scratch)

    def fetch(self, device: int, path: str) -> Path:
        """Bring a file here that a process wrote into such a folder.

        Raises:
            TestbedError: that machine is gone.
        """
        return Path(path)

    def pings(self) -> Pings:
        """Read the clocks of other hosts, before something is profiled there.

        Raises:
            TestbedError: a host is gone.
        """
        return {}

    def clocks(self, before: Pings) -> worker_steps.HostClocks:
        """Return whose clocks devices read, and how far these were from this machine's since then.

        Raises:
            TestbedError: a host is gone, or its clock was set meanwhile.
        """
        return worker_steps.ONE_CLOCK


def join_private_network(processes: Sequence[Callee]) -> None:
    """Bring processes of one machine into a new network of their own.

    Raises:
        NotStartedError: a process fails.
        TestbedError: the system lets us make no network.
    """
    first, *others = processes
    at_start(first, private_network.create)
    for each in others:
        at_start(each, private_network.join, first.pid)


# TensorFlow reports a lost connection a little before the kernel reports the dead process.
_DEATH_GRACE_S = 0.5


def crash_failure(error: AdvisorError) -> CallFailure:
    """Return an error that ends the processes of a candidate as the answer to a call of them."""
    return CallFailure(cause=FailureCause.CRASHED, message=error.message, child_ended=True)


def has_crashed(answer: object) -> bool:
    """Say whether a process is gone, and neither its time nor its memory was up."""
    return (
        isinstance(answer, CallFailure)
        and answer.child_ended
        and answer.cause is FailureCause.CRASHED
    )


def first_exit(children: Sequence[Callee], site: ProcessLauncher) -> CallFailure | None:
    """Return how one of several processes of a site died, if one did."""
    site.hear()  # A connection may break before it is known that its host is gone.
    for child in children:
        failure = child.failure(within_s=_DEATH_GRACE_S / len(children))
        if failure is not None:
            return failure
    return None


# The program that is the step as it was traced; a split of the batch is another one.
STEP = "step"
HAVE_WORKERS = frozenset({testbed_plan.TestbedKind.WORKERS, testbed_plan.TestbedKind.HOSTS})
# Judgement: variables are brought to their devices, which takes as long as some steps.
_PREPARING = 4


def steps_limit_s(plan: testbed_plan.TestbedPlan, steps: int) -> float:
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
    clocks: worker_steps.HostClocks = worker_steps.ONE_CLOCK


class Testbed:
    """Running devices. Start it, call it, close it; after a failed call start it again."""

    __test__ = False  # The name starts with "Test"; pytest must not collect it.

    def __init__(
        self, plan: testbed_plan.TestbedPlan, *, scratch: Path, site: ProcessLauncher | None = None
    ) -> None:
        """Prepare a testbed on the machines of a site, None for this one.

        ``scratch`` holds profiles.
        """
        self.plan = plan
        self.site = site or ProcessLauncher(scratch, open_ports=plan.open_ports)
        self._scratch = scratch
        self._programs: dict[str, tuple[str, OpGraph]] = {}
        self._client: Child | None = None
        self._workers: tuple[Callee, ...] = ()
        # Tokens of `core_clock` by device, of devices that are processes on a core.
        self.core_clocks: dict[str, str] = {}

    @property
    def up(self) -> bool:
        """Whether its processes run."""
        return self._client is not None

    @property
    def lost(self) -> str | None:
        """Why it cannot be built anew any more, None if it can."""
        return self.site.lost

    def start(self) -> None:
        """Start all processes, unless they run already.

        Raises:
            TestbedError: a process does not come up.
        """
        if self._client is None:
            with self._starting():
                self._client = Child("client")
                self._start(self._client)

    @contextmanager
    def _starting(self) -> Iterator[None]:
        """End all processes if one of them, or a host, fails meanwhile."""
        try:
            yield
        except NotStartedError as error:
            self.close()
            said = f"testbed {self.plan.kind}: {error.message}\n{error.failure.output_tail}"
            raise TestbedError(said.rstrip()) from None
        except AdvisorError:
            self.close()
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
        at_start(client, runner.open_runner, target, names, host, logical)
        for name, program in self._programs.items():
            self._open(client, name, *program)

    def add_program(self, name: str, bundle: Path, graph: OpGraph) -> None:
        """Make a bundle known that candidates can run, by a name of its own.

        Raises:
            TestbedError: it cannot be loaded.
        """
        self._programs[name] = str(bundle), graph
        if self._client is not None:
            with self._starting():
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
            return crash_failure(error)

    def _profile(self, label: str, steps: int) -> ProfileFiles | CallFailure:
        folder = tempfile.mkdtemp(prefix=f"profile-{label}-", dir=self._scratch)
        before = self.site.pings()
        for i, child in enumerate(self._workers):
            theirs = self.site.new_folder(i, f"profile-{label}-{child.name}")
            failed = child.call(runner.start_profiler, theirs, time_limit_s=CALL_LIMIT_S)
            if failed is not None:
                self.close()
                return failed
        limit_s = steps_limit_s(self.plan, steps)
        answer = self.call(runner.profile_steps, label, steps, folder, time_limit_s=limit_s)
        written = []
        for child in self._workers:  # Stop them also after a failed step: others will follow.
            path = child.call(runner.stop_profiler, time_limit_s=CALL_LIMIT_S)
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
        self._client, self._workers, self.core_clocks = None, (), {}

    def _open(self, client: Child, name: str, bundle: str, graph: OpGraph) -> None:
        # Over a slow network a step may take minutes, whatever its ops do.
        limit_s = MOST_LIMIT_S if self.plan.hosts else step_limit_s(graph)
        at_start(client, runner.open_program, name, bundle, graph, limit_s)

    def _children(self) -> tuple[Callee, ...]:
        return (*self._workers, self._client) if self._client else self._workers

    def _needed(self) -> tuple[Callee, ...]:
        """Return the processes without which the client gets no answer."""
        return (*self._workers, *self.site.relays)

    def _dead(self) -> CallFailure | None:
        """Return how one of these died, if one did: the client only sees a broken connection."""
        return first_exit(self._needed(), self.site)

    def _down(self) -> CallFailure:
        message = self.lost or f"testbed {self.plan.kind}: its processes have ended"
        return CallFailure(cause=FailureCause.CRASHED, message=message, child_ended=True)

    def _start_workers(self, client: Child) -> tuple[str, ...]:
        """Start one server per device in a network of their own; return their addresses."""
        first = self.plan.slots[0]
        if first.is_core and (not self.plan.hosts or self.plan.hosts[0].is_here):
            # On a core that has slept, the client took up to 3 ms longer to begin and end a step.
            at_start(client, os.sched_setaffinity, 0, {first.number})
        for i, device in enumerate(self.plan.devices):
            self._workers = (*self._workers, self.site.fork(i, device.name))
        addresses = self.site.join(self._workers, client)
        serving = [
            child.start(runner.serve, addresses, i, slot, self.site.carriers(i))
            for i, (child, slot) in enumerate(zip(self._workers, self.plan.slots, strict=True))
        ]
        for child, begun, device in zip(self._workers, serving, self.plan.devices, strict=True):
            answer = begun.wait(time_limit_s=START_LIMIT_S)
            token = expect(answer, partial(NotStartedError, child))
            if token is not None:
                self.core_clocks[device.name] = token
        return addresses


def fetched_profiles(
    site: ProcessLauncher,
    before: Pings,
    client: Path,
    devices: Sequence[str],
    written: Sequence[str],
) -> ProfileFiles:
    """Return profiles, brought here from the machines of their devices, with these' clocks.

    The clocks were read ``before`` the steps that were profiled.

    Raises:
        TestbedError: a machine is gone.
    """
    clocks = site.clocks(before)
    files = {name: site.fetch(i, written[i]) for i, name in enumerate(devices[: len(written)])}
    return ProfileFiles(client=client, devices=files, clocks=clocks)
