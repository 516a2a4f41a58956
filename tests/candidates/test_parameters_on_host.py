from dataclasses import replace

import pytest
from op_graphs import sized
from step_graphs import Call, cluster_of, training_step

from placement_advisor.candidates.parameters_on_host import propose
from placement_advisor.cost.table import CostTable
from placement_advisor.graph.op import Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.devices import Device

HOST = Device(name="CPU:0", kind="CPU")
GPU = Device(name="GPU:0", kind="GPU", host="CPU:0")


def lookup_step(*, table_bytes=1_000, rows_bytes=40, reader="GatherV2", extra=(), links=()):
    """Ids, rows of a table, a dense layer; the table's gradient is summed up, then subtracted."""
    ops = [
        Op("ids", "Placeholder", Role.INPUT, output_bytes=(8,)),
        Op("words", "VarHandleOp", Role.VARIABLE, variable="words",
           parameter_bytes=table_bytes, layer="embed"),
        Op("words/m", "VarHandleOp", Role.VARIABLE, variable="words/m",
           parameter_bytes=table_bytes, layer="embed"),
        Op("read", "ReadVariableOp", variable="words", layer="embed",
           output_bytes=(table_bytes,)),
        Op("rows", reader, layer="embed", output_bytes=(rows_bytes,)),
        Op("w", "VarHandleOp", Role.VARIABLE, variable="w", parameter_bytes=16),
        Op("read_w", "ReadVariableOp", variable="w", layer="dense", output_bytes=(16,)),
        Op("dense", "MatMul", layer="dense", output_bytes=(4,)),
        Op("grad", "MatMul", layer="dense", role=Role.BACKWARD, output_bytes=(40,)),
        Op("sum", "UnsortedSegmentSum", layer="embed", role=Role.BACKWARD,
           output_bytes=(table_bytes,)),
        Op("keep", "AssignVariableOp", layer="embed", role=Role.UPDATE,
           variable="words/m"),
        Op("update", "AssignSubVariableOp", layer="embed", role=Role.UPDATE,
           variable="words"),
        *extra,
    ]  # fmt: skip
    ends = [
        *("words read", "read rows", "ids rows", "rows dense", "w read_w", "read_w dense"),
        *("dense grad", "grad sum", "ids sum", "sum keep", "sum update", "words update"),
        *("words/m keep", *links),
    ]
    sizes = {op.name: (*op.output_bytes, 0)[0] for op in ops}
    edges = [Edge(a, b, 0, sizes[a]) for a, b in map(str.split, ends)]
    return OpGraph(ops, edges)


def on(graph, *devices, hosts=()):
    cluster = cluster_of(*devices, hosts=hosts)
    found = propose(graph, CostTable(costs={}).everywhere(cluster), cluster)
    if isinstance(found, Placement):
        found.check(graph, cluster.place_names())
    return found


def test_a_table_its_slot_and_all_that_is_as_large_stand_on_the_host():
    found = on(lookup_step(), GPU, hosts=[HOST])
    there = {name for name, device in found.device_of.items() if device == "CPU:0"}
    assert there >= {"words", "words/m", "read", "rows", "sum", "keep", "update"}
    assert there.isdisjoint({"w", "read_w", "dense", "grad"})
    assert found.rationale == (
        "1 table (words) on CPU:0: 2.00 kB with optimizer slots, of which a step looks up 40 B; "
        "the rest on GPU:0"
    )


def test_without_a_host_the_second_device_takes_its_part_and_of_several_it_is_the_first():
    found = on(lookup_step(), "d0", "d1", "d2")
    assert found.device_of["words"] == "d1"
    assert set(found.device_of.values()) == {"d0", "d1"}
    assert found.rationale.startswith("1 table (words) on d1, for want of a host: 2.00 kB")
    assert on(lookup_step(), "d0").reason == "d0 has no host, and no other device"
    other = replace(GPU, name="GPU:1", host="CPU:1")
    found = on(lookup_step(), GPU, other, hosts=[replace(HOST, name="CPU:1"), HOST])
    assert set(found.device_of.values()) == {"GPU:0", "CPU:0"}


def test_a_table_of_which_as_much_is_looked_up_stays_and_unknown_sizes_count_nothing():
    assert on(lookup_step(table_bytes=40), GPU, hosts=[HOST]).reason == (
        "no embedding table holds more than a step looks up in it: words has 40 B, "
        "a step looks up 40 B"
    )
    assert isinstance(on(lookup_step(table_bytes=41), GPU, hosts=[HOST]), Placement)
    graph = lookup_step(rows_bytes=None)
    assert isinstance(on(graph, GPU, hosts=[HOST]), Placement)
    graph, _ = training_step([Call(name="a", feeds=("in:x",), variables=(("w", 80),))])
    assert on(graph, GPU, hosts=[HOST]).reason == NONE


NONE = "the step has no embedding table: no variable of which it only looks up rows"


@pytest.mark.parametrize("kind", ["MatMul", "Square", "Transpose"])
def test_a_variable_that_some_op_reads_as_a_whole_is_no_table(kind):
    tied = Op("tied", kind, layer="out", output_bytes=(4,))
    graph = lookup_step(extra=[tied], links=["read tied"])
    assert on(graph, GPU, hosts=[HOST]).reason == NONE


def test_a_table_is_what_is_only_looked_up_also_through_an_identity_or_with_its_shape_read():
    graph = lookup_step(reader="Identity")
    assert on(graph, GPU, hosts=[HOST]).reason == NONE
    gather = Op("gather", "GatherV2", layer="embed", output_bytes=(40,))
    through = lookup_step(reader="Identity", extra=[gather], links=["rows gather"])
    assert on(_without(through, "rows dense"), GPU, hosts=[HOST]).device_of["words"] == "CPU:0"
    own = replace_op(lookup_step(), "read", kind="ResourceGather", output_bytes=(40,))
    assert on(own, GPU, hosts=[HOST]).device_of["words"] == "CPU:0"
    shape = Op("shape", "Shape", layer="embed", output_bytes=(8,))
    decay = Op("decay", "Mul", Role.UPDATE, output_bytes=(1_000,))
    graph = lookup_step(extra=[shape, decay], links=["read shape", "read decay", "decay update"])
    found = on(graph, GPU, hosts=[HOST])
    assert found.device_of["decay"] == "CPU:0"


def test_gradients_of_rows_and_sums_of_others_stay_on_the_device():
    scaled = Op("scaled", "Mul", layer="dense", role=Role.BACKWARD, output_bytes=(40,))
    graph = lookup_step(extra=[scaled], links=["grad scaled", "scaled update"])
    found = on(graph, GPU, hosts=[HOST])
    assert found.device_of["update"] == "CPU:0"
    assert found.device_of["scaled"] == "GPU:0"
    graph = replace_op(lookup_step(), "sum", variable="w")
    assert on(graph, GPU, hosts=[HOST]).device_of["sum"] == "GPU:0"


def _without(graph, ends):
    gone = tuple(ends.split())
    return OpGraph(graph.ops, [e for e in graph.edges if (e.producer, e.consumer) != gone])


def replace_op(graph, name, **changes):
    ops = [op._replace(**changes) if op.name == name else op for op in graph.ops]
    return sized(ops, graph.edges)
