"""Small random DAGs whose edges have copy costs of their own, in the format of msr-fiddle.

The format has one cost for each source. So an edge is a node of no time in the colour class of its
source, where it is made for nothing, and what it sends on costs what the edge does.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from fiddle_documents import document, edge, node
from ortools.sat.python import cp_model


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallDag:
    """What each task takes, what each edge costs if it crosses, and the number of devices."""

    work: tuple[int, ...]
    edges: dict[tuple[int, int], int]
    devices: int

    def document(self) -> dict[str, Any]:
        """Return the graph as a file: tasks first, then a node for each edge."""
        nodes = [
            node(task, work=float(time), size=0.0, colorClass=task)
            for task, time in enumerate(self.work)
        ]
        rows = []
        for number, ((source, target), cost) in enumerate(self.edges.items(), start=len(nodes)):
            nodes.append(node(number, work=0.0, size=0.0, colorClass=source))
            rows += [edge(source, number, 0.0), edge(number, target, float(cost))]
        return document(nodes, rows, maxFPGAs=self.devices)


def drawn_dag(seed: int) -> SmallDag:
    """Draw a DAG of 3 to 12 tasks on 2 to 4 devices, with copies from cheap to dear."""
    rng = random.Random(f"small dag {seed}")
    tasks, devices = rng.randint(3, 12), rng.randint(2, 4)
    share = rng.choice([1.5, 2.5, 4.0]) / tasks
    ratio = rng.choice([0.1, 0.5, 1.0, 2.0, 10.0])
    work = tuple(rng.randint(1, 100) for _ in range(tasks))
    pairs = [(i, j) for j in range(tasks) for i in range(j) if rng.random() < share]
    return SmallDag(
        work=work,
        edges={pair: rng.randint(0, round(100 * ratio)) for pair in pairs},
        devices=devices,
    )


def least_makespan_of(dag: SmallDag) -> int:
    """Return the least makespan, by the plainest model there is."""
    model = cp_model.CpModel()
    horizon = sum(dag.work)
    start = [model.new_int_var(0, horizon - time, "") for time in dag.work]
    on = [[model.new_bool_var("") for _ in range(dag.devices)] for _ in dag.work]
    for row in on:
        model.add_exactly_one(row)
    for device in range(dag.devices):
        model.add_no_overlap(
            model.new_optional_fixed_size_interval_var(start[task], time, on[task][device], "")
            for task, time in enumerate(dag.work)
        )
    for (source, target), cost in dag.edges.items():
        end = start[source] + dag.work[source]
        model.add(start[target] >= end)
        for here, there in zip(on[source], on[target], strict=True):
            model.add(start[target] >= end + cost).only_enforce_if(here, there.Not())
    makespan = model.new_int_var(0, horizon, "")
    model.add_max_equality(makespan, [at + time for at, time in zip(start, dag.work, strict=True)])
    model.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.presolve_inclusion_work_limit = 0
    assert solver.solve(model) == cp_model.OPTIMAL
    return round(solver.objective_value)
