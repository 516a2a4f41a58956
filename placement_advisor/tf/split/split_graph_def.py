"""The GraphDef of a step whose batch is split, put together from the traces of its shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.tf.trace.function_names import suffix_functions
from placement_advisor.tf.trace.v1_loops import Loop

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from placement_advisor.candidates.batch_split.plan import Tensor
    from placement_advisor.candidates.batch_split.split_graph import Added, Wiring
    from placement_advisor.tf.trace.flat_step import FlatStep

_FRAME, _SHARED_NAME, _SEED = "frame_name", "shared_name", "seed2"


def split_graph_def(
    whole: FlatStep, shares: Sequence[FlatStep], wiring: Wiring, ops: Container[str]
) -> Any:
    """Return the graph of the split step; ``shares`` has the trace of each replica.

    ``ops`` are the ops of the split step's op graph; no others are written.
    """
    written = whole.graph_def()
    nodes = list(_moved(written, _Names(whole, wiring, None), ops))
    del written.node[:]
    written.node.extend(nodes)
    for replica, share in enumerate(shares):
        part = share.graph_def()
        suffix_functions(part, f"_{wiring.prefix}_{replica}")
        written.node.extend(_moved(part, _Names(share, wiring, replica), ops))
        written.library.MergeFrom(part.library)
    types = {node.name: [spec.dtype for spec in node.outputs] for node in whole.ops}
    for added in wiring.added():
        if added.name in ops:
            _append(written, added, types, len(shares))
    return written


def _moved(trace: Any, names: _Names, ops: Container[str]) -> Iterator[Any]:
    return (names.moved(node) for node in trace.node if names.split_op(node.name) in ops)


def split_loops(whole: FlatStep, shares: Sequence[FlatStep], wiring: Wiring) -> dict[str, Loop]:
    """Return what the loops of the split step stand for."""
    found = {}
    for replica, step in ((None, whole), *enumerate(shares)):
        names = _Names(step, wiring, replica)
        for name, loop in step.loops.items():
            if (replica is None) != wiring.plan.is_copied(name):
                found[wiring.copy(name, replica)] = names.loop(loop)
    return found


class _Names:
    """What the nodes of one trace are called in the split step, and what they read there."""

    def __init__(self, step: FlatStep, wiring: Wiring, replica: int | None) -> None:
        self._wiring, self._replica = wiring, replica
        self._loop_of = {
            member: name for name, loop in step.loops.items() for member in loop.members
        }
        self._leaving = {
            tensor: (name, port)
            for name, loop in step.loops.items()
            for port, tensor in enumerate(loop.outputs)
        }

    def op(self, node: str) -> str:
        """Return the op of the trace's op graph that a node belongs to."""
        return self._loop_of.get(node, node)

    def split_op(self, node: str) -> str | None:
        """Return the op of the split step that a node goes to, None if its copies are elsewhere."""
        op, plan = self.op(node), self._wiring.plan
        is_here = op not in plan.replicated if self._replica is None else plan.is_copied(op)
        return self._wiring.copy(op, self._replica) if is_here else None

    def loop(self, loop: Loop) -> Loop:
        """Return a loop of the trace as one of the split step."""
        return Loop(
            members=tuple(self._copy(member, self._replica) for member in loop.members),
            outputs=tuple((self._copy(name, self._replica), port) for name, port in loop.outputs),
        )

    def moved(self, node: Any) -> Any:
        """Return a node of the trace as a node of the split step."""
        moved = tf.compat.v1.NodeDef()
        moved.CopyFrom(node)
        moved.name = self._copy(node.name, self._replica)
        del moved.input[:]
        for reference in node.input:
            moved.input.extend(self._read(reference, node.name))
        if self._replica is not None and moved.name != node.name:
            for attribute in (_FRAME, _SHARED_NAME):
                if attribute in moved.attr:
                    scope = f"{self._wiring.prefix}_{self._replica}/".encode()
                    moved.attr[attribute].s = scope + moved.attr[attribute].s
            if moved.attr[_SEED].i if _SEED in moved.attr else 0:
                moved.attr[_SEED].i += self._replica  # Else all draw the same numbers.
        return moved

    def _copy(self, node: str, replica: int | None) -> str:
        is_copied = self._wiring.copy(self.op(node), replica) != self.op(node)
        return f"{self._wiring.prefix}_{replica}/{node}" if is_copied else node

    def _read(self, reference: str, reader: str) -> list[str]:
        if reference.startswith("^"):
            befores = self._wiring.befores(self.op(reference[1:]), self._replica)
            replicas = range(len(befores)) if len(befores) > 1 else [self._replica]
            return [f"^{self._copy(reference[1:], replica)}" for replica in replicas]
        name, _, port = reference.partition(":")
        tensor = name, int(port or 0)
        leaving = self._leaving.get(tensor)
        is_within = self.op(name) != name and self.op(name) == self.op(reader)
        if is_within or (leaving is None and self.op(name) != name):
            return [_reference((self._copy(name, self._replica), tensor[1]))]
        wanted = leaving or tensor
        moved = self._wiring.tensor(wanted, self._replica)
        for replica in (self._replica, 0):
            if moved == (self._wiring.copy(wanted[0], replica), wanted[1]):
                moved = self._copy(name, replica), tensor[1]
                break
        return [_reference(moved)]


def _append(written: Any, added: Added, types: Mapping[str, Sequence[str]], replicas: int) -> None:
    node = written.node.add(name=added.name, op=added.kind)
    node.input.extend(map(_reference, added.inputs))
    dtype = tf.int32 if added.like is None else tf.as_dtype(types[added.like[0]][added.like[1]])
    if added.kind == "Const":
        node.attr["dtype"].type = dtype.as_datatype_enum
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(added.value, dtype=dtype))
        return
    node.attr["T"].type = dtype.as_datatype_enum
    if added.kind in ("AddN", "ConcatV2"):
        node.attr["N"].i = replicas
    if added.kind == "ConcatV2":
        node.attr["Tidx"].type = tf.int32.as_datatype_enum
    if added.kind == "SplitV":
        node.attr["num_split"].i = replicas
        node.attr["Tlen"].type = tf.int32.as_datatype_enum


def _reference(tensor: Tensor) -> str:
    name, port = tensor
    return f"{name}:{port}" if port else name
