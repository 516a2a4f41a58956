"""Records what noise does to timing rounds: one placement, timed beside copies of itself for long.

    python tests/benchmarks/round_noise.py [MODEL ...] [--rounds 200] > tests/campaigns/rounds.jsonl

On two workers, in turns, as in an analysis: `single` and seven copies of it, whose true ratio is 1
whatever the machine does, and `towers` where the model has them. A line of JSON for each model: the
median step of each turn in us, by placement. `verdict_errors.py` draws its noise from it. The last
line is the machine.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from machine_facts import machine_facts
from model_tracing import SAMPLES, on_workers

from placement_advisor.candidates import families, references, towers
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.defaults import STEPS
from placement_advisor.processes.children import preload
from placement_advisor.testbed.benchmark import Benchmark, SilentProgress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement

# A step of less than 1 ms, and two of about 15 ms; the ranker has towers.
MODELS = ("polynomial_fit", "multi_tower_ranker", "mnist_cnn")
COPIES = 7
_NS_PER_US = 1_000


def recorded(model: str, rounds: int) -> dict[str, list[float]]:
    """Return the median step of each turn in us, by placement."""
    with on_workers(SAMPLES / f"{model}.py", "train") as running:
        assert running is not None
        traced, testbed = running
        trial = Benchmark(testbed, steps=STEPS, watcher=SilentProgress())
        devices = [device.name for device in testbed.plan.devices]
        for placement in _placements(traced.graph, devices):
            trial.enter(placement)
        for number in range(rounds):
            trial.round(number, rounds)
    return {
        label: [round(median(steps) / _NS_PER_US, 1) for steps in entry.rounds]
        for label, entry in trial.entries.items()
        if entry.failure is None
    }


def _placements(graph: OpGraph, names: Sequence[str]) -> Iterator[Placement]:
    alone = references.on_device(graph, names[0])
    yield alone
    for number in range(1, COPIES + 1):
        yield replace(alone, label=f"copy-{number}")
    cluster = assumed_cluster(len(names))
    split = families.propose([towers.TOWERS], graph, roofline_by_place(graph, cluster), cluster)[
        towers.TOWERS
    ]
    if not isinstance(split, NotApplicable):
        here = dict.fromkeys(cluster.place_names(), names[0])
        here |= zip(cluster.device_names(), names, strict=True)
        yield replace(split, device_of={op: here[on] for op, on in split.device_of.items()})


def main() -> None:
    """Print a line for each model as soon as it is known."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--rounds", type=int, default=200)
    asked = parser.parse_args()
    preload()
    for model in asked.models:
        turn_us = recorded(model, asked.rounds)
        print(json.dumps({"model": model, "turn_us": turn_us}), flush=True)
    print(json.dumps(machine_facts()))


if __name__ == "__main__":
    main()
