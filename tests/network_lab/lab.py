"""Hosts on one machine: network namespaces, each with a cable of a rate and a delay to a switch.

    with lab(hosts=2, rate_bit_per_s=1e9, delay_ns=5_000_000) as network:
        server = network.run("h0", ["iperf3", "-s"])
        network.call("h1", ["ping", "-c1", "h0"])

Hosts are called h0, h1, … and know each other by these names. Each has a network, a host name and
a view of /sys of its own; files and processes are those of the machine. The rate holds for each
host's cable, both ways, by the kernel's `tbf`. The *delay* is what it takes to reach a host, one
way; any delay, 0 included, is made by a switch in user space (`packet_switch.py`), no delay by the
kernel's bridge.

Works as root, and without where users may make namespaces. Whatever runs on a host ends with the
lab, also what it has started in turn and what has moved to a network of its own there.

Left out: loss, jitter, routes. A burst of `_BURST_NS` passes at once. On two cores copies of 16 MiB
kept to the rate within 5 % up to 1 Gbit/s by the bridge, which cuts every frame up for it.
"""

import contextlib
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from network_lab.namespaces import ENTER, RefusedError, UserSpace

_SWITCH = "switch"
_SWITCH_PROGRAM = Path(__file__).with_name("packet_switch.py")
_INTERFACE = "eth0"
# About what a TCP connection of Linux has under way at most: less loses frames, more does nothing.
_QUEUE_BYTES = 8 << 20
# What may pass the bridge unshaped after a pause; the kernel needs some for its timers.
_BURST_NS = 100_000
_LEAST_BURST_BYTES = 2 * 1_514
_CALL_LIMIT_S = 60.0


class Lab:
    """A running network."""

    def __init__(self, folder, keepers, delay_ns):
        """Connect hosts by a switch with a delay, None for a bridge."""
        self._folder, self._keepers = folder, keepers
        self.hosts = tuple(name for name in keepers if name != _SWITCH)
        self._started = []
        self._connect(bridged=delay_ns is None)
        if delay_ns is not None:
            program = [sys.executable, "-I", "-S", str(_SWITCH_PROGRAM), str(delay_ns)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            switch = self.run(_SWITCH, [*program, *self.hosts], **pipes)
            assert switch.stdout.readline() == "ready\n"

    @property
    def launcher(self):
        """The program that runs a command on a host: its arguments are the host and the command.

        The host may be called by its address as well.
        """
        return str(self._folder / "on")

    def address(self, host):
        """Return the address of a host."""
        return _address(self.hosts.index(host))

    def pid(self, host):
        """Return the id of a process whose network is that of a host, to be entered by."""
        return self._keepers[host].pid

    def run(self, host, command, **options):
        """Start a command on a host, with options of `subprocess.Popen`."""
        started = subprocess.Popen([self.launcher, host, *command], **options)
        self._started.append(started)
        return started

    def call(self, host, command, *, stdin="", time_limit_s=_CALL_LIMIT_S):
        """Run a command on a host to its end and return what it printed.

        Raises:
            subprocess.CalledProcessError: it failed; what it said stands in the error.
        """
        how = {"capture_output": True, "text": True, "timeout": time_limit_s, "check": False}
        done = subprocess.run([self.launcher, host, *command], input=stdin, **how)
        if done.returncode == 0:
            return done.stdout
        error = subprocess.CalledProcessError(done.returncode, done.args, done.stdout, done.stderr)
        error.add_note(done.stderr)
        raise error

    def unplug(self, host):
        """Pull the cable of a host out of the switch."""
        self.call(_SWITCH, ["ip", "link", "set", host, "down"])

    def plug_in(self, host):
        """Put the cable of a host back in."""
        self.call(_SWITCH, ["ip", "link", "set", host, "up"])

    def processes(self, host):
        """Return the ids of what runs on a host, in whatever network."""
        return self._keepers[host].inmates()

    def close(self):
        """End all that runs on the hosts, and the switch."""
        for process in self._started:
            process.kill()
        for keeper in self._keepers.values():
            keeper.end_inmates()
        for process in self._started:
            with process:  # Closes its pipes, and waits for it.
                pass

    def _connect(self, *, bridged):
        lines = ["link add name bridge type bridge", "link set bridge up"] if bridged else []
        for host in self.hosts:
            far_end = f"peer name {_INTERFACE} netns {self.pid(host)}"
            lines.append(f"link add name {host} type veth {far_end}")
            lines += [f"link set {host} master bridge"] if bridged else []
            lines.append(f"link set {host} up")
        self.call(_SWITCH, ["ip", "-batch", "-"], stdin="\n".join(lines) + "\n")
        for host in self.hosts:
            up = f"link set {_INTERFACE} up"
            lines = [f"address add {self.address(host)}/24 dev {_INTERFACE}", up]
            self.call(host, ["ip", "-batch", "-"], stdin="\n".join(lines) + "\n")

    def shape(self, rate_bit_per_s):
        """Give each cable a rate, None for no limit."""
        queue = "noqueue"
        if rate_bit_per_s is not None:
            burst_bytes = max(_LEAST_BURST_BYTES, round(rate_bit_per_s * _BURST_NS / 8e9))
            queue = f"tbf rate {rate_bit_per_s:.0f}bit burst {burst_bytes}b limit {_QUEUE_BYTES}b"
        for host in self.hosts:
            for where, interface in ((host, _INTERFACE), (_SWITCH, host)):
                replaced = ["tc", "qdisc", "replace", "dev", interface, "root"]
                self.call(where, [*replaced, *queue.split()])


@contextlib.contextmanager
def lab(*, hosts=2, rate_bit_per_s=None, delay_ns=None):
    """Make a network of hosts, and take it down in the end.

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
        network = Lab(folder, keepers, delay_ns)
        stack.callback(network.close)
        network.shape(rate_bit_per_s)
        yield network


@cache
def refusal():
    """Return why this system has no lab, None if it has one."""
    try:
        with lab(hosts=1, rate_bit_per_s=1e9):
            return None
    except RefusedError as error:
        return str(error)
    except subprocess.CalledProcessError as error:
        return f"this system allows no lab of namespaces: {error.stderr.strip()}"


def _address(number):
    return f"10.77.0.{number + 1}"
