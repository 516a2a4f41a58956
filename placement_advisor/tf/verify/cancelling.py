"""Where sums cancel: ops that make rounding noise of tensors in which a mistake would show.

Followed back from what updates are given, as long as that is noise. What a step computes from the
same state with the last digit moved tells noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from placement_advisor.measurement.verification import shows
from placement_advisor.tf.trace.update_inputs import op_of, tensor_name, updates
from placement_advisor.tf.verify.held import Cancelling
from placement_advisor.tf.verify.rounding import ROUNDING_SEED, rounded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from placement_advisor.tf.place.placed_step import PlacedStep
    from placement_advisor.tf.trace.bundle import Bundle
    from placement_advisor.tf.trace.update_inputs import Update

    Place = Callable[[Bundle, Mapping[str, str]], PlacedStep]

# What cancels is a few ops away from the update: behind an optimizer's arithmetic, and clipping
# (Adam with clipped gradients: nine).
_MOST_OPS_BEHIND = 20
# What an op does to a variable that it takes the handle of, if it only reads it.
_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape"})
# Ops whose values no other op of the step has made.
_SOURCES = frozenset({"Const", "ReadVariableOp", "VarHandleOp", "Placeholder", "ResourceGather"})


def find_cancelling(
    place: Place,
    bundle: Bundle,
    device_of: Mapping[str, str],
    variables: Sequence[str],
    candidate: Bundle,
) -> tuple[Cancelling, ...]:
    """Return where sums cancel that variables are updated by, in the unsplit step.

    Those are left out that cannot be shown in the same way in ``candidate``.
    """
    nodes = {node.name: node for node in bundle.graph_def.node}
    every = updates(nodes.values(), bundle.variables)
    given = [each.tensor for each in every if each.variable in set(variables)]
    clear = _clear(place, bundle, device_of, nodes, given, every)
    found = []
    for name in dict.fromkeys(map(op_of, clear)):
        inputs = {
            number: tensor_name(reference)
            for number, reference in enumerate(nodes[name].input)
            if tensor_name(reference) in clear
        }
        is_noise = not clear.get(f"{name}:0", True)
        if is_noise and inputs and all(clear[tensor] for tensor in inputs.values()):
            found += [
                Cancelling(name, number, tensor)
                for number, tensor in inputs.items()
                if "T" in nodes[name].attr and _may_be_shown(name, tensor, candidate)
            ]
    return tuple(found)


def _clear(
    place: Place,
    bundle: Bundle,
    device_of: Mapping[str, str],
    nodes: Mapping[str, Any],
    given: Sequence[str],
    every: Sequence[Update],
) -> dict[str, bool]:
    """Say of tensors, and of what those that are noise are made of, whether a mistake shows."""
    states = bundle.variables, rounded(bundle.variables, ROUNDING_SEED)
    running: list[PlacedStep] = []
    found: dict[str, bool] = {}
    # Of a large model it takes seconds to put the state back, and there are many turns.
    is_initial = False
    try:
        running.extend(place(bundle, device_of) for _ in states)
        wanted = [tensor_name(reference) for reference in given]
        for _ in range(_MOST_OPS_BEHIND):
            # What a slot holds comes from its own updates.
            wanted += [
                tensor_name(each.tensor)
                for each in every
                if each.variable in {_read(nodes[op_of(name)]) for name in wanted}
            ]
            wanted = [
                name
                for name in dict.fromkeys(wanted)
                if name not in found and nodes[op_of(name)].op not in _SOURCES
            ]
            if not wanted:
                break
            values = []
            for step, state in zip(running, states, strict=True):
                if not is_initial:
                    step.reset(state)
                values.append(step.tensors(wanted))
            is_initial = _only_reads(nodes, wanted, bundle.variables)
            behind: list[str] = []
            for name, one, two in zip(wanted, *values, strict=True):
                if np.asarray(one).dtype.kind == "f":
                    found[name] = shows(one, two)
                    behind += () if found[name] else nodes[op_of(name)].input
            wanted = [tensor_name(each) for each in behind if not each.startswith("^")]
    finally:
        for step in running:
            step.close()
    return found


def _only_reads(
    nodes: Mapping[str, Any], tensors: Sequence[str], variables: Mapping[str, Any]
) -> bool:
    """Say whether all that tensors are computed from does no more than read variables."""
    behind = list(map(op_of, tensors))
    seen = set(behind)
    while behind:
        node = nodes[behind.pop()]
        before = {op_of(reference) for reference in node.input}
        if node.op not in _READS and not before.isdisjoint(variables):
            return False
        behind += before - seen
        seen |= before
    return True


def _read(node: Any) -> str | None:
    """Return the variable that an op reads, None if it does something else."""
    return op_of(node.input[0]) if node.op == "ReadVariableOp" else None


def _may_be_shown(op: str, tensor: str, bundle: Bundle) -> bool:
    """Say whether an edit does to all shares together what it does to the whole batch."""
    if bundle.split is None:
        return True
    is_shared = any(node.name == op for node in bundle.graph_def.node)
    return is_shared or tensor in bundle.split.growing
