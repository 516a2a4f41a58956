"""Hosts on one machine: network namespaces, each with a cable of a rate and a delay to a switch.

    with lab(hosts=2, rate_bit_per_s=1e9, delay_ns=5_000_000) as network:
        server = network.run("h0", ["iperf3", "-s"])
        network.call("h1", ["ping", "-c1", "h0"])

Hosts are called h0, h1, … and know each other by these names. Each has a network, a host name and
a view of /sys of its own; files and processes are those of the machine. The rate holds for each
host's cable, both ways. The *delay* of a host is what it takes to reach it, one way, so that
different delays make paths asymmetric; any delay, 0 included, is made by a switch in user space
(`packet_switch.py`), no delay by the kernel's bridge and `tbf`.

Works as root, and without where users may make namespaces. Whatever runs on a host ends with the
lab, also what it has started in turn and what has moved to a network of its own there.

Left out: loss, jitter, routes. A burst of `_BURST_NS` passes the bridge at once. On two cores
copies of 16 MiB kept to the rate within 5 % up to 1 Gbit/s by the bridge, which cuts every frame up
for it, and up to 3 Gbit/s by the packet switch.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from network_lab.namespaces import ENTER, RefusedError, UserSpace

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence
    from types import EllipsisType

    from network_lab.namespaces import Keeper

_SWITCH = "switch"
_SWITCH_PROGRAM = Path(__file__).with_name("packet_switch.py")
_INTERFACE = "eth0"
# About what a TCP connection of Linux has under way at most: less loses frames, more does nothing.
QUEUE_BYTES = 8 << 20
# What may pass the bridge unshaped after a pause; the kernel needs some for its timers.
_BURST_NS = 100_000
_LEAST_BURST_BYTES = 2 * 1_514
_RENO = "reno"
_CALL_LIMIT_S = 60.0


@dataclass(slots=True)
class _Cable:
    rate_bit_per_s: float | None
    delay_ns: int | None


class Lab:
    """A running network."""

    def __init__(self, folder: Path, keepers: Mapping[str, Keeper], *, delays: bool) -> None:
        """Connect hosts; ``delays`` says that the switch is to be one that has them."""
        self._folder, self._keepers = folder, keepers
        self.hosts = tuple(name for name in keepers if name != _SWITCH)
        self._cables = {host: _Cable(None, 0 if delays else None) for host in self.hosts}
        self._started: list[subprocess.Popen[Any]] = []
        self._connect()
        self._switch = self._packet_switch() if delays else None

    @property
    def launcher(self) -> str:
        """The program that runs a command on a host: its arguments are the host and the command.

        The host may be called by its address as well.
        """
        return str(self._folder / "on")

    def address(self, host: str) -> str:
        """Return the address of a host."""
        return _address(self.hosts.index(host))

    def pid(self, host: str) -> int:
        """Return the id of a process whose network is that of a host, to be entered by."""
        return self._keepers[host].pid

    def run(
        self, host: str, command: Sequence[str | os.PathLike[str]], **options: Any
    ) -> subprocess.Popen[Any]:
        """Start a command on a host, with options of `subprocess.Popen`."""
        started = subprocess.Popen([self.launcher, host, *command], **options)
        self._started.append(started)
        return started

    def call(
        self,
        host: str,
        command: Sequence[str | os.PathLike[str]],
        *,
        stdin: str = "",
        time_limit_s: float = _CALL_LIMIT_S,
    ) -> str:
        """Run a command on a host to its end and return what it printed.

        Raises:
            subprocess.CalledProcessError: it failed; what it said stands in the error.
        """
        done = subprocess.run(
            [self.launcher, host, *command],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=time_limit_s,
            check=False,
        )
        if done.returncode:
            error = subprocess.CalledProcessError(
                done.returncode, done.args, done.stdout, done.stderr
            )
            error.add_note(done.stderr)
            raise error
        return done.stdout

    def shape(
        self,
        *hosts: str,
        rate_bit_per_s: float | EllipsisType | None = ...,
        delay_ns: int | EllipsisType = ...,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        """Give cables of some hosts, or of all, another rate (None: no limit) or another delay.

        Raises:
            ValueError: a delay is asked for, and the switch is one that has none.
        """
        for host in hosts or self.hosts:
            cable = self._cables[host]
            if rate_bit_per_s is not ...:
                cable.rate_bit_per_s = rate_bit_per_s
            if delay_ns is not ...:
                if cable.delay_ns is None:
                    raise ValueError("this lab has no delays: make it with one, which may be 0")
                cable.delay_ns = delay_ns
            if self._switch is None:
                self._shape_by_kernel(host, cable.rate_bit_per_s, queue_bytes)
            else:
                self._shape_by_switch(host, cable, queue_bytes)

    def unplug(self, host: str) -> None:
        """Pull the cable of a host out of the switch."""
        self.call(_SWITCH, ["ip", "link", "set", host, "down"])

    def plug_in(self, host: str) -> None:
        """Put the cable of a host back in."""
        self.call(_SWITCH, ["ip", "link", "set", host, "up"])

    def set_congestion_control(self, name: str) -> None:
        """Let connections that begin from now on have that congestion control.

        With reno, whose rate follows from what is known, it is not forgotten in pauses either.
        """
        settings = {"tcp_congestion_control": name}
        settings["tcp_slow_start_after_idle"] = "0" if name == _RENO else "1"
        for host in self.hosts:
            for key, value in settings.items():
                self.call(host, ["sh", "-c", f"echo {value} > /proc/sys/net/ipv4/{key}"])

    def congestion_control(self, host: str) -> str:
        """Return what connections of a host have that begin now."""
        return self.call(host, ["cat", "/proc/sys/net/ipv4/tcp_congestion_control"]).strip()

    def processes(self, host: str) -> tuple[int, ...]:
        """Return the ids of what runs on a host, in whatever network."""
        return self._keepers[host].inmates()

    def close(self) -> None:
        """End all that runs on the hosts, and the switch."""
        for process in self._started:
            process.kill()
        for keeper in self._keepers.values():
            keeper.end_inmates()
        for process in self._started:
            with process:  # Closes its pipes, and waits for it.
                pass

    def _connect(self) -> None:
        bridged = self._cables[self.hosts[0]].delay_ns is None
        lines = ["link add name bridge type bridge", "link set bridge up"] if bridged else []
        for host in self.hosts:
            far_end = f"peer name {_INTERFACE} netns {self.pid(host)}"
            lines.append(f"link add name {host} type veth {far_end}")
            lines += [f"link set {host} master bridge"] if bridged else []
            lines.append(f"link set {host} up")
        self.call(_SWITCH, ["ip", "-batch", "-"], stdin="\n".join(lines) + "\n")
        for host in self.hosts:
            lines = [
                f"address add {self.address(host)}/24 dev {_INTERFACE}",
                f"link set {_INTERFACE} up",
            ]
            self.call(host, ["ip", "-batch", "-"], stdin="\n".join(lines) + "\n")

    def _packet_switch(self) -> subprocess.Popen[str]:
        return self.run(
            _SWITCH,
            [sys.executable, "-I", "-S", str(_SWITCH_PROGRAM), *self.hosts],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _shape_by_switch(self, host: str, cable: _Cable, queue_bytes: int) -> None:
        assert self._switch is not None
        assert self._switch.stdin is not None
        assert self._switch.stdout is not None
        asked = {
            "port": host,
            "rate_bit_per_s": cable.rate_bit_per_s,
            "delay_ns": cable.delay_ns,
            "queue_bytes": queue_bytes,
        }
        self._switch.stdin.write(json.dumps(asked) + "\n")
        self._switch.stdin.flush()
        if not self._switch.stdout.readline():
            raise RuntimeError(f"the packet switch ended with {self._switch.wait()}")

    def _shape_by_kernel(self, host: str, rate_bit_per_s: float | None, queue_bytes: int) -> None:
        for where, interface in ((host, _INTERFACE), (_SWITCH, host)):
            root = ["qdisc", "replace", "dev", interface, "root"]
            if rate_bit_per_s is None:
                self.call(where, ["tc", *root, "noqueue"])
                continue
            burst_bytes = max(_LEAST_BURST_BYTES, round(rate_bit_per_s * _BURST_NS / 8e9))
            shaped = f"tbf rate {rate_bit_per_s:.0f}bit burst {burst_bytes}b limit {queue_bytes}b"
            self.call(where, ["tc", *root, *shaped.split()])


@contextlib.contextmanager
def lab(
    *,
    hosts: int = 2,
    rate_bit_per_s: float | None = None,
    delay_ns: int | None = None,
    congestion_control: str | None = None,
) -> Iterator[Lab]:
    """Make a network of hosts, and take it down in the end.

    ``congestion_control`` None is the system's default.

    Raises:
        RefusedError: the system gives no such namespaces, or has no tools to make them.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lab-")))
        space = UserSpace()
        stack.callback(space.close)
        names = [f"h{number}" for number in range(hosts)]
        addresses = {name: _address(number) for number, name in enumerate(names)}
        names_file = folder / "hosts.txt"
        known = {"localhost": "127.0.0.1", **addresses}
        names_file.write_text("".join(f"{at} {name}\n" for name, at in known.items()))
        keepers = {}
        for name in (_SWITCH, *names):
            keepers[name] = space.keeper(name, names_file)
            stack.callback(keepers[name].close)
            for spelling in (name, addresses.get(name, name)):
                (folder / spelling).write_text(str(keepers[name].pid))
        enter = folder / "on"
        enter.write_text(ENTER)
        enter.chmod(0o755)
        network = Lab(folder, keepers, delays=delay_ns is not None)
        stack.callback(network.close)
        network.shape(rate_bit_per_s=rate_bit_per_s, delay_ns=... if delay_ns is None else delay_ns)
        if congestion_control is not None:
            network.set_congestion_control(congestion_control)
        yield network


@cache
def refusal() -> str | None:
    """Return why this system has no lab, None if it has one."""
    try:
        with lab(hosts=1, rate_bit_per_s=1e9):
            return None
    except RefusedError as error:
        return str(error)
    except subprocess.CalledProcessError as error:
        return f"this system allows no lab of namespaces: {error.stderr.strip()}"


def _address(number: int) -> str:
    return f"10.77.0.{number + 1}"
