"""Testbeds: the devices on which candidates really run, seen from the command's process.

Every testbed has one client child that drives the steps. The `workers` testbed has one more child
per device, pinned to a core of its own and joined to the client by gRPC; the client waits while
they work, on the first one's core. The others hold their devices in the client's own process. When
any of these processes dies, the testbed is down: the call in flight gets a `ChildFailure`, and
`start` builds it anew.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placement_advisor.children import Child, ChildError, ChildFailure
from placement_advisor.devices import Device
from placement_advisor.doctor.nvidia import common_memory, find_gpus
from placement_advisor.doctor.system import can_have_private_network
from placement_advisor.errors import TestbedError
from placement_advisor.machine import free_ports, gpu_count, usable_cores
from placement_advisor.tf.answers import RunFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from placement_advisor.graph import OpGraph

# The program that is the step as it was traced; a split of the batch is another one.
STEP = "step"
_RUNNER = "placement_advisor.tf.runner"
_WORKER = "placement_advisor.tf.worker"
_NETWORK = "placement_advisor.tf.private_network"
_FIRST_PORT = 20_000
# Starting a server takes 0.1 s; anything near this is a hang.
START_LIMIT_S = 60.0
# TensorFlow reports a lost connection a little before the kernel reports the dead process.
_DEATH_GRACE_S = 0.5
_PORTS_ARE_OPEN = (
    "this system lets us make no private network: until this run ends, TensorFlow's workers listen "
    "on every interface without authentication, and whoever reaches them can read and write your "
    "files (--open-ports)"
)


class TestbedKind(StrEnum):
    """Where candidates run."""

    __test__ = False  # The name starts with "Test"; pytest must not collect it.

    GPUS = "gpus"
    WORKERS = "workers"
    LOGICAL_CPUS = "logical-cpus"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestbedPlan:
    """What was chosen for this machine; ``not_run`` says why nothing can run, if so.

    Workers have a network of their own, unless the user accepts ``open_ports``: then whoever
    reaches this machine by network reaches them.
    """

    __test__ = False  # The name starts with "Test"; pytest must not collect it.

    kind: TestbedKind
    devices: tuple[Device, ...]
    cores: tuple[int, ...]
    stand_in: bool
    description: str
    not_run: str | None
    open_ports: bool = False

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user is to know before anything starts."""
        return (_PORTS_ARE_OPEN,) if self.open_ports else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFiles:
    """Raw profiles of one window: the client's, and one per device where devices are processes."""

    client: Path
    devices: dict[str, Path]


def plan_testbed(kind: TestbedKind | None, count: int) -> TestbedPlan:
    """Choose a testbed of ``count`` devices for this machine.

    Raises:
        TestbedError: the kind asked for cannot be had here.
    """
    gpus = gpu_count()
    if kind is TestbedKind.GPUS and gpus < count:
        raise TestbedError(
            f"--testbed gpus: {count} devices asked for, {gpus} GPUs found",
            hint="use --testbed workers, or fewer --devices",
        )
    if kind is None:
        kind = TestbedKind.GPUS if gpus >= count else TestbedKind.WORKERS
    if kind is TestbedKind.GPUS:
        memory_bytes = common_memory(find_gpus())
        return TestbedPlan(
            kind=kind,
            devices=tuple(
                Device(name=f"GPU:{i}", kind="GPU", memory_bytes=memory_bytes) for i in range(count)
            ),
            cores=(),
            stand_in=False,
            description=f"{count} GPUs",
            not_run=None,
        )
    if kind is TestbedKind.LOGICAL_CPUS:
        return TestbedPlan(
            kind=kind,
            devices=tuple(Device(name=f"cpu:{i}", kind="CPU") for i in range(count)),
            cores=(),
            stand_in=True,
            description=f"{count} logical CPUs of one process (shared cores, copies are pointers)",
            not_run=None,
        )
    devices = tuple(Device(name=f"worker:{i}", kind="CPU") for i in range(count))
    cores = usable_cores()
    not_run = None
    if kind is TestbedKind.NONE:
        not_run = "--testbed none: nothing was run"
    elif count > len(cores):
        not_run = (
            f"{count} devices need {count} cores of their own; this machine lets us use "
            f"{len(cores)} (affinity, quota and physical cores counted)"
        )
    return TestbedPlan(
        kind=TestbedKind.NONE if not_run else kind,
        devices=devices,
        cores=() if not_run else cores[:count],
        stand_in=True,
        description=f"{count} CPU stand-ins (1 core each, gRPC)",
        not_run=not_run,
    )


def with_network(
    plan: TestbedPlan, *, open_ports: bool, instead: str, note: Callable[[str], None]
) -> TestbedPlan:
    """Return the plan with open ports if it has workers that cannot have a private network.

    ``note`` is told so, for the user to know before anything starts. ``instead`` is what else can
    be done.

    Raises:
        TestbedError: ``open_ports`` does not accept them.
    """
    if plan.kind is not TestbedKind.WORKERS or can_have_private_network():
        return plan
    if not open_ports:
        raise TestbedError(
            "this system lets us make no private network, and without one TensorFlow's workers "
            "listen on every interface without authentication: whoever reaches them can read and "
            "write your files",
            hint=f"{instead}; --open-ports accepts it until the run ends; `advisor doctor` says "
            "how to allow a network",
        )
    plan = replace(plan, open_ports=True)
    for warning in plan.warnings:
        note(f"warning: {warning}")
    return plan


class Testbed:
    """Running devices. Start it, call it, close it; after a failed call start it again."""

    __test__ = False  # The name starts with "Test"; pytest must not collect it.

    def __init__(self, plan: TestbedPlan, *, scratch: Path) -> None:
        """Prepare a testbed; ``scratch`` holds profiles."""
        self.plan = plan
        self._scratch = scratch
        self._programs: dict[str, tuple[str, OpGraph]] = {}
        self._client: Child | None = None
        self._workers: tuple[Child, ...] = ()

    @property
    def up(self) -> bool:
        """Whether its processes run."""
        return self._client is not None

    @property
    def process_ids(self) -> dict[str, int]:
        """Process ids by name, of what runs now."""
        return {child.name: child.pid for child in self._children()}

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
        client = Child("client")
        self._client = client
        count = len(self.plan.devices)
        if self.plan.kind is TestbedKind.WORKERS:
            addresses = self._start_workers(client)
            devices = [f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(count)]
            target, host, logical = f"grpc://{addresses[0]}", devices[0], 0
        else:
            kind = self.plan.devices[0].kind
            local = "/job:localhost/replica:0/task:0/device:"
            devices = [f"{local}{kind}:{i}" for i in range(count)]
            target, host = "", f"{local}CPU:0"
            logical = count if kind == "CPU" else 0
        names = dict(zip((d.name for d in self.plan.devices), devices, strict=True))
        self._must(
            client.call(
                f"{_RUNNER}:open_runner",
                target,
                names,
                host,
                logical,
                time_limit_s=START_LIMIT_S,
            ),
            client,
        )
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

    def call(self, function: str, *args: Any, time_limit_s: float) -> Any:
        """Call a function of the runner; a `ChildFailure` means that the testbed is down."""
        client = self._client
        assert client is not None, "start comes first"
        client.start(f"{_RUNNER}:{function}", *args)
        try:
            answer = client.wait(time_limit_s=time_limit_s, watch=self._workers)
        except ChildError:
            answer = self._dead_worker()
            if answer is None:
                raise
        if isinstance(answer, RunFailure):
            answer = self._dead_worker() or answer
        if isinstance(answer, ChildFailure):
            self.close()
        return answer

    def profile(
        self, label: str, steps: int, *, time_limit_s: float
    ) -> ProfileFiles | ChildFailure | Any:
        """Run steps with all profilers on; anything but files is what went wrong."""
        client = self._client
        assert client is not None, "start comes first"
        folders = {
            child.name: profile_folder(self._scratch, label, child) for child in self._children()
        }
        for worker in self._workers:
            failed = worker.call(
                f"{_WORKER}:start_profiler", str(folders[worker.name]), time_limit_s=time_limit_s
            )
            if isinstance(failed, ChildFailure):
                self.close()
                return failed
        answer = self.call(
            "profile_steps", label, steps, str(folders[client.name]), time_limit_s=time_limit_s
        )
        for worker in self._workers:  # Stop them also after a failed step: others will follow.
            failed = worker.call(f"{_WORKER}:stop_profiler", time_limit_s=time_limit_s)
            if isinstance(failed, ChildFailure):
                self.close()
                return failed
        if answer is not None:
            return answer
        files = {name: only_profile(folder) for name, folder in folders.items()}
        return ProfileFiles(client=files.pop(client.name), devices=files)

    def close(self) -> None:
        """End all processes."""
        for child in self._children():
            child.close()
        self._client, self._workers = None, ()

    def _open(self, client: Child, name: str, bundle: str, graph: OpGraph) -> None:
        function = f"{_RUNNER}:open_program"
        self._must(client.call(function, name, bundle, graph, time_limit_s=START_LIMIT_S), client)

    def _children(self) -> tuple[Child, ...]:
        return (*self._workers, self._client) if self._client else self._workers

    def _dead_worker(self) -> ChildFailure | None:
        """Return how a worker died, if one did: the client only sees a broken connection."""
        return dead_among(self._workers)

    def _start_workers(self, client: Child) -> tuple[str, ...]:
        """Start one server per device in a network of their own; return their addresses."""
        # On a core that has slept, the client took up to 3 ms longer to begin a step and to end it.
        self._must(
            client.call(
                "os:sched_setaffinity", 0, {self.plan.cores[0]}, time_limit_s=START_LIMIT_S
            ),
            client,
        )
        self._workers = tuple(Child(device.name) for device in self.plan.devices)
        addresses = join_network(self.plan, self._workers, (client,), self._must)
        for i, worker in enumerate(self._workers):
            worker.start(f"{_WORKER}:serve", addresses, i, self.plan.cores[i])
        for worker in self._workers:
            self._must(worker.wait(time_limit_s=START_LIMIT_S), worker)
        return addresses

    def _must(self, answer: Any, child: Child) -> Any:
        if isinstance(answer, ChildFailure):
            self.close()
            raise TestbedError(
                f"testbed {self.plan.kind}: {child.name} did not start: {answer.message}"
                f"\n{answer.output_tail}".rstrip()
            )
        return answer


def dead_among(children: Sequence[Child]) -> ChildFailure | None:
    """Return how one of several processes died, if one did: others see a broken connection."""
    for child in children:
        failure = child.failure(within_s=_DEATH_GRACE_S / len(children))
        if failure is not None:
            return failure
    return None


def join_network(
    plan: TestbedPlan,
    workers: Sequence[Child],
    others: Sequence[Child],
    must: Callable[[Any, Child], Any],
) -> tuple[str, ...]:
    """Put processes into a network of their own and return addresses there, one for each worker.

    With open ports they stay in the machine's. ``must`` is given each answer of a child, and raises
    where it is none.

    Raises:
        TestbedError: the system lets us make no network.
    """
    if plan.open_ports:
        return tuple(f"127.0.0.1:{port}" for port in free_ports(len(workers)))
    first, *joining = workers
    must(first.call(f"{_NETWORK}:create", time_limit_s=START_LIMIT_S), first)
    for child in (*joining, *others):
        must(child.call(f"{_NETWORK}:join", first.pid, time_limit_s=START_LIMIT_S), child)
    return tuple(f"127.0.0.1:{_FIRST_PORT + i}" for i in range(len(workers)))


def profile_folder(scratch: Path, label: str, child: Child) -> Path:
    """Make a folder for one profile: the one before is the candidate's if this one fails."""
    return Path(tempfile.mkdtemp(prefix=f"profile-{label}-{child.name}-", dir=scratch))


def only_profile(folder: Path) -> Path:
    """Return the profile that was written into a folder.

    Raises:
        TestbedError: none was.
    """
    found = sorted(folder.rglob("*.xplane.pb"))
    if not found:
        raise TestbedError(f"the profiler wrote nothing for {folder.name}")
    return found[-1]
