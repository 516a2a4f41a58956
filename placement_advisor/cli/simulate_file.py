"""Wires `advisor simulate`: graph file, placement file -> simulation, and its trace file.

Costs are assumed, from the figures of each device.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING

from placement_advisor.analysis.target_costs import read_target_hardware
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.files.output import output_file
from placement_advisor.graph.op_graph import load_graph
from placement_advisor.graph.placement import read_placement
from placement_advisor.report.steps import chrome_trace
from placement_advisor.simulator.simulator import Origin, Simulation, simulation

if TYPE_CHECKING:
    from pathlib import Path


def simulate_file(
    graph_file: Path, placement_file: Path, hardware: str | None, trace_file: Path | None
) -> Simulation:
    """Simulate a graph file under a placement file, on assumed workers if no hardware is named.

    Where the placement's devices have other names than the hardware's, they are taken in order.

    Raises:
        AdvisorError: a file cannot be read, does not fit the others, or cannot be written.
    """
    with ExitStack() as stack:
        put = None
        if trace_file is not None:
            put = stack.enter_context(output_file(trace_file, option="--trace", read=graph_file))
        cluster = None if hardware is None else read_target_hardware(hardware, None).cluster
        graph, _, traced_as = load_graph(graph_file)
        placement, file = read_placement(placement_file, graph, traced_as)
        cluster = cluster or assumed_cluster(len(file.devices))
        renamed = file.names_in(placement_file, cluster.device_names(), cluster.place_names())
        told = simulation(
            graph,
            placement.renamed(renamed) if renamed else placement,
            roofline_by_place(graph, cluster),
            cluster,
            Origin(
                graph_file=str(graph_file),
                placement_file=str(placement_file),
                machine=hardware or "CPU workers, one core each",
                renamed=renamed,
            ),
        )
        if put is not None:
            put(lambda path: _write_trace(told, path))
    return told


def _write_trace(told: Simulation, path: Path) -> None:
    content = chrome_trace(told.graph, told.schedule)
    path.write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
