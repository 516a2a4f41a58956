"""From which speed of the network on a split begins to win: predicted, and found by trying.

    PYTHONPATH=tests python tests/benchmarks/host_crossover.py --seeds 1 2 3

Two hosts are network namespaces, a core each, over a network of 1 Gbit/s; the model is a random one
with towers. After calibration and a run on one device, what analyses call break-even says at which
rate of the network the step on two towers would take as long as on one device; no split has run by
then. Then the rate is set between two at which towers are faster and slower, again and again, and
steps are timed in rounds: bisection. Beside the error stands what the last rates measured.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from host_ratios import NEEDS, written
from host_testbeds import host_options, host_testbed
from model_tracing import traced_model
from network_lab.lab import lab
from network_lab.two_hosts import TwoHosts
from silent import Silent

from placement_advisor.candidates import families, references, towers
from placement_advisor.defaults import BASELINE
from placement_advisor.measurement.measurement import compare
from placement_advisor.processes.children import preload
from placement_advisor.simulator.break_even import BreakEvenOutcome, break_even
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.testbed.benchmark import Benchmark, time_in_rounds
from placement_advisor.testbed.cost_measurement import calibration_of_hosts, measure_costs
from placement_advisor.testbed.testbed import STEP

if TYPE_CHECKING:
    from placement_advisor.measurement.measurement import Comparison
    from placement_advisor.testbed.testbed import Testbed

FIRST_MBIT = 1000.0
DELAY_MS = 0.1
# As fast as one device: a place that both predicting and measuring find sharply.
EVEN = 1.0
# Bisection begins that far to either side of what was predicted, and ends that near.
REACH, NEAR = 8.0, 1.05
_STEPS = 4
_SLOWEST_MBIT, _FASTEST_MBIT = 2.0, 2_000.0


def predicted_and_found(testbed: Testbed, model: Path, scratch: Path, rounds: int) -> None:
    """Print what is predicted, then what is found, of one model."""
    bundle = scratch / "bundle"
    bundle.mkdir()
    traced = traced_model(model, "train", bundle)
    if traced is None:
        raise SystemExit(f"{model.name} does not train")
    graph = traced.graph
    testbed.add_program(STEP, bundle, graph)
    testbed.start()
    calibration = calibration_of_hosts(testbed, Silent(), anew=True)
    trial = Benchmark(testbed, steps=_STEPS, watcher=Silent())
    costing = measure_costs(trial, testbed.plan, traced, calibration)
    costs, cluster = costing.costs.everywhere(costing.cluster), costing.cluster
    proposed = families.propose((references.SINGLE, towers.TOWERS), graph, costs, cluster)
    baseline, split = proposed[BASELINE], proposed[towers.TOWERS]
    found = break_even(
        graph,
        cluster,
        Simulator(graph, costs, cluster),
        baseline=baseline,
        splits=[split],
        batch_size=None,
        worthwhile_ratio=EVEN,
        corrections={},
    )
    assert found is not None
    sweep = found.bandwidth
    assert sweep is not None
    if sweep.outcome is not BreakEvenOutcome.CROSSES:
        _say(f"predicted: {sweep.outcome}; at {FIRST_MBIT:g} Mbit/s {sweep.here.best.ratio:.3f}")
        return
    assert sweep.wins_from is not None
    predicted_mbit = FIRST_MBIT * sweep.wins_from.value / sweep.here.value
    _say(f"predicted {predicted_mbit:.1f} Mbit/s; ratio here {sweep.here.best.ratio:.3f}")
    trial.enter(split)
    slow = max(_SLOWEST_MBIT, predicted_mbit / REACH)
    fast = min(_FASTEST_MBIT, predicted_mbit * REACH)
    for end, wins in ((slow, False), (fast, True)):
        ratio = _timed_at(trial, split.label, end, rounds).ratio
        if (ratio.median < EVEN) is not wins:
            _say(f"found: {'below' if end is slow else 'above'} {end:.0f} Mbit/s")
            return
    while fast > slow * NEAR:
        middle = math.sqrt(slow * fast)
        comparison = _timed_at(trial, split.label, middle, rounds)
        slow, fast = (slow, middle) if comparison.ratio.median < EVEN else (middle, fast)
    found_mbit = math.sqrt(slow * fast)
    error = predicted_mbit / found_mbit - 1
    _say(f"predicted {predicted_mbit:.1f} Mbit/s, found {found_mbit:.1f}: {error:+.1%}")


def _timed_at(trial: Benchmark, label: str, rate_mbit: float, rounds: int) -> Comparison:
    """Have the rate changed, time some rounds at it, and say what came out."""
    print(f"rate {rate_mbit}", flush=True)
    sys.stdin.readline()
    done = len(trial.entries[BASELINE].rounds)
    time_in_rounds(trial, 1, lambda _: None)  # Connections get used to the rate.
    time_in_rounds(trial, rounds, lambda _: None)
    alone, split = (trial.entries[name].rounds[done + 1 :] for name in (BASELINE, label))
    comparison = compare(BASELINE, alone, split, among=1)
    assert comparison is not None
    ratio = comparison.ratio
    alone_ns, split_ns = (median(step for turn in each for step in turn) for each in (alone, split))
    steps = f"{alone_ns / 1e6:.2f} and {split_ns / 1e6:.2f} ms"
    interval = f"{ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
    _say(f"  at {rate_mbit:.1f} Mbit/s {steps}: {interval}")
    return comparison


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Print the rates that were tried, and how far each prediction is off."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", help="of the models")
    parser.add_argument("--needs", nargs="+", default=NEEDS, help="what models have")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    host_options(parser)
    options = parser.parse_args()
    if options.model is not None:
        preload()
        with (
            tempfile.TemporaryDirectory() as scratch,
            host_testbed(options.hosts, options.launch, Path(scratch)) as testbed,
        ):
            predicted_and_found(testbed, options.model, Path(scratch), options.rounds)
        return
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as folder:
            model = written(seed, Path(folder), options.needs)
            _on_network(model, Path(folder), options.rounds)


def _on_network(model: Path, folder: Path, rounds: int) -> None:
    """Run this on the first host of a network, and set its rate when asked to."""
    _say(model.stem)
    shape = {"rate_bit_per_s": FIRST_MBIT * 1e6, "delay_ns": round(DELAY_MS * 1e6)}
    with lab(hosts=2, **shape) as network:
        environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
        hosts = TwoHosts(network, folder, environment)
        words = ("--model", str(model), "--rounds", str(rounds), *hosts.options)
        process = hosts.run(__file__, *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        for line in process.stdout:
            network.shape(rate_bit_per_s=float(line.removeprefix("rate ")) * 1e6)
            process.stdin.write("set\n")
            process.stdin.flush()
        if process.wait():
            raise SystemExit(process.returncode)


if __name__ == "__main__":
    main()
