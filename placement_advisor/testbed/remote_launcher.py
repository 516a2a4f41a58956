"""Several hosts as the machines of one testbed.

With TLS, TensorFlow's servers stay in a private network on each host, in which every other
worker has a port of 127.0.0.1 too; a relay on each host joins these networks. Directly, they
listen on the hosts' own network. The client of the testbed is a process of the command's
machine: where that is the first host, it is in the network of the workers there; else it has one
of its own, with a relay that only leads outwards.
"""

from __future__ import annotations

import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError, TestbedError
from placement_advisor.machine import testbed_plan, this_machine
from placement_advisor.machine.clock_range import range_of_pings
from placement_advisor.processes.children import Child
from placement_advisor.profile.worker_steps import HostClocks
from placement_advisor.remote_hosts import relay, remote_host
from placement_advisor.remote_hosts.tls import new_secret
from placement_advisor.testbed import testbed as testbeds
from placement_advisor.tf.run import private_network

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.processes.calls import Callee


_NETWORK_BITS = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class _RelayOfHost:
    """The relay of a host: its process and its folder there, and its port, None if it has none."""

    process: Callee
    folder: str
    port: int | None


class RemoteLauncher(testbeds.ProcessLauncher):
    """Hosts that lend their devices. What was fetched from them lies in a folder here."""

    def __init__(
        self,
        plan: testbed_plan.TestbedPlan,
        hosts: Sequence[remote_host.RemoteHost],
        scratch: Path,
    ) -> None:
        """Take the hosts of a plan, connected, in its order."""
        self._secret: bytes | None = None
        self._shares, self._hosts, self._scratch = plan.hosts, tuple(hosts), scratch
        self._link = plan.link
        self._host_of = [i for i, share in enumerate(plan.hosts) for _ in share.slots]
        self._sent: dict[tuple[int, Path], str] = {}
        # By the number of the host; None is the command's machine, where it is not the first host.
        self._relays: dict[int | None, _RelayOfHost] = {}

    @property
    def lost(self) -> str | None:
        """Why a host is gone, which all of them end with; None if all are there."""
        return remote_host.lost_among(self._hosts)

    @property
    def relays(self) -> tuple[Callee, ...]:
        """Return the relays that have been started."""
        return tuple(each.process for each in self._relays.values())

    def hear(self) -> None:
        """Wait until each host has answered, or is lost."""
        for host in self._hosts:
            host.hear()

    def fork(self, device: int, name: str) -> Callee:
        """Return a new process on the host of a device."""
        return self._hosts[self._host_of[device]].child(name)

    def join(self, workers: Sequence[Callee], client: Callee | None) -> tuple[str, ...]:
        """Bring processes into one network; see `ProcessLauncher.join`."""
        if self._link is testbed_plan.HostLink.DIRECT:
            return self._own_ports(workers)
        self._start_relays()
        network = secrets.randbits(_NETWORK_BITS)
        ports = [testbeds.FIRST_PORT + i for i in range(len(workers))]
        for host in range(len(self._hosts)):
            members = [w for i, w in enumerate(workers) if self._host_of[i] == host]
            near = tuple(p for i, p in enumerate(ports) if self._host_of[i] == host)
            testbeds.join_private_network(members)
            _open(self._relays[host], members[0], network, near, self._far(ports, host))
        if client is not None and self._shares[0].is_here:
            testbeds.at_start(client, private_network.join, workers[0].pid)
        elif client is not None:
            testbeds.join_private_network([client])
            _open(self._relays[None], client, network, (), self._far(ports, None))
        return tuple(f"localhost:{port}" for port in ports)

    def carriers(self, device: int) -> tuple[int, ...]:
        """Return the relay of the host, unless it has cores that it does not lend."""
        host = self._host_of[device]
        known = self._relays.get(host)
        if known is None or not self._shares[host].lends_all:
            return ()
        return (known.process.pid,)

    def send(self, device: int, path: Path) -> str:
        """Bring a file or a folder to the host of a device, once; return where it is there."""
        host = self._host_of[device]
        if (host, path) not in self._sent:
            self._sent[host, path] = self._hosts[host].put(path)
        return self._sent[host, path]

    def new_folder(self, device: int, name: str) -> str:
        """Make a folder on the host of a device."""
        return self._hosts[self._host_of[device]].new_folder(name)

    def fetch(self, device: int, path: str) -> Path:
        """Bring a file here from the host of a device."""
        here = Path(tempfile.mkdtemp(dir=self._scratch)) / Path(path).name
        self._hosts[self._host_of[device]].get(path, here)
        return here

    def pings(self) -> testbeds.Pings:
        """Read the clocks of all hosts."""
        return {host.name: host.pings() for host in self._hosts}

    def clocks(self, before: testbeds.Pings) -> HostClocks:
        """Return how far the clocks of hosts were from this machine's since they were read."""
        ranges = {}
        for name, after in self.pings().items():
            at_ns = (before[name][0].asked_ns + after[-1].answered_ns) // 2
            found = range_of_pings([*before[name], *after], at_ns)
            if found is None:
                raise TestbedError(f"host {name}: its clock was set while steps were profiled")
            ranges[name] = found
        host_of = {name: share.name for share in self._shares for name in share.device_names}
        return HostClocks(host_of=host_of, ranges=ranges)

    def close(self) -> None:
        """End the relays."""
        for each in self.relays:
            each.close()
        self._relays = {}

    def _own_ports(self, workers: Sequence[Callee]) -> tuple[str, ...]:
        """Return addresses on the hosts' own network at which nobody listens yet."""
        addresses = []
        for host, share in enumerate(self._shares):
            members = [w for i, w in enumerate(workers) if self._host_of[i] == host]
            ports = testbeds.at_start(members[0], this_machine.free_ports, len(members))
            addresses += [f"{share.address}:{port}" for port in ports]
        return tuple(addresses)

    def _start_relays(self) -> None:
        """Start those that do not run: all of them at first, later those that have died."""
        secret = self._secret = self._secret or new_secret()
        for number, (host, share) in enumerate(zip(self._hosts, self._shares, strict=True)):
            if self._has_relay(number):
                continue
            folder = host.new_folder("relay")
            process = host.child(f"relay-{share.name}")
            self._relays[number] = _started(process, folder, secret, share.address)
        if not self._shares[0].is_here and not self._has_relay(None):
            folder = tempfile.mkdtemp(prefix="relay-", dir=self._scratch)
            self._relays[None] = _started(Child("relay"), folder, secret, None)

    def _has_relay(self, number: int | None) -> bool:
        """Return whether a relay runs; let go of one that has died."""
        known = self._relays.get(number)
        if known is None:
            return False
        if known.process.failure() is None:
            return True
        known.process.close()
        del self._relays[number]
        return False

    def _far(self, ports: Sequence[int], host: int | None) -> tuple[tuple[int, str, int], ...]:
        """Return where ports of workers elsewhere lead to."""
        found = []
        for port, there in zip(ports, self._host_of, strict=True):
            if there != host:
                leads_to = self._relays[there].port
                assert leads_to is not None, "relays of hosts listen"
                found.append((port, self._shares[there].address, leads_to))
        return tuple(found)


def _open(
    here: _RelayOfHost,
    member: Callee,
    network: int,
    near: tuple[int, ...],
    far: tuple[tuple[int, str, int], ...],
) -> None:
    testbeds.at_start(member, relay.open_network, here.folder, network, near, far)


def _started(process: Callee, folder: str, secret: bytes, address: str | None) -> _RelayOfHost:
    try:
        port = testbeds.at_start(process, relay.start, folder, secret, address)
    except AdvisorError:
        process.close()
        raise
    return _RelayOfHost(process=process, folder=folder, port=port)
