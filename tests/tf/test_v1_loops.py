"""Loops of TensorFlow 1 as one op each, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_graphs import nodes_of, ops_of

from placement_advisor.tf.trace.loops import Loop, folded, frames

# for (i = 0; i < 10; i += 3) x = x * scale; the result is used outside.
_LOOP = {
    "x": ("Placeholder", []),
    "start": ("Const", []),
    "scale": ("ReadVariableOp", []),
    "enter_i": ("Enter", ["start"]),
    "enter_x": ("Enter", ["x"]),
    "enter_scale": ("Enter", ["scale"]),
    "i": ("Merge", ["enter_i", "next_i"]),
    "value": ("Merge", ["enter_x", "next_x"]),
    "limit": ("Const", ["^i"]),
    "less": ("Less", ["i", "limit"]),
    "go": ("LoopCond", ["less"]),
    "switch_i": ("Switch", ["i", "go"]),
    "switch_x": ("Switch", ["value", "go"]),
    "again_i": ("Identity", ["switch_i:1"]),
    "again_x": ("Identity", ["switch_x:1"]),
    "step": ("Const", ["^again_i"]),
    "add": ("AddV2", ["again_i", "step"]),
    "mul": ("Mul", ["again_x", "enter_scale"]),
    "next_i": ("NextIteration", ["add"]),
    "next_x": ("NextIteration", ["mul"]),
    "exit_i": ("Exit", ["switch_i"]),
    "exit_x": ("Exit", ["switch_x"]),
    "result": ("Neg", ["exit_x"]),
}


def _attributes(limit: int) -> dict[str, dict[str, Any]]:
    numbers = {"start": 0, "limit": limit, "step": 3}
    found: dict[str, dict[str, Any]] = {
        name: {"value": np.array(number, np.int32)} for name, number in numbers.items()
    }
    enters = {name: {"frame_name": "rnn/while_context"} for name in _LOOP if "enter" in name}
    return {**found, **enters}


def test_a_loop_is_one_op_that_takes_what_enters_and_gives_what_leaves():
    found = folded(nodes_of(_LOOP, _attributes(10)))
    assert ops_of(found.nodes) == {
        "x": ("Placeholder", []),
        "start": ("Const", []),
        "scale": ("ReadVariableOp", []),
        "rnn": ("While", ["start", "x", "scale"]),
        "result": ("Neg", ["rnn"]),
    }
    inside = tuple(n for n in _LOOP if n not in ("x", "start", "scale", "result"))
    assert found.loops == {"rnn": Loop(members=inside, outputs=(("exit_x", 0),))}
    assert [node.name for node in found.bodies["rnn"]] == list(inside)


@pytest.mark.parametrize(("limit", "trips"), [(10, 4), (9, 3), (1, 1), (0, 0)])
def test_trips_are_counted_from_start_step_and_limit(limit, trips):
    assert folded(nodes_of(_LOOP, _attributes(limit))).trips == {"rnn": trips}


def test_a_loop_whose_limit_is_computed_from_data_has_unknown_trips():
    ops = {**_LOOP, "limit": ("ReadVariableOp", ["^i"])}
    assert folded(nodes_of(ops, _attributes(10))).trips == {}


def test_a_loop_within_a_loop_belongs_to_the_outer_one():
    inner = {
        "enter_y": ("Enter", ["again_x"]),
        "y": ("Merge", ["enter_y", "next_y"]),
        "more": ("LoopCond", ["enter_y"]),
        "switch_y": ("Switch", ["y", "more"]),
        "next_y": ("NextIteration", ["switch_y:1"]),
        "exit_y": ("Exit", ["switch_y"]),
        "mul": ("Mul", ["exit_y", "enter_scale"]),
    }
    attributes = {**_attributes(10), "enter_y": {"frame_name": "rnn/inner"}}
    nodes = nodes_of({**_LOOP, **inner}, attributes)
    around = {node.name: frames(nodes).get(id(node), ()) for node in nodes}
    assert around["exit_y"] == around["y"] == ("rnn/while_context", "rnn/inner")
    assert around["mul"] == ("rnn/while_context",)
    found = folded(nodes)
    assert [node.name for node in found.nodes if node.kind == "While"] == ["rnn"]
    assert set(inner) <= set(found.loops["rnn"].members)


def test_the_nodes_given_stay_as_they_are():
    nodes = nodes_of(_LOOP, _attributes(10))
    before = ops_of(nodes)
    folded(nodes)
    assert ops_of(nodes) == before


def test_a_graph_without_loops_is_only_put_in_order():
    nodes = nodes_of({"b": ("Neg", ["a"]), "a": ("Const", [])})
    found = folded(nodes)
    assert [node.name for node in found.nodes] == ["a", "b"]
    assert (found.loops, found.trips) == ({}, {})
