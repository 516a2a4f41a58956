"""A traced graph as light nodes, which rewrites and readers walk many times.

TensorFlow's own objects cross a language border at every access; a node is read once. Nodes know
their inputs, not their readers: `data_readers` answers that for a list of nodes. Free of
TensorFlow: `read_graph` makes nodes of its operations.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from placement_advisor.graph.op_work.signature import TensorSpec


class Source(Protocol):
    """What a node was made of."""

    def attribute(self, name: str) -> Any:
        """Return an attribute as a plain value: types and functions by name, tensors as arrays.

        None if the op has none of that name.
        """

    def definition(self) -> Any:
        """Return the op as a NodeDef."""

    def device(self) -> str:
        """Return the device that the user's `tf.device` scopes ask for, as TensorFlow writes it.

        Empty if there is none.
        """


class Node:
    """One op: its name, kind, tensors and what must run before it.

    ``inputs`` are (producer, port), ``controls`` the ops that it waits for, ``outputs`` the specs
    of its tensors. ``source`` tells the rest; an op that stands for others has none.
    """

    __slots__ = ("controls", "inputs", "kind", "name", "outputs", "source")

    def __init__(self, name: str, kind: str, source: Source | None = None) -> None:
        self.name, self.kind, self.source = name, kind, source
        self.inputs: list[tuple[Node, int]] = []
        self.controls: list[Node] = []
        self.outputs: tuple[TensorSpec, ...] = ()

    def attribute(self, name: str) -> Any:
        """Return an attribute, see `Source`; None without a source."""
        return None if self.source is None else self.source.attribute(name)

    def before(self) -> list[Node]:
        """Return what must run before this op; an op may come up several times."""
        return [*[producer for producer, _ in self.inputs], *self.controls]

    def __repr__(self) -> str:
        return f"{self.kind} {self.name!r}"


def data_readers(nodes: Iterable[Node]) -> dict[str, list[Node]]:
    """Return the nodes that read each op's tensors, in the order of ``nodes``."""
    nodes = list(nodes)
    readers: dict[str, list[Node]] = {node.name: [] for node in nodes}
    for node in nodes:
        for producer, _ in node.inputs:
            found = readers[producer.name]
            if not found or found[-1] is not node:
                found.append(node)
    return readers


def in_order(nodes: list[Node]) -> list[Node]:
    """Return the nodes with producers first, otherwise as given; nodes on a cycle are left out."""
    if _is_in_order(nodes):
        return nodes
    place = {id(node): i for i, node in enumerate(nodes)}
    readers: list[list[int]] = [[] for _ in nodes]
    waiting = []
    for i, node in enumerate(nodes):
        before = {place[id(other)] for other in node.before()}
        waiting.append(len(before))
        for other in before:
            readers[other].append(i)
    ready = [i for i, count in enumerate(waiting) if not count]
    ordered = []
    while ready:
        i = heappop(ready)
        ordered.append(nodes[i])
        for reader in readers[i]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heappush(ready, reader)
    return ordered


def _is_in_order(nodes: Iterable[Node]) -> bool:
    seen: set[int] = set()
    for node in nodes:
        for producer, _ in node.inputs:
            if id(producer) not in seen:
                return False
        for before in node.controls:
            if id(before) not in seen:
                return False
        seen.add(id(node))
    return True


def needed(nodes: Iterable[Node], ends: Collection[str]) -> list[Node]:
    """Return the nodes that an end needs, in their order; TensorFlow runs no others."""
    nodes = list(nodes)
    found: set[int] = set()
    waiting = [node for node in nodes if node.name in ends]
    while waiting:
        node = waiting.pop()
        if id(node) not in found:
            found.add(id(node))
            waiting += [producer for producer, _ in node.inputs]
            waiting += node.controls
    return [node for node in nodes if id(node) in found]
