import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_graphs import called, graph_of

from placement_advisor.errors import PlacementError
from placement_advisor.graph.identities import identities
from placement_advisor.graph.op import Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph, TracedAs
from placement_advisor.graph.placement import Placement, read_placement

DEVICES = ("worker:0", "worker:1")


def graph_with_layers(*layers):
    return OpGraph([Op(f"op{i}", "MatMul", layer=layer) for i, layer in enumerate(layers)], [])


def place(graph, *devices):
    names = [op.name for op in graph.placed_ops]
    return Placement(
        label="towers",
        family="towers",
        device_of={name: DEVICES[i] for name, i in zip(names, devices, strict=True)},
        rationale="two towers",
    )


def test_a_placement_that_does_not_fit_is_refused():
    bound = graph_of("v VarHandleOp variable - v; read ReadVariableOp - - v; x MatMul")
    place(bound, 1, 1, 0).check(bound, DEVICES)
    graph = OpGraph([Op("c", "Const", Role.CONSTANT)], [])
    assert graph.placed_ops == ()
    place(graph).check(graph, DEVICES)
    graph = graph_with_layers("a", "b")
    placement = replace(place(graph, 0, 1), device_of={"op0": "worker:0"})
    with pytest.raises(PlacementError, match="towers: op 'op1' has no device"):
        placement.check(graph, DEVICES)
    graph = graph_with_layers("a")
    placement = replace(place(graph, 0), device_of={"op0": "GPU:9"})
    with pytest.raises(PlacementError, match="'GPU:9'; there are worker:0, worker:1"):
        placement.check(graph, DEVICES)
    with pytest.raises(PlacementError, match=r"'read' is placed on 'worker:1', its variable 'v'"):
        place(bound, 0, 1, 0).check(bound, DEVICES)


def test_a_layer_is_where_most_of_its_ops_are_or_on_the_first_device_by_name():
    graph = graph_with_layers("a", "a", "a", "b", None)
    found = place(graph, 1, 0, 1, 0, 1).by_layer(graph)
    assert found == {"a": "worker:1", "b": "worker:0", "": "worker:1"}
    graph = graph_with_layers("a", "a")
    assert place(graph, 1, 0).by_layer(graph) == {"a": "worker:0"}


def test_a_file_lists_layers_and_the_ops_that_differ_from_theirs(tmp_path):
    graph = graph_with_layers("a", "a", "a", "b")
    path = tmp_path / "towers.json"
    place(graph, 0, 0, 1, 1).save(path, graph, DEVICES)
    assert json.loads(path.read_text(encoding="utf-8")) == {
        "schema_version": 1,
        "label": "towers",
        "family": "towers",
        "rationale": "two towers",
        "graph_fingerprint": graph.fingerprint,
        "devices": ["worker:0", "worker:1"],
        "by_layer": {"a": "worker:0", "b": "worker:1"},
        "by_op": {"op2": "worker:1"},
        "structure": asdict(identities(graph, ("a", "b"), ("op2",))),
    }


@given(
    layers_and_devices=st.lists(
        st.tuples(st.sampled_from([None, "", "a", "b"]), st.integers(0, 1)), max_size=12
    )
)
def test_a_placement_loads_back_equal(tmp_path_factory, layers_and_devices):
    graph = graph_with_layers(*(layer for layer, _ in layers_and_devices))
    placement = place(graph, *(device for _, device in layers_and_devices))
    path = tmp_path_factory.mktemp("placement") / "placement.json"
    placement.save(path, graph, DEVICES)
    assert Placement.load(path, graph) == placement
    read, file = read_placement(path, graph)
    assert (read, file.devices) == (placement, DEVICES)


NOW = TracedAs(mode="train", batch_size=32, inputs=("float32 [32, 8]",), outputs=("float32 []",))
ALL_OTHERWISE = "all 2 layers are made of other ops or sizes here"


def was(**changes):
    return replace(NOW, **changes)


@pytest.mark.parametrize(
    ("then", "now", "differs"),
    [
        (was(batch_size=16, inputs=("float32 [16, 8]",)), NOW, "the batch was 16, and is 32 here"),
        (
            was(batch_size=16, inputs=("float64 [16, 8]",)),
            NOW,
            "the batch was 16, and is 32 here; "
            "inputs only there: 'float64 [batch, 8]', only here: 'float32 [batch, 8]'",
        ),
        (was(mode="infer"), NOW, "the mode was infer, and is train here"),
        (was(outputs=(*NOW.outputs, "int8 [32, 8]")), NOW, "outputs only there: 'int8 [32, 8]'"),
        # A step that is called has inputs, of which nobody says what the batch is.
        (NOW, replace(NOW, batch_size=None), ALL_OTHERWISE),
        (NOW, NOW, ALL_OTHERWISE),
        (None, NOW, f"{ALL_OTHERWISE}, as by another batch"),
        (NOW, None, f"{ALL_OTHERWISE}, as by another batch"),
    ],
)
def test_what_differs_from_the_graph_of_a_file_is_said(tmp_path, then, now, differs):
    graph, path = graph_with_layers("a", "b"), tmp_path / "towers.json"
    place(graph, 0, 1).save(path, graph, DEVICES, then)
    larger = OpGraph([op._replace(output_bytes=(64,)) for op in graph.ops], [])
    with pytest.raises(PlacementError) as caught:
        Placement.load(path, larger, now)
    assert caught.value.message == f"{path}: written for another graph than this one: {differs}"


def test_layers_that_differ_are_named(tmp_path):
    graph, path = graph_with_layers("a", "b", "c"), tmp_path / "towers.json"
    place(graph, 0, 1, 0).save(path, graph, DEVICES, NOW)
    ops = [op._replace(output_bytes=(8,)) if op.layer == "b" else op for op in graph.ops[:2]]
    others = [Op(f"more{i}", "MatMul", layer=layer) for i, layer in enumerate("defghi")]
    with pytest.raises(PlacementError) as caught:
        Placement.load(path, OpGraph([*ops, *others], []), NOW)
    assert caught.value.message.endswith(
        "this one: b is made of other ops or sizes here; c is gone; "
        "d, e, f, g, h and 1 more are new"
    )
    assert caught.value.hint == "trace the step as it was then, or analyse it again as it is now"


NAMES = {"a": "dense_3", "op0": "dense_3/MatMul", "op1": "op0", "op2": "c", "op3": "a"}


def renamed(graph):
    return OpGraph(*called(graph, NAMES, lambda layer: NAMES.get(layer, layer)))


def written(tmp_path, **changes):
    """Return a file of a chain of four ops in two layers, the third apart from its own."""
    ops = [Op(f"op{i}", "MatMul", layer=layer) for i, layer in enumerate("aaab")]
    graph = OpGraph(ops, [Edge(f"op{i}", f"op{i + 1}", 0, 8) for i in range(3)])
    path = tmp_path / "towers.json"
    document = place(graph, 0, 0, 1, 1).as_json(graph, DEVICES) | changes
    path.write_text(json.dumps(document), encoding="utf-8")
    return path, graph


def test_a_file_holds_for_the_same_graph_under_other_names(tmp_path):
    path, graph = written(tmp_path)
    other = renamed(graph)
    found = Placement.load(path, other)
    assert dict(found.device_of) == {
        "dense_3/MatMul": "worker:0", "op0": "worker:0", "c": "worker:1", "a": "worker:1",
    }  # fmt: skip


def test_a_file_of_an_older_version_holds_for_its_own_names_alone(tmp_path):
    path, graph = written(tmp_path)
    document = json.loads(path.read_text(encoding="utf-8"))
    del document["structure"]
    path.write_text(json.dumps(document), encoding="utf-8")
    assert Placement.load(path, graph).device_of["op2"] == "worker:1"
    with pytest.raises(PlacementError, match="written for another graph"):
        Placement.load(path, renamed(graph))


@pytest.mark.parametrize(
    "changes", [{"by_op": {"op1": "worker:1"}}, {"by_layer": {"x": "worker:1"}}]
)
def test_names_that_were_added_by_hand_are_not_guessed_under_other_names(tmp_path, changes):
    path, graph = written(tmp_path, **changes)
    with pytest.raises(
        PlacementError, match=r"have other names here, and `structure` does not say"
    ):
        Placement.load(path, renamed(graph))


TWICE = {"number": 0, "made_of": "a" * 16, "ops": {}}


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("schema_version", 9, "schema_version: 9 is newer than the 1 that this advisor reads"),
        ("graph_fingerprint", [], "graph_fingerprint: [] is not a hash of 16 hexadecimal digits"),
        ("by_layer", {}, "by_layer: no device for layer 'a'"),
        ("by_op", {"op0": "GPU:9"}, "by_op.'op0': 'GPU:9' is not one of the devices"),
        ("by_op", {"op7": "worker:1"}, "by_op: the graph has no op 'op7'"),
        ("devices", [], "devices: [] is too short"),
        ("devices", ["worker:0"] * 2, "devices: ['worker:0', 'worker:0'] names one twice"),
        ("structure", {"fingerprint": "f" * 16}, "structure: no field 'layers'"),
        ("traced_as", {"batch": 3}, "traced_as: no field 'mode'"),
        (
            "structure",
            {"fingerprint": "f" * 16, "layers": {"a": TWICE, "b": TWICE}},
            "structure: two layers or ops have the same number",
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_its_place(tmp_path, key, value, problem):
    graph = graph_with_layers("a")
    path = tmp_path / "placement.json"
    document = place(graph, 0).as_json(graph, DEVICES) | {key: value}
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(PlacementError) as caught:
        Placement.load(path, graph)
    assert caught.value.message.startswith(f"{path}: {problem}")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{}", "no field 'schema_version'"),
        (b"\xff", "not valid JSON: expected value at line 1 column 1"),
    ],
)
def test_what_is_no_placement_file_says_so(tmp_path, content, problem):
    path = tmp_path / "placement.json"
    path.write_bytes(content)
    with pytest.raises(PlacementError) as caught:
        Placement.load(path, graph_with_layers("a"))
    assert caught.value.message == f"{path}: {problem}"


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(PlacementError, match="cannot be read: No such file"):
        Placement.load(tmp_path / "gone.json", graph_with_layers("a"))
