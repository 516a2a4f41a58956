"""How far aligned clocks are off the truth between two hosts, and what is stated of it.

    PYTHONPATH=tests python tests/benchmarks/clock_alignment.py [--profiles 5]

Two hosts are network namespaces with a delay each way; command, client and one worker are on the
first, the other worker is on the second. They run a small chain whose device changes at every
layer. To what the second host reads of its clock a known skew is added: to its profile, and to its
answers to pings, which are taken over TCP before and after the profile.

Each row has, over several profiles, the largest error and the least and most that was stated of
it: by pings alone, by copies alone (pings are taken to be off by 200 ms), and by both, which the
advisor uses. On symmetric paths the error must be 50 µs at most; everywhere what is stated must
cover it.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from model_tracing import traced_model
from network_lab.lab import lab
from silent import Silent

from placement_advisor.candidates.by_layer import place_by_layer
from placement_advisor.graph.layer_structure import depth_first
from placement_advisor.graph.layer_view import layer_view
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.clock_range import ClockRange, Ping, range_of_pings
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.processes.calls import expect
from placement_advisor.processes.children import preload
from placement_advisor.profile.worker_steps import HostClocks, read_worker_steps
from placement_advisor.profile.xplane import copy_set_back
from placement_advisor.testbed import testbed as testbeds
from placement_advisor.testbed.benchmark import Benchmark
from placement_advisor.tf.run import private_network

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from network_lab.lab import Lab

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.processes.children import Child
    from placement_advisor.testbed.benchmark import BenchmarkEntry

US, MS, S = 1_000, 1_000_000, 1_000_000_000
# Delays to the second host and back.
SYMMETRIC = ((0, 0), (100 * US, 100 * US), (1 * MS, 1 * MS), (5 * MS, 5 * MS))
ASYMMETRIC = ((1 * MS, 0), (0, 1 * MS), (5 * MS, 1 * MS), (1 * MS, 5 * MS))
ALLOWED_NS = 50 * US
PINGS = 50
_PORT, _FIRST_PORT = 19_999, 20_000
_MOMENT_BYTES = 8
_MODEL = Path(__file__).with_name("chain_model.py")
_UNKNOWN_NS = 200 * MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is taken of the second host's clock, less what is true."""

    error_ns: int
    stated_ns: int

    @classmethod
    def of(cls, clock: ClockRange, skew_ns: int) -> Found:
        """Compare with the truth."""
        return cls(error_ns=clock.offset_ns - skew_ns, stated_ns=clock.uncertainty_ns)


def measure(
    network: Lab, trial: Benchmark, entry: BenchmarkEntry, scratch: Path, skew_ns: int
) -> Mapping[str, Found]:
    """Profile some steps and align them in three ways."""
    pings = list(pinged(network, skew_ns))
    trial.profile(entry)
    if entry.failure is not None or entry.prepared is None or entry.files is None:
        raise SystemExit(f"nothing was profiled: {entry.failure}")
    pings += pinged(network, skew_ns)
    middle_ns = (pings[0].asked_ns + pings[-1].answered_ns) // 2
    by_pings = range_of_pings(pings, middle_ns)
    if by_pings is None:
        raise SystemExit("this machine's clock was set")
    here, there = entry.files.devices
    skewed = scratch / "skewed.xplane.pb"
    copy_set_back(entry.files.devices[there], skewed, -skew_ns)
    found = {"pings": by_pings}
    for name, known in (("copies", by_pings.widened(_UNKNOWN_NS)), ("both", by_pings)):
        profile = read_worker_steps(
            {here: entry.files.devices[here], there: skewed},
            entry.files.client,
            entry.prepared.crossings,
            clocks=HostClocks(host_of={there: "h1"}, ranges={"h1": known}),
        )
        if profile.clock_contradiction_ns or profile.unseen_copies:
            raise SystemExit(f"this is no profile to align: {profile}")
        found[name] = profile.clocks[there]
    return {name: Found.of(clock, skew_ns) for name, clock in found.items()}


def pinged(network: Lab, skew_ns: int) -> Iterator[Ping]:
    """Yield pings of the second host by the first one, which has the command's clock."""
    lines = network.call("h0", [sys.executable, __file__, "--ask", network.address("h1")])
    for line in lines.splitlines():
        asked_ns, read_ns, answered_ns = map(int, line.split())
        yield Ping(asked_ns=asked_ns, read_ns=read_ns + skew_ns, answered_ns=answered_ns)


def answer() -> None:
    """Answer each byte with what the clock reads."""
    with socket.create_server(("", _PORT)) as listening:
        print("ready", flush=True)
        while True:
            connection, _ = listening.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while connection.recv(1):
                    connection.sendall(time.time_ns().to_bytes(_MOMENT_BYTES, "big"))


def ask(address: str) -> None:
    """Print pings of a host."""
    with socket.create_connection((address, _PORT)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(PINGS):
            asked_ns = time.time_ns()
            connection.sendall(b"?")
            read = connection.recv(_MOMENT_BYTES, socket.MSG_WAITALL)
            print(asked_ns, int.from_bytes(read, "big"), time.time_ns())


def join_hosts(
    network: Lab,
    plan: object,
    workers: tuple[Child, ...],
    others: tuple[Child, ...],
    not_started: object,
) -> tuple[str, ...]:
    """Put each worker on a host, all else on the first, as `testbed.join_network` does on one."""
    placed = [*zip(workers, network.hosts, strict=True), *((child, "h0") for child in others)]
    for child, host in placed:
        joined = child.call(private_network.join, network.pid(host), time_limit_s=60)
        expect(joined, partial(not_started, child))
    return tuple(
        f"{network.address(host)}:{_FIRST_PORT + i}" for i, host in enumerate(network.hosts)
    )


def alternating(graph: OpGraph, devices: tuple[str, ...]) -> Placement:
    """Return the placement that changes the device at every layer."""
    view = layer_view(graph)
    layers = {layer: devices[i % 2] for i, layer in enumerate(depth_first(view))}
    device_of = place_by_layer(graph, layers, {}, devices[0], member=view.membership)
    return Placement(label="alternating", family="alternating", device_of=device_of, rationale="")


def main() -> None:
    """Print a row for each path."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--profiles", type=int, default=5)
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.answer:
        answer()
    elif asked.ask:
        ask(asked.ask)
    else:
        sys.exit(0 if measured_paths(asked.profiles) else "some figures are out of their limits")


def measured_paths(profiles: int) -> bool:
    """Measure all paths, print a row for each, and return whether all are within the limits."""
    os.environ["CHAIN_BYTES"] = "4096"
    preload()
    drawn = random.Random(23)
    print("| there, back | by | largest error | stated | covered | within 50 µs |")
    print("|---|---|---|---|---|---|")
    good = True
    with tempfile.TemporaryDirectory() as folder, lab(hosts=2, delay_ns=0) as network:
        scratch = Path(folder)
        (scratch / "bundle").mkdir()
        traced = traced_model(_MODEL, "infer", scratch / "bundle")
        assert traced is not None
        server = network.run(
            "h1", [sys.executable, __file__, "--answer"], stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        server.stdout.readline()
        testbeds.join_network = partial(join_hosts, network)
        plan = plan_testbed(TestbedKind.WORKERS, 2)
        testbed = testbeds.Testbed(plan, scratch=scratch)
        testbed.add_program(testbeds.STEP, scratch / "bundle", traced.graph)
        try:
            testbed.start()
            trial = Benchmark(testbed, steps=4, watcher=Silent())
            entry = trial.enter(alternating(traced.graph, tuple(d.name for d in plan.devices)))
            for path in (*SYMMETRIC, *ASYMMETRIC):
                network.shape("h1", delay_ns=path[0])
                network.shape("h0", delay_ns=path[1])
                trial.settle(entry)
                found = [
                    measure(network, trial, entry, scratch, drawn.randint(-3_600 * S, 3_600 * S))
                    for _ in range(profiles)
                ]
                good &= print_rows(path, found)
        finally:
            testbed.close()
    return good


def print_rows(path: tuple[int, int], found: list[Mapping[str, Found]]) -> bool:
    """Print what was found on a path, and return whether it is as it must be."""
    there_ns, back_ns = path
    good = True
    for name in found[0]:
        of_name = [each[name] for each in found]
        largest_ns = max((each.error_ns for each in of_name), key=abs)
        stated = [each.stated_ns / US for each in of_name]
        covered = all(abs(each.error_ns) <= each.stated_ns for each in of_name)
        within = abs(largest_ns) <= ALLOWED_NS
        good &= covered and (name != "both" or within or there_ns != back_ns)
        print(
            f"| {there_ns / MS:g} ms, {back_ns / MS:g} ms | {name} | {largest_ns / US:+.1f} µs "
            f"| {min(stated):.1f} to {max(stated):.1f} µs | {'yes' if covered else 'NO'} "
            f"| {'yes' if within else 'no'} |",
            flush=True,
        )
    return good


if __name__ == "__main__":
    main()
