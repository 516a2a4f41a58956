"""How near a short search comes to a long one: a graph file on four devices, costs assumed.

    python tests/benchmarks/step_search.py GRAPH [UNITS...] [--hardware SPEC]

For each effort the best step over that of one device, the seconds it took, and the bound. Units are
deterministic, so that only the seconds depend on the machine.
"""

import time
from itertools import product
from pathlib import Path
from typing import Annotated

import typer

from placement_advisor.candidates.searched import search_step
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.presets import read_hardware
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.solvers.effort import Effort
from placement_advisor.solvers.lower_bounds import bound_step


def main(
    graph: Path,
    units: Annotated[list[float] | None, typer.Argument()] = None,
    hardware: str = "4xV100-NVLink",
    seeds: int = 3,
):
    step, cluster = OpGraph.load(graph), read_hardware(hardware)
    costs = roofline_by_place(step, cluster)
    search_step(step, costs, cluster, Effort(units=0.001))  # Compiled code is loaded.
    bound = bound_step(Simulator(step, costs, cluster))
    alone_ns = bound.alone_ns[cluster.devices[0].name]
    for effort, seed in product(units or (5, 20, 600), range(seeds)):
        start = time.perf_counter()
        found = search_step(step, costs, cluster, Effort(units=effort, seed=seed))
        seconds = time.perf_counter() - start
        print(
            f"{len(step):,} ops, {hardware}, {effort:g} units, seed {seed}: "
            f"{found.step_ns / alone_ns:.4f} of one device, bound "
            f"{bound.step_ns / alone_ns:.4f}, {seconds:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    typer.run(main)
