"""How near the weights that a bound is made with come to the best, which a linear program has.

The turns and the rate of `bounds/work.py` rest on this. With other weights a bound holds as well,
but says less.
"""

from __future__ import annotations

import random

import pytest
from ortools.linear_solver.python import model_builder
from placed_steps import PlacedStep, op, pair, place, price

from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.solvers.lower_bounds import Step, shared_work


def uneven_step(seed: int) -> PlacedStep:
    """Return ops without edges, each of which suits one device better than another."""
    rng = random.Random(seed)
    names = [f"op_{i}" for i in range(rng.choice((5, 30, 200)))]
    devices = "abcd"[: rng.randint(2, 4)]
    costs = {
        device: price({name: round(10 ** rng.uniform(2, 5)) for name in names})
        for device in devices
    }
    return PlacedStep(
        graph=OpGraph([op(name, 4) for name in names], []),
        placement=place(dict.fromkeys(names, "a")),
        costs=costs["a"],
        costs_on=costs,
        cluster=pair(count=len(devices)),
    )


def best_ns(step: Step) -> float:
    """Return how long all devices need at least if ops can be cut into pieces."""
    model = model_builder.Model()
    end = model.new_num_var(0.0, float("inf"), "end")
    load = {name: [-1.0 * end] for name in step.cluster.device_names()}
    for row in step.time_ns:
        parts = {name: model.new_num_var(0.0, 1.0, "") for name in row}
        model.add(model_builder.LinearExpr.sum(list(parts.values())) == 1.0)
        for name, time_ns in row.items():
            load[name].append(float(time_ns) * parts[name])
    for each in load.values():
        model.add(model_builder.LinearExpr.sum(each) <= 0.0)
    model.minimize(end)
    solver = model_builder.Solver("glop")
    assert solver.solve(model) == model_builder.SolveStatus.OPTIMAL
    return float(solver.value(end))


@pytest.mark.parametrize("seed", range(20))
def test_the_weights_come_near_to_the_best(seed: int) -> None:
    step = uneven_step(seed)
    numbers = Step(step.graph, step.all_costs(), step.cluster)
    best = best_ns(numbers)
    found = shared_work(numbers).value_ns
    assert 0.99 * best <= found <= best + 1
