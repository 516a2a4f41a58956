"""All-reduces and copies of GPUs of one host, as predicted, beside what vidur measured.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/collective_times.py RECORD

RECORD is a folder like `data/profiling/network` of microsoft/vidur (MIT licence): for each machine
a folder with `all_reduce.csv` and `send_recv.csv`, sizes in bytes, times of NCCL in ms. Nothing is
fitted to it. A file that another machine's repeats to the byte is left out: one of them is a copy.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING

from placement_advisor.cost.collectives import collective_costs, ring_of_devices
from placement_advisor.graph.op import Op
from placement_advisor.machine.presets import hardware_figures, read_hardware
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from placement_advisor.machine.devices import Cluster

# What each machine of the record is, of so many GPUs.
MACHINES = {
    "a100_dgx": "{}xA100",
    "a100_pairwise_nvlink": "{}xA100-PCIe-NVLink",
    "h100_dgx": "{}xH100",
    "h100_pairwise_nvlink": "{}xH100-PCIe-NVLink",
}
# Classes of sizes, in bytes: up to each.
SIZES = {"64 kB": 1 << 16, "4 MB": 1 << 22, "1 GB": 1 << 30}
NS_PER_MS = 1e6


def predicted_ns(kind: str, cluster: Cluster, size_bytes: int) -> float:
    """Return what an all-reduce of all devices takes, or a copy from the first to the second."""
    if kind == "all_reduce":
        op = Op(name="reduce", kind="AllReduce", output_bytes=(size_bytes,))
        table = collective_costs([op], [], [ring_of_devices(cluster)])
        return float(table.costs[op.name].time_ns)
    link = cluster.device_links()[0]
    # NCCL's copies are kernels: TensorFlow need not notice that they ended.
    latency_ns = link.latency_ns - hardware_figures()["copies"]["notice_ns"]
    return float(latency_ns + size_bytes / link.bandwidth_bytes_per_s * NS_PER_S)


def read_times(path: Path) -> dict[int, list[tuple[int, float]]]:
    """Return by number of GPUs, all in one host, sizes and median times in ns."""
    times: dict[int, list[tuple[int, float]]] = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as text:
        for row in csv.DictReader(text):
            if row["num_workers"] == row["devices_per_node"]:
                taken_ns = float(row[f"time_stats.{path.stem}.median"]) * NS_PER_MS
                times[int(row["num_workers"])].append((int(row["size"]), taken_ns))
    return times


def main() -> None:
    """Print a line for each machine, number of GPUs and class of sizes."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("record", type=Path)
    record: Path = arguments.parse_args().record
    print("| op | machine | up to | rows | measured µs | predicted / measured | mean error |")
    print("|---|---|---|---|---|---|---|")
    for kind in ("all_reduce", "send_recv"):
        seen: dict[bytes, str] = {}
        for machine, preset in MACHINES.items():
            path = record / machine / f"{kind}.csv"
            first = seen.setdefault(path.read_bytes(), machine)
            if first != machine:
                print(f"| {kind} | {machine} | | a copy of {first} | | | |")
                continue
            for gpus, rows in sorted(read_times(path).items()):
                print_rows(kind, preset.format(gpus), rows)


def print_rows(kind: str, hardware: str, rows: list[tuple[int, float]]) -> None:
    """Print a line for each class of sizes."""
    cluster = read_hardware(hardware)
    least = 0
    for label, most in SIZES.items():
        found = [(size, taken) for size, taken in rows if least < size <= most]
        least = most
        ratios = [predicted_ns(kind, cluster, size) / taken for size, taken in found]
        told = f"{median(taken for _, taken in found) / 1e3:.0f} | {median(ratios):.2f}"
        error = mean(abs(ratio - 1) for ratio in ratios)
        print(f"| {kind} | {hardware} | {label} | {len(found)} | {told} | {error:.0%} |")


if __name__ == "__main__":
    main()
