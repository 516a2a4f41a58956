"""Rewrites of small graphs, by hand."""

from __future__ import annotations

from small_graphs import nodes_of, ops_of

from placement_advisor.tf.trace import flat_step
from placement_advisor.tf.trace.nodes import in_order, needed


def test_what_constants_wait_for_is_waited_for_by_their_readers():
    nodes = nodes_of(
        {
            "write": ("AssignVariableOp", []),
            "first": ("Const", ["^write"]),
            "second": ("Const", ["^first"]),
            "free": ("Const", []),
            "sum": ("AddV2", ["second", "free", "^free"]),
            "after": ("NoOp", ["^first", "^write"]),
        }
    )
    flat_step.lift_control_inputs_of_constants(nodes)
    ops = ops_of(nodes)
    assert ops["first"] == ops["second"] == ("Const", [])
    assert ops["sum"] == ("AddV2", ["second", "free", "^write"])
    assert ops["after"] == ("NoOp", ["^write"])


def test_a_constant_that_is_held_in_a_loop_keeps_what_it_waits_for():
    nodes = nodes_of(
        {
            "enter": ("Enter", []),
            "one": ("Const", ["^enter"]),
            "sum": ("AddV2", ["enter", "one"]),
        }
    )
    flat_step.lift_control_inputs_of_constants(nodes, {id(node) for node in nodes})
    assert ops_of(nodes)["one"] == ("Const", ["^enter"])


def test_outputs_do_not_wait_for_updates_and_idle_barriers_go():
    nodes = nodes_of(
        {
            "loss": ("Mean", []),
            "update": ("AssignVariableOp", []),
            "all_updates": ("NoOp", ["^update"]),
            "output": ("Identity", ["loss", "^all_updates"]),
            "waits_for_nothing": ("NoOp", []),
            "read": ("ReadVariableOp", ["^waits_for_nothing", "^update"]),
            "barrier": ("NoOp", ["^update"]),
            "read_after": ("ReadVariableOp", ["^barrier"]),
        }
    )
    assert ops_of(flat_step.drop_barriers(nodes, {"output"}, {"update"})) == {
        "loss": ("Mean", []),
        "update": ("AssignVariableOp", []),
        "output": ("Identity", ["loss"]),
        "read": ("ReadVariableOp", ["^update"]),
        "barrier": ("NoOp", ["^update"]),
        "read_after": ("ReadVariableOp", ["^barrier"]),
    }


def test_readers_of_an_identity_of_many_read_what_it_was_given():
    nodes = nodes_of(
        {
            "a": ("MatMul", []),
            "b": ("TopKV2", []),
            "write": ("AssignVariableOp", []),
            "all": ("IdentityN", ["a", "b:1", "^write"]),
            "Func/call/output/_1": ("Identity", ["all:1"]),
            "square": ("Mul", ["all", "all:1"]),
            "root": ("Sqrt", ["Func/call/output/_1"]),
            "after": ("NoOp", ["^all"]),
            "kept": ("IdentityN", ["a"]),
        }
    )
    stay, targets = flat_step.bypass_identities(nodes, {"kept"}, ("all", "write", "after"))
    assert ops_of(stay) == {
        "a": ("MatMul", []),
        "b": ("TopKV2", []),
        "write": ("AssignVariableOp", []),
        "square": ("Mul", ["a", "b:1", "^write"]),
        "root": ("Sqrt", ["b:1", "^write"]),
        "after": ("NoOp", ["^a", "^b", "^write"]),
        "kept": ("IdentityN", ["a"]),
    }
    assert targets == ("write", "after")


def test_summaries_go_with_their_writer_and_with_what_only_they_read():
    nodes = nodes_of(
        {
            "writer": ("Placeholder", []),
            "loss": ("Mean", []),
            "tag": ("Const", []),
            "passed": ("Identity", ["loss"]),
            "write": ("WriteSummary", ["writer", "passed", "tag"]),
            "flush": ("FlushSummaryWriter", ["writer", "^write"]),
            "all": ("NoOp", ["^write", "^flush", "^loss"]),
            "output": ("Identity", ["loss"]),
        }
    )
    found = flat_step.find_summaries(nodes)
    assert found == {"writer", "tag", "passed", "write", "flush"}
    assert ops_of(flat_step.without_nodes(nodes, found)) == {
        "loss": ("Mean", []),
        "all": ("NoOp", ["^loss"]),
        "output": ("Identity", ["loss"]),
    }


def test_a_read_whose_value_nobody_takes_goes_and_what_it_waited_for_stays():
    nodes = nodes_of(
        {
            "variable": ("VarHandleOp", []),
            "write": ("AssignVariableOp", ["variable"]),
            "unread": ("ReadVariableOp", ["variable", "^write"]),
            "again": ("ReadVariableOp", ["variable", "^unread"]),
            "update": ("AssignAddVariableOp", ["variable", "^again"]),
            "output": ("ReadVariableOp", ["variable"]),
            "read": ("ReadVariableOp", ["variable"]),
            "sum": ("AddV2", ["read"]),
        }
    )
    assert ops_of(flat_step.drop_unread_reads(nodes, {"output"})) == {
        "variable": ("VarHandleOp", []),
        "write": ("AssignVariableOp", ["variable"]),
        "update": ("AssignAddVariableOp", ["variable", "^write"]),
        "output": ("ReadVariableOp", ["variable"]),
        "read": ("ReadVariableOp", ["variable"]),
        "sum": ("AddV2", ["read"]),
    }


def test_what_no_end_needs_is_left_out():
    nodes = nodes_of(
        {
            "handle": ("VarHandleOp", []),
            "read": ("ReadVariableOp", ["handle"]),
            "before": ("NoOp", []),
            "loss": ("Mean", ["read", "^before"]),
            "gradient_for_nobody": ("Mul", ["loss", "read"]),
        }
    )
    assert set(ops_of(needed(nodes, {"loss"}))) == {"handle", "read", "loss", "before"}


def test_producers_come_first_and_otherwise_the_order_stays():
    nodes = nodes_of(
        {
            "sum": ("AddV2", ["b", "a"]),
            "a": ("Const", []),
            "b": ("Neg", ["c"]),
            "c": ("Const", []),
            "d": ("NoOp", ["^sum"]),
        }
    )
    assert [node.name for node in in_order(nodes)] == ["a", "c", "b", "sum", "d"]
