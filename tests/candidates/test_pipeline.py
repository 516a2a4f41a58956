from dataclasses import replace
from itertools import pairwise

import pytest
from drawn_cases import cases
from hypothesis import given
from hypothesis import strategies as st
from placed_steps import price
from step_graphs import calls_of, cluster_of, models, proposed, training_step

from placement_advisor.candidates import pipeline
from placement_advisor.candidates.by_layer import place_by_layer
from placement_advisor.graph.layer_structure import depth_first
from placement_advisor.graph.layer_view import layer_view
from placement_advisor.graph.op import Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.devices import Device


def small(text):
    """Return calls from text, copies of whose outputs take 15 ns."""
    return [replace(call, out_bytes=5) for call in calls_of(text)]


def chain(*costs_ns, held=""):
    """Layers a, b, c … of these costs, each of which may hold variables."""
    names = ["in:x", *"abcdefgh"[: len(costs_ns)]]
    layers = zip(pairwise(names), costs_ns, strict=True)
    calls = (f"{name} {ns} < {before} {held.format(name)}" for (before, name), ns in layers)
    return small("; ".join(calls))


def cut(calls, *devices, latency_ns=10, slower=()):
    """Return the proposal and the layers of each device; ``slower`` ones take twice as long."""
    graph, costs = training_step(calls)
    cluster = cluster_of(*devices, latency_ns=latency_ns)
    tables = costs.everywhere(cluster) | dict.fromkeys(slower, costs.scaled(2))
    found = pipeline.propose(graph, tables, cluster)
    if not isinstance(found, Placement):
        return found, {}
    found.check(graph, cluster.device_names())
    layers = found.by_layer(graph)
    layers.pop("", None)
    return found, {d: "".join(layer for layer in layers if layers[layer] == d) for d in devices}


def test_a_chain_is_cut_where_the_fullest_device_has_least_with_its_copies():
    found, stages = cut(chain(100, 100, 100, 100), "d0", "d1")
    assert stages == {"d0": "ab", "d1": "cd"}
    # The output of b, read by c and by c's gradient, and the gradient of c: 5 bytes each.
    assert found.rationale == (
        "2 stages: a … b on d0 (200 ns) and c … d on d1 (200 ns); 2 tensors of 10 B together cross"
    )
    # 900 | 200 + 300 + 400, before 900 + 200 | 300 + 400.
    _, stages = cut(chain(900, 200, 300, 400), "d0", "d1")
    assert stages == {"d0": "a", "d1": "bcd"}
    # Between b and c 15 ns each way; between a and b a tensor of 500 bytes, and its gradient.
    calls = chain(100, 80, 100)
    calls[0] = replace(calls[0], out_bytes=500)
    _, stages = cut(calls, "d0", "d1")
    assert stages == {"d0": "ab", "d1": "c"}
    _, stages = cut(chain(100, 100, 100), "d0", "d1", slower=["d0"])
    assert {device: len(layers) for device, layers in stages.items()} == {"d0": 1, "d1": 2}
    found, _ = cut(chain(100, 100), "d0", "d1", latency_ns=1_000)
    assert found.reason == (
        "any cut costs more in copies than it takes off one device, which has 200 ns of work"
    )


def test_of_what_an_op_makes_only_what_leaves_its_layer_is_copied():
    ops = [
        Op("apart", "Split", layer="a", output_bytes=(500, 5)),
        Op("inner", "Relu", layer="a", output_bytes=(4,)),
        Op("next", "Relu", layer="b", output_bytes=(4,)),
    ]
    edges = [Edge("apart", "inner", 0, 500), Edge("apart", "next", 1, 5)]
    costs = price({"apart": 100, "next": 100})
    # 100 ns and a copy of 5 bytes, 15 ns, on either side; 500 bytes stay where they are.
    found = proposed(pipeline.propose, OpGraph(ops, edges), costs, "d0", "d1")
    assert found.device_of == {"apart": "d0", "inner": "d0", "next": "d1"}


def test_another_device_is_used_only_where_the_step_gets_shorter():
    # A chain runs one stage after the other: a third one makes the fullest device less loaded,
    # and adds copies to the step.
    chained, _ = cut(chain(100, 100, 100), "d0", "d1", "d2")
    assert len(set(chained.device_of.values())) == 2
    # Branches run beside one another.
    wide, _ = cut(small("a < in:x; b < in:x; c < in:x; d 1 < a b c"), "d0", "d1", "d2")
    assert len(set(wide.device_of.values())) == 3


def test_parameters_must_fit_their_device():
    # Slots take as much as the variable: 60 bytes a layer. By cost, a alone would be one stage.
    calls = chain(900, 100, 100, 100, held="{}_w=30")
    enough, less = (
        [Device(name=name, kind="CPU", memory_bytes=size) for name in "ab"] for size in (130, 110)
    )
    graph, costs = training_step(calls)
    found = proposed(pipeline.propose, graph, costs, *enough)
    homes = [found.device_of[f"{layer}_w"] for layer in "abcd"]
    assert sorted(map(homes.count, set(homes))) == [2, 2]
    assert proposed(pipeline.propose, graph, costs, *less).reason == (
        "no cut gives each device parameters that fit its memory: "
        f"the step has {graph.parameter_bytes} B of them"
    )


def test_a_variable_that_two_stages_read_stands_with_the_first():
    found, stages = cut(chain(500, 500, held="w=4"), "d0", "d1")
    assert stages == {"d0": "a", "d1": "b"}
    assert found.device_of["w"] == found.device_of["b/read/w"] == "d0"


def test_one_device_or_one_layer_cannot_be_cut():
    found, _ = cut(chain(100, 100), "d0")
    assert found.reason == "there is one device"
    found, _ = cut(chain(100), "d0", "d1")
    assert found.reason == "the step has no two layers to cut between"


def test_thousands_of_layers_are_cut_in_the_middle_as_well():
    names = [f"op{i}" for i in range(2_400)]
    ops = [Op(name, "Relu", layer=name, output_bytes=(4,)) for name in names]
    graph = OpGraph(ops, [Edge(one, other, 0, 4) for one, other in pairwise(names)])
    found = proposed(pipeline.propose, graph, price(dict.fromkeys(names, 100)), "a", "b")
    devices = [found.device_of[name] for name in names]
    assert devices.count("a") == pytest.approx(1_200, abs=5)
    assert sum(one != other for one, other in pairwise(devices)) == 1


def loads_ns(graph, device_of, costs, cluster):
    """Return what each device has to do: its ops, and each copy from and to it."""
    found = dict.fromkeys(cluster.device_names(), 0)
    for name, device in device_of.items():
        found[device] += costs.costs[name].time_ns
    sent, received = {}, {}
    for e in graph.edges:
        if e.is_control or Role.CONSTANT in (graph.op(e.producer).role, graph.op(e.consumer).role):
            continue
        source, target = device_of[e.producer], device_of[e.consumer]
        if source != target:
            time_ns = cluster.link(source, target).transfer_ns(e.size_bytes or 0)
            sent[e.producer, source] = received[e.producer, target] = time_ns
    for (_, device), time_ns in [*sent.items(), *received.items()]:
        found[device] += time_ns
    return found


@cases(80)
@given(models(), st.sampled_from([0, 30, 300]))
def test_no_cut_in_two_has_a_less_loaded_fullest_device(calls, latency_ns):
    graph, costs = training_step(calls)
    cluster = cluster_of("d0", "d1", latency_ns=latency_ns)
    found = pipeline.propose(graph, costs.everywhere(cluster), cluster)
    view = layer_view(graph)
    order = depth_first(view)
    with_layer = place_by_layer(graph, {layer: layer for layer in order}, {}, order[0])
    best_ns = min(
        max(loads_ns(graph, _cut_at(with_layer, order, at), costs, cluster).values())
        for at in range(1, len(order) + 1)
    )
    if isinstance(found, Placement):
        assert max(loads_ns(graph, found.device_of, costs, cluster).values()) == best_ns
        on = ({found.device_of[op] for op in with_layer if with_layer[op] == one} for one in order)
        devices = [device for some in on for device in some]
        assert sum(one != other for one, other in pairwise(devices)) == 1
    elif len(order) > 1:
        assert best_ns == sum(costs.time_ns(op) for op in with_layer)


def _cut_at(with_layer, order, at):
    first = set(order[:at])
    return {op: "d0" if layer in first else "d1" for op, layer in with_layer.items()}
