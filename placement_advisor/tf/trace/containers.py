"""What a layer that holds other layers computes itself: as many layers as it has parts.

A model adds what two of its layers gave it, casts its inputs, gates its experts. All of that in
one layer would tie together what nothing ties: every residual addition of a network, the casts of
two towers' inputs. So the own ops of a container's call are divided: first by how often the data
left for the layers within and came back, then into what is connected. A part that reads inputs and
constants only, a cast or a mask, is no layer; it goes with what it feeds.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from placement_advisor.tf.trace.nodes import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Ops of one call of a container that belong together; ``scope`` is the call's name scope."""

    scope: str
    ops: tuple[Node, ...]

    @property
    def short_name(self) -> str:
        """What the part is called within its container: after its first op."""
        return self._below_scope(self.ops[0].name)

    def keys(self, others: Collection[str]) -> set[str]:
        """Return name scopes that hold these ops and no ``others``; an op's name where none does.

        Ops of the gradient are named after them.
        """
        found = set()
        for op in self.ops:
            whole = f"{self.scope}/{self._below_scope(op.name)}".lstrip("/")
            shared = any(other == whole or other.startswith(f"{whole}/") for other in others)
            found.add(op.name if shared else whole)
        return found

    def _below_scope(self, name: str) -> str:
        return name.removeprefix(self.scope).lstrip("/").partition("/")[0]


def parts_of(
    forward: Iterable[Node], own: Mapping[str, str], variables: Mapping[str, str]
) -> list[Part]:
    """Return the parts of all containers, in order, without those that only read inputs.

    ``forward`` stands in topological order. ``own`` maps a container's own ops to the name scope
    of its call, empty for ops outside all scopes; ``variables`` holds ops that take a variable.
    """
    forward = list(forward)
    level = _levels(forward, own)
    groups: dict[int, list[Node]] = {}
    for op in forward:
        if op.name not in own:
            continue
        group = [op]
        for producer, _ in op.inputs:
            together = groups.get(id(producer))
            is_near = (
                own.get(producer.name) == own[op.name] and level[id(producer)] == level[id(op)]
            )
            if together is not None and is_near and together is not group:
                group = _joined(together, group, groups)
        groups[id(op)] = group
    names = {op.name for op in forward}
    distinct = list({id(group): group for group in groups.values()}.values())
    return [
        Part(scope=own[group[0].name], ops=tuple(group))
        for group in distinct
        if _reads_layers(group, names, variables)
    ]


def _levels(forward: Iterable[Node], own: Mapping[str, str]) -> dict[int, int]:
    """Return how often data had left its container and come back, for each own op."""
    within: dict[str, dict[int, int]] = defaultdict(dict)
    scopes = set(own.values())
    levels: dict[int, int] = {}
    for op in forward:
        own_scope = own.get(op.name)
        for scope in _around(op.name, scopes):
            level = within[scope]
            is_own = own_scope == scope
            before = [
                level[id(producer)] + (is_own and own.get(producer.name) != scope)
                for producer, _ in op.inputs
                if id(producer) in level
            ]
            if before or is_own:
                level[id(op)] = max(before, default=0)
            if is_own:
                levels[id(op)] = level[id(op)]
    return levels


def _around(name: str, scopes: Collection[str]) -> list[str]:
    found = [""] if "" in scopes else []
    end = name.find("/")
    while end > 0:
        if name[:end] in scopes:
            found.append(name[:end])
        end = name.find("/", end + 1)
    return found


def _joined(one: list[Node], other: list[Node], groups: dict[int, list[Node]]) -> list[Node]:
    """Put the smaller group into the larger."""
    large, small = (one, other) if len(one) >= len(other) else (other, one)
    large += small
    for op in small:
        groups[id(op)] = large
    return large


def _reads_layers(
    group: Iterable[Node], forward: Collection[str], variables: Mapping[str, str]
) -> bool:
    """Return whether a part reads what a layer computed, or a variable."""
    group = list(group)
    inside = {id(op) for op in group}
    return any(
        op.name in variables or (producer.name in forward and id(producer) not in inside)
        for op in group
        for producer, _ in op.inputs
    )
