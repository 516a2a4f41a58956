"""The local search over the simulator: never worse than its starts, repeatable, within memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest
from drawn_cases import cases
from hypothesis import assume, given
from placed_steps import PlacedStep, diamond, edge, op, pair, place, placed_steps, price, wired

from placement_advisor.errors import PlacementError
from placement_advisor.graph.op import Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.solvers.effort import Effort, Stop
from placement_advisor.solvers.step_search import LeastStep, least_step, state_apart

if TYPE_CHECKING:
    from placement_advisor.graph.placement import Placement

SOME = Effort(units=0.1)


def search(step: PlacedStep, *starts: Placement, effort: Effort = SOME) -> LeastStep:
    return least_step(step.simulator(), starts or (step.on_one_device().placement,), {}, effort)


def two_chains(op_ns: int = 100) -> PlacedStep:
    """Return two chains of twelve ops that nothing joins: too many placements to try all."""
    chains = [[f"{chain}{i}" for i in range(12)] for chain in ("left", "right")]
    names = [name for chain in chains for name in chain]
    return PlacedStep(
        graph=OpGraph(
            [op(name, 100) for name in names],
            [edge(chain[i], chain[i + 1], 100) for chain in chains for i in range(11)],
        ),
        placement=place(dict.fromkeys(names, "a")),
        costs=price(dict.fromkeys(names, op_ns)),
        cluster=pair(latency_ns=1_000),
    )


def test_two_chains_that_nothing_joins_go_to_two_devices() -> None:
    found = search(two_chains())

    assert found.step_ns == 1_200
    assert {found.placement.device_of[f"left{i}"] for i in range(12)} == {
        found.placement.device_of["left0"]
    }
    assert found.placement.device_of["left0"] != found.placement.device_of["right0"]


def test_a_chain_stays_where_it_is() -> None:
    step = wired({"one": ("a", 50, 8), "two": ("a", 60, 8)}, "one -> two")

    assert search(step).step_ns == 110


def test_the_best_of_all_placements_of_a_diamond_is_found() -> None:
    step = diamond(latency_ns=1, bytes_per_ns=100.0)
    names = [each.name for each in step.graph.ops]
    all_ns = [
        step.simulator().step_ns(place(dict(zip(names, chosen, strict=True))))
        for chosen in product("ab", repeat=4)
    ]

    found = search(step)

    assert found.step_ns == min(all_ns) < 250
    assert found.stopped_by is Stop.PROOF
    assert found.tried == 1 + len(all_ns)


def test_what_the_search_says_is_what_the_simulator_says() -> None:
    found = search(two_chains())

    assert two_chains().simulator().step_ns(found.placement) == found.step_ns


def test_two_thousand_ops_are_searched() -> None:
    names = [str(i) for i in range(2_000)]
    step = PlacedStep(
        graph=OpGraph([op(name, 8) for name in names], []),
        placement=place(dict.fromkeys(names, "a")),
        costs=price(dict.fromkeys(names, 10)),
        cluster=pair(),
    )

    found = search(step)

    assert found.stopped_by is Stop.EFFORT
    assert 10_000 <= found.step_ns < 20_000


def test_effort_is_spent_as_asked() -> None:
    found = search(two_chains(), effort=Effort(units=0.05))

    assert 0.05 <= found.units < 0.06
    assert found.tried > 100
    assert found.stopped_by is Stop.EFFORT


def test_the_clock_cuts_the_search_and_the_best_is_kept() -> None:
    found = search(two_chains(), effort=Effort(units=1e6, time_limit_s=0.5))

    assert found.stopped_by is Stop.CLOCK
    assert found.units < 1e6
    assert found.step_ns == two_chains().simulator().step_ns(found.placement) <= 2_400


def test_what_is_computed_for_updates_alone_is_state() -> None:
    names = ["v", "read", "forward", "backward", "gradient", "update", "fed"]
    roles = {
        "v": Role.VARIABLE,
        "backward": Role.BACKWARD,
        "gradient": Role.BACKWARD,
        "update": Role.UPDATE,
    }
    graph = OpGraph(
        [
            op(name, 8, role=roles.get(name, Role.FORWARD))._replace(
                variable="v" if name in ("v", "read", "update") else None
            )
            for name in names
        ],
        [
            edge("v", "read", 8),
            edge("read", "forward", 8),
            edge("forward", "backward", 8),
            edge("forward", "gradient", 8),
            edge("backward", "gradient", 8),
            edge("gradient", "update", 8),
            edge("backward", "fed", 8),
        ],
    )

    keys = state_apart(graph, graph.ops, dict.fromkeys(names[:-1], "layer"))

    state = {name for name, key in keys.items() if key == ("layer", True)}
    assert state == {"v", "read", "gradient", "update"}
    assert keys["forward"] == keys["backward"] == ("layer", False)
    assert "fed" not in keys


def test_ops_of_one_variable_stay_together() -> None:
    graph = OpGraph(
        [
            op("v", 8, role=Role.VARIABLE)._replace(variable="v"),
            op("read", 8)._replace(variable="v"),
            op("other", 8),
        ],
        [edge("v", "read", 8)],
    )
    step = PlacedStep(
        graph=graph,
        placement=place({"v": "a", "read": "a", "other": "a"}),
        costs=price({"read": 100, "other": 100}),
        cluster=pair(),
    )

    found = search(step)

    assert found.step_ns == 100
    found.placement.check(graph, ("a", "b"))


def test_what_does_not_fit_one_device_is_parted_though_that_takes_longer() -> None:
    # Two variables of 600 bytes on devices of 1,000 each, and a tensor that is slow to cross.
    graph = OpGraph(
        [
            op("v", 8, role=Role.VARIABLE)._replace(variable="v", parameter_bytes=600),
            op("w", 8, role=Role.VARIABLE)._replace(variable="w", parameter_bytes=600),
            op("first", 8)._replace(variable="v"),
            op("second", 8)._replace(variable="w"),
        ],
        [edge("v", "first", 8), edge("w", "second", 8), edge("first", "second", 8)],
    )
    cluster = pair(latency_ns=500)
    devices = tuple(replace(device, memory_bytes=1_000) for device in cluster.devices)
    step = PlacedStep(
        graph=graph,
        placement=place(dict.fromkeys(["v", "w", "first", "second"], "a")),
        costs=price({"first": 10, "second": 10}),
        cluster=replace(cluster, devices=devices),
    )

    found = search(step)

    assert found.excess_bytes == 0
    assert found.placement.device_of["v"] != found.placement.device_of["w"]
    assert found.step_ns > 500


def test_what_fits_nowhere_is_said_to_lack_memory() -> None:
    graph = OpGraph(
        [op("v", 8, role=Role.VARIABLE)._replace(variable="v", parameter_bytes=600)], []
    )
    cluster = pair()
    devices = tuple(replace(device, memory_bytes=500) for device in cluster.devices)
    step = PlacedStep(
        graph=graph,
        placement=place({"v": "a"}),
        costs=price({}),
        cluster=replace(cluster, devices=devices),
    )

    assert search(step).excess_bytes == 100


def test_a_start_that_does_not_fit_the_graph_is_an_error() -> None:
    with pytest.raises(PlacementError, match="'src' has no device"):
        search(diamond(), place({}))


@cases(40)
@given(placed_steps(hosts=True))
def test_no_search_is_worse_than_its_starts_or_differs_when_repeated(step: PlacedStep) -> None:
    assume(step.placement.device_of)
    effort = Effort(units=0.02, seed=3)
    starts = step.placement, step.on_one_device().placement

    found = search(step, *starts, effort=effort)

    assert found.step_ns <= min(step.simulator().step_ns(start) for start in starts)
    assert found.step_ns == step.simulator().step_ns(found.placement)
    assert search(step, *starts, effort=effort) == found
    found.placement.check(step.graph, step.cluster.place_names())
