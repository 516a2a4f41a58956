"""Training steps on one GPU, as predicted, beside what TensorFlow itself reached.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/gpu_throughput.py [--keras] RECORD

RECORD is a JSON file of published images per second; of its rows, those of one GPU and TensorFlow's
own benchmark of 2017 (float32, SGD, no XLA) are predicted, with the batch as published, once by a
roofline alone and once with the times of kernels. They judge: no constant was fitted to them. Where
variables stood on the host, copying them was part of the published step, and is not predicted.

Batches are normalised by fused ops, as the published models did it; with `--keras` as Keras 3 does.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from traced_models import traced_model

from placement_advisor.candidates import single
from placement_advisor.candidates.not_applicable import NotApplicable
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.cost.table import CostBasis
from placement_advisor.machine.gpu_facts import gpu_facts
from placement_advisor.machine.presets import read_hardware
from placement_advisor.processes.children import preload
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster

SOURCE = "tensorflow-2017"
# What a kernel adds on a P100 (`reframe-latency` in hardware.toml).
P100_LAUNCH_NS = 2_200


def main() -> None:
    """Print a row for each row of the record."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("record", type=Path)
    arguments.add_argument("--keras", action="store_true")
    asked = arguments.parse_args()
    rows = json.loads(asked.record.read_text(encoding="utf-8"))["rows"]
    of_step: defaultdict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["source"] == SOURCE and row["gpus"] == 1:
            of_step[row["model"], row["batch_per_gpu"]].append(row)
    preload()
    print("| GPU | model | batch | published ms | roofline | kernels | assumed kernels |")
    print("|---|---|---|---|---|---|---|")
    ratios: list[tuple[float, float]] = []
    for (model, batch), published in of_step.items():
        graph = traced_graph(model, batch, is_fused=not asked.keras)
        for row in published:
            there = cluster(row["gpu"])
            published_ns = batch / row["images_per_s"] * NS_PER_S
            before, _ = predicted(graph, without_datasheet(there))
            after, assumed = predicted(graph, there)
            ratios.append((before / published_ns, after / published_ns))
            print(
                f"| {row['gpu']} | {model} | {batch} | {published_ns / 1e6:.0f} "
                f"| {before / published_ns:.2f} | {after / published_ns:.2f} | {assumed:.0%} |",
                flush=True,
            )
    errors = [fmean(abs(ratio - 1) for ratio in column) for column in zip(*ratios, strict=True)]
    print(f"| mean error | | | | {errors[0]:.0%} | {errors[1]:.0%} | |")


def traced_graph(model: str, batch: int, *, is_fused: bool) -> OpGraph:
    """Return the graph of a training step."""
    with tempfile.TemporaryDirectory() as folder:
        path, bundle = Path(folder) / "model.py", Path(folder) / "bundle"
        bundle.mkdir()
        path.write_text(
            "from published_models import trained\n"
            f"model, dataset = trained({model!r}, {batch}, is_fused={is_fused})\n"
        )
        traced = traced_model(path, "train", bundle)
    assert traced is not None
    return traced.graph


def cluster(gpu: str) -> Cluster:
    """Return one GPU and its host; a P100, for which there is no preset, on those of a V100."""
    if gpu != "P100-SXM2":
        return read_hardware(gpu)
    facts = gpu_facts(gpu)
    there = read_hardware("V100")
    device = replace(
        there.devices[0],
        peak_flops_per_s=facts.peak_flops_per_s,
        memory_bandwidth_bytes_per_s=facts.memory_bandwidth_bytes_per_s,
        launch_overhead_ns=P100_LAUNCH_NS,
        gpu=gpu,
    )
    return replace(there, devices=(device,))


def without_datasheet(there: Cluster) -> Cluster:
    """Return the cluster with devices whose kernels have no known times."""
    return replace(there, devices=tuple(replace(device, gpu=None) for device in there.devices))


def predicted(graph: OpGraph, there: Cluster) -> tuple[int, float]:
    """Return the step time in ns, and which share of the ops' time assumed kernels take."""
    costs = roofline_by_place(graph, there)
    placement = single.propose(graph, costs, there)
    assert not isinstance(placement, NotApplicable)
    table = costs[there.devices[0].name]
    assumed_ns = sum(
        cost.time_ns for cost in table.costs.values() if cost.basis is CostBasis.KERNEL_ASSUMED
    )
    return Simulator(graph, costs, there).step_ns(placement), assumed_ns / table.total_ns


if __name__ == "__main__":
    main()
