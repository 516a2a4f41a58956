"""Steps of a detector on a GPU and its host, beside published ones.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/host_tails.py

The detector is that of `detection_graph.py`, for an image of 1,024 x 636 pixels. It is placed on
cards nearest to published ones, each with two hosts: the preset, which is a socket of 28 cores, and
a PC. Of the PC four cores are assumed, with the preset's judgement of what a core reaches, and two
channels of DDR4-2133, with its judgement of what a memory does. A K80 is the nearest to a TITAN Z,
of the same generation.

What others published of the real graph is in `PUBLISHED`; nothing is fitted to it. Printed is how
many times as long a step takes as one with its end on the host. The card of `models#3270` is not
named, and was of a PC of early 2018; of a Jetson TX2 no card here is an image, the least of its
generation is a P4.

Last, what of that a longer wait of the host for numbers of the GPU would explain: the same with
latencies between them twice and four times as long.
"""

import tempfile
from dataclasses import replace
from itertools import product
from pathlib import Path

from model_tracing import called, traced_model
from tables import table_head, table_row

from placement_advisor.candidates import on_host, references
from placement_advisor.candidates.families import placements_of, propose
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.machine.presets import read_hardware
from placement_advisor.processes.calls import RemoteModule
from placement_advisor.processes.children import Child, preload
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.units import NS_PER_MS

detection_graph = RemoteModule("detection_graph")

FAMILIES = (references.SINGLE, on_host.TAIL, on_host.LOOPS)
OUTPUTS = tuple(f"detection_{name}" for name in ("boxes", "scores", "classes", "number"))
# Milliseconds on a card: in all, of ranges the middle.
PUBLISHED = {
    "AastaNV/JEP#1": ("K80", {"single": 205.0, "single-cpu": 175.0, on_host.TAIL: 70.0}),
    "AastaNV/JEP#1, op times": ("K80", {"single": 65.0, "single-cpu": 75.0, on_host.TAIL: 35.0}),
    "tensorflow/models#3270": (
        "GTX1080",
        {"single": 146.0, "single-cpu": 78.0, on_host.TAIL: 28.0},
    ),
    "naisy#49": ("P4", {"single": 1_000 / 9, on_host.TAIL: 1_000 / 19}),
}
CARDS = tuple(dict.fromkeys(card for card, _ in PUBLISHED.values()))


def main():
    preload()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "detector.pb"
        with Child("writer") as writer:
            called(writer, detection_graph.write, str(path), 636, 1024)
        detector = traced_model(ModelSource(path=str(path), outputs=OUTPUTS)).graph
    labels = (*FAMILIES, "single-cpu")
    print(table_head(" | ".join(["card", "host", *labels])))
    predicted = {}
    for card in CARDS:
        machine = read_hardware(card)
        for host, cluster in (("preset", machine), ("PC", with_pc(machine))):
            step_ms = predicted_ms(detector, cluster)
            predicted[card] = step_ms  # The PC's stays.
            print(table_row(card, host, *(f"{step_ms[label]:.1f} ms" for label in labels)))
    print(table_head("published by | placement | published | predicted | off by a factor of"))
    for name, (card, published_ms) in PUBLISHED.items():
        for placement in (label for label in published_ms if label != on_host.TAIL):
            published, found = (
                step_ms[placement] / step_ms[on_host.TAIL]
                for step_ms in (published_ms, predicted[card])
            )
            gains = published, found, max(published / found, found / published)
            print(table_row(name, placement, *(f"{gain:.2f}" for gain in gains)))
    print(table_head("latencies | card, PC | over GPU alone | over CPU alone"))
    for times, card in product((1, 2, 4), CARDS):
        machine = with_pc(read_hardware(card))
        links = (replace(link, latency_ns=times * link.latency_ns) for link in machine.links)
        step_ms = predicted_ms(detector, replace(machine, links=tuple(links)))
        gains = (step_ms[name] / step_ms[on_host.TAIL] for name in ("single", "single-cpu"))
        print(table_row(f"{times}x", card, *(f"{gain:.2f}" for gain in gains)))


def with_pc(cluster):
    """Return the machine with a PC for its host."""
    (host,) = cluster.hosts
    pc = {"peak_flops_per_s": 4 * 5e10, "memory_bandwidth_bytes_per_s": 0.7 * 34.1e9}
    return replace(cluster, hosts=(replace(host, **pc),))


def predicted_ms(graph, cluster):
    """Return the simulated step of each candidate that there is."""
    costs = roofline_by_place(graph, cluster)
    simulator = Simulator(graph, costs, cluster)
    placements = placements_of(propose(FAMILIES, graph, costs, cluster))
    return {label: simulator.step_ns(p) / NS_PER_MS for label, p in placements.items()}


if __name__ == "__main__":
    main()
