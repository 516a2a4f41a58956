"""Lines that tell parts of a step from the rest, what scopes ask for, and how moves are said."""

from itertools import pairwise
from pathlib import Path

import pytest
from record_cases import cut

from placement_advisor.candidates import references
from placement_advisor.check.causes import Scopes, move_texts, read_scopes
from placement_advisor.check.code_lines import CodeLines, code_lines, from_stacks, with_placement
from placement_advisor.check.lock_record import Move, Part
from placement_advisor.check.problem_codes import Place
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.graph.op import Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.presets import read_hardware
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.tf.answers import SourceLine

FORWARD, BACKWARD = Part.FORWARD, Part.BACKWARD


def at(*lines):
    return tuple(Place("m.py", line) for line in lines)


# A helper at line 22 is called for each tower: at 55, 58 and 59, all from 70.
TOWERS = from_stacks(
    {
        ("user", FORWARD): [at(22, 55, 70)],
        ("item", FORWARD): [at(22, 58, 70), at(23, 58, 70)],
        ("video", FORWARD): [at(58, 70)],
        ("context", FORWARD): [at(22, 59, 70)],
        ("user", BACKWARD): [at(71)],
        ("item", BACKWARD): [at(71)],
    }
)


def test_the_line_of_layers_is_the_one_that_they_share_with_no_other():
    assert TOWERS.of_parts([("user", FORWARD)]) == Place("m.py", 55)
    assert TOWERS.of_parts([("context", FORWARD)]) == Place("m.py", 59)
    towers = [("context", FORWARD), ("item", FORWARD), ("video", FORWARD)]
    assert TOWERS.of_parts(towers) == Place("m.py", 58)
    assert TOWERS.of_parts([("video", FORWARD)], {"item"}) == Place("m.py", 58)
    lines = {"a": 7, "b": 7, "c": 8}
    shared = from_stacks({(name, FORWARD): [at(5, line, 9)] for name, line in lines.items()})
    assert shared.of_parts([("a", FORWARD)]) == Place("m.py", 7)


def test_where_no_line_tells_layers_apart_one_that_all_share_stands_for_them():
    assert TOWERS.of_parts([("item", BACKWARD)]) == Place("m.py", 71)
    everything = [(name, FORWARD) for name in ("user", "item", "video", "context")]
    assert TOWERS.of_parts(everything) == Place("m.py", 55)
    alone = from_stacks({("net", FORWARD): [at(3, 70)]})
    assert alone.of_parts([("net", FORWARD)]) == Place("m.py", 3)
    assert TOWERS.of_parts([("gone", FORWARD)]) is None
    assert CodeLines().of_parts([("item", FORWARD)]) is None


def test_where_one_line_runs_all_layers_that_of_a_layer_is_where_it_was_made_or_none():
    runs = {(name, part): [at(14, 16)] for name in "abc" for part in (FORWARD, BACKWARD)}
    lines = {"a": 5, "b": 6}
    made = {(n, Part.VARIABLES): [at(line, 12, 16), at(14, 16)] for n, line in lines.items()}
    found = from_stacks(runs | made)
    assert [found.of_layer(name) for name in "abc"] == [Place("m.py", 5), Place("m.py", 6), None]
    assert TOWERS.of_layer("user") == Place("m.py", 55)


GPU = frozenset({"CPU", "GPU"})
GRAPH = OpGraph(
    [
        Op("w", "VarHandleOp", Role.VARIABLE, "dense", device_kinds=GPU, parameter_bytes=8),
        Op("x", "Exp", layer="dense", output_bytes=(8, 8), device_kinds=GPU),
        Op("near", "Log", layer="near", output_bytes=(8,), device_kinds=GPU),
        Op("far", "Log", layer="far", output_bytes=(8,), device_kinds=GPU),
        Op("text", "AsString", layer="far", output_bytes=(8,)),
        Op("set", "AssignVariableOp", Role.UPDATE, "dense", "w", device_kinds=GPU),
    ],
    [
        Edge("x", "near", 0, 8),
        Edge("x", "far", 1, 8),
        Edge("far", "text", 0, 8),
        Edge("w", "set", -1, None),
    ],
)


@pytest.fixture
def lines():
    stacks = {
        op: (SourceLine("project/models/m.py", line),)
        for op, line in {"x": 1, "near": 2, "far": 3, "text": 4, "set": 9}.items()
    }
    created = {"w": (SourceLine("elsewhere/lib.py", 7), SourceLine("project/models/m.py", 8))}
    return code_lines(GRAPH, stacks, created, Path("project"))


def test_a_tensor_that_crosses_has_the_line_that_reads_it_there(lines):
    assert lines.of_op["x"] == Place("models/m.py", 1)
    (created,) = lines.stacks["dense", Part.VARIABLES]
    assert created == (Place("lib.py", 7), Place("models/m.py", 8))
    cluster = read_hardware("2xV100-NVLink")
    placement = references.on_device(GRAPH, "GPU:0")
    moved = {**placement.device_of, "far": "GPU:1", "text": "GPU:1"}
    placed = type(placement)(label="", family="", device_of=moved, rationale="")
    simulator = Simulator(GRAPH, roofline_by_place(GRAPH, cluster), cluster)
    found = with_placement(lines, GRAPH, moved, simulator.schedule(placed))
    assert found.of_cuts([cut("x:1", 8)]) == Place("models/m.py", 3)
    assert found.on_host == {("far", "AsString"): Place("models/m.py", 4)}


def test_a_line_of_the_forward_pass_is_better_than_that_of_all_gradients():
    large, small = cut("gradient:0", 900), cut("x:0", 8)
    readers = ({("x:0", "GPU:1"): Place("m.py", 3)}, {("gradient:0", "GPU:1"): Place("m.py", 9)})
    lines = CodeLines(readers=readers)
    assert lines.of_cuts([large, small]) == Place("m.py", 3)
    assert lines.of_cuts([large]) == Place("m.py", 9)
    assert lines.of_cuts([]) is None


SCOPED = OpGraph(
    [
        Op("one", "Exp", layer="first"),
        Op("two", "Exp", layer="second"),
        Op("more", "Exp", layer="second"),
        Op("slope", "Mul", Role.BACKWARD, "second"),
        Op("rest", "Exp"),
    ],
    [Edge(*ends, 0, None) for ends in pairwise(("one", "two", "more", "slope"))],
)


@pytest.mark.parametrize(
    ("slope", "left", "on"),
    [
        ({}, {"GPU:1"}, {}),
        ({"slope": "GPU:2"}, set(), {"second": "GPU:1"}),
        ({"slope": "GPU:0"}, {"GPU:1"}, {"second": "GPU:0"}),
    ],
)
def test_scopes_go_by_the_devices_of_the_cluster(slope, left, on):
    cluster = read_hardware("2xV100-NVLink")
    asked = {"one": "GPU:0", "two": "GPU:2", "more": "GPU:2", **slope}
    assert read_scopes(SCOPED, asked, cluster) == Scopes(
        device_of={"first": "GPU:0", "second": "GPU:1"},
        gradients_on=on,
        left_behind=frozenset(left),
        is_split=True,
    )
    assert not read_scopes(SCOPED, {"one": "GPU:0"}, cluster).is_split


def move(layer, part):
    return Move(layer=layer, part=part, before=("GPU:1",), after=("GPU:0", "GPU:1"))


def test_what_moved_alike_is_one_phrase():
    moves = [move(layer, part) for layer in ("a", "b") for part in Part]
    moves += [move("c", BACKWARD), move("", Part.VARIABLES)]
    assert list(move_texts(moves, CodeLines())) == [
        "a, b: GPU:1 -> GPU:0",
        "backward pass of c: GPU:1 -> GPU:0",
        "variables of ops of no layer: GPU:1 -> GPU:0",
    ]


def test_layers_that_moved_have_the_line_that_tells_them_from_those_that_stayed():
    stacks = {"a": (2, 7), "b": (2, 7), "c": (2, 8), "stayed": (2, 6)}
    lines = from_stacks({(layer, FORWARD): [at(*stack)] for layer, stack in stacks.items()})
    assert list(move_texts([move(layer, FORWARD) for layer in "abc"], lines)) == [
        "a, b: GPU:1 -> GPU:0 (m.py:7)",
        "c: GPU:1 -> GPU:0 (m.py:8)",
    ]
