"""Training steps on one GPU, as predicted, beside what TensorFlow itself reached.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/gpu_throughput.py [--keras] RECORD

RECORD is a JSON file of published images per second; of its rows, those of one GPU and TensorFlow's
own benchmark of 2017 (float32, SGD, no XLA) are predicted, with the batch as published, once by a
roofline alone and once with the times of kernels. They judge: no constant was fitted to them. Where
variables stood on the host, they do so in the prediction: they are copied to the GPU, their
gradients back, and the host updates them.

Batches are normalised by fused ops, as the published models did it; with `--keras` as Keras 3 does.
"""

import argparse
import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

from gpu_scaling import traced

from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.cost.table import CostBasis
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.presets import read_hardware
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.units import NS_PER_S

SOURCE = "tensorflow-2017"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("record", type=Path)
    arguments.add_argument("--keras", action="store_true")
    asked = arguments.parse_args()
    steps = defaultdict(list)
    for row in json.loads(asked.record.read_text(encoding="utf-8"))["rows"]:
        if row["source"] == SOURCE and row["gpus"] == 1:
            steps[row["model"], row["batch_per_gpu"]].append(row)
    print("| GPU | model | batch | published ms | roofline | kernels | assumed kernels |")
    print("|---|---|---|---|---|---|---|")
    errors = []
    for (model, batch), published in steps.items():
        graph = traced(f"trained({model!r}, {batch}, is_fused={not asked.keras})", batch).whole
        for row in published:
            there = read_hardware(row["gpu"])
            placement = placed(graph, there, on_host=row["parameters_on"] == "cpu")
            published_ns = batch / row["images_per_s"] * NS_PER_S
            before_ns, _ = predicted(graph, without_datasheet(there), placement)
            after_ns, assumed = predicted(graph, there, placement)
            ratios = before_ns / published_ns, after_ns / published_ns
            errors.append([abs(ratio - 1) for ratio in ratios])
            print(
                f"| {row['gpu']} | {model} | {batch} | {published_ns / 1e6:.0f} "
                f"| {ratios[0]:.2f} | {ratios[1]:.2f} | {assumed:.0%} |",
                flush=True,
            )
    for word, of in (("median", median), ("mean", fmean), ("worst", max)):
        by_roofline, by_kernels = map(of, zip(*errors, strict=True))
        print(f"| {word} error | | | | {by_roofline:.0%} | {by_kernels:.0%} | |")


def without_datasheet(there):
    """Return the cluster with devices whose kernels have no known times."""
    return replace(there, devices=tuple(replace(device, gpu=None) for device in there.devices))


def placed(graph, there, *, on_host):
    """Return the placement of all ops on the GPU, or of all but variables and their updates."""
    gpu, host = there.devices[0].name, there.hosts[0].name
    device_of = {
        op.name: host if on_host and op.variable is not None else gpu for op in graph.placed_ops
    }
    return Placement(label="published", family="published", device_of=device_of, rationale="")


def predicted(graph, there, placement):
    """Return the step time in ns, and which share of the ops' time assumed kernels take."""
    costs = roofline_by_place(graph, there)
    table = costs[there.devices[0].name]
    assumed_ns = sum(
        cost.time_ns for cost in table.costs.values() if cost.basis is CostBasis.KERNEL_ASSUMED
    )
    return Simulator(graph, costs, there).step_ns(placement), assumed_ns / table.total_ns


if __name__ == "__main__":
    main()
