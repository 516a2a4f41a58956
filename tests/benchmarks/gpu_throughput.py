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
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

from gpu_scaling import traced

from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.cost.table import CostBasis
from placement_advisor.graph.placement import Placement, placed_ops
from placement_advisor.machine.presets import read_hardware
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.units import NS_PER_S

SOURCE = "tensorflow-2017"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A published training step, and its predictions; the share is of the ops' time."""

    gpu: str
    model: str
    batch: int
    published_ns: float
    roofline_ns: int
    kernels_ns: int
    assumed_share: float

    @property
    def roofline_ratio(self):
        """Predicted over published, by a roofline alone."""
        return self.roofline_ns / self.published_ns

    @property
    def kernels_ratio(self):
        """Predicted over published, with the times of kernels."""
        return self.kernels_ns / self.published_ns


def main():
    """Print a row for each row of the record."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("record", type=Path)
    arguments.add_argument("--keras", action="store_true")
    asked = arguments.parse_args()
    print("| GPU | model | batch | published ms | roofline | kernels | assumed kernels |")
    print("|---|---|---|---|---|---|---|")
    ratios = []
    for step in predicted_steps(asked.record, is_fused=not asked.keras):
        ratios.append((step.roofline_ratio, step.kernels_ratio))
        print(
            f"| {step.gpu} | {step.model} | {step.batch} | {step.published_ns / 1e6:.0f} "
            f"| {step.roofline_ratio:.2f} | {step.kernels_ratio:.2f} | {step.assumed_share:.0%} |",
            flush=True,
        )
    errors = [[abs(ratio - 1) for ratio in column] for column in zip(*ratios, strict=True)]
    for word, of in (("median", median), ("mean", fmean), ("worst", max)):
        print(f"| {word} error | | | | {of(errors[0]):.0%} | {of(errors[1]):.0%} | |")


def predicted_steps(record, *, is_fused):
    """Yield the published steps of one GPU with what is predicted for them."""
    rows = json.loads(record.read_text(encoding="utf-8"))["rows"]
    of_step = defaultdict(list)
    for row in rows:
        if row["source"] == SOURCE and row["gpus"] == 1:
            of_step[row["model"], row["batch_per_gpu"]].append(row)
    for (model, batch), published in of_step.items():
        graph = traced(f"trained({model!r}, {batch}, is_fused={is_fused})", batch).whole
        for row in published:
            there = read_hardware(row["gpu"])
            placement = placed(graph, there, on_host=row["parameters_on"] == "cpu")
            before_ns, _ = predicted(graph, without_datasheet(there), placement)
            after_ns, assumed = predicted(graph, there, placement)
            yield Step(
                gpu=row["gpu"],
                model=model,
                batch=batch,
                published_ns=batch / row["images_per_s"] * NS_PER_S,
                roofline_ns=before_ns,
                kernels_ns=after_ns,
                assumed_share=assumed,
            )


def without_datasheet(there):
    """Return the cluster with devices whose kernels have no known times."""
    return replace(there, devices=tuple(replace(device, gpu=None) for device in there.devices))


def placed(graph, there, *, on_host):
    """Return the placement of all ops on the GPU, or of all but variables and their updates."""
    gpu, host = there.devices[0].name, there.hosts[0].name
    return Placement(
        label="published",
        family="published",
        device_of={
            op.name: host if on_host and op.variable is not None else gpu
            for op in placed_ops(graph)
        },
        rationale="where the published step had them",
    )


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
