"""How near a short search comes to a long one: a graph file on four devices, costs assumed.

Usage: step_search.py GRAPH [--hardware SPEC] [--units N ...] [--seeds N]

For each effort the best step over that of one device, the seconds it took, and the bound. Units are
deterministic, so that only the seconds depend on the machine.
"""

import argparse
import time
from pathlib import Path

from placement_advisor.candidates.searched import search_step
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.presets import read_hardware
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.solvers.effort import Effort
from placement_advisor.solvers.lower_bounds import bound_step


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("graph", type=Path)
    arguments.add_argument("--hardware", default="4xV100-NVLink")
    arguments.add_argument("--units", type=float, nargs="+", default=[5, 20, 600])
    arguments.add_argument("--seeds", type=int, default=3)
    asked = arguments.parse_args()
    graph = OpGraph.load(asked.graph)
    cluster = read_hardware(asked.hardware)
    costs = roofline_by_place(graph, cluster)
    search_step(graph, costs, cluster, Effort(units=0.001))  # Compiled code is loaded.
    bound = bound_step(Simulator(graph, costs, cluster))
    alone_ns = bound.alone_ns[cluster.devices[0].name]
    for units in asked.units:
        for seed in range(asked.seeds):
            start = time.perf_counter()
            found = search_step(graph, costs, cluster, Effort(units=units, seed=seed))
            seconds = time.perf_counter() - start
            print(
                f"{len(graph):,} ops, {asked.hardware}, {units:g} units, seed {seed}: "
                f"{found.step_ns / alone_ns:.4f} of one device, bound "
                f"{bound.step_ns / alone_ns:.4f}, {seconds:.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
