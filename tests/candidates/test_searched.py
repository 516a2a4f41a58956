"""The searched candidate: better than where it started, or not a candidate."""

from __future__ import annotations

from dataclasses import replace

from drawn_cases import cases
from hypothesis import assume, given
from placed_steps import PlacedStep, diamond, edge, op, pair, place, placed_steps, price

from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.candidates.families import propose as propose_by_rule
from placement_advisor.candidates.searched import layers_of, propose_searched
from placement_advisor.graph.op import Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.devices import Sharing
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.solvers.effort import Effort

SOME = Effort(units=0.05)


def asked(
    step: PlacedStep, *starts: Placement, dearer: float = 1.0, effort: Effort = SOME
) -> Placement | NotApplicable:
    answers = {start.label: start for start in starts}
    return propose_searched(answers, step.all_costs(), step.simulator(), effort, dearer=dearer)


def three_ops(edges: int) -> PlacedStep:
    names = ["one", "two", "three"]
    return PlacedStep(
        graph=OpGraph(
            [op(name, 8) for name in names], [edge(names[i], names[i + 1], 8) for i in range(edges)]
        ),
        placement=place(dict.fromkeys(names, "a")),
        costs=price(dict.fromkeys(names, 100)),
        cluster=pair(),
    )


def test_what_is_found_says_how_many_placements_it_beat():
    step = three_ops(edges=0)
    found = asked(step, step.placement)
    assert isinstance(found, Placement)
    assert (found.label, found.family) == ("searched", "searched")
    assert step.simulator().step_ns(found) == 200
    assert "placements simulated, which began with 1 other candidate" in found.rationale


def test_nothing_better_is_no_candidate_and_names_what_was_not_beaten():
    step = three_ops(edges=2)
    single = replace(step.placement, label="single")
    found = asked(step, single)
    assert isinstance(found, NotApplicable)
    assert found.reason.endswith("none was better than single")
    assert found.unbeaten == single


def test_where_what_is_bad_on_purpose_is_best_it_is_what_the_search_found():
    step = three_ops(edges=0)
    best = step.placement.device_of | {"two": "b"}
    hopping = replace(step.placement, label="alternating", family="alternating", device_of=best)
    found = asked(step, replace(step.placement, label="single"), hopping)
    assert isinstance(found, Placement)
    assert (found.label, found.family) == ("searched", "searched")
    assert found.device_of == best
    assert "which began with 2 other candidates" in found.rationale


def test_what_is_found_where_copies_are_dearer_says_so():
    step = three_ops(edges=0)
    single = replace(step.placement, label="single")
    found = asked(step, single, dearer=1.5)
    assert isinstance(found, Placement)
    assert found.label == "searched"
    assert found.rationale.startswith("where copies cost 1.5 times as much, the shortest step of ")
    none = asked(step, single, found, dearer=1.5)
    assert isinstance(none, NotApplicable)
    assert none.reason.startswith("where copies cost 1.5 times as much, of ")
    assert none.reason.endswith("none was better than searched")


def test_a_split_that_dearer_copies_spoil_is_not_proposed():
    step = diamond(latency_ns=1, bytes_per_ns=100.0)
    single = replace(step.on_one_device().placement, label="single")
    assert isinstance(asked(step, single), Placement)
    found = asked(step, single, dearer=100)
    assert isinstance(found, NotApplicable)
    assert found.reason.endswith("none was better than single")


def test_what_is_shorter_only_where_copies_are_dearer_is_not_proposed():
    # `long` and `draws` then draw from memory one after the other.
    drawing = {"draws": 10, "long": 40}
    costs = price({**drawing, "free": 60, "other": 60})
    ops = [op(name, 4)._replace(bytes_accessed=drawing.get(name)) for name in costs.costs]
    sharing = Sharing(split_ratio=1.0, memory_bytes_per_s=1e9, memory_ratio=3.0)
    step = PlacedStep(
        graph=OpGraph(ops, [edge("draws", "other", 4), edge("draws", "long", 4)]),
        placement=place(dict.fromkeys(costs.costs, "a")),
        costs=costs,
        cluster=replace(pair(latency_ns=20, bytes_per_ns=10), sharing=sharing),
    )
    simulator = step.simulator()
    dear = simulator.on(simulator.cluster.scaled(copies=3, launches=1))
    split = place({"draws": "a", "other": "a", "long": "b", "free": "b"})
    alone = replace(step.placement, label="single")
    assert dear.step_ns(split) < simulator.step_ns(alone) < simulator.step_ns(split)

    found = asked(step, alone, dearer=3)

    assert isinstance(found, NotApplicable)
    assert found.reason.endswith("what was found is no shorter than single elsewhere")
    assert found.unbeaten == alone


@cases(60)
@given(placed_steps(max_ops=20))
def test_what_is_found_is_shorter_where_copies_are_dearer_and_so_where_they_are_not(
    step: PlacedStep,
):
    assume(step.placement.device_of)
    start = step.on_one_device().placement

    found = asked(step, start, dearer=3, effort=Effort(units=0.002))

    if isinstance(found, Placement):
        simulator = step.simulator()
        dear = simulator.on(simulator.cluster.scaled(copies=3, launches=1))
        assert dear.step_ns(found) < dear.step_ns(start) == simulator.step_ns(start)
        assert simulator.step_ns(found) < simulator.step_ns(start)


def weights(*bytes_each: int) -> OpGraph:
    """Return an op for each variable of so many bytes."""
    variables = [
        op(f"v{i}", 8, role=Role.VARIABLE)._replace(variable=f"v{i}", parameter_bytes=size)
        for i, size in enumerate(bytes_each)
    ]
    reads = [op(f"read{i}", 8)._replace(variable=f"v{i}") for i in range(len(bytes_each))]
    return OpGraph(
        [*variables, *reads],
        [edge(v.name, r.name, 8) for v, r in zip(variables, reads, strict=True)],
    )


def smallest(graph: OpGraph, *, memory_bytes: int, devices: int) -> Placement | NotApplicable:
    cluster = pair(count=devices)
    cluster = replace(
        cluster, devices=tuple(replace(d, memory_bytes=memory_bytes) for d in cluster.devices)
    )
    costs = price({each.name: 10 for each in graph.ops if each.role is Role.FORWARD})

    tables = costs.everywhere(cluster)
    answers = propose_by_rule(["single"], graph, tables, cluster)
    return propose_searched(answers, tables, Simulator(graph, tables, cluster), SOME, dearer=2)


def test_what_one_device_does_not_hold_goes_to_as_few_as_hold_it():
    found = smallest(weights(60, 60, 60), memory_bytes=150, devices=4)
    assert isinstance(found, Placement)
    assert set(found.device_of.values()) == {"a", "b"}
    assert "on 2 of 4 devices, the fewest" in found.rationale


def test_what_two_devices_do_not_hold_goes_to_three():
    found = smallest(weights(60, 60, 60), memory_bytes=100, devices=4)
    assert isinstance(found, Placement)
    assert set(found.device_of.values()) == {"a", "b", "c"}


def test_what_no_devices_hold_is_said_not_to_fit():
    found = smallest(weights(60, 60), memory_bytes=50, devices=2)
    assert isinstance(found, NotApplicable)
    assert "fits into the memory" in found.reason
    assert found.unbeaten is None


def test_layers_keep_their_variables():
    graph = OpGraph(
        [
            op("v", 8, role=Role.VARIABLE)._replace(variable="v", layer="dense"),
            op("read", 8)._replace(variable="v", layer="dense"),
            op("matmul", 8)._replace(layer="dense"),
            op("relu", 8)._replace(layer="act"),
        ],
        [edge("v", "read", 8), edge("read", "matmul", 8), edge("matmul", "relu", 8)],
    )
    assert layers_of(graph) == {"v": "dense", "read": "dense", "matmul": "dense", "relu": "act"}


def test_the_first_devices_are_a_cluster_of_their_own():
    part = pair(count=3).with_devices(["a", "b"])
    assert part.device_names() == ("a", "b")
    assert {(link.source, link.target) for link in part.links} == {("a", "b"), ("b", "a")}
    assert Simulator(weights(1), price({"read0": 7}).everywhere(part), part)
