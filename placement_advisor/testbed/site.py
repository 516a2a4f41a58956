"""Where the processes of a testbed run, and how those that serve TensorFlow reach one another.

A site is this machine, or several hosts (`host_site.py`). Processes are named by the number of the
device that they stand for.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from placement_advisor.machine.this_machine import free_ports
from placement_advisor.processes.call_failure import expect
from placement_advisor.processes.children import Child
from placement_advisor.profile.timeline.clock_alignment import ONE_CLOCK
from placement_advisor.tf.run import private_network

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from placement_advisor.errors import TestbedError
    from placement_advisor.machine.clock_range import Ping
    from placement_advisor.processes.call_failure import CallFailure
    from placement_advisor.processes.callee import Callee
    from placement_advisor.profile.timeline.clock_alignment import HostClocks

    Pings = Mapping[str, Sequence[Ping]]
    NotStarted = Callable[[Callee, CallFailure], TestbedError]

# Starting a server takes 0.1 s; anything near this is a hang.
START_LIMIT_S = 60.0
FIRST_PORT = 20_000


class Site(Protocol):
    """The machines of a testbed's devices."""

    @property
    def lost(self) -> str | None:
        """Why nothing can run here any more, None if it can: a machine is gone for good."""

    @property
    def relays(self) -> tuple[Callee, ...]:
        """Processes that carry what others send; when one of them dies, so do their networks."""

    def hear(self) -> None:
        """Wait until each machine has answered, or is known to be gone."""

    def fork(self, device: int, name: str) -> Callee:
        """Return a new process on the machine of a device.

        Raises:
            TestbedError: that machine is gone.
        """

    def join(
        self, workers: Sequence[Callee], client: Callee | None, not_started: NotStarted
    ) -> tuple[str, ...]:
        """Bring processes, one for each device, into one network; return the address of each there.

        The client, if there is one, reaches them too. ``not_started`` returns what to raise for a
        process that fails.

        Raises:
            TestbedError: a process fails, or the system lets us make no network.
        """

    def carriers(self, device: int) -> tuple[int, ...]:
        """Return the ids of processes that carry what a device copies, on its own core."""

    def send(self, device: int, path: Path) -> str:
        """Bring a file or a folder to the machine of a device; return where it is there.

        Raises:
            AdvisorError: it cannot be written there, or that machine is gone.
        """

    def new_folder(self, device: int, name: str) -> str:
        """Make a folder on the machine of a device, for what a process there writes."""

    def fetch(self, device: int, path: str) -> Path:
        """Bring a file here that a process wrote into such a folder.

        Raises:
            TestbedError: that machine is gone.
        """

    def pings(self) -> Pings:
        """Read the clocks of other hosts, before something is profiled there.

        Raises:
            TestbedError: a host is gone.
        """

    def clocks(self, before: Pings) -> HostClocks:
        """Return whose clocks devices read, and how far these were from this machine's since then.

        Raises:
            TestbedError: a host is gone, or its clock was set meanwhile.
        """


class ThisMachine:
    """The machine of the command, with a network of its own for each set of processes.

    With ``open_ports`` they stay in the machine's.
    """

    def __init__(self, scratch: Path, *, open_ports: bool) -> None:
        """Put what is written into a folder."""
        self._scratch, self._open_ports = scratch, open_ports

    @property
    def lost(self) -> None:
        """None: the command is gone when its machine is."""
        return

    @property
    def relays(self) -> tuple[Callee, ...]:
        """Return none: all that is sent stays in the machine."""
        return ()

    def hear(self) -> None:
        """Return at once."""

    def fork(self, device: int, name: str) -> Callee:
        """Return a new process."""
        return Child(name)

    def join(
        self, workers: Sequence[Callee], client: Callee | None, not_started: NotStarted
    ) -> tuple[str, ...]:
        """Bring processes into one network; see `Site.join`."""
        if self._open_ports:
            return tuple(f"127.0.0.1:{port}" for port in free_ports(len(workers)))
        join_private_network([*workers, *([client] if client else [])], not_started)
        return tuple(f"127.0.0.1:{FIRST_PORT + i}" for i in range(len(workers)))

    def carriers(self, device: int) -> tuple[int, ...]:
        """Return none: workers send one another all by themselves."""
        return ()

    def send(self, device: int, path: Path) -> str:
        """Return where it is already."""
        return str(path)

    def new_folder(self, device: int, name: str) -> str:
        """Make a folder: the profile before is the candidate's if this one fails."""
        return tempfile.mkdtemp(prefix=f"{name}-", dir=self._scratch)

    def fetch(self, device: int, path: str) -> Path:
        """Return the file, which is here."""
        return Path(path)

    def pings(self) -> Pings:
        """Return none: all processes read one clock."""
        return {}

    def clocks(self, before: Pings) -> HostClocks:
        """Return that all processes read one clock."""
        return ONE_CLOCK


def join_private_network(processes: Sequence[Callee], not_started: NotStarted) -> None:
    """Bring processes of one machine into a new network of their own.

    Raises:
        TestbedError: a process fails, or the system lets us make no network.
    """
    first, *others = processes
    created = first.call(private_network.create, time_limit_s=START_LIMIT_S)
    expect(created, partial(not_started, first))
    for each in others:
        join_network_of(first, each, not_started)


def join_network_of(member: Callee, process: Callee, not_started: NotStarted) -> None:
    """Bring a process into the private network of another one on its machine.

    Raises:
        TestbedError: the process fails, or the system refuses.
    """
    joined = process.call(private_network.join, member.pid, time_limit_s=START_LIMIT_S)
    expect(joined, partial(not_started, process))
