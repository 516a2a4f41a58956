from dataclasses import replace

import pytest
from drawn_cases import cases
from hypothesis import assume, given
from hypothesis import strategies as st
from placed_steps import diamond, edge, op, pair, place, placed, placed_steps, price, wired

from placement_advisor.candidates.families import propose as propose_by_rule
from placement_advisor.candidates.searched import propose_searched, search_step
from placement_advisor.errors import PlacementError
from placement_advisor.graph.op import Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.devices import Sharing
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.solvers.effort import Effort

SOME = Effort(units=0.05)
NAMES = ("one", "two", "three")


def asked(step, *starts, dearer=1.0, effort=SOME):
    answers = {start.label: start for start in starts}
    return propose_searched(answers, step.all_costs(), step.simulator(), effort, dearer=dearer)


def three_ops(edges=""):
    return wired(dict.fromkeys(NAMES, ("a", 100, 8)), edges)


def test_what_is_found_says_what_it_beat_and_else_what_was_not_beaten():
    step = three_ops()
    found = asked(step, step.placement)
    assert (found.label, found.family) == ("searched", "searched")
    assert step.simulator().step_ns(found) == 200
    assert "placements simulated, which began with 1 other candidate" in found.rationale
    step = three_ops("one -> two, two -> three")
    single = replace(step.placement, label="single")
    found = asked(step, single)
    assert found.reason.endswith("none was better than single")
    assert found.unbeaten == single


def test_where_what_is_bad_on_purpose_is_best_it_is_what_the_search_found():
    step = three_ops()
    best = step.placement.device_of | {"two": "b"}
    hopping = replace(step.placement, label="alternating", family="alternating", device_of=best)
    found = asked(step, replace(step.placement, label="single"), hopping)
    assert (found.label, found.family) == ("searched", "searched")
    assert found.device_of == best
    assert "which began with 2 other candidates" in found.rationale


def test_what_is_found_where_copies_are_dearer_says_so():
    step = three_ops()
    single = replace(step.placement, label="single")
    found = asked(step, single, dearer=1.5)
    assert found.label == "searched"
    assert found.rationale.startswith("where copies cost 1.5 times as much, the shortest step of ")
    none = asked(step, single, found, dearer=1.5)
    assert none.reason.startswith("where copies cost 1.5 times as much, of ")
    assert none.reason.endswith("none was better than searched")


def test_a_split_that_dearer_copies_spoil_is_not_proposed():
    step = diamond(latency_ns=1, bytes_per_ns=100.0)
    single = replace(step.on_one_device().placement, label="single")
    assert isinstance(asked(step, single), Placement)
    found = asked(step, single, dearer=100)
    assert found.reason.endswith("none was better than single")


def test_what_is_shorter_only_where_copies_are_dearer_is_not_proposed():
    # `long` and `draws` then draw from memory one after the other.
    drawing = {"draws": 10, "long": 40}
    times_ns = {**drawing, "free": 60, "other": 60}
    ops = [op(name, 4)._replace(bytes_accessed=drawing.get(name)) for name in times_ns]
    graph = OpGraph(ops, [edge("draws", "other", 4), edge("draws", "long", 4)])
    sharing = Sharing(memory_bytes_per_s=1e9, memory_ratio=3.0)
    cluster = replace(pair(latency_ns=20, bytes_per_ns=10), sharing=sharing)
    step = placed(graph, dict.fromkeys(times_ns, "a"), times_ns, cluster)
    simulator = step.simulator()
    dear = simulator.on(simulator.cluster.scaled(copies=3, launches=1))
    split = place({"draws": "a", "other": "a", "long": "b", "free": "b"})
    alone = replace(step.placement, label="single")
    assert dear.step_ns(split) < simulator.step_ns(alone) < simulator.step_ns(split)
    found = asked(step, alone, dearer=3)
    assert found.reason.endswith("what was found is no shorter than single elsewhere")
    assert found.unbeaten == alone


@cases(60)
@given(placed_steps(max_ops=20))
def test_what_is_found_is_shorter_where_copies_are_dearer_and_so_where_they_are_not(step):
    assume(step.placement.device_of)
    start = step.on_one_device().placement
    found = asked(step, start, dearer=3, effort=Effort(units=0.002))
    if isinstance(found, Placement):
        simulator = step.simulator()
        dear = simulator.on(simulator.cluster.scaled(copies=3, launches=1))
        assert dear.step_ns(found) < dear.step_ns(start) == simulator.step_ns(start)
        assert simulator.step_ns(found) < simulator.step_ns(start)


def weights(*bytes_each):
    """Return an op for each variable of so many bytes."""
    variables = [
        op(f"v{i}", 8, role=Role.VARIABLE)._replace(variable=f"v{i}", parameter_bytes=size)
        for i, size in enumerate(bytes_each)
    ]
    reads = [op(f"{each.name}/read", 8)._replace(variable=each.name) for each in variables]
    edges = [edge(each.variable, each.name, 8) for each in reads]
    return OpGraph([*variables, *reads], edges)


def smallest(graph, *, memory_bytes, devices):
    cluster = pair(count=devices)
    limited = tuple(replace(each, memory_bytes=memory_bytes) for each in cluster.devices)
    cluster = replace(cluster, devices=limited)
    costs = price({each.name: 10 for each in graph.ops if each.role is Role.FORWARD})
    tables = costs.everywhere(cluster)
    answers = propose_by_rule(["single"], graph, tables, cluster)
    return propose_searched(answers, tables, Simulator(graph, tables, cluster), SOME, dearer=2)


def test_what_one_device_does_not_hold_goes_to_as_few_as_hold_it():
    found = smallest(weights(60, 60, 60), memory_bytes=150, devices=4)
    assert set(found.device_of.values()) == {"a", "b"}
    assert "on 2 of 4 devices, the fewest" in found.rationale
    found = smallest(weights(60, 60, 60), memory_bytes=100, devices=4)
    assert set(found.device_of.values()) == {"a", "b", "c"}
    found = smallest(weights(60, 60), memory_bytes=50, devices=2)
    assert "fits into the memory" in found.reason
    assert found.unbeaten is None


def searched(**pinned):
    """Return what is found for three ops of 100 ns that do not need one another."""
    step = three_ops()
    return search_step(step.graph, step.all_costs(), step.cluster, SOME, pinned)


def test_ops_share_a_device_or_stay_where_they_are_pinned():
    found = searched()
    assert found.step_ns == 200
    assert found.is_proven
    found = searched(one="b", two="b", three="b")
    assert found.placement.device_of == dict.fromkeys(NAMES, "b")
    # Other placements take 200 ns; of those that keep to the pins none takes less.
    assert (found.step_ns, found.lower_bound_ns, found.is_proven) == (300, 300, True)
    with pytest.raises(PlacementError, match="'four' is pinned to 'a', but is not in the graph"):
        searched(four="a")
    with pytest.raises(PlacementError, match="'one' is pinned to 'z'; there are a, b"):
        searched(one="z")


def of_one_variable(*, variable):
    """Return a variable, two ops that read it, of which one has no GPU kernel, and two GPUs."""
    both = frozenset({"CPU", "GPU"})
    held = Op("v", "VarHandleOp", Role.VARIABLE, variable=variable, device_kinds=both)
    plain = op("plain", 8)._replace(variable="v", device_kinds=both)
    host_only = op("host only", 8)._replace(variable="v")
    edges = [edge("v", each.name, None) for each in (plain, host_only)]
    three = pair(count=3)
    *devices, host = three.devices
    gpus = tuple(replace(device, kind="GPU", host=host.name) for device in devices)
    return OpGraph([held, plain, host_only], edges), replace(three, devices=gpus, hosts=(host,))


def test_a_pinned_variable_takes_its_ops_along_whether_or_not_it_is_named_twice():
    for variable in ("v", None):
        graph, cluster = of_one_variable(variable=variable)
        tables = price({"plain": 100, "host only": 100}).everywhere(cluster)
        found = search_step(graph, tables, cluster, SOME, {"v": "b"})
        assert found.placement.device_of == dict.fromkeys(("v", "plain", "host only"), "b")
        with pytest.raises(PlacementError, match="both have to be with variable 'v'"):
            search_step(graph, tables, cluster, SOME, {"v": "b", "plain": "a"})


@given(placed_steps(max_ops=6, hosts=True), st.data())
def test_any_one_op_can_be_pinned_anywhere(step, data):
    unnamed = (o._replace(variable=None) if o.role is Role.VARIABLE else o for o in step.graph.ops)
    graph = OpGraph(unnamed, step.graph.edges)
    if not graph.placed_ops:
        return
    pinned = data.draw(st.sampled_from([o.name for o in graph.placed_ops]))
    where = data.draw(st.sampled_from(step.cluster.place_names()))
    found = search_step(graph, step.all_costs(), step.cluster, Effort(units=0.01), {pinned: where})
    placement = place(found.placement.device_of)
    assert placement.device_of[pinned] == where
    assert step.simulator().step_ns(placement) == found.step_ns
