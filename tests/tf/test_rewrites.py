"""Rewrites of small graphs, by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from placement_advisor.children import Child

Rewrite = Callable[..., tuple[dict[str, tuple[str, list[str]]], Any]]


@pytest.fixture
def rewritten(child: Child) -> Rewrite:
    def rewrite(ops: dict[str, tuple[str, list[str]]], name: str, *args: Any) -> Any:
        return child.call("graph_defs:rewritten", ops, name, *args, time_limit_s=60.0)

    return rewrite


def test_what_constants_wait_for_is_waited_for_by_their_readers(rewritten: Rewrite) -> None:
    ops, _ = rewritten(
        {
            "write": ("AssignVariableOp", []),
            "first": ("Const", ["^write"]),
            "second": ("Const", ["^first"]),
            "free": ("Const", []),
            "sum": ("AddV2", ["second", "free", "^free"]),
            "after": ("NoOp", ["^first", "^write"]),
        },
        "lift_control_inputs_of_constants",
    )
    assert ops["first"] == ops["second"] == ("Const", [])
    assert ops["sum"] == ("AddV2", ["second", "free", "^write"])
    assert ops["after"] == ("NoOp", ["^write"])


def test_outputs_do_not_wait_for_updates_and_idle_barriers_go(rewritten: Rewrite) -> None:
    ops, _ = rewritten(
        {
            "loss": ("Mean", []),
            "update": ("AssignVariableOp", []),
            "all_updates": ("NoOp", ["^update"]),
            "output": ("Identity", ["loss", "^all_updates"]),
            "waits_for_nothing": ("NoOp", []),
            "read": ("ReadVariableOp", ["^waits_for_nothing", "^update"]),
            "barrier": ("NoOp", ["^update"]),
            "read_after": ("ReadVariableOp", ["^barrier"]),
        },
        "drop_barriers",
        {"output"},
        {"update"},
    )
    assert ops == {
        "loss": ("Mean", []),
        "update": ("AssignVariableOp", []),
        "output": ("Identity", ["loss"]),
        "read": ("ReadVariableOp", ["^update"]),
        "barrier": ("NoOp", ["^update"]),
        "read_after": ("ReadVariableOp", ["^barrier"]),
    }


def test_readers_of_an_identity_of_many_read_what_it_was_given(rewritten: Rewrite) -> None:
    ops, targets = rewritten(
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
        },
        "bypass_identities",
        {"kept"},
        ("all", "write", "after"),
    )
    assert ops == {
        "a": ("MatMul", []),
        "b": ("TopKV2", []),
        "write": ("AssignVariableOp", []),
        "square": ("Mul", ["a", "b:1", "^write"]),
        "root": ("Sqrt", ["b:1", "^write"]),
        "after": ("NoOp", ["^a", "^b", "^write"]),
        "kept": ("IdentityN", ["a"]),
    }
    assert targets == ("write", "after")


def test_what_no_end_needs_is_pruned(rewritten: Rewrite) -> None:
    ops, _ = rewritten(
        {
            "handle": ("VarHandleOp", []),
            "read": ("ReadVariableOp", ["handle"]),
            "loss": ("Mean", ["read:0", "^before"]),
            "before": ("NoOp", []),
            "gradient_for_nobody": ("Mul", ["loss", "read"]),
        },
        "prune",
        {"loss"},
    )
    assert set(ops) == {"handle", "read", "loss", "before"}


def test_renamed_ops_are_found_by_data_and_control_edges(rewritten: Rewrite) -> None:
    ops, _ = rewritten(
        {"old": ("Split", []), "sum": ("AddV2", ["old", "old:1", "^old", "older"])},
        "rename",
        {"old": "new"},
    )
    assert ops == {"new": ("Split", []), "sum": ("AddV2", ["new", "new:1", "^new", "older"])}
