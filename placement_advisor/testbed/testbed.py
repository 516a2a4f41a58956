"""Testbeds: the devices on which candidates really run, seen from the command's process.

Every testbed has one client child that drives the steps. The `workers` testbed has one more child
per device, pinned to a core of its own and joined to the client by gRPC; the client waits while
they work, on the first one's core. The others hold their devices in the client's own process. When
any of these processes dies, the testbed is down: the call in flight gets a `ChildFailure`, and
`start` builds it anew.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placement_advisor.errors import TestbedError
from placement_advisor.machine.testbed_plan import TestbedKind
from placement_advisor.machine.this_machine import free_ports
from placement_advisor.processes.children import Child, ChildError, ChildFailure
from placement_advisor.tf.answers import RunFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.testbed_plan import TestbedPlan

# The program that is the step as it was traced; a split of the batch is another one.
STEP = "step"
_RUNNER = "placement_advisor.tf.run.runner"
_WORKER = "placement_advisor.tf.run.worker"
_NETWORK = "placement_advisor.tf.run.private_network"
_FIRST_PORT = 20_000
# Starting a server takes 0.1 s; anything near this is a hang.
START_LIMIT_S = 60.0
# TensorFlow reports a lost connection a little before the kernel reports the dead process.
_DEATH_GRACE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFiles:
    """Raw profiles of one window: the client's, and one per device where devices are processes."""

    client: Path
    devices: dict[str, Path]


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
