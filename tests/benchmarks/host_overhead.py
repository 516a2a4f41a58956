"""What the testbed `hosts` adds to a step, against `workers` on the same machine.

    PYTHONPATH=tests python tests/benchmarks/host_overhead.py

Two devices, a core each, run a sample model whose device changes at every layer, as `workers` and
as `hosts`: one host that lends both cores, directly and with TLS, where nothing that workers send
passes a relay; and two hosts in namespaces without limits, directly and through relays under TLS.
Steps are timed in interleaved rounds of both testbeds; a ratio is the median of those of rounds,
with its 95 % interval. The first row is of `workers` twice.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from clock_alignment import alternating
from host_testbeds import host_options, host_testbed
from model_tracing import traced_model
from network_lab.lab import lab
from network_lab.two_hosts import TwoHosts

from placement_advisor.machine.testbed_plan import HostLink, TestbedKind, plan_testbed
from placement_advisor.measurement.measurement import compare
from placement_advisor.processes.calls import CallFailure
from placement_advisor.processes.children import preload
from placement_advisor.testbed.testbed import STEP, Testbed

if TYPE_CHECKING:
    from contextlib import ExitStack

    from placement_advisor.tf.answers import Traced

_SAMPLES = Path(__file__).parents[2] / "sample_models"
_STEPS = 8
_LABEL = "alternating"
_HERE = "localhost:2"
# What is compared: how many hosts, and how they reach one another.
TESTBEDS: dict[str, tuple[int, HostLink] | None] = {
    "workers again": None,
    "one host, direct": (1, HostLink.DIRECT),
    "one host, TLS": (1, HostLink.TLS),
    "two hosts, direct": (2, HostLink.DIRECT),
    "two hosts, TLS": (2, HostLink.TLS),
}
ALLOWED = 1.05
_JUDGED = "one host, direct"


def on_first_host(options: argparse.Namespace) -> bool:
    """Print the row of one testbed; return whether it is within the limit, if it has one."""
    preload()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        scratch = Path(name)
        bundle = scratch / "bundle"
        bundle.mkdir()
        traced = traced_model(_SAMPLES / f"{options.sample}.py", "train", bundle)
        if traced is None:
            raise SystemExit(f"{options.sample} does not train")
        pair = (_workers(scratch, stack), _compared(options, scratch, stack))
        rounds: tuple[list[list[int]], list[list[int]]] = ([], [])
        for testbed in pair:
            testbed.add_program(STEP, bundle, traced.graph)
            testbed.start()
            _prepare(testbed, traced)
        for number in range(options.rounds + 1):
            for testbed, found in zip(pair, rounds, strict=True):
                took = testbed.run_steps(_LABEL, 0, _STEPS)
                if isinstance(took, CallFailure):
                    raise SystemExit(took.message)
                if number:  # The first round warms up.
                    found.append(took)
        comparison = compare("workers", *rounds, among=1)
        assert comparison is not None
        ratio = comparison.ratio
        step_ns = statistics.median(each for turn in rounds[0] for each in turn)
        print(
            f"| {options.what} | {step_ns / 1e6:.2f} ms | {ratio.median:.3f} "
            f"| {ratio.low:.3f} to {ratio.high:.3f} |",
            flush=True,
        )
        return options.what != _JUDGED or ratio.median <= ALLOWED


def _workers(scratch: Path, stack: ExitStack) -> Testbed:
    testbed = Testbed(plan_testbed(TestbedKind.WORKERS, 2), scratch=scratch)
    stack.callback(testbed.close)
    return testbed


def _compared(options: argparse.Namespace, scratch: Path, stack: ExitStack) -> Testbed:
    asked = TESTBEDS[options.what]
    if asked is None:
        return _workers(scratch, stack)
    count, link = asked
    hosts = _HERE if count == 1 else options.hosts
    return stack.enter_context(host_testbed(hosts, options.launch, scratch, link))


def _prepare(testbed: Testbed, traced: Traced) -> None:
    """Make a placement ready to run that changes the device at every layer: copies abound."""
    names = tuple(device.name for device in testbed.plan.devices)
    prepared = testbed.prepare(_LABEL, alternating(traced.graph, names).device_of, STEP)
    if isinstance(prepared, CallFailure):
        raise SystemExit(prepared.message)


def main() -> None:
    """Print a row for each testbed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", default="deepconn")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--what", help=argparse.SUPPRESS)
    host_options(parser)
    options = parser.parse_args()
    if options.what:
        sys.exit(0 if on_first_host(options) else 1)
    print("| testbed | step of workers | ratio to workers | 95 % interval |")
    print("|---|---|---|---|", flush=True)
    words = ("--sample", options.sample, "--rounds", str(options.rounds))
    good = True
    for what in TESTBEDS:
        with tempfile.TemporaryDirectory() as folder, lab(hosts=2) as network:
            hosts = TwoHosts(network, Path(folder))
            # Pinned they would be to one core, which a host can lend no more than.
            process = network.run(
                "h0", [sys.executable, __file__, "--what", what, *words, *hosts.options]
            )
            good &= process.wait() == 0
    sys.exit(0 if good else f"{_JUDGED}: more than {ALLOWED}")


if __name__ == "__main__":
    main()
