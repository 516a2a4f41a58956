"""How far copies between two hosts are off what calibration says of them.

    PYTHONPATH=tests python tests/benchmarks/host_copies.py --seed 1

Hosts are network namespaces, a core each, over a network of three rates and two delays, with reno
and with the system's own congestion control. On each the testbed is calibrated first; the times
that it says of copies of sizes drawn at random from 4 kB to 16 MB are written down; only then
copies of these sizes are made, each way, in several rounds of all sizes. An error is that of the
median of the rounds; beside it stands how far medians of half of the rounds each are apart. Every
size takes 80 copies a round, which are minutes over a slow network: there are fewer rounds there.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from host_testbeds import host_options, host_testbed
from network_lab.lab import lab
from network_lab.two_hosts import TwoHosts
from silent import Silent

from placement_advisor.cost.links import calibrated_cluster
from placement_advisor.processes.calls import CallFailure
from placement_advisor.processes.children import preload
from placement_advisor.testbed.cost_measurement import calibration_of_hosts
from placement_advisor.tf.calls import runner

if TYPE_CHECKING:
    from placement_advisor.testbed.testbed import Testbed

RATES_MBIT = (1000, 300, 100)
DELAYS_MS = (0.1, 2.0)
# What the median may be off by, for each congestion control; the default is the system's.
CONTROLS = {"reno": 0.10, "default": 0.20}
LEAST_BYTES, MOST_BYTES = 4_096, 16 << 20
SIZES = 8
# So many rounds, but no further ones after that long, so that a slow network ends in some minutes;
# of three the middle one may be right where one is wrong.
ROUNDS, LEAST_ROUNDS = 6, 3
MOST_S = 200.0
_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Copies of one size one way: what was said of them, and what they took in each round."""

    size_bytes: int
    back: bool
    predicted_ns: int
    measured_ns: list[int]

    @property
    def error(self) -> float:
        """How far the prediction is off, in proportion."""
        return self.predicted_ns / statistics.median(self.measured_ns) - 1

    @property
    def halves(self) -> float:
        """How far half of the rounds is off the other half, in proportion."""
        odd, even = (statistics.median(self.measured_ns[i::2]) for i in range(2))
        return odd / even - 1


def predicted_and_copied(testbed: Testbed, sizes_bytes: list[int]) -> list[Copies]:
    """Calibrate, predict, and copy."""
    testbed.start()
    calibration = calibration_of_hosts(testbed, Silent(), anew=True)
    links = calibrated_cluster(testbed.plan.devices, calibration).device_links()
    there, back = (
        next(link for link in links if link.source == ends[0].name)
        for ends in (testbed.plan.devices, testbed.plan.devices[::-1])
    )
    copies = [
        Copies(
            size_bytes=size, back=link is back, predicted_ns=link.transfer_ns(size), measured_ns=[]
        )
        for size in sizes_bytes
        for link in (there, back)
    ]
    one, other = testbed.plan.hosts
    begun_s = time.monotonic()
    for done in range(ROUNDS):
        if done >= LEAST_ROUNDS and time.monotonic() - begun_s > MOST_S:
            break
        for size in sizes_bytes:
            took = testbed.call(
                runner.probe_route,
                one.device_names,
                other.device_names,
                size,
                time_limit_s=_LIMIT_S,
            )
            if isinstance(took, CallFailure):
                raise SystemExit(took.message)
            for each in copies:
                if each.size_bytes == size:
                    each.measured_ns.append(took[each.back])
    return copies


def sizes(seed: int) -> list[int]:
    """Draw sizes, evenly by factor: one from each of as many parts of the range."""
    drawn = random.Random(seed)
    low, high = math.log(LEAST_BYTES), math.log(MOST_BYTES)
    width = (high - low) / SIZES
    return [round(math.exp(low + width * (i + drawn.random()))) for i in range(SIZES)]


def on_first_host(options: argparse.Namespace) -> None:
    """Print the copies of one network as JSON."""
    preload()
    with (
        tempfile.TemporaryDirectory() as folder,
        host_testbed(options.hosts, options.launch, Path(folder)) as testbed,
    ):
        copies = predicted_and_copied(testbed, sizes(options.seed))
        print(json.dumps([asdict(each) for each in copies]))


def on_network(control: str, rate_mbit: float, delay_ms: float, seed: int) -> list[Copies]:
    """Return the copies of one network."""
    named = None if control == "default" else control
    shape = {"rate_bit_per_s": rate_mbit * 1e6, "delay_ns": round(delay_ms * 1e6)}
    with (
        tempfile.TemporaryDirectory() as folder,
        lab(hosts=2, congestion_control=named, **shape) as network,
    ):
        hosts = TwoHosts(network, Path(folder))
        words = (__file__, "--seed", str(seed), *hosts.options)
        process = hosts.run(*words, stdout=subprocess.PIPE)
        out, _ = process.communicate()
        if process.returncode:
            raise SystemExit(process.returncode)
        return [Copies(**each) for each in json.loads(out)]


def main() -> None:
    """Print a row for each network, and what all of one congestion control come to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True, help="of the sizes")
    parser.add_argument("--controls", nargs="+", choices=CONTROLS, default=list(CONTROLS))
    parser.add_argument("--rates", type=float, nargs="+", default=RATES_MBIT, help="Mbit/s")
    parser.add_argument("--delays", type=float, nargs="+", default=DELAYS_MS, help="ms each way")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    host_options(parser)
    options = parser.parse_args()
    if options.hosts:
        on_first_host(options)
        return
    found, good = {}, True
    print("| | rate, delay each way, rounds | median | largest | signed | halves, median |")
    print("|---|---|---|---|---|---|")
    for control in options.controls:
        of_control = []
        for rate in options.rates:
            for delay in options.delays:
                copies = on_network(control, rate, delay, options.seed)
                of_control += copies
                rounds = len(copies[0].measured_ns)
                _print(control, f"{rate:g} Mbit/s, {delay:g} ms, {rounds}", copies)
                found[f"{control}, {rate:g}, {delay:g}"] = [asdict(c) for c in copies]
        _print(control, "all", of_control)
        good &= statistics.median(abs(each.error) for each in of_control) <= CONTROLS[control]
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(0 if good else "a median is out of its limit")


def _print(control: str, what: str, copies: list[Copies]) -> None:
    errors = [each.error for each in copies]
    print(
        f"| {control} | {what} | {statistics.median(map(abs, errors)):.1%} "
        f"| {max(errors, key=abs):+.1%} | {statistics.median(errors):+.1%} "
        f"| {statistics.median(abs(each.halves) for each in copies):.1%} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
