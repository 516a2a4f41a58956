"""What the scopes of today ask for, and how moves are said."""

from itertools import pairwise

import pytest

from placement_advisor.check.causes import Scopes, move_texts, read_scopes
from placement_advisor.check.code_lines import CodeLines, from_stacks
from placement_advisor.check.lock_record import Move, Part
from placement_advisor.check.problem_codes import Place
from placement_advisor.graph.op import Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.presets import read_hardware

GRAPH = OpGraph(
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
    assert read_scopes(GRAPH, asked, cluster) == Scopes(
        device_of={"first": "GPU:0", "second": "GPU:1"},
        gradients_on=on,
        left_behind=frozenset(left),
        is_split=True,
    )
    assert not read_scopes(GRAPH, {"one": "GPU:0"}, cluster).is_split


def move(layer, part, before="GPU:1", after="GPU:0"):
    return Move(layer=layer, part=part, before=(before,), after=(after, before))


def test_what_moved_alike_is_one_phrase():
    moves = [move(layer, part) for layer in ("a", "b") for part in Part]
    moves += [move("c", Part.BACKWARD), move("", Part.VARIABLES)]
    assert list(move_texts(moves, CodeLines())) == [
        "a, b: GPU:1 -> GPU:0",
        "backward pass of c: GPU:1 -> GPU:0",
        "variables of ops of no layer: GPU:1 -> GPU:0",
    ]


def test_layers_that_moved_have_the_line_that_tells_them_from_those_that_stayed():
    stacks = {"a": (2, 7), "b": (2, 7), "c": (2, 8), "stayed": (2, 6)}
    lines = from_stacks(
        {
            (layer, Part.FORWARD): [tuple(Place("m.py", line) for line in stack)]
            for layer, stack in stacks.items()
        }
    )
    assert list(move_texts([move(layer, Part.FORWARD) for layer in "abc"], lines)) == [
        "a, b: GPU:1 -> GPU:0 (m.py:7)",
        "c: GPU:1 -> GPU:0 (m.py:8)",
    ]
