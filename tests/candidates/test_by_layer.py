from drawn_cases import cases
from hypothesis import given
from hypothesis import strategies as st
from step_graphs import Call, deepconn, models, training_step

from placement_advisor.candidates.by_layer import place_by_layer
from placement_advisor.graph.layer_view import layer_view, membership
from placement_advisor.graph.op import Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement

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
    graph, _ = training_step(
        [
            Call(name="first", feeds=("in:x",), variables=(("v", 80),)),
            Call(name="dense", feeds=("first",), variables=(("w", 80),)),
            Call(name="loss", feeds=("dense",), out_bytes=4),
        ]
    )
    device_of = place_by_layer(graph, {"dense": "d1"}, {}, "d0")
    on_d1 = {name for name, device in device_of.items() if device == "d1"}
    assert on_d1 == {
        "w", "dense/read/w", "dense/op", "grad/dense", "w/total", "w/m", "w/read_m", "w/change",
        "w/keep_m", "w/again_m", "w/delta", "w/assign",
    }  # fmt: skip


def test_the_learning_rate_of_the_only_variable_sits_with_it():
    graph, _ = training_step(
        [Call(name="a", feeds=("in:x",)), Call(name="b", feeds=("a",), variables=(("w", 80),))]
    )
    device_of = place_by_layer(graph, {"b": "d1"}, {}, "d0")
    assert {device_of[name] for name in ("rate", "w/read_rate", "w/cast", "w/scale")} == {"d1"}


def test_what_an_update_computes_from_the_learning_rate_alone_stays_beside_it():
    graph, _ = training_step(
        [
            Call(name="a", feeds=("in:x",), variables=(("w", 80),)),
            Call(name="b", feeds=("a",), variables=(("v", 80),)),
        ]
    )
    device_of = place_by_layer(graph, {"b": "d1"}, {}, "d0")
    assert {device_of[name] for name in ("rate", "v/read_rate", "v/cast", "v/scale")} == {"d0"}
    assert {("v/scale", 0, "d1"), ("a/op", 0, "d1"), ("grad/b", 0, "d0")} <= crossings(
        graph, device_of
    )


def test_a_running_metric_sits_with_the_loss_that_it_sums():
    graph, _ = training_step([Call(name="a", feeds=("in:x",)), Call(name="loss", feeds=("a",))])
    device_of = place_by_layer(graph, {"loss": "d1"}, {}, "d0")
    metric = [name for name in device_of if name.startswith("metric")]
    assert {device_of[name] for name in metric} == {"d1"}


def test_an_input_goes_with_its_first_reader_unless_its_own_layer_has_a_device():
    calls = [Call(name="a", feeds=("in:x",)), Call(name="b", feeds=("a", "in:x"))]
    graph, _ = training_step(calls)
    assert place_by_layer(graph, {"a": "d1"}, {}, "d0")["in:x"] == "d1"
    named = OpGraph(
        [
            Op(name="x", kind="Placeholder", role=Role.INPUT, layer="feed"),
            Op(name="y", kind="Relu", layer="a"),
        ],
        [Edge(producer="x", consumer="y", port=0, size_bytes=4)],
    )
    assert place_by_layer(named, {"a": "d1", "feed": "d2"}, {}, "d0")["x"] == "d2"


def test_an_input_whose_own_layer_has_no_device_goes_with_its_first_reader():
    graph = OpGraph(
        [
            Op(name="x", kind="Placeholder", role=Role.INPUT, layer="feed"),
            Op(name="y", kind="Relu", layer="a"),
        ],
        [Edge(producer="x", consumer="y", port=0, size_bytes=4)],
    )
    assert place_by_layer(graph, {"a": "d1"}, {}, "d0")["x"] == "d1"


def test_what_is_computed_for_one_variable_sits_with_it_wherever_its_gradient_comes_from():
    ops = [
        Op(name="w", kind="VarHandleOp", role=Role.VARIABLE, variable="w"),
        Op(name="read", kind="ReadVariableOp", layer="a", variable="w"),
        Op(name="y", kind="MatMul", layer="a"),
        Op(name="gradient", kind="MatMul", layer="a", role=Role.BACKWARD),
        Op(name="clipped", kind="Mul", role=Role.UPDATE),
        Op(name="update", kind="AssignSubVariableOp", role=Role.UPDATE, variable="w"),
    ]
    pairs = ["w read", "read y", "y gradient", "gradient clipped", "clipped update", "w update"]
    edges = [Edge(*pair.split(), port=0, size_bytes=None) for pair in pairs]
    device_of = place_by_layer(OpGraph(ops, edges), {"a": "d1"}, {"w": "d2"}, "d0")
    assert device_of["gradient"] == "d1"
    assert device_of["clipped"] == device_of["update"] == "d2"


def gather(table_bytes, rows_bytes):
    """A gather on d1 from a variable on d0: 8 bytes of ids in, rows out to d1."""
    ops = [
        Op(name="ids", kind="Cast", layer="cast"),
        Op(name="words", kind="VarHandleOp", role=Role.VARIABLE, variable="words"),
        Op(name="read", kind="ReadVariableOp", layer="embed", variable="words"),
        Op(name="gather", kind="GatherV2", layer="embed"),
        Op(name="sum", kind="Sum", layer="top"),
    ]
    edges = [
        ("ids", "gather", 8),
        ("words", "read", 0),
        ("read", "gather", table_bytes),
        ("gather", "sum", rows_bytes),
    ]
    graph = OpGraph(
        ops, [Edge(producer=a, consumer=b, port=0, size_bytes=size) for a, b, size in edges]
    )
    layers = dict.fromkeys(("cast", "embed", "top"), "d1")
    return place_by_layer(graph, layers, {"words": "d0"}, "d0")["gather"]


def test_a_gather_moves_to_a_variable_that_is_larger_than_its_ids_and_rows():
    assert gather(table_bytes=109, rows_bytes=100) == "d0"


def test_a_gather_stays_where_its_ids_and_rows_are_no_smaller_than_the_variable():
    assert gather(table_bytes=108, rows_bytes=100) == "d1"


def test_a_gather_of_unknown_size_stays():
    assert gather(table_bytes=1_000_000, rows_bytes=None) == "d1"


def test_sharing_a_variable_a_table_or_an_input_makes_no_layer_depend_on_another():
    graph, _ = training_step(
        [
            Call(name="find", feeds=("in:x",), table="vocab"),
            Call(name="find@2", feeds=("in:x",), table="vocab"),
            Call(name="d", feeds=("find",), variables=(("w", 80),)),
            Call(name="d@2", feeds=("find@2",), variables=(("w", 80),)),
        ]
    )
    edges = set(layer_view(graph).edges)
    assert edges == {("find", "d"), ("find@2", "d@2")}


def test_ops_outside_layers_join_the_layer_that_feeds_them_or_stand_alone():
    ops = [
        Op(name="x", kind="Placeholder", role=Role.INPUT),
        Op(name="a", kind="MatMul", layer="A"),
        Op(name="b", kind="MatMul", layer="B"),
        Op(name="relu", kind="Relu"),
        Op(name="shift", kind="Range"),
        Op(name="add", kind="AddV2"),
        Op(name="mean", kind="Mean"),
    ]
    pairs = ["x a", "x b", "a relu", "relu add", "b add", "shift add", "add mean"]
    edges = [
        Edge(producer=p.split()[0], consumer=p.split()[1], port=0, size_bytes=4) for p in pairs
    ]
    member = membership(OpGraph(ops, edges))
    assert member.layer_of == {
        "a": "A", "b": "B", "relu": "A", "add": "add", "mean": "add", "shift": "add",
    }  # fmt: skip
    assert member.free == {"shift"}


@cases(80)
@given(models(), st.data())
def test_any_device_per_layer_and_per_variable_gives_a_placement_that_fits(calls, data):
    graph, _ = training_step(calls)
    device = st.sampled_from(DEVICES)
    layers = data.draw(st.fixed_dictionaries({call.name: device for call in calls}))
    variables = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys("uvw", device)))
    placement = Placement(
        label="any",
        family="any",
        device_of=place_by_layer(graph, layers, variables, "d0"),
        rationale="",
    )
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
    ops = [
        Op(name="shape", kind="Const", role=Role.CONSTANT),
        Op(name="cast", kind="Cast", layer="loss"),
        Op(name="w", kind="VarHandleOp", role=Role.VARIABLE, variable="w"),
        Op(name="read", kind="ReadVariableOp", layer="dense", variable="w"),
        Op(name="x", kind="Placeholder", role=Role.INPUT),
        Op(name="conv", kind="Conv2D", layer="conv"),
        Op(name="mul", kind="MatMul", layer="dense"),
        Op(name="div", kind="RealDiv", layer="loss"),
    ]
    pairs = [*("shape cast", "w read", "x conv", "conv mul", "read mul", "mul div", "cast div")]
    edges = [
        Edge(producer=p.split()[0], consumer=p.split()[1], port=0, size_bytes=4) for p in pairs
    ]
    assert layer_view(OpGraph(ops, edges)).forward_layers() == ("conv", "dense", "loss")
