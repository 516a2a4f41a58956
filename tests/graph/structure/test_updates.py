from __future__ import annotations

from placement_advisor.graph.op_graph import Edge, Op, OpGraph, Role
from placement_advisor.graph.structure.optimizer_ops import (
    Updates,
    VariableUpdate,
    updates_by_variable,
)


def graph_of(*wires: str) -> OpGraph:
    """Return a training step from lines such as ``"w.assign: w delta"``.

    An op reads the names after the colon. ``grad…`` is backward, a single letter a variable or
    slot, ``look…`` forward; anything else is an update, of the variable before its dot if any.
    """
    ops: dict[str, Op] = {}
    edges = []
    for wire in wires:
        name, _, reads = wire.partition(":")
        for one in [*reads.split(), name]:
            role = (
                Role.VARIABLE
                if len(one) == 1
                else Role.BACKWARD
                if one.startswith("grad")
                else Role.FORWARD
                if one.startswith("look")
                else Role.UPDATE
            )
            variable = one[0] if len(one) == 1 or one[1:2] == "." else None
            ops.setdefault(one, Op(name=one, kind="K", role=role, variable=variable))
        edges += [Edge(one, name, 0, 8) for one in reads.split()]
    return OpGraph(ops.values(), edges)


MOMENTUM = (
    *("look_{w}: {w}", "grad_{w}: look_{w}", "{m}.read: {m}", "mix_{w}: {m}.read grad_{w}"),
    *(
        "{m}.assign: {m} mix_{w}",
        "{m}.again: {m}",
        "step_{w}: {m}.again",
        "{w}.assign: {w} step_{w}",
    ),
)


def momentum(variable: str, slot: str, *more: str) -> list[str]:
    return [*more, *(wire.format(w=variable, m=slot) for wire in MOMENTUM)]


def test_what_changes_a_variable_and_its_slot_is_one_group() -> None:
    assert updates_by_variable(graph_of(*momentum("w", "m"))) == Updates(
        variables=(
            VariableUpdate(
                variable="w",
                ops=("m.read", "mix_w", "m.assign", "m.again", "step_w", "w.assign"),
                slots=("m",),
            ),
        ),
        shared=(),
    )


def test_a_learning_rate_that_two_variables_read_is_shared_and_so_is_a_step_counter() -> None:
    rate = ("r.read: r", "n.read: n", "next: n.read", "n.assign: n next", "scale: r.read n.read")
    wires = [*rate, *momentum("w", "m"), *momentum("v", "u")]
    wires += ["step_w: scale", "step_v: scale"]
    updates = updates_by_variable(graph_of(*wires))
    assert {update.variable: update.slots for update in updates.variables} == {
        "w": ("m",),
        "v": ("u",),
    }
    assert set(updates.shared) == {"r.read", "n.read", "next", "n.assign", "scale"}


def test_a_fused_update_takes_its_slots_by_handle() -> None:
    updates = updates_by_variable(graph_of("look_w: w", "grad_w: look_w", "w.apply: w m v grad_w"))
    (update,) = updates.variables
    assert (update.variable, update.ops, update.slots) == ("w", ("w.apply",), ("m", "v"))


def test_a_counter_of_its_own_belongs_to_itself() -> None:
    (update,) = updates_by_variable(
        graph_of("c.read: c", "more: c.read", "c.add: c more")
    ).variables
    assert (update.variable, update.ops, update.slots) == ("c", ("c.read", "more", "c.add"), ())


def test_a_step_without_updates_has_none() -> None:
    assert updates_by_variable(graph_of("look_w: w")) == Updates(variables=(), shared=())
