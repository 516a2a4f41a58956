from drawn_cases import cases
from hypothesis import given
from hypothesis import strategies as st
from op_graphs import graph_of
from placed_steps import place
from step_graphs import Call, calls_of, deepconn, models, training_step

from placement_advisor.candidates.by_layer import listed, place_by_layer
from placement_advisor.graph.layer_view import layer_view, membership
from placement_advisor.graph.op_graph import OpGraph

DEVICES = ("d0", "d1", "d2")


def crossings(graph, device_of):
    """The tensors that cross, each once per receiving device."""
    return {
        (e.producer, e.port, device_of[e.consumer])
        for e in graph.edges
        if not e.is_control
        and e.producer in device_of
        and device_of[e.producer] != device_of[e.consumer]
    }


def test_a_variable_its_reads_its_slots_and_its_update_sit_with_its_first_reader():
    graph, _ = training_step(calls_of("first < in:x v=80; dense < first w=80; loss < dense"))
    device_of = place_by_layer(graph, {"dense": "d1"}, {}, "d0")
    on_d1 = {name for name, device in device_of.items() if device == "d1"}
    assert on_d1 == {
        "w", "dense/read/w", "dense/op", "grad/dense", "w/total", "w/m", "w/read_m", "w/change",
        "w/keep_m", "w/again_m", "w/delta", "w/assign",
    }  # fmt: skip


def test_the_learning_rate_of_the_only_variable_sits_with_it_and_of_several_what_it_alone_makes():
    rates = ("rate", "v/read_rate", "v/cast", "v/scale")
    graph, _ = training_step(calls_of("a < in:x; b < a v=80"))
    device_of = place_by_layer(graph, {"b": "d1"}, {}, "d0")
    assert {device_of[name] for name in rates} == {"d1"}
    graph, _ = training_step(calls_of("a < in:x w=80; b < a v=80"))
    device_of = place_by_layer(graph, {"b": "d1"}, {}, "d0")
    assert {device_of[name] for name in rates} == {"d0"}
    crossed = crossings(graph, device_of)
    assert {("v/scale", 0, "d1"), ("a/op", 0, "d1"), ("grad/b", 0, "d0")} <= crossed


def test_a_running_metric_sits_with_the_loss_that_it_sums():
    graph, _ = training_step(calls_of("a < in:x; loss < a"))
    device_of = place_by_layer(graph, {"loss": "d1"}, {}, "d0")
    metric = [name for name in device_of if name.startswith("metric")]
    assert {device_of[name] for name in metric} == {"d1"}
    graph = graph_of("x Relu - a; y Relu - b < x; g ReluGrad backward a < y; sum Add update < y g")
    assert place_by_layer(graph, {"a": "d1", "b": "d2"}, {}, "d0")["sum"] == "d2"


def test_an_input_goes_with_its_first_reader_unless_its_own_layer_has_a_device():
    graph, _ = training_step(calls_of("a < in:x; b < a in:x"))
    assert place_by_layer(graph, {"a": "d1"}, {}, "d0")["in:x"] == "d1"
    named = graph_of("x Placeholder input feed; y Relu - a < x")
    assert place_by_layer(named, {"a": "d1", "feed": "d2"}, {}, "d0")["x"] == "d2"
    assert place_by_layer(named, {"a": "d1"}, {}, "d0")["x"] == "d1"
    again = graph_of("x Placeholder input; y Relu - b < x; g ReluGrad backward a < x y")
    assert place_by_layer(again, {"a": "d1", "b": "d2"}, {}, "d0")["x"] == "d2"


def test_what_is_computed_for_one_variable_sits_with_it_wherever_its_gradient_comes_from():
    graph = graph_of(
        "w VarHandleOp variable - w; read ReadVariableOp - a w < w; y MatMul - a < read; "
        "gradient MatMul backward a < y; clipped Mul update < gradient; "
        "update AssignSubVariableOp update - w < clipped w"
    )
    device_of = place_by_layer(graph, {"a": "d1"}, {"w": "d2"}, "d0")
    assert device_of["gradient"] == "d1"
    assert device_of["clipped"] == device_of["update"] == "d2"


def gather(table_bytes, rows_bytes):
    """A gather on d1 from a variable on d0: 8 bytes of ids in, rows out to d1."""
    graph = graph_of(
        "ids Cast - cast; words VarHandleOp variable - words; "
        "read ReadVariableOp - embed words < words; gather GatherV2 - embed < ids read; "
        "sum Sum - top < gather"
    )
    size = {"ids": 8, "words": 0, "read": table_bytes, "gather": rows_bytes}
    edges = [edge._replace(size_bytes=size[edge.producer]) for edge in graph.edges]
    graph = OpGraph(graph.ops, edges)
    layers = dict.fromkeys(("cast", "embed", "top"), "d1")
    return place_by_layer(graph, layers, {"words": "d0"}, "d0")["gather"]


def test_a_gather_moves_to_a_variable_that_is_larger_than_its_ids_and_rows():
    assert gather(table_bytes=109, rows_bytes=100) == "d0"
    assert gather(table_bytes=108, rows_bytes=100) == "d1"
    assert gather(table_bytes=1_000_000, rows_bytes=None) == "d1"


def test_sharing_a_variable_a_table_or_an_input_makes_no_layer_depend_on_another():
    lookups = [Call(name=name, feeds=("in:x",), table="vocab") for name in ("find", "find@2")]
    graph, _ = training_step([*lookups, *calls_of("d < find w=80; d@2 < find@2 w=80")])
    assert set(layer_view(graph).edges) == {("find", "d"), ("find@2", "d@2")}


def test_a_table_sits_with_the_layer_that_looks_into_it():
    graph = graph_of("t HashTableV2 - - words; x Placeholder input; f Find - a words < t x")
    assert place_by_layer(graph, {"a": "d1"}, {}, "d0") == dict.fromkeys("txf", "d1")


def test_ops_outside_layers_join_the_layer_that_feeds_them_or_stand_alone():
    graph = graph_of(
        "x Placeholder input; a MatMul - A < x; b MatMul - B < x; relu Relu < a; shift Range; "
        "add AddV2 < relu b shift; mean Mean < add"
    )
    member = membership(graph)
    assert member.layer_of == {
        "a": "A", "b": "B", "relu": "A", "add": "add", "mean": "add", "shift": "add",
    }  # fmt: skip
    assert member.free == {"shift"}


def test_reasons_name_three_at_most():
    assert (listed("abc"), listed("abcd")) == ("a, b and c", "a, b, c and 1 more")


@cases(80)
@given(models(), st.data())
def test_any_device_per_layer_and_per_variable_gives_a_placement_that_fits(calls, data):
    graph, _ = training_step(calls)
    device = st.sampled_from(DEVICES)
    layers = data.draw(st.fixed_dictionaries({call.name: device for call in calls}))
    variables = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys("uvw", device)))
    placement = place(place_by_layer(graph, layers, variables, "d0"))
    placement.check(graph, DEVICES)
    for name, home in variables.items():
        if name in graph:
            assert placement.device_of[name] == home


def test_deepconn_crosses_few_tensors_when_split_by_hand():
    graph, _ = training_step(deepconn())
    second = {call.name: "d1" for call in deepconn() if call.name.startswith("user_")}
    device_of = place_by_layer(graph, second, {}, "d0")
    crossed = {producer for producer, _, _ in crossings(graph, device_of)}
    # The vectors there, their gradient back, the output and its gradient, and for each of three
    # variables the scaled learning rate.
    assert crossed == {
        "embedding@2/op", "grad/user_conv", "user_dense/op", "grad/rating",
        "user_kernel/scale", "user_bias/scale", "user_weights/scale",
    }  # fmt: skip


def test_a_constant_or_a_variable_read_early_does_not_bring_a_layers_turn_forward():
    graph = graph_of(
        "shape Const constant; cast Cast - loss < shape; w VarHandleOp variable - w; "
        "read ReadVariableOp - dense w < w; x Placeholder input; conv Conv2D - conv < x; "
        "mul MatMul - dense < conv read; div RealDiv - loss < mul cast"
    )
    assert layer_view(graph).forward_layers() == ("conv", "dense", "loss")
